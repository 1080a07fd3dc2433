//! Traces: counts of rows per step of time, and when each row of the numbered series that they make is due.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::suggestion;

/// The most rows that the counts of a trace may come to, in one pass or in all: up to here the rows before any step
/// are exact to one row.
const MOST_TRACE_ROWS: u64 = 1 << 49;

/// The most steps of a trace: its counts are held in memory.
pub const MOST_TRACE_STEPS: usize = 10_000_000;

/// Passes up to this one have numbers whose products with a sum are exact enough.
const MOST_PASSES: f64 = (1_u64 << 50) as f64;

/// What a product of doubles may be short of the whole number that it stands for, relative to it.
const SHORT: f64 = 4.0 * f64::EPSILON;

/// Names a column of a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// By its place, from 1.
    Place(usize),
    /// By its name in the header.
    Name(String),
}

impl Column {
    /// Its index, from 0, in a file whose first line is `first`, which names the columns if it is a `header`.
    ///
    /// # Errors
    /// There is no such column: what there is.
    pub fn index(&self, first: &[&str], header: bool) -> Result<usize, String> {
        match self {
            Self::Place(place) if (1..=first.len()).contains(place) => Ok(place - 1),
            Self::Place(place) => {
                Err(format!("it has no column {place}: there are {}, counted from 1", first.len()))
            }
            Self::Name(name) if !header => Err(format!(
                "a column is called `{name}`, but without a header columns go by their place, from 1"
            )),
            Self::Name(name) => first.iter().position(|known| known == name).ok_or_else(|| {
                let near = suggestion(name, first.iter().copied());
                let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("no column is called `{name}`; there are: {}{hint}", first.join(", "))
            }),
        }
    }
}

/// By what the counts of a trace are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum TraceScale {
    /// This, above 0.
    Factor(f64),
    /// What makes the mean of all counts this number of rows per second, above 0.
    Mean(f64),
}

/// How the counts of a trace become rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TraceOptions {
    /// How long the step of one count lasts, above 0.
    pub step: Duration,
    /// By what counts are multiplied.
    pub scale: TraceScale,
    /// The step to begin with, from 0.
    pub from: u64,
    /// End after so many rows.
    pub rows: Option<u64>,
    /// Behind the last step comes the first one of all.
    pub repeat: bool,
}

/// Why counts cannot become rows.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// A count is below 0 or no number.
    #[error("step {step} counts {count}, which is no number of rows")]
    Count {
        /// From 0.
        step: usize,
        /// What stands there.
        count: f64,
    },
    /// Nothing is left.
    #[error("no step is left from step {from} on: the trace has {steps}, counted from 0; lower `from`")]
    From {
        /// Where to begin.
        from: u64,
        /// How many there are.
        steps: usize,
    },
    /// There is nothing to scale.
    #[error("every count is 0, so no row would ever come; name the `column` of the counts")]
    Zeros,
    /// All that is left comes to less than one row.
    #[error("the counts from step {from} on come to {rows} rows, less than one; raise `scale` or `mean`")]
    NoRow {
        /// Where to begin.
        from: u64,
        /// What they come to.
        rows: f64,
    },
    /// More than can be counted.
    #[error(
        "the counts come to {rows:e} rows; at most {MOST_TRACE_ROWS} can be given: lower `scale` or `mean`"
    )]
    TooMany {
        /// What they come to.
        rows: f64,
    },
}

/// A series of rows, numbered from 0, under a schedule. Before step k come floor(scale * sum of the counts before k)
/// rows, so fractions are carried to later steps and, where the trace is repeated, into the next pass. Within a step
/// rows are spread evenly, the first one at its beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Sums of the counts before each step of a pass, and of all of them.
    sums: Vec<f64>,
    factor: f64,
    step_ns: u64,
    /// Step of the whole trace that a pass begins with.
    from: u64,
    /// Steps of the whole trace.
    steps: u64,
    rows: u64,
    repeat: bool,
}

/// The step that a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceStep {
    /// Its place in the trace, from 0; the same in every pass.
    pub number: u64,
    /// The first of its rows.
    pub first: u64,
    /// How many rows it has, at least 1.
    pub rows: u64,
    /// When it begins, in nanoseconds from the beginning of the schedule.
    pub begin: u64,
    /// How long it lasts, in nanoseconds.
    pub length: u64,
}

impl TraceStep {
    /// When a row of it is due, in nanoseconds from the beginning of the schedule.
    pub fn due(&self, row: u64) -> u64 {
        let place = row.saturating_sub(self.first).min(self.rows);
        let after = u128::from(self.length) * u128::from(place) / u128::from(self.rows);
        // At most `length`.
        self.begin.saturating_add(after as u64)
    }

    /// How many of its rows are due at this time after the beginning of the schedule, in nanoseconds.
    pub fn due_by(&self, elapsed: u64) -> u64 {
        let Some(within) = elapsed.checked_sub(self.begin) else { return 0 };
        // Row j is due at floor(length * j / rows) <= within, that is, length * j < (within + 1) * rows.
        let rows = u128::from(self.rows);
        let due = ((u128::from(within) + 1) * rows).div_ceil(u128::from(self.length));
        due.min(rows) as u64
    }

    /// The row behind its last one.
    pub fn end(&self) -> u64 {
        self.first + self.rows
    }
}

