//! The columns of every stage's output, and every fault in a job's expressions at once.

pub(crate) mod joined;
pub(crate) mod keyed;
pub(crate) mod service;
mod source;

use std::collections::BTreeMap;

use datafusion_common::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Op, SinkConnector, SourceConnector, Stage, StatefulShape, Text, Time, Window};
use tuplane_core::place::{RowPlace, source_number};
use tuplane_core::time::WindowSpec;

pub use source::is_readable;

use crate::aggregate::{AggregateProgram, WindowProgram};
use crate::key::KeyExprs;
use crate::program::{StampProgram, Step};
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
    /// What services answer with, by stage.
    answers: BTreeMap<String, SchemaRef>,
    unknown: Vec<String>,
}

/// The type of a stage.
#[derive(Debug, Clone)]
pub struct StageType {
    /// The columns of its output, as expressions see them.
    pub output: SchemaRef,
    /// System columns that go with them.
    pub system: SystemColumns,
    /// System columns that it reads itself: where a row entered, if its expressions can meet one that they
    /// cannot take; event times; arrivals.
    needs: SystemColumns,
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

    /// What a stage's service answers with.
    pub(crate) fn answer(&self, id: &str) -> Option<&SchemaRef> {
        self.answers.get(id)
    }

    /// System columns that leave a stage.
    pub fn system(&self, id: &str) -> SystemColumns {
        self.stage(id).map_or(SystemColumns::NONE, |stage| stage.system)
    }

    /// All columns that leave a stage: the output's, then system columns.
    pub fn edge(&self, id: &str) -> Option<SchemaRef> {
        self.stage(id).map(|stage| with_system(&stage.output, stage.system))
    }

    /// All columns of a source's rows before it gives them event times.
    pub(crate) fn before_stamps(&self, id: &str) -> Option<SchemaRef> {
        let stage = self.stage(id)?;
        let made = stage.system.without(SystemColumns::only(SystemColumn::Ts));
        Some(with_system(&stage.output, made.and(stage.needs)))
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
        if let (Op::UsingService(using), Some(input)) = (&stage.op, inputs.first()) {
            match service::answer(job, stage, using, input, registered) {
                Ok(Some(answer)) => drop(types.answers.insert(stage.id.clone(), answer)),
                Ok(None) => {
                    types.unknown.push(stage.id.clone());
                    continue;
                }
                Err(found) => {
                    faults.extend(found.into_iter().map(|fault| fault.stage(&stage.id)));
                    continue;
                }
            }
        }
        let answer = types.answers.get(&stage.id);
        match output(job, language, stage, &inputs, (headers, registered, answer)) {
            Ok(Some((output, needs))) => types.add(stage, output, needs),
            Ok(None) => types.unknown.push(stage.id.clone()),
            Err(found) => {
                faults.extend(found.into_iter().map(|fault| fault.stage(&stage.id)));
                // Stages behind it are looked at all the same where its output is known without its functions.
                if let Some(input) = inputs.first().filter(|_| hands_on_columns(&stage.op)) {
                    types.add(stage, SchemaRef::clone(input), SystemColumns::NONE);
                }
            }
        }
    }
    types.carry(job, &mut faults);
    if faults.is_empty() { Ok(types) } else { Err(faults) }
}

impl Types {
    fn add(&mut self, stage: &Stage, output: SchemaRef, needs: SystemColumns) {
        let system = SystemColumns::NONE;
        self.stages.insert(stage.id.clone(), StageType { output, system, needs });
    }

