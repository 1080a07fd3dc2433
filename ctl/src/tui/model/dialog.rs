//! Dialogs: a choice, a question before something changes, and all that is known of one thing.

use crate::tui::effect::Ask;

/// What stands over the screen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dialog {
    /// One of several.
    Choice {
        /// What is chosen.
        title: String,
        /// The items.
        items: Vec<String>,
        /// The one under the cursor.
        at: usize,
        /// What comes of it.
        then: Then,
    },
    /// Before something changes. The answer that changes nothing is selected at first.
    Confirm {
        /// What will be done.
        title: String,
        /// What it is now and what it will be, and what is touched.
        lines: Vec<String>,
        /// The answer that changes nothing.
        no: &'static str,
        /// The other one.
        yes: &'static str,
        /// The other one is selected.
        on_yes: bool,
        /// What is asked of the cluster then.
        ask: Ask,
    },
    /// All that is known of one thing.
    Facts {
        /// What.
        title: String,
        /// Names and values.
        lines: Vec<(String, String)>,
        /// How far it is scrolled.
        top: usize,
    },
}

/// What comes of a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The policy of an edge of a run, by index.
    Policy {
        /// The run.
        run: u64,
        /// The edge.
        edge: u32,
    },
    /// An option of the policy of an edge of a run: the line for its value is opened.
    Option {
        /// The run.
        run: u64,
        /// The edge.
        edge: u32,
    },
    /// What is scaled: the line for it is opened.
    Scale,
    /// The column that the screen's table is sorted by.
    Sort,
}
