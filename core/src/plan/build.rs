//! Planning: transforms become vertices with inbound edges, each op by its own shape.

use std::collections::HashMap;

use super::attach::{Ask, Rule, by_key, words};
use super::dag::{Dag, Key, Note, Parallelism, Partitioner, Role, Routing, Vertex, VertexId};
use super::error::{Kind, PlanError};
use super::graph::{Graph, Transform, read};
use super::{ahead, fuse, grow, placement, routes, whole};
use crate::fault::Spanned;
use crate::job::{Job, Op, Route, Sink, SinkKind, Source, Stage, Text, Timestamps, WindowKind};

/// Plans a job: a function of the job alone, which it does not change.
pub fn plan(job: &Job) -> Result<Dag, PlanError> {
    let graph = read(job)?;
    whole::complete(&graph)?;
    let mut builder = Builder {
        graph: &graph,
        dag: Dag { notes: graph.notes.clone(), watermark_stride: whole::stride(&graph), ..Dag::default() },
        outputs: vec![None; graph.transforms.len()],
        owners: HashMap::new(),
    };
    for chain in fuse::chains(&graph) {
        builder.chain(&chain)?;
    }
    let mut dag = builder.dag;
    dag.edges.sort_by_key(|e| (e.to, e.ordinal));
    whole::spread_over_agents(&mut dag, job)?;
    routes::apply(&mut dag, job)?;
    whole::let_waiting_rows_spill(&mut dag);
    ahead::check(&dag, job)?;
    grow::note(&mut dag, job);
    placement::check_fewest(&dag, job).map_err(|fault| PlanError::new(Kind::Option, fault))?;
    Ok(dag)
}

pub(super) struct Builder<'g, 'a> {
    graph: &'g Graph<'a>,
    pub(super) dag: Dag,
    /// The vertex that each transform's rows leave from.
    outputs: Vec<Option<VertexId>>,
    /// Which stage made a vertex of this name.
    owners: HashMap<String, &'a Stage>,
}

/// A vertex to be.
struct New {
    name: String,
    role: Role,
    parallelism: Parallelism,
}

