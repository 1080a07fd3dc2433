//! `map_stateful`, `filter_stateful`, `flat_map_stateful`: what a key's state becomes with each row, and what
//! the row becomes with it.

mod column;
mod rounds;
mod table;

use std::sync::Arc;
use std::time::Duration;

use datafusion_common::arrow::array::ArrayRef;
use datafusion_common::arrow::compute::filter_record_batch;
use datafusion_common::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::utils::collect_columns;
use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::{OnError, StatefulShape, Text};

use super::rows::{EvalError, Failed, Filter, Projection, eval_column, twice};
use super::unnest::Unnest;
use crate::key::KeyExprs;
use crate::sql::{Compiled, Language, can_fail, sql_name};
use crate::system::{SystemColumns, with_system};

pub use table::{Advanced, StatefulTable};

/// The expressions of a stateful stage, as its entry has them.
#[derive(Debug, Clone, Copy)]
pub struct StatefulTexts<'a> {
    /// Which of the three.
    pub shape: StatefulShape,
    /// First values.
    pub state: &'a [Text],
    /// New values over the row and the old ones.
    pub update: &'a [Text],
    /// `select`, `where` or `unnest` over the row and the new ones.
    pub then: &'a [Text],
}

/// A compiled stateful stage. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StatefulProgram {
    inner: Arc<Inner>,
    /// State of a key that saw no row for so long, in nanoseconds of event time, is dropped.
    ttl: Option<i64>,
}

#[derive(Debug)]
struct Inner {
    /// The key's columns.
    keys: Projection,
    /// Each state's first value: a column of one row.
    first: Vec<ArrayRef>,
    states: Vec<FieldRef>,
    /// The row's columns that `updates` read.
    reads: Vec<usize>,
    /// Over `reads` and the states; `None` for a state that stays as it is.
    updates: Vec<Option<Arc<dyn PhysicalExpr>>>,
    update_input: SchemaRef,
    /// The row's columns, then the states, then system columns.
    then_input: SchemaRef,
    then: Then,
    output: SchemaRef,
    on_error: OnError,
}

/// What a row becomes with what a stage knows beside it.
#[derive(Debug)]
pub(super) enum Then {
    Map(Projection),
    Filter(Filter),
    FlatMap(Unnest),
}

impl Then {
    fn can_fail(&self, input: &SchemaRef) -> bool {
        match self {
            Self::Map(projection) => projection.can_fail(input),
            Self::Filter(filter) => can_fail(filter.predicate(), input),
            Self::FlatMap(unnest) => unnest.can_fail(input),
        }
    }

    /// Copies system columns, which stand behind `width` columns of its input; gives the columns that come
    /// out, where `row` are those of the row alone.
    pub(super) fn carrying(self, width: usize, row: &SchemaRef, system: SystemColumns) -> (Self, SchemaRef) {
        match self {
            Self::Map(projection) => {
                let projection = projection.carrying(width, system);
                let output = Arc::clone(&projection.output);
                (Self::Map(projection), output)
            }
            Self::Filter(filter) => (Self::Filter(filter), with_system(row, system)),
            Self::FlatMap(unnest) => {
                let unnest = unnest.carrying(width, system);
                let output = Arc::clone(&unnest.output);
                (Self::FlatMap(unnest), output)
            }
        }
    }

    /// What becomes of rows: `input` is all that the expressions see, `row` the same rows alone.
    pub(super) fn apply(
        &self,
        input: &RecordBatch,
        row: &RecordBatch,
        failed: &mut Failed,
    ) -> Result<Advanced, EvalError> {
        Ok(match self {
            Self::Map(projection) => Advanced::Rows(projection.eval_into(input, failed)?),
            Self::Filter(filter) => Advanced::Rows(filter_record_batch(row, &filter.mask(input, failed)?)?),
            Self::FlatMap(unnest) => Advanced::Unnest(Box::new(unnest.start_into(input, failed)?)),
        })
    }
}

