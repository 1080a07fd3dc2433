//! Services of the user's own.

use std::sync::Arc;

use futures::FutureExt;
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::arrow::datatypes::SchemaRef;

use super::given::conforming;
use super::{Context, Failure, Given};
use crate::service::{Answering, CallError, Service};

/// A sort of service: one for the agent, which makes one for each instance of a stage that calls it.
pub trait ServiceKind: Send + Sync {
    /// The columns of an answer: what the stage's `select`, `where` or `unnest` sees behind the row's.
    /// `given.input` are those of the question, `args` of the job or the whole row.
    ///
    /// # Errors
    /// The job is refused with these words.
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure>;

    /// The service of an instance, on the runtime that its calls will be on.
    ///
    /// # Errors
    /// The job does not start.
    fn make(&self, context: Context) -> Result<Arc<dyn Service>, Failure>;

    /// What it takes and answers, in words, where that is fixed: part of the registry's fingerprint.
    fn types(&self) -> String {
        String::new()
    }
}

/// A service, held to the columns that its sort has declared.
pub(crate) struct OwnService {
    service: Arc<dyn Service>,
    answer: SchemaRef,
}

impl OwnService {
    pub(super) fn new(service: Arc<dyn Service>, answer: SchemaRef) -> Self {
        Self { service, answer }
    }
}

impl Service for OwnService {
    fn fits(&self, question: &RecordBatch, most: usize) -> usize {
        self.service.fits(question, most).clamp(1, question.num_rows().min(most).max(1))
    }

    fn name(&self, question: &RecordBatch) -> String {
        self.service.name(question)
    }

    fn call(&self, question: RecordBatch) -> Answering {
        let (called, declared) = (self.service.call(question), Arc::clone(&self.answer));
        async move {
            let answer = called.await?;
            conforming(&answer, &declared).map_err(|why| CallError::lasting(why.to_string()))
        }
        .boxed()
    }

    fn blocks(&self) -> bool {
        self.service.blocks()
    }
}
