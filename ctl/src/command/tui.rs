//! `tuplane tui`, and `tuplane` alone on a terminal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::plan;
use tuplane_testbed::jobs::HOT_ITEMS;
use tuplane_testbed::launch::{LocalCluster, runtime_root, start};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::message::{
    AgentStatus, ClusterReply, ClusterRequest, JobPhase, JobRoutes, JobStatus, JobSummary,
};
use tuplane_wire::scaling::{Rescale, ScalePlan};

use super::{submit, up};
use crate::args::{Command, Global, LocalArgs, Overrides};
use crate::cluster::{Cluster, unexpected};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::jobfile::JobFile;
use crate::output::time::now_ms;
use crate::output::{Color, Output, terminal_can_move};
use crate::tui::app::{End, Feed, Setup, Starting, Starts, run as run_app};
use crate::tui::effect::Asks;
use crate::tui::event::{JobFacts, Telemetry};
use crate::tui::glyph::{Glyphs, locale_is_utf8};
use crate::tui::model::{Options, Source};
use crate::tui::record;
use crate::tui::theme::{Theme, chosen};
use crate::wait::Samples;

/// One call of the UI waits at most so long: a screen that stands still is worse than a second try.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two lines on a terminal that takes no escape sequences.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Bids of the demo: at 3,000 a second enough for ten minutes.
const DEMO_ROWS: &str = "2000000";

/// Agents of the demo, and on each so many instances and rows in `work` at once.
const DEMO_AGENTS: u32 = 3;
const DEMO_CORES: u32 = 2;

/// Options of `tui`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Plays a recording instead of asking a cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "record"])]
    replay: Option<PathBuf>,
    /// Writes all that happens to a file, which --replay plays
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Shows the graph of a job file; needs no cluster
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Changes nothing on the cluster
    #[arg(long)]
    read_only: bool,
    /// Draws with ASCII alone [default: as the locale says]
    #[arg(long)]
    ascii: bool,
    /// Colours for a dark or a light background, or none [default: dark]
    #[arg(long, value_enum, value_name = "THEME")]
    theme: Option<Theme>,
    /// Leaves the mouse to the terminal, for selecting text
    #[arg(long)]
    no_mouse: bool,
}

/// The command that `tuplane` alone stands for: the UI, where there is a terminal for it.
pub(crate) fn alone() -> Option<Command> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    (terminal && terminal_can_move()).then(|| Command::Tui(Args::default()))
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(Failure::Usage(
            "`tuplane tui` needs a terminal on standard input and output; `tuplane status -w` does not"
                .into(),
        ));
    }
    let launcher = Launcher { global: global.clone(), owned: Arc::default() };
    let owned = Arc::clone(&launcher.owned);
    let (source, feed) = feed(&args, global, output, launcher)?;
    if !terminal_can_move() {
        let Feed::Cluster(cluster) = feed else {
            return Err(Failure::Usage("this terminal (TERM) takes no escape sequences".into()));
        };
        return lines(&cluster, output).await;
    }
    let no_color = std::env::var("NO_COLOR").ok();
    let theme = match output.color() {
        Color::Never => Theme::Mono,
        Color::Always => args.theme.unwrap_or_default(),
        Color::Auto => chosen(args.theme, no_color.as_deref()),
    };
    let utf8 = !args.ascii && locale_is_utf8(|name| std::env::var(name).ok());
    let options = Options { read_only: args.read_only, theme, glyphs: Glyphs::of(utf8), source };
    let setup = Setup { options, mouse: !args.no_mouse, record: args.record };
    let ended = run_app(setup, feed).await;
    let owned = owned.lock().unwrap_or_else(PoisonError::into_inner).take();
    let down = match owned {
        Some(owned) => up::end(owned, global, output).await,
        None => Ok(()),
    };
    both(outcome(ended), down, output)
}

/// How the UI ended, unless its agents did not: that is said whatever else is, for they are still there.
fn both(ended: Outcome, down: Outcome, output: &mut Output) -> Outcome {
    match (ended, down) {
        (Err(ended), Err(down)) => {
            output.error(&down);
            Err(ended)
        }
        (ended, down) => ended.and(down),
    }
}

