//! Requests of the coordinator that move key partitions, and what sources have not read.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tuplane_wire::message::{AgentReply, FaultCode, WireFault};
use tuplane_wire::scaling::{KeyAsk, SourceAsk};

use crate::engine::Engine;

/// What takes longer is asked for again: shorter than the coordinator waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does as asked.
pub(super) async fn answer(engine: &Arc<Engine>, ask: KeyAsk) -> Result<AgentReply, WireFault> {
    let done = match ask {
        KeyAsk::Sizes { run, epoch, instance, partitions } => {
            let sizes = engine.key_sizes(run, epoch, instance, partitions).await?;
            return Ok(AgentReply::KeySizes(sizes));
        }
        KeyAsk::Begin(group) => patiently("begun", group.number, engine.group_begin(&group)).await,
        KeyAsk::Turn(group) => engine.group_turn(&group).await,
        KeyAsk::Ship(group) => patiently("shipped", group.number, engine.group_ship(&group)).await,
        KeyAsk::Await(group) => patiently("taken in", group.number, engine.group_await(&group)).await,
        KeyAsk::End(group) => engine.group_end(&group),
        KeyAsk::Release { run, epoch } => engine.release(run, epoch),
    };
    done.map(|()| AgentReply::Done)
}

/// Waits for something that goes on also when nobody waits for it.
async fn patiently(
    what: &str,
    group: u32,
    work: impl Future<Output = Result<(), WireFault>>,
) -> Result<(), WireFault> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| {
        let message = format!("group {group} of key partitions has not been {what} yet");
        Err(WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, message) })
    })
}

/// Does as asked of sources. What takes long goes on also when nobody waits for it, and is asked for again.
pub(super) async fn sources(engine: &Arc<Engine>, ask: SourceAsk) -> Result<AgentReply, WireFault> {
    let done = tokio::time::timeout(PATIENCE, engine.sources(ask)).await.unwrap_or_else(|_| {
        let message = "what a source has not read is not handed over yet";
        Err(WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, message) })
    });
    Ok(match done? {
        Some(given) => AgentReply::SourceGiven(Box::new(given)),
        None => AgentReply::Done,
    })
}
