//! `hash_join`: rows of the first input, each with the rows of the other inputs that have its key.

mod probe;
mod table;

use std::ops::Range;
use std::sync::Arc;

use datafusion_common::arrow::array::{Array, ArrayRef};
use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{JoinKind, OnError, Text};

use super::rows::Projection;
use crate::key::{as_one_type, can_be_key};
use crate::sql::{Compiled, Language, Side, sql_name};
use crate::system::{SystemColumns, with_system};

pub use probe::JoinRun;
pub use table::{JoinBuilder, JoinTable};

/// A compiled `hash_join`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JoinProgram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Over a row of the first input: its keys for all the others, one after another.
    keys: Projection,
    enriching: Vec<Enriching>,
    /// The first input's columns, the others' in turn, then system columns.
    output: SchemaRef,
    kind: JoinKind,
    on_error: OnError,
}

/// An input after the first.
#[derive(Debug)]
struct Enriching {
    keys: Projection,
    /// Its key's columns in the first input's keys.
    of_primary: Range<usize>,
    /// Its own columns.
    columns: SchemaRef,
}

/// An entry's `on` and `kind`, and where it stands.
#[derive(Debug, Clone, Copy)]
pub struct JoinTexts<'a> {
    /// One condition for each input after the first.
    pub on: &'a [Text],
    /// What becomes of rows without a partner.
    pub kind: JoinKind,
    /// The place of the entry.
    pub at: At,
}

impl JoinProgram {
    /// Compiles a join of `inputs`: ids and columns, the primary one first. `system` columns of the primary
    /// input are copied.
    pub fn compile(
        language: Language,
        texts: JoinTexts<'_>,
        inputs: &[(&str, SchemaRef)],
        system: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let Some(((primary, schema), others)) = inputs.split_first() else {
            return Err(vec![Fault::new(texts.at, "a join needs two inputs or more")]);
        };
        if others.len() != texts.on.len() {
            let message =
                format!("`on` has {} entries for {} enriching inputs", texts.on.len(), others.len());
            let help = "one \"primary expr = enriching expr\" for each input after the first";
            return Err(vec![Fault::new(texts.at, message).help(help)]);
        }
        let (mut keys, mut enriching, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut output: Vec<FieldRef> = Vec::new();
        let mut add = |name: String, field: &Field, faults: &mut Vec<Fault>| {
            if output.iter().any(|known| *known.name() == name) {
                let message = format!("two columns of the joined row are called `{name}`");
                let help =
                    "give an input another id, or its column another name with a map stage before the join";
                faults.push(Fault::new(texts.at, message).help(help));
            }
            output.push(Arc::new(Field::new(name, field.data_type().clone(), true)));
        };
        for field in schema.fields() {
            add(field.name().clone(), field, &mut faults);
        }
        for (position, (text, (id, columns))) in texts.on.iter().zip(others).enumerate() {
            if others[..position].iter().any(|(other, _)| other == id) {
                let message = format!(
                    "the enriching input `{id}` stands twice, and its columns would have the same names"
                );
                faults.push(Fault::new(texts.at, message).help("put a map stage before one of them"));
                continue;
            }
            for field in columns.fields() {
                add(format!("{id}.{}", field.name()), field, &mut faults);
            }
            let (left, right) = (Side { id: primary, schema }, Side { id, schema: columns });
            let pairs = language.compile_equalities(text, left, right).and_then(|pairs| {
                pairs
                    .into_iter()
                    .map(|(a, b)| same_type(text, (primary, a), (id, b)))
                    .collect::<Result<Vec<_>, _>>()
            });
            match pairs {
                Ok(pairs) => {
                    let first = keys.len();
                    let mut own = Vec::new();
                    for (a, b) in pairs {
                        own.push(numbered(b, own.len()));
                        keys.push(numbered(a, keys.len()));
                    }
                    let (keys, of_primary) = (Projection::new(own), first..keys.len());
                    enriching.push(Enriching { keys, of_primary, columns: Arc::clone(columns) });
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let output = with_system(&(Arc::new(Schema::new(output)) as SchemaRef), system);
        let inner = Inner { keys: Projection::new(keys), enriching, output, kind: texts.kind, on_error };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The columns that come out, system columns included.
    pub fn output(&self) -> &SchemaRef {
        &self.inner.output
    }

    /// The key of an enriching input, from 0, and its columns.
    pub(crate) fn enriching(&self, input: usize) -> Option<(&[FieldRef], &SchemaRef)> {
        let enriching = self.inner.enriching.get(input)?;
        Some((enriching.keys.output.fields(), &enriching.columns))
    }

    /// Whether some row can be one whose key cannot be computed; `primary` are the first input's columns.
    pub(crate) fn can_fail(&self, primary: &SchemaRef) -> bool {
        self.inner.keys.can_fail(primary)
            || self.inner.enriching.iter().any(|one| one.keys.can_fail(&one.columns))
    }
}

/// A key's two sides as one type.
fn same_type(
    text: &Text,
    (left_id, left): (&str, Compiled),
    (right_id, right): (&str, Compiled),
) -> Result<(Compiled, Compiled), Fault> {
    let fields = (Arc::clone(&left.field), Arc::clone(&right.field));
    as_one_type(left, right).ok_or_else(|| {
        let (left, right) = (&fields.0, &fields.1);
        no_common_type(text, (left_id, left, left.data_type()), (right_id, right, right.data_type()))
    })
}

/// Keys of two inputs that cannot be equal: input, column and type of each.
pub(crate) fn no_common_type(
    text: &Text,
    left: (&str, &FieldRef, &DataType),
    right: (&str, &FieldRef, &DataType),
) -> Fault {
    let one = |(id, field, kind): (&str, &FieldRef, &DataType)| {
        format!("`{}` of `{id}` is {}", field.name(), sql_name(kind))
    };
    if left.2 == right.2 && !can_be_key(left.2) {
        let message = format!("{}, which cannot be a key", one(left));
        return Fault::new(text.at, message);
    }
    let message = format!("{} and {}, which have no type in common", one(left), one(right));
    let number_and_float = |a: &DataType, b: &DataType| a.is_integer() && b.is_floating();
    let help = if number_and_float(left.2, right.2) || number_and_float(right.2, left.2) {
        "integers beyond 2^53 are no doubles: cast both to bigint, to double or to decimal(38, n)"
    } else {
        "cast one of them to the other's type"
    };
    Fault::new(text.at, message).help(help)
}

/// A key's column under a name that is nobody's.
fn numbered(key: Compiled, number: usize) -> Compiled {
    let field = key.field.as_ref().clone().with_name(format!("#{number}"));
    Compiled { expr: key.expr, field: Arc::new(field) }
}

/// Whether a row's key has a null in it, and so equals no other.
fn has_null(keys: &[ArrayRef], row: usize) -> bool {
    keys.iter().any(|key| key.is_null(row))
}