fn outcome(ended: Result<End, String>) -> Outcome {
    match ended.map_err(Failure::Usage)? {
        End::Asked => Ok(()),
        End::Interrupted => Err(Failure::Ended(Failure::Interrupted.code())),
        End::Signal(number) => Err(Failure::Ended(128 + number as u8)),
        End::Panicked => Err(Failure::Ended(Failure::Internal(String::new()).code())),
        End::Broken(cause) => {
            Err(Failure::Failed { kind: "io", message: format!("the terminal cannot be written: {cause}") })
        }
    }
}

/// Where the UI gets what it shows.
fn feed(
    args: &Args,
    global: &Global,
    output: &mut Output,
    launcher: Launcher,
) -> Outcome<(Source, Feed<Cluster, Launcher>)> {
    if let Some(path) = &args.plan {
        return Ok((Source::Plan, Feed::Still(Box::new(planned(path, output)?))));
    }
    if let Some(path) = &args.replay {
        let broken = |cause| Failure::file("read", path, &cause);
        // Looked at before it is opened: a pipe that nobody writes to does not open.
        if !std::fs::metadata(path).map_err(broken)?.is_file() {
            return Err(Failure::Usage(format!(
                "{} is no regular file: give one that `tuplane tui --record` wrote",
                path.display()
            )));
        }
        let file = File::open(path).map_err(broken)?;
        let recording = record::read(BufReader::new(file))
            .map_err(|why| Failure::Usage(format!("{} is no recording: {why}", path.display())))?;
        return Ok((Source::Recording, Feed::Recording(recording)));
    }
    match Cluster::find(global, output) {
        Ok(cluster) => Ok((Source::Cluster, Feed::Cluster(Arc::new(cluster.with_patience(PATIENCE))))),
        Err(Failure::Unreachable(why)) => Ok((Source::Cluster, Feed::Nobody(why, launcher))),
        Err(other) => Err(other),
    }
}

/// A job file's plan, as if it were telemetry of a job without instances.
fn planned(path: &Path, output: &mut Output) -> Outcome<Telemetry> {
    let file = JobFile::read(path, &Overrides::default())?;
    let job = match file.parse() {
        Ok(job) => job,
        Err(faults) => return Err(file.refuse(&faults, output)),
    };
    let dag = match plan(&job) {
        Ok(dag) => dag,
        Err(error) => return Err(file.refuse(&[error.fault], output)),
    };
    let dag = serde_json::to_string(&dag)
        .map_err(|cause| Failure::Internal(format!("the plan cannot be written: {cause}")))?;
    let summary = JobSummary {
        run: 0,
        name: if job.name.is_empty() { file.name.clone() } else { job.name },
        phase: JobPhase::Starting,
        attempt: 0,
        submitted_ms: 0,
        ended_ms: None,
        fault: None,
        instances: 0,
        agents: Vec::new(),
        pending: Vec::new(),
    };
    let facts = JobFacts {
        summary,
        dag,
        instances: Vec::new(),
        counters: Vec::new(),
        edges: Vec::new(),
        agents: Vec::new(),
        cost_per_second: 0.0,
        running_ms: None,
        retired: Vec::new(),
        folded: BTreeMap::new(),
    };
    Ok(Telemetry { wall_ms: now_ms(), job: Some(facts), ..Telemetry::default() })
}

/// A line each interval, for terminals that can do no more.
async fn lines(cluster: &Cluster, output: &Output) -> Outcome {
    let interrupt = Interrupt::listen()?;
    let mut samples = Samples::default();
    interrupt
        .or(async {
            loop {
                let status = cluster.status(None).await?;
                output.text(&samples.line(&cluster.name, status))?;
                tokio::time::sleep(LINE_EVERY).await;
            }
        })
        .await
}

impl Asks for Cluster {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn jobs(&self) -> Result<Vec<JobSummary>, String> {
        Self::jobs(self).await.map_err(|failure| failure.to_string())
    }

