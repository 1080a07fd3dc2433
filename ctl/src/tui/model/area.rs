//! Which part of the terminal shows what; drawing and mouse agree because both ask here.

use ratatui::layout::Rect;

use super::dialog::Dialog;
use super::link::Link;
use super::picture::JobPicture;
use super::{Graph, Model, Screen, Source, route_words, scaling, words};
use crate::tui::text;
use crate::tui::theme::Tone;

/// The parts of the terminal, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Areas {
    /// The job, the agents, the state of the connection.
    pub(crate) header: Rect,
    /// What is wrong with the connection, or that the picture is held still.
    pub(crate) banner: Option<Rect>,
    /// What limits the job.
    pub(crate) limit: Option<Rect>,
    /// The screen.
    pub(crate) body: Rect,
    /// A sentence for a while.
    pub(crate) notice: Option<Rect>,
    /// Keys, or a line that is typed.
    pub(crate) footer: Rect,
}

/// Most lines of a notice.
const MOST_NOTICE: u16 = 4;

/// The parts for this model.
pub(crate) fn areas(model: &Model) -> Areas {
    let (width, height) = (model.width, model.height);
    let line = |y: u16| Rect::new(0, y, width, u16::from(y < height));
    let mut top = 1;
    let mut take = |wanted: bool| {
        (wanted && height >= top + 4).then(|| {
            top += 1;
            line(top - 1)
        })
    };
    let banner = take(has_banner(model));
    let limit = take(has_limit(model));
    let middle = height.saturating_sub(top + 1);
    // The keys stay in sight below a notice, and something of the screen above it.
    let needed =
        model.flash.as_ref().map_or(0, |flash| text::wrap(&text::name(&flash.text), width.into()).len());
    let said = (needed as u16).min(middle.saturating_sub(1)).min(MOST_NOTICE);
    let body = Rect::new(0, top.min(height), width, middle - said);
    let notice = (said > 0).then(|| Rect::new(0, body.bottom(), width, said));
    Areas { header: line(0), banner, limit, body, notice, footer: line(height.saturating_sub(1).max(1)) }
}

fn has_banner(model: &Model) -> bool {
    model.played_at.is_some()
        || model.frozen.is_some()
        || (matches!(model.link, Link::Lost { .. }) && model.live.is_some())
}

fn has_limit(model: &Model) -> bool {
    let job = model.picture().and_then(|picture| picture.job.as_ref());
    job.is_some_and(|job| !job.planned_only) && model.options.source != Source::Plan && model.height >= 8
}

/// A table's screen: what is said above it, the table, and what is said below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableParts {
    /// Lines above: of what the table shows the parts.
    pub(crate) above: Vec<(String, Tone)>,
    /// The table.
    pub(crate) table: Rect,
    /// Lines below: the selected row in full.
    pub(crate) below: Vec<(String, Tone)>,
}

/// The parts of a table's screen: some lines of a table stay whatever is said.
pub(crate) fn table_parts(model: &Model, body: Rect) -> TableParts {
    let width = usize::from(body.width);
    let mut above = Vec::new();
    let mut below = Vec::new();
    let job = model.picture().and_then(|picture| picture.job.as_ref());
    match (model.screen, job) {
        (Screen::Targets, Some(job)) => {
            let words = job.edges.get(model.edge as usize).map(|edge| words::edge_words(job, edge));
            for (sentence, tone) in words.unwrap_or_default() {
                above.extend(text::wrap(&sentence, width).into_iter().map(|line| (line, tone)));
            }
            above.truncate(usize::from(body.height.saturating_sub(4).min(4)));
        }
        (Screen::Jobs, _) => {
            let run = model.meant_run();
            let jobs = model.picture().map(|picture| picture.jobs.as_slice()).unwrap_or_default();
            let fault = jobs.iter().find(|job| Some(job.run) == run).and_then(|job| job.fault.as_ref());
            if let Some(fault) = fault {
                let lines = text::wrap(&format!("cause: {}", text::name(&fault.message)), width);
                below = lines.into_iter().map(|line| (line, Tone::Bad)).collect();
                below.truncate(usize::from(body.height.saturating_sub(3)));
            }
        }
        (Screen::Routes | Screen::Prices, _) => {
            // Half of the lines stay for the table.
            let said = usize::from(body.height / 2);
            above = route_words::above(model, width, said.div_ceil(2));
            below = route_words::below(model, width, said - said.div_ceil(2));
        }
        (Screen::Scaling, _) => {
            let said = usize::from(body.height / 2);
            above = scaling::above(model, width, said.div_ceil(2).min(3));
            below = scaling::below(model, width, said - above.len().min(said));
        }
        _ => {}
    }
    let (top, bottom) = (above.len() as u16, below.len() as u16);
    let table = Rect { y: body.y + top, height: body.height - top - bottom, ..body };
    TableParts { above, table, below }
}

