//! Made-up clusters with known numbers, and a UI that looks at them.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::{Dag, Edge, Instance, VertexId, plan};
use tuplane_core::scale::Limit;
use tuplane_core::scale::observed::{JobEtp, VertexEtp};
use tuplane_core::scale::rates::{EdgeRates, JobRates, VertexRates};
use tuplane_wire::etp::{JobFlow, More, MorePlan};
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentStatus, HostFacts, InstanceReport, JobPhase, JobSummary,
};
use tuplane_wire::routing::{EdgeRouting, InForce, TargetRouting, Trend};
use tuplane_wire::scaling::{Named, Rescale, Step};

use crate::tui::effect::Effect;
use crate::tui::event::{EdgeFacts, EtpFacts, Event, FlowFacts, JobFacts, News, RouteFacts, Telemetry, What};
use crate::tui::glyph::Glyphs;
use crate::tui::key;
use crate::tui::model::{Model, Options, Source};
use crate::tui::theme::Theme;
use crate::tui::update::update;
use crate::tui::view;

/// The names of the agents.
pub(super) const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A job of 3, 7 or 30 vertices. The stage `w` reads the source through a rebalance.
pub(super) fn dag(vertices: usize) -> Dag {
    let mut text = String::from("[[stage]]\nid='src'\nop='source'\nconnector='nexmark'\nn=9\n");
    text.push_str("[[stage]]\nid='spread'\nop='rebalance'\nin='src'\n");
    let mut work = |id: &str, from: &str| {
        text.push_str(&format!("[[stage]]\nid='{id}'\nop='work'\nms=1\nin='{from}'\n"));
    };
    work("w", "spread");
    let mut sinks = vec![("out", "w".to_owned())];
    let mut merge = None;
    match vertices {
        3 => {}
        7 => {
            work("x", "src");
            work("y", "m");
            merge = Some("'w', 'x'".to_owned());
            sinks = vec![("out", "y".to_owned()), ("out2", "m".to_owned())];
        }
        30 => {
            let mut ends = Vec::new();
            for lane in ["p", "q", "r"] {
                let mut from = "w".to_owned();
                // A merge of three is two vertices.
                for step in 0..if lane == "r" { 7 } else { 9 } {
                    let id = format!("{lane}{step}");
                    work(&id, &from);
                    from = id;
                }
                ends.push(format!("'{from}'"));
            }
            merge = Some(ends.join(", "));
            sinks = vec![("out", "m".to_owned())];
        }
        _ => panic!("there is no such job"),
    }
    if let Some(merge) = merge {
        let at = text.find("[[stage]]\nid='y'").unwrap_or(text.len());
        text.insert_str(at, &format!("[[stage]]\nid='m'\nop='merge'\nin=[{merge}]\n"));
    }
    for (id, from) in sinks {
        text.push_str(&format!(
            "[[stage]]\nid='{id}'\nop='sink'\nconnector='stdout'\nformat='csv'\nin='{from}'\n"
        ));
    }
    let dag = planned(&text);
    assert_eq!(dag.vertices.len(), vertices);
    dag
}

/// So many vertices one after the other: `src`, `w1` and so on, `out`; the first edge is rebalanced.
pub(super) fn chain(vertices: usize) -> Dag {
    let mut text = String::from("[[stage]]\nid='src'\nop='source'\nconnector='nexmark'\nn=9\n");
    text.push_str("[[stage]]\nid='spread'\nop='rebalance'\nin='src'\n");
    let mut from = "spread".to_owned();
    for number in 1..vertices - 1 {
        text.push_str(&format!("[[stage]]\nid='w{number}'\nop='work'\nms=1\nin='{from}'\n"));
        from = format!("w{number}");
    }
    text.push_str(&format!(
        "[[stage]]\nid='out'\nop='sink'\nconnector='stdout'\nformat='csv'\nin='{from}'\n"
    ));
    let dag = planned(&text);
    assert_eq!(dag.vertices.len(), vertices);
    dag
}

