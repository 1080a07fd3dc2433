//! The automatic mode: when a job gets more or fewer instances, from what is seen of it again and again.
//!
//! A state machine that reads no clock. It asks what each vertex needs for what the sources are *offered*, not for what came
//! through: a vertex that is held back, drained or just restarted does not look idle. The known ways to flap, each
//! shut by one rule (numbers are those of elasticity.md section 4):
//!
//! * nothing is done before a full window, nor within `cooldown` of the last action (18, 19, 43);
//! * less only by the highest need of the last two cooldowns, and never within two of an action (20, 25);
//! * nothing is taken away while rows wait for more than a second's work, or from a blocked vertex (21, 40);
//! * a vertex whose instances did not raise what it takes gets no more (27, 42), and no more than rows wait or come (41);
//! * what cannot be done is said once, until it can be (26).

use std::collections::VecDeque;
use std::time::Duration;

use super::fluid::{EQUAL, demand};
use super::graph::{FlowGraph, FlowVertex, total};
use super::limit::{BEHIND_S, HELD};

/// How the automatic mode decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AutoOptions {
    /// At least so long from one action to the next.
    pub cooldown: Duration,
    /// A vertex that is changed gets as many instances as work so much of the time (Flink's `utilization.target`).
    pub target: f64,
    /// Above this share a vertex gets more.
    pub high: f64,
    /// Below this one, by the highest need of two cooldowns, it gets fewer.
    pub low: f64,
    /// The largest share of its instances that a vertex loses at once (Flink's `scale-down.max-factor`).
    pub most_taken: f64,
    /// New instances that raise what a vertex takes by less than this share of what they should are no use.
    pub useful: f64,
}

impl Default for AutoOptions {
    fn default() -> Self {
        Self {
            cooldown: Duration::from_mins(1),
            target: 0.7,
            high: 0.9,
            low: 0.45,
            most_taken: 0.6,
            useful: 0.1,
        }
    }
}

/// What is seen of a job at a moment.
#[derive(Debug, Clone)]
pub struct Look<'a> {
    /// Time on a clock that never goes back.
    pub now: Duration,
    /// The rates are those of a whole window since the last change of the job.
    pub full: bool,
    /// Instances, capacities and offered rates. A capacity that is not known is infinite: the vertex is left as it is.
    pub graph: &'a FlowGraph,
    /// Rows that wait for each vertex.
    pub waiting: &'a [u64],
    /// The share of time that the most blocked instance of each vertex waits for room behind it.
    pub blocked: &'a [f64],
    /// How many more instances the agents have room for.
    pub room: u32,
}

/// What the automatic mode does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Stay,
    /// The job gets these instances, by vertex.
    Out {
        /// Of every vertex, afterwards.
        instances: Vec<u32>,
        /// In one sentence.
        why: String,
    },
    /// The job keeps these instances, by vertex.
    In {
        /// Of every vertex, afterwards.
        instances: Vec<u32>,
        /// In one sentence.
        why: String,
    },
    /// More is needed than there can be. It is said once, and again only after it was not so.
    AtLimit {
        /// In one sentence.
        why: String,
    },
}

/// What one action added to a vertex, to see later whether it was of use.
#[derive(Debug, Clone, Copy)]
struct Added {
    vertex: usize,
    before: f64,
    expected: f64,
}

/// The state of the automatic mode of one job.
#[derive(Debug, Clone)]
pub struct Auto {
    options: AutoOptions,
    /// Needs of every vertex in rows a second, and when; those of the last two cooldowns.
    needs: VecDeque<(Duration, Vec<f64>)>,
    since: Option<Duration>,
    acted: Option<Duration>,
    added: Vec<Added>,
    /// Vertices that more instances did not help, and the need at which they stood.
    useless: Vec<Option<f64>>,
    said: bool,
}

impl Auto {
    /// Nothing seen yet.
    pub fn new(options: AutoOptions) -> Self {
        Self {
            options,
            needs: VecDeque::new(),
            since: None,
            acted: None,
            added: Vec::new(),
            useless: Vec::new(),
            said: false,
        }
    }

