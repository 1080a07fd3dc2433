//! What stands over a screen or in its place: help, dialogs, and what to do where there is nothing.

use ratatui::layout::Rect;

use super::area;
use super::pen::Pen;
use crate::tui::command::{COMMANDS, Do};
use crate::tui::model::columns::columns;
use crate::tui::model::dialog::Dialog;
use crate::tui::model::link::Link;
use crate::tui::model::{Model, Screen};
use crate::tui::text;
use crate::tui::theme::Tone;

/// What the drawing of the graph means.
const LEGEND: [(&str, &str); 12] = [
    ("[I] idle 66 %", "mostly idle: none of its instances is busy or blocked for more than half of its time"),
    ("[B] busy 91 %", "its busiest instance works more than half of its time"),
    (
        "[P] blocked 91 %",
        "pressed back: an instance waits more than half of its time for room in an output queue",
    ),
    ("[E] [?]", "all its instances have ended; no rates yet"),
    ("x6", "six instances"),
    ("in 5k out 4k/s", "in a box: rows that its instances take and give out per second, all together"),
    ("LINES", "edges that carry up to a tenth, over a tenth, over half of the largest rate among the edges"),
    ("5k/s", "on a line: rows that its targets take per second"),
    ("REBALANCE", "an edge that a rebalance changed"),
    ("across 66 %", "share of the rows sent lately that went to another agent"),
    ("queue 120", "rows that wait on the edge: in output queues, on the way, in input queues"),
    ("KEYS", "an edge's targets: the share, the rate and the queue of each instance"),
];

/// What stands on every screen.
const EVERYWHERE: [(&str, &str); 4] = [
    (
        "in 5k/s  out 4k/s",
        "in the first line: rows per second that all sources give, and that all sinks take",
    ),
    (
        "cost 81 units/s",
        "the rows sent in a second, each at the cost of its way: what --costs says for the two zones, else 0 within \
         an agent, 1 within a machine, 2 within a zone, 3 beyond",
    ),
    ("lost 0", "rows that a stop or a lost agent cost"),
    ("grey", "old values, with their age"),
];

/// Columns of help that the keys take, or a mark.
const KEYS: usize = 30;

