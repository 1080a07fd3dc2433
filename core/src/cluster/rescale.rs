//! A job's rescales: what was asked for, what was planned, how far it went, and what came of it.

use serde::{Deserialize, Serialize};

use crate::fault::shortened;

/// The most characters of a planner's name.
const LONGEST_NAME: usize = 100;

/// The most rows a second that a plan of somebody else's may foretell.
pub const MOST_PREDICTED: f64 = 1e18;

/// Who the history says has acted where the automatic mode did.
pub const AUTOMATIC: &str = "auto";

/// The name of somebody who has planned a rescale, as the history may say it.
///
/// # Errors
/// What is wrong with it, in words that follow it.
pub fn check_planner(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
    if name.is_empty() || name.chars().count() > LONGEST_NAME || !name.chars().all(good) {
        return Err(format!(
            "is no name: it must be 1 to {LONGEST_NAME} letters, digits, `_`, `-`, `.` or `+`"
        ));
    }
    if name == AUTOMATIC {
        return Err(format!("is `{AUTOMATIC}`, which the automatic mode is called: take another name"));
    }
    Ok(())
}

/// One instance as people call it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Dense id.
    pub id: u32,
    /// `id#n`.
    pub name: String,
    /// The name of the agent that it is on.
    pub agent: String,
}

/// How far a rescale went. It goes through the first four in this order, or fails before it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Agents are making the new instances and their channels. The old plan holds.
    Asked,
    /// All agents have; nothing is sent to the new instances yet. The old plan holds.
    Prepared,
    /// The new plan holds; instances that it leaves out are drained.
    Committed,
    /// Those have ended.
    Done,
    /// The old plan has held throughout, or the job ended first.
    Failed,
}

impl Step {
    /// It will not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    /// As texts and documents say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// One rescale of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rescale {
    /// The epoch of its plan. A plan that failed has used its number too.
    pub epoch: u64,
    /// The attempt of the job that it belongs to.
    pub attempt: u32,
    /// What was asked for, as the command says it.
    pub asked: String,
    /// Who chose where, if a planner did.
    pub planner: Option<String>,
    /// How far it went.
    pub step: Step,
    /// Why it failed.
    pub fault: Option<String>,
    /// Instances that it starts.
    pub started: Vec<Named>,
    /// Instances that it ends.
    pub stopped: Vec<Named>,
    /// When it was asked for, ms since 1970.
    pub asked_ms: u64,
    /// When all agents had prepared it.
    pub prepared_ms: Option<u64>,
    /// When the new plan began to hold.
    pub committed_ms: Option<u64>,
    /// When it was done, or failed.
    pub ended_ms: Option<u64>,
    /// Rows a second that all sinks together take with the new plan, as was predicted.
    pub predicted: Option<f64>,
    /// Why nothing was predicted.
    #[serde(default)]
    pub unpredicted: Option<String>,
    /// The same as it was measured once a whole window had passed.
    pub measured: Option<f64>,
    /// Why it was not measured, where that will not come any more.
    #[serde(default)]
    pub unmeasured: Option<String>,
    /// Why so, in words; a planner's, or those of the automatic mode.
    #[serde(default)]
    pub why: Option<String>,
}

impl Rescale {
    /// Neither is it known what came of it, nor that this will not be known.
    pub fn is_unmeasured(&self) -> bool {
        self.measured.is_none() && self.unmeasured.is_none()
    }
}

/// The most characters of a text of an entry that is cut.
const LONGEST_TEXT: usize = 1000;

/// The most instances that an entry which is cut names as started, and as ended.
const MOST_NAMED: usize = 1000;

impl Rescale {
    /// Not less than the bytes that it takes in a message.
    fn size(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }

    /// The same with long texts and lists cut, so that it has a bound; it says so.
    fn cut(mut self) -> Self {
        let cut = |text: &mut String| *text = shortened(text, LONGEST_TEXT).into_owned();
        let whys = [&mut self.unpredicted, &mut self.unmeasured, &mut self.why];
        let texts = [&mut self.planner, &mut self.fault].into_iter().chain(whys);
        texts.flatten().chain([&mut self.asked]).for_each(cut);
        let counts = [self.started.len(), self.stopped.len()];
        for list in [&mut self.started, &mut self.stopped] {
            list.truncate(MOST_NAMED);
            for one in list {
                for text in [&mut one.name, &mut one.agent] {
                    *text = shortened(text, LONGEST_NAME).into_owned();
                }
            }
        }
        if counts.iter().any(|count| *count > MOST_NAMED) {
            let [started, stopped] = counts;
            let more = format!(
                "of {started} instances that it starts and {stopped} that it ends the first {MOST_NAMED} are listed"
            );
            self.why = Some(self.why.map_or_else(|| more.clone(), |why| format!("{why}; {more}")));
        }
        self
    }
}

/// The newest of a history that take at most so many bytes in a message together, the last one whatever it takes: it is cut
/// where it takes more than half of them. And how many older ones that leaves out.
pub fn newest(history: &[Rescale], most: usize) -> (Vec<Rescale>, u64) {
    let (mut kept, mut left) = (Vec::new(), most);
    for entry in history.iter().rev() {
        let (entry, size) = match entry.size() {
            size if size <= most / 2 => (entry.clone(), size),
            _ => {
                let entry = entry.clone().cut();
                let size = entry.size();
                (entry, size)
            }
        };
        if size > left && !kept.is_empty() {
            break;
        }
        left = left.saturating_sub(size);
        kept.push(entry);
    }
    kept.reverse();
    let left_out = (history.len() - kept.len()) as u64;
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(epoch: u64, asked: String, started: Vec<Named>) -> Rescale {
        let plan = serde_json::json!({
            "epoch": epoch, "attempt": 1, "asked": asked, "step": "done", "started": [], "stopped": [], "asked_ms": 1
        });
        Rescale { started, ..serde_json::from_value(plan).unwrap() }
    }

    #[test]
    fn a_history_is_cut_to_what_can_be_sent_the_oldest_first() {
        let most = 1 << 20;
        let short: Vec<Rescale> =
            (0..100).map(|epoch| entry(epoch, "set w=3".to_owned(), Vec::new())).collect();
        assert_eq!(newest(&short, most), (short.clone(), 0));
        let long: Vec<Rescale> = (0..100).map(|epoch| entry(epoch, "x".repeat(75_000), Vec::new())).collect();
        let (kept, left_out) = newest(&long, most);
        assert_eq!((kept.len() as u64 + left_out, kept.last()), (100, long.last()));
        assert!(kept.iter().map(Rescale::size).sum::<usize>() <= most && kept.len() > 10, "{}", kept.len());
    }

    #[test]
    fn one_entry_that_is_too_long_is_cut_and_says_so() {
        let named = |id| Named { id, name: "n".repeat(500), agent: "a".to_owned() };
        let list: Vec<Named> = (0..9000).map(named).collect();
        let history = [entry(1, "é".repeat(7_000_000), list.clone()), entry(2, "set w=4".to_owned(), list)];
        let (kept, left_out) = newest(&history, 1 << 20);
        assert_eq!((kept.len(), left_out, kept[1].epoch), (2, 0, 2));
        assert_eq!((kept[0].started.len(), kept[0].asked.chars().count()), (MOST_NAMED, LONGEST_TEXT + 1));
        assert!(
            kept[1].why.as_ref().is_some_and(|why| why.contains("of 9000 instances")),
            "{:?}",
            kept[1].why
        );
        assert!(kept.iter().map(Rescale::size).sum::<usize>() <= 1 << 20);
        let (kept, left_out) = newest(&history, 10);
        assert_eq!((kept.len(), left_out), (1, 1), "the last one is always there");
    }

    #[test]
    fn a_planner_has_a_name_of_its_own() {
        for good in ["mine", "storm-default", "best_2.1+"] {
            assert_eq!(check_planner(good), Ok(()), "{good}");
        }
        for bad in ["", "auto", "a b", "x\n", &"x".repeat(101)] {
            assert!(check_planner(bad).is_err(), "{bad}");
        }
    }
}
