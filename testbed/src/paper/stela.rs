//! The command `paper stela`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tuplane_core::job::units;
use tuplane_core::scale::Planners;

use super::{INTERRUPTED, Shown, ended, show, words};
use crate::experiment::Stop;
use crate::experiment::stela::{self, Case, Experiment, Options, Set};
use crate::simulate::Output;

/// Scaling by ETP, with agents of this machine: docs/experiments.md lists its figures and claims
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Stela {
    /// Predicts throughput on the fluid model: no agents, done at once
    #[arg(long, conflicts_with_all = ["quick", "full", "dry_run", "topology", "planner", "mechanism", "overflow", "repeats"])]
    model: bool,
    /// How long nothing comes out of a loaded job that is rescaled, 20 times in a row: one without state, then one with
    /// 100 MB of it (about 16 minutes in all)
    #[arg(long, conflicts_with_all = ["model", "quick", "full", "dry_run", "topology", "planner", "mechanism", "overflow", "resume"])]
    gaps: bool,
    /// With --gaps: one job alone, which keeps so much by key, as 100MB; 0: the one without state
    #[arg(long, value_name = "SIZE", requires = "gaps", value_parser = state)]
    state: Option<u64>,
    /// Three topologies, each configuration once, in less than twenty minutes
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every planner with every mechanism
    #[arg(long)]
    full: bool,
    /// These topologies alone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    topology: Vec<String>,
    /// These planners alone, of all that there are
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    planner: Vec<String>,
    /// These mechanisms alone, of all that there are: live, restart-moved, restart-all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,
    /// These kinds of queue alone: grow (as in the publication's engine), block
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    overflow: Vec<String>,
    /// Runs of each configuration; with --gaps, rescales [default: 3; 1 with --quick, 20 with --gaps]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
    /// Lists the runs and about how long they take, and runs nothing
    #[arg(long)]
    dry_run: bool,
    /// A planner to compare, one of one's own or a built-in one that is not compared anyway
    #[arg(long, value_name = "NAME", requires = "model")]
    also: Vec<String>,
    /// Goes on with a folder of results that is incomplete, as it was begun
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["model", "quick", "full", "topology", "planner", "mechanism", "overflow", "repeats", "dry_run", "out"]
    )]
    resume: Option<PathBuf>,
    /// Makes its folder of results under this one
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Text, or a document: `tuplane/claims/1`, of a dry run `tuplane/stela-plan/1`
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The most keyed state that a job is filled with: agents of this machine hold it, twice while it moves.
const MOST_STATE: u64 = 4_000_000_000;

fn state(text: &str) -> Result<u64, String> {
    let size = units::size(text).filter(|size| *size <= MOST_STATE);
    size.ok_or_else(|| "write a size of at most 4 GB, such as 100MB; 0 for no state".to_owned())
}

/// Rescales that the gaps are of.
const RESCALES: u32 = 20;

impl Stela {
    fn options(&self) -> Options {
        Options {
            topologies: self.topology.clone(),
            planners: self.planner.clone(),
            mechanisms: self.mechanism.clone(),
            overflows: self.overflow.clone(),
            repeats: self.repeats,
            ..Options::new(match (self.quick, self.full) {
                (true, _) => Set::Quick,
                (_, true) => Set::Full,
                _ => Set::Standard,
            })
        }
    }
}

/// Runs, predicts, or lists.
pub(super) fn run(args: &Stela, planners: &Planners, out: &mut impl Write) -> Result<ExitCode> {
    if args.dry_run {
        return dry_run(args, out);
    }
    if args.model {
        return model(args, planners, out);
    }
    if args.gaps {
        return gaps(args, out);
    }
    let experiment = match &args.resume {
        Some(folder) => Experiment::resume(folder)?,
        None => Experiment::begin(&args.options(), &args.out)?,
    };
    let stop = Stop::on_signals()?;
    let folder = experiment.folder().to_owned();
    let (runs, about) = experiment.size();
    eprintln!("results: {}\n{runs} runs, one at a time, about {} in all", folder.display(), words(about));
    let mut shown = Shown::new();
    let finished = experiment.finish(&stop, |progress| shown.show(progress));
    shown.end();
    ended(finished?, "stela", &folder, args.output, out)
}

fn dry_run(args: &Stela, out: &mut impl Write) -> Result<ExitCode> {
    let listed = stela::dry_run(&args.options())?;
    if args.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    listed.cells.iter().try_for_each(|cell| writeln!(out, "{cell}"))?;
    writeln!(out)?;
    listed.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    let (cells, about) = (listed.cells.len(), words(Duration::from_secs(listed.seconds)));
    writeln!(out, "{cells} configurations, {} runs, about {about}", cells * listed.repeats as usize)?;
    Ok(ExitCode::SUCCESS)
}

fn model(args: &Stela, planners: &Planners, out: &mut impl Write) -> Result<ExitCode> {
    let (folder, claims) = stela::model(&args.out, &args.also, planners)?;
    eprintln!("results: {}", folder.display());
    if args.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&claims)?)?;
    } else {
        for claim in &claims.claims {
            writeln!(out, "{}", claim.claim)?;
            claim.parts.iter().try_for_each(|part| writeln!(out, "  {}: {}", part.scene, part.measured))?;
        }
        writeln!(out, "\n{}", folder.join("claims.md").display())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn gaps(args: &Stela, out: &mut impl Write) -> Result<ExitCode> {
    let rescales = args.repeats.unwrap_or(RESCALES).max(1);
    let cases = args.state.map_or_else(Case::both, |state| vec![Case::new(state)]);
    let stop = Stop::on_signals()?;
    let all = rescales as usize * cases.len();
    eprintln!("{all} rescales, about {} in all", words(stela::gaps_time(&cases, rescales)));
    let said = |done: usize| eprintln!("{done} of {all} rescales");
    let (folder, claims) = stela::gaps(&cases, rescales, &args.out, &stop, said)?;
    show(&claims, &folder, args.output, out)?;
    for part in claims.claims.iter().flat_map(|claim| &claim.parts).filter(|_| args.output == Output::Text) {
        writeln!(out, "{}: {}", part.scene, part.measured)?;
    }
    Ok(if stop.is_set() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}
