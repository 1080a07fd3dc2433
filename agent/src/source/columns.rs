//! Rows of text or JSON values become typed columns; rows that do not fit their types are named.

use std::ops::Range;
use std::sync::Arc;

use tuplane_core::job::FileSource;
use tuplane_core::place::{RowPlace, SourcePlaces};
use tuplane_expr::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, BooleanBuilder, Float64Builder, Int64Builder, ListArray,
    RecordBatch, StringArray, StringBuilder, UInt64Array,
};
use tuplane_expr::arrow::buffer::{NullBuffer, OffsetBuffer};
use tuplane_expr::arrow::compute::{CastOptions, cast_with_options, filter_record_batch, nullif};
use tuplane_expr::arrow::datatypes::{DataType, Float64Type, SchemaRef};
use tuplane_expr::arrow::util::display::array_value_to_string;
use tuplane_expr::system::{SystemColumn, SystemColumns, with_system};
use tuplane_expr::types::is_readable;

use super::SourceError;

/// A value of a JSON object, text as a range of a string beside it.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    Null,
    Text(Range<usize>),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A range of the values beside it, none of them a list.
    List(Range<usize>),
}

/// What JSON values a column takes, or the lists of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Bool,
    Int,
    Float,
    Text,
    /// Numbers as they are written, and their texts, cast to the column's type at the end of the batch.
    Number,
    /// Texts, cast likewise.
    Cast,
}

/// A row that was left out of a batch.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Line within the split.
    pub(super) line: u64,
    /// Column and value.
    pub(super) why: String,
}

enum Builder {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    Text(StringBuilder),
    Cast(StringBuilder),
    List(Box<ListBuilder>),
}

/// Lists in the making: all their values one after another, and how many each list has.
struct ListBuilder {
    values: Builder,
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

/// A value that has not its column's type: where it stands in the column, and its text.
type Unfit = (usize, String);

impl Builder {
    fn new(takes: Takes) -> Self {
        match takes {
            Takes::Bool => Self::Bool(BooleanBuilder::new()),
            Takes::Int => Self::Int(Int64Builder::new()),
            Takes::Float => Self::Float(Float64Builder::new()),
            Takes::Text => Self::Text(StringBuilder::new()),
            Takes::Number | Takes::Cast => Self::Cast(StringBuilder::new()),
        }
    }

    fn list_of(takes: Takes) -> Self {
        Self::List(Box::new(ListBuilder { values: Self::new(takes), lengths: Vec::new(), valid: Vec::new() }))
    }

    /// Appends a cell that fits; gives its bytes.
    fn push(&mut self, cell: &Cell, of: Cells<'_>) -> usize {
        match (&mut *self, cell) {
            (Self::Bool(builder), Cell::Bool(value)) => builder.append_value(*value),
            (Self::Int(builder), Cell::Int(value)) => builder.append_value(*value),
            (Self::Float(builder), Cell::Float(value)) => builder.append_value(*value),
            (Self::Float(builder), Cell::Int(value)) => builder.append_value(*value as f64),
            (Self::Text(builder) | Self::Cast(builder), Cell::Text(range)) => {
                builder.append_value(&of.texts[range.clone()]);
                return range.len();
            }
            (Self::List(list), Cell::List(range)) => {
                list.lengths.push(range.len());
                list.valid.push(true);
                let items = of.items[range.clone()].iter();
                return 8 + items.map(|item| list.values.push(item, of)).sum::<usize>();
            }
            (Self::Bool(builder), _) => builder.append_null(),
            (Self::Int(builder), _) => builder.append_null(),
            (Self::Float(builder), _) => builder.append_null(),
            (Self::Text(builder) | Self::Cast(builder), _) => builder.append_null(),
            (Self::List(list), _) => {
                list.lengths.push(0);
                list.valid.push(false);
            }
        }
        8
    }

    /// The column so far; what does not fit its type is null in it and said in `unfit`.
    fn finish(&mut self, data_type: &DataType, unfit: &mut Vec<Unfit>) -> Result<ArrayRef, SourceError> {
        Ok(match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => narrowed(Arc::new(builder.finish()), data_type, unfit)?,
            Self::Float(builder) => narrowed(Arc::new(builder.finish()), data_type, unfit)?,
            Self::Text(builder) => Arc::new(builder.finish()),
            Self::Cast(builder) => {
                let texts = builder.finish();
                let options = CastOptions { safe: true, ..CastOptions::default() };
                let column = finite(&texts, cast_with_options(&texts, data_type, &options)?)?;
                if column.null_count() > texts.null_count() {
                    let lost = (0..texts.len()).filter(|row| column.is_null(*row) && texts.is_valid(*row));
                    unfit.extend(lost.map(|row| (row, shortened(texts.value(row)))));
                }
                column
            }
            Self::List(list) => {
                let DataType::List(item) = data_type else {
                    return Err(SourceError::Refused(format!("lists cannot be read as {data_type}")));
                };
                let mut within = Vec::new();
                let values = list.values.finish(item.data_type(), &mut within)?;
                let offsets = OffsetBuffer::<i32>::from_lengths(std::mem::take(&mut list.lengths));
                // The list that holds a value is the last that begins at or before it; empty ones begin there too.
                let holder = |value: usize| offsets.partition_point(|start| *start as usize <= value) - 1;
                unfit.extend(within.into_iter().map(|(value, text)| (holder(value), text)));
                let nulls = NullBuffer::from(std::mem::take(&mut list.valid));
                Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, Some(nulls))?)
            }
        })
    }

    fn discard(&mut self) {
        match self {
            Self::Bool(builder) => drop(builder.finish()),
            Self::Int(builder) => drop(builder.finish()),
            Self::Float(builder) => drop(builder.finish()),
            Self::Text(builder) | Self::Cast(builder) => drop(builder.finish()),
            Self::List(list) => {
                list.values.discard();
                list.lengths.clear();
                list.valid.clear();
            }
        }
    }
}

