//! From a run's plan to its instances, queues and channels on this agent. Nothing runs yet.

mod bodies;
mod channels;
mod joins;
mod keys;
mod memory;
mod registered;
mod targets;
mod times;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc, watch};
use tuplane_core::fault::Fault;
use tuplane_core::job::{Job, Op, Settings, Stage};
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{Dag, EdgeId, Routing, VertexId, grows, in_step};
use tuplane_core::route::DEAL;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::own_columns;
use tuplane_expr::types::Asked;
use tuplane_expr::{KeyExprs, Types, VertexProgram, edge_key, resolve_registered, vertex_program};
use tuplane_wire::message::{FaultCode, RunPlan, Split, WireFault};

use super::Shared;
use super::due::DueClock;
use super::halt::Halt;
use super::handover::Asking;
use super::instance::sourcing::{Hand, Units};
use super::instance::{Body, Instance, SetOption};
use super::ledger::Counters;
use super::output::{Exit, Output};
use super::rescale::Undo;
use super::routing::RouteTable;
use super::rows::Budget;
use super::run::{Beginning, Local, Run, Stand};
use super::tables::Tables;
use super::tap::{DEFAULT_RATE, Tap};
use crate::exchange::body::fingerprint;
use crate::exchange::costs::Costs;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::outlet::{Outlet, Outlets};
use crate::exchange::quota::Quota;
use crate::sink::{Parts, SinkContext};
use channels::Inputs;
pub(crate) use joins::JoinTables;

/// A run that is ready to start, and its instances.
pub(crate) struct Built {
    pub(crate) run: Run,
    pub(crate) instances: Vec<Ready>,
}

/// An instance that is ready to start.
pub(crate) type Ready = (Arc<Local>, Instance);

/// Builds this agent's part of a run.
///
/// `reserved` bytes of the agent's memory are what the queues of its live runs may hold.
pub(crate) fn build(shared: &Arc<Shared>, plan: RunPlan, reserved: u64) -> Result<Built, WireFault> {
    let (parts, (start, started)) = (Parts::default(), watch::channel(false));
    let undo = Undo::default();
    let built = (|| {
        let job = Arc::new(parse::<Job>(&plan.job, "job")?);
        let clock = DueClock::begin(shared.clock_offset.load(Ordering::Relaxed));
        let routing = RouteTable::of(&job, Arc::clone(&shared.registry), clock);
        let budget = memory::budget(shared, &job);
        let here = (parts.clone(), Arc::clone(&budget));
        let builder = Builder::new(shared, job, plan, reserved, here, started, None, &undo)?;
        let (of, me, policies) = (builder.plan.run, builder.me, builder.plan.policies.clone());
        let epoch = builder.plan.epoch;
        let job = Arc::clone(&builder.job);
        let made = builder.make(&routing)?;
        let parts = parts.clone();
        let run = Run::new(Beginning { run: of, job, me, parts, budget, start, routing }, made.stand);
        run.copies.prepare(epoch, made.copies);
        run.set_routes(&policies).map_err(|e| WireFault::new(FaultCode::Refused, e))?;
        Ok(Built { run, instances: made.instances })
    })();
    if built.is_err() {
        parts.remove();
    }
    built
}

/// Builds what a plan adds to a run here. What it has changed of what is there is in `undo`, also where it fails.
pub(crate) fn extend(
    shared: &Arc<Shared>,
    run: &Run,
    plan: RunPlan,
    reserved: u64,
    undo: &Undo,
) -> Result<Made, WireFault> {
    let (job, started, old) = (Arc::clone(&run.job), run.start.subscribe(), Some(run.stand()));
    let here = (run.parts.clone(), Arc::clone(&run.budget));
    let builder = Builder::new(shared, job, plan, reserved, here, started, old, undo)?;
    builder.make(&run.routing)
}

/// What a plan has on this agent.
pub(crate) struct Made {
    pub(crate) stand: Stand,
    /// New ones.
    pub(crate) instances: Vec<Ready>,
    /// Edges that there were, whose targets change.
    pub(crate) retargets: Vec<Retarget>,
    /// New senders of edges that there were: the edge, and their number there.
    pub(crate) joined: Vec<(u32, usize)>,
    /// Tables of joins that leave, and that come.
    pub(crate) copies: Tables,
}

