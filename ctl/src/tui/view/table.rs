//! A table: as many columns as there is room for, the selected row reversed.

use super::pen::Pen;
use crate::tui::model::area::first_row;
use crate::tui::model::table::{BETWEEN, Cell, Column, Row, shown};
use crate::tui::model::{List, Model, Screen, columns};
use crate::tui::text;
use crate::tui::theme::Tone;

/// Columns of a drawn bar.
const BAR: usize = 12;

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
    // The rows go on there.
    let mark = pen.theme.selected(pen.style(Tone::Head));
    if first > 0 && selected != first {
        pen.put(0, 1, "^", mark);
    }
    if first + lines < rows.len() && selected + 1 != first + lines {
        pen.put(0, lines as i32, "v", mark);
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

/// The columns that are shown, with their widths: what is left of the line goes to texts that need it.
fn choose(pen: &Pen<'_>, columns: &[Column], rows: &[Row], list: &List) -> Vec<(usize, usize)> {
    let mut chosen = shown(columns, pen.area.width, list.left, list.order);
    let used = chosen.iter().map(|(_, wide)| wide + BETWEEN).sum::<usize>();
    let mut spare = usize::from(pen.area.width).saturating_sub(used);
    let grows = |at: usize| {
        let words = |row: &Row| matches!(row.cells.get(at), Some(Cell::Ranked(..)));
        !columns[at].right || rows.iter().any(words)
    };
    for (at, wide) in chosen.iter_mut().filter(|(at, _)| grows(*at)) {
        let cells = rows.iter().filter_map(|row| row.cells.get(*at));
        let widest =
            cells.map(|cell| if matches!(cell, Cell::Bar(_)) { BAR } else { text::width(&cell.shown()) });
        let more = widest.max().unwrap_or(0).saturating_sub(*wide).min(spare);
        *wide += more;
        spare -= more;
    }
    // Where there is too little even so, names give way, then what stands last is cut.
    let over = used.saturating_sub(usize::from(pen.area.width));
    if let Some((_, first)) = chosen.first_mut() {
        *first = first.saturating_sub(over).max((*first).min(8));
    }
    let mut room = usize::from(pen.area.width).saturating_sub(1);
    for (_, wide) in &mut chosen {
        *wide = (*wide).min(room);
        room = room.saturating_sub(*wide + BETWEEN);
    }
    chosen.retain(|(_, wide)| *wide > 0);
    chosen
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
    // The table goes on there.
    let kept = chosen.iter().filter(|(at, _)| *at > list.left).count();
    if kept < columns.len().saturating_sub(list.left + 1) {
        pen.put(i32::from(pen.area.width) - 1, 0, ">", style);
    }
    if list.left > 0 {
        pen.put(0, 0, "<", style);
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
        let meant = columns[*at].toned || row.tone == Tone::Rebalance && *at == 0;
        let style = if meant && !row.stale { pen.style(row.tone) } else { plain };
        match cell {
            Cell::Bar(shares) => bar(pen, x, y, *shares, row.stale),
            cell => {
                let text =
                    text::pad(&cell.shown_in(*wide, pen.glyphs), *wide, columns[*at].right, pen.glyphs);
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