    /// Gives system columns to the stages from those that can make them on to the last stage that needs them.
    fn carry(&mut self, job: &Job, faults: &mut Vec<Fault>) {
        // What each stage could hand on, from what its inputs could.
        let mut made: BTreeMap<&str, SystemColumns> = BTreeMap::new();
        for stage in &job.stages {
            let inputs = stage.inputs.iter().take(copied_inputs(&stage.op));
            let inputs = inputs.filter_map(|input| made.get(input.value.as_str()).copied());
            let inputs = of_all(&inputs.collect::<Vec<_>>());
            let known = self.stages.get(&stage.id);
            // Of a stage with faults of its own only that is known.
            let ttl = matches!(stage.op, Op::Stateful { ttl: Some(_), .. });
            let reads = known.is_some_and(|known| ttl || known.needs.has(SystemColumn::Ts));
            if reads && !inputs.has(SystemColumn::Ts) {
                faults.push(without_event_time(job, stage).stage(&stage.id));
            }
            let reads = known.is_some_and(|known| known.needs.has(SystemColumn::Due));
            if reads && !inputs.and(makes(job, stage)).has(SystemColumn::Due) {
                let message =
                    "`arrived()` is known of rows that were read, and this stage gets results of others";
                let help = "take it in a map before them: [\"*\", \"arrived() as at\"]";
                faults.push(Fault::new(stage.at, message).help(help).stage(&stage.id));
            }
            let handed_on = if copies(&stage.op) { inputs } else { SystemColumns::NONE };
            made.insert(&stage.id, handed_on.and(makes(job, stage)));
        }
        let times = arrivals_needed(job);
        // Whoever reads a stage stands behind it.
        let mut needed: BTreeMap<&str, SystemColumns> = BTreeMap::new();
        for stage in job.stages.iter().rev() {
            let own = self.stages.get(&stage.id).map_or(SystemColumns::NONE, |known| known.needs);
            let own = own.and(times(&stage.op));
            let behind = needed.get(stage.id.as_str()).copied().unwrap_or_default();
            // What it makes itself it asks nobody for.
            let behind = behind.without(makes(job, stage));
            let copied = if copies(&stage.op) { copied_inputs(&stage.op) } else { 0 };
            for (position, input) in stage.inputs.iter().enumerate() {
                let all = if position < copied { own.and(behind) } else { own };
                let known = needed.entry(input.value.as_str()).or_default();
                *known = known.and(all);
            }
        }
        for (id, stage) in &mut self.stages {
            let made = made.get(id.as_str()).copied().unwrap_or_default();
            stage.system = made.in_both(needed.get(id.as_str()).copied().unwrap_or_default());
        }
    }
}

/// The stages that hold rows until they arrive, or measure from there, ask for arrivals where those are known: sinks
/// of a job in which a source has a `window`, and what a window or an aggregate takes in where one looks ahead.
fn arrivals_needed(job: &Job) -> impl Fn(&Op) -> SystemColumns {
    let sources = || job.stages.iter().filter_map(|stage| stage.op.source());
    let measured = sources().any(|source| source.window.is_some());
    let ahead = sources().any(|source| source.ahead() > 0);
    move |op| match op {
        Op::Sink(_) if measured => SystemColumns::only(SystemColumn::Due),
        Op::Aggregate { .. } | Op::CoAggregate { .. } | Op::AddTimestamps { .. } if ahead => {
            SystemColumns::only(SystemColumn::Due)
        }
        _ => SystemColumns::NONE,
    }
}

/// What rows of several inputs carry: places where any has them, times only where all do.
fn of_all(inputs: &[SystemColumns]) -> SystemColumns {
    let any = inputs.iter().fold(SystemColumns::NONE, |all, one| all.and(*one));
    let times = [SystemColumn::Ts, SystemColumn::Due].map(SystemColumns::only);
    times.into_iter().fold(any, |any, time| {
        if inputs.iter().all(|one| one.in_both(time) == time) { any } else { any.without(time) }
    })
}

/// A stage goes by event time, and its rows have none.
fn without_event_time(job: &Job, stage: &Stage) -> Fault {
    let mut before = stage.inputs.first().and_then(|input| find(job, &input.value));
    // At most as many steps as stages, in case inputs form a ring.
    for _ in 0..job.stages.len() {
        match before {
            Some(known) if copies(&known.op) => {
                before = known.inputs.first().and_then(|input| find(job, &input.value));
            }
            _ => break,
        }
    }
    if let Some(known) = before.filter(|known| matches!(known.op, Op::CustomTransform { .. })) {
        let message = format!("`{}` hands no event time on, as no operator of a registry does", known.id);
        let help = "give rows their times behind it: an add_timestamps stage, and no `time` on the source";
        return Fault::new(stage.at, message).help(help);
    }
    let what = if matches!(stage.op, Op::Stateful { .. }) { "`ttl`" } else { "a window" };
    let message = format!("{what} counts event time, and the rows of this stage have none");
    Fault::new(stage.at, message).help("set `time` on the source, or put an add_timestamps stage before")
}