    /// Somebody else changed the job: as an action of its own, it starts the cooldown.
    pub fn changed(&mut self, now: Duration) {
        self.acted = Some(now);
        self.added.clear();
        self.useless.iter_mut().for_each(|mark| *mark = None);
    }

    /// Decides. An answer with instances counts as done at this moment, whether or not that then succeeds.
    pub fn look(&mut self, look: &Look<'_>) -> Act {
        if !look.full {
            return Act::Stay;
        }
        let graph = look.graph;
        let needs = demand(graph, &graph.capacities(&graph.instances()));
        if self.useless.len() != graph.len() {
            *self = Self { useless: vec![None; graph.len()], acted: self.acted, ..Self::new(self.options) };
        }
        self.remember(look.now, &needs);
        self.weigh_added(look);
        if self.acted.is_some_and(|acted| look.now < acted + self.options.cooldown) {
            return Act::Stay;
        }
        match self.out(look, &needs) {
            Act::Stay => self.take(look),
            act => act,
        }
    }

    fn remember(&mut self, now: Duration, needs: &[f64]) {
        self.since.get_or_insert(now);
        self.needs.push_back((now, needs.to_vec()));
        while self.needs.front().is_some_and(|(at, _)| *at + 2 * self.options.cooldown < now) {
            self.needs.pop_front();
        }
    }

    /// With the first full window after an action: a vertex that hardly takes more than before is helped by no instance.
    fn weigh_added(&mut self, look: &Look<'_>) {
        for added in std::mem::take(&mut self.added) {
            let vertex = &look.graph.vertices()[added.vertex];
            let gained = total(vertex.instances, vertex.capacity) - added.before;
            if gained < self.options.useful * added.expected {
                self.useless[added.vertex] = Some(added.before);
            }
        }
    }

    /// The share of what its instances take that a vertex needs. Of a source that gives all it can that says nothing.
    fn used(graph: &FlowGraph, vertex: usize, need: f64) -> f64 {
        let open = graph.is_source(vertex) && graph.vertices()[vertex].offered.is_none();
        let FlowVertex { instances, capacity, .. } = graph.vertices()[vertex];
        if open || need <= 0.0 { 0.0 } else { need / total(instances, capacity) }
    }

    /// How many instances a vertex needs for so many rows a second.
    fn wanted(&self, graph: &FlowGraph, vertex: usize, need: f64) -> u32 {
        let open = graph.is_source(vertex) && graph.vertices()[vertex].offered.is_none();
        let vertex = &graph.vertices()[vertex];
        if open || vertex.capacity.is_infinite() {
            return vertex.instances;
        }
        // A cast of what is too large gives the most there is.
        ((need / (vertex.capacity * self.options.target) * (1.0 - EQUAL)).ceil() as u32).max(1)
    }

