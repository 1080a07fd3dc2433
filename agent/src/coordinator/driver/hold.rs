//! For tests: a coordinator that stands still in the middle of a plan, to be killed there.

use tuplane_core::cluster::{Command, Logged};

/// Only in a build with assertions: the name of a command, such as `GroupMoved`. Once the log has it on disk, of a plan
/// that this coordinator was asked for itself, the coordinator answers and acts no more; with `+` behind the name, once
/// it has begun what follows from the command too.
const HOLD: &str = "TUPLANE_TEST_HOLD";

/// Where a coordinator is to stand still; mostly nowhere.
#[derive(Debug, Default)]
pub(super) struct Hold {
    command: Option<String>,
    /// What follows is begun before.
    acts: bool,
    /// It was asked for a plan.
    asked: bool,
}

impl Hold {
    /// As the environment says.
    pub(super) fn from_environment() -> Self {
        match std::env::var(HOLD).ok().filter(|_| cfg!(debug_assertions)) {
            Some(text) => {
                let command = Some(text.trim_end_matches('+').to_owned());
                Self { command, acts: text.ends_with('+'), asked: false }
            }
            None => Self::default(),
        }
    }

    /// Stands still for ever, if these entries, which are on disk, are what it waits for; `acted`: and what follows from
    /// them was begun.
    pub(super) async fn at(&mut self, entries: &[Logged], acted: bool) {
        let Some(wanted) = self.command.as_deref() else { return };
        self.asked |= entries.iter().any(|entry| matches!(entry.command, Command::RescaleAsked { .. }));
        let is = |entry: &Logged| format!("{:?}", entry.command).starts_with(&format!("{wanted} "));
        if self.asked && self.acts == acted && entries.iter().any(is) {
            tracing::warn!(after = wanted, acted, "the coordinator stands still, as a test has asked");
            std::future::pending::<()>().await;
        }
    }
}
