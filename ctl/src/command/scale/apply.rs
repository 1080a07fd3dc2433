//! `tuplane scale apply`: a plan that was made elsewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use tuplane_core::cluster::rescale::{MOST_PREDICTED, check_planner};
use tuplane_core::fault::{Fault, Spanned, shortened, suggestion};
use tuplane_core::job::table::Table;
use tuplane_core::job::tree::{Node, Value};
use tuplane_core::job::{FileFormat, Job, Text};
use tuplane_core::plan::Dag;
use tuplane_core::scale::planner::MOST;
use tuplane_wire::message::JobStatus;
use tuplane_wire::scaling::{ExactPlan, ScaleAsk};

use super::{Carry, Ends, carry_out};
use crate::args::{Global, Overrides};
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::faults;
use crate::jobfile::JobFile;
use crate::output::{Output, safe};

/// Options of `scale apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The plan is a JSON object; all members may be left out:
  add               [{\"vertex\": \"work\", \"agent\": \"h3\", \"instances\": 2}], instances being 1 unless given
  move              [{\"instance\": \"work#0\", \"agent\": \"h3\"}]
  end               [\"work#1\"]
  planner           who has planned it, for the history
  predicted_per_s   rows a second at the sinks that it says there will be")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// A file, or `-` for standard input
    file: PathBuf,
    #[command(flatten)]
    carry: Carry,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let (file, plan, names) = read(&args.file, output)?;
    let cluster = Cluster::find(global, output)?;
    let status = cluster.status(Some(args.job.clone())).await?;
    let agents = cluster.agents().await?;
    let agents: Vec<&str> = agents.iter().map(|agent| agent.info.id.name.as_str()).collect();
    let faults = unknown(&names, &status, &agents);
    if !faults.is_empty() {
        return Err(Failure::NotFound(said(&file, &faults, output)));
    }
    let ask = ScaleAsk::Exact(Box::new(plan));
    carry_out(&cluster, args.job, ask, &args.carry, &Ends::None, global, output)
        .await?
        .document(json!({}), output)
}

fn read(file: &Path, output: &Output) -> Outcome<(JobFile, ExactPlan, Vec<Name>)> {
    let file = JobFile::read(file, &Overrides::default())?;
    match plan(&file.text) {
        Ok((plan, names)) => Ok((file, plan, names)),
        Err(faults) => Err(Failure::Usage(said(&file, &faults, output))),
    }
}

/// All faults of a file, each with its place.
fn said(file: &JobFile, faults: &[Fault], output: &Output) -> String {
    if !output.is_text() {
        let said: Vec<String> = faults.iter().map(|fault| format!("{}:{fault}", file.name)).collect();
        return safe::lines(&said.join("\n"));
    }
    faults::render(&file.name, &file.text, faults, false).trim_end().to_owned()
}

/// A name in a plan that the cluster has to know.
#[derive(Debug)]
struct Name {
    of: Of,
    text: Text,
}

/// What it is a name of.
#[derive(Debug, Clone, Copy)]
enum Of {
    Vertex,
    Agent,
    Instance,
}

/// A fault for each name that there is not.
fn unknown(names: &[Name], status: &JobStatus, agents: &[&str]) -> Vec<Fault> {
    // What cannot be read here is the coordinator's to refuse.
    let Ok(dag) = serde_json::from_str::<Dag>(&status.dag) else { return Vec::new() };
    let stages = serde_json::from_str::<Job>(&status.job).map(|job| job.stages).unwrap_or_default();
    let gone = [&status.scale.retired, &status.scale.leaving];
    let here = status.instances.iter().filter(|one| !gone.iter().any(|ids| ids.contains(&one.id)));
    let here: BTreeSet<String> =
        here.map(|one| format!("{}#{}", dag.vertex(one.vertex).label(), one.number)).collect();
    let close = |wrote: &str, known: &mut dyn Iterator<Item = &str>| {
        suggestion(wrote, known).map_or_else(String::new, |known| format!(" (did you mean `{known}`?)"))
    };
    let fault = |Name { of, text }: &Name| {
        let wrote = shortened(&text.value, 100);
        let message = match of {
            // A stage without instances of its own has a sentence of its own.
            Of::Vertex if stages.iter().any(|stage| stage.id == text.value) => return None,
            Of::Vertex => dag.find_vertex(&text.value).err()?,
            Of::Agent if agents.contains(&text.value.as_str()) => return None,
            Of::Agent => {
                let close = close(&text.value, &mut agents.iter().copied());
                format!("there is no agent `{wrote}`{close}; there are {}", agents.join(", "))
            }
            Of::Instance if here.contains(&text.value) => return None,
            Of::Instance => {
                let close = close(&text.value, &mut here.iter().map(String::as_str));
                let list = if close.is_empty() { " (`tuplane status -o json` lists them)" } else { "" };
                format!("the job has no running instance `{wrote}`{close}{list}")
            }
        };
        Some(Fault::new(text.at, message))
    };
    names.iter().filter_map(fault).collect()
}

/// The plan in a document with the names in it, or everything that is wrong with it.
fn plan(text: &str) -> Result<(ExactPlan, Vec<Name>), Vec<Fault>> {
    let mut faults = Vec::new();
    let read = Node::parse(text, FileFormat::Json, &mut faults).map(given);
    let plan = read.and_then(|root| {
        let mut table = Table::new(&root, "the plan", &mut faults)?;
        let (add, moves) = (added(&mut table), moved(&mut table));
        let end = table.node("end").map_or_else(Vec::new, |node| ended(&mut table, node));
        let name = |of, text: &Text| Name { of, text: text.clone() };
        let mut names = Vec::new();
        for (vertex, agent, _) in &add {
            names.extend([name(Of::Vertex, vertex), name(Of::Agent, agent)]);
        }
        for (instance, agent) in &moves {
            names.extend([name(Of::Instance, instance), name(Of::Agent, agent)]);
        }
        names.extend(end.iter().map(|instance| name(Of::Instance, instance)));
        let each = |(vertex, agent, instances): (Text, Text, u64)| {
            std::iter::repeat_n((vertex.value, agent.value), usize::try_from(instances).unwrap_or(0))
        };
        let plan = ExactPlan {
            add: add.into_iter().flat_map(each).collect(),
            moves: moves.into_iter().map(|(instance, agent)| (instance.value, agent.value)).collect(),
            end: end.into_iter().map(|instance| instance.value).collect(),
            planner: table.text("planner").and_then(|name| planner(&mut table, name)),
            predicted: table.number("predicted_per_s").map(|rate| predicted(&mut table, &rate)),
        };
        table.finish(&mut faults, |_| None);
        Some((plan, names))
    });
    plan.filter(|_| faults.is_empty()).ok_or(faults)
}

/// A member that is null is one that is left out.
fn given(mut root: Node) -> Node {
    if let Value::Table(entries) = &mut root.value {
        entries.retain(|entry| entry.node.value != Value::Null);
    }
    root
}

/// The tables of a list, each read by `read`; its faults are the plan's.
fn tables<T>(plan: &mut Table<'_>, key: &'static str, read: impl Fn(&mut Table<'_>) -> Option<T>) -> Vec<T> {
    let Some(node) = plan.node(key) else { return Vec::new() };
    let Value::List(list) = &node.value else {
        let message = format!("`{key}` of the plan must be a list of tables, not {}", node.value.kind());
        plan.fault(Fault::new(node.at, message));
        return Vec::new();
    };
    let mut faults = Vec::new();
    let mut all = Vec::new();
    for (node, number) in list.iter().zip(1..) {
        let Some(mut table) = Table::new(node, format!("entry {number} of `{key}`"), &mut faults) else {
            continue;
        };
        all.extend(read(&mut table));
        table.finish(&mut faults, |_| None);
    }
    for fault in faults {
        plan.fault(fault);
    }
    all
}

/// A text that has to be there.
fn needed(table: &mut Table<'_>, key: &'static str) -> Option<Text> {
    if table.place_of(key).is_none() {
        // It is a known key, though it is not there.
        table.know(&[key]);
        table.missing(key, format!("write \"{key}\": \"..\""));
        return None;
    }
    table.text(key)
}

fn added(plan: &mut Table<'_>) -> Vec<(Text, Text, u64)> {
    let all = tables(plan, "add", |table| {
        let (vertex, agent) = (needed(table, "vertex"), needed(table, "agent"));
        let instances = if table.place_of("instances").is_some() {
            table.whole("instances", 1..=u64::from(MOST))?
        } else {
            table.know(&["instances"]);
            1
        };
        Some((vertex?, agent?, instances))
    });
    let total: u64 = all.iter().map(|(_, _, instances)| *instances).sum();
    if total > u64::from(MOST) {
        let at = plan.place_of("add").unwrap_or_default();
        plan.fault(Fault::new(at, format!("`add` has {total} instances in all; {MOST} are the most")));
        return Vec::new();
    }
    all
}

fn moved(plan: &mut Table<'_>) -> Vec<(Text, Text)> {
    tables(plan, "move", |table| {
        let (instance, agent) = (needed(table, "instance"), needed(table, "agent"));
        Some((instance?, agent?))
    })
}

fn ended(plan: &mut Table<'_>, node: &Node) -> Vec<Text> {
    // An empty list ends nothing.
    if matches!(&node.value, Value::List(list) if list.is_empty()) {
        return Vec::new();
    }
    plan.as_texts("end", node).unwrap_or_default()
}

fn planner(plan: &mut Table<'_>, name: Text) -> Option<String> {
    match check_planner(&name.value) {
        Ok(()) => Some(name.value),
        Err(what) => {
            plan.fault(Fault::new(name.at, format!("`planner` of the plan {what}")));
            None
        }
    }
}

fn predicted(plan: &mut Table<'_>, rate: &Spanned<f64>) -> f64 {
    if rate.value > MOST_PREDICTED {
        let message =
            format!("`predicted_per_s` of the plan is {}; {MOST_PREDICTED:e} is the most", rate.value);
        plan.fault(Fault::new(rate.at, message));
    }
    rate.value
}

#[cfg(test)]
mod tests {
    use tuplane_wire::message::JobPhase;

    use super::*;
    use crate::output::{Color, Format};
    use crate::wait::look;

    #[test]
    fn a_plan_names_each_instance_and_nothing_else_is_taken() {
        let text = r#"{"add": [{"vertex": "w", "agent": "b", "instances": 2}], "end": ["w#1"],
            "move": [{"instance": "w#0", "agent": "c"}], "planner": "mine", "predicted_per_s": null}"#;
        let (plan, _) = plan(text).unwrap();
        let new = ("w".to_owned(), "b".to_owned());
        assert_eq!(plan.add, [new.clone(), new]);
        assert_eq!((plan.moves.len(), &plan.end[..]), (1, &["w#1".to_owned()][..]));
        assert_eq!((plan.planner.as_deref(), plan.predicted), (Some("mine"), None));
    }

    #[test]
    fn all_faults_of_a_plan_are_said_with_their_places() {
        let text = r#"{"add": [{"vertex": 3, "agent": "b", "instances": 0}, {"vertex": "w"}, null],
 "move": {"instance": "w#0"}, "end": [1], "planner": "auto", "predicted_per_s": -1, "ad": []}"#;
        let said: Vec<String> = plan(text).unwrap_err().iter().map(ToString::to_string).collect();
        for part in [
            "1:21: `vertex` of entry 1 of `add` must be text, not a number",
            "`instances` of entry 1 of `add` is 0; it must be 1 to 10000",
            "entry 2 of `add` has no `agent`",
            "entry 3 of `add` must be a table, not null",
            "2:10: `move` of the plan must be a list of tables, not a table",
            "`end` of the plan must be text",
            "`planner` of the plan is `auto`",
            "`predicted_per_s` of the plan is -1; it must be 0 or more",
            "unknown key `ad` in the plan (did you mean `add`?)",
        ] {
            assert!(said.iter().any(|fault| fault.contains(part)), "{part}: {said:#?}");
        }
        assert_eq!(said.len(), 9, "{said:#?}");
        for other in ["[]", "null", "7", "{", "", r#"{"predicted_per_s": 1e308}"#, r#"{"planner": ""}"#] {
            assert_eq!(plan(other).unwrap_err().len(), 1, "{other}");
        }
        let many = r#"{"add": [{"vertex": "w", "agent": "b", "instances": 9999}, {"vertex": "w", "agent": "c", "instances": 9}]}"#;
        assert!(plan(many).unwrap_err()[0].message.contains("10008 instances in all"));
    }

    #[test]
    fn all_names_that_there_are_not_are_said_with_their_places() {
        let status = look(JobPhase::Running, 1, 9);
        let text = r#"{"add": [{"vertex": "c", "agent": "h1"}, {"vertex": "a", "agent": "zz"}],
 "move": [{"instance": "a#0", "agent": "h2"}], "end": ["a#0", "a#7", "nope#1"]}"#;
        let (_, names) = plan(text).unwrap();
        let said: Vec<String> =
            unknown(&names, &status, &["h1", "h2"]).iter().map(ToString::to_string).collect();
        for part in [
            "1:21: the job has no vertex `c`",
            "there is no agent `zz`; there are h1, h2",
            "2:63: the job has no running instance `a#7` (did you mean `a#0`?)",
            "the job has no running instance `nope#1`",
        ] {
            assert!(said.iter().any(|fault| fault.contains(part)), "{part}: {said:#?}");
        }
        assert_eq!(said.len(), 4, "{said:#?}");
    }

    #[test]
    fn what_has_no_end_is_no_plan() {
        let output = Output::new(Format::Text, Color::Never, false, false);
        let Err(Failure::Usage(why)) = read(Path::new("/dev/zero"), &output) else { panic!("it was taken") };
        assert!(why.contains("longer than 16 MiB"), "{why}");
    }
}
