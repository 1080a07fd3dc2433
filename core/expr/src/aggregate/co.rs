//! `co_aggregate`: several inputs aggregated by one key.
//!
//! It is an aggregate like any other whose rows come from several inputs: a group has all inputs' aggregates,
//! and a row goes into those of its own.

use std::sync::Arc;

use datafusion_common::Column;
use datafusion_common::arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_expr::Expr;
use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{OnError, Text};

use super::{AggregateProgram, Compiler, finish};
use crate::key::{KeyExprs, cast, common_type};
use crate::program::no_common_type;
use crate::sql::{Compiled, Language, Planned};

/// One input of an aggregate over several.
#[derive(Debug, Clone, Copy)]
pub struct AggregateInput<'a> {
    /// The input's id.
    pub id: &'a str,
    /// Its grouping key; none makes one group of all rows of all inputs.
    pub keys: &'a [Text],
    /// What is computed of its rows.
    pub compute: &'a [Text],
    /// Its columns.
    pub columns: &'a SchemaRef,
}

impl AggregateProgram {
    /// Compiles an aggregate over several inputs. Keys are cast to their common type and are called as those
    /// of the first input.
    pub fn compile_several(
        language: Language,
        inputs: &[AggregateInput<'_>],
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let keys = common_keys(language, inputs)?;
        let (mut sides, mut names, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        let own_names: Vec<Vec<String>> = keys.iter().map(|key| key.names.clone()).collect();
        for (key, input) in keys.into_iter().zip(inputs) {
            let made =
                Compiler::new(language, key.columns, input.columns, first).map_err(|fault| vec![fault]);
            let planned = made.and_then(|mut compiler| {
                let planned = compiler.plan_all(input.compute, &mut names)?;
                Ok((compiler, planned))
            });
            match planned {
                Ok((compiler, planned)) => {
                    first += compiler.calls.len();
                    sides.push((compiler, planned));
                }
                Err(found) => faults.extend(found),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        for ((_, planned), own) in sides.iter_mut().zip(&own_names) {
            for (text, one) in planned {
                rename(text, one, own, &own_names[0]).map_err(|fault| vec![fault])?;
            }
        }
        finish(sides, on_error)
    }

    /// The key of rows of an input, as it is in a result.
    pub(crate) fn key_of(&self, input: usize) -> KeyExprs {
        let (columns, _) = self.inner.side(input);
        KeyExprs::first_of(columns, self.inner.keys)
    }

    /// Whether some row of an input can be one that a key or an argument cannot take.
    pub(crate) fn input_can_fail(&self, input: usize, columns: &SchemaRef) -> bool {
        self.inner.side(input).0.can_fail(columns)
    }
}

/// The key of one input.
struct InputKey {
    /// The names that the input gave its columns.
    names: Vec<String>,
    /// Its columns, of the same types and names as those of all inputs.
    columns: Vec<Compiled>,
}

fn common_keys(language: Language, inputs: &[AggregateInput<'_>]) -> Result<Vec<InputKey>, Vec<Fault>> {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for input in inputs {
        match KeyExprs::compile(language, input.keys, input.columns) {
            Ok(keys) => all.push(keys.into_columns()),
            Err(found) => faults.extend(found),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let Some(first) = all.first().cloned() else { return Ok(Vec::new()) };
    let mut kinds: Vec<DataType> = first.iter().map(|key| key.field.data_type().clone()).collect();
    for (keys, input) in all.iter().zip(inputs).skip(1) {
        if keys.len() != kinds.len() {
            let message = format!("the keys of `{}` and `{}` have different lengths", inputs[0].id, input.id);
            let at = input.keys.first().map_or(At::default(), |key| key.at);
            return Err(vec![Fault::new(at, message)]);
        }
        for (position, (key, kind)) in keys.iter().zip(&mut kinds).enumerate() {
            if let Some(common) = common_type(kind, key.field.data_type()) {
                *kind = common;
                continue;
            }
            let left = (inputs[0].id, &first[position].field, &*kind);
            let right = (input.id, &key.field, key.field.data_type());
            faults.push(no_common_type(&input.keys[position], left, right));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let as_first = |(position, key): (usize, Compiled)| {
        let key = cast(key, &kinds[position]);
        let field = key.field.as_ref().clone().with_name(first[position].field.name());
        Compiled { field: Arc::new(field), ..key }
    };
    let of_input = |keys: Vec<Compiled>| {
        let names = keys.iter().map(|key| key.field.name().clone()).collect();
        InputKey { names, columns: keys.into_iter().enumerate().map(as_first).collect() }
    };
    Ok(all.into_iter().map(of_input).collect())
}

/// An expression over a group's values finds keys by the names that they have in the result.
fn rename(text: &Text, planned: &mut Planned, own: &[String], result: &[String]) -> Result<(), Fault> {
    if own == result {
        return Ok(());
    }
    let renamed = planned.expr.clone().transform(|node| {
        let Expr::Column(column) = &node else { return Ok(Transformed::no(node)) };
        Ok(match own.iter().position(|name| name == column.name()) {
            Some(key) => Transformed::yes(Expr::Column(Column::new_unqualified(result[key].clone()))),
            None => Transformed::no(node),
        })
    });
    planned.expr = renamed.data().map_err(|error| crate::sql::fault_of(text, &error))?;
    Ok(())
}
