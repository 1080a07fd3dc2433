//! What a line of `tuplane jobs` says of a job, and a job's document first.

use serde::Serialize;
use tuplane_wire::message::{JobPhase, JobSummary, Pending};

use crate::failure::fault_kind;
use crate::output::time::{now_ms, rfc3339};

/// A line of `tuplane jobs`.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryView {
    pub(crate) job: String,
    pub(crate) run: u64,
    #[serde(serialize_with = "phase_name")]
    pub(crate) phase: JobPhase,
    pub(crate) attempt: u32,
    pub(crate) submitted_at: String,
    ended_at: Option<String>,
    /// From submit to the end, or to now.
    pub(crate) wall_ms: u64,
    instances: u32,
    pub(crate) agents: Vec<String>,
    pub(crate) fault: Option<JobFault>,
    /// Files of a finished job that are not visible yet.
    pub(crate) pending: Vec<PendingView>,
}

/// Files of one agent that are not visible yet.
#[derive(Debug, Serialize)]
pub(crate) struct PendingView {
    agent: String,
    cause: String,
    parts: Vec<String>,
    #[serde(skip)]
    sentence: String,
}

impl PendingView {
    /// With the hidden parts' paths.
    pub(crate) fn sentence(&self) -> &str {
        &self.sentence
    }
}

impl From<&Pending> for PendingView {
    fn from(pending: &Pending) -> Self {
        Self {
            agent: pending.agent.clone(),
            cause: pending.cause.clone(),
            parts: pending.parts.iter().map(|part| part.path.clone()).collect(),
            sentence: pending.to_string(),
        }
    }
}

/// Why a job failed.
#[derive(Debug, Serialize)]
pub(crate) struct JobFault {
    kind: &'static str,
    pub(crate) message: String,
}

/// A phase as a word.
pub(crate) fn phase_word(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Starting => "starting",
        JobPhase::Running => "running",
        JobPhase::Sealing => "sealing",
        JobPhase::Finished => "finished",
        JobPhase::Cancelled => "cancelled",
        JobPhase::Failed => "failed",
        JobPhase::Stopping => "stopping",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn phase_name<S: serde::Serializer>(phase: &JobPhase, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(phase_word(*phase))
}

impl From<&JobSummary> for SummaryView {
    fn from(summary: &JobSummary) -> Self {
        let end = summary.ended_ms.unwrap_or_else(now_ms);
        Self {
            job: summary.name.clone(),
            run: summary.run,
            phase: summary.phase,
            attempt: summary.attempt,
            submitted_at: rfc3339(summary.submitted_ms),
            ended_at: summary.ended_ms.map(rfc3339),
            wall_ms: end.saturating_sub(summary.submitted_ms),
            instances: summary.instances,
            agents: summary.agents.clone(),
            fault: summary
                .fault
                .as_ref()
                .map(|fault| JobFault { kind: fault_kind(fault.code), message: fault.message.clone() }),
            pending: summary.pending.iter().map(PendingView::from).collect(),
        }
    }
}
