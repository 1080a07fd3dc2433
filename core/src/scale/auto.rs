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
//! * nothing is done by a capacity that is ten times what it was a look before, or a tenth, before a second look agrees;
//! * what cannot be done is said once, until it can be (26); what was tried and failed is tried again ever more seldom.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fluid::{EQUAL, demand};
use super::graph::{FlowGraph, FlowVertex, total};
use super::limit::{BEHIND_S, HELD};
use super::rates::WindowOptions;

/// How the automatic mode decides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AutoOptions {
    /// At least so long from one action to the next.
    pub cooldown: Duration,
    /// It looks at means over so long, all of it since the last change.
    pub window: Duration,
    /// The most instances that a vertex gets. `None`: as many as all agents that take instances have slots.
    pub most: Option<u32>,
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
            window: Duration::from_secs(10),
            most: None,
            target: 0.7,
            high: 0.9,
            low: 0.45,
            most_taken: 0.6,
            useful: 0.1,
        }
    }
}

impl AutoOptions {
    /// Numbers that it can work with.
    ///
    /// # Errors
    /// In one sentence, which one is none.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, given: Duration, least: u64, most: u64| {
            let fits = (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&given);
            let said = || format!("a {what} of {} s: it must be {least} to {most} s", given.as_secs_f64());
            if fits { Ok(()) } else { Err(said()) }
        };
        within("cooldown", self.cooldown, 1, 86_400)?;
        within("window", self.window, 2, WindowOptions::default().history.as_secs())?;
        if !(0.5..=0.85).contains(&self.target) {
            return Err(format!("a target of {}: it must be 0.5 to 0.85", self.target));
        }
        match self.most {
            Some(0) => Err("at most 0 instances of a vertex: it must be 1 or more".to_owned()),
            _ => Ok(()),
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
    /// How few and how many instances each vertex may have.
    pub bounds: &'a [Bound],
}

/// How few and how many instances a vertex may have. One that has fewer or more keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The fewest.
    pub least: u32,
    /// The most.
    pub most: u32,
    /// Why no more than the most, in words that follow a colon.
    pub why: String,
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Added {
    vertex: usize,
    before: f64,
    expected: f64,
    /// So many instances it was to have.
    #[serde(default)]
    instances: u32,
}

/// What must outlive whoever runs the automatic mode: without it the next one would act too soon, or say again what was
/// said. Needs are not of it; they are seen anew, and until then nothing is taken away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// When something was done last, by the clock of [`Look::now`].
    acted: Option<Duration>,
    added: Vec<Added>,
    /// Vertices that more instances did not help, and the need at which they stood.
    useless: Vec<Option<f64>>,
    /// That it is at its limit was said, and is so still.
    said: bool,
    /// Actions in a row that came to nothing.
    failures: u32,
}

impl Memory {
    /// When the job was changed last, by the clock of [`Look::now`].
    pub fn acted(&self) -> Option<Duration> {
        self.acted
    }

    /// That alone.
    #[must_use]
    pub fn cooldown_alone(&self) -> Self {
        Self { acted: self.acted, ..Self::default() }
    }
}

/// After so many failures in a row the time to the next attempt does not grow any more: 32 cooldowns.
const PATIENCE: u32 = 5;

/// A capacity that changes by more than this factor from one look to the next is not believed at once: on a machine that stood
/// still, an instance seems to have worked all the time.
const BELIEVED: f64 = 10.0;

/// The state of the automatic mode of one job.
#[derive(Debug, Clone)]
pub struct Auto {
    options: AutoOptions,
    /// Needs of every vertex in rows a second, and when; those of the last two cooldowns.
    needs: VecDeque<(Duration, Vec<f64>)>,
    since: Option<Duration>,
    /// Of one instance of each vertex, as it was at the last look.
    capacities: Vec<f64>,
    memory: Memory,
    thought: String,
}

impl Auto {
    /// Nothing seen yet.
    pub fn new(options: AutoOptions) -> Self {
        Self::resumed(options, Memory::default(), Duration::MAX)
    }

    /// Goes on where another one was. A memory of a later time than now is one of a clock that was set back: it counts
    /// as of now.
    pub fn resumed(options: AutoOptions, memory: Memory, now: Duration) -> Self {
        let acted = memory.acted.map(|acted| acted.min(now));
        let memory = Memory { acted, ..memory };
        Self {
            options,
            needs: VecDeque::new(),
            since: None,
            capacities: Vec::new(),
            memory,
            thought: "nothing was seen yet".to_owned(),
        }
    }

