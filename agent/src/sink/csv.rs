//! Rows as csv (RFC 4180): no value is an empty field, an empty text is `""`.

use std::io::Write;

use tuplane_expr::arrow::array::{Array, AsArray, RecordBatch};
use tuplane_expr::arrow::datatypes::{DataType, Int64Type, Schema};
use tuplane_expr::arrow::error::ArrowError;
use tuplane_expr::arrow::util::display::{ArrayFormatter, DurationFormat, FormatOptions};

use super::SinkError;

/// RFC 3339, as the engine's times are: UTC, fractions as far as there are any.
pub(crate) const TIME: &str = "%Y-%m-%dT%H:%M:%S%.fZ";

/// The header line of a schema.
pub(super) fn header(schema: &Schema) -> Vec<u8> {
    let mut line = Vec::new();
    for (place, field) in schema.fields().iter().enumerate() {
        if place > 0 {
            line.push(b',');
        }
        push_text(field.name(), &mut line);
    }
    line.push(b'\n');
    line
}

/// How values are written.
fn options() -> FormatOptions<'static> {
    FormatOptions::new()
        .with_display_error(false)
        .with_timestamp_format(Some(TIME))
        .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.f%:z"))
        .with_duration_format(DurationFormat::ISO8601)
}

/// Refuses times that no calendar has (an integer may hold the year 292,277,026), with the row and the column.
pub(super) fn times_can_be_shown(batch: &RecordBatch) -> Result<(), SinkError> {
    let options = options();
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        if !has_times(column.data_type()) {
            continue;
        }
        let shown = ArrayFormatter::try_new(column, &options)?;
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            shown.value(row).try_to_string().map_err(|cause| unshown(row, field.name(), &cause))?;
        }
    }
    Ok(())
}

fn unshown(row: usize, column: &str, cause: &ArrowError) -> SinkError {
    SinkError::Refused(format!("row {row} of a batch: column `{column}` cannot be written: {cause}"))
}

fn has_times(kind: &DataType) -> bool {
    kind.is_temporal() || kind.is_nested()
}

/// Appends the rows of a batch.
pub(super) fn push_rows(batch: &RecordBatch, text: &mut Vec<u8>) -> Result<(), SinkError> {
    let options = options();
    let columns = batch.columns().iter().map(|column| Column::new(column.as_ref(), &options));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    for row in 0..batch.num_rows() {
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                text.push(b',');
            }
            let named = |cause: ArrowError| unshown(row, batch.schema_ref().field(place).name(), &cause);
            column.push(row, text).map_err(named)?;
        }
        // A lone missing value would be a blank line, which readers pass over: the row would be lost.
        if columns.len() == 1 && text.last().is_none_or(|byte| *byte == b'\n') {
            text.extend_from_slice(b"\"\"");
        }
        text.push(b'\n');
    }
    Ok(())
}

/// A column as its values are written.
enum Column<'a> {
    Text(&'a tuplane_expr::arrow::array::StringArray),
    Int(&'a tuplane_expr::arrow::array::Int64Array),
    Other(&'a dyn Array, ArrayFormatter<'a>),
}

impl<'a> Column<'a> {
    fn new(column: &'a dyn Array, options: &'a FormatOptions<'a>) -> Result<Self, SinkError> {
        Ok(match column.data_type() {
            DataType::Utf8 => Self::Text(column.as_string::<i32>()),
            DataType::Int64 => Self::Int(column.as_primitive::<Int64Type>()),
            _ => Self::Other(column, ArrayFormatter::try_new(column, options)?),
        })
    }

    fn push(&self, row: usize, text: &mut Vec<u8>) -> Result<(), ArrowError> {
        match self {
            Self::Text(column) if column.is_valid(row) => push_text(column.value(row), text),
            Self::Int(column) if column.is_valid(row) => push_shown(&column.value(row), text),
            Self::Other(column, formatter) if column.is_valid(row) => {
                push_text(&formatter.value(row).try_to_string()?, text);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Appends what needs no quotes.
pub(super) fn push_shown(value: &impl std::fmt::Display, text: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(text, "{value}");
}

/// Appends a text, quoted where it must be.
pub(super) fn push_text(value: &str, text: &mut Vec<u8>) {
    // A byte order mark at the start of a file would be taken for the file's own.
    let plain = !value.is_empty()
        && !value.starts_with('\u{feff}')
        && !value.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'));
    if plain {
        text.extend_from_slice(value.as_bytes());
        return;
    }
    text.push(b'"');
    for (place, piece) in value.split('"').enumerate() {
        if place > 0 {
            text.extend_from_slice(b"\"\"");
        }
        text.extend_from_slice(piece.as_bytes());
    }
    text.push(b'"');
}
