//! Source instances that a committed plan ends: what they have not read goes to others.

use futures::future::try_join_all;
use tuplane_core::cluster::{Handed, SourceGiven};
use tuplane_core::plan::SourceMove;
use tuplane_wire::message::{AgentId, AgentReply, AgentRequest, WireFault};
use tuplane_wire::scaling::SourceAsk;

use super::keys::Places;
use super::{Links, unexpected, until_answered};

async fn ask(links: &Links, agent: &AgentId, ask: SourceAsk) -> Result<AgentReply, WireFault> {
    let answer = until_answered(links, agent, &AgentRequest::Sources(ask)).await;
    answer.map_err(|fault| WireFault { message: format!("agent {}: {}", agent.name, fault.message), ..fault })
}

/// Stops those that end; gives what they have not read.
pub(in crate::coordinator) async fn give(
    links: &Links,
    places: &Places,
    (run, epoch): (u64, u64),
    moves: &[SourceMove],
) -> Result<Vec<SourceGiven>, WireFault> {
    // Event time stands before any of those ends that hold it.
    let takers: Vec<u32> = moves.iter().flat_map(SourceMove::takers).collect();
    on_all(links, places, &SourceAsk::Hold { run, epoch, instances: takers }).await?;
    let givers = || moves.iter().flat_map(|one| &one.givers);
    let given = givers().map(async |giver| {
        let (instance, agent) = (giver.instance, places.agent(giver.instance)?);
        match ask(links, agent, SourceAsk::Give { run, epoch, instance }).await? {
            AgentReply::SourceGiven(given) => Ok(*given),
            other => Err(unexpected(agent, &other)),
        }
    });
    let given = try_join_all(given).await?;
    for giver in givers() {
        let (from, to) = (giver.instance, giver.takers.clone());
        on_all(links, places, &SourceAsk::Behind { run, epoch, from, to }).await?;
    }
    Ok(given)
}

/// Hands what they have not read to others: to all that have been told to expect it, also where it is nothing.
pub(in crate::coordinator) async fn hand(
    links: &Links,
    places: &Places,
    (run, epoch): (u64, u64),
    moves: &[SourceMove],
    handed: &Handed,
) -> Result<(), WireFault> {
    let takers = moves.iter().flat_map(SourceMove::takers).map(async |instance| {
        let units = handed.get(&instance).cloned().unwrap_or_default();
        ask(links, places.agent(instance)?, SourceAsk::Take { run, epoch, instance, units }).await
    });
    try_join_all(takers).await.map(|_| ())
}

async fn on_all(links: &Links, places: &Places, all: &SourceAsk) -> Result<(), WireFault> {
    let calls = places.all().into_iter().map(|agent| ask(links, agent, all.clone()));
    try_join_all(calls).await.map(|_| ())
}
