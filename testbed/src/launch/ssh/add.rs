//! More agents on named hosts, for a cluster that runs there: all of them join, or none runs.

use std::path::Path;

use futures::future::join_all;
use tuplane_wire::launch::LaunchRequest;

use super::RemotePlan;
use super::prepare::{Binary, Sockets};
use super::running::{all_well, check_peers, hosts, let_go};
use super::start::{Starting, jobs, log_in, name_joined, with_remains};
use crate::launch::folder::AgentEntry;
use crate::launch::{LaunchError, Members};

/// Starts the agents of a plan and lets go of them; `cancel` gives up, and what was started is ended again. In a detached
/// cluster they run until they are released or the cluster ends; in one that its launcher holds they end also when the
/// coordinator was not reached for a lease.
///
/// # Errors
/// If a host cannot be used or an agent does not start: then none of them runs.
pub async fn add(
    plan: &RemotePlan,
    members: &mut Members,
    root: &Path,
    cancel: impl Future<Output = ()>,
) -> Result<Vec<AgentEntry>, LaunchError> {
    let binary = Binary::read(&plan.binary)?;
    let sockets = Sockets::of_command(root)?;
    let mut starting = Starting::default();
    let outcome = tokio::select! {
        biased;
        () = cancel => Err(LaunchError::Interrupted { left: Vec::new() }),
        outcome = join(plan, members, &binary, &sockets, &mut starting) => outcome,
    };
    match outcome {
        Ok(entries) => Ok(entries),
        Err(cause) => {
            let of = |name: &str| plan.agents.iter().any(|agent| agent.name == name);
            members.forget(|agent| of(&agent.name))?;
            let remains = starting.undo(plan, &sockets).await;
            Err(with_remains(cause, remains))
        }
    }
}

/// All steps up to agents that are in `cluster.json` and go on by themselves.
async fn join(
    plan: &RemotePlan,
    members: &mut Members,
    binary: &Binary,
    sockets: &Sockets,
    starting: &mut Starting,
) -> Result<Vec<AgentEntry>, LaunchError> {
    // As `down` and `clean` look for them.
    let Some(launch) = members.file.run() else {
        return Err(LaunchError::Refused("the agents of this cluster are processes of this machine".into()));
    };
    let hosts_of = log_in(plan, binary, &members.folder, sockets, &launch, starting).await?;
    let jobs = jobs(plan, binary, &hosts_of, &starting.connections, &launch);
    starting.folders = jobs.iter().map(|job| (job.place, job.folder())).collect();
    let (coordinator, key) = (members.file.coordinator.clone(), members.file.key.clone());
    let asked = jobs.iter().map(|job| job.start(Some(coordinator.clone()), key.clone()));
    let mut faults = Vec::new();
    for started in join_all(asked).await {
        match started {
            Ok(running) => starting.running.push(running),
            Err(fault) => faults.push(name_joined(fault, members.file.agents.first(), &coordinator)),
        }
    }
    if !faults.is_empty() {
        return Err(hosts(faults));
    }
    all_well(check_peers(&mut starting.running, &members.file.agents, &starting.connections).await)?;
    let entries: Vec<AgentEntry> = starting.running.iter().map(|running| running.entry.clone()).collect();
    // Not before the file names them all: until then they end with this process.
    members.extend(&entries)?;
    let order = if plan.detached { LaunchRequest::Detach } else { LaunchRequest::EndWithCluster };
    let_go(&mut starting.running, &order, &starting.connections).await?;
    Ok(entries)
}