/// The targets of an edge change.
#[derive(Debug)]
pub(crate) struct Retarget {
    /// Index of the edge.
    pub(crate) edge: u32,
    /// Rows go to them by key.
    pub(crate) by_key: bool,
    /// New ones.
    pub(crate) add: Vec<Outlet>,
    /// All of them, by instance.
    pub(crate) keep: Vec<u32>,
    /// The instance of each key partition, where that is not who held it before.
    pub(crate) owners: Option<Vec<u32>>,
    /// Nothing was sent on it from here: new senders find the new list.
    pub(crate) at_start: bool,
}

/// The splits of this agent's own files.
struct OwnSplits {
    all: Vec<Split>,
    /// Those that no instance has yet, the next one last.
    left: Arc<Mutex<Vec<Split>>>,
}

struct Builder<'a> {
    shared: &'a Arc<Shared>,
    job: Arc<Job>,
    dag: Arc<Dag>,
    types: Types,
    me: u16,
    plan: RunPlan,
    reserved: u64,
    parts: Parts,
    /// What its rows are charged to.
    budget: Arc<Budget>,
    /// By edge: its queues have no bound of their own.
    grows: Vec<bool>,
    /// What the collectors of each join hand to its joiners here.
    tables: JoinTables,
    /// Instances begin once the run has.
    started: watch::Receiver<bool>,
    /// What the plan before has here.
    old: Option<Arc<Stand>>,
    /// What is to be taken back if the plan fails.
    undo: &'a Undo,
    /// Of channels within this agent, by the number of the edge (or its lane) and the target.
    credits: RefCell<HashMap<(u32, u32), Arc<Credit>>>,
}

impl<'a> Builder<'a> {
    #[expect(clippy::too_many_arguments, reason = "all of it is what a builder is made of")]
    fn new(
        shared: &'a Arc<Shared>,
        job: Arc<Job>,
        plan: RunPlan,
        reserved: u64,
        (parts, budget): (Parts, Arc<Budget>),
        started: watch::Receiver<bool>,
        old: Option<Arc<Stand>>,
        undo: &'a Undo,
    ) -> Result<Self, WireFault> {
        let dag: Dag = parse(&plan.dag, "plan")?;
        let me = plan.agents.iter().position(|a| a.id == shared.me);
        let me = me.ok_or_else(|| internal("this agent has no part in the run"))? as u16;
        let headers = plan.headers.clone();
        let registered = |asked: Asked<'_>| shared.registry.columns_of(asked);
        let types = resolve_registered(&job, &|stage| headers.get(stage).cloned(), &registered);
        let types = types.map_err(|f| refused(&f))?;
        let stays = |id: u32| plan.instances.iter().any(|placed| placed.id == id);
        let tables = joins::tables(&job, old.as_deref(), &stays);
        let (grows, dag, credits) = (grows(&dag, &job), Arc::new(dag), RefCell::default());
        Ok(Self {
            shared,
            job,
            dag,
            types,
            me,
            plan,
            reserved,
            parts,
            budget,
            grows,
            tables,
            started,
            old,
            undo,
            credits,
        })
    }

    /// What there was on this agent.
    fn old(&self) -> impl Iterator<Item = &Arc<Local>> {
        self.old.iter().flat_map(|old| &old.local)
    }

    /// An edge that there was.
    fn old_edge(&self, edge: EdgeId) -> Option<&Arc<Edge>> {
        self.old.as_ref()?.edges.get(&edge.0)
    }

