//! How a value becomes an instant: by its type, or as text by a format.

use std::ops::Range;

use chrono::format::{Item, Numeric, ParseErrorKind, Parsed, StrftimeItems, parse};
use chrono::{DateTime, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone, Utc};
use datafusion_common::arrow::array::timezone::Tz;
use datafusion_common::arrow::array::{Array, ArrayRef, AsArray, TimestampNanosecondArray};
use datafusion_common::arrow::compute::kernels::cast_utils::string_to_datetime;
use datafusion_common::arrow::compute::{CastOptions, cast_with_options};
use datafusion_common::arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType,
};
use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::Time;

use super::{EvalError, Failed};
use crate::sql::sql_name;

/// Formats that count from 1970, and the nanoseconds of their unit.
const UNIX: [(&str, i64); 4] =
    [("unix", 1_000_000_000), ("unix_ms", 1_000_000), ("unix_us", 1_000), ("unix_ns", 1)];

/// Longest value that a message repeats.
const SHOWN: usize = 60;

/// Seconds of the years 1678 to 2261, in which event times lie. Nanoseconds count a little further, and so they
/// do to the ends of the windows that a row is in.
const YEARS: Range<i64> = -9_214_560_000..9_214_646_400;

/// How values of one column are read.
#[derive(Debug)]
pub(super) struct Reading {
    how: How,
    zone: Option<Tz>,
}

#[derive(Debug)]
enum How {
    /// Timestamps and dates.
    Time,
    /// A number, or its text, of units since 1970.
    Unix { name: &'static str, unit: i64 },
    /// Text by RFC 3339, or without its zone.
    Rfc3339,
    /// Text by a format of strftime's.
    Pattern { format: String, items: Vec<Item<'static>> },
}

impl Reading {
    /// How `time` reads a column of this type; all faults.
    pub(super) fn new(time: &Time, column: &DataType) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let zone = match &time.zone {
            None => None,
            Some(zone) => match zone.value.parse::<Tz>() {
                Ok(_) if is_utc(&zone.value) => None,
                Ok(tz) => Some(tz),
                Err(_) => {
                    let message = format!("there is no time zone `{}`", zone.value);
                    let help =
                        "a name such as \"Europe/Berlin\", or an offset such as \"+02:00\"; UTC unless set";
                    faults.push(Fault::new(zone.at, message).help(help));
                    None
                }
            },
        };
        let how = match &time.format {
            None => without_format(time, column).map_err(|fault| faults.push(fault)),
            Some(format) => with_format(&format.value, column)
                .map_err(|(message, help)| faults.push(Fault::new(format.at, message).help(help))),
        };
        match how {
            Ok(how) if faults.is_empty() => Ok(Self { how, zone }),
            _ => Err(faults),
        }
    }

    /// The instants of a column. Rows that have none go to `failed`, unless they are there already, and 0 stands
    /// for them.
    pub(super) fn read(
        &self,
        column: &ArrayRef,
        failed: &mut Failed,
    ) -> Result<TimestampNanosecondArray, EvalError> {
        let at: Box<dyn Fn(usize) -> Result<i64, String> + '_> = match &self.how {
            How::Time => return self.times(column, failed),
            How::Unix { name, unit } => units(column, name, *unit)?,
            How::Rfc3339 => {
                let texts = column.as_string::<i32>();
                Box::new(move |row| self.rfc3339(texts.value(row)))
            }
            How::Pattern { format, items } => {
                let texts = column.as_string::<i32>();
                Box::new(move |row| self.pattern(texts.value(row), format, items))
            }
        };
        let mut times = Vec::with_capacity(column.len());
        for row in 0..column.len() {
            let time = if column.is_valid(row) { at(row) } else { Err(is_null()) };
            times.push(noted(row, time, failed)?);
        }
        Ok(times.into())
    }

