//! One SQL expression: parsed, checked against a schema, coerced, simplified and compiled.

mod bounds;
mod check;
mod equalities;
mod fallible;
mod fault;
mod floats;
pub(crate) mod functions;
mod growth;
mod refuse;

use std::sync::Arc;

use datafusion_common::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion_common::{DFSchema, DFSchemaRef, DataFusionError, ScalarValue, TableReference, plan_err};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::planner::{ContextProvider, ExprPlanner};
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{
    AggregateUDF, Expr, ExprSchemable, HigherOrderUDF, Operator, ScalarUDF, TableSource, WindowUDF,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr, create_physical_expr};
use datafusion_sql::parser::DFParser;
use datafusion_sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast::{self, ColumnDef};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::{Token, Tokenizer};
use tuplane_core::fault::{Fault, suggestion};
use tuplane_core::job::{Job, Text};

pub(crate) use check::Allowed;
pub(crate) use equalities::Side;
pub(crate) use fallible::can_fail;
pub use fault::sql_name;
pub(crate) use fault::{of as fault_of, plain_message};
use functions::FUNCTIONS;
pub(crate) use growth::{can_grow, copies, fitting_rows};

use crate::system::{self, SystemColumn, SystemColumns, name_of};

/// A longer text is refused before it is read.
const MOST_BYTES: usize = 64 << 10;
/// A longer expression is refused: planning recurses over it.
pub(crate) const MOST_TOKENS: usize = 4000;
/// A deeper one too: so does running it, on a smaller stack.
const MOST_DEPTH: usize = 400;

/// Whether functions may give another result when rows are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Determinism {
    /// `now()`, `random()` and the like are refused.
    Required,
    /// They are allowed (`[job] deterministic = false`).
    Waived,
}

/// The language of a job's expressions: its functions and what it refuses.
#[derive(Debug, Clone, Copy)]
pub struct Language {
    determinism: Determinism,
    /// `arrived()` may be called: the row has the column that it reads.
    arrival: bool,
    /// An expression is computed more than once for a row.
    repeated: bool,
}

/// A compiled expression.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) expr: Arc<dyn PhysicalExpr>,
    /// The column it makes: its name, and the plan's type.
    pub(crate) field: FieldRef,
}

/// A checked and coerced expression with the name of the column it makes.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) expr: Expr,
}

impl Language {
    /// A language that allows what `determinism` says.
    pub fn new(determinism: Determinism) -> Self {
        Self { determinism, arrival: false, repeated: false }
    }

    /// The same where `arrived()` may be called: over rows whose first system column says when they arrived.
    #[must_use]
    pub(crate) fn with_arrival(self) -> Self {
        Self { arrival: true, ..self }
    }

    /// The same for keys and orders, which the sender of a row computes, and its receiver again: they must come to
    /// the same, whatever the job waives.
    #[must_use]
    pub(crate) fn of_keys(self) -> Self {
        Self { repeated: true, ..self }
    }

    /// The language of a job.
    pub fn of(job: &Job) -> Self {
        Self::new(match job.options.deterministic {
            Some(false) => Determinism::Waived,
            _ => Determinism::Required,
        })
    }

    /// Compiles an expression over one row.
    pub(crate) fn compile(self, text: &Text, schema: &SchemaRef) -> Result<Compiled, Fault> {
        let mut schema = logical(schema).map_err(|e| fault::of(text, &e))?;
        let planned = self.plan(text, &schema, Allowed::Scalar)?;
        if planned.expr.column_refs().iter().any(|column| column.name == name_of(SystemColumn::Due)) {
            schema = seeing_arrival(&schema).map_err(|e| fault::of(text, &e))?;
        }
        self.lower(text, planned, &schema)
    }

    /// Parses, checks names and coerces types.
    pub(crate) fn plan(self, text: &Text, schema: &DFSchemaRef, allowed: Allowed) -> Result<Planned, Fault> {
        self.plan_parsed(text, parse(text)?, schema, allowed)
    }

    /// As [`Language::plan`] for a text, or a part of one, that has been parsed.
    fn plan_parsed(
        self,
        text: &Text,
        mut parsed: ast::ExprWithAlias,
        schema: &DFSchemaRef,
        allowed: Allowed,
    ) -> Result<Planned, Fault> {
        check::keywords_as_columns(&mut parsed.expr, schema);
        check::names(&parsed.expr, text, schema, allowed, self)?;
        let name = match (&parsed.alias, &parsed.expr) {
            (Some(alias), _) => alias.value.clone(),
            (None, ast::Expr::Identifier(column)) => column.value.clone(),
            (None, _) => text.value.trim().to_owned(),
        };
        if let Some(message) = system::refusal(&name) {
            return Err(Fault::new(text.at, message).help("name it otherwise with `as`"));
        }
        let seen;
        let schema = if check::arrival_as_column(&mut parsed.expr) {
            seen = seeing_arrival(schema).map_err(|e| fault::of(text, &e))?;
            &seen
        } else {
            schema
        };
        let provider = Provider::default();
        let planner = SqlToRel::new_with_options(&provider, parser_options());
        let expr = planner
            .sql_to_expr(parsed.expr, schema, &mut PlannerContext::new())
            .and_then(|expr| self.simplifier(schema).coerce(expr, schema))
            .and_then(|expr| expr.get_type(schema).map(|_| expr))
            .map_err(|e| fault::of(text, &e))?;
        Ok(Planned { name, expr })
    }

