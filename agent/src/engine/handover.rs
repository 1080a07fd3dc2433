//! What an instance is asked for when partitions or splits move: answered between two steps, when nothing of its
//! state is on its way out.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tuplane_expr::{Loader, Pieces, StateOf, Unit, UnitError, Units};
use tuplane_wire::message::{FaultCode, WireFault};
use tuplane_wire::scaling::{SourceGiven, SourceUnit};

use super::instance::{Body, Instance};
use super::ledger::Counters;
use super::rows::Rows;
use crate::exchange::inbox::Inbox;
use crate::exchange::mark::Mark;

/// One question to an instance.
#[derive(Debug)]
pub(crate) enum Ask {
    /// The state of key partitions, which is gone from here afterwards.
    Give { partitions: Vec<u16>, answer: Answer<Given> },
    /// What makes units for it of pieces; `None` if it keeps no state, so that none come.
    Loader { answer: Answer<Option<Loader>> },
    /// Takes the state of key partitions, and rows by input that waited for it elsewhere.
    Take { units: Vec<Unit>, rows: Vec<(usize, Rows)>, answer: Answer<()> },
    /// All rows that waited for these partitions have been taken in. Answered when what comes of it has been passed on.
    Settle { partitions: Vec<u16>, answer: Answer<()> },
    /// How large the state of key partitions is, in bytes.
    Sizes { partitions: Vec<u16>, answer: Answer<Vec<u64>> },
    /// A source gives back what it has not read, and ends.
    GiveBack { answer: Answer<SourceGiven> },
    /// A source goes on with what others have not read; `until`: where its channels say that event time is.
    TakeUnits { units: Vec<SourceUnit>, until: Option<i64>, answer: Answer<()> },
}

impl Ask {
    /// What was taken before has to be passed on first.
    pub(super) fn waits_for_rows(&self) -> bool {
        matches!(self, Self::Give { .. } | Self::Settle { .. })
    }
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, WireFault>>;

/// State that an instance has given.
#[derive(Debug)]
pub(crate) struct Given {
    /// One for each partition that was asked for, in that order; none of an instance that keeps no state.
    pub(crate) units: Vec<Unit>,
    /// What they belong to.
    pub(crate) of: Option<StateOf>,
    /// Rows of the group that leaves, by input, which had come and were not worked on.
    pub(crate) rows: Vec<(usize, Rows)>,
    /// The event time (nanoseconds since 1970, UTC) that the instance has come to.
    pub(crate) watermark: Option<i64>,
}

impl Given {
    /// All units as bytes, made as they are asked for: a unit after the other.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Pieces> {
        let of = self.of;
        self.units.into_iter().filter_map(move |unit| Some(unit.into_pieces(of.clone()?)))
    }
}

/// What an instance keeps of the rows that it has worked on.
#[derive(Debug, Clone)]
pub(crate) enum Keeps {
    /// State by key partition, which belongs to this; another instance can go on with it.
    ByKey(StateOf),
    /// Nothing, so that only rows move with a key partition.
    Nothing,
    /// What nobody else can go on with.
    Own,
}

/// Asks one instance. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    questions: mpsc::UnboundedSender<Ask>,
    inbox: Arc<Inbox>,
}

impl Asking {
    /// The questions of whoever asks; the receiver is the instance's, whose inbox this is.
    pub(crate) fn new(inbox: &Arc<Inbox>) -> (Self, mpsc::UnboundedReceiver<Ask>) {
        let (questions, asked) = mpsc::unbounded_channel();
        (Self { questions, inbox: Arc::clone(inbox) }, asked)
    }
}

impl Asking {
    /// Takes the state of key partitions out.
    pub(crate) async fn give(&self, partitions: Vec<u16>) -> Result<Given, WireFault> {
        self.ask(|answer| Ask::Give { partitions, answer }).await
    }

    /// What makes units of pieces, on the thread of whoever has them.
    pub(crate) async fn loader(&self) -> Result<Option<Loader>, WireFault> {
        self.ask(|answer| Ask::Loader { answer }).await
    }

    /// Puts state in, and the rows that waited for it elsewhere; rows of its partitions may be given to the instance
    /// from then on, and those of the group that comes are.
    pub(crate) async fn take(&self, units: Vec<Unit>, rows: Vec<(usize, Rows)>) -> Result<(), WireFault> {
        self.ask(|answer| Ask::Take { units, rows, answer }).await
    }

    /// The rows that waited for these partitions have been taken in.
    pub(crate) async fn settle(&self, partitions: Vec<u16>) -> Result<(), WireFault> {
        self.ask(|answer| Ask::Settle { partitions, answer }).await
    }

    /// How large the state of each partition is.
    pub(crate) async fn sizes(&self, partitions: Vec<u16>) -> Result<Vec<u64>, WireFault> {
        self.ask(|answer| Ask::Sizes { partitions, answer }).await
    }

    /// What a source has not read; it ends, behind what it finishes itself.
    pub(crate) async fn give_back(&self) -> Result<SourceGiven, WireFault> {
        self.ask(|answer| Ask::GiveBack { answer }).await
    }

    /// A source goes on with what others have not read.
    pub(crate) async fn take_units(
        &self,
        units: Vec<SourceUnit>,
        until: Option<i64>,
    ) -> Result<(), WireFault> {
        self.ask(|answer| Ask::TakeUnits { units, until, answer }).await
    }

    async fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> Ask) -> Result<T, WireFault> {
        let gone =
            || WireFault::new(FaultCode::Refused, "the instance has ended, or keeps nothing that can move");
        let (answer, answered) = oneshot::channel();
        self.questions.send(ask(answer)).map_err(|_| gone())?;
        self.inbox.nudge();
        answered.await.map_err(|_| gone())?
    }
}

