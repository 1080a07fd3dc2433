//! Agents on named hosts, over real sshds of the tests' own.

mod ends;
mod hosts;
mod kit;
mod logins;
mod shells;
mod spaces;
mod spares;
mod starts;
mod ways;

use super::world::{alive, text};

/// A road, or the test is skipped.
macro_rules! road {
    ($test:literal, $addresses:expr) => {
        match $crate::real::road::kit::Road::new($test, $addresses) {
            Some(road) => road,
            None => return,
        }
    };
}
pub(crate) use road;

#[test]
fn road_words_are_counted_over_three_hosts_and_nothing_is_left() {
    let road = road!("road_words_over_three_hosts", &["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    let hosts = road.hosts_file(&["name=a", "name=b slots=2", "name=c"]);
    let homes = kit::default_dirs();
    let rows = road.word_count(&hosts);
    assert_eq!(rows, kit::expected());
    road.assert_clean();
    assert_eq!(kit::default_dirs(), homes, "nothing is written outside --remote-dir");
}

#[test]
fn road_a_detached_cluster_is_asked_and_ended_from_another_shell() {
    let road = road!("road_a_detached_cluster", &["127.0.0.2", "127.0.0.3"]);
    let output = road.up(&["--detach"], &road.hosts_file(&["name=a", "name=b"]));
    assert!(output.status.success(), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("host keys: accept-new"), "{said}");
    let file = std::fs::read_to_string(road.world.path("run/tuplane/t/cluster.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    assert!(file["key"]["private"].as_str().unwrap().contains("PRIVATE KEY"), "the key is kept here");
    let pids = road.world.pids();
    assert_eq!(pids.len(), 2);
    let secret = file["key"]["private"].as_str().unwrap().lines().nth(1).unwrap().to_owned();
    for pid in pids.values() {
        for place in ["cmdline", "environ"] {
            let seen = std::fs::read(format!("/proc/{pid}/{place}")).unwrap();
            assert!(!String::from_utf8_lossy(&seen).contains(&secret), "the key is in {place}");
        }
    }
    for log in road.logs() {
        assert!(!log.contains(&secret), "the key is in a log");
        assert!(log.contains("listening on 127.0.0."), "{log}");
        assert!(log.contains("ssh address 127.0.0."), "{log}");
    }
    let output = road.world.tuplane(&["down", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(pids.values().all(|pid| !alive(*pid)));
    road.assert_clean();
}

#[test]
fn road_a_host_may_run_several_agents() {
    let road = road!("road_several_agents", &["127.0.0.2"]);
    let port = road.port;
    let hosts = road.world.file(
        "hosts",
        format!("root@127.0.0.2:{port} name=a slots=1\nroot@127.0.0.2:{port} name=b slots=1\nroot@127.0.0.2:{port} name=c\n"),
    );
    assert_eq!(road.word_count(&hosts), kit::expected());
    road.assert_clean();
}
