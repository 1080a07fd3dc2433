//! A run's plan changes while it runs: prepared beside what there is, then started, then used; or taken back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tuplane_wire::message::{FaultCode, RunPlan, WireFault};

use super::build::{self, Made, Ready, Retarget};
use super::run::{Local, Run, Stand};
use super::{Engine, Held, internal, lock, no_run, over};
use crate::exchange::edge::Edge;
use crate::exchange::inbound::{Door, Inbound};
use crate::exchange::inbox::Inbox;
use crate::exchange::outbound::{ChannelKey, Outbound};

/// What a plan has prepared here.
pub(crate) struct Next {
    plan: Arc<RunPlan>,
    pub(crate) stand: Arc<Stand>,
    /// Its new instances, until they start.
    instances: Vec<Ready>,
    retargets: Vec<Retarget>,
    undo: Undo,
    started: bool,
}

/// What is to be taken back if a plan fails.
#[derive(Default)]
pub(crate) struct Undo {
    steps: Mutex<Vec<Step>>,
}

enum Step {
    /// A sender has joined an edge.
    Sender { edge: Arc<Edge>, sender: usize },
    /// An edge without senders was opened again.
    Reopened(Arc<Edge>),
    /// An instance listens to a channel; by this key, if it is a new one.
    ChannelIn { local: Arc<Local>, channel: usize, key: Option<(u32, u16)> },
    /// An instance does not end while key partitions may move.
    Moves(Arc<Inbox>),
    /// A source may not end while others may hand it something.
    Hand(Arc<Local>),
    /// A session knows an edge.
    EdgeOut { session: Arc<Outbound>, run: u64, number: u32 },
    /// A session is kept for key partitions.
    Road { session: Arc<Outbound>, run: u64 },
    /// A session knows a channel.
    ChannelOut { session: Arc<Outbound>, key: ChannelKey },
    /// Frames find other targets.
    Door { session: Arc<Inbound>, run: u64, number: u32, before: Option<Arc<Door>> },
}

impl Undo {
    fn push(&self, step: Step) {
        lock(&self.steps).push(step);
    }

    pub(crate) fn sender(&self, edge: &Arc<Edge>, sender: usize) {
        self.push(Step::Sender { edge: Arc::clone(edge), sender });
    }

    pub(crate) fn reopened(&self, edge: &Arc<Edge>) {
        self.push(Step::Reopened(Arc::clone(edge)));
    }

    pub(crate) fn channel_in(&self, local: &Arc<Local>, channel: usize, key: Option<(u32, u16)>) {
        self.push(Step::ChannelIn { local: Arc::clone(local), channel, key });
    }

    pub(crate) fn moves(&self, inbox: &Arc<Inbox>) {
        self.push(Step::Moves(Arc::clone(inbox)));
    }

    pub(crate) fn hand(&self, local: &Arc<Local>) {
        self.push(Step::Hand(Arc::clone(local)));
    }

    pub(crate) fn edge_out(&self, session: &Arc<Outbound>, run: u64, number: u32) {
        self.push(Step::EdgeOut { session: Arc::clone(session), run, number });
    }

    pub(crate) fn road(&self, session: &Arc<Outbound>, run: u64) {
        self.push(Step::Road { session: Arc::clone(session), run });
    }

    pub(crate) fn channel_out(&self, session: &Arc<Outbound>, key: ChannelKey) {
        self.push(Step::ChannelOut { session: Arc::clone(session), key });
    }

    pub(crate) fn door(&self, session: &Arc<Inbound>, run: u64, number: u32, before: Option<Arc<Door>>) {
        self.push(Step::Door { session: Arc::clone(session), run, number, before });
    }

    /// Takes everything back, the last first. An edge that was opened again is closed before its senders leave: to
    /// its targets it has not been open.
    fn take_back(&self) {
        let mut steps = std::mem::take(&mut *lock(&self.steps));
        for step in &steps {
            if let Step::Reopened(edge) = step {
                edge.close_again();
            }
        }
        while let Some(step) = steps.pop() {
            match step {
                Step::Reopened(_) => {}
                Step::Sender { edge, sender } => edge.has_left(sender),
                Step::ChannelIn { local, channel, key } => {
                    if let Some(key) = key {
                        lock(&local.channels).remove(&key);
                        local.inbox.leave_for_good(channel);
                    } else {
                        local.inbox.leave(channel);
                    }
                }
                Step::Moves(inbox) => inbox.close_moves(),
                Step::Hand(local) => {
                    local.hand.forget();
                    local.inbox.nudge();
                }
                Step::EdgeOut { session, run, number } => session.remove_edge(run, number),
                Step::Road { session, run } => session.close_road(run),
                Step::ChannelOut { session, key } => session.remove_channel(key),
                Step::Door { session, run, number, before } => session.restore(run, number, before),
            }
        }
    }
}

