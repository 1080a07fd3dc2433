//! A figure: series of points with intervals over two axes.

use super::axis::Axis;
use super::stats::Interval;
use super::svg;

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its file's name, without an ending.
    pub id: String,
    /// Above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is shown.
    pub series: Vec<Series>,
    /// Lines to compare with.
    pub levels: Vec<Level>,
}

/// Points of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// The points, in the order in which they are joined.
    pub points: Vec<Point>,
    /// Whether and how they are joined.
    pub style: Style,
}

/// How points are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// By a line.
    Line,
    /// By a broken line.
    Dashed,
    /// Not at all.
    Points,
}

/// A point with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Half of the width of `y`'s interval.
    pub half: Option<f64>,
}

impl Point {
    /// A mean.
    pub fn new(x: f64, y: Interval) -> Self {
        Self { x, y: y.mean, half: y.half }
    }
}

/// A line to compare with.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// In the legend.
    pub name: String,
    /// A value of `y`; of `x`, if it is upright.
    pub at: f64,
    /// It stands upright.
    pub upright: bool,
}

/// A figure that would not show what it is to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FigureError {
    /// It is empty.
    #[error("the figure `{0}` has no series: nothing was measured for it")]
    Empty(String),
    /// One of its series is.
    #[error("the figure `{figure}` has no points of `{series}`: nothing was measured for it")]
    NoPoints {
        /// The figure.
        figure: String,
        /// The series.
        series: String,
    },
    /// A point has no place.
    #[error(
        "the figure `{figure}` cannot show ({x}, {y}) of `{series}`: an axis is logarithmic, or it is no number"
    )]
    NoPlace {
        /// The figure.
        figure: String,
        /// The series.
        series: String,
        /// The point.
        x: String,
        /// The point.
        y: String,
    },
}

impl Figure {
    /// The figure as SVG.
    ///
    /// # Errors
    /// If it has no series, a series has no points, or a point has no place on an axis.
    pub fn svg(&self) -> Result<String, FigureError> {
        if self.series.is_empty() {
            return Err(FigureError::Empty(self.id.clone()));
        }
        for series in &self.series {
            let of = || (self.id.clone(), series.name.clone());
            if series.points.is_empty() {
                let (figure, series) = of();
                return Err(FigureError::NoPoints { figure, series });
            }
            if let Some(point) = series.points.iter().find(|p| !self.x.shows(p.x) || !self.y.shows(p.y)) {
                let (figure, series) = of();
                return Err(FigureError::NoPlace {
                    figure,
                    series,
                    x: point.x.to_string(),
                    y: point.y.to_string(),
                });
            }
        }
        Ok(svg::draw(self))
    }

    /// The name of its file.
    pub fn file(&self) -> String {
        format!("{}.svg", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(points: Vec<Point>) -> Figure {
        Figure {
            id: "cost".to_owned(),
            title: "Cost <falls>".to_owned(),
            x: Axis::log("V"),
            y: Axis::linear("cost [hops/slot]"),
            series: vec![Series { name: "potus & co".to_owned(), points, style: Style::Line }],
            levels: vec![Level { name: "shuffle".to_owned(), at: 4.0, upright: false }],
        }
    }

    fn point(x: f64, y: f64, half: Option<f64>) -> Point {
        Point { x, y, half }
    }

    #[test]
    fn a_figure_without_points_is_refused() {
        let empty = figure(vec![]).svg().unwrap_err();
        assert_eq!(
            empty.to_string(),
            "the figure `cost` has no points of `potus & co`: nothing was measured for it"
        );
        let none = Figure { series: vec![], ..figure(vec![]) }.svg().unwrap_err();
        assert_eq!(none.to_string(), "the figure `cost` has no series: nothing was measured for it");
    }

    #[test]
    fn a_point_without_a_place_is_refused() {
        let zero = figure(vec![point(1.0, 1.0, None), point(0.0, 1.0, None)]).svg().unwrap_err();
        assert!(
            zero.to_string().starts_with("the figure `cost` cannot show (0, 1) of `potus & co`"),
            "{zero}"
        );
        assert!(figure(vec![point(1.0, f64::NAN, None)]).svg().is_err());
    }

    #[test]
    fn a_small_figure_is_drawn_so() {
        let svg = figure(vec![point(1.0, 2.0, Some(0.5)), point(10.0, 1.0, None)]).svg().unwrap();
        let golden = include_str!("figure/small.svg");
        assert!(svg == golden, "{svg}");
    }
}
