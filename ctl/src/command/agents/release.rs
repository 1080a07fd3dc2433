//! `tuplane agents release`.

use std::time::Duration;

use serde_json::json;
use tuplane_testbed::launch::{ClusterFile, Ended, Members, Stopped, end_processes, runtime_root, ssh};
use tuplane_wire::message::ClusterRequest;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::command::{confirm, down};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, safe};

/// An agent that was released ends with its next report; after so long it is ended by signals.
const PATIENCE: Duration = Duration::from_secs(3);

/// Options of `agents release`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    agent: String,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    // Nobody is asked about what would be refused.
    let known = cluster.agents().await?;
    let known = known.iter().find(|agent| agent.info.id.name == args.agent && !agent.coordinator);
    if let Some(why) = known.and_then(|agent| not_drained(&args.agent, agent.alive, agent.drained)) {
        return Err(Failure::Usage(why));
    }
    confirm(global, &format!("end agent {} and take it out of cluster {}", args.agent, cluster.name))?;
    let stopped = release(&cluster, &args.agent).await?;
    if !output.is_text() {
        let ended = stopped.as_ref().map(|stopped| down::word(stopped.how));
        let pid = stopped.as_ref().map(|stopped| stopped.agent.process.pid);
        let body = json!({"cluster": cluster.name, "agent": args.agent, "pid": pid, "ended": ended});
        return output.document("agents-release", &body);
    }
    let name = safe::line(&args.agent);
    let how = match stopped.map(|stopped| stopped.how) {
        None => "; its process ends with its next report".to_owned(),
        Some(Ended::Itself) => String::new(),
        Some(Ended::Gone) => "; its process was already gone".to_owned(),
        Some(how) => format!("; its process did not end by itself: {}", down::word(how)),
    };
    output.text(&format!("agent {name} is not one of cluster {} any more{how}", safe::line(&cluster.name)))
}

/// Why an agent is not released yet, as the coordinator says it.
fn not_drained(name: &str, alive: bool, drained: bool) -> Option<String> {
    (alive && !drained).then(|| format!("{name} is not drained: `tuplane agents drain {name}` first"))
}

/// Ends an agent and takes it out of the cluster. `None`: its process is none that this machine has started.
pub(in crate::command) async fn release(cluster: &Cluster, name: &str) -> Outcome<Option<Stopped>> {
    let mut members = cluster.home().map(|(folder, _)| Members::hold(folder)).transpose()?;
    let entry = members
        .as_ref()
        .and_then(|members| members.file.agents.iter().find(|agent| agent.name == name).cloned());
    let was_there = entry.as_ref().is_some_and(|entry| entry.host.is_some() || entry.is_alive_here());
    match cluster.tell(ClusterRequest::Release { agent: name.to_owned() }).await {
        // An earlier command was broken off before it had ended the process.
        Err(Failure::NotFound(_)) if entry.is_some() => {}
        told => told?,
    }
    let (Some(members), Some(entry)) = (&mut members, entry) else { return Ok(None) };
    let only = std::slice::from_ref(&entry);
    let stopped = if entry.host.is_some() {
        let file = ClusterFile { agents: only.to_vec(), ..members.file.clone() };
        ssh::end(&file, &runtime_root(), PATIENCE).await?
    } else {
        end_processes(only, PATIENCE).await
    };
    let Some(mut stopped) = stopped.into_iter().next() else {
        return Err(Failure::Internal(format!("nothing was said of the end of agent {name}")));
    };
    stopped.how = match stopped.how {
        Ended::Stays => {
            let pid = entry.process.pid;
            let message = format!("agent {name} (pid {pid}) does not end, not even by SIGKILL");
            return Err(Failure::Failed { kind: "agent", message });
        }
        // It was asked to, a moment before.
        Ended::Gone if was_there => Ended::Itself,
        Ended::Itself if !was_there => Ended::Gone,
        how => how,
    };
    members.forget(|agent| agent.name == name)?;
    Ok(Some(stopped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alive_is_drained_first() {
        let said = not_drained("b", true, false).unwrap();
        assert_eq!(said, "b is not drained: `tuplane agents drain b` first");
        assert_eq!((not_drained("b", true, true), not_drained("b", false, false)), (None, None));
    }
}
