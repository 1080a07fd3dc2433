//! Aligned tables: as wide as their cells, headers kept, numbers to the right.

use unicode_width::UnicodeWidthStr;

use super::safe;

/// A cell wider than this is cut.
const WIDEST: usize = 60;

/// How a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells under headers.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
    /// Columns that are left out where there is no room, the first one first.
    spare: &'static [&'static str],
}

/// Between two columns.
const GAP: usize = 2;

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), spare: &[] }
    }

    /// Names columns that may be left out, the first one first.
    pub(crate) fn spare(mut self, columns: &'static [&'static str]) -> Self {
        self.spare = columns;
        self
    }

    /// Adds a row; cells are made safe and cut to the widest allowed.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| cut(&safe::line(&cell), WIDEST)).collect());
    }

    /// The text, one line a row, each with its line end.
    pub(crate) fn render(&self) -> String {
        let widths = self.widths();
        let headers: Vec<String> = self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        std::iter::once(&headers).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    /// The text where lines have so much room, if that is known: without spare columns that do not fit, and with
    /// a line that names them.
    pub(crate) fn render_in(mut self, room: Option<usize>) -> String {
        let mut left_out = Vec::new();
        let fits = |table: &Self| {
            let widths = table.widths();
            room.is_none_or(|room| {
                widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) <= room
            })
        };
        for name in self.spare {
            if fits(&self) {
                break;
            }
            let Some(index) = self.columns.iter().position(|(column, _)| column == name) else { continue };
            self.columns.remove(index);
            for row in &mut self.rows {
                if index < row.len() {
                    row.remove(index);
                }
            }
            left_out.push(*name);
        }
        let mut text = self.render();
        if !left_out.is_empty() {
            text.push_str(&format!("(no room for {})\n", left_out.join(", ")));
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|(name, _)| name.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        widths
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
            if index > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let fill = " ".repeat(width.saturating_sub(cell.width()));
            match self.columns[index].1 {
                Align::Left => {
                    line.push_str(cell);
                    line.push_str(&fill);
                }
                Align::Right => {
                    line.push_str(&fill);
                    line.push_str(cell);
                }
            }
        }
        let mut line = line.trim_end().to_owned();
        line.push('\n');
        line
    }
}

/// Columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// A text of at most `width` columns, the cut marked by three dots.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let mut longer = out.clone();
        longer.push(c);
        if longer.width() + 3 > width {
            break;
        }
        out = longer;
    }
    out.push_str("...");
    out
}

/// A count with a thin group of three digits: 1,234,567.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things: `1 slot`, `2 slots`.
pub(crate) fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A rate in rows per second.
pub(crate) fn rate(per_second: Option<f64>) -> String {
    per_second.filter(|rate| rate.is_finite()).map_or_else(|| "-".into(), |rate| count(rate.round() as u64))
}

/// Bytes with a unit.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A share of one in whole per cents.
pub(crate) fn percent(share: Option<f64>) -> String {
    share
        .filter(|share| share.is_finite())
        // A zero may have a sign.
        .map_or_else(|| "-".into(), |share| format!("{:.0}%", share * 100.0 + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_columns_go_where_there_is_no_room_and_are_named() {
        let table = || {
            let columns = [("EDGE", Align::Left), ("WIRE", Align::Right), ("TAKEN", Align::Right)];
            let mut table = Table::new(&columns).spare(&["WIRE", "TAKEN"]);
            table.row(["a..b".into(), "12 KiB".into(), "1,000".into()]);
            table
        };
        assert_eq!(table().render_in(None), table().render());
        assert_eq!(table().render_in(Some(19)), table().render());
        assert_eq!(table().render_in(Some(18)), "EDGE  TAKEN\na..b  1,000\n(no room for WIRE)\n");
        assert_eq!(table().render_in(Some(1)), "EDGE\na..b\n(no room for WIRE, TAKEN)\n");
    }

    #[test]
    fn columns_stay_aligned_with_wide_and_hostile_cells() {
        let mut table = Table::new(&[("name", Align::Left), ("rows", Align::Right)]);
        table.row(["日本語".into(), "5".into()]);
        table.row(["a\x1b[2J".into(), "1,000".into()]);
        table.row(["x".repeat(300), "7".into()]);
        let text = table.render();
        assert!(!text.contains('\x1b'));
        let widths: Vec<usize> = text.lines().map(UnicodeWidthStr::width).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert!(text.contains("x..."));
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (count(0), count(999), count(1000), count(1_234_567)),
            ("0".into(), "999".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!((bytes(1023), bytes(1536)), ("1023 B".into(), "1.5 KiB".into()));
        assert_eq!(
            (rate(None), rate(Some(f64::NAN)), rate(Some(1234.6))),
            ("-".into(), "-".into(), "1,235".into())
        );
    }
}