impl Trace {
    /// The rows of these counts, of which each may be a fraction.
    ///
    /// # Errors
    /// If a count is below 0 or no number, or they come to no row or too many.
    pub fn new(counts: &[f64], options: &TraceOptions) -> Result<Self, TraceError> {
        let wrong = counts.iter().position(|count| !(count.is_finite() && *count >= 0.0));
        if let Some(step) = wrong {
            return Err(TraceError::Count { step, count: counts[step] });
        }
        let steps = counts.len();
        let from = usize::try_from(options.from).unwrap_or(usize::MAX);
        if from >= steps {
            return Err(TraceError::From { from: options.from, steps });
        }
        let total = sums(counts.iter()).pop().unwrap_or_default();
        if total <= 0.0 {
            return Err(TraceError::Zeros);
        }
        let factor = match options.scale {
            TraceScale::Factor(factor) => factor,
            TraceScale::Mean(mean) => mean * options.step.as_secs_f64() * steps as f64 / total,
        };
        // A repeated trace goes on with what stands before its beginning.
        let before = if options.repeat { &counts[..from] } else { &[] };
        let sums = sums(counts[from..].iter().chain(before));
        let all = sums.last().copied().unwrap_or_default() * factor;
        if !all.is_finite() || all * (1.0 + SHORT) >= MOST_TRACE_ROWS as f64 {
            return Err(TraceError::TooMany { rows: all });
        }
        let most = if options.repeat { MOST_TRACE_ROWS.min(whole(all * MOST_PASSES)) } else { whole(all) };
        if most == 0 {
            return Err(TraceError::NoRow { from: options.from, rows: all });
        }
        Ok(Self {
            sums,
            factor,
            step_ns: u64::try_from(options.step.as_nanos()).unwrap_or(u64::MAX).max(1),
            from: options.from,
            steps: steps as u64,
            rows: options.rows.map_or(most, |rows| rows.min(most)),
            repeat: options.repeat,
        })
    }

    /// How many rows there are: of a repeated trace without a limit as many as can be numbered.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows a second, the mean of a pass.
    pub fn mean(&self) -> f64 {
        self.total() * self.factor / (self.pass_steps() as f64 * self.step_ns as f64 / 1e9)
    }

    /// The step of a row; `None` behind the last one.
    pub fn step_of(&self, row: u64) -> Option<TraceStep> {
        if row >= self.rows {
            return None;
        }
        let pass = self.pass_of(row);
        // The last step with no more than `row` rows before it: steps without rows are passed over.
        let behind_first = &self.sums[1..self.sums.len() - 1];
        let place = behind_first.partition_point(|sum| self.with_sum(pass, *sum) <= row);
        let first = self.before(pass, place);
        let steps_before = u128::from(pass) * u128::from(self.pass_steps()) + place as u128;
        let begin = steps_before.saturating_mul(u128::from(self.step_ns));
        Some(TraceStep {
            number: (self.from + place as u64) % self.steps,
            first,
            rows: self.before(pass, place + 1) - first,
            begin: u64::try_from(begin).unwrap_or(u64::MAX),
            length: self.step_ns,
        })
    }

    /// Rows before the step at `place` of a pass (both from 0), never less than before an earlier one.
    pub fn before(&self, pass: u64, place: usize) -> u64 {
        match place {
            0 => self.before_pass(pass),
            place if place as u64 >= self.pass_steps() => self.before_pass(pass + 1),
            place => self.with_sum(pass, self.sums[place]),
        }
    }

    /// Steps of a pass.
    pub fn pass_steps(&self) -> u64 {
        self.sums.len() as u64 - 1
    }

    fn total(&self) -> f64 {
        self.sums.last().copied().unwrap_or_default()
    }

    fn before_pass(&self, pass: u64) -> u64 {
        whole(pass as f64 * self.total() * self.factor)
    }

    /// Rows before a step of a pass, by the sum of the counts before it in the pass.
    fn with_sum(&self, pass: u64, sum: f64) -> u64 {
        let rows = whole((pass as f64 * self.total() + sum) * self.factor);
        // Rounding must not put a pass's rows into another.
        rows.clamp(self.before_pass(pass), self.before_pass(pass + 1))
    }

    fn pass_of(&self, row: u64) -> u64 {
        if !self.repeat {
            return 0;
        }
        // The estimate is off by one pass, or few where a pass has less than a row.
        let mut pass = (row as f64 / (self.total() * self.factor)) as u64;
        while pass > 0 && self.before_pass(pass) > row {
            pass -= 1;
        }
        while self.before_pass(pass + 1) <= row {
            pass += 1;
        }
        pass
    }
}

/// The whole rows of a number of them that rounding may have made a little too small.
fn whole(rows: f64) -> u64 {
    (rows * (1.0 + SHORT)).floor() as u64
}

/// Sums before each count and of all, each rounded once or nearly so (Neumaier's summation), however many there are.
fn sums<'c>(counts: impl Iterator<Item = &'c f64>) -> Vec<f64> {
    let (mut sum, mut lost, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
    let mut sums = vec![0.0];
    sums.extend(counts.map(|count| {
        let next = sum + count;
        lost += if sum >= *count { (sum - next) + count } else { (count - next) + sum };
        sum = next;
        // What was lost may be rounded in again, and must not make a sum smaller than the one before.
        most = most.max(sum + lost);
        most
    }));
    sums
}

#[cfg(test)]
mod tests;
