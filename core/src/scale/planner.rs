//! Planners: which vertices get the next instances, and which machines are given back.

mod best;
mod check;
mod explain;
mod lambda;
mod model;
mod simple;
mod stela;
mod storm;
mod take;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::congestion::Congestion;
use super::fluid::{Engine, Steady, steady};
use super::graph::{FlowGraph, Rates};
use super::machines::Placement;
use crate::fault::suggestion;
use crate::job::Settings;

pub use best::Best;
pub use lambda::Ds2;
pub use simple::RoundRobin;
pub use stela::{Stela, StelaCode};
pub use storm::{LeastLinkLoad, StormDefault};
pub use take::{EtpSum, Random};

/// The most instances that one plan adds.
pub const MOST: u32 = 10_000;

/// Vertices and edges that a planner may look at, were it to look at each once for each new instance; the least that any does.
const MOST_LOOKS: u64 = 10_000_000;

/// "Where do so many more instances go?"
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// The job as it is.
    pub graph: &'a FlowGraph,
    /// The engine that it runs on.
    pub engine: Engine,
    /// How many instances there are to add; at most [`MOST`].
    pub slots: u32,
    /// What vertices do now: measured, or modelled. Stela's planners see nothing else of the load.
    pub rates: Vec<Rates>,
    /// How Stela's planners find congested vertices.
    pub congestion: Congestion,
    /// Where instances are, new machines included: they host nothing. Plans are then made and predicted with the cores
    /// of these machines; without it each instance has a core of its own. Planners that move instances need it.
    pub placement: Option<&'a Placement>,
    /// Which instances may move, if any may. Without it `best` only adds; Storm's planners move regardless: they do nothing else.
    pub moving: Option<Moving>,
}

/// Which instances may move to make room for others, and when that pays.
#[derive(Debug, Clone, PartialEq)]
pub struct Moving {
    /// For each vertex: its instances stay where they are.
    pub stays: Vec<bool>,
    /// A plan that moves instances has to bring so much more than one that only adds, as a share of its throughput.
    pub pays: f64,
}

impl<'a> Ask<'a> {
    /// So many slots, with rates from the model and the published test of congestion.
    pub fn new(graph: &'a FlowGraph, engine: Engine, slots: u32) -> Self {
        let rates = steady(graph, &graph.capacities(&graph.instances()), engine).rates;
        Self { graph, engine, slots, rates, congestion: Congestion::default(), placement: None, moving: None }
    }

    /// A source that gives as much as its instances take.
    pub(super) fn is_open_source(&self, vertex: usize) -> bool {
        self.graph.is_source(vertex) && self.graph.vertices()[vertex].offered.is_none()
    }

    /// The steady state with so many instances, or with them where they are.
    pub(super) fn steady(&self, instances: &[u32], placement: Option<&Placement>) -> Steady {
        match placement {
            Some(placement) => placement.steady(self.graph, self.engine),
            None => steady(self.graph, &self.graph.capacities(instances), self.engine),
        }
    }

    /// Rows a second that are to be expected at the sinks then: where machines are known, with the turns that instances take on
    /// their cores ([`Placement::expected`]).
    pub(super) fn expected(&self, instances: &[u32], placement: Option<&Placement>) -> f64 {
        match placement {
            Some(placement) => placement.expected(self.graph, self.engine).throughput,
            None => self.steady(instances, None).throughput,
        }
    }
}

/// One more instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Of this vertex, by index.
    pub vertex: usize,
    /// On this machine, by index into [`Placement::machines`]; `None` where these are not known.
    pub machine: Option<usize>,
    /// Why, in words that follow its name.
    pub why: String,
    /// Predicted throughput without it, in rows a second.
    pub before: f64,
    /// And with it.
    pub after: f64,
}

/// Slots that a plan does not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// How many.
    pub slots: u32,
    /// Why.
    pub why: String,
}

/// One instance goes to another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Its vertex, by index.
    pub vertex: usize,
    /// Which of the vertex's instances, by index into [`Placement::on`].
    pub instance: usize,
    /// The machine that it leaves, by index.
    pub from: usize,
    /// The machine that it goes to.
    pub to: usize,
}

/// What a planner proposes for more instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The planner's name.
    pub planner: String,
    /// New instances, in the order in which they pay.
    pub steps: Vec<Step>,
    /// Instances that change their machine.
    pub moves: Vec<Move>,
    /// Slots that are not used; every slot is either a step or here.
    pub left: Option<Left>,
    /// Instances of every vertex after it.
    pub instances: Vec<u32>,
    /// Predicted throughput before it, in rows a second; where machines are known, as [`Placement::expected`] has it.
    pub before: f64,
    /// And after it.
    pub after: f64,
}

/// One more instance of a vertex, by index: on which machine, if that is chosen, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// Of this vertex, by index.
    pub vertex: usize,
    /// On this machine, by index; `None`: wherever there is most room ([`Placement::emptiest`]).
    pub machine: Option<usize>,
    /// Why, in words that follow the vertex's name.
    pub why: String,
}

