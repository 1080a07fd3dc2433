//! Edges: what the consumer asks for, then what a rebalance on that input changes.

use super::build::Builder;
use super::dag::{Edge, Key, Note, Partitioner, RebalanceEffect, Routing, VertexId};
use super::error::{Kind, PlanError};
use super::graph::{Flag, Input};
use crate::fault::Spanned;
use crate::job::{Route, Text};

/// What the consumer itself asks of an edge.
pub(super) struct Ask {
    pub(super) routing: Routing,
    pub(super) distributed: bool,
    pub(super) priority: i32,
    pub(super) ordered: bool,
    pub(super) why: String,
}

impl Ask {
    pub(super) fn local(routing: Routing, why: impl Into<String>) -> Self {
        Self { routing, distributed: false, priority: 0, ordered: false, why: why.into() }
    }

    pub(super) fn distributed(routing: Routing, why: impl Into<String>) -> Self {
        Self { distributed: true, ..Self::local(routing, why) }
    }
}

/// What a rebalance on the input means to the consumer.
pub(super) enum Rule<'a> {
    /// The general rule.
    Applies,
    /// It has already changed the shape of the vertices, in these words.
    Reshaped(&'a str),
    /// It cannot change this edge, for this reason.
    Ignored(&'a str),
}

/// An edge after its rebalance.
struct Outcome {
    routing: Routing,
    distributed: bool,
    /// In words; empty if nothing changed.
    changed: String,
    /// Why the rebalance, or its key, has no effect.
    unused: Option<String>,
}

impl Builder<'_, '_> {
    /// An edge from an input's vertex, with the input's own rebalance applied.
    pub(super) fn attach(
        &mut self,
        input: &Input<'_>,
        to: VertexId,
        ordinal: u32,
        ask: Ask,
        rule: &Rule<'_>,
    ) -> Result<(), PlanError> {
        let from = self.output_of(input.from);
        let Some(flag) = input.flag else {
            self.edge(from, to, ordinal, ask, Route::default(), None);
            self.via(input);
            return Ok(());
        };
        let name = format!("{}..{}", self.dag.vertex(from).label(), self.dag.vertex(to).label());
        let done = outcome(flag, &name, &ask, rule)?;
        let id = &flag.stage.id;
        if let Some(unused) = done.unused {
            let what = if done.changed.is_empty() {
                format!("rebalance `{id}` has no effect on {name}")
            } else {
                format!("the key of rebalance `{id}` has no effect on {name}")
            };
            self.note(Spanned::new(format!("{what}: {unused}"), flag.stage.at), true);
        }
        let why = if done.changed.is_empty() {
            format!("{}; rebalance `{id}` changes nothing", ask.why)
        } else {
            format!("{}; rebalance `{id}`: {}", ask.why, done.changed)
        };
        let route = flag.rebalance.route.clone();
        check_choice(&route, &done.routing, &name)?;
        let effect = RebalanceEffect { stage: id.clone(), at: flag.stage.at, changed: done.changed };
        let ask = Ask { routing: done.routing, distributed: done.distributed, why, ..ask };
        self.edge(from, to, ordinal, ask, route, Some(effect));
        self.via(input);
        Ok(())
    }

    /// Notes on the newest edge which views it is read through.
    fn via(&mut self, input: &Input<'_>) {
        if let Some(edge) = self.dag.edges.last_mut() {
            edge.via = input.via.iter().map(|&id| id.to_owned()).collect();
        }
    }

    /// An edge without a view behind it.
    pub(super) fn edge(
        &mut self,
        from: VertexId,
        to: VertexId,
        ordinal: u32,
        ask: Ask,
        route: Route,
        rebalance: Option<RebalanceEffect>,
    ) {
        let from_ordinal = self.dag.edges.iter().filter(|e| e.from == from).count() as u32;
        self.dag.edges.push(Edge {
            from,
            from_ordinal,
            to,
            ordinal,
            routing: ask.routing,
            distributed: ask.distributed,
            priority: ask.priority,
            ordered: ask.ordered,
            spills: false,
            route,
            rebalance,
            via: Vec::new(),
            why: ask.why,
        });
    }

    pub(super) fn note(&mut self, text: Spanned<String>, no_effect: bool) {
        self.dag.notes.push(Note { text, no_effect, warns: no_effect });
    }
}

/// A key replaces the routing only where the consumer leaves a choice (unicast) or keeps order
/// (isolated); elsewhere a rebalance can only widen the edge to all agents.
fn outcome(flag: Flag<'_>, name: &str, ask: &Ask, rule: &Rule<'_>) -> Result<Outcome, PlanError> {
    let key = &flag.rebalance.key;
    let same = |unused: &str| Outcome {
        routing: ask.routing.clone(),
        distributed: ask.distributed,
        changed: String::new(),
        unused: Some(unused.to_owned()),
    };
    if let Rule::Ignored(reason) = rule {
        return Ok(same(reason));
    }
    match (&ask.routing, key.is_empty()) {
        (Routing::Unicast | Routing::Isolated, false) => {
            let before = if ask.routing == Routing::Isolated {
                "instead of in fixed pairs on one agent"
            } else {
                "instead of to any instance on the sender's agent"
            };
            Ok(Outcome {
                routing: by_key(key),
                distributed: true,
                changed: format!("rows go by {} to instances on all agents, {before}", words(key)),
                unused: None,
            })
        }
        (Routing::Isolated, true) => Err(PlanError::at_stage(
            Kind::IsolatedRebalance,
            flag.stage,
            format!("rebalance `{}` would break the order that {name} keeps: {}", flag.stage.id, ask.why),
        )
        .help("give the rebalance a `key`, or drop it")),
        (routing, _) => {
            let mut changed = match rule {
                Rule::Reshaped(words) => (*words).to_owned(),
                _ if ask.distributed => String::new(),
                _ => "targets are on all agents, not only on the sender's".to_owned(),
            };
            let unused = if changed.is_empty() {
                Some(ask.why.clone())
            } else if key.is_empty() || same_key(routing, key) {
                None
            } else {
                changed.push_str(", its key is not used");
                Some(ask.why.clone())
            };
            Ok(Outcome { routing: routing.clone(), distributed: true, changed, unused })
        }
    }
}

fn same_key(routing: &Routing, key: &[Text]) -> bool {
    let Routing::Partitioned { key: Key::Exprs(own), .. } = routing else { return false };
    own.iter().map(|t| &t.value).eq(key.iter().map(|t| &t.value))
}

/// A policy chooses among targets, so it needs a unicast edge.
pub(super) fn check_choice(route: &Route, routing: &Routing, name: &str) -> Result<(), PlanError> {
    let Some(policy) = &route.policy else { return Ok(()) };
    let reason = match routing {
        Routing::Unicast => return Ok(()),
        Routing::Isolated => "its rows stay in fixed pairs of instances, to keep order".to_owned(),
        Routing::Partitioned { key: Key::Exprs(key), .. } => {
            format!("each row's target follows from its key, {}", words(key))
        }
        Routing::Partitioned { .. } => "each row's target follows from its key".to_owned(),
        Routing::AllToOne => "all its rows go to one instance".to_owned(),
        Routing::Broadcast => "every target gets every row".to_owned(),
    };
    let message = format!("policy `{}` cannot stand on {name}: {reason}", policy.value);
    Err(PlanError::at(Kind::Route, policy.at, message).help("a policy needs an edge with a choice (unicast)"))
}

/// Partitioned by expressions, the ordinary way.
pub(super) fn by_key(key: &[Text]) -> Routing {
    Routing::Partitioned { key: Key::Exprs(key.to_vec()), partitioner: Partitioner::Default }
}

/// Expressions for a sentence.
pub(super) fn words(key: &[Text]) -> String {
    key.iter().map(|t| format!("`{}`", t.value)).collect::<Vec<_>>().join(", ")
}