    fn out(&mut self, look: &Look<'_>, needs: &[f64]) -> Act {
        let graph = look.graph;
        let present = graph.instances();
        let use_of = |vertex: usize| Self::used(graph, vertex, needs[vertex]);
        let full: Vec<usize> =
            (0..graph.len()).filter(|vertex| use_of(*vertex) > self.options.high).collect();
        let Some(fullest) = full.iter().copied().max_by(|a, b| use_of(*a).total_cmp(&use_of(*b))) else {
            self.said = false;
            return Act::Stay;
        };
        let mut instances = present.clone();
        let mut held = Vec::new();
        for vertex in (0..graph.len()).filter(|vertex| use_of(*vertex) > self.options.target * (1.0 + EQUAL))
        {
            let most = graph.vertices()[vertex].max_instances.unwrap_or(u32::MAX);
            let id = &graph.vertices()[vertex].id;
            // A second's rows and those that wait: more instances than that find nothing to do.
            let rows = (needs[vertex] + look.waiting[vertex] as f64).ceil().max(1.0) as u32;
            let wanted = self.wanted(graph, vertex, needs[vertex]).min(rows);
            if let Some(took) = self.useless[vertex].filter(|_| full.contains(&vertex)) {
                held.push(format!("`{id}` took {took:.0} rows/s, and no more with more instances"));
            } else if present[vertex] >= most && wanted > most {
                held.push(format!("`{id}` may have no more than {most} instances"));
            } else {
                instances[vertex] = wanted.min(most).max(present[vertex]);
            }
        }
        let added: u32 = instances.iter().zip(&present).map(|(after, before)| after - before).sum();
        if added > look.room {
            held.push(format!(
                "{added} more instances are needed, and the agents have room for {}",
                look.room
            ));
            self.share_out(look, needs, &present, &mut instances);
        }
        if instances == present {
            let why = held.join("; ");
            if held.is_empty() || std::mem::replace(&mut self.said, true) {
                return Act::Stay;
            }
            return Act::AtLimit { why };
        }
        self.acted = Some(look.now);
        for (vertex, after) in
            instances.iter().enumerate().filter(|(vertex, after)| **after > present[*vertex])
        {
            let each = graph.vertices()[vertex].capacity;
            let before = total(present[vertex], each);
            self.added.push(Added { vertex, before, expected: total(*after, each) - before });
        }
        let id = &graph.vertices()[fullest].id;
        let percent = use_of(fullest) * 100.0;
        Act::Out { instances, why: format!("`{id}` needs {percent:.0} % of what its instances take") }
    }

    /// Deals the room there is: one by one to the vertex that lacks most.
    fn share_out(&self, look: &Look<'_>, needs: &[f64], present: &[u32], instances: &mut [u32]) {
        let wanted = instances.to_vec();
        instances.copy_from_slice(present);
        let lacks = |instances: &[u32], vertex: usize| {
            needs[vertex] / total(instances[vertex], look.graph.vertices()[vertex].capacity)
        };
        for _ in 0..look.room {
            let growing = (0..wanted.len()).filter(|vertex| instances[*vertex] < wanted[*vertex]);
            let next = growing.max_by(|a, b| lacks(instances, *a).total_cmp(&lacks(instances, *b)));
            let Some(vertex) = next else { break };
            instances[vertex] += 1;
        }
    }

    fn take(&mut self, look: &Look<'_>) -> Act {
        let calm = 2 * self.options.cooldown;
        let recently = |at: Option<Duration>| at.is_some_and(|at| look.now < at + calm);
        let graph = look.graph;
        let behind = |vertex: usize| {
            let takes = total(graph.vertices()[vertex].instances, graph.vertices()[vertex].capacity);
            look.waiting[vertex] as f64 > BEHIND_S * takes
        };
        if recently(self.since) || recently(self.acted) || (0..graph.len()).any(behind) {
            return Act::Stay;
        }
        let mut instances = graph.instances();
        let mut least: Option<(f64, usize)> = None;
        for vertex in (0..graph.len()).filter(|vertex| look.blocked[*vertex] <= HELD) {
            let peak = self.needs.iter().map(|(_, needs)| needs[vertex]).fold(0.0, f64::max);
            let present = instances[vertex];
            let used = Self::used(graph, vertex, peak);
            let keeps = (f64::from(present) * (1.0 - self.options.most_taken)).ceil().max(1.0) as u32;
            let wanted = self.wanted(graph, vertex, peak).max(keeps);
            if used < self.options.low && wanted < present {
                instances[vertex] = wanted;
                if least.is_none_or(|(share, _)| used < share) {
                    least = Some((used, vertex));
                }
            }
        }
        let Some((used, vertex)) = least else { return Act::Stay };
        self.acted = Some(look.now);
        self.useless.iter_mut().for_each(|mark| *mark = None);
        let id = &graph.vertices()[vertex].id;
        let seconds = calm.as_secs();
        let percent = used * 100.0;
        Act::In {
            instances,
            why: format!("`{id}` needed at most {percent:.0} % of its instances for {seconds} s"),
        }
    }
}

#[cfg(test)]
mod tests;
