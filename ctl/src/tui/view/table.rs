//! A table: as many columns as there is room for, the selected row reversed.

use super::area::first_row;
use super::pen::Pen;
use crate::tui::model::table::{Cell, Column, Row};
use crate::tui::model::{List, Model, Screen, columns};
use crate::tui::text;
use crate::tui::theme::Tone;

/// Columns of a drawn bar.
const BAR: usize = 12;

/// Columns between two columns.
const BETWEEN: usize = 2;

/// Draws a screen's table.
pub(crate) fn table(pen: &mut Pen<'_>, model: &Model, screen: Screen) {
    let columns = columns::columns(screen);
    let rows = model.rows(screen);
    let list = model.list(screen);
    let chosen = choose(pen, columns, &rows, &list);
    header(pen, columns, &chosen, &list);
    let lines = usize::from(pen.area.height).saturating_sub(1);
    let selected = model.selected(screen, &rows);
    let first = first_row(selected, rows.len(), lines);
    for (line, (index, row)) in rows.iter().enumerate().skip(first).take(lines).enumerate() {
        draw_row(pen, line as i32 + 1, row, columns, &chosen, index == selected);
    }
    if rows.is_empty() {
        let why = if list.filter.is_empty() {
            "nothing to show".to_owned()
        } else {
            format!("nothing fits the filter `{}`; Esc clears it", text::name(&list.filter.text))
        };
        pen.line(0, 1, &why, pen.style(Tone::Faint));
    }
}

/// Indices of the columns that are shown, with their widths.
fn choose(pen: &Pen<'_>, columns: &[Column], rows: &[Row], list: &List) -> Vec<(usize, usize)> {
    let room = usize::from(pen.area.width);
    let width = |at: usize| {
        let sorted = usize::from(list.order.column == Some(at)) * 2;
        let head = text::width(columns[at].name) + sorted;
        let cells = rows.iter().filter_map(|row| row.cells.get(at));
        let widest =
            cells.map(|cell| if matches!(cell, Cell::Bar(_)) { BAR } else { text::width(&cell.text()) });
        widest.max().unwrap_or(0).max(head)
    };
    // The mark of the selection stands before the first column.
    let mut shown: Vec<(usize, usize)> =
        (0..columns.len()).filter(|at| *at == 0 || *at > list.left).map(|at| (at, width(at))).collect();
    let needed = |shown: &[(usize, usize)]| shown.iter().map(|(_, wide)| wide + BETWEEN).sum::<usize>();
    while needed(&shown) > room {
        let goes = shown
            .iter()
            .enumerate()
            .filter(|(_, (at, _))| columns[*at].rank > 0)
            .max_by_key(|(place, (at, _))| (columns[*at].rank, *place))
            .map(|(place, _)| place);
        let Some(place) = goes else { break };
        shown.remove(place);
    }
    // Names give way first, then what stands last is cut.
    let over = needed(&shown).saturating_sub(room);
    if let Some((_, first)) = shown.first_mut() {
        *first = first.saturating_sub(over).max((*first).min(8));
    }
    shown
}

fn header(pen: &mut Pen<'_>, columns: &[Column], chosen: &[(usize, usize)], list: &List) {
    let style = pen.style(Tone::Head);
    let mut x = 1;
    for (at, wide) in chosen {
        let mut name = columns[*at].name.to_uppercase();
        if list.order.column == Some(*at) {
            // Numbers fall and text rises unless the order is turned around.
            let rises = columns[*at].right == list.order.inverted;
            name = format!("{name} {}", pen.glyphs.sorted[usize::from(!rises)]);
        }
        let text = text::pad(&name, *wide, columns[*at].right, pen.glyphs);
        pen.line(x, 0, &text, style);
        x += (wide + BETWEEN) as i32;
    }
}

fn draw_row(
    pen: &mut Pen<'_>,
    y: i32,
    row: &Row,
    columns: &[Column],
    chosen: &[(usize, usize)],
    selected: bool,
) {
    let tone = if row.stale { Tone::Stale } else { Tone::Plain };
    let plain = pen.style(tone);
    let mut x = 1;
    if selected {
        pen.put(0, y, pen.glyphs.selected, plain);
    }
    for (at, wide) in chosen {
        let Some(cell) = row.cells.get(*at) else { continue };
        // A letter of load or a state has the row's colour; all of a rebalanced edge has it.
        let meant = matches!(columns[*at].name, "load" | "state" | "phase")
            || row.tone == Tone::Rebalance && *at == 0;
        let style = if meant && !row.stale { pen.style(row.tone) } else { plain };
        match cell {
            Cell::Bar(shares) => bar(pen, x, y, *shares, row.stale),
            cell => {
                let text = text::pad(&cell.text(), *wide, columns[*at].right, pen.glyphs);
                pen.line(x, y, &text, style);
            }
        }
        x += (wide + BETWEEN) as i32;
    }
    if selected {
        let style = pen.theme.selected(ratatui::style::Style::new());
        pen.paint(y, style);
    }
}

fn bar(pen: &mut Pen<'_>, x: i32, y: i32, shares: Option<[f64; 3]>, stale: bool) {
    let Some([busy, blocked, _]) = shares else { return };
    let cells = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let worked = cells(busy);
    let waited = cells(busy + blocked).saturating_sub(worked);
    let parts = [(worked, Tone::Busy), (waited, Tone::Blocked), (BAR - worked - waited, Tone::Faint)];
    let mut column = x;
    for ((count, tone), mark) in parts.into_iter().zip(pen.glyphs.bars) {
        let style = pen.style(if stale { Tone::Stale } else { tone });
        column = pen.put(column, y, &mark.repeat(count), style);
    }
}
