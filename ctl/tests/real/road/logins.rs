//! Logins that fail, each with its cause and remedy, and logins that must be tried again (P03, P31).

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::kit::{self, Road};
use super::road;
use crate::real::world::text;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `up` with options of its own in place of the road's key and known hosts.
fn up_with(road: &Road, hosts: &str, key: &std::path::Path, more: &[&str]) -> Output {
    let mut command = road.world.command(&["up", "--detach", "--cluster", "t", "--hosts", hosts]);
    command.args(kit::ssh_options(&road.world, key, &road.remote())).args(more).output().unwrap()
}

/// One line for the host, with these words, and nothing started.
fn assert_refused(road: &Road, output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(3), "{}", text(output));
    let said = said(output);
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
    road.assert_clean();
    assert!(!road.world.path("run/tuplane/t").exists());
}

#[test]
fn road_p03_a_host_key_that_is_unknown_or_changed_is_refused_with_the_way_out() {
    let road = road!("road_p03_host_keys", &["127.0.0.2"]);
    let (hosts, id) = (road.hosts_file(&["name=a"]), road.world.path("id"));
    let known = road.world.path("known");
    // (a) Nothing is known.
    let output = up_with(&road, &hosts, &id, &["--host-keys", "strict"]);
    assert_refused(&road, &output, &["127.0.0.2: its host key is not known", "ssh-keyscan", "accept-new"]);
    // (b) Another key is known.
    kit::keygen(&road.world.path("other"), "");
    let other = std::fs::read_to_string(road.world.path("other.pub")).unwrap();
    let name = format!("[127.0.0.2]:{}", road.port);
    std::fs::write(&known, format!("{name} {other}")).unwrap();
    let output = up_with(&road, &hosts, &id, &[]);
    let remedy = format!("ssh-keygen -f \"{}\" -R \"{name}\"", known.display());
    assert_refused(&road, &output, &["its host key has changed", &remedy]);
    // The line does what it says.
    let forgot = Command::new("ssh-keygen").arg("-f").arg(&known).args(["-R", &name]).output().unwrap();
    assert!(forgot.status.success(), "{}", text(&forgot));
    let output = up_with(&road, &hosts, &id, &[]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(std::fs::read_to_string(&known).unwrap().contains(&name), "it is noted now");
    assert!(road.world.tuplane(&["down", "--yes"]).status.success());
    // Nothing compared, nothing noted.
    std::fs::remove_file(&known).unwrap();
    let mut command =
        road.world.command(&["hosts", "check", &hosts, "--host-keys", "off", "--ssh-config", "/dev/null"]);
    command
        .args(["--ssh-option", &format!("IdentityFile={}", id.display()), "--remote-dir"])
        .arg(road.remote());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("host keys: off"));
    assert!(!known.exists());
}

