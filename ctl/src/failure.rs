//! What went wrong with a command, and the exit code that says so.

use std::io;

use tuplane_testbed::launch::LaunchError;
use tuplane_wire::client::CallError;
use tuplane_wire::message::{FaultCode, WireFault};

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The operation failed; `kind` is `row`, `instance`, `agent` or `io`.
    #[error("{message}")]
    Failed {
        /// For the JSON.
        kind: &'static str,
        /// One sentence.
        message: String,
    },
    /// Wrong usage, a broken file, a refused request: nothing changed.
    #[error("{0}")]
    Usage(String),
    /// The cluster has fewer agents than were asked for; more of them may be started.
    #[error("{0}")]
    TooFewAgents(String),
    /// Already shown in full (faults with their places); only the code is left to give.
    #[error("refused")]
    Shown,
    /// No cluster, or it does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// Waiting ran out; the work may go on.
    #[error("{0}")]
    TimedOut(String),
    /// The request was made against a state that is no more.
    #[error("{0}")]
    Stale(String),
    /// No such job, stage, edge or agent.
    #[error("{0}")]
    NotFound(String),
    /// It would destroy something and nobody could be asked.
    #[error("{0}")]
    NeedsYes(String),
    /// Versions differ.
    #[error("{0}")]
    Version(String),
    /// A defect of Tuplane.
    #[error("{0}")]
    Internal(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Ctrl-C, and what it left behind, a line each.
    #[error("{0}")]
    InterruptedLeaving(String),
    /// Ended by what has been said already, or by a signal; only the code is left to give.
    #[error("ended")]
    Ended(u8),
    /// The reader of the output has gone; that is its right.
    #[error("the output is closed")]
    BrokenPipe,
}

impl Failure {
    /// The exit code (see `tuplane help`).
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Failed { .. } => 1,
            Self::Usage(_) | Self::TooFewAgents(_) | Self::Shown => 2,
            Self::Unreachable(_) => 3,
            Self::TimedOut(_) => 4,
            Self::Stale(_) => 5,
            Self::NotFound(_) => 6,
            Self::NeedsYes(_) => 7,
            Self::Version(_) => 8,
            Self::Internal(_) => 70,
            Self::Interrupted | Self::InterruptedLeaving(_) => 130,
            Self::Ended(code) => *code,
        }
    }

    /// The same as a word, for JSON.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Failed { kind, .. } => kind,
            Self::Usage(_) | Self::TooFewAgents(_) | Self::Shown => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut(_) => "timeout",
            Self::Stale(_) => "stale",
            Self::NotFound(_) => "not_found",
            Self::NeedsYes(_) => "needs_yes",
            Self::Version(_) => "version",
            Self::Internal(_) => "internal",
            Self::Interrupted | Self::InterruptedLeaving(_) | Self::Ended(_) => "interrupted",
            Self::BrokenPipe => "broken_pipe",
        }
    }

    /// A file that could not be read or written.
    pub(crate) fn file(action: &str, path: &std::path::Path, cause: &io::Error) -> Self {
        Self::Usage(format!("cannot {action} {}: {cause}", path.display()))
    }
}

/// A failure as the document `error` has it.
pub(crate) fn document(failure: &Failure) -> serde_json::Value {
    serde_json::json!({"kind": failure.kind(), "message": failure.to_string(), "exit": failure.code()})
}

/// An error of standard output: everything else is given its own sentence where it arises.
impl From<io::Error> for Failure {
    fn from(cause: io::Error) -> Self {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Failed { kind: "io", message: format!("cannot write the output: {cause}") }
    }
}

impl From<WireFault> for Failure {
    fn from(fault: WireFault) -> Self {
        let message = fault.message;
        match fault.code {
            FaultCode::Refused => Self::Usage(message),
            FaultCode::TooFewAgents => Self::TooFewAgents(message),
            FaultCode::NotFound => Self::NotFound(message),
            FaultCode::Version => Self::Version(message),
            FaultCode::Stale => Self::Stale(message),
            FaultCode::NotCoordinator => Self::Unreachable(message),
            code @ (FaultCode::Row | FaultCode::Instance | FaultCode::Agent) => {
                Self::Failed { kind: fault_kind(code), message }
            }
            FaultCode::Internal => Self::Internal(message),
        }
    }
}

/// A fault's code as the word that JSON has for it.
pub(crate) fn fault_kind(code: FaultCode) -> &'static str {
    match code {
        FaultCode::Refused | FaultCode::TooFewAgents => "refused",
        FaultCode::Row => "row",
        FaultCode::Instance => "instance",
        FaultCode::Agent => "agent",
        FaultCode::NotFound => "not_found",
        FaultCode::Version => "version",
        FaultCode::NotCoordinator => "not_coordinator",
        FaultCode::Stale => "stale",
        FaultCode::Internal => "internal",
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Fault(fault) => fault.into(),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        let message = error.to_string();
        match error {
            LaunchError::Interrupted { left } if left.is_empty() => Self::Interrupted,
            LaunchError::Interrupted { .. } => Self::InterruptedLeaving(message),
            LaunchError::Hosts { faults, .. } if faults.iter().all(|fault| fault.cause.is_connection()) => {
                Self::Unreachable(message)
            }
            LaunchError::Hosts { .. } | LaunchError::Agent { .. } => Self::Failed { kind: "agent", message },
            LaunchError::Refused(_) | LaunchError::File { .. } => Self::Usage(message),
        }
    }
}
