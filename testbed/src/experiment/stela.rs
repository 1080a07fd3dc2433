//! `paper stela`: the experiments of the Stela publication, on agents of this machine, and what the fluid model predicts.

mod gaps;
mod live;
pub mod measure;
mod model;
mod plan;
mod results;
mod show;
pub mod topology;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tuplane_core::scale::Planners;

use super::finish::{self, Finished, Progress, Runs, RunsError};
use super::folder::{FolderError, digest};
use super::{Claims, Columns, FigureError, Folder, Manifest, Record, State, Stop, Table};
use plan::{Cell, FACTORS, Phases, Plan};
use results::Results;
use show::Predictions;

pub use gaps::{Case, gaps, gaps_time};
pub use plan::{Options, Set};

/// The experiment's name.
pub const NAME: &str = "paper-stela";

/// What the model says.
const MODEL: &str = "model.csv";

/// Why the experiment cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum StelaError {
    /// A planner that is to be compared, too.
    #[error("{0}")]
    Also(String),
    /// An option.
    #[error("{0}")]
    Option(String),
    /// The command line is not there.
    #[error("{0}")]
    NoCommand(String),
    /// A run.
    #[error("the run `{run}`: {why}")]
    Run {
        /// Its factors.
        run: String,
        /// Why.
        why: String,
    },
    /// The table of runs.
    #[error(transparent)]
    Runs(#[from] RunsError),
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
///
/// # Errors
/// If the options ask for what there is not.
pub fn dry_run(options: &Options) -> Result<Listed, StelaError> {
    let plan = Plan::new(options).map_err(StelaError::Option)?;
    Ok(Listed {
        schema: "tuplane/stela-plan/1",
        factors: plan::FACTORS,
        cells: plan.cells.iter().map(|cell| cell.factors().join(",")).collect(),
        repeats: plan.repeats,
        seconds: plan.time().as_secs(),
        notes: notes(),
    })
}

/// The runs with agents, and the folder of their results.
#[derive(Debug)]
pub struct Experiment {
    work: Work,
    folder: Folder,
}

impl Experiment {
    /// Makes a folder of results under `out`.
    ///
    /// # Errors
    /// If the options ask for what there is not, the command line is not beside this program, or the folder cannot be
    /// made.
    pub fn begin(options: &Options, out: &Path) -> Result<Self, StelaError> {
        let work = Work::new(options)?;
        let repeats = (1..=u64::from(work.plan.repeats)).collect();
        let mut folder = Folder::make(out, Manifest::new(NAME, serde_json::to_value(options)?, repeats, 0))?;
        folder.plan(work.runs.len(), inputs())?;
        Ok(Self { work, folder })
    }

    /// Goes on with a folder of results that is incomplete, with the options that it was begun with.
    ///
    /// # Errors
    /// If there is nothing to go on with.
    pub fn resume(folder: &Path) -> Result<Self, StelaError> {
        let folder = Folder::open(folder, NAME)?;
        let options: Options = serde_json::from_value(folder.manifest().options.clone())?;
        folder.check(&inputs())?;
        Ok(Self { work: Work::new(&options)?, folder })
    }

    /// Where its results are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs of all, and about how long they take.
    pub fn size(&self) -> (usize, Duration) {
        (self.work.plan.runs(), self.work.plan.time())
    }

    /// Does what has not been done, and writes the table, figures and the page of claims. A run that is under way when
    /// `stop` is set is given up, and its agents are ended.
    ///
    /// # Errors
    /// If a run fails, or a file cannot be written. The folder is then marked as incomplete, with the reason.
    pub fn finish(mut self, stop: &Stop, progress: impl FnMut(Progress)) -> Result<Finished, StelaError> {
        self.work.stop = stop.clone();
        finish::finish(&self.work, self.folder, stop, progress)
    }
}

/// What the runs read.
fn inputs() -> String {
    digest(topology::TOPOLOGIES.map(|topology| topology.file.1).concat().as_bytes())
}

/// The runs.
#[derive(Debug)]
struct Work {
    plan: Plan,
    runs: Vec<(Cell, u32)>,
    stop: Stop,
}

impl Work {
    fn new(options: &Options) -> Result<Self, StelaError> {
        let plan = Plan::new(options).map_err(StelaError::Option)?;
        has_command()?;
        // Repeat by repeat, so that what changes on the machine meanwhile changes for all configurations.
        let runs = (1..=plan.repeats).flat_map(|repeat| plan.cells.iter().map(move |cell| (*cell, repeat)));
        Ok(Self { runs: runs.collect(), plan, stop: Stop::default() })
    }
}

fn has_command() -> Result<(), StelaError> {
    crate::scratch::tuplane().map(drop).map_err(|why| StelaError::NoCommand(why.to_string()))
}

impl Runs for Work {
    type Run = (Cell, u32);
    type Error = StelaError;

    fn columns(&self) -> Columns {
        Columns { factors: FACTORS.into_iter().chain(["repeat"]).collect(), metrics: live::METRICS.to_vec() }
    }

    fn runs(&self) -> &[(Cell, u32)] {
        &self.runs
    }

    fn factors(&self, (cell, repeat): &(Cell, u32)) -> Vec<String> {
        cell.factors().into_iter().chain([repeat.to_string()]).collect()
    }

    /// They share the machine's processors, so that two at a time would not be alone.
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, run: &(Cell, u32)) -> Result<Option<Record>, StelaError> {
        let factors = self.factors(run);
        let metrics = live::run(&run.0, &self.plan.phases(run.0.overflow), &self.stop);
        let metrics =
            metrics.map_err(|why| StelaError::Run { run: factors.join(","), why: format!("{why:#}") })?;
        Ok(metrics.map(|metrics| Record { factors, metrics }))
    }

    fn show(&self, folder: &Folder, table: &Table) -> Result<Claims, StelaError> {
        let results = Results { plan: &self.plan, table };
        let mut shown = Vec::new();
        for figure in results.figures() {
            folder.write(&figure.file(), figure.svg()?.as_bytes())?;
            shown.push(figure.file());
        }
        let phases = self.plan.overflows().map(|overflow| {
            let Phases { warm_up, before, after } = self.plan.phases(overflow);
            format!(
                "where {} it warms up for {} s, is measured for {} s, and for {} s after the operation",
                overflow.words(),
                warm_up.as_secs(),
                before.as_secs(),
                after.as_secs()
            )
        });
        let mut said = vec![format!(
            "Runs of each configuration: {}. Of each, {}; throughput afterwards is that of the second half. Intervals are of \
             95 % confidence, by Student's t over the repeats; of one run there is none, and no verdict that needs one.",
            self.plan.repeats,
            phases.collect::<Vec<_>>().join(", ")
        )];
        said.extend(results.overrun());
        let used = table.records().iter().filter_map(|record| record.metrics[CORES_USED]);
        if let Some(most) = used.reduce(f64::max) {
            let processors = std::thread::available_parallelism().map_or(0, usize::from);
            said.push(format!(
                "This machine has {processors} processors; the most that was used of them in a run, by the agents and all \
                 else, was {most:.1}: near the whole, rows take longer than they are said to."
            ));
        }
        said.extend(notes());
        let mut all = results.claims();
        for claim in &mut all {
            claim.figures.retain(|figure| shown.contains(figure));
        }
        let claims = Claims::new(NAME, folder.path().display().to_string(), said, all);
        claims.write(folder)?;
        Ok(claims)
    }
}

