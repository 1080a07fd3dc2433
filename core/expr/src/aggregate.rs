//! Aggregates: what `compute` means, and the rows that go in and come out.

mod adapter;
mod co;
mod count;
mod distinct;
mod extreme;
mod keys;
mod running;
mod sum;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::ArrayRef;
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchemaRef, Result as DfResult};
use datafusion_expr::expr::{AggregateFunction, NullTreatment};
use datafusion_expr::{Expr, utils::find_aggregate_exprs};
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion_physical_expr::expressions::{Column as PhysicalColumn, Literal};
use datafusion_physical_expr::{PhysicalExpr, PhysicalSortExpr};
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Text};

use crate::key::KeyExprs;
use crate::program::{Projection, twice};
use crate::sql::{Allowed, Compiled, Language, Planned, logical};
pub use co::AggregateInput;
pub(crate) use keys::{KeyForm, KeyTable, one_float_form};
pub(crate) use running::{Refused, Wanted};
pub(crate) use table::Scratch;
pub use table::{
    GroupTable, RollingProgram, RollingTable, WhenEmpty, WindowPart, WindowProgram, WindowTable,
};

/// Rows of a batch, and the group that each belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) rows: &'a [u32],
    pub(crate) groups: &'a [u32],
}

impl Rows<'_> {
    /// `(row, group)`, as indices.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.rows.iter().zip(self.groups).map(|(row, group)| (*row as usize, *group as usize))
    }
}

/// One aggregate over many groups, which are numbered from 0.
///
/// `value` and `save` change nothing; what was saved and loaded goes on as if nothing had happened.
pub(crate) trait Accumulator: Send {
    /// Makes room: groups from the old number up are new and empty.
    fn resize(&mut self, groups: usize);

    /// Takes in rows of the arguments' columns.
    fn update(&mut self, arguments: &[ArrayRef], rows: Rows<'_>) -> DfResult<()>;

    /// Takes in rows one after another, but for those that `wanted` leaves out, and gives the value after
    /// each: a column of type `kind`. A row whose value cannot be given is null and goes to `refused`.
    fn running(
        &mut self,
        arguments: &[ArrayRef],
        rows: Rows<'_>,
        wanted: Wanted<'_>,
        kind: &DataType,
        refused: &mut Vec<Refused>,
    ) -> DfResult<ArrayRef> {
        running::one_by_one(self, arguments, rows, wanted, kind, refused)
    }

    /// Takes in rows of saved state.
    fn merge(&mut self, state: &[ArrayRef], rows: Rows<'_>) -> DfResult<()>;

    /// The results of some groups.
    fn value(&self, groups: Range<usize>) -> DfResult<ArrayRef>;

    /// The state of some groups, as columns.
    fn save(&self, groups: Range<usize>) -> DfResult<Vec<ArrayRef>>;

    /// Memory in use.
    fn bytes(&self) -> usize;
}

/// A compiled aggregate stage. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AggregateProgram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Of rows of the first input, which most have alone: key columns, then what the aggregates read.
    input: Projection,
    /// The inputs after the first.
    more: Vec<Side>,
    keys: usize,
    aggregates: Vec<Aggregate>,
    /// Over key columns and the aggregates' values: what `compute` says.
    output: Projection,
    /// Key columns, then one column an aggregate.
    values: SchemaRef,
    partial: SchemaRef,
    on_error: OnError,
}

/// An input after the first of an aggregate over several.
#[derive(Debug)]
struct Side {
    /// As for the first one.
    input: Projection,
    /// The first of its aggregates.
    first: usize,
}

impl Inner {
    /// What the rows of an input are read by, and the aggregates that read them.
    fn side(&self, input: usize) -> (&Projection, Range<usize>) {
        let first = |side: usize| self.more.get(side).map_or(self.aggregates.len(), |side| side.first);
        match input.checked_sub(1).and_then(|more| Some((more, self.more.get(more)?))) {
            Some((more, side)) => (&side.input, side.first..first(more + 1)),
            None => (&self.input, 0..first(0)),
        }
    }
}

/// One aggregate function and what it reads.
#[derive(Debug)]
struct Aggregate {
    kind: Kind,
    /// Its columns in the projected input.
    arguments: Range<usize>,
    /// The column of `filter (where ..)`.
    filter: Option<usize>,
    state: Vec<FieldRef>,
}

/// How it is computed.
#[derive(Debug)]
enum Kind {
    CountRows,
    CountValues,
    CountDistinct(DataType),
    ExactSum(sum::Exact),
    FloatSum,
    Average,
    Extreme(extreme::Side, DataType),
    /// `DataFusion`'s own.
    Adapted(Arc<AggregateFunctionExpr>),
}

impl Aggregate {
    /// Its value can be one that its type does not hold.
    fn can_outgrow(&self) -> bool {
        matches!(self.kind, Kind::ExactSum(_) | Kind::Adapted(_))
    }

