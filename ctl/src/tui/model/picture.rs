//! What is known at one moment, worked out from telemetry: the only thing that views draw.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tuplane_core::cluster::{DROPPED_BY_LOSS, DROPPED_BY_STOP};
use tuplane_core::plan::{Dag, EdgeId, Instance, Routing, Vertex, VertexId};
use tuplane_core::route::policy_names;
use tuplane_core::scale::{Limit, Load, limit};
use tuplane_wire::message::{AgentStatus, InstanceReport, JobSummary};
use tuplane_wire::scaling::Folded;

use super::history::{History, Rates};
use super::routing::Routes;
use super::scaling::Flow;
use crate::limits::{self, Wording};
use crate::presence::SILENT_MS;
use crate::tui::event::{EdgeFacts, JobFacts, Telemetry};
use crate::tui::layout::{Laid, Layered, Layout};
use crate::tui::text;

/// How boxes are set, from the roomiest to the tightest.
const SETTINGS: [Setting; 3] = [
    Setting { between: 13, boxes: (22, 30) },
    Setting { between: 8, boxes: (20, 24) },
    Setting { between: 5, boxes: (18, 22) },
];

/// How boxes are set.
struct Setting {
    /// Columns between two columns of boxes: an edge's label stands there, as far as there is room.
    between: usize,
    /// Columns of a box: as many as its numbers need, at most so many for a long name.
    boxes: (usize, usize),
}

/// Lines of a box.
pub(crate) const BOX_LINES: usize = 4;

/// A planned graph and its drawing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// As it was sent.
    pub(crate) text: String,
    /// The graph.
    pub(crate) dag: Dag,
    /// Where its boxes stand, from the roomiest setting to the tightest.
    laid: Vec<Laid>,
}

impl Plan {
    /// Lays a graph out.
    pub(crate) fn new(text: String, dag: Dag) -> Self {
        let names: Vec<usize> =
            dag.vertices.iter().map(|vertex| text::width(&text::name(&vertex.label())) + 9).collect();
        let edges: Vec<(usize, usize)> =
            dag.edges.iter().map(|edge| (edge.from.0 as usize, edge.to.0 as usize)).collect();
        let lay = |Setting { between, boxes }: &Setting| {
            let sizes: Vec<(usize, usize)> =
                names.iter().map(|name| ((*name).clamp(boxes.0, boxes.1), BOX_LINES)).collect();
            Layered.lay(&sizes, &edges, *between)
        };
        let laid = SETTINGS.iter().map(lay).collect();
        Self { text, dag, laid }
    }

    /// Where its boxes stand on a terminal of so many columns: as roomy as fits, else as tight as can be.
    pub(crate) fn laid(&self, columns: u16) -> &Laid {
        static NONE: Laid = Laid { width: 0, height: 0, boxes: Vec::new(), routes: Vec::new() };
        let fits = self.laid.iter().find(|laid| laid.width <= i32::from(columns));
        fits.or(self.laid.last()).unwrap_or(&NONE)
    }
}

/// One moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picture {
    /// When it was taken: ms since the start.
    pub(crate) at: u64,
    /// The wall clock at that time, ms since 1970.
    pub(crate) wall_ms: u64,
    /// The cluster's name.
    pub(crate) cluster: String,
    /// All jobs.
    pub(crate) jobs: Vec<JobSummary>,
    /// All agents.
    pub(crate) agents: Vec<AgentStatus>,
    /// The job that is looked at.
    pub(crate) job: Option<JobPicture>,
    /// How its edges choose their targets; `None` while that was not asked for.
    pub(crate) routes: Option<Rc<Routes>>,
    /// What it does in a second; `None` while that was not asked for.
    pub(crate) flow: Option<Rc<Flow>>,
}

