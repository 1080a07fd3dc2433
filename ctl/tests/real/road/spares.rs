//! Spare hosts: taken when a job gets more agents, given back when it gets fewer, and named when there are too few.

use std::time::Duration;

use serde_json::Value;

use super::kit::{self, Road};
use super::road;
use crate::real::rescale::{job, running};
use crate::real::world::{text, wait};

fn names(agents: &Value) -> Vec<String> {
    agents["agents"].as_array().unwrap().iter().map(|a| a["agent"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn road_a_job_takes_spare_hosts_and_gives_them_back() {
    let addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];
    let road: Road = road!("road_spares", &addresses);
    let world = &road.world;
    let hosts = road.hosts_file(&["name=a slots=2", "name=b slots=3 spare", "name=c spare"]);
    let output = road.up(&["--detach"], &hosts);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(names(&world.json(&["agents"])), ["a"]);
    world.json(&["submit", &job(world, 100_000_000, 1, 2.0, "")]);
    let mut done = Value::Null;
    wait("rates are known", Duration::from_secs(30), || {
        let output = world.tuplane(&[
            "scale",
            "out",
            "line",
            "--agents",
            "1",
            "--instances",
            "2",
            "--wait=20s",
            "-o",
            "json",
        ]);
        done = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success()
    });
    assert_eq!(done["agents_started"][0], "b", "{done}");
    let on: Vec<String> =
        running(&world.status("line"), "work").into_iter().map(|(_, agent)| agent).collect();
    assert_eq!(on.iter().filter(|agent| *agent == "b").count(), 2, "{on:?}");
    let slots = world.json(&["agents"])["agents"][1]["slots"].clone();
    assert_eq!(slots, 3, "as the line of the hosts file says");
    // One spare host is left, and that is not enough.
    let refused = world.tuplane(&["scale", "out", "line", "--agents", "2", "--instances", "2"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("1 spare hosts are left: 1 missing"), "{}", text(&refused));
    assert_eq!(names(&world.json(&["agents"])), ["a", "b"]);
    // By name, and then none is left.
    assert_eq!(names(&world.json(&["agents", "add", "c"])), ["c"]);
    let refused = world.tuplane(&["agents", "add", "--spare", "1"]);
    assert!(text(&refused).contains("0 spare hosts are left (none)"), "{}", text(&refused));
    let released = world.json(&["scale", "in", "line", "--agent", "b", "--wait=20s", "--yes"]);
    assert_eq!(released["agents_released"][0], "b", "{released}");
    // It is a spare host again. Another host is a line of a hosts file.
    assert_eq!(names(&world.json(&["agents", "add", "--spare", "1"])), ["b"]);
    let line = format!("root@{}:{} name=d zone=far", addresses[2], road.port);
    let added = world.json(&["agents", "add", &line]);
    assert_eq!((names(&added), &added["agents"][0]["zone"]), (vec!["d".to_owned()], &"far".into()));
    let output = world.tuplane(&["down", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    kit::assert_clean(&road.remote());
}