impl StatefulProgram {
    /// Compiles a stage for the keys' groups; no keys make one group of all rows. `system` columns of the
    /// input are copied.
    pub fn compile(
        language: Language,
        keys: &[Text],
        texts: StatefulTexts<'_>,
        input: &SchemaRef,
        system: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let keys = Projection::new(KeyExprs::compile(language, keys, input)?.into_columns());
        let (first, states) = first_values(language, texts.state, input)?;
        let own = input.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let seen: SchemaRef =
            Arc::new(Schema::new(own.chain(states.iter().cloned()).collect::<Vec<FieldRef>>()));
        let width = input.fields().len();
        let mut faults = Vec::new();
        let mut updates: Vec<Option<(&Text, Compiled)>> = vec![None; states.len()];
        for text in texts.update {
            match update(language, text, &states, &seen) {
                Ok((state, _)) if updates[state].is_some() => {
                    faults.push(Fault::new(text.at, format!("`{}` is updated twice", states[state].name())));
                }
                Ok((state, compiled)) => updates[state] = Some((text, compiled)),
                Err(fault) => faults.push(fault),
            }
        }
        let then = then(language, texts, &seen, width).map_err(|found| faults.extend(found));
        let Ok(then) = then else { return Err(faults) };
        if !faults.is_empty() {
            return Err(faults);
        }
        let (reads, update_input) = narrow(&updates, &seen, width);
        let over_fewer = |update: Option<(&Text, Compiled)>| match update {
            // The same text over fewer columns.
            Some((text, _)) => language.compile(text, &update_input).map(|compiled| Some(compiled.expr)),
            None => Ok(None),
        };
        let updates = updates
            .into_iter()
            .map(over_fewer)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|fault| vec![fault])?;
        let inputs = seen.fields().len();
        let (then, output) = then.carrying(inputs, input, system);
        let then_input = with_system(&seen, system);
        let inner =
            Inner { keys, first, states, reads, updates, update_input, then_input, then, output, on_error };
        Ok(Self { inner: Arc::new(inner), ttl: None })
    }

    /// Drops the state of a key that saw no row for so long; rows have event times then.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl.map(|ttl| i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX));
        self
    }

    /// The columns that come out, system columns included.
    pub fn output(&self) -> &SchemaRef {
        &self.inner.output
    }

    /// The key's columns.
    pub(crate) fn key_fields(&self) -> &[FieldRef] {
        self.inner.keys.output.fields()
    }

    /// The columns of the states.
    pub(crate) fn state_fields(&self) -> &[FieldRef] {
        &self.inner.states
    }

    /// Whether some row of `input` can be one that an expression cannot take.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        let inner = &self.inner;
        let updates = inner.updates.iter().zip(&inner.states).filter_map(|(u, s)| Some((u.as_ref()?, s)));
        let mut updates = updates.map(|(expr, state)| {
            let same = expr.data_type(&inner.update_input).is_ok_and(|kind| kind == *state.data_type());
            !same || can_fail(expr, &inner.update_input)
        });
        updates.any(|fails| fails) || inner.keys.can_fail(input) || inner.then.can_fail(&inner.then_input)
    }
}

