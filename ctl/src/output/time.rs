//! Times: RFC 3339 in UTC for documents, ages for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tuplane_core::job::units;

/// Milliseconds since 1970, now.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Milliseconds since 1970 as `2026-11-29T23:00:04.123Z`.
pub(crate) fn rfc3339(ms: u64) -> String {
    event_time(ms as i64)
}

/// The same of a time that may be before 1970.
pub(crate) fn event_time(ms: i64) -> String {
    let seconds = ms.div_euclid(1000);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        ms.rem_euclid(1000)
    )
}

/// Year, month and day of a day counted from 1970-01-01, by the Gregorian calendar: the year is
/// taken to begin in March, so that the leap day is its last.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A span for people: `0.4s`, `12s`, `3m05s`, `2h07m`, `4d03h`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..10 => format!("{:.1}s", ms as f64 / 1000.0),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Reads a duration as job files have it (`5s`, `500ms`, `1.5h`, `1d`), but that a bare number is seconds.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let bare = !text.trim_end().ends_with(|c: char| c.is_ascii_alphabetic());
    let with_unit = if bare { format!("{text}s") } else { text.to_owned() };
    units::duration(&with_unit).ok_or_else(|| {
        let (why, help) = units::not_a_duration(&with_unit);
        format!("`{text}` {why}; {help}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_796_079_600_123), "2026-11-30T23:00:00.123Z");
        assert_eq!(rfc3339(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn spans_are_read_and_shown() {
        assert_eq!(parse_span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_span("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_span("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_span("1d"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_span("36500d"), Ok(Duration::from_hours(24 * 36_500)));
        for bad in ["", "5 days", "x", "-1s", "1e999h"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
        assert_eq!((span(400), span(12_000), span(185_000)), ("0.4s".into(), "12s".into(), "3m05s".into()));
    }
}
