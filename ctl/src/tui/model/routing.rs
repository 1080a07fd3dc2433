//! Screen 3: how edges choose their targets. Its columns and rows; what stands above and below them is in
//! `route_words`.

use tuplane_wire::routing::{EdgeRouting, InForce, TargetRouting, Trend};

use super::Seen;
use super::columns::name_of;
use super::picture::{EdgePicture, JobPicture};
use super::table::{Cell, Column, Row, Unit, column};
use crate::tui::event::RouteFacts;
use crate::tui::text::{self, signed};
use crate::tui::theme::Tone;

/// Screen 3.
pub(crate) const ROUTES: &[Column] = &[
    column("edge", "from..to, as commands take it").wide(12),
    column("policy", "how it chooses its targets").wide(11),
    column("v", "V in force, the weight of costs; the least and the most where agents have different ones")
        .wide(7)
        .right()
        .rank(2),
    column("beta", "beta in force, the weight of rows that wait at their sender").wide(5).right().rank(4),
    column("rate", "rows sent per second, the mean of two seconds").wide(7).right().rank(1),
    column("cost/s", "cost of the rows sent in a second").wide(7).right().rank(1),
    column("waiting", "rows in its output queues").wide(7).right().rank(3),
    column(
        "backlog",
        "rows at its targets and beta times those that wait at the agents, all agents together",
    )
    .wide(7)
    .right()
    .rank(1),
    column("trend", "`growing` where some agent's backlog has grown in the last ten seconds and does not fall again, else `stable`")
        .wide(7)
        .toned(),
    column("forced", "rows that left by a release rule at a price that alone would have held them")
        .wide(7)
        .right()
        .rank(5),
    column("deferred", "rows that had to leave in a slot and could not, once for each slot")
        .wide(8)
        .right()
        .rank(6),
    column("setting", "where options come from that were not given: `paper` or `default`; none where the policy has none").wide(7).rank(7),
    column("slot", "the time between two decisions, where there are any").wide(6).right().of(Unit::Seconds).rank(8),
    column("warnings", "how many there are; Enter shows them").wide(8).right().rank(6),
];

/// Screen 3, one edge.
pub(crate) const PRICES: &[Column] = &[
    column("from", "the agent that sends").wide(6).also("sender"),
    column("to", "the instance that takes rows").wide(10).also("target"),
    column(
        "price",
        "of a row there, for the sending instance with the longest queue: `V*U + Q_in - beta*Q_out`; rows go while it \
         is below 0, to the least first",
    )
    .wide(8)
    .right()
    .toned(),
    column("v*u", "its first term: V times the cost of the way").wide(7).right().rank(3),
    column("q_in", "its second term: rows there and on their way, as far as the sender knows").wide(7).right().rank(2),
    column("beta*q_out", "what is taken off: beta times the rows that wait at the sender").wide(10).right().rank(4),
    column("share", "its share of the rows that the agent sent in the last two seconds").wide(5).right(),
    column("rate", "rows sent there per second, the mean of two seconds").wide(7).right().rank(1),
    column("cost/s", "cost of the rows sent there in a second").wide(7).right().rank(5),
    column("state", "`full`: its channel has no credit left; `masked`: left out, its agent is not heard of")
        .wide(6)
        .rank(6)
        .toned(),
    column("on", "the agent where the target runs").wide(5).also("host").rank(7),
    column("age", "age of the note that says how much waits there; none on the sender's own agent")
        .wide(6)
        .right()
        .of(Unit::Seconds)
        .rank(8),
    column("cost", "U: the cost of a row on its way there").wide(6).right().rank(9),
    column("rows", "rows sent there so far").wide(11).right().rank(10),
];

/// What the agents said of the edges that choose their targets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Routes {
    /// When it came: ms since the start.
    pub(crate) at: u64,
    /// What they said.
    pub(crate) facts: RouteFacts,
}

impl Routes {
    /// An edge as each agent sends on it, by the agent's index in the run.
    pub(crate) fn of(&self, edge: u32) -> impl Iterator<Item = (u16, &EdgeRouting)> {
        self.facts.edges.iter().filter(move |(_, of)| of.edge == edge).map(|(agent, of)| (*agent, of))
    }
}

/// An edge as each agent sends on it; none while nobody has said so.
pub(crate) fn senders<'a>(seen: &Seen<'a>, edge: u32) -> Vec<(u16, &'a EdgeRouting)> {
    seen.picture.routes.as_ref().map(|routes| routes.of(edge).collect()).unwrap_or_default()
}

/// The sender and the target of a row of the screen of one edge.
pub(crate) fn of_row<'a>(
    seen: &Seen<'a>,
    edge: u32,
    id: &str,
) -> Option<(u16, &'a EdgeRouting, &'a TargetRouting)> {
    let (agent, instance) = id.split_once('/')?;
    let (agent, instance): (u16, u32) = (agent.parse().ok()?, instance.parse().ok()?);
    let (_, routing) = senders(seen, edge).into_iter().find(|(of, _)| *of == agent)?;
    let target = routing.targets.iter().find(|target| target.instance == instance)?;
    Some((agent, routing, target))
}

/// The least and the most of some numbers, one where they are shown as the same.
fn between(values: impl Iterator<Item = f64>) -> Cell {
    let mut found: Option<(f64, f64)> = None;
    for value in values {
        let (low, high) = found.unwrap_or((value, value));
        found = Some((low.min(value), high.max(value)));
    }
    let Some((low, high)) = found else { return Cell::Text("-".into()) };
    let (least, most) = (signed(low), signed(high));
    let text = if least == most { most } else { format!("{least}..{most}") };
    Cell::Ranked(text, high)
}

