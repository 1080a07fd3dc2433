//! `peek`: a sample of the rows that leave a vertex, kept for whoever asks for it.
//!
//! While nobody follows and no `peek` stage stands there, a batch costs one relaxed load; after somebody has followed
//! one relaxed addition too, so that it can be said what went by if that one comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tuplane_expr::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use tuplane_expr::arrow::compute::take;
use tuplane_expr::arrow::datatypes::DataType;
use tuplane_expr::system::own_width;
use tuplane_wire::message::{PeekRow, PeekValue, Peeked};

use crate::json;

/// A value's text is cut at so many bytes.
const MOST_VALUE: usize = 1 << 10;
/// Rows that a follower has not fetched yet hold so many bytes at most; the oldest go first.
const MOST_BYTES: usize = 256 << 10;
/// Followers of one vertex on one agent.
const MOST_FOLLOWERS: usize = 16;
/// A follower that did not ask for so long is asleep: nothing is kept for it but its place.
const ASLEEP: Duration = Duration::from_secs(10);
/// So many places of such followers are kept, those of the last ones.
const MOST_ASLEEP: usize = 64;

/// Nobody follows.
const OFF: u8 = 0;
/// All followers are asleep: what goes by is counted.
const COUNTS: u8 = 1;
const ON: u8 = 2;

/// Rows per second where a `peek` stage says nothing.
pub(crate) const DEFAULT_RATE: f64 = 10.0;

/// The tap of a vertex's instances on this agent.
#[derive(Debug)]
pub(crate) struct Tap {
    /// [`OFF`], [`COUNTS`] or [`ON`].
    mode: AtomicU8,
    /// Rows that went by while somebody followed, awake or asleep.
    gone_by: AtomicU64,
    /// Instances of the vertex, over all agents: each may show its share of a rate.
    instances: AtomicU32,
    columns: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    followers: HashMap<u64, Follower>,
    asleep: HashMap<u64, Sleeper>,
    /// `peek` stages.
    stages: Vec<Stage>,
}

/// A `peek` stage: its rows go to the log, and are there for who follows later.
#[derive(Debug)]
struct Stage {
    id: String,
    job: String,
    sample: Sample,
}

#[derive(Debug)]
struct Follower {
    sample: Sample,
    asked: Instant,
}

/// The place of a follower that has not asked for long.
#[derive(Debug)]
struct Sleeper {
    /// Without rows.
    sample: Sample,
    /// The number of the first row that was kept when it fell asleep.
    kept_from: u64,
    since: Instant,
    /// The tap's count at that time.
    gone_by: u64,
}

/// What one follower gets.
#[derive(Debug)]
struct Sample {
    /// Rows per second of one instance.
    rate: f64,
    /// By instance: rows that it may show, and when that was counted.
    tokens: HashMap<u32, (f64, Instant)>,
    rows: VecDeque<PeekRow>,
    bytes: usize,
    /// The number of the first row that is kept.
    first: u64,
    /// Rows that fell out before they were fetched, or would have been shown while the follower slept.
    missed: u64,
    /// Rows that went by.
    passed: u64,
}

impl Tap {
    pub(crate) fn new(instances: u32, columns: Vec<String>) -> Self {
        let (mode, gone_by, state) = (AtomicU8::new(OFF), AtomicU64::new(0), Mutex::default());
        Self { mode, gone_by, instances: AtomicU32::new(instances.max(1)), columns, state }
    }

    /// There are so many instances of the vertex from now on, over all agents.
    pub(crate) fn set_instances(&self, instances: u32) {
        let before = self.instances.swap(instances.max(1), Ordering::Relaxed);
        let factor = f64::from(before) / f64::from(instances.max(1));
        let mut state = self.lock();
        let State { followers, asleep, stages } = &mut *state;
        let awake = followers.values_mut().map(|follower| &mut follower.sample);
        let asleep = asleep.values_mut().map(|sleeper| &mut sleeper.sample);
        let stages = stages.iter_mut().map(|stage| &mut stage.sample);
        awake.chain(asleep).chain(stages).for_each(|sample| sample.rate *= factor);
    }

