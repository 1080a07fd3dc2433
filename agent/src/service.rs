//! Services that stages call: one trait, one module per kind, and how a call is tried again.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tuplane_core::job::Calls;
use tuplane_expr::arrow::array::RecordBatch;

mod client;
mod http;

pub(crate) use client::HttpClient;
pub(crate) use http::Http;

/// The wait before the first further try; each later one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// No wait is longer, unless the service asks for it.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Nor one that the service asks for.
const LONGEST_ASKED: Duration = Duration::from_secs(30);

/// A call under way: `Box::pin(async move { .. })`.
pub type Answering = BoxFuture<'static, Result<RecordBatch, CallError>>;

/// Something that answers rows. `http` is built in; a registry adds others.
pub trait Service: Send + Sync {
    /// How many of the first rows go into one call, at most `most` and at least one.
    fn fits(&self, question: &RecordBatch, most: usize) -> usize {
        question.num_rows().min(most).max(1)
    }

    /// What is called, for people: it stands before whatever went wrong, so it holds no secret.
    fn name(&self, question: &RecordBatch) -> String;

    /// Answers the rows of `question`, whose columns are what the stage's expressions have made, with as many
    /// rows of the columns that were declared. Dropping the future ends the call.
    fn call(&self, question: RecordBatch) -> Answering;

    /// It holds up its thread; its calls then run on threads of their own, and end only by themselves.
    fn blocks(&self) -> bool {
        false
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallError {
    /// What is wrong.
    pub message: String,
    /// Whether it may be otherwise later.
    pub again: Again,
}

/// Whether a call is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Again {
    /// It will not be otherwise.
    Never,
    /// It may.
    Later,
    /// It may, and not before so long.
    After(Duration),
}

impl CallError {
    /// One that stays.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::Never }
    }

    /// One that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::Later }
    }

    /// One that may pass, and not before this time.
    pub fn passing_after(message: impl Into<String>, time: Duration) -> Self {
        Self { message: message.into(), again: Again::After(time) }
    }
}

/// Calls until there is an answer or no try is left; a sentence then says what was wrong with the last one.
/// `seed` spreads the waits of calls that failed together.
pub(crate) async fn ask(
    service: Arc<dyn Service>,
    question: RecordBatch,
    calls: Calls,
    seed: u64,
) -> Result<RecordBatch, String> {
    let mut lots = SmallRng::seed_from_u64(seed);
    let mut wait = FIRST_WAIT;
    let mut tries = 0;
    loop {
        tries += 1;
        let limit = calls.timeout();
        let called = tokio::time::timeout(limit, service.call(question.clone())).await;
        let error = match called {
            Ok(Ok(answer)) if answer.num_rows() == question.num_rows() => return Ok(answer),
            Ok(Ok(answer)) => {
                let (asked, came) = (question.num_rows(), answer.num_rows());
                CallError::lasting(format!("{asked} rows were sent, and {came} came back"))
            }
            Ok(Err(error)) => error,
            Err(_) => CallError::passing(format!("no answer within {limit:?}")),
        };
        let pause = match error.again {
            Again::Never => None,
            // Half of it is chance, so that calls which failed together do not come again together.
            Again::Later => Some(wait.mul_f64(0.5 + 0.5 * lots.random::<f64>())),
            Again::After(asked) => Some(asked.min(LONGEST_ASKED)),
        };
        let Some(pause) = pause.filter(|_| tries <= calls.retries()) else {
            let times = if tries == 1 { String::new() } else { format!(" ({tries} tries)") };
            return Err(format!("{}: {}{times}", service.name(&question), error.message));
        };
        tracing::debug!(cause = %error.message, tries, ?pause, "a call is tried again");
        tokio::time::sleep(pause).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests;
