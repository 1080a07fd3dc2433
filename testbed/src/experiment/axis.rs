//! An axis of a figure: where a value lies on it, and where its ticks stand.

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithms: all are above 0.
    Log,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it shows, with its unit in brackets.
    pub label: String,
    /// How.
    pub scale: Scale,
    /// It begins at 0, if it is linear.
    pub from_zero: bool,
}

impl Axis {
    /// A linear one that begins at 0.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, from_zero: true }
    }

    /// A logarithmic one.
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Log, from_zero: false }
    }

    /// One that begins near the least value.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.from_zero = false;
        self
    }

    /// Values that it can show.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    /// The axis over such values, of which there is at least one.
    pub(super) fn over(&self, values: impl Iterator<Item = f64>) -> Span {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| self.shows(*value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        match self.scale {
            Scale::Linear => {
                if self.from_zero {
                    (low, high) = (low.min(0.0), high.max(0.0));
                }
                let width = if high > low { high - low } else { high.abs().max(1.0) };
                let below = if self.from_zero && low == 0.0 { 0.0 } else { PAD * width };
                Span { low: low - below, high: high + PAD * width, scale: Scale::Linear }
            }
            Scale::Log => {
                let (low, high) = (low.log10(), high.log10());
                let width = if high > low { high - low } else { 1.0 };
                Span { low: low - PAD * width, high: high + PAD * width, scale: Scale::Log }
            }
        }
    }
}

/// What is left free at an end of an axis, as a share of its length.
const PAD: f64 = 0.05;

/// Ticks that an axis is cut by, about.
const TICKS: f64 = 6.0;

/// The values that an axis reaches over; of a logarithmic one their logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Span {
    /// How far from the axis' beginning a value lies, 0 to 1. What lies beyond an end is at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Log if value > 0.0 => value.log10(),
            Scale::Log => return 0.0,
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Values at round places, and how they are written.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let ticks = match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / TICKS);
                let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
                (first..=last).map(|number| number as f64 * step).collect::<Vec<_>>()
            }
            Scale::Log => {
                // The fewer decades, the more values in each are marked.
                let marks: &[f64] = match self.high - self.low {
                    ..1.3 => &[1.0, 2.0, 3.0, 5.0, 7.0],
                    ..2.0 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let decades = self.low.floor() as i32..=self.high.floor() as i32;
                let all = decades.flat_map(|decade| marks.iter().map(move |mark| mark * 10f64.powi(decade)));
                all.filter(|tick| (self.low..=self.high).contains(&tick.log10())).collect()
            }
        };
        ticks.into_iter().map(|tick| (tick, written(tick))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|step| step * power).find(|step| *step >= least).unwrap_or(10.0 * power)
}

/// Without the last digits of what is no exact binary fraction.
fn written(tick: f64) -> String {
    format!("{}", (tick * 1e9).round() / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(span: Span) -> Vec<String> {
        span.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_stand_at_round_values() {
        assert_eq!(texts(Axis::linear("x").over([0.0, 9.4].into_iter())), ["0", "2", "4", "6", "8"]);
        assert_eq!(
            texts(Axis::linear("x").close().over([0.1, 0.5].into_iter())),
            ["0.1", "0.2", "0.3", "0.4", "0.5"]
        );
        assert_eq!(texts(Axis::log("x").over([0.5, 20.0].into_iter())), ["0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(texts(Axis::log("x").over([6.0, 30.0].into_iter())), ["7", "10", "20", "30"]);
        assert_eq!(texts(Axis::log("x").over([1.0, 5000.0].into_iter())), ["1", "10", "100", "1000"]);
    }

    #[test]
    fn values_lie_between_the_ends() {
        let log = Axis::log("x").over([1.0, 100.0].into_iter());
        assert!((log.share(10.0) - 0.5).abs() < 1e-12);
        assert!(log.share(0.0) <= 0.0 && log.share(1e9) >= 1.0);
        let linear = Axis::linear("x").over([5.0].into_iter());
        assert!(linear.share(0.0) <= 0.0);
        assert!(linear.share(5.0) > 0.9);
    }
}
