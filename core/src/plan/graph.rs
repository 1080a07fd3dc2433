//! Stages become transforms: views are resolved into the inputs of their consumers, and what no
//! consumer may do is refused here, in the order in which the stages were written.

use std::collections::{HashMap, HashSet};

use super::dag::Note;
use super::error::{Kind, PlanError};
use super::rules::{
    check_counts, flow, no_vertex, own_name, refuse_grouped, refuse_windowed, timestamps_parallelism,
};
use crate::fault::{Spanned, suggestion};
use crate::job::{Job, Op, Rebalance, Stage, Text, Window, takes_group};

/// The transforms of a job, in the order of their stages.
pub(super) struct Graph<'a> {
    pub(super) job: &'a Job,
    pub(super) transforms: Vec<Transform<'a>>,
    pub(super) notes: Vec<Note>,
}

/// A stage that does something; an n-way merge is n - 1 of them.
pub(super) struct Transform<'a> {
    pub(super) stage: &'a Stage,
    /// Unique in the job.
    pub(super) name: String,
    pub(super) parallelism: Option<u32>,
    pub(super) instances: Option<u32>,
    pub(super) inputs: Vec<Input<'a>>,
    pub(super) window: Option<&'a Window>,
    /// 1, 2, .. for the merges of an n-way merge but the last.
    pub(super) merge_step: Option<u32>,
    /// How many inputs of others read it.
    pub(super) readers: usize,
    /// Its rows never end.
    pub(super) stream: bool,
    /// Its rows have event time.
    pub(super) timestamped: bool,
}

/// One input of one consumer, with everything that its view carries.
#[derive(Clone)]
pub(super) struct Input<'a> {
    /// The transform that it reads.
    pub(super) from: usize,
    pub(super) flag: Option<Flag<'a>>,
    pub(super) group: Option<&'a [Text]>,
    /// Ids of the view stages in between.
    pub(super) via: Vec<&'a str>,
}

/// A rebalance that stands on an input.
#[derive(Clone, Copy)]
pub(super) struct Flag<'a> {
    pub(super) stage: &'a Stage,
    pub(super) rebalance: &'a Rebalance,
}

/// What an id stands for: a transform, seen through rebalance, `group_by` and window.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) transform: usize,
    pub(super) flag: Option<Flag<'a>>,
    pub(super) group: Option<&'a [Text]>,
    pub(super) window: Option<&'a Window>,
}

impl Transform<'_> {
    pub(super) fn is_keyed(&self) -> bool {
        self.inputs.iter().any(|i| i.group.is_some())
    }

    pub(super) fn is_flagged(&self) -> bool {
        self.inputs.iter().any(|i| i.flag.is_some())
    }
}

/// Reads the stages in order and applies every rule that concerns one stage and its inputs.
pub(super) fn read(job: &Job) -> Result<Graph<'_>, PlanError> {
    let mut reader = Reader {
        graph: Graph { job, transforms: Vec::new(), notes: Vec::new() },
        views: HashMap::new(),
        names: Vec::new(),
        read_views: HashSet::new(),
    };
    for (index, stage) in job.stages.iter().enumerate() {
        reader.stage(index, stage)?;
    }
    reader.unread_views();
    reader.unique_names();
    Ok(reader.graph)
}

struct Reader<'a> {
    graph: Graph<'a>,
    views: HashMap<&'a str, View<'a>>,
    /// Proposed name of each transform.
    names: Vec<String>,
    /// Ids of view stages that took part in some consumer's input.
    read_views: HashSet<&'a str>,
}

impl<'a> Reader<'a> {
    fn stage(&mut self, index: usize, stage: &'a Stage) -> Result<(), PlanError> {
        if self.graph.job.stages[..index].iter().any(|other| other.id == stage.id) {
            let message = format!("two stages have the id `{}`", stage.id);
            return Err(PlanError::at_stage(Kind::Inputs, stage, message));
        }
        check_counts(stage)?;
        let views = self.resolve(stage)?;
        match &stage.op {
            Op::Rebalance(rebalance) => self.rebalance(stage, rebalance, views[0]),
            Op::GroupBy { key } => {
                no_vertex(stage)?;
                refuse_grouped(stage, &views[0])?;
                if key.is_empty() {
                    return Err(PlanError::at_stage(
                        Kind::Option,
                        stage,
                        format!("`{}` groups by nothing: it needs a `key`", stage.id),
                    ));
                }
                self.views.insert(&stage.id, View { group: Some(key), ..views[0] });
                Ok(())
            }
            Op::Window(window) => {
                no_vertex(stage)?;
                refuse_windowed(stage, &views[0])?;
                self.views.insert(&stage.id, View { window: Some(window), ..views[0] });
                Ok(())
            }
            _ => self.transform(stage, &views),
        }
    }

