//! What is shown of a job: counters per stage, the ledger per edge, files; as document and as text.

mod instances;
mod keys;
mod response;
mod sum;
mod summary;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::job::Job;
use tuplane_core::plan::{Dag, EdgeId, Routing, VertexId};
use tuplane_core::scale::Engine;
use tuplane_wire::message::{EdgeLedger, Flow, InstanceReport, JobStatus, SinkFile, Unasked};
use tuplane_wire::scaling::Step;

use crate::failure::{Failure, Outcome};
use crate::output::number;
use crate::output::table::counted;
use crate::output::time::{event_time, now_ms};

use instances::{InstanceView, instance_states, instance_views};
use response::ResponseView;
use sum::{Sum, reports, sum};
pub(crate) use summary::{PendingView, SummaryView, phase_word};
pub(crate) use text::{files_text, instances_text, text};

/// A job, with rates over the time between two looks at it (or over its whole run).
#[derive(Debug, Serialize)]
pub(crate) struct JobView {
    cluster: String,
    #[serde(flatten)]
    pub(crate) summary: SummaryView,
    guarantee: String,
    /// What happens to rows that a vertex cannot take.
    pub(crate) engine: &'static str,
    /// The number of the plan that holds: another one with each rescale and attempt.
    epoch: u64,
    /// The rescale that is under way, if one is.
    rescale: Option<Step>,
    /// What its automatic mode thinks, if that is on.
    auto: Option<String>,
    /// Instances by state.
    instance_states: BTreeMap<&'static str, u32>,
    /// From the first row to the end, or to now.
    pub(crate) running_ms: Option<u64>,
    /// Age of the oldest counter.
    age_ms: u64,
    /// The time that rates and shares are means of.
    rates_over_ms: Option<u64>,
    cost_per_s: Value,
    /// Rows that sinks have taken.
    pub(crate) result_rows: u64,
    /// Rows of the input that sources left out.
    pub(crate) left_out: u64,
    pub(crate) vertices: Vec<VertexView>,
    pub(crate) edges: Vec<EdgeView>,
    pub(crate) files: Vec<FileView>,
    /// Parts that earlier attempts have left.
    earlier_parts: Vec<FileView>,
    /// Sink instances whose parts may be left on agents that could not be asked.
    unasked: Vec<UnaskedView>,
    /// Every instance for itself (`instances` is their number).
    per_instance: Vec<InstanceView>,
}

/// Sink instances of one agent that could not be asked for their parts.
#[derive(Debug, Serialize)]
struct UnaskedView {
    agent: String,
    attempt: u32,
    instances: Vec<String>,
}

impl From<&Unasked> for UnaskedView {
    fn from(unasked: &Unasked) -> Self {
        let Unasked { agent, attempt, instances } = unasked.clone();
        Self { agent, attempt, instances }
    }
}

/// One vertex: sums over its instances.
#[derive(Debug, Serialize)]
pub(crate) struct VertexView {
    pub(crate) vertex: String,
    stages: Vec<String>,
    instances: u32,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    in_per_s: Value,
    out_per_s: Value,
    busy: Value,
    blocked: Value,
    idle: Value,
    waiting_core: Value,
    queue_in: u64,
    queue_out: u64,
    state_bytes: u64,
    dropped: BTreeMap<String, u64>,
    /// Rows that went on with nulls in place of a service's answer.
    unanswered: u64,
    /// The least watermark of its instances.
    #[serde(flatten)]
    event_time: EventTime,
    /// Of a sink whose rows carry their arrival.
    response: Option<ResponseView>,
    /// Last places of rows that were left out.
    notes: Vec<String>,
    #[serde(skip)]
    rates: Rates,
    #[serde(skip)]
    is_source: bool,
}

/// How far event time has come.
#[derive(Debug, Clone, Default, Serialize)]
struct EventTime {
    watermark_at: Option<String>,
    /// The wall clock less the watermark, unless it has ended.
    behind_ms: Option<i64>,
    /// Rows that were so far ahead of the others that they had to be confirmed.
    ahead: u64,
}

