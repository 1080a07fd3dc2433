//! Whose instances hear the same of event time.

use super::{Dag, Role, Routing, VertexId};
use crate::job::{Job, Op};

/// By vertex: its instances are in step, since all of them are told the same watermarks, and the same idleness, by
/// the same senders, if not at the same moment. Those that have an event time of their own, sources first, are not;
/// nor are those that hear from senders on their own agent alone, unless these are in step.
pub fn in_step(dag: &Dag, job: &Job) -> Vec<bool> {
    let mut known = vec![None; dag.vertices.len()];
    for vertex in 0..dag.vertices.len() as u32 {
        is_in_step(dag, job, VertexId(vertex), &mut known);
    }
    known.into_iter().map(|in_step| in_step == Some(true)).collect()
}

fn is_in_step(dag: &Dag, job: &Job, vertex: VertexId, known: &mut [Option<bool>]) -> bool {
    if let Some(found) = known[vertex.0 as usize] {
        return found;
    }
    let mut hears_all = !has_own_time(dag, job, vertex);
    let mut inputs = 0;
    for (_, edge) in dag.inputs(vertex) {
        inputs += 1;
        let from_all = edge.distributed && edge.routing != Routing::Isolated;
        hears_all = hears_all && (from_all || is_in_step(dag, job, edge.from, known));
    }
    let found = hears_all && inputs > 0;
    known[vertex.0 as usize] = Some(found);
    found
}

/// It gives rows their event times.
pub(super) fn has_own_time(dag: &Dag, job: &Job, vertex: VertexId) -> bool {
    let stamps = |id: &String| {
        job.stages.iter().any(|stage| stage.id == *id && matches!(stage.op, Op::AddTimestamps { .. }))
    };
    dag.vertex(vertex).role == Role::Timestamps || dag.vertex(vertex).stages.iter().any(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FileFormat;
    use crate::plan::plan;

    fn found(stages: &str) -> impl Fn(&str) -> bool {
        let text = format!(
            r#"stage = [
{{ id = "s", op = "source", connector = "ids", n = 9 }},
{stages}
{{ id = "o", op = "sink", in = "last", connector = "count", parallelism = 1 }},
]"#
        );
        let job = Job::parse(&text, FileFormat::Toml).unwrap();
        let dag = plan(&job).unwrap();
        let labels = dag.vertices.iter().map(super::super::Vertex::label);
        let found: Vec<(String, bool)> = labels.zip(in_step(&dag, &job)).collect();
        move |label| found.iter().find(|(known, _)| known == label).unwrap_or_else(|| panic!("{found:?}")).1
    }

    #[test]
    fn those_behind_an_edge_from_everybody_are_in_step() {
        let of = found(
            r#"{ id = "t", op = "add_timestamps", in = "s", time = "id" },
{ id = "by", op = "group_by", in = "t", key = "id" },
{ id = "w", op = "window", in = "by", type = "tumbling", size = "1s" },
{ id = "n", op = "aggregate", in = "w", compute = ["count(*) as n"] },
{ id = "last", op = "map", in = "n", select = ["n"], parallelism = 2 },"#,
        );
        // The first step of the window hears of its own agent's senders alone; what is local behind the second one
        // hears of instances that are in step.
        assert_eq!(
            ["s", "t", "n/prepare", "n", "last", "o"].map(of),
            [false, false, false, true, true, true]
        );
    }

    #[test]
    fn who_says_what_time_it_is_is_not_in_step_with_others() {
        let of = found(
            r#"{ id = "r", op = "rebalance", in = "s" },
{ id = "far", op = "map", in = "r", select = ["id"], parallelism = 2 },
{ id = "t", op = "add_timestamps", in = "far", time = "id" },
{ id = "last", op = "map", in = "t", select = ["id"], parallelism = 2 },"#,
        );
        assert_eq!(["far", "t", "last", "o"].map(of), [true, false, false, false]);
    }
}