/// One job.
#[derive(Debug, Clone)]
pub(crate) struct JobPicture {
    /// The line of `jobs`.
    pub(crate) summary: JobSummary,
    /// Its graph.
    pub(crate) plan: Rc<Plan>,
    /// By index in the plan.
    pub(crate) vertices: Vec<VertexPicture>,
    /// By index in the plan.
    pub(crate) edges: Vec<EdgePicture>,
    /// By dense id.
    pub(crate) instances: Vec<InstancePicture>,
    /// What limits it.
    pub(crate) limit: Option<Limit>,
    /// Indices into [`Picture::agents`] of the run's agents, by the run's index; `None` for one that
    /// is not there any more.
    pub(crate) agents: Vec<Option<usize>>,
    /// Names of the run's agents.
    pub(crate) agent_names: Vec<String>,
    /// Rows per second that come from all sources.
    pub(crate) rows_in: Option<f64>,
    /// Rows per second that all sinks take.
    pub(crate) rows_out: Option<f64>,
    /// Rows that a stop or a lost agent cost.
    pub(crate) lost: u64,
    /// Cost of the rows sent in a second, the mean of lately.
    pub(crate) cost: f64,
    /// Milliseconds from the first row to the end, or to now.
    pub(crate) running_ms: Option<u64>,
    /// It is a plan only: there are no instances and no counters.
    pub(crate) planned_only: bool,
}

/// One vertex.
#[derive(Debug, Clone, Default)]
pub(crate) struct VertexPicture {
    pub(crate) label: String,
    pub(crate) instances: usize,
    /// All its instances have ended, or the job has.
    pub(crate) over: bool,
    /// Shares of its busiest, most blocked and most idle instance; `None` before two reports.
    pub(crate) load: Option<Load>,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) in_rate: Option<f64>,
    pub(crate) out_rate: Option<f64>,
    pub(crate) queue_in: u64,
    pub(crate) queue_out: u64,
    pub(crate) dropped: u64,
}

/// One edge.
#[derive(Debug, Clone, Default)]
pub(crate) struct EdgePicture {
    pub(crate) name: String,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// `unicast`, `partitioned by auction`.
    pub(crate) routing: String,
    pub(crate) distributed: bool,
    pub(crate) unicast: bool,
    pub(crate) policy: Option<String>,
    /// The plan's sentence.
    pub(crate) why: String,
    /// What a rebalance changed; empty text if it stands here and changed nothing.
    pub(crate) rebalance: Option<String>,
    /// Counters so far.
    pub(crate) facts: EdgeFacts,
    /// Rows taken per second.
    pub(crate) rate: Option<f64>,
    /// Share of the rows sent lately that went to another agent.
    pub(crate) across: Option<f64>,
    pub(crate) targets: Vec<TargetPicture>,
}

impl EdgePicture {
    /// Rows that wait on it: in output queues, on the way, in input queues.
    pub(crate) fn queue(&self) -> u64 {
        self.facts.queued_out + self.facts.in_flight + self.facts.queued_in
    }

    /// Rows dropped on it.
    pub(crate) fn dropped(&self) -> u64 {
        self.facts.dropped.values().sum()
    }
}

/// One target instance of an edge.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetPicture {
    pub(crate) instance: u32,
    /// Share of the rows sent lately.
    pub(crate) share: Option<f64>,
    pub(crate) rate: Option<f64>,
    pub(crate) rows: u64,
}

/// One instance.
#[derive(Debug, Clone)]
pub(crate) struct InstancePicture {
    /// `work#0`.
    pub(crate) name: String,
    pub(crate) vertex: u32,
    /// Index into the run's agents.
    pub(crate) agent: u16,
    pub(crate) report: InstanceReport,
    pub(crate) rates: Option<Rates>,
    /// A rescale has ended it.
    pub(crate) retired: bool,
}

