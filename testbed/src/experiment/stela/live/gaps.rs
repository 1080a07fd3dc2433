//! How long nothing comes out when a job that is loaded to 80 % is rescaled, again and again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::cluster::Cluster;
use super::{Came, Clock, FEED, SOON, USUAL, wait};
use crate::experiment::Stop;
use crate::experiment::stela::measure::Tally;

/// The stage that rows wait at.
const WORK: &str = "work";

/// Numbers of instances of the stage that is scaled, in turn; the first is the job file's.
const INSTANCES: [u32; 2] = [4, 5];

/// Agents that there are: each has one instance of the source.
const AGENTS: u32 = 3;

/// Until it is in full swing.
const WARM_UP: Duration = Duration::from_secs(3);

/// The time before a rescale in which gaps are usual.
const BEFORE: Duration = Duration::from_secs(20);

/// How long it takes to start and end, about.
const AROUND: Duration = Duration::from_secs(8);

/// Rows that wait when a job that was filled has come to rest: so many are on their way at its rate.
const AT_REST: u64 = 50;

/// A job is filled within this time.
const FILLED: Duration = Duration::from_mins(5);

/// A job that is rescaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment::stela) struct Subject {
    /// Its file.
    file: (&'static str, &'static str),
    /// The stage that is scaled.
    scaled: &'static str,
    keys: Option<Keys>,
}

/// Keys of a job that keeps state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Keys {
    /// Of each source instance's rows, but for those that come often.
    seldom: u64,
    /// Bytes that are to be kept.
    state: u64,
}

impl Keys {
    /// Of each source instance's rows, those that come often.
    const OFTEN: u64 = 4;
    /// Of so many rows the first has such a key.
    const TURN: u64 = 4;
    /// As the job file has it.
    const SELDOM: &str = "333333";
    /// What a key, its count, and its least and greatest number take at least in an instance's tables.
    const BYTES: u64 = 64;

    /// As many as that takes.
    fn of(state: u64) -> Self {
        Self { seldom: state.div_ceil(Self::BYTES * u64::from(AGENTS)).max(1), state }
    }

    /// All keys.
    fn count(self) -> u64 {
        (Self::OFTEN + self.seldom) * u64::from(AGENTS)
    }

    /// Rows of a source instance until each key has come.
    fn rows(self) -> u64 {
        self.seldom.div_ceil(Self::TURN - 1) * Self::TURN
    }

    /// How many rows of its key there are up to a row, itself included.
    fn nth(self, id: u64) -> u64 {
        let own = id / u64::from(AGENTS);
        let (turn, place) = (own / Self::TURN, own % Self::TURN);
        match place.checked_sub(1) {
            None => turn / Self::OFTEN + 1,
            Some(place) => (turn * (Self::TURN - 1) + place) / self.seldom + 1,
        }
    }
}

impl Subject {
    /// One that keeps nothing.
    pub(in crate::experiment::stela) fn stateless() -> Self {
        let file = ("gaps.toml", include_str!("../../../../experiments/stela/gaps.toml"));
        Self { file, scaled: WORK, keys: None }
    }

    /// One that keeps so many bytes by key.
    pub(in crate::experiment::stela) fn keyed(state: u64) -> Self {
        let file = ("gaps-keyed.toml", include_str!("../../../../experiments/stela/gaps-keyed.toml"));
        Self { file, scaled: "counts", keys: Some(Keys::of(state)) }
    }

    /// Bytes that are to be kept by key; 0: nothing is.
    pub(in crate::experiment::stela) fn state(self) -> u64 {
        self.keys.map_or(0, |keys| keys.state)
    }

    /// Its job file.
    fn text(self) -> String {
        let text = self.file.1;
        self.keys.map_or_else(|| text.to_owned(), |keys| text.replace(Keys::SELDOM, &keys.seldom.to_string()))
    }

    /// How long it takes to fill it, about.
    fn filling(self) -> Duration {
        const ROWS_A_SECOND: u64 = 60_000;
        let rows = self.keys.map_or(0, |keys| keys.rows() * u64::from(AGENTS));
        Duration::from_secs(rows.div_ceil(ROWS_A_SECOND))
    }

    /// How long so many rescales take, about.
    pub(in crate::experiment::stela) fn time(self, rescales: u32) -> Duration {
        let each = BEFORE + Duration::from_millis(SOON as u64);
        WARM_UP + AROUND + self.filling() + each.saturating_mul(rescales)
    }
}

/// One rescale; all in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::experiment::stela) struct Gap {
    /// The longest gap in the 2 s after it was asked for.
    pub(in crate::experiment::stela) longest: f64,
    /// The 99.9th percentile of the gaps in the 20 s before.
    pub(in crate::experiment::stela) usual: f64,
    /// Until it was done.
    pub(in crate::experiment::stela) operation: f64,
}

/// What was kept by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiment::stela) struct Kept {
    /// Bytes that were to be.
    pub(in crate::experiment::stela) asked: u64,
    /// Bytes of all instances before the first rescale, as their agents say it.
    pub(in crate::experiment::stela) bytes: u64,
    /// Of how many keys.
    pub(in crate::experiment::stela) keys: u64,
    /// Rows whose count is not their place among the rows of their key.
    pub(in crate::experiment::stela) miscounted: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::experiment::stela) struct Gaps {
    /// One for each rescale, in their order.
    pub(in crate::experiment::stela) gaps: Vec<Gap>,
    /// What became of the rows.
    pub(in crate::experiment::stela) rows: Tally,
    /// Rows a second at the sink.
    pub(in crate::experiment::stela) rate: f64,
    /// Of a job that keeps state.
    pub(in crate::experiment::stela) kept: Option<Kept>,
}

