//! A partitioned edge whose key partitions get other owners while it is used.

use std::sync::Arc;

use super::{Edge, State, Telling};
use crate::exchange::mark::Mark;
use crate::exchange::moving::Group;
use crate::exchange::outlet::{Outlet, Outlets};
use crate::exchange::outqueue::Reach;
use crate::sync::lock;

impl Edge {
    /// Instances that hold nothing yet come onto the list, and those that are not kept and hold nothing any more go
    /// off it. The first word to a new one is the watermark, to one that goes it is the end. `me` is this agent.
    ///
    /// # Errors
    /// If one that would go holds a partition. Nothing has changed then.
    pub(crate) fn change_owners(
        &self,
        add: Vec<Outlet>,
        keep: &dyn Fn(u32) -> bool,
        me: u16,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        let before = state.instances();
        let stays = |place: &u32| before.get(*place as usize).is_some_and(|instance| keep(*instance));
        if let Some(place) = state.reach.map.iter().find(|place| !stays(place)) {
            let instance = before.get(*place as usize).copied().unwrap_or_default();
            return Err(format!("instance {instance} is to go, and still holds a key partition"));
        }
        state.greet(&add);
        let Some(outlets) = state.outlets.first_mut() else { return Ok(()) };
        for outlet in outlets.retarget(add, keep, me) {
            outlet.mark(Mark::End);
            state.gone.push((outlet.instance, outlet.agent, outlet.sent_rows, outlet.sent_bytes));
        }
        let now = state.instances();
        let former: Vec<Option<usize>> =
            now.iter().map(|instance| before.iter().position(|old| old == instance)).collect();
        let place = |old: &u32| former.iter().position(|former| *former == Some(*old as usize)).unwrap_or(0);
        let map = state.reach.map.iter().map(|old| place(old) as u32).collect();
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

    /// Its targets hear nothing more of event time until [`Edge::thaw`]: what is still to come out of partitions that
    /// are on their way must not find their time gone on. Neither new rows nor ends are held up.
    pub(crate) fn freeze(&self) {
        lock(&self.state).telling = Telling::Later;
    }

    /// They hear again, and at once what they have missed.
    pub(crate) fn thaw(&self) {
        let mut state = lock(&self.state);
        state.telling = Telling::Now;
        if !state.closed && !state.ended {
            state.advance();
            state.outlets.iter().for_each(Outlets::flush);
        }
    }

    /// The end of a sender's queue as it is now.
    pub(crate) fn place(&self, sender: usize) -> u64 {
        lock(&self.state).senders[sender].queue.place()
    }

    /// All rows of a sender that stood before a place have left: they are on their channels, before whatever is sent
    /// from now on.
    pub(crate) fn has_passed(&self, sender: usize, place: u64) -> bool {
        let state = lock(&self.state);
        let sender = &state.senders[sender];
        state.closed || sender.overflow.is_none() && sender.queue.has_passed(place)
    }

    /// The owner of each key partition, by instance.
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

    /// The first word to new targets.
    pub(super) fn greet(&self, new: &[Outlet]) {
        let mut first = Vec::new();
        if self.ended {
            first.push(Mark::End);
        } else {
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