    fn resolve(&self, stage: &'a Stage) -> Result<Vec<View<'a>>, PlanError> {
        stage.inputs.iter().map(|input| self.view(stage, input)).collect()
    }

    fn view(&self, stage: &Stage, input: &Text) -> Result<View<'a>, PlanError> {
        if let Some(view) = self.views.get(input.value.as_str()) {
            return Ok(*view);
        }
        let (reads, id) = (&input.value, &stage.id);
        let known = self.graph.job.stages.iter().find(|s| s.id == *reads);
        let error = |message| {
            let mut error = PlanError::at(Kind::Inputs, input.at, message);
            error.fault.stage = Some(id.clone());
            error
        };
        match known {
            Some(known) if matches!(known.op, Op::Sink(_)) => {
                Err(error(format!("`{id}` reads the sink `{reads}`: nothing comes out of a sink")))
            }
            Some(_) if reads == id => Err(error(format!("`{id}` reads itself"))),
            Some(_) => Err(error(format!("`{id}` reads `{reads}`, which comes after it"))
                .help(format!("move `{reads}` before `{id}`"))),
            None => {
                let error = error(format!("`{id}` reads `{reads}`, and there is no such stage"));
                let ids = self.views.keys().copied();
                Err(match suggestion(reads, ids) {
                    Some(close) => error.help(format!("did you mean `{close}`?")),
                    None => error,
                })
            }
        }
    }

    /// A second view on the same transform; the last rebalance wins entirely.
    fn rebalance(
        &mut self,
        stage: &'a Stage,
        rebalance: &'a Rebalance,
        view: View<'a>,
    ) -> Result<(), PlanError> {
        refuse_grouped(stage, &view)?;
        refuse_windowed(stage, &view)?;
        if let (false, Some(policy)) = (rebalance.key.is_empty(), &rebalance.route.policy) {
            let message = format!(
                "rebalance `{}` has a key and the policy `{}`: a key leaves no choice of target",
                stage.id, policy.value
            );
            return Err(PlanError::at(Kind::Route, policy.at, message).help("drop `policy` or `key`"));
        }
        self.rename(stage, view.transform)?;
        self.views.insert(&stage.id, View { flag: Some(Flag { stage, rebalance }), ..view });
        Ok(())
    }

    /// Name and parallelism that are set on a view change the transform below.
    fn rename(&mut self, stage: &Stage, transform: usize) -> Result<(), PlanError> {
        let below = self.graph.transforms[transform].stage;
        if stage.parallelism.or(stage.instances).is_some() && matches!(below.op, Op::AddTimestamps { .. }) {
            return Err(timestamps_parallelism(stage));
        }
        for (t, name) in self.graph.transforms.iter_mut().zip(&mut self.names) {
            if !std::ptr::eq(t.stage, below) {
                continue;
            }
            if let Some(new) = &stage.name {
                name.clone_from(new);
            }
            if stage.parallelism.or(stage.instances).is_some() {
                (t.parallelism, t.instances) = (stage.parallelism, stage.instances);
            }
        }
        Ok(())
    }