impl Run {
    /// Prepares a plan beside what there is.
    fn prepare_next(&self, plan: &Arc<RunPlan>, made: Made, undo: Undo) -> Result<Next, (WireFault, Undo)> {
        let Made { stand, instances, retargets, joined, copies } = made;
        let policies = || -> Result<(), String> {
            for edge in 0..stand.dag.edges.len() as u32 {
                let Some(given) = self.given(&stand, edge, &plan.policies)? else { continue };
                match stand.edges.get(&edge) {
                    Some(sending) if self.stand().edges.contains_key(&edge) => {
                        let route = self.as_route(&stand, edge, &given);
                        for (_, sender) in joined.iter().filter(|(of, _)| *of == edge) {
                            sending.set_route_of(*sender, &route)?;
                        }
                        self.listen(&stand, edge, &given)?;
                    }
                    _ => self.set_route(&stand, edge, &given)?,
                }
            }
            Ok(())
        };
        if let Err(why) = policies() {
            return Err((WireFault::new(FaultCode::Refused, why), undo));
        }
        self.copies.prepare(plan.epoch, copies);
        let (plan, stand) = (Arc::clone(plan), Arc::new(stand));
        Ok(Next { plan, stand, instances, retargets, undo, started: false })
    }

    /// Rows go to other targets from now on.
    fn retarget(&self, stand: &Stand, plan: &RunPlan, retarget: Retarget) -> Result<(), WireFault> {
        let Retarget { edge: index, by_key, add, keep, owners, .. } = retarget;
        let refused = |why: String| internal(&format!("{}: {why}", stand.edge_name(index)));
        let Some(edge) = stand.edges.get(&index) else { return Ok(()) };
        let kept: &dyn Fn(u32) -> bool = &|id| keep.contains(&id);
        if by_key {
            return edge.change_owners(add, kept, owners.as_deref(), self.me).map_err(refused);
        }
        let given = self.given(stand, index, &plan.policies).map_err(refused)?;
        let given = given.ok_or_else(|| internal("the targets of an edge change that has no choice"))?;
        edge.retarget(add, kept, &self.as_route(stand, index, &given)).map_err(refused)
    }
}

impl Engine {
    /// Makes what the next plan of a run needs here. Nothing is sent to it, and nothing of it runs.
    ///
    /// # Errors
    /// If it cannot be made; nothing of it stays then.
    pub async fn extend(self: &Arc<Self>, plan: RunPlan) -> Result<(), WireFault> {
        let engine = Arc::clone(self);
        // A task of its own: a caller that gives up must not leave half a plan behind.
        let extended = self.shared.data.spawn(async move { engine.extend_whole(plan).await });
        extended.await.map_err(|e| internal(&format!("preparing a plan failed: {e}")))?
    }

    async fn extend_whole(&self, plan: RunPlan) -> Result<(), WireFault> {
        let (run, epoch) = (plan.run, plan.epoch);
        if self.is_aborted(run, epoch) {
            return Err(given_up(run, epoch));
        }
        let Some(held) = self.find(run) else {
            // An agent's first instances of the job: all of its part is new.
            self.prepare_whole(plan).await?;
            if self.is_aborted(run, epoch) {
                self.abort(run, epoch).await;
                return Err(given_up(run, epoch));
            }
            return Ok(());
        };
        let one = self.building.lock().await;
        if held.plan.epoch >= epoch {
            let known = held.plan.epoch == epoch;
            return if known { Ok(()) } else { Err(given_up(run, epoch)) };
        }
        let before = lock(&held.run.next).as_ref().map(|next| (next.plan.epoch, next.started));
        match before {
            Some((prepared, _)) if prepared == epoch => return Ok(()),
            Some((_, true)) => return Err(given_up(run, epoch)),
            // An earlier one that failed, of whose end this agent has not been told.
            Some((prepared, false)) => Self::take_back(&held.run, prepared),
            None => {}
        }
        // Agents that earlier plans have emptied: what there was of them is not met again, and may be gone.
        for session in held.run.stand().left_by(&plan) {
            session.forget(run);
        }
        let reserved = self.reserved_but(run);
        let (shared, run, plan) = (Arc::clone(&self.shared), Arc::clone(&held.run), Arc::new(plan));
        // Compiling expressions takes a while.
        let built = self.shared.data.spawn_blocking(move || {
            let undo = Undo::default();
            let made = build::extend(&shared, &run, (*plan).clone(), reserved, &undo);
            let next = match made {
                Ok(made) => run.prepare_next(&plan, made, undo),
                Err(fault) => Err((fault, undo)),
            };
            next.map_err(|(fault, undo)| {
                undo.take_back();
                fault
            })
        });
        let next = built.await.map_err(|e| internal(&format!("preparing a plan failed: {e}")))??;
        {
            let tasks = lock(&held.run.tasks);
            if tasks.is_none() {
                next.undo.take_back();
                held.run.copies.give_up();
                return Err(over(held.run.run));
            }
            *lock(&held.run.next) = Some(next);
        }
        self.shared.close_unused();
        drop(one);
        if self.is_aborted(held.run.run, epoch) {
            self.abort(held.run.run, epoch).await;
            return Err(given_up(held.run.run, epoch));
        }
        Ok(())
    }

