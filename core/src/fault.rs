//! A fault in something a person wrote: what, where, and what to do about it.

use serde::{Deserialize, Serialize};

/// A place in a job or host file: 1-based line and column, and the byte span for a caret.
///
/// The default (line 0) means "not in a file": a job made by the Rust builder, or `--set`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct At {
    /// Line, from 1; 0 where there is no file.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Byte offset of the first character.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl At {
    /// What stands here was set by a `--set`: it has no line, and its column says by which.
    pub fn is_override(self) -> bool {
        self.line == 0 && self.column > 0
    }
}

/// A value with the place it was written at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: At,
}

impl<T> Spanned<T> {
    /// A value that stands at `at`.
    pub fn new(value: T, at: At) -> Self {
        Self { value, at }
    }

    /// A value that no file holds.
    pub fn nowhere(value: T) -> Self {
        Self { value, at: At::default() }
    }
}

/// One fault: a sentence that says what is wrong, the place, and a remedy where one is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// Where.
    pub at: At,
    /// What to do, if there is more to say than the message implies.
    pub help: Option<String>,
    /// The stage it concerns, if one does.
    pub stage: Option<String>,
}

impl Fault {
    /// A fault at a place.
    pub fn new(at: At, message: impl Into<String>) -> Self {
        Self { message: message.into(), at, help: None, stage: None }
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Names the stage.
    #[must_use]
    pub fn stage(mut self, stage: impl Into<String>) -> Self {
        self.stage = Some(stage.into());
        self
    }
}

/// Renders `file:line:column: message (help)`, one line, for logs and plain output.
impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.at.line > 0 {
            write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}

/// The start of a text that somebody else wrote, for a message: at most so many characters.
pub fn shortened(text: &str, most: usize) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Nobody slips in a name of more characters, and it would take long to compare two of many thousands.
const LONGEST_SLIP: usize = 100;

/// The closest of `known` to `wrote`, if it is close enough to be a slip of the finger. Nothing is no slip.
pub fn suggestion<'a>(wrote: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = wrote.chars().count();
    let may_be = |name: &&str| {
        let count = name.chars().count();
        (1..=LONGEST_SLIP).contains(&length) && count.abs_diff(length) <= 1 + count.min(length) / 4
    };
    known
        .into_iter()
        .filter(may_be)
        .map(|name| (strsim::damerau_levenshtein(&wrote.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.chars().count().min(length) / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_a_name_and_is_not_looked_for_in_what_nobody_slips_in() {
        assert_eq!(suggestion("wrok", ["work", "out"]), Some("work"));
        assert_eq!(suggestion("", ["a"]), None);
        // Two of these would take minutes to compare.
        let (long, other) = ("x".repeat(1 << 20), "y".repeat(1 << 20));
        assert_eq!(suggestion(&long, [other.as_str(), "work"]), None);
    }

    #[test]
    fn a_name_in_other_letters_is_a_slip() {
        assert_eq!(suggestion("SLOW", ["quick", "slow"]), Some("slow"));
        assert_eq!(suggestion("QUIK", ["quick", "slow"]), Some("quick"));
        assert_eq!(suggestion("other", ["quick", "slow"]), None);
    }
}
