//! The way to the coordinator: in this process, or over the wire.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use tuplane_wire::client::Client;
use tuplane_wire::message::{AgentId, ClusterReply, ClusterRequest, FaultCode, Split, WireFault};
use tuplane_wire::net::Security;
use tuplane_wire::service::Hello;
use tuplane_wire::version::DATA_VERSION;

use crate::coordinator::Coordinator;
use crate::engine::SplitClient;

/// How long the coordinator's answer to what must not be lost is waited for, before it is asked again.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// Where requests to the coordinator go.
#[derive(Debug, Clone)]
pub(super) enum Upstream {
    Local(Coordinator),
    Remote(Arc<Client>),
}

impl Upstream {
    pub(super) fn remote(address: &str, security: &Security, hello: Hello) -> Self {
        Self::Remote(Arc::new(Client::new(address, security.clone(), hello)))
    }

    /// Asks the coordinator. That it cannot be reached is a fault that may be tried again.
    pub(super) async fn call(
        &self,
        request: ClusterRequest,
        deadline: Duration,
    ) -> Result<ClusterReply, WireFault> {
        match self {
            Self::Local(coordinator) => coordinator.request(request).await,
            Self::Remote(client) => {
                client.cluster(request, deadline).await.map_err(|e| e.into_fault(FaultCode::Agent))
            }
        }
    }

    /// Agents send each other rows, so all must have one data version.
    pub(super) fn same_data_version(&self) -> Result<(), WireFault> {
        let Self::Remote(client) = self else { return Ok(()) };
        match client.theirs() {
            Some(theirs) if theirs.data_version != DATA_VERSION => {
                let message = format!(
                    "the coordinator at {} has data version {} (build {}), this agent {DATA_VERSION}: \
                     use one build everywhere",
                    client.address(),
                    theirs.data_version,
                    theirs.build
                );
                Err(WireFault::new(FaultCode::Version, message))
            }
            _ => Ok(()),
        }
    }
}

/// The upstream as an engine sees it: made before there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<OnceLock<Upstream>>);

impl Slot {
    /// Fills it; later calls change nothing.
    pub(super) fn set(&self, upstream: Upstream) {
        let _ = self.0.set(upstream);
    }

    pub(super) fn get(&self) -> Option<Upstream> {
        self.0.get().cloned()
    }
}

/// Asks the coordinator for splits in one agent's name.
#[derive(Debug)]
pub(super) struct AskSplits {
    pub(super) agent: AgentId,
    pub(super) slot: Slot,
}

impl SplitClient for AskSplits {
    fn next_split(
        &self,
        run: u64,
        stage: String,
        instance: u32,
        have: u32,
    ) -> BoxFuture<'static, Result<Option<Split>, WireFault>> {
        let request = ClusterRequest::NextSplit { agent: self.agent.clone(), run, stage, instance, have };
        let upstream = self.slot.get();
        Box::pin(async move {
            let starting = || WireFault::new(FaultCode::Internal, "the agent is still starting");
            match upstream.ok_or_else(starting)?.call(request, ANSWER).await? {
                ClusterReply::Split(split) => Ok(split),
                other => Err(WireFault::new(FaultCode::Internal, format!("unexpected answer: {other:?}"))),
            }
        })
    }
}
