//! The plan as text for a terminal.

use std::fmt::Write;
use std::time::Duration;

use super::attach::words;
use super::dag::{Dag, Edge, EdgeId, Key, Parallelism, Routing};
use crate::job::{Window, WindowKind};

/// Vertices, edges with their reasons, and notes.
pub fn text(job_name: &str, dag: &Dag) -> String {
    let mut out = format!("job {job_name}\n\nvertices\n");
    let labels: Vec<String> = dag.vertices.iter().map(super::dag::Vertex::label).collect();
    let width = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    for (vertex, label) in dag.vertices.iter().zip(&labels) {
        let mut tail = String::new();
        if vertex.name != *label {
            let _ = write!(tail, ", {}", vertex.name);
        }
        if let Some(time) = &vertex.time {
            let _ = write!(tail, ", event time `{}`", time.column.value.trim());
            let options = [("lateness", time.lateness), ("idle", time.idle), ("max_ahead", time.max_ahead)];
            for (name, value) in options.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                let _ = write!(tail, ", {name} {value:?}");
            }
        }
        if let Some(window) = &vertex.window {
            let _ = write!(tail, ", {}", of_window(window));
        }
        if !vertex.peeks.is_empty() {
            let _ = write!(tail, ", peek {}", vertex.peeks.join(", "));
        }
        let _ = writeln!(out, "  {label:width$}  {}{tail}", instances(vertex.parallelism));
    }
    out.push_str("\nedges\n");
    for id in (0..dag.edges.len() as u32).map(EdgeId) {
        let edge = dag.edge(id);
        let _ = writeln!(out, "  {}  {}", dag.edge_name(id), how(edge));
        let _ = writeln!(out, "      {}", edge.why);
    }
    if !dag.notes.is_empty() {
        out.push_str("\nnotes\n");
    }
    for note in &dag.notes {
        let at = note.text.at;
        let place = if at.line > 0 { format!("line {}: ", at.line) } else { String::new() };
        let _ = writeln!(out, "  {place}{}", note.text.value);
    }
    out
}

/// `sliding windows of 10s, one each 2s`.
fn of_window(window: &Window) -> String {
    let time =
        |duration: Option<Duration>| duration.map_or_else(|| "?".to_owned(), |time| format!("{time:?}"));
    let mut words = match window.kind {
        WindowKind::Tumbling => format!("tumbling windows of {}", time(window.size)),
        WindowKind::Sliding => {
            format!("sliding windows of {}, one each {}", time(window.size), time(window.slide))
        }
        WindowKind::Session => format!("sessions with a gap of {}", time(window.size)),
    };
    if let Some(early) = window.early {
        let _ = write!(words, ", early results each {early:?}");
    }
    words
}

pub(super) fn instances(parallelism: Parallelism) -> String {
    match parallelism {
        Parallelism::PerAgent(n) => format!("{n} on each agent"),
        Parallelism::Default => "one for each slot".to_owned(),
        Parallelism::DefaultUpTo(n) => format!("one for each slot, at most {n} on each agent"),
        Parallelism::One | Parallelism::OneProduces(_) => "1 in the cluster".to_owned(),
        Parallelism::Total(n) => format!("{n} in the cluster"),
    }
}

/// Routing, reach, policy and what else differs from the ordinary.
pub(super) fn how(edge: &Edge) -> String {
    let mut how = match &edge.routing {
        Routing::Unicast => format!("unicast ({})", edge.policy()),
        Routing::Isolated => "isolated".to_owned(),
        Routing::Partitioned { key: Key::Exprs(key), .. } => format!("partitioned by {}", words(key)),
        Routing::Partitioned { key: Key::Entry, .. } => "partitioned by the result's key".to_owned(),
        Routing::Partitioned { key: Key::WholeItem, .. } => "partitioned by the whole row".to_owned(),
        Routing::AllToOne => "all to one".to_owned(),
        Routing::Broadcast => "broadcast".to_owned(),
    };
    how.push_str(if edge.distributed { ", all agents" } else { ", same agent" });
    if edge.priority != 0 {
        let _ = write!(how, ", priority {}", edge.priority);
    }
    if edge.ordered {
        how.push_str(", ordered");
    }
    if edge.spills {
        how.push_str(", waiting rows on disk");
    }
    how
}
