//! Key partitions that go from one instance to another while rows flow: what this agent does of each group. The
//! coordinator asks for one step after the other, and may ask for any of them again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared as Joint};
use tokio::sync::oneshot;
use tuplane_core::plan::VertexId;
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_wire::message::{AgentInfo, Event, FaultCode, RunPlan, WireFault};
use tuplane_wire::scaling::KeyGroup;

use super::run::{Local, Run, Stand};
use super::{Engine, internal, lock, no_run};
use crate::exchange::edge::Edge;
use crate::exchange::inbox::Side;
use crate::exchange::moving::Group;
use crate::exchange::parcels::{self, Address, Expected, Parcel};

/// Pause between two looks at rows that are being taken, or at what has arrived.
const LOOK: Duration = Duration::from_millis(1);

/// A step that is done once, by a task of its own, whoever asks for it and however often.
pub(super) type Work = Joint<BoxFuture<'static, Result<(), WireFault>>>;

/// A plan and the number of a group in it.
type Order = (u64, u32);

/// How far groups are on this agent. They move one after the other.
#[derive(Default)]
pub(crate) struct Groups(Mutex<Progress>);

#[derive(Default)]
struct Progress {
    /// The last group that is done with.
    done: Option<Order>,
    now: Option<Now>,
}

/// The group that is on its way.
struct Now {
    order: Order,
    /// Where the one that gives puts it, if both are on this agent.
    here: Option<oneshot::Sender<Parcel>>,
    giving: Option<Work>,
    taking: Option<Work>,
}

impl Groups {
    fn is_done(&self, order: Order) -> bool {
        lock(&self.0).done.is_some_and(|done| done >= order)
    }

    /// Calls with the group that is on its way: this one.
    fn with<T>(&self, order: Order, call: impl FnOnce(&mut Now) -> T) -> T {
        let mut progress = lock(&self.0);
        if progress.now.as_ref().is_none_or(|now| now.order != order) {
            progress.now = None;
        }
        let now = progress.now.get_or_insert(Now { order, here: None, giving: None, taking: None });
        call(now)
    }

    fn end(&self, order: Order) {
        let mut progress = lock(&self.0);
        progress.done = progress.done.max(Some(order));
        progress.now = None;
    }
}

/// A group, and the run that it belongs to as it is here.
struct Step<'a> {
    group: &'a KeyGroup,
    run: Arc<Run>,
    stand: Arc<Stand>,
    plan: Arc<RunPlan>,
}

impl Step<'_> {
    fn order(&self) -> Order {
        (self.group.epoch, self.group.number)
    }

    /// An instance, if it is on this agent.
    fn local(&self, instance: u32) -> Option<&Arc<Local>> {
        self.stand.local.iter().find(|local| local.placed.id == instance)
    }

    /// An instance of the plan.
    fn placed(&self, instance: u32) -> Result<&Placed, WireFault> {
        let found = self.plan.instances.iter().find(|one| one.id == instance);
        found.ok_or_else(|| self.said(&format!("the plan has no instance {instance}")))
    }

    /// The agent of an instance.
    fn agent_of(&self, instance: u32) -> Result<&AgentInfo, WireFault> {
        Ok(&self.plan.agents[usize::from(self.placed(instance)?.agent)])
    }

    /// As queues know it.
    fn as_moved(&self) -> Group {
        let KeyGroup { epoch, number, from, to, partitions, .. } = self.group;
        Group {
            epoch: *epoch as u32,
            number: *number,
            from: *from,
            to: *to,
            partitions: partitions.iter().copied().collect(),
        }
    }

    fn said(&self, why: &str) -> WireFault {
        let KeyGroup { number, from, to, .. } = self.group;
        internal(&format!("group {number} of the key partitions that go from instance {from} to {to}: {why}"))
    }

    /// The edges by which rows are sent from here to a vertex.
    fn edges_to(&self, vertex: VertexId) -> impl Iterator<Item = &Arc<Edge>> {
        let dag = &self.stand.dag;
        let sends = |from| self.plan.instances.iter().any(|i| i.vertex == from && i.agent == self.run.me);
        let inputs = dag.inputs(vertex).filter(move |(_, edge)| sends(edge.from));
        inputs.filter_map(|(id, _)| self.stand.edges.get(&id.0))
    }
}

