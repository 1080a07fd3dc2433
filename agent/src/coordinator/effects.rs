//! What the state machine asks for, carried out over the links; each answers with a note.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use tuplane_core::cluster::{Halt, SealTask, SealWork};
use tuplane_wire::message::{
    AgentId, AgentReply, AgentRequest, FaultCode, RunPlan, RunReport, SinkFile, WireFault,
};

use super::links::Links;

pub(super) mod keys;
pub(super) mod sources;

/// Compiling a job's expressions may take a while on a slow machine.
const PREPARE: Duration = Duration::from_mins(1);

/// Longer than an engine waits for its peers.
const CONNECT: Duration = Duration::from_secs(20);

/// For what an agent does at once.
const SHORT: Duration = Duration::from_secs(10);

/// Files are synced.
const SEAL: Duration = Duration::from_mins(1);

/// A file that cannot be made visible is tried so often, this far apart: a disk may have room again.
const SEAL_TRIES: (u32, Duration) = (8, Duration::from_millis(500));

/// Pause before a request that must not be lost is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// Prepares, connects and starts a run on all its agents, each step only after the one before.
pub(super) async fn begin(links: &Links, plan: RunPlan) -> Result<(), WireFault> {
    let run = plan.run;
    let agents: Vec<_> = plan.agents.iter().map(|agent| agent.id.clone()).collect();
    on_all(links, &agents, &AgentRequest::Prepare(Box::new(plan)), PREPARE).await?;
    on_all(links, &agents, &AgentRequest::Connect { run }, CONNECT).await?;
    on_all(links, &agents, &AgentRequest::Start { run }, SHORT).await
}

async fn on_all(
    links: &Links,
    agents: &[AgentId],
    request: &AgentRequest,
    deadline: Duration,
) -> Result<(), WireFault> {
    let calls = agents.iter().map(|agent| links.call(agent, request.clone(), deadline));
    try_join_all(calls).await.map(|_| ())
}

/// An agent's answer to a stop: its name, and its last words if it had the run.
pub(super) type LastWords = (String, Option<RunReport>);

/// Stops a run; what those said that answered. An agent that is there runs until it is told, so it is
/// told until it answers or is dead.
pub(super) async fn stop(
    links: &Links,
    run: u64,
    agents: &[AgentId],
    reason: &str,
    discard: bool,
) -> Vec<LastWords> {
    let calls = agents.iter().map(|agent| stop_one(links, run, agent, reason, discard));
    join_all(calls).await.into_iter().flatten().collect()
}

async fn stop_one(
    links: &Links,
    run: u64,
    agent: &AgentId,
    reason: &str,
    discard: bool,
) -> Option<LastWords> {
    loop {
        let request = AgentRequest::Stop { run, reason: reason.to_owned(), discard };
        match links.call(agent, request, SHORT).await {
            Ok(AgentReply::Stopped(report)) => return Some((agent.name.clone(), Some(*report))),
            Ok(other) => {
                tracing::warn!(run, agent = %agent.name, ?other, "stop was answered by something else");
                return None;
            }
            // The link to an agent goes when it is dead, and that is not retryable.
            Err(fault) if fault.retryable => {
                tracing::debug!(run, agent = %agent.name, %fault, "stop is sent again");
                tokio::time::sleep(AGAIN).await;
            }
            // It never had the run, or has dropped it; what it last reported stands.
            Err(fault) if fault.code == FaultCode::NotFound => return Some((agent.name.clone(), None)),
            Err(fault) => {
                // It is lost; what it last reported stands.
                tracing::info!(run, agent = %agent.name, %fault, "stop was not answered");
                return None;
            }
        }
    }
}

/// Makes files of a run visible, each agent its own.
pub(super) async fn seal(links: &Links, run: u64, tasks: Vec<SealTask>) -> SealWork {
    let mut all = SealWork::default();
    for work in join_all(tasks.into_iter().map(|task| seal_one(links, run, task))).await {
        all.parts.extend(work.parts);
        all.files.extend(work.files);
        all.causes.extend(work.causes);
    }
    all
}