    /// What must be kept of it.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What it made of the last look, in one sentence.
    pub fn thought(&self) -> &str {
        &self.thought
    }

    /// There was nothing to look at.
    pub fn unseen(&mut self, why: &str) {
        self.thought = format!("it cannot look: {why}");
    }

    /// Somebody else changed the job: as an action of its own, it starts the cooldown.
    pub fn changed(&mut self, now: Duration) {
        let useless = vec![None; self.memory.useless.len()];
        self.memory = Memory { acted: Some(now), useless, said: self.memory.said, ..Memory::default() };
    }

    /// A row costs something else from now on: what instances took before says nothing of what more of them bring.
    pub fn costs_changed(&mut self) {
        self.memory.added.clear();
        self.memory.useless.iter_mut().for_each(|mark| *mark = None);
    }

    /// What it wanted came to nothing: it was refused, or could not be carried out.
    pub fn failed(&mut self) {
        self.memory.added.clear();
        self.memory.failures = self.memory.failures.saturating_add(1);
    }

    /// What it wanted could not be begun at this moment: all is as before that look.
    pub fn postponed(&mut self, before: Memory) {
        self.memory = before;
    }

    /// What it wanted was done.
    pub fn succeeded(&mut self) {
        self.memory.failures = 0;
    }

    /// Decides. An answer with instances counts as done at this moment, whether or not that then succeeds.
    pub fn look(&mut self, look: &Look<'_>) -> Act {
        if !look.full {
            "it waits until a whole window has passed since the last change".clone_into(&mut self.thought);
            return Act::Stay;
        }
        let graph = look.graph;
        let needs = demand(graph, &graph.capacities(&graph.instances()));
        if self.memory.useless.len() != graph.len() {
            let useless = vec![None; graph.len()];
            self.memory = Memory { useless, added: Vec::new(), ..self.memory.clone() };
            self.needs.clear();
        }
        if let Some(doubt) = self.doubted(graph) {
            self.thought = doubt;
            return Act::Stay;
        }
        self.remember(look.now, &needs);
        self.weigh_added(look);
        if let Some(left) = self.memory.acted.and_then(|acted| (acted + self.pause()).checked_sub(look.now))
            && !left.is_zero()
        {
            self.thought = format!("{} s of the cooldown are left", left.as_secs_f64().ceil());
            return Act::Stay;
        }
        match self.out(look, &needs) {
            Act::Stay => self.take(look),
            act => act,
        }
    }

    /// Which vertex seems to take so much more or less than at the last look that a second one has to agree, in one sentence.
    fn doubted(&mut self, graph: &FlowGraph) -> Option<String> {
        let now = graph.vertices().iter().map(|vertex| vertex.capacity).collect();
        let before: Vec<f64> = std::mem::replace(&mut self.capacities, now);
        let known = |rate: f64| rate.is_finite() && rate > 0.0;
        let jumped = |(before, now): &(&f64, &FlowVertex)| {
            let factor = now.capacity / **before;
            known(**before) && known(now.capacity) && !(1.0 / BELIEVED..=BELIEVED).contains(&factor)
        };
        if before.len() != graph.len() {
            return None;
        }
        let (before, vertex) = before.iter().zip(graph.vertices()).find(jumped)?;
        Some(format!(
            "it looks again: an instance of `{}` seems to take {:.0} rows/s, and took {before:.0} a look ago",
            vertex.id, vertex.capacity
        ))
    }

