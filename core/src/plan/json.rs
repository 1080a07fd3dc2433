//! The plan as JSON: our own document, and the form of the planner cases.

use serde_json::{Map, Value, json};

use super::dag::{Dag, Edge, EdgeId, Key, Parallelism, Partitioner, Routing, Vertex};
use super::error::PlanError;
use crate::fault::At;
use crate::job::Text;

/// The document `tuplane/plan/1`.
pub fn json(job_name: &str, dag: &Dag) -> Value {
    let edges = (0..dag.edges.len() as u32).map(EdgeId).map(|id| edge(dag, id));
    let notes = dag.notes.iter().map(|note| {
        let mut value = json!({ "text": note.text.value, "no_effect": note.no_effect });
        place(&mut value, note.text.at);
        value
    });
    json!({
        "schema": "tuplane/plan/1",
        "job": job_name,
        "vertices": dag.vertices.iter().map(vertex).collect::<Vec<_>>(),
        "edges": edges.collect::<Vec<_>>(),
        "notes": notes.collect::<Vec<_>>(),
        "watermark_stride_ms": dag.watermark_stride,
    })
}

fn vertex(vertex: &Vertex) -> Value {
    let mut value = json!({
        "id": vertex.label(),
        "name": vertex.name,
        "stages": vertex.stages,
        "role": vertex.role,
        "parallelism": vertex.parallelism,
    });
    if vertex.keys.iter().any(|k| !k.is_empty()) {
        value["keys"] = vertex.keys.iter().map(|k| exprs(k)).collect();
    }
    if !vertex.peeks.is_empty() {
        value["peeks"] = json!(vertex.peeks);
    }
    value
}

fn edge(dag: &Dag, id: EdgeId) -> Value {
    let edge = dag.edge(id);
    let mut value = json!({
        "id": dag.edge_name(id),
        "from": dag.vertex(edge.from).label(),
        "from_ordinal": edge.from_ordinal,
        "to": dag.vertex(edge.to).label(),
        "ordinal": edge.ordinal,
        "routing": routing_name(&edge.routing),
        "distributed": edge.distributed,
        "priority": edge.priority,
        "ordered": edge.ordered,
        "spills": edge.spills,
        "why": edge.why,
    });
    if let Routing::Partitioned { key, partitioner } = &edge.routing {
        value["key"] = key_value(key);
        value["partitioner"] = json!(partitioner_name(*partitioner));
    }
    if edge.routing == Routing::Unicast {
        value["policy"] = json!(edge.policy());
        if !edge.route.options.is_empty() {
            value["options"] = json!(edge.route.options);
        }
    }
    if let Some(effect) = &edge.rebalance {
        value["rebalance"] = json!({ "stage": effect.stage, "changed": effect.changed });
        place(&mut value["rebalance"], effect.at);
    }
    value
}

fn place(value: &mut Value, at: At) {
    if at.line > 0 {
        value["line"] = json!(at.line);
        value["column"] = json!(at.column);
    }
}

/// The plan with exactly the fields of the planner cases.
pub fn case_json(dag: &Dag) -> Value {
    let vertices = dag.vertices.iter().map(|v| {
        let (field, value) = match v.parallelism {
            Parallelism::PerAgent(n) | Parallelism::OneProduces(n) | Parallelism::DefaultUpTo(n) => {
                ("local_parallelism", json!(n))
            }
            Parallelism::Default => ("local_parallelism", json!("default")),
            Parallelism::One => ("local_parallelism", json!(1)),
            Parallelism::Total(n) => ("total_parallelism", json!(n)),
        };
        json!({ "name": v.name, field: value })
    });
    json!({
        "vertices": vertices.collect::<Vec<_>>(),
        "edges": dag.edges.iter().map(|e| case_edge(dag, e)).collect::<Vec<_>>(),
    })
}

fn case_edge(dag: &Dag, edge: &Edge) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    put("from", json!(dag.vertex(edge.from).name));
    put("from_ordinal", json!(edge.from_ordinal));
    put("to", json!(dag.vertex(edge.to).name));
    put("ordinal", json!(edge.ordinal));
    put("routing", json!(routing_name(&edge.routing)));
    put("distributed", json!(edge.distributed));
    if let Routing::Partitioned { key, partitioner } = &edge.routing {
        put("key", key_value(key));
        put("partitioner", json!(partitioner_name(*partitioner)));
    }
    if edge.priority != 0 {
        put("priority", json!(edge.priority));
    }
    if edge.ordered {
        put("ordered", json!(true));
    }
    Value::Object(fields)
}

/// A refusal with exactly the fields of the planner cases.
pub fn case_error_json(error: &PlanError) -> Value {
    json!({ "error": error.kind.case_text(), "when": error.when.name() })
}

pub(super) fn routing_name(routing: &Routing) -> &'static str {
    match routing {
        Routing::Unicast => "unicast",
        Routing::Isolated => "isolated",
        Routing::Partitioned { .. } => "partitioned",
        Routing::AllToOne => "all_to_one",
        Routing::Broadcast => "broadcast",
    }
}

fn partitioner_name(partitioner: Partitioner) -> &'static str {
    match partitioner {
        Partitioner::Default => "default",
        Partitioner::HashCode => "hash_code",
    }
}

fn key_value(key: &Key) -> Value {
    match key {
        Key::Exprs(key) => exprs(key),
        Key::Entry => json!("<entry-key>"),
        Key::WholeItem => json!("<whole-item>"),
    }
}

/// One expression is text, several are a list, as in a job file.
fn exprs(key: &[Text]) -> Value {
    match key {
        [only] => json!(only.value),
        many => many.iter().map(|t| json!(t.value)).collect(),
    }
}
