//! Service calls: what a row asks, and what it becomes with the answer.

use std::sync::Arc;

use datafusion_common::arrow::array::ArrayRef;
use datafusion_common::arrow::compute::filter_record_batch;
use datafusion_common::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use tuplane_core::fault::Fault;
use tuplane_core::job::{OnError, Stage, Text, UsingService, environment_variable};

use super::rows::{Dropped, EvalError, Failed, Projection, keep_mask};
use super::stateful::{Advanced, StatefulTexts, Then, then};
use crate::sql::{Compiled, Language, sql_name};
use crate::system::{SystemColumns, conform, own_part, with_system};

/// What a stage's expressions see of an answer of `http`, behind the row's columns.
pub fn answer_columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("response", DataType::Utf8, true),
        Field::new("status", DataType::Int64, true),
    ]))
}

/// A compiled service call. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServiceProgram {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What a row asks, a column each.
    question: Projection,
    /// The columns of an answer.
    answer: SchemaRef,
    /// The row's columns, the answer's, then system columns.
    seen: SchemaRef,
    /// The row's columns, then system columns.
    row: SchemaRef,
    then: Then,
    output: SchemaRef,
    on_error: OnError,
}

/// Rows and what they ask.
#[derive(Debug)]
pub struct Asked {
    /// The rows that can ask, system columns included.
    pub rows: RecordBatch,
    /// What each asks.
    pub question: RecordBatch,
    /// Rows left out by `on_error = "drop"`; numbers are those of the batch that was given.
    pub dropped: Vec<Dropped>,
    /// The last row that was left out, or in which a value became null.
    pub last: Option<Dropped>,
}

/// What rows have become.
#[derive(Debug)]
pub struct Answered {
    /// The rows, or lists that are yet to become rows.
    pub made: Advanced,
    /// Rows left out by `on_error = "drop"`.
    pub dropped: Vec<Dropped>,
    /// The last row that was left out, or in which a value became null.
    pub last: Option<Dropped>,
}

