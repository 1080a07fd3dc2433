//! How the vertices of a job pass their time: what must be known to read a capacity from busy time.

use serde_json::Value;

use super::{Figure, JobRates, VertexRates};
use crate::job::{Job, Op, SourceConnector};
use crate::plan::{Dag, VertexId};
use crate::scale::limit::HELD;

/// How a vertex passes its time.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// It works on rows as they come: what it has done while it was busy is what it can do.
    Rows,
    /// It gives results when windows close: what a row costs is known over whole bursts only.
    Bursts,
    /// An instance has so many rows in hand at once, waiting for a service: its time is used up only while it has
    /// no place left.
    Places(u64),
    /// Rows enter here.
    Source(Offer),
}

/// What a source is offered.
#[derive(Debug, Clone, PartialEq)]
pub enum Offer {
    /// Rows a second over all its instances, by a schedule of its own.
    Paced(Figure),
    /// As many as it can give.
    Unbounded,
}

/// The same kinds, where a trace is offered what it gives now and not the mean of all its counts: it keeps to its counts as
/// long as it is not held up.
pub fn traces_now(kinds: &[Kind], dag: &Dag, job: &Job, rates: &JobRates) -> Vec<Kind> {
    let is_trace = |id: &String| {
        let stage = job.stages.iter().find(|stage| stage.id == *id).map(|stage| &stage.op);
        matches!(stage, Some(Op::Source(source)) if matches!(source.connector, Some(SourceConnector::Trace(_))))
    };
    let now = |((kind, vertex), rates): ((&Kind, &crate::plan::Vertex), &VertexRates)| {
        let (Kind::Source(Offer::Paced(mean)), true) = (kind, vertex.stages.iter().any(is_trace)) else {
            return kind.clone();
        };
        let Ok(given) = rates.processed.clone() else { return kind.clone() };
        let held = rates.blocked.clone().is_ok_and(|blocked| blocked > HELD);
        let offered = if held { mean.clone().map(|mean| mean.max(given)) } else { Ok(given) };
        Kind::Source(Offer::Paced(offered))
    };
    kinds.iter().zip(&dag.vertices).zip(&rates.vertices).map(now).collect()
}

/// The kind of every vertex. `set` gives an option of a stage that was changed while the job runs, `mean` the mean
/// rate of a stage that is a trace.
pub fn kinds(
    dag: &Dag,
    job: &Job,
    set: impl Fn(&str, &str) -> Option<Value>,
    mean: impl Fn(&str) -> Figure,
) -> Vec<Kind> {
    let kind = |(index, vertex): (u32, &crate::plan::Vertex)| {
        let of_vertex = |id: &String| job.stages.iter().find(|stage| stage.id == *id);
        let stages: Vec<_> = vertex.stages.iter().filter_map(of_vertex).collect();
        if dag.inputs(VertexId(index)).next().is_none()
            && let Some((stage, source)) = stages.iter().find_map(|stage| match &stage.op {
                Op::Source(source) => Some((stage, source)),
                _ => None,
            })
        {
            let rate = match set(&stage.id, "rate") {
                Some(value) => value.as_f64(),
                None => source.rate,
            };
            return Kind::Source(match (&source.connector, rate) {
                (Some(SourceConnector::Trace(_)), _) => Offer::Paced(mean(&stage.id)),
                (_, Some(rate)) => Offer::Paced(Ok(rate)),
                (_, None) => Offer::Unbounded,
            });
        }
        if vertex.window.is_some() {
            return Kind::Bursts;
        }
        let places = stages.iter().filter_map(|stage| match &stage.op {
            Op::UsingService(using) => {
                let requests = using.calls.concurrency(using.asynchronous) as u64;
                Some(requests * using.calls.batch(using.batched) as u64)
            }
            _ => None,
        });
        match places.max() {
            Some(places) if places > 1 => Kind::Places(places),
            _ => Kind::Rows,
        }
    };
    (0u32..).zip(&dag.vertices).map(kind).collect()
}
