//! The sessions of an agent with its peers: made when a run needs them, told when one breaks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tuplane_wire::frame::DATA_VERSION;
use tuplane_wire::message::{AgentId, AgentInfo, Event, FaultCode, RunPlan, WireFault};
use tuplane_wire::net::Incoming;

use super::rescale::Undo;
use super::{Engine, Shared, internal, lock, said};
use crate::exchange::inbound::{Broken, Inbound};
use crate::exchange::outbound::{Ended, Outbound};
use crate::exchange::session::{Greeting, Welcome, read_message, write_message};

/// Every peer of a run must have answered within this time.
const MEET: Duration = Duration::from_secs(10);

impl Engine {
    /// Checks that each peer of a run answers.
    pub async fn connect(&self, run: u64) -> Result<(), WireFault> {
        let run = self.get(run)?;
        let sessions = run.sessions();
        let deadline = tokio::time::Instant::now() + MEET;
        for session in sessions {
            loop {
                match session.met() {
                    Ok(true) => break,
                    Ok(false) if tokio::time::Instant::now() < deadline => {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Ok(false) => {
                        let peer = &session.peer().name;
                        let message = format!(
                            "{} cannot reach {peer} for data: no answer in {} s",
                            self.shared.me.name,
                            MEET.as_secs()
                        );
                        return Err(WireFault::new(FaultCode::Agent, message));
                    }
                    Err(cause) => {
                        let peer = &session.peer().name;
                        let message =
                            format!("{} cannot reach {peer} for data: {cause}", self.shared.me.name);
                        return Err(WireFault::new(FaultCode::Agent, message));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Shared {
    /// The session by which this agent sends to a peer.
    pub(crate) fn session_to(self: &Arc<Self>, peer: &AgentInfo) -> Arc<Outbound> {
        self.session_among(&mut lock(&self.outbound), peer)
    }

    /// The same, for key partitions of a run that move to the peer: it stays as long as the run does, also where no
    /// edge goes there.
    pub(crate) fn road_to(self: &Arc<Self>, peer: &AgentInfo, run: u64) -> Arc<Outbound> {
        let mut sessions = lock(&self.outbound);
        let session = self.session_among(&mut sessions, peer);
        // Whoever closes those that are not used holds the same lock. One that is dead says so when it is used.
        session.open_road(run);
        session
    }

    /// The ways of the key partitions that a plan moves: from here, if some are held here, to all who may get some. With
    /// the others' sessions it is seen before the plan is committed whether there is one.
    pub(super) fn open_roads(
        self: &Arc<Self>,
        plan: &RunPlan,
        me: u16,
        sessions: &mut HashMap<u16, Arc<Outbound>>,
        undo: &Undo,
    ) {
        for vertex in &plan.moving {
            if plan.senders_before().any(|one| one.vertex == *vertex && one.agent == me) {
                for to in plan.targets().filter(|one| one.vertex == *vertex && one.agent != me) {
                    let peer = &plan.agents[usize::from(to.agent)];
                    sessions.entry(to.agent).or_insert_with(|| {
                        let session = self.road_to(peer, plan.run);
                        undo.road(&session, plan.run);
                        session
                    });
                }
            }
        }
    }

    fn session_among(
        self: &Arc<Self>,
        sessions: &mut HashMap<AgentId, Arc<Outbound>>,
        peer: &AgentInfo,
    ) -> Arc<Outbound> {
        if let Some(session) = sessions.get(&peer.id) {
            return Arc::clone(session);
        }
        let (me, id, address) = (self.me.clone(), peer.id.clone(), peer.address.clone());
        let session = Outbound::new(me, id, address, self.security.clone(), self.broken());
        sessions.insert(peer.id.clone(), Arc::clone(&session));
        let (shared, kept, ended_session) = (Arc::clone(self), Arc::clone(&session), Arc::clone(&session));
        self.data.spawn(async move {
            let peer = kept.peer().clone();
            let ended = std::panic::AssertUnwindSafe(kept.run()).catch_unwind().await;
            match ended.unwrap_or_else(|panic| Ended::Broken(format!("panicked: {}", said(panic.as_ref())))) {
                Ended::Closed => {}
                Ended::Gone(cause) | Ended::Broken(cause) => {
                    tracing::warn!(peer = %peer.name, %cause, "a peer is gone");
                    // The receiver is this agent's own control side, which outlives its sessions.
                    let _ = shared.events.send(Event::PeerGone { peer: peer.clone(), cause });
                }
            }
            let mut sessions = lock(&shared.outbound);
            // Another one may have taken its place.
            if sessions.get(&peer).is_some_and(|now| Arc::ptr_eq(now, &ended_session)) {
                sessions.remove(&peer);
            }
        });
        session
    }

    /// The session by which a peer sends to this agent.
    pub(crate) fn session_from(&self, peer: &AgentId) -> Arc<Inbound> {
        let mut sessions = lock(&self.inbound);
        let made = || Inbound::new(Arc::clone(&self.budget), self.broken());
        Arc::clone(sessions.entry(peer.clone()).or_insert_with(made))
    }

    pub(super) async fn serve_data(&self, incoming: Incoming) -> anyhow::Result<()> {
        let mut stream = incoming.secure(&self.security).await?;
        let greeting: Greeting = read_message(&mut stream).await?;
        if greeting.version != DATA_VERSION {
            write_message(&mut stream, &Welcome::Version(DATA_VERSION)).await?;
            return Ok(());
        }
        if greeting.to != self.me {
            write_message(&mut stream, &Welcome::NotMe(self.me.clone())).await?;
            return Ok(());
        }
        Ok(self.session_from(&greeting.from).serve(stream, greeting.session).await?)
    }

    /// Nothing of a run is sent or taken any more.
    pub(super) fn forget(&self, run: u64) {
        for session in lock(&self.outbound).values() {
            session.forget(run);
        }
        for session in lock(&self.inbound).values() {
            session.forget(run);
        }
    }

    /// Ends sessions that no run sends on; a later run makes new ones. Not while a run is built.
    pub(super) fn close_unused(&self) {
        lock(&self.outbound).retain(|_, session| {
            let used = session.is_used();
            if !used {
                session.close();
            }
            used
        });
    }

    /// What sessions call when a run cannot go on.
    fn broken(&self) -> Broken {
        let events = self.events.clone();
        Box::new(move |run, message| {
            let fault = internal(&message);
            // The receiver is this agent's own control side; without it the agent is ending.
            let _ = events.send(Event::InstanceFailed { run, instance: 0, fault });
        })
    }
}