impl Picture {
    /// What telemetry says, with the rates of the history; the plan is laid out anew only if it changed.
    pub(crate) fn new(at: u64, telemetry: &Telemetry, history: &mut History, plan: Option<Rc<Plan>>) -> Self {
        let job = telemetry.job.as_ref().and_then(|facts| {
            let plan = match plan {
                Some(plan) if plan.text == facts.dag => plan,
                // A plan of another version cannot be drawn; the header still says what it can.
                _ => Rc::new(Plan::new(facts.dag.clone(), serde_json::from_str(&facts.dag).ok()?)),
            };
            history.take(at, &plan.dag, facts, &live(facts, &telemetry.agents));
            Some(JobPicture::new(plan, facts, &telemetry.agents, history))
        });
        Self {
            at,
            wall_ms: telemetry.wall_ms,
            cluster: telemetry.cluster.clone(),
            jobs: telemetry.jobs.clone(),
            agents: telemetry.agents.clone(),
            job,
            routes: None,
            flow: None,
        }
    }

    /// The run of the job that is looked at.
    pub(crate) fn run(&self) -> Option<u64> {
        self.job.as_ref().map(|job| job.summary.run)
    }

    /// Age of an agent's last report at `now`.
    pub(crate) fn age(&self, agent: usize, now: u64) -> u64 {
        let age = self.agents.get(agent).map_or(u64::MAX, |agent| agent.age_ms);
        age.saturating_add(now.saturating_sub(self.at))
    }

    /// The run's agents (without a job the cluster's) that were not heard of lately, by name, with the age
    /// of what they said last; `None` for one that is gone. A job's end changes nothing about that.
    pub(crate) fn silent(&self, now: u64) -> Vec<(&str, Option<u64>)> {
        let age = |index: usize| {
            let alive = self.agents.get(index).is_some_and(|agent| agent.alive);
            alive.then(|| self.age(index, now))
        };
        let found: Vec<(&str, Option<u64>)> = match self.job.as_ref().filter(|job| !job.planned_only) {
            Some(job) => {
                let names = job.agent_names.iter().map(String::as_str);
                let all = names.zip(&job.agents).zip(0u16..).filter(|(_, of_run)| job.takes_part(*of_run));
                all.map(|((name, index), _)| (name, index.and_then(age))).collect()
            }
            None => (0..self.agents.len())
                .map(|index| (self.agents[index].info.id.name.as_str(), age(index)))
                .collect(),
        };
        found.into_iter().filter(|(_, age)| age.is_none_or(|age| age > SILENT_MS)).collect()
    }

    /// What it says is old at `now`: its rows are grey and carry its age.
    pub(crate) fn is_stale(&self, agent: usize, now: u64) -> bool {
        self.age(agent, now) > SILENT_MS
    }

    /// The age of the values of one of the run's agents, if they are old. Those of a job that has ended
    /// do not age.
    pub(crate) fn stale_age(&self, agent: u16, now: u64) -> Option<u64> {
        let job = self.job.as_ref().filter(|job| !job.summary.phase.is_final() && !job.planned_only)?;
        match job.agents.get(usize::from(agent)).copied().flatten() {
            Some(index) => Some(self.age(index, now)).filter(|age| *age > SILENT_MS),
            None => Some(u64::MAX),
        }
    }

    /// The age of the oldest of the run's agents that are old; `u64::MAX` if one is gone.
    pub(crate) fn oldest(&self, now: u64) -> Option<u64> {
        let job = self.job.as_ref()?;
        let agents = (0..job.agents.len() as u16).filter(|agent| job.takes_part(*agent));
        agents.filter_map(|agent| self.stale_age(agent, now)).max()
    }

    /// How many agents take part in the job; without one how many there are.
    pub(crate) fn all_agents(&self) -> usize {
        self.job.as_ref().map_or(self.agents.len(), |job| {
            (0..job.agents.len() as u16).filter(|agent| job.takes_part(*agent)).count()
        })
    }