    /// Is always on from here: a `peek` stage with so many rows per second over the cluster.
    pub(crate) fn add_stage(&self, job: &str, id: &str, rate: f64) {
        let sample = Sample::new(rate / f64::from(self.instances.load(Ordering::Relaxed)));
        self.lock().stages.push(Stage { id: id.to_owned(), job: job.to_owned(), sample });
        self.mode.store(ON, Ordering::Relaxed);
    }

    /// Rows leave an instance.
    pub(crate) fn see(&self, instance: u32, batch: &RecordBatch) {
        match self.mode.load(Ordering::Relaxed) {
            OFF => {}
            COUNTS => self.count(batch),
            _ => self.sample(instance, batch, Instant::now()),
        }
    }

    fn count(&self, batch: &RecordBatch) {
        self.gone_by.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
    }

    #[cold]
    fn sample(&self, instance: u32, batch: &RecordBatch, now: Instant) {
        let mut state = self.lock();
        state.let_sleep(now, None, self.gone_by.load(Ordering::Relaxed));
        self.count(batch);
        if state.followers.is_empty() && state.stages.is_empty() {
            self.mode.store(if state.asleep.is_empty() { OFF } else { COUNTS }, Ordering::Relaxed);
            return;
        }
        for stage in &mut state.stages {
            for row in stage.sample.see(instance, batch, now) {
                let said = self.text(&row);
                tracing::info!(job = %stage.job, stage = %stage.id, instance, "{said}");
            }
        }
        for follower in state.followers.values_mut() {
            follower.sample.see(instance, batch, now);
        }
    }

    /// A row for the log.
    fn text(&self, row: &PeekRow) -> String {
        let values = self.columns.iter().zip(&row.values).map(|(name, value)| {
            let more = if value.cut > 0 { format!(" (+{} bytes)", value.cut) } else { String::new() };
            format!("{name} = {}{more}", value.json)
        });
        let text = values.collect::<Vec<_>>().join(", ");
        // JSON escapes most of them, not all.
        let safe = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
        safe.collect()
    }

    /// What a follower has not seen yet: rows from number `from` on. It begins with its first question, and goes on
    /// where it was however long it did not ask.
    ///
    /// # Errors
    /// A sentence, if too many follow already.
    pub(crate) fn ask(&self, follower: u64, rate: f64, from: u64, ended: bool) -> Result<Peeked, String> {
        self.ask_at(Instant::now(), follower, rate, from, ended)
    }

