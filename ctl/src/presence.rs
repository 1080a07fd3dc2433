//! An agent's state as one word, the same in tables and in the UI.

use tuplane_wire::message::AgentStatus;

/// An agent whose last report is older is silent, ms. Agents report every 250 ms, and the UI asks every
/// 500 ms.
pub(crate) const SILENT_MS: u64 = 1_500;

/// `up`, `silent` or `lost`; `age_ms` is the age of its last report. Why one is lost is in its status.
pub(crate) fn word(status: &AgentStatus, age_ms: u64) -> &'static str {
    if !status.alive || status.lost.is_some() {
        "lost"
    } else if age_ms > SILENT_MS {
        "silent"
    } else {
        "up"
    }
}
