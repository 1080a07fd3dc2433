//! `a = b and c = d`: the two sides of a join's condition, each an expression over rows of its own.

use std::ops::ControlFlow;

use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_physical_expr::utils::collect_columns;
use datafusion_sql::sqlparser::ast::{self, BinaryOperator, Expr, visit_expressions_mut};
use tuplane_core::fault::Fault;
use tuplane_core::job::Text;

use super::{Allowed, Compiled, Language, fault, logical, parse};

/// The rows that one side of a condition is over.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    /// The input's id, by which a column may be qualified.
    pub(crate) id: &'a str,
    pub(crate) schema: &'a SchemaRef,
}

impl Language {
    /// Compiles a condition: pairs of expressions over rows of the two sides that are to be equal.
    pub(crate) fn compile_equalities(
        self,
        text: &Text,
        left: Side<'_>,
        right: Side<'_>,
    ) -> Result<Vec<(Compiled, Compiled)>, Fault> {
        let parsed = parse(text)?;
        let mut pairs = Vec::new();
        let whole = parsed.alias.is_none() && split(parsed.expr, &mut pairs);
        if !whole {
            let message = format!("`{}` is no equality", text.value.trim());
            let help = "write `primary expr = enriching expr`, several of them with `and` between";
            return Err(Fault::new(text.at, message).help(help));
        }
        let keys = self.of_keys();
        let compile = |(a, b): (Expr, Expr)| {
            let straight = keys.compile_side(text, a.clone(), left).and_then(|one| {
                let other = keys.compile_side(text, b.clone(), right)?;
                Ok((one, other))
            });
            straight.map_err(|fault| {
                let turned =
                    keys.compile_side(text, a, right).is_ok() && keys.compile_side(text, b, left).is_ok();
                if turned {
                    let message = format!("`{}` has its sides the wrong way round", text.value.trim());
                    let help = format!(
                        "left of `=` stands an expression over `{}`, right of it one over `{}`",
                        left.id, right.id
                    );
                    return Fault::new(text.at, message).help(help);
                }
                fault
            })
        };
        pairs.into_iter().map(compile).collect()
    }

    fn compile_side(self, text: &Text, mut expr: Expr, side: Side<'_>) -> Result<Compiled, Fault> {
        if side.schema.column_with_name(side.id).is_none() {
            unqualify(&mut expr, side.id);
        }
        let schema = logical(side.schema).map_err(|error| fault::of(text, &error))?;
        let said = expr.to_string();
        let parsed = ast::ExprWithAlias { expr, alias: None };
        let planned = self.plan_parsed(text, parsed, &schema, Allowed::Scalar)?;
        let compiled = self.lower(text, planned, &schema)?;
        if collect_columns(&compiled.expr).is_empty() {
            let message = format!("`{said}` names no column of `{}`", side.id);
            return Err(Fault::new(text.at, message).help("keep rows by a constant with a filter stage"));
        }
        Ok(compiled)
    }
}

/// Takes a condition apart; false if some part of it is no equality.
fn split(expr: Expr, pairs: &mut Vec<(Expr, Expr)>) -> bool {
    match expr {
        Expr::Nested(inner) => split(*inner, pairs),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            split(*left, pairs) && split(*right, pairs)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            pairs.push((*left, *right));
            true
        }
        _ => false,
    }
}

/// `ads.ad_id` means the column `ad_id` where `ads` is the input.
fn unqualify(expr: &mut Expr, id: &str) {
    let _: ControlFlow<()> = visit_expressions_mut(expr, |expr| {
        if let Expr::CompoundIdentifier(parts) = expr
            && let [input, column] = &parts[..]
            && input.value == id
        {
            *expr = Expr::Identifier(column.clone());
        }
        ControlFlow::Continue(())
    });
}
