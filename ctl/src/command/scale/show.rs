//! A plan as text and as a document.

use std::collections::HashMap;

use serde_json::{Value, json};
use tuplane_wire::scaling::{Named, Rescale, ScaleInstance, ScaleMove, ScalePlan};

use crate::output::table::{Align, Table, counted, rate};
use crate::output::time::span;
use crate::output::{number, safe};

/// What a plan does, for people.
pub(in crate::command) fn text(plan: &ScalePlan, room: Option<usize>) -> String {
    let mut out = format!(
        "job {} (run {}), plan {}: {}\n",
        safe::line(&plan.job),
        plan.run,
        plan.epoch,
        safe::line(&plan.asked)
    );
    for count in &plan.counts {
        let name = safe::line(&count.name);
        out.push_str(&if count.before == count.after {
            format!("  {name}: {} instances, and not all where they were\n", count.after)
        } else {
            format!("  {name}: {} -> {} instances\n", count.before, count.after)
        });
    }
    if !plan.is_empty() {
        out.push_str(&instances(plan).render_in(room));
    }
    for edge in &plan.edges {
        let line = format!("edge {}: {} ({})", edge.name, edge.change, edge.why);
        out.push_str(&format!("{}\n", safe::line(&line)));
    }
    if let Some(planner) = &plan.planner {
        out.push_str(&format!("planner: {}\n", safe::line(planner)));
    }
    if let Some(predicted) = plan.predicted {
        out.push_str(&format!("predicted: {} rows/s at the sinks\n", rate(Some(predicted))));
    }
    if let Some(why) = &plan.unpredicted {
        out.push_str(&format!("predicted: nothing, for {}\n", safe::line(why)));
    }
    if let Some(why) = &plan.why {
        out.push_str(&format!("why: {}\n", safe::line(why)));
    }
    for note in &plan.notes {
        out.push_str(&format!("{}\n", safe::line(note)));
    }
    if let Some(id) = id(plan) {
        out.push_str(&format!("id: {id}\n"));
    }
    out
}

/// Instances of a list up to which each has a row; of more than that the instances of a vertex and an agent have one together.
const MOST_ROWS: usize = 24;

/// What starts, moves and ends where.
fn instances(plan: &ScalePlan) -> Table {
    let mut table = Table::new(&[("", Align::Left), ("INSTANCE", Align::Left), ("AGENT", Align::Left)]);
    let each = |list: &[ScaleInstance]| -> Vec<(String, String)> {
        list.iter().map(|one| (one.instance.name.clone(), one.instance.agent.clone())).collect()
    };
    let moved = plan.moved.iter().map(|ScaleMove { from, to, .. }| {
        (format!("{} -> {}", from.name, to.name), format!("{} -> {}", from.agent, to.agent))
    });
    for (what, all) in
        [("start", each(&plan.started)), ("move", moved.collect()), ("end", each(&plan.stopped))]
    {
        for (name, agent) in if all.len() > MOST_ROWS { together(all) } else { all } {
            table.row([what.to_owned(), name, agent]);
        }
    }
    table
}

/// Instances of a vertex on an agent, by number: `work: 300 instances`.
fn together(all: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut counts: Vec<((String, String), u64)> = Vec::new();
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for (name, agent) in all {
        // `work#0 -> work#9` is of `work`, whose own name may have a `#`.
        let first = name.split(" -> ").next().unwrap_or(&name);
        let vertex = first.rsplit_once('#').map_or(first, |(vertex, _)| vertex).to_owned();
        let at = *known.entry((vertex.clone(), agent.clone())).or_insert_with(|| {
            counts.push(((vertex, agent), 0));
            counts.len() - 1
        });
        counts[at].1 += 1;
    }
    let row = |((vertex, agent), count)| (format!("{vertex}: {}", counted(count, "instance")), agent);
    counts.into_iter().map(row).collect()
}

/// What tells a plan from others, as `--if-plan` takes it.
fn id(plan: &ScalePlan) -> Option<String> {
    plan.id.map(|id| format!("{id:016x}"))
}

/// What came of a plan, for people.
pub(super) fn done(plan: &ScalePlan, done: &Rescale) -> String {
    let took = done.ended_ms.map(|ended| span(ended.saturating_sub(done.asked_ms)));
    format!(
        "plan {} of job {} is done after {}\n",
        done.epoch,
        safe::line(&plan.job),
        took.unwrap_or_else(|| "?".to_owned())
    )
}

/// An instance as a document has it.
pub(super) fn named(one: &Named) -> Value {
    json!({"instance": one.id, "name": one.name, "agent": one.agent})
}

/// A plan as a document.
pub(in crate::command) fn document(plan: &ScalePlan) -> Value {
    let all = |list: &[ScaleInstance]| list.iter().map(|one| named(&one.instance)).collect::<Vec<_>>();
    json!({
        "job": plan.job,
        "run": plan.run,
        "epoch": plan.epoch,
        "id": id(plan),
        "next": plan.next,
        "operation": plan.operation,
        "asked": plan.asked,
        "planner": plan.planner,
        "vertices": plan.counts.iter().map(|count| json!({
            "vertex": count.name, "before": count.before, "after": count.after,
        })).collect::<Vec<_>>(),
        "started": all(&plan.started),
        "moved": plan.moved.iter().map(|moved| json!({
            "from": named(&moved.from), "to": named(&moved.to),
        })).collect::<Vec<_>>(),
        "stopped": all(&plan.stopped),
        "edges": plan.edges.iter().map(|edge| json!({
            "edge": edge.name, "change": edge.change, "why": edge.why,
        })).collect::<Vec<_>>(),
        "predicted_per_s": plan.predicted.map_or(Value::Null, number),
        "not_predicted": plan.unpredicted,
        "why": plan.why,
        "notes": plan.notes,
    })
}

#[cfg(test)]
mod tests {
    use tuplane_wire::scaling::ScaleCount;

    use super::*;

    #[test]
    fn many_instances_of_a_vertex_on_an_agent_are_one_row() {
        let of = |count: u32| ScalePlan {
            started: (0..count)
                .map(|id| {
                    let agent = if id % 3 == 0 { "a" } else { "b" };
                    let instance = Named { id, name: format!("work#{id}"), agent: agent.to_owned() };
                    ScaleInstance { vertex: 1, instance }
                })
                .collect(),
            counts: vec![
                ScaleCount { vertex: 1, name: "work".to_owned(), before: 6, after: 6 + count },
                ScaleCount { vertex: 2, name: "out".to_owned(), before: 2, after: 2 },
            ],
            ..ScalePlan::default()
        };
        let many = text(&of(900), None);
        for part in ["work: 300 instances", "work: 600 instances", "work: 6 -> 906 instances"] {
            assert!(many.contains(part), "{part}: {many}");
        }
        assert!(many.contains("out: 2 instances, and not all where they were"), "{many}");
        assert!(many.lines().count() < 12, "{many}");
        let few = text(&of(5), None);
        assert!((0..5).all(|id| few.contains(&format!("work#{id}"))), "{few}");
    }
}
