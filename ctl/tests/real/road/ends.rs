//! Owners that die, freeze or leave; ports that are held; what is left behind (P01, P02).

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::kit::{self, Road};
use super::road;
use crate::real::world::{alive, signal, text, wait};

/// Work that goes on for ever, over all agents.
const LASTING: &str = r#"
name = "lasting"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
rate = 1000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 1
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#;

pub(super) const THREE: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];

/// `up` in the foreground, with a job at work; its pids and the agents' addresses.
struct Owned {
    owner: Child,
    pids: Vec<u32>,
    addresses: Vec<String>,
}

fn owned(road: &Road, command: &mut Command) -> Owned {
    let owner = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait("the agents answer", Duration::from_secs(30), || road.world.tuplane(&["agents"]).status.success());
    road.world.json(&["submit", &road.world.file("job.toml", LASTING)]);
    road.world.wait_for("lasting", "running", Duration::from_secs(20));
    let agents = road.world.json(&["agents"]);
    let agents = agents["agents"].as_array().unwrap();
    let addresses = agents.iter().map(|agent| agent["address"].as_str().unwrap().to_owned()).collect();
    Owned { owner, pids: road.world.pids().into_values().collect(), addresses }
}

pub(super) fn up(road: &Road) -> Command {
    road.command(&["up", "--cluster", "t", "--hosts", &road.hosts_file(&["name=a", "name=b", "name=c"])])
}