impl EventTime {
    /// Of instances together: the least of those that go on, the greatest of all once none does.
    fn of<'a>(reports: impl Iterator<Item = &'a InstanceReport> + Clone) -> Self {
        let told = |report: &InstanceReport| report.watermark.map(|ns| ns.div_euclid(1_000_000));
        let open = reports.clone().filter(|report| !report.ended).filter_map(told).min();
        let watermark = open.or_else(|| reports.clone().filter_map(told).max());
        Self {
            watermark_at: watermark.map(event_time),
            behind_ms: open.map(|watermark| (now_ms() as i64).saturating_sub(watermark)),
            ahead: reports.map(|report| report.ahead).sum(),
        }
    }
}

/// Of an instance's time between two looks.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    busy: Option<f64>,
    blocked: Option<f64>,
    idle: Option<f64>,
}

/// What changes between two looks.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    in_per_s: Option<f64>,
    out_per_s: Option<f64>,
    busy: Option<f64>,
    blocked: Option<f64>,
    idle: Option<f64>,
    waiting_core: Option<f64>,
}

/// One edge's ledger.
#[derive(Debug, Serialize)]
pub(crate) struct EdgeView {
    pub(crate) edge: String,
    routing: &'static str,
    distributed: bool,
    policy: Option<String>,
    pub(crate) emitted: u64,
    pub(crate) taken: u64,
    queued_out: u64,
    in_flight: u64,
    queued_in: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Rows that were emitted and neither taken nor dropped for a named reason.
    pub(crate) open: u64,
    #[serde(skip)]
    lost: u64,
    wire_bytes: u64,
    /// What went from agent to agent, an agent's own rows included.
    flows: Vec<FlowView>,
    /// The target takes part in the result: it is a sink.
    #[serde(skip)]
    into_sink: bool,
}

/// What went from one agent to another on an edge.
#[derive(Debug, Serialize)]
struct FlowView {
    from: String,
    to: String,
    rows: u64,
    bytes: u64,
    wire_bytes: u64,
}

impl FlowView {
    fn new(status: &JobStatus, (from, to): (u16, u16), flow: &Flow) -> Self {
        let name =
            |agent: u16| status.agents.get(usize::from(agent)).map_or("?", |info| info.id.name.as_str());
        let Flow { rows, bytes, wire_bytes } = *flow;
        Self { from: name(from).to_owned(), to: name(to).to_owned(), rows, bytes, wire_bytes }
    }
}

/// A file of a sink.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileView {
    pub(crate) agent: String,
    pub(crate) stage: String,
    pub(crate) path: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl From<&SinkFile> for FileView {
    fn from(file: &SinkFile) -> Self {
        Self {
            agent: file.agent.clone(),
            stage: file.stage.clone(),
            path: file.path.clone(),
            rows: file.rows,
            bytes: file.bytes,
        }
    }
}

impl JobView {
    /// A job as it stands; `before` is an earlier look and its age in ms.
    pub(crate) fn new(cluster: &str, status: &JobStatus, before: Option<(&JobStatus, u64)>) -> Outcome<Self> {
        let dag = plan_of(status)?;
        let over_ms = before.map(|(_, age)| age).or(status.running_ms).filter(|ms| *ms > 0);
        let sinks = sink_stages(&dag);
        let vertices: Vec<VertexView> = (0u32..)
            .map(VertexId)
            .take(dag.vertices.len())
            .map(|id| vertex_view(&dag, id, status, before.map(|(earlier, _)| earlier), over_ms))
            .collect();
        let edges: Vec<EdgeView> = (0u32..)
            .map(EdgeId)
            .take(dag.edges.len())
            .map(|id| edge_view(&dag, id, status, &sinks))
            .collect();
        Ok(Self {
            cluster: cluster.to_owned(),
            summary: SummaryView::from(&status.summary),
            guarantee: status.guarantee.clone(),
            engine: engine_of(status)?.name(),
            epoch: status.scale.epoch,
            rescale: status.scale.step,
            auto: status.scale.auto.clone(),
            instance_states: instance_states(status),
            running_ms: status.running_ms,
            age_ms: status.age_ms,
            rates_over_ms: over_ms,
            cost_per_s: number(status.cost_per_second),
            result_rows: edges.iter().filter(|edge| edge.into_sink).map(|edge| edge.taken).sum(),
            left_out: vertices.iter().filter(|vertex| vertex.is_source).map(VertexView::left_out).sum(),
            vertices,
            edges,
            files: status.files.iter().map(FileView::from).collect(),
            earlier_parts: status.earlier_parts.iter().map(FileView::from).collect(),
            unasked: status.unasked.iter().map(UnaskedView::from).collect(),
            per_instance: instance_views(&dag, status, before.map(|(earlier, _)| earlier)),
        })
    }