    async fn status(&self, run: u64) -> Result<Option<JobStatus>, String> {
        match self.ask(ClusterRequest::Status { job: Some(run.to_string()) }).await {
            Ok(ClusterReply::Status(status)) => Ok(Some(*status)),
            // It was forgotten between two questions.
            Ok(_) | Err(Failure::NotFound(_)) => Ok(None),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn routes(&self, run: u64) -> Result<JobRoutes, String> {
        Self::routes(self, run.to_string(), false).await.map_err(|failure| failure.to_string())
    }

    async fn flow(&self, run: u64) -> Result<(JobFlow, Vec<Rescale>), String> {
        let flow = self.etp(run.to_string(), None).await.map_err(|failure| failure.to_string())?;
        let history = match self.ask(ClusterRequest::Scalings { job: run.to_string() }).await {
            Ok(ClusterReply::Scalings(scalings)) => scalings.history,
            Ok(other) => return Err(unexpected(&other).to_string()),
            Err(failure) => return Err(failure.to_string()),
        };
        Ok((flow, history))
    }

    async fn agents(&self) -> Result<Vec<AgentStatus>, String> {
        Self::agents(self).await.map_err(|failure| failure.to_string())
    }

    async fn plan(&self, request: ClusterRequest) -> Result<ScalePlan, String> {
        match self.ask(request).await {
            Ok(ClusterReply::Scaled(plan)) => Ok(*plan),
            Ok(other) => Err(unexpected(&other).to_string()),
            Err(failure) => Err(failure.to_string()),
        }
    }

    async fn tell(&self, request: ClusterRequest) -> Result<(), String> {
        Self::tell(self, request).await.map_err(|failure| failure.to_string())
    }

    fn wall_ms(&self) -> u64 {
        now_ms()
    }

    fn outage(&self) -> Option<(u32, Instant)> {
        Self::outage(self)
    }
}

/// Starts local agents with the demo; who ends the UI ends them.
struct Launcher {
    global: Global,
    owned: Arc<Mutex<Option<LocalCluster>>>,
}

impl Starts<Cluster> for Launcher {
    fn start(&self) -> Starting<Cluster> {
        let (timeout, owned) = (self.global.timeout, Arc::clone(&self.owned));
        Box::pin(async move { demo(timeout, &owned).await.map_err(|failure| failure.to_string()) })
    }

    fn find(&self) -> Result<Arc<Cluster>, String> {
        let found = Cluster::find_saying(&self.global, |_| {}).map_err(|failure| failure.to_string())?;
        Ok(Arc::new(found.with_patience(PATIENCE)))
    }
}

async fn demo(timeout: Duration, owned: &Mutex<Option<LocalCluster>>) -> Outcome<Arc<Cluster>> {
    let options = LocalArgs { slots: Some(DEMO_CORES), cores: Some(DEMO_CORES), ..LocalArgs::default() };
    let name = format!("ui-{}", std::process::id());
    let plan = up::local_options(&name, DEMO_AGENTS, &options, false).plan()?;
    let started = start(&plan, &runtime_root()).await?;
    let cluster = Cluster::local((started.folder.clone(), started.file.clone()), timeout)?;
    let result = started.folder.path().join("result").display().to_string();
    // From here on they are ended with the UI, whatever becomes of the job.
    *owned.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
    if let Err(failure) = submit_demo(&cluster, result).await {
        // Without its job the demo is none, and the next one wants the name.
        let started = owned.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = cluster.down().await;
        if let Some(mut started) = started {
            started.let_go();
        }
        return Err(match ended {
            Ok(_) => failure,
            Err(stays) => Failure::Failed { kind: "agent", message: format!("{failure}; {stays}") },
        });
    }
    Ok(Arc::new(cluster.with_patience(PATIENCE)))
}

async fn submit_demo(cluster: &Cluster, result: String) -> Outcome {
    let sets = [("bids.n".to_owned(), DEMO_ROWS.to_owned()), ("out.path".to_owned(), result)];
    let job = Job::parse_with(HOT_ITEMS.1, FileFormat::Toml, &sets)
        .map_err(|_| Failure::Internal("the demo's job is broken".into()))?;
    cluster.submit(submit::encode(&job)?, false).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[test]
    fn agents_that_stay_are_said_however_the_ui_ended() {
        let stays = || Err(Failure::Failed { kind: "agent", message: "agent a does not end".into() });
        let code = |ended, down| {
            let mut output = Output::new(Format::Text, Color::Never, false, false);
            both(ended, down, &mut output).map_err(|failure| failure.code())
        };
        // The signal's code stays; what is said goes to standard error.
        assert_eq!(code(Err(Failure::Ended(130)), stays()), Err(130));
        assert_eq!(code(Ok(()), stays()), Err(1));
        assert_eq!(code(Err(Failure::Ended(143)), Ok(())), Err(143));
        assert_eq!(code(Ok(()), Ok(())), Ok(()));
    }
}
