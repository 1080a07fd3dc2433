//! Draws the model, and never changes it.

mod chrome;
mod graph;
mod over;
mod pen;
mod table;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::command::{Do, key_of};
use super::model::area;
use super::model::dialog::Dialog;
use super::model::{Mode, Model, Screen};
use super::text;
use super::theme::Tone;
use pen::Pen;

/// Draws all of it.
pub(crate) fn draw(model: &Model, frame: &mut Frame<'_>) {
    let cursor = paint(model, frame.buffer_mut());
    if let Some(place) = cursor {
        frame.set_cursor_position(place);
    }
}

/// Draws into a buffer; gives the place of the cursor where something is typed.
pub(crate) fn paint(model: &Model, buffer: &mut Buffer) -> Option<(u16, u16)> {
    let screen = Rect::new(0, 0, model.width, model.height).intersection(buffer.area);
    let mut pen = Pen::new(buffer, screen, model.options.theme, model.options.glyphs);
    if screen.is_empty() {
        return None;
    }
    if model.is_tiny() {
        tiny(&mut pen, model);
        return None;
    }
    let areas = area::areas(model);
    chrome::header(&mut pen.on(areas.header), model);
    if let Some(area) = areas.banner {
        chrome::banner(&mut pen.on(area), model);
    }
    if let Some(area) = areas.limit {
        chrome::limit(&mut pen.on(area), model);
    }
    body(&mut pen.on(areas.body), model);
    if let Some(area) = areas.notice {
        chrome::notice(&mut pen.on(area), model);
    }
    let cursor = chrome::footer(&mut pen.on(areas.footer), model);
    match &model.mode {
        Mode::Help(input, top) => over::help(&mut pen.on(areas.body), model, input.value(), *top),
        Mode::Dialog(dialog @ Dialog::Confirm { .. }) => {
            over::question(&mut pen.on(area::for_question(&areas, screen, dialog)), dialog);
        }
        Mode::Dialog(dialog) => over::dialog(&mut pen.on(areas.body), dialog),
        _ => {}
    }
    cursor.map(|column| (column.min(model.width.saturating_sub(1)), areas.footer.y))
}

/// What is left on a terminal without room: one line.
fn tiny(pen: &mut Pen<'_>, model: &Model) {
    let job = model.picture().and_then(|picture| picture.job.as_ref());
    let state = chrome::state(model).0;
    let text = match job {
        Some(job) => format!("{state} {}", text::name(&job.summary.name)),
        None => state,
    };
    let wide = usize::from(model.width);
    let quits = key_of(Do::Quit);
    let hint = if wide >= 40 { format!("{text}  too small (20x5), {quits} quits") } else { text };
    pen.line(0, 0, &hint, pen.style(Tone::Plain));
}

fn body(pen: &mut Pen<'_>, model: &Model) {
    let has_job = model.picture().is_some_and(|picture| picture.job.is_some());
    match model.screen {
        Screen::Agents | Screen::Jobs if model.picture().is_some() => table_screen(pen, model),
        _ if !has_job => over::nothing(pen, model),
        Screen::Graph if !model.graph_is_list() => graph::graph(pen, model),
        _ => table_screen(pen, model),
    }
}

/// A table with what is said above and below it.
fn table_screen(pen: &mut Pen<'_>, model: &Model) {
    let parts = area::table_parts(model, pen.area);
    for (y, (line, tone)) in (0..).zip(&parts.above) {
        pen.line(0, y, line, pen.style(*tone));
    }
    table::table(&mut pen.on(parts.table), model, model.screen);
    let below = i32::from(parts.table.bottom() - pen.area.y);
    for (y, (line, tone)) in (below..).zip(&parts.below) {
        pen.line(0, y, line, pen.style(*tone));
    }
}