    /// The same without its files, where they are shown apart.
    pub(crate) fn without_files(mut self) -> Self {
        self.files.clear();
        self
    }

    /// Leaves out what only explains.
    pub(crate) fn leave_guarantee_out(&mut self) {
        self.guarantee.clear();
    }

    /// What was left out: input by sources, rows by expressions; and rows that a service did not answer. A sentence
    /// each.
    pub(crate) fn left_out_sentences(&self) -> Vec<String> {
        let sentences = |vertex: &VertexView| [vertex.left_out_sentence(), vertex.unanswered_sentence()];
        self.vertices.iter().flat_map(sentences).flatten().collect()
    }

    /// Rows that instances had in hand when the job was stopped, by vertex.
    pub(crate) fn in_hand(&self) -> Vec<(&str, u64)> {
        let stopped =
            |vertex: &'_ VertexView| vertex.dropped.get(DROPPED_BY_STOP).copied().unwrap_or_default();
        let rows = self.vertices.iter().map(|vertex| (vertex.vertex.as_str(), stopped(vertex)));
        rows.filter(|(_, rows)| *rows > 0).collect()
    }

    /// Vertices that read no edge.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &VertexView> {
        self.vertices.iter().filter(|vertex| vertex.is_source)
    }

    /// The time that rates and shares are means of, ms.
    #[cfg(test)]
    pub(crate) fn rates_over_ms(&self) -> Option<u64> {
        self.rates_over_ms
    }

    /// Rows per second that come from all sources together.
    pub(crate) fn source_rate(&self) -> Option<f64> {
        self.sources().map(|vertex| vertex.rates.out_per_s).sum()
    }

    /// Rows lost per edge, for a job that did not finish, edges that lost none left out: those that
    /// went with an agent and those that the stop found in queues, as the coordinator counts them.
    pub(crate) fn lost(&self) -> Vec<(String, u64)> {
        let edges = self.edges.iter().map(|edge| (edge.edge.clone(), edge.lost));
        edges.filter(|(_, rows)| *rows > 0).collect()
    }
}

impl VertexView {
    fn left_out(&self) -> u64 {
        self.dropped.values().sum()
    }

    fn unanswered_sentence(&self) -> Option<String> {
        let last = self.notes.last().map_or_else(String::new, |note| format!("; last: {note}"));
        let rows = counted(self.unanswered, "row");
        (self.unanswered > 0).then(|| format!("{rows} of `{}` got nulls for an answer{last}", self.vertex))
    }

    fn left_out_sentence(&self) -> Option<String> {
        let rows = self.left_out();
        if rows == 0 {
            return None;
        }
        let reasons: Vec<&str> =
            self.dropped.iter().filter(|(_, rows)| **rows > 0).map(|(reason, _)| reason.as_str()).collect();
        let last = self.notes.last().map_or_else(String::new, |note| format!("; last: {note}"));
        let (rows, reasons) =
            (counted(rows, if self.is_source { "line" } else { "row" }), reasons.join(", "));
        let vertex = &self.vertex;
        if self.is_source && self.rows_out == 0 {
            return Some(format!(
                "NOTHING WAS READ: `{vertex}` left out every line of its input, {rows} ({reasons}){last}"
            ));
        }
        Some(format!("{rows} left out ({reasons}) by `{vertex}`{last}"))
    }
}

/// The plan inside a status.
pub(crate) fn plan_of(status: &JobStatus) -> Outcome<Dag> {
    serde_json::from_str(&status.dag)
        .map_err(|cause| Failure::Version(format!("the job's plan cannot be read by this build: {cause}")))
}

