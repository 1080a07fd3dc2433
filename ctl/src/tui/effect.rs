//! What the UI wants done, and the only part that does it: asking the cluster, at most one question of a
//! kind at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tuplane_wire::message::{AgentStatus, ClusterRequest, JobStatus, JobSummary};

use super::event::{JobFacts, News, Telemetry, What};

/// The cluster is asked so often.
pub(crate) const EVERY: Duration = Duration::from_millis(500);

/// Between two attempts during an outage: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Something that `update` wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Something of the cluster; the answer comes as a reply with the same number.
    Ask {
        /// The number.
        id: u64,
        /// What.
        ask: Ask,
    },
    /// From now on this run is looked at.
    Watch(u64),
    /// Agents are started here, with the demo.
    StartLocal,
    /// The process is stopped, as shells do.
    Suspend,
    /// All is drawn anew.
    Redraw,
    /// The UI ends.
    Quit(Quit),
}

/// Why the UI ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quit {
    /// It was asked to.
    Asked,
    /// Ctrl-C.
    Interrupted,
}

/// A change on the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Ends a run.
    Cancel {
        /// Which.
        run: u64,
    },
    /// Changes an edge's policy.
    Route {
        /// The run.
        run: u64,
        /// The edge's name.
        edge: String,
        /// The policy's name.
        policy: String,
    },
}

impl Ask {
    /// What is asked for.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Cancel { run } => format!("cancel run {run}"),
            Self::Route { edge, policy, .. } => format!("{edge} by {policy}"),
        }
    }

    /// The same once it was done.
    fn done(&self) -> String {
        match self {
            Self::Cancel { run } => format!("run {run} is being stopped"),
            Self::Route { edge, policy, .. } => format!("{edge} goes by {policy} now"),
        }
    }

    fn request(&self) -> ClusterRequest {
        match self.clone() {
            Self::Cancel { run } => ClusterRequest::Cancel { job: run.to_string() },
            Self::Route { run, edge, policy } => ClusterRequest::Route { job: run.to_string(), edge, policy },
        }
    }
}

/// A cluster as the UI asks it. Errors are sentences.
pub(crate) trait Asks: Send + Sync + 'static {
    /// Its name.
    fn name(&self) -> String;
    /// All jobs.
    fn jobs(&self) -> impl Future<Output = Result<Vec<JobSummary>, String>> + Send;
    /// One job in full: `None` for one that is not known.
    fn status(&self, run: u64) -> impl Future<Output = Result<Option<JobStatus>, String>> + Send;
    /// All agents.
    fn agents(&self) -> impl Future<Output = Result<Vec<AgentStatus>, String>> + Send;
    /// A change.
    fn tell(&self, request: ClusterRequest) -> impl Future<Output = Result<(), String>> + Send;
    /// The wall clock, ms since 1970.
    fn wall_ms(&self) -> u64;
}

/// Asks the cluster again and again, and says what came of it. Ends when nobody listens.
pub(crate) async fn poll<A: Asks>(
    asks: Arc<A>,
    watched: watch::Receiver<Option<u64>>,
    out: mpsc::Sender<What>,
) {
    let mut attempt = 0u32;
    let mut connected = false;
    let mut last = None;
    loop {
        let began = Instant::now();
        let wanted = *watched.borrow();
        match look(&*asks, wanted, last).await {
            Ok(telemetry) => {
                last = telemetry.job.as_ref().map(|job| job.summary.run).or(last);
                attempt = 0;
                let news = (!connected).then_some(What::Connection(News::Connected));
                connected = true;
                for what in news.into_iter().chain([What::Telemetry(Box::new(telemetry))]) {
                    if out.send(what).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(EVERY.saturating_sub(began.elapsed())).await;
            }
            Err(cause) => {
                connected = false;
                attempt = attempt.saturating_add(1);
                let wait = backoff(attempt);
                let next_in = wait.as_millis() as u64;
                if out.send(What::Connection(News::Lost { cause, attempt, next_in })).await.is_err() {
                    return;
                }
                tokio::time::sleep(wait).await;
            }
        }
    }
}

fn backoff(attempt: u32) -> Duration {
    BACKOFF.0.saturating_mul(1 << attempt.saturating_sub(1).min(8)).min(BACKOFF.1)
}

/// One look: agents, jobs, and one job in full. That is the one that is wanted; else the one of the last
/// look while it lives, then the newest that lives, then the one of the last look, then the newest.
async fn look(asks: &impl Asks, wanted: Option<u64>, last: Option<u64>) -> Result<Telemetry, String> {
    let jobs = asks.jobs().await?;
    let agents = asks.agents().await?;
    let job = match choose(&jobs, wanted, last) {
        Some(run) => asks.status(run).await?.map(JobFacts::from),
        None => None,
    };
    Ok(Telemetry { cluster: asks.name(), wall_ms: asks.wall_ms(), jobs, job, agents })
}

fn choose(jobs: &[JobSummary], wanted: Option<u64>, last: Option<u64>) -> Option<u64> {
    let known =
        |run: &u64, live: bool| jobs.iter().any(|job| job.run == *run && (!live || !job.phase.is_final()));
    let newest = |live: bool| jobs.iter().map(|job| job.run).filter(|run| known(run, live)).max();
    wanted
        .filter(|run| known(run, false))
        .or_else(|| last.filter(|run| known(run, true)))
        .or_else(|| newest(true))
        .or_else(|| last.filter(|run| known(run, false)))
        .or_else(|| newest(false))
}

/// Asks for a change and says what came of it.
pub(crate) async fn ask<A: Asks>(asks: Arc<A>, id: u64, ask: Ask, out: mpsc::Sender<What>) {
    let answer = asks.tell(ask.request()).await.map(|()| ask.done());
    // A UI that has ended needs no answer.
    let _ = out.send(What::Reply { id, answer }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_that_is_looked_at_stays_while_it_lives() {
        use tuplane_wire::message::JobPhase;
        let job = |run, phase| JobSummary {
            run,
            name: String::new(),
            phase,
            attempt: 1,
            submitted_ms: 0,
            ended_ms: None,
            fault: None,
            instances: 0,
            agents: Vec::new(),
            pending: Vec::new(),
        };
        let jobs = [job(1, JobPhase::Running), job(2, JobPhase::Running), job(3, JobPhase::Failed)];
        assert_eq!(choose(&jobs, None, None), Some(2));
        assert_eq!(choose(&jobs, None, Some(1)), Some(1));
        assert_eq!(choose(&jobs, None, Some(3)), Some(2));
        assert_eq!(choose(&jobs, Some(3), Some(1)), Some(3));
        assert_eq!(choose(&jobs[2..], None, None), Some(3));
        assert_eq!(choose(&[], Some(3), Some(1)), None);
    }

    #[test]
    fn attempts_come_further_and_further_apart_up_to_a_bound() {
        assert_eq!(backoff(1), Duration::from_millis(500));
        assert_eq!(backoff(3), Duration::from_secs(2));
        assert_eq!(backoff(60), Duration::from_secs(5));
    }
}
