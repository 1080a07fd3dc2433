//! A predictor that is a command of its own: a line for each slot in, a forecast a line out.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tuplane_core::job::units;
use tuplane_core::route::predict::{Predictor, Refusal, Setup};

use crate::arrivals::MOST;

/// The longest answer that is taken, in bytes.
const LONGEST: u64 = 1 << 20;

/// So many lines may wait for the command to read them.
const BEHIND: usize = 1 << 16;

/// How long a command that has closed its output may take to end, and its last words to come.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A command that gets `{"slot":n,"arrived":k}` and answers `{"forecast":[..]}`, one line each: the expected arrivals of
/// the slots after `n`, nearest first. With `"slot":n` in its answer it says which line it answers, and is held to it.
///
/// A forecast that comes later than `within` after its slot's line is discarded, and counted as late: that slot has no
/// forecast. The command runs in a process group of its own, which ends with this value.
#[derive(Debug)]
pub struct External {
    name: String,
    /// The command, as errors show it.
    shown: String,
    within: Duration,
    group: Group,
    lines: SyncSender<String>,
    answers: Receiver<Answer>,
    last_words: Receiver<String>,
    /// Slot and arrivals of the lines that have no answer yet, oldest first.
    open: VecDeque<(u64, u64)>,
    answered: u64,
    current: Current,
    late: u64,
    failure: Option<String>,
}

/// What is known of the last observed slot.
#[derive(Debug)]
enum Current {
    /// Nothing was observed, or the answer was late: there is no forecast.
    None,
    /// The answer may come until then.
    Open(Instant),
    Known(Vec<f64>),
}