/// What a job's engine does with rows that a vertex cannot take.
fn engine_of(status: &JobStatus) -> Outcome<Engine> {
    let job: Job = serde_json::from_str(&status.job)
        .map_err(|cause| Failure::Version(format!("the job cannot be read by this build: {cause}")))?;
    Ok(job.options.overflow.into())
}

/// Vertices that nothing reads from.
fn sink_stages(dag: &Dag) -> Vec<VertexId> {
    (0u32..)
        .map(VertexId)
        .take(dag.vertices.len())
        .filter(|id| !dag.edges.iter().any(|edge| edge.from == *id))
        .collect()
}

fn vertex_view(
    dag: &Dag,
    id: VertexId,
    status: &JobStatus,
    before: Option<&JobStatus>,
    over_ms: Option<u64>,
) -> VertexView {
    let now = sum(status, id);
    let earlier = before.map(|earlier| sum(earlier, id)).unwrap_or_default();
    let per_second =
        |now: u64, earlier: u64| over_ms.map(|ms| now.saturating_sub(earlier) as f64 * 1000.0 / ms as f64);
    let accounted = |s: &Sum| s.busy_ns + s.blocked_ns + s.idle_ns;
    let span = accounted(&now).saturating_sub(accounted(&earlier));
    let share = |now: u64, earlier: u64| (span > 0).then(|| now.saturating_sub(earlier) as f64 / span as f64);
    let rates = Rates {
        in_per_s: per_second(now.rows_in, earlier.rows_in),
        out_per_s: per_second(now.rows_out, earlier.rows_out),
        busy: share(now.busy_ns, earlier.busy_ns),
        blocked: share(now.blocked_ns, earlier.blocked_ns),
        idle: share(now.idle_ns, earlier.idle_ns),
        waiting_core: share(now.waiting_core_ns, earlier.waiting_core_ns),
    };
    let value = |rate: Option<f64>| rate.map_or(Value::Null, number);
    VertexView {
        vertex: dag.vertex(id).label(),
        stages: dag.vertex(id).stages.clone(),
        instances: now.instances,
        rows_in: now.rows_in,
        rows_out: now.rows_out,
        in_per_s: value(rates.in_per_s),
        out_per_s: value(rates.out_per_s),
        busy: value(rates.busy),
        blocked: value(rates.blocked),
        idle: value(rates.idle),
        waiting_core: value(rates.waiting_core),
        queue_in: now.queue_in,
        queue_out: now.queue_out,
        state_bytes: now.state_bytes,
        dropped: now.dropped,
        unanswered: now.unanswered,
        event_time: EventTime::of(reports(status, id)),
        response: ResponseView::of(reports(status, id)),
        notes: now.notes,
        rates,
        is_source: !dag.edges.iter().any(|edge| edge.to == id),
    }
}

fn edge_view(dag: &Dag, id: EdgeId, status: &JobStatus, sinks: &[VertexId]) -> EdgeView {
    let edge = dag.edge(id);
    let none = EdgeLedger::default();
    let ledger = status.edges.iter().find(|ledger| ledger.edge == id.0).unwrap_or(&none);
    EdgeView {
        edge: dag.edge_name(id),
        routing: routing_word(&edge.routing),
        distributed: edge.distributed,
        policy: ledger.policy.clone(),
        emitted: ledger.emitted,
        taken: ledger.taken,
        queued_out: ledger.queued_out,
        in_flight: ledger.in_flight,
        queued_in: ledger.queued_in,
        dropped: ledger.dropped.clone(),
        open: ledger.emitted.saturating_sub(ledger.accounted()),
        lost: ledger.lost(),
        wire_bytes: ledger.flows.values().map(|flow| flow.wire_bytes).sum(),
        flows: ledger.flows.iter().map(|(pair, flow)| FlowView::new(status, *pair, flow)).collect(),
        into_sink: sinks.contains(&edge.to),
    }
}

fn routing_word(routing: &Routing) -> &'static str {
    match routing {
        Routing::Unicast => "unicast",
        Routing::Isolated => "isolated",
        Routing::Partitioned { .. } => "partitioned",
        Routing::AllToOne => "all-to-one",
        Routing::Broadcast => "broadcast",
    }
}