/// The system columns that a stage can make: places of rows only of files, where a person can look them up.
fn makes(job: &Job, stage: &Stage) -> SystemColumns {
    let ts = SystemColumns::only(SystemColumn::Ts);
    match &stage.op {
        Op::Source(source) => {
            let file = matches!(source.connector, Some(SourceConnector::File(_)));
            let number = source_number(job, &stage.id).and_then(|number| RowPlace::new(number, 0));
            let at = if number.is_some() && file {
                SystemColumns::only(SystemColumn::At)
            } else {
                SystemColumns::NONE
            };
            let made = at.and(SystemColumns::only(SystemColumn::Due));
            if source.time.is_some() { made.and(ts) } else { made }
        }
        Op::AddTimestamps { .. } => ts,
        Op::Aggregate { .. } | Op::CoAggregate { .. } if window(job, stage).is_some() => ts,
        _ => SystemColumns::NONE,
    }
}

/// A row that comes out is one that went in, or part of one.
fn copies(op: &Op) -> bool {
    hands_on_columns(op)
        || keyed::is_keyed(op)
        || matches!(
            op,
            Op::Map { .. } | Op::FlatMap { .. } | Op::Merge | Op::HashJoin { .. } | Op::UsingService(_)
        )
}

/// Of how many of its inputs, from the first, such an op copies system columns: of a join, whose row is one of
/// the first input's with more columns, only of that.
fn copied_inputs(op: &Op) -> usize {
    if matches!(op, Op::HashJoin { .. }) { 1 } else { usize::MAX }
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
            | Op::Window(_)
            | Op::AddTimestamps { .. }
            | Op::Sort { .. }
            | Op::Distinct { .. }
            | Op::Stateful { shape: StatefulShape::Filter, .. }
    )
}

/// The columns of a stage's output, and the system columns that it reads itself.
fn output(
    job: &Job,
    language: Language,
    stage: &Stage,
    inputs: &[SchemaRef],
    (headers, registered, answer): (Headers<'_>, Registered<'_>, Option<&SchemaRef>),
) -> Result<Option<(SchemaRef, SystemColumns)>, Vec<Fault>> {
    let from_registry = |input, key: &[FieldRef]| {
        let output = registered(Asked { stage, input, key }).map_err(|fault| vec![fault])?;
        output.map(|output| named(stage, output)).transpose()
    };
    let at =
        |can_fail: bool| if can_fail { SystemColumns::only(SystemColumn::At) } else { SystemColumns::NONE };
    if let Op::Source(source) = &stage.op {
        let output = match &source.connector {
            Some(SourceConnector::Registered { .. }) => from_registry(None, &[])?,
            _ => source::output(stage, source, headers)?,
        };
        let Some(output) = output else { return Ok(None) };
        let needs = match &source.time {
            Some(time) => needs_of_time(job, time, &output)?.in_both(makes(job, stage)),
            None => SystemColumns::NONE,
        };
        return Ok(Some((output, needs)));
    }
    let Some(input) = inputs.first() else {
        return Err(vec![Fault::new(stage.at, format!("`{}` needs an input", stage.op.name()))]);
    };
    if let Some(step) = Step::compile(language, stage, input) {
        let step = step?;
        let due = SystemColumns::only(SystemColumn::Due);
        let arrival = if step.reads_arrival() { due } else { SystemColumns::NONE };
        return Ok(Some((SchemaRef::clone(step.output()), at(step.can_fail(input)).and(arrival))));
    }
    if let Some(joined) = joined::output(job, stage, inputs) {
        let windowed = matches!(stage.op, Op::CoAggregate { .. }) && window(job, stage).is_some();
        let ts = if windowed { SystemColumns::only(SystemColumn::Ts) } else { SystemColumns::NONE };
        return joined.map(|(output, can_fail)| Some((output, at(can_fail).and(ts))));
    }
    let missing = |option: &str| vec![Fault::new(stage.at, format!("`{option}` is missing"))];
    let mut needs = SystemColumns::NONE;
    match &stage.op {
        Op::GroupBy { key } if key.is_empty() => return Err(missing("key")),
        Op::Aggregate { compute, .. } if compute.is_empty() => return Err(missing("compute")),
        Op::GroupBy { key } => {
            needs = at(KeyExprs::compile(language, key, input)?.can_fail(input));
        }
        Op::Rebalance(rebalance) => {
            needs = at(KeyExprs::compile(language, &rebalance.key, input)?.can_fail(input));
        }
        Op::Sink(sink) => {
            needs = at(KeyExprs::compile(language, &sink.key, input)?.can_fail(input));
            if let Some(SinkConnector::Ledger { id, .. }) = &sink.connector {
                KeyExprs::compile(language, std::slice::from_ref(id), input)?;
            }
            if let Some(SinkConnector::Registered { .. }) = &sink.connector {
                from_registry(Some(input), &[])?;
            }
        }
        Op::Merge => same_columns(stage, inputs)?,
        Op::Window(window) => {
            WindowSpec::new(window).map_err(|message| vec![Fault::new(stage.at, message)])?;
        }
        Op::AddTimestamps { time: None } => return Err(missing("time")),
        Op::AddTimestamps { time: Some(time) } => needs = needs_of_time(job, time, input)?,
        Op::Aggregate { compute, .. } => {
            let keys = group_key(job, stage);
            if let Some(window) = window(job, stage) {
                if WindowSpec::new(window).is_err() {
                    // The fault was reported at the window.
                    return Err(Vec::new());
                }
                let program =
                    WindowProgram::compile(language, keys, window, compute, input, job.options.on_error)?;
                // Late rows are named by their place.
                let needs = at(true).and(SystemColumns::only(SystemColumn::Ts));
                return Ok(Some((program.final_schema(), needs)));
            }
            let program = AggregateProgram::compile(language, keys, compute, input, job.options.on_error)?;
            return Ok(Some((program.final_schema(), at(program.can_fail(input)))));
        }
        op if keyed::is_keyed(op) => {
            let (output, can_fail) = keyed::output(job, stage, input)?;
            let ttl = matches!(op, Op::Stateful { ttl: Some(_), .. });
            let ts = if ttl { SystemColumns::only(SystemColumn::Ts) } else { SystemColumns::NONE };
            return Ok(Some((output, at(can_fail).and(ts))));
        }
        Op::UsingService(using) => {
            let known = answer.map(|answer| service::output(job, stage, using, (input, answer)));
            return Ok(known.transpose()?.map(|(output, can_fail)| (output, at(can_fail))));
        }
        Op::CustomTransform { .. } => {
            return match grouping(job, stage, input) {
                Ok(key) => Ok(from_registry(Some(input), key.fields())?.map(|output| (output, needs))),
                // What is wrong with a key was said of its `group_by`.
                Err(_) => Ok(None),
            };
        }
        Op::Work(_) | Op::Peek { .. } => {}
        other => return Err(vec![not_yet(stage, other)]),
    }
    Ok(Some((SchemaRef::clone(input), needs)))
}

