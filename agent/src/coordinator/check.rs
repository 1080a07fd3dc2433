//! A submitted job before it is accepted: plan, policies, types, places, files. Reads files, so it
//! runs apart from the driver.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tuplane_core::cluster::{NewJob, Placed};
use tuplane_core::fault::Fault;
use tuplane_core::job::{FileSource, Files, Format, Job, Op, SinkConnector, SourceConnector, Text};
use tuplane_core::plan::{self, AgentSlot, Dag, EdgeId, Instance, VertexId};
use tuplane_wire::message::{AgentInfo, FaultCode, Split, WireFault};

use super::status::Costs;
use crate::registry::{Registry, named_in};
use crate::source;

/// What a job is checked against.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// Agents that are alive.
    pub(super) agents: Vec<AgentInfo>,
    /// Relative paths start here.
    pub(super) folder: PathBuf,
    /// The coordinator's own operators, sources and sinks.
    pub(super) registry: Arc<Registry>,
    /// What a row costs between agents.
    pub(super) costs: Costs,
}

/// Whether results of other runs in a sink's folder matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mixing {
    /// They refuse the job.
    Refused,
    /// The owner knows.
    Forced,
}

/// Checks, plans and places a job.
pub(super) fn check(json: &str, mixing: Mixing, around: &Surroundings) -> Result<NewJob, WireFault> {
    let job: Job = serde_json::from_str(json).map_err(|e| refused(format!("this is no job: {e}")))?;
    have_all(&job, around)?;
    let mut faults = Vec::new();
    if let Err(found) = job.runnable() {
        faults.extend(found);
    }
    let dag = match plan::plan(&job) {
        Ok(dag) => dag,
        Err(error) => {
            if !faults.contains(&error.fault) {
                faults.push(error.fault);
            }
            return Err(all(&faults));
        }
    };
    let policies: Vec<&str> = around.registry.policies().names().collect();
    faults.extend(plan::unsupported_policies(&dag, &policies));
    let headers = read_headers(&job, around, &mut faults);
    if faults.is_empty()
        && let Err(found) =
            tuplane_expr::resolve_registered(&job, &|stage| headers.get(stage).cloned(), &|asked| {
                around.registry.columns_of(asked)
            })
    {
        faults.extend(found);
    }
    if mixing == Mixing::Refused {
        old_results(&job, &around.folder, &mut faults);
    }
    let placed = match places(&job, &dag, around) {
        Ok(placed) => placed,
        Err(found) => {
            faults.extend(found);
            return Err(all(&faults));
        }
    };
    if !faults.is_empty() {
        return Err(all(&faults));
    }
    let encode =
        |e: serde_json::Error| WireFault::new(FaultCode::Internal, format!("cannot encode the plan: {e}"));
    Ok(NewJob {
        name: job.name.clone(),
        job: json.to_owned(),
        edge_names: (0..dag.edges.len() as u32).map(|edge| dag.edge_name(EdgeId(edge))).collect(),
        dag: serde_json::to_string(&dag).map_err(encode)?,
        file_sinks: file_sinks(&job, &dag),
        headers,
        restart: job.options.restart,
        placed,
    })
}

/// Places a job that was accepted before on the agents that are left.
pub(super) fn place_again(job: &str, dag: &str, around: &Surroundings) -> Result<Placed, WireFault> {
    let broken =
        |e: serde_json::Error| WireFault::new(FaultCode::Internal, format!("the log's job is broken: {e}"));
    let job: Job = serde_json::from_str(job).map_err(broken)?;
    let dag: Dag = serde_json::from_str(dag).map_err(broken)?;
    have_all(&job, around)?;
    places(&job, &dag, around).map_err(|faults| all(&faults))
}

fn places(job: &Job, dag: &Dag, around: &Surroundings) -> Result<Placed, Vec<Fault>> {
    let slots: Vec<_> = (0u16..)
        .zip(&around.agents)
        .map(|(index, agent)| AgentSlot { index, name: agent.id.name.clone(), slots: agent.slots })
        .collect();
    let cost = |from: u16, to: u16| {
        let [from, to] = [from, to].map(|agent| around.agents.get(usize::from(agent)));
        from.zip(to).map_or(0.0, |(from, to)| f64::from(around.costs.of(from, to)))
    };
    let mut instances = plan::place_at(dag, job, &slots, &cost).map_err(|fault| vec![fault])?;
    let agents = only_used(&around.agents, &mut instances);
    let splits = read_splits(job, dag, &instances, around)?;
    Ok(Placed { agents, instances, splits })
}

