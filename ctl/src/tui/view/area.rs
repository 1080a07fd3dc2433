//! Which part of the terminal shows what; drawing and mouse agree because both ask here.

use ratatui::layout::Rect;

use crate::tui::model::link::Link;
use crate::tui::model::picture::JobPicture;
use crate::tui::model::{Model, Screen, Source};

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
    /// Keys, a sentence, or a line that is typed.
    pub(crate) footer: Rect,
}

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
    let body = Rect::new(0, top.min(height), width, height.saturating_sub(top + 1));
    Areas { header: line(0), banner, limit, body, footer: line(height.saturating_sub(1).max(1)) }
}

fn has_banner(model: &Model) -> bool {
    model.frozen.is_some() || (matches!(model.link, Link::Lost { .. }) && model.live.is_some())
}

fn has_limit(model: &Model) -> bool {
    let job = model.picture().and_then(|picture| picture.job.as_ref());
    job.is_some_and(|job| !job.planned_only) && model.options.source != Source::Plan && model.height >= 8
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
    let canvas = (job.plan.laid.height as u16).min(rest - edges_least);
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
pub(crate) fn origin(model: &Model, job: &JobPicture, canvas: Rect) -> (i32, i32) {
    let laid = &job.plan.laid;
    let graph = &model.graph;
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
        let (left, top) = origin(model, job, canvas);
        let (column, line) = (i32::from(x - canvas.x) + left, i32::from(y - canvas.y) + top);
        let inside = |spot: &&crate::tui::layout::Spot| {
            (spot.x..spot.x + spot.width).contains(&column) && (spot.y..spot.y + spot.height).contains(&line)
        };
        let at = job.plan.laid.boxes.iter().position(|spot| inside(&spot))?;
        return Some(Hit::Vertex(at as u32));
    }
    let rows = model.rows(model.screen);
    let first = first_row(model.selected(model.screen, &rows), rows.len(), usize::from(body.height) - 1);
    let line = usize::from(y - body.y).checked_sub(1)?;
    rows.get(first + line).map(|row| Hit::Row(row.id.clone()))
}
