//! The targets and senders of an edge change while it is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tuplane_core::route::Targets;

use super::{Edge, Route};
use crate::exchange::mark::Mark;
use crate::exchange::outlet::{Outlet, Outlets};
use crate::sync::lock;

/// The target list of a pool over outlets (instance and agent each, in their order), and the outlet of each target:
/// by agent, this one first.
pub(crate) fn pool_targets(
    outlets: impl IntoIterator<Item = (u32, u16)>,
    me: u16,
    takes: &dyn Fn(u32) -> bool,
) -> (Targets, Vec<usize>) {
    let mut groups: BTreeMap<(bool, u16), Vec<(u32, usize)>> = BTreeMap::new();
    for (number, (instance, agent)) in outlets.into_iter().enumerate() {
        if takes(instance) {
            groups.entry((agent != me, agent)).or_default().push((instance, number));
        }
    }
    let here = groups.keys().next().is_some_and(|(far, _)| !far);
    let numbers = groups.values().flatten().map(|(_, number)| *number).collect();
    let ids = groups.into_values().map(|group| group.into_iter().map(|(instance, _)| instance).collect());
    let none = (!here).then(Vec::new);
    (Targets::with_local(none.into_iter().chain(ids)), numbers)
}

impl Edge {
    /// What its outlets' credits notify.
    pub(crate) fn wake_handle(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Instances that it sends to, and the agent of each.
    pub(crate) fn list(&self) -> Vec<(u32, u16)> {
        let state = lock(&self.state);
        let first = state.outlets.first().map_or(&[][..], Outlets::list);
        first.iter().map(|outlet| (outlet.instance, outlet.agent)).collect()
    }

    /// All its senders here have ended.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Its senders here have ended, and others come: its channels go on.
    pub(crate) fn reopen(&self) {
        let mut state = lock(&self.state);
        state.ended = false;
        // Its targets take a channel that is opened again to be awake.
        state.least.wake();
    }

    /// A sender has joined: it holds the watermark until its own first one, and is not idle.
    pub(crate) fn has_joined(&self) {
        lock(&self.state).advance();
    }

    /// Those who were to send on it again do not come: its targets have had its end.
    pub(crate) fn close_again(&self) {
        let mut state = lock(&self.state);
        (state.ended, state.ending) = (true, 0);
        state.senders.iter_mut().for_each(|sender| sender.ended = true);
    }

    /// A sender that has joined will not send after all: its place is free again.
    pub(crate) fn has_left(&self, sender: usize) {
        if !self.has_ended() {
            self.mark(sender, Mark::End);
        }
        let instance = lock(&self.state).senders[sender].instance;
        self.free(sender, instance);
    }

    /// From now on rows go to these targets too, and not to those that are not kept; what waits goes by the new list.
    /// The first word to a new target is the watermark, to one that goes it is the end.
    ///
    /// # Errors
    /// If its policy cannot be made.
    pub(crate) fn retarget(
        &self,
        add: Vec<Outlet>,
        keep: &dyn Fn(u32) -> bool,
        route: &Route<'_>,
    ) -> Result<(), String> {
        let mut state = lock(&self.state);
        if state.closed {
            return Ok(());
        }
        // Nothing is half-changed by what would be refused.
        route.policies.make(route.name, route.options, 0).map_err(|e| e.to_string())?;
        state.greet(&add);
        let Some(outlets) = state.outlets.first_mut() else { return Ok(()) };
        let gone = outlets.retarget(add, keep, route.me);
        let (view, numbers) =
            pool_targets(outlets.list().iter().map(|o| (o.instance, o.agent)), route.me, &|_| true);
        state.let_go(gone);
        for sender in &mut state.senders {
            sender.queue.retarget(view.clone(), numbers.clone());
        }
        state.samples.forget_targets();
        let decided = state.priced.as_mut().map(|priced| priced.take_record()).unwrap_or_default();
        // Before anything is released: what prices targets has one entry for each.
        let set = self.set_route_in(&mut state, route);
        if let Some(priced) = &mut state.priced {
            priced.recall(decided);
        }
        state.outlets.iter().for_each(Outlets::flush);
        self.settle(&mut state);
        drop(state);
        self.wake.notify_one();
        set
    }
}
