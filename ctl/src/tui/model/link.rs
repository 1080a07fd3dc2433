//! The connection to the cluster as a state machine.

use crate::tui::event::News;

/// Where the connection stands. Times are ms since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// The first answer is waited for.
    Connecting {
        /// Since when.
        since: u64,
    },
    /// Answers come.
    Connected,
    /// Answers came, or were to come, and do not.
    Lost {
        /// Since when.
        since: u64,
        /// Attempts that failed since.
        attempt: u32,
        /// When the next one comes.
        next_at: u64,
        /// What was seen last.
        cause: String,
    },
    /// There is no cluster to connect to.
    Nobody {
        /// Why, and what would help.
        why: String,
    },
    /// Local agents are being started.
    Starting {
        /// Since when.
        since: u64,
    },
    /// There is nothing to connect to: a plan or a recording is shown.
    Apart,
}

impl Link {
    /// The state after some news.
    pub(crate) fn after(&self, news: &News, now: u64) -> Self {
        match news {
            News::Connected => Self::Connected,
            News::Lost { cause, attempt, next_in } => {
                let since = match self {
                    Self::Lost { since, .. } => *since,
                    _ => now,
                };
                let next_at = now.saturating_add(*next_in);
                Self::Lost { since, attempt: *attempt, next_at, cause: cause.clone() }
            }
            News::Nobody(why) => Self::Nobody { why: why.clone() },
            News::Starting => Self::Starting { since: now },
        }
    }

    /// Answers come.
    pub(crate) fn is_connected(&self) -> bool {
        *self == Self::Connected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_keeps_its_beginning_and_counts_its_attempts() {
        let lost = |attempt| News::Lost { cause: "no answer".into(), attempt, next_in: 500 };
        let first = Link::Connected.after(&lost(1), 1000);
        let second = first.after(&lost(2), 2000);
        let expected = Link::Lost { since: 1000, attempt: 2, next_at: 2500, cause: "no answer".into() };
        assert_eq!(second, expected);
        assert!(second.after(&News::Connected, 3000).is_connected());
        let nobody = Link::Connecting { since: 0 }.after(&News::Nobody("none runs".into()), 5);
        assert_eq!(nobody.after(&News::Starting, 9), Link::Starting { since: 9 });
    }
}
