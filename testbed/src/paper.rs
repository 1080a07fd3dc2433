//! The command `paper`: repeats a publication's experiments.

mod stela;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::experiment::finish::{Finished, Progress};
use crate::experiment::potus::{self, Experiment, Options};
use crate::experiment::{Claims, Stop};
use crate::scratch::Folder;
use crate::sim::Registry;
use crate::simulate::Output;

/// Repeats a publication's experiments: tables, figures, and a page of what it claims and what was measured
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Paper {
    Potus(Potus),
    Stela(stela::Stela),
}

/// Routing by POTUS, on the simulator: docs/experiments.md lists its figures and claims
#[derive(Debug, clap::Args)]
pub(crate) struct Potus {
    /// A part of the runs that shows the same, in less than a minute
    #[arg(long)]
    quick: bool,
    /// All runs with few slots and two seeds: shows that everything runs; no verdicts
    #[arg(long)]
    rehearsal: bool,
    /// Runs of each configuration, seeds 1 to N; a verdict takes 5 [default: 5; 2 with --rehearsal]
    #[arg(long, value_name = "N")]
    seeds: Option<u32>,
    /// Slots of each run; a verdict takes 1000 [default: 20000; 2000 with --quick, 200 with --rehearsal]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// A policy or a predictor to compare, one of one's own or a built-in one that is not compared anyway
    #[arg(long, value_name = "NAME")]
    also: Vec<String>,
    /// A CSV file of counts, in its last column below a header: arrivals beside Poisson's
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Slots after which the trace repeats: compares the predictor `seasonal` too
    #[arg(long, value_name = "SLOTS")]
    period: Option<u32>,
    /// A simulation file: its applications, placement and telemetry instead of those that ship with the product
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Runs at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Makes its folder of results under this one
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Goes on with a folder of results that is incomplete, as it was begun
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with_all = ["quick", "rehearsal", "seeds", "slots", "also", "trace", "period", "base", "threads", "out", "dry_run"]
    )]
    resume: Option<PathBuf>,
    /// Lists the runs and about how long they take, and runs nothing
    #[arg(long)]
    dry_run: bool,
    /// Text, or the document `tuplane/claims/1`
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Of a program that was interrupted.
const INTERRUPTED: u8 = 130;

impl Potus {
    fn options(&self) -> Options {
        let usual = Options::new(self.quick, self.rehearsal);
        Options {
            seeds: self.seeds.unwrap_or(usual.seeds),
            slots: self.slots.unwrap_or(usual.slots),
            also: self.also.clone(),
            trace: self.trace.clone(),
            period: self.period,
            base: self.base.clone(),
            threads: self.threads,
            ..usual
        }
    }
}

/// Repeats it.
pub(crate) fn run(paper: &Paper, registry: &Registry, out: &mut impl Write) -> Result<ExitCode> {
    let args = match paper {
        Paper::Potus(args) => args,
        Paper::Stela(args) => return stela::run(args, &registry.planners, out),
    };
    if args.dry_run {
        return dry_run(args, registry, out);
    }
    let experiment = match &args.resume {
        Some(folder) => Experiment::resume(folder, registry)?,
        None => Experiment::begin(&args.options(), &args.out, registry)?,
    };
    let stop = Stop::on_signals()?;
    let folder = experiment.folder().to_owned();
    eprintln!("results: {}", folder.display());
    let mut shown = Shown::new();
    let finished = experiment.finish(&stop, |progress| shown.show(progress));
    shown.end();
    ended(finished?, "potus", &folder, args.output, out)
}

/// Shows what came of it.
fn ended(
    finished: Finished,
    paper: &str,
    folder: &Path,
    output: Output,
    out: &mut impl Write,
) -> Result<ExitCode> {
    match finished {
        Finished::Complete(claims) => {
            show(&claims, folder, output, out)?;
            Ok(ExitCode::SUCCESS)
        }
        Finished::Interrupted { done, all } => {
            eprintln!(
                "tuplane-testbed: interrupted after {done} of {all} runs; go on with `tuplane-testbed paper {paper} --resume {}`",
                folder.display()
            );
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// The claims, as a table or a document.
fn show(claims: &Claims, folder: &Path, output: Output, out: &mut impl Write) -> Result<()> {
    if output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(claims)?)?;
    } else {
        write!(out, "{}\n{}\n", claims.table(), folder.join("claims.md").display())?;
    }
    Ok(())
}

fn dry_run(args: &Potus, registry: &Registry, out: &mut impl Write) -> Result<ExitCode> {
    let scratch = Folder::make("paper")?;
    let plan = potus::dry_run(&args.options(), &scratch.path, registry)?;
    if args.output == Output::Json {
        writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    plan.cells.iter().try_for_each(|cell| writeln!(out, "{cell}"))?;
    writeln!(out)?;
    plan.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    let runs = plan.cells.len() * plan.seeds as usize;
    let about = words(Duration::from_secs_f64(plan.seconds));
    writeln!(out, "{} configurations, {runs} runs, about {about}", plan.cells.len())?;
    Ok(ExitCode::SUCCESS)
}

/// To the second.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{} s", seconds.max(1))
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// Progress on standard error: a line that changes on a terminal, else a line for each tenth.
struct Shown {
    terminal: bool,
    last: Instant,
    tenth: usize,
}

impl Shown {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: Instant::now(), tenth: 0 }
    }

    fn show(&mut self, progress: Progress) {
        const EVERY: Duration = Duration::from_millis(200);
        let Progress { done, all, left } = progress;
        if self.terminal {
            if self.last.elapsed() >= EVERY || done == all {
                self.last = Instant::now();
                eprint!("\r\x1b[K{done} of {all} runs, {} left", words(left));
            }
        } else if done * 10 / all > self.tenth {
            self.tenth = done * 10 / all;
            eprintln!("{done} of {all} runs, {} left", words(left));
        }
    }

    fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}
