//! A job as text: a head, the stages, the edges, the files.

use std::collections::BTreeMap;

use serde_json::Value;
use tuplane_core::scale::Engine;

use super::{EdgeView, EventTime, FileView, JobView, phase_word};
use crate::output::safe;
use crate::output::table::{Align, Table, bytes, count, percent, rate};
use crate::output::time::span;

/// The whole of it; `room` is how wide the terminal is, if it goes to one.
pub(crate) fn text(view: &JobView, room: Option<usize>) -> String {
    let mut out = head(view);
    out.push('\n');
    out.push_str(&vertices(view, room));
    out.push('\n');
    out.push_str(&ledger_text(&view.edges, room));
    if !view.files.is_empty() {
        out.push('\n');
        out.push_str(&files_text(&view.files));
    }
    if !view.earlier_parts.is_empty() {
        out.push_str("\nparts that earlier attempts have left:\n");
        out.push_str(&files_text(&view.earlier_parts));
    }
    for unasked in &view.unasked {
        out.push_str(&format!(
            "\nagent {} could not be asked (attempt {}): hidden parts of {} may be left there\n",
            safe::line(&unasked.agent),
            unasked.attempt,
            safe::line(&unasked.instances.join(", "))
        ));
    }
    out
}

fn head(view: &JobView) -> String {
    let summary = &view.summary;
    let mut out = format!(
        "job {} (run {}) on cluster {}: {}, {} after its submit",
        safe::line(&summary.job),
        summary.run,
        safe::line(&view.cluster),
        phase_word(summary.phase),
        span(summary.wall_ms)
    );
    if summary.attempt > 1 {
        out.push_str(&format!(", attempt {}", summary.attempt));
    }
    if let Some(ms) = view.running_ms {
        out.push_str(&format!(", rows flowed for {}", span(ms)));
    }
    out.push('\n');
    if let Some(fault) = &summary.fault {
        out.push_str(&format!("cause: {}\n", safe::line(&fault.message)));
    }
    if view.engine == Engine::Queueing.name() {
        out.push_str("queues grow: a queueing engine, which no full queue holds up\n");
    }
    let moves = ["coming", "leaving", "retired"];
    if view.epoch > 1
        || view.rescale.is_some()
        || moves.iter().any(|state| view.instance_states.contains_key(state))
    {
        let states: Vec<String> =
            view.instance_states.iter().map(|(state, n)| format!("{n} {state}")).collect();
        let under_way = if view.rescale.is_some() { ", being rescaled" } else { "" };
        out.push_str(&format!("plan {}{under_way}; instances: {}\n", view.epoch, states.join(", ")));
    }
    if let Some(thought) = &view.auto {
        out.push_str(&format!("automatic mode: {}\n", safe::line(thought)));
    }
    for pending in &summary.pending {
        out.push_str(&format!("{}\n", safe::line(pending.sentence())));
    }
    if !view.guarantee.is_empty() {
        out.push_str(&format!("guarantee: {}\n", safe::line(&view.guarantee)));
    }
    out.push_str(&format!("counters: {} old", span(view.age_ms)));
    if let Some(ms) = view.rates_over_ms {
        out.push_str(&format!("; rates and shares over the last {}", span(ms)));
    }
    out.push('\n');
    out
}

/// Columns of event time, where a job has any.
const EVENT_TIME: [(&str, Align); 2] = [("WATERMARK", Align::Left), ("BEHIND", Align::Right)];

/// What stands in these columns.
fn event_time(time: &EventTime) -> [String; 2] {
    let watermark = time.watermark_at.clone().unwrap_or_else(|| "-".to_owned());
    [watermark, time.behind_ms.map_or_else(|| "-".to_owned(), |ms| span(ms.max(0) as u64))]
}