impl ServiceProgram {
    /// Compiles a stage whose service answers with these columns. `system` columns of the input are copied.
    pub fn compile(
        language: Language,
        stage: &Stage,
        using: &UsingService,
        (input, answer): (&SchemaRef, &SchemaRef),
        system: SystemColumns,
        on_error: OnError,
    ) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let question = question(language, stage, using, input).map_err(|found| faults.extend(found));
        for field in answer.fields() {
            if input.column_with_name(field.name()).is_some() {
                let message = format!(
                    "the row has a column `{}`, which is what the answer's part is called here",
                    field.name()
                );
                faults.push(Fault::new(stage.at, message).help("name the column otherwise in a map before"));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let width = input.fields().len();
        let own = input.fields().iter().map(|field| Arc::new(field.as_ref().clone().with_nullable(true)));
        let all: SchemaRef =
            Arc::new(Schema::new(own.chain(answer.fields().iter().cloned()).collect::<Vec<_>>()));
        if using.then.is_empty() {
            let option = using.shape.option();
            return Err(vec![Fault::new(stage.at, format!("`{option}` is missing"))]);
        }
        let texts = StatefulTexts { shape: using.shape, state: &[], update: &[], then: &using.then };
        let compiled = then(language, texts, &all, width).map_err(|found| faults.extend(found));
        let (Ok(question), Ok(compiled)) = (question, compiled) else { return Err(faults) };
        let (then, output) = compiled.carrying(all.fields().len(), input, system);
        let (seen, row) = (with_system(&all, system), with_system(input, system));
        Ok(Self {
            inner: Arc::new(Inner {
                question,
                answer: Arc::clone(answer),
                seen,
                row,
                then,
                output,
                on_error,
            }),
        })
    }

    /// The columns that come out, system columns included.
    pub fn output(&self) -> &SchemaRef {
        &self.inner.output
    }

    /// The columns that a question has.
    pub fn asked(&self) -> &SchemaRef {
        &self.inner.question.output
    }

    /// The columns that an answer must have.
    pub fn answered(&self) -> &SchemaRef {
        &self.inner.answer
    }

    /// What happens to a row that cannot be answered.
    pub fn on_error(&self) -> OnError {
        self.inner.on_error
    }

    /// What rows ask.
    pub fn ask(&self, rows: RecordBatch) -> Result<Asked, EvalError> {
        let mut failed = Failed::new(self.inner.on_error);
        let question = self.inner.question.eval_into(&rows, &mut failed)?;
        let last = failed.last().cloned();
        let dropped = failed.into_dropped();
        let rows = if dropped.is_empty() {
            rows
        } else {
            filter_record_batch(&rows, &keep_mask(rows.num_rows(), &dropped))?
        };
        Ok(Asked { rows, question, dropped, last })
    }

    /// What rows become with their answers, a row of [`ServiceProgram::answered`] each.
    pub fn answer(&self, rows: &RecordBatch, answers: &RecordBatch) -> Result<Answered, EvalError> {
        let inner = &self.inner;
        // Where a row entered is known here, and goes on only where somebody behind needs it.
        let rows = conform(rows.clone(), &inner.row)?;
        let own = own_part(&rows)?;
        let system = rows.columns()[own.num_columns()..].iter();
        let columns: Vec<ArrayRef> =
            own.columns().iter().chain(answers.columns()).chain(system).cloned().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let input = RecordBatch::try_new_with_options(Arc::clone(&inner.seen), columns, &options)?;
        let mut failed = Failed::new(inner.on_error);
        let made = inner.then.apply(&input, &rows, &mut failed)?;
        let last = failed.last().cloned();
        Ok(Answered { made, dropped: failed.into_dropped(), last })
    }
}

/// What a row asks with: of `http` the address, the body and the headers, in this order.
pub(crate) fn question(
    language: Language,
    stage: &Stage,
    using: &UsingService,
    input: &SchemaRef,
) -> Result<Projection, Vec<Fault>> {
    let Some(http) = &using.http else {
        if using.args.is_empty() {
            return Ok(Projection::columns(input, 0..input.fields().len()));
        }
        return Projection::compile(language, &using.args, input);
    };
    let Some(url) = &http.url else { return Err(vec![Fault::new(stage.at, "`url` is missing")]) };
    let mut parts: Vec<(&str, &Text, bool)> = vec![("url", url, true)];
    parts.extend(http.body.iter().map(|body| ("body", body, false)));
    let headers = http.headers.iter().filter(|(_, value)| environment_variable(&value.value).is_none());
    parts.extend(headers.map(|(name, value)| (name.value.as_str(), value, true)));
    let (mut columns, mut faults) = (Vec::new(), Vec::new());
    for (position, (name, text, must_be_text)) in parts.into_iter().enumerate() {
        match part(language, name, text, must_be_text, input) {
            // A header may be called as another part is.
            Ok(Compiled { expr, field }) => {
                let field = Field::new(format!("{position}:{name}"), field.data_type().clone(), true);
                columns.push(Compiled { expr, field: Arc::new(field) });
            }
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(Projection::new(columns)) } else { Err(faults) }
}

fn part(
    language: Language,
    name: &str,
    text: &Text,
    must_be_text: bool,
    input: &SchemaRef,
) -> Result<Compiled, Fault> {
    let bare = text.value.trim_start();
    if bare.starts_with("http://") || bare.starts_with("https://") {
        let message = format!("`{name}` is an expression, and `{}` is none", text.value.trim());
        return Err(
            Fault::new(text.at, message).help("a constant stands in single quotes: \"'http://host/'\"")
        );
    }
    let compiled = language.compile(text, input)?;
    if must_be_text && *compiled.field.data_type() != DataType::Utf8 {
        let found = sql_name(compiled.field.data_type());
        let message = format!("`{name}` needs text, and `{}` is {found}", text.value.trim());
        return Err(Fault::new(text.at, message).help("write cast(.. as text)"));
    }
    Ok(compiled)
}
