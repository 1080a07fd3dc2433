//! Tables as data: columns with what they mean, and rows of typed cells. Drawing, sorting, filtering
//! and the documentation all read the same columns.

use std::cmp::Ordering;

use crate::output::table::{bytes, count};
use crate::tui::glyph::Glyphs;
use crate::tui::text;
use crate::tui::theme::Tone;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Header, and name in filters and for sorting.
    pub(crate) name: &'static str,
    /// What it says; for the documentation.
    pub(crate) doc: &'static str,
    /// Another name for filters.
    pub(crate) also: &'static str,
    /// Numbers stand to the right.
    pub(crate) right: bool,
    /// Goes first where the screen is narrow: the larger the earlier; 0 never goes.
    pub(crate) rank: u8,
    /// Columns of the terminal that its values need, whatever they are at the moment.
    pub(crate) wide: u8,
    /// What its numbers count, in filters.
    pub(crate) unit: Unit,
    /// Its cells have the row's colour.
    pub(crate) toned: bool,
}

/// What numbers count, so that a filter may name the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things, or shares of one: `k`, `M` and `G` are powers of 1000.
    Plain,
    /// Bytes: `k`, `M` and `G` are powers of 1024, as they are shown.
    Bytes,
    /// Seconds: `us`, `ms`, `s`, `m` and `h`.
    Seconds,
}

/// A column of text that always stays.
pub(crate) const fn column(name: &'static str, doc: &'static str) -> Column {
    Column { name, doc, also: "", right: false, rank: 0, wide: 6, unit: Unit::Plain, toned: false }
}

impl Column {
    /// Of numbers.
    pub(crate) const fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// Leaves a narrow screen: the larger the earlier.
    pub(crate) const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }

    /// Its values need so many columns of the terminal.
    pub(crate) const fn wide(self, wide: u8) -> Self {
        Self { wide, ..self }
    }

    /// Has another name in filters.
    pub(crate) const fn also(self, also: &'static str) -> Self {
        Self { also, ..self }
    }

    /// Counts this.
    pub(crate) const fn of(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Its cells have the row's colour.
    pub(crate) const fn toned(self) -> Self {
        Self { toned: true, ..self }
    }

    /// Answers to this name.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let plain = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
        plain(self.name) == plain(name) || (!self.also.is_empty() && plain(self.also) == plain(name))
    }
}

/// A value, shown and compared by its kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    /// Text.
    Text(String),
    /// Text with a second name that filters find it by.
    Named {
        /// What is shown.
        text: String,
        /// What also finds it.
        also: String,
    },
    /// Text with a mark before it, which is no part of it.
    Marked {
        /// The mark; empty for none.
        mark: &'static str,
        /// The text, and what also finds it.
        text: String,
        /// What also finds it.
        also: String,
    },
    /// A name with a number behind it: where it is cut, the number stays.
    Numbered {
        /// The name.
        name: String,
        /// The number, with what parts them.
        number: String,
    },
    /// A text with a number to sort by, in the column's unit.
    Ranked(String, f64),
    /// A number of things.
    Count(u64),
    /// Rows per second.
    Rate(Option<f64>),
    /// A share of one.
    Share(Option<f64>),
    /// Bytes.
    Bytes(u64),
    /// An age in ms; in filters it counts in seconds.
    Age(u64),
    /// Shares of busy, blocked and idle, drawn.
    Bar(Option<[f64; 3]>),
}

impl Cell {
    /// Its value in words, bars and marks aside.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text)
            | Self::Named { text, .. }
            | Self::Marked { text, .. }
            | Self::Ranked(text, _) => text::name(text),
            Self::Numbered { name, number } => format!("{}{number}", text::name(name)),
            Self::Count(n) => count(*n),
            Self::Rate(rate) => text::rate(*rate),
            Self::Share(share) => text::share(*share),
            Self::Bytes(n) => bytes(*n),
            Self::Age(ms) => text::age(*ms),
            Self::Bar(_) => String::new(),
        }
    }

    /// As it is shown: the text with its mark.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Marked { mark, .. } => format!("{mark}{}", self.text()),
            _ => self.text(),
        }
    }

    /// As [`Cell::shown`] in so many columns: a number that needs more is rounded, a name is cut before its
    /// number.
    pub(crate) fn shown_in(&self, columns: usize, glyphs: &Glyphs) -> String {
        let text = self.shown();
        match self {
            _ if text::width(&text) <= columns => text,
            Self::Count(n) => text::rows(*n),
            Self::Numbered { name, number } => {
                let room = columns.saturating_sub(text::width(number));
                text::fit(&text::name(name), room, glyphs) + number
            }
            _ => text,
        }
    }

    /// The second name.
    pub(crate) fn also(&self) -> &str {
        match self {
            Self::Named { also, .. } | Self::Marked { also, .. } => also,
            _ => "",
        }
    }

    /// As a number; `None` where it is text or not known.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Text(_) | Self::Named { .. } | Self::Marked { .. } | Self::Numbered { .. } => None,
            Self::Ranked(_, n) => Some(*n),
            Self::Count(n) | Self::Bytes(n) => Some(*n as f64),
            Self::Age(ms) => Some(*ms as f64 / 1000.0),
            Self::Rate(value) | Self::Share(value) => *value,
            Self::Bar(shares) => shares.map(|[busy, ..]| busy),
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            // What is not known comes last in a falling order.
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (None, None) => natural(&self.text(), &other.text()),
        }
    }
}