fn vertices(view: &JobView, room: Option<usize>) -> String {
    let timed = view.vertices.iter().any(|vertex| vertex.event_time.watermark_at.is_some());
    let mut columns = vec![
        ("STAGE", Align::Left),
        ("INSTANCES", Align::Right),
        ("ROWS IN", Align::Right),
        ("ROWS OUT", Align::Right),
        ("IN/S", Align::Right),
        ("OUT/S", Align::Right),
        ("BUSY", Align::Right),
        ("BLOCKED", Align::Right),
        ("IDLE", Align::Right),
        ("QUEUE", Align::Right),
    ];
    columns.extend(EVENT_TIME.into_iter().filter(|_| timed));
    columns.push(("LEFT OUT", Align::Left));
    let table = Table::new(&columns);
    let mut table =
        table.spare(&["OUT/S", "ROWS OUT", "IDLE", "INSTANCES", "WATERMARK", "ROWS IN", "LEFT OUT"]);
    for vertex in &view.vertices {
        let rates = &vertex.rates;
        let mut row = vec![
            vertex.vertex.clone(),
            vertex.instances.to_string(),
            count(vertex.rows_in),
            count(vertex.rows_out),
            rate(rates.in_per_s),
            rate(rates.out_per_s),
            percent(rates.busy),
            percent(rates.blocked),
            percent(rates.idle),
            count(vertex.queue_in + vertex.queue_out),
        ];
        row.extend(event_time(&vertex.event_time).into_iter().filter(|_| timed));
        row.push(reasons(&vertex.dropped));
        table.row(row);
    }
    let mut out = table.render_in(room);
    for vertex in &view.vertices {
        if let Some(response) = &vertex.response {
            let ms =
                |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
            out.push_str(&format!(
                "  {}: response mean {}, p50 {}, p99 {} over {} rows, {} of them served before they arrived\n",
                safe::line(&vertex.vertex),
                ms(&response.mean_ms),
                ms(&response.p50_ms),
                ms(&response.p99_ms),
                count(response.rows),
                count(response.early)
            ));
        }
        for note in &vertex.notes {
            out.push_str(&format!("  {}: {}\n", safe::line(&vertex.vertex), safe::line(note)));
        }
    }
    out
}

/// The ledger of every edge.
fn ledger_text(edges: &[EdgeView], room: Option<usize>) -> String {
    let table = Table::new(&[
        ("EDGE", Align::Left),
        ("ROUTING", Align::Left),
        ("EMITTED", Align::Right),
        ("TAKEN", Align::Right),
        ("QUEUED OUT", Align::Right),
        ("IN FLIGHT", Align::Right),
        ("QUEUED IN", Align::Right),
        ("ON THE WIRE", Align::Right),
        ("DROPPED", Align::Left),
    ]);
    let mut table = table.spare(&["ON THE WIRE", "IN FLIGHT", "QUEUED OUT", "QUEUED IN", "ROUTING"]);
    for edge in edges {
        let reach = if edge.distributed { "distributed" } else { "local" };
        let policy = edge.policy.as_ref().map_or_else(String::new, |policy| format!(" {policy}"));
        table.row([
            edge.edge.clone(),
            format!("{reach} {}{policy}", edge.routing),
            count(edge.emitted),
            count(edge.taken),
            count(edge.queued_out),
            count(edge.in_flight),
            count(edge.queued_in),
            bytes(edge.wire_bytes),
            reasons(&edge.dropped),
        ]);
    }
    table.render_in(room)
}

/// Every instance, for `-v`.
pub(crate) fn instances_text(view: &JobView) -> String {
    let timed = view.per_instance.iter().any(|instance| instance.event_time.watermark_at.is_some());
    let mut columns = vec![
        ("INSTANCE", Align::Left),
        ("AGENT", Align::Left),
        ("STATE", Align::Left),
        ("ROWS IN", Align::Right),
        ("ROWS OUT", Align::Right),
        ("BUSY", Align::Right),
        ("BLOCKED", Align::Right),
        ("IDLE", Align::Right),
        ("QUEUE IN", Align::Right),
        ("QUEUE OUT", Align::Right),
    ];
    columns.extend(EVENT_TIME.into_iter().filter(|_| timed));
    let mut table = Table::new(&columns);
    for instance in &view.per_instance {
        let mut row = vec![
            format!("{}#{}", instance.vertex, instance.number),
            instance.agent.clone(),
            instance.state.to_owned(),
            count(instance.rows_in),
            count(instance.rows_out),
            percent(instance.shares.busy),
            percent(instance.shares.blocked),
            percent(instance.shares.idle),
            count(instance.queue_in),
            count(instance.queue_out),
        ];
        row.extend(event_time(&instance.event_time).into_iter().filter(|_| timed));
        table.row(row);
    }
    table.render()
}

/// Files of the sinks.
pub(crate) fn files_text(files: &[FileView]) -> String {
    let mut table = Table::new(&[("AGENT", Align::Left), ("ROWS", Align::Right), ("SIZE", Align::Right)]);
    for file in files {
        table.row([file.agent.clone(), count(file.rows), bytes(file.bytes)]);
    }
    // Paths are never cut: they are there to be copied.
    let mut out = String::new();
    let rendered = table.render();
    let mut lines = rendered.lines();
    if let Some(header) = lines.next() {
        out.push_str(&format!("{header}  FILE\n"));
    }
    for (line, file) in lines.zip(files) {
        out.push_str(&format!("{line}  {}\n", safe::line(&file.path)));
    }
    out
}

fn reasons(dropped: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = dropped
        .iter()
        .filter(|(_, rows)| **rows > 0)
        .map(|(reason, rows)| format!("{reason} {}", count(*rows)))
        .collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}
