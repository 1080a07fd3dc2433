//! The columns of every stage's output, and every fault in a job's expressions at once.

pub(crate) mod keyed;
mod source;

use std::collections::BTreeMap;

use datafusion_common::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Op, SinkConnector, SourceConnector, Stage, StatefulShape, Text};
use tuplane_core::place::{RowPlace, source_number};

pub use source::is_readable;

use crate::aggregate::AggregateProgram;
use crate::key::KeyExprs;
use crate::program::Step;
use crate::sql::{Language, sql_name};
use crate::system::{SystemColumn, SystemColumns, refusal, with_system};

/// The names in a file's header line, by the id of the source stage; `None` where it is not known.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<Vec<String>>;

/// A stage that names a source, an operator or a sink of a registry, and what it is given.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The stage.
    pub stage: &'a Stage,
    /// The columns of its input; none are a source's.
    pub input: Option<&'a SchemaRef>,
    /// The columns of the key that a `group_by` before it gives it.
    pub key: &'a [FieldRef],
}

/// What a registry says of such a stage: the columns of its output. `Ok(None)`: nothing is known of it here.
/// `Err`: there is none of that name, or it refuses its options or its input.
pub type Registered<'a> = &'a (dyn Fn(Asked<'_>) -> Result<Option<SchemaRef>, Fault> + Sync);

/// The types of a job.
#[derive(Debug, Clone, Default)]
pub struct Types {
    stages: BTreeMap<String, StageType>,
    unknown: Vec<String>,
}

/// The type of a stage.
#[derive(Debug, Clone)]
pub struct StageType {
    /// The columns of its output, as expressions see them.
    pub output: SchemaRef,
    /// System columns that go with them.
    pub system: SystemColumns,
    /// Its own expressions can meet a row that they cannot take.
    can_fail: bool,
}

impl Types {
    /// The type of a stage, unless it depends on an operator that only a registry knows.
    pub fn stage(&self, id: &str) -> Option<&StageType> {
        self.stages.get(id)
    }

    /// The columns of a stage's output.
    pub fn output(&self, id: &str) -> Option<SchemaRef> {
        self.stage(id).map(|stage| SchemaRef::clone(&stage.output))
    }

    /// System columns that leave a stage.
    pub fn system(&self, id: &str) -> SystemColumns {
        self.stage(id).map_or(SystemColumns::NONE, |stage| stage.system)
    }

    /// All columns that leave a stage: the output's, then system columns.
    pub fn edge(&self, id: &str) -> Option<SchemaRef> {
        self.stage(id).map(|stage| with_system(&stage.output, stage.system))
    }

    /// Stages of registered operators: types are unknown from there on.
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }
}

/// Types of a job; `headers` knows the first lines of csv files with `header = true` and no `columns`,
/// `registered` what a registry holds.
pub(crate) fn resolve(
    job: &Job,
    headers: Headers<'_>,
    registered: Registered<'_>,
) -> Result<Types, Vec<Fault>> {
    let mut types = Types::default();
    let mut faults = Vec::new();
    let language = Language::of(job);
    for stage in &job.stages {
        // A stage whose input has no types says nothing: the fault was reported there.
        let inputs: Option<Vec<SchemaRef>> =
            stage.inputs.iter().map(|input| types.output(&input.value)).collect();
        let Some(inputs) = inputs else { continue };
        match output(job, language, stage, &inputs, (headers, registered)) {
            Ok(Some((output, can_fail))) => types.add(stage, output, can_fail),
            Ok(None) => types.unknown.push(stage.id.clone()),
            Err(found) => {
                faults.extend(found.into_iter().map(|fault| fault.stage(&stage.id)));
                // Stages behind it are looked at all the same where its output is known without its functions.
                if let Some(input) = inputs.first().filter(|_| hands_on_columns(&stage.op)) {
                    types.add(stage, SchemaRef::clone(input), false);
                }
            }
        }
    }
    types.carry(job);
    if faults.is_empty() { Ok(types) } else { Err(faults) }
}

impl Types {
    fn add(&mut self, stage: &Stage, output: SchemaRef, can_fail: bool) {
        let system = SystemColumns::NONE;
        self.stages.insert(stage.id.clone(), StageType { output, system, can_fail });
    }

    /// Gives system columns to the stages from those sources that can make them on to the last stage that
    /// needs them.
    fn carry(&mut self, job: &Job) {
        let ids = |stage: &Stage| stage.inputs.iter().map(|input| input.value.clone()).collect::<Vec<_>>();
        // What each stage could hand on, from what its inputs could.
        let mut made: BTreeMap<&str, SystemColumns> = BTreeMap::new();
        for stage in &job.stages {
            let system = match &stage.op {
                Op::Source(_) => makes(job, stage),
                op if copies(op) => ids(stage)
                    .iter()
                    .filter_map(|input| made.get(input.as_str()))
                    .fold(SystemColumns::NONE, |all, one| all.and(*one)),
                _ => SystemColumns::NONE,
            };
            made.insert(&stage.id, system);
        }
        // Whoever reads a stage stands behind it.
        let mut needed: BTreeMap<String, SystemColumns> = BTreeMap::new();
        for stage in job.stages.iter().rev() {
            let own = match self.stages.get(&stage.id) {
                Some(known) if known.can_fail => SystemColumns::only(SystemColumn::At),
                _ => SystemColumns::NONE,
            };
            let behind = needed.get(&stage.id).copied().unwrap_or_default();
            let all = if copies(&stage.op) { own.and(behind) } else { own };
            for input in ids(stage) {
                let known = needed.entry(input).or_default();
                *known = known.and(all);
            }
        }
        for (id, stage) in &mut self.stages {
            let made = made.get(id.as_str()).copied().unwrap_or_default();
            stage.system = made.in_both(needed.get(id).copied().unwrap_or_default());
        }
    }
}

/// The system columns that a source could make: only rows of files have a place that a person can look up.
fn makes(job: &Job, stage: &Stage) -> SystemColumns {
    let Op::Source(source) = &stage.op else { return SystemColumns::NONE };
    let file = matches!(source.connector, Some(SourceConnector::File(_)));
    let number = source_number(job, &stage.id).and_then(|number| RowPlace::new(number, 0));
    match number {
        Some(_) if file => SystemColumns::only(SystemColumn::At),
        _ => SystemColumns::NONE,
    }
}

/// A row that comes out is one that went in, or part of one.
fn copies(op: &Op) -> bool {
    hands_on_columns(op)
        || keyed::is_keyed(op)
        || matches!(op, Op::Map { .. } | Op::FlatMap { .. } | Op::Merge)
}

/// What goes in comes out, in columns at least.
fn hands_on_columns(op: &Op) -> bool {
    matches!(
        op,
        Op::Filter { .. }
            | Op::Rebalance(_)
            | Op::GroupBy { .. }
            | Op::Work(_)
            | Op::Peek { .. }
            | Op::Sort { .. }
            | Op::Stateful { shape: StatefulShape::Filter, .. }
    )
}

/// The columns of a stage's output, and whether its expressions can meet a row that they cannot take.
fn output(
    job: &Job,
    language: Language,
    stage: &Stage,
    inputs: &[SchemaRef],
    (headers, registered): (Headers<'_>, Registered<'_>),
) -> Result<Option<(SchemaRef, bool)>, Vec<Fault>> {
    let from_registry = |input, key: &[FieldRef]| {
        let output = registered(Asked { stage, input, key }).map_err(|fault| vec![fault])?;
        let output = output.map(|output| named(stage, output)).transpose()?;
        Ok::<_, Vec<Fault>>(output.map(|output| (output, false)))
    };
    if let Op::Source(source) = &stage.op {
        if matches!(source.connector, Some(SourceConnector::Registered { .. })) {
            return from_registry(None, &[]);
        }
        return Ok(source::output(stage, source, headers)?.map(|output| (output, false)));
    }
    let Some(input) = inputs.first() else {
        return Err(vec![Fault::new(stage.at, format!("`{}` needs an input", stage.op.name()))]);
    };
    if let Some(step) = Step::compile(language, stage, input) {
        return step.map(|step| Some((SchemaRef::clone(step.output()), step.can_fail(input))));
    }
    let missing = |option: &str| vec![Fault::new(stage.at, format!("`{option}` is missing"))];
    let mut can_fail = false;
    match &stage.op {
        Op::GroupBy { key } if key.is_empty() => return Err(missing("key")),
        Op::Aggregate { compute, .. } if compute.is_empty() => return Err(missing("compute")),
        Op::GroupBy { key } => {
            can_fail = KeyExprs::compile(language, key, input)?.can_fail(input);
        }
        Op::Rebalance(rebalance) => {
            can_fail = KeyExprs::compile(language, &rebalance.key, input)?.can_fail(input);
        }
        Op::Sink(sink) => {
            can_fail = KeyExprs::compile(language, &sink.key, input)?.can_fail(input);
            if let Some(SinkConnector::Ledger { id, .. }) = &sink.connector {
                KeyExprs::compile(language, std::slice::from_ref(id), input)?;
            }
            if let Some(SinkConnector::Registered { .. }) = &sink.connector {
                from_registry(Some(input), &[])?;
            }
        }
        Op::Merge => same_columns(stage, inputs)?,
        Op::Aggregate { compute, .. } => {
            let keys = group_key(job, stage);
            let program = AggregateProgram::compile(language, keys, compute, input, job.options.on_error)?;
            return Ok(Some((program.final_schema(), program.can_fail(input))));
        }
        op if keyed::is_keyed(op) => return keyed::output(job, stage, input).map(Some),
        Op::CustomTransform { .. } => {
            return match grouping(job, stage, input) {
                Ok(key) => from_registry(Some(input), key.fields()),
                // What is wrong with a key was said of its `group_by`.
                Err(_) => Ok(None),
            };
        }
        Op::UsingService(_) => return Ok(None),
        Op::Work(_) | Op::Peek { .. } => {}
        other => return Err(vec![not_yet(stage, other)]),
    }
    Ok(Some((SchemaRef::clone(input), can_fail)))
}

/// Columns that a registry gave, which may be called anything but what is kept, once each.
fn named(stage: &Stage, columns: SchemaRef) -> Result<SchemaRef, Vec<Fault>> {
    let names: Vec<&String> = columns.fields().iter().map(|field| field.name()).collect();
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    let faults: Vec<Fault> = names
        .iter()
        .filter_map(|name| refusal(name))
        .chain(twice.map(|(_, name)| format!("`{}` gives two columns called `{name}`", stage.id)))
        .map(|message| Fault::new(stage.at, message))
        .collect();
    if faults.is_empty() { Ok(columns) } else { Err(faults) }
}

/// An op that plans but does not run in this version.
pub(crate) fn not_yet(stage: &Stage, op: &Op) -> Fault {
    let message = format!("`{}` can be planned, but this version cannot run it", op.name());
    Fault::new(stage.at, message).help("`tuplane plan` shows its plan")
}

/// The key that a `group_by` before `stage` gives it; empty without one.
pub(crate) fn group_key<'a>(job: &'a Job, stage: &'a Stage) -> &'a [Text] {
    let mut stage = stage;
    // At most as many steps as stages, in case inputs form a ring.
    for _ in 0..job.stages.len() {
        let Some(input) = stage.inputs.first().and_then(|id| find(job, &id.value)) else { return &[] };
        match &input.op {
            Op::GroupBy { key } => return key,
            Op::Rebalance(_) | Op::Peek { .. } | Op::Window(_) => stage = input,
            _ => return &[],
        }
    }
    &[]
}

/// That key, compiled; without columns if there is none.
pub(crate) fn grouping(job: &Job, stage: &Stage, input: &SchemaRef) -> Result<KeyExprs, Vec<Fault>> {
    KeyExprs::compile(Language::of(job), group_key(job, stage), input)
}

pub(crate) fn find<'a>(job: &'a Job, id: &str) -> Option<&'a Stage> {
    job.stages.iter().find(|stage| stage.id == id)
}

