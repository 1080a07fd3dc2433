//! The tables of all screens: their columns, with what each says, and their rows.

use tuplane_core::scale::LoadState;

use super::picture::{InstancePicture, Picture};
use super::routing::{self, PRICES, ROUTES};
use super::scaling::{self, SCALING};
use super::table::{Cell, Column, Row, Unit, column};
use super::{Screen, Seen};
use crate::output::time::event_time;
use crate::presence;
use crate::report::phase_word;
use crate::tui::text;
use crate::tui::theme::Tone;

/// The list form of the graph.
pub(crate) const VERTICES: &[Column] = &[
    column("vertex", "the stages that its instances run; `*` before it marks what limits the job").wide(10),
    column(
        "load",
        "the letter of the graph: `I` idle, `B` busy, `P` pressed back (blocked), `E` ended, `?` not known yet",
    ).wide(4).toned(),
    column("busy", "share of time that its busiest instance worked").wide(5).right(),
    column("blocked", "share of time that its most blocked instance waited for room in an output queue").wide(7)
        .right()
        .rank(1),
    column("in/s", "rows taken per second, all instances together").wide(7).right().rank(2),
    column("out/s", "rows given out per second").wide(7).right(),
    column("inst", "how many instances it has").wide(4).also("instances").right().rank(4),
    column("queue", "rows that wait at its instances, before and behind them").wide(7).right().rank(3),
    column("dropped", "rows that its instances left out or dropped").wide(9).right().rank(5),
];

/// Screen 2.
pub(crate) const EDGES: &[Column] = &[
    column("edge", "from..to, as commands take it; the mark before it says that a rebalance stands there").wide(12),
    column("kind", "how it picks a target (unicast by policy, isolated, partitioned by key, all-to-one, broadcast), and whether rows may go to other agents (distributed) or not (local)").wide(20).rank(6),
    column("policy", "the policy of a unicast edge: heron, jsq, local_first, p2c, potus, round-robin, shuffle, or one of the user's own").wide(11).rank(4),
    column("rate", "rows taken per second").wide(7).right(),
    column("across", "share of the rows sent lately that went to another agent").wide(6).right().rank(3),
    column("emitted", "rows appended to output queues so far").wide(11).right().rank(1),
    column("taken", "rows that target instances have taken so far").wide(11).right(),
    column("dropped", "rows dropped, with the reasons: `stopped` in a queue when the job was stopped, `lost` with an agent").wide(9).right().rank(2),
    column("queued out", "rows in output queues now").wide(10).right().rank(2),
    column("in flight", "rows sent to other agents and not acknowledged").wide(9).right().rank(5),
    column("queued in", "rows in input queues now").wide(9).right().rank(2),
    column("wire", "bytes sent between agents, frames included").wide(10).right().of(Unit::Bytes).rank(7),
];

/// Screen 2, one edge.
pub(crate) const TARGETS: &[Column] = &[
    column("target", "the instance that takes rows").wide(10),
    column("agent", "where it runs").wide(6).also("host"),
    column("share", "its share of the rows sent on this edge lately (of all so far where none were)")
        .wide(5)
        .right(),
    column("rate", "rows sent to it per second").wide(7).right(),
    column("rows", "rows sent to it so far").wide(11).right().rank(2),
    column("queue", "rows that wait at its inputs or are being worked on, of all its edges").wide(7).right(),
    column("busy", "share of time that it worked").wide(5).right().rank(1),
];

