//! A partitioned edge whose key partitions get other owners while it is used.

use std::sync::Arc;

use super::{Channels, Edge, State};
use crate::exchange::mark::Mark;
use crate::exchange::moving::Group;
use crate::exchange::outlet::{Outlet, Outlets};
use crate::exchange::outqueue::Reach;
use crate::sync::lock;

impl Edge {
    /// Instances that hold nothing yet come onto the list, and those that are not kept and hold nothing any more go
    /// off it. The first word to a new one is the watermark, to one that goes it is the end. `me` is this agent.
    /// `owners` gives the instance of each key partition where that is not who holds it now: only an edge without
    /// senders may be told so.
    ///
    /// # Errors
    /// If one that would go holds a partition. Nothing has changed then.
    pub(crate) fn change_owners(
        &self,
        add: Vec<Outlet>,
        keep: &dyn Fn(u32) -> bool,
        owners: Option<&[u32]>,
        me: u16,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        let before = state.instances();
        let held = state.reach.map.iter().filter_map(|place| before.get(*place as usize).copied());
        let owners: Vec<u32> = owners.map_or_else(|| held.collect(), <[u32]>::to_vec);
        let comes = |id: u32| add.iter().any(|outlet| outlet.instance == id);
        if let Some(owner) = owners.iter().find(|id| !(comes(**id) || before.contains(id) && keep(**id))) {
            return Err(format!("instance {owner} is to go, and still holds a key partition"));
        }
        state.greet(&add);
        let Some(outlets) = state.outlets.first_mut() else { return Ok(()) };
        let gone = outlets.retarget(add, keep, me);
        state.let_go(gone);
        let now = state.instances();
        let place = |list: &[u32], id: u32| list.iter().position(|one| *one == id);
        let former: Vec<Option<usize>> = now.iter().map(|id| place(&before, *id)).collect();
        let map = owners.iter().map(|id| place(&now, *id).unwrap_or(0) as u32).collect();
        state.reach = Arc::new(Reach { width: now.len(), map });
        for sender in &mut state.senders {
            sender.queue.relane(&former);
        }
        state.samples.forget_targets();
        state.outlets.iter().for_each(Outlets::flush);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// From here on rows of a group's partitions go to its new owner, those too that wait here. The mark tells both
    /// owners: to the old one none of these rows comes behind it, to the new one none came before. Done a second time
    /// it changes nothing.
    ///
    /// # Errors
    /// If the edge has not both owners, or others hold the partitions.
    pub(crate) fn move_group(&self, group: &Group) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.closed || state.moved.is_some_and(|last| last >= group.order()) {
            return Ok(());
        }
        let list = state.instances();
        let place = |instance: u32| {
            let found = list.iter().position(|one| *one == instance);
            found.ok_or_else(|| format!("instance {instance} is no target of the edge"))
        };
        let (from, to) = (place(group.from)?, place(group.to)?);
        if state.senders.iter().any(|sender| sender.overflow.is_some()) {
            return Err("rows may wait on disk, whose target cannot change".to_owned());
        }
        let mut map = state.reach.map.clone();
        for (partition, owner) in (0u16..).zip(&mut map) {
            if group.partitions.has(partition) {
                if *owner != from as u32 {
                    return Err(format!("key partition {partition} is not held by instance {}", group.from));
                }
                *owner = to as u32;
            }
        }
        for sender in &mut state.senders {
            sender.queue.move_partitions(&group.partitions, from, to).map_err(|e| e.to_string())?;
        }
        state.reach = Arc::new(Reach { width: list.len(), map });
        state.moved = Some(group.order());
        let mark = Mark::Moved { epoch: group.epoch, group: group.number };
        if let Some(outlets) = state.outlets.first() {
            outlets.list()[from].mark(mark);
            outlets.list()[to].mark(mark);
            outlets.flush();
        }
        drop(state);
        // The new owner's channel may have room.
        self.wake.notify_one();
        Ok(())
    }

    /// A sender's rows may be older from now on than what its targets have heard of event time, until its
    /// [`Mark::Resume`]: they hold theirs as soon as this has come to them.
    pub(crate) fn hold(&self, sender: usize) {
        let mut state = lock(&self.state);
        if state.closed || state.senders[sender].ended {
            return;
        }
        state.senders[sender].holds += 1;
        let set = if state.channels == Channels::Own { sender } else { 0 };
        if let Some(outlets) = state.outlets.get(set) {
            outlets.send_mark(Mark::Hold);
            outlets.flush();
        }
    }

    /// The greatest watermark that its targets have been told.
    pub(crate) fn told(&self) -> Option<i64> {
        lock(&self.state).least.watermark()
    }

    /// The owner of each key partition, by instance.
    #[cfg(test)]
    pub(crate) fn owners(&self) -> Vec<u32> {
        let state = lock(&self.state);
        let list = state.instances();
        state.reach.map.iter().filter_map(|place| list.get(*place as usize).copied()).collect()
    }
}

impl State {
    /// Its targets, in the order of their outlets.
    fn instances(&self) -> Vec<u32> {
        let first = self.outlets.first().map_or(&[][..], Outlets::list);
        first.iter().map(|outlet| outlet.instance).collect()
    }

    /// A sender has ended that may have had older rows to give.
    pub(super) fn take_back_holds(&mut self, sender: usize) {
        let set = if self.channels == Channels::Own { sender } else { 0 };
        let holds = std::mem::take(&mut self.senders[sender].holds);
        if let Some(outlets) = self.outlets.get(set) {
            (0..holds).for_each(|_| outlets.send_mark(Mark::Resume));
        }
    }

    /// The first word to new targets. Where older rows may follow, that is said before any event time.
    pub(super) fn greet(&self, new: &[Outlet]) {
        let mut first = Vec::new();
        if self.ended {
            first.push(Mark::End);
        } else {
            let holds: u32 = self.senders.iter().map(|sender| sender.holds).sum();
            first.extend((0..holds).map(|_| Mark::Hold));
            first.extend(self.least.watermark().map(Mark::Watermark));
            first.extend(self.least.is_idle().then_some(Mark::Idle));
        }
        for outlet in new {
            for mark in &first {
                outlet.mark(*mark);
            }
        }
    }
}