    fn make(self, routing: &RouteTable) -> Result<Made, WireFault> {
        let mine: Vec<Placed> = self.plan.instances.iter().filter(|i| i.agent == self.me).copied().collect();
        let is_old = |placed: &&Placed| self.old().any(|local| local.placed.id == placed.id);
        let fresh: Vec<Placed> = mine.iter().filter(|placed| !is_old(placed)).copied().collect();
        let in_plan = |id: u32| self.plan.instances.iter().any(|placed| placed.id == id);
        let bound = self.queue_bound(&fresh, &in_plan)?;
        let programs = self.programs(&mine)?;
        // What may be refused comes before anything that is there is touched.
        let mut own_splits: HashMap<String, OwnSplits> = HashMap::new();
        let mut bodies = Vec::new();
        for placed in &fresh {
            let program = &programs[&placed.vertex];
            let body = self.body(placed, program, routing)?;
            let times = self.source_times(placed, program, routing.clock())?;
            bodies.push((body, times, self.splits(placed, &mut own_splits)?));
        }
        let mut stand = match &self.old {
            Some(old) => (**old).clone(),
            None => self.nothing(),
        };
        stand.retire(&in_plan);
        // One that was closed when its agent had no part is made anew if that has one again.
        stand.sessions.retain(|agent, session| self.plan.has_part(*agent) && !session.is_dead());
        stand.tables.clone_from(&self.tables);
        (stand.dag, stand.costs) = (Arc::clone(&self.dag), Costs::of(&self.plan, self.me));
        let wakes: HashMap<u32, Arc<Notify>> = (0..self.dag.edges.len() as u32)
            .map(|edge| {
                (edge, self.old_edge(EdgeId(edge)).map_or_else(Arc::default, |old| old.wake_handle()))
            })
            .collect();
        let inboxes = self.inboxes(&mine, &fresh, bound, &wakes)?;
        self.open_moves(&mine, &inboxes)?;
        self.expect_units()?;
        let in_step = in_step(&self.dag, &self.job);
        let mut keys: HashMap<u32, Option<KeyExprs>> = HashMap::new();
        let mut retargets = Vec::new();
        for index in 0..self.dag.edges.len() as u32 {
            let edge = EdgeId(index);
            let from = self.dag.edge(edge).from;
            self.open_doors(edge, &inboxes, &programs)?;
            if !mine.iter().any(|i| i.vertex == from) {
                continue;
            }
            let key = edge_key(&self.job, &self.types, &self.dag, edge).map_err(|f| refused(&[f]))?;
            keys.insert(index, key);
            if let Some(old) = self.old_edge(edge) {
                retargets.extend(self.retarget(edge, old, &mut stand, &inboxes, &programs, &wakes)?);
                continue;
            }
            let schema = fingerprint(&programs[&from].output);
            let mut sets = Vec::new();
            for lane in self.lanes(edge, self.me).into_iter().filter(|lane| lane.agent == self.me) {
                let targets = self.ordered_targets(edge).into_iter();
                let outlets: Result<Vec<Outlet>, WireFault> = targets
                    .map(|to| self.outlet(edge, to, lane, &mut stand, &inboxes, schema, &wakes))
                    .collect();
                sets.push(outlets?);
            }
            let first = sets.first().map_or(&[][..], Vec::as_slice);
            let spec = EdgeSpec {
                index,
                barriers_in_order: self.dag.edge(edge).routing == Routing::Broadcast
                    || self.dag.edge(edge).ordered,
                deal: if self.job.options.settings == Settings::Paper { 1 } else { DEAL },
                routes: self.routes(edge, first),
            };
            let (mut sets, wake) = (sets.into_iter().map(Outlets::new), Arc::clone(&wakes[&index]));
            let made = if self.dag.edge(edge).ordered {
                Edge::ordered(spec, sets.collect(), wake)
            } else {
                Edge::new(spec, sets.next().unwrap_or_default(), wake)
            };
            if in_step[from.0 as usize] {
                made.keep_in_step();
            }
            stand.edges.insert(index, made);
        }
        self.taps(&mut stand, &mine, &programs);
        let (mut instances, mut joined) = (Vec::new(), Vec::new());
        for (placed, (body, (stamper, arrivals), splits)) in fresh.iter().zip(bodies) {
            let program = &programs[&placed.vertex];
            let room = Arc::new(Notify::new());
            let quota = Arc::new(Quota::new(routing.began()));
            let mut exits = Vec::new();
            for (edge, _) in self.dag.outputs(placed.vertex) {
                let sending = &stand.edges[&edge.0];
                let queue = self.out_queue(edge, placed)?;
                let most = self.bound_on(edge, bound);
                let sender = sending.add_sender(placed.id, queue, most, Arc::clone(&room));
                if self.old_edge(edge).is_some() {
                    self.undo.sender(sending, sender);
                    joined.push((edge.0, sender));
                }
                sending.share_quota(sender, Arc::clone(&quota));
                if self.dag.edge(edge).spills {
                    sending.let_spill(sender, self.overflow(edge, program));
                }
                if self.old_edge(edge).is_some() {
                    sending.has_joined();
                }
                let key = keys[&edge.0].clone().map(|key| self.exit_key(edge, key));
                exits.push(Exit { edge: Arc::clone(sending), sender, key });
            }
            let Inputs { inbox, channels } = &inboxes[&placed.id];
            let label = self.dag.vertex(placed.vertex).label();
            let counters = Arc::new(Counters::new(label, Arc::clone(inbox.load())));
            let (options, changes) = mpsc::unbounded_channel();
            self.set_options(placed.vertex, &options);
            let (asking, asked) = Asking::new(inbox);
            let (halt, halted) = Halt::new();
            let handed = self.plan.coming.contains(&placed.id) && self.plan.is_handed(placed.id);
            let hand = Hand::new(handed);
            let local = Arc::new(Local {
                placed: *placed,
                counters: Arc::clone(&counters),
                inbox: Arc::clone(inbox),
                channels: Mutex::new(channels.clone()),
                options,
                asking,
                inputs: self.input_columns(placed.vertex, &programs),
                halt,
                hand: Arc::clone(&hand),
                sink_schema: self.sink_schema(placed, program),
                exits: exits.iter().map(|exit| (exit.edge.index(), exit.sender)).collect(),
                reserved: self.reserves(placed, bound),
            });
            stand.reserved += local.reserved;
            stand.local.push(Arc::clone(&local));
            let instance = Instance {
                stamper,
                arrivals,
                hold: self.hold(placed, program, self.bound_of(placed, bound), routing.clock())?,
                clock: routing.clock(),
                name: format!("{}#{}", self.dag.vertex(placed.vertex).label(), placed.number),
                body,
                inbox: Arc::clone(inbox),
                output: Output::new(
                    exits,
                    room,
                    Arc::clone(&self.budget),
                    Arc::clone(&counters),
                    Arc::clone(&program.output),
                    self.job.options.on_error,
                )
                .with_tap(Arc::clone(&stand.taps[&placed.vertex.0]), placed.number),
                counters,
                options: changes,
                asked,
                keeps: self.keeps(placed.vertex, program)?,
                settled: Vec::new(),
                start: self.started.clone(),
                halt: halted,
                timer: self.shared.timer.clone(),
                splits,
                hand,
                units: Units::new(handed),
                queue_time: self.job.options.settings == Settings::Default,
                keys: self.key_tap(placed)?,
            };
            instances.push((local, instance));
        }
        stand.own_splits.extend(own_splits.into_iter().map(|(stage, own)| (stage, own.all)));
        self.shared.open_roads(&self.plan, self.me, &mut stand.sessions, self.undo);
        let copies = self.copies(&mut stand)?;
        Ok(Made { stand, instances, retargets, joined, copies })
    }

