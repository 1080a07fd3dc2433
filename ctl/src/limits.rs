//! What limits a job, in words.

use tuplane_core::plan::VertexId;
use tuplane_core::scale::Limit;

/// How a command and the UI write names and numbers.
pub(crate) struct Wording<'a> {
    /// A vertex's name.
    pub(crate) label: &'a dyn Fn(VertexId) -> String,
    /// A share of one.
    pub(crate) share: &'a dyn Fn(f64) -> String,
    /// Milliseconds.
    pub(crate) time: &'a dyn Fn(u64) -> String,
}

/// A sentence on what limits a job.
pub(crate) fn words(limit: &Limit, wording: &Wording<'_>) -> String {
    let Wording { label, share, time } = wording;
    match limit {
        Limit::Vertex { vertex, busy, behind, blocked } => format!(
            "limits the job: {} (busy {}, {} blocked {})",
            label(*vertex),
            share(*busy),
            label(*behind),
            share(*blocked)
        ),
        Limit::Queue { vertex, busy, waits_s } => format!(
            "limits the job: {} (busy {}, {} of its work waits before it)",
            label(*vertex),
            share(*busy),
            time((*waits_s * 1000.0) as u64)
        ),
        Limit::Source { vertex, busy } => {
            format!("limits the job: its source {} (busy {}, nobody blocked)", label(*vertex), share(*busy))
        }
        Limit::Transit { vertex, blocked } => format!(
            "limits the job: the way out of {} (blocked {}, no reader busy)",
            label(*vertex),
            share(*blocked)
        ),
        Limit::Nothing => "nothing limits the job: it keeps up with its input".to_owned(),
    }
}

/// The vertex that limits, if one does.
pub(crate) fn vertex(limit: &Limit) -> Option<VertexId> {
    match limit {
        Limit::Vertex { vertex, .. } | Limit::Queue { vertex, .. } | Limit::Source { vertex, .. } => {
            Some(*vertex)
        }
        Limit::Transit { .. } | Limit::Nothing => None,
    }
}