    /// Coerces types once more, over another schema.
    pub(crate) fn coerce(self, text: &Text, expr: Expr, schema: &DFSchemaRef) -> Result<Expr, Fault> {
        self.simplifier(schema).coerce(expr, schema).map_err(|e| fault::of(text, &e))
    }

    /// A part of an expression, with its own type rather than the plan's.
    pub(crate) fn native(
        self,
        text: &Text,
        name: String,
        expr: Expr,
        schema: &DFSchemaRef,
    ) -> Result<Compiled, Fault> {
        let (expr, data_type) = self.physical(expr, schema).map_err(|e| fault::of(text, &e))?;
        Ok(Compiled { expr, field: Arc::new(Field::new(name, data_type, true)) })
    }

    /// Simplifies a planned expression and makes it runnable.
    pub(crate) fn lower(
        self,
        text: &Text,
        planned: Planned,
        schema: &DFSchemaRef,
    ) -> Result<Compiled, Fault> {
        let (expr, data_type) = self.physical(planned.expr, schema).map_err(|e| fault::of(text, &e))?;
        if data_type == DataType::Null {
            return Err(Fault::new(
                text.at,
                format!("`{}` is always null, so its type is unknown", text.value),
            )
            .help("write cast(null as text), or another type"));
        }
        Ok(Compiled { expr, field: Arc::new(Field::new(planned.name, plan_type(&data_type), true)) })
    }

    fn physical(
        self,
        expr: Expr,
        schema: &DFSchemaRef,
    ) -> Result<(Arc<dyn PhysicalExpr>, DataType), DataFusionError> {
        let simplifier = self.simplifier(schema);
        bounds::constants(&expr, |argument| simplifier.simplify(argument))?;
        let expr = simplifier.simplify(expr)?;
        let context = PhysicalPlanningContext::default();
        let expr = create_physical_expr(&expr, schema, &ExecutionProps::new(), &context)?;
        let data_type = expr.data_type(schema.as_arrow())?;
        if depth(&expr) > MOST_DEPTH {
            return plan_err!(
                "more than {MOST_DEPTH} operators stand inside one another; split the expression over several stages"
            );
        }
        Ok((checked(expr, schema.as_arrow())?, data_type))
    }

    fn simplifier(self, schema: &DFSchemaRef) -> ExprSimplifier {
        let context = SimplifyContext::builder().with_schema(Arc::clone(schema));
        ExprSimplifier::new(match self.determinism {
            Determinism::Required => context.build(),
            // The start of the program stands for "now", as in a query.
            Determinism::Waived => context.with_current_time().build(),
        })
    }
}

/// How many operators stand inside one another at the most.
fn depth(expr: &Arc<dyn PhysicalExpr>) -> usize {
    1 + expr.children().into_iter().map(depth).max().unwrap_or(0)
}

/// The job's own columns, and behind them the one that `arrived()` reads.
fn seeing_arrival(schema: &DFSchemaRef) -> Result<DFSchemaRef, DataFusionError> {
    let own: SchemaRef = Arc::new(schema.as_arrow().clone());
    logical(&system::with_system(&own, SystemColumns::only(SystemColumn::Due)))
}

/// The logical form of a schema.
pub(crate) fn logical(schema: &SchemaRef) -> Result<DFSchemaRef, DataFusionError> {
    Ok(Arc::new(DFSchema::try_from(Arc::clone(schema))?))
}

/// The type that a column of `data_type` has between operators: text is Utf8, bytes are Binary, lists are
/// List, nothing is encoded.
pub fn plan_type(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| Arc::new(Field::new_list_field(plan_type(field.data_type()), true));
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Dictionary(_, value) => plan_type(value),
        DataType::RunEndEncoded(_, value) => plan_type(value.data_type()),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => DataType::List(item(field)),
        DataType::Struct(fields) => DataType::Struct(
            fields.iter().map(|f| Field::new(f.name(), plan_type(f.data_type()), true)).collect(),
        ),
        other => other.clone(),
    }
}