    fn accumulator(&self) -> DfResult<Box<dyn Accumulator>> {
        Ok(match &self.kind {
            Kind::CountRows => Box::new(count::Count::rows()),
            Kind::CountValues => Box::new(count::Count::values()),
            Kind::CountDistinct(data_type) => Box::new(distinct::CountDistinct::new(data_type)?),
            Kind::ExactSum(exact) => Box::new(sum::ExactSum::new(*exact)),
            Kind::FloatSum => Box::new(sum::FloatSum::default()),
            Kind::Average => Box::new(sum::Average::default()),
            Kind::Extreme(side, data_type) => extreme::accumulator(*side, data_type)?,
            Kind::Adapted(function) => Box::new(adapter::Adapted::new(Arc::clone(function))),
        })
    }
}

impl AggregateProgram {
    /// Compiles `compute` for the groups that `keys` make; no keys make one group of all rows.
    pub fn compile(
        language: Language,
        keys: &[Text],
        compute: &[Text],
        input: &SchemaRef,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let keys = KeyExprs::compile(language, keys, input)?.into_columns();
        let mut compiler = Compiler::new(language, keys, input, 0).map_err(|fault| vec![fault])?;
        let planned = compiler.plan_all(compute, &mut Vec::new())?;
        finish(vec![(compiler, planned)], on_error)
    }

    /// Whether some row of `input` can be one that a key or an argument cannot take.
    pub(crate) fn can_fail(&self, input: &SchemaRef) -> bool {
        self.inner.input.can_fail(input)
    }

    /// How many key columns lead a row, partial or final.
    pub fn keys(&self) -> usize {
        self.inner.keys
    }

    /// Columns of a partial result: the key columns, then the aggregates' states.
    pub fn partial_schema(&self) -> SchemaRef {
        Arc::clone(&self.inner.partial)
    }

    /// Columns of a result: the key columns, then what `compute` names.
    pub fn final_schema(&self) -> SchemaRef {
        Arc::clone(&self.inner.output.output)
    }
}

/// Compiles what one input's rows go into.
struct Compiler {
    language: Language,
    logical: DFSchemaRef,
    keys: usize,
    columns: Vec<Compiled>,
    /// The number of its first call among those of all inputs.
    first: usize,
    /// Aggregate calls met so far; the same call twice is computed once.
    calls: Vec<Expr>,
    aggregates: Vec<Aggregate>,
    /// Key columns, then one column a call.
    values: Vec<FieldRef>,
}

impl Compiler {
    fn new(language: Language, keys: Vec<Compiled>, input: &SchemaRef, first: usize) -> Result<Self, Fault> {
        let logical = logical(input).map_err(|error| {
            Fault::new(tuplane_core::fault::At::default(), crate::sql::plain_message(&error))
        })?;
        Ok(Self {
            language,
            logical,
            keys: keys.len(),
            values: keys.iter().map(|c| FieldRef::clone(&c.field)).collect(),
            columns: keys,
            first,
            calls: Vec::new(),
            aggregates: Vec::new(),
        })
    }

