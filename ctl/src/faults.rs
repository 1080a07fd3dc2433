//! Faults of a file, shown with their line and a caret under the place.

use serde::Serialize;
use tuplane_core::fault::Fault;

use crate::output::{safe, table};

/// So many faults are printed; a document has them all.
const MOST: usize = 100;

/// About so many characters of a line are shown, around the place.
const WIDEST: usize = 160;

/// A fault as documents carry it.
#[derive(Debug, Serialize)]
pub(crate) struct FaultView<'f> {
    /// 0 where no line of the file is to blame.
    line: u32,
    column: u32,
    message: &'f str,
    help: Option<&'f str>,
    stage: Option<&'f str>,
}

impl<'f> From<&'f Fault> for FaultView<'f> {
    fn from(fault: &'f Fault) -> Self {
        Self {
            line: fault.at.line,
            column: fault.at.column,
            message: &fault.message,
            help: fault.help.as_deref(),
            stage: fault.stage.as_deref(),
        }
    }
}

/// All faults of a file as text.
pub(crate) fn render(file: &str, text: &str, faults: &[Fault], colors: bool) -> String {
    let place = |fault: &Fault| match fault.at.line {
        0 => safe::line(file),
        line => format!("{}:{line}:{}", safe::line(file), fault.at.column),
    };
    rendered(file, text, faults, colors, place)
}

/// All faults of a list on the command line, of which `text` has one entry a line.
pub(crate) fn render_entries(option: &str, text: &str, faults: &[Fault], colors: bool) -> String {
    let place = |fault: &Fault| match fault.at.line {
        0 => option.to_owned(),
        entry => format!("entry {entry} of {option}"),
    };
    rendered(option, text, faults, colors, place)
}

fn rendered(
    file: &str,
    text: &str,
    faults: &[Fault],
    colors: bool,
    place: impl Fn(&Fault) -> String,
) -> String {
    let mut out = String::new();
    for fault in faults.iter().take(MOST) {
        one(&mut out, &place(fault), text, fault, colors);
    }
    let number = faults.len();
    if number > MOST {
        out.push_str(&format!("and {} more\n", number - MOST));
    }
    let noun = if number == 1 { "fault" } else { "faults" };
    out.push_str(&format!("{}: {number} {noun}\n", safe::line(file)));
    out
}

fn one(out: &mut String, place: &str, text: &str, fault: &Fault, colors: bool) {
    let (bold, red, reset) = if colors { ("\x1b[1m", "\x1b[1;31m", "\x1b[0m") } else { ("", "", "") };
    out.push_str(&format!("{bold}{place}: {}{reset}\n", safe::line(&fault.message)));
    if let Some(source) = fault.at.line.checked_sub(1).and_then(|line| text.lines().nth(line as usize)) {
        let number = fault.at.line.to_string();
        let gutter = " ".repeat(number.len());
        let column = fault.at.column.saturating_sub(1) as usize;
        let before: String = source.chars().take(column).collect();
        let marked = marked(text, source, &before, fault);
        let Excerpt { line, before, marked } = excerpt(source, &before, &marked);
        // Tabs and control characters take the room of their escapes.
        let fill = " ".repeat(table::width(&shown(&before)));
        let carets = "^".repeat(table::width(&shown(&marked)).max(1));
        out.push_str(&format!("{gutter} |\n{number} | {}\n", shown(&line)));
        out.push_str(&format!("{gutter} | {fill}{red}{carets}{reset}\n"));
    }
    if let Some(help) = &fault.help {
        out.push_str(&format!("  help: {}\n", safe::line(help)));
    }
}

/// What the caret stands under: the span as far as it lies in the line.
fn marked(text: &str, source: &str, before: &str, fault: &Fault) -> String {
    let start = fault.at.offset as usize;
    let end = start.saturating_add(fault.at.len as usize);
    let span = text.get(start..end.min(text.len())).unwrap_or_default();
    let first = span.lines().next().unwrap_or_default();
    let rest = source.get(before.len()..).unwrap_or_default();
    if rest.starts_with(first) { first.to_owned() } else { String::new() }
}

/// The part of a line that is shown.
struct Excerpt {
    line: String,
    before: String,
    marked: String,
}

