//! Agents that have answered: they dial each other, and are let go.

use std::time::Duration;

use futures::future::join_all;
use tuplane_wire::launch::{AgentReady, LaunchRequest, Peer};

use super::cause::{Cause, HostFault};
use super::connection::Connection;
use super::session::{Session, fate};
use crate::launch::LaunchError;
use crate::launch::folder::AgentEntry;

/// How long one may take to dial its peers, or to let go of its lifeline.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// An agent that answers.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) entry: AgentEntry,
    pub(super) host: String,
    /// Place of its connection, and its folder there.
    pub(super) place: usize,
    pub(super) folder: String,
    pub(super) session: Session,
}

impl Running {
    /// Comes back when it has ended, with why.
    pub(super) async fn ended(&mut self, connections: &[Connection]) -> HostFault {
        // Its output closes in its end alone.
        let _ = self.session.child.wait().await;
        self.has_ended(connections).await
    }

    async fn has_ended(&mut self, connections: &[Connection]) -> HostFault {
        let connection = &connections[self.place];
        self.session
            .agent_ended(connection, &self.entry.name, &self.folder, "while the cluster was started")
            .await
    }

    pub(super) async fn ask(
        &mut self,
        request: &LaunchRequest,
        within: Duration,
        connections: &[Connection],
    ) -> Result<AgentReady, HostFault> {
        let name = self.entry.name.clone();
        let host = self.host.clone();
        let fault = |cause: String| HostFault::new(host, Cause::Agent, format!("agent {name}: {cause}"));
        match tokio::time::timeout(within, self.session.ask(request)).await {
            Ok(Ok(Some(AgentReady::Failed { message, .. }))) => Err(fault(message)),
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(self.has_ended(connections).await),
            Ok(Err(cause)) => Err(fault(cause)),
            Err(_) => {
                let fate = fate(&connections[self.place], &self.folder).await;
                Err(fault(format!("no answer within {} s{}", within.as_secs(), fate.words)))
            }
        }
    }
}

/// Each agent dials all others, and those that run `already`, before any row flows.
pub(super) async fn check_peers(
    running: &mut [Running],
    already: &[AgentEntry],
    connections: &[Connection],
) -> Vec<HostFault> {
    let peer = |entry: &AgentEntry| Peer { name: entry.name.clone(), address: entry.address.clone() };
    let new = running.iter().map(|agent| (peer(&agent.entry), agent.host.clone()));
    let old = already.iter().map(|entry| {
        let host = entry.host.as_ref().map_or("this machine", |host| host.target.host.as_str());
        (peer(entry), host.to_owned())
    });
    let all: Vec<(Peer, String)> = new.chain(old).collect();
    let asked = running.iter_mut().map(async |agent| {
        let others = all.iter().filter(|(peer, _)| peer.name != agent.entry.name);
        let peers: Vec<Peer> = others.map(|(peer, _)| peer.clone()).collect();
        let (name, host) = (agent.entry.name.clone(), agent.host.clone());
        match agent.ask(&LaunchRequest::Peers(peers), ANSWER_WITHIN, connections).await {
            Err(fault) => vec![fault],
            Ok(AgentReady::Peers(failed)) => failed
                .into_iter()
                .map(|peer| {
                    let there = all.iter().find(|(known, _)| known.name == peer.name);
                    let there = there.map_or("?", |(_, host)| host.as_str());
                    let message = format!(
                        "agent {name} cannot reach agent {} on host {there} at {}: {}",
                        peer.name, peer.address, peer.cause
                    );
                    HostFault::new(host.clone(), Cause::Peer, message).remedy(
                        "data=.. must name a network that all hosts share, and no firewall may close it",
                    )
                })
                .collect(),
            Ok(other) => {
                vec![HostFault::new(
                    host,
                    Cause::Agent,
                    format!("agent {name} answered something else: {other:?}"),
                )]
            }
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Cuts the lifelines, with this order. Until all have said so, a failure ends all of them by signals.
pub(super) async fn let_go(
    running: &mut [Running],
    order: &LaunchRequest,
    connections: &[Connection],
) -> Result<(), LaunchError> {
    let asked = running.iter_mut().map(|agent| agent.ask(order, ANSWER_WITHIN, connections));
    all_well(join_all(asked).await.into_iter().filter_map(Result::err).collect())
}

/// Several failures as one.
pub(super) fn hosts(faults: Vec<HostFault>) -> LaunchError {
    LaunchError::Hosts { faults, left: Vec::new() }
}

/// Nothing has failed, or all that has.
pub(super) fn all_well(faults: Vec<HostFault>) -> Result<(), LaunchError> {
    if faults.is_empty() { Ok(()) } else { Err(hosts(faults)) }
}
