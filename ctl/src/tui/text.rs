//! Numbers and names in few columns, by the width that a terminal gives them.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::glyph::Glyphs;
use crate::output::safe;

/// Three digits and a unit: 999, 1.2k, 12.3k, 412k, 1.5M.
pub(crate) fn short(n: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    if !n.is_finite() {
        return "-".into();
    }
    let (mut value, mut unit) = (n.max(0.0), 0);
    // What would round to 1000 is one of the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 && value >= 10.0 || value >= 99.95 {
        return format!("{value:.0}{}", UNITS[unit]);
    }
    let text = format!("{value:.1}");
    format!("{}{}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

/// A number that may be below 0, with one digit behind the point so that sums add up (two below 1): -14.5, 0.05,
/// 2340, 412k.
pub(crate) fn signed(n: f64) -> String {
    let size = n.abs();
    let text = match size {
        0.0..0.995 => format!("{size:.2}"),
        0.995..99_999.5 => format!("{size:.1}"),
        _ => short(size),
    };
    let text = if text.contains('.') && !text.ends_with(char::is_alphabetic) {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    // What is shown as 0 has no sign.
    if n < 0.0 && text != "0" { format!("-{text}") } else { text }
}

/// A time that may be short: `12 ms`, `0.5 ms`, from one second on as [`age`].
pub(crate) fn lapse(ms: f64) -> String {
    if ms < 1000.0 { format!("{} ms", signed(ms)) } else { age(ms as u64) }
}

/// A count of rows.
pub(crate) fn rows(n: u64) -> String {
    short(n as f64)
}

/// Rows per second, `-` where it is not known.
pub(crate) fn rate(per_second: Option<f64>) -> String {
    per_second.filter(|rate| rate.is_finite()).map_or_else(|| "-".into(), |rate| format!("{}/s", short(rate)))
}

/// A share of one: `91 %`.
pub(crate) fn share(share: Option<f64>) -> String {
    share
        .filter(|share| share.is_finite())
        .map_or_else(|| "-".into(), |share| format!("{:.0} %", (share * 100.0).max(0.0)))
}

/// An age for people, whole seconds from one second on: `0.4 s`, `7 s`, `3m05s`.
pub(crate) fn age(ms: u64) -> String {
    match ms {
        0..1000 => format!("{:.1} s", ms as f64 / 1000.0),
        1000..60_000 => format!("{} s", ms / 1000),
        _ => crate::output::time::span(ms),
    }
}

/// A duration since a start: `12:41`, `1:02:03`.
pub(crate) fn clock(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}

/// Columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// A name from a job or a cluster, made safe for a terminal.
pub(crate) fn name(text: &str) -> String {
    // What joins with a neighbour, or has no width, would move columns from terminal to terminal.
    let safe = safe::line(text);
    let joins = |c: char| c.width().unwrap_or(0) == 0 || matches!(c, '\u{200d}' | '\u{1f3fb}'..='\u{1f3ff}');
    if safe.chars().any(joins) {
        return safe.chars().map(|c| if joins(c) { '\u{fffd}' } else { c }).collect();
    }
    safe
}

/// A text of at most so many columns, the cut marked.
pub(crate) fn fit(text: &str, columns: usize, glyphs: &Glyphs) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = width(glyphs.cut);
    if used > columns {
        return String::new();
    }
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > columns {
            break;
        }
        used += wide;
        out.push(c);
    }
    out.push_str(glyphs.cut);
    out
}

/// As [`fit`], filled with spaces: on the right, or on the left for numbers.
pub(crate) fn pad(text: &str, columns: usize, right: bool, glyphs: &Glyphs) -> String {
    let cut = fit(text, columns, glyphs);
    let fill = " ".repeat(columns.saturating_sub(cut.width()));
    if right { fill + &cut } else { cut + &fill }
}

/// Breaks a sentence into lines of at most so many columns: at spaces, and a word that is longer than a
/// line within it. Nothing is left out.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 && line.width() + 1 + word.width() <= columns {
            line.push(' ');
        } else if at > 0 {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if !line.is_empty() && line.width() + c.width().unwrap_or(0) > columns {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_few_columns() {
        let shown = [0.0, 3.0, 9.96, 999.4, 999.6, 1234.0, 12_345.0, 411_960.0, 1e6, 2.5e12];
        let texts = shown.map(short);
        assert_eq!(texts, ["0", "3", "10", "999", "1k", "1.2k", "12.3k", "412k", "1M", "2.5T"]);
        assert_eq!((short(f64::NAN), rate(None), rate(Some(7.0))), ("-".into(), "-".into(), "7/s".into()));
        assert_eq!((share(Some(0.914)), share(None)), ("91 %".into(), "-".into()));
        assert_eq!((age(400), age(7900), age(185_000)), ("0.4 s".into(), "7 s".into(), "3m05s".into()));
        assert_eq!((clock(761_000), clock(3_723_000)), ("12:41".into(), "1:02:03".into()));
    }

    #[test]
    fn numbers_may_be_below_zero_and_small() {
        let texts = [0.0, -0.001, 0.05, -0.5, 1.0, -3.25, -31.0, 12_345.0].map(signed);
        assert_eq!(texts, ["0", "0", "0.05", "-0.5", "1", "-3.2", "-31", "12345"]);
        assert_eq!((signed(f64::NAN), signed(-412_000.0)), ("-".into(), "-412k".into()));
        assert_eq!((lapse(12.0), lapse(0.5), lapse(2300.0)), ("12 ms".into(), "0.5 ms".into(), "2 s".into()));
    }

    #[test]
    fn names_are_cut_by_columns_and_stay_harmless() {
        let glyphs = Glyphs::of(true);
        assert_eq!(fit("日本語", 5, glyphs), "日本…");
        assert_eq!(pad("日本", 5, false, glyphs), "日本 ");
        assert_eq!(pad("12", 5, true, glyphs), "   12");
        assert_eq!((fit("abc", 0, glyphs), fit("abc", 1, glyphs)), (String::new(), "…".into()));
        let hostile = name("a\x1b[2J\u{202e}b\tc\u{200d}d\u{0301}");
        assert!(!hostile.chars().any(char::is_control), "{hostile}");
        assert_eq!(hostile.width(), hostile.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>());
    }

    #[test]
    fn sentences_are_broken_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a bcdefghij k", 4), ["a", "bcde", "fghi", "j k"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