/// Screen 4.
pub(crate) const INSTANCES: &[Column] = &[
    column("instance", "vertex#number").wide(10),
    column("agent", "where it runs").wide(5).also("host"),
    column("load", "its letter, as on the graph").wide(4).toned(),
    column("busy", "share of time that it worked; waiting for one of the agent's cores is part of it")
        .wide(5)
        .right(),
    column("blocked", "share of time that it waited for room in an output queue").wide(7).right(),
    column("idle", "share of time that it waited for input").wide(5).right().rank(4),
    column("time", "the three shares drawn: busy, blocked, idle").wide(12).rank(3),
    column("core", "of its time, the share that it waited for one of the agent's cores")
        .wide(5)
        .right()
        .rank(8),
    column("in/s", "rows taken per second").wide(7).right().rank(1),
    column("out/s", "rows given out per second").wide(7).right().rank(1),
    column("queue in", "rows that wait at its inputs or are being worked on").wide(8).right().rank(2),
    column("queue out", "rows that wait at its outputs").wide(9).right().rank(5),
    column("rows in", "rows taken so far").wide(11).right().rank(7),
    column("rows out", "rows given out so far").wide(11).right().rank(7),
    column("dropped", "rows left out or dropped so far").wide(9).right().rank(6),
    column("age", "age of what is shown, where it is old").wide(6).right().rank(6).of(Unit::Seconds),
    column("watermark", "of rows with event time: none with an earlier one follows").wide(24).rank(9),
];

/// Screen 5.
pub(crate) const AGENTS: &[Column] = &[
    column("agent", "its name; `*` before it marks the coordinator").wide(8).also("host"),
    column(
        "state",
        "up, silent (no report for 1.5 s), lost, with the cause; drained: it gets no new instances",
    )
    .wide(6)
    .toned(),
    column("age", "age of its last report").wide(6).right().of(Unit::Seconds),
    column("cpu", "of the whole machine").wide(5).right(),
    column("memory", "in use on the machine").wide(9).right().of(Unit::Bytes).rank(3),
    column("of", "the machine's memory").wide(9).right().of(Unit::Bytes).rank(6),
    column("rss anon", "resident anonymous memory of the agent's process (RssAnon)")
        .wide(9)
        .right()
        .of(Unit::Bytes)
        .rank(2),
    column("queued", "bytes of rows that its queues keep alive").wide(9).right().of(Unit::Bytes).rank(4),
    column("budget", "the bound of that").wide(9).right().of(Unit::Bytes).rank(7),
    column("inst", "live instances on it").wide(4).right().rank(1),
    column("slots", "default instances per vertex").wide(5).right().rank(3),
    column("cores", "most rows in `work` at once; `-` without a limit").wide(5).right().rank(4),
    column("zone", "its zone in the cost table").wide(6).rank(5),
    column("offset", "its clock against the coordinator's, with the error of that")
        .wide(16)
        .right()
        .of(Unit::Seconds)
        .rank(5),
    column("round trips", "to its peers, smoothed").wide(18).rank(8),
    column("machine", "the machine's host name, processors and system").wide(24).rank(9),
];

/// Screen 0.
pub(crate) const JOBS: &[Column] = &[
    column("run", "the run's number").wide(4).right(),
    column("job", "its name, unique among live jobs; `*` before it marks the one on the other screens")
        .wide(10),
    column("phase", "starting, running, sealing, stopping, finished, cancelled, failed").wide(9).toned(),
    column("since", "from its submit to its end, or to now").wide(6).right().of(Unit::Seconds).rank(1),
    column("inst", "instances in all").wide(4).right().rank(2),
    column("agents", "agents that take part").wide(8).rank(3),
    column("cause", "why it failed or was cancelled; below the table it stands in full").wide(12),
];

/// The columns of a screen.
pub(crate) fn columns(screen: Screen) -> &'static [Column] {
    match screen {
        Screen::Graph => VERTICES,
        Screen::Edges => EDGES,
        Screen::Targets => TARGETS,
        Screen::Routes => ROUTES,
        Screen::Prices => PRICES,
        Screen::Scaling => SCALING,
        Screen::Instances => INSTANCES,
        Screen::Agents => AGENTS,
        Screen::Jobs => JOBS,
    }
}