impl<'a> Builder<'_, 'a> {
    fn chain(&mut self, chain: &[usize]) -> Result<(), PlanError> {
        let graph = self.graph;
        let head = &graph.transforms[chain[0]];
        let output = match &head.stage.op {
            Op::Source(source) => self.source(head, source)?,
            Op::Map { .. } | Op::Filter { .. } | Op::FlatMap { .. } => self.stateless(chain)?,
            Op::Merge => self.merge(head)?,
            Op::UsingService(s) => {
                let preferred = s.preferred_parallelism.or((!s.cooperative).then_some(2));
                self.operator(head, preferred)?
            }
            Op::CustomTransform { preferred_parallelism, .. } => {
                self.operator(head, *preferred_parallelism)?
            }
            Op::Work(_) => self.operator(head, None)?,
            Op::Stateful { .. } | Op::RollingAggregate { .. } => self.stateful(head)?,
            Op::Aggregate { combine, .. } | Op::CoAggregate { combine, .. } => {
                self.aggregate(head, *combine)?
            }
            Op::HashJoin { .. } => self.hash_join(head)?,
            Op::Distinct { key } => self.distinct(head, key)?,
            Op::Sort { .. } => self.sort(head)?,
            Op::AddTimestamps { .. } => self.add_timestamps(head)?,
            Op::Sink(sink) => self.sink(head, sink)?,
            Op::Peek { .. } => self.peek(head),
            // Views: the graph has none.
            Op::Rebalance(_) | Op::GroupBy { .. } | Op::Window(_) => return Ok(()),
        };
        for &transform in chain {
            self.outputs[transform] = Some(output);
        }
        Ok(())
    }

    /// Inputs come before their readers, so the vertex is there.
    pub(super) fn output_of(&self, transform: usize) -> VertexId {
        self.outputs[transform].expect("a transform is built after its inputs")
    }

    fn vertex(&mut self, of: &[&Transform<'a>], new: New) -> Result<VertexId, PlanError> {
        let stage = of[0].stage;
        if let Some(other) = self.owners.insert(new.name.clone(), stage) {
            let message = format!(
                "stages `{}` and `{}` would both make a vertex called `{}`",
                other.id, stage.id, new.name
            );
            return Err(
                PlanError::at_stage(Kind::NameInUse, stage, message).help("give one of them another `name`")
            );
        }
        let stages = of.iter().map(|t| t.stage.id.clone()).collect();
        let keys = of[0].inputs.iter().map(|i| i.group.map(<[Text]>::to_vec).unwrap_or_default()).collect();
        let time = match &stage.op {
            Op::Source(source) => source
                .time
                .clone()
                .filter(|_| (source.timestamps == Timestamps::Source) == (new.role == Role::Timestamps)),
            Op::AddTimestamps { time } => time.clone(),
            _ => None,
        };
        self.dag.vertices.push(Vertex {
            time,
            name: new.name,
            stages,
            role: new.role,
            parallelism: new.parallelism,
            keys,
            window: of[0].window.cloned(),
            peeks: Vec::new(),
        });
        Ok(VertexId(self.dag.vertices.len() as u32 - 1))
    }

    // Parallelism

    fn own(&self, t: &Transform<'_>, preferred: Option<u32>) -> Parallelism {
        let default = self.graph.job.options.default_parallelism;
        match (t.instances, t.parallelism, preferred, default) {
            (Some(n), ..) => Parallelism::Total(n),
            (None, Some(n), ..) => Parallelism::PerAgent(n),
            (None, None, Some(n), Some(default)) => Parallelism::PerAgent(n.min(default)),
            (None, None, Some(1), None) => Parallelism::PerAgent(1),
            (None, None, Some(n), None) => Parallelism::DefaultUpTo(n),
            (None, None, None, Some(default)) => Parallelism::PerAgent(default),
            (None, None, None, None) => Parallelism::Default,
        }
    }

    /// Where the job keeps order, no more instances than any input has.
    fn matched(&self, t: &Transform<'_>, own: Parallelism) -> Parallelism {
        if !self.keeps_order() {
            return own;
        }
        t.inputs.iter().fold(own, |lp, i| lp.capped(self.dag.vertex(self.output_of(i.from)).parallelism))
    }

    fn keeps_order(&self) -> bool {
        self.graph.job.options.preserve_order
    }

    /// One instance in the cluster, whatever the stage says.
    fn one(&mut self, t: &Transform<'_>, why: &str) -> Parallelism {
        if t.instances.or(t.parallelism).is_some_and(|n| n > 1) {
            let option = if t.instances.is_some() { "instances" } else { "parallelism" };
            let text = format!("`{option}` of `{}` has no effect: {why}", t.stage.id);
            self.note(Spanned::new(text, t.stage.at), true);
        }
        Parallelism::One
    }

    // Shapes

    fn source(&mut self, t: &Transform<'a>, source: &Source) -> Result<VertexId, PlanError> {
        let parallelism = if source.distributed {
            self.own(t, None)
        } else {
            self.one(t, "it is not distributed, so one instance in the cluster reads it");
            Parallelism::OneProduces(t.parallelism.unwrap_or(1))
        };
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        // With `time` alone the source stamps its own rows.
        if source.timestamps != Timestamps::Source {
            return Ok(id);
        }
        let name = format!("{}-add-timestamps", t.name);
        let stamped = self.vertex(&[t], New { name, role: Role::Timestamps, parallelism })?;
        let why = "event times are assigned in each source instance's own order";
        self.edge(id, stamped, 0, Ask::local(Routing::Isolated, why), Route::default(), None);
        Ok(stamped)
    }

    /// What a stateless consumer asks: any instance, or fixed pairs where order is kept.
    fn any(&self, t: &Transform<'_>) -> Ask {
        if self.keeps_order() {
            Ask::local(
                Routing::Isolated,
                "the job keeps order (preserve_order), so rows stay in fixed pairs of instances",
            )
        } else {
            Ask::local(Routing::Unicast, format!("any instance of `{}` can take any row", t.stage.id))
        }
    }

    fn stateless(&mut self, chain: &[usize]) -> Result<VertexId, PlanError> {
        let graph = self.graph;
        let of: Vec<&Transform<'a>> = chain.iter().map(|&t| &graph.transforms[t]).collect();
        let name = match &of[..] {
            [only] => only.name.clone(),
            many => format!("fused({})", many.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", ")),
        };
        let parallelism = self.matched(of[0], self.own(of[0], None));
        let id = self.vertex(&of, New { name, role: Role::Whole, parallelism })?;
        self.attach(&of[0].inputs[0], id, 0, self.any(of[0]), &Rule::Applies)?;
        Ok(id)
    }

    fn merge(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let parallelism = self.matched(t, self.own(t, None));
        let role = t.merge_step.map_or(Role::Whole, |step| Role::Merge { step });
        let id = self.vertex(&[t], New { name: t.name.clone(), role, parallelism })?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            self.attach(input, id, ordinal, self.any(t), &Rule::Applies)?;
        }
        Ok(id)
    }

    /// Services and custom operators: by key if grouped, and of matched parallelism either way.
    fn operator(&mut self, t: &Transform<'a>, preferred: Option<u32>) -> Result<VertexId, PlanError> {
        let parallelism = self.matched(t, self.own(t, preferred));
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        let input = &t.inputs[0];
        let ask = match input.group {
            Some(key) => Ask::distributed(by_key(key), together(t, key)),
            None => self.any(t),
        };
        self.attach(input, id, 0, ask, &Rule::Applies)?;
        Ok(id)
    }

    fn stateful(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let input = &t.inputs[0];
        let (parallelism, ask) = if let Some(key) = input.group {
            let why = format!(
                "`{}` keeps state by {}, so rows of a key go to the instance that holds it",
                t.stage.id,
                words(key)
            );
            (self.own(t, None), Ask::distributed(by_key(key), why))
        } else {
            let why =
                format!("`{}` keeps one state for all rows, so they all go to one instance", t.stage.id);
            (self.one(t, "it keeps one state for all rows"), Ask::distributed(Routing::AllToOne, why))
        };
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        self.attach(input, id, 0, ask, &Rule::Applies)?;
        Ok(id)
    }

    fn aggregate(&mut self, t: &Transform<'a>, combine: bool) -> Result<VertexId, PlanError> {
        let whole = match (t.window, combine) {
            (_, false) => Some("its partial results cannot be merged"),
            (Some(w), _) if w.kind == WindowKind::Session => Some("sessions cannot be found in parts"),
            (Some(w), _) if w.early.is_some_and(|early| !early.is_zero()) => {
                Some("early results need the whole window in one place")
            }
            _ => None,
        };
        match (t.is_keyed(), whole) {
            (true, Some(why)) => self.by_key_in_one(t, why, &Rule::Applies),
            (true, None) if t.is_flagged() => {
                let why = "an input is rebalanced, so a first stage on each agent would gain nothing";
                let reshaped = "one aggregation stage over all agents instead of two";
                self.by_key_in_one(t, why, &Rule::Reshaped(reshaped))
            }
            (true, None) => self.by_key_in_two(t),
            (false, Some(why)) => self.global_in_one(t, why),
            (false, None) => self.global_in_two(t),
        }
    }

    fn by_key_in_one(
        &mut self,
        t: &Transform<'a>,
        why: &str,
        rule: &Rule<'_>,
    ) -> Result<VertexId, PlanError> {
        let parallelism = self.own(t, None);
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            let key = input.group.unwrap_or_default();
            let why = format!("{}; one stage: {why}", together(t, key));
            self.attach(input, id, ordinal, Ask::distributed(by_key(key), why), rule)?;
        }
        Ok(id)
    }

    fn by_key_in_two(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let parallelism = self.own(t, None);
        let first = self.prepare(t, "prepare", parallelism)?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            let key = input.group.unwrap_or_default();
            let routing =
                Routing::Partitioned { key: Key::Exprs(key.to_vec()), partitioner: Partitioner::HashCode };
            let why = format!(
                "two stages: rows of one {} meet on their own agent first, so that one partial result a key leaves it",
                words(key)
            );
            self.attach(input, first, ordinal, Ask::local(routing, why), &Rule::Applies)?;
        }
        let second = self.vertex(&[t], New { name: t.name.clone(), role: Role::Combine, parallelism })?;
        let routing = Routing::Partitioned { key: Key::Entry, partitioner: Partitioner::Default };
        let ask = Ask::distributed(routing, "partial results of one key meet in one instance");
        self.edge(first, second, 0, ask, Route::default(), None);
        Ok(second)
    }

    fn global_in_one(&mut self, t: &Transform<'a>, why: &str) -> Result<VertexId, PlanError> {
        let parallelism = self.one(t, "it gives one result for all rows");
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            let why = format!("`{}` gives one result for all rows, and {why}", t.stage.id);
            self.attach(input, id, ordinal, Ask::distributed(Routing::AllToOne, why), &Rule::Applies)?;
        }
        Ok(id)
    }

    fn global_in_two(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let parallelism = self.matched(t, self.own(t, None));
        let first = self.prepare(t, "prepare", parallelism)?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            self.attach(input, first, ordinal, self.any(t), &Rule::Applies)?;
        }
        let new = New { name: t.name.clone(), role: Role::Combine, parallelism: Parallelism::One };
        let second = self.vertex(&[t], new)?;
        let ask = Ask::distributed(Routing::AllToOne, "one instance merges all partial results");
        self.edge(first, second, 0, ask, Route::default(), None);
        Ok(second)
    }

    fn prepare(
        &mut self,
        t: &Transform<'a>,
        suffix: &str,
        parallelism: Parallelism,
    ) -> Result<VertexId, PlanError> {
        self.vertex(&[t], New { name: format!("{}-{suffix}", t.name), role: Role::Prepare, parallelism })
    }

    fn hash_join(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let parallelism = self.matched(t, self.own(t, None));
        let mut collectors = Vec::new();
        for input in 1..t.inputs.len() as u32 {
            let name = format!("{}-collector{input}", t.name);
            let role = Role::Collector { input };
            let new = New { name, role, parallelism: Parallelism::PerAgent(1) };
            collectors.push(self.vertex(&[t], new)?);
        }
        let name = format!("{}-joiner", t.name);
        let joiner = self.vertex(&[t], New { name, role: Role::Whole, parallelism })?;
        let rule = if self.keeps_order() {
            Rule::Ignored("the job keeps order (preserve_order), and the probe side of a join stays in place")
        } else {
            Rule::Applies
        };
        self.attach(&t.inputs[0], joiner, 0, self.any(t), &rule)?;
        for (&collector, input) in collectors.iter().zip(&t.inputs[1..]) {
            let why = "every agent builds a table of all rows of this side";
            let rule = Rule::Ignored("every agent gets every row of this side anyway");
            self.attach(input, collector, 0, Ask::distributed(Routing::Broadcast, why), &rule)?;
        }
        for (ordinal, &collector) in (1..).zip(&collectors) {
            let why = "every instance on the agent gets its table, before it reads the first input";
            let ask = Ask { priority: -1, ..Ask::local(Routing::Broadcast, why) };
            self.edge(collector, joiner, ordinal, ask, Route::default(), None);
        }
        Ok(joiner)
    }

    fn distinct(&mut self, t: &Transform<'a>, own_key: &[Text]) -> Result<VertexId, PlanError> {
        let input = &t.inputs[0];
        let key = match input.group.unwrap_or(own_key) {
            [] => Key::WholeItem,
            exprs => Key::Exprs(exprs.to_vec()),
        };
        let by = match &key {
            Key::Exprs(exprs) => words(exprs),
            _ => "row".to_owned(),
        };
        let routing = |partitioner| Routing::Partitioned { key: key.clone(), partitioner };
        let parallelism = self.own(t, None);
        let first = self.prepare(t, "prepare", parallelism)?;
        let why = format!(
            "rows of one {by} meet on their own agent first, so that only the first of them leaves it"
        );
        self.attach(input, first, 0, Ask::local(routing(Partitioner::HashCode), why), &Rule::Applies)?;
        let second = self.vertex(&[t], New { name: t.name.clone(), role: Role::Combine, parallelism })?;
        let ask =
            Ask::distributed(routing(Partitioner::Default), format!("rows of one {by} meet in one instance"));
        self.edge(first, second, 0, ask, Route::default(), None);
        Ok(second)
    }

    fn sort(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let parallelism = self.matched(t, self.own(t, None));
        let first = self.vertex(&[t], New { name: t.name.clone(), role: Role::Prepare, parallelism })?;
        self.attach(&t.inputs[0], first, 0, self.any(t), &Rule::Applies)?;
        let new =
            New { name: format!("{}-collect", t.name), role: Role::Combine, parallelism: Parallelism::One };
        let second = self.vertex(&[t], new)?;
        let why = "one instance merges the sorted parts in order";
        let ask = Ask { ordered: true, ..Ask::distributed(Routing::AllToOne, why) };
        self.edge(first, second, 0, ask, Route::default(), None);
        Ok(second)
    }

    fn add_timestamps(&mut self, t: &Transform<'a>) -> Result<VertexId, PlanError> {
        let up = self.dag.vertex(self.output_of(t.inputs[0].from)).parallelism;
        let parallelism = match up {
            Parallelism::One => Parallelism::PerAgent(1),
            Parallelism::OneProduces(n) => Parallelism::PerAgent(n),
            other => other,
        };
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        let input = &t.inputs[0];
        let keyed = input.flag.filter(|flag| !flag.rebalance.key.is_empty());
        let why = match keyed {
            None => "event times are assigned in each upstream instance's own order",
            Some(_) => "event times are assigned in the order in which rows come",
        };
        let asked = self.attach(input, id, 0, Ask::local(Routing::Isolated, why), &Rule::Applies);
        let id_of = &t.stage.id;
        asked.map_err(|error| match error.kind {
            Kind::IsolatedRebalance => error.help(format!("put the rebalance behind `{id_of}`, or drop it")),
            _ => error,
        })?;
        if let Some(flag) = keyed
            && !matches!(up, Parallelism::One | Parallelism::OneProduces(_) | Parallelism::Total(1))
        {
            let text = format!(
                "rebalance `{}` mixes the rows of several instances before `{id_of}` reads their times: rows that come behind later ones are late, beyond `lateness`, and windows drop them; put the rebalance behind `{id_of}`",
                flag.stage.id
            );
            let text = Spanned::new(text, flag.stage.at);
            self.dag.notes.push(Note { text, no_effect: false, warns: true });
        }
        Ok(id)
    }

    fn sink(&mut self, t: &Transform<'a>, sink: &Sink) -> Result<VertexId, PlanError> {
        let one = sink.kind == SinkKind::TotalParallelismOne;
        let parallelism = if one {
            self.one(t, "this sink has one instance in the cluster")
        } else {
            self.own(t, sink.preferred_parallelism)
        };
        let id = self.vertex(&[t], New { name: t.name.clone(), role: Role::Whole, parallelism })?;
        for (ordinal, input) in (0..).zip(&t.inputs) {
            let by = || format!("the sink takes rows by {}", words(&sink.key));
            let ask = match sink.kind {
                SinkKind::Default => {
                    let ends = self.keeps_order() && parallelism != Parallelism::PerAgent(1);
                    let ends = if ends { ", so order ends here" } else { "" };
                    let why = format!("any instance of `{}` can take any row{ends}", t.stage.id);
                    Ask::local(Routing::Unicast, why)
                }
                SinkKind::Partitioned => Ask::local(by_key(&sink.key), by() + ", on each agent"),
                SinkKind::DistributedPartitioned => Ask::distributed(by_key(&sink.key), by()),
                SinkKind::TotalParallelismOne => {
                    Ask::distributed(Routing::AllToOne, "this sink has one instance in the cluster")
                }
            };
            self.attach(input, id, ordinal, ask, &Rule::Applies)?;
        }
        Ok(id)
    }

    /// A tap on the vertex before it; not a vertex of its own.
    fn peek(&mut self, t: &Transform<'a>) -> VertexId {
        if t.parallelism.or(t.instances).is_some() {
            let text = format!(
                "the parallelism of peek `{}` has no effect: it runs with the stage before it",
                t.stage.id
            );
            self.note(Spanned::new(text, t.stage.at), true);
        }
        let below = self.output_of(t.inputs[0].from);
        self.dag.vertices[below.0 as usize].peeks.push(t.stage.id.clone());
        below
    }
}

fn together(t: &Transform<'_>, key: &[Text]) -> String {
    format!("`{}` needs rows of one {} in one instance", t.stage.id, words(key))
}