    /// The age of the oldest of a vertex's values, if it is old; `u64::MAX` if an agent is gone.
    pub(crate) fn vertex_age(&self, vertex: u32, now: u64) -> Option<u64> {
        let job = self.job.as_ref()?;
        let own = job.instances.iter().filter(|instance| instance.vertex == vertex && !instance.report.ended);
        let own = own.filter(|instance| !instance.retired);
        own.filter_map(|instance| self.stale_age(instance.agent, now)).max()
    }
}

/// The instances that count in rates: of a job that goes on those that have not ended, on agents that were
/// heard of lately. Edges and vertices both go by this, so that their rates agree.
fn live(facts: &JobFacts, agents: &[AgentStatus]) -> BTreeSet<u32> {
    if facts.summary.phase.is_final() {
        return BTreeSet::new();
    }
    let heard = |agent: u16| {
        let of_run = facts.agents.get(usize::from(agent));
        let known = of_run.and_then(|of_run| agents.iter().find(|agent| agent.info.id == of_run.id));
        known.is_some_and(|agent| agent.alive && agent.age_ms <= SILENT_MS)
    };
    let ended: BTreeSet<u32> =
        facts.counters.iter().filter(|report| report.ended).map(|report| report.instance).collect();
    let counts = facts.instances.iter().filter(|instance| heard(instance.agent));
    counts.map(|instance| instance.id).filter(|id| !ended.contains(id)).collect()
}

impl JobPicture {
    /// An agent of the run counts, by the run's index, while it has something of it: rescales have left the others empty, and
    /// these may be released.
    fn takes_part(&self, agent: u16) -> bool {
        let all_empty = self.instances.iter().all(|instance| instance.retired);
        all_empty || self.instances.iter().any(|instance| instance.agent == agent && !instance.retired)
    }

    fn new(plan: Rc<Plan>, facts: &JobFacts, agents: &[AgentStatus], history: &History) -> Self {
        let counters: BTreeMap<u32, &InstanceReport> =
            facts.counters.iter().map(|report| (report.instance, report)).collect();
        let running = !facts.summary.phase.is_final();
        let ended = |id: u32| counters.get(&id).is_some_and(|report| report.ended);
        let instances: Vec<InstancePicture> = facts
            .instances
            .iter()
            .map(|instance| InstancePicture {
                name: instance_name(&plan.dag, *instance),
                vertex: instance.vertex.0,
                agent: instance.agent,
                report: counters.get(&instance.id).map_or_else(
                    || InstanceReport { instance: instance.id, ..InstanceReport::default() },
                    |report| (*report).clone(),
                ),
                // What has ended does nothing any more; what is old stays, in grey.
                rates: history.rates(instance.id).filter(|_| running && !ended(instance.id)),
                retired: facts.retired.contains(&instance.id),
            })
            .collect();
        let live = live(facts, agents);
        let vertices: Vec<VertexPicture> = (0..plan.dag.vertices.len() as u32)
            .map(|id| vertex(&plan.dag, id, &instances, facts.folded.get(&VertexId(id)), &live, running))
            .collect();
        let edges: Vec<EdgePicture> = (0..plan.dag.edges.len() as u32)
            .map(|id| edge(&plan.dag, EdgeId(id), facts, history, &live))
            .collect();
        let loads: Vec<Option<Load>> = vertices.iter().map(|vertex| vertex.load).collect();
        let waits: Vec<Option<f64>> = (0u32..)
            .zip(&vertices)
            .map(|(id, vertex)| {
                let waiting: u64 = edges.iter().filter(|edge| edge.to == id).map(EdgePicture::queue).sum();
                vertex.in_rate.filter(|rate| *rate > 0.0).map(|rate| waiting as f64 / rate)
            })
            .collect();
        let limit = if running { limit(&plan.dag, &loads, &waits) } else { None };
        let sum = |ends: &dyn Fn(u32) -> bool, rate: &dyn Fn(&VertexPicture) -> Option<f64>| {
            let of = vertices.iter().zip(0u32..).filter(|(_, id)| ends(*id)).filter_map(|(v, _)| rate(v));
            of.fold(None, |sum: Option<f64>, rate| Some(sum.unwrap_or(0.0) + rate))
        };
        let reads = |id: u32| !plan.dag.edges.iter().any(|edge| edge.to.0 == id);
        let writes = |id: u32| !plan.dag.edges.iter().any(|edge| edge.from.0 == id);
        let (rows_in, rows_out) = (sum(&reads, &|v| v.out_rate), sum(&writes, &|v| v.in_rate));
        let lost = |edge: &EdgePicture| -> u64 {
            [DROPPED_BY_STOP, DROPPED_BY_LOSS]
                .iter()
                .filter_map(|reason| edge.facts.dropped.get(*reason))
                .sum()
        };
        Self {
            summary: facts.summary.clone(),
            lost: edges.iter().map(lost).sum(),
            agents: facts
                .agents
                .iter()
                .map(|of_run| agents.iter().position(|agent| agent.info.id == of_run.id))
                .collect(),
            agent_names: facts.agents.iter().map(|agent| agent.id.name.clone()).collect(),
            cost: history.cost(),
            running_ms: facts.running_ms,
            planned_only: facts.instances.is_empty() && facts.agents.is_empty(),
            plan: Rc::clone(&plan),
            vertices,
            edges,
            instances,
            limit,
            rows_in,
            rows_out,
        }
    }

