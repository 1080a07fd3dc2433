//! The connection to the cluster as a state machine.

use crate::tui::event::News;

/// Where the connection stands. Times are ms since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    /// The first answer is waited for.
    Connecting,
    /// Answers come.
    Connected,
    /// Answers came, or were to come, and do not.
    Lost {
        /// Attempts that failed so far.
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
    Starting,
    /// There is nothing to connect to: a plan or a recording is shown.
    Apart,
}

impl Link {
    /// The state after some news.
    pub(crate) fn after(news: &News, now: u64) -> Self {
        match news {
            News::Connected => Self::Connected,
            News::Lost { cause, attempt, next_in } => {
                let next_at = now.saturating_add(*next_in);
                Self::Lost { attempt: *attempt, next_at, cause: cause.clone() }
            }
            News::Nobody(why) => Self::Nobody { why: why.clone() },
            News::Starting => Self::Starting,
            News::Connecting => Self::Connecting,
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
    fn an_outage_knows_when_the_next_attempt_comes() {
        let lost = News::Lost { cause: "no answer".into(), attempt: 2, next_in: 500 };
        let expected = Link::Lost { attempt: 2, next_at: 2500, cause: "no answer".into() };
        assert_eq!(Link::after(&lost, 2000), expected);
        assert!(Link::after(&News::Connected, 3000).is_connected() && !expected.is_connected());
    }
}
