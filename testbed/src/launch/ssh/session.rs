//! Processes on hosts that answer in lines, and what became of one that does not answer.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Split};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tuplane_wire::launch::AgentReady;

use super::cause::{Cause, HostFault};
use super::connection::Connection;
use super::script;
use crate::launch::start::{ANSWER_LIMIT, STOPPED, last_line, next_answer};

/// How long the state of an agent and the end of its log may take.
const FATE: Duration = Duration::from_secs(5);

/// A process on a host that answers in lines.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    lines: Split<BufReader<tokio::io::Take<ChildStdout>>>,
}

impl Session {
    pub(super) fn open(connection: &Connection, script: &str, arguments: &[&str]) -> Result<Self, String> {
        let mut child = connection
            .script(script, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|cause| format!("ssh cannot be run ({cause})"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the input and output of ssh are not there".into());
        };
        let lines = BufReader::new(stdout.take(ANSWER_LIMIT)).split(b'\n');
        Ok(Self { child, stdin, lines })
    }

    /// Sends a line; gives the next answer, or `None` at the end of the output.
    pub(super) async fn ask(
        &mut self,
        request: &impl serde::Serialize,
    ) -> Result<Option<AgentReady>, String> {
        // Who ends before it reads says why in the answer or the log.
        let _ = self.send(request).await;
        next_answer(&mut self.lines, &mut Vec::new()).await
    }

    async fn send(&mut self, request: &impl serde::Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(request).map_err(std::io::Error::other)?;
        line.push(b'\n');
        self.stdin.write_all(&line).await?;
        self.stdin.flush().await
    }

    /// Closes its input and waits for its end: how it ended, and what it said on standard error.
    pub(super) async fn end(self) -> (Option<ExitStatus>, String) {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        end_of(&mut child).await
    }

    /// Why it ended without an answer; `what` it was there for.
    pub(super) async fn fault(self, connection: &Connection, what: &str) -> HostFault {
        let (status, said) = self.end().await;
        failed(connection, what, status, &said).await
    }

    /// Why the agent of a folder has ended, which did so `when`.
    pub(super) async fn agent_ended(
        &mut self,
        connection: &Connection,
        agent: &str,
        folder: &str,
        when: &str,
    ) -> HostFault {
        let (status, said) = end_of(&mut self.child).await;
        let fault = failed(connection, &format!("starting agent {agent}"), status, &said).await;
        if !matches!(fault.cause, Cause::Other) {
            return fault;
        }
        let how = match status.and_then(|status| status.code()) {
            // ssh says so of a process that a signal ended, and does not say which.
            Some(255) => "a signal ended it there (was it killed, or was there no memory?)".to_owned(),
            Some(code) => format!("it ended with exit code {code}"),
            None => "it closed its output".to_owned(),
        };
        // The agent writes to its log; what comes this way is the shell's.
        let words = match last_line(&said) {
            words if words.is_empty() => fate(connection, folder).await.words,
            words => words,
        };
        let host = connection.target().host.clone();
        HostFault::new(host, Cause::Agent, format!("agent {agent}: {how} {when}{words}"))
    }
}

/// How a process ended that closed its output, and what it said on standard error.
async fn end_of(child: &mut Child) -> (Option<ExitStatus>, String) {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let reading = async { stderr.take(64 << 10).read_to_end(&mut said).await };
        // What came so far has to do.
        let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    }
    let status = tokio::time::timeout(Duration::from_secs(2), child.wait()).await;
    (status.ok().and_then(Result::ok), String::from_utf8_lossy(&said).into_owned())
}

async fn failed(connection: &Connection, what: &str, status: Option<ExitStatus>, said: &str) -> HostFault {
    if let Some(status) = status {
        return connection.failed(what, status, said).await;
    }
    let message = format!("{what}: it closed its output and does not end");
    HostFault::new(connection.target().host.clone(), Cause::Other, message)
}

/// What can be seen of an agent that does not answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// Its process is there and stopped.
    pub(super) is_stopped: bool,
    /// That it is stopped, and the last line of its log: `; ..` each, or nothing.
    pub(super) words: String,
}

/// Looks at the process and the log of the agent with this folder.
pub(super) async fn fate(connection: &Connection, folder: &str) -> Fate {
    // What cannot be asked is not known.
    match connection.run("reading the log", &script::fate(), &[folder], FATE).await {
        Ok(output) => Fate::read(&String::from_utf8_lossy(&output.stdout)),
        Err(_) => Fate::default(),
    }
}

impl Fate {
    fn read(text: &str) -> Self {
        // Start-up files may print something first.
        let after = text.find(script::MARK).map_or("", |at| &text[at..]);
        let (state, log) = after.split_once('\n').unwrap_or((after, ""));
        let is_stopped = matches!(state.trim_end().rsplit(' ').next(), Some("T" | "t"));
        let stopped = if is_stopped { STOPPED } else { "" };
        Self { is_stopped, words: format!("{stopped}{}", last_line(log)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_is_read_behind_what_start_up_files_print() {
        let read =
            |state: &str| Fate::read(&format!("Welcome\nTUPLANE-HOST state {state}\nfirst\n\u{1b}last \n\n"));
        assert_eq!(read("S"), Fate { is_stopped: false, words: "; it said: last ".into() });
        let stopped = read("T");
        assert!(stopped.is_stopped && stopped.words.contains("stopped (state T)"), "{stopped:?}");
        assert!(stopped.words.ends_with("; it said: last "), "{stopped:?}");
        assert_eq!(Fate::read("Welcome\n"), Fate::default());
    }
}
