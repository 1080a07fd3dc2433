//! What the UI wants done, and the only part that does it: what is shown is asked for one question after the
//! other, and each change is asked for by itself.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::message::{AgentStatus, ClusterRequest, JobRoutes, JobStatus, JobSummary};
use tuplane_wire::scaling::{Rescale, ScaleAsk, ScalePlan};

use super::event::{EtpFacts, JobFacts, News, PlanFacts, RouteFacts, Telemetry, What};

/// The cluster is asked so often.
pub(crate) const EVERY: Duration = Duration::from_millis(500);

/// Between two attempts at least.
const LEAST: Duration = Duration::from_millis(100);

/// Something that `update` wants done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Something of the cluster; the answer comes as a reply.
    Ask(Ask),
    /// The cluster makes a plan for more or fewer instances, and changes nothing.
    Plan {
        /// The run.
        run: u64,
        /// What is asked for.
        ask: ScaleAsk,
    },
    /// From now on this run is looked at.
    Watch(u64),
    /// From now on it is asked how the edges of this run choose their targets; of `None` nothing is asked.
    Routes(Option<u64>),
    /// From now on it is asked what this run does in a second; of `None` nothing is asked.
    Etp(Option<u64>),
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
#[derive(Debug, Clone, PartialEq)]
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
        /// All its options, as a JSON object; empty: none.
        options: String,
    },
    /// Carries out a plan for more or fewer instances that was shown.
    Scale {
        /// The run.
        run: u64,
        /// What was asked for.
        ask: ScaleAsk,
        /// The plan of this number held when it was shown.
        epoch: u64,
        /// The plan that was shown.
        id: Option<u64>,
        /// What was asked for, in words.
        words: String,
    },
}

impl Ask {
    /// What is asked for.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Cancel { run } => format!("cancel run {run}"),
            Self::Route { edge, policy, .. } => format!("{edge} by {policy}"),
            Self::Scale { words, .. } => format!("scale {words}"),
        }
    }

    /// The same once it was done.
    fn done(&self) -> String {
        match self {
            Self::Cancel { run } => format!("run {run} is being stopped"),
            Self::Route { edge, policy, .. } => format!("{edge} goes by {policy} now"),
            Self::Scale { words, .. } => format!("scale {words}: it is being carried out"),
        }
    }

    fn request(&self) -> ClusterRequest {
        match self.clone() {
            Self::Cancel { run } => ClusterRequest::Cancel { job: run.to_string() },
            Self::Route { run, edge, policy, options } => {
                ClusterRequest::Route { job: run.to_string(), edge, policy, options }
            }
            Self::Scale { run, ask, epoch, id, .. } => {
                let job = run.to_string();
                ClusterRequest::Scale { job, ask, if_epoch: Some(epoch), if_plan: id, dry_run: false }
            }
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
    /// How the edges of a run choose their targets.
    fn routes(&self, run: u64) -> impl Future<Output = Result<JobRoutes, String>> + Send;
    /// What a run does in a second, and its rescales.
    fn flow(&self, run: u64) -> impl Future<Output = Result<(JobFlow, Vec<Rescale>), String>> + Send;
    /// All agents.
    fn agents(&self) -> impl Future<Output = Result<Vec<AgentStatus>, String>> + Send;
    /// A plan for more or fewer instances, made only or carried out.
    fn plan(&self, request: ClusterRequest) -> impl Future<Output = Result<ScalePlan, String>> + Send;
    /// A change.
    fn tell(&self, request: ClusterRequest) -> impl Future<Output = Result<(), String>> + Send;
    /// The wall clock, ms since 1970.
    fn wall_ms(&self) -> u64;
    /// Where it is not connected: attempts to connect that failed, and when the next one is made.
    fn outage(&self) -> Option<(u32, Instant)>;
}

/// Asks the cluster again and again, and says what came of it. Ends when nobody listens.
pub(crate) async fn poll<A: Asks>(
    asks: Arc<A>,
    mut watched: watch::Receiver<Option<u64>>,
    out: mpsc::Sender<What>,
) {
    let mut unanswered = 0u32;
    let mut connected = false;
    let mut last = None;
    loop {
        let began = Instant::now();
        let wanted = *watched.borrow_and_update();
        match look(&*asks, wanted, last).await {
            Ok(telemetry) => {
                last = telemetry.job.as_ref().map(|job| job.summary.run).or(last);
                unanswered = 0;
                let news = (!connected).then_some(What::Connection(News::Connected));
                connected = true;
                for what in news.into_iter().chain([What::Telemetry(Box::new(telemetry))]) {
                    if out.send(what).await.is_err() {
                        return;
                    }
                }
                // Who chooses another job sees it at once.
                let rest = EVERY.saturating_sub(began.elapsed());
                let _ = tokio::time::timeout(rest, watched.changed()).await;
            }
            Err(cause) => {
                connected = false;
                unanswered = unanswered.saturating_add(1);
                // Without a connection who connects knows when it tries again; else it is asked again.
                let (attempt, wait) = match asks.outage() {
                    Some((attempt, at)) => (attempt, at.saturating_duration_since(Instant::now())),
                    None => (unanswered, EVERY),
                };
                let next_in = wait.as_millis() as u64;
                if out.send(What::Connection(News::Lost { cause, attempt, next_in })).await.is_err() {
                    return;
                }
                tokio::time::sleep(wait.max(LEAST)).await;
            }
        }
    }
}

/// What is asked for only where it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject {
    /// How the edges of a run choose their targets.
    Routes,
    /// What it does in a second.
    Etp,
}

