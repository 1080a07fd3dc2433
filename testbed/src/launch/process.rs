//! Processes named for ever: a pid together with its start time, signalled without a race.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A pid and the time its process started (clock ticks since boot): pids come back, pairs do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`.
    pub started: u64,
}

/// How a process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was gone before anybody asked.
    Gone,
    /// By itself, as asked over the network.
    Itself,
    /// By SIGTERM.
    Terminated,
    /// By SIGKILL.
    Killed,
    /// Not at all: it is still there.
    Stays,
}

impl ProcessId {
    /// This process.
    pub fn current() -> Option<Self> {
        Self::of(std::process::id())
    }

    /// The process that has this pid now.
    pub fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|(_, started)| Self { pid, started })
    }

    /// It runs; one that has ended and waits for its parent does not count.
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }

    /// It is there and stopped (SIGSTOP, a debugger): it answers nobody until it goes on.
    pub fn is_stopped(self) -> bool {
        stat(self.pid).is_some_and(|(state, started)| started == self.started && matches!(state, 'T' | 't'))
    }

    /// Asks it to end.
    pub fn terminate(self) {
        self.signal(Signal::TERM);
    }

    /// Ends it.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        // The descriptor is taken first and the start time compared after: from then on it cannot
        // name another process, whoever gets the pid.
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            // A process that ended in between needs no signal.
            let _ = pidfd_send_signal(&descriptor, signal);
        }
    }
}

/// State and start time from `/proc/PID/stat`. The command in brackets may hold anything, so
/// fields are counted from its last bracket.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let own = ProcessId::current().expect("this process has a stat file");
        assert!(own.is_alive());
        assert!(
            !ProcessId { started: own.started + 1, ..own }.is_alive(),
            "another start time is another process"
        );
        assert!(ProcessId::of(u32::MAX).is_none());
    }

    #[test]
    fn a_signal_to_a_reused_pid_reaches_nobody() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        ProcessId { started: id.started + 1, ..id }.kill();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(id.is_alive() && !id.is_stopped(), "the start time differs, so it was spared");
        id.signal(Signal::STOP);
        while !id.is_stopped() {
            std::thread::yield_now();
        }
        id.kill();
        child.wait().unwrap();
        assert!(!id.is_alive());
    }
}
