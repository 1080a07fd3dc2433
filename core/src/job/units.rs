//! Durations (`"5ms"`) and sizes (`"64MiB"`) as people write them.

use std::time::Duration;

/// Units of time, in nanoseconds.
const TIMES: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9), ("d", 86400e9)];

/// Units of size, in bytes.
const SIZES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// How to write a duration, for messages.
pub const WRITE_DURATION: &str = "write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\"";

/// Longest duration taken: a hundred years, far from any overflow.
const MAX_NANOS: f64 = 100.0 * 365.0 * 86400e9;

/// Largest size taken: an exabyte.
const MAX_BYTES: f64 = 1e18;

/// Why a text or a number of milliseconds is no duration, for messages, with what to write.
pub fn not_a_duration(text: &str) -> (&'static str, &'static str) {
    let text = text.trim();
    if text.strip_prefix('-').is_some_and(|rest| scaled(rest, &TIMES, 1e6, f64::INFINITY).is_some()) {
        ("is less than 0", "write 0 or more")
    } else if scaled(text, &TIMES, 1e6, f64::INFINITY).is_some() {
        ("is too long", "a hundred years are the most: \"36500d\"")
    } else {
        ("is not a duration", WRITE_DURATION)
    }
}

/// Reads `"5ms"`, `"1.5 h"`; text without a unit counts milliseconds.
pub fn duration(text: &str) -> Option<Duration> {
    scaled(text, &TIMES, 1e6, MAX_NANOS).map(Duration::from_nanos)
}

/// Whether a text says a size, however large.
pub(super) fn is_any_size(text: &str) -> bool {
    scaled(text, &SIZES, 1.0, f64::MAX).is_some()
}

/// A number without a unit counts milliseconds.
pub fn milliseconds(value: f64) -> Option<Duration> {
    let nanos = value * 1e6;
    (0.0..=MAX_NANOS).contains(&nanos).then(|| Duration::from_nanos(nanos.round() as u64))
}

/// Reads `"64MiB"`, `"16 KiB"`, `"1GB"`; text without a unit counts bytes.
pub fn size(text: &str) -> Option<u64> {
    scaled(text, &SIZES, 1.0, MAX_BYTES)
}

fn scaled(text: &str, units: &[(&str, f64)], bare: f64, most: f64) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim_start();
    let factor = if unit.is_empty() { bare } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    let value = number * factor;
    (value <= most).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_and_without_unit() {
        let micros = |text| duration(text).map(|duration| duration.as_micros());
        assert_eq!(micros("250us"), Some(250));
        assert_eq!(micros("5ms"), Some(5_000));
        assert_eq!(micros("10 s"), Some(10_000_000));
        assert_eq!(micros("1.5m"), Some(90_000_000));
        assert_eq!(micros("2h"), Some(7_200_000_000));
        assert_eq!(micros("1d"), Some(86_400_000_000));
        assert_eq!(micros("20"), Some(20_000));
        for wrong in ["", "ms", "-5ms", "5 parsecs", "1e3s", "5 MS", "999999d", "1.2.3s"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
        for (wrong, why) in [
            ("-5ms", "is less than 0"),
            ("-1", "is less than 0"),
            ("-99999999999d", "is less than 0"),
            ("36501d", "is too long"),
            ("99999999999999", "is too long"),
            ("5 parsecs", "is not a duration"),
            ("-x", "is not a duration"),
        ] {
            assert_eq!((duration(wrong), not_a_duration(wrong).0), (None, why), "{wrong}");
        }
        assert!(duration("36500d").is_some());
        assert_eq!(milliseconds(-1.0), None);
        assert_eq!(milliseconds(f64::NAN), None);
        assert_eq!(milliseconds(0.5), Some(Duration::from_micros(500)));
    }

    #[test]
    fn sizes_with_and_without_unit() {
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size("16 KiB"), Some(16 << 10));
        assert_eq!(size("1GB"), Some(1_000_000_000));
        assert_eq!(size("4096"), Some(4096));
        for wrong in ["", "-1", "1 gb", "1GiBs", "99999999TiB"] {
            assert_eq!(size(wrong), None, "{wrong}");
            assert_eq!(is_any_size(wrong), wrong == "99999999TiB", "{wrong}");
        }
    }
}
