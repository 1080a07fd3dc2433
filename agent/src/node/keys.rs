//! Requests of the coordinator that move state: key partitions, tables of joins, and what sources have not read.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tuplane_wire::message::{AgentReply, FaultCode, WireFault};
use tuplane_wire::scaling::{KeyAsk, KeyGroup, SourceAsk};

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
        KeyAsk::Begin(group) => patiently(&not_yet(&group, "begun"), engine.group_begin(&group)).await,
        KeyAsk::Turn(group) => engine.group_turn(&group).await,
        KeyAsk::Ship(group) => patiently(&not_yet(&group, "shipped"), engine.group_ship(&group)).await,
        KeyAsk::Await(group) => patiently(&not_yet(&group, "taken in"), engine.group_await(&group)).await,
        KeyAsk::End(group) => engine.group_end(&group),
        KeyAsk::Release { run, epoch } => engine.release(run, epoch),
    };
    done.map(|()| AgentReply::Done)
}

/// Starts what a committed plan has new here, once the tables are there that it needs.
pub(super) async fn start_new(engine: &Engine, run: u64, epoch: u64) -> Result<AgentReply, WireFault> {
    patiently("tables of joins have not been copied yet", engine.copy_tables(run, epoch)).await?;
    engine.start_new(run, epoch).map(|()| AgentReply::Done)
}

fn not_yet(group: &KeyGroup, what: &str) -> String {
    format!("group {} of key partitions has not been {what} yet", group.number)
}

/// Waits for something that goes on also when nobody waits for it; `late` is what is said until it is done.
async fn patiently<T>(late: &str, work: impl Future<Output = Result<T, WireFault>>) -> Result<T, WireFault> {
    let late = || WireFault { retryable: true, ..WireFault::new(FaultCode::Refused, late) };
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(late()))
}

/// Does as asked of sources. What takes long goes on also when nobody waits for it, and is asked for again.
pub(super) async fn sources(engine: &Arc<Engine>, ask: SourceAsk) -> Result<AgentReply, WireFault> {
    let late = "what a source has not read is not handed over yet";
    Ok(match patiently(late, engine.sources(ask)).await? {
        Some(given) => AgentReply::SourceGiven(Box::new(given)),
        None => AgentReply::Done,
    })
}