    /// A column of times: without a zone of its own it is local.
    fn times(&self, column: &ArrayRef, failed: &mut Failed) -> Result<TimestampNanosecondArray, EvalError> {
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let local = !matches!(column.data_type(), DataType::Timestamp(_, Some(_)));
        // What is too far from 1970 for nanoseconds becomes null.
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let utc = match column.data_type() {
            DataType::Timestamp(unit, Some(_)) => {
                cast_with_options(column, &DataType::Timestamp(*unit, None), &options)?
            }
            _ => ArrayRef::clone(column),
        };
        let cast = cast_with_options(&utc, &nanoseconds, &options)?;
        let cast = cast.as_primitive::<TimestampNanosecondType>();
        let mut times = Vec::with_capacity(cast.len());
        for row in 0..cast.len() {
            let time = if column.is_null(row) {
                Err(is_null())
            } else if cast.is_null(row) {
                Err(too_far("the time"))
            } else if local && self.zone.is_some() {
                self.instant(DateTime::from_timestamp_nanos(cast.value(row)).naive_utc())
            } else {
                Ok(cast.value(row))
            };
            times.push(noted(row, time, failed)?);
        }
        Ok(times.into())
    }

    fn rfc3339(&self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        let refused =
            |_| format!("cannot read '{}' as a time (RFC 3339, such as 2015-05-17T10:05:03Z)", shown(text));
        match &self.zone {
            None => string_to_datetime(&Utc, text).map_err(refused).and_then(|time| nanoseconds(&time)),
            Some(zone) => match string_to_datetime(zone, text) {
                Ok(time) => nanoseconds(&time),
                // It is none, or a local time that is not there exactly once.
                Err(_) => string_to_datetime(&Utc, text)
                    .map_err(refused)
                    .and_then(|local| self.instant(local.naive_utc())),
            },
        }
    }