/// The parts of the graph's screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphAreas {
    /// The drawing.
    pub(crate) canvas: Rect,
    /// One line an edge.
    pub(crate) edges: Rect,
    /// What is selected, in words.
    pub(crate) detail: Rect,
}

/// Lines for what is selected.
const DETAIL: u16 = 4;

/// The parts of the graph's screen: the drawing has what it needs, as far as there are lines, then edges.
pub(crate) fn graph_areas(body: Rect, job: &JobPicture) -> GraphAreas {
    let detail = DETAIL.min(body.height / 3);
    let rest = body.height - detail;
    let wanted_edges = edge_lines(job).len() as u16 + 1;
    // At least one edge is listed with its headline and its rebalance, where the drawing would take all.
    let edges_least = wanted_edges.min(3).min(rest / 3);
    let canvas = (job.plan.laid(body.width).height as u16).min(rest - edges_least);
    let edges = (rest - canvas).min(wanted_edges);
    let part = |y: u16, height: u16| Rect::new(body.x, body.y + y, body.width, height);
    GraphAreas {
        canvas: part(0, canvas),
        edges: part(canvas, edges),
        detail: part(canvas + edges, body.height - canvas - edges),
    }
}

/// The lines of the list of edges: an edge's own, and below it what a rebalance changed (true).
pub(crate) fn edge_lines(job: &JobPicture) -> Vec<(usize, bool)> {
    let lines = job.edges.iter().enumerate().flat_map(|(index, edge)| {
        std::iter::once((index, false)).chain(edge.rebalance.is_some().then_some((index, true)))
    });
    lines.collect()
}

/// The first column and line of the drawing that can be seen: what is selected stands in the middle where
/// not all fits, moved by what was panned by hand.
pub(crate) fn origin(graph: &Graph, job: &JobPicture, canvas: Rect) -> (i32, i32) {
    let laid = job.plan.laid(canvas.width);
    let edge = laid.routes.get(graph.edge as usize).filter(|route| graph.on_edges && !route.is_empty());
    let focus = match edge {
        Some(route) => route[route.len() / 2],
        None => laid
            .boxes
            .get(graph.vertex as usize)
            .map_or((0, 0), |spot| (spot.x + spot.width / 2, spot.y + spot.height / 2)),
    };
    let along = |focus: i32, pan: i32, all: i32, seen: u16| {
        let seen = i32::from(seen);
        let most = (all - seen).max(0);
        ((focus - seen / 2).clamp(0, most) + pan).clamp(0, most)
    };
    (
        along(focus.0, graph.pan.0, laid.width, canvas.width),
        along(focus.1, graph.pan.1, laid.height, canvas.height),
    )
}

/// What the person has panned by, held to what there is to see.
pub(crate) fn held_pan(model: &Model, (x, y): (i32, i32)) -> (i32, i32) {
    let Some(job) = model.picture().and_then(|picture| picture.job.as_ref()) else { return (0, 0) };
    let canvas = graph_areas(areas(model).body, job).canvas;
    let at = |pan| {
        let mut panned = model.graph;
        panned.pan = pan;
        origin(&panned, job, canvas)
    };
    let (rest, moved) = (at((0, 0)), at((x, y)));
    (moved.0 - rest.0, moved.1 - rest.1)
}

/// A question before something changes, as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// Columns inside of the frame.
    pub(crate) width: usize,
    /// The title stands in the frame; else it is among the lines.
    pub(crate) title_in_frame: bool,
    /// What is said.
    pub(crate) lines: Vec<String>,
    /// An empty line stands before the answers.
    pub(crate) space: bool,
    /// The answers stand one below the other.
    pub(crate) stacked: bool,
}

impl Question {
    /// Lines inside of the frame.
    pub(crate) fn height(&self) -> usize {
        self.lines.len() + usize::from(self.space) + if self.stacked { 2 } else { 1 }
    }
}

/// An answer as it is drawn.
pub(crate) fn button(answer: &str) -> String {
    format!("[ {answer} ]")
}

/// Columns and lines that a frame takes.
pub(crate) const FRAME: (u16, u16) = (4, 2);

/// A longer line is hard to read.
const READABLE: usize = 72;

