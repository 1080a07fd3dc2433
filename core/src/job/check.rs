//! Checks of a job's structure: ids, inputs, cycles, and what may follow a grouped stage.

use std::collections::{HashMap, VecDeque};

use super::model::{Job, Op, RouteEntry, Text};
use super::table::{did_you_mean, place};
use crate::fault::{At, Fault, suggestion};

/// Longest id of a stage.
const MAX_ID: usize = 64;

/// Stages of a job: checking one looks at the columns that all before it made, so that time grows faster than their
/// number.
pub(super) const MOST_STAGES: usize = 1_000;

/// The fault of a job with so many stages.
pub(super) fn too_many(stages: usize, at: At) -> Option<Fault> {
    (stages > MOST_STAGES).then(|| {
        Fault::new(at, format!("the job has {stages} stages; at most {MOST_STAGES} are taken"))
            .help("several columns can be made by one map, and several conditions stand in one filter")
    })
}

/// A stage as far as it is known; `None` stands for what could not be read and is reported already.
pub(super) struct Seen<'a> {
    pub(super) id: &'a str,
    pub(super) at: At,
    pub(super) op: Option<&'a Op>,
    pub(super) inputs: Option<&'a [Text]>,
}

impl Job {
    /// Every fault of the job's structure. A job that came from a file has passed this; one that a
    /// program put together may not have.
    pub fn check(&self) -> Vec<Fault> {
        if let Some(fault) = too_many(self.stages.len(), At::default()) {
            return vec![fault];
        }
        let seen: Vec<Seen<'_>> = self
            .stages
            .iter()
            .map(|stage| Seen {
                id: &stage.id,
                at: stage.at,
                op: Some(&stage.op),
                inputs: Some(&stage.inputs),
            })
            .collect();
        let mut faults: Vec<Fault> = self
            .stages
            .iter()
            .filter_map(|stage| {
                id(&Text::new(stage.id.clone(), stage.at)).map(|fault| fault.stage(&stage.id))
            })
            .collect();
        if self.stages.is_empty() {
            faults.push(Fault::new(At::default(), "the job has no stages"));
        }
        faults.extend(stages(&seen));
        faults.extend(routes(&seen, &self.routes));
        faults
    }
}