/// All at once; where that fails each file for itself, so that one keeps no other hidden.
async fn seal_one(links: &Links, run: u64, task: SealTask) -> SealWork {
    let SealTask { agent, parts, empty } = task;
    let mut work = SealWork::default();
    let whole = seal_call(links, run, &agent, parts.clone(), empty.clone()).await;
    let pieces: Vec<(Vec<SinkFile>, Vec<String>)> = match &whole {
        Err(fault) if fault.code != FaultCode::Agent && parts.len() + empty.len() > 1 => {
            let parts = parts.into_iter().map(|part| (vec![part], Vec::new()));
            parts.chain(empty.into_iter().map(|stage| (Vec::new(), vec![stage]))).collect()
        }
        _ => {
            take(&mut work, &agent, parts, whole);
            return work;
        }
    };
    for (parts, empty) in pieces {
        let made = seal_call(links, run, &agent, parts.clone(), empty).await;
        take(&mut work, &agent, parts, made);
    }
    work
}

fn take(work: &mut SealWork, agent: &AgentId, parts: Vec<SinkFile>, made: Result<Vec<SinkFile>, WireFault>) {
    match made {
        Ok(files) => {
            work.parts.extend(parts);
            work.files.extend(files);
        }
        Err(fault) => {
            tracing::warn!(agent = %agent.name, %fault, "files of a finished job are not visible");
            work.causes.insert(agent.name.clone(), fault.message);
        }
    }
}

