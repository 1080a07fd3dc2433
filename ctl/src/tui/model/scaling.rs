//! Screen 4: what each vertex does and could do, what it carries, and what one more instance of it would bring. Its
//! columns and rows, and what stands above and below them.

use tuplane_core::plan::VertexId;
use tuplane_core::scale::Engine;
use tuplane_core::scale::rates::{Figure, VertexRates};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::scaling::{Rescale, Step};

use super::picture::JobPicture;
use super::table::{Cell, Column, Row, column};
use super::{Model, Screen, Seen};
use crate::more;
use crate::presence::SILENT_MS;
use crate::tui::event::EtpFacts;
use crate::tui::text;
use crate::tui::theme::Tone;

/// Screen 4.
pub(crate) const SCALING: &[Column] = &[
    column("vertex", "the stages that its instances run, those that carry most first; `*` before it marks what limits the job")
        .wide(10),
    column("etp", "its share of the sinks' rows, by the rows that flow through it and meet no congested vertex").wide(5).right(),
    column("congested", "`yes` where more rows would reach it than it can take").wide(9).toned(),
    column("+1", "rows per second that the sinks would take more with one more instance").wide(7).right(),
    column("capacity", "rows per second that one instance takes with work all the time: rows by busy time")
        .wide(8)
        .right()
        .rank(1),
    column("inst", "instances that have not ended").wide(4).right().rank(2),
    column("busy", "share of the time that its instances are busy, the mean").wide(5).right().rank(1),
    column("in", "rows per second that are sent to it; of a source, that it is offered").wide(7).right().rank(3),
    column("done", "rows per second that it takes").wide(7).right().rank(4),
    column("out", "rows per second that it gives").wide(7).right().rank(5),
    column("path", "ETP by paths, as published: a row counts once for each way that it can take").wide(5).right().rank(6),
    column("sinks", "ETP by the sinks that are reached").wide(5).right().rank(7),
    column("skew", "the input of the instance with the most, by the mean").wide(5).right().rank(8),
];

/// What a job does in a second, and how it was rescaled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Flow {
    /// When it came: ms since the start.
    pub(crate) at: u64,
    /// What was said.
    pub(crate) facts: EtpFacts,
}

/// Lines with how they look.
type Lines = Vec<(String, Tone)>;

/// Where there are fewer columns sentences above the table are short: each has a line.
const NARROW: usize = 60;

/// Rescales that are listed.
const LISTED: usize = 3;

fn flow<'a>(seen: &Seen<'a>) -> Option<&'a JobFlow> {
    seen.picture.flow.as_ref()?.facts.flow.as_ref()
}

fn known(figure: &Figure) -> Option<f64> {
    figure.as_ref().ok().copied()
}

/// A number to sort by, shown as it is or as a dash.
fn ranked(value: Option<f64>, words: impl Fn(f64) -> String) -> Cell {
    value.map_or_else(|| Cell::Text("-".into()), |value| Cell::Ranked(words(value), value))
}

/// The vertices, those that carry most first.
pub(crate) fn rows(seen: &Seen<'_>) -> Vec<Row> {
    let (Some(job), Some(flow)) = (&seen.picture.job, flow(seen)) else { return Vec::new() };
    let limiting = flow.etp.limit.as_ref().and_then(crate::limits::vertex);
    let mut order: Vec<usize> = (0..job.vertices.len().min(flow.rates.vertices.len())).collect();
    let share = |index: usize| flow.etp.vertices.get(index).and_then(|etp| known(&etp.flow_share));
    // What is not known comes last, equals in the plan's order.
    order.sort_by(|a, b| share(*b).unwrap_or(-1.0).total_cmp(&share(*a).unwrap_or(-1.0)));
    let row = |index: usize| {
        let (rates, etp) = (&flow.rates.vertices[index], flow.etp.vertices.get(index)?);
        let congested = etp.congested.as_ref().ok().copied();
        let part = |figure: &Figure| Cell::Share(known(figure));
        let mark = if limiting == Some(VertexId(index as u32)) { "*" } else { "" };
        let mut row = Row::new(
            index.to_string(),
            vec![
                Cell::Marked { mark, text: job.vertices[index].label.clone(), also: String::new() },
                part(&etp.flow_share),
                Cell::Text(match congested {
                    Some(true) => "yes".into(),
                    Some(false) => String::new(),
                    None => "-".into(),
                }),
                ranked(known(&etp.gain), |gain| {
                    if gain > 0.0 { format!("+{}", text::rate(Some(gain))) } else { "0".into() }
                }),
                Cell::Rate(known(&rates.capacity)),
                Cell::Count(rates.instances.into()),
                part(&rates.busy),
                Cell::Rate(known(&rates.input)),
                Cell::Rate(known(&rates.processed)),
                Cell::Rate(known(&rates.emitted)),
                part(&etp.path),
                part(&etp.sink_set),
                ranked(known(&rates.skew), |skew| format!("{skew:.1}")),
            ],
        );
        row.tone = if congested == Some(true) { Tone::Limit } else { Tone::Plain };
        row.stale = super::columns::vertex_is_stale(seen, index as u32);
        Some(row)
    };
    order.into_iter().filter_map(row).collect()
}

