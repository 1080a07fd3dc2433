//! A job's automatic mode: how it decides, what it must remember, what it did and said.

use serde::{Deserialize, Serialize};

use crate::scale::{AutoOptions, Memory};

/// So many notes of a job are kept, the newest.
const KEPT: usize = 50;

/// The automatic mode of a job that has had it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Automatic {
    /// It acts.
    pub on: bool,
    /// How it decides.
    pub options: AutoOptions,
    /// When it was turned on or off last, ms since 1970.
    pub since_ms: u64,
    /// What it must remember.
    pub memory: Memory,
    /// The newest plan of the job that it has taken note of.
    pub plan: u64,
    /// What it did and said, the oldest first.
    pub notes: Vec<AutoNote>,
}

/// Something that the automatic mode did or said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoNote {
    /// When, ms since 1970.
    pub at_ms: u64,
    /// What.
    pub what: AutoWhat,
    /// In one sentence; empty where there is no more to say.
    pub why: String,
    /// The plan that came of it.
    pub plan: Option<u64>,
}

/// Kinds of [`AutoNote`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoWhat {
    /// It was turned on.
    On,
    /// It was turned off.
    Off,
    /// It asked for more instances.
    Out,
    /// It asked for fewer.
    In,
    /// More is needed than there can be.
    AtLimit,
    /// What it wanted cannot be done as things are.
    Refused,
    /// A plan of it was given up.
    Failed,
}

impl AutoWhat {
    /// In a word or two, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Out => "out",
            Self::In => "in",
            Self::AtLimit => "at limit",
            Self::Refused => "refused",
            Self::Failed => "given up",
        }
    }
}

impl Automatic {
    /// Turned on, or off, at this moment. That it acted a moment ago is remembered, and nothing else of what it thought.
    pub(super) fn set(before: Option<Self>, options: Option<AutoOptions>, plan: u64, at_ms: u64) -> Self {
        let on = options.is_some();
        let options = options.or(before.as_ref().map(|before| before.options)).unwrap_or_default();
        let (memory, notes) =
            before.map(|before| (before.memory.cooldown_alone(), before.notes)).unwrap_or_default();
        let mut auto = Self { on, options, since_ms: at_ms, memory, plan, notes };
        let what = if on { AutoWhat::On } else { AutoWhat::Off };
        auto.note(AutoNote { at_ms, what, why: String::new(), plan: None });
        auto
    }

    pub(super) fn note(&mut self, note: AutoNote) {
        self.notes.push(note);
        if self.notes.len() > KEPT {
            self.notes.remove(0);
        }
    }
}