/// A framed box in the middle; gives the pen for its inside.
fn frame<'p>(pen: &'p mut Pen<'_>, title: &str, width: usize, height: usize) -> Pen<'p> {
    let all = pen.area;
    let width = (width as u16 + 4).min(all.width);
    let height = (height as u16 + 2).min(all.height);
    let area =
        Rect { x: all.x + (all.width - width) / 2, y: all.y + (all.height - height) / 2, width, height };
    let mut boxed = pen.on(area);
    boxed.clear();
    let glyphs = boxed.glyphs;
    let style = boxed.style(Tone::Head);
    let inner = usize::from(width.saturating_sub(2));
    let title = if title.is_empty() { String::new() } else { format!(" {title} ") };
    let title = text::fit(&title, inner, glyphs);
    let fill = glyphs.sides[0].repeat(inner.saturating_sub(text::width(&title)));
    boxed.put(0, 0, &format!("{}{title}{fill}{}", glyphs.corners[0], glyphs.corners[1]), style);
    let bottom = i32::from(height) - 1;
    for y in 1..bottom {
        boxed.put(0, y, glyphs.sides[1], style);
        boxed.put(i32::from(width) - 1, y, glyphs.sides[1], style);
    }
    if bottom > 0 {
        let fill = glyphs.sides[0].repeat(inner);
        boxed.put(0, bottom, &format!("{}{fill}{}", glyphs.corners[2], glyphs.corners[3]), style);
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
    let glyphs = pen.glyphs;
    let mut lines: Vec<(String, String)> = COMMANDS
        .iter()
        .filter(|command| command.is_offered(model))
        .map(|command| {
            let asks = if command.destructive { " (asks first)" } else { "" };
            let name = format!(":{} {}", command.name, command.args);
            (
                format!("{:<13} {:<16}", command.shown_keys(), name.trim_end()),
                format!("{}{asks}", command.doc),
            )
        })
        .collect();
    let mut explain = |mark: &str, doc: &str| {
        let mark = match mark {
            "REBALANCE" => glyphs.rebalance,
            "LINES" => &glyphs.across.join(" "),
            "KEYS" => "Tab, Enter (or 2, Enter)",
            other => other,
        };
        lines.push((format!("{mark:<KEYS$}"), doc.to_owned()));
    };
    if model.screen == Screen::Graph && !model.graph_is_list() {
        for (mark, doc) in LEGEND {
            explain(mark, doc);
        }
    } else {
        for column in columns(model.screen) {
            explain(&column.name.to_uppercase(), column.doc);
        }
    }
    for (mark, doc) in EVERYWHERE {
        explain(mark, doc);
    }
    let wanted = filter.to_lowercase();
    lines.retain(|(keys, doc)| format!("{keys} {doc}").to_lowercase().contains(&wanted));
    if lines.is_empty() {
        lines.push((String::new(), "no command of this screen fits".to_owned()));
    }
    let width = usize::from(pen.area.width.saturating_sub(4)).min(100);
    // What there is no room for beside its key goes on below.
    let room = width.saturating_sub(KEYS + 1).max(20);
    let lines: Vec<(String, String)> = lines
        .into_iter()
        .flat_map(|(keys, doc)| {
            let first = std::iter::once(keys).chain(std::iter::repeat(" ".repeat(KEYS)));
            first.zip(text::wrap(&doc, room)).collect::<Vec<_>>()
        })
        .collect();
    let height = lines.len().min(usize::from(pen.area.height.saturating_sub(2)));
    let title = if filter.is_empty() {
        format!(
            "help: {}, its keys and marks (type to filter, Down scrolls, Esc closes)",
            model.screen.name()
        )
    } else {
        format!("help: {}", text::name(filter))
    };
    let mut pen = frame(pen, &title, width, height.max(1));
    let lines_seen = usize::from(pen.area.height);
    let first = top.min(lines.len().saturating_sub(lines_seen));
    for (y, (keys, doc)) in lines.iter().skip(first).take(lines_seen).enumerate() {
        let x = pen.line(0, y as i32, keys, pen.style(Tone::Head));
        pen.line(x + 1, y as i32, doc, pen.style(Tone::Plain));
    }
}

/// A dialog.
pub(crate) fn dialog(pen: &mut Pen<'_>, dialog: &Dialog) {
    match dialog {
        Dialog::Choice { title, items, at, .. } => {
            let width =
                items.iter().map(|item| text::width(item)).max().unwrap_or(0).max(text::width(title)) + 2;
            let mut pen = frame(pen, title, width, items.len());
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
            let names = lines.iter().map(|(name, _)| text::width(name)).max().unwrap_or(0) + 2;
            let values = lines.iter().map(|(_, value)| text::width(&text::name(value))).max().unwrap_or(0);
            let title = text::name(title);
            let mut pen = frame(pen, &title, names + values, lines.len());
            for (y, (name, value)) in lines.iter().skip(*top).enumerate() {
                pen.line(0, y as i32, &text::name(name), pen.style(Tone::Head));
                pen.line(names as i32, y as i32, &text::name(value), pen.style(Tone::Plain));
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
    let mut pen = frame(pen, heading, asked.width, asked.height());
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
    let demo = COMMANDS.iter().find(|command| command.what == Do::StartLocal);
    let key = demo.map_or_else(String::new, crate::tui::command::Command::shown_keys);
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
        Link::Starting { .. } => {
            vec![("Three agents are being started here, with the demo job.".to_owned(), Tone::Plain)]
        }
        Link::Connecting { .. } => vec![("Waiting for the cluster's first answer.".to_owned(), Tone::Plain)],
        Link::Lost { attempt, cause, .. } if model.live.is_none() => vec![
            ("The cluster does not answer.".to_owned(), Tone::Bad),
            (format!("attempt {attempt}: {}", text::name(cause)), Tone::Plain),
        ],
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