    fn pattern(&self, text: &str, format: &str, items: &[Item<'static>]) -> Result<i64, String> {
        let text = text.trim();
        by_pattern(text, items)
            .map_err(|_| format!("cannot read '{}' as a time by the format `{format}`", shown(text)))
            .and_then(|read| match read {
                Read::Instant(instant) => nanoseconds(&instant),
                Read::Local(local) => self.instant(local),
            })
    }

    /// The instant of a local time. Of one that comes twice, as clocks go back, it is the first.
    fn instant(&self, local: NaiveDateTime) -> Result<i64, String> {
        let Some(zone) = &self.zone else { return nanoseconds(&local.and_utc()) };
        match zone.from_local_datetime(&local) {
            LocalResult::Single(time) | LocalResult::Ambiguous(time, _) => nanoseconds(&time),
            LocalResult::None => Err(format!("there was no {local} in the time zone: clocks went forward")),
        }
    }
}

fn is_utc(zone: &str) -> bool {
    ["UTC", "Etc/UTC", "+00:00", "+0000"].iter().any(|utc| zone.eq_ignore_ascii_case(utc))
}

fn is_null() -> String {
    "the time is null".to_owned()
}

/// A row that has no time goes to `failed`, with the reason that it was found out by first.
fn noted(row: usize, time: Result<i64, String>, failed: &mut Failed) -> Result<i64, EvalError> {
    match time.and_then(in_range) {
        Ok(time) => Ok(time),
        Err(message) => {
            if failed.dropped().binary_search_by_key(&row, |known| known.row).is_err() {
                failed.row(row, message)?;
            }
            Ok(0)
        }
    }
}

fn nanoseconds<Z: TimeZone>(time: &DateTime<Z>) -> Result<i64, String> {
    time.timestamp_nanos_opt().ok_or_else(|| too_far(&time.naive_utc().date().to_string()))
}

fn too_far(what: &str) -> String {
    format!("{what} is too far from 1970: the years 1678 to 2261 are taken")
}

/// An instant that is an event time.
fn in_range(time: i64) -> Result<i64, String> {
    if YEARS.contains(&time.div_euclid(1_000_000_000)) {
        return Ok(time);
    }
    Err(too_far(&DateTime::from_timestamp_nanos(time).naive_utc().to_string()))
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

fn without_format(time: &Time, column: &DataType) -> Result<How, Fault> {
    match column {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Ok(How::Time),
        DataType::Utf8 => Ok(How::Rfc3339),
        other => {
            let (column, found) = (time.column.value.trim(), sql_name(other));
            let message = format!("`{column}` is {found}, of which `time` does not say how it counts");
            let help = if other.is_numeric() {
                "add format = \"unix\" (seconds since 1970), \"unix_ms\", \"unix_us\" or \"unix_ns\""
            } else {
                "a time is a timestamp, a date, text, or a number with a format such as \"unix_ms\""
            };
            Err(Fault::new(time.column.at, message).help(help))
        }
    }
}

fn with_format(format: &str, column: &DataType) -> Result<How, (String, String)> {
    let text = *column == DataType::Utf8;
    if let Some((name, unit)) = UNIX.into_iter().find(|(name, _)| *name == format) {
        if text || column.is_numeric() {
            return Ok(How::Unix { name, unit });
        }
        let message =
            format!("format `{name}` reads numbers and text, and the column is {}", sql_name(column));
        return Err((message, "leave `format` out: the column is a time".to_owned()));
    }
    if !format.contains('%') {
        let names = UNIX.map(|(name, _)| name);
        let hint =
            suggestion(format, names).map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        let message = format!("the format `{format}` has no part of a time{hint}");
        return Err((
            message,
            format!("one of {}, or as strftime's: \"%Y-%m-%d %H:%M:%S\"", names.join(", ")),
        ));
    }
    if !text {
        let message = format!("the format `{format}` reads text, and the column is {}", sql_name(column));
        return Err((message, "leave `format` out, or cast the column to text".to_owned()));
    }
    let Ok(items) = StrftimeItems::new(format).parse_to_owned() else {
        let message = format!("the format `{format}` has a part that nothing reads");
        let help = "parts are %Y %m %d %H %M %S, %b (May), %z (+0200), %.f (fraction) and so on";
        return Err((message, help.to_owned()));
    };
    if items.iter().any(|item| matches!(item, Item::Numeric(Numeric::Nanosecond, _))) {
        let message = format!("`%f` in the format `{format}` would take 5 in 0.5 for 5 nanoseconds");
        return Err((
            message,
            "write %.f for a point and a fraction, or %3f, %6f or %9f for so many digits".to_owned(),
        ));
    }
    check_whole(format, &items)?;
    Ok(How::Pattern { format: format.to_owned(), items })
}

/// A format must say a whole date: what it writes it must read again.
fn check_whole(format: &str, items: &[Item<'static>]) -> Result<(), (String, String)> {
    let sample = NaiveDate::from_ymd_opt(2024, 2, 29).and_then(|date| date.and_hms_opt(13, 14, 15));
    let Some(sample) = sample.map(|sample| sample.and_utc().fixed_offset()) else { return Ok(()) };
    let written = sample.format_with_items(items.iter()).to_string();
    match by_pattern(&written, items) {
        Ok(Read::Instant(read)) if read.date_naive() == sample.date_naive() => Ok(()),
        Ok(Read::Local(read)) if read.date() == sample.date_naive() => Ok(()),
        _ => {
            let message = format!("the format `{format}` does not hold a whole date");
            let help = "year, month and day are needed (or %s); a year can stand before: column = \"'2024 ' || stamp\", format = \"%Y %b %d %H:%M:%S\"";
            Err((message, help.to_owned()))
        }
    }
}

enum Read {
    /// With a zone.
    Instant(DateTime<chrono::FixedOffset>),
    /// Without one.
    Local(NaiveDateTime),
}

fn by_pattern(text: &str, items: &[Item<'static>]) -> Result<Read, ParseErrorKind> {
    let mut parsed = Parsed::new();
    parse(&mut parsed, text, items.iter()).map_err(|error| error.kind())?;
    if parsed.offset().is_some() {
        return parsed.to_datetime().map(Read::Instant).map_err(|error| error.kind());
    }
    match parsed.to_naive_datetime_with_offset(0) {
        Ok(local) => Ok(Read::Local(local)),
        // A date alone is its midnight.
        Err(error) if error.kind() == ParseErrorKind::NotEnough && parsed.hour_mod_12().is_none() => {
            let date = parsed.to_naive_date().map_err(|error| error.kind())?;
            Ok(Read::Local(date.and_time(NaiveTime::MIN)))
        }
        Err(error) => Err(error.kind()),
    }
}

type At<'a> = Box<dyn Fn(usize) -> Result<i64, String> + 'a>;

/// Numbers, or their texts, of units since 1970.
fn units<'a>(column: &'a ArrayRef, name: &'static str, unit: i64) -> Result<At<'a>, EvalError> {
    let refused =
        move |value: &str| format!("cannot read '{}' as a time by the format `{name}`", shown(value));
    Ok(match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            Box::new(move |row| {
                let text = texts.value(row).trim();
                decimal(text, unit).ok_or_else(|| refused(text))
            })
        }
        DataType::Float32 | DataType::Float64 | DataType::Float16 => {
            let values = cast_with_options(column, &DataType::Float64, &CastOptions::default())?;
            let values = values.as_primitive::<Float64Type>().clone();
            Box::new(move |row| {
                let value = values.value(row);
                float(value, unit).ok_or_else(|| refused(&value.to_string()))
            })
        }
        DataType::Decimal128(_, scale) => {
            let (values, scale) = (column.as_primitive::<Decimal128Type>().clone(), *scale);
            Box::new(move |row| {
                let value = values.value(row);
                scaled(value, scale, unit).ok_or_else(|| refused(&values.value_as_string(row)))
            })
        }
        _ => {
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let values = cast_with_options(column, &DataType::Int64, &options)?;
            let values = values.as_primitive::<Int64Type>().clone();
            Box::new(move |row| {
                let value = values.value(row);
                value.checked_mul(unit).ok_or_else(|| refused(&value.to_string()))
            })
        }
    })
}

/// `-12.345` units, exactly to the nanosecond; further digits are cut off.
fn decimal(text: &str, unit: i64) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut time = whole.checked_mul(i128::from(unit))?;
    let mut weight = i128::from(unit);
    for digit in fraction.bytes() {
        weight /= 10;
        time += i128::from(digit - b'0') * weight;
    }
    i64::try_from(if negative { -time } else { time }).ok()
}

fn float(value: f64, unit: i64) -> Option<i64> {
    let whole = value.floor();
    let units = (whole.is_finite() && whole.abs() < 9.3e18).then_some(whole as i64)?;
    // The fraction by itself: the product would lose what a float of this size still holds.
    let fraction = ((value - whole) * unit as f64).round() as i64;
    units.checked_mul(unit)?.checked_add(fraction)
}

fn scaled(value: i128, scale: i8, unit: i64) -> Option<i64> {
    let power = 10_i128.checked_pow(u32::from(scale.unsigned_abs()))?;
    let units = value.checked_mul(i128::from(unit))?;
    let time = if scale < 0 { units.checked_mul(power)? } else { units.div_euclid(power) };
    i64::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use datafusion_common::arrow::array::{
        Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray, TimestampMillisecondArray,
    };
    use proptest::prelude::*;
    use tuplane_core::job::{OnError, Text};

    fn time(format: Option<&str>, zone: Option<&str>) -> Time {
        let text = |value: &str| Text::nowhere(value.to_owned());
        Time {
            column: text("at"),
            format: format.map(text),
            zone: zone.map(text),
            lateness: None,
            idle: None,
            max_ahead: None,
        }
    }

    /// The times of a column, and what is said of those that have none.
    fn read(format: Option<&str>, zone: Option<&str>, column: ArrayRef) -> (Vec<i64>, Vec<String>) {
        let reading = Reading::new(&time(format, zone), column.data_type()).unwrap();
        let mut failed = Failed::new(OnError::Drop);
        let times = reading.read(&column, &mut failed).unwrap();
        (times.values().to_vec(), failed.into_dropped().into_iter().map(|one| one.message).collect())
    }

    fn texts(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    fn refused(format: &str, kind: &DataType) -> String {
        let faults = Reading::new(&time(Some(format), None), kind).unwrap_err();
        format!("{} ({})", faults[0].message, faults[0].help.clone().unwrap_or_default())
    }

    const APACHE: &str = "%d/%b/%Y:%H:%M:%S %z";
    /// 2015-05-17T10:05:03Z.
    const THEN: i64 = 1_431_857_103_000_000_000;

    #[test]
    fn stamps_of_real_logs() {
        let one = |format, zone, text: &str| {
            let (times, said) = read(format, zone, texts(&[text]));
            assert!(said.is_empty(), "{said:?}");
            times[0]
        };
        assert_eq!(one(Some(APACHE), None, "17/May/2015:10:05:03 +0000"), THEN);
        assert_eq!(one(Some(APACHE), None, "17/May/2015:12:05:03 +0200"), THEN);
        let zeek = one(None, None, "2018-03-24T17:15:20.865716Z");
        assert_eq!(zeek, 1_521_911_720_865_716_000);
        let kafka = Some("%Y-%m-%d %H:%M:%S,%3f");
        assert_eq!(one(kafka, None, "2015-05-17 10:05:03,210"), THEN + 210_000_000);
        let azure = Some("%Y-%m-%d %H:%M:%S%.f");
        assert_eq!(one(azure, None, "2015-05-17 10:05:03.9799600"), THEN + 979_960_000);
        assert_eq!(one(None, None, "2015-05-17 10:05:03.123456789"), THEN + 123_456_789);
        let syslog = Some("%Y %b %d %H:%M:%S");
        assert_eq!(one(syslog, None, "2015 May 17 10:05:03"), THEN);
        assert_eq!(one(Some("unix_ms"), None, "1431857103000"), THEN);
        assert_eq!(one(Some("unix"), None, " 1431857103.000000001 "), THEN + 1);
        assert_eq!(one(Some("%s"), None, "1431857103"), THEN);
        assert_eq!(one(Some("%d.%m.%Y"), None, "17.05.2015"), THEN - (10 * 3600 + 303) * 1_000_000_000);
        // A stamp without a zone takes the source's, one with a zone keeps its own.
        assert_eq!(one(None, Some("America/Denver"), "2015-05-17T04:05:03"), THEN);
        assert_eq!(one(None, Some("America/Denver"), "2015-05-17T10:05:03Z"), THEN);
        assert_eq!(one(azure, Some("Asia/Kolkata"), "2015-05-17 15:35:03"), THEN);
        assert_eq!(one(azure, Some("+05:30"), "2015-05-17 15:35:03"), THEN);
        assert_eq!(one(Some(APACHE), Some("Asia/Kolkata"), "17/May/2015:10:05:03 +0000"), THEN);
    }

    #[test]
    fn numbers_and_times() {
        let hour = 3_600_000_000_000;
        assert_eq!(read(Some("unix_us"), None, Arc::new(Int64Array::from(vec![-1, 7]))).0, [-1_000, 7_000]);
        let floats = Float64Array::from(vec![1_521_911_720.865_716, -0.5]);
        let (times, _) = read(Some("unix"), None, Arc::new(floats));
        assert!((times[0] - 1_521_911_720_865_716_000).abs() < 300, "a float holds no more");
        assert_eq!(times[1], -500_000_000);
        let decimals = Decimal128Array::from(vec![1_431_857_103_000_000_001_i128]);
        let decimals = decimals.with_precision_and_scale(20, 9).unwrap();
        assert_eq!(read(Some("unix"), None, Arc::new(decimals)).0, [THEN + 1]);
        let stamps: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![THEN / 1_000_000]));
        assert_eq!(read(None, None, Arc::clone(&stamps)).0, [THEN]);
        assert_eq!(read(None, Some("+01:00"), Arc::clone(&stamps)).0, [THEN - hour]);
        let zoned = TimestampMillisecondArray::from(vec![THEN / 1_000_000]).with_timezone("+05:00");
        assert_eq!(read(None, Some("+01:00"), Arc::new(zoned)).0, [THEN]);
        assert_eq!(read(None, None, Arc::new(Date32Array::from(vec![1]))).0, [24 * hour]);
    }