/// Agents without an instance take no part, so that their loss does no harm.
fn only_used(agents: &[AgentInfo], instances: &mut [Instance]) -> Vec<AgentInfo> {
    let mut used: Vec<u16> = instances.iter().map(|instance| instance.agent).collect();
    used.sort_unstable();
    used.dedup();
    for instance in instances {
        // Every agent of an instance is in the list that was made of them.
        instance.agent = used.binary_search(&instance.agent).unwrap_or_default() as u16;
    }
    used.iter().filter_map(|agent| agents.get(usize::from(*agent)).cloned()).collect()
}

fn shared_files(job: &Job) -> impl Iterator<Item = (&str, &FileSource, tuplane_core::fault::At)> {
    job.stages.iter().filter_map(|stage| match &stage.op {
        Op::Source(source) => match &source.connector {
            Some(SourceConnector::File(file)) => Some((stage.id.as_str(), file, stage.at)),
            _ => None,
        },
        _ => None,
    })
}

fn read_splits(
    job: &Job,
    dag: &Dag,
    instances: &[Instance],
    around: &Surroundings,
) -> Result<BTreeMap<String, Vec<Split>>, Vec<Fault>> {
    let (mut splits, mut faults) = (BTreeMap::new(), Vec::new());
    for (stage, file, at) in shared_files(job).filter(|(_, file, _)| file.files == Files::Shared) {
        let reads = |instance: &&Instance| dag.vertex(instance.vertex).stages.iter().any(|id| id == stage);
        let readers = instances.iter().filter(reads).count() as u32;
        match source::splits(file, &around.folder, readers.max(1)) {
            Ok(found) => {
                splits.insert(stage.to_owned(), found);
            }
            Err(e) => faults.push(Fault::new(place(file, at), e.to_string()).stage(stage)),
        }
    }
    if faults.is_empty() { Ok(splits) } else { Err(faults) }
}

/// Names of columns that only the first line of a file knows.
fn read_headers(job: &Job, around: &Surroundings, faults: &mut Vec<Fault>) -> BTreeMap<String, Vec<String>> {
    let mut headers = BTreeMap::new();
    let unknown = |file: &FileSource| file.format == Format::Csv && file.header && file.columns.is_empty();
    for (stage, file, at) in shared_files(job).filter(|(_, file, _)| unknown(file)) {
        let names = source::splits(file, &around.folder, 1).and_then(|splits| {
            let first = splits.first().map(|split| Path::new(&split.path).to_owned());
            first.map_or(Ok(Vec::new()), |path| source::csv_header(&path, file.delimiter))
        });
        match names {
            Ok(names) => {
                headers.insert(stage.to_owned(), names);
            }
            // A file that is not there is said once, by its splits.
            Err(_) if file.files == Files::Shared && source::splits(file, &around.folder, 1).is_err() => {}
            Err(e) => faults.push(Fault::new(place(file, at), e.to_string()).stage(stage)),
        }
    }
    headers
}

fn place(file: &FileSource, stage: tuplane_core::fault::At) -> tuplane_core::fault::At {
    file.paths.first().map_or(stage, |path| path.at)
}

/// Stages that write files, with the vertex that each ends.
fn file_sinks(job: &Job, dag: &Dag) -> BTreeMap<String, VertexId> {
    let writes = |op: &Op| match op {
        Op::Sink(sink) => {
            matches!(sink.connector, Some(SinkConnector::File { .. } | SinkConnector::Ledger { .. }))
        }
        _ => false,
    };
    let vertex = |id: &String| {
        let mut vertices = (0u32..).map(VertexId).take(dag.vertices.len());
        vertices.find(|vertex| dag.vertex(*vertex).stages.last() == Some(id))
    };
    let stages = job.stages.iter().filter(|stage| writes(&stage.op));
    stages.filter_map(|stage| Some((stage.id.clone(), vertex(&stage.id)?))).collect()
}

