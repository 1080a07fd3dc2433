//! The graph: boxes from left to right, edges by weight, one line an edge, and the selection in words.

use std::collections::BTreeSet;

use ratatui::layout::Rect;
use tuplane_core::plan::Parallelism;
use tuplane_core::scale::LoadState;

use super::pen::Pen;
use crate::tui::command::{Do, key_of};
use crate::tui::layout::{Laid, Spot};
use crate::tui::model::area::{self, graph_areas, origin};
use crate::tui::model::columns::{letter, vertex_is_stale};
use crate::tui::model::picture::{EdgePicture, JobPicture, VertexPicture};
use crate::tui::model::words::{changed_words, edge_words, flow, kind};
use crate::tui::model::{Model, Seen};
use crate::tui::text;
use crate::tui::theme::Tone;

/// Draws the graph's screen.
pub(crate) fn graph(pen: &mut Pen<'_>, model: &Model) {
    let Some(seen) = model.seen() else { return };
    let Some(job) = &seen.picture.job else { return };
    let areas = graph_areas(pen.area, job);
    let place = origin(&model.graph, job, areas.canvas);
    let laid = job.plan.laid(areas.canvas.width);
    let mut canvas = pen.on(areas.canvas);
    for (index, edge) in job.edges.iter().enumerate() {
        let selected = model.graph.on_edges && model.graph.edge as usize == index;
        draw_edge(&mut canvas, job, laid, index, edge, place, selected);
    }
    for (index, edge) in job.edges.iter().enumerate() {
        label(&mut canvas, job, laid, index, edge, place);
    }
    let dimmed = model.list(model.screen).filter;
    let rows = if dimmed.is_empty() { Vec::new() } else { model.rows(model.screen) };
    for (index, vertex) in job.vertices.iter().enumerate() {
        let Some(spot) = laid.boxes.get(index) else { continue };
        let selected = !model.graph.on_edges && model.graph.vertex as usize == index;
        let out = !dimmed.is_empty() && !rows.iter().any(|row| row.id == index.to_string());
        let spot = Spot { x: spot.x - place.0, y: spot.y - place.1, ..*spot };
        draw_box(&mut canvas, &seen, job, index as u32, vertex, spot, selected, out);
    }
    more(&mut canvas, laid, place);
    edge_lines(&mut pen.on(areas.edges), model, job);
    detail(&mut pen.on(areas.detail), model, &seen, job);
}

/// Marks at the borders behind which the drawing goes on.
fn more(pen: &mut Pen<'_>, laid: &Laid, (left, top): (i32, i32)) {
    let (width, height) = (i32::from(pen.area.width), i32::from(pen.area.height));
    let style = pen.theme.selected(pen.style(Tone::Head));
    if left > 0 {
        pen.put(0, height / 2, "<", style);
    }
    if left + width < laid.width {
        pen.put(width - 1, height / 2, ">", style);
    }
    if top > 0 {
        pen.put(width / 2, 0, "^", style);
    }
    if top + height < laid.height {
        pen.put(width / 2, height - 1, "v", style);
    }
}

/// The weight of an edge's line: by its rate against the largest of the job.
fn weight(job: &JobPicture, edge: &EdgePicture) -> usize {
    let most = job.edges.iter().filter_map(|edge| edge.rate).fold(0.0, f64::max);
    match edge.rate {
        Some(rate) if most > 0.0 && rate > most * 0.5 => 2,
        Some(rate) if most > 0.0 && rate > most * 0.1 => 1,
        _ => 0,
    }
}

fn edge_tone(edge: &EdgePicture) -> Tone {
    if edge.rebalance.is_some() { Tone::Rebalance } else { Tone::Faint }
}

fn draw_edge(
    pen: &mut Pen<'_>,
    job: &JobPicture,
    laid: &Laid,
    index: usize,
    edge: &EdgePicture,
    (left, top): (i32, i32),
    selected: bool,
) {
    let Some(route) = laid.routes.get(index).filter(|route| !route.is_empty()) else { return };
    let weight = weight(job, edge);
    let style = pen.style(edge_tone(edge));
    let style = if selected { pen.theme.selected(style) } else { style };
    let glyphs = pen.glyphs;
    let lines = [glyphs.across, glyphs.down].concat();
    let mut mark = |x: i32, y: i32, symbol: &str| {
        let (x, y) = (x - left, y - top);
        // Where another line runs the other way the two cross.
        let crossed = pen.at(x, y).is_some_and(|there| {
            lines.contains(&there) && glyphs.across.contains(&there) != glyphs.across.contains(&symbol)
        });
        pen.put(x, y, if crossed && glyphs.utf8 { glyphs.cross } else { symbol }, style);
    };
    for leg in route.windows(2) {
        let ((x1, y1), (x2, y2)) = (leg[0], leg[1]);
        if y1 == y2 {
            (x1.min(x2)..=x1.max(x2)).for_each(|x| mark(x, y1, glyphs.across[weight]));
        } else {
            (y1.min(y2)..=y1.max(y2)).for_each(|y| mark(x1, y, glyphs.down[weight]));
        }
    }
    for corner in route.windows(3) {
        let ((x1, y1), (x, y), (x3, y3)) = (corner[0], corner[1], corner[2]);
        // From left, from above or from below; then to the right, up or down.
        let symbol = match (x1 != x, y1 < y, x3 != x, y3 > y) {
            (true, _, _, true) => glyphs.bends[0],
            (true, ..) => glyphs.bends[1],
            (_, true, true, _) => glyphs.bends[2],
            _ => glyphs.bends[3],
        };
        pen.put(x - left, y - top, symbol, style);
    }
    if let Some((x, y)) = route.last() {
        pen.put(x - left, y - top, glyphs.arrow, style);
    }
}