/// Lines above the table, at most `most`.
pub(crate) fn above(model: &Model, width: usize, most: usize) -> Lines {
    let Some(seen) = model.seen() else { return Vec::new() };
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let mut said: Lines = Vec::new();
    if let Some(flow) = flow(&seen) {
        let rate = |figure: &Figure| text::rate(known(figure));
        let over = match (&flow.rates.seconds, flow.rates.full) {
            (Ok(seconds), true) => format!("means over {seconds:.0} s"),
            (Ok(seconds), false) => format!("means over {seconds:.0} s so far"),
            (Err(why), _) => text::name(why),
        };
        let engine =
            if flow.engine == Engine::Queueing.name() { " of an engine whose queues grow" } else { "" };
        let (takes, modelled) = (rate(&flow.etp.throughput), rate(&flow.etp.modelled));
        let short = width < NARROW;
        let words = if short && flow.rates.full && engine.is_empty() {
            format!("sinks take {takes} (model {modelled}), plan {}", flow.epoch)
        } else {
            format!("the sinks take {takes}, {modelled} by the model{engine}; {over}; plan {}", flow.epoch)
        };
        said.push((words, Tone::Head));
        let label = |vertex: VertexId| {
            let vertex = job.vertices.get(vertex.0 as usize);
            vertex.map_or_else(|| "?".to_owned(), |vertex| text::name(&vertex.label))
        };
        let rate = |rows: f64| text::rate(Some(rows));
        let wording = more::Wording { label: &label, rate: &rate, short };
        said.extend(more::words(&flow.more, &wording).map(|words| (text::name(&words), Tone::Plain)));
        if let Some(thought) = &flow.auto {
            said.push((format!("automatic mode: {}", text::name(thought)), Tone::Plain));
        }
    }
    said.extend(complaints(&seen, job));
    wrapped(said, width, most)
}

/// Why the table says nothing, or is old.
fn complaints(seen: &Seen<'_>, job: &JobPicture) -> Lines {
    if job.summary.phase.is_final() {
        return vec![("the job has ended: there is nothing to scale".to_owned(), Tone::Faint)];
    }
    let Some(flow) = &seen.picture.flow else {
        return vec![("waiting for the cluster's answer".to_owned(), Tone::Faint)];
    };
    let mut lines: Lines = Vec::new();
    if let Some(fault) = &flow.facts.fault {
        lines.push((format!("no answer: {}", text::name(fault)), Tone::Bad));
    }
    let age = seen.now.saturating_sub(flow.at);
    if age > SILENT_MS {
        lines.push((format!("as of {} ago", text::age(age)), Tone::Stale));
    }
    lines
}

