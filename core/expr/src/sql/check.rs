//! What an expression may not say, found in its syntax tree so that the fault has the token's place.

use std::ops::ControlFlow;

use datafusion_common::DFSchema;
use datafusion_common::arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::{self, Expr, Ident, Value, visit_expressions, visit_expressions_mut};
use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::Text;

use super::fault::place;
use super::functions::{FUNCTIONS, NOT_REPLAYABLE};
use super::{Determinism, Language};
use crate::system::{SystemColumn, name_of};

/// Which functions may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Functions of one row.
    Scalar,
    /// Aggregates too.
    Aggregates,
}

/// The function that says when a row arrived: it is a column of the row.
const ARRIVED: &str = "arrived";

/// Columns shown in a fault; a wide row must not fill the screen.
const SHOWN: usize = 20;

/// Words such as `user` are functions without parentheses to the parser. A column of that name is meant
/// where there is one, or where there is no such function.
pub(super) fn keywords_as_columns(expr: &mut Expr, schema: &DFSchema) {
    let _: ControlFlow<()> = visit_expressions_mut(expr, |expr| {
        if let Some(column) = keyword_column(expr, schema) {
            *expr = column;
        }
        ControlFlow::Continue(())
    });
}

fn keyword_column(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    match expr {
        Expr::Function(function) if matches!(function.args, ast::FunctionArguments::None) => {
            let [ast::ObjectNamePart::Identifier(ident)] = &function.name.0[..] else { return None };
            let name = ident.value.to_lowercase();
            let known = FUNCTIONS.scalar.contains_key(&name) || NOT_REPLAYABLE.contains(&name.as_str());
            let column = schema.has_column_with_unqualified_name(&ident.value) || !known;
            column.then(|| Expr::Identifier(ident.clone()))
        }
        // What stood before the dot has become an identifier by now.
        Expr::CompoundFieldAccess { root, access_chain } => {
            let Expr::Identifier(first) = &**root else { return None };
            let parts = access_chain.iter().map(|access| match access {
                ast::AccessExpr::Dot(Expr::Identifier(part)) => Some(part.clone()),
                _ => None,
            });
            std::iter::once(Some(first.clone()))
                .chain(parts)
                .collect::<Option<_>>()
                .map(Expr::CompoundIdentifier)
        }
        _ => None,
    }
}

/// `arrived()` becomes the column that it reads; false if it is not called. Names are checked before, since
/// the column has no name that a job may write.
pub(super) fn arrival_as_column(expr: &mut Expr) -> bool {
    let mut found = false;
    let _: ControlFlow<()> = visit_expressions_mut(expr, |expr| {
        if let Expr::Function(function) = expr
            && let [ast::ObjectNamePart::Identifier(ident)] = &function.name.0[..]
            && ident.value.eq_ignore_ascii_case(ARRIVED)
        {
            *expr = Expr::Identifier(Ident::with_quote('"', name_of(SystemColumn::Due)));
            found = true;
        }
        ControlFlow::Continue(())
    });
    found
}

/// Checks every name in `expr`.
pub(super) fn names(
    expr: &Expr,
    text: &Text,
    schema: &DFSchema,
    allowed: Allowed,
    language: Language,
) -> Result<(), Fault> {
    let names = Names { text, schema, allowed, language };
    match visit_expressions(expr, |expr| match names.check(expr) {
        Ok(()) => ControlFlow::Continue(()),
        Err(fault) => ControlFlow::Break(fault),
    }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(fault) => Err(fault),
    }
}

struct Names<'a> {
    text: &'a Text,
    schema: &'a DFSchema,
    allowed: Allowed,
    language: Language,
}

