//! What concerns the job as a whole: readers for every stage, the watermark's stride, instances
//! placed by the cluster, and build sides that share their source with the probe side.

use std::collections::HashSet;
use std::fmt::Write;
use std::time::Duration;

use super::dag::{Dag, Edge, EdgeId, Note, Parallelism, Role, Routing, VertexId};
use super::error::{Kind, PlanError};
use super::graph::Graph;
use crate::fault::{At, Spanned};
use crate::job::{Job, Op, WindowKind};
use crate::time::gcd;

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
    // What is no whole number of milliseconds is on time within one.
    let millis = |d: Duration| match d.subsec_nanos() % 1_000_000 {
        0 => u64::try_from(d.as_millis()).unwrap_or(u64::MAX),
        _ => 1,
    };
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
        dag.notes.push(Note { text: Spanned::new(text, at), no_effect: false, warns: false });
    }
    Ok(())
}

/// A join reads its first input once its build sides have ended, and until then that input holds up whoever
/// sends to it. Where the build side of a join waits, through any number of joins, for what its own first
/// input holds up, nothing would ever end: the rows of that input wait on disk instead.
pub(super) fn let_waiting_rows_spill(dag: &mut Dag) {
    let mut joins: Vec<Join> = Vec::new();
    for build in dag.edges.iter().filter(|e| e.priority < 0) {
        let needed = ancestors(dag, build.from, |_| true);
        if let Some(join) = joins.iter_mut().find(|join| join.vertex == build.to) {
            join.needed.extend(needed);
            continue;
        }
        let waiting = |e: &&Edge| e.to == build.to && e.priority > build.priority;
        // A collector sends no rows, so that its joiner never holds it up.
        let behind = |e: &Edge| ancestors(dag, e.from, |e| e.priority >= 0);
        let held = dag.edges.iter().filter(waiting).flat_map(behind).collect();
        joins.push(Join { vertex: build.to, needed, held });
    }
    for index in 0..joins.len() {
        let Some(first) = ring(&joins, index) else { continue };
        let join = &joins[index];
        let label = |v: VertexId| dag.vertex(v).label();
        let text = if first == index {
            let shared = (0..dag.vertices.len() as u32)
                .rev()
                .map(VertexId)
                .find(|v| join.needed.contains(v) && join.held.contains(v))
                .map(label)
                .unwrap_or_default();
            format!(
                "`{shared}` feeds both sides of `{}`: rows for its first input queue up until the other side has \
                 ended, on the senders' disks where they are many (4 GiB an edge and agent at most)",
                label(join.vertex)
            )
        } else {
            format!(
                "the build side of `{}` waits for `{}` and that one for the first: rows for its first input queue \
                 up until the other side has ended, on the senders' disks where they are many (4 GiB an edge and \
                 agent at most)",
                label(join.vertex),
                label(joins[first].vertex)
            )
        };
        let vertex = join.vertex;
        for edge in dag.edges.iter_mut().filter(|e| e.to == vertex && e.priority >= 0) {
            edge.spills = true;
        }
        dag.notes.push(Note { text: Spanned::nowhere(text), no_effect: false, warns: false });
    }
}

/// A join, as far as it can keep others waiting.
struct Join {
    vertex: VertexId,
    /// What must end before it reads its first input.
    needed: HashSet<VertexId>,
    /// What its first input may hold up until then.
    held: HashSet<VertexId>,
}

/// The join that a join waits for directly, if it thereby waits for itself: itself, where it can be.
fn ring(joins: &[Join], join: usize) -> Option<usize> {
    let waits = |a: usize, b: usize| !joins[a].needed.is_disjoint(&joins[b].held);
    if waits(join, join) {
        return Some(join);
    }
    (0..joins.len()).filter(|first| waits(join, *first)).find(|first| {
        let (mut seen, mut open) = (HashSet::from([*first]), vec![*first]);
        while let Some(at) = open.pop() {
            if waits(at, join) {
                return true;
            }
            open.extend((0..joins.len()).filter(|next| waits(at, *next) && seen.insert(*next)));
        }
        false
    })
}

/// A vertex and all that it can be reached from along some edges.
fn ancestors(dag: &Dag, of: VertexId, along: impl Fn(&Edge) -> bool) -> HashSet<VertexId> {
    let mut seen = HashSet::from([of]);
    let mut open = vec![of];
    while let Some(v) = open.pop() {
        let edges = dag.edges.iter().filter(|e| e.to == v && along(e));
        open.extend(edges.map(|e| e.from).filter(|&f| seen.insert(f)));
    }
    seen
}
