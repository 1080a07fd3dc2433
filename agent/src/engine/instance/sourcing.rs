//! Source instances that give what they have not read to others, or go on with what others have not read.

use std::sync::{Arc, Mutex};

use tuplane_wire::message::WireFault;
use tuplane_wire::scaling::{SourceGiven, SourceUnit};

use super::{Body, Instance};
use crate::engine::clock::Doing;
use crate::engine::lock;
use crate::exchange::mark::Mark;

/// Whether a source instance may end when it has read all: not while others may hand it something.
#[derive(Debug, Default)]
pub(crate) struct Hand(Mutex<Ends>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It may.
    #[default]
    May,
    /// It waits for what others hand it.
    Waits,
    /// It ends.
    Does,
}

impl Hand {
    /// Of an instance that is handed what it begins with, or of another one.
    pub(crate) fn new(handed: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(if handed { Ends::Waits } else { Ends::May })))
    }

    /// Others may hand it something from now on.
    ///
    /// # Errors
    /// A sentence, if it ends.
    pub(crate) fn expect(&self) -> Result<(), String> {
        let mut ends = lock(&self.0);
        if *ends == Ends::Does {
            return Err("it has read all that it is to read, and ends".to_owned());
        }
        *ends = Ends::Waits;
        Ok(())
    }

    /// Nothing more is handed to it.
    pub(crate) fn forget(&self) {
        let mut ends = lock(&self.0);
        if *ends == Ends::Waits {
            *ends = Ends::May;
        }
    }

    /// It has read all: whether it ends now.
    fn ends(&self) -> bool {
        let mut ends = lock(&self.0);
        if *ends == Ends::May {
            *ends = Ends::Does;
        }
        *ends == Ends::Does
    }
}

/// How an instance stands with units of others.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// It begins with what others hand it, and has not got it.
    pub(crate) awaited: bool,
    /// It has given back what it had.
    given: bool,
    /// So often those who listen hold their time, and wait for it to say that its rows are no older than what they know.
    holds: u32,
    /// Where they stand, as far as its channels have told them.
    until: Option<i64>,
}

impl Units {
    /// Of an instance that is handed what it begins with, or of another one.
    pub(crate) fn new(awaited: bool) -> Self {
        Self { awaited, ..Self::default() }
    }
}

impl Instance {
    /// Gives back what it has not read.
    pub(in crate::engine) fn give_back(&mut self) -> Result<SourceGiven, String> {
        let Body::Source(source) = &mut self.body else { return Err("it reads nothing".to_owned()) };
        let units = source.give_back(&self.clock).map_err(|e| e.to_string())?;
        self.units.given = true;
        Ok(SourceGiven { instance: 0, have: self.splits.have(), units })
    }

    /// Goes on with what others have not read. `until`: where its channels say that event time is.
    pub(in crate::engine) fn take_units(
        &mut self,
        units: Vec<SourceUnit>,
        until: Option<i64>,
    ) -> Result<(), String> {
        let Body::Source(source) = &mut self.body else { return Err("it reads nothing".to_owned()) };
        let numbers: Vec<u32> = units.iter().map(SourceUnit::number).collect();
        source.take(units, &self.clock).map_err(|e| e.to_string())?;
        if let Some(stamper) = &mut self.stamper {
            stamper.take(&numbers, &|unit| source.has(unit));
        }
        self.units.awaited = false;
        self.units.holds += 1;
        // It has gone on with its own since its channels were asked.
        self.units.until = self.units.until.max(until).max(self.counters.watermark());
        self.hand.forget();
        Ok(())
    }

    /// True while it has to wait for what others hand it, or for being asked what it has not read.
    pub(super) async fn waits_for_units(&mut self) -> bool {
        let stopped = self.halt.discards() && !self.units.given;
        if !self.units.awaited && !stopped {
            return false;
        }
        self.rest_without_rows().await;
        true
    }

    /// It has read all that it has. True if it ends now; else something may have been handed to it.
    pub(super) async fn has_read_all(&mut self) -> Result<bool, WireFault> {
        if self.hand.ends() {
            self.resume_time(true)?;
            return Ok(true);
        }
        self.resume_time(false)?;
        self.rest_without_rows().await;
        Ok(false)
    }

    async fn rest_without_rows(&mut self) {
        self.output.flush();
        self.counters.clock.set(Doing::Idle);
        // Being asked something wakes it.
        self.inbox.wait().await;
    }

    /// Those who listen go on with event time once all rows that follow are no older than what they know, or (`ends`) none
    /// follow.
    pub(super) fn resume_time(&mut self, ends: bool) -> Result<(), WireFault> {
        if self.units.holds == 0 {
            return Ok(());
        }
        let until = self.units.until;
        if ends || self.stamper.as_ref().is_none_or(|stamper| stamper.has_caught_up(until)) {
            for _ in 0..std::mem::take(&mut self.units.holds) {
                self.pass(Mark::Resume)?;
            }
        }
        Ok(())
    }
}