    /// From one action to the next.
    fn pause(&self) -> Duration {
        self.options.cooldown.saturating_mul(1 << self.memory.failures.min(PATIENCE))
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
        for added in std::mem::take(&mut self.memory.added) {
            let vertex = &look.graph.vertices()[added.vertex];
            if vertex.instances < added.instances {
                // They have not come: nothing is known of their use.
                continue;
            }
            let gained = total(vertex.instances, vertex.capacity) - added.before;
            if gained < self.options.useful * added.expected {
                self.memory.useless[added.vertex] = Some(added.before);
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
        let fullest = (0..graph.len()).max_by(|a, b| use_of(*a).total_cmp(&use_of(*b)));
        let Some(fullest) = fullest.filter(|vertex| full.contains(vertex)) else {
            self.memory.said = false;
            self.thought = match fullest.filter(|vertex| use_of(*vertex) > 0.0) {
                Some(vertex) => format!("all is well: {}", needs_share(graph, vertex, use_of(vertex))),
                None => "all is well: nothing is asked of any vertex".to_owned(),
            };
            return Act::Stay;
        };
        let mut instances = present.clone();
        let mut held = Vec::new();
        for vertex in (0..graph.len()).filter(|vertex| use_of(*vertex) > self.options.target * (1.0 + EQUAL))
        {
            let Bound { most, why, .. } = &look.bounds[vertex];
            let most = graph.vertices()[vertex].max_instances.unwrap_or(u32::MAX).min(*most);
            let id = &graph.vertices()[vertex].id;
            // A second's rows and those that wait: more instances than that find nothing to do.
            let rows = (needs[vertex] + look.waiting[vertex] as f64).ceil().max(1.0) as u32;
            let wanted = self.wanted(graph, vertex, needs[vertex]).min(rows);
            if let Some(took) = self.memory.useless[vertex].filter(|_| full.contains(&vertex)) {
                held.push(format!("`{id}` took {took:.0} rows/s, and no more with more instances"));
            } else if present[vertex] >= most && wanted > most {
                held.push(format!("`{id}` has {} instances and needs {wanted}: {why}", present[vertex]));
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
            Self::share_out(look, needs, &present, &mut instances);
        }
        if instances == present {
            let why = held.join("; ");
            if held.is_empty() {
                self.thought = format!(
                    "no more instances are needed, though {}",
                    needs_share(graph, fullest, use_of(fullest))
                );
                return Act::Stay;
            }
            self.thought = format!("at its limit: {why}");
            if std::mem::replace(&mut self.memory.said, true) {
                return Act::Stay;
            }
            return Act::AtLimit { why };
        }
        self.memory.acted = Some(look.now);
        for (vertex, after) in
            instances.iter().enumerate().filter(|(vertex, after)| **after > present[*vertex])
        {
            let each = graph.vertices()[vertex].capacity;
            let before = total(present[vertex], each);
            self.memory.added.push(Added {
                vertex,
                before,
                expected: total(*after, each) - before,
                instances: *after,
            });
        }
        let why = needs_share(graph, fullest, use_of(fullest));
        self.thought = format!("more: {why}");
        Act::Out { instances, why }
    }

    /// Deals the room there is: one by one to the vertex that lacks most.
    fn share_out(look: &Look<'_>, needs: &[f64], present: &[u32], instances: &mut [u32]) {
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
            let FlowVertex { instances, capacity, .. } = graph.vertices()[vertex];
            // What a vertex takes that works on one row all the time is not known.
            let takes = if capacity.is_infinite() { 0.0 } else { total(instances, capacity) };
            look.waiting[vertex] as f64 > BEHIND_S * takes
        };
        if recently(self.since) || recently(self.memory.acted) || (0..graph.len()).any(behind) {
            return Act::Stay;
        }
        let mut instances = graph.instances();
        let mut least: Option<(f64, usize)> = None;
        for vertex in (0..graph.len()).filter(|vertex| look.blocked[*vertex] <= HELD) {
            let peak = self.needs.iter().map(|(_, needs)| needs[vertex]).fold(0.0, f64::max);
            let present = instances[vertex];
            let used = Self::used(graph, vertex, peak);
            let keeps = (f64::from(present) * (1.0 - self.options.most_taken)).ceil().max(1.0) as u32;
            // Of what gets nothing it need not be known what it could take.
            let needed = if peak > 0.0 { self.wanted(graph, vertex, peak) } else { 1 };
            let wanted = needed.max(keeps).max(look.bounds[vertex].least);
            if used < self.options.low && wanted < present {
                instances[vertex] = wanted;
                if least.is_none_or(|(share, _)| used < share) {
                    least = Some((used, vertex));
                }
            }
        }
        let Some((used, vertex)) = least else { return Act::Stay };
        self.memory.acted = Some(look.now);
        self.memory.useless.iter_mut().for_each(|mark| *mark = None);
        let id = &graph.vertices()[vertex].id;
        let seconds = calm.as_secs();
        let percent = used * 100.0;
        let why = format!("`{id}` needed at most {percent:.0} % of its instances for {seconds} s");
        self.thought = format!("fewer: {why}");
        Act::In { instances, why }
    }
}

fn needs_share(graph: &FlowGraph, vertex: usize, share: f64) -> String {
    format!("`{}` needs {:.0} % of what its instances take", graph.vertices()[vertex].id, share * 100.0)
}

#[cfg(test)]
mod tests;
