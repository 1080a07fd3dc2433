//! An agent's program: reads its configuration from standard input and runs until its owner ends.

mod check;

use std::fs::OpenOptions;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;
use tuplane_wire::launch::{AgentConfig, AgentReady, LaunchRequest, READY_MARKER, StartFault};
use tuplane_wire::net::NetError;

use crate::node::{self, Build, Farewell, NodeError};
use crate::registry::Registry;
use crate::road;

const USAGE: &str = "\
An agent takes no arguments: it reads one line of JSON from standard input. Agents are started by `tuplane up`.
  check FILE   checks a job file with the operators, sources and sinks that this agent has
  registry     lists them: sort, name, version, and the fingerprint of all
  bench        measures what the slots of edges that price their targets cost on this machine
  bench state  measures how fast 100 MB of state by key is moved from one table to another
  --version    shows the version";

/// Runs a program as an agent that has what `registry` holds: the whole of the user's `main`.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     tuplane_agent::run(tuplane_agent::Registry::new())
/// }
/// ```
pub fn run(registry: Registry) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["--version" | "-V"] => {
            println!("tuplane-agent {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        ["check", file] => return check::check(file, &registry),
        ["registry"] => {
            for line in registry.lines() {
                println!("{line}");
            }
            println!("fingerprint {:016x}", registry.fingerprint());
            return ExitCode::SUCCESS;
        }
        ["bench"] => return measured(crate::bench::stream_manager),
        ["bench", "state"] => return measured(crate::bench::keyed_state),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    match start(Arc::new(registry)) {
        Ok(code) => code,
        Err(error) => {
            let message = format!("{error:#}");
            tracing::error!(message, "the agent could not start");
            say(&message);
            announce(&AgentReady::Failed { message, kind: kind(&error) });
            ExitCode::FAILURE
        }
    }
}

/// Prints what the benchmark has measured.
fn measured(benchmark: fn() -> anyhow::Result<serde_json::Value>) -> ExitCode {
    match benchmark() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the launcher is told apart.
fn kind(error: &anyhow::Error) -> StartFault {
    match error.downcast_ref::<NodeError>() {
        Some(NodeError::Join(cause)) => StartFault::Join { cause: cause.clone() },
        Some(NodeError::Net(NetError::Bind { .. })) => StartFault::Port,
        _ => StartFault::Other,
    }
}

fn start(registry: Arc<Registry>) -> anyhow::Result<ExitCode> {
    let (farewells, inbox) = mpsc::unbounded_channel();
    let (orders, asked) = mpsc::unbounded_channel();
    let mut config = read_config(farewells.clone(), orders)?;
    log_to(config.log.as_deref())?;
    if let Some(road) = &config.road {
        if road.probe {
            return probe(&config, asked);
        }
        road::leave_session();
        road::write_pid(road)?;
        let data = road::data_address(road, &road::interfaces()).map_err(anyhow::Error::msg)?;
        config.listen = road::listen_on(data.address, &config.listen);
    }
    let data = tokio::runtime::Builder::new_multi_thread()
        .thread_name("data")
        .thread_stack_size(crate::engine::STACK)
        .enable_all()
        .build()
        .context("cannot start the data runtime")?;
    // Its own thread and queue, so that control never waits behind rows.
    let control = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control runtime")?;
    let build = Build { version: env!("CARGO_PKG_VERSION").to_owned(), registry };
    let handle = data.handle().clone();
    tracing::info!(name = config.name, cluster = config.cluster, pid = std::process::id(), "agent starts");
    let farewell = control.block_on(async {
        watch_signals(farewells)?;
        let ready = if let Some(road) = config.road.clone() {
            tokio::spawn(road::serve(config.key.clone(), asked, announce));
            Some(road)
        } else {
            None
        };
        let ready = move |answer: &AgentReady| match ready {
            Some(road) => announce(&road::confirm(&road, answer)),
            None => announce(answer),
        };
        Ok::<_, anyhow::Error>(node::run(config, build, handle, inbox, ready).await?)
    })?;
    // Instances stop where they are: what they hold is not promised to anybody.
    data.shutdown_background();
    control.shutdown_background();
    Ok(match farewell {
        Farewell::Shutdown | Farewell::OwnerGone | Farewell::Signal(_) => ExitCode::SUCCESS,
        Farewell::CoordinatorGone(message) | Farewell::Failed(message) => {
            say(&message);
            ExitCode::FAILURE
        }
    })
}

/// Says where this agent would listen, and what time it is, and starts nothing.
fn probe(
    config: &AgentConfig,
    mut lines: mpsc::UnboundedReceiver<Option<LaunchRequest>>,
) -> anyhow::Result<ExitCode> {
    let road = config.road.as_ref().context("a probe is for agents on named hosts")?;
    announce(&road::probe(road, &config.listen, env!("CARGO_PKG_VERSION")).map_err(anyhow::Error::msg)?);
    while lines.blocking_recv().is_some() {
        announce(&AgentReady::Clock(node::wall_ns()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the first line, and then waits for the end of standard input: the owner's lifeline. Further
/// lines are orders of a launcher that came over ssh; one that cannot be read is handed on as `None`.
fn read_config(
    farewells: mpsc::UnboundedSender<Farewell>,
    orders: mpsc::UnboundedSender<Option<LaunchRequest>>,
) -> anyhow::Result<AgentConfig> {
    let (send, config) = std::sync::mpsc::channel();
    // A thread of its own: reading standard input cannot be cancelled.
    std::thread::Builder::new().name("lifeline".to_owned()).spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = String::new();
        let read = input.read_line(&mut line).context("standard input cannot be read").and_then(|_| {
            serde_json::from_str::<AgentConfig>(&line)
                .context("the first line of standard input is no agent configuration; use `tuplane up`")
        });
        let road = read.as_ref().ok().and_then(|config| config.road.as_ref());
        let lease = Duration::from_millis(road.map_or(0, |road| road.lease_ms));
        let over_ssh = read.as_ref().is_ok_and(|config| config.road.is_some());
        let detached = read.as_ref().map_or(true, |config| config.detached);
        // The receiver waits for exactly this.
        let _ = send.send(read);
        if over_ssh {
            let heard = Heard::of(lease, farewells.clone());
            for line in input.lines() {
                let Ok(line) = line else { break };
                heard.now();
                if line.is_empty() {
                    continue;
                }
                let order = serde_json::from_str::<LaunchRequest>(&line).ok();
                let let_go = if detached { LaunchRequest::Detach } else { LaunchRequest::EndWithCluster };
                let is_let_go = order.as_ref() == Some(&let_go);
                // Without its receiver the agent is ending already.
                let _ = orders.send(order);
                if is_let_go {
                    heard.nothing_more();
                    return;
                }
            }
            drop(orders);
            let _ = farewells.send(Farewell::OwnerGone);
            return;
        }
        let mut order = String::new();
        let read = input.read_line(&mut order).unwrap_or(0);
        let let_go = if detached { LaunchRequest::Detach } else { LaunchRequest::EndWithCluster };
        if read > 0 && serde_json::from_str(&order).is_ok_and(|order: LaunchRequest| order == let_go) {
            return;
        }
        if detached {
            // Its launcher is gone before the start was complete.
            let _ = farewells.send(Farewell::OwnerGone);
            return;
        }
        let mut rest = [0; 256];
        while input.read(&mut rest).is_ok_and(|read| read > 0) {}
        // Without its receiver the agent is ending already.
        let _ = farewells.send(Farewell::OwnerGone);
    })?;
    config.recv().context("standard input was not read")?
}

/// When the launcher was heard of last. Its connection may stand although its machine sleeps.
#[derive(Debug, Clone)]
struct Heard {
    /// Absent once nothing more is expected.
    last: Arc<Mutex<Option<Instant>>>,
}

impl Heard {
    /// Says farewell when nothing was heard for a lease; never where that is 0.
    fn of(lease: Duration, farewells: mpsc::UnboundedSender<Farewell>) -> Self {
        let heard = Self { last: Arc::new(Mutex::new(Some(Instant::now()))) };
        let watched = heard.clone();
        let look = (lease / 8).min(Duration::from_secs(1));
        let watch = move || {
            let mut late = 0;
            // Twice in a row: after a freeze of this process the lines that came are read first.
            while late < 2 {
                std::thread::sleep(look);
                let Some(last) = watched.last() else { return };
                late = if last.elapsed() > lease { late + 1 } else { 0 };
            }
            tracing::warn!("the launcher was not heard of for {} s", lease.as_secs());
            // Without its receiver the agent is ending already.
            let _ = farewells.send(Farewell::OwnerGone);
        };
        if !lease.is_zero() && std::thread::Builder::new().name("launcher".to_owned()).spawn(watch).is_err() {
            tracing::warn!("no thread to watch the launcher with: only the end of its connection is seen");
        }
        heard
    }

    fn now(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn nothing_more(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn watch_signals(farewells: mpsc::UnboundedSender<Farewell>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            // Ignored by an agent that outlives its terminal: the lifeline decides.
            () = async { while hangup.recv().await.is_some() {} } => "SIGHUP",
        };
        // Without its receiver the agent is ending already.
        let _ = farewells.send(Farewell::Signal(name));
    });
    Ok(())
}

fn log_to(path: Option<&str>) -> anyhow::Result<()> {
    // What a call came to is said where it was made, with its agent and what was asked; the library knows neither.
    let filter = EnvFilter::try_from_env("TUPLANE_LOG").unwrap_or_else(|_| EnvFilter::new("info,tarpc=off"));
    // A log on a full disk takes no complaint about itself either.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    match path {
        Some(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot write the log {path}"))?;
            builder.with_writer(Mutex::new(file)).init();
        }
        None => builder.with_writer(std::io::stderr).init(),
    }
    Ok(())
}

/// Says it on standard error, which is the log on hosts: its disk may be full.
fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "tuplane-agent: {message}");
}

/// Tells the launcher, on one line of standard output.
fn announce(ready: &AgentReady) {
    let Ok(json) = serde_json::to_string(ready) else { return };
    let mut output = std::io::stdout().lock();
    // A launcher that is gone reads nothing; the lifeline notices that.
    let _ = writeln!(output, "{READY_MARKER}{json}").and_then(|()| output.flush());
}