fn planned(text: &str) -> Dag {
    let job = Job::parse(text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    plan(&job).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Rows that wait in each output queue and in each input of a distributed edge.
const WAITS_OUT: u64 = 39;
const WAITS_IN: u64 = 120;

/// A cluster whose counters are functions of time.
pub(super) struct World {
    pub(super) dag: Dag,
    pub(super) instances: Vec<Instance>,
    /// Instances of a vertex on each agent.
    pub(super) per_agent: u32,
    pub(super) name: String,
    pub(super) phase: JobPhase,
    /// Ages of the agents' last reports, ms.
    pub(super) ages: [u64; 3],
}

impl World {
    /// So many vertices, each with so many instances on each agent.
    pub(super) fn new(vertices: usize, per_agent: u32) -> Self {
        Self::of(dag(vertices), per_agent)
    }

    /// This job, each vertex with so many instances on each agent.
    pub(super) fn of(dag: Dag, per_agent: u32) -> Self {
        let mut instances = Vec::new();
        for vertex in 0..dag.vertices.len() as u32 {
            for number in 0..per_agent * 3 {
                let id = instances.len() as u32;
                instances.push(Instance { id, vertex: VertexId(vertex), number, agent: (number % 3) as u16 });
            }
        }
        Self {
            dag,
            instances,
            per_agent,
            name: "nexmark-hot-items".into(),
            phase: JobPhase::Running,
            ages: [120, 80, 200],
        }
    }

    fn info(agent: usize) -> AgentInfo {
        AgentInfo {
            id: AgentId { name: AGENTS[agent].into(), incarnation: 7 },
            address: format!("10.0.0.{agent}:7100"),
            slots: 2,
            cores: if agent == 0 { 0 } else { 4 },
            zone: format!("zone-{agent}"),
            pid: 100 + agent as u32,
            version: "0.1.0".into(),
            host: format!("rack-{agent}"),
            registry: 1,
        }
    }

    fn agent(&self, agent: usize) -> AgentStatus {
        AgentStatus {
            info: Self::info(agent),
            alive: true,
            coordinator: agent == 0,
            age_ms: self.ages[agent],
            host: HostFacts {
                cpu: 0.25 * (agent as f32 + 1.0),
                processors: 16,
                memory_total: 64 << 30,
                memory_used: (10 + agent as u64) << 30,
                rss_anon: (100 + agent as u64) << 20,
                cpu_seconds: 5.0,
                charged: (3 + agent as u64) << 20,
                budget: 128 << 20,
                reserved: Vec::new(),
                os: "Linux 6.1".into(),
            },
            clock_offset_ns: (agent > 0).then_some((-250_000 * agent as i64, 40_000)),
            instances: self.instances.len() as u32 / 3,
            lost: None,
            round_trips: if agent == 0 { vec![("b".into(), 180), ("c".into(), 2400)] } else { Vec::new() },
            drained: false,
        }
    }

    /// Shares of busy and blocked of a vertex: the one behind the source limits the job.
    fn shares(vertex: u32) -> (u64, u64) {
        match vertex {
            0 => (40, 910),
            1 => (980, 0),
            v => (u64::from(v % 4) * 110, 0),
        }
    }

    /// What each instance of each vertex on each agent has taken and given out after so many ms: sources
    /// give 1, 2 and 3 rows a ms on the agents, everything else gives what it takes. Rows cross agents on
    /// distributed edges alone, where each target gets as many.
    fn flows(&self, ms: u64) -> Vec<[(u64, u64); 3]> {
        let mut flows = vec![[(0, 0); 3]; self.dag.vertices.len()];
        for vertex in 0..flows.len() {
            let mut taken = [0; 3];
            for edge in self.dag.edges.iter().filter(|edge| edge.to.0 as usize == vertex) {
                let sent = Self::sent(&flows, edge);
                let waits = if edge.distributed { WAITS_IN } else { 0 };
                for agent in 0..3 {
                    taken[agent] += sent[agent] - waits;
                }
            }
            let reads = self.dag.edges.iter().any(|edge| edge.to.0 as usize == vertex);
            let writes = self.dag.edges.iter().any(|edge| edge.from.0 as usize == vertex);
            for agent in 0..3 {
                let made = ms * (1 + agent as u64) + WAITS_OUT + WAITS_IN;
                let out = if reads { taken[agent] } else { made };
                flows[vertex][agent] = (taken[agent], if writes { out } else { 0 });
            }
        }
        flows
    }

    /// Rows that each target on each agent was sent on an edge.
    fn sent(flows: &[[(u64, u64); 3]], edge: &Edge) -> [u64; 3] {
        let waits = if edge.distributed { WAITS_OUT } else { 0 };
        let given = flows[edge.from.0 as usize].map(|(_, out)| out - waits);
        if edge.distributed { [given.iter().sum::<u64>() / 3; 3] } else { given }
    }

    /// What the cluster says after so many ms.
    pub(super) fn telemetry(&self, ms: u64) -> Telemetry {
        let flows = self.flows(ms);
        let queues = |vertex: u32| {
            let waits = |edge: &&Edge| edge.distributed;
            let into = self.dag.edges.iter().filter(|edge| edge.to.0 == vertex).filter(waits).count() as u64;
            let from =
                self.dag.edges.iter().filter(|edge| edge.from.0 == vertex).filter(waits).count() as u64;
            (into * WAITS_IN, from * WAITS_OUT)
        };
        let counters = self.instances.iter().map(|instance| {
            let vertex = instance.vertex.0;
            let (busy, blocked) = Self::shares(vertex);
            let (rows_in, rows_out) = flows[vertex as usize][usize::from(instance.agent)];
            let (queue_in, queue_out) = queues(vertex);
            InstanceReport {
                instance: instance.id,
                rows_in,
                rows_out,
                busy_ns: ms * busy * 1000,
                waiting_core_ns: 0,
                blocked_ns: ms * blocked * 1000,
                idle_ns: ms * (1000 - busy - blocked) * 1000,
                queue_in,
                queue_out,
                ..InstanceReport::default()
            }
        });
        let edges = self.dag.edges.iter().enumerate().map(|(index, edge)| {
            let own = self.instances.iter().filter(|instance| instance.vertex == edge.to);
            let sent = Self::sent(&flows, edge);
            let targets = own.map(|instance| (instance.id, sent[usize::from(instance.agent)])).collect();
            let all = 3 * u64::from(self.per_agent);
            let (queued_out, queued_in) =
                if edge.distributed { (all * WAITS_OUT, all * WAITS_IN) } else { (0, 0) };
            let given = flows[edge.from.0 as usize].map(|(_, out)| u64::from(self.per_agent) * out);
            let emitted = given.iter().sum();
            let mut pairs = Vec::new();
            for from in 0..3u16 {
                let left = given[usize::from(from)] - queued_out / 3;
                for to in (0..3u16).filter(|to| edge.distributed || *to == from) {
                    // A third of them, so that the three are all of them.
                    let part = |n: u16| left * u64::from(n) / 3;
                    let rows = if edge.distributed { part(to + 1) - part(to) } else { left };
                    pairs.push(FlowFacts {
                        from,
                        to,
                        rows,
                        wire_bytes: if from == to { 0 } else { rows * 50 },
                    });
                }
            }
            EdgeFacts {
                edge: index as u32,
                emitted,
                taken: emitted - queued_out - queued_in,
                queued_out,
                in_flight: 0,
                queued_in,
                policy: (edge.routing == tuplane_core::plan::Routing::Unicast)
                    .then(|| edge.policy().to_owned()),
                targets,
                flows: pairs,
                ..EdgeFacts::default()
            }
        });
        let summary = JobSummary {
            run: 1,
            name: self.name.clone(),
            phase: self.phase,
            attempt: 1,
            submitted_ms: 1_000_000,
            ended_ms: self.phase.is_final().then_some(1_000_000 + ms),
            fault: None,
            instances: self.instances.len() as u32,
            agents: AGENTS.map(str::to_owned).to_vec(),
            pending: Vec::new(),
        };
        Telemetry {
            cluster: "local".into(),
            wall_ms: 1_000_000 + ms,
            jobs: vec![summary.clone()],
            job: Some(JobFacts {
                summary,
                dag: serde_json::to_string(&self.dag).unwrap(),
                instances: self.instances.clone(),
                counters: counters.collect(),
                edges: edges.collect(),
                agents: (0..3).map(Self::info).collect(),
                cost_per_second: 81.0,
                running_ms: Some(ms),
                retired: Vec::new(),
                folded: BTreeMap::new(),
            }),
            agents: (0..3).map(|agent| self.agent(agent)).collect(),
        }
    }
}

impl World {
    /// What the agents say of the routes: the first edge goes by potus, others by the policy of the plan. At
    /// agent a nothing waits, at b 4 rows, at c 40, and there it grows; a way to another agent costs 3.
    pub(super) fn routes(&self) -> RouteFacts {
        let of_edge = |agent: u16, index: usize, edge: &Edge| {
            let priced = index == 0;
            let waiting = [0, 4, 40][usize::from(agent)];
            let targets = self.instances.iter().filter(|instance| instance.vertex == edge.to);
            let target = |instance: &Instance| {
                let local = instance.agent == agent;
                let cost = if local { 0.0 } else { 3.0 };
                let queued = u64::from(10 + 7 * instance.number);
                let rate = f64::from(100 + 10 * instance.number);
                let (way, held) = (2.5 * cost, 8.0 * waiting as f64);
                TargetRouting {
                    instance: instance.id,
                    agent: instance.agent,
                    rows: 5000 + u64::from(instance.number),
                    share: rate / 900.0,
                    rows_per_second: rate,
                    cost,
                    cost_per_second: rate * cost,
                    queued,
                    age_ms: (!local).then_some(if (agent, instance.number) == (0, 4) { 2300 } else { 12 }),
                    open: (agent, instance.number) != (1, 5),
                    masked: (agent, instance.number) == (0, 4),
                    price: priced.then_some([way + queued as f64 - held, way, queued as f64, held]),
                }
            };
            let backlogs =
                (0..40).map(|at| if agent == 2 { f64::from(at * 10) } else { f64::from(60 + at % 3) });
            let weight = |rule: &str, value| priced.then(|| InForce { rule: rule.into(), value });
            EdgeRouting {
                edge: index as u32,
                policy: if priced { "potus" } else { edge.policy() }.into(),
                options: if priced { r#"{"beta":8,"v":"balance"}"# } else { "{}" }.into(),
                setting: if priced { "default" } else { "" }.into(),
                slot_us: if priced { 5000 } else { 0 },
                v: weight("balance", 2.5),
                beta: weight("8", 8.0),
                gamma: None,
                queued_out: 2 * waiting,
                longest_out: waiting,
                backlog: if agent == 2 { 390.0 } else { 61.0 },
                backlogs: backlogs.collect(),
                trend: if agent == 2 { Trend::Growing } else { Trend::Stable },
                slots: if priced { 1234 } else { 0 },
                deferred: u64::from(agent),
                forced: u64::from(agent) * 3,
                warnings: if agent == 2 && priced {
                    vec!["V is larger than this queue can express".into()]
                } else {
                    vec![]
                },
                targets: targets.map(target).collect(),
                decisions: Vec::new(),
                window: 0,
                early: 0,
                to_come: 0,
            }
        };
        let edges = (0..3u16).flat_map(|agent| {
            let unicast = self.dag.edges.iter().enumerate();
            let unicast = unicast.filter(|(_, edge)| edge.routing == tuplane_core::plan::Routing::Unicast);
            unicast.map(move |(index, edge)| (agent, of_edge(agent, index, edge)))
        });
        RouteFacts { run: 1, edges: edges.collect(), silent: Vec::new(), fault: None }
    }

    /// What the job does in a second: the vertex behind the source limits it, and what its last vertices could do is
    /// not known.
    pub(super) fn flow(&self) -> EtpFacts {
        let idle = || "idle: no rows in 10 s".to_owned();
        let (all, last) = (self.dag.vertices.len(), self.dag.vertices.len() - 1);
        let rates = |vertex: usize| VertexRates {
            instances: self.per_agent * 3,
            input: Ok(if vertex < 2 { 6000.0 } else { 900.0 }),
            processed: Ok(if vertex == 0 { 1500.0 } else { 900.0 }),
            emitted: Ok(if vertex == last { 0.0 } else { 900.0 }),
            capacity: if vertex == last { Err(idle()) } else { Ok(150.0 + 1000.0 * f64::from(vertex != 1)) },
            capacity_alone: Ok(150.0),
            measured: 1,
            busy: Ok(if vertex == 1 { 0.98 } else { 0.12 }),
            busiest: Ok(if vertex == 1 { 0.99 } else { 0.2 }),
            blocked: Ok(if vertex == 0 { 0.91 } else { 0.0 }),
            queue_in: 120,
            waiting: 120,
            selectivity: Ok(1.0),
            skew: Ok(1.25),
            key_skew: Err("its rows do not come by key".into()),
            keys: Err("its rows do not come by key".into()),
            offered: (vertex == 0).then_some(Ok(6000.0)),
        };
        let etp = |vertex: usize| VertexEtp {
            congested: Ok(vertex == 1),
            demand: Ok(6000.0),
            path: Ok(if vertex == 0 { 0.0 } else { 2.0 }),
            sink_set: Ok(if vertex == 0 { 0.0 } else { 1.0 }),
            flow_share: Ok(if vertex == 0 { 0.0 } else { 1.0 / vertex as f64 }),
            gain: match vertex {
                1 => Ok(150.0),
                _ if vertex == last => Err(idle()),
                _ => Ok(0.0),
            },
        };
        let edge = || EdgeRates { rate: Ok(900.0), selectivity: Ok(1.0) };
        let limit = Limit::Vertex { vertex: VertexId(1), busy: 0.99, behind: VertexId(0), blocked: 0.91 };
        let flow = JobFlow {
            job: self.name.clone(),
            run: 1,
            epoch: 3,
            dag: String::new(),
            agents: AGENTS.map(str::to_owned).to_vec(),
            instances: self.instances.clone(),
            engine: "backpressured".into(),
            congestion: "demand > capacity".into(),
            rates: JobRates {
                seconds: Ok(10.0),
                full: true,
                vertices: (0..all).map(rates).collect(),
                edges: self.dag.edges.iter().map(|_| edge()).collect(),
                instances: Vec::new(),
            },
            etp: JobEtp {
                vertices: (0..all).map(etp).collect(),
                throughput: Ok(900.0),
                modelled: Ok(904.5),
                limit: Some(limit),
                assumed: vec![
                    "out limits nothing: what it can do is not known (idle: no rows in 10 s)".into(),
                ],
            },
            more: More {
                planner: "best".into(),
                plans: [(1, 150.0), (2, 300.0), (4, 600.0)]
                    .map(|(instances, gain)| MorePlan {
                        instances,
                        gain: Ok(gain),
                        vertices: vec![(1, instances)],
                        why: "all of them are used".into(),
                    })
                    .to_vec(),
                why: None,
            },
            auto: None,
        };
        let named = |id: u32| Named { id, name: format!("w#{id}"), agent: "a".into() };
        let first = Rescale {
            epoch: 2,
            attempt: 1,
            asked: "out --instances 2".into(),
            planner: Some("best".into()),
            step: Step::Done,
            fault: None,
            started: vec![named(6), named(7)],
            stopped: Vec::new(),
            asked_ms: 0,
            prepared_ms: Some(5),
            committed_ms: Some(6),
            ended_ms: Some(7),
            predicted: Some(912.0),
            unpredicted: None,
            measured: Some(898.0),
            unmeasured: None,
            why: None,
        };
        let second = Rescale {
            epoch: 3,
            asked: "set w=6".into(),
            planner: None,
            step: Step::Failed,
            fault: Some("agent c did not answer".into()),
            predicted: None,
            measured: None,
            ..first.clone()
        };
        EtpFacts { run: 1, flow: Some(flow), history: vec![first, second], fault: None }
    }

    /// What the cluster says, the first edge going by potus.
    pub(super) fn priced(&self, ms: u64) -> Telemetry {
        let mut telemetry = self.telemetry(ms);
        if let Some(job) = &mut telemetry.job {
            job.edges[0].policy = Some("potus".into());
        }
        telemetry
    }
}

/// A UI and what it was told.
pub(super) struct Seat {
    pub(super) model: Model,
}

impl Seat {
    /// A UI of a size that knows nothing yet.
    pub(super) fn new(width: u16, height: u16) -> Self {
        let options = Options {
            read_only: false,
            theme: Theme::Dark,
            glyphs: Glyphs::of(true),
            source: Source::Cluster,
        };
        let mut seat = Self { model: Model::new(options) };
        seat.tell(0, What::Resize { width, height });
        seat
    }

    /// A UI that has seen two reports of a world, a second apart.
    pub(super) fn at(width: u16, height: u16, world: &World) -> Self {
        let mut seat = Self::new(width, height);
        seat.tell(0, What::Connection(News::Connected));
        for ms in [10_000, 11_000] {
            seat.tell(ms, What::Telemetry(Box::new(world.telemetry(ms))));
        }
        seat
    }

    /// Something happens.
    pub(super) fn tell(&mut self, at: u64, what: What) -> Vec<Effect> {
        update(&mut self.model, Event { at, what })
    }

    /// Keys are pressed.
    pub(super) fn keys(&mut self, keys: &str) -> Vec<Effect> {
        let at = self.model.now;
        let keys = key::parse(keys).unwrap();
        keys.into_iter().flat_map(|key| self.tell(at, What::Key(key))).collect()
    }

    /// What is on the screen.
    pub(super) fn buffer(&self) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, self.model.width, self.model.height));
        view::paint(&self.model, &mut buffer);
        buffer
    }

    /// The text on the screen.
    pub(super) fn text(&self) -> String {
        text(&self.buffer())
    }
}

/// A buffer's text, lines without the spaces at their ends.
pub(super) fn text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let line: String = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A buffer's text, and below it where it is not plain: `line column..column how`.
pub(super) fn styled(buffer: &Buffer) -> String {
    let mut out = text(buffer);
    out.push_str("-- styles\n");
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let how = how(buffer, x, y);
            let start = x;
            while x < buffer.area.width && self::how(buffer, x, y) == how {
                x += 1;
            }
            if !how.is_empty() {
                out.push_str(&format!("{y:>2} {start:>3}..{x:<3} {how}\n"));
            }
        }
    }
    out
}

fn how(buffer: &Buffer, x: u16, y: u16) -> String {
    let style = buffer[(x, y)].style();
    let mut parts = Vec::new();
    if let Some(color) = style.fg.filter(|color| *color != Color::Reset) {
        parts.push(format!("{color:?}"));
    }
    assert!(style.bg.is_none_or(|color| color == Color::Reset), "a background at {x},{y}");
    for (modifier, word) in [
        (Modifier::BOLD, "bold"),
        (Modifier::DIM, "dim"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::REVERSED, "reversed"),
    ] {
        if style.add_modifier.contains(modifier) {
            parts.push(word.to_owned());
        }
    }
    parts.join(" ")
}