/// All rows of a screen, in their natural order.
pub(crate) fn rows(screen: Screen, seen: &Seen<'_>) -> Vec<Row> {
    match screen {
        Screen::Graph => vertices(seen),
        Screen::Edges => edges(seen),
        Screen::Targets => targets(seen),
        Screen::Routes => routing::routes(seen),
        Screen::Prices => routing::prices(seen),
        Screen::Scaling => scaling::rows(seen),
        Screen::Instances => instances(seen),
        Screen::Agents => agents(seen),
        Screen::Jobs => jobs(seen),
    }
}

/// The letter of a load, and how it looks.
pub(crate) fn letter(load: Option<LoadState>, ended: bool) -> (char, Tone) {
    match load {
        _ if ended => ('E', Tone::Faint),
        None => ('?', Tone::Faint),
        Some(LoadState::Idle) => ('I', Tone::Idle),
        Some(LoadState::Busy) => ('B', Tone::Busy),
        Some(LoadState::Blocked) => ('P', Tone::Blocked),
    }
}

fn vertices(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let row = |(id, vertex): (usize, &super::picture::VertexPicture)| {
        let (letter, tone) = letter(vertex.load.map(tuplane_core::scale::Load::state), vertex.over);
        let mark = if job.limiting() == Some(id as u32) { "*" } else { "" };
        let mut row = Row::new(
            id.to_string(),
            vec![
                Cell::Marked { mark, text: vertex.label.clone(), also: String::new() },
                Cell::Text(letter.to_string()),
                Cell::Share(vertex.load.map(|load| load.busy)),
                Cell::Share(vertex.load.map(|load| load.blocked)),
                Cell::Rate(vertex.in_rate),
                Cell::Rate(vertex.out_rate),
                Cell::Count(vertex.instances as u64),
                Cell::Count(vertex.queue_in + vertex.queue_out),
                Cell::Count(vertex.dropped),
            ],
        );
        row.tone = tone;
        row.stale = vertex_is_stale(seen, id as u32);
        row
    };
    job.vertices.iter().enumerate().map(row).collect()
}

/// Some of a vertex's values are old.
pub(crate) fn vertex_is_stale(seen: &Seen<'_>, vertex: u32) -> bool {
    seen.picture.vertex_age(vertex, seen.now).is_some()
}

fn edges(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let row = |(id, edge): (usize, &super::picture::EdgePicture)| {
        let mark = if edge.rebalance.is_some() { seen.glyphs.rebalanced } else { "" };
        let reach = if edge.distributed { "distributed" } else { "local" };
        let reasons: Vec<String> = edge
            .facts
            .dropped
            .iter()
            .filter(|(_, rows)| **rows > 0)
            .map(|(reason, rows)| format!("{reason} {}", crate::output::table::count(*rows)))
            .collect();
        let dropped = if reasons.is_empty() { "0".to_owned() } else { reasons.join(", ") };
        let wire = edge.facts.flows.iter().map(|flow| flow.wire_bytes).sum();
        let mut row = Row::new(
            id.to_string(),
            vec![
                Cell::Marked { mark, text: edge.name.clone(), also: String::new() },
                Cell::Text(format!("{}, {reach}", edge.routing)),
                Cell::Text(edge.policy.clone().unwrap_or_else(|| "-".into())),
                Cell::Rate(edge.rate),
                Cell::Share(edge.across),
                Cell::Count(edge.facts.emitted),
                Cell::Count(edge.facts.taken),
                Cell::Ranked(dropped, edge.dropped() as f64),
                Cell::Count(edge.facts.queued_out),
                Cell::Count(edge.facts.in_flight),
                Cell::Count(edge.facts.queued_in),
                Cell::Bytes(wire),
            ],
        );
        row.tone = if edge.rebalance.is_some() { Tone::Rebalance } else { Tone::Plain };
        row.stale = vertex_is_stale(seen, edge.to) || vertex_is_stale(seen, edge.from);
        row
    };
    job.edges.iter().enumerate().map(row).collect()
}

