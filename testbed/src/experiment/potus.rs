//! `paper potus`: the experiments of the POTUS publication, repeated on the simulator.

mod aims;
mod claims;
mod everywhere;
mod figures;
mod plan;
mod set_up;
mod view;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Map;
use tuplane_core::fault::suggestion;
use tuplane_core::route::Setting;
use tuplane_core::route::predict::Setup;

use super::finish::{self, Finished, Progress, Runs, RunsError};
use super::folder::{FolderError, digest};
use super::{Claims, Columns, FigureError, Folder, Interval, Manifest, Record, Stop, Table};
use crate::arrivals::ArrivalsError;
use crate::predict::prophet_version;
use crate::sim::{self, Arrivals, FileFault, PERFECT, Registry, SimError};
use plan::{Cell, FACTORS, Forecaster, Plan, SEEDS};
use set_up::SetUp;
use view::{METRICS, View};

/// The experiment's name.
pub const NAME: &str = "paper-potus";

/// The table of the runs' means.
const MEANS: &str = "means.csv";

/// The folder in the results that has what ships with the product.
const SET_UP: &str = "set-up";

/// Slots of a run: of the whole, of the quick one, and of a rehearsal.
const SLOTS: (u32, u32, u32) = (20_000, 2000, 200);

/// The fewest slots that a verdict needs, and that anything is measured in.
const TELLING_SLOTS: u32 = 1000;
const LEAST_SLOTS: u32 = 50;

/// The most seeds: each is a run of every configuration.
const MOST_SEEDS: u32 = 1000;

/// What is predicted with.
const PREDICTORS: [&str; 5] = [PERFECT, "kalman", "distr", "moving_average", "ewma"];

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// A part of the plan that shows the same.
    pub quick: bool,
    /// All of the plan with few slots and seeds: it shows that everything runs, and nothing else.
    pub rehearsal: bool,
    /// Runs of each configuration, with the seeds from 1 on.
    pub seeds: u32,
    /// Slots of each run, of which a fifth is not counted.
    pub slots: u32,
    /// Policies and predictors beside those that are compared anyway.
    pub also: Vec<String>,
    /// A trace of arrivals.
    pub trace: Option<PathBuf>,
    /// Slots after which it repeats: the predictor `seasonal`, which has to know, is compared too.
    pub period: Option<u32>,
    /// A simulation file, whose applications, placement and telemetry are taken.
    pub base: Option<PathBuf>,
    /// Runs at a time.
    pub threads: usize,
}

impl Options {
    /// What is run if nothing else is said.
    pub fn new(quick: bool, rehearsal: bool) -> Self {
        let (whole, part, rehearsed) = SLOTS;
        let slots = if quick { part } else { whole };
        Self {
            quick,
            rehearsal,
            seeds: if rehearsal { 2 } else { SEEDS },
            slots: if rehearsal { rehearsed } else { slots },
            also: Vec::new(),
            trace: None,
            period: None,
            base: None,
            threads: 2,
        }
    }
}

/// Why the experiment cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// An option.
    #[error("{0}")]
    Option(String),
    /// The simulation file.
    #[error("the set-up cannot be run\n  {}", .0.iter().map(FileFault::to_string).collect::<Vec<_>>().join("\n  "))]
    SetUp(Vec<FileFault>),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] ArrivalsError),
    /// A file of the set-up.
    #[error("cannot write {path}: {cause}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A run.
    #[error("the run `{run}`, seed {seed}: {cause}")]
    Run {
        /// Its factors.
        run: String,
        /// Its seed.
        seed: u64,
        /// Why.
        cause: SimError,
    },
    /// The folder of results.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The table of runs.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A figure.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A document cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What would be run.
#[derive(Debug, Clone, Serialize)]
pub struct Rehearsed {
    schema: &'static str,
    /// Configurations.
    pub cells: Vec<String>,
    /// Seeds of each.
    pub seeds: u32,
    /// Slots of each run.
    pub slots: u32,
    /// About how long it takes on this machine as it is now.
    pub seconds: f64,
    /// What has to be known.
    pub notes: Vec<String>,
}

/// The plan, and what it is run on.
#[derive(Debug)]
struct Prepared {
    options: Options,
    plan: Plan,
    set_up: SetUp,
    runs: Vec<(Cell, u64)>,
    notes: Vec<String>,
}