    /// A plan was committed: its new instances here start.
    ///
    /// # Errors
    /// If it was not prepared here, or an instance gets no thread.
    pub fn start_new(&self, run: u64, epoch: u64) -> Result<(), WireFault> {
        let switching = self.find(run).ok_or_else(|| no_run(run))?;
        // A request that is repeated waits for the first.
        let _one = lock(&switching.run.switching);
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        if held.plan.epoch >= epoch {
            // All of this agent's part is new; or it was asked before.
            return if *held.run.start.borrow() { Ok(()) } else { self.start(run) };
        }
        let (stand, plan, ready, at_start) = {
            let mut next = lock(&held.run.next);
            let next = next.as_mut().filter(|next| next.plan.epoch == epoch);
            let next = next.ok_or_else(|| not_prepared(run, epoch))?;
            if std::mem::replace(&mut next.started, true) {
                return Ok(());
            }
            let all = std::mem::take(&mut next.retargets);
            let (at_start, later): (Vec<_>, Vec<_>) = all.into_iter().partition(|retarget| retarget.at_start);
            next.retargets = later;
            let ready = std::mem::take(&mut next.instances);
            (Arc::clone(&next.stand), Arc::clone(&next.plan), ready, at_start)
        };
        for retarget in at_start {
            held.run.retarget(&stand, &plan, retarget)?;
        }
        let before = held.run.stand();
        let new: Vec<Arc<Edge>> = stand
            .edges
            .iter()
            .filter(|(index, _)| !before.edges.contains_key(index))
            .map(|(_, edge)| Arc::clone(edge))
            .collect();
        held.run.set_stand(stand);
        self.spawn(&held.run, new, ready)
    }

    /// All new instances of a plan have started: rows go by it from here.
    ///
    /// # Errors
    /// If it has not been started here.
    pub fn switch(&self, run: u64, epoch: u64) -> Result<(), WireFault> {
        let switching = self.find(run).ok_or_else(|| no_run(run))?;
        // A request that is repeated waits for the first.
        let _one = lock(&switching.run.switching);
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        if held.plan.epoch >= epoch {
            return Ok(());
        }
        let next = {
            let mut next = lock(&held.run.next);
            if !next.as_ref().is_some_and(|next| next.plan.epoch == epoch && next.started) {
                return Err(not_prepared(run, epoch));
            }
            next.take()
        };
        let Some(next) = next else { return Ok(()) };
        for retarget in next.retargets {
            held.run.retarget(&next.stand, &next.plan, retarget)?;
        }
        held.run.share_rates(&held.plan, &next.plan);
        held.run.release(&next.plan.going);
        let switched = Held { run: Arc::clone(&held.run), plan: next.plan };
        if let Some(held) = lock(&self.runs).get_mut(&run) {
            *held = switched;
        }
        Ok(())
    }

    /// A plan failed before it was committed: nothing of it stays. Asking again changes nothing.
    pub async fn abort(&self, run: u64, epoch: u64) {
        {
            let mut aborted = lock(&self.aborted);
            let last = aborted.entry(run).or_default();
            *last = epoch.max(*last);
        }
        let Some(held) = self.find(run) else { return };
        if held.plan.epoch == epoch && !held.plan.coming.is_empty() && !*held.run.start.borrow() {
            // All of this agent's part was new.
            let _one = self.building.lock().await;
            self.drop_run(run).await;
            self.shared.close_unused();
            return;
        }
        let _one = self.building.lock().await;
        Self::take_back(&held.run, epoch);
        // An agent that was to join may have no other use.
        self.shared.close_unused();
    }

    fn take_back(run: &Run, epoch: u64) {
        let mut next = lock(&run.next);
        if !next.as_ref().is_some_and(|next| next.plan.epoch == epoch && !next.started) {
            return;
        }
        if let Some(next) = next.take() {
            next.undo.take_back();
            run.copies.give_up();
        }
    }

    fn is_aborted(&self, run: u64, epoch: u64) -> bool {
        lock(&self.aborted).get(&run).is_some_and(|last| *last >= epoch)
    }

    /// Bytes that the queues of other live runs may hold.
    fn reserved_but(&self, run: u64) -> u64 {
        let runs = lock(&self.runs);
        let others = runs.iter().filter(|(number, held)| **number != run && held.run.is_live());
        others.map(|(_, held)| held.run.stand().reserved).sum()
    }
}

/// Plans that failed, by run: the last of each. One that comes late is refused.
pub(super) type Aborted = Mutex<HashMap<u64, u64>>;

fn given_up(run: u64, epoch: u64) -> WireFault {
    WireFault::new(FaultCode::Stale, format!("plan {epoch} of run {run} was given up"))
}

fn not_prepared(run: u64, epoch: u64) -> WireFault {
    internal(&format!("plan {epoch} of run {run} was not prepared on this agent"))
}
