//! What something of a registry is told: columns, key, options, and the instance that it is.

use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tuplane_core::fault::Spanned;
use tuplane_expr::arrow::array::{RecordBatch, RecordBatchOptions};
use tuplane_expr::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use tuplane_expr::sql::{sql_name, sql_type};

use super::Failure;

/// What is known of a stage before it runs.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Given<'a> {
    /// The columns of its input; a source has none.
    pub input: &'a SchemaRef,
    /// The columns of the key that a `group_by` before it gives it; empty without one.
    pub key: &'a [FieldRef],
    /// The options under `with`: a table, empty where the job says nothing.
    pub with: &'a Value,
}

impl Given<'_> {
    /// The options as a type of the user's own.
    ///
    /// # Errors
    /// They are not of that type; `#[serde(deny_unknown_fields)]` refuses keys that nobody knows.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        options(self.with)
    }
}

fn options<T: DeserializeOwned>(with: &Value) -> Result<T, Failure> {
    serde_json::from_value(with.clone()).map_err(|why| format!("its options under `with`: {why}").into())
}

/// What an instance is told when it is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {
    /// The stage's id.
    pub stage: String,
    /// The options under `with`.
    pub with: Value,
    /// The columns of its input; a source has none.
    pub input: SchemaRef,
    /// The columns of its key; empty where the stage has none.
    pub key: Vec<FieldRef>,
    /// The columns of its output, as it declared them; a sink has none.
    pub output: SchemaRef,
    /// This instance, from 0.
    pub instance: u32,
    /// Instances of the stage in the cluster.
    pub instances: u32,
    /// The agent's name.
    pub agent: String,
    /// The agent's working folder.
    pub folder: PathBuf,
}

impl Context {
    /// The options as a type of the user's own.
    ///
    /// # Errors
    /// They are not of that type.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        options(&self.with)
    }
}

/// Columns by name and SQL type, in order: `columns(&[("word", "text"), ("n", "bigint")])`.
///
/// # Errors
/// A type is none, or two columns have one name.
pub fn columns(named: &[(&str, &str)]) -> Result<SchemaRef, Failure> {
    let field = |(name, kind): &(&str, &str)| {
        let data_type = sql_type(&Spanned::nowhere((*kind).to_owned())).map_err(|fault| fault.to_string())?;
        Ok::<_, Failure>(Field::new(*name, data_type, true))
    };
    Ok(Arc::new(Schema::new(named.iter().map(field).collect::<Result<Vec<_>, _>>()?)))
}

pub(super) fn no_columns() -> SchemaRef {
    Arc::new(Schema::empty())
}

/// Declared columns as the engine holds them: any value may be null, and text is `Utf8`.
pub(super) fn checked(columns: SchemaRef) -> Result<SchemaRef, Failure> {
    let field = |field: &FieldRef| {
        if let Some(instead) = refused(field.data_type()) {
            let (name, kind) = (field.name(), field.data_type());
            return Err(Failure::from(format!("its column `{name}` is {kind}; the engine holds {instead}")));
        }
        Ok(Field::new(field.name(), field.data_type().clone(), true))
    };
    Ok(Arc::new(Schema::new(columns.fields().iter().map(field).collect::<Result<Vec<_>, _>>()?)))
}

/// What stands for a type that rows in queues do not have.
fn refused(data_type: &DataType) -> Option<&'static str> {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => Some("text as Utf8"),
        DataType::BinaryView | DataType::LargeBinary => Some("bytes as Binary"),
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => Some("values as they are"),
        DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_) => Some("lists as List"),
        DataType::List(item) | DataType::FixedSizeList(item, _) => refused(item.data_type()),
        _ => None,
    }
}

/// A batch with the declared columns; names are the declared ones.
pub(super) fn conforming(batch: &RecordBatch, declared: &SchemaRef) -> Result<RecordBatch, Failure> {
    let kinds = |schema: &Schema| -> Vec<DataType> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let (gave, wanted) = (kinds(batch.schema_ref()), kinds(declared));
    if gave != wanted {
        let words = |kinds: &[DataType]| kinds.iter().map(sql_name).collect::<Vec<_>>().join(", ");
        return Err(format!("it gave columns ({}) and declared ({})", words(&gave), words(&wanted)).into());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(declared), batch.columns().to_vec(), &options)?)
}
