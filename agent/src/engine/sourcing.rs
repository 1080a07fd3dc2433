//! Source instances that end while their run goes on: what this agent does to hand over what they have not read. The
//! coordinator asks for one step after the other, and may ask for any of them again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared as Joint};
use tuplane_wire::message::{FaultCode, RunPlan, WireFault};
use tuplane_wire::scaling::{SourceAsk, SourceGiven, SourceUnit};

use super::run::{Local, Run};
use super::{Engine, internal, lock, no_run, over};

/// Pause between two looks at an instance that ends.
const LOOK: Duration = Duration::from_millis(1);

/// A step that is done once, by a task of its own, whoever asks for it and however often.
type Work<T> = Joint<BoxFuture<'static, Result<T, WireFault>>>;

/// A plan and an instance.
type Of = (u64, u32);

/// What was done of it here.
#[derive(Default)]
pub(crate) struct Sourcing(Mutex<Done>);

#[derive(Default)]
struct Done {
    held: BTreeSet<Of>,
    given: HashMap<Of, Work<SourceGiven>>,
    taken: HashMap<Of, Work<()>>,
}

/// The run that a plan belongs to, as it is here.
struct Step {
    run: Arc<Run>,
    plan: Arc<RunPlan>,
}

impl Step {
    fn local(&self, instance: u32) -> Option<Arc<Local>> {
        self.run.stand().local.iter().find(|local| local.placed.id == instance).cloned()
    }

    fn here(&self, instance: u32) -> Result<Arc<Local>, WireFault> {
        self.local(instance).ok_or_else(|| internal(&format!("instance {instance} is not on this agent")))
    }
}

impl Engine {
    /// Does a step; gives what an instance has not read where that is asked for.
    ///
    /// # Errors
    /// If rows do not go by the plan here, or an instance cannot do as asked.
    pub async fn sources(self: &Arc<Self>, ask: SourceAsk) -> Result<Option<SourceGiven>, WireFault> {
        match ask {
            SourceAsk::Hold { run, epoch, instances } => {
                self.source_hold(&self.sources_of(run, epoch)?, epoch, &instances).await;
                Ok(None)
            }
            SourceAsk::Give { run, epoch, instance } => {
                let step = self.sources_of(run, epoch)?;
                Ok(Some(self.source_give(&step, (epoch, instance))?.await?))
            }
            SourceAsk::Behind { run, epoch, from, to } => {
                Self::source_behind(&self.sources_of(run, epoch)?, from, &to);
                Ok(None)
            }
            SourceAsk::Take { run, epoch, instance, units } => {
                let step = self.sources_of(run, epoch)?;
                self.source_take(&step, (epoch, instance), units)?.await?;
                Ok(None)
            }
        }
    }

    fn sources_of(&self, run: u64, epoch: u64) -> Result<Step, WireFault> {
        let held = self.find(run).ok_or_else(|| no_run(run))?;
        if held.plan.epoch != epoch {
            let message = format!("rows of run {run} do not go by plan {epoch} here");
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        Ok(Step { run: held.run, plan: held.plan })
    }

    /// Whoever takes rows of these holds its event time.
    async fn source_hold(&self, step: &Step, epoch: u64, instances: &[u32]) {
        let stand = step.run.stand();
        let here: Vec<Arc<Local>> = instances.iter().filter_map(|id| step.local(*id)).collect();
        for local in &here {
            if lock(&step.run.sourcing.0).held.insert((epoch, local.placed.id)) {
                for (edge, sender) in &local.exits {
                    if let Some(edge) = stand.edges.get(edge) {
                        edge.hold(*sender);
                    }
                }
            }
        }
        for local in &here {
            stand.until_heard(local).await;
        }
    }

    /// Stops one that ends.
    fn source_give(&self, step: &Step, of: Of) -> Result<Work<SourceGiven>, WireFault> {
        let (run, local) = (Arc::clone(&step.run), step.here(of.1)?);
        let mut done = lock(&step.run.sourcing.0);
        let work = done.given.entry(of).or_insert_with(|| {
            self.joint(async move {
                let given = match local.asking.give_back().await {
                    Ok(given) => SourceGiven { instance: of.1, ..given },
                    // It had read all that it was to read.
                    Err(_) if ends(&local).await => SourceGiven { instance: of.1, ..SourceGiven::default() },
                    Err(fault) => return Err(fault),
                };
                while !local.has_ended() {
                    if run.is_stopped() {
                        return Err(over(run.run));
                    }
                    tokio::time::sleep(LOOK).await;
                }
                run.wait_until_arrived(&local).await;
                Ok(given)
            })
        });
        Ok(work.clone())
    }

    /// What has come from one that has ended comes before what those give who go on.
    fn source_behind(step: &Step, from: u32, to: &[u32]) {
        let find = |id: u32| step.plan.instances.iter().find(|one| one.id == id);
        let Some(from) = find(from) else { return };
        let later: BTreeSet<u16> = to
            .iter()
            .filter_map(|id| find(*id))
            .map(|one| one.agent)
            .filter(|to| *to != from.agent)
            .collect();
        let stand = step.run.stand();
        for (edge, planned) in stand.dag.outputs(from.vertex) {
            for local in stand.local.iter().filter(|local| local.placed.vertex == planned.to) {
                let channels = lock(&local.channels);
                let Some(first) = channels.get(&(edge.0, from.agent)) else { continue };
                for agent in &later {
                    if let Some(then) = channels.get(&(edge.0, *agent)) {
                        local.inbox.read_behind(*then, *first);
                    }
                }
            }
        }
    }

    /// One goes on with units of others.
    fn source_take(&self, step: &Step, of: Of, units: Vec<SourceUnit>) -> Result<Work<()>, WireFault> {
        let local = step.here(of.1)?;
        let stand = step.run.stand();
        let edges = local.exits.iter().filter_map(|(edge, _)| stand.edges.get(edge));
        let until = edges.filter_map(|edge| edge.told()).max();
        let mut done = lock(&step.run.sourcing.0);
        let work = done
            .taken
            .entry(of)
            .or_insert_with(|| self.joint(async move { local.asking.take_units(units, until).await }));
        Ok(work.clone())
    }

    /// Runs on the data runtime to its end.
    fn joint<T: Clone + Send + Sync + 'static>(
        &self,
        work: impl Future<Output = Result<T, WireFault>> + Send + 'static,
    ) -> Work<T> {
        let task = self.shared.data.spawn(work);
        let failed = |e| internal(&format!("handing over what sources have not read failed: {e}"));
        async move { task.await.map_err(failed)? }.boxed().shared()
    }
}

/// True once an instance has ended that answers no more: it is about to.
async fn ends(local: &Local) -> bool {
    for _ in 0..1000 {
        if local.has_ended() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}