/// The rate, on the leg that leads into the target where it is free.
fn label(
    pen: &mut Pen<'_>,
    job: &JobPicture,
    laid: &Laid,
    index: usize,
    edge: &EdgePicture,
    (left, top): (i32, i32),
) {
    let Some(route) = laid.routes.get(index) else { return };
    let [.., (x1, y1), (x2, y2)] = route[..] else { return };
    if y1 != y2 {
        return;
    }
    let mark = if edge.rebalance.is_some() { pen.glyphs.rebalance } else { "" };
    let text = match edge.rate {
        Some(rate) => format!("{mark}{}", text::rate(Some(rate))),
        None if job.planned_only && edge.unicast => {
            format!("{mark}{}", edge.policy.as_deref().unwrap_or_default())
        }
        None => mark.to_owned(),
    };
    // A column of line on both sides, and the arrow.
    let room = x2 - x1 - 3;
    // A number is never cut: the mark alone, or nothing.
    let fits = |text: &str| text::width(text) as i32 <= room;
    let text = if fits(&text) { text } else { mark.to_owned() };
    if text.is_empty() || !fits(&text) {
        return;
    }
    let wide = text::width(&text) as i32;
    let start = x1 + 2 + (room - wide) / 2;
    let style = pen.style(if edge.rebalance.is_some() { Tone::Rebalance } else { Tone::Plain });
    let lines = pen.glyphs.across;
    let (start, y) = (start - left, y1 - top);
    let free = (start..start + wide).all(|x| pen.at(x, y).is_none_or(|there| lines.contains(&there)));
    if free {
        pen.put(start, y, &text, style);
    }
}

/// What a vertex mostly does, in a word with its share.
pub(crate) fn load_words(vertex: &VertexPicture) -> (String, Tone) {
    let state = vertex.load.map(tuplane_core::scale::Load::state);
    let (letter, tone) = letter(state, vertex.over);
    let words = match (state, vertex.load) {
        _ if vertex.over => "ended".to_owned(),
        (Some(LoadState::Busy), Some(load)) => format!("busy {}", text::share(Some(load.busy))),
        (Some(LoadState::Blocked), Some(load)) => format!("blocked {}", text::share(Some(load.blocked))),
        (Some(LoadState::Idle), Some(load)) => {
            format!("idle {}", text::share(Some(1.0 - load.busy - load.blocked)))
        }
        _ => "no rates yet".to_owned(),
    };
    (format!("[{letter}] {words}"), tone)
}