fn number(value: f64) -> Cell {
    Cell::Ranked(signed(value), value)
}

/// A duration in ms, to sort by seconds.
fn span(ms: f64) -> Cell {
    Cell::Ranked(text::lapse(ms), ms / 1000.0)
}

/// How a backlog has moved, in a word.
pub(crate) fn trend_word(trend: Trend) -> &'static str {
    match trend {
        Trend::Unknown => "-",
        Trend::Stable => "stable",
        Trend::Growing => "growing",
    }
}

/// The worst of some backlogs.
fn worst(trends: impl Iterator<Item = Trend>) -> Trend {
    trends
        .max_by_key(|trend| match trend {
            Trend::Unknown => 0,
            Trend::Stable => 1,
            Trend::Growing => 2,
        })
        .unwrap_or_default()
}

/// The edges that choose their targets.
pub(crate) fn routes(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let row = |(id, edge): (u32, &EdgePicture)| {
        let senders = senders(seen, id);
        let of = |value: fn(&EdgeRouting) -> f64| senders.iter().map(|(_, of)| value(of)).sum::<f64>();
        let count = |value: fn(&EdgeRouting) -> u64| {
            if senders.is_empty() {
                return Cell::Text("-".into());
            }
            Cell::Count(senders.iter().map(|(_, of)| value(of)).sum())
        };
        let weight = |value: fn(&EdgeRouting) -> &Option<InForce>| {
            between(senders.iter().filter_map(|(_, of)| value(of).as_ref()).map(|weight| weight.value))
        };
        let first = senders.first().map(|(_, of)| *of);
        // Policies that go by turn or lot alone stand on no setting and have no slots.
        let based = first.filter(|of| !of.setting.is_empty());
        let policy = first.map(|of| of.policy.clone()).or_else(|| edge.policy.clone());
        let trend = worst(senders.iter().map(|(_, of)| of.trend));
        let sent = |of: &EdgeRouting| of.targets.iter().map(|target| target.rows_per_second).sum();
        let cost = |of: &EdgeRouting| of.targets.iter().map(|target| target.cost_per_second).sum();
        let some = |cell: Cell| if senders.is_empty() { Cell::Text("-".into()) } else { cell };
        let mut row = Row::new(
            id.to_string(),
            vec![
                Cell::Text(edge.name.clone()),
                Cell::Text(policy.unwrap_or_else(|| "-".into())),
                weight(|of| &of.v),
                weight(|of| &of.beta),
                Cell::Rate(first.map(|_| of(sent))),
                some(number(of(cost))),
                count(|of| of.queued_out),
                some(number(of(|of| of.backlog))),
                Cell::Text(trend_word(trend).to_owned()),
                count(|of| of.forced),
                count(|of| of.deferred),
                Cell::Text(based.map_or_else(|| "-".to_owned(), |of| of.setting.clone())),
                based.map_or_else(|| Cell::Text("-".into()), |of| span(of.slot_us as f64 / 1e3)),
                count(|of| of.warnings.len() as u64),
            ],
        );
        row.tone = tone_of(trend);
        row
    };
    (0u32..).zip(&job.edges).filter(|(_, edge)| edge.unicast).map(row).collect()
}

/// How a backlog's move looks.
pub(crate) fn tone_of(trend: Trend) -> Tone {
    match trend {
        Trend::Growing => Tone::Limit,
        Trend::Stable => Tone::Good,
        Trend::Unknown => Tone::Plain,
    }
}

/// The targets of one edge, as each agent sees them.
pub(crate) fn prices(seen: &Seen<'_>) -> Vec<Row> {
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let of_sender = |(agent, routing): (u16, &EdgeRouting)| {
        let rows = routing.targets.iter().map(|target| price_row(seen, job, agent, target));
        rows.collect::<Vec<_>>()
    };
    senders(seen, seen.edge).into_iter().flat_map(of_sender).collect()
}

fn price_row(seen: &Seen<'_>, job: &JobPicture, agent: u16, target: &TargetRouting) -> Row {
    let term = |at: usize| target.price.map_or_else(|| Cell::Text("-".into()), |price| number(price[at]));
    let name = name_of(&instance_name(job, target.instance));
    let (state, tone) = match (target.masked, target.open) {
        (true, _) => ("masked", Tone::Bad),
        (false, false) => ("full", Tone::Limit),
        (false, true) if target.price.is_some_and(|[price, ..]| price < 0.0) => ("", Tone::Good),
        (false, true) => ("", Tone::Plain),
    };
    let mut row = Row::new(
        format!("{agent}/{}", target.instance),
        vec![
            Cell::Text(job.agent_name(agent).to_owned()),
            name,
            term(0),
            term(1),
            if target.price.is_some() { term(2) } else { Cell::Count(target.queued) },
            term(3),
            Cell::Share(Some(target.share)),
            Cell::Rate(Some(target.rows_per_second)),
            number(target.cost_per_second),
            Cell::Text(state.to_owned()),
            Cell::Text(job.agent_name(target.agent).to_owned()),
            target.age_ms.map_or_else(|| Cell::Text(String::new()), |ms| span(ms as f64)),
            number(target.cost),
            Cell::Count(target.rows),
        ],
    );
    row.tone = tone;
    row.stale = seen.picture.stale_age(agent, seen.now).is_some();
    row
}

/// An instance's name by its dense id.
pub(crate) fn instance_name(job: &JobPicture, id: u32) -> String {
    let found = job.instances.iter().find(|instance| instance.report.instance == id);
    found.map_or_else(|| format!("#{id}"), |instance| instance.name.clone())
}