/// A line of the command's output, and when it was there.
#[derive(Debug)]
struct Answer {
    at: Instant,
    /// Empty at the end of the output.
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct Forecast {
    forecast: Vec<f64>,
    slot: Option<u64>,
}

impl External {
    /// Starts `command`, which errors show as `shown`. `name` is what the predictor is called.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start(name: &str, mut command: Command, shown: String, within: Duration) -> Result<Self, Refusal> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child =
            command.spawn().map_err(|cause| Refusal::new(format!("cannot start `{shown}`: {cause}")))?;
        let mut group = Group { child, ended: None };
        let pipes = (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Refusal::new(format!("`{shown}` has no pipes")));
        };
        let (lines, to_write) = sync_channel::<String>(BEHIND);
        thread::spawn(move || {
            // A command that has ended is noticed by its output's end.
            while let Ok(line) = to_write.recv() {
                if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                    break;
                }
            }
        });
        let (read, answers) = sync_channel(1024);
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let line = next_line(&mut stdout);
                let end = line.is_empty();
                if read.send(Answer { at: Instant::now(), line }).is_err() || end {
                    break;
                }
            }
        });
        let (said, last_words) = sync_channel(1);
        thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut last = String::new();
            loop {
                let line = next_line(&mut stderr);
                if line.is_empty() {
                    break;
                }
                let line = String::from_utf8_lossy(&line);
                if !line.trim().is_empty() {
                    line.trim().clone_into(&mut last);
                }
            }
            // Nobody may want it.
            let _ = said.send(last);
        });
        Ok(Self {
            name: name.to_owned(),
            shown,
            within,
            group,
            lines,
            answers,
            last_words,
            open: VecDeque::new(),
            answered: 0,
            current: Current::None,
            late: 0,
            failure: None,
        })
    }

    /// Takes answers that are there, and waits for the last slot's while it may still come, if it shall.
    fn take(&mut self, wait: bool) {
        while self.failure.is_none() {
            let left = match self.current {
                Current::Open(until) if wait => until.saturating_duration_since(Instant::now()),
                _ => Duration::ZERO,
            };
            match self.answers.recv_timeout(left) {
                Ok(Answer { at, line }) if !line.is_empty() => self.answer(at, &line),
                Ok(_) | Err(RecvTimeoutError::Disconnected) => self.ended(),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if let Current::Open(until) = self.current
            && until <= Instant::now()
        {
            self.current = Current::None;
            self.late += 1;
        }
    }

    fn answer(&mut self, at: Instant, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let shown = printable(text.trim_end());
        let Some((slot, arrived)) = self.open.pop_front() else {
            self.fail(&format!("printed `{shown}`, though every line has its answer"));
            return;
        };
        self.answered += 1;
        let read = serde_json::from_slice::<Forecast>(line).map_err(|cause| cause.to_string());
        let read = read.and_then(|answer| match answer.slot {
            Some(said) if said != slot => Err(format!("it is for slot {said}")),
            _ => match answer.forecast.iter().find(|rows| **rows > MOST) {
                Some(rows) => Err(format!("{rows} rows are more than the {MOST} that a slot can have")),
                None => Ok(answer.forecast),
            },
        });
        match (read, &self.current) {
            (Ok(rows), Current::Open(until)) if self.open.is_empty() && at <= *until => {
                self.current = Current::Known(rows.into_iter().map(|rows| rows.max(0.0)).collect());
            }
            // Late, or overtaken by the next slot.
            (Ok(_), _) => {}
            (Err(cause), _) => {
                self.fail(&format!("answered `{shown}` to `{}`: {cause}", line_of(slot, arrived).trim_end()));
            }
        }
    }

    /// The command's output has ended.
    fn ended(&mut self) {
        let ended = match self.group.wait(LAST_WORDS) {
            Some(status) => format!("ended ({status})"),
            None => "closed its output".into(),
        };
        self.group.end();
        let answers = self.answered;
        let at = match self.open.front() {
            Some((slot, arrived)) => {
                format!(" and before it answered `{}`", line_of(*slot, *arrived).trim_end())
            }
            None => String::new(),
        };
        let said = match self.last_words.recv_timeout(LAST_WORDS) {
            Ok(said) if !said.is_empty() => format!("; its last words: {}", printable(&said)),
            _ => String::new(),
        };
        self.fail(&format!("{ended} after {answers} answers{at}{said}"));
    }

    fn fail(&mut self, what: &str) {
        self.group.end();
        self.current = Current::None;
        self.failure = Some(format!(
            "predictor `{}`: `{}` {what}. It must answer each line with one line {{\"forecast\":[rows, ..]}} until its input ends: there are no forecasts from here on",
            self.name, self.shown
        ));
    }
}

impl Predictor for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn observe(&mut self, slot: u64, arrived: u64) {
        self.take(false);
        if self.failure.is_some() {
            return;
        }
        match self.lines.try_send(line_of(slot, arrived)) {
            Ok(()) => {
                self.open.push_back((slot, arrived));
                self.current = Current::Open(Instant::now() + self.within);
            }
            Err(TrySendError::Full(_)) => self.fail(&format!("has left {BEHIND} lines unread")),
            Err(TrySendError::Disconnected(_)) => self.ended(),
        }
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        self.take(true);
        match &self.current {
            Current::Known(rows) => rows.iter().copied().take(window).collect(),
            Current::None | Current::Open(_) => Vec::new(),
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn late(&self) -> u64 {
        self.late
    }
}

/// The beginning of what a command printed, in which a terminal has nothing to obey.
fn printable(text: &str) -> String {
    text.chars()
        .take(200)
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

fn line_of(slot: u64, arrived: u64) -> String {
    format!("{{\"slot\":{slot},\"arrived\":{arrived}}}\n")
}

/// The next line with its end; cut at [`LONGEST`], empty at the end of the stream.
fn next_line(from: &mut impl BufRead) -> Vec<u8> {
    let mut line = Vec::new();
    // A pipe that cannot be read any more has ended.
    let _ = from.take(LONGEST).read_until(b'\n', &mut line);
    line
}

/// The leader of a process group of its own.
#[derive(Debug)]
struct Group {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Group {
    /// How the leader ended, if it does so in that time.
    fn wait(&mut self, most: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + most;
        while self.ended.is_none() && Instant::now() < until {
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
        }
        if self.ended.is_some() {
            self.kill();
        }
        self.ended
    }

    /// Ends it with all that it has started.
    fn end(&mut self) {
        if self.ended.is_none() {
            self.kill();
            self.ended = self.child.wait().ok();
        }
    }

    fn kill(&self) {
        if let Some(leader) = Pid::from_raw(self.child.id().cast_signed()) {
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

/// A time as `"20ms"`, or a number of milliseconds.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`within` takes a time such as \"20ms\", or milliseconds")]
pub(super) enum Within {
    Number(f64),
    Text(String),
}

impl Within {
    pub(super) fn duration(&self) -> Result<Duration, Refusal> {
        let (read, shown) = match self {
            Self::Number(number) => (units::milliseconds(*number), number.to_string()),
            Self::Text(text) => (units::duration(text), text.clone()),
        };
        let read = read.filter(|within| !within.is_zero());
        read.ok_or_else(|| {
            Refusal::new(format!("`within` is {shown}: it takes a time above 0 such as \"20ms\""))
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    command: CommandLine,
    #[serde(default = "slot_of_the_publication")]
    within: Within,
}

fn slot_of_the_publication() -> Within {
    Within::Number(20.0)
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`command` takes a program and its arguments as a list, or a line for the shell"
)]
enum CommandLine {
    Shell(String),
    List(Vec<String>),
}

/// The predictor `external`.
pub(super) fn make(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let options: Options = setup.options()?;
    let (command, shown) = match options.command {
        CommandLine::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &line]);
            (command, line)
        }
        CommandLine::List(words) => {
            let Some((program, arguments)) = words.split_first() else {
                return Err(Refusal::new("`command` is empty: it takes a program and its arguments"));
            };
            let mut command = Command::new(program);
            command.args(arguments);
            (command, words.join(" "))
        }
    };
    Ok(Box::new(External::start("external", command, shown, options.within.duration()?)?))
}

#[cfg(test)]
pub(super) mod tests;