/// Children of a process that are `ssh`.
pub(super) fn ssh_children(owner: u32) -> Vec<u32> {
    let output = Command::new("ps")
        .args(["-o", "pid=", "-o", "comm=", "--ppid", &owner.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let children = text.lines().filter_map(|line| line.trim().split_once(' '));
    children.filter(|(_, name)| name.trim() == "ssh").map(|(pid, _)| pid.parse().unwrap()).collect()
}

fn assert_ends(owned: &mut Owned, what: &str) {
    let start = Instant::now();
    let Owned { owner, pids, addresses } = owned;
    wait(&format!("{what}: no agent is left"), Duration::from_secs(10), || {
        // A zombie of ours is no process.
        let _ = owner.try_wait();
        pids.iter().all(|pid| !alive(*pid))
    });
    for address in addresses {
        assert!(TcpStream::connect(&*address).is_err(), "{what}: somebody listens on {address}");
    }
    println!("{what}: ended after {:?}", start.elapsed());
}

#[test]
fn road_p01_agents_end_with_their_owner_however_it_goes() {
    let road = road!("road_p01", &THREE);
    // (a) The owner is killed.
    let mut first = owned(&road, &mut up(&road));
    let children = ssh_children(first.owner.id());
    assert!(children.len() >= 6, "three connections and three sessions: {children:?}");
    first.owner.kill().unwrap();
    assert_ends(&mut first, "kill -9 of the owner");
    wait("no ssh is left", Duration::from_secs(5), || children.iter().all(|pid| !alive(*pid)));
    let logs = road.logs();
    assert_eq!(logs.len(), 3);
    assert!(logs.iter().all(|log| log.contains("the agent ends farewell=OwnerGone")), "{logs:?}");
    // What is left are folders, and `clean` finds them.
    let hosts = road.hosts_file(&["", "", ""]);
    let output = road.command(&["clean", "--hosts", &hosts, "--yes"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    road.assert_clean();

    // (b) Its connections are killed.
    let mut second = owned(&road, &mut up(&road));
    for pid in ssh_children(second.owner.id()) {
        signal(pid, "KILL");
    }
    assert_ends(&mut second, "kill -9 of ssh");
    wait("the owner ends", Duration::from_secs(20), || second.owner.try_wait().unwrap().is_some());

    // (c) Ctrl-C, once.
    let mut third = owned(&road, &mut up(&road));
    signal(third.owner.id(), "INT");
    assert_ends(&mut third, "Ctrl-C");
    wait("the owner ends", Duration::from_secs(20), || third.owner.try_wait().unwrap().is_some());
    road.assert_clean();
}

#[test]
fn road_p01_a_closed_terminal_ends_and_a_stopped_owner_does_not() {
    let road = road!("road_p01_terminal", &THREE);
    // (d) The terminal goes: `script` holds it.
    let inner = up(&road);
    let words: Vec<String> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &format!("exec {}", words.join(" ")), "/dev/null"]).stdin(Stdio::piped());
    for (key, value) in inner.get_envs() {
        match value {
            Some(value) => terminal.env(key, value),
            None => terminal.env_remove(key),
        };
    }
    let mut first = owned(&road, &mut terminal);
    // Stopped for two seconds it keeps them (e).
    let output =
        Command::new("ps").args(["-o", "pid=", "--ppid", &first.owner.id().to_string()]).output().unwrap();
    let below: Vec<u32> = String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    for name in ["STOP", "CONT"] {
        for pid in &below {
            signal(*pid, name);
        }
        std::thread::sleep(Duration::from_secs(2));
        assert!(first.pids.iter().all(|pid| alive(*pid)), "{name}");
    }
    first.owner.kill().unwrap();
    assert_ends(&mut first, "closing the terminal");
    wait("the owner cleans up", Duration::from_secs(20), || below.iter().all(|pid| !alive(*pid)));
    road.assert_clean();
}

#[test]
fn road_p01_detached_agents_outlive_all_that_and_clean_ends_forgotten_ones() {
    let road = road!("road_p01_detached", &THREE);
    let hosts = road.hosts_file(&["name=a", "name=b", "name=c"]);
    let output = road.up(&["--detach"], &hosts);
    assert!(output.status.success(), "{}", text(&output));
    let pids = road.world.pids();
    assert_eq!(pids.len(), 3);
    // Longer than a lease.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(road.world.pids(), pids, "asked from a new process");
    // A cluster that this machine knows is left alone.
    let clean = || road.command(&["clean", "--hosts", &hosts, "--yes", "-o", "json"]).output().unwrap();
    let output = clean();
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["agents"].as_array().unwrap().iter().all(|a| a["ended"] == "left alone"), "{document}");
    assert!(pids.values().all(|pid| alive(*pid)));
    // One that nobody knows any more is not.
    std::fs::remove_dir_all(road.world.path("run/tuplane/t")).unwrap();
    let output = road.command(&["clean", "--hosts", &hosts]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let shown = road.command(&["clean", "--hosts", &hosts, "--dry-run"]).output().unwrap();
    assert!(shown.status.success(), "{}", text(&shown));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(pids.values().all(|pid| shown.contains(&format!("would end pid {pid} "))), "{shown}");
    assert!(pids.values().all(|pid| alive(*pid)), "nothing was ended");
    let output = clean();
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The hosts share a folder here, so that each may end agents of the others.
    let ended = document["agents"].as_array().unwrap().iter().filter(|a| a["ended"] == "SIGTERM").count();
    assert!(ended >= 3, "{document}");
    assert!(pids.values().all(|pid| !alive(*pid)));
    road.assert_clean();
    // Where nothing is left nobody need be asked.
    let output = road.command(&["clean", "--hosts", &hosts]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("nothing was left"), "{}", text(&output));
    let binary = road.remote().join(kit::agent_name());
    let output = road.command(&["clean", "--hosts", &hosts, "--binaries"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    assert!(binary.exists());
    let output = road.command(&["clean", "--hosts", &hosts, "--binaries", "--yes"]).output().unwrap();
    assert!(output.status.success() && !binary.exists(), "{}", text(&output));
}

#[test]
fn road_p02_a_held_port_is_named_with_its_owner_and_nothing_stays() {
    let road = road!("road_p02", &["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let held = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let keys = format!("port={port}");
    let hosts = road.hosts_file(&[&keys, &keys, &keys]);
    let begun = Instant::now();
    let output = road.up(&["--detach"], &hosts);
    let took = begun.elapsed();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let own = format!("pid {} (", std::process::id());
    for part in ["127.0.0.2: ", &format!("port {port} is held by"), &own] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    // Some 3 s on an idle machine; the binary is copied to each host first.
    assert!(took < Duration::from_mins(1), "{took:?}");
    for address in ["127.0.0.1", "127.0.0.3"] {
        assert!(TcpStream::connect((address, port)).is_err(), "an agent stayed on {address}");
    }
    road.assert_clean();
    drop(held);
    // The same port works at once, and again after a run with open connections.
    for _ in 0..2 {
        let output = road.up(&["--detach"], &hosts);
        assert!(output.status.success(), "{}", text(&output));
        let output = road.world.tuplane(&["down", "--yes"]);
        assert!(output.status.success(), "{}", text(&output));
    }
    road.assert_clean();
}

#[test]
fn road_a_run_that_is_interrupted_while_it_starts_leaves_nothing() {
    let road = road!("road_interrupted", &THREE);
    for after in [150, 500, 900] {
        let mut owner = up(&road).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(after));
        signal(owner.id(), "INT");
        wait("it ends", Duration::from_secs(30), || owner.try_wait().unwrap().is_some());
        kit::assert_clean(&road.remote());
        assert!(!road.world.path("run/tuplane/t").exists(), "after {after} ms");
    }
}

#[test]
fn road_p01_an_agent_ends_when_its_launcher_falls_silent() {
    use std::io::{BufRead, Write};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("state")).unwrap();
    let config = tuplane_wire::launch::AgentConfig {
        cluster: "t".to_owned(),
        name: "a".to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        announce: None,
        coordinator: None,
        key: None,
        slots: 1,
        cores: 0,
        zone: "default".to_owned(),
        costs: Vec::new(),
        memory: 64 << 20,
        lease_ms: 10_000,
        state: path("state"),
        folder: path(""),
        log: Some(path("log")),
        detached: false,
        road: Some(tuplane_wire::launch::Road {
            host: "h".to_owned(),
            loopback: true,
            lease_ms: 1500,
            ..Default::default()
        }),
    };
    let mut agent =
        Command::new(kit::agent()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is built");
    let mut lifeline = agent.stdin.take().unwrap();
    lifeline.write_all(format!("{}\n", serde_json::to_string(&config).unwrap()).as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::BufReader::new(agent.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("Ready"), "{answer}");
    for _ in 0..8 {
        lifeline.write_all(b"\n").unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(agent.try_wait().unwrap().is_none(), "it was heard of");
    // The lifeline stays open, and nothing more comes.
    wait("it ends", Duration::from_secs(6), || agent.try_wait().unwrap().is_some());
    drop(lifeline);
}