    /// A run before it has anything here.
    fn nothing(&self) -> Stand {
        Stand {
            dag: Arc::clone(&self.dag),
            reserved: 0,
            local: Vec::new(),
            edges: HashMap::new(),
            sessions: HashMap::new(),
            flights: HashMap::new(),
            own_splits: HashMap::new(),
            taps: HashMap::new(),
            costs: Arc::default(),
            tables: HashMap::new(),
            past: BTreeMap::new(),
        }
    }

    /// A new instance begins with the live options as they are by now.
    fn set_options(&self, vertex: VertexId, options: &mpsc::UnboundedSender<SetOption>) {
        let stages = &self.dag.vertex(vertex).stages;
        for (id, option, value) in self.plan.options.iter().filter(|(stage, ..)| stages.contains(stage)) {
            let stage = self.job.stages.iter().find(|stage| stage.id == *id);
            let value = serde_json::from_str(value).ok();
            let taken = stage.zip(value).and_then(|(stage, value)| stage.op.live(option, &value).ok());
            if let Some(value) = taken {
                // Its receiver is the instance that is being made.
                let _ = options.send(SetOption { option: option.clone(), value });
            }
        }
    }

    /// The columns of each input of a vertex.
    fn input_columns(
        &self,
        vertex: VertexId,
        programs: &HashMap<VertexId, VertexProgram>,
    ) -> Vec<(u32, SchemaRef)> {
        let inputs = self.dag.inputs(vertex);
        inputs.map(|(id, edge)| (id.0, Arc::clone(&programs[&edge.from].output))).collect()
    }