/// A type by its SQL name.
pub fn sql_type(text: &Text) -> Result<DataType, Fault> {
    const NAMES: [&str; 18] = [
        "text",
        "varchar",
        "string",
        "int",
        "integer",
        "bigint",
        "smallint",
        "tinyint",
        "float",
        "double",
        "real",
        "decimal",
        "boolean",
        "date",
        "time",
        "timestamp",
        "binary",
        "bytea",
    ];
    let unknown = || {
        let wrote = text.value.trim();
        let hint = suggestion(&wrote.to_lowercase(), NAMES)
            .map(|name| format!("; did you mean `{name}`?"))
            .unwrap_or_default();
        Fault::new(text.at, format!("no type `{wrote}`{hint}")).help(format!("types: {}", NAMES.join(", ")))
    };
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(&text.value).map_err(|_| unknown())?;
    let parsed = parser.parse_data_type().map_err(|_| unknown())?;
    if parser.peek_token().token != Token::EOF {
        return Err(unknown());
    }
    if matches!(parsed, ast::DataType::Binary(_) | ast::DataType::Varbinary(_) | ast::DataType::Blob(_)) {
        return Ok(DataType::Binary);
    }
    let provider = Provider::default();
    let column = ColumnDef { name: ast::Ident::new("column"), data_type: parsed, options: Vec::new() };
    let schema = SqlToRel::new_with_options(&provider, parser_options())
        .build_schema(vec![column])
        .map_err(|_| unknown())?;
    Ok(plan_type(schema.field(0).data_type()))
}

fn parse(text: &Text) -> Result<ast::ExprWithAlias, Fault> {
    if text.value.len() > MOST_BYTES {
        let message = format!("an expression has {} bytes; at most {MOST_BYTES} are taken", text.value.len());
        return Err(Fault::new(text.at, message).help("split it over several stages"));
    }
    let tokens = Tokenizer::new(&GenericDialect {}, &text.value).tokenize().map_or(0, |tokens| tokens.len());
    if tokens > MOST_TOKENS {
        let message = format!("the expression has {tokens} words and signs; at most {MOST_TOKENS} are taken");
        return Err(Fault::new(text.at, message).help("split it over several stages"));
    }
    if text.value.trim().is_empty() {
        return Err(Fault::new(text.at, "an expression is missing: this text is empty"));
    }
    DFParser::parse_sql_into_expr(&text.value).map_err(|e| fault::of(text, &e))
}

/// Integer arithmetic that overflows is an error of the row, not a wrong number; and so is a result that no row may
/// have. Floats have one NaN.
fn checked(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    expr.transform_up(|node| {
        refuse::never_works(&node, schema)?;
        if let Some(guarded) = refuse::guarded(&node, schema).or_else(|| floats::in_one_form(&node, schema)) {
            return guarded.map(Transformed::yes);
        }
        if let Some(negative) = node.downcast_ref::<NegativeExpr>() {
            let kind = negative.arg().data_type(schema)?;
            // The least integer has no positive counterpart; a negation would give it back as it is.
            if kind.is_signed_integer() {
                let zero = Arc::new(Literal::new(ScalarValue::new_zero(&kind)?));
                let minus = BinaryExpr::new(zero, Operator::Minus, Arc::clone(negative.arg()));
                return Ok(Transformed::yes(Arc::new(minus.with_fail_on_overflow(true)) as _));
            }
        }
        if let Some(bounded) =
            node.downcast_ref::<ScalarFunctionExpr>().and_then(|it| growth::bounded(it, schema))
        {
            return bounded.map(Transformed::yes);
        }
        if let Some(joined) = node.downcast_ref::<BinaryExpr>().and_then(|pair| growth::joined(pair, schema))
        {
            return joined.map(Transformed::yes);
        }
        Ok(match node.downcast_ref::<BinaryExpr>() {
            Some(binary) if overflows(*binary.op()) => {
                let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
                let binary = BinaryExpr::new(left, *binary.op(), right).with_fail_on_overflow(true);
                Transformed::yes(Arc::new(binary) as Arc<dyn PhysicalExpr>)
            }
            _ => Transformed::no(node),
        })
    })
    .data()
}

/// Whether the result of an operator on two integers may be none.
fn overflows(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
}

fn parser_options() -> ParserOptions {
    ParserOptions {
        parse_float_as_decimal: false,
        enable_ident_normalization: false,
        support_varchar_with_length: true,
        enable_options_value_normalization: false,
        collect_spans: false,
        map_string_types_to_utf8view: false,
        default_null_ordering: NullOrdering::NullsMax,
    }
}

/// What `DataFusion`'s planner asks for: functions, and no tables.
#[derive(Default)]
struct Provider {
    options: ConfigOptions,
}

impl ContextProvider for Provider {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>, DataFusionError> {
        plan_err!("there is no table `{name}` in an expression")
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &FUNCTIONS.planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        FUNCTIONS.scalar.get(&name.to_lowercase()).cloned()
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        FUNCTIONS.aggregate.get(&name.to_lowercase()).cloned()
    }

    fn get_window_meta(&self, _name: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        FUNCTIONS.scalar.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        FUNCTIONS.aggregate.keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}