#[expect(clippy::too_many_arguments, reason = "what a box shows comes from as many places")]
fn draw_box(
    pen: &mut Pen<'_>,
    seen: &Seen<'_>,
    job: &JobPicture,
    id: u32,
    vertex: &VertexPicture,
    spot: Spot,
    selected: bool,
    out: bool,
) {
    let stale = vertex_is_stale(seen, id);
    let base = if stale || out { Tone::Stale } else { Tone::Plain };
    let limits = job.limiting() == Some(id) && !job.planned_only;
    let frame = if limits && !out { Tone::Limit } else { base };
    let style = |tone: Tone| {
        let style = pen.style(tone);
        if selected { pen.theme.selected(style) } else { style }
    };
    let (frame_style, text_style) = (style(frame), style(base));
    let inner = (spot.width - 2).max(0) as usize;
    let count = if job.planned_only { String::new() } else { format!(" x{}", vertex.instances) };
    let room = inner.saturating_sub(text::width(&count) + 2);
    let name = text::fit(&text::name(&vertex.label), room, pen.glyphs);
    let (load, tone) = if job.planned_only { (planned(job, id), Tone::Plain) } else { load_words(vertex) };
    let load_style = style(if stale || out { Tone::Stale } else { tone });
    let age = oldest(seen, id);
    let note = match (limits, age.is_empty()) {
        (true, true) => "limits the job".to_owned(),
        (true, false) => {
            let long = format!("limits the job, {age}");
            if text::width(&long) + 2 <= inner { long } else { format!("limits, {age}") }
        }
        _ => age,
    };
    let glyphs = pen.glyphs;
    let side = glyphs.sides[0];
    let border = |left: &str, text: &str, right: &str| {
        let text = if text.is_empty() { String::new() } else { format!(" {text} ") };
        let fill = side.repeat(inner.saturating_sub(text::width(&text)));
        format!("{left}{text}{fill}{right}")
    };
    let (x, y) = (spot.x, spot.y);
    let mut words = flow_words(job, id, vertex);
    if text::width(&words) > inner && !job.planned_only {
        words = words.replacen("in ", "", 1).replacen(" out ", glyphs.becomes, 1);
    }
    pen.put(x, y, &border(glyphs.corners[0], &format!("{name}{count}"), glyphs.corners[1]), frame_style);
    for (line, (text, style)) in [(load, load_style), (words, text_style)].into_iter().enumerate() {
        let line = y + 1 + line as i32;
        let after = pen.put(x, line, glyphs.sides[1], frame_style);
        let after = pen.put(after, line, &text::pad(&text, inner, false, glyphs), style);
        pen.put(after, line, glyphs.sides[1], frame_style);
    }
    pen.put(
        x,
        y + 3,
        &border(glyphs.corners[2], &text::fit(&note, inner.saturating_sub(2), glyphs), glyphs.corners[3]),
        frame_style,
    );
}

/// How old the oldest of a vertex's values are.
fn oldest(seen: &Seen<'_>, vertex: u32) -> String {
    match seen.picture.vertex_age(vertex, seen.now) {
        Some(u64::MAX) => "an agent is gone".into(),
        Some(age) => format!("{} old", text::age(age)),
        None => String::new(),
    }
}

/// Rows in and out per second; a source takes none, a sink gives none.
fn flow_words(job: &JobPicture, id: u32, vertex: &VertexPicture) -> String {
    if job.planned_only {
        return job
            .plan
            .dag
            .vertices
            .get(id as usize)
            .map_or_else(String::new, |planned| text::name(&planned.name));
    }
    let short = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), text::short);
    let reads = job.edges.iter().any(|edge| edge.to == id);
    let writes = job.edges.iter().any(|edge| edge.from == id);
    if vertex.over {
        let (taken, given) = (text::rows(vertex.rows_in), text::rows(vertex.rows_out));
        return match (reads, writes) {
            (false, _) => format!("out {given} rows"),
            (_, false) => format!("in {taken} rows"),
            _ => format!("in {taken} out {given}"),
        };
    }
    match (reads, writes) {
        (false, _) => format!("out {}/s", short(vertex.out_rate)),
        (_, false) => format!("in {}/s", short(vertex.in_rate)),
        _ => format!("in {} out {}/s", short(vertex.in_rate), short(vertex.out_rate)),
    }
}

/// How many instances a vertex will have.
fn planned(job: &JobPicture, id: u32) -> String {
    let Some(vertex) = job.plan.dag.vertices.get(id as usize) else { return String::new() };
    match vertex.parallelism {
        Parallelism::PerAgent(n) | Parallelism::OneProduces(n) => format!("{n} on each agent"),
        Parallelism::Default => "slots on each agent".into(),
        Parallelism::DefaultUpTo(n) => format!("slots, at most {n}"),
        Parallelism::One => "one in all".into(),
        Parallelism::Total(n) => format!("{n} in all"),
    }
}