/// What reads event times of rows with these columns reads itself: places are for those that it cannot read, or
/// that are far ahead.
fn needs_of_time(job: &Job, time: &Time, own: &SchemaRef) -> Result<SystemColumns, Vec<Fault>> {
    let program = StampProgram::compile(Language::of(job), time, own, job.options.on_error)?;
    let at = SystemColumns::only(SystemColumn::At);
    Ok(if program.reads_arrival() { at.and(SystemColumns::only(SystemColumn::Due)) } else { at })
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
    input_key(job, stage, 0).0
}

/// The key that a `group_by` before one of a stage's inputs gives it, empty without one; and a window on the
/// way there.
pub(crate) fn input_key<'a>(
    job: &'a Job,
    stage: &'a Stage,
    position: usize,
) -> (&'a [Text], Option<&'a Stage>) {
    let (mut next, mut key, mut window) = (stage.inputs.get(position), &[][..], None);
    // At most as many steps as stages, in case inputs form a ring.
    for _ in 0..job.stages.len() {
        let Some(input) = next.and_then(|id| find(job, &id.value)) else { break };
        match &input.op {
            Op::GroupBy { key: found } if key.is_empty() => key = found,
            Op::Window(_) => window = Some(input),
            Op::Rebalance(_) | Op::Peek { .. } => {}
            _ => break,
        }
        next = input.inputs.first();
    }
    (key, window)
}

/// That key, compiled; without columns if there is none.
pub(crate) fn grouping(job: &Job, stage: &Stage, input: &SchemaRef) -> Result<KeyExprs, Vec<Fault>> {
    KeyExprs::compile(Language::of(job), group_key(job, stage), input)
}

/// The window that a stage aggregates by: the first one that stands before one of its inputs.
pub(crate) fn window<'a>(job: &'a Job, stage: &'a Stage) -> Option<&'a Window> {
    let found = (0..stage.inputs.len()).find_map(|position| input_key(job, stage, position).1)?;
    if let Op::Window(window) = &found.op { Some(window) } else { None }
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
