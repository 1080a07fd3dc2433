//! Rates of a running job, from cumulative counters: what comes in, what is done, and what could be.
//!
//! Agents report totals, four times a second. A look is kept each second, and rates are differences of two looks
//! of one agent. Times are the instances' own: an instance accounts every nanosecond as busy, blocked or idle by
//! its agent's monotonic clock, so the sum of the three is the time that has passed for it, whenever a report
//! arrives. What is not known has a reason in place of a number.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::types::{EdgeLedger, InstanceReport};
use crate::plan::placement::Instance;
use crate::plan::{Dag, VertexId};
use crate::scale::keys::{KeyLoad, KeyShares};

mod figures;
mod kind;

pub use kind::{Kind, Offer, kinds, traces_now};

/// A number, or a sentence that says why it is not known.
pub type Figure = Result<f64, String>;

/// How rates are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowOptions {
    /// Rates are means over so long.
    pub span: Duration,
    /// Between two looks that are kept.
    pub step: Duration,
    /// Looks are kept for so long: results of windows may come in bursts that are further apart than `span`.
    pub history: Duration,
    /// An agent whose last report is older is not heard of.
    pub stale: Duration,
}

impl Default for WindowOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { span: seconds(10), step: seconds(1), history: seconds(300), stale: seconds(3) }
    }
}

/// Reports come at intervals of 250 ms, a little more or less: a look that comes so much early is a second's.
const EARLY: Duration = Duration::from_millis(130);

/// What the counters of one instance were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    rows_in: u64,
    rows_out: u64,
    busy: u64,
    waiting_core: u64,
    blocked: u64,
    idle: u64,
    queue_in: u64,
    ended: bool,
}

impl Counts {
    fn of(report: &InstanceReport) -> Self {
        Self {
            rows_in: report.rows_in,
            rows_out: report.rows_out,
            busy: report.busy_ns,
            waiting_core: report.waiting_core_ns,
            blocked: report.blocked_ns,
            idle: report.idle_ns,
            queue_in: report.queue_in,
            ended: report.ended,
        }
    }

    /// The instance's own time in nanoseconds.
    fn passed(&self) -> u64 {
        self.busy + self.blocked + self.idle
    }

    /// One of the totals is less than it was: it is another instance's, or it began anew.
    fn is_before(&self, earlier: &Self) -> bool {
        self.passed() < earlier.passed()
            || self.rows_in < earlier.rows_in
            || self.rows_out < earlier.rows_out
            || self.busy < earlier.busy
    }
}

/// What one agent's counters were at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look {
    /// By the clock of whoever takes reports.
    at: Duration,
    /// By instance, ascending.
    instances: Vec<(u32, Counts)>,
    /// By edge, ascending.
    edges: Vec<(u32, Sent)>,
}

/// What one agent knows of an edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sent {
    /// Rows emitted.
    emitted: u64,
    /// Rows that are there, and not taken yet.
    waiting: u64,
}

impl Sent {
    fn of(edge: &EdgeLedger) -> Self {
        Self { emitted: edge.emitted, waiting: edge.queued_out + edge.in_flight + edge.queued_in }
    }
}

impl Look {
    fn of(at: Duration, instances: &[InstanceReport], edges: &[EdgeLedger]) -> Self {
        let mut look = Self {
            at,
            instances: instances.iter().map(|report| (report.instance, Counts::of(report))).collect(),
            edges: edges.iter().map(|edge| (edge.edge, Sent::of(edge))).collect(),
        };
        look.instances.sort_unstable_by_key(|(instance, _)| *instance);
        look.edges.sort_unstable_by_key(|(edge, _)| *edge);
        look
    }

    fn instance(&self, id: u32) -> Option<&Counts> {
        let found = self.instances.binary_search_by_key(&id, |(instance, _)| *instance).ok()?;
        Some(&self.instances[found].1)
    }

    fn edge(&self, edge: u32) -> Option<Sent> {
        let found = self.edges.binary_search_by_key(&edge, |(index, _)| *index).ok()?;
        Some(self.edges[found].1)
    }

