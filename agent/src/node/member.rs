//! One incarnation of an agent: its id, its engine, and the way its events take.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tuplane_wire::launch::AgentConfig;
use tuplane_wire::message::{AgentId, ClusterRequest, Event, FaultCode};
use tuplane_wire::net::Security;

use super::upstream::{ANSWER, AskSplits, Slot};
use crate::engine::splits::AGAIN;
use crate::engine::{Engine, EngineConfig};
use crate::registry::Registry;

/// Events that travel together.
const BATCH: usize = 16;

/// An incarnation.
pub(super) struct Member {
    pub(super) id: AgentId,
    pub(super) engine: Arc<Engine>,
    events: JoinHandle<()>,
}

impl Member {
    /// An engine with nothing to run yet.
    pub(super) fn new(
        config: &AgentConfig,
        id: AgentId,
        security: &Security,
        data: &Handle,
        slot: Slot,
        registry: Arc<Registry>,
    ) -> std::io::Result<Self> {
        let (send, events) = mpsc::unbounded_channel();
        let engine = EngineConfig {
            me: id.clone(),
            memory: config.memory,
            cores: config.cores,
            folder: PathBuf::from(&config.folder),
            state: PathBuf::from(&config.state),
            security: security.clone(),
            registry,
        };
        let splits = Arc::new(AskSplits { agent: id.clone(), slot: slot.clone() });
        let engine = Engine::new(engine, data.clone(), send, splits)?;
        let events = tokio::spawn(forward(id.clone(), slot, events));
        Ok(Self { id, engine, events })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.events.abort();
    }
}

/// Sends events in order, each batch until it is answered.
async fn forward(id: AgentId, slot: Slot, mut events: mpsc::UnboundedReceiver<Event>) {
    let mut batch = Vec::new();
    while events.recv_many(&mut batch, BATCH).await > 0 {
        let events = std::mem::take(&mut batch);
        loop {
            let Some(upstream) = slot.get() else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let request = ClusterRequest::Events { agent: id.clone(), events: events.clone() };
            match upstream.call(request, ANSWER).await {
                Ok(_) => break,
                // Unreachable, or a coordinator that was started again and not joined yet.
                Err(fault) if fault.retryable || fault.code == FaultCode::NotFound => {
                    tracing::debug!(%fault, "events are sent again");
                    tokio::time::sleep(AGAIN).await;
                }
                Err(fault) => {
                    tracing::warn!(%fault, lost = events.len(), "events were refused");
                    break;
                }
            }
        }
    }
}