    #[test]
    fn rows_without_a_time_are_named_with_what_they_hold() {
        let column: ArrayRef =
            Arc::new(StringArray::from(vec![Some("17.5."), None, Some("2015-05-17T10:05:03Z")]));
        let (times, said) = read(None, None, column);
        assert_eq!(times[2], THEN);
        assert_eq!(
            said,
            ["cannot read '17.5.' as a time (RFC 3339, such as 2015-05-17T10:05:03Z)", "the time is null"]
        );
        let (_, said) = read(Some(APACHE), None, texts(&["31/Feb/2015:10:05:03 +0000", &"x".repeat(500)]));
        assert_eq!(
            said[0],
            format!("cannot read '31/Feb/2015:10:05:03 +0000' as a time by the format `{APACHE}`")
        );
        assert!(said[1].contains('…') && said[1].len() < 200);
        let (_, said) = read(Some("unix_ms"), None, texts(&["soon", "1e9", "-", "99999999999999999999"]));
        assert_eq!(said.len(), 4);
        let (_, said) = read(None, None, Arc::new(TimestampMillisecondArray::from(vec![i64::MAX / 2])));
        assert_eq!(said, ["the time is too far from 1970: the years 1678 to 2261 are taken"]);
        let (_, said) = read(None, None, texts(&["1500-01-01T00:00:00Z"]));
        assert_eq!(said, ["1500-01-01 is too far from 1970: the years 1678 to 2261 are taken"]);
        // Clocks in Denver went from 2 to 3 on 8 March 2015, and back from 2 to 1 on 1 November.
        let (_, said) = read(None, Some("America/Denver"), texts(&["2015-03-08 02:30:00"]));
        assert!(said[0].contains("clocks went forward"), "{said:?}");
        for format in [None, Some("%Y-%m-%d %H:%M:%S")] {
            let twice = texts(&["2015-11-01 01:30:00"]);
            let (times, said) = read(format, Some("America/Denver"), twice);
            assert_eq!((times, said.len()), (vec![1_446_363_000_000_000_000], 0), "{format:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_beforehand() {
        let text = DataType::Utf8;
        assert!(refused("%H:%M:%S", &text).contains("does not hold a whole date"));
        assert!(refused("%b %d %H:%M:%S", &text).contains("a year can stand before"));
        assert!(refused("%Y-%m-%d %H:%M:%S,%f", &text).contains("%3f"));
        assert!(refused("%Y-%m-%d %Q", &text).contains("nothing reads"));
        assert!(refused("unix_sm", &text).contains("did you mean `unix_ms`?"));
        assert!(refused("%Y", &DataType::Int64).contains("reads text"));
        assert!(refused("unix", &DataType::Date32).contains("leave `format` out"));
        let without = |kind: &DataType| Reading::new(&time(None, None), kind).unwrap_err()[0].clone();
        assert!(without(&DataType::Int64).help.unwrap().contains("unix_ms"));
        assert!(without(&DataType::Boolean).help.unwrap().contains("a time is"));
        let zone = Reading::new(&time(None, Some("Europe/Berln")), &text).unwrap_err();
        assert_eq!(zone[0].message, "there is no time zone `Europe/Berln`");
    }

    /// What stands for "no time" elsewhere, such as the least number, is no event time.
    #[test]
    fn the_ends_of_time_are_refused_whatever_they_are_written_as() {
        let ends = [i64::MIN, i64::MIN + 1, i64::MAX];
        let (times, said) = read(Some("unix_ns"), None, Arc::new(Int64Array::from(ends.to_vec())));
        assert_eq!((times, said.len()), (vec![0; 3], 3));
        assert_eq!(
            said[0],
            "1677-09-21 00:12:43.145224192 is too far from 1970: the years 1678 to 2261 are taken"
        );
        let written = ends.map(|time| time.to_string());
        let (_, said) = read(Some("unix_ns"), None, texts(&written.each_ref().map(String::as_str)));
        assert_eq!(said.len(), 3, "{said:?}");
        let (_, said) = read(None, None, Arc::new(TimestampNanosecondArray::from(ends.to_vec())));
        assert_eq!(said.len(), 3, "{said:?}");
        let bounds = texts(&["1678-01-01T00:00:00Z", "2261-12-31T23:59:59.999999999Z"]);
        assert_eq!(read(None, None, bounds).1, Vec::<String>::new());
        let beyond = texts(&["1677-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "2262-01-01T00:30:00+01:00"]);
        assert_eq!(read(None, None, beyond).1.len(), 2, "the last is an hour before");
    }

    proptest! {
        #[test]
        fn decimals_are_exact(time in -4_000_000_000_000_000_000_i64..4_000_000_000_000_000_000) {
            let text = format!("{}{}.{:09}", if time < 0 { "-" } else { "" }, time.abs() / 1_000_000_000, time.abs() % 1_000_000_000);
            prop_assert_eq!(decimal(&text, 1_000_000_000), Some(time));
            prop_assert_eq!(decimal(&time.to_string(), 1), Some(time));
            let written = DateTime::from_timestamp_nanos(time).to_rfc3339();
            prop_assert_eq!(read(None, None, texts(&[&written])).0, [time]);
        }
    }
}