fn targets(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let Some(edge) = job.edges.get(seen.edge as usize) else { return Vec::new() };
    let row = |target: &super::picture::TargetPicture| {
        let instance = job.instances.iter().find(|instance| instance.report.instance == target.instance)?;
        let mut row = Row::new(
            target.instance.to_string(),
            vec![
                name_cell(instance),
                agent_cell(seen.picture, instance),
                Cell::Share(target.share),
                Cell::Rate(target.rate),
                Cell::Count(target.rows),
                Cell::Count(instance.report.queue_in),
                Cell::Share(instance.rates.map(|rates| rates.busy)),
            ],
        );
        row.stale = seen.picture.stale_age(instance.agent, seen.now).is_some();
        Some(row)
    };
    edge.targets.iter().filter_map(row).collect()
}

fn name_cell(instance: &InstancePicture) -> Cell {
    name_of(&instance.name)
}

/// An instance's name: its number stays where it is cut.
pub(super) fn name_of(name: &str) -> Cell {
    let (name, number) = name.rsplit_once('#').unwrap_or((name, ""));
    Cell::Numbered { name: name.to_owned(), number: format!("#{number}") }
}

/// The agent of an instance, which its machine's name finds too.
fn agent_cell(picture: &Picture, instance: &InstancePicture) -> Cell {
    let Some(job) = &picture.job else { return Cell::Text(String::new()) };
    let index = job.agents.get(usize::from(instance.agent)).copied().flatten();
    let also = index.and_then(|index| picture.agents.get(index)).map(|agent| agent.info.host.clone());
    Cell::Named { text: job.agent_name(instance.agent).to_owned(), also: also.unwrap_or_default() }
}

fn instances(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let row = |instance: &InstancePicture| {
        let (report, rates) = (&instance.report, instance.rates);
        let load = rates.and_then(|rates| {
            tuplane_core::scale::Load::of([(rates.busy, rates.blocked)]).map(tuplane_core::scale::Load::state)
        });
        let (letter, tone) = letter(load, report.ended || job.summary.phase.is_final());
        let stale = if report.ended { None } else { seen.picture.stale_age(instance.agent, seen.now) };
        let mut row = Row::new(
            report.instance.to_string(),
            vec![
                name_cell(instance),
                agent_cell(seen.picture, instance),
                Cell::Text(letter.to_string()),
                Cell::Share(rates.map(|rates| rates.busy)),
                Cell::Share(rates.map(|rates| rates.blocked)),
                Cell::Share(rates.map(|rates| rates.idle)),
                Cell::Bar(rates.map(|rates| [rates.busy, rates.blocked, rates.idle])),
                Cell::Share(rates.map(|rates| rates.waiting_core)),
                Cell::Rate(rates.map(|rates| rates.rows_in)),
                Cell::Rate(rates.map(|rates| rates.rows_out)),
                Cell::Count(report.queue_in),
                Cell::Count(report.queue_out),
                Cell::Count(report.rows_in),
                Cell::Count(report.rows_out),
                Cell::Count(report.dropped.values().sum()),
                stale.map_or_else(|| Cell::Text(String::new()), age_cell),
                Cell::Text(report.watermark.map_or(String::new(), |ns| event_time(ns.div_euclid(1_000_000)))),
            ],
        );
        row.tone = tone;
        row.stale = stale.is_some();
        row
    };
    job.instances.iter().map(row).collect()
}

/// An age; that of an agent that is gone has no end.
fn age_cell(ms: u64) -> Cell {
    if ms == u64::MAX { Cell::Ranked("gone".into(), f64::INFINITY) } else { Cell::Age(ms) }
}