impl Plan {
    /// A plan of these steps, each a vertex and why, with the throughput that the model predicts after each. Slots
    /// without a step are left, for the reason given. Where machines are known each instance goes where there is most room
    /// ([`Placement::emptiest`]).
    pub fn of(
        planner: impl Into<String>,
        ask: &Ask<'_>,
        picks: Vec<(usize, String)>,
        left: impl Into<String>,
    ) -> Self {
        let picks = picks.into_iter().map(|(vertex, why)| Pick { vertex, machine: None, why });
        Self::placed(planner, ask, picks.collect(), Vec::new(), left)
    }

    /// A plan of new instances on chosen machines, after which others move: [`Plan::of`] with more said.
    pub fn placed(
        planner: impl Into<String>,
        ask: &Ask<'_>,
        picks: Vec<Pick>,
        moves: Vec<Move>,
        left: impl Into<String>,
    ) -> Self {
        let mut instances = ask.graph.instances();
        let mut placement = ask.placement.cloned();
        let now = ask.expected(&instances, placement.as_ref());
        let (mut after, mut left) = (ask.steady(&instances, placement.as_ref()).throughput, left.into());
        let mut steps = Vec::with_capacity(picks.len());
        for Pick { vertex, machine, why } in picks {
            let before = after;
            let machine = match &mut placement {
                None => None,
                Some(placement) => {
                    let Some(machine) = machine.or_else(|| placement.emptiest(vertex)) else {
                        "no machine takes new instances".clone_into(&mut left);
                        break;
                    };
                    placement.on[vertex].push(machine);
                    Some(machine)
                }
            };
            instances[vertex] = instances[vertex].saturating_add(1);
            after = ask.steady(&instances, placement.as_ref()).throughput;
            steps.push(Step { vertex, machine, why, before, after });
        }
        if let (Some(placement), false) = (&mut placement, moves.is_empty()) {
            for one in &moves {
                placement.on[one.vertex][one.instance] = one.to;
            }
        }
        let then = ask.expected(&instances, placement.as_ref());
        let used = u32::try_from(steps.len()).unwrap_or(u32::MAX);
        let left = (used < ask.slots).then(|| Left { slots: ask.slots - used, why: left });
        Self { planner: planner.into(), steps, moves, left, instances, before: now, after: then }
    }
}

/// "Which machines can be given back?"
#[derive(Debug, Clone)]
pub struct TakeAsk<'a> {
    /// The job; instances are counted from the placement.
    pub graph: &'a FlowGraph,
    /// Where its instances are.
    pub placement: &'a Placement,
    /// The engine that it runs on.
    pub engine: Engine,
    /// How many machines to give back.
    pub machines: usize,
    /// What vertices do now. `etp-sum` sees nothing else of the load.
    pub rates: Vec<Rates>,
    /// How `etp-sum` finds congested vertices.
    pub congestion: Congestion,
    /// Feeds planners that draw lots.
    pub seed: u64,
}

impl<'a> TakeAsk<'a> {
    /// So many machines, with rates from the model and the published test of congestion.
    pub fn new(graph: &'a FlowGraph, placement: &'a Placement, engine: Engine, machines: usize) -> Self {
        let rates = placement.steady(graph, engine).rates;
        Self { graph, placement, engine, machines, rates, congestion: Congestion::default(), seed: 0 }
    }
}

/// What a planner proposes for fewer machines.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    /// The planner's name.
    pub planner: String,
    /// The machines that are given back, by index.
    pub machines: Vec<usize>,
    /// Where their instances go.
    pub moves: Vec<Move>,
    /// Why these machines, in one sentence.
    pub why: String,
    /// The placement after it; machines that are given back stay in the list, without instances.
    pub placement: Placement,
    /// Predicted throughput before it, in rows a second, as [`Placement::expected`] has it.
    pub before: f64,
    /// And after it.
    pub after: f64,
}

/// Why a planner has no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Decides which vertices get more instances, or which machines are given back.
///
/// A planner is pure: the same question has the same answer. It need not do both.
pub trait Planner: Send + Sync + fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// How many instances are added with so many new machines, to a job of so many instances on so many machines. Without
    /// an answer of its own it is that of Stela's slide: the mean number on a machine stays.
    fn slots(&self, new_machines: u32, instances: u32, machines: u32) -> u32 {
        slots_by_slide(new_machines, instances, machines)
    }

    /// Where more instances go. Every slot is used, or left with a reason; no vertex gets more than its most.
    ///
    /// # Errors
    /// If it cannot answer such a question at all.
    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let _ = ask;
        Err(Refusal(format!("planner `{}` only plans which machines are given back", self.name())))
    }

    /// Which machines are given back, and where their instances go.
    ///
    /// # Errors
    /// If it cannot answer such a question, or not so many machines can be given back.
    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        let _ = ask;
        Err(Refusal(format!("planner `{}` only plans where more instances go", self.name())))
    }
}

