//! What stands over a screen or in its place: help, dialogs, and what to do where there is nothing.

use ratatui::layout::Rect;

use super::pen::Pen;
use crate::tui::command::open::{Open, hints};
use crate::tui::command::{Do, key_of};
use crate::tui::model::dialog::Dialog;
use crate::tui::model::link::Link;
use crate::tui::model::{Model, area, help};
use crate::tui::text;
use crate::tui::theme::Tone;

/// A framed box in the middle with texts in its upper and lower border; gives the pen for its inside.
fn frame<'p>(pen: &'p mut Pen<'_>, title: &str, foot: &str, width: usize, height: usize) -> Pen<'p> {
    let all = pen.area;
    let width = (width as u16).saturating_add(area::FRAME.0).min(all.width);
    let height = (height as u16).saturating_add(area::FRAME.1).min(all.height);
    let area =
        Rect { x: all.x + (all.width - width) / 2, y: all.y + (all.height - height) / 2, width, height };
    let mut boxed = pen.on(area);
    boxed.clear();
    let glyphs = boxed.glyphs;
    let style = boxed.style(Tone::Head);
    let inner = usize::from(width.saturating_sub(2));
    let border = |text: &str| {
        let text = if text.is_empty() { String::new() } else { format!(" {text} ") };
        let text = text::fit(&text, inner, glyphs);
        let fill = glyphs.sides[0].repeat(inner.saturating_sub(text::width(&text)));
        format!("{text}{fill}")
    };
    boxed.put(0, 0, &format!("{}{}{}", glyphs.corners[0], border(title), glyphs.corners[1]), style);
    let bottom = i32::from(height) - 1;
    for y in 1..bottom {
        boxed.put(0, y, glyphs.sides[1], style);
        boxed.put(i32::from(width) - 1, y, glyphs.sides[1], style);
    }
    if bottom > 0 {
        boxed.put(0, bottom, &format!("{}{}{}", glyphs.corners[2], border(foot), glyphs.corners[3]), style);
    }
    let inside = Rect {
        x: area.x + 2.min(width),
        y: area.y + 1.min(height),
        width: width.saturating_sub(4),
        height: height.saturating_sub(2),
    };
    pen.on(inside)
}

/// The keys of the present screen, and what its marks mean.
pub(crate) fn help(pen: &mut Pen<'_>, model: &Model, filter: &str, top: usize) {
    let width = help::width(pen.area.width);
    let lines = help::lines(model, filter, width);
    let seen = lines.len().min(usize::from(pen.area.height.saturating_sub(area::FRAME.1)));
    let first = top.min(lines.len() - seen);
    let title = if filter.is_empty() {
        format!("help: {}, its keys and marks", model.screen.name())
    } else {
        format!("help: {}", text::name(filter))
    };
    let mut keys = hints(Open::Help);
    keys.insert(0, "type to filter".to_owned());
    let foot = foot(&keys, (first, lines.len() - first - seen), width);
    let mut pen = frame(pen, &title, &foot, width, seen.max(1));
    for (y, (keys, doc)) in lines.iter().skip(first).take(seen).enumerate() {
        let x = pen.line(0, y as i32, keys, pen.style(Tone::Head));
        pen.line(x + 1, y as i32, doc, pen.style(Tone::Plain));
    }
}

/// What stands in the lower border: how much there is above and below, then keys, as far as there is room.
fn foot(keys: &[String], (above, below): (usize, usize), width: usize) -> String {
    let more = match (above, below) {
        (0, 0) => None,
        (above, 0) => Some(format!("{above} lines above")),
        (0, below) => Some(format!("{below} lines below")),
        (above, below) => Some(format!("{above} lines above, {below} below")),
    };
    let mut out = String::new();
    for part in more.into_iter().chain(keys.iter().cloned()) {
        let between = if out.is_empty() { "" } else { ", " };
        if text::width(&out) + text::width(between) + text::width(&part) > width {
            break;
        }
        out = format!("{out}{between}{part}");
    }
    out
}

