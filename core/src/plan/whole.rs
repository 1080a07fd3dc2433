//! What concerns the job as a whole: readers for every stage, the watermark's stride, instances
//! placed by the cluster, and build sides that share their source with the probe side.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use super::dag::{Dag, EdgeId, Note, Parallelism, Role, Routing, VertexId};
use super::error::{Kind, PlanError};
use super::graph::Graph;
use crate::fault::{At, Spanned};
use crate::job::{Job, Op, WindowKind};

/// Every stage but a sink has a reader.
pub(super) fn complete(graph: &Graph<'_>) -> Result<(), PlanError> {
    if graph.job.stages.is_empty() {
        let error = PlanError::at(Kind::Incomplete, At::default(), "the job has no stages");
        return Err(error.help("it needs at least a source and a sink"));
    }
    for t in &graph.transforms {
        if t.readers > 0 || matches!(t.stage.op, Op::Sink(_)) {
            continue;
        }
        let id = &t.stage.id;
        let message = format!("no stage reads `{id}`, so its rows would go nowhere");
        let error = PlanError::at_stage(Kind::Incomplete, t.stage, message);
        let view = graph.job.stages.iter().find(|s| {
            matches!(s.op, Op::Rebalance(_) | Op::GroupBy { .. } | Op::Window(_))
                && s.inputs.iter().any(|i| i.value == *id)
        });
        return Err(match view {
            Some(view) => error.help(format!(
                "{} `{}` takes no rows itself: attach a stage to it",
                view.op.name(),
                view.id
            )),
            None => error.help("attach a sink, or remove the stage"),
        });
    }
    Ok(())
}

/// The greatest stride, up to a second, at which every window and timer still fires on time.
pub(super) fn stride(graph: &Graph<'_>) -> u64 {
    let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let wanted = graph.transforms.iter().filter_map(|t| match (&t.stage.op, t.window) {
        (_, Some(w)) => match w.kind {
            WindowKind::Session => w.size.map(|gap| (millis(gap) / 100).clamp(1, 100)),
            // Windows end at multiples of this; that `size` is no multiple of `slide` shifts them.
            WindowKind::Sliding => {
                let size = w.size.or(w.slide).map(millis);
                w.slide.or(w.size).map(millis).zip(size).map(|(slide, size)| gcd(slide, size))
            }
            WindowKind::Tumbling => w.size.map(millis),
        },
        (Op::Stateful { ttl: Some(ttl), .. }, None) if t.is_keyed() => Some((millis(*ttl) / 10).max(1)),
        _ => None,
    });
    let all = wanted.fold(0, gcd);
    match all {
        0 => 1000,
        stride if stride > 1000 => gcd(stride, 1000),
        stride => stride,
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Instances placed by the cluster need not share an agent with their neighbours, so a local
/// edge at such a vertex becomes distributed, and one that keeps order is refused.
pub(super) fn spread_over_agents(dag: &mut Dag, job: &Job) -> Result<(), PlanError> {
    let total = |v: VertexId, dag: &Dag| matches!(dag.vertex(v).parallelism, Parallelism::Total(_));
    for index in 0..dag.edges.len() {
        let edge = &dag.edges[index];
        // The upstream first: what follows it may only have taken its parallelism over.
        let placed = if total(edge.from, dag) {
            edge.from
        } else if total(edge.to, dag) {
            edge.to
        } else {
            continue;
        };
        // A collector stands on each agent that has a joiner, and a source's timestamps with it.
        if edge.distributed
            || edge.routing == Routing::Broadcast
            || dag.vertex(edge.to).role == Role::Timestamps
        {
            continue;
        }
        let id = dag.vertex(placed).stages[0].clone();
        let name = dag.edge_name(EdgeId(index as u32));
        let at = job.stages.iter().find(|s| s.id == id).map(|s| s.at).unwrap_or_default();
        if edge.routing == Routing::Isolated {
            let message = format!(
                "`{id}` has `instances`, which may be on any agent, and {name} must stay within one: {}",
                edge.why
            );
            let mut error = PlanError::at(Kind::Instances, at, message);
            error.fault.stage = Some(id);
            return Err(error.help("use `parallelism` on both stages"));
        }
        let edge = &mut dag.edges[index];
        edge.distributed = true;
        let _ = write!(edge.why, "; on all agents because `{id}` has `instances`");
        let text =
            format!("{name} goes to all agents, not only the sender's, because `{id}` has `instances`");
        dag.notes.push(Note { text: Spanned::new(text, at), no_effect: false });
    }
    Ok(())
}

/// Rows of a probe side that comes from the same vertex as its build side must wait for it.
pub(super) fn note_shared_ancestors(dag: &mut Dag) {
    let mut notes = Vec::new();
    for build in dag.edges.iter().filter(|e| e.priority < 0) {
        let waiting = dag.edges.iter().filter(|e| e.to == build.to && e.priority > build.priority);
        let build_side = ancestors(dag, build.from);
        for edge in waiting {
            let probe_side = ancestors(dag, edge.from);
            let Some(shared) = (0..dag.vertices.len() as u32)
                .rev()
                .map(VertexId)
                .find(|v| build_side.contains(v) && probe_side.contains(v))
            else {
                continue;
            };
            let (shared, join) = (dag.vertex(shared).label(), dag.vertex(build.to).label());
            let text = format!(
                "`{shared}` feeds both sides of `{join}`: rows for its first input queue up until the other side has ended"
            );
            notes.push(Note { text: Spanned::nowhere(text), no_effect: false });
        }
    }
    notes.dedup();
    dag.notes.extend(notes);
}

fn ancestors(dag: &Dag, of: VertexId) -> HashSet<VertexId> {
    let mut seen = HashSet::from([of]);
    let mut open = vec![of];
    while let Some(v) = open.pop() {
        open.extend(dag.edges.iter().filter(|e| e.to == v).map(|e| e.from).filter(|&f| seen.insert(f)));
    }
    seen
}