/// What the ranges of a row's cells are ranges of.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    /// The texts, one after another.
    pub(super) texts: &'a str,
    /// Values of lists, one list after another.
    pub(super) items: &'a [Cell],
}

/// Rows carry the place where they entered, in a column of its own behind the others.
struct Marks {
    places: SourcePlaces,
    /// The split whose lines the rows are; `None` where its number is too large for a place.
    split: Option<RowPlace>,
    /// All columns.
    schema: SchemaRef,
}

/// Columns of a batch in the making.
pub(super) struct Columns {
    schema: SchemaRef,
    builders: Vec<Builder>,
    /// What each column takes, and whether it takes lists of that.
    takes: Vec<(Takes, bool)>,
    /// Types as the job file names them, for messages.
    types: Vec<String>,
    /// Line of each row, kept only where a cast can still fail or rows are marked with it.
    lines: Vec<u64>,
    /// A cast can.
    casts: bool,
    marks: Option<Marks>,
    rows: usize,
    bytes: usize,
}

impl Columns {
    /// Columns filled from texts: all but text itself are cast at the end of a batch.
    pub(super) fn from_texts(schema: &SchemaRef, source: &FileSource) -> Result<Self, SourceError> {
        Self::new(schema, source, |data_type| match data_type {
            DataType::Utf8 => Takes::Text,
            _ => Takes::Cast,
        })
    }

    /// Columns filled from JSON values. Numbers of all widths are read by the same rule, and narrowed at the end
    /// of a batch.
    pub(super) fn from_json(schema: &SchemaRef, source: &FileSource) -> Result<Self, SourceError> {
        Self::new(schema, source, |data_type| match data_type {
            DataType::Boolean => Takes::Bool,
            DataType::Utf8 => Takes::Text,
            whole if whole.is_integer() => Takes::Int,
            float if float.is_floating() => Takes::Float,
            number if number.is_numeric() => Takes::Number,
            _ => Takes::Cast,
        })
    }

    fn new(
        schema: &SchemaRef,
        source: &FileSource,
        takes: impl Fn(&DataType) -> Takes,
    ) -> Result<Self, SourceError> {
        let (mut builders, mut all_takes, mut types) = (Vec::new(), Vec::new(), Vec::new());
        let mut casts = false;
        for field in schema.fields() {
            let data_type = field.data_type();
            if !is_readable(&source.format, data_type) {
                return Err(SourceError::Refused(format!(
                    "column `{}`: a file source cannot read the type {data_type}",
                    field.name()
                )));
            }
            let (value, list) = match data_type {
                DataType::List(item) => (item.data_type(), true),
                plain => (plain, false),
            };
            let takes = takes(value);
            casts |= match takes {
                Takes::Bool | Takes::Text => false,
                Takes::Int => *value != DataType::Int64,
                Takes::Float => *value != DataType::Float64,
                Takes::Number | Takes::Cast => true,
            };
            builders.push(if list { Builder::list_of(takes) } else { Builder::new(takes) });
            all_takes.push((takes, list));
            let named = source.columns.iter().find(|(name, _)| name.value == *field.name());
            types.push(named.map_or_else(|| data_type.to_string(), |(_, named)| named.value.clone()));
        }
        Ok(Self {
            schema: Arc::clone(schema),
            builders,
            takes: all_takes,
            types,
            lines: Vec::new(),
            casts,
            marks: None,
            rows: 0,
            bytes: 0,
        })
    }

    /// Marks rows with their places from now on.
    pub(super) fn mark(&mut self, places: SourcePlaces) {
        let schema = with_system(&self.schema, SystemColumns::only(SystemColumn::At));
        self.marks = Some(Marks { places, split: None, schema });
    }

    /// The rows that follow are those of this split.
    pub(super) fn begin_split(&mut self, number: u32) {
        if let Some(marks) = &mut self.marks {
            marks.split = marks.places.of_split(number);
        }
    }

    /// Rows so far.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of text so far, and 8 for each other value.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Columns of a row.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What a column takes of JSON, whether in lists, and its type in words.
    pub(super) fn takes(&self, column: usize) -> (Takes, bool, &str) {
        let (takes, list) = self.takes[column];
        (takes, list, &self.types[column])
    }

