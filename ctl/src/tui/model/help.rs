//! The help: what the keys of a screen do and what its marks mean, in lines as they are drawn.

use super::{Mode, Model, Screen, area, columns};
use crate::tui::command::{COMMANDS, Command, Do, key_of, open};
use crate::tui::text;

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
    ("TARGETS", "an edge's targets: the share, the rate and the queue of each instance"),
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

/// Beside a narrower explanation nothing is read easily: there it stands below its key.
const NARROW: usize = 26;

/// A line of help: a key or a mark, and what it does or means.
type Line = (String, String);

/// All of the help of the present screen that fits a filter, what is used most first.
fn entries(model: &Model, filter: &str) -> Vec<Line> {
    let glyphs = model.options.glyphs;
    let offered = || COMMANDS.iter().filter(|command| command.is_offered(model));
    let mut useful: Vec<&Command> = offered().filter(|command| command.is_useful()).collect();
    useful.sort_by_key(|command| command.hint_rank());
    let others = offered().filter(|command| !command.is_useful());
    let mut lines: Vec<Line> = useful.into_iter().chain(others).map(of_command).collect();
    let mut explain = |mark: &str, doc: &str| {
        let mark = match mark {
            "REBALANCE" => glyphs.rebalance.to_owned(),
            "LINES" => glyphs.across.join(" "),
            "TARGETS" => {
                let enter = key_of(Do::Enter);
                format!("{}, {enter} (or {}, {enter})", key_of(Do::NextPane), key_of(Do::Show(Screen::Edges)))
            }
            other => other.to_owned(),
        };
        lines.push((mark, doc.to_owned()));
    };
    if model.screen == Screen::Graph && !model.graph_is_list() {
        for (mark, doc) in LEGEND {
            explain(mark, doc);
        }
    } else {
        for column in columns::columns(model.screen) {
            explain(&column.name.to_uppercase(), column.doc);
        }
    }
    for (mark, doc) in EVERYWHERE {
        explain(mark, doc);
    }
    lines.extend(open::all().map(|(keys, places, doc)| (keys.join(" "), format!("in {places}: {doc}"))));
    let wanted = filter.to_lowercase();
    lines.retain(|(keys, doc)| format!("{keys} {doc}").to_lowercase().contains(&wanted));
    if lines.is_empty() {
        lines.push((String::new(), "no command of this screen fits".to_owned()));
    }
    lines
}

fn of_command(command: &Command) -> Line {
    let asks = if command.destructive { " (asks first)" } else { "" };
    let name = format!(":{} {}", command.name, command.args);
    (format!("{:<13} {:<16}", command.shown_keys(), name.trim_end()), format!("{}{asks}", command.doc))
}

/// Columns inside of the frame, where there are so many in all.
pub(crate) fn width(columns: u16) -> usize {
    usize::from(columns.saturating_sub(area::FRAME.0)).min(100)
}

/// The lines in so many columns: keys beside what they do, or above it where there is little room.
pub(crate) fn lines(model: &Model, filter: &str, width: usize) -> Vec<Line> {
    let beside = width.saturating_sub(KEYS + 1);
    let entries = entries(model, filter).into_iter();
    if beside < NARROW {
        let room = width.saturating_sub(2).max(1);
        return entries
            .flat_map(|(keys, doc)| {
                let doc = text::wrap(&doc, room).into_iter().map(|line| (String::new(), format!(" {line}")));
                let keys = text::wrap(keys.trim_end(), room).into_iter().map(|line| (line, String::new()));
                keys.chain(doc).collect::<Vec<_>>()
            })
            .collect();
    }
    entries
        .flat_map(|(keys, doc)| {
            let first = std::iter::once(format!("{keys:<KEYS$}")).chain(std::iter::repeat(" ".repeat(KEYS)));
            first.zip(text::wrap(&doc, beside)).collect::<Vec<_>>()
        })
        .collect()
}

/// How far the help that is open can be scrolled.
pub(crate) fn last_top(model: &Model) -> usize {
    let Mode::Help(input, _) = &model.mode else { return 0 };
    let body = area::areas(model).body;
    let lines = lines(model, input.value(), width(body.width)).len();
    lines.saturating_sub(usize::from(body.height.saturating_sub(area::FRAME.1)))
}
