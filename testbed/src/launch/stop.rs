//! Ending agents of this machine by pid and start time: asked first, then SIGTERM, then SIGKILL.

use std::time::{Duration, Instant};

use super::folder::AgentEntry;
use super::process::Ended;

/// How long an agent may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(3);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// How one agent came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The agent.
    pub agent: AgentEntry,
    /// How it ended.
    pub how: Ended,
}

/// Waits until no process of `agents` is left, at most `patience`; true if none is.
pub async fn wait_until_gone(agents: &[AgentEntry], patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        if agents.iter().all(|agent| !agent.is_alive_here()) {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Gives agents that were asked to end `patience`, then ends those that stay.
pub async fn end_processes(agents: &[AgentEntry], patience: Duration) -> Vec<Stopped> {
    let mut stopped: Vec<Stopped> =
        agents.iter().map(|agent| Stopped { agent: agent.clone(), how: Ended::Itself }).collect();
    if wait_until_gone(agents, patience).await {
        return stopped;
    }
    mark(&mut stopped, Ended::Terminated);
    for process in agents.iter().filter_map(AgentEntry::here) {
        process.terminate();
    }
    if wait_until_gone(agents, TERM_GRACE).await {
        return stopped;
    }
    mark(&mut stopped, Ended::Killed);
    for process in agents.iter().filter_map(AgentEntry::here) {
        process.kill();
    }
    if !wait_until_gone(agents, TERM_GRACE).await {
        mark(&mut stopped, Ended::Stays);
    }
    stopped
}

fn mark(stopped: &mut [Stopped], how: Ended) {
    for entry in stopped.iter_mut().filter(|entry| entry.agent.is_alive_here()) {
        entry.how = how;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ProcessId;

    /// A process that ignores SIGTERM where asked to, and its entry.
    fn process(script: &str) -> (std::process::Child, AgentEntry) {
        let child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let process = ProcessId::of(child.id()).unwrap();
        (child, AgentEntry { name: script.into(), address: String::new(), process, host: None })
    }

    #[tokio::test]
    async fn each_is_ended_by_the_mildest_way_that_works() {
        let (mut quick, ends) = process("sleep 0.2");
        let (mut polite, terminated) = process("exec sleep 30");
        let (mut rude, killed) = process("trap '' TERM; while :; do sleep 0.1; done");
        let stopped = end_processes(&[ends, terminated, killed], Duration::from_millis(500)).await;
        let how: Vec<Ended> = stopped.iter().map(|s| s.how).collect();
        for child in [&mut quick, &mut polite, &mut rude] {
            child.wait().unwrap();
        }
        assert_eq!(how, [Ended::Itself, Ended::Terminated, Ended::Killed]);
    }
}
