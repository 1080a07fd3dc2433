//! Requests to scale a job: which instances are to be added where and which end, and the plan that this makes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tuplane_core::cluster::{Halt, Job, NewScale};
use tuplane_core::fault::shortened;
use tuplane_core::job::{self, Overflow};
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{After, Before, Dag, Room, SourceMove, Vertex, VertexId};
use tuplane_core::scale::Planners;
use tuplane_wire::message::{AgentInfo, FaultCode, WireFault};
use tuplane_wire::scaling::{
    ExactPlan, Named, ScaleAsk, ScaleCount, ScaleEdge, ScaleInstance, ScaleMove, ScalePlace, ScalePlan,
};

use xxhash_rust::xxh3::xxh3_64;

use super::live::LiveRun;

use deal::Dealing;
pub(super) use deal::Stands;
pub(super) use foretell::Model;

mod automatic;
mod deal;
mod evacuate;
mod exact;
mod foretell;
mod more;
mod planned;
mod restart;

/// What is known when a request to scale is looked at.
#[derive(Clone)]
pub(super) struct Known<'a> {
    /// The job.
    pub(super) job: &'a Job,
    /// What it does.
    pub(super) spec: &'a job::Job,
    /// Its plan.
    pub(super) dag: &'a Dag,
    /// Its instances that no rescale has ended or is ending; those too that have come to their end by themselves, for these
    /// stay with it.
    pub(super) running: Vec<Instance>,
    /// Agents that are alive, by name.
    pub(super) agents: Vec<AgentInfo>,
    /// Names of those that get no new instances.
    pub(super) drained: BTreeSet<String>,
    /// What the agents have said of the run.
    pub(super) live: Option<&'a LiveRun>,
    /// What queues may hold on each agent, by its name; as far as it has said so.
    pub(super) rooms: BTreeMap<String, Room>,
    /// Who may choose.
    pub(super) planners: &'a Planners,
    /// Name of the agent that coordinates.
    pub(super) coordinator: &'a str,
    /// Names of agents that other live jobs use.
    pub(super) shared: BTreeSet<String>,
}

/// What is wanted of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Change {
    /// New instances: of which vertex, on the agent of which name.
    pub(super) add: Vec<(VertexId, String)>,
    /// Ids of instances that end.
    pub(super) remove: Vec<u32>,
    /// Who chose, if a planner did.
    pub(super) planner: Option<String>,
    /// Rows a second that all sinks together will take.
    pub(super) predicted: Option<f64>,
    /// Why nothing is predicted, where that was looked at.
    pub(super) unpredicted: Option<String>,
    /// Why so.
    pub(super) why: Option<String>,
    /// Remarks for people.
    pub(super) notes: Vec<String>,
    /// Names of agents that it empties and that stay in the cluster all the same.
    pub(super) staying: Vec<String>,
    /// What stops before anything new starts.
    pub(super) halt: Option<Halt>,
}

/// Turns a request into instances, and says what is to be expected of them. Whether they can be added and removed is
/// looked at later.
///
/// # Errors
/// With the numbers, if the request cannot be met.
pub(super) fn wanted(ask: &ScaleAsk, known: &Known<'_>) -> Result<Change, WireFault> {
    if let ScaleAsk::Restarting { ask, what, cost_ms } = ask {
        // What is placed where is the same as without a restart, and so is what comes of it.
        return known.restarting(wanted(ask, known)?, *what, *cost_ms);
    }
    let mut change = chosen(ask, known)?;
    known.foretell(&mut change);
    Ok(change)
}

fn chosen(ask: &ScaleAsk, known: &Known<'_>) -> Result<Change, WireFault> {
    match ask {
        ScaleAsk::Set { vertex, instances, place } => known.set(vertex, *instances, *place),
        ScaleAsk::In { agents, agent: Some(agent), planner: None, keep } if *agents <= 1 => {
            known.leave(agent, *keep)
        }
        ScaleAsk::In { agent: Some(agent), .. } => {
            Err(refused(format!("{agent} is named: no other agent and no planner can be asked for with it")))
        }
        ScaleAsk::Out { agents, instances, planner, anywhere } => {
            known.out(*agents, *instances, planner.as_deref(), *anywhere)
        }
        ScaleAsk::In { agents, agent: None, planner, keep } => known.take(*agents, planner.as_deref(), *keep),
        ScaleAsk::Exact(plan) => known.exact(plan),
        ScaleAsk::Restarting { ask, .. } => chosen(ask, known),
    }
}

/// What was asked for, as the command says it.
pub(super) fn asked(ask: &ScaleAsk) -> String {
    let by = |planner: &Option<String>| planner.as_ref().map(|name| format!(" --planner {name}"));
    match ask {
        ScaleAsk::Set { vertex, instances, place } => {
            let place = match place {
                ScalePlace::Anywhere => "",
                ScalePlace::OnlyFresh => " --place new",
            };
            format!("set {vertex}={instances}{place}")
        }
        ScaleAsk::Out { agents, instances, planner, anywhere } => {
            let agents = (*agents > 0).then(|| format!(" --agents {agents}"));
            let instances = (*instances > 0).then(|| format!(" --instances {instances}"));
            let place = anywhere.then(|| " --place anywhere".to_owned());
            ["out".to_owned()]
                .into_iter()
                .chain([agents, instances, by(planner), place].into_iter().flatten())
                .collect()
        }
        ScaleAsk::In { agents, agent, planner, keep } => {
            let who = agent
                .as_ref()
                .map_or_else(|| format!(" --agents {agents}"), |name| format!(" --agent {name}"));
            let keep = keep.then(|| " --keep".to_owned());
            ["in".to_owned(), who].into_iter().chain([by(planner), keep].into_iter().flatten()).collect()
        }
        ScaleAsk::Exact(plan) => {
            let ExactPlan { add, moves, end, .. } = &**plan;
            format!("apply: {} new, {} moved, {} ended", add.len(), moves.len(), end.len())
        }
        ScaleAsk::Restarting { ask, what, cost_ms } => {
            let what = restart::mechanism(*what);
            format!("{} --mechanism {what} --start-cost {cost_ms}ms", asked(ask))
        }
    }
}