    /// A total of it is less than in an earlier look.
    fn is_before(&self, earlier: &Self) -> bool {
        let fell = |(id, now): &(u32, Counts)| earlier.instance(*id).is_some_and(|then| now.is_before(then));
        let sank =
            |(edge, now): &(u32, Sent)| earlier.edge(*edge).is_some_and(|then| now.emitted < then.emitted);
        self.instances.iter().any(fell) || self.edges.iter().any(sank)
    }
}

/// One agent's looks, the oldest first.
#[derive(Debug, Clone, Default)]
struct Track {
    looks: VecDeque<Look>,
    /// What its instances have said of their rows by key.
    keys: BTreeMap<u32, KeyLoad>,
    /// When it last said anything of the run.
    heard: Duration,
}

/// The looks of one run from which its rates are taken.
#[derive(Debug, Clone, Default)]
pub struct RateWindow {
    options: WindowOptions,
    agents: BTreeMap<String, Track>,
    /// When it was cut last.
    cut: Option<Duration>,
}

impl RateWindow {
    /// An empty window.
    pub fn new(options: WindowOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes an agent's report of the run, at a time of the taker's monotonic clock.
    pub fn report(&mut self, agent: &str, at: Duration, instances: &[InstanceReport], edges: &[EdgeLedger]) {
        let track = self.agents.entry(agent.to_owned()).or_default();
        track.heard = track.heard.max(at);
        let due = |last: &Look| last.at + self.options.step.saturating_sub(EARLY);
        let look = Look::of(at, instances, edges);
        if let Some(last) = track.looks.back() {
            if look.is_before(last) {
                // What is compared must be of one life.
                track.looks.clear();
            } else if at < due(last) {
                return;
            }
        }
        track.looks.push_back(look);
        let oldest = at.saturating_sub(self.options.history);
        // The first one is as old or older, so that a window of that length is full at every look.
        while track.looks.len() > 2 && track.looks.get(1).is_some_and(|look| look.at <= oldest) {
            track.looks.pop_front();
        }
    }

    /// Takes what an agent's instances say of their rows by key: these forget by themselves.
    pub fn keys(&mut self, agent: &str, keys: &[(u32, KeyLoad)]) {
        self.agents.entry(agent.to_owned()).or_default().keys = keys.iter().cloned().collect();
    }

    /// From now on things are different: instances came or went, or an option was set that changes what a row costs.
    /// Nothing of before counts any more.
    pub fn cut(&mut self, at: Duration) {
        for track in self.agents.values_mut() {
            track.looks.clear();
        }
        self.cut = Some(at);
    }

    /// When it was cut last, by the clock of the reports.
    pub fn cut_at(&self) -> Option<Duration> {
        self.cut
    }

    /// A whole window has passed on every agent that has instances.
    pub fn is_full(&self, agents: &[String], now: Duration, span: Duration) -> bool {
        let options = &self.options;
        let full = |name: &String| {
            self.agents.get(name).is_some_and(|track| {
                let fresh = now.saturating_sub(track.heard) <= options.stale;
                let spans = |first: &Look, last: &Look| last.at.saturating_sub(first.at) + EARLY * 2 >= span;
                let both = track.looks.front().zip(track.looks.back());
                fresh && both.is_some_and(|(first, last)| spans(first, last))
            })
        };
        !agents.is_empty() && agents.iter().all(full)
    }

    /// The rates over the last span.
    pub fn rates(&self, job: &Known<'_>, now: Duration) -> JobRates {
        self.rates_over(job, now, self.options.span)
    }

    /// The rates over the last so long.
    pub fn rates_over(&self, job: &Known<'_>, now: Duration, span: Duration) -> JobRates {
        figures::rates(self, job, now, span)
    }
}

/// What must be known of a run beside its counters.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Its plan.
    pub dag: &'a Dag,
    /// How each vertex passes its time, by index.
    pub kinds: &'a [Kind],
    /// Its instances; those that were retired by a rescale are left out.
    pub instances: &'a [Instance],
    /// Names of its agents by index.
    pub agents: &'a [String],
}

/// What a job does in a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRates {
    /// Seconds that the rates are means over: the least of its agents'.
    pub seconds: Figure,
    /// A whole window has passed since it began, was rescaled or set.
    pub full: bool,
    /// By index.
    pub vertices: Vec<VertexRates>,
    /// By index.
    pub edges: Vec<EdgeRates>,
    /// Those of [`Known::instances`], in their order.
    pub instances: Vec<InstanceRates>,
}