/// `merge`: the first input's columns are everybody's.
fn same_columns(stage: &Stage, inputs: &[SchemaRef]) -> Result<(), Vec<Fault>> {
    let Some((first, others)) = inputs.split_first() else { return Ok(()) };
    let faults: Vec<Fault> = others
        .iter()
        .zip(stage.inputs.iter().skip(1))
        .filter_map(|(other, name)| {
            let difference = difference(first, other, &stage.inputs[0].value, &name.value)?;
            let message = format!(
                "merge: the columns of `{}` and `{}` differ: {difference}",
                stage.inputs[0].value, name.value
            );
            Some(Fault::new(name.at, message).help("make them equal with a map stage"))
        })
        .collect();
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn difference(left: &Schema, right: &Schema, left_name: &str, right_name: &str) -> Option<String> {
    let by_name = |schema: &Schema| -> BTreeMap<String, FieldRef> {
        schema.fields().iter().map(|f| (f.name().clone(), FieldRef::clone(f))).collect()
    };
    let (in_left, in_right) = (by_name(left), by_name(right));
    let mut found = Vec::new();
    for (name, field) in &in_left {
        match in_right.get(name) {
            None => found.push(format!("only `{left_name}` has `{name}`")),
            Some(other) if other.data_type() != field.data_type() => found.push(format!(
                "`{name}` is {} and {}",
                sql_name(field.data_type()),
                sql_name(other.data_type())
            )),
            Some(_) => {}
        }
    }
    found.extend(
        in_right
            .keys()
            .filter(|n| !in_left.contains_key(*n))
            .map(|n| format!("only `{right_name}` has `{n}`")),
    );
    let names =
        |schema: &Schema| -> Vec<String> { schema.fields().iter().map(|f| f.name().clone()).collect() };
    if found.is_empty() && names(left) != names(right) {
        found.push(format!("their order is {} and {}", names(left).join(", "), names(right).join(", ")));
    }
    if found.is_empty() { None } else { Some(found.join("; ")) }
}