impl Engine {
    /// The run of a group, where rows go by its plan; `None` once all of it is done.
    fn step<'a>(&self, group: &'a KeyGroup) -> Result<Option<Step<'a>>, WireFault> {
        let held = self.find(group.run).ok_or_else(|| no_run(group.run))?;
        if held.plan.epoch > group.epoch || held.run.groups.is_done((group.epoch, group.number)) {
            return Ok(None);
        }
        if held.plan.epoch < group.epoch {
            let message = format!("rows of run {} do not go by plan {} here", group.run, group.epoch);
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        let stand = held.run.stand();
        Ok(Some(Step { group, run: held.run, stand, plan: held.plan }))
    }

    /// How large the state of key partitions of an instance is, each in bytes. It is asked when a plan is prepared, and
    /// when it is carried out.
    ///
    /// # Errors
    /// If it is not here, or has ended.
    pub async fn key_sizes(
        self: &Arc<Self>,
        run: u64,
        epoch: u64,
        instance: u32,
        partitions: Vec<u16>,
    ) -> Result<Vec<u64>, WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        if held.plan.epoch > epoch {
            return Err(WireFault::new(FaultCode::Stale, format!("plan {epoch} of run {run} is over")));
        }
        let stand = held.run.stand();
        let local = stand.local.iter().find(|local| local.placed.id == instance);
        let local = local.ok_or_else(|| internal(&format!("instance {instance} is not on this agent")))?;
        local.asking.sizes(partitions).await
    }

    /// A group is about to move. To be said to the agent of the new instance first, then to that of the old one: rows
    /// that come for the group wait at the new one from now on, and the time of the old one stands still. Whoever
    /// takes what the new one gives has heard that some of it may be older than what it gave before.
    ///
    /// # Errors
    /// If another group is on its way to one of them.
    pub async fn group_begin(self: &Arc<Self>, group: &KeyGroup) -> Result<(), WireFault> {
        let Some(step) = self.step(group)? else { return Ok(()) };
        let from = step.local(group.from);
        if let Some(to) = step.local(group.to) {
            while to.inbox.is_far_behind(step.as_moved().order()) {
                tokio::time::sleep(LOOK).await;
            }
            let began = to.inbox.begin_group(step.as_moved(), Side::Takes);
            began.map_err(|why| step.said(&why))?;
            let began = step.run.groups.with(step.order(), |now| {
                let begins = now.taking.is_none();
                if begins {
                    now.taking = Some(self.taking(&step, to, from, &mut now.here)?);
                    for (edge, sender) in &to.exits {
                        if let Some(edge) = step.stand.edges.get(edge) {
                            edge.hold(*sender);
                        }
                    }
                }
                Ok::<_, WireFault>(now.taking.clone().filter(|_| begins))
            })?;
            if let Some(taking) = began {
                self.settles(&step, to, taking);
            }
            step.stand.until_heard(to).await;
        }
        if let Some(from) = from {
            let began = from.inbox.begin_group(step.as_moved(), Side::Gives);
            began.map_err(|why| step.said(&why))?;
        }
        Ok(())
    }

    /// Rows of the group that are sent from here go to its new instance from now on, those too that wait.
    ///
    /// # Errors
    /// If an edge has not both instances as targets.
    pub async fn group_turn(self: &Arc<Self>, group: &KeyGroup) -> Result<(), WireFault> {
        let Some(step) = self.step(group)? else { return Ok(()) };
        for edge in step.edges_to(step.placed(group.to)?.vertex) {
            edge.move_group(&step.as_moved()).map_err(|why| step.said(&why))?;
            // A piece of many rows may have been divided.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Once all who send have said that it moves, the old instance, which is here, gives the group away.
    ///
    /// # Errors
    /// If it was not begun here, or cannot be given.
    pub async fn group_ship(self: &Arc<Self>, group: &KeyGroup) -> Result<(), WireFault> {
        let Some(step) = self.step(group)? else { return Ok(()) };
        let from =
            step.local(group.from).ok_or_else(|| step.said("the old instance is not on this agent"))?;
        let giving = step.run.groups.with(step.order(), |now| {
            if now.giving.is_none() {
                now.giving = Some(self.giving(&step, from, now.here.take())?);
            }
            Ok(now.giving.clone())
        })?;
        giving.ok_or_else(|| step.said("it was not begun on this agent"))?.await
    }

    /// The new instance, which is here, has the group: its state, and before all other rows those that came with it or
    /// have waited. It goes through them after that: at full queues that takes as long as what is behind it does, and
    /// other groups can move meanwhile.
    ///
    /// # Errors
    /// If it was not begun here, or does not come.
    pub async fn group_await(self: &Arc<Self>, group: &KeyGroup) -> Result<(), WireFault> {
        let Some(step) = self.step(group)? else { return Ok(()) };
        let taking = step.run.groups.with(step.order(), |now| now.taking.clone());
        taking.ok_or_else(|| step.said("it was not begun on this agent"))?.await
    }

    /// A group has arrived, and nothing of it is needed any more.
    ///
    /// # Errors
    /// If the run is not here.
    pub fn group_end(&self, group: &KeyGroup) -> Result<(), WireFault> {
        let Some(step) = self.step(group)? else { return Ok(()) };
        if let Some(from) = step.local(group.from) {
            from.inbox.end_group(step.as_moved().order());
        }
        step.run.groups.end(step.order());
        Ok(())
    }

    /// All groups of a plan have moved: nothing is sent any more to instances that go, and those that hold key partitions
    /// end when their input does.
    ///
    /// # Errors
    /// If one that is to go still holds a partition.
    pub fn release(&self, run: u64, epoch: u64) -> Result<(), WireFault> {
        let none = KeyGroup { run, epoch, number: u32::MAX, from: 0, to: 0, partitions: Vec::new() };
        let Some(step) = self.step(&none)? else { return Ok(()) };
        let stays = |id: u32| step.plan.targets().any(|instance| instance.id == id);
        for edge in step.plan.moving.iter().flat_map(|vertex| step.edges_to(*vertex)) {
            let name = step.stand.edge_name(edge.index());
            let changed = edge.change_owners(Vec::new(), &stays, None, step.run.me);
            changed.map_err(|why| internal(&format!("{name}: {why}")))?;
        }
        for local in step.stand.local.iter().filter(|local| step.plan.moves(local.placed.vertex)) {
            local.inbox.close_moves();
        }
        Ok(())
    }

    /// Takes a group in when it comes.
    fn taking(
        &self,
        step: &Step<'_>,
        to: &Arc<Local>,
        from: Option<&Arc<Local>>,
        here: &mut Option<oneshot::Sender<Parcel>>,
    ) -> Result<Work, WireFault> {
        let coming = if from.is_some() {
            let (give, comes) = oneshot::channel();
            *here = Some(give);
            let gone = || WireFault::new(FaultCode::Stale, "the run has ended while key partitions moved");
            comes.map(move |parcel| parcel.map_err(|_| gone())).boxed()
        } else {
            self.coming(step, to)?
        };
        let (to, from, order) = (Arc::clone(to), from.cloned(), step.as_moved().order());
        Ok(self.work(async move {
            let Parcel { units, rows, watermark } = coming.await?;
            tracing::debug!(?order, units = units.len(), ?watermark, "key partitions have come");
            to.asking.take(units, rows).await?;
            if let Some(from) = from {
                // They wait there from now on, and here no more.
                from.inbox.end_group(order);
            }
            Ok(())
        }))
    }

    /// Goes through the rows that have waited for a group, those that leave with a later one left out. That it fails is
    /// said as an event: nobody asks.
    fn settles(&self, step: &Step<'_>, to: &Arc<Local>, taking: Work) {
        let (to, partitions) = (Arc::clone(to), step.group.partitions.clone());
        let (run, events) = (step.group.run, self.shared.events.clone());
        to.inbox.begin_settling();
        self.shared.data.spawn(async move {
            if taking.await.is_err() {
                // It is known to whoever asked for it.
                to.inbox.end_settling();
                return;
            }
            to.inbox.caught_up().await;
            let settled = to.asking.settle(partitions).await;
            to.inbox.end_settling();
            // One that has come to its end has gone through all.
            if let Err(fault) = settled
                && !to.inbox.is_over()
            {
                let instance = to.placed.id;
                // The receiver is this agent's own control side; without it the agent is ending.
                let _ = events.send(Event::InstanceFailed { run, instance, fault });
            }
        });
    }

    /// What comes of a group from another agent.
    fn coming(
        &self,
        step: &Step<'_>,
        to: &Arc<Local>,
    ) -> Result<BoxFuture<'static, Result<Parcel, WireFault>>, WireFault> {
        let expected = Expected {
            run: step.group.run,
            attempt: step.plan.attempt,
            epoch: step.group.epoch as u32,
            number: i64::from(step.group.number),
            target: step.group.to,
            partitions: step.group.partitions.clone(),
            inputs: to.inputs.clone(),
        };
        let session = self.shared.session_from(&step.agent_of(step.group.from)?.id);
        let arrival = session.expect(expected).ok_or_else(|| step.said("it has come already"))?;
        let to = Arc::clone(to);
        Ok(async move { arrival.parcel(to.asking.loader().await?).await }.boxed())
    }

    /// Gives a group away.
    fn giving(
        &self,
        step: &Step<'_>,
        from: &Arc<Local>,
        here: Option<oneshot::Sender<Parcel>>,
    ) -> Result<Work, WireFault> {
        let address = Address {
            run: step.group.run,
            attempt: step.plan.attempt,
            epoch: step.group.epoch as u32,
            number: i64::from(step.group.number),
            target: step.group.to,
            edges: from.inputs.iter().map(|(edge, _)| *edge).collect(),
        };
        let session = match &here {
            Some(_) => None,
            None => Some(self.shared.road_to(step.agent_of(step.group.to)?, step.group.run)),
        };
        let (from, order) = (Arc::clone(from), step.as_moved().order());
        let partitions = step.group.partitions.clone();
        Ok(self.work(async move {
            from.inbox.all_marked(order).await;
            let given = from.asking.give(partitions).await?;
            if let Some(session) = session {
                return parcels::send(&session, address, given).await;
            }
            let parcel = Parcel { units: given.units, rows: given.rows, watermark: given.watermark };
            let sent = here.and_then(|here| here.send(parcel).ok());
            sent.ok_or_else(|| internal("nobody waits for key partitions that were given away"))
        }))
    }

    /// Runs on the data runtime to its end.
    pub(super) fn work(&self, work: impl Future<Output = Result<(), WireFault>> + Send + 'static) -> Work {
        let task = self.shared.data.spawn(work);
        let failed = |e| internal(&format!("moving state failed: {e}"));
        async move { task.await.map_err(failed)? }.boxed().shared()
    }
}