/// A long line is cut around the place: a file may be one line.
fn excerpt(source: &str, before: &str, marked: &str) -> Excerpt {
    let (all, at) = (source.chars().count(), before.chars().count());
    if all <= WIDEST {
        return Excerpt { line: source.into(), before: before.into(), marked: marked.into() };
    }
    // A place behind the line's end shows that end.
    let first = at.min(all).saturating_sub(WIDEST / 2).min(all - WIDEST);
    let last = first + WIDEST;
    let (head, tail) = (if first > 0 { "…" } else { "" }, if last < all { "…" } else { "" });
    let part = |text: &str, from: usize, to: usize| -> String {
        text.chars().skip(from).take(to.saturating_sub(from)).collect()
    };
    Excerpt {
        line: format!("{head}{}{tail}", part(source, first, last)),
        before: format!("{head}{}", part(before, first, last)),
        marked: part(marked, 0, last.saturating_sub(at)),
    }
}

fn shown(text: &str) -> String {
    safe::line(&text.replace('\t', "    "))
}

#[cfg(test)]
mod tests {
    use tuplane_core::fault::At;

    use super::*;

    #[test]
    fn the_caret_stands_under_the_span() {
        let text = "a = 1\n\tkey = \"日本\" # c\n";
        let at = At { line: 2, column: 8, offset: 13, len: 8 };
        let fault = Fault::new(at, "no column `日本`").help("the columns are: x");
        let shown = render("job.toml", text, &[fault], false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "job.toml:2:8: no column `日本`");
        assert_eq!(lines[2], "2 |     key = \"日本\" # c");
        assert_eq!(lines[3], "  |           ^^^^^^");
        assert_eq!(lines[4], "  help: the columns are: x");
        assert_eq!(lines[5], "job.toml: 1 fault");
    }

    #[test]
    fn a_list_names_its_entry() {
        let at = At { line: 2, column: 4, offset: 6, len: 4 };
        let shown =
            render_entries("--hosts", "h1\nh2 slot=4", &[Fault::new(at, "unknown key `slot`")], false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "entry 2 of --hosts: unknown key `slot`");
        assert_eq!(lines[2..4], ["2 | h2 slot=4", "  |    ^^^^"]);
        let nowhere = render_entries("--hosts", ",", &[Fault::new(At::default(), "no host is named")], false);
        assert!(nowhere.starts_with("--hosts: no host is named\n"), "{nowhere}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}bad{}", "x".repeat(5000), "y".repeat(5000));
        let at = |column: u32, len: u32| At { line: 1, column, offset: column - 1, len };
        let shown = render("j", &text, &[Fault::new(at(5001, 3), "m")], false);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[2].chars().count() < 180, "{}", lines[2]);
        let place = lines[3].find("^^^").unwrap();
        assert_eq!(lines[2].chars().skip(place).take(4).collect::<String>(), "bady");
        for (column, len, under) in [(1, 1, "x"), (10_003, 1, "y"), (5001, 5003, "bady")] {
            let shown = render("j", &text, &[Fault::new(at(column, len), "m")], false);
            let lines: Vec<&str> = shown.lines().collect();
            let place = lines[3].find('^').unwrap();
            let found: String = lines[2].chars().skip(place).take(under.len()).collect();
            assert_eq!(found, under);
            assert!(lines[3].chars().count() <= lines[2].chars().count());
        }
        let many: Vec<Fault> = (0..250).map(|_| Fault::new(at(1, 1), "m")).collect();
        let shown = render("j", &text, &many, false);
        assert!(
            shown.contains("\nand 150 more\nj: 250 faults\n") && shown.len() < 100 * 500,
            "{}",
            shown.len()
        );
    }

    #[test]
    fn a_place_that_is_not_in_the_text_is_no_panic() {
        for (line, column, offset, len) in [(9, 9, 900, 9), (1, 900, 2, 1), (1, 2, 1, u32::MAX), (1, 0, 0, 0)]
        {
            let fault = Fault::new(At { line, column, offset, len }, "m\x1b[2J");
            let shown = render("f", "é\n", &[fault], false);
            assert!(shown.contains("m\\u{1b}[2J"));
        }
    }
}
