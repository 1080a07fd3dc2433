//! Ways to hosts: configurations of ssh, proxies, jump hosts, connections that break off, many at once.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use tuplane_testbed::launch::HostEntry;
use tuplane_testbed::launch::ssh::{SshCarrier, SshOptions, Target};
use tuplane_wire::client::Carrier;

use super::ends::ssh_children;
use super::kit::{self, Road};
use super::road;
use crate::real::world::{World, alive, signal, text, wait};

/// `up` by a configuration of ssh.
fn up_by(road: &Road, config: &str, hosts: &str, more: &[&str]) -> Output {
    let config = road.world.file("config", config);
    let options = kit::with_option(road.ssh(), "--ssh-config", &config);
    let args = ["up", "--detach", "--cluster", "t", "--hosts", hosts];
    road.world.command(&args).args(&options).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Processes whose command line has these words.
fn processes(words: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: &u32| String::from_utf8_lossy(&line(pid)).replace('\0', " ").contains(words);
    pids.filter(|pid| *pid != std::process::id() && has(pid) && alive(*pid)).collect()
}

#[test]
fn road_what_ssh_starts_on_the_way_ends_with_it() {
    let road = road!("road_proxies_end", &["127.0.0.2"]);
    // A command that leaves a child of its own behind.
    let left = road.world.path("left");
    let proxy = format!("ProxyCommand=sh -c 'sleep 77 & echo $! > {}; wait'", left.display());
    let hosts = road.hosts_file(&["name=a"]);
    let output = road.up(&["--connect-timeout", "1s", "--ssh-option", &proxy], &hosts);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let pid: u32 = std::fs::read_to_string(&left).expect("the command ran").trim().parse().unwrap();
    wait("what the proxy started has ended", Duration::from_secs(10), || !alive(pid));
    // Two hosts that are reached through each other: ssh starts one ssh after the other.
    let config = "Host loopa\n ProxyJump loopb\nHost loopb\n ProxyJump loopa\n";
    let output = up_by(&road, config, "loopa,", &["--connect-timeout", "1s"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let config = road.world.path("config").display().to_string();
    wait("no ssh goes on", Duration::from_secs(10), || processes(&config).is_empty());
}

#[test]
fn road_an_alias_is_scanned_by_what_it_stands_for() {
    let road = road!("road_alias", &["127.0.0.2"]);
    let config = format!("Host lab\n HostName 127.0.0.2\n Port {}\n User root\n", road.port);
    let output = up_by(&road, &config, "lab name=a,", &["--host-keys", "strict"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = said(&output);
    let (known, port) = (road.world.path("known").display().to_string(), road.port);
    let line = format!("ssh-keyscan -p {port} 127.0.0.2 >> {known}");
    assert!(said.contains(&line), "{said}");
    // The line does what it says.
    let scanned = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(scanned.status.success(), "{}", text(&scanned));
    let output = up_by(&road, &config, "lab name=a,", &["--host-keys", "strict"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(road.world.tuplane(&["down", "--yes"]).status.success());
    road.assert_clean();
}

#[test]
fn road_what_a_configuration_reaches_through_another_host_is_not_this_machine() {
    let road = road!("road_configured_jump", &["127.0.0.2", "127.0.0.3", "127.0.0.5"]);
    let port = road.port;
    let config = format!(
        "Host gate\n HostName 127.0.0.5\n Port {port}\n User root\n IdentityFile {id}\n\
         Host one\n HostName 127.0.0.2\n Port {port}\n User root\n ProxyJump gate\n\
         Host two\n HostName 127.0.0.3\n Port {port}\n User root\n ProxyJump gate\n\
         Host *\n StrictHostKeyChecking no\n UserKnownHostsFile {known}\n",
        id = road.world.path("id").display(),
        known = road.world.path("gate-known").display()
    );
    // Not taken for data addresses: nobody has said so.
    let output = up_by(&road, &config, "one data=127.0.0.2,two data=127.0.0.3", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(said(&output).contains("a loopback address that no other host reaches"), "{}", text(&output));
    road.assert_clean();
}

#[test]
fn road_up_names_all_that_would_fail_as_the_check_does() {
    let road = road!("road_all_failures", &["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    let holder = TcpListener::bind("127.0.0.3:0").unwrap();
    let held = holder.local_addr().unwrap().port();
    let closed = TcpListener::bind("127.0.0.5:0").unwrap().local_addr().unwrap().port();
    let port = road.port;
    let hosts = road.world.file(
        "hosts",
        format!(
            "root@127.0.0.5:{closed} name=d\nroot@127.0.0.2:{port} name=a data=10.99.98.97\n\
             root@127.0.0.3:{port} name=b port={held}\nroot@127.0.0.4:{port} name=c\n"
        ),
    );
    let output = road.up(&["--detach"], &hosts);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = said(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, parts) in lines.iter().zip([
        ["127.0.0.5: ", "Connection refused"],
        ["127.0.0.2: ", "the host has no address 10.99.98.97"],
        ["127.0.0.3: ", "is held by pid"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} in {line}");
    }
    road.assert_clean();
}

#[test]
fn road_a_folder_that_others_may_write_to_is_refused() {
    let road = road!("road_open_folder", &["127.0.0.2"]);
    let hosts = road.hosts_file(&["name=a"]);
    // A program in the agent's place, as another user could have left it there.
    let (agent, proof) = (road.remote().join(kit::agent_name()), road.world.path("proof"));
    let size = std::fs::metadata(&agent).unwrap().len();
    std::fs::remove_file(&agent).unwrap();
    std::fs::write(&agent, format!("#!/bin/sh\ncat > {}\n", proof.display())).unwrap();
    std::fs::OpenOptions::new().write(true).open(&agent).unwrap().set_len(size).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(road.remote(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let shown = road.remote().display().to_string();
    for args in [&["up", "--detach", "--cluster", "t", "--hosts", &hosts][..], &["hosts", "check", &hosts]] {
        let output = road.command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = text(&output);
        for part in ["127.0.0.2: ", &shown, "others may write to it", "chmod go-w", "--remote-dir"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    assert!(!proof.exists(), "nothing there was run, and nobody got the key");
}

#[test]
fn road_a_folder_that_cannot_be_made_is_said_with_a_way_out() {
    let road = road!("road_no_folder", &["127.0.0.2"]);
    let options = kit::with_option(road.ssh(), "--remote-dir", "/proc/x");
    let hosts = road.hosts_file(&["name=a"]);
    let output = road.world.command(&["up", "--detach", "--hosts", &hosts]).args(&options).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = said(&output);
    for part in ["127.0.0.2: ", "/proc/x", "use a folder that you may write to with --remote-dir"] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn road_many_hosts_are_ended_and_cleaned_as_few_at_a_time_as_they_were_started() {
    let addresses: Vec<String> = (2..10).map(|n| format!("127.0.0.{n}")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let few = |_: &World| "MaxStartups 3:100:3\n".to_owned();
    let Some(road) = Road::with("road_few_at_a_time", &addresses, few) else { return };
    let hosts = road.hosts_file(&["slots=1"; 8]);
    let output = road.up(&["--detach", "--fan-out", "2"], &hosts);
    assert!(output.status.success(), "{}", text(&output));
    let output = road.world.tuplane(&["down", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    let output = road.command(&["clean", "--hosts", &hosts, "--yes", "--fan-out", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    // A login that sshd dropped is tried again: its log alone shows whether there were too many at once.
    let log = std::fs::read_to_string(road.world.path("sshd-0.log")).unwrap();
    assert!(log.matches("Accepted publickey").count() >= 24, "{log}");
    assert!(!log.contains("MaxStartups") && !log.contains("drop connection"), "{log}");
    road.assert_clean();
}

/// Options of ssh that let a library call in.
fn options(road: &Road) -> SshOptions {
    let id = road.world.path("id").display().to_string();
    SshOptions {
        known_hosts: Some(road.world.path("known")),
        config: Some("/dev/null".into()),
        options: vec![format!("IdentityFile={id}"), "IdentitiesOnly=yes".into(), "IdentityAgent=none".into()],
        connect_s: 10,
        ..SshOptions::default()
    }
}

/// A way to agents on 127.0.0.2.
fn carrier(road: &Road) -> std::sync::Arc<SshCarrier> {
    let target = Target { host: "root@127.0.0.2".into(), port: Some(road.port), jump: None };
    let host = HostEntry { target, folder: String::new(), socket: PathBuf::from("/nowhere/socket") };
    SshCarrier::new(host, options(road), road.world.path("run"))
}

/// Answers each connection with one byte.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() {
                let _ = stream.write_all(&byte);
            }
        }
    });
    address
}

/// One byte there and back.
async fn is_carried(carrier: &SshCarrier, address: &str) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = carrier.open(address).await else { return false };
    let mut byte = [0];
    stream.write_all(b"x").await.is_ok() && stream.read_exact(&mut byte).await.is_ok() && byte == *b"x"
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn road_a_way_through_ssh_that_broke_off_is_made_anew() {
    let road = road!("road_way_anew", &["127.0.0.2"]);
    let (carrier, address) = (carrier(&road), echo());
    runtime().block_on(async {
        assert!(is_carried(&carrier, &address).await);
        assert!(is_carried(&carrier, &address).await);
        let living =
            || ssh_children(std::process::id()).into_iter().filter(|pid| alive(*pid)).collect::<Vec<_>>();
        wait("one connection serves both", Duration::from_secs(10), || living().len() == 1);
        for pid in living() {
            signal(pid, "KILL");
        }
        assert!(is_carried(&carrier, &address).await, "over a connection of its own again");
    });
}

/// sshd lets a login in after a while only.
fn slow(world: &World) -> String {
    let path = PathBuf::from(
        world.file("forced", "#!/bin/sh\nsleep 3\nexec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n"),
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("ForceCommand {}\n", path.display())
}

#[test]
fn road_a_login_goes_on_when_the_call_that_needed_it_gave_up() {
    let Some(road) = Road::with("road_slow_login", &["127.0.0.2"], slow) else { return };
    let (carrier, address) = (carrier(&road), echo());
    runtime().block_on(async {
        let mut tries = 0;
        let patience = Duration::from_millis(500);
        while !tokio::time::timeout(patience, is_carried(&carrier, &address)).await.unwrap_or(false) {
            tries += 1;
            assert!(tries < 120, "it never came through");
        }
        assert!(tries > 2, "the login took longer than a call");
    });
    let log = std::fs::read_to_string(road.world.path("sshd-0.log")).unwrap();
    assert_eq!(log.matches("Accepted publickey").count(), 1, "it was begun once: {log}");
}

#[test]
fn road_a_short_timeout_is_for_the_answer_and_not_for_the_login_before_it() {
    let Some(road) = Road::with("road_slow_client", &["127.0.0.2"], slow) else { return };
    let output = road.up(&["--detach"], &road.hosts_file(&["name=a"]));
    assert!(output.status.success(), "{}", text(&output));
    // As if the agents could not be dialled from here.
    let file = road.world.path("run/tuplane/t/cluster.json");
    let mut document: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["road"]["through_ssh"], false);
    document["road"]["through_ssh"] = true.into();
    std::fs::write(&file, document.to_string()).unwrap();
    let output = road.world.tuplane(&["agents", "--timeout", "2s"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(road.world.tuplane(&["down", "--yes"]).status.success());
    road.assert_clean();
}