/// Checks how an id is written.
pub(super) fn id(id: &Text) -> Option<Fault> {
    let text = id.value.as_str();
    let length = text.chars().count();
    if length > MAX_ID {
        let message = format!("the id `{text}` has {length} characters; at most {MAX_ID} are allowed");
        return Some(Fault::new(id.at, message).help("`name` may hold the long form"));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() || text.starts_with('-') || !text.chars().all(good) {
        let message = format!("`{text}` cannot be the id of a stage");
        let help =
            "an id is made of letters, digits, `_` and `-`, and does not begin with `-`; `name` is free text";
        return Some(Fault::new(id.at, message).help(help));
    }
    None
}

/// Checks stages against each other.
pub(super) fn stages(stages: &[Seen<'_>]) -> Vec<Fault> {
    let graph = Graph::new(stages);
    let mut faults = Vec::new();
    graph.duplicates(&mut faults);
    for (index, stage) in stages.iter().enumerate() {
        if let Some(inputs) = stage.inputs {
            number_of_inputs(stage, inputs, &mut faults);
            for input in inputs {
                graph.input(index, input, &mut faults);
            }
            graph.all_grouped_or_none(stage, inputs, &mut faults);
        }
    }
    graph.order(&mut faults);
    faults
}

/// Checks that `[[route]]` names stages that exist; whether the edge does is the planner's question.
pub(super) fn routes(stages: &[Seen<'_>], routes: &[RouteEntry]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut first: HashMap<&str, At> = HashMap::new();
    for route in routes {
        let edge = &route.edge;
        if let Some(at) = first.insert(&edge.value, edge.at) {
            let message =
                format!("the edge `{}` has two entries; the other stands {}", edge.value, place(at));
            faults.push(Fault::new(edge.at, message).help("keep one of them"));
        }
        let ends = edge.value.split_once("..").and_then(|(from, to)| Some((end(from)?, end(to)?)));
        let Some((from, to)) = ends else {
            let message = format!("`{}` does not name an edge", edge.value);
            let help = "write `from..to` with the ids of two stages, or `from:ordinal..to:ordinal`";
            faults.push(Fault::new(edge.at, message).help(help));
            continue;
        };
        for id in [from, to] {
            if !stages.iter().any(|stage| stage.id == id) {
                let fault = Fault::new(edge.at, format!("the edge names `{id}`, and there is no such stage"));
                faults.push(fault.help(did_you_mean(id, stages.iter().map(|stage| stage.id))));
            }
        }
    }
    faults
}

/// The (first) stage's id in `id`, `id:0`, `id/prepare:0` or, of a fused vertex, `id+id`.
fn end(text: &str) -> Option<&str> {
    let name = match text.rsplit_once(':') {
        Some((name, ordinal)) => ordinal.parse::<u16>().ok().map(|_| name)?,
        None => text,
    };
    let id = name.split_once(['/', '+']).map_or(name, |(id, _)| id);
    (!id.is_empty()).then_some(id)
}

fn number_of_inputs(stage: &Seen<'_>, inputs: &[Text], faults: &mut Vec<Fault>) {
    let Some(op) = stage.op else { return };
    let (id, name, given) = (stage.id, op.name(), inputs.len());
    let fault = match (op, inputs) {
        (Op::Source(_), [first, ..]) => {
            Fault::new(first.at, format!("stage `{id}` is a source and cannot have an input"))
                .help("take `in` away, or give the stage another op")
        }
        (Op::Merge | Op::CoAggregate { .. } | Op::HashJoin { .. }, _) if given < 2 => {
            let at = inputs.first().map_or(stage.at, |input| input.at);
            let message = match given {
                0 => format!("stage `{id}` has no input; `{name}` takes two or more"),
                _ => format!("stage `{id}` has one input; `{name}` takes two or more"),
            };
            Fault::new(at, message).help("write in = [\"a\", \"b\"]")
        }
        (Op::Source(_), []) | (Op::Merge | Op::CoAggregate { .. } | Op::HashJoin { .. }, _) => return,
        (_, []) => Fault::new(stage.at, format!("stage `{id}` has no input"))
            .help(format!("`{name}` reads another stage: add in = \"..\" with that stage's id")),
        (Op::Sink(_), _) | (_, [_]) => return,
        (_, [_, second, ..]) => {
            Fault::new(second.at, format!("stage `{id}` has {given} inputs; `{name}` takes one"))
                .help("put a `merge` before it")
        }
    };
    faults.push(fault.stage(id));
}

/// Stages by id, and who reads whom.
struct Graph<'a> {
    stages: &'a [Seen<'a>],
    /// The first stage of each id.
    by_id: HashMap<&'a str, usize>,
    /// Readers of each stage; a stage that reads itself is left out.
    readers: Vec<Vec<usize>>,
    /// Stages that each stage reads.
    read: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(stages: &'a [Seen<'a>]) -> Self {
        let mut by_id = HashMap::new();
        for (index, stage) in stages.iter().enumerate().filter(|(_, stage)| !stage.id.is_empty()) {
            by_id.entry(stage.id).or_insert(index);
        }
        let mut readers = vec![Vec::new(); stages.len()];
        let mut read = vec![Vec::new(); stages.len()];
        for (index, stage) in stages.iter().enumerate() {
            for input in stage.inputs.unwrap_or_default() {
                if input.value != stage.id
                    && let Some(from) = by_id.get(input.value.as_str()).copied()
                {
                    readers[from].push(index);
                    read[index].push(from);
                }
            }
        }
        Self { stages, by_id, readers, read }
    }

    fn duplicates(&self, faults: &mut Vec<Fault>) {
        for (index, stage) in self.stages.iter().enumerate() {
            let Some(first) = self.by_id.get(stage.id).filter(|first| **first != index) else { continue };
            let message = format!(
                "the id `{}` is taken; its first stage stands {}",
                stage.id,
                place(self.stages[*first].at)
            );
            faults.push(Fault::new(stage.at, message).help("give one of the two another id").stage(stage.id));
        }
    }

    /// One input of one stage: it must exist, be another stage, and be readable.
    fn input(&self, index: usize, input: &Text, faults: &mut Vec<Fault>) {
        let stage = &self.stages[index];
        let id = stage.id;
        if input.value == id {
            let fault = Fault::new(input.at, format!("stage `{id}` reads itself"));
            faults.push(fault.help("name the stage that comes before it").stage(id));
            return;
        }
        let Some(from) = self.by_id.get(input.value.as_str()) else {
            let message = format!("stage `{id}` reads `{}`, and there is no such stage", input.value);
            let mut fault = Fault::new(input.at, message).stage(id);
            let others = self.stages.iter().map(|stage| stage.id).filter(|other| *other != id);
            if let Some(close) = suggestion(&input.value, others) {
                fault = fault.help(format!("did you mean `{close}`?"));
            }
            faults.push(fault);
            return;
        };
        let Some(from) = self.stages[*from].op else { return };
        let fault = match (from, stage.op) {
            (Op::Sink(_), _) => {
                Fault::new(input.at, format!("stage `{id}` reads `{}`, which is a sink", input.value))
                    .help("nothing can be read from a sink; read the stage before it")
            }
            (Op::GroupBy { .. } | Op::Window(_), Some(op)) if !takes(from, op) => {
                let message = format!("stage `{id}` ({}) cannot follow a `{}`", op.name(), from.name());
                let wanted = match from {
                    Op::Window(_) => "aggregate, co_aggregate or group_by",
                    _ if self.is_windowed(&input.value) => "aggregate or co_aggregate",
                    _ => {
                        "aggregate, co_aggregate, distinct, window, custom_transform, a stateful op or a service call"
                    }
                };
                Fault::new(input.at, message).help(format!("what may follow: {wanted}"))
            }
            _ => return,
        };
        faults.push(fault.stage(id));
    }

    fn all_grouped_or_none(&self, stage: &Seen<'_>, inputs: &[Text], faults: &mut Vec<Fault>) {
        if !matches!(stage.op, Some(Op::CoAggregate { .. })) {
            return;
        }
        let grouped: Vec<Option<bool>> = inputs.iter().map(|input| self.grouped(&input.value)).collect();
        if !grouped.contains(&Some(true)) {
            return;
        }
        if let Some(bare) = grouped.iter().position(|grouped| *grouped == Some(false)) {
            let input = &inputs[bare];
            let message =
                format!("stage `{}` aggregates by key, but its input `{}` has none", stage.id, input.value);
            let help = "put a `group_by` before every input, or before none";
            faults.push(Fault::new(input.at, message).help(help).stage(stage.id));
        }
    }

    /// Whether a stage hands on a key; `None` if that cannot be known.
    fn grouped(&self, id: &str) -> Option<bool> {
        let mut index = *self.by_id.get(id)?;
        // A chain of views is no longer than the file.
        for _ in 0..self.stages.len() {
            match self.stages[index].op? {
                Op::GroupBy { .. } => return Some(true),
                Op::Window(_) => index = *self.read[index].first()?,
                _ => return Some(false),
            }
        }
        None
    }

    /// Whether a stage hands on a window.
    fn is_windowed(&self, id: &str) -> bool {
        let mut next = self.by_id.get(id).copied();
        for _ in 0..self.stages.len() {
            let Some(index) = next else { return false };
            match self.stages[index].op {
                Some(Op::Window(_)) => return true,
                Some(Op::GroupBy { .. }) => next = self.read[index].first().copied(),
                _ => return false,
            }
        }
        false
    }

    /// Inputs that are defined later: a cycle is named once and whole, others are told to move.
    fn order(&self, faults: &mut Vec<Fault>) {
        let mut cycle_of: Vec<Option<usize>> = vec![None; self.stages.len()];
        for (index, stage) in self.stages.iter().enumerate() {
            for input in stage.inputs.unwrap_or_default() {
                let Some(from) = self.by_id.get(input.value.as_str()).copied() else { continue };
                if from <= index || (cycle_of[index].is_some() && cycle_of[index] == cycle_of[from]) {
                    continue;
                }
                let ahead = reach(&self.readers, index);
                if ahead[from].is_none() {
                    let at = self.stages[from].at;
                    let message = format!(
                        "stage `{}` reads `{}`, which is defined later, {}",
                        stage.id,
                        input.value,
                        place(at)
                    );
                    let help = format!("move `{}` up, before `{}`", input.value, stage.id);
                    faults.push(Fault::new(input.at, message).help(help).stage(stage.id));
                    continue;
                }
                let behind = reach(&self.read, index);
                for member in 0..self.stages.len() {
                    if ahead[member].is_some() && behind[member].is_some() {
                        cycle_of[member] = Some(index);
                    }
                }
                let message = format!("the stages form a cycle: {}", self.path(&ahead, index, from));
                let help = "rows flow from sources to sinks; take one of these inputs away";
                faults.push(Fault::new(input.at, message).help(help).stage(stage.id));
            }
        }
    }

    /// `a -> b -> c -> a`, along the rows' way.
    fn path(&self, parents: &[Option<usize>], start: usize, end: usize) -> String {
        // Backwards from the edge that closes the cycle: start, end, .., start.
        let mut members = vec![start, end];
        let mut at = end;
        while let Some(parent) = parents[at].filter(|_| at != start) {
            members.push(parent);
            at = parent;
        }
        members.reverse();
        let names: Vec<String> =
            members.iter().map(|index| format!("`{}`", self.stages[*index].id)).collect();
        names.join(" -> ")
    }
}