    fn transform(&mut self, stage: &'a Stage, views: &[View<'a>]) -> Result<(), PlanError> {
        for view in views {
            if !takes_group(&stage.op) {
                refuse_grouped(stage, view)?;
            }
            if !matches!(stage.op, Op::Aggregate { .. } | Op::CoAggregate { .. }) {
                refuse_windowed(stage, view)?;
            }
        }
        let mut inputs: Vec<Input<'a>> = Vec::with_capacity(views.len());
        for (view, text) in views.iter().zip(&stage.inputs) {
            let via = self.views_of(&text.value);
            inputs.push(Input { from: view.transform, flag: view.flag, group: view.group, via });
        }
        let window = views.iter().find_map(|v| v.window);
        let ups: Vec<&Transform<'a>> = views.iter().map(|v| &self.graph.transforms[v.transform]).collect();
        let (stream, timestamped) = flow(stage, &ups, views, window)?;
        for input in &inputs {
            self.graph.transforms[input.from].readers += 1;
        }
        let name = stage.name.clone().unwrap_or_else(|| {
            own_name(stage, inputs.len(), inputs.iter().any(|i| i.group.is_some()), window)
        });
        let first = Transform {
            stage,
            name: String::new(),
            parallelism: stage.parallelism,
            instances: stage.instances,
            inputs,
            window,
            merge_step: None,
            readers: 0,
            stream,
            timestamped,
        };
        let last =
            if matches!(stage.op, Op::Merge) { self.merges(&first, &name) } else { self.push(first, name) };
        if !matches!(stage.op, Op::Sink(_)) {
            self.views.insert(&stage.id, View { transform: last, flag: None, group: None, window: None });
        }
        Ok(())
    }

    fn push(&mut self, transform: Transform<'a>, name: String) -> usize {
        self.graph.transforms.push(transform);
        self.names.push(name);
        self.graph.transforms.len() - 1
    }

    /// `merge(a, b, c)` is `merge(merge(a, b), c)`.
    fn merges(&mut self, all: &Transform<'a>, name: &str) -> usize {
        let mut left = all.inputs[0].clone();
        let steps = all.inputs.len() - 1;
        let mut last = 0;
        for (step, right) in (1..).zip(&all.inputs[1..]) {
            let whole = step == steps;
            let merge = Transform {
                name: String::new(),
                inputs: vec![left, right.clone()],
                merge_step: (!whole).then_some(step as u32),
                readers: usize::from(!whole),
                ..*all
            };
            last = self.push(merge, name.to_owned());
            left = Input { from: last, flag: None, group: None, via: Vec::new() };
        }
        last
    }

    /// The views that an input is read through, nearest first, and marks those in force: a
    /// rebalance under another one is not.
    fn views_of(&mut self, input: &str) -> Vec<&'a str> {
        let stages = &self.graph.job.stages;
        let mut via = Vec::new();
        let mut rebalanced = false;
        let mut next = stages.iter().find(|s| s.id == *input);
        while let Some(stage) = next {
            match &stage.op {
                Op::Rebalance(_) if rebalanced => {}
                Op::Rebalance(_) | Op::GroupBy { .. } | Op::Window(_) => {
                    rebalanced |= matches!(stage.op, Op::Rebalance(_));
                    self.read_views.insert(&stage.id);
                }
                _ => break,
            }
            via.push(stage.id.as_str());
            next = stage.inputs.first().and_then(|input| stages.iter().find(|s| s.id == input.value));
        }
        via
    }

    fn unread_views(&mut self) {
        let stages = &self.graph.job.stages;
        for stage in stages {
            let view = matches!(stage.op, Op::Rebalance(_) | Op::GroupBy { .. } | Op::Window(_));
            if !view || self.read_views.contains(stage.id.as_str()) {
                continue;
            }
            let next = stages.iter().find(|s| {
                matches!(s.op, Op::Rebalance(_)) && s.inputs.first().is_some_and(|i| i.value == stage.id)
            });
            let why = match next {
                Some(next) => format!("rebalance `{}` takes its place", next.id),
                None => "no stage reads it".to_owned(),
            };
            let text = format!("{} `{}` has no effect: {why}", stage.op.name(), stage.id);
            self.graph.notes.push(Note { text: Spanned::new(text, stage.at), no_effect: true, warns: true });
        }
    }

    /// In creation order the second `map` becomes `map-2`.
    fn unique_names(&mut self) {
        let mut taken = HashSet::new();
        for (transform, name) in self.graph.transforms.iter_mut().zip(&self.names) {
            let mut unique = name.clone();
            let mut n = 2;
            while !taken.insert(unique.clone()) {
                unique = format!("{name}-{n}");
                n += 1;
            }
            transform.name = unique;
        }
    }
}
