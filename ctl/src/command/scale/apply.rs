//! `tuplane scale apply`: a plan that was made elsewhere.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;
use tuplane_wire::scaling::{ExactPlan, ScaleAsk};

use super::{Carry, Ends, carry_out};
use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// A longer text is not read: a device has no end.
const MOST: u64 = 16 << 20;

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

/// The document.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    add: Vec<Add>,
    #[serde(rename = "move")]
    moves: Vec<Move>,
    end: Vec<String>,
    planner: Option<String>,
    predicted_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    vertex: String,
    agent: String,
    #[serde(default = "one")]
    instances: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Move {
    instance: String,
    agent: String,
}

fn one() -> u16 {
    1
}

impl From<Document> for ExactPlan {
    fn from(document: Document) -> Self {
        let add = document.add.into_iter().flat_map(|Add { vertex, agent, instances }| {
            std::iter::repeat_n((vertex, agent), usize::from(instances))
        });
        Self {
            add: add.collect(),
            moves: document.moves.into_iter().map(|Move { instance, agent }| (instance, agent)).collect(),
            end: document.end,
            planner: document.planner,
            predicted: document.predicted_per_s,
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let plan = read(&args.file)?;
    let cluster = Cluster::find(global, output)?;
    let ask = ScaleAsk::Exact(Box::new(plan));
    carry_out(&cluster, args.job, ask, &args.carry, &Ends::None, global, output)
        .await?
        .document(json!({}), output)
}

fn read(file: &PathBuf) -> Outcome<ExactPlan> {
    let unfit = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().take(MOST + 1).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(MOST + 1).read_to_string(&mut text))
    };
    read.map_err(|cause| unfit(cause.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(unfit(format!("it is longer than {} MiB, which no plan is", MOST >> 20)));
    }
    let document: Document = serde_json::from_str(&text).map_err(|cause| unfit(cause.to_string()))?;
    Ok(document.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_each_instance_and_nothing_else_is_taken() {
        let text = r#"{"add": [{"vertex": "w", "agent": "b", "instances": 2}], "end": ["w#1"],
            "move": [{"instance": "w#0", "agent": "c"}], "planner": "mine"}"#;
        let plan: ExactPlan = serde_json::from_str::<Document>(text).unwrap().into();
        let new = ("w".to_owned(), "b".to_owned());
        assert_eq!(plan.add, [new.clone(), new]);
        assert_eq!((plan.moves.len(), &plan.end[..]), (1, &["w#1".to_owned()][..]));
        assert!(serde_json::from_str::<Document>(r#"{"ad": []}"#).is_err());
    }

    #[test]
    fn what_has_no_end_is_no_plan() {
        let Err(Failure::Usage(why)) = read(&PathBuf::from("/dev/zero")) else { panic!("it was taken") };
        assert!(why.contains("longer than 16 MiB"), "{why}");
    }
}
