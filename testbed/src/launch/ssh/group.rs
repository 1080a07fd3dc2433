//! A process with all that it has started in its process group: they end together.

use std::io;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// The leader of a process group of its own, as [`super::connection::ssh`] starts it. What a `ProxyCommand`, a
/// `ProxyJump` or a `Match exec` of the user's started is in the same group, and does not always end with it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) child: Child,
    /// Until the group has been ended: its number may belong to others later.
    leader: Option<Pid>,
}

impl Group {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        Ok(Self { child, leader })
    }

    /// Waits for the leader's end, and ends what it has left behind.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.end();
        Ok(status)
    }

    /// How the leader has ended, if it has; what it has left behind is ended then.
    pub(super) fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        if status.is_some() {
            self.end();
        }
        Ok(status)
    }

    /// Runs to its end without input; what it said on standard output.
    pub(super) async fn output(command: &mut Command) -> io::Result<Vec<u8>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut group = Self::spawn(command)?;
        let mut said = Vec::new();
        if let Some(mut stdout) = group.child.stdout.take() {
            stdout.read_to_end(&mut said).await?;
        }
        group.wait().await?;
        Ok(said)
    }

    fn end(&mut self) {
        if let Some(leader) = self.leader.take() {
            // Nobody may be left in it.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::launch::ProcessId;

    /// A shell that starts a sleep in the background, says its pid, and goes on so.
    async fn started(then: &str) -> (Group, ProcessId) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("sleep 77 & echo $!; {then}")]).stdout(Stdio::piped());
        let mut group = Group::spawn(&mut command).unwrap();
        let mut said = [0; 16];
        let read = group.child.stdout.as_mut().unwrap().read(&mut said).await.unwrap();
        let pid = String::from_utf8_lossy(&said[..read]).trim().parse().unwrap();
        (group, ProcessId::of(pid).unwrap())
    }

    async fn gone(process: ProcessId) -> bool {
        for _ in 0..500 {
            if !process.is_alive() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    #[tokio::test]
    async fn what_a_process_has_started_ends_with_it() {
        // Given up while it runs.
        let (group, below) = started("wait").await;
        assert!(below.is_alive());
        drop(group);
        assert!(gone(below).await);
        // Ended by itself, with something left behind.
        for asked in [true, false] {
            let (mut group, below) = started("exit 3").await;
            assert!(below.is_alive());
            if asked {
                assert_eq!(group.wait().await.unwrap().code(), Some(3));
            } else {
                while group.has_ended().unwrap().is_none() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            assert!(gone(below).await);
        }
    }
}