    fn ask_at(
        &self,
        now: Instant,
        follower: u64,
        rate: f64,
        from: u64,
        ended: bool,
    ) -> Result<Peeked, String> {
        let mut state = self.lock();
        let gone_by = self.gone_by.load(Ordering::Relaxed);
        state.let_sleep(now, Some(follower), gone_by);
        let State { followers, stages, asleep } = &mut *state;
        if !followers.contains_key(&follower) && followers.len() >= MOST_FOLLOWERS {
            return Err(format!("{MOST_FOLLOWERS} follow this stage already; end one of them"));
        }
        let one = followers.entry(follower).or_insert_with(|| {
            if let Some(sleeper) = asleep.remove(&follower) {
                return Follower { sample: sleeper.wake(from, now, gone_by), asked: now };
            }
            let mut sample = Sample::new(rate / f64::from(self.instances.load(Ordering::Relaxed)));
            match stages.first() {
                // A `peek` stage has seen rows before anybody asked.
                Some(stage) if from == 0 => {
                    sample.rows.clone_from(&stage.sample.rows);
                    sample.bytes = stage.sample.bytes;
                    sample.passed = stage.sample.passed;
                }
                // One whose place is no longer known: its rows are not taken for those that it has seen.
                _ => sample.first = from,
            }
            Follower { sample, asked: now }
        });
        one.asked = now;
        self.mode.store(ON, Ordering::Relaxed);
        let sample = &mut one.sample;
        sample.forget_below(from);
        Ok(Peeked {
            columns: self.columns.clone(),
            rows: sample.rows.iter().cloned().collect(),
            next: sample.first + sample.rows.len() as u64,
            missed: sample.missed,
            passed: sample.passed,
            attempt: 0,
            ended,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Followers that have not asked for long fall asleep, but for `except`. `gone_by` is the tap's count.
    fn let_sleep(&mut self, now: Instant, except: Option<u64>, gone_by: u64) {
        let sleeps = |id: &u64, one: &mut Follower| {
            Some(*id) != except && now.saturating_duration_since(one.asked) >= ASLEEP
        };
        for (id, Follower { mut sample, .. }) in self.followers.extract_if(sleeps) {
            let kept_from = sample.first;
            sample.forget_below(u64::MAX);
            self.asleep.insert(id, Sleeper { sample, kept_from, since: now, gone_by });
        }
        while self.asleep.len() > MOST_ASLEEP {
            let Some(longest) = self.asleep.iter().min_by_key(|(_, one)| one.since).map(|(id, _)| *id) else {
                return;
            };
            self.asleep.remove(&longest);
        }
    }
}

impl Sleeper {
    /// Goes on, having seen the rows below number `from`: it has missed what was kept, and what its rate would have
    /// shown of what went by.
    fn wake(self, from: u64, now: Instant, gone_by: u64) -> Sample {
        let Self { mut sample, kept_from, since, .. } = self;
        let passed = gone_by - self.gone_by;
        let shown =
            now.saturating_duration_since(since).as_secs_f64() * sample.rate * sample.tokens.len() as f64;
        sample.passed += passed;
        sample.missed += sample.first.saturating_sub(kept_from.max(from)) + passed.min(shown as u64);
        // However long the pause, it begins with a row.
        sample.tokens.clear();
        sample
    }
}

impl Sample {
    fn new(rate: f64) -> Self {
        Self { rate, tokens: HashMap::new(), rows: VecDeque::new(), bytes: 0, first: 0, missed: 0, passed: 0 }
    }

    /// Rows that an instance may show now: its share of a second at the most, and at least one.
    fn allowed(&mut self, instance: u32, now: Instant) -> usize {
        let most = self.rate.max(1.0);
        let (tokens, counted) = self.tokens.entry(instance).or_insert((most.min(1.0), now));
        let passed = now.saturating_duration_since(*counted).as_secs_f64();
        *tokens = (*tokens + passed * self.rate).min(most);
        *counted = now;
        *tokens as usize
    }

    /// Takes a sample, evenly out of the batch; gives the rows that were taken.
    fn see(&mut self, instance: u32, batch: &RecordBatch, now: Instant) -> Vec<PeekRow> {
        self.passed += batch.num_rows() as u64;
        let count = self.allowed(instance, now).min(batch.num_rows());
        if count == 0 {
            return Vec::new();
        }
        if let Some((tokens, _)) = self.tokens.get_mut(&instance) {
            *tokens -= count as f64;
        }
        let step = batch.num_rows() as f64 / count as f64;
        let picked: UInt32Array =
            (0..count).map(|nth| ((nth as f64 + 0.5) * step) as u32).collect::<Vec<_>>().into();
        let taken = rows(batch, &picked, instance);
        for row in &taken {
            self.bytes += row_bytes(row);
            self.rows.push_back(row.clone());
            while self.bytes > MOST_BYTES && self.rows.len() > 1 {
                self.missed += 1;
                self.drop_first();
            }
        }
        taken
    }

    fn drop_first(&mut self) {
        if let Some(row) = self.rows.pop_front() {
            self.bytes -= row_bytes(&row);
            self.first += 1;
        }
    }

    /// Rows below this number have been fetched.
    fn forget_below(&mut self, from: u64) {
        while self.first < from && !self.rows.is_empty() {
            self.drop_first();
        }
    }
}

fn row_bytes(row: &PeekRow) -> usize {
    size_of::<PeekRow>()
        + row.values.iter().map(|value| size_of::<PeekValue>() + value.json.len()).sum::<usize>()
}

/// Some rows of a batch as text, without system columns.
fn rows(batch: &RecordBatch, picked: &UInt32Array, instance: u32) -> Vec<PeekRow> {
    let mut rows: Vec<PeekRow> = picked.iter().map(|_| PeekRow { instance, values: Vec::new() }).collect();
    for column in &batch.columns()[..own_width(batch.schema_ref())] {
        // Only what is shown is written: a batch may be large.
        let values = match take(column, picked, None) {
            Ok(values) => texts(&values),
            Err(error) => vec![shown(&format!("cannot be shown: {error}")); picked.len()],
        };
        for (row, value) in rows.iter_mut().zip(values) {
            row.values.push(value);
        }
    }
    rows
}

fn texts(column: &ArrayRef) -> Vec<PeekValue> {
    if *column.data_type() == DataType::Utf8 {
        // A long text is cut before it is written.
        let texts = column.as_string::<i32>().iter();
        return texts.map(|text| text.map_or_else(null, shown)).collect();
    }
    match json::values(column) {
        Ok(values) => values.into_iter().map(value).collect(),
        Err(error) => vec![shown(&format!("cannot be shown: {error}")); column.len()],
    }
}

fn null() -> PeekValue {
    PeekValue { json: Value::Null.to_string(), cut: 0 }
}

fn value(json: String) -> PeekValue {
    if let Ok(text) = serde_json::from_str::<String>(&json) {
        return shown(&text);
    }
    // What is left of a long list is none: it is shown as text.
    if json.len() > MOST_VALUE { shown(&json) } else { PeekValue { json, cut: 0 } }
}

/// A text, cut if it is long.
fn shown(text: &str) -> PeekValue {
    let kept = &text[..text.floor_char_boundary(MOST_VALUE)];
    PeekValue { json: Value::from(kept).to_string(), cut: (text.len() - kept.len()) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tuplane_expr::arrow::array::{Int64Array, StringArray};

    fn batch(first: i64, rows: i64) -> RecordBatch {
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
        RecordBatch::try_from_iter([("n", n)]).unwrap()
    }

    fn numbers(peeked: &Peeked) -> Vec<i64> {
        peeked.rows.iter().map(|row| row.values[0].json.parse().unwrap()).collect()
    }

    #[test]
    fn nobody_follows_and_nothing_is_kept() {
        let tap = Tap::new(1, vec!["n".into()]);
        tap.see(0, &batch(0, 1000));
        assert_eq!(tap.mode.load(Ordering::Relaxed), OFF);
        let first = tap.ask(7, 10.0, 0, false).unwrap();
        assert_eq!((first.rows.len(), first.passed, first.next), (0, 0, 0));
        assert_eq!(tap.mode.load(Ordering::Relaxed), ON);
        // A follower that has gone falls asleep with the next rows: nothing is kept.
        tap.sample(0, &batch(0, 5), Instant::now() + ASLEEP);
        assert_eq!(tap.mode.load(Ordering::Relaxed), COUNTS);
        assert!(tap.lock().followers.is_empty() && tap.lock().asleep[&7].sample.rows.is_empty());
    }

    #[test]
    fn a_follower_that_slept_goes_on_and_is_told_what_it_missed() {
        // The agent has two of the four instances that share 40 rows a second.
        let tap = Tap::new(4, vec!["n".into()]);
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let ask = |at, from| tap.ask_at(at, 1, 40.0, from, false).unwrap();
        ask(start, 0);
        tap.sample(0, &batch(0, 100), start);
        tap.sample(1, &batch(0, 100), start);
        let seen = ask(after(1), 0);
        assert_eq!((seen.rows.len(), seen.next, seen.passed, seen.missed), (2, 2, 200, 0));
        // Ten rows of the next second are kept when it falls asleep, and not fetched.
        tap.sample(0, &batch(0, 100), after(2));
        tap.sample(0, &batch(0, 100), after(20));
        tap.see(1, &batch(0, 30));
        let woken = ask(after(25), 2);
        assert_eq!((woken.rows.len(), woken.next), (0, 12));
        // 100 rows while it was kept, and 130 asleep: all that 5 s of 20 rows would have shown.
        assert_eq!((woken.passed, woken.missed), (430, 110));
        tap.sample(0, &batch(0, 100), after(26));
        let more = ask(after(27), woken.next);
        assert_eq!((numbers(&more), more.next, more.passed, more.missed), (vec![50], 13, 530, 110));
        // A place that is no longer known is begun anew, and no row is taken for one that was seen.
        tap.lock().asleep.clear();
        tap.lock().followers.clear();
        ask(after(28), 13);
        tap.sample(0, &batch(0, 1), after(28));
        let anew = ask(after(29), 13);
        assert_eq!((numbers(&anew), anew.next), (vec![0], 14));
        // Sleepers take no place of those who follow, and only the last ones' places are kept.
        for follower in 100..300 {
            let at = after(100 + follower * 20);
            tap.ask_at(at, follower, 1.0, 0, false).unwrap();
        }
        let state = tap.lock();
        assert_eq!((state.followers.len(), state.asleep.len()), (1, MOST_ASLEEP));
        assert!(state.asleep.contains_key(&298) && !state.asleep.contains_key(&200));
    }

    #[test]
    fn an_instance_shows_its_share_evenly_out_of_what_passes() {
        // Four instances share 40 rows a second.
        let tap = Tap::new(4, vec!["n".into()]);
        tap.ask(1, 40.0, 0, false).unwrap();
        let start = Instant::now();
        tap.sample(0, &batch(0, 1000), start);
        tap.sample(1, &batch(0, 1000), start);
        assert_eq!(numbers(&tap.ask(1, 40.0, 0, false).unwrap()), [500, 500], "one row at once");
        tap.sample(0, &batch(0, 1000), start + Duration::from_millis(550));
        let later = tap.ask(1, 40.0, 2, false).unwrap();
        assert_eq!(numbers(&later), [100, 300, 500, 700, 900], "half a second's share of 10 a second");
        // However long the pause, no more than a second's share comes at once.
        tap.sample(0, &batch(0, 1000), start + Duration::from_secs(9));
        let last = tap.ask(1, 40.0, later.next, false).unwrap();
        assert_eq!((last.rows.len(), last.passed, last.missed), (10, 4000, 0));
    }

    #[test]
    fn rows_stay_until_they_are_acknowledged_and_the_oldest_go_when_there_are_too_many() {
        let tap = Tap::new(1, vec!["t".into()]);
        tap.ask(1, 1e4, 0, false).unwrap();
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(5000); 10]));
        let texts = RecordBatch::try_from_iter([("t", text)]).unwrap();
        let start = Instant::now();
        for step in 0..100 {
            tap.sample(0, &texts, start + Duration::from_millis(step));
        }
        let peeked = tap.ask(1, 1e4, 0, false).unwrap();
        assert!(peeked.missed > 0 && peeked.rows.len() > 100, "{} {}", peeked.missed, peeked.rows.len());
        assert!(tap.lock().followers[&1].sample.bytes <= MOST_BYTES);
        let one = &peeked.rows[0].values[0];
        assert_eq!((one.json.len(), one.cut), (MOST_VALUE + 2, 5000 - MOST_VALUE as u64));
        let again = tap.ask(1, 1e4, 0, false).unwrap();
        assert_eq!(
            (again.rows.len(), again.next),
            (peeked.rows.len(), peeked.next),
            "a lost answer comes again"
        );
        assert_eq!(tap.ask(1, 1e4, peeked.next, false).unwrap().rows.len(), 0);
    }

    #[test]
    fn a_stage_is_always_on_and_who_comes_later_sees_what_it_has() {
        let tap = Tap::new(1, vec!["n".into()]);
        tap.add_stage("job", "look", 10.0);
        tap.see(0, &batch(3, 1));
        tap.see(0, &batch(4, 6));
        let first = tap.ask(1, 10.0, 0, false).unwrap();
        assert_eq!((numbers(&first), first.passed), (vec![3], 7), "those that it shows have gone by, too");
        for follower in 2..=MOST_FOLLOWERS as u64 {
            tap.ask(follower, 1.0, 0, false).unwrap();
        }
        assert!(tap.ask(99, 1.0, 0, false).unwrap_err().contains("16 follow"));
    }

    #[test]
    fn values_are_json_and_null_is_shown() {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(2)]));
        let t: ArrayRef = Arc::new(StringArray::from(vec![Some("a\"\u{1b}b"), None]));
        let batch = RecordBatch::try_from_iter_with_nullable([("n", n, true), ("t", t, true)]).unwrap();
        let shown = rows(&batch, &UInt32Array::from(vec![0, 1]), 4);
        let json: Vec<&str> =
            shown.iter().flat_map(|row| row.values.iter().map(|v| v.json.as_str())).collect();
        assert_eq!(json, ["null", "\"a\\\"\\u001bb\"", "2", "null"]);
    }
}
