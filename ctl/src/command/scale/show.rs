//! A plan as text and as a document.

use serde_json::{Value, json};
use tuplane_wire::scaling::{Named, Rescale, ScaleInstance, ScalePlan};

use crate::output::table::{Align, Table, rate};
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
        out.push_str(&format!(
            "  {}: {} -> {} instances\n",
            safe::line(&count.name),
            count.before,
            count.after
        ));
    }
    if !plan.is_empty() {
        let mut table = Table::new(&[("", Align::Left), ("INSTANCE", Align::Left), ("AGENT", Align::Left)]);
        let mut row = |what: &str, name: String, agent: String| table.row([what.to_owned(), name, agent]);
        for ScaleInstance { instance, .. } in &plan.started {
            row("start", instance.name.clone(), instance.agent.clone());
        }
        for moved in &plan.moved {
            let (from, to) = (&moved.from, &moved.to);
            row("move", format!("{} -> {}", from.name, to.name), format!("{} -> {}", from.agent, to.agent));
        }
        for ScaleInstance { instance, .. } in &plan.stopped {
            row("end", instance.name.clone(), instance.agent.clone());
        }
        out.push_str(&table.render_in(room));
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
