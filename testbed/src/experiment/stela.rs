//! `paper stela`: the experiments of the Stela publication. What stands is what needs no agents: the job files, the plan
//! of the runs, the measures, and what the fluid model predicts.

pub mod measure;
mod model;
mod plan;
mod show;
pub mod topology;

use std::path::{Path, PathBuf};

use serde::Serialize;
use tuplane_core::scale::Planners;

use super::folder::FolderError;
use super::{Claims, FigureError, Folder, Manifest, State};
use plan::Plan;
use show::Predictions;

pub use plan::Set;

/// The experiment's name.
pub const NAME: &str = "paper-stela";

/// What the model says.
const MODEL: &str = "model.csv";

/// Why the experiment cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum StelaError {
    /// Runs with agents are not there.
    #[error(
        "`paper stela` does not run jobs yet: `--model` predicts what they would give, `--dry-run` lists the runs"
    )]
    NoRunner,
    /// A planner that is to be compared, too.
    #[error("{0}")]
    Also(String),
    /// A job file.
    #[error("{file}: {why}")]
    Topology {
        /// Which.
        file: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A planner has no plan.
    #[error("{topology}: `{planner}` has no plan: {why}")]
    Planner {
        /// For which topology.
        topology: &'static str,
        /// The planner.
        planner: &'static str,
        /// Its reason.
        why: String,
    },
    /// The folder of results.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The table.
    #[error("model.csv: {0}")]
    Table(#[from] csv::Error),
    /// A figure.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A document cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What would be run: the document `tuplane/stela-plan/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    schema: &'static str,
    /// What is set in a configuration, in the order in which `cells` have it.
    pub factors: [&'static str; 4],
    /// Configurations.
    pub cells: Vec<String>,
    /// Runs of each.
    pub repeats: u32,
    /// About how long it takes.
    pub seconds: u64,
    /// What has to be known.
    pub notes: Vec<String>,
}

/// The runs of a set, and how long they take.
pub fn dry_run(set: Set) -> Listed {
    let plan = Plan::new(set);
    Listed {
        schema: "tuplane/stela-plan/1",
        factors: plan::FACTORS,
        cells: plan.cells.iter().map(|cell| cell.factors().join(",")).collect(),
        repeats: plan.repeats,
        seconds: plan.time().as_secs(),
        notes: notes(),
    }
}

/// Writes what the model predicts into a new folder under `out`: a table, figures, and the page of claims. The planners of
/// these names are compared, too.
///
/// # Errors
/// If one of them is not known or is compared anyway: nothing is written then. If a topology cannot be planned, a planner refuses, or a file cannot be written. The folder is then marked as
/// incomplete, with the reason.
pub fn model(out: &Path, also: &[String], planners: &Planners) -> Result<(PathBuf, Claims), StelaError> {
    let also = plan::also(also, planners)?;
    let options = serde_json::json!({ "model": true, "also": also });
    let mut folder = Folder::make(out, Manifest::new(NAME, options, Vec::new(), 0))?;
    let claims = write(&folder, &also, planners);
    match &claims {
        Ok(_) => folder.mark(State::Complete, None, 0)?,
        Err(error) => folder.mark(State::Incomplete, Some(error.to_string()), 0)?,
    }
    Ok((folder.path().to_owned(), claims?))
}

fn write(folder: &Folder, also: &[&'static str], planners: &Planners) -> Result<Claims, StelaError> {
    let (predictions, without) = plan::predictions(&topology::TOPOLOGIES, also, planners)?;
    let predictions = Predictions(predictions);
    let mut table = Vec::new();
    predictions.table().write(&mut table)?;
    folder.write(MODEL, &table)?;
    for figure in predictions.figures() {
        folder.write(&figure.file(), figure.svg()?.as_bytes())?;
    }
    let mut said = vec!["Predictions of the fluid model; nothing was run.".to_owned()];
    said.extend(notes());
    said.extend(without);
    let claims = Claims::new(NAME, folder.path().display().to_string(), said, predictions.claims());
    claims.write(folder)?;
    Ok(claims)
}

/// What is published, what is ours, and what is not known.
fn notes() -> Vec<String> {
    [
        "Published (slides, the IC2E abstract, the authors' code): graphs, numbers of instances, gains over Storm's default \
         of Star, Linear and Diamond, the range of all gains (21 to 120 %), scale-in 40 to 500 % better, an interruption of \
         12.5 % of that of Storm's rebalance.",
        "Recalled, not confirmed: the numbers of machines and their kind (PC3000 with two cores, D710 with four for scale-in).",
        "Not known: bars of PageLoad and Processing, all convergence times, machines of network monitoring (8 to 9 here), what \
         an operator costs, which filters keep how much beside 80 %, which of two rules for the number of new instances the \
         published runs used (`stela` here has the slides', `stela-code` the code's: one less).",
        "Ours: each row takes 1 ms of a core, and 2 ms in the operators that the job files name; an instance has at most one \
         core, and a machine's instances share its cores. Memory and links (100 Mbit) are not limited.",
        "`best` chooses vertices and machines on the model's cores; the other planners count instances, and theirs go to the \
         emptiest new machine.",
        "`storm-default` deals all instances anew and adds none, as in the publication; `storm-default-n` adds as many as \
         Stela, one for each operator in turn, and deals all anew.",
        "The published test of congestion needs queues that grow; where they block nothing is congested, and Stela's \
         instances go to the first spout.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_lists_the_configurations() {
        let listed = dry_run(Set::Quick);
        assert_eq!((listed.cells.len(), listed.repeats, listed.seconds), (36, 1, 36 * 40));
        assert_eq!(listed.cells[0], "star,stela,live,grow");
    }
}
