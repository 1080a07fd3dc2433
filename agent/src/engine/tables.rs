//! Tables of joins that a plan copies to agents which get their first instances of one: what this agent gives, and what it
//! takes. They are there before the instances start.

use std::sync::{Arc, Mutex};

use tuplane_expr::{JoinTable, Loader, StateOf};
use tuplane_wire::message::WireFault;

use super::moving::Work;
use super::operator::TableSlot;
use super::{Engine, internal, lock, no_run};
use crate::exchange::outbound::Outbound;
use crate::exchange::parcels::{self, Address, Arrival};

/// A table that leaves for another agent.
pub(crate) struct Gives {
    pub(crate) session: Arc<Outbound>,
    pub(crate) to: Address,
    pub(crate) table: Arc<JoinTable>,
    pub(crate) of: StateOf,
}

/// A table that comes from another agent.
pub(crate) struct Takes {
    pub(crate) arrival: Arrival,
    pub(crate) loader: Loader,
    pub(crate) slot: TableSlot,
}

/// What a plan copies from here and to here.
#[derive(Default)]
pub(crate) struct Tables {
    pub(crate) gives: Vec<Gives>,
    pub(crate) takes: Vec<Takes>,
}

impl Tables {
    async fn copy(self) -> Result<(), WireFault> {
        let Self { gives, takes } = self;
        let given = async {
            for Gives { session, to, table, of } in gives {
                parcels::send_table(&session, to, table.pieces(of)).await?;
            }
            Ok(())
        };
        let taken = async {
            for Takes { arrival, loader, slot } in takes {
                let parcel = arrival.parcel(Some(loader)).await?;
                for unit in parcel.units {
                    // Rows are put in order by their keys.
                    let made = tokio::task::spawn_blocking(move || JoinTable::of_unit(unit)).await;
                    let table = made.map_err(|e| internal(&format!("taking in a table failed: {e}")))?;
                    let table = table.map_err(|e| internal(&e.to_string()))?;
                    // One that was there before is the same.
                    let _ = slot.set(table);
                }
            }
            Ok(())
        };
        tokio::try_join!(given, taken).map(|_: ((), ())| ())
    }
}

/// The tables that a run's last plan copies.
#[derive(Default)]
pub(crate) struct Copies(Mutex<Option<(u64, Stage)>>);

enum Stage {
    Prepared(Tables),
    Begun(Work),
}

impl Copies {
    /// A plan was prepared that copies these. Those of an earlier one that was given up are forgotten.
    pub(super) fn prepare(&self, epoch: u64, tables: Tables) {
        *lock(&self.0) = Some((epoch, Stage::Prepared(tables)));
    }

    /// The plan that was prepared last was given up: nothing was sent for it.
    pub(super) fn give_up(&self) {
        *lock(&self.0) = None;
    }

    /// Begins, unless it has been; `None` if that is not the last plan.
    fn begin(&self, epoch: u64, begin: impl FnOnce(Tables) -> Work) -> Option<Work> {
        let mut last = lock(&self.0);
        let (of, stage) = last.take_if(|(of, _)| *of == epoch)?;
        let work = match stage {
            Stage::Prepared(tables) => begin(tables),
            Stage::Begun(work) => work,
        };
        *last = Some((of, Stage::Begun(work.clone())));
        Some(work)
    }
}

impl Engine {
    /// A plan was committed: tables leave that others need for it, and those that are needed here come.
    ///
    /// # Errors
    /// If one cannot be sent or taken in, or its agent is lost.
    pub async fn copy_tables(&self, run: u64, epoch: u64) -> Result<(), WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        let begun = held.run.copies.begin(epoch, |tables| self.work(tables.copy()));
        match begun {
            Some(work) => work.await,
            None => Ok(()),
        }
    }
}