/// Lays a question out in so many columns and lines: all that is asked, and both answers. `None` where not
/// all of it can be seen: then it cannot be answered.
pub(crate) fn question(dialog: &Dialog, (width, height): (u16, u16)) -> Option<Question> {
    let Dialog::Confirm { title, lines, no, yes, .. } = dialog else { return None };
    let room = usize::from(width.checked_sub(FRAME.0)?);
    let high = usize::from(height.checked_sub(FRAME.1)?);
    let (no, yes) = (text::width(&button(no)), text::width(&button(yes)));
    let stacked = no + 2 + yes > room;
    if no.max(yes) > room {
        return None;
    }
    let longest = lines.iter().map(|line| text::width(line)).max().unwrap_or(0);
    let head = text::width(title);
    let title_in_frame = head <= room.min(READABLE);
    let buttons = if stacked { no.max(yes) } else { no + 2 + yes };
    let width = longest.max(head).max(buttons).min(room.min(READABLE.max(buttons)));
    let before = (!title_in_frame).then_some(title);
    let lines = before.into_iter().chain(lines).flat_map(|line| text::wrap(line, width)).collect();
    let mut asked = Question { width, title_in_frame, lines, space: true, stacked };
    asked.space = asked.height() <= high;
    (asked.height() <= high).then_some(asked)
}

/// The lines of all that is known of one thing, in so many columns, values wrapped; and the columns of names.
pub(crate) fn facts(facts: &[(String, String)], columns: usize) -> (usize, Vec<(String, String)>) {
    let names = facts.iter().map(|(name, _)| text::width(&text::name(name))).max().unwrap_or(0) + 2;
    let names = names.min(columns / 2);
    let lines = facts.iter().flat_map(|(name, value)| {
        let first = std::iter::once(text::name(name)).chain(std::iter::repeat(String::new()));
        first.zip(text::wrap(&text::name(value), columns.saturating_sub(names))).collect::<Vec<_>>()
    });
    (names, lines.collect())
}

/// How far a dialog can be scrolled.
pub(crate) fn facts_top(model: &Model, dialog: &Dialog) -> usize {
    let Dialog::Facts { lines, .. } = dialog else { return 0 };
    let body = areas(model).body;
    let (_, lines) = facts(lines, super::help::width(body.width));
    lines.len().saturating_sub(usize::from(body.height.saturating_sub(FRAME.1)))
}

/// The part of the screen for a question: the middle, or all of it where it needs that.
pub(crate) fn for_question(areas: &Areas, screen: Rect, dialog: &Dialog) -> Rect {
    let fits = question(dialog, (areas.body.width, areas.body.height)).is_some();
    if fits { areas.body } else { screen }
}

/// A question that is open can be answered: all of it is on the screen.
pub(crate) fn can_answer(model: &Model, dialog: &Dialog) -> bool {
    !model.is_tiny() && question(dialog, (model.width, model.height)).is_some()
}

/// The first row of a table that can be seen, so that the selected one stands in the middle.
pub(crate) fn first_row(selected: usize, rows: usize, lines: usize) -> usize {
    selected.saturating_sub(lines / 2).min(rows.saturating_sub(lines))
}

/// What the mouse has hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hit {
    /// A row of the screen's table.
    Row(String),
    /// A vertex of the drawing.
    Vertex(u32),
}

/// What stands at a column and a line.
pub(crate) fn hit(model: &Model, x: u16, y: u16) -> Option<Hit> {
    let body = areas(model).body;
    if model.is_tiny() || !body.contains((x, y).into()) {
        return None;
    }
    if model.screen == Screen::Graph && !model.graph_is_list() {
        let job = model.picture()?.job.as_ref()?;
        let canvas = graph_areas(body, job).canvas;
        if !canvas.contains((x, y).into()) {
            return None;
        }
        let (left, top) = origin(&model.graph, job, canvas);
        let (column, line) = (i32::from(x - canvas.x) + left, i32::from(y - canvas.y) + top);
        let inside = |spot: &&crate::tui::layout::Spot| {
            (spot.x..spot.x + spot.width).contains(&column) && (spot.y..spot.y + spot.height).contains(&line)
        };
        let at = job.plan.laid(canvas.width).boxes.iter().position(|spot| inside(&spot))?;
        return Some(Hit::Vertex(at as u32));
    }
    let rows = model.rows(model.screen);
    let table = table_parts(model, body).table;
    if !table.contains((x, y).into()) {
        return None;
    }
    let lines = usize::from(table.height).saturating_sub(1);
    let first = first_row(model.selected(model.screen, &rows), rows.len(), lines);
    let line = usize::from(y - table.y).checked_sub(1)?;
    rows.get(first + line).map(|row| Hit::Row(row.id.clone()))
}