/// Stages that write files into a folder of the owner's choice, with that folder.
fn sink_folders(job: &Job) -> impl Iterator<Item = (&str, &Text)> {
    job.stages.iter().filter_map(|stage| match &stage.op {
        Op::Sink(sink) => match &sink.connector {
            Some(SinkConnector::File { path, .. } | SinkConnector::Ledger { path, .. }) => {
                Some((stage.id.as_str(), path))
            }
            _ => None,
        },
        _ => None,
    })
}

/// Refuses a job into whose folders a live one writes. `live` are names and jobs as JSON.
pub(super) fn taken_folders<'a>(
    json: &str,
    live: impl Iterator<Item = (&'a str, &'a str)>,
    folder: &Path,
) -> Result<(), WireFault> {
    let job: Job = serde_json::from_str(json).map_err(|e| refused(format!("this is no job: {e}")))?;
    if sink_folders(&job).next().is_none() {
        return Ok(());
    }
    let mut taken: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (name, json) in live {
        // What was accepted can be read; a job that cannot be takes no folder.
        let Ok(other) = serde_json::from_str::<Job>(json) else { continue };
        taken.extend(sink_folders(&other).map(|(_, path)| (folder.join(&path.value), name)));
    }
    let mut faults = Vec::new();
    for (stage, path) in sink_folders(&job) {
        if let Some(name) = taken.get(&folder.join(&path.value)) {
            let message = format!("job {name}, which has not ended, writes to folder `{}` too", path.value);
            let help = "name another folder, wait for that job, or keep both with --force";
            faults.push(Fault::new(path.at, message).help(help).stage(stage));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(all(&faults)) }
}

/// Visible files of a sink's name in its folder come from another run.
fn old_results(job: &Job, folder: &Path, faults: &mut Vec<Fault>) {
    for (stage, path) in sink_folders(job) {
        let Ok(entries) = fs::read_dir(folder.join(&path.value)) else { continue };
        let mut old: Vec<_> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_result(name, stage))
            .collect();
        old.sort();
        if let Some(first) = old.first() {
            let others = match old.len() {
                1 => String::new(),
                n => format!(" and {} more", n - 1),
            };
            let message = format!("folder `{}` has files of an earlier run: {first}{others}", path.value);
            let help = "name another folder, remove them, or keep both with --force";
            faults.push(Fault::new(path.at, message).help(help).stage(stage));
        }
    }
}