#[test]
fn road_p03_a_key_that_cannot_be_used_is_named() {
    let road = road!("road_p03_keys", &["127.0.0.2"]);
    let hosts = road.hosts_file(&["name=a"]);
    // (c) Unreadable: root reads any file, so what ssh refuses is one that others may read, or nonsense.
    let open = road.world.path("open");
    std::fs::copy(road.world.path("id"), &open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(
        &road,
        &up_with(&road, &hosts, &open, &[]),
        &["a key cannot be used", "open", "chmod 600"],
    );
    let nonsense = road.world.path("nonsense");
    std::fs::write(&nonsense, "no key\n").unwrap();
    std::fs::set_permissions(&nonsense, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_refused(&road, &up_with(&road, &hosts, &nonsense, &[]), &["a key cannot be used", "nonsense"]);
    // (d) A passphrase, and nobody to ask.
    let locked = road.world.path("locked");
    kit::keygen(&locked, "secret");
    let output = up_with(&road, &hosts, &locked, &[]);
    assert_refused(&road, &output, &["a key with a passphrase", "ssh-add", locked.to_str().unwrap()]);
    // One that is not there.
    let missing = road.world.path("no-such-key");
    let output = up_with(&road, &hosts, &missing, &[]);
    assert_refused(&road, &output, &["IdentityFile names is not there", missing.to_str().unwrap()]);
    // A key that the host does not know.
    let stranger = road.world.path("stranger");
    kit::keygen(&stranger, "");
    assert_refused(
        &road,
        &up_with(&road, &hosts, &stranger, &[]),
        &["the login was refused", "by hand: ssh ", "UserKnownHostsFile=", &format!("-p {}", road.port)],
    );
}

#[test]
fn road_p03_a_silent_host_is_given_up_and_all_failures_are_told_together() {
    let road = road!("road_p03_silent", &["127.0.0.2"]);
    // (e) Takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.3:0").unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let closed = TcpListener::bind("127.0.0.4:0").unwrap().local_addr().unwrap().port();
    let port = road.port;
    let text_of = format!("root@127.0.0.2:{port}\nroot@127.0.0.3:{silent_port}\nroot@127.0.0.4:{closed}\n");
    let hosts = road.world.file("hosts", text_of);
    let begun = Instant::now();
    let output = up_with(&road, &hosts, &road.world.path("id"), &["--connect-timeout", "3s"]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = said(&output);
    assert_eq!(said.lines().count(), 2, "one line a host that failed: {said}");
    for part in ["127.0.0.3: no answer within 3 s", "127.0.0.4: port ", "refused"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let output = up_with(&road, "no-such-host.invalid,", &road.world.path("id"), &[]);
    assert_refused(&road, &output, &["no-such-host.invalid: no such host"]);
    road.assert_clean();
}

#[test]
fn road_p31_logins_beyond_what_sshd_takes_are_tried_again() {
    let addresses = [
        "127.0.0.2",
        "127.0.0.3",
        "127.0.0.4",
        "127.0.0.5",
        "127.0.0.6",
        "127.0.0.7",
        "127.0.0.8",
        "127.0.0.9",
    ];
    let Some(road) = Road::with("road_p31", &addresses, |_| "MaxStartups 2:100:3\n".to_owned()) else {
        return;
    };
    let hosts = road.hosts_file(&[""; 8]);
    let output = road.command(&["hosts", "check", &hosts, "-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["hosts"].as_array().unwrap().len(), 8);
    let log = std::fs::read_to_string(road.world.path("sshd-0.log")).unwrap();
    // Otherwise the test shows nothing.
    assert!(log.contains("MaxStartups") || log.contains("drop connection"), "{log}");
    road.assert_clean();
}

#[test]
fn road_a_jump_host_is_gone_through_with_the_same_options() {
    let road = road!("road_jump", &["127.0.0.2", "127.0.0.3", "127.0.0.5"]);
    let port = road.port;
    let jump = format!("jump=root@127.0.0.5:{port}");
    let hosts = road.world.file(
        "hosts",
        format!("root@127.0.0.2:{port} name=a data=127.0.0.2 {jump}\nroot@127.0.0.3:{port} name=b data=127.0.0.3 {jump}\n"),
    );
    // What lies behind a jump host is not this machine, so loopback addresses are refused there.
    let output = road.up(&["--detach"], &hosts);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(said(&output).contains("a loopback address that no other host reaches"), "{}", text(&output));
    road.assert_clean();
    let one = road.world.file("one", format!("root@127.0.0.2:{port} name=a {jump}\n"));
    assert_eq!(road.word_count(&one), kit::expected());
    let known = std::fs::read_to_string(road.world.path("known")).unwrap();
    assert!(known.contains("[127.0.0.5]"), "the jump host was noted in the same file: {known}");
    road.assert_clean();
}

#[test]
fn road_faults_of_a_hosts_file_are_shown_with_their_lines() {
    let road = road!("road_faults", &["127.0.0.2"]);
    let hosts = road.world.file("hosts", "n1 slot=4\nn2\nn2\n");
    let output = road.up(&[], &hosts);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = said(&output);
    for part in [
        "hosts:1:4: unknown key `slot`",
        "did you mean `slots`?",
        "stands twice, in lines 2 and 3",
        "2 faults",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let mut child = road
        .command(&["up", "--hosts", "-", "--dry-run", "-o", "json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"[workers]\nn[1-2] slots=3\nx spare\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["agents"][1]["agent"], &document["agents"][1]["slots"]), (&"n2".into(), &3.into()));
    assert_eq!(document["spares"][0], "x", "{document}");
}