    /// Appends a row of texts, one per column.
    pub(super) fn push_texts<'a>(&mut self, line: u64, texts: impl Iterator<Item = Option<&'a str>>) {
        for (builder, text) in self.builders.iter_mut().zip(texts) {
            self.bytes += text.map_or(0, str::len);
            match builder {
                Builder::Text(builder) => builder.append_option(text),
                Builder::Cast(builder) => {
                    builder.append_option(text.map(str::trim).filter(|text| !text.is_empty()));
                }
                Builder::Bool(_) | Builder::Int(_) | Builder::Float(_) | Builder::List(_) => {
                    debug_assert!(false, "columns made from texts hold texts");
                }
            }
        }
        self.end_row(line);
    }

    /// Appends a row of JSON values that [`Columns::takes`] allows.
    pub(super) fn push_cells(&mut self, line: u64, cells: &[Cell], of: Cells<'_>) {
        for (builder, cell) in self.builders.iter_mut().zip(cells) {
            self.bytes += builder.push(cell, of);
        }
        self.end_row(line);
    }

    fn end_row(&mut self, line: u64) {
        self.rows += 1;
        if self.marks.is_some() || self.casts {
            self.lines.push(line);
        }
    }

    /// Drops the rows so far.
    pub(super) fn discard(&mut self) {
        self.builders.iter_mut().for_each(Builder::discard);
        self.lines.clear();
        self.rows = 0;
        self.bytes = 0;
    }

    /// The batch, and the rows whose values do not have their column's type.
    pub(super) fn finish(&mut self) -> Result<(RecordBatch, Vec<Misfit>), SourceError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.builders.len());
        let mut why: Vec<Option<String>> = Vec::new();
        for (place, builder) in self.builders.iter_mut().enumerate() {
            let field = self.schema.field(place);
            let mut unfit = Vec::new();
            columns.push(builder.finish(field.data_type(), &mut unfit)?);
            if !unfit.is_empty() {
                why.resize(self.rows, None);
            }
            for (row, text) in unfit {
                let (name, named) = (field.name(), self.types[place].as_str());
                let named = named.strip_suffix("[]").unwrap_or(named);
                why[row].get_or_insert_with(|| format!("column `{name}`: `{text}` is not of type {named}"));
            }
        }
        let lines = std::mem::take(&mut self.lines);
        self.rows = 0;
        self.bytes = 0;
        let schema = match &self.marks {
            Some(Marks { split, schema, .. }) => {
                let place = |line: &u64| split.and_then(|split| split.at_line(*line));
                let at: UInt64Array = lines.iter().map(|line| place(line).map(RowPlace::number)).collect();
                columns.push(Arc::new(at));
                schema
            }
            None => &self.schema,
        };
        let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if why.is_empty() {
            return Ok((batch, Vec::new()));
        }
        let fits: BooleanArray = why.iter().map(|why| Some(why.is_none())).collect();
        let misfits = lines.into_iter().zip(why).filter_map(|(line, why)| Some(Misfit { line, why: why? }));
        Ok((filter_record_batch(&batch, &fits)?, misfits.collect()))
    }
}

/// A number that is too large for a float does not become infinite unseen: its value is left out, as of a
/// text that is no number. `inf` is one, and stays.
fn finite(texts: &StringArray, column: ArrayRef) -> Result<ArrayRef, SourceError> {
    if !column.data_type().is_floating() {
        return Ok(column);
    }
    let values = cast_with_options(&column, &DataType::Float64, &CastOptions::default())?;
    let values = values.as_primitive::<Float64Type>();
    let overflows = |row: usize| {
        values.is_valid(row)
            && values.value(row).is_infinite()
            && texts.value(row).bytes().any(|byte| byte.is_ascii_digit())
    };
    if !values.values().iter().any(|value| value.is_infinite()) {
        return Ok(column);
    }
    let overflows: BooleanArray = (0..texts.len()).map(|row| Some(overflows(row))).collect();
    Ok(nullif(&column, &overflows)?)
}

/// Numbers of the greatest width as those of a column's type. One that is beyond it is null in the column, and
/// said in `unfit`.
fn narrowed(wide: ArrayRef, to: &DataType, unfit: &mut Vec<Unfit>) -> Result<ArrayRef, SourceError> {
    if wide.data_type() == to {
        return Ok(wide);
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let narrow = cast_with_options(&wide, to, &options)?;
    // Floats become infinite instead of null, and JSON has no infinite ones.
    let back = cast_with_options(&narrow, &DataType::Float64, &options)?;
    let back = back.as_primitive::<Float64Type>();
    let lost = |row: usize| wide.is_valid(row) && (narrow.is_null(row) || back.value(row).is_infinite());
    let lost: BooleanArray = (0..wide.len()).map(|row| Some(lost(row))).collect();
    if lost.true_count() == 0 {
        return Ok(narrow);
    }
    for row in (0..wide.len()).filter(|row| lost.value(*row)) {
        unfit.push((row, array_value_to_string(&wide, row)?));
    }
    Ok(nullif(&narrow, &lost)?)
}

/// The start of a text, for messages.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
