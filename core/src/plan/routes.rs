//! `[[route]]`: entries find their edges, and a policy its choice of targets.

use super::attach::check_choice;
use super::dag::{Dag, EdgeId, VertexId};
use super::error::{Kind, PlanError};
use crate::fault::{At, Fault, suggestion};
use crate::job::{Job, RouteEntry};

/// Puts each `[[route]]` entry on its edge.
pub(super) fn apply(dag: &mut Dag, job: &Job) -> Result<(), PlanError> {
    let mut done: Vec<EdgeId> = Vec::new();
    for entry in &job.routes {
        let id = dag.find_edge(&entry.edge.value).map_err(|mut fault| {
            fault.at = entry.edge.at;
            PlanError::new(Kind::Route, fault)
        })?;
        let name = dag.edge_name(id);
        if done.contains(&id) {
            let message = format!("a second route entry for {name}");
            return Err(PlanError::at(Kind::Route, entry.edge.at, message).help("keep one of them"));
        }
        done.push(id);
        put(dag, id, entry, &name)?;
    }
    Ok(())
}

fn put(dag: &mut Dag, id: EdgeId, entry: &RouteEntry, name: &str) -> Result<(), PlanError> {
    let edge = &mut dag.edges[id.0 as usize];
    if let (Some(policy), Some(rebalance)) = (&edge.route.policy, &edge.rebalance) {
        let message =
            format!("{name} has the policy `{}` from rebalance `{}`", policy.value, rebalance.stage);
        return Err(
            PlanError::at(Kind::Route, entry.edge.at, message).help("set it in one of the two places")
        );
    }
    check_choice(&entry.route, &edge.routing, name)?;
    edge.route = entry.route.clone();
    Ok(())
}

/// A sentence for each edge whose policy is not among the known ones.
pub fn unsupported_policies(dag: &Dag, known: &[&str]) -> Vec<Fault> {
    let ids = (0..dag.edges.len() as u32).map(EdgeId);
    ids.filter_map(|id| {
        let policy = dag.edge(id).route.policy.as_ref()?;
        if known.contains(&policy.value.as_str()) {
            return None;
        }
        let fault =
            Fault::new(policy.at, format!("no policy `{}` here, for {}", policy.value, dag.edge_name(id)));
        Some(match suggestion(&policy.value, known.iter().copied()) {
            Some(close) => fault.help(format!("did you mean `{close}`?")),
            None => fault.help(format!("known: {}", known.join(", "))),
        })
    })
    .collect()
}

impl Dag {
    /// The edge that a person names: `from..to` by labels, derived names or stage ids, each with
    /// `:ordinal` where several edges join the two.
    pub fn find_edge(&self, name: &str) -> Result<EdgeId, Fault> {
        let fault = |message: String| Fault::new(At::default(), message);
        let Some((from, to)) = name.split_once("..") else {
            return Err(self.not_an_edge(name));
        };
        let exact = self.matching(|v| self.answers_exactly(v, from, to));
        let hits =
            if exact.is_empty() { self.matching(|v| self.answers_loosely(v, from, to)) } else { exact };
        match hits[..] {
            [id] => Ok(id),
            [] => Err(self.unknown_edge(name, fault(format!("there is no edge `{name}`")))),
            _ => {
                let names: Vec<_> = hits.iter().map(|&id| self.edge_name(id)).collect();
                Err(fault(format!("`{name}` is more than one edge"))
                    .help(format!("one of {}", names.join(", "))))
            }
        }
    }

    /// A name without `..`: the edge that a rebalance of this name made, and otherwise those there are.
    fn not_an_edge(&self, name: &str) -> Fault {
        let fault = Fault::new(At::default(), format!("`{name}` is not an edge"));
        let made =
            self.matching(|id| self.edge(id).rebalance.as_ref().is_some_and(|made| made.stage == name));
        if let [id] = made[..] {
            return fault.help(format!("the rebalance `{name}` made the edge {}", self.edge_name(id)));
        }
        let names: Vec<String> = (0..self.edges.len() as u32).map(|id| self.edge_name(EdgeId(id))).collect();
        fault.help(format!("an edge is written `from..to`, by stage ids: {}", names.join(", ")))
    }

    fn matching(&self, test: impl Fn(EdgeId) -> bool) -> Vec<EdgeId> {
        (0..self.edges.len() as u32).map(EdgeId).filter(|&id| test(id)).collect()
    }

    fn answers_exactly(&self, id: EdgeId, from: &str, to: &str) -> bool {
        let edge = self.edge(id);
        let is =
            |v: VertexId| move |name: &str| self.vertex(v).label() == name || self.vertex(v).name == name;
        names_end(from, edge.from_ordinal, is(edge.from)) && names_end(to, edge.ordinal, is(edge.to))
    }

    /// By any stage of a fused vertex, a peek, or the view that the consumer reads. The edge
    /// between the two vertices of one stage goes by their labels only.
    fn answers_loosely(&self, id: EdgeId, from: &str, to: &str) -> bool {
        let edge = self.edge(id);
        let (source, target) = (self.vertex(edge.from), self.vertex(edge.to));
        let from_is = |name: &str| {
            let ids = source.stages.iter().chain(&source.peeks).chain(&edge.via);
            source.label() == name || source.name == name || ids.into_iter().any(|id| id == name)
        };
        let to_is = |name: &str| {
            target.label() == name || target.name == name || target.stages.iter().any(|id| id == name)
        };
        source.stages != target.stages
            && names_end(from, edge.from_ordinal, from_is)
            && names_end(to, edge.ordinal, to_is)
    }

    fn unknown_edge(&self, name: &str, fault: Fault) -> Fault {
        let names: Vec<String> = (0..self.edges.len() as u32).map(|i| self.edge_name(EdgeId(i))).collect();
        match suggestion(name, names.iter().map(String::as_str)) {
            Some(close) => fault.help(format!("did you mean `{close}`?")),
            None => fault.help(format!("edges: {}", names.join(", "))),
        }
    }
}

/// Whether `name` or `name:ordinal` names an end of an edge.
fn names_end(text: &str, ordinal: u32, is: impl Fn(&str) -> bool) -> bool {
    is(text) || text.rsplit_once(':').is_some_and(|(name, n)| n.parse() == Ok(ordinal) && is(name))
}
