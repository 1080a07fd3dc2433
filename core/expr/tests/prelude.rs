//! Short ways to say schemas, batches and jobs.

use std::sync::Arc;

use tuplane_core::fault::At;
use tuplane_core::job::{
    Generator, GeneratorKind, Job, OnError, Op, Options, Sink, SinkConnector, SinkKind, Source,
    SourceConnector, SourceKind, Stage, Text, Timestamps,
};
use tuplane_expr::arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use tuplane_expr::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use tuplane_expr::arrow::record_batch::RecordBatch;
use tuplane_expr::arrow::util::display::{ArrayFormatter, FormatOptions};
use tuplane_expr::{AggregateProgram, Determinism, GroupTable, Language, WhenEmpty};

pub(crate) fn language() -> Language {
    Language::new(Determinism::Required)
}

pub(crate) fn text(value: &str) -> Text {
    Text::nowhere(value.to_owned())
}

pub(crate) fn texts(values: &[&str]) -> Vec<Text> {
    values.iter().map(|value| text(value)).collect()
}

pub(crate) fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let fields: Vec<Field> =
        columns.iter().map(|(name, kind)| Field::new(*name, kind.clone(), true)).collect();
    Arc::new(Schema::new(fields))
}

pub(crate) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let kinds: Vec<(&str, DataType)> =
        columns.iter().map(|(name, column)| (*name, column.data_type().clone())).collect();
    RecordBatch::try_new(schema(&kinds), columns.into_iter().map(|(_, column)| column).collect()).unwrap()
}

pub(crate) fn strings<'a>(values: impl IntoIterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

pub(crate) fn some_strings(values: &[&str]) -> ArrayRef {
    strings(values.iter().map(|value| Some(*value)))
}

pub(crate) fn integers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

pub(crate) fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

pub(crate) fn integer_column(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect()
}

pub(crate) fn text_column(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().map(|v| v.map(str::to_owned)).collect()
}

/// Every row as text, `-` for null.
pub(crate) fn rows(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("-");
    let columns: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|c| c.value(row).to_string()).collect::<Vec<_>>().join(" "))
        .collect()
}

pub(crate) fn sorted_rows<'a>(batches: impl IntoIterator<Item = &'a RecordBatch>) -> Vec<String> {
    let mut all: Vec<String> = batches.into_iter().flat_map(rows).collect();
    all.sort();
    all
}

pub(crate) fn program(keys: &[&str], compute: &[&str], input: &SchemaRef) -> AggregateProgram {
    AggregateProgram::compile(language(), &texts(keys), &texts(compute), input, OnError::Fail).unwrap()
}

pub(crate) fn table(program: &AggregateProgram, partitions: u16) -> GroupTable {
    GroupTable::new(program.clone(), partitions, WhenEmpty::Nothing).unwrap()
}

pub(crate) fn finals(table: &mut GroupTable) -> Vec<RecordBatch> {
    std::iter::from_fn(|| table.emit_final(8192)).collect::<Result<_, _>>().unwrap()
}

pub(crate) fn partials(table: &mut GroupTable) -> Vec<RecordBatch> {
    std::iter::from_fn(|| table.emit_partial(8192)).collect::<Result<_, _>>().unwrap()
}

pub(crate) fn stage(id: &str, op: Op, inputs: &[&str]) -> Stage {
    Stage {
        id: id.to_owned(),
        at: At::default(),
        op,
        inputs: texts(inputs),
        name: None,
        parallelism: None,
        instances: None,
    }
}

pub(crate) fn source(connector: SourceConnector) -> Op {
    Op::Source(Source {
        kind: SourceKind::Batch,
        distributed: true,
        timestamps: Timestamps::None,
        connector: Some(connector),
        time: None,
        on: Vec::new(),
        rate: None,
        max_row: None,
        window: None,
        predictor: None,
    })
}

pub(crate) fn words_source() -> Op {
    let kind = GeneratorKind::Words { words: 100, exponent: 1.0, per_line: 5 };
    source(SourceConnector::Generator(Generator { kind, n: Some(10), seed: 1 }))
}

pub(crate) fn count_sink() -> Op {
    Op::Sink(Sink {
        kind: SinkKind::Default,
        key: Vec::new(),
        preferred_parallelism: None,
        connector: Some(SinkConnector::Count),
    })
}

pub(crate) fn map(select: &[&str]) -> Op {
    Op::Map { select: texts(select) }
}

pub(crate) fn job(stages: Vec<Stage>) -> Job {
    Job { name: "test".to_owned(), options: Options::default(), stages, routes: Vec::new() }
}
