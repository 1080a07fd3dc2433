//! Where a row entered: source, split and line in one number, and the words by which a person finds it.

use serde::{Deserialize, Serialize};

use crate::cluster::types::Split;
use crate::job::{Job, Op, Stage};

const SPLIT_BITS: u32 = 20;
const LINE_BITS: u32 = 36;

/// The name under which `tuplane run` keeps what it read from standard input.
pub const STANDARD_INPUT: &str = "tuplane-standard-input";

/// Where a row entered. From the highest bit down: the source (8 bits), the split (20 bits, numbered by
/// [`Numbering`]), the line within the split (36 bits, from 1).
///
/// The line is the split's and not the file's, since the lines before a byte range are only known once
/// somebody has read them: [`words`] asks for their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowPlace(u64);

impl RowPlace {
    /// The place before the first line of a split; `None` if a number is larger than its bits hold.
    pub fn new(source: u32, split: u32) -> Option<Self> {
        let source = u8::try_from(source).ok()?;
        let fits = split < 1 << SPLIT_BITS;
        fits.then(|| Self(u64::from(source) << (SPLIT_BITS + LINE_BITS) | u64::from(split) << LINE_BITS))
    }

    /// A line of the same split; `None` beyond 2^36 lines.
    pub fn at_line(self, line: u64) -> Option<Self> {
        (line < 1 << LINE_BITS).then_some(Self(self.0 & !LINE_MASK | line))
    }

    /// The number in which it travels.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The place that travelled as this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Which of the job's sources, in the order of its stages.
    pub fn source(self) -> u32 {
        (self.0 >> (SPLIT_BITS + LINE_BITS)) as u32
    }

    /// Which split of the source, by its [`Numbering`].
    pub fn split(self) -> u32 {
        (self.0 >> LINE_BITS) as u32 & ((1 << SPLIT_BITS) - 1)
    }

    /// Which line of the split, from 1.
    pub fn line(self) -> u64 {
        self.0 & LINE_MASK
    }
}

const LINE_MASK: u64 = (1 << LINE_BITS) - 1;

/// Whose the numbers of a source's splits are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The cluster's: every split is read once.
    Cluster,
    /// Each agent's own (`files = "each"`): equal numbers on two agents are two splits.
    Agent {
        /// This agent's index in the run.
        agent: u16,
        /// Agents of the run.
        agents: u16,
    },
}

impl Numbering {
    /// One number for all splits of a source; `None` if it is too large.
    pub fn number(self, split: u32) -> Option<u32> {
        match self {
            Self::Cluster => Some(split),
            Self::Agent { agent, agents } => {
                split.checked_mul(u32::from(agents))?.checked_add(u32::from(agent))
            }
        }
    }
}

/// The agent, by its index in a run of so many, and its own number of a split of a source with
/// [`Numbering::Agent`].
pub fn owner(split: u32, agents: u16) -> (u16, u32) {
    let agents = u32::from(agents).max(1);
    ((split % agents) as u16, split / agents)
}

/// What a source instance needs to mark its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePlaces {
    /// Which of the job's sources: [`source_number`].
    pub source: u32,
    /// Whose the numbers of its splits are.
    pub numbering: Numbering,
}

impl SourcePlaces {
    /// The place before the first line of a split.
    pub fn of_split(self, split: u32) -> Option<RowPlace> {
        RowPlace::new(self.source, self.numbering.number(split)?)
    }
}

/// The number of a source stage among the job's sources.
pub fn source_number(job: &Job, stage: &str) -> Option<u32> {
    sources(job).position(|source| source.id == stage).map(|number| number as u32)
}

/// The source stage with a number.
pub fn source_stage(job: &Job, number: u32) -> Option<&Stage> {
    sources(job).nth(number as usize)
}

fn sources(job: &Job) -> impl Iterator<Item = &Stage> {
    job.stages.iter().filter(|stage| matches!(stage.op, Op::Source(_)))
}

/// Where a person finds a line of a split. `before` gives the lines that stand before the split in its
/// file, and is asked only where there are any; `None` where they cannot be counted.
pub fn words(split: &Split, line: u64, before: impl FnOnce(&Split) -> Option<u64>) -> String {
    let name = split.path.rsplit(['/', '\\']).next();
    let file = if name == Some(STANDARD_INPUT) { "standard input" } else { split.path.as_str() };
    let before = if split.start == 0 { Some(0) } else { before(split) };
    match before {
        Some(before) => format!("{file}, line {}", before + line),
        None => format!("{file}, line {line} after byte {}", split.start),
    }
}

/// As [`words`], where the split is not known any more.
pub fn words_without_file(stage: &str, place: RowPlace) -> String {
    format!("line {} of a file of source {stage}", place.line())
}

/// A sentence about a row, with its place.
pub fn sentence(message: &str, place: &str) -> String {
    format!("{message} ({place})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(path: &str, start: u64) -> Split {
        Split { number: 0, path: path.to_owned(), start, end: u64::MAX, seen: None, done: None }
    }

    proptest! {
        #[test]
        fn every_number_comes_back(source in 0u32..256, number in 0u32..1 << 20, line in 0u64..1 << 36) {
            let place = RowPlace::new(source, number).unwrap().at_line(line).unwrap();
            let back = RowPlace::from_number(place.number());
            prop_assert_eq!((back.source(), back.split(), back.line()), (source, number, line));
            prop_assert_eq!(back.at_line(7).unwrap().split(), number);
        }

        #[test]
        fn own_splits_of_agents_are_told_apart(agents in 1u16..300, agent in 0u16..300, number in 0u32..3000) {
            let agent = agent % agents;
            let one = Numbering::Agent { agent, agents }.number(number).unwrap();
            prop_assert_eq!(owner(one, agents), (agent, number));
        }
    }

    #[test]
    fn the_layout_is_the_frames() {
        let place = RowPlace::new(1, 2).and_then(|place| place.at_line(3)).unwrap();
        assert_eq!(place.number(), 0x01_00_00_20_00_00_00_03);
    }

    #[test]
    fn numbers_beyond_their_bits_have_no_place() {
        assert_eq!(RowPlace::new(256, 0), None);
        assert_eq!(RowPlace::new(0, 1 << 20), None);
        assert_eq!(RowPlace::new(255, (1 << 20) - 1).unwrap().at_line(1 << 36), None);
        let own = Numbering::Agent { agent: 1, agents: u16::MAX };
        assert_eq!(SourcePlaces { source: 0, numbering: own }.of_split(u32::MAX), None);
        assert_eq!(SourcePlaces { source: 0, numbering: own }.of_split(17), None, "17 * 65535 + 1 >= 2^20");
    }

    #[test]
    fn words_name_the_file_and_its_line() {
        let never = |_: &Split| -> Option<u64> { panic!("nothing stands before the first split") };
        assert_eq!(words(&split("/logs/access.log", 0), 17, never), "/logs/access.log, line 17");
        assert_eq!(words(&split("/logs/access.log", 900), 17, |_| Some(40)), "/logs/access.log, line 57");
        assert_eq!(
            words(&split("/logs/access.log", 900), 17, |_| None),
            "/logs/access.log, line 17 after byte 900"
        );
        let spooled = split("/run/user/1/c/tuplane-standard-input", 0);
        assert_eq!(words(&spooled, 3, never), "standard input, line 3");
        assert_eq!(
            sentence("stage parsed: division by zero", "standard input, line 3"),
            "stage parsed: division by zero (standard input, line 3)"
        );
    }
}
