//! The time of day as text, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

use chrono::DateTime;

/// A second, by the calendar.
pub(super) struct Moment(i64);

impl Moment {
    pub(super) fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64))
    }

    /// As in RFC 3339: `2026-11-30T11:40:00Z`.
    pub(super) fn rfc3339(&self) -> String {
        self.format("%Y-%m-%dT%H:%M:%SZ")
    }

    /// For a file's name: `20261130-114000`.
    pub(super) fn name(&self) -> String {
        self.format("%Y%m%d-%H%M%S")
    }

    fn format(&self, format: &str) -> String {
        DateTime::from_timestamp(self.0, 0).unwrap_or_default().format(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        assert_eq!(Moment(951_782_400).rfc3339(), "2000-02-29T00:00:00Z");
        assert_eq!(Moment(1_796_036_400).name(), "20261130-110000");
    }
}
