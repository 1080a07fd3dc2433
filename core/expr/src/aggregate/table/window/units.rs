//! Open windows on their way from one table to another.

use std::collections::BTreeSet;

use super::guests::Guest;
use super::panes::OpenPanes;
use super::sessions::OpenSessions;
use super::{Open, WindowPart, WindowProgram, WindowTable};
use crate::program::EvalError;
use crate::unit::{Home, Loader, StateOf, Unit, UnitError, Units, check, check_home};

impl Open {
    pub(super) fn program(&self) -> &WindowProgram {
        match self {
            Self::Panes(table) => table.program(),
            Self::Sessions(table) => table.program(),
        }
    }

    pub(super) fn partitions(&self) -> u16 {
        match self {
            Self::Panes(table) => table.partitions(),
            Self::Sessions(table) => table.partitions(),
        }
    }

    /// An empty one of the same kind, whose windows have been given up to a watermark.
    pub(super) fn empty(&self, watermark: Option<i64>) -> Result<Self, EvalError> {
        Ok(match self {
            Self::Panes(table) => Self::Panes(Box::new(table.empty(watermark)?)),
            Self::Sessions(table) => Self::Sessions(Box::new(table.empty(watermark)?)),
        })
    }

    fn is_giving(&self) -> bool {
        match self {
            Self::Panes(table) => table.is_giving(),
            Self::Sessions(table) => table.is_giving(),
        }
    }

    fn has(&self, partition: u16) -> bool {
        match self {
            Self::Panes(table) => table.has(partition),
            Self::Sessions(table) => table.has(partition),
        }
    }

    fn size_of(&self, partition: u16) -> usize {
        match self {
            Self::Panes(table) => table.size_of(partition),
            Self::Sessions(table) => table.size_of(partition),
        }
    }

    /// Takes a partition's windows out.
    fn take(&mut self, home: Home) -> Result<Unit, EvalError> {
        let watermark = self.watermark();
        Ok(match self {
            Self::Panes(table) => {
                let mut state = OpenPanes::new(table.program())?;
                table.take(home.partition, &mut state);
                Unit::new(home, watermark, state)
            }
            Self::Sessions(table) => {
                let mut state = OpenSessions::new(table.program())?;
                table.take(home.partition, &mut state);
                Unit::new(home, watermark, state)
            }
        })
    }

    /// Puts windows in of a partition that has none here.
    fn put(&mut self, unit: Unit) -> Result<(), UnitError> {
        let partition = unit.partition();
        match self {
            Self::Panes(table) => table.put(partition, unit.open()?)?,
            Self::Sessions(table) => table.put(partition, unit.open()?),
        }
        Ok(())
    }

    /// Takes in all windows of another one.
    pub(super) fn absorb(&mut self, mut other: Self, partitions: &BTreeSet<u16>) -> Result<(), EvalError> {
        self.absorb_some(&mut other, partitions)?;
        let (dropped, last) = other.noted();
        self.noted().0.append(dropped);
        let last = last.take();
        let own = self.noted().1;
        *own = own.take().or(last);
        Ok(())
    }

    /// Takes in another one's windows of these partitions.
    pub(super) fn absorb_some(&mut self, other: &mut Self, of: &BTreeSet<u16>) -> Result<(), EvalError> {
        let partitions = self.partitions();
        for partition in of {
            let unit = other.take(Home { partition: *partition, partitions })?;
            // Tables of one kind hold the same kind of state.
            self.put(unit).map_err(|error| EvalError { row: None, message: error.to_string() })?;
        }
        Ok(())
    }
}

impl WindowTable {
    fn guest(&self, partition: u16) -> Option<usize> {
        self.guests.iter().position(|guest| guest.partitions.contains(&partition))
    }
}

impl Units for WindowTable {
    fn partitions(&self) -> u16 {
        self.open.partitions()
    }

    fn cut(&mut self, partitions: &[u16]) -> Result<Vec<Unit>, UnitError> {
        let all = self.open.partitions();
        check(partitions, all)?;
        for partition in partitions {
            let why = if self.part == WindowPart::Prepare {
                "is of partial results, which are given and not moved"
            } else if self.opens().any(Open::is_giving) {
                "is on its way out: its results are being given"
            } else {
                continue;
            };
            return Err(UnitError::misplaced(*partition, why));
        }
        let mut units = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let home = Home { partition: *partition, partitions: all };
            let Some(at) = self.guest(*partition) else {
                units.push(self.open.take(home)?);
                continue;
            };
            let guest = &mut self.guests[at];
            units.push(guest.open.take(home)?);
            guest.partitions.remove(partition);
            if guest.partitions.is_empty() {
                let mut gone = self.guests.remove(at);
                self.open.noted().0.append(gone.open.noted().0);
            }
        }
        Ok(units)
    }

    fn loader(&self, of: StateOf) -> Result<Loader, UnitError> {
        let (program, partitions) = (self.open.program().clone(), self.open.partitions());
        Ok(match &self.open {
            Open::Panes(_) => Loader::new(of, partitions, move || Ok(OpenPanes::new(&program)?)),
            Open::Sessions(_) => Loader::new(of, partitions, move || Ok(OpenSessions::new(&program)?)),
        })
    }

    fn place(&mut self, unit: Unit) -> Result<(), UnitError> {
        check_home(&unit, self.open.partitions())?;
        let (partition, watermark) = (unit.partition(), unit.watermark);
        if self.open.has(partition) || self.guest(partition).is_some() {
            return Err(UnitError::misplaced(partition, "has state here already"));
        }
        let beside = |guest: &Guest| !guest.settled && guest.open.watermark() == watermark;
        let known = self.guests.iter().position(beside);
        if known.is_none() {
            let open = self.open.empty(watermark)?;
            self.guests.push(Guest { open, partitions: BTreeSet::new(), settled: false });
        }
        let at = known.unwrap_or(self.guests.len() - 1);
        let guest = &mut self.guests[at];
        let put = guest.open.put(unit);
        if put.is_ok() {
            guest.partitions.insert(partition);
        }
        self.guests.retain(|guest| !guest.partitions.is_empty());
        put
    }

    fn settle(&mut self, partitions: &[u16]) -> Result<(), UnitError> {
        check(partitions, self.open.partitions())?;
        self.settle_guests(partitions)
    }

    fn size_of(&self, partition: u16) -> usize {
        self.opens().map(|open| open.size_of(partition)).sum()
    }
}