impl Prepared {
    fn new(options: &Options, folder: &Path, registry: &Registry) -> Result<Self, PaperError> {
        let refuse = |why: String| Err(PaperError::Option(why));
        if options.seeds == 0 || options.threads == 0 {
            return refuse("`--seeds` and `--threads` are at least 1".to_owned());
        }
        if options.seeds > MOST_SEEDS {
            return refuse(format!("`--seeds` is at most {MOST_SEEDS}"));
        }
        if options.slots < LEAST_SLOTS {
            return refuse(format!("`--slots` is at least {LEAST_SLOTS}: a fifth of them is not counted"));
        }
        let mut notes = vec![format!(
            "{} of each configuration, {} slots each, of which the first fifth is not counted. Intervals are of 95 % confidence, by Student's t over the seeds.",
            if options.seeds == 1 {
                "One run".to_owned()
            } else {
                format!("{} runs, seeds 1 to {0},", options.seeds)
            },
            options.slots
        )];
        let set_up = SetUp::load(options.base.as_deref(), options.trace.as_deref(), folder, registry)?;
        notes.push(set_up.trace_words());
        notes.push(
            "A slot takes a tuple over one hop at the most every second slot (equation 8 to the letter, potus.md F6); costs are in hops.".to_owned(),
        );
        if options.period.is_some() && !matches!(set_up.trace, Arrivals::Trace { .. }) {
            return refuse(
                "`--period` says after how many slots the trace repeats: name one with `--trace`".to_owned(),
            );
        }
        let (also, mut predictors) = also(&options.also, registry)?;
        let compared = options.also.iter().filter(|name| {
            !also.contains(name) && !predictors.iter().any(|predictor| predictor.name == **name)
        });
        let compared: Vec<&str> = compared.map(String::as_str).collect();
        if !compared.is_empty() {
            notes.push(format!("Compared anyway, without `--also`: {}.", compared.join(", ")));
        }
        let named = |name: &str| Forecaster { name: name.to_owned(), options: Map::new() };
        predictors.splice(0..0, PREDICTORS.iter().map(|name| named(name)));
        if let Some(period) = options.period {
            let with = Map::from_iter([("period".to_owned(), period.into())]);
            predictors.push(Forecaster { name: "seasonal".to_owned(), options: with });
        }
        // Made once over nothing: a name or option that cannot be is refused before anything runs.
        for predictor in &predictors {
            let setup = Setup { options: predictor.options.clone(), seed: 0, truth: Some([0].into()) };
            if let Err(why) = registry.predictors.make(&predictor.name, &setup) {
                return refuse(why.to_string());
            }
        }
        match prophet(options, registry) {
            Ok((forecaster, version)) => {
                predictors.push(forecaster);
                notes.push(format!("Prophet ran: {version}."));
            }
            Err(why) => notes.push(format!("Prophet, one of the published predictors, did not run: {why}.")),
        }
        if options.quick {
            notes.push(
                "This is `--quick`: fewer values of each sweep, two of the four scenes, shorter runs."
                    .to_owned(),
            );
        }
        let plan = Plan::new(options.quick, predictors, also);
        let runs = plan.cells().into_iter();
        let runs = runs.flat_map(|cell| (1..=u64::from(options.seeds)).map(move |seed| (cell.clone(), seed)));
        Ok(Self { options: options.clone(), runs: runs.collect(), plan, set_up, notes })
    }

    /// A number of what the runs read: the set-up, and the counts of the trace.
    fn inputs(&self) -> String {
        digest(format!("{:?}", self.set_up).as_bytes())
    }

    fn run(&self, (cell, seed): &(Cell, u64), slots: u32, registry: &Registry) -> Result<Record, PaperError> {
        let config = cell.config(&self.set_up, *seed, slots);
        let outcome = sim::run_with(&config, registry);
        let outcome =
            outcome.map_err(|cause| PaperError::Run { run: config.name.clone(), seed: *seed, cause })?;
        Ok(Record { factors: factors(cell, *seed), metrics: view::metrics(&outcome) })
    }

