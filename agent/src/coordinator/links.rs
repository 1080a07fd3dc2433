//! The coordinator's connections to agents: its own in this process, others by reconnecting clients.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tuplane_wire::client::{CallError, Client, LinkState};
use tuplane_wire::message::{AgentId, AgentInfo, AgentReply, AgentRequest, FaultCode, WireFault};
use tuplane_wire::net::{self, Kind, NetError, Security};
use tuplane_wire::service::Hello;

use super::OwnAgent;
use super::driver::Note;

/// A process that is gone refuses one of so many dials, this far apart.
const PROOF: (u32, Duration) = (4, Duration::from_millis(250));

/// How long one of those dials may take.
const DIAL: Duration = Duration::from_millis(300);

/// A link that is down for so long is looked into again.
const DOWN: Duration = Duration::from_secs(1);

/// How often a link that is down is tried; the client's own back-off comes on top.
const PING: Duration = Duration::from_secs(2);

/// All links. Cheap to clone.
#[derive(Clone)]
pub(super) struct Links {
    inner: Arc<Inner>,
}

struct Inner {
    me: AgentId,
    own: OwnAgent,
    security: Security,
    hello: Hello,
    notes: mpsc::UnboundedSender<Note>,
    remote: Mutex<HashMap<AgentId, Remote>>,
}

struct Remote {
    client: Arc<Client>,
    guard: AbortHandle,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Links(..)")
    }
}

impl Links {
    pub(super) fn new(
        me: AgentId,
        own: OwnAgent,
        security: Security,
        hello: Hello,
        notes: mpsc::UnboundedSender<Note>,
    ) -> Self {
        Self { inner: Arc::new(Inner { me, own, security, hello, notes, remote: Mutex::default() }) }
    }

    /// Connects to an agent that has registered, and watches it from now on.
    pub(super) fn add(&self, info: &AgentInfo) {
        if info.id == self.inner.me {
            return;
        }
        let mut remote = self.lock();
        if let Some(known) = remote.get(&info.id)
            && known.client.address() == info.address
        {
            return;
        }
        let client = Arc::new(Client::new(
            info.address.clone(),
            self.inner.security.clone(),
            self.inner.hello.clone(),
        ));
        let task = tokio::spawn(watch(self.clone(), info.id.clone(), client.clone()));
        let link = Remote { client, guard: task.abort_handle() };
        if let Some(old) = remote.insert(info.id.clone(), link) {
            old.guard.abort();
        }
    }

    /// Drops the link to an agent that is dead.
    pub(super) fn remove(&self, id: &AgentId) {
        if let Some(link) = self.lock().remove(id) {
            link.guard.abort();
        }
    }

    /// Asks an agent.
    pub(super) async fn call(
        &self,
        id: &AgentId,
        request: AgentRequest,
        deadline: Duration,
    ) -> Result<AgentReply, WireFault> {
        if *id == self.inner.me {
            let reply = tokio::time::timeout(deadline, (self.inner.own)(request)).await;
            return reply.unwrap_or_else(|_| {
                let waited = deadline.as_millis();
                let message = format!("agent {} did not answer within {waited} ms", id.name);
                Err(WireFault { retryable: true, ..WireFault::new(FaultCode::Agent, message) })
            });
        }
        let client = self.lock().get(id).map(|link| link.client.clone());
        let Some(client) = client else {
            return Err(WireFault::new(FaultCode::Agent, format!("agent {} is gone", id.name)));
        };
        client.agent(request, deadline).await.map_err(|error| match error {
            CallError::Fault(fault) => fault,
            other => WireFault {
                retryable: true,
                ..WireFault::new(FaultCode::Agent, format!("agent {}: {other}", id.name))
            },
        })
    }

    /// Nobody listens where the agent was. A refused dial proves that, since an agent listens before it
    /// registers and for as long as it lives, and an answer proves the contrary; other errors prove nothing,
    /// since a dial may still land in the queue of a listener that is closing.
    pub(super) async fn is_gone(&self, address: &str) -> Option<String> {
        for attempt in 0..PROOF.0 {
            if attempt > 0 {
                tokio::time::sleep(PROOF.1).await;
            }
            match net::dial(address, Kind::Control, &self.inner.security, DIAL).await {
                Ok(_) => return None,
                Err(NetError::Refused { .. }) => {
                    return Some(format!("its process is gone (nobody listens on {address} any more)"));
                }
                Err(_) => {}
            }
        }
        None
    }

    /// Those of the agents that are gone, with what proves it.
    pub(super) async fn gone_among(&self, agents: &[AgentInfo]) -> Vec<(AgentId, String)> {
        let mut proofs = Vec::new();
        for agent in agents.iter().filter(|agent| agent.id != self.inner.me) {
            proofs.push(async move { (agent.id.clone(), self.is_gone(&agent.address).await) });
        }
        let found = join_all(proofs).await.into_iter();
        found.filter_map(|(id, cause)| Some((id, cause?))).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AgentId, Remote>> {
        self.inner.remote.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a link up, and says so when the process behind it is gone. Silence alone proves nothing:
/// that is the lease's part.
async fn watch(links: Links, id: AgentId, client: Arc<Client>) {
    let mut state = client.watch();
    loop {
        // The reply does not matter: it connects, or notes why not.
        let _ = client.agent(AgentRequest::Ping, PING).await;
        let up = state.wait_for(|state| *state == LinkState::Connected);
        let seen = tokio::time::timeout(DOWN, up).await.map(|seen| seen.is_ok());
        match seen {
            Ok(true) => {
                if state.wait_for(|state| *state != LinkState::Connected).await.is_err() {
                    return;
                }
                tracing::info!(agent = %id.name, address = client.address(), "connection to an agent ended");
            }
            // The client has ended.
            Ok(false) => return,
            // Still down: the first proof may have come too early, or there never was a connection.
            Err(_) => {}
        }
        if let Some(cause) = links.is_gone(client.address()).await {
            // Without its receiver the coordinator has ended.
            let _ = links.inner.notes.send(Note::Gone { id, cause });
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        let (notes, _) = mpsc::unbounded_channel();
        let own: OwnAgent = Arc::new(|_| Box::pin(async { Ok::<_, WireFault>(AgentReply::Done) }));
        let me = AgentId { name: "a".to_owned(), incarnation: 1 };
        Links::new(me, own, Security::Insecure, Hello::ours("0", 0), notes)
    }

    #[tokio::test]
    async fn a_dial_that_a_closing_listener_took_does_not_stop_the_proof() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // The first dial is taken and closed without an answer; then nobody listens.
        let closing = tokio::spawn(async move { listener.accept().await.map(|_| ()) });
        assert!(links().is_gone(&address).await.is_some());
        closing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_listener_that_does_not_answer_is_not_gone() {
        let frozen = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = frozen.local_addr().unwrap().to_string();
        assert_eq!(links().is_gone(&address).await, None);
    }
}
