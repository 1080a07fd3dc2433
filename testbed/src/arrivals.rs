//! Traces of arrivals: rows per slot out of CSV files, scaled to a mean where that is asked for.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tuplane_core::route::predict::Rounding;
pub use tuplane_core::time::Column;

/// The largest number of rows in a slot that is taken: beyond it not every whole number has a double.
pub(crate) const MOST: f64 = 9_007_199_254_740_992.0;

/// How a file holds its counts. The default fits a header, and the counts in the last column.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Format {
    /// Where the counts are: the last column if not said.
    pub count: Option<Column>,
    /// A column of times that must not go backwards (numbers, or text that sorts as it stands, such as
    /// `2014-04-10 00:04:00`); times are not read if not said.
    pub time: Option<Column>,
    /// The first line names the columns.
    pub header: bool,
    /// Between fields.
    pub delimiter: char,
    /// The file has natural logarithms of the counts: e to the power of each value is taken, to the nearest whole
    /// number.
    pub exp: bool,
    /// The file has rates rather than counts: fractions are taken.
    pub rates: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self { count: None, time: None, header: true, delimiter: ',', exp: false, rates: false }
    }
}

/// Why a trace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalsError {
    /// The file cannot be opened.
    #[error("cannot read {path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The format cannot be, or does not fit the file.
    #[error("{path}: {fault}", path = path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        fault: String,
    },
    /// A line of the file.
    #[error("{path}:{line}: {fault}", path = path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// What is wrong, and what to do.
        fault: String,
    },
    /// Nothing is left, or it cannot be scaled.
    #[error("{0}")]
    Series(String),
}

/// Rows per slot, in order; rates and scaled counts may be fractions.
#[derive(Debug, Clone, PartialEq)]
pub struct Series(Vec<f64>);

/// By what a series is multiplied.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Scale {
    /// As it is.
    #[default]
    AsItIs,
    /// By this factor.
    Factor(f64),
    /// So that this is its mean number of rows per slot.
    Mean(f64),
}

impl Series {
    /// Reads the file at `path`, in the file's order.
    ///
    /// # Errors
    /// If it cannot be read, a column is not there, or a line has no count: each with the file, the line and what to
    /// do. A fraction is refused unless `exp` or `rates` says what it means.
    pub fn read(path: &Path, format: &Format) -> Result<Self, ArrivalsError> {
        let file = File::open(path).map_err(|cause| ArrivalsError::File { path: path.to_owned(), cause })?;
        Self::parse(file, path, format)
    }

    /// As [`Series::read`], from any reader; `path` stands in errors.
    pub fn parse(from: impl Read, path: &Path, format: &Format) -> Result<Self, ArrivalsError> {
        let refuse = |fault| ArrivalsError::Format { path: path.to_owned(), fault };
        if format.exp && format.rates {
            return Err(refuse("`exp` and `rates` exclude each other: say one of them".into()));
        }
        let delimiter = u8::try_from(format.delimiter)
            .ok()
            .filter(u8::is_ascii)
            .ok_or_else(|| refuse(format!("the delimiter `{}` is not one byte", format.delimiter)))?;
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(format.header)
            .delimiter(delimiter)
            .trim(csv::Trim::All)
            .from_reader(from);
        let broken = |cause: csv::Error| match cause.position() {
            Some(at) => {
                ArrivalsError::Line { path: path.to_owned(), line: at.line(), fault: cause.to_string() }
            }
            None => refuse(cause.to_string()),
        };
        let first = reader.headers().map_err(broken)?.clone();
        if first.is_empty() {
            return Err(refuse("it is empty".into()));
        }
        let names: Vec<&str> = first.iter().collect();
        let find = |column: &Column| column.index(&names, format.header).map_err(refuse);
        let count = format.count.as_ref().map_or(Ok(first.len() - 1), find)?;
        let time = format.time.as_ref().map(find).transpose()?;

        let mut values = Vec::new();
        let mut before: Option<String> = None;
        for record in reader.records() {
            let record = record.map_err(broken)?;
            // Where blank lines stand before a record, `csv` gives the first of them.
            let line = record.position().map_or(0, csv::Position::line);
            let fail = |fault| ArrivalsError::Line { path: path.to_owned(), line, fault };
            values.push(value(&record[count], format).map_err(fail)?);
            if let Some(time) = time {
                let now = &record[time];
                if let Some(before) = before.as_deref().filter(|before| is_later(before, now)) {
                    return Err(fail(format!(
                        "the time `{now}` comes after `{before}`: sort the file by that column, or leave `time` out to take the lines as they come"
                    )));
                }
                before = Some(now.to_owned());
            }
        }
        if values.is_empty() {
            return Err(refuse("it has no line of counts".into()));
        }
        Ok(Self(values))
    }

    /// The values as they are: whole numbers unless the file has rates.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The mean of the values.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// `slots` slots from slot `from` on (from 0), or all that follow.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn part(&self, from: usize, slots: Option<usize>) -> Result<Self, ArrivalsError> {
        let all = self.0.len();
        let left = all.saturating_sub(from);
        match slots.unwrap_or(left) {
            0 => Err(ArrivalsError::Series(format!(
                "no slot is taken from slot {from} on: the trace has {all}"
            ))),
            slots if slots > left => Err(ArrivalsError::Series(format!(
                "the trace has {all} slots: there are not {slots} from slot {from} on"
            ))),
            slots => Ok(Self(self.0[from..from + slots].to_vec())),
        }
    }

    /// Whole rows per slot, scaled and then rounded by lot, so that the mean stays.
    ///
    /// # Errors
    /// If the factor or mean is not a number above 0, a mean is asked of a series of zeros, or a slot gets more rows
    /// than 2^53.
    pub fn rows(&self, scale: Scale, seed: u64) -> Result<Vec<u64>, ArrivalsError> {
        let factor = match scale {
            Scale::AsItIs => 1.0,
            Scale::Factor(factor) => factor,
            Scale::Mean(_) if self.mean() == 0.0 => {
                return Err(ArrivalsError::Series(
                    "nothing arrives in the trace: it has no mean to scale".into(),
                ));
            }
            Scale::Mean(mean) => mean / self.mean(),
        };
        let most = self.0.iter().fold(0.0f64, |most, value| most.max(*value)) * factor;
        if !(factor.is_finite() && factor > 0.0 && most <= MOST) {
            return Err(ArrivalsError::Series(format!(
                "the trace cannot be scaled by {factor}: it takes a number above 0 that leaves at most {MOST} rows in a slot"
            )));
        }
        let rounding = Rounding::new(seed);
        Ok((0..).zip(&self.0).map(|(slot, value)| rounding.rows(slot, value * factor)).collect())
    }
}

fn value(text: &str, format: &Format) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    let Some(number) = number else {
        return Err(format!("`{text}` is not a number of arrivals"));
    };
    let rows = if format.exp { number.exp().round() } else { number };
    if !(0.0..=MOST).contains(&rows) {
        return Err(format!("`{text}` gives {rows} arrivals, which is not between 0 and {MOST}"));
    }
    if rows.fract() != 0.0 && !format.rates {
        return Err(format!(
            "`{text}` is not a whole number: say `exp = true` if the file has natural logarithms of counts, or `rates = true` if it has rates"
        ));
    }
    Ok(rows)
}

/// Numbers by their value, other times as text.
fn is_later(one: &str, other: &str) -> bool {
    match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => one > other,
        _ => one > other,
    }
}

#[cfg(test)]
mod auto;
#[cfg(test)]
mod tests;