fn agents(seen: &Seen<'_>) -> Vec<Row> {
    let row = |(index, agent): (usize, &tuplane_wire::message::AgentStatus)| {
        let stale = seen.picture.is_stale(index, seen.now);
        let word = presence::word(agent, seen.picture.age(index, seen.now));
        let state = match &agent.lost {
            Some(cause) => format!("{word}: {cause}"),
            None if agent.drained => format!("{word} (drained)"),
            None => word.into(),
        };
        let host = &agent.host;
        let micros = |ns: u64| {
            if ns < 1_000_000 { format!("{} us", ns / 1000) } else { format!("{:.1} ms", ns as f64 / 1e6) }
        };
        let offset = agent.clock_offset_ns.map_or_else(
            || Cell::Text("-".into()),
            |(offset, error)| {
                let sign = if offset < 0 { "-" } else { "" };
                let text = format!(
                    "{sign}{} {} {}",
                    micros(offset.unsigned_abs()),
                    seen.glyphs.plus_minus,
                    micros(error)
                );
                Cell::Ranked(text, offset as f64 / 1e9)
            },
        );
        let trips: Vec<String> = agent
            .round_trips
            .iter()
            .map(|(peer, us)| format!("{} {}", text::name(peer), micros(us.saturating_mul(1000))))
            .collect();
        let mark = if agent.coordinator { "*" } else { "" };
        let known = host.processors > 0;
        let mut row = Row::new(
            agent.info.id.name.clone(),
            vec![
                Cell::Marked { mark, text: agent.info.id.name.clone(), also: agent.info.host.clone() },
                Cell::Text(state),
                Cell::Age(seen.picture.age(index, seen.now)),
                Cell::Share(known.then_some(f64::from(host.cpu))),
                Cell::Bytes(host.memory_used),
                Cell::Bytes(host.memory_total),
                Cell::Bytes(host.rss_anon),
                Cell::Bytes(host.charged),
                Cell::Bytes(host.budget),
                Cell::Count(agent.instances.into()),
                Cell::Count(agent.info.slots.into()),
                if agent.info.cores == 0 {
                    Cell::Text("-".into())
                } else {
                    Cell::Count(agent.info.cores.into())
                },
                Cell::Text(agent.info.zone.clone()),
                offset,
                Cell::Text(if trips.is_empty() { "-".into() } else { trips.join(", ") }),
                Cell::Text(format!("{}, {} processors, {}", agent.info.host, host.processors, host.os)),
            ],
        );
        row.stale = stale;
        row.tone = if agent.alive && !stale { Tone::Good } else { Tone::Bad };
        row
    };
    seen.picture.agents.iter().enumerate().map(row).collect()
}

fn jobs(seen: &Seen<'_>) -> Vec<Row> {
    use tuplane_wire::message::JobPhase;
    let now = seen.picture.wall_ms + seen.now.saturating_sub(seen.picture.at);
    let shown = seen.picture.job.as_ref().map(|job| job.summary.run);
    let row = |job: &tuplane_wire::message::JobSummary| {
        let end = job.ended_ms.unwrap_or(now);
        let mut row = Row::new(
            job.run.to_string(),
            vec![
                Cell::Count(job.run),
                Cell::Marked {
                    mark: if shown == Some(job.run) { "*" } else { "" },
                    text: job.name.clone(),
                    also: String::new(),
                },
                Cell::Text(phase_word(job.phase).to_owned()),
                Cell::Age(end.saturating_sub(job.submitted_ms)),
                Cell::Count(job.instances.into()),
                Cell::Text(job.agents.join(" ")),
                Cell::Text(job.fault.as_ref().map_or_else(String::new, |fault| fault.message.clone())),
            ],
        );
        row.tone = match job.phase {
            JobPhase::Failed => Tone::Bad,
            JobPhase::Running | JobPhase::Starting | JobPhase::Sealing => Tone::Good,
            _ => Tone::Faint,
        };
        row
    };
    // The newest first.
    let mut jobs: Vec<_> = seen.picture.jobs.iter().collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.run));
    jobs.into_iter().map(row).collect()
}