impl Subject {
    async fn ask(self, asks: &impl Asks, run: u64) -> What {
        match self {
            Self::Routes => What::Routes(Box::new(match asks.routes(run).await {
                Ok(routes) => RouteFacts::from(routes),
                Err(cause) => RouteFacts { run, fault: Some(cause), ..RouteFacts::default() },
            })),
            Self::Etp => What::Etp(Box::new(match asks.flow(run).await {
                Ok((flow, history)) => EtpFacts { run, flow: Some(flow), history, fault: None },
                Err(cause) => EtpFacts { run, fault: Some(cause), ..EtpFacts::default() },
            })),
        }
    }
}

/// Asks about a run, as long as that is wanted. It is a question of its own: an agent that does not answer makes its
/// answer late, and nothing else.
pub(crate) async fn poll_shown<A: Asks>(
    asks: Arc<A>,
    subject: Subject,
    mut wanted: watch::Receiver<Option<u64>>,
    out: mpsc::Sender<What>,
) {
    loop {
        let began = Instant::now();
        let run = *wanted.borrow_and_update();
        let Some(run) = run else {
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        if out.send(subject.ask(&*asks, run).await).await.is_err() {
            return;
        }
        let rest = EVERY.saturating_sub(began.elapsed()).max(LEAST);
        if let Ok(Err(_)) = tokio::time::timeout(rest, wanted.changed()).await {
            return;
        }
    }
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
pub(crate) async fn ask<A: Asks>(asks: Arc<A>, ask: Ask, out: mpsc::Sender<What>) {
    let request = ask.request();
    let answer = match ask {
        Ask::Scale { .. } => asks.plan(request).await.map(|_| ()),
        _ => asks.tell(request).await,
    };
    let answer = answer.map(|()| ask.done());
    // A UI that has ended needs no answer.
    let _ = out.send(What::Reply(answer)).await;
}

/// Asks for a plan, and says what it would do.
pub(crate) async fn plan<A: Asks>(asks: Arc<A>, run: u64, ask: ScaleAsk, out: mpsc::Sender<What>) {
    let job = run.to_string();
    let request =
        ClusterRequest::Scale { job, ask: ask.clone(), if_epoch: None, if_plan: None, dry_run: true };
    let plan = asks.plan(request).await;
    // A UI that has ended needs no answer.
    let _ = out.send(What::Planned(Box::new(PlanFacts { run, ask, plan }))).await;
}

#[cfg(test)]
mod tests {
    use tuplane_wire::message::JobPhase;

    use super::*;

    fn job(run: u64) -> JobSummary {
        JobSummary {
            run,
            name: String::new(),
            phase: JobPhase::Running,
            attempt: 1,
            submitted_ms: 0,
            ended_ms: None,
            fault: None,
            instances: 0,
            agents: Vec::new(),
            pending: Vec::new(),
        }
    }

    #[test]
    fn the_job_that_is_looked_at_stays_while_it_lives() {
        let jobs = [job(1), job(2), JobSummary { phase: JobPhase::Failed, ..job(3) }];
        assert_eq!(choose(&jobs, None, None), Some(2));
        assert_eq!(choose(&jobs, None, Some(1)), Some(1));
        assert_eq!(choose(&jobs, None, Some(3)), Some(2));
        assert_eq!(choose(&jobs, Some(3), Some(1)), Some(3));
        assert_eq!(choose(&jobs[2..], None, None), Some(3));
        assert_eq!(choose(&[], Some(3), Some(1)), None);
    }

    /// A cluster of one job that was asked for some run last.
    struct Fake {
        asked: std::sync::Mutex<Vec<u64>>,
        down: bool,
    }

    impl Asks for Fake {
        fn name(&self) -> String {
            String::new()
        }
        async fn jobs(&self) -> Result<Vec<JobSummary>, String> {
            if self.down { Err("nobody listens".into()) } else { Ok(vec![job(1), job(2)]) }
        }
        async fn status(&self, run: u64) -> Result<Option<JobStatus>, String> {
            self.asked.lock().unwrap().push(run);
            Ok(None)
        }
        async fn routes(&self, run: u64) -> Result<JobRoutes, String> {
            self.asked.lock().unwrap().push(run);
            Err("it has ended".into())
        }
        async fn flow(&self, run: u64) -> Result<(JobFlow, Vec<Rescale>), String> {
            self.asked.lock().unwrap().push(run);
            Err("it has ended".into())
        }
        async fn agents(&self) -> Result<Vec<AgentStatus>, String> {
            Ok(Vec::new())
        }
        async fn plan(&self, _: ClusterRequest) -> Result<ScalePlan, String> {
            Err("it has ended".into())
        }
        async fn tell(&self, _: ClusterRequest) -> Result<(), String> {
            Ok(())
        }
        fn wall_ms(&self) -> u64 {
            0
        }
        fn outage(&self) -> Option<(u32, Instant)> {
            self.down.then(|| (7, Instant::now() + Duration::from_secs(3)))
        }
    }

    #[tokio::test]
    async fn another_job_is_asked_for_at_once_and_an_outage_is_told_as_who_connects_knows_it() {
        let fake = |down| Arc::new(Fake { asked: std::sync::Mutex::default(), down });
        let (out, mut inbox) = mpsc::channel(8);
        let (choose, watched) = watch::channel(None);
        let up = fake(false);
        let polling = tokio::spawn(poll(Arc::clone(&up), watched, out.clone()));
        assert_eq!(inbox.recv().await, Some(What::Connection(News::Connected)));
        assert!(matches!(inbox.recv().await, Some(What::Telemetry(_))));
        choose.send_replace(Some(1));
        inbox.recv().await.unwrap();
        assert_eq!(*up.asked.lock().unwrap(), [2, 1]);
        polling.abort();

        let (_keep, watched) = watch::channel(None);
        let polling = tokio::spawn(poll(fake(true), watched, out));
        let lost = loop {
            if let What::Connection(News::Lost { attempt, next_in, .. }) = inbox.recv().await.unwrap() {
                break (attempt, next_in);
            }
        };
        assert!(lost.0 == 7 && (1..=3000).contains(&lost.1), "{lost:?}");
        polling.abort();
    }

    #[tokio::test]
    async fn routes_are_asked_for_only_while_they_are_wanted() {
        let fake = Arc::new(Fake { asked: std::sync::Mutex::default(), down: false });
        let (out, mut inbox) = mpsc::channel(8);
        let (want, wanted) = watch::channel(None);
        let polling = tokio::spawn(poll_shown(Arc::clone(&fake), Subject::Routes, wanted, out));
        tokio::task::yield_now().await;
        assert!(fake.asked.lock().unwrap().is_empty());
        for run in [7, 8] {
            want.send_replace(Some(run));
            let Some(What::Routes(facts)) = inbox.recv().await else { panic!("no answer") };
            assert_eq!((facts.run, facts.fault.as_deref()), (run, Some("it has ended")));
        }
        // It asks again by itself.
        assert!(matches!(inbox.recv().await, Some(What::Routes(facts)) if facts.run == 8));
        // Who wanted it is gone.
        drop(want);
        polling.await.unwrap();
    }
}
