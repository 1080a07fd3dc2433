//! Stela's scale-out (Xu, Peng, Gupta: IC2E 2016), as its slides have it and as its authors' code does it.
//!
//! Both look at observed rates alone: an instance is taken to bring what one brings now, so that a vertex which has
//! little to do is thought to be slow (elasticity.md sections 1.4, 1.5; named failures in 2.1).

use super::simple::may_grow;
use super::{Ask, Plan, Planner, Refusal, slots_by_code};
use crate::scale::etp::{Reading, SinkRate, etp};
use crate::scale::graph::{FlowGraph, Rates};

/// The slides: in each round the congested vertex with the highest ETP gets one more; the first one of equals.
///
/// Projection: its own rates grow by one instance's part, and a vertex below that was not congested
/// is taken to process what then reaches it (the paper's "projected rates of all descendants").
/// With no congested vertex left the slides say nothing; the slot goes where the code has it go, to the first source.
#[derive(Debug, Clone, Copy)]
pub struct Stela;

/// The authors' code: the congested vertex with the highest `int(100 * ETP) / instances`, the last one of equals in the
/// order of the listing; a vertex at its most is passed over, and an ETP of 0 can be picked.
///
/// Sinks count with what they emit; without any, no instance is placed at all. Only the picked vertex's own rates are
/// projected. With no congested vertex left the first source gets the slot, whatever it does.
#[derive(Debug, Clone, Copy)]
pub struct StelaCode;

/// Why slots are left.
const FULL: &str = "neither a congested vertex nor the first source may have more instances";

/// What the planner believes, from round to round.
struct Belief<'a> {
    ask: &'a Ask<'a>,
    instances: Vec<u32>,
    rates: Vec<Rates>,
}

impl<'a> Belief<'a> {
    fn new(ask: &'a Ask<'a>) -> Self {
        Self { ask, instances: ask.graph.instances(), rates: ask.rates.clone() }
    }

    fn congested(&self) -> Vec<bool> {
        self.ask.congestion.find(self.ask.graph, &self.instances, &self.rates)
    }

    /// Congested vertices that may have one more instance.
    fn candidates(&self, congested: &[bool]) -> Vec<usize> {
        let may = |vertex: &usize| congested[*vertex] && may_grow(self.ask, &self.instances, *vertex);
        (0..congested.len()).filter(may).collect()
    }

    /// The first source, for a slot that no congested vertex gets. The code's counter of sources never moves
    /// on, and notes neither the source's rates nor its instances: these only keep it from its most.
    fn source(&mut self) -> Option<(usize, String)> {
        let graph = self.ask.graph;
        let source = (0..graph.len()).find(|vertex| graph.is_source(*vertex))?;
        may_grow(self.ask, &self.instances, source).then(|| {
            self.instances[source] += 1;
            (source, "is the first source, and no vertex that may grow is congested".to_owned())
        })
    }

    /// With `k` instances, one more brings another k-th; then what reaches the others is what is sent to them.
    fn project(&mut self, vertex: usize, congested: &[bool], below_too: bool) {
        let k = f64::from(self.instances[vertex]);
        self.instances[vertex] += 1;
        let graph = self.ask.graph;
        let grow = |rates: &mut Rates, factor: f64| {
            rates.processed *= factor;
            rates.emitted *= factor;
        };
        if k > 0.0 {
            grow(&mut self.rates[vertex], (k + 1.0) / k);
        }
        for below in graph.order().iter().copied().filter(|below| !graph.is_source(*below)) {
            let reaches = arrives(graph, &self.rates, below);
            let had = self.rates[below].input;
            if below_too && below != vertex && !congested[below] && had > 0.0 {
                grow(&mut self.rates[below], reaches / had);
            }
            self.rates[below].input = reaches;
        }
    }
}

/// What is sent to a vertex.
fn arrives(graph: &FlowGraph, rates: &[Rates], vertex: usize) -> f64 {
    graph.inputs(vertex).map(|edge| rates[edge.from].processed * edge.selectivity).sum()
}

fn why(belief: &Belief<'_>, vertex: usize, share: f64, rule: &str) -> String {
    let Rates { input, processed, .. } = belief.rates[vertex];
    format!(
        "is congested ({} rows/s reach it, it takes {}) and has {rule}, {:.0} %",
        super::explain::rows(input),
        super::explain::rows(processed),
        share * 100.0
    )
}

impl Planner for Stela {
    fn name(&self) -> &'static str {
        "stela"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let mut belief = Belief::new(ask);
        let mut picks = Vec::new();
        while picks.len() < ask.slots as usize {
            let congested = belief.congested();
            let candidates = belief.candidates(&congested);
            let shares = etp(ask.graph, &belief.rates, &congested, Reading::Path, SinkRate::Processed)
                .map_err(|none| Refusal(none.to_string()))?;
            let highest = candidates
                .into_iter()
                .reduce(|best, next| if shares[next] > shares[best] { next } else { best });
            let Some(vertex) = highest else {
                let Some(source) = belief.source() else { break };
                picks.push(source);
                continue;
            };
            picks.push((vertex, why(&belief, vertex, shares[vertex], "the highest ETP")));
            belief.project(vertex, &congested, true);
        }
        Ok(Plan::of(self.name(), ask, picks, FULL))
    }
}

impl Planner for StelaCode {
    fn name(&self) -> &'static str {
        "stela-code"
    }

    fn slots(&self, new_machines: u32, instances: u32, machines: u32) -> u32 {
        slots_by_code(new_machines, instances, machines)
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let mut belief = Belief::new(ask);
        let mut picks = Vec::new();
        let mut left = FULL.to_owned();
        while picks.len() < ask.slots as usize {
            let congested = belief.congested();
            let shares = match etp(ask.graph, &belief.rates, &congested, Reading::Path, SinkRate::Emitted) {
                Ok(shares) => shares,
                Err(none) => {
                    left = format!("{none}, so the round is skipped");
                    break;
                }
            };
            let rank =
                |vertex: usize| (100.0 * shares[vertex]).trunc() / f64::from(belief.instances[vertex].max(1));
            let highest = belief
                .candidates(&congested)
                .into_iter()
                .reduce(|best, next| if rank(next) >= rank(best) { next } else { best });
            if let Some(vertex) = highest {
                let rule = "the highest ETP for each instance it has";
                picks.push((vertex, why(&belief, vertex, shares[vertex], rule)));
                belief.project(vertex, &congested, false);
                continue;
            }
            let Some(source) = belief.source() else { break };
            picks.push(source);
        }
        Ok(Plan::of(self.name(), ask, picks, left))
    }
}