/// Asked until it is answered or the agent is dead. Doing it again changes nothing.
async fn seal_call(
    links: &Links,
    run: u64,
    agent: &AgentId,
    parts: Vec<SinkFile>,
    empty: Vec<String>,
) -> Result<Vec<SinkFile>, WireFault> {
    let mut tries = 1;
    loop {
        let request = AgentRequest::Seal { run, empty: empty.clone(), parts: parts.clone() };
        match links.call(agent, request, SEAL).await {
            Ok(AgentReply::Sealed(files)) => return Ok(files),
            Ok(other) => return Err(unexpected(agent, &other)),
            Err(fault) if fault.retryable => tokio::time::sleep(AGAIN).await,
            Err(fault) if fault.code == FaultCode::Instance && tries < SEAL_TRIES.0 => {
                tries += 1;
                tokio::time::sleep(SEAL_TRIES.1).await;
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// A fault that names the agent which it came from; what was seen on the way there names it already.
fn of_agent(agent: &AgentId, fault: WireFault) -> WireFault {
    let name = format!("agent {}", agent.name);
    if fault.message.strip_prefix(&name).is_some_and(|rest| rest.starts_with([':', ' '])) {
        return fault;
    }
    WireFault { message: format!("{name}: {}", fault.message), ..fault }
}

/// Has all agents of a plan prepare it within the deadline, and checks that they reach each other. Nothing is sent by it yet.
pub(super) async fn extend(
    links: &Links,
    agents: &[AgentId],
    plan: RunPlan,
    deadline: Duration,
) -> Result<(), WireFault> {
    let run = plan.run;
    let request = AgentRequest::Extend(Box::new(plan));
    let calls = agents.iter().map(async |agent| {
        let made = links.call(agent, request.clone(), deadline).await;
        made.map_err(|fault| of_agent(agent, fault))
    });
    try_join_all(calls).await?;
    on_all(links, agents, &AgentRequest::Connect { run }, CONNECT).await
}

/// Carries a committed plan through: new instances start, and once all have, rows go by it. Where some stop first they
/// do, and what is new starts when the cost of that has passed. Agents are asked until they answer or are dead.
pub(super) async fn switch(
    links: &Links,
    agents: &[AgentId],
    run: u64,
    epoch: u64,
    halt: Option<Halt>,
) -> Result<(), WireFault> {
    if let Some(Halt { instances, cost_ms }) = halt {
        let request = AgentRequest::Halt { run, epoch, instances };
        try_join_all(agents.iter().map(|agent| until_answered(links, agent, &request))).await?;
        tokio::time::sleep(Duration::from_millis(cost_ms)).await;
    }
    for request in [AgentRequest::StartNew { run, epoch }, AgentRequest::Switch { run, epoch }] {
        let calls = agents.iter().map(|agent| until_answered(links, agent, &request));
        try_join_all(calls).await?;
    }
    Ok(())
}

/// Has agents take back what they have prepared of a plan.
pub(super) async fn abort(links: &Links, agents: &[AgentId], run: u64, epoch: u64) {
    let request = AgentRequest::Abort { run, epoch };
    for undone in join_all(agents.iter().map(|agent| until_answered(links, agent, &request))).await {
        if let Err(fault) = undone {
            tracing::debug!(run, epoch, %fault, "a plan was not taken back");
        }
    }
}

async fn until_answered(
    links: &Links,
    agent: &AgentId,
    request: &AgentRequest,
) -> Result<AgentReply, WireFault> {
    loop {
        match links.call(agent, request.clone(), SHORT).await {
            Ok(reply) => return Ok(reply),
            // The link to an agent goes when it is dead, and that is not retryable.
            Err(fault) if fault.retryable => tokio::time::sleep(AGAIN).await,
            Err(fault) => return Err(fault),
        }
    }
}

/// Tells agents something whose loss does no harm: what a run left is dropped later all the same.
pub(super) async fn tell(links: &Links, agents: &[AgentId], request: AgentRequest) {
    let calls = agents.iter().map(|agent| links.call(agent, request.clone(), SHORT));
    for (agent, reply) in agents.iter().zip(join_all(calls).await) {
        if let Err(fault) = reply {
            tracing::debug!(agent = %agent.name, %fault, "was not told");
        }
    }
}

/// Changes something on all agents of a run.
pub(super) async fn change(
    links: &Links,
    agents: &[AgentId],
    request: AgentRequest,
) -> Result<(), WireFault> {
    on_all(links, agents, &request, SHORT).await
}

fn unexpected(agent: &AgentId, reply: &AgentReply) -> WireFault {
    WireFault::new(FaultCode::Internal, format!("agent {} answered something else: {reply:?}", agent.name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tuplane_wire::net::Security;
    use tuplane_wire::service::Hello;

    use super::super::OwnAgent;
    use super::*;

    /// Links to an agent that answers the calls with these faults, and then does as asked.
    fn links(me: &AgentId, faults: Vec<WireFault>) -> (Links, Arc<AtomicU32>) {
        let (notes, _) = tokio::sync::mpsc::unbounded_channel();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let own: OwnAgent = Arc::new(move |request| {
            let call = counted.fetch_add(1, Ordering::Relaxed) as usize;
            let fault = faults.get(call).cloned();
            Box::pin(async move {
                match (fault, request) {
                    (Some(fault), _) => Err(fault),
                    (None, AgentRequest::Seal { parts, .. }) => Ok(AgentReply::Sealed(parts)),
                    (None, _) => Ok(AgentReply::Stopped(Box::default())),
                }
            })
        });
        (Links::new(me.clone(), own, Security::Insecure, Hello::ours("0", 0), notes), calls)
    }

    #[tokio::test]
    async fn a_stop_is_repeated_until_it_is_answered() {
        let me = AgentId { name: "a".to_owned(), incarnation: 1 };
        let lost = WireFault::new(FaultCode::Agent, "the connection broke");
        let again = WireFault { retryable: true, ..lost.clone() };
        let agents = [me.clone()];
        let (broken, calls) = links(&me, vec![again.clone(), again]);
        let said = stop(&broken, 1, &agents, "r", false).await;
        assert_eq!(said, [("a".to_owned(), Some(RunReport::default()))]);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        let (dead, calls) = links(&me, vec![lost]);
        assert_eq!(stop(&dead, 1, &agents, "r", false).await, []);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let (without, _) = links(&me, vec![WireFault::new(FaultCode::NotFound, "no run 1 here")]);
        assert_eq!(stop(&without, 1, &agents, "r", false).await, [("a".to_owned(), None)]);
    }

    #[tokio::test]
    async fn one_file_that_stays_hidden_keeps_no_other_hidden() {
        let me = AgentId { name: "a".to_owned(), incarnation: 1 };
        let part = |path: &str| SinkFile {
            agent: "a".to_owned(),
            stage: "out".to_owned(),
            path: path.to_owned(),
            rows: 1,
            bytes: 1,
        };
        let task = || SealTask { agent: me.clone(), parts: vec![part("p"), part("q")], empty: vec![] };
        let full = WireFault::new(FaultCode::Instance, "the disk is full");
        let broken =
            WireFault { retryable: true, ..WireFault::new(FaultCode::Agent, "the connection broke") };
        // A lost answer and a passing fault; then all is well.
        let (passing, calls) = links(&me, vec![broken, full.clone()]);
        let work = seal(&passing, 1, vec![task()]).await;
        assert_eq!((work.parts.len(), work.causes.len()), (2, 0));
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        // So often for both, as often for the first alone, and the second is well.
        let tries = SEAL_TRIES.0 as usize;
        let (lasting, calls) = links(&me, vec![full; 2 * tries]);
        let work = seal(&lasting, 1, vec![task()]).await;
        assert_eq!((work.parts, work.files), (vec![part("q")], vec![part("q")]));
        assert_eq!(work.causes["a"], "the disk is full");
        assert_eq!(calls.load(Ordering::Relaxed) as usize, 2 * tries + 1);
    }
}