/// What a vertex does in a second: its instances that have not ended, together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VertexRates {
    /// How many of its instances have not ended.
    pub instances: u32,
    /// Rows that are sent to it, whether it takes them or not; of a source, rows that it is offered.
    pub input: Figure,
    /// Rows that it takes and works on; of a source, rows that it gives.
    pub processed: Figure,
    /// Rows that it emits, each once however many receivers it goes to.
    pub emitted: Figure,
    /// Rows that one of its instances takes when it has work all the time: processed by busy time, the mean of the
    /// instances for which that is known. Waiting for a core is busy time.
    pub capacity: Figure,
    /// As `capacity`, without the time that was spent waiting for one of the agent's cores.
    pub capacity_alone: Figure,
    /// For how many instances it is known.
    pub measured: u32,
    /// The part of the time that an instance is busy, the mean.
    pub busy: Figure,
    /// The same of the busiest instance.
    pub busiest: Figure,
    /// The part of the time that the most blocked instance waits for room in its output queues.
    pub blocked: Figure,
    /// Rows that wait at its inputs or are being worked on.
    pub queue_in: u64,
    /// Rows that wait for it: at those who send to it, on their way, and at its inputs.
    pub waiting: u64,
    /// Rows that it emits for one that it has processed; over as many whole bursts as were seen where results come
    /// in bursts.
    pub selectivity: Figure,
    /// The input of the instance with the most, by the mean input of an instance.
    pub skew: Figure,
    /// The rows of the busiest key partition, by the mean of a key partition.
    pub key_skew: Figure,
    /// Shares of its rows by key.
    pub keys: Result<KeyShares, String>,
    /// Of a source: rows that it is offered. A paced one: its pace, whatever it can give.
    pub offered: Option<Figure>,
}

/// What goes over an edge in a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeRates {
    /// Rows that are emitted on it; of a broadcast, once for each receiver.
    pub rate: Figure,
    /// The same for one row that its sender has processed.
    pub selectivity: Figure,
}

/// What one instance does in a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceRates {
    /// Dense id.
    pub instance: u32,
    /// Its vertex.
    pub vertex: VertexId,
    /// Seconds that its rates are means over.
    pub seconds: Figure,
    /// Rows that reach it.
    pub input: Figure,
    /// Rows that it takes and works on.
    pub processed: Figure,
    /// Rows that it emits.
    pub emitted: Figure,
    /// Rows that it would take with work all the time.
    pub capacity: Figure,
    /// The same without its waits for a core.
    pub capacity_alone: Figure,
    /// The part of the time that it is busy.
    pub busy: Figure,
    /// The part of the time that it waits for room in its output queues.
    pub blocked: Figure,
    /// The part of the time that it is idle.
    pub idle: Figure,
}

impl JobRates {
    /// Rows a second that all sinks together take. One that has ended takes none; where all have, it is not known.
    pub fn throughput(&self, dag: &Dag) -> Figure {
        let is_sink = |id: u32| dag.outputs(VertexId(id)).next().is_none();
        let sinks: Vec<&VertexRates> =
            (0u32..).zip(&self.vertices).filter(|(id, _)| is_sink(*id)).map(|(_, sink)| sink).collect();
        let over = sinks.iter().all(|sink| sink.instances == 0);
        sinks.iter().filter(|sink| over || sink.instances > 0).map(|sink| sink.processed.clone()).sum()
    }

    /// Rows a second that vertices take beyond what reaches them: rows that had piled up before.
    pub fn worked_off(&self, dag: &Dag) -> Figure {
        let readers =
            (0u32..).zip(&self.vertices).filter(|(id, _)| dag.inputs(VertexId(*id)).next().is_some());
        let beyond = |rates: &VertexRates| Ok((rates.processed.clone()? - rates.input.clone()?).max(0.0));
        readers.filter(|(_, rates)| rates.instances > 0).map(|(_, rates)| beyond(rates)).sum()
    }
}

#[cfg(test)]
mod tests;