/// A dialog.
pub(crate) fn dialog(pen: &mut Pen<'_>, dialog: &Dialog) {
    match dialog {
        Dialog::Choice { title, items, at, .. } => {
            let most = help::width(pen.area.width);
            let foot = foot(&hints(Open::Choice), (0, 0), most);
            let texts = items.iter().chain([title, &foot]).map(|item| text::width(item));
            let width = (texts.max().unwrap_or(0) + 2).min(most);
            let foot = text::fit(&foot, width, pen.glyphs);
            let mut pen = frame(pen, title, &foot, width, items.len());
            let lines = usize::from(pen.area.height);
            let first = area::first_row(*at, items.len(), lines);
            for (y, (index, item)) in items.iter().enumerate().skip(first).take(lines).enumerate() {
                let y = y as i32;
                pen.line(2, y, item, pen.style(Tone::Plain));
                if index == *at {
                    pen.put(0, y, pen.glyphs.selected, pen.style(Tone::Plain));
                    let style = pen.theme.selected(ratatui::style::Style::new());
                    pen.paint(y, style);
                }
            }
        }
        // These have the whole screen where they need it.
        Dialog::Confirm { .. } => {}
        Dialog::Facts { title, lines, top } => {
            let (names, lines) = area::facts(lines, help::width(pen.area.width));
            let widest = lines.iter().map(|(_, value)| names + text::width(value)).max().unwrap_or(0);
            let seen = lines.len().min(usize::from(pen.area.height.saturating_sub(area::FRAME.1)));
            let first = (*top).min(lines.len() - seen);
            let keys = hints(Open::Facts);
            let most = help::width(pen.area.width);
            let scrolls = if seen < lines.len() { keys.len() } else { 1 };
            let foot = foot(&keys[..scrolls.min(keys.len())], (first, lines.len() - first - seen), most);
            let width = widest.max(text::width(&foot) + 2).min(most);
            let mut pen = frame(pen, &text::name(title), &foot, width, seen);
            for (y, (name, value)) in (0..).zip(lines.iter().skip(first).take(seen)) {
                pen.line(0, y, name, pen.style(Tone::Head));
                pen.line(names as i32, y, value, pen.style(Tone::Plain));
            }
        }
    }
}

/// A question before something changes; where not all of it can be seen it says so and cannot be answered.
pub(crate) fn question(pen: &mut Pen<'_>, dialog: &Dialog) {
    let Dialog::Confirm { title, no, yes, on_yes, .. } = dialog else { return };
    let size = (pen.area.width, pen.area.height);
    let Some(asked) = area::question(dialog, size) else {
        pen.clear();
        let lines = ["This screen is too small to ask. Esc closes.".to_owned(), title.clone()];
        let wrapped = lines.iter().flat_map(|line| text::wrap(line, usize::from(size.0)));
        for (y, line) in (0..).zip(wrapped) {
            pen.line(0, y, &line, pen.style(if y == 0 { Tone::Bad } else { Tone::Plain }));
        }
        return;
    };
    let heading = if asked.title_in_frame { title.as_str() } else { "" };
    let foot = foot(&hints(Open::Question), (0, 0), asked.width);
    let mut pen = frame(pen, heading, &foot, asked.width, asked.height());
    let mut y = 0;
    for line in &asked.lines {
        pen.line(0, y, line, pen.style(Tone::Plain));
        y += 1;
    }
    y += i32::from(asked.space);
    let button = |pen: &Pen<'_>, chosen: bool| {
        let style = pen.style(if chosen { Tone::Head } else { Tone::Plain });
        if chosen { pen.theme.selected(style) } else { style }
    };
    let style = button(&pen, !on_yes);
    let x = pen.line(0, y, &area::button(no), style);
    let style = button(&pen, *on_yes);
    let (x, y) = if asked.stacked { (0, y + 1) } else { (x + 2, y) };
    pen.line(x, y, &area::button(yes), style);
}

/// What is said where there is no job to show.
pub(crate) fn nothing(pen: &mut Pen<'_>, model: &Model) {
    let key = key_of(Do::StartLocal);
    let lines: Vec<(String, Tone)> = match &model.link {
        Link::Nobody { why } => {
            let mut lines = vec![
                ("There is no cluster here.".to_owned(), Tone::Head),
                (text::name(why), Tone::Faint),
                (String::new(), Tone::Plain),
                (
                    "tuplane up --local 3 --detach    starts three agents on this machine".to_owned(),
                    Tone::Plain,
                ),
                ("tuplane submit FILE              runs a job on them".to_owned(), Tone::Plain),
                (String::new(), Tone::Plain),
            ];
            if !model.options.read_only {
                lines.push((
                    format!("Press {key} to start three local agents with the demo job. Leaving this UI ends them."),
                    Tone::Head,
                ));
            }
            lines
        }
        Link::Starting => {
            vec![("Three agents are being started here, with the demo job.".to_owned(), Tone::Plain)]
        }
        Link::Connecting => vec![("Waiting for the cluster's first answer.".to_owned(), Tone::Plain)],
        Link::Lost { attempt, cause, .. } if model.live.is_none() => vec![
            ("The cluster does not answer.".to_owned(), Tone::Bad),
            (format!("attempt {attempt}: {}", text::name(cause)), Tone::Plain),
        ],
        _ if model.picture().is_none() => {
            vec![("Waiting for the first report.".to_owned(), Tone::Plain)]
        }
        _ if model.picture().is_some_and(|picture| picture.jobs.is_empty()) => vec![
            ("There is no job on this cluster.".to_owned(), Tone::Head),
            ("tuplane submit FILE    runs one".to_owned(), Tone::Plain),
        ],
        _ => vec![(
            "This job's plan cannot be drawn by this build; `tuplane status` may help.".to_owned(),
            Tone::Bad,
        )],
    };
    let mut y = 1;
    for (sentence, tone) in lines {
        for line in text::wrap(&sentence, usize::from(pen.area.width.saturating_sub(4))) {
            pen.line(2, y, &line, pen.style(tone));
            y += 1;
        }
    }
}