    /// What limits it, in words; an empty text while that is not known.
    pub(crate) fn limit_text(&self) -> String {
        let label = |id: VertexId| {
            self.vertices.get(id.0 as usize).map_or_else(String::new, |vertex| text::name(&vertex.label))
        };
        let wording = Wording { label: &label, share: &|share| text::share(Some(share)), time: &text::age };
        match (&self.limit, self.held()) {
            (None, _) => String::new(),
            (Some(Limit::Nothing), Some(edge)) => format!(
                "rows are held by the policy of {}: {} wait there",
                text::name(&edge.name),
                text::rows(edge.facts.queued_out)
            ),
            (Some(limit), _) => limits::words(limit, &wording),
        }
    }

    /// The edge whose policy holds most rows, where one holds more than its senders give in a second.
    fn held(&self) -> Option<&EdgePicture> {
        let may_hold = |policy: &String| policy == "potus" || !policy_names().contains(&policy.as_str());
        let given = |edge: &EdgePicture| {
            self.vertices.get(edge.from as usize).and_then(|sender| sender.out_rate).unwrap_or(0.0)
        };
        let edges = self.edges.iter().filter(|edge| edge.policy.as_ref().is_some_and(may_hold));
        let held =
            edges.filter(|edge| edge.facts.queued_out > 0 && edge.facts.queued_out as f64 > given(edge));
        held.max_by_key(|edge| edge.facts.queued_out)
    }

    /// The limiting vertex.
    pub(crate) fn limiting(&self) -> Option<u32> {
        self.limit.as_ref().and_then(limits::vertex).map(|vertex| vertex.0)
    }

    /// The agent of an instance.
    pub(crate) fn agent_name(&self, agent: u16) -> &str {
        self.agent_names.get(usize::from(agent)).map_or("?", String::as_str)
    }
}

fn instance_name(dag: &Dag, instance: Instance) -> String {
    let label = dag.vertices.get(instance.vertex.0 as usize).map_or_else(|| "?".to_owned(), Vertex::label);
    format!("{label}#{}", instance.number)
}