/// `state`: each expression without columns, computed once.
fn first_values(
    language: Language,
    texts: &[Text],
    input: &SchemaRef,
) -> Result<(Vec<ArrayRef>, Vec<FieldRef>), Vec<Fault>> {
    let nothing: SchemaRef = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let one_row = RecordBatch::try_new_with_options(Arc::clone(&nothing), Vec::new(), &options);
    let (mut first, mut states, mut faults) = (Vec::new(), Vec::<FieldRef>::new(), Vec::new());
    for text in texts {
        let compiled = match language.compile(text, &nothing) {
            Ok(compiled) => compiled,
            Err(fault) if fault.message.starts_with("no column") => {
                faults.push(fault.help("a first value is there before any row: write a constant"));
                continue;
            }
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let name = compiled.field.name();
        if name == text.value.trim() {
            let message = format!("the state `{name}` has no name of its own");
            faults.push(Fault::new(text.at, message).help("name it with `as`"));
        } else if input.column_with_name(name).is_some() {
            let message = format!(
                "the state `{name}` is called as a column of the row, so that an expression could mean either"
            );
            faults.push(Fault::new(text.at, message).help("name the state otherwise with `as`"));
        } else if states.iter().any(|state| state.name() == name) {
            faults.push(twice(text, name));
        }
        let value = one_row.as_ref().map_err(ToString::to_string).and_then(|row| {
            eval_column(&compiled.expr, &compiled.field, row, &mut Failed::new(OnError::Fail))
                .map_err(|error| error.message)
        });
        match value {
            Ok(value) => first.push(value),
            Err(message) => {
                faults.push(Fault::new(text.at, format!("`{}`: {message}", text.value.trim())));
            }
        }
        states.push(compiled.field);
    }
    if faults.is_empty() { Ok((first, states)) } else { Err(faults) }
}

/// One entry of `update`, and the state that it belongs to.
fn update(
    language: Language,
    text: &Text,
    states: &[FieldRef],
    seen: &SchemaRef,
) -> Result<(usize, Compiled), Fault> {
    let compiled = language.compile(text, seen)?;
    let name = compiled.field.name();
    let Some(state) = states.iter().position(|state| state.name() == name) else {
        let names: Vec<&str> = states.iter().map(|state| state.name().as_str()).collect();
        let hint = suggestion(name, names.iter().copied())
            .map_or(String::new(), |known| format!("; did you mean `{known}`?"));
        let message = format!("`update` gives `{name}`, which is no state{hint}");
        return Err(Fault::new(text.at, message).help(format!("states: {}", names.join(", "))));
    };
    let (from, to) = (compiled.field.data_type(), states[state].data_type());
    if !becomes(from, to) {
        let (from, to) = (sql_name(from), sql_name(to));
        let message = format!("`update` makes `{name}` {from}, and its first value is {to}");
        let help = format!("write cast(.. as {to}) here, or cast(.. as {from}) in `state`");
        return Err(Fault::new(text.at, message).help(help));
    }
    Ok((state, compiled))
}

/// A value of one type may become one of another without being written as a cast: nothing is cut off or
/// reinterpreted. An integer that does not fit is an error of its row.
fn becomes(from: &DataType, to: &DataType) -> bool {
    let decimal = |kind: &DataType| matches!(kind, DataType::Decimal128(..) | DataType::Decimal256(..));
    from == to
        || from.is_integer() && (to.is_integer() || to.is_floating() || decimal(to))
        || from.is_floating() && to.is_floating()
        || decimal(from) && to.is_floating()
        || matches!((from, to), (DataType::Date32, DataType::Timestamp(..)))
}

/// `select`, `where` or `unnest` over the row and what stands behind its `width` columns.
pub(super) fn then(
    language: Language,
    texts: StatefulTexts<'_>,
    seen: &SchemaRef,
    width: usize,
) -> Result<Then, Vec<Fault>> {
    match (texts.shape, texts.then) {
        // `*` is the row without its state.
        (StatefulShape::Map, select) => {
            Projection::compile_over(language, select, seen, width).map(Then::Map)
        }
        (StatefulShape::Filter | StatefulShape::FlatMap, [_, second, ..]) => {
            let message = "one expression stands here, and this is another one";
            Err(vec![Fault::new(second.at, message).help("put it into a stage of its own")])
        }
        (StatefulShape::Filter, [predicate]) => {
            Filter::compile(language, predicate, seen).map(Then::Filter).map_err(|fault| vec![fault])
        }
        (StatefulShape::FlatMap, [list]) => Unnest::compile(language, list, seen)
            .map(|unnest| Then::FlatMap(unnest.keeping_first(seen, width)))
            .map_err(|fault| vec![fault]),
        // The caller has said what is missing.
        _ => Err(Vec::new()),
    }
}

/// The row's columns that updates read, and these with the states: a round is one evaluation over as little
/// as it needs.
fn narrow(updates: &[Option<(&Text, Compiled)>], seen: &SchemaRef, width: usize) -> (Vec<usize>, SchemaRef) {
    let mut reads: Vec<usize> = updates
        .iter()
        .flatten()
        .flat_map(|(_, update)| collect_columns(&update.expr))
        .map(|column| column.index())
        .filter(|index| *index < width)
        .collect();
    reads.sort_unstable();
    reads.dedup();
    let fields = reads.iter().copied().chain(width..seen.fields().len());
    let schema = Schema::new(fields.map(|index| Arc::clone(&seen.fields()[index])).collect::<Vec<_>>());
    (reads, Arc::new(schema))
}