/// Text order in which `a#2` comes before `a#10`.
fn natural(a: &str, b: &str) -> Ordering {
    let split = |text: &str| {
        let digits = text.chars().rev().take_while(char::is_ascii_digit).count();
        let at = text.len() - digits;
        (text[..at].to_owned(), text[at..].parse::<u64>().ok())
    };
    split(a).cmp(&split(b)).then_with(|| a.cmp(b))
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// What it stands for: stays the same from picture to picture.
    pub(crate) id: String,
    /// One a column.
    pub(crate) cells: Vec<Cell>,
    /// Its values are old.
    pub(crate) stale: bool,
    /// How it looks.
    pub(crate) tone: Tone,
}

impl Row {
    /// A plain row.
    pub(crate) fn new(id: impl Into<String>, cells: Vec<Cell>) -> Self {
        Self { id: id.into(), cells, stale: false, tone: Tone::Plain }
    }

    /// Some cell contains the text (in lower case).
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.cells.iter().any(|cell| {
            cell.shown().to_lowercase().contains(text) || cell.also().to_lowercase().contains(text)
        })
    }
}

/// What is said where a column is named that a table does not have.
pub(crate) fn no_column(name: &str, columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    format!("there is no column `{name}` here; there are: {}", names.join(", "))
}

/// How rows are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Index of the column; `None` for the natural order.
    pub(crate) column: Option<usize>,
    /// Turned around.
    pub(crate) inverted: bool,
}

/// Columns of the terminal between two columns.
pub(crate) const BETWEEN: usize = 2;

/// Indices of the columns that a terminal of this width shows, with their widths. Only the width decides, and
/// what is scrolled out to the left and the mark of the order; so no column comes and goes with a number.
pub(crate) fn shown(columns: &[Column], width: u16, left: usize, order: Order) -> Vec<(usize, usize)> {
    let wide = |at: usize| {
        let head = text::width(columns[at].name) + usize::from(order.column == Some(at)) * 2;
        usize::from(columns[at].wide).max(head)
    };
    // The mark of the selection stands before the first column.
    let mut shown: Vec<(usize, usize)> =
        (0..columns.len()).filter(|at| *at == 0 || *at > left).map(|at| (at, wide(at))).collect();
    let needed = |shown: &[(usize, usize)]| shown.iter().map(|(_, wide)| wide + BETWEEN).sum::<usize>();
    while needed(&shown) > usize::from(width) {
        let goes = shown
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| columns[*at].rank > 0)
            .max_by_key(|(place, (at, _))| (columns[*at].rank, *place))
            .map(|(place, _)| place);
        let Some(place) = goes else { break };
        shown.remove(place);
    }
    shown
}

/// Sorts rows: numbers from the largest down, text from a to z, and the other way where inverted.
pub(crate) fn sort(rows: &mut [Row], columns: &[Column], order: Order) {
    let Some(at) = order.column.filter(|at| *at < columns.len()) else {
        if order.inverted {
            rows.reverse();
        }
        return;
    };
    rows.sort_by(|a, b| {
        let (Some(a), Some(b)) = (a.cells.get(at), b.cells.get(at)) else { return Ordering::Equal };
        let ordering = a.order(b);
        if columns[at].right == order.inverted { ordering } else { ordering.reverse() }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fall_and_text_rises_and_inverted_the_other_way() {
        let columns = [column("name", ""), column("rate", "").right()];
        let row = |name: &str, rate| Row::new(name, vec![Cell::Text(name.into()), Cell::Rate(rate)]);
        let mut rows = [row("a#10", Some(1.0)), row("a#2", None), row("b#1", Some(5.0))];
        let ids = |rows: &[Row]| rows.iter().map(|row| row.id.clone()).collect::<Vec<_>>();
        sort(&mut rows, &columns, Order { column: Some(1), inverted: false });
        assert_eq!(ids(&rows), ["b#1", "a#10", "a#2"]);
        sort(&mut rows, &columns, Order { column: Some(0), inverted: false });
        assert_eq!(ids(&rows), ["a#2", "a#10", "b#1"]);
        sort(&mut rows, &columns, Order { column: Some(0), inverted: true });
        assert_eq!(ids(&rows), ["b#1", "a#10", "a#2"]);
        assert!(columns[1].is_called("RATE") && column("queue in", "").is_called("queue-in"));
    }
}