/// Where a run's processors stand among its metrics.
const CORES_USED: usize = 18;

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
        "Ours: each row takes 5 ms of a core, and 10 ms in the operators that the job files name, for scale-in twice that; \
         an instance has at most one core, and a machine's instances share its cores. Memory and links (100 Mbit) are not limited.",
        "`best` chooses vertices and machines on the model's cores; the other planners count instances, and theirs go to the \
         emptiest new machine.",
        "What costs nothing (feed, filters, merges, `out`) stays where it is, also on machines that are given back: only \
         operators leave them.",
        "`storm-default` deals all instances anew and adds none, as in the publication; `storm-default-n` adds as many as \
         Stela, one for each operator in turn, and deals all anew.",
        "`overflow` is `grow` as in the publication's engine (a queueing engine, whose queues the memory alone bounds: the \
         published test of congestion needs that), and `block` as a job has it that says nothing (a back-pressured engine: \
         nothing is congested in the published sense, and Stela's instances go to the first spout).",
        "Where queues grow, spouts give what their instances take, and rows have 100 bytes of text, elsewhere 16 kB. An \
         instance that is moved live works its queue off where it was, beside the one that takes its place; restarts drop \
         the rows in the queues of what they stop, as Storm did without ackers.",
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_lists_the_configurations() {
        let listed = dry_run(&Options::new(Set::Quick)).unwrap();
        assert_eq!((listed.cells.len(), listed.repeats), (36, 1));
        assert_eq!((&*listed.cells[0], &*listed.cells[6]), ("star,stela,live,grow", "star,stela,live,block"));
    }

    #[test]
    fn the_column_of_processors_is_where_it_is_said_to_be() {
        assert_eq!(live::METRICS[CORES_USED], "cores_used");
    }
}