    /// By two short runs, of those that take long and those that do not.
    fn estimate(&self, registry: &Registry) -> Result<Duration, PaperError> {
        const PART: u32 = 10;
        let Some(&scene) = self.plan.scenes.first() else { return Ok(Duration::ZERO) };
        let slots = (self.options.slots / PART).max(LEAST_SLOTS);
        let started = Instant::now();
        let samples = [Cell::potus(scene, Setting::Default).v(5.0), Cell::of(scene, "shuffle")];
        let count = samples.len() as u32;
        for cell in samples {
            self.run(&(cell, 1), slots, registry)?;
        }
        let slot = started.elapsed() / count / slots;
        Ok(slot * self.options.slots * self.runs.len() as u32 / self.options.threads as u32)
    }

    fn columns() -> Columns {
        Columns { factors: FACTORS.to_vec(), metrics: METRICS.to_vec() }
    }
}

fn factors(cell: &Cell, seed: u64) -> Vec<String> {
    let mut factors = cell.factors();
    factors.push(seed.to_string());
    factors
}

/// Sorts names into policies and predictors; a name may be both.
fn also(names: &[String], registry: &Registry) -> Result<(Vec<String>, Vec<Forecaster>), PaperError> {
    let (mut policies, mut predictors) = (Vec::new(), Vec::new());
    for name in names {
        let is_policy = registry.policies.names().any(|known| known == name);
        let is_predictor = registry.predictors.names().any(|known| known == name);
        if is_policy && name != "potus" && !plan::BASELINES.contains(&name.as_str()) {
            policies.push(name.clone());
        }
        if is_predictor && !PREDICTORS.contains(&name.as_str()) {
            predictors.push(Forecaster { name: name.clone(), options: Map::new() });
        }
        if !is_policy && !is_predictor {
            let known = || registry.policies.names().chain(registry.predictors.names());
            let close = suggestion(name, known()).map(|near| format!("; did you mean `{near}`?"));
            let all = known().collect::<Vec<_>>().join(", ");
            return Err(PaperError::Option(format!(
                "`--also {name}`: no policy and no predictor is called so; there are: {all}{}",
                close.unwrap_or_default()
            )));
        }
    }
    Ok((policies, predictors))
}

/// Prophet and its version, or why it is not there.
fn prophet(options: &Options, registry: &Registry) -> Result<(Forecaster, String), String> {
    const NAME: &str = "prophet";
    if options.quick || options.rehearsal {
        return Err("it takes too long for `--quick` and `--rehearsal`".to_owned());
    }
    if !registry.predictors.names().any(|name| name == NAME) {
        return Err("the registry has no predictor of that name".to_owned());
    }
    let version = prophet_version(None)?;
    // A fit takes seconds, and every spout has its own: two for each run.
    let mut with = Map::new();
    with.insert("every".to_owned(), (options.slots / 2).into());
    with.extend(options.period.map(|period| ("period".to_owned(), period.into())));
    Ok((Forecaster { name: NAME.to_owned(), options: with }, version))
}

/// What would be run, and how long it would take.
///
/// # Errors
/// If the options or the set-up cannot be.
pub fn dry_run(options: &Options, scratch: &Path, registry: &Registry) -> Result<Rehearsed, PaperError> {
    let prepared = Prepared::new(options, scratch, registry)?;
    Ok(Rehearsed {
        schema: "tuplane/paper-plan/1",
        seconds: prepared.estimate(registry)?.as_secs_f64(),
        cells: prepared.plan.cells().iter().map(|cell| cell.factors().join(",")).collect(),
        seeds: options.seeds,
        slots: options.slots,
        notes: prepared.notes,
    })
}

/// The experiment, with the folder of its results.
#[derive(Debug)]
pub struct Experiment<'r> {
    prepared: Prepared,
    folder: Folder,
    registry: &'r Registry,
}

