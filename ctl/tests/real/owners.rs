//! Whose agents are they: owners that die, leave, or come back.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use super::world::{World, alive, signal, text, wait};

/// Where the agents listen.
fn addresses(world: &World) -> Vec<String> {
    let agents = world.json(&["agents"]);
    let list = agents["agents"].as_array().unwrap_or_else(|| panic!("{agents}"));
    list.iter().map(|agent| agent["address"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn agents_of_a_killed_owner_are_gone_within_ten_seconds() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "3"]);
    let pids = world.pids();
    let addresses = addresses(&world);
    assert_eq!((pids.len(), addresses.len()), (3, 3));
    for address in &addresses {
        assert!(TcpStream::connect(address).is_ok(), "nobody listens on {address} yet");
    }
    signal(owner, "KILL");
    wait("no agent is left", Duration::from_secs(10), || pids.values().all(|pid| !alive(*pid)));
    for address in &addresses {
        let refused = TcpStream::connect(address).err().map(|e| e.kind());
        assert_eq!(refused, Some(ErrorKind::ConnectionRefused), "{address}");
    }
}

#[test]
fn a_stopped_owner_ends_nothing_and_a_terminated_one_ends_all() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "2"]);
    let pids = world.pids();
    signal(owner, "STOP");
    std::thread::sleep(Duration::from_secs(2));
    signal(owner, "CONT");
    assert!(pids.values().all(|pid| alive(*pid)));
    signal(owner, "TERM");
    wait("no agent is left", Duration::from_secs(10), || pids.values().all(|pid| !alive(*pid)));
}

#[test]
fn detached_agents_outlive_their_owner_until_down() {
    let world = World::new();
    world.up(&["--local", "2"]);
    let pids = world.pids();
    assert!(pids.values().all(|pid| alive(*pid)));
    let output = world.tuplane(&["down"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    let output = world.tuplane(&["down", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(pids.values().all(|pid| !alive(*pid)));
    let output = world.tuplane(&["jobs"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}

/// Agents whose runtime folder is this test's.
fn agents_of(world: &World) -> Vec<u32> {
    let run = world.path("run").display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let read = |file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("comm").starts_with(b"tuplane-agent")
            && String::from_utf8_lossy(&read("environ")).contains(&run)
            && alive(*pid)
    })
    .collect()
}

#[test]
fn a_detached_start_that_is_killed_half_way_leaves_no_agent() {
    let world = World::new();
    // A start lasts for some tens of milliseconds, so that it can be over before its first agent is seen.
    for _ in 0..20 {
        let mut child = world
            .command(&["up", "--local", "3", "--detach", "--cluster", "t"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while child.try_wait().unwrap().is_none() && agents_of(&world).is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        let killed = child.wait().unwrap().code().is_none();
        if world.tuplane(&["agents", "--cluster", "t"]).status.success() {
            assert!(world.tuplane(&["down", "--yes", "--cluster", "t"]).status.success());
        }
        wait("no agent is left", Duration::from_secs(10), || agents_of(&world).is_empty());
        if killed {
            return;
        }
    }
    panic!("no start was killed between its first agent and its end");
}