impl Instance {
    /// Answers what was asked since the last step. True if its state, or what there is to pull, may be another.
    pub(super) fn answer(&mut self) -> bool {
        let mut changed = false;
        while let Ok(ask) = self.asked.try_recv() {
            changed = true;
            let is_of_source = matches!(ask, Ask::GiveBack { .. } | Ask::TakeUnits { .. });
            if matches!(self.keeps, Keeps::Nothing) && !is_of_source {
                let rows = RowsAlone { name: &self.name, inbox: &self.inbox, counters: &self.counters };
                self.settled.extend(rows.answer(ask));
                continue;
            }
            // Whoever has gone without waiting for an answer needs none.
            match ask {
                Ask::Give { partitions, answer } => drop(answer.send(self.give(&partitions))),
                Ask::Loader { answer } => {
                    let loader = self.units().and_then(|(units, of)| said(units.loader(of)));
                    drop(answer.send(loader.map(Some).map_err(|e| self.refused(&e))));
                }
                Ask::Take { units, rows, answer } => {
                    let taken = self.units().and_then(|(table, _)| {
                        units.into_iter().try_for_each(|unit| said(table.place(unit)))
                    });
                    let taken = taken.and_then(|()| self.inbox.resume_group(rows));
                    drop(answer.send(taken.map_err(|e| self.refused(&e))));
                }
                Ask::Settle { partitions, answer } => {
                    match self.units().and_then(|(units, _)| said(units.settle(&partitions))) {
                        Ok(()) => self.settled.push(answer),
                        Err(e) => drop(answer.send(Err(self.refused(&e)))),
                    }
                }
                Ask::Sizes { partitions, answer } => {
                    let sizes = self.units().map(|(units, _)| {
                        partitions.iter().map(|partition| units.size_of(*partition) as u64).collect()
                    });
                    drop(answer.send(sizes.map_err(|e| self.refused(&e))));
                }
                Ask::GiveBack { answer } => {
                    let given = self.give_back();
                    drop(answer.send(given.map_err(|e| self.refused(&e))));
                }
                Ask::TakeUnits { units, until, answer } => {
                    let taken = self.take_units(units, until);
                    drop(answer.send(taken.map_err(|e| self.refused(&e))));
                }
            }
        }
        changed
    }

    /// What came of partitions that were settled has been passed on: whatever was older than what had been said of time
    /// stands before this.
    pub(super) fn pass_settled(&mut self) -> Result<(), WireFault> {
        for answer in std::mem::take(&mut self.settled) {
            self.pass(Mark::Resume)?;
            drop(answer.send(Ok(())));
        }
        Ok(())
    }

    fn give(&mut self, partitions: &[u16]) -> Result<Given, WireFault> {
        let watermark = self.counters.watermark();
        // Both between the same two steps: what has been worked on is in the state, and its time has not gone on.
        let rows = self.units().map(drop).and_then(|()| self.inbox.cut_group());
        let rows = rows.map_err(|e| self.refused(&e))?;
        let given = self.units().and_then(|(table, of)| Ok((said(table.cut(partitions))?, of)));
        let (units, of) = given.map_err(|e| self.refused(&e))?;
        Ok(Given { units, of: Some(of), rows, watermark })
    }

    /// Its state by key partition, and what it belongs to.
    fn units(&mut self) -> Result<(&mut dyn Units, StateOf), String> {
        let none = || "it keeps no state by key that another instance could go on with".to_owned();
        let Keeps::ByKey(of) = self.keeps.clone() else { return Err(none()) };
        match &mut self.body {
            Body::Operator(operator) => Ok((operator.units().ok_or_else(none)?, of)),
            _ => Err(none()),
        }
    }

    fn refused(&self, why: &str) -> WireFault {
        refused(&self.name, why)
    }
}

/// An instance that keeps nothing of its rows: of a key partition only those move that wait.
pub(super) struct RowsAlone<'a> {
    pub(super) name: &'a str,
    pub(super) inbox: &'a Inbox,
    pub(super) counters: &'a Counters,
}

impl RowsAlone<'_> {
    /// Answers between two steps. What is given back is to be answered once all rows that were taken have been passed on,
    /// and a [`Mark::Resume`] behind them.
    pub(super) fn answer(&self, ask: Ask) -> Option<Answer<()>> {
        // Whoever has gone without waiting for an answer needs none.
        match ask {
            Ask::Give { answer, .. } => {
                let watermark = self.counters.watermark();
                let cut = self.inbox.cut_group();
                let given = cut.map(|rows| Given { units: Vec::new(), of: None, rows, watermark });
                drop(answer.send(given.map_err(|e| refused(self.name, &e))));
            }
            Ask::Loader { answer } => drop(answer.send(Ok(None))),
            Ask::Take { units, rows, answer } => {
                let taken = if units.is_empty() {
                    self.inbox.resume_group(rows)
                } else {
                    Err("state of key partitions came, and it keeps none".to_owned())
                };
                drop(answer.send(taken.map_err(|e| refused(self.name, &e))));
            }
            Ask::Settle { answer, .. } => return Some(answer),
            Ask::Sizes { partitions, answer } => drop(answer.send(Ok(vec![0; partitions.len()]))),
            Ask::GiveBack { answer } => drop(answer.send(Err(refused(self.name, "it reads nothing")))),
            Ask::TakeUnits { answer, .. } => drop(answer.send(Err(refused(self.name, "it reads nothing")))),
        }
        None
    }
}

fn refused(name: &str, why: &str) -> WireFault {
    WireFault::new(FaultCode::Refused, format!("{name}: {why}"))
}

fn said<T>(result: Result<T, UnitError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