/// Planners by name: the ones that are built in, and a researcher's own.
#[derive(Clone)]
pub struct Planners {
    known: BTreeMap<String, Arc<dyn Planner>>,
}

impl fmt::Debug for Planners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.known.keys()).finish()
    }
}

impl Default for Planners {
    fn default() -> Self {
        let mut all = Self { known: BTreeMap::new() };
        all.add(Best);
        all.add(Stela);
        all.add(StelaCode);
        all.add(Ds2);
        all.add(RoundRobin);
        all.add(StormDefault);
        all.add(LeastLinkLoad);
        all.add(EtpSum);
        all.add(Random);
        all
    }
}

impl Planners {
    /// Adds a planner; one of the same name is replaced.
    pub fn add(&mut self, planner: impl Planner + 'static) {
        self.known.insert(planner.name().to_owned(), Arc::new(planner));
    }

    /// Their names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// The planner of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<&dyn Planner, PlannerError> {
        self.known.get(name).map(AsRef::as_ref).ok_or_else(|| {
            let close = suggestion(name, self.names());
            let close = close.map(|close| format!(" (did you mean `{close}`?)")).unwrap_or_default();
            let known = self.names().collect::<Vec<_>>().join(", ");
            PlannerError { name: name.to_owned(), close, known }
        })
    }

    /// The plan of the planner of that name for more instances. It is one that can be carried out, whoever wrote the planner.
    ///
    /// # Errors
    /// If there is no such planner, it refuses or panics, its plan names what there is not or more than was asked for, or more
    /// slots are asked for than [`MOST`].
    pub fn scale_out(&self, name: &str, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let planner = self.get(name).map_err(|error| Refusal(error.to_string()))?;
        if ask.slots > MOST {
            let Ask { slots, .. } = ask;
            return Err(Refusal(format!("{slots} new instances are asked for: a plan adds at most {MOST}")));
        }
        let size = (ask.graph.len() + ask.graph.edges().len()) as u64;
        if u64::from(ask.slots) * size > MOST_LOOKS {
            return Err(Refusal(format!(
                "{} new instances for {} vertices and {} edges take a planner too long, which looks at each of these for each \
                 instance: at most {} can be asked for",
                ask.slots,
                ask.graph.len(),
                ask.graph.edges().len(),
                MOST_LOOKS / size
            )));
        }
        if let Some(placement) = ask.placement
            && placement.instances() != ask.graph.instances()
        {
            return Err(Refusal("the machines host other numbers of instances than the graph has".into()));
        }
        check::scale_out(planner, ask)
    }

    /// How many instances the planner of that name adds with so many new machines, where nobody says how many.
    ///
    /// # Errors
    /// If there is no such planner, or it panics.
    pub fn slots(
        &self,
        name: &str,
        new_machines: u32,
        instances: u32,
        machines: u32,
    ) -> Result<u32, Refusal> {
        let planner = self.get(name).map_err(|error| Refusal(error.to_string()))?;
        check::caught(planner, || Ok(planner.slots(new_machines, instances, machines)))
    }

    /// The planner for more instances where none is named.
    pub fn usual(settings: Settings) -> &'static str {
        match settings {
            Settings::Paper => "stela",
            Settings::Default => "best",
        }
    }

    /// The planner for fewer machines where none is named.
    pub fn usual_in(settings: Settings) -> &'static str {
        match settings {
            Settings::Paper => "etp-sum",
            Settings::Default => "best",
        }
    }

    /// The plan of the planner of that name for fewer machines.
    ///
    /// # Errors
    /// If there is no such planner, it refuses or panics, its plan cannot be carried out, or not so many machines can be given
    /// back.
    pub fn scale_in(&self, name: &str, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        let planner = self.get(name).map_err(|error| Refusal(error.to_string()))?;
        take::removable(ask)?;
        check::scale_in(planner, ask)
    }
}

/// No planner has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no planner is called `{name}`{close}; there are: {known}")]
pub struct PlannerError {
    /// The name that was asked for.
    name: String,
    /// A name like it, in words.
    close: String,
    /// All names.
    known: String,
}

/// `N` as published: the mean number of instances on a machine stays the same (Stela's slide,
/// elasticity.md section 1.5). Rounded down.
pub fn slots_by_slide(new_machines: u32, instances: u32, machines: u32) -> u32 {
    let slots = u64::from(new_machines) * u64::from(instances) / u64::from(machines.max(1));
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// `N` as the authors' code has it: instances over machines, the new ones included, rounded down; how many
/// machines are new plays no part.
pub fn slots_by_code(new_machines: u32, instances: u32, machines: u32) -> u32 {
    instances / new_machines.saturating_add(machines).max(1)
}