/// `NAME-<instance>-<attempt>-<n>.csv` or `.jsonl`.
fn is_result(name: &str, stage: &str) -> bool {
    let Some(numbers) = name.strip_prefix(stage).and_then(|rest| rest.strip_prefix('-')) else {
        return false;
    };
    let Some((numbers, "csv" | "jsonl")) = numbers.rsplit_once('.') else { return false };
    let parts: Vec<_> = numbers.split('-').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Refuses a job that names operators, sources or sinks which some agent has not, with those agents. Of
/// another agent's registry only the fingerprint is known here, so it must be the coordinator's own.
fn have_all(job: &Job, around: &Surroundings) -> Result<(), WireFault> {
    let named: Vec<String> = named_in(job).map(|(what, name)| format!("{what} `{}`", name.value)).collect();
    if named.is_empty() {
        return Ok(());
    }
    let own = around.registry.fingerprint();
    let agents = |same: bool| {
        let found = around.agents.iter().filter(|agent| (agent.registry == own) == same);
        found.map(|agent| agent.id.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let lacking = around.registry.lacks(job);
    let message = if !lacking.is_empty() {
        format!("agents {} lack {}: start agents that were built with it", agents(true), lacking.join(", "))
    } else if agents(false).is_empty() {
        return Ok(());
    } else {
        format!(
            "agents {} have another registry than the coordinator, and the job needs {}: start all agents \
             from one build",
            agents(false),
            named.join(", ")
        )
    };
    Err(WireFault::new(FaultCode::Version, message))
}

fn all(faults: &[Fault]) -> WireFault {
    refused(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn refused(message: String) -> WireFault {
    WireFault::new(FaultCode::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_told_from_other_files() {
        for name in ["out-0-1-0.csv", "out-12-3-7.jsonl"] {
            assert!(is_result(name, "out"), "{name}");
        }
        for name in [
            "out.csv",
            "out-0-1.csv",
            "out-0-1-0.txt",
            "out2-0-1-0.csv",
            ".out-0-1-0.csv.part",
            "out-a-1-0.csv",
        ] {
            assert!(!is_result(name, "out"), "{name}");
        }
        assert!(is_result("a-b-0-1-0.csv", "a-b"));
        assert!(!is_result("a-b-0-1-0.csv", "a"));
    }

    #[test]
    fn a_folder_that_a_live_job_writes_to_is_taken() {
        let job = |path: &str| {
            let text = format!(
                "name = \"j\"\n[[stage]]\nid = \"rows\"\nop = \"source\"\nconnector = \"ids\"\nn = 10\n\
                 [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"rows\"\nconnector = \"file\"\n\
                 path = \"{path}\"\n"
            );
            let job = Job::parse(&text, tuplane_core::job::FileFormat::Toml).unwrap();
            serde_json::to_string(&job).unwrap()
        };
        let (here, same, other) = (job("results"), job("/data/results/"), job("other"));
        let live = || [("first", here.as_str())].into_iter();
        let folder = Path::new("/data");
        let fault = taken_folders(&same, live(), folder).unwrap_err();
        assert_eq!(fault.code, FaultCode::Refused);
        assert!(fault.message.contains("job first") && fault.message.contains("--force"), "{fault}");
        assert_eq!(taken_folders(&other, live(), folder), Ok(()));
    }

    fn info(name: &str) -> AgentInfo {
        AgentInfo {
            id: tuplane_wire::message::AgentId { name: name.to_owned(), incarnation: 1 },
            address: String::new(),
            slots: 1,
            cores: 0,
            zone: String::new(),
            pid: 0,
            version: String::new(),
            host: String::new(),
            registry: 0,
        }
    }

    #[test]
    fn a_job_that_starts_again_needs_its_operators_everywhere() {
        let text = "name = 'j'\nstage = [{ id = 's', op = 'source', connector = 'ids', n = 9 },\n\
                    { id = 'c', op = 'custom_transform', in = 's', call = 'same' },\n\
                    { id = 'o', op = 'sink', in = 'c', connector = 'count' }]";
        let job = Job::parse(text, tuplane_core::job::FileFormat::Toml).unwrap();
        let dag = serde_json::to_string(&plan::plan(&job).unwrap()).unwrap();
        let job = serde_json::to_string(&job).unwrap();
        let same = |batch: &tuplane_expr::arrow::array::RecordBatch| Ok(batch.clone());
        let registry = Arc::new(Registry::new().closure("same", 1, &[("id", "bigint")], same));
        let own = registry.fingerprint();
        let agents = [("a", own), ("b", own + 1), ("c", 0)];
        let agents = agents.map(|(name, registry)| AgentInfo { registry, ..info(name) });
        let around = |agents: &[AgentInfo], registry| Surroundings {
            agents: agents.to_vec(),
            folder: PathBuf::new(),
            registry,
            costs: Costs::default(),
        };
        let placed = place_again(&job, &dag, &around(&agents[..1], registry.clone())).unwrap();
        assert_eq!(placed.agents.len(), 1);
        let refused = place_again(&job, &dag, &around(&agents, registry)).unwrap_err();
        assert_eq!(refused.code, FaultCode::Version);
        assert!(refused.message.starts_with("agents b, c have another registry"), "{refused}");
        // A coordinator of the stock build knows who is like it.
        let refused = place_again(&job, &dag, &around(&agents, Arc::default())).unwrap_err();
        assert!(refused.message.starts_with("agents c lack operator `same`"), "{refused}");
    }

    #[test]
    fn agents_without_an_instance_take_no_part() {
        let at = |id, agent| Instance { id, vertex: plan::VertexId(0), number: id, agent };
        let mut instances = vec![at(0, 3), at(1, 1), at(2, 3)];
        let used = only_used(&["a", "b", "c", "d"].map(info), &mut instances);
        assert_eq!(used.iter().map(|agent| agent.id.name.as_str()).collect::<Vec<_>>(), ["b", "d"]);
        assert_eq!(instances.iter().map(|instance| instance.agent).collect::<Vec<_>>(), [1, 0, 1]);
    }
}