/// Rescales a job so often, or until it is to stop.
pub(in crate::experiment::stela) fn gaps(
    subject: Subject,
    rescales: u32,
    stop: &Stop,
    mut progress: impl FnMut(usize),
) -> Result<Gaps> {
    let soon = Duration::from_millis(SOON as u64);
    let mut cluster = Cluster::start(AGENTS, None)?;
    cluster.submit(subject.file.0, &subject.text(), &[])?;
    if let Some(keys) = subject.keys {
        fill(&cluster, keys.rows(), stop)?;
    }
    let mut asked: Vec<(Instant, Duration)> = Vec::new();
    wait(WARM_UP, stop);
    let bytes = cluster.state_of(subject.scaled)?;
    let clock = Clock::start();
    for (done, instances) in (1..).zip(INSTANCES.iter().cycle().skip(1)).take(rescales as usize) {
        if !wait(BEFORE, stop) {
            break;
        }
        let at = cluster.scale(subject.scaled, *instances)?;
        asked.push((at, at.elapsed()));
        std::thread::sleep(soon.saturating_sub(at.elapsed()));
        progress(done);
    }
    let end = Instant::now();
    let counted = cluster.drain(FEED, &[WORK.to_owned()])?;
    cluster.cancel()?;
    let came = Came::read(&cluster, &["out"])?;
    let end = clock.ms(end);
    let series = came.series(&clock, end);
    let gap = |(at, operation): &(Instant, Duration)| {
        let at = clock.ms(*at);
        let before = at.saturating_sub(BEFORE.as_millis() as usize)..at;
        Gap {
            longest: series.longest_gap(&(at..end.min(at + SOON))) as f64,
            usual: series.usual_gap(&before, USUAL) as f64,
            operation: operation.as_millis() as f64,
        }
    };
    let kept = |keys: Keys| {
        let miscounted = came.counts.iter().filter(|(id, count)| keys.nth(*id) != *count);
        let miscounted = miscounted.count() as u64;
        Kept { asked: keys.state, bytes, keys: keys.count(), miscounted }
    };
    Ok(Gaps {
        gaps: asked.iter().map(gap).collect(),
        rows: came.tally(&counted, |_, _| 1),
        rate: series.throughput(&(0..end)).unwrap_or(0.0),
        kept: subject.keys.map(kept),
    })
}

/// Lets so many rows of each source instance through as fast as they go, and waits until the job is at rest again.
fn fill(cluster: &Cluster, rows: u64, stop: &Stop) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(100);
    let began = Instant::now();
    let slow = || {
        ensure!(began.elapsed() < FILLED, "the job is not filled after {} s", FILLED.as_secs());
        Ok(())
    };
    cluster.set(&format!("{WORK}.ms=0"))?;
    cluster.set(&format!("{FEED}.rate={FAST}"))?;
    let sources = |one: &super::Running| one.vertex == FEED;
    while cluster.running()?.iter().filter(|one| sources(one)).any(|one| one.rows_out < rows) {
        slow()?;
        if !wait(LOOK, stop) {
            break;
        }
    }
    cluster.set(&format!("{FEED}.rate={RATE}"))?;
    while cluster.waiting()? > AT_REST {
        slow()?;
        if !wait(LOOK, stop) {
            break;
        }
    }
    cluster.set(&format!("{WORK}.ms={MS}"))
}

/// Rows a second of the job files.
const RATE: u32 = 1600;

/// More than go.
const FAST: u32 = 1_000_000;

/// What a row takes, in the job files.
const MS: u32 = 2;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tuplane_core::job::{FileFormat, Job};

    use super::*;

    #[test]
    fn the_count_of_a_row_is_its_place_among_the_rows_of_its_key() {
        let keys = Keys { seldom: 13, state: 0 };
        // As the job file has it.
        let key = |id: u64| match (id / 3) % 4 {
            0 => (id / 12) % 4 * 3 + id % 3,
            place => 12 + (id / 12 * 3 + place - 1) % 13 * 3 + id % 3,
        };
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for id in 0..1000 {
            let count = counts.entry(key(id)).or_default();
            *count += 1;
            assert_eq!(keys.nth(id), *count, "row {id}");
        }
        assert_eq!(counts.len() as u64, keys.count());
        let filled: std::collections::HashSet<u64> = (0..keys.rows() * 3).map(key).collect();
        assert_eq!(filled.len(), counts.len());
    }

    #[test]
    fn the_job_files_have_what_is_counted_on() {
        for subject in [Subject::stateless(), Subject::keyed(50_000_000)] {
            let text = subject.text();
            Job::parse(&text, FileFormat::Toml).unwrap();
            assert!(text.contains(&format!("rate = {RATE}\n")) && text.contains(&format!("ms = {MS}\n")));
            let scaled = format!("id = \"{}\"", subject.scaled);
            let stage = text.split("[[stage]]").find(|stage| stage.contains(&scaled)).unwrap();
            assert!(stage.contains(&format!("instances = {}\n", INSTANCES[0])), "{stage}");
        }
        let keyed = Subject::keyed(50_000_000);
        assert!(keyed.file.1.contains(Keys::SELDOM) && !keyed.text().contains(Keys::SELDOM));
        assert!(keyed.text().contains(&keyed.keys.unwrap().seldom.to_string()));
    }
}