/// A job's agents with those that join it, and new instances by vertex and index of the agent.
type Joined = (Vec<AgentInfo>, Vec<(VertexId, u16)>);

/// So many instances are on an agent, and no other one takes any.
fn nowhere_else(instances: usize, agent: &str) -> String {
    let are = if instances == 1 { "1 instance is".to_owned() } else { format!("{instances} instances are") };
    format!("{are} on {agent}, and no other agent takes instances")
}

/// What tells a plan from every other one for a job: what comes, what goes, and what that makes of the job.
fn identity(run: u64, new: &NewScale) -> u64 {
    let NewScale { epoch, joining, coming, going, maps, dag, halt, .. } = new;
    let joining: Vec<_> = joining.iter().map(|agent| &agent.id).collect();
    let text = serde_json::to_vec(&(run, epoch, joining, coming, going, maps, dag, halt));
    // It cannot fail: none of it has a form of its own.
    xxh3_64(&text.unwrap_or_default())
}

fn refused(message: impl Into<String>) -> WireFault {
    WireFault::new(FaultCode::Refused, message)
}

impl Known<'_> {
    fn agent_of(&self, instance: &Instance) -> &str {
        self.job.agents.get(usize::from(instance.agent)).map_or("?", |agent| agent.id.name.as_str())
    }

    /// Rows that wait for an instance, as it last said.
    fn queued(&self, instance: &Instance) -> u64 {
        let report = self.live.and_then(|live| live.counters.get(&instance.id));
        report.map_or(0, |report| report.queue_in + report.queue_out)
    }

    fn name_of(&self, instance: &Instance) -> String {
        format!("{}#{}", self.dag.vertex(instance.vertex).label(), instance.number)
    }

    /// Agents that can take instances.
    pub(super) fn open(&self) -> impl Iterator<Item = &AgentInfo> {
        self.agents.iter().filter(|agent| self.is_open(agent))
    }

    fn is_open(&self, agent: &AgentInfo) -> bool {
        agent.slots > 0 && !self.drained.contains(&agent.id.name)
    }

    /// Notes what becomes of an agent once a change has left it empty.
    fn note_afterwards(&self, agent: &str, change: &mut Change, keep: bool) {
        let going: BTreeSet<u32> = change.remove.iter().copied().collect();
        let has_begun = |one: &Instance| going.contains(&one.id) || self.job.retired.contains(&one.id);
        let stays = if keep {
            Some(String::new())
        } else if agent == self.coordinator {
            Some(": it coordinates".to_owned())
        } else {
            let files = self.files_on(agent, &has_begun);
            files.map(|one| format!(" until the job has ended: files of {} are there", self.name_of(one)))
        };
        change.notes.push(match &stays {
            Some(why) => format!("{agent} stays in the cluster{why}"),
            None => format!("{agent} is released once it is empty, unless another job uses it"),
        });
        change.staying.extend(stays.map(|_| agent.to_owned()));
    }

    /// An instance of these that writes files on an agent, or has.
    fn files_on(&self, agent: &str, of: &dyn Fn(&Instance) -> bool) -> Option<&Instance> {
        let mut here = self.job.instances.iter().filter(|one| of(one) && self.agent_of(one) == agent);
        here.find(|one| self.job.file_sinks.values().any(|vertex| *vertex == one.vertex))
    }

    /// Instances that have not come to their end by themselves.
    fn working(&self) -> impl Iterator<Item = &Instance> {
        self.running.iter().filter(|one| !self.job.ended.contains_key(&one.id))
    }

    /// A vertex that a person names.
    fn vertex(&self, name: &str) -> Result<VertexId, WireFault> {
        self.dag.find_vertex(name).map_err(|message| {
            let has_none = self.spec.stages.iter().any(|stage| stage.id == name);
            let why = format!(
                "`{name}` is a stage without instances of its own, for it says how rows go from one vertex to the next; \
                 the job has the vertices {}",
                self.dag.vertices.iter().map(Vertex::label).collect::<Vec<_>>().join(", ")
            );
            WireFault::new(FaultCode::NotFound, if has_none { why } else { message })
        })
    }

    /// So many instances of one vertex.
    fn set(&self, vertex: &str, wanted: u32, place: ScalePlace) -> Result<Change, WireFault> {
        let vertex = self.vertex(vertex)?;
        let label = self.dag.vertex(vertex).label();
        let own = self.running.iter().filter(|one| one.vertex == vertex).count();
        if wanted == 0 {
            return Err(refused(format!("`{label}` has {own} instances, and needs one at least")));
        }
        let mut change = Change { why: Some("a number was asked for".to_owned()), ..Change::default() };
        let used = |agent: &&AgentInfo| self.running.iter().any(|one| self.agent_of(one) == agent.id.name);
        let fresh: Vec<&AgentInfo> = self.open().filter(|agent| !used(agent)).collect();
        let candidates = match place {
            ScalePlace::Anywhere => self.open().collect(),
            ScalePlace::OnlyFresh if fresh.is_empty() && own < wanted as usize => {
                return Err(refused(format!(
                    "all {} agents have instances of the job: add one (`tuplane agents add`), or take those that there are \
                     (--place anywhere)",
                    self.open().count()
                )));
            }
            ScalePlace::OnlyFresh => fresh,
        };
        self.resize(vertex, wanted, &mut Dealing::new(self, candidates), &mut change)?;
        Ok(change)
    }

    /// Adds instances of a vertex, or takes some away, until it has so many.
    fn resize(
        &self,
        vertex: VertexId,
        wanted: u32,
        dealing: &mut Dealing<'_>,
        change: &mut Change,
    ) -> Result<(), WireFault> {
        let own = self.running.iter().filter(|one| one.vertex == vertex).count();
        let wanted = wanted as usize;
        if own < wanted {
            dealing.check(vertex, (wanted - own) as u64)?;
        }
        for _ in own..wanted {
            dealing.deal(vertex, None, change)?;
        }
        change.remove.extend(self.to_end(vertex, own.saturating_sub(wanted)));
        Ok(())
    }

    /// Everything that an agent has goes elsewhere.
    fn leave(&self, agent: &str, keep: bool) -> Result<Change, WireFault> {
        if !self.agents.iter().any(|info| info.id.name == agent) {
            let names: Vec<&str> = self.agents.iter().map(|info| info.id.name.as_str()).collect();
            let message =
                format!("there is no agent `{}` (there are {})", shortened(agent, 100), names.join(", "));
            return Err(WireFault::new(FaultCode::NotFound, message));
        }
        let (mut change, stays) = self.evacuate(agent);
        if let Some(first) = stays.first() {
            let more = match stays.iter().filter(|one| one.why == first.why).count() {
                1 => String::new(),
                alike => format!(" (nor can {} more)", alike - 1),
            };
            let message = format!("{}{more} cannot leave {agent}: {}", first.instance.name, first.why);
            return Err(refused(message));
        }
        change.why = Some(format!("all that is on {agent} moves"));
        self.note_afterwards(agent, &mut change, keep);
        Ok(change)
    }

    /// The plan that a change makes, and what it is to the job's state; `None` if all stays as it is.
    ///
    /// # Errors
    /// With the reason and the numbers, if it cannot be carried out.
    pub(super) fn plan(
        &self,
        ask: &ScaleAsk,
        change: Change,
    ) -> Result<(ScalePlan, Option<NewScale>), WireFault> {
        let (agents, after) = self.after(&change)?;
        let names: Vec<String> = agents.iter().map(|agent| agent.id.name.clone()).collect();
        let named = |one: &Instance| Named {
            id: one.id,
            name: self.name_of(one),
            agent: names.get(usize::from(one.agent)).cloned().unwrap_or_default(),
        };
        let ends: BTreeSet<u32> = after.going.iter().copied().collect();
        let going: Vec<&Instance> = self.running.iter().filter(|one| ends.contains(&one.id)).collect();
        let started: Vec<Named> = after.new.iter().map(named).collect();
        let stopped: Vec<Named> = going.iter().map(|one| named(one)).collect();
        let mut plan = ScalePlan {
            job: self.job.name.clone(),
            run: self.job.run,
            epoch: self.job.epoch(),
            id: None,
            operation: None,
            next: None,
            asked: asked(ask),
            planner: change.planner.clone(),
            started: Vec::new(),
            moved: Vec::new(),
            stopped: Vec::new(),
            edges: Vec::new(),
            notes: change.notes,
            staying: change.staying,
            predicted: change.predicted,
            unpredicted: change.unpredicted.clone(),
            why: change.why,
            counts: self.counts(&after.new, &ends),
        };
        // One on the same agent first: a restart there is no move away.
        let mut here: BTreeMap<(VertexId, u16), VecDeque<&Instance>> = BTreeMap::new();
        for one in &going {
            here.entry((one.vertex, one.agent)).or_default().push_back(one);
        }
        let mut same = |one: &Instance| here.get_mut(&(one.vertex, one.agent)).and_then(VecDeque::pop_front);
        let pairs: Vec<Option<&Instance>> = after.new.iter().map(&mut same).collect();
        let paired: BTreeSet<u32> = pairs.iter().flatten().map(|one| one.id).collect();
        let mut left: BTreeMap<VertexId, VecDeque<&Instance>> = BTreeMap::new();
        for one in going.into_iter().filter(|one| !paired.contains(&one.id)) {
            left.entry(one.vertex).or_default().push_back(one);
        }
        for (one, pair) in after.new.iter().zip(pairs) {
            match pair.or_else(|| left.get_mut(&one.vertex)?.pop_front()) {
                Some(gone) => {
                    plan.moved.push(ScaleMove { vertex: one.vertex.0, from: named(gone), to: named(one) });
                }
                None => plan.started.push(ScaleInstance { vertex: one.vertex.0, instance: named(one) }),
            }
        }
        let left = left.into_values().flatten();
        plan.stopped.extend(left.map(|one| ScaleInstance { vertex: one.vertex.0, instance: named(one) }));
        plan.edges.extend(after.edges.into_iter().map(|changed| ScaleEdge {
            edge: changed.edge.0,
            name: self.dag.edge_name(changed.edge),
            change: changed.change,
            why: changed.why,
        }));
        plan.notes.extend(after.notes);
        if plan.is_empty() {
            plan.notes.push("nothing to do: all is as it was asked for".to_owned());
            return Ok((plan, None));
        }
        let dag = serde_json::to_string(&after.dag)
            .map_err(|e| WireFault::new(FaultCode::Internal, format!("cannot encode the plan: {e}")))?;
        let new = NewScale {
            epoch: self.job.next_epoch(),
            asked: plan.asked.clone(),
            planner: change.planner,
            predicted: change.predicted,
            joining: agents.into_iter().skip(self.job.agents.len()).collect(),
            coming: after.new,
            going: after.going,
            maps: after.maps,
            sources: after.sources,
            dag,
            started,
            stopped,
            unpredicted: change.unpredicted,
            why: plan.why.clone(),
            halt: change.halt,
        };
        plan.id = Some(identity(self.job.run, &new));
        Ok((plan, Some(new)))
    }

    /// The job's agents and those that join it, and the plan as it is after a change for which all of them have room.
    fn after(&self, change: &Change) -> Result<(Vec<AgentInfo>, After), WireFault> {
        let (agents, after) = self.changed(change)?;
        self.check_room(&after, &agents)?;
        Ok((agents, after))
    }

    /// The same, whether they have room or not.
    fn changed(&self, change: &Change) -> Result<(Vec<AgentInfo>, After), WireFault> {
        let (agents, add) = self.with_agents(change)?;
        let names: Vec<String> = agents.iter().map(|agent| agent.id.name.clone()).collect();
        let before = Before {
            dag: self.dag,
            job: self.spec,
            instances: &self.job.instances,
            retired: &self.job.retired,
            agents: &names,
            maps: &self.job.maps(),
        };
        let has_ended = |id: u32| self.job.ended.contains_key(&id);
        let after = before.change(&add, &change.remove, &has_ended).map_err(refused)?;
        self.can_be_handed(&after.sources)?;
        if change.halt.is_some() {
            self.keeps_no_state(&after.maps)?;
        }
        Ok((agents, after))
    }

    /// What instances of sources have not read can be read by others too.
    fn can_be_handed(&self, sources: &[SourceMove]) -> Result<(), WireFault> {
        for moved in sources {
            if let Some(pipe) = self.job.pipe(&moved.stage) {
                let label = self.dag.vertex(moved.vertex).label();
                return Err(refused(format!(
                    "`{label}` reads {}, a pipe or a device: what was read from it cannot be read again, so that its instances \
                     stay where they are",
                    pipe.path
                )));
            }
        }
        Ok(())
    }

    /// The job's agents and those that join it, and where each new instance goes by its index.
    fn with_agents(&self, change: &Change) -> Result<Joined, WireFault> {
        let (mut agents, mut add) = (self.job.agents.clone(), Vec::with_capacity(change.add.len()));
        let mut indices: HashMap<&str, u16> = HashMap::new();
        for (vertex, name) in &change.add {
            if let Some(index) = indices.get(name.as_str()) {
                add.push((*vertex, *index));
                continue;
            }
            let Some(info) = self.agents.iter().find(|info| info.id.name == *name) else {
                let message = format!("there is no agent `{}`", shortened(name, 100));
                return Err(WireFault::new(FaultCode::NotFound, message));
            };
            if self.drained.contains(name) {
                return Err(refused(format!("agent {name} is drained: it gets no new instances")));
            }
            let known = agents.iter().position(|agent| agent.id == info.id);
            let index = known.unwrap_or_else(|| {
                agents.push(info.clone());
                agents.len() - 1
            }) as u16;
            indices.insert(name, index);
            add.push((*vertex, index));
        }
        Ok((agents, add))
    }

    /// An agent holds as many instances of a job as have room for their queues, those too that are being drained: see
    /// [`Room`].
    fn check_room(&self, after: &After, agents: &[AgentInfo]) -> Result<(), WireFault> {
        if self.spec.options.overflow == Overflow::Grow {
            // Its queues have a budget of their own.
            return Ok(());
        }
        let mut here: BTreeMap<u16, (usize, u64)> = BTreeMap::new();
        for one in self.job.standing().chain(&after.new) {
            let (count, queues) = here.entry(one.agent).or_default();
            *count += 1;
            *queues += self.queues(one.vertex);
        }
        let coming: BTreeSet<u16> = after.new.iter().map(|one| one.agent).collect();
        for index in coming {
            let name = agents.get(usize::from(index)).map_or("?", |agent| agent.id.name.as_str());
            let Some(room) = self.rooms.get(name) else { continue };
            let (count, queues) = here.get(&index).copied().unwrap_or_default();
            let memory = self.spec.options.memory;
            if let Some(needed) = room.shortage(memory, queues) {
                return Err(refused(format!(
                    "agent {name} would hold {count} instances of the job, those that end included, whose queues need {} \
                     MiB at least, and may hold {} MiB",
                    needed.div_ceil(1 << 20),
                    room.may_hold(memory) >> 20
                )));
            }
        }
        Ok(())
    }

    /// Queues that an instance of a vertex has.
    fn queues(&self, vertex: VertexId) -> u64 {
        (self.dag.inputs(vertex).count() + self.dag.outputs(vertex).count()) as u64
    }

    fn counts(&self, new: &[Instance], going: &BTreeSet<u32>) -> Vec<ScaleCount> {
        let mut all: BTreeMap<VertexId, (u32, u32, u32)> = BTreeMap::new();
        for one in &self.running {
            let (before, gone, _) = all.entry(one.vertex).or_default();
            *before += 1;
            *gone += u32::from(going.contains(&one.id));
        }
        for one in new {
            all.entry(one.vertex).or_default().2 += 1;
        }
        let changed = all.into_iter().filter(|(_, (_, gone, come))| gone + come > 0);
        changed
            .map(|(vertex, (before, gone, come))| ScaleCount {
                vertex: vertex.0,
                name: self.dag.vertex(vertex).label(),
                before,
                after: before + come - gone,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    mod foretold;

    use tuplane_core::cluster::{Command, Logged, NewJob, Placed, State};
    use tuplane_core::job::{FileFormat, Restart};
    use tuplane_core::plan::{AgentSlot, Key, Partitioner, Routing, place, plan};
    use tuplane_wire::message::AgentId;
    use tuplane_wire::scaling::Restarted;

    use super::*;

    const LINE: &str = "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\ninstances=1\n\
         [[stage]]\nid='w'\nop='work'\nin='s'\nms=1\ninstances=2\n\
         [[stage]]\nid='k'\nop='sink'\nin='w'\nconnector='count'\ninstances=1\n";

    fn info(name: &str, slots: u32) -> AgentInfo {
        AgentInfo {
            id: AgentId { name: name.to_owned(), incarnation: 1 },
            address: String::new(),
            slots,
            cores: 0,
            zone: String::new(),
            pid: 0,
            version: String::new(),
            host: String::new(),
            registry: 0,
        }
    }

    /// A job on `a` alone, of a cluster with these agents.
    struct World {
        state: State,
        spec: job::Job,
        dag: Dag,
        agents: Vec<AgentInfo>,
        drained: BTreeSet<String>,
        planners: Planners,
    }

    impl World {
        fn new(agents: Vec<AgentInfo>) -> Self {
            Self::on(LINE, agents, 1)
        }

        /// A job on so many of the agents.
        fn on(text: &str, agents: Vec<AgentInfo>, hosts: u16) -> Self {
            let spec = job::Job::parse(text, FileFormat::Toml).unwrap();
            let dag = plan(&spec).unwrap();
            let slots = (0..hosts).zip(&agents).map(|(index, agent)| AgentSlot {
                index,
                name: agent.id.name.clone(),
                slots: agent.slots,
            });
            let slots: Vec<AgentSlot> = slots.collect();
            let is_file = |vertex: &Vertex| vertex.label() == "files";
            let files = dag.vertices.iter().position(is_file).map(|at| VertexId(at as u32));
            let instances = place(&dag, &spec, &slots).unwrap();
            let mut state = State::default();
            let mut apply = |command| state.apply(Logged { at_ms: 1, command });
            for agent in &agents {
                apply(Command::AgentRegistered(Box::new(agent.clone())));
            }
            apply(Command::Submitted(Box::new(NewJob {
                name: "line".to_owned(),
                job: serde_json::to_string(&spec).unwrap(),
                dag: serde_json::to_string(&dag).unwrap(),
                edge_names: Vec::new(),
                file_sinks: files.map(|vertex| ("files".to_owned(), vertex)).into_iter().collect(),
                headers: BTreeMap::new(),
                restart: Restart::Never,
                placed: Placed {
                    agents: agents[..usize::from(hosts)].to_vec(),
                    instances,
                    splits: BTreeMap::new(),
                },
            })));
            apply(Command::Prepared { run: 1 });
            Self { state, spec, dag, agents, drained: BTreeSet::new(), planners: Planners::default() }
        }

        fn known(&self, budget: Option<u64>) -> Known<'_> {
            let job = self.state.run(1).unwrap();
            Known {
                job,
                spec: &self.spec,
                dag: &self.dag,
                running: job.standing().copied().collect(),
                agents: self.agents.clone(),
                drained: self.drained.clone(),
                live: None,
                planners: &self.planners,
                coordinator: "b",
                shared: BTreeSet::new(),
                rooms: self
                    .agents
                    .iter()
                    .filter_map(|a| Some((a.id.name.clone(), Room { budget: budget?, ..Room::default() })))
                    .collect(),
            }
        }

        fn set(&self, instances: u32, place: ScalePlace) -> Result<ScalePlan, WireFault> {
            let ask = ScaleAsk::Set { vertex: "w".to_owned(), instances, place };
            let known = self.known(Some(128 << 20));
            let (plan, new) = known.plan(&ask, wanted(&ask, &known)?)?;
            assert_eq!(new.is_none(), plan.is_empty());
            Ok(plan)
        }
    }

    /// An instance comes to its end by itself.
    fn end(world: &mut World, name: &str) {
        let known = world.known(None);
        let instance = known.running.iter().find(|one| known.name_of(one) == name).unwrap().id;
        let ended = Command::InstanceEnded { run: 1, instance, last: Box::default(), files: Vec::new() };
        world.state.apply(Logged { at_ms: 2, command: ended });
    }

    fn agents(plan: &ScalePlan) -> Vec<&str> {
        plan.started.iter().map(|one| one.instance.agent.as_str()).collect()
    }

    #[test]
    fn new_instances_go_where_there_are_fewest_or_to_new_agents_alone() {
        let world = World::new(vec![info("a", 2), info("b", 2), info("c", 1), info("d", 0)]);
        assert_eq!(agents(&world.set(5, ScalePlace::Anywhere).unwrap()), ["b", "c", "b"]);
        assert_eq!(agents(&world.set(6, ScalePlace::OnlyFresh).unwrap()), ["b", "c", "b", "c"]);
        let alone = World::new(vec![info("a", 2)]);
        let refused = alone.set(3, ScalePlace::OnlyFresh).unwrap_err();
        assert_eq!((refused.code, refused.message.contains("all 1 agents")), (FaultCode::Refused, true));
        assert_eq!(alone.set(1, ScalePlace::OnlyFresh).unwrap().stopped.len(), 1, "fewer need no agent");
    }

    #[test]
    fn what_the_automatic_mode_did_not_decide_on_stays_though_it_has_ended() {
        let mut world = World::new(vec![info("a", 2), info("b", 2)]);
        end(&mut world, "s#0");
        let known = world.known(None);
        // One that has ended is not counted; the plan is of `w` alone.
        let change = known.to(&[0, 2, 1], &[0, 4, 1]).unwrap();
        assert!(change.add.iter().all(|(vertex, _)| vertex.0 == 1), "{:?}", change.add);
        assert_eq!((change.add.len(), &change.remove[..]), (2, &[][..]));
    }

    #[test]
    fn a_plan_names_what_comes_goes_and_moves_and_asking_for_what_is_there_is_nothing() {
        let world = World::new(vec![info("a", 2), info("b", 2)]);
        let same = world.set(2, ScalePlace::Anywhere).unwrap();
        assert!(same.is_empty() && same.notes[0].starts_with("nothing to do"), "{same:?}");
        let fewer = world.set(1, ScalePlace::Anywhere).unwrap();
        assert_eq!((fewer.stopped.len(), &fewer.counts[0].name[..]), (1, "w"));
        assert_eq!((fewer.counts[0].before, fewer.counts[0].after), (2, 1));
        let known = world.known(None);
        let ask = ScaleAsk::In { agents: 1, agent: Some("a".to_owned()), planner: None, keep: true };
        let all = wanted(&ask, &known).unwrap();
        let (plan, new) = known.plan(&ask, all).unwrap();
        assert_eq!((plan.moved.len(), new.unwrap().sources.len()), (4, 1), "its source too: {plan:?}");
        let nobody = ScaleAsk::In { agents: 1, agent: Some("z".to_owned()), planner: None, keep: true };
        assert_eq!(wanted(&nobody, &known).unwrap_err().code, FaultCode::NotFound);
        let change = Change {
            add: vec![(VertexId(1), "b".to_owned())],
            remove: vec![known.running.iter().find(|one| one.vertex == VertexId(1)).unwrap().id],
            ..Change::default()
        };
        let (plan, new) = known.plan(&ask, change).unwrap();
        assert_eq!((plan.moved[0].from.name.as_str(), plan.moved[0].to.agent.as_str()), ("w#0", "b"));
        let new = new.unwrap();
        let next = known.job.instances.len() as u32;
        assert_eq!((new.epoch, new.coming[0].id, new.joining.len()), (2, next, 1));
    }

    #[test]
    fn an_agent_that_is_drained_gets_nothing_and_gives_what_can_move() {
        let mut world = World::new(vec![info("a", 2), info("b", 2), info("c", 2)]);
        world.drained.insert("b".to_owned());
        assert_eq!(agents(&world.set(4, ScalePlace::OnlyFresh).unwrap()), ["c", "c"]);
        world.drained.insert("c".to_owned());
        let refused = world.set(4, ScalePlace::OnlyFresh).unwrap_err();
        assert!(refused.message.contains("all 1 agents"), "{refused:?}");
        let known = world.known(None);
        let (change, stays) = known.evacuate("a");
        assert_eq!((change, stays.len()), (Change::default(), 4), "nobody takes it: {stays:?}");
        world.drained.remove("c");
        let known = world.known(None);
        let (change, stays) = known.evacuate("a");
        let to: Vec<&str> = change.add.iter().map(|(_, agent)| agent.as_str()).collect();
        assert_eq!((change.remove.len(), to, stays), (4, vec!["c"; 4], vec![]), "{change:?}");
        // Whatever a plan that was shown before had there.
        let change = Change { add: vec![(VertexId(1), "b".to_owned())], ..Change::default() };
        let ask = ScaleAsk::Set { vertex: "w".to_owned(), instances: 3, place: ScalePlace::Anywhere };
        let refused = known.plan(&ask, change).unwrap_err();
        assert!(refused.message.contains("b is drained"), "{refused:?}");
    }

    #[test]
    fn the_emptiest_agent_is_passed_by_where_it_may_not_have_one() {
        let mut world = World::new(vec![info("a", 2), info("b", 2)]);
        let to_sink = &mut world.dag.edges[1];
        to_sink.routing = Routing::Partitioned { key: Key::Entry, partitioner: Partitioner::Default };
        to_sink.distributed = false;
        assert_eq!(agents(&world.set(4, ScalePlace::Anywhere).unwrap()), ["a", "a"]);
        let refused = world.set(4, ScalePlace::OnlyFresh).unwrap_err();
        assert!(refused.message.contains("agent b has no instance of `k`"), "{refused:?}");
        let known = world.known(None);
        let open: Vec<&AgentInfo> = known.open().collect();
        let is_fixed = |agents: &[&AgentInfo]| known.fixed_on(agents).contains_key(&VertexId(1));
        assert_eq!((is_fixed(&open), is_fixed(&open[1..])), (false, true));
    }

    #[test]
    fn what_else_is_wrong_is_said_before_agents_are_missed() {
        let world = World::new(vec![info("a", 2)]);
        let known = world.known(None);
        let out = |planner: Option<&str>, instances| {
            let planner = planner.map(str::to_owned);
            let ask = ScaleAsk::Out { agents: 1, instances, planner, anywhere: false };
            wanted(&ask, &known).unwrap_err()
        };
        let no_rates = out(None, 2);
        assert_eq!(no_rates.code, FaultCode::Refused, "{no_rates:?}");
        assert!(no_rates.message.contains("no rates of job line are known yet"), "{no_rates:?}");
        let few = out(Some("stela-code"), 0);
        assert_eq!(few.code, FaultCode::Refused, "{few:?}");
        // They are as the coordinator is, and none of those that there are.
        let more = known.with_more(2);
        let names: Vec<&str> = more.open().map(|agent| agent.id.name.as_str()).collect();
        assert_eq!(names, ["a", "new agent 1", "new agent 2"]);
        assert!(more.open().all(|agent| agent.slots == 2));
    }

    #[test]
    fn as_many_as_may_be_are_dealt_and_more_are_refused_before_any_is() {
        let world = World::new(vec![info("a", 2), info("b", 2), info("c", 2)]);
        let known = world.known(None);
        let most =
            |instances| ScaleAsk::Set { vertex: "w".to_owned(), instances, place: ScalePlace::Anywhere };
        // Counting all of them anew for each one takes minutes.
        let change = wanted(&most(60_000), &known).unwrap();
        let on = |agent: &str| change.add.iter().filter(|(_, name)| name == agent).count();
        assert_eq!((on("a"), on("b"), on("c")), (19_998, 20_000, 20_000));
        let refused = wanted(&most(u32::MAX), &known).unwrap_err();
        assert!(refused.message.contains("more than 65536"), "{refused:?}");
    }

    #[test]
    fn agents_are_chosen_among_those_that_can_be_given_back() {
        // What is read on one agent cannot be read on others.
        let there = LINE.replace("n=9\ninstances=1\n", "n=9\non=['a']\n");
        let text = there.replace("ms=1\ninstances=2", "ms=1\ninstances=4");
        let four = || ["a", "b", "c", "d"].into_iter().map(|name| info(name, 1)).collect();
        let mut world = World::on(&text, four(), 4);
        let kept = |known: &Known<'_>, wanted, keep| {
            let used: Vec<&AgentInfo> = known.agents.iter().collect();
            let kept = known.kept(&used, wanted, keep).into_iter();
            kept.map(Option::unwrap_or_default).collect::<Vec<String>>()
        };
        let on = |known: &Known<'_>, name: &str| {
            let one = known.running.iter().find(|one| known.name_of(one) == name).unwrap();
            known.agents.iter().position(|agent| agent.id.name == known.agent_of(one)).unwrap()
        };
        let known = world.known(None);
        let source = on(&known, "s#0");
        // `b` coordinates.
        assert_ne!(source, 1);
        let why = kept(&known, 2, false);
        assert!(why[source].starts_with("s#0 cannot leave: `s`"), "{why:?}");
        assert_eq!(why[1], "it coordinates");
        assert_eq!(why.iter().filter(|why| why.is_empty()).count(), 2, "{why:?}");
        assert_eq!(kept(&known, 2, true), why, "it stays in use while others can leave");
        // All that are asked for are emptied, where that is all that is wanted.
        assert_eq!(kept(&known, 3, false), why);
        let emptied = kept(&known, 3, true);
        assert_eq!((&emptied[1][..], emptied[source].is_empty()), ("", false));
        // One that another job uses is taken where there is no other.
        let free = (0..4).rev().find(|at| why[*at].is_empty()).unwrap();
        let mut known = known;
        known.shared.insert(known.agents[free].id.name.clone());
        assert_eq!(kept(&known, 1, false)[free], "another job uses it");
        assert_eq!(kept(&known, 2, false), why);
        // What has ended stays with the job, and so does its agent.
        let ended = world.known(None);
        assert_eq!(ended.at_work(), (6, 4));
        end(&mut world, "s#0");
        let known = world.known(None);
        let said = &kept(&known, 1, false)[source];
        assert_eq!((known.at_work().0, said.starts_with("s#0 has ended there")), (5, true), "{said}");
        // Files stay where they were written.
        let text =
            text.replace("id='k'", "id='files'").replace("'count'\ninstances=1", "'count'\ninstances=4");
        let world = World::on(&text, four(), 4);
        let known = world.known(None);
        let said = kept(&known, 1, false);
        assert!((0..4).all(|at| at == 1 || said[at].starts_with("files of files#")), "{said:?}");
        assert_eq!(kept(&known, 3, true).iter().filter(|why| why.is_empty()).count(), 3);
        let used: Vec<&AgentInfo> = known.agents.iter().collect();
        assert!(known.or_keep("no".to_owned(), &used, false).starts_with("no; with --keep"));
        assert_eq!(known.or_keep("no".to_owned(), &used, true), "no");
    }

    #[test]
    fn a_keyed_vertex_is_bounded_by_the_key_partitions_before_anything_is_asked_for() {
        let text = "partitions = 4\n\
             [[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\ninstances=1\n\
             [[stage]]\nid='g'\nop='group_by'\nin='s'\nkey='id % 50 as k'\n\
             [[stage]]\nid='x'\nop='rolling_aggregate'\nin='g'\ncompute=['count(*) as n']\ninstances=2\n\
             [[stage]]\nid='k'\nop='sink'\nin='x'\nconnector='count'\ninstances=1\n";
        let world = World::on(text, vec![info("a", 8), info("b", 8)], 2);
        let known = world.known(None);
        let x = known.vertex("x").unwrap().0 as usize;
        let bound = |most| known.bounds(most, |_| None).swap_remove(x);
        let found = bound(None);
        assert_eq!((found.least, found.most), (1, 4));
        assert!(found.why.starts_with("its keys are in 4 partitions"), "{found:?}");
        assert_eq!((bound(Some(3)).most, bound(Some(9)).most), (3, 4));
        let ask = ScaleAsk::Set { vertex: "x".to_owned(), instances: 4, place: ScalePlace::Anywhere };
        assert!(wanted(&ask, &known).and_then(|change| known.plan(&ask, change)).is_ok());
    }

    #[test]
    fn who_leaves_is_told_what_becomes_of_it() {
        let world = World::new(vec![info("a", 2), info("b", 2)]);
        let known = world.known(None);
        for (agent, keep, says, stays) in [
            ("b", true, "b stays in the cluster", true),
            ("b", false, "b stays in the cluster: it coordinates", true),
            ("a", false, "a is released once it is empty, unless another job uses it", false),
        ] {
            let mut change = Change { remove: (0..4).collect(), ..Change::default() };
            known.note_afterwards(agent, &mut change, keep);
            assert_eq!(
                (&change.notes[..], change.staying.len()),
                (&[says.to_owned()][..], usize::from(stays))
            );
        }
    }

    #[test]
    fn an_agent_has_room_for_so_many_queues() {
        let world = World::new(vec![info("a", 2)]);
        // Each instance of work has two queues of 64 KiB at least, and half of 128 MiB is there for all.
        assert!(world.set(500, ScalePlace::Anywhere).is_ok());
        let refused = world.set(600, ScalePlace::Anywhere).unwrap_err();
        assert!(
            refused.message.starts_with(
                "598 more of `w` are wanted, and there is room for 509 on a: each has queues of 64 KiB"
            ),
            "{refused:?}"
        );
    }

    #[test]
    fn a_plan_made_elsewhere_names_instances_and_agents() {
        let world = World::new(vec![info("a", 2), info("b", 2)]);
        let known = world.known(Some(128 << 20));
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let exact = |add: &[(&str, &str)], moves: &[(&str, &str)], end: &[&str]| {
            let plan = ExactPlan {
                add: add.iter().map(|(vertex, agent)| pair(vertex, agent)).collect(),
                moves: moves.iter().map(|(name, agent)| pair(name, agent)).collect(),
                end: end.iter().map(|name| (*name).to_owned()).collect(),
                planner: Some("mine".to_owned()),
                predicted: Some(7.0),
            };
            let ask = ScaleAsk::Exact(Box::new(plan));
            wanted(&ask, &known).and_then(|change| known.plan(&ask, change)).map(|(plan, _)| plan)
        };
        let plan = exact(&[("w", "b")], &[("w#0", "b")], &[]).unwrap();
        assert_eq!((plan.moved.len(), plan.started.len(), plan.predicted), (1, 1, Some(7.0)));
        assert_eq!(plan.asked, "apply: 1 new, 1 moved, 0 ended");
        let same = exact(&[], &[("w#0", "a")], &[]).unwrap();
        assert!(same.is_empty() && same.notes[0].contains("is on a already"), "{same:?}");
        let why = |refused: Result<ScalePlan, WireFault>| refused.unwrap_err().message;
        assert!(why(exact(&[], &[("w#9", "b")], &[])).contains("no running instance `w#9`"));
        assert!(why(exact(&[], &[("w#0", "b")], &["w#0"])).contains("named twice"));
        assert!(why(exact(&[], &[], &["w#0", "w#1"])).contains("no instance left"));
        assert!(why(exact(&[("w", "z")], &[], &[])).contains("no agent `z`"));
        assert!(why(exact(&[("s", "b")], &[], &[])).contains("source"));
        let long = "v".repeat(100_000);
        assert!(why(exact(&[(&long, "b")], &[], &[])).len() < 1000);
        assert!(why(exact(&[("w", &long)], &[], &[])).len() < 1000);
        let named = |planner: &str, predicted| {
            let plan = ExactPlan { planner: Some(planner.to_owned()), predicted, ..ExactPlan::default() };
            why(wanted(&ScaleAsk::Exact(Box::new(plan)), &known).and_then(|_| Err(refused("taken"))))
        };
        assert!(
            named(&long, None).starts_with("`planner` is no name") && named("auto", None).contains("`auto`")
        );
        assert!(named("mine", Some(-1.0)).contains("must be 0 to") && named("mine", Some(1.0)) == "taken");
    }

    #[test]
    fn a_restart_stops_what_it_is_said_to_stop() {
        let world = World::new(vec![info("a", 2), info("b", 2), info("c", 2)]);
        let known = world.known(Some(128 << 20));
        let restarted = |what, ask: ScaleAsk| {
            let ask = ScaleAsk::Restarting { ask: Box::new(ask), what, cost_ms: 1000 };
            let (plan, new) = known.plan(&ask, wanted(&ask, &known).unwrap()).unwrap();
            (plan, new.and_then(|new| new.halt))
        };
        let add = || ScaleAsk::Set { vertex: "w".to_owned(), instances: 3, place: ScalePlace::OnlyFresh };
        // All is on a: one instance of w is split, so a's part restarts, and its source pauses.
        for what in [Restarted::Moved, Restarted::All] {
            let (plan, halt) = restarted(what, add());
            let halt = halt.unwrap();
            assert_eq!((halt.cost_ms, halt.instances.len()), (1000, known.running.len()));
            assert_eq!(plan.moved.len() + 1, known.running.len(), "{plan:?}");
            assert!(plan.moved.iter().all(|moved| moved.to.agent == "a"), "{plan:?}");
            assert_eq!(plan.started.iter().map(|one| &one.instance.agent[..]).collect::<Vec<_>>(), ["b"]);
        }
        let (plan, _) = restarted(Restarted::All, add());
        assert!(plan.asked.ends_with("--mechanism restart-all --start-cost 1000ms"), "{}", plan.asked);
        // What changes nothing restarts nothing.
        let same = ScaleAsk::Set { vertex: "w".to_owned(), instances: 2, place: ScalePlace::Anywhere };
        assert_eq!(restarted(Restarted::All, same).1, None);
    }

    #[test]
    fn what_was_asked_is_said_as_the_command_has_it() {
        let out =
            ScaleAsk::Out { agents: 2, instances: 0, planner: Some("stela".to_owned()), anywhere: true };
        assert_eq!(asked(&out), "out --agents 2 --planner stela --place anywhere");
        let leave = ScaleAsk::In { agents: 1, agent: Some("h3".to_owned()), planner: None, keep: true };
        assert_eq!(asked(&leave), "in --agent h3 --keep");
    }
}
