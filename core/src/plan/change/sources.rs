//! Sources in a plan that changes: what an instance that ends has not read goes to others.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Before;
use crate::job::{FileSource, Files, Job, Op, Source, SourceConnector};
use crate::plan::dag::{Dag, VertexId};
use crate::plan::placement::Instance;

/// A source of which instances end while its job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceMove {
    /// The vertex.
    pub vertex: VertexId,
    /// The source's stage.
    pub stage: String,
    /// Those that end, and who goes on.
    pub givers: Vec<Giver>,
}

/// An instance of a source that ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Giver {
    /// Its dense id.
    pub instance: u32,
    /// Dense ids of those that may go on with what it has not read; at least one.
    pub takers: Vec<u32>,
}

impl SourceMove {
    /// All who take something, each once.
    pub fn takers(&self) -> BTreeSet<u32> {
        self.givers.iter().flat_map(|giver| giver.takers.iter().copied()).collect()
    }
}

/// What a source's instances share.
enum Shares<'a> {
    /// Splits, which any of them can read.
    Files,
    /// Splits of the files of each agent, which its own instances can read.
    OwnFiles(&'a FileSource),
    /// Rows by their numbers, as many shares as there were instances when the job began.
    Numbers,
}

fn shares<'a>(name: &str, source: &'a Source) -> Result<Shares<'a>, String> {
    match &source.connector {
        Some(SourceConnector::File(file)) => Ok(match file.files {
            Files::Shared => Shares::Files,
            Files::Each => Shares::OwnFiles(file),
        }),
        Some(SourceConnector::Registered { name: of, .. }) => Err(format!(
            "`{name}` is a source of your own (`{}`): nobody else can say what an instance of it has read, and so none can \
             be added, moved or ended",
            of.value
        )),
        Some(_) => Ok(Shares::Numbers),
        None => Err(format!("`{name}` is a source without a connector")),
    }
}

/// The source of a vertex, and its stage.
fn source_of<'a>(job: &'a Job, dag: &Dag, vertex: VertexId) -> Option<(&'a str, &'a Source)> {
    let stages = &dag.vertex(vertex).stages;
    let mut all = job.stages.iter().filter(|stage| stages.contains(&stage.id));
    all.find_map(|stage| match &stage.op {
        Op::Source(source) => Some((stage.id.as_str(), source)),
        _ => None,
    })
}

fn is_read_on(source: &Source, agent: &str) -> bool {
    source.on.is_empty() || source.on.iter().any(|on| on.value == agent)
}

/// Whether a vertex may have instances on an agent: a source may say that it is read on some alone.
pub fn reads_on(job: &Job, dag: &Dag, vertex: VertexId, agent: &str) -> bool {
    source_of(job, dag, vertex).is_none_or(|(_, source)| is_read_on(source, agent))
}

impl Before<'_> {
    fn agent_name(&self, agent: u16) -> &str {
        self.agents.get(usize::from(agent)).map_or("?", String::as_str)
    }

    /// What a plan says about a source of which instances end.
    pub(super) fn source_note(&self, moved: &SourceMove) -> String {
        let label = self.dag.vertex(moved.vertex).label();
        match moved.givers.len() {
            1 => format!("what 1 instance of `{label}` has not read goes to others of it"),
            count => format!("what {count} instances of `{label}` have not read goes to others of it"),
        }
    }

    /// What a source says about instances that come (by agent) and go.
    pub(super) fn source_may_change(
        &self,
        name: &str,
        source: &Source,
        own: &[&Instance],
        come: &[u16],
        gone: &BTreeSet<u32>,
    ) -> Result<(), String> {
        let shared = shares(name, source)?;
        let going: Vec<&&Instance> = own.iter().filter(|one| gone.contains(&one.id)).collect();
        let come_to = || come.iter().map(|agent| self.agent_name(*agent));
        if let Some(agent) = come_to().find(|agent| !is_read_on(source, agent)) {
            let on: Vec<&str> = source.on.iter().map(|on| on.value.as_str()).collect();
            return Err(format!(
                "`{name}` is read on {} of its agents alone (`on`: {}), and {agent} is none of them",
                on.len(),
                on.join(", ")
            ));
        }
        if source.ahead() > 0 && !going.is_empty() {
            return Err(format!(
                "`{name}` gives its rows before they arrive (its `window`): what an instance of it has given ahead cannot be \
                 handed over"
            ));
        }
        match shared {
            Shares::Numbers if come.len() > going.len() => Err(format!(
                "`{name}` is a source whose rows are dealt to its {} instances by number from the start: they can be moved \
                 and be fewer, but not more",
                own.len()
            )),
            Shares::Files | Shares::Numbers => Ok(()),
            Shares::OwnFiles(file) => {
                let path = file.paths.first().map_or("", |path| path.value.as_str());
                if let Some(agent) = come.first() {
                    return Err(format!(
                        "`{name}` is a source that reads each agent's own files (`files = \"each\"`, {path}), which are \
                         listed when the job begins: no instance of it can be added or moved, to {} neither",
                        self.agent_name(*agent)
                    ));
                }
                for one in &going {
                    let here = own.iter().filter(|other| other.agent == one.agent);
                    let (all, stay) =
                        (here.clone().count(), here.filter(|other| !gone.contains(&other.id)).count());
                    if stay == 0 {
                        return Err(format!(
                            "`{name}` is a source that reads each agent's own files (`files = \"each\"`, {path}): {all} of \
                             its {} instances read those of {}, where no other one would be left",
                            own.len(),
                            self.agent_name(one.agent)
                        ));
                    }
                }
                Ok(())
            }
        }
    }

    /// Who goes on with what instances of sources that go have not read: new ones first in number, and those that stay.
    pub(super) fn source_moves(&self, going: &BTreeSet<u32>, after: &[Instance]) -> Vec<SourceMove> {
        let mut moves: BTreeMap<VertexId, SourceMove> = BTreeMap::new();
        for one in self.standing().filter(|one| going.contains(&one.id)) {
            let Some((stage, source)) = source_of(self.job, self.dag, one.vertex) else { continue };
            // A source's other vertices have inputs.
            if self.dag.inputs(one.vertex).next().is_some() {
                continue;
            }
            let own_files = shares(stage, source).is_ok_and(|shared| matches!(shared, Shares::OwnFiles(_)));
            let mut takers: Vec<u32> = after
                .iter()
                .filter(|other| other.vertex == one.vertex && (!own_files || other.agent == one.agent))
                .map(|other| other.id)
                .collect();
            takers.sort_unstable();
            let entry = moves.entry(one.vertex).or_insert_with(|| SourceMove {
                vertex: one.vertex,
                stage: stage.to_owned(),
                givers: Vec::new(),
            });
            entry.givers.push(Giver { instance: one.id, takers });
        }
        moves.into_values().collect()
    }
}