impl<'r> Experiment<'r> {
    /// Makes a folder of results under `out`.
    ///
    /// # Errors
    /// If the options or the set-up cannot be, or the folder cannot be made.
    pub fn begin(options: &Options, out: &Path, registry: &'r Registry) -> Result<Self, PaperError> {
        let mut options = options.clone();
        // It may be gone on with from another folder.
        for path in [&mut options.trace, &mut options.base].into_iter().flatten() {
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        let seeds = (1..=u64::from(options.seeds)).collect();
        let mut folder = Folder::make(out, Manifest::new(NAME, serde_json::to_value(&options)?, seeds, 0))?;
        match Prepared::new(&options, &folder.path().join(SET_UP), registry) {
            Ok(prepared) => {
                folder.plan(prepared.runs.len(), prepared.inputs())?;
                Ok(Self { prepared, folder, registry })
            }
            Err(error) => {
                // Nothing is in it yet.
                folder.discard();
                Err(error)
            }
        }
    }

    /// Goes on with a folder of results that is incomplete, with the options that it was begun with.
    ///
    /// # Errors
    /// If there is nothing to go on with.
    pub fn resume(folder: &Path, registry: &'r Registry) -> Result<Self, PaperError> {
        let folder = Folder::open(folder, NAME)?;
        let options: Options = serde_json::from_value(folder.manifest().options.clone())?;
        let prepared = Prepared::new(&options, &folder.path().join(SET_UP), registry)?;
        folder.check(&prepared.inputs())?;
        Ok(Self { prepared, folder, registry })
    }

    /// Where its results are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it is run with.
    pub fn options(&self) -> &Options {
        &self.prepared.options
    }

    /// Does what has not been done, and writes tables, figures and the page of claims.
    ///
    /// # Errors
    /// If a run fails, a figure has no points, or a file cannot be written. The folder is then marked as incomplete,
    /// with the reason.
    pub fn finish(self, stop: &Stop, progress: impl FnMut(Progress)) -> Result<Finished, PaperError> {
        let Self { prepared, folder, registry } = self;
        finish::finish(&Work { prepared, registry }, folder, stop, progress)
    }
}

/// The runs, and what names in them stand for.
struct Work<'r> {
    prepared: Prepared,
    registry: &'r Registry,
}

impl Runs for Work<'_> {
    type Run = (Cell, u64);
    type Error = PaperError;

    fn columns(&self) -> Columns {
        Prepared::columns()
    }

    fn runs(&self) -> &[(Cell, u64)] {
        &self.prepared.runs
    }

    fn factors(&self, (cell, seed): &(Cell, u64)) -> Vec<String> {
        factors(cell, *seed)
    }

    fn threads(&self) -> usize {
        self.prepared.options.threads
    }

    fn run(&self, run: &(Cell, u64)) -> Result<Option<Record>, PaperError> {
        self.prepared.run(run, self.prepared.options.slots, self.registry).map(Some)
    }

    fn show(&self, folder: &Folder, table: &Table) -> Result<Claims, PaperError> {
        let prepared = &self.prepared;
        let means = means(table, &prepared.plan.cells());
        folder.write(MEANS, &means.map_err(|cause| table_fault(folder, cause))?)?;
        let is_measured = matches!(prepared.set_up.trace, Arrivals::Trace { .. });
        let trace = if is_measured { "trace" } else { "stand-in for a trace" };
        let view = View { plan: &prepared.plan, table, trace, is_measured };
        for figure in figures::figures(&view) {
            folder.write(&figure.file(), figure.svg()?.as_bytes())?;
        }
        let mut all = claims::claims(&view);
        let options = &prepared.options;
        if options.seeds < SEEDS || options.slots < TELLING_SLOTS {
            claims::without_verdicts(
                &mut all,
                &format!(
                    "A verdict takes at least {SEEDS} seeds and {TELLING_SLOTS} slots; these runs have {} and {}.",
                    options.seeds, options.slots
                ),
            );
        }
        let claims = Claims::new(NAME, folder.path().display().to_string(), prepared.notes.clone(), all);
        claims.write(folder)?;
        Ok(claims)
    }
}

fn table_fault(folder: &Folder, cause: csv::Error) -> PaperError {
    RunsError::Table { path: folder.path().join(MEANS), cause: cause.into() }.into()
}

/// A row for each configuration and metric.
fn means(table: &Table, cells: &[Cell]) -> csv::Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let (_, set) = FACTORS.split_last().unwrap_or((&"", &[]));
    out.write_record(set.iter().chain(&["metric", "mean", "low", "high", "runs"]))?;
    for cell in cells {
        let factors = cell.factors();
        for metric in METRICS {
            let Some(mean) = table.mean(&factors, metric) else { continue };
            let Interval { mean: middle, count, .. } = mean;
            let figures = [middle, mean.low(), mean.high()].map(|figure| super::rounded(figure).to_string());
            let row = factors.iter().cloned().chain([metric.to_owned()]).chain(figures);
            out.write_record(row.chain([count.to_string()]))?;
        }
    }
    Ok(out.into_inner().unwrap_or_default())
}

#[cfg(test)]
mod tests;
