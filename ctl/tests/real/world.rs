//! A runtime folder of its own, the command in it, and what a test asks of processes.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tuplane_wire::launch::{AgentConfig, AgentReady, READY_MARKER};

pub(crate) use tuplane_testbed::skip::{shared, skip};

/// The checkout.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

thread_local! {
    /// Worlds that this test has.
    static WORLDS: Cell<u32> = const { Cell::new(0) };
}

/// A world of its own for one test.
pub(crate) struct World {
    /// One at a time, whatever runs the tests: they measure rates, memory and processor time.
    alone: Option<MutexGuard<'static, ()>>,
    folder: TempDir,
    /// `tuplane up` processes.
    owners: Vec<Child>,
}

impl World {
    pub(crate) fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        // A test may have several worlds. One that failed has left nothing that the next one minds.
        let first = WORLDS.replace(WORLDS.get() + 1) == 0;
        let alone = first.then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        Self { alone, folder: tempfile::tempdir().unwrap(), owners: Vec::new() }
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file; gives its path as text.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The command with these arguments.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tuplane"));
        let run = self.path("run");
        std::fs::create_dir_all(&run).unwrap();
        command.args(args).env("XDG_RUNTIME_DIR", run).env_remove("TUPLANE_CLUSTER").stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn tuplane(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the command, which must succeed; gives its document.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        let output = self.tuplane(&all);
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
    }

    /// Starts a detached cluster; it is ended when the world is dropped.
    pub(crate) fn up(&self, args: &[&str]) {
        let mut all = vec!["up", "--detach", "--cluster", "t"];
        all.extend(args);
        let output = self.tuplane(&all);
        assert!(output.status.success(), "{}", text(&output));
    }

    /// Starts a cluster that this process's child owns; returns when its agents answer.
    pub(crate) fn up_owned(&mut self, args: &[&str]) -> u32 {
        let mut all = vec!["up", "--cluster", "t"];
        all.extend(args);
        let child = self.command(&all).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        self.owners.push(child);
        wait("the agents answer", Duration::from_secs(20), || self.tuplane(&["agents"]).status.success());
        pid
    }

    /// Starts an agent without a launcher, in the clear, with a state folder that outlives it.
    pub(crate) fn agent_by_hand(&self, name: &str, listen: &str, coordinator: Option<&str>) -> ByHand {
        self.agent_of(&stock(), name, listen, coordinator)
    }

    /// The same with other slots, zone or costs.
    pub(crate) fn agent_with(
        &self,
        name: &str,
        coordinator: Option<&str>,
        change: impl FnOnce(&mut AgentConfig),
    ) -> ByHand {
        self.agent_at(name, "127.0.0.1:0", coordinator, change)
    }

    /// The same at an address of its own.
    pub(crate) fn agent_at(
        &self,
        name: &str,
        listen: &str,
        coordinator: Option<&str>,
        change: impl FnOnce(&mut AgentConfig),
    ) -> ByHand {
        self.agent_changed(&stock(), name, listen, coordinator, None, change)
    }

    /// A coordinator without instances that stands still once its log has the command of this name, of a plan that it
    /// was asked for itself; with `+` behind the name, once it has begun what follows from it too.
    pub(crate) fn coordinator_held(&self, name: &str, listen: &str, at: Option<&str>) -> ByHand {
        self.agent_changed(&stock(), name, listen, None, at, |config| config.slots = 0)
    }

    /// The same of a program of one's own.
    pub(crate) fn agent_of(
        &self,
        binary: &Path,
        name: &str,
        listen: &str,
        coordinator: Option<&str>,
    ) -> ByHand {
        self.agent_changed(binary, name, listen, coordinator, None, |_| {})
    }