impl Names<'_> {
    fn check(&self, expr: &Expr) -> Result<(), Fault> {
        match expr {
            Expr::Identifier(ident) => self.column(ident),
            Expr::CompoundIdentifier(parts) => self.compound(parts),
            Expr::Function(function) => self.function(function),
            Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => {
                Err(self.refuse("there are no parameters here").help("write the value itself"))
            }
            Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => {
                Err(self.refuse("a query cannot stand inside an expression").help("use a hash_join stage"))
            }
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => Err(self
                .refuse("`*` cannot stand inside an expression")
                .help("`select = [\"*\"]` takes it by itself, for all columns")),
            Expr::Lambda(_) => Err(self.refuse("lambdas are not available")),
            _ => Ok(()),
        }
    }

    fn refuse(&self, message: &str) -> Fault {
        Fault::new(self.text.at, format!("`{}`: {message}", self.text.value.trim()))
    }

    fn at(&self, ident: &Ident, message: String) -> Fault {
        let start = ident.span.start;
        Fault::new(place(self.text, start.line, start.column, ident.value.len()), message)
    }

    fn has(&self, name: &str) -> bool {
        self.schema.has_column_with_unqualified_name(name)
    }

    fn column(&self, ident: &Ident) -> Result<(), Fault> {
        if self.has(&ident.value) { Ok(()) } else { Err(self.unknown_column(ident, &ident.value)) }
    }

    fn compound(&self, parts: &[Ident]) -> Result<(), Fault> {
        let Some(first) = parts.first() else { return Ok(()) };
        let dotted = parts.iter().map(|p| p.value.as_str()).collect::<Vec<_>>().join(".");
        if self.has(&dotted) {
            let message = format!("the column `{dotted}` has a dot in its name and must be quoted");
            let help = format!(
                "write \"{dotted}\", with the double quotes; in TOML a text that holds them stands in single quotes"
            );
            return Err(self.at(first, message).help(help));
        }
        let is_struct = self
            .schema
            .field_with_unqualified_name(&first.value)
            .is_ok_and(|field| matches!(field.data_type(), DataType::Struct(_)));
        if is_struct { Ok(()) } else { Err(self.unknown_column(first, &dotted)) }
    }

    fn unknown_column(&self, ident: &Ident, wrote: &str) -> Fault {
        let names: Vec<&str> = self.schema.fields().iter().map(|f| f.name().as_str()).collect();
        let close = names
            .iter()
            .copied()
            .find(|name| name.eq_ignore_ascii_case(wrote))
            .or_else(|| suggestion(wrote, names.iter().copied()));
        let hint = close.map_or(String::new(), |name| format!("; did you mean `{}`?", quoted(name)));
        let fault = self.at(ident, format!("no column `{wrote}`{hint}"));
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let columns = names.iter().take(SHOWN).map(|n| quoted(n)).collect::<Vec<_>>().join(", ");
        let columns = format!("columns: {columns}{more}");
        if ident.quote_style == Some('"') && close.is_none() {
            return fault.help(format!("text stands in single quotes: '{wrote}'; {columns}"));
        }
        fault.help(columns)
    }

    fn arrival(&self, ident: &Ident, function: &ast::Function) -> Result<(), Fault> {
        if !self.language.arrival {
            let message = "`arrived()` can stand in `map`, `filter`, `flat_map` and `time` alone".to_owned();
            let help = "keep it in a column before: a map with select = [\"*\", \"arrived() as arrival\"]";
            return Err(self.at(ident, message).help(help));
        }
        match &function.args {
            ast::FunctionArguments::List(list) if list.args.is_empty() => Ok(()),
            _ => Err(self.at(ident, "`arrived()` takes no arguments".to_owned())),
        }
    }

    fn function(&self, function: &ast::Function) -> Result<(), Fault> {
        let Some(ident) = function.name.0.first().and_then(ast::ObjectNamePart::as_ident) else {
            return Ok(());
        };
        let name = ident.value.to_lowercase();
        if function.name.0.len() > 1 {
            return Err(self.at(ident, format!("no function `{}`", function.name)));
        }
        if function.over.is_some() {
            let message = format!("`{name}(..) over (..)` is not available");
            return Err(self.at(ident, message).help("use a window stage, or a rolling_aggregate"));
        }
        if name == ARRIVED {
            return self.arrival(ident, function);
        }
        if self.language.determinism == Determinism::Required && NOT_REPLAYABLE.contains(&name.as_str()) {
            let message = format!("`{name}` gives another result when rows are replayed");
            let help = "results must replay; `[job] deterministic = false` allows it, and `arrived()` says when a row was read";
            return Err(self.at(ident, message).help(help));
        }
        if self.language.repeated && NOT_REPLAYABLE.contains(&name.as_str()) {
            let message = format!(
                "`{name}` gives another result each time, and a key or an order is computed more than once"
            );
            return Err(self
                .at(ident, message)
                .help("compute it in a map before, and name that column here"));
        }
        if name == "unnest" || name == "unnest_outer" {
            let message = format!("`{name}()` is no expression: it makes several rows of one");
            return Err(self.at(ident, message).help("use a flat_map stage: unnest = \"list expr as name\""));
        }
        let aggregate = FUNCTIONS.aggregate.contains_key(&name);
        if FUNCTIONS.scalar.contains_key(&name) || aggregate && self.allowed == Allowed::Aggregates {
            return Ok(());
        }
        if aggregate {
            let message =
                format!("`{name}` is an aggregate: it needs many rows, and this expression sees one");
            return Err(self.at(ident, message).help("use it in `compute` of an aggregate stage"));
        }
        let unknown = format!("no function `{name}`");
        Err(match suggestion(&name, FUNCTIONS.names()) {
            Some(known) => self.at(ident, format!("{unknown}; did you mean `{known}`?")),
            None => self.at(ident, unknown).help("docs/functions.md lists those that there are"),
        })
    }
}

/// A column name as an expression must write it.
fn quoted(name: &str) -> String {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain { name.to_owned() } else { format!("\"{name}\"") }
}
