//! What state belongs to, in words: two that differ in one of them are not mixed.

use std::fmt::Write as _;

use datafusion_common::arrow::datatypes::{FieldRef, SchemaRef};
use tuplane_core::job::{Job, Op, Stage, Text};
use tuplane_core::plan::Role;
use tuplane_core::time::WindowSpec;

use crate::program::{Program, VertexProgram};
use crate::sql::sql_name;
use crate::types::input_key;

/// The names of the parts, for people.
const PARTS: [&str; 4] = ["stage", "op", "key", "state"];

/// What state belongs to: stage id, op, key with its types, and what is kept for each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateOf {
    parts: [String; 4],
}

impl StateOf {
    /// From its parts: stage id, op, key, and what is kept for each key.
    pub fn new(stage: &str, op: &str, key: &str, kept: &str) -> Self {
        Self { parts: [stage, op, key, kept].map(str::to_owned) }
    }

    /// Of a vertex' instances; `None` where they keep no state that another instance could go on with. A preparing
    /// vertex keeps none: its partial results go out where it ends, and any number of them may come for a key.
    pub fn of(job: &Job, stage: &Stage, vertex: &VertexProgram) -> Option<Self> {
        if vertex.role == Role::Prepare {
            return None;
        }
        let aggregated = |keys: usize, partial: &SchemaRef| {
            let (keys, states) = partial.fields().split_at(keys);
            (typed(keys), format!("{}: {}", computed(&stage.op), typed(states)))
        };
        let (types, kept) = match &vertex.program {
            Program::Aggregate(program) => aggregated(program.keys(), &program.partial_schema()),
            Program::Rolling(program) => {
                let aggregate = program.aggregate();
                aggregated(aggregate.keys(), &aggregate.partial_schema())
            }
            Program::Window(program) => {
                let aggregate = program.aggregate();
                let (key, kept) = aggregated(aggregate.keys(), &aggregate.partial_schema());
                let window = match program.spec() {
                    WindowSpec::Panes(panes) => {
                        let end = panes.first_end_after(0);
                        let slide = panes.first_end_after(end) - end;
                        format!("windows of {} ns each {slide} ns", panes.size())
                    }
                    WindowSpec::Session { gap } => format!("sessions of gap {gap} ns"),
                };
                (key, format!("{window}: {kept}"))
            }
            Program::Stateful(program) => (typed(program.key_fields()), typed(program.state_fields())),
            Program::Distinct(program) => (typed(program.key_fields()), "keys seen".to_owned()),
            Program::Join(program) => {
                let Role::Collector { input } = vertex.role else { return None };
                let input = input.saturating_sub(1) as usize;
                let Op::HashJoin { on, .. } = &stage.op else { return None };
                let text = on.get(input).map_or("", |text| text.value.trim());
                let (keys, columns) = program.enriching(input)?;
                let key = format!("{text}: {}", typed(keys));
                return Some(Self::new(
                    &stage.id,
                    &format!("hash_join input {}", input + 1),
                    &key,
                    &typed(columns.fields()),
                ));
            }
            _ => return None,
        };
        let exprs = (0..stage.inputs.len()).map(|input| joined(input_key(job, stage, input).0));
        let mut key = exprs.collect::<Vec<_>>().join(" = ");
        if let Op::Distinct { key: own } = &stage.op
            && key.is_empty()
        {
            key = joined(own);
        }
        Some(Self::new(&stage.id, stage.op.name(), &format!("{key}: {types}"), &kept))
    }

    /// The stage's id.
    pub fn stage(&self) -> &str {
        &self.parts[0]
    }

    /// The first thing in which `other` differs.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let differs = |at: &usize| self.parts[*at] != other.parts[*at];
        let at = (0..PARTS.len()).find(differs)?;
        Some(format!("its {} is `{}`, and here it is `{}`", PARTS[at], other.parts[at], self.parts[at]))
    }

    /// Each part behind its length.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        for part in &self.parts {
            to.extend((part.len() as u32).to_le_bytes());
            to.extend(part.as_bytes());
        }
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut next = || {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            bytes = rest;
            String::from_utf8(part.to_vec()).ok()
        };
        let parts = [next()?, next()?, next()?, next()?];
        bytes.is_empty().then_some(Self { parts })
    }
}

fn joined(texts: &[Text]) -> String {
    texts.iter().map(|text| text.value.trim()).collect::<Vec<_>>().join(", ")
}

/// Columns' names and types. The inner names of states say which call they are of.
fn typed(fields: &[FieldRef]) -> String {
    fields.iter().map(|f| format!("{} {}", f.name(), sql_name(f.data_type()))).collect::<Vec<_>>().join(", ")
}

/// What an op computes for each key.
fn computed(op: &Op) -> String {
    match op {
        Op::Aggregate { compute, .. } | Op::RollingAggregate { compute } => joined(compute),
        Op::CoAggregate { compute, .. } => {
            let mut all = String::new();
            for (input, compute) in compute {
                let _ = write!(all, "{input} [{}] ", joined(compute));
            }
            all
        }
        _ => String::new(),
    }
}
