//! What the state machine asks for, carried out over the links; each answers with a note.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use tuplane_wire::message::{
    AgentId, AgentReply, AgentRequest, EdgeLedger, FaultCode, RunPlan, SinkFile, WireFault,
};

use super::links::Links;

/// Compiling a job's expressions may take a while on a slow machine.
const PREPARE: Duration = Duration::from_mins(1);

/// Longer than an engine waits for its peers.
const CONNECT: Duration = Duration::from_secs(20);

/// For what an agent does at once.
const SHORT: Duration = Duration::from_secs(10);

/// Files are synced.
const SEAL: Duration = Duration::from_mins(1);

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

/// Stops a run; the ledgers of those that answered.
pub(super) async fn stop(
    links: &Links,
    run: u64,
    agents: &[AgentId],
    reason: &str,
) -> Vec<(String, Vec<EdgeLedger>)> {
    let calls = agents.iter().map(async |agent| {
        let request = AgentRequest::Stop { run, reason: reason.to_owned() };
        match links.call(agent, request, SHORT).await {
            Ok(AgentReply::Stopped(edges)) => Some((agent.name.clone(), edges)),
            Ok(_) => None,
            Err(fault) => {
                // It never had the run, or is lost; what it last reported stands.
                tracing::info!(run, agent = %agent.name, %fault, "stop was not answered");
                None
            }
        }
    });
    join_all(calls).await.into_iter().flatten().collect()
}

/// Makes the files of a run visible.
pub(super) async fn seal(
    links: &Links,
    run: u64,
    agents: &[AgentId],
    empty: &[String],
) -> Result<Vec<SinkFile>, WireFault> {
    let calls = agents.iter().map(async |agent| {
        let request = AgentRequest::Seal { run, empty: empty.to_vec() };
        match links.call(agent, request, SEAL).await? {
            AgentReply::Sealed(files) => Ok(files),
            other => Err(unexpected(agent, &other)),
        }
    });
    Ok(try_join_all(calls).await?.into_iter().flatten().collect())
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
