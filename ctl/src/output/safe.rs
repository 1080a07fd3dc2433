//! Text that came from elsewhere, made fit for a terminal.

/// One line: control characters and those that reorder text are shown as escapes.
pub(crate) fn line(text: &str) -> String {
    escape(text, |_| false)
}

/// Several lines: as [`line()`], but line ends stay.
pub(crate) fn lines(text: &str) -> String {
    escape(text, |c| c == '\n')
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !stays(c) && (c.is_control() || reorders(c)) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Marks that change the direction of what follows, and invisible ones that hide in names.
fn reorders(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_escape_sequence_survives() {
        assert_eq!(line("a\x1b[2Jb\tc\nd\u{202e}e"), "a\\u{1b}[2Jb\\tc\\nd\\u{202e}e");
        assert_eq!(line("a\u{61c}\u{ad}\u{e0041}"), "a\\u{61c}\\u{ad}\\u{e0041}");
        assert_eq!(lines("a\nb\x07"), "a\nb\\u{7}");
        assert_eq!(line("日本 héllo"), "日本 héllo");
    }
}