    fn programs(&self, local: &[Placed]) -> Result<HashMap<VertexId, VertexProgram>, WireFault> {
        let mut programs = HashMap::new();
        // Senders' programs are needed too: their output is the schema of what comes in.
        let wanted = self.plan.instances.iter().map(|i| i.vertex).filter(|vertex| {
            local.iter().any(|i| i.vertex == *vertex)
                || self.dag.outputs(*vertex).any(|(_, e)| local.iter().any(|i| i.vertex == e.to))
        });
        // Of a join nobody may be left who made its tables.
        let collectors = local.iter().flat_map(|i| self.dag.collectors(i.vertex));
        for vertex in wanted.chain(collectors) {
            if let std::collections::hash_map::Entry::Vacant(entry) = programs.entry(vertex) {
                let program = vertex_program(&self.job, &self.types, &self.dag, vertex);
                entry.insert(program.map_err(|f| refused(&[f]))?);
            }
        }
        Ok(programs)
    }

    /// A tap for each vertex with instances here; those with a `peek` stage are on.
    fn taps(&self, stand: &mut Stand, mine: &[Placed], programs: &HashMap<VertexId, VertexProgram>) {
        for placed in mine {
            let id = placed.vertex;
            let all = self.plan.targets().filter(|i| i.vertex == id).count() as u32;
            if let Some(tap) = stand.taps.get(&id.0) {
                tap.set_instances(all);
                continue;
            }
            let program = &programs[&id];
            let sink = self.sink_schema(placed, program);
            let columns = sink.unwrap_or_else(|| own_columns(&program.output));
            let tap = Tap::new(all, columns.fields().iter().map(|field| field.name().clone()).collect());
            for peek in &self.dag.vertex(id).peeks {
                let stage = self.job.stages.iter().find(|stage| stage.id == *peek);
                if let Some(Op::Peek { sample_per_second }) = stage.map(|stage| &stage.op) {
                    tap.add_stage(&self.job.name, peek, sample_per_second.unwrap_or(DEFAULT_RATE));
                }
            }
            stand.taps.insert(id.0, Arc::new(tap));
        }
    }
}

/// What a sink has to know of its surroundings.
pub(crate) fn sink_context(
    shared: &Shared,
    plan: &RunPlan,
    job: &Job,
    stage: &Stage,
    instance_number: u32,
    schema: SchemaRef,
    parts: Parts,
) -> SinkContext {
    SinkContext {
        job: job.name.clone(),
        run: plan.run,
        attempt: plan.attempt,
        stage: stage.id.clone(),
        instance_number,
        agent: shared.me.name.clone(),
        folder: PathBuf::from(&shared.folder),
        schema,
        parts,
    }
}

fn parse<T: serde::de::DeserializeOwned>(json: &str, what: &str) -> Result<T, WireFault> {
    serde_json::from_str(json).map_err(|e| internal(&format!("the {what} of a run cannot be read: {e}")))
}

fn internal(message: &str) -> WireFault {
    WireFault::new(FaultCode::Internal, message)
}

fn refused(faults: &[Fault]) -> WireFault {
    let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
    WireFault::new(FaultCode::Refused, text.join("; "))
}

fn stage_refused(stage: &Stage, message: &str) -> WireFault {
    WireFault::new(FaultCode::Refused, format!("`{}`: {message}", stage.id))
}