/// What can be reached from `start`, each with the stage it was reached from.
fn reach(next: &[Vec<usize>], start: usize) -> Vec<Option<usize>> {
    let mut parents = vec![None; next.len()];
    parents[start] = Some(start);
    let mut queue = VecDeque::from([start]);
    while let Some(index) = queue.pop_front() {
        for &other in &next[index] {
            if parents[other].is_none() {
                parents[other] = Some(index);
                queue.push_back(other);
            }
        }
    }
    parents
}

/// Whether `op` can follow a `group_by` or a `window`. A rebalance there is the planner's to refuse,
/// as the API of the original does.
fn takes(view: &Op, op: &Op) -> bool {
    match (view, op) {
        (_, Op::Rebalance(_)) | (Op::GroupBy { .. }, Op::Window(_)) => true,
        (Op::Window(_), op) => matches!(
            op,
            Op::GroupBy { .. } | Op::Aggregate { .. } | Op::CoAggregate { .. } | Op::Distinct { .. }
        ),
        (Op::GroupBy { .. }, op) => takes_group(op),
        _ => false,
    }
}

/// Whether `op` works by the key of a `group_by` before it.
pub(crate) fn takes_group(op: &Op) -> bool {
    matches!(
        op,
        Op::Aggregate { .. }
            | Op::CoAggregate { .. }
            | Op::Stateful { .. }
            | Op::RollingAggregate { .. }
            | Op::Distinct { .. }
            | Op::UsingService(_)
            | Op::CustomTransform { .. }
            | Op::Work(_)
    )
}
