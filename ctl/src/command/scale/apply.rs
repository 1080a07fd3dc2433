//! `tuplane scale apply`: a plan that was made elsewhere.

use std::path::{Path, PathBuf};

use serde_json::json;
use tuplane_core::cluster::rescale::{MOST_PREDICTED, check_planner};
use tuplane_core::fault::{Fault, Spanned};
use tuplane_core::job::table::Table;
use tuplane_core::job::tree::{Node, Value};
use tuplane_core::job::{FileFormat, Text};
use tuplane_core::scale::planner::MOST;
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
    let plan = read(&args.file, output)?;
    let cluster = Cluster::find(global, output)?;
    let ask = ScaleAsk::Exact(Box::new(plan));
    carry_out(&cluster, args.job, ask, &args.carry, &Ends::None, global, output)
        .await?
        .document(json!({}), output)
}

fn read(file: &Path, output: &Output) -> Outcome<ExactPlan> {
    let file = JobFile::read(file, &Overrides::default())?;
    plan(&file.text).map_err(|faults| {
        if !output.is_text() {
            let said: Vec<String> = faults.iter().map(|fault| format!("{}:{fault}", file.name)).collect();
            return Failure::Usage(safe::lines(&said.join("\n")));
        }
        let said = faults::render(&file.name, &file.text, &faults, false);
        Failure::Usage(said.trim_end().to_owned())
    })
}

/// The plan in a document, or everything that is wrong with it.
fn plan(text: &str) -> Result<ExactPlan, Vec<Fault>> {
    let mut faults = Vec::new();
    let read = Node::parse(text, FileFormat::Json, &mut faults).map(given);
    let plan = read.and_then(|root| {
        let mut table = Table::new(&root, "the plan", &mut faults)?;
        let plan = ExactPlan {
            add: added(&mut table),
            moves: moved(&mut table),
            end: table.node("end").map_or_else(Vec::new, |node| ended(&mut table, node)),
            planner: table.text("planner").and_then(|name| planner(&mut table, name)),
            predicted: table.number("predicted_per_s").map(|rate| predicted(&mut table, &rate)),
        };
        table.finish(&mut faults, |_| None);
        Some(plan)
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
fn needed(table: &mut Table<'_>, key: &'static str) -> Option<String> {
    if table.place_of(key).is_none() {
        // It is a known key, though it is not there.
        table.know(&[key]);
        table.missing(key, format!("write \"{key}\": \"..\""));
        return None;
    }
    table.text(key).map(|text| text.value)
}

fn added(plan: &mut Table<'_>) -> Vec<(String, String)> {
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
    let each = |(vertex, agent, instances): (String, String, u64)| {
        std::iter::repeat_n((vertex, agent), usize::try_from(instances).unwrap_or(0))
    };
    all.into_iter().flat_map(each).collect()
}

fn moved(plan: &mut Table<'_>) -> Vec<(String, String)> {
    tables(plan, "move", |table| {
        let (instance, agent) = (needed(table, "instance"), needed(table, "agent"));
        Some((instance?, agent?))
    })
}

fn ended(plan: &mut Table<'_>, node: &Node) -> Vec<String> {
    // An empty list ends nothing.
    if matches!(&node.value, Value::List(list) if list.is_empty()) {
        return Vec::new();
    }
    let names = plan.as_texts("end", node).unwrap_or_default();
    names.into_iter().map(|name| name.value).collect()
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
    use super::*;
    use crate::output::{Color, Format};

    #[test]
    fn a_plan_names_each_instance_and_nothing_else_is_taken() {
        let text = r#"{"add": [{"vertex": "w", "agent": "b", "instances": 2}], "end": ["w#1"],
            "move": [{"instance": "w#0", "agent": "c"}], "planner": "mine", "predicted_per_s": null}"#;
        let plan = plan(text).unwrap();
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
    fn what_has_no_end_is_no_plan() {
        let output = Output::new(Format::Text, Color::Never, false, false);
        let Err(Failure::Usage(why)) = read(Path::new("/dev/zero"), &output) else { panic!("it was taken") };
        assert!(why.contains("longer than 16 MiB"), "{why}");
    }
}
