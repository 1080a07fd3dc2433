//! Whose agents are they: owners that die, leave, or come back.

use std::process::Command;
use std::time::Duration;

use super::world::{World, alive, signal, text, wait};

/// Ports that a process listens on.
fn ports(pid: u32) -> Vec<String> {
    let output = Command::new("ss").args(["-Hltnp"]).output();
    let Ok(output) = output else { return Vec::new() };
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    list.lines().filter(|line| line.contains(&format!("pid={pid},"))).map(str::to_owned).collect()
}

#[test]
fn agents_of_a_killed_owner_are_gone_within_ten_seconds() {
    let mut world = World::new();
    let owner = world.up_owned(&["--local", "3"]);
    let pids = world.pids();
    assert_eq!(pids.len(), 3);
    signal(owner, "KILL");
    wait("no agent is left", Duration::from_secs(10), || pids.values().all(|pid| !alive(*pid)));
    for pid in pids.values() {
        assert!(ports(*pid).is_empty());
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
