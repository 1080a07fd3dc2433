//! Counters of one instance, readable while it runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::place::RowPlace;

use super::clock::Clock;
use super::keys::KeyCounts;
use super::operator::Remark;
use super::response::Responses;
use crate::exchange::load::Load;

/// What one instance has done so far.
#[derive(Debug)]
pub(crate) struct Counters {
    vertex: String,
    pub(crate) clock: Clock,
    pub(crate) rows_in: AtomicU64,
    pub(crate) rows_out: AtomicU64,
    /// What its inbox says of it: rows being worked on are those taken and not done.
    pub(crate) load: Arc<Load>,
    pub(crate) ended: AtomicBool,
    /// Rows whose event time is far ahead of the others'.
    pub(crate) ahead: AtomicU64,
    /// Rows that went on with nulls in place of a service's answer.
    pub(crate) unanswered: AtomicU64,
    /// Memory of the operator's state.
    pub(crate) state_bytes: AtomicU64,
    /// Rows that are here and have not arrived.
    pub(crate) held: AtomicU64,
    /// Of a sink.
    pub(crate) responses: Responses,
    /// Rows by key, where they come by one.
    pub(crate) keys: KeyCounts,
    /// `i64::MIN` while there is none.
    watermark: AtomicI64,
    rare: Mutex<Rare>,
}

#[derive(Debug, Default)]
struct Rare {
    dropped: BTreeMap<String, u64>,
    note: Option<Note>,
}

/// A sentence, and the place of the row that it is about, unless its words name that.
pub(crate) type Note = (String, Option<RowPlace>);

impl Counters {
    /// For an instance of the vertex of this name, whose inbox has this load.
    pub(crate) fn new(vertex: String, load: Arc<Load>) -> Self {
        Self {
            vertex,
            clock: Clock::new(Instant::now()),
            rows_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            load,
            ended: AtomicBool::new(false),
            ahead: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            state_bytes: AtomicU64::new(0),
            held: AtomicU64::new(0),
            responses: Responses::default(),
            keys: KeyCounts::default(),
            watermark: AtomicI64::new(i64::MIN),
            rare: Mutex::default(),
        }
    }

    /// The vertex.
    pub(crate) fn vertex(&self) -> &str {
        &self.vertex
    }

    pub(crate) fn add_in(&self, rows: u64) {
        self.rows_in.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn add_out(&self, rows: u64) {
        self.rows_out.fetch_add(rows, Ordering::Relaxed);
    }

    /// So many rows go on without a service's answer.
    pub(crate) fn unanswered(&self, rows: usize) {
        self.unanswered.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// No row with an earlier event time follows.
    pub(crate) fn set_watermark(&self, time: i64) {
        self.watermark.fetch_max(time, Ordering::Relaxed);
    }

    /// The watermark, if there is one.
    pub(crate) fn watermark(&self) -> Option<i64> {
        Some(self.watermark.load(Ordering::Relaxed)).filter(|time| *time > i64::MIN)
    }

    /// Rows that the instance had in hand when it failed or was stopped: taken, and nothing came of them. Those that it
    /// held until they arrive are among them.
    pub(crate) fn drop_in_hand(&self) {
        let rows = self.load.clear() + self.held.swap(0, Ordering::Relaxed);
        if rows > 0 {
            self.drop_rows(BTreeMap::from([(DROPPED_BY_STOP.to_owned(), rows)]));
        }
    }

    /// Rows left out, for these reasons.
    pub(crate) fn drop_rows(&self, rows: BTreeMap<String, u64>) {
        if rows.is_empty() {
            return;
        }
        let mut rare = self.rare();
        for (reason, count) in rows {
            *rare.dropped.entry(reason).or_default() += count;
        }
    }

    /// Totals of rows left out by a source, and the last of them.
    pub(crate) fn set_rejected(&self, totals: BTreeMap<String, u64>, last: Option<String>) {
        let mut rare = self.rare();
        rare.dropped.extend(totals);
        rare.note = last.map(|text| (text, None));
    }

    /// The last remark from now on.
    pub(crate) fn remark(&self, remark: &Remark) {
        // It is shown with the vertex, which often is the stage.
        let text = if remark.stage == self.vertex { remark.message.clone() } else { remark.text() };
        self.rare().note = Some((text, remark.place));
    }

    /// Rows left out by reason, and the last remark.
    pub(crate) fn rare_facts(&self) -> (BTreeMap<String, u64>, Option<Note>) {
        let rare = self.rare();
        (rare.dropped.clone(), rare.note.clone())
    }

    fn rare(&self) -> std::sync::MutexGuard<'_, Rare> {
        self.rare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