/// Lines below the table, at most `most`: why numbers of the selected vertex are not known, what had to be assumed, and
/// what came of the last rescales.
pub(crate) fn below(model: &Model, width: usize, most: usize) -> Lines {
    let Some(seen) = model.seen() else { return Vec::new() };
    let (Some(shown), Some(job)) = (&seen.picture.flow, &seen.picture.job) else { return Vec::new() };
    let mut said: Lines = Vec::new();
    let rows = model.rows(Screen::Scaling);
    let selected = rows.get(model.selected(Screen::Scaling, &rows)).and_then(|row| row.id.parse().ok());
    if let (Some(flow), Some(index)) = (&shown.facts.flow, selected) {
        said.extend(by_key(flow, job, index).map(|line| (line, Tone::Plain)));
        said.extend(reasons(flow, job, index).into_iter().map(|line| (line, Tone::Plain)));
    }
    said.extend(shown.facts.history.iter().rev().take(LISTED).map(outcome));
    if let Some(flow) = &shown.facts.flow {
        said.extend(flow.etp.assumed.iter().map(|line| (text::name(line), Tone::Faint)));
    }
    wrapped(said, width, most)
}

/// Which of a vertex's key partitions and keys have most rows, where its rows come by key.
fn by_key(flow: &JobFlow, job: &JobPicture, index: usize) -> Option<String> {
    let shares = flow.rates.vertices.get(index)?.keys.as_ref().ok()?;
    let label = text::name(&job.vertices.get(index)?.label);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let heavy: Vec<String> =
        shares.keys.iter().map(|(key, of)| format!("{} {}", text::name(key), share(*of))).collect();
    let heavy = if heavy.is_empty() { "no key has 1 %".to_owned() } else { heavy.join(", ") };
    Some(format!(
        "{label}, by key: partition {} has {} of the rows, {:.1} times the mean; {heavy}",
        shares.partition,
        share(shares.share),
        shares.skew()
    ))
}

/// Why numbers of a vertex are not known, each reason once.
fn reasons(flow: &JobFlow, job: &JobPicture, index: usize) -> Vec<String> {
    let (Some(rates), Some(etp), Some(vertex)) =
        (flow.rates.vertices.get(index), flow.etp.vertices.get(index), job.vertices.get(index))
    else {
        return Vec::new();
    };
    let VertexRates { processed, capacity, skew, instances, .. } = rates;
    let mut figures =
        vec![("done", processed), ("capacity", capacity), ("+1", &etp.gain), ("etp", &etp.flow_share)];
    // One instance has no skew.
    figures.extend((*instances > 1).then_some(("skew", skew)));
    let mut found: Vec<(&String, Vec<&str>)> = Vec::new();
    for (name, figure) in figures {
        let Err(why) = figure else { continue };
        match found.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => found.push((why, vec![name])),
        }
    }
    let line = |(why, names): (&String, Vec<&str>)| {
        format!("{}, {}: {}", text::name(&vertex.label), names.join(", "), text::name(why))
    };
    found.into_iter().map(line).collect()
}

/// One rescale, with what was predicted and what was measured.
fn outcome(rescale: &Rescale) -> (String, Tone) {
    let mut line = format!("plan {}, {}", rescale.epoch, text::name(&rescale.asked));
    if let Some(planner) = &rescale.planner {
        line.push_str(&format!(" by {}", text::name(planner)));
    }
    let tone = match rescale.step {
        Step::Asked | Step::Prepared | Step::Committed => Tone::Plain,
        Step::Done => Tone::Good,
        Step::Failed => Tone::Bad,
    };
    let step = rescale.step.word();
    line.push_str(&format!(": {step}, {} started, {} ended", rescale.started.len(), rescale.stopped.len()));
    match (rescale.predicted, rescale.measured) {
        (Some(predicted), Some(measured)) => {
            line.push_str(&format!(
                "; predicted {}, measured {}",
                text::rate(Some(predicted)),
                text::rate(Some(measured))
            ));
        }
        (Some(predicted), None) => line.push_str(&format!("; predicted {}", text::rate(Some(predicted)))),
        (None, Some(measured)) => line.push_str(&format!("; measured {}", text::rate(Some(measured)))),
        (None, None) => {}
    }
    if let Some(fault) = &rescale.fault {
        line.push_str(&format!(": {}", text::name(fault)));
    }
    (line, tone)
}

fn wrapped(said: Lines, width: usize, most: usize) -> Lines {
    let lines = said.into_iter().flat_map(|(sentence, tone)| {
        text::wrap(&sentence, width).into_iter().map(move |line| (line, tone)).collect::<Vec<_>>()
    });
    let mut lines: Lines = lines.collect();
    super::route_words::cut(&mut lines, most);
    lines
}
