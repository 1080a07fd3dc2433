//! The plan as a Graphviz graph.

use std::fmt::Write;

use super::dag::Dag;
use super::text::{how, instances};

/// A digraph; edges to other agents are bold.
pub fn dot(job_name: &str, dag: &Dag) -> String {
    let mut out = format!("digraph {} {{\n  node [shape=box];\n", quoted(job_name));
    for (i, vertex) in dag.vertices.iter().enumerate() {
        let label = format!("{}\n{}", vertex.label(), instances(vertex.parallelism));
        let _ = writeln!(out, "  v{i} [label={}, tooltip={}];", quoted(&label), quoted(&vertex.name));
    }
    for edge in &dag.edges {
        let style = if edge.distributed { "bold" } else { "solid" };
        let _ = writeln!(
            out,
            "  v{} -> v{} [label={}, tooltip={}, style={style}];",
            edge.from.0,
            edge.to.0,
            quoted(&how(edge)),
            quoted(&edge.why)
        );
    }
    out.push_str("}\n");
    out
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