/// One line an edge: what it is, what it carries, what a rebalance changed.
fn edge_lines(pen: &mut Pen<'_>, model: &Model, job: &JobPicture) {
    if pen.area.height == 0 {
        return;
    }
    let head = if job.planned_only {
        "EDGES".to_owned()
    } else {
        let rows = if job.summary.phase.is_final() { "rows" } else { "rows/s" };
        format!(
            "EDGES ({}, {}: targets): {rows}, queue, share to other agents, kind, policy",
            key_of(Do::NextPane),
            key_of(Do::Enter)
        )
    };
    pen.line(0, 0, &head, pen.style(Tone::Head));
    let room = usize::from(pen.area.height) - 1;
    let lines = area::edge_lines(job);
    let selected = (model.graph.edge as usize).min(job.edges.len().saturating_sub(1));
    // While no edge is selected the one with a rebalance is in sight.
    let focus = lines.iter().position(
        |(index, rebalance)| {
            if model.graph.on_edges { *index == selected } else { *rebalance }
        },
    );
    let first = area::first_row(focus.unwrap_or(0), lines.len(), room);
    let names = job.edges.iter().map(|edge| text::width(&text::name(&edge.name))).max().unwrap_or(0).min(30);
    for (y, (index, rebalance)) in (1..).zip(lines.iter().skip(first).take(room)) {
        let edge = &job.edges[*index];
        if *rebalance {
            let changed = changed_words(edge.rebalance.as_deref().unwrap_or_default());
            pen.line(4, y, &format!("rebalance: {changed}"), pen.style(Tone::Rebalance));
            continue;
        }
        let mark = if edge.rebalance.is_some() { pen.glyphs.rebalance } else { " " };
        let name = text::pad(&text::name(&edge.name), names, false, pen.glyphs);
        let x = pen.line(0, y, &format!("{mark} {name}  "), pen.style(edge_tone_of_text(edge)));
        let numbers = if job.planned_only {
            String::new()
        } else {
            format!(
                "{:>7}  queue {:<5}  across {:>5}  ",
                flow(job, edge),
                text::rows(edge.queue()),
                text::share(edge.across)
            )
        };
        // What is looked for first stands first: the end may be cut.
        pen.line(x, y, &format!("{numbers}{}", kind(edge)), pen.style(Tone::Plain));
        if model.graph.on_edges && *index == selected {
            let style = pen.theme.selected(ratatui::style::Style::new());
            pen.paint(y, style);
        }
    }
}

fn edge_tone_of_text(edge: &EdgePicture) -> Tone {
    if edge.rebalance.is_some() { Tone::Rebalance } else { Tone::Plain }
}

/// The selection in words.
fn detail(pen: &mut Pen<'_>, model: &Model, seen: &Seen<'_>, job: &JobPicture) {
    let Rect { width, height, .. } = pen.area;
    let sentences = if model.graph.on_edges {
        job.edges.get(model.graph.edge as usize).map(|edge| edge_words(job, edge))
    } else {
        let id = model.graph.vertex;
        job.vertices.get(id as usize).map(|vertex| vertex_words(seen, job, id, vertex))
    };
    let mut y = 0;
    for (index, (sentence, tone)) in sentences.unwrap_or_default().into_iter().enumerate() {
        let tone = if index == 0 && tone == Tone::Plain { Tone::Head } else { tone };
        for line in text::wrap(&sentence, usize::from(width)) {
            if y < i32::from(height) {
                pen.line(0, y, &line, pen.style(tone));
            }
            y += 1;
        }
    }
}

/// What is said of a vertex.
fn vertex_words(seen: &Seen<'_>, job: &JobPicture, id: u32, vertex: &VertexPicture) -> Vec<(String, Tone)> {
    let label = text::name(&vertex.label);
    let Some(planned_vertex) = job.plan.dag.vertices.get(id as usize) else { return Vec::new() };
    let stages = text::name(&planned_vertex.stages.join(", "));
    if job.planned_only {
        return vec![
            (
                format!("vertex {label}: {}, {}", text::name(&planned_vertex.name), planned(job, id)),
                Tone::Plain,
            ),
            (format!("stages: {stages}"), Tone::Faint),
        ];
    }
    let of = |share: fn(&crate::tui::model::history::Rates) -> f64| {
        let own = job.instances.iter().filter(|instance| instance.vertex == id);
        own.filter_map(|instance| Some((instance, share(&instance.rates?))))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or_else(
                || "-".to_owned(),
                |(instance, share)| {
                    let agent = text::name(job.agent_name(instance.agent));
                    format!("{} on {agent} {}", text::name(&instance.name), text::share(Some(share)))
                },
            )
    };
    let (load, _) = load_words(vertex);
    let own = job.instances.iter().filter(|instance| instance.vertex == id);
    let agents: BTreeSet<u16> = own.map(|instance| instance.agent).collect();
    let stale = agents.iter().filter(|agent| seen.picture.stale_age(**agent, seen.now).is_some()).count();
    let old = if stale > 0 {
        format!("  ({stale} of its {} agents {} old)", agents.len(), if stale == 1 { "is" } else { "are" })
    } else {
        String::new()
    };
    vec![
        (format!("vertex {label}: {load}, {} instances{old}", vertex.instances), Tone::Plain),
        (
            format!(
                "busiest {}  most blocked {}  queue {} in, {} out",
                of(|rates| rates.busy),
                of(|rates| rates.blocked),
                text::rows(vertex.queue_in),
                text::rows(vertex.queue_out)
            ),
            Tone::Plain,
        ),
        (
            format!(
                "rows so far: {} in, {} out, {} dropped; stages: {stages}",
                text::rows(vertex.rows_in),
                text::rows(vertex.rows_out),
                text::rows(vertex.dropped)
            ),
            Tone::Faint,
        ),
    ]
}
