//! Means with 95 % intervals, and straight lines through points.

use std::f64::consts::PI;

use serde::Serialize;

/// The share of intervals that hold the true mean.
const CONFIDENCE: f64 = 0.95;

/// A mean over seeds, and how far the true mean may be from it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half of the width of the 95 % interval by Student's t; none of fewer than two figures.
    pub half: Option<f64>,
    /// How many figures it is of.
    pub count: usize,
}

impl Interval {
    /// The lower end; the mean itself where there is no interval.
    pub fn low(&self) -> f64 {
        self.mean - self.half.unwrap_or(0.0)
    }

    /// The upper end.
    pub fn high(&self) -> f64 {
        self.mean + self.half.unwrap_or(0.0)
    }

    /// All of it lies below all of the other.
    pub fn is_below(&self, other: &Self) -> bool {
        self.high() < other.low()
    }
}

/// `mean ± half`, with two decimals.
impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.half {
            Some(half) => write!(f, "{:.2} ± {half:.2}", self.mean),
            None => write!(f, "{:.2}", self.mean),
        }
    }
}

/// The mean of figures that are independent of one another; none of no figures.
pub fn interval(figures: &[f64]) -> Option<Interval> {
    let count = figures.len();
    if count == 0 {
        return None;
    }
    let mean = figures.iter().sum::<f64>() / count as f64;
    let half = (count > 1).then(|| {
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let variance = squares / (count - 1) as f64;
        student_t(count - 1) * (variance / count as f64).sqrt()
    });
    Some(Interval { mean, half, count })
}

/// The value that Student's t of so many degrees of freedom, at least 1, exceeds in either direction in 5 % of
/// cases.
pub fn student_t(degrees: usize) -> f64 {
    // Of one degree it is 12.7, and it falls with the degrees.
    let (mut low, mut high) = (0.0, 13.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if within(middle, degrees.max(1)) < CONFIDENCE { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability that t lies between `-t` and `t`, by the finite series for whole degrees of freedom (Abramowitz
/// and Stegun, 26.7.3 and 26.7.4).
fn within(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = degrees % 2 == 1;
    // Odd: cos + 2/3 cos^3 + 2*4/(3*5) cos^5 + ..; even: 1 + 1/2 cos^2 + 1*3/(2*4) cos^4 + .. .
    let mut term = if odd { cosine } else { 1.0 };
    let (mut sum, mut power) = (0.0, usize::from(odd));
    while power + 2 <= degrees {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    if odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum }
}

/// `y = intercept + slope * x` by least squares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Line {
    /// `y` at 0.
    pub intercept: f64,
    /// By how much `y` rises when `x` rises by 1.
    pub slope: f64,
    /// The share of the variance of `y` that the line explains, 0 to 1.
    pub r2: f64,
}

/// The line through points; none through fewer than three, or through points of one `x`.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    let count = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    if xx <= 0.0 {
        return None;
    }
    let slope = xy / xx;
    let r2 = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    Some(Line { intercept: y - slope * x, slope, r2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_t_are_those_of_the_tables() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (29, 2.045),
            (30, 2.042),
            (120, 1.980),
        ];
        for (degrees, t) in table {
            assert!((student_t(degrees) - t).abs() < 6e-4, "{degrees}: {}", student_t(degrees));
        }
    }

    #[test]
    fn an_interval_is_t_times_the_standard_error() {
        // Mean 5, variance 2.5, so 2.776 * sqrt(2.5 / 5).
        let five = interval(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert_eq!((five.mean, five.count), (5.0, 5));
        assert!((five.half.unwrap() - 1.9632).abs() < 1e-3, "{five:?}");
        assert_eq!(interval(&[2.0]), Some(Interval { mean: 2.0, half: None, count: 1 }));
        assert_eq!(interval(&[]), None);
        assert_eq!(interval(&[1.0, 1.0]).unwrap().half, Some(0.0));
        assert!(interval(&[1.0, 1.1]).unwrap().is_below(&interval(&[9.0, 9.1]).unwrap()));
    }

    #[test]
    fn a_line_is_found_and_says_how_well_it_fits() {
        let exact = line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert_eq!((exact.intercept, exact.slope, exact.r2), (1.0, 2.0, 1.0));
        let off = line(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (3.0, 1.0)]).unwrap();
        assert!((off.slope - 0.2).abs() < 1e-12 && (off.r2 - 0.2).abs() < 1e-12, "{off:?}");
        assert_eq!(line(&[(0.0, 1.0), (1.0, 3.0)]), None);
        assert_eq!(line(&[(1.0, 1.0), (1.0, 3.0), (1.0, 2.0)]), None);
    }
}
