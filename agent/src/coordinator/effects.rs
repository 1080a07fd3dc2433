//! What the state machine asks for, carried out over the links; each answers with a note.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use tuplane_wire::message::{
    AgentId, AgentReply, AgentRequest, FaultCode, RunPlan, RunReport, SinkFile, WireFault,
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

/// Stops a run; the last words of those that answered. An agent that is there runs until it is
/// told, so it is told until it answers or is dead.
pub(super) async fn stop(
    links: &Links,
    run: u64,
    agents: &[AgentId],
    reason: &str,
) -> Vec<(String, RunReport)> {
    let calls = agents.iter().map(|agent| stop_one(links, run, agent, reason));
    join_all(calls).await.into_iter().flatten().collect()
}

async fn stop_one(links: &Links, run: u64, agent: &AgentId, reason: &str) -> Option<(String, RunReport)> {
    loop {
        let request = AgentRequest::Stop { run, reason: reason.to_owned() };
        match links.call(agent, request, SHORT).await {
            Ok(AgentReply::Stopped(report)) => return Some((agent.name.clone(), *report)),
            Ok(other) => {
                tracing::warn!(run, agent = %agent.name, ?other, "stop was answered by something else");
                return None;
            }
            // The link to an agent goes when it is dead, and that is not retryable.
            Err(fault) if fault.retryable => {
                tracing::debug!(run, agent = %agent.name, %fault, "stop is sent again");
                tokio::time::sleep(AGAIN).await;
            }
            Err(fault) => {
                // It never had the run, or is lost; what it last reported stands.
                tracing::info!(run, agent = %agent.name, %fault, "stop was not answered");
                return None;
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tuplane_wire::net::Security;
    use tuplane_wire::service::Hello;

    use super::super::OwnAgent;
    use super::*;

    /// Links to an agent that answers the calls with these faults, and then stops.
    fn links(me: &AgentId, faults: Vec<WireFault>) -> (Links, Arc<AtomicU32>) {
        let (notes, _) = tokio::sync::mpsc::unbounded_channel();
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let own: OwnAgent = Arc::new(move |_| {
            let call = counted.fetch_add(1, Ordering::Relaxed) as usize;
            let fault = faults.get(call).cloned();
            Box::pin(async move {
                match fault {
                    Some(fault) => Err(fault),
                    None => Ok(AgentReply::Stopped(Box::default())),
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
        assert_eq!(stop(&broken, 1, &agents, "r").await, [("a".to_owned(), RunReport::default())]);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        let (dead, calls) = links(&me, vec![lost]);
        assert_eq!(stop(&dead, 1, &agents, "r").await, []);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