    /// Plans all texts; `names` are those of the columns that other inputs give.
    fn plan_all<'a>(
        &mut self,
        compute: &'a [Text],
        names: &mut Vec<String>,
    ) -> Result<Vec<(&'a Text, Planned)>, Vec<Fault>> {
        let (mut planned, mut faults) = (Vec::new(), Vec::new());
        for text in compute {
            match self.plan(text) {
                Ok(one) => {
                    let key = self.values[..self.keys].iter().any(|k| *k.name() == one.name);
                    if key || names.contains(&one.name) {
                        faults.push(twice(text, &one.name));
                    }
                    names.push(one.name.clone());
                    planned.push((text, one));
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(planned) } else { Err(faults) }
    }

    /// Plans one text and adds its aggregate calls; they become columns in the planned expression.
    fn plan(&mut self, text: &Text) -> Result<Planned, Fault> {
        let Planned { name, expr } = self.language.plan(text, &self.logical, Allowed::Aggregates)?;
        let calls = find_aggregate_exprs([&expr]);
        if calls.is_empty() {
            let message = format!("`{}` has no aggregate, such as count(*) or sum(x)", text.value.trim());
            return Err(Fault::new(text.at, message).help("keys are in the result without being named"));
        }
        for call in calls {
            if !self.calls.contains(&call) {
                self.add(text, &call)?;
                self.calls.push(call);
            }
        }
        let expr = expr
            .transform_down(|node| {
                Ok(match self.calls.iter().position(|call| *call == node) {
                    Some(call) => {
                        let column = Expr::Column(Column::new_unqualified(value_name(self.first + call)));
                        Transformed::new(column, true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::no(node),
                })
            })
            .data()
            .map_err(|error| crate::sql::fault_of(text, &error))?;
        Ok(Planned { name, expr })
    }

    /// The number of the next call among those of all inputs.
    fn next(&self) -> usize {
        self.first + self.calls.len()
    }

    /// Adds one aggregate call.
    fn add(&mut self, text: &Text, call: &Expr) -> Result<(), Fault> {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = call else { return Ok(()) };
        let fault = |message: &str| Fault::new(text.at, format!("`{}`: {message}", text.value.trim()));
        let nested = params.args.iter().chain(params.filter.as_deref());
        if !find_aggregate_exprs(nested).is_empty() {
            return Err(fault("an aggregate cannot stand inside an aggregate"));
        }
        let percentile = func.supports_within_group_clause();
        if !params.order_by.is_empty() && !percentile {
            return Err(fault("`order by` inside an aggregate is not available"));
        }
        let start = self.columns.len();
        let rows_only = func.name() == "count"
            && !params.distinct
            && matches!(&params.args[..], [Expr::Literal(value, _)] if !value.is_null());
        let mut arguments: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
        for (position, argument) in params.args.iter().enumerate() {
            let name = format!("#{}.{position}", self.next());
            let one = self.language.native(text, name, argument.clone(), &self.logical)?;
            arguments.push(if one.expr.downcast_ref::<Literal>().is_some() {
                // Some functions look at their constant arguments once and for all.
                Arc::clone(&one.expr)
            } else {
                Arc::new(PhysicalColumn::new(one.field.name(), self.columns.len()))
            });
            if !rows_only {
                self.columns.push(one);
            }
        }
        let end = self.columns.len();
        let filter = match &params.filter {
            Some(filter) => {
                let name = format!("#{}.where", self.next());
                let one = self.language.native(text, name, (**filter).clone(), &self.logical)?;
                if *one.field.data_type() != DataType::Boolean {
                    return Err(fault("`filter (where ..)` needs true or false"));
                }
                self.columns.push(one);
                Some(end)
            }
            None => None,
        };
        let schema = Schema::new(self.columns.iter().map(|c| FieldRef::clone(&c.field)).collect::<Vec<_>>());
        let mut order = Vec::new();
        if let ([sort], Some(first)) = (&params.order_by[..], arguments.first()) {
            let mut by = PhysicalSortExpr::new_default(Arc::clone(first));
            by.options.descending = !sort.asc;
            by.options.nulls_first = sort.nulls_first;
            order.push(by);
        }
        let function = AggregateExprBuilder::new(Arc::clone(func), arguments)
            .schema(Arc::new(schema))
            .alias(value_name(self.next()))
            .order_by(order)
            .with_distinct(params.distinct)
            .with_ignore_nulls(params.null_treatment == Some(NullTreatment::IgnoreNulls))
            .build()
            .map_err(|error| crate::sql::fault_of(text, &error))?;
        let types: Vec<&DataType> = self.columns[start..end].iter().map(|c| c.field.data_type()).collect();
        let kind = kind(&types, rows_only, function);
        let output = kind.output();
        let state = kind.state(self.next()).map_err(|error| crate::sql::fault_of(text, &error))?;
        self.values.push(Arc::new(Field::new(value_name(self.next()), output, true)));
        if let Kind::Adapted(function) = &kind {
            // Some let pass what no accumulator takes, such as two arguments of a count of distinct ones.
            function.create_accumulator().map_err(|error| crate::sql::fault_of(text, &error))?;
        }
        self.aggregates.push(Aggregate { kind, arguments: start..end, filter, state });
        Ok(())
    }
}

/// Puts together what the inputs' rows go into; their keys have the same names and types.
fn finish(
    sides: Vec<(Compiler, Vec<(&Text, Planned)>)>,
    on_error: OnError,
) -> Result<AggregateProgram, Vec<Fault>> {
    let Some((first, _)) = sides.first() else { return Err(Vec::new()) };
    let (language, keys) = (first.language, first.keys);
    let calls = sides.iter().flat_map(|(side, _)| side.values[keys..].iter().cloned());
    let values: SchemaRef =
        Arc::new(Schema::new(first.values[..keys].iter().cloned().chain(calls).collect::<Vec<_>>()));
    let mut output: Vec<Compiled> = (0..keys).map(|index| crate::program::column(&values, index)).collect();
    let (mut inputs, mut aggregates, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (side, planned) in sides {
        for (text, one) in planned {
            match over_values(language, text, one, &values) {
                Ok(compiled) => output.push(compiled),
                Err(fault) => faults.push(fault),
            }
        }
        inputs.push(Side { input: Projection::new(side.columns), first: aggregates.len() });
        aggregates.extend(side.aggregates);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let states = aggregates.iter().flat_map(|a: &Aggregate| a.state.iter().cloned());
    let partial = values.fields()[..keys].iter().cloned().chain(states).collect::<Vec<_>>();
    let more = inputs.split_off(1);
    let Some(Side { input, .. }) = inputs.pop() else { return Err(Vec::new()) };
    let (output, partial) = (Projection::new(output), Arc::new(Schema::new(partial)));
    let inner = Inner { input, more, keys, aggregates, output, values, partial, on_error };
    Ok(AggregateProgram { inner: Arc::new(inner) })
}

/// Makes an expression over aggregates runnable.
fn over_values(
    language: Language,
    text: &Text,
    planned: Planned,
    values: &SchemaRef,
) -> Result<Compiled, Fault> {
    if let Some(column) = planned.expr.column_refs().into_iter().find(|c| values.index_of(c.name()).is_err())
    {
        let message = format!("`{}` is neither a key nor inside an aggregate", column.name());
        return Err(Fault::new(text.at, message)
            .help("a group has many rows; take one value with first_value, min or max"));
    }
    let schema = logical(values).map_err(|error| crate::sql::fault_of(text, &error))?;
    let planned = Planned { expr: language.coerce(text, planned.expr, &schema)?, ..planned };
    language.lower(text, planned, &schema)
}

/// The inner name of an aggregate's value; a column of a job cannot be spelled so without quotes.
fn value_name(call: usize) -> String {
    format!("#{call}")
}

/// Chooses our own implementation where there is one.
fn kind(arguments: &[&DataType], rows_only: bool, function: AggregateFunctionExpr) -> Kind {
    let output = function.field().data_type().clone();
    let distinct = function.is_distinct();
    match (function.fun().name(), arguments) {
        ("count", []) if rows_only => Kind::CountRows,
        ("count", [_]) if !distinct => Kind::CountValues,
        ("count", [one]) if distinct::supports(one) => Kind::CountDistinct((*one).clone()),
        ("sum", [one]) if !distinct && sum::Exact::of(one, &output).is_some() => {
            sum::Exact::of(one, &output).map_or(Kind::FloatSum, Kind::ExactSum)
        }
        ("sum", [DataType::Float64]) if !distinct => Kind::FloatSum,
        ("avg", [DataType::Float64]) if !distinct => Kind::Average,
        ("min", [one]) if extreme::supports(one) => Kind::Extreme(extreme::Side::Least, (*one).clone()),
        ("max", [one]) if extreme::supports(one) => Kind::Extreme(extreme::Side::Greatest, (*one).clone()),
        _ => Kind::Adapted(Arc::new(function)),
    }
}

impl Kind {
    fn output(&self) -> DataType {
        match self {
            Self::CountRows | Self::CountValues | Self::CountDistinct(_) => DataType::Int64,
            Self::ExactSum(exact) => exact.output(),
            Self::FloatSum | Self::Average => DataType::Float64,
            Self::Extreme(_, data_type) => data_type.clone(),
            Self::Adapted(function) => function.field().data_type().clone(),
        }
    }

    fn state(&self, call: usize) -> DfResult<Vec<FieldRef>> {
        let types = match self {
            Self::CountRows | Self::CountValues => vec![DataType::Int64],
            Self::CountDistinct(data_type) => vec![distinct::state(data_type)],
            Self::ExactSum(exact) => vec![exact.state()],
            Self::FloatSum => vec![DataType::Float64],
            Self::Average => vec![DataType::Float64, DataType::Int64],
            Self::Extreme(_, data_type) => vec![data_type.clone()],
            Self::Adapted(function) => {
                function.state_fields()?.into_iter().map(|f| f.data_type().clone()).collect()
            }
        };
        let field = |(part, data_type)| Arc::new(Field::new(format!("#{call}.{part}"), data_type, true));
        Ok(types.into_iter().enumerate().map(field).collect())
    }
}
