//! `hosts check` on good hosts and bad ones.

use super::kit;
use super::road;
use crate::real::world::text;

#[test]
fn road_hosts_check_says_what_each_host_is_and_what_would_fail() {
    let road = road!("road_hosts_check", &["127.0.0.2", "127.0.0.3"]);
    let held = std::net::TcpListener::bind("127.0.0.3:0").unwrap();
    let held_port = held.local_addr().unwrap().port();
    let hosts = road.hosts_file(&["name=a", &format!("name=b port={held_port}")]);
    let output = road.command(&["hosts", "check", &hosts, "-o", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "tuplane/hosts-check/1");
    let (good, bad) = (&document["hosts"][0], &document["hosts"][1]);
    assert_eq!(good["ssh"], format!("root@127.0.0.2 port {}", road.port));
    assert!(good["data"].as_str().unwrap().starts_with("127.0.0.2:"), "{good}");
    assert_eq!(good["fault"], serde_json::Value::Null);
    for (key, least) in [("processors", 1), ("memory", 1 << 20), ("clock_error_ns", 1)] {
        assert!(good[key].as_u64().unwrap() >= least, "{key} in {good}");
    }
    // One machine, one clock.
    let offset = good["clock_offset_ns"].as_i64().unwrap().abs();
    assert!(offset <= good["clock_error_ns"].as_i64().unwrap() + 5_000_000, "{good}");
    assert_eq!(format!("agent-{}", good["binary"].as_str().unwrap()), kit::agent_name());
    assert_eq!(good["version"], env!("CARGO_PKG_VERSION"));
    let fault = bad["fault"]["message"].as_str().unwrap();
    assert!(fault.contains(&format!("port {held_port} is held by pid {}", std::process::id())), "{fault}");
    let output = road.command(&["hosts", "check", &hosts]).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for word in ["AGENT", "SSH", "DATA", "CORES", "CLOCK", "BINARY", "host keys: accept-new"] {
        assert!(table.contains(word), "{word} in {table}");
    }
    road.assert_clean();
}

#[test]
fn road_a_name_that_is_no_file_and_a_list_are_told_apart() {
    let road = road!("road_list", &["127.0.0.2", "127.0.0.3"]);
    let output = road.command(&["hosts", "check", "nowhere.txt"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("with a comma: `nowhere.txt,`"),
        "{}",
        text(&output)
    );
    let list = format!("root@127.0.0.[2-3]:{} slots=1", road.port);
    let output =
        road.command(&["up", "--hosts", &format!("{list},"), "--dry-run", "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["agents"].as_array().unwrap().len(), 2, "{document}");
    let list = format!("root@127.0.0.2:{0},root@127.0.0.3:{0}", road.port);
    assert_eq!(road.word_count(&list), kit::expected());
    road.assert_clean();
}