    fn agent_changed(
        &self,
        binary: &Path,
        name: &str,
        listen: &str,
        coordinator: Option<&str>,
        held_at: Option<&str>,
        change: impl FnOnce(&mut AgentConfig),
    ) -> ByHand {
        let state = self.path(&format!("state-{name}"));
        std::fs::create_dir_all(&state).unwrap();
        let mut config = AgentConfig {
            cluster: "hand".to_owned(),
            name: name.to_owned(),
            listen: listen.to_owned(),
            announce: None,
            coordinator: coordinator.map(str::to_owned),
            key: None,
            slots: 1,
            cores: 0,
            zone: "default".to_owned(),
            costs: Vec::new(),
            memory: 128 << 20,
            lease_ms: 10_000,
            state: state.to_str().unwrap().to_owned(),
            folder: self.folder.path().to_str().unwrap().to_owned(),
            log: Some(self.path(&format!("{name}.log")).to_str().unwrap().to_owned()),
            detached: false,
            road: None,
        };
        change(&mut config);
        let mut child = Command::new(binary)
            .envs(held_at.map(|at| ("TUPLANE_TEST_HOLD", at)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the agent is built");
        let mut line = serde_json::to_vec(&config).unwrap();
        line.push(b'\n');
        let mut lifeline = child.stdin.take().unwrap();
        lifeline.write_all(&line).unwrap();
        let mut answer = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        let ready = serde_json::from_str(answer.strip_prefix(READY_MARKER).unwrap()).unwrap();
        let AgentReady::Ready { address, pid, .. } = ready else { panic!("{answer}") };
        ByHand { child, address, pid, _lifeline: lifeline }
    }

    /// As [`World::json`], for the cluster whose coordinator listens there in the clear.
    pub(crate) fn json_at(&self, address: &str, args: &[&str]) -> Value {
        let key = self.key_at(address);
        self.json(&[args, &["--cluster", address, "--key", &key]].concat())
    }

    /// What the command says there, which must be refused.
    pub(crate) fn refused_at(&self, address: &str, args: &[&str]) -> String {
        let key = self.key_at(address);
        let output = self.tuplane(&[args, &["--cluster", address, "--key", &key]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        text(&output)
    }

    fn key_at(&self, address: &str) -> String {
        self.file(
            "cluster.json",
            serde_json::json!({
                "schema": "tuplane/cluster/1", "name": "hand", "coordinator": address, "key": null,
                "agents": [], "launcher": { "pid": 1, "started": 0 }, "detached": false,
            })
            .to_string(),
        )
    }

    /// The job's document.
    pub(crate) fn status(&self, job: &str) -> Value {
        self.json(&["status", job])
    }

    /// Live agents by name: process id.
    pub(crate) fn pids(&self) -> BTreeMap<String, u32> {
        let agents = self.json(&["agents"]);
        let list = agents["agents"].as_array().unwrap_or_else(|| panic!("{agents}"));
        let pid = |agent: &Value| agent["pid"].as_u64().unwrap() as u32;
        let live = list.iter().filter(|agent| agent["alive"] == true);
        live.map(|agent| (agent["agent"].as_str().unwrap().to_owned(), pid(agent))).collect()
    }

    /// Waits for a job's phase.
    pub(crate) fn wait_for(&self, job: &str, phase: &str, within: Duration) -> Value {
        let mut last = Value::Null;
        wait(&format!("{job} is {phase}"), within, || {
            last = self.status(job);
            last["phase"] == phase
        });
        last
    }
}

/// The agent's program.
fn stock() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_tuplane")).with_file_name("tuplane-agent")
}

/// An agent that a test started itself.
pub(crate) struct ByHand {
    child: Child,
    pub(crate) address: String,
    pub(crate) pid: u32,
    /// Its end ends the agent.
    _lifeline: ChildStdin,
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        WORLDS.set(WORLDS.get() - 1);
        let _ = self.tuplane(&["down", "--cluster", "t", "--yes"]);
        for owner in &mut self.owners {
            let _ = owner.kill();
            let _ = owner.wait();
        }
        drop(self.alone.take());
    }
}

/// Waits until something holds.
pub(crate) fn wait(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The TCP connections among these processes, each by the kernel's numbers of its ends: a connection that was made anew
/// has other numbers.
fn connections(pids: impl IntoIterator<Item = u32>) -> BTreeSet<[u64; 2]> {
    let socket = |link: std::path::PathBuf| {
        let name = std::fs::read_link(link).ok()?;
        name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    let files =
        pids.into_iter().flat_map(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten());
    let theirs: BTreeSet<u64> = files.filter_map(|file| socket(file.path())).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends: BTreeMap<(&str, &str), u64> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            Some(((*cells.get(1)?, *cells.get(2)?), cells.get(9)?.parse().ok()?))
        })
        .filter(|(_, number)| theirs.contains(number))
        .collect();
    let both =
        ends.iter().filter_map(|((local, remote), number)| Some([*number, *ends.get(&(*remote, *local))?]));
    both.filter(|[one, other]| one < other).collect()
}

/// Processes as they are at a moment: when each began, and the connections among them.
#[derive(Debug)]
pub(crate) struct Processes {
    /// Clock ticks from the machine's start to each process's, by process.
    began: BTreeMap<u32, u64>,
    connected: BTreeSet<[u64; 2]>,
}

impl Processes {
    pub(crate) fn of(pids: impl IntoIterator<Item = u32>) -> Self {
        let began = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let behind_name = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap();
            (pid, behind_name.parse().unwrap())
        };
        let began: BTreeMap<u32, u64> = pids.into_iter().map(began).collect();
        let connected = connections(began.keys().copied());
        assert!(connected.len() >= began.len() - 1, "{began:?} have {connected:?}");
        Self { began, connected }
    }

    /// They are the same processes, up since the same moment.
    pub(crate) fn assert_up(&self) -> Self {
        let now = Self::of(self.began.keys().copied());
        assert_eq!(now.began, self.began, "a process was started anew");
        now
    }

    /// And each connection is there that was there.
    pub(crate) fn assert_same(&self) {
        let now = self.assert_up();
        assert!(self.connected.is_subset(&now.connected), "{:?}, then {:?}", self.connected, now.connected);
    }
}

/// As long as issues ask for, or for a short look.
pub(crate) fn long() -> bool {
    std::env::var_os("TUPLANE_LONG").is_some()
}

/// Both outputs, for a message.
pub(crate) fn text(output: &Output) -> String {
    format!(
        "exit {:?}\n--- stdout\n{}\n--- stderr\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A process is there (and not a zombie).
pub(crate) fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// Sends a signal to a process that the test started.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// A field of /proc/PID/status in KiB.
pub(crate) fn kib(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The decisions that a sender has kept. In the document no bound of gamma is null.
pub(crate) fn decisions_of(sender: &Value) -> Vec<tuplane_wire::routing::Decided> {
    let mut kept = sender["decisions"].clone();
    for decided in kept.as_array_mut().unwrap() {
        if decided["gamma"].is_null() {
            decided["gamma"] = u64::MAX.into();
        }
    }
    serde_json::from_value(kept).unwrap()
}

/// CPU seconds of a process.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / 100.0
}

/// The rows of all csv files of a folder, without headers, and the header.
pub(crate) fn csv_rows(folder: &Path) -> (String, Vec<Vec<String>>) {
    let (mut header, mut rows) = (String::new(), Vec::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!name.starts_with('.'), "a part is left: {name}");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        lines.next().unwrap().clone_into(&mut header);
        // Words may hold commas and quotes: the count is what stands behind the last comma.
        rows.extend(lines.map(|line| {
            let (word, count) = line.rsplit_once(',').unwrap();
            let plain = word.strip_prefix('"').and_then(|w| w.strip_suffix('"'));
            vec![plain.map_or(word.to_owned(), |w| w.replace("\"\"", "\"")), count.to_owned()]
        }));
    }
    rows.sort();
    (header, rows)
}

/// An edge's numbers in a job's document.
pub(crate) fn edge<'a>(status: &'a Value, name: &str) -> &'a Value {
    let edges = status["edges"].as_array().unwrap();
    edges.iter().find(|edge| edge["edge"] == name).unwrap_or_else(|| panic!("no edge {name} in {status}"))
}

/// A vertex's numbers in a job's document.
pub(crate) fn vertex<'a>(status: &'a Value, name: &str) -> &'a Value {
    let vertices = status["vertices"].as_array().unwrap();
    vertices.iter().find(|v| v["vertex"] == name).unwrap_or_else(|| panic!("no vertex {name} in {status}"))
}

/// The ledger of a job that stands still is exact on every edge.
pub(crate) fn assert_exact_ledger(status: &Value) {
    for edge in status["edges"].as_array().unwrap() {
        let dropped: u64 = edge["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        let sum: u64 =
            ["taken", "queued_out", "in_flight", "queued_in"].map(|k| edge[k].as_u64().unwrap()).iter().sum();
        assert_eq!(edge["emitted"].as_u64().unwrap(), sum + dropped, "{edge}");
    }
}