fn vertex(
    dag: &Dag,
    id: u32,
    instances: &[InstancePicture],
    folded: Option<&Folded>,
    live: &BTreeSet<u32>,
    running: bool,
) -> VertexPicture {
    let own = || instances.iter().filter(move |instance| instance.vertex == id);
    let rates = || own().filter_map(|instance| instance.rates);
    let sum = |count: &dyn Fn(&InstanceReport) -> u64| {
        let listed = own().map(|instance| count(&instance.report)).sum::<u64>();
        listed + folded.map_or(0, |folded| count(&folded.counters))
    };
    let rate = |of: &dyn Fn(Rates) -> f64| {
        let heard = own().filter(|instance| live.contains(&instance.report.instance));
        let rates = heard.filter_map(|instance| instance.rates).map(of);
        rates.fold(None, |sum, rate| Some(sum.unwrap_or(0.0) + rate))
    };
    VertexPicture {
        label: dag.vertex(VertexId(id)).label(),
        instances: own().filter(|instance| !instance.retired).count(),
        over: own().next().is_some() && (!running || own().all(|instance| instance.report.ended)),
        load: Load::of(rates().map(|rates| (rates.busy, rates.blocked))),
        rows_in: sum(&|report| report.rows_in),
        rows_out: sum(&|report| report.rows_out),
        in_rate: rate(&|rates| rates.rows_in),
        out_rate: rate(&|rates| rates.rows_out),
        queue_in: sum(&|report| report.queue_in),
        queue_out: sum(&|report| report.queue_out),
        dropped: sum(&|report| report.dropped.values().sum()),
    }
}

fn edge(dag: &Dag, id: EdgeId, facts: &JobFacts, history: &History, live: &BTreeSet<u32>) -> EdgePicture {
    let edge = dag.edge(id);
    let rates = history.edge(id.0).filter(|_| !facts.summary.phase.is_final());
    let facts_of = facts.edges.iter().find(|facts| facts.edge == id.0).cloned().unwrap_or_default();
    let sent: u64 = facts_of.targets.values().sum();
    let targets = facts.instances.iter().filter(|instance| instance.vertex == edge.to).map(|instance| {
        let rows = facts_of.targets.get(&instance.id).copied().unwrap_or(0);
        let lately = rates.filter(|rates| !rates.shares.is_empty());
        TargetPicture {
            instance: instance.id,
            // Without rows lately the share of all rows so far stands there.
            share: match lately {
                Some(rates) => Some(rates.shares.get(&instance.id).copied().unwrap_or(0.0)),
                None => (sent > 0).then(|| rows as f64 / sent as f64),
            },
            rate: rates
                .filter(|_| live.contains(&instance.id))
                .map(|rates| rates.targets.get(&instance.id).copied().unwrap_or(0.0)),
            rows,
        }
    });
    let flow = |across: bool| -> u64 {
        facts_of.flows.iter().filter(|flow| !across || flow.from != flow.to).map(|flow| flow.rows).sum()
    };
    let ever = (flow(false) > 0).then(|| flow(true) as f64 / flow(false).max(1) as f64);
    EdgePicture {
        name: dag.edge_name(id),
        from: edge.from.0,
        to: edge.to.0,
        routing: routing(&edge.routing),
        distributed: edge.distributed,
        unicast: edge.routing == Routing::Unicast,
        policy: facts_of
            .policy
            .clone()
            .or_else(|| (edge.routing == Routing::Unicast).then(|| edge.policy().to_owned())),
        why: edge.why.clone(),
        rebalance: edge.rebalance.as_ref().map(|effect| effect.changed.clone()),
        rate: rates.map(|rates| rates.taken),
        across: rates.and_then(|rates| rates.across).or(ever),
        targets: targets.collect(),
        facts: facts_of,
    }
}

fn routing(routing: &Routing) -> String {
    use tuplane_core::plan::Key;
    match routing {
        Routing::Unicast => "unicast".into(),
        Routing::Isolated => "isolated".into(),
        Routing::Partitioned { key, .. } => match key {
            Key::Exprs(exprs) => {
                let exprs: Vec<&str> = exprs.iter().map(|expr| expr.value.as_str()).collect();
                format!("partitioned by {}", exprs.join(", "))
            }
            Key::Entry => "partitioned by key".into(),
            Key::WholeItem => "partitioned by row".into(),
        },
        Routing::AllToOne => "all-to-one".into(),
        Routing::Broadcast => "broadcast".into(),
    }
}
