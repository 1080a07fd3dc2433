//! Three hosts in network namespaces: a control network for ssh, another one for rows (P04, P05).

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use super::kit::{self, Sshd};
use crate::real::world::{World, alive, text, wait};

/// Runs a command, which must succeed.
fn run(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output));
}

/// Three namespaces, each with a cable to this machine (control) and one to a switch in a fourth (data).
/// Names hold this process's pid, so that tests beside each other do not meet. All goes with this.
struct Spaces {
    pid: u32,
}

impl Spaces {
    fn name(&self, which: &str) -> String {
        format!("tp{}{which}", self.pid)
    }

    /// Address of a host on the control network, a /30 of its own.
    fn control(&self, host: usize) -> String {
        format!("10.{}.{}.{}", 200 + self.pid % 50, self.pid / 50 % 250, 4 * host + 2)
    }

    fn data(host: usize) -> String {
        format!("10.10.1.{}", host + 1)
    }

    fn make() -> Self {
        let all = Self { pid: std::process::id() };
        let switch = all.name("s");
        run(&["ip", "netns", "add", &switch]);
        run(&["ip", "-n", &switch, "link", "add", "sw", "type", "bridge"]);
        run(&["ip", "-n", &switch, "link", "set", "sw", "up"]);
        for host in 0..3 {
            let (space, cable) = (all.name(&host.to_string()), all.name(&format!("c{host}")));
            run(&["ip", "netns", "add", &space]);
            run(&["ip", "-n", &space, "link", "set", "lo", "up"]);
            run(&["ip", "link", "add", &cable, "type", "veth", "peer", "name", "ctl0", "netns", &space]);
            let ours = all.control(host);
            let last = ours.rsplit('.').next().unwrap().parse::<u32>().unwrap();
            let here = format!("{}.{}/30", ours.rsplit_once('.').unwrap().0, last - 1);
            run(&["ip", "addr", "add", &here, "dev", &cable]);
            run(&["ip", "link", "set", &cable, "up"]);
            run(&["ip", "-n", &space, "addr", "add", &format!("{ours}/30"), "dev", "ctl0"]);
            run(&["ip", "-n", &space, "link", "set", "ctl0", "up"]);
            let port = format!("p{host}");
            run(&[
                "ip", "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "exp0", "netns",
                &space,
            ]);
            run(&["ip", "-n", &switch, "link", "set", &port, "master", "sw"]);
            run(&["ip", "-n", &switch, "link", "set", &port, "up"]);
            run(&["ip", "-n", &space, "addr", "add", &format!("{}/24", Self::data(host)), "dev", "exp0"]);
            run(&["ip", "-n", &space, "link", "set", "exp0", "up"]);
            // What must never be taken: one of a container's, and one that is down.
            for (name, address) in [("docker0", "172.17.0.1/16"), ("off0", "10.99.0.1/24")] {
                let peer = format!("{name}p");
                run(&["ip", "-n", &space, "link", "add", name, "type", "veth", "peer", "name", &peer]);
                run(&["ip", "-n", &space, "addr", "add", address, "dev", name]);
            }
            for up in ["docker0", "docker0p"] {
                run(&["ip", "-n", &space, "link", "set", up, "up"]);
            }
        }
        all
    }

    /// Bytes that an interface of this machine has carried.
    fn carried(&self, host: usize) -> u64 {
        let cable = self.name(&format!("c{host}"));
        let count = |what: &str| -> u64 {
            let path = format!("/sys/class/net/{cable}/statistics/{what}_bytes");
            std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
        };
        count("rx") + count("tx")
    }

    /// The same for a port of the switch.
    fn switched(&self, host: usize) -> u64 {
        let (switch, port) = (self.name("s"), format!("p{host}"));
        let output =
            Command::new("ip").args(["-n", &switch, "-s", "-j", "link", "show", &port]).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let count = |what: &str| shown[0]["stats64"][what]["bytes"].as_u64().unwrap();
        count("rx") + count("tx")
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        // Interfaces go with the namespaces, cables of this machine with their other ends.
        for which in ["0", "1", "2", "s"] {
            let name = self.name(which);
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
            let _ = std::fs::remove_dir_all(format!("/etc/netns/{name}"));
        }
        for host in 0..3 {
            let _ = Command::new("ip").args(["link", "del", &self.name(&format!("c{host}"))]).output();
        }
    }
}

/// Three hosts with an sshd each. Fields go in their order.
struct Lab {
    world: World,
    sshds: Vec<Sshd>,
    spaces: Spaces,
}

const PORT: u16 = 2222;

impl Lab {
    fn new(test: &str) -> Option<Self> {
        if !kit::available(test, &["ip"]) {
            return None;
        }
        let world = World::new();
        kit::keygen(&world.path("host"), "");
        kit::keygen(&world.path("id"), "");
        let spaces = Spaces::make();
        Some(Self { world, sshds: Vec::new(), spaces }.with_sshds())
    }

    fn with_sshds(mut self) -> Self {
        for host in 0..3 {
            let (space, address) = (self.spaces.name(&host.to_string()), self.spaces.control(host));
            let name = host.to_string();
            self.sshds.push(Sshd::start(&self.world.path(""), &name, &[&address], PORT, "", Some(&space)));
            wait("sshd listens", Duration::from_secs(10), || {
                std::net::TcpStream::connect((address.as_str(), PORT)).is_ok()
            });
        }
        kit::seed(&self.remote());
        self
    }

    fn remote(&self) -> PathBuf {
        self.world.path("remote")
    }

    fn hosts(&self, keys: &[&str]) -> String {
        let lines = (0..3)
            .zip(keys)
            .map(|(host, keys)| format!("root@{}:{PORT} {keys}\n", self.spaces.control(host)))
            .collect::<Vec<_>>()
            .concat();
        self.world.file("hosts", lines)
    }

    fn ssh(&self) -> Vec<String> {
        kit::ssh_options(&self.world, &self.world.path("id"), &self.remote())
    }

    fn up(&self, keys: &[&str]) -> Output {
        let hosts = self.hosts(keys);
        self.world
            .command(&["up", "--detach", "--cluster", "t", "--hosts", &hosts])
            .args(self.ssh())
            .output()
            .unwrap()
    }

    /// The command says why and nothing is left.
    fn assert_refused(&self, keys: &[&str], words: &[&str]) {
        let output = self.up(keys);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
        kit::assert_clean(&self.remote());
    }
}

/// Rows of which two thirds cross: slow enough that no receiver is full, since a full one is skipped
/// and those at home take its rows.
const PAYLOAD: &str = r#"
name = "payload"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 40000
payload = 1000
rate = 8000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "out"
op = "sink"
in = "spread"
connector = "count"
"#;

#[test]
fn road_three_namespaces_count_words_and_leave_nothing() {
    let Some(lab) = Lab::new("road_three_namespaces") else { return };
    let hosts = lab.hosts(&["name=a data=10.10.1.0/24", "name=b data=exp0", "name=c data=10.10.1.3"]);
    let rows = kit::word_count(&lab.world, &["--hosts", &hosts], &lab.ssh());
    assert_eq!(rows, kit::expected());
    kit::assert_clean(&lab.remote());
}

#[test]
fn road_p04_rows_take_the_data_network_and_no_other() {
    let Some(lab) = Lab::new("road_p04") else { return };
    // Nothing is guessed where there are two networks.
    let (control, data) = (lab.spaces.control(0), Spaces::data(0));
    let (other, last) = (lab.spaces.control(2), Spaces::data(2));
    lab.assert_refused(
        &["name=a", "name=b", "name=c"],
        &[&format!("{control} (ctl0), {data} (exp0)"), &format!("{other} (ctl0), {last} (exp0)"), "data="],
    );
    lab.assert_refused(
        &["name=a data=127.0.0.1", "name=b data=exp0", "name=c data=exp0"],
        &["a loopback address that no other host reaches"],
    );
    let output = lab.up(&["name=a data=10.10.1.0/24"; 3]);
    assert_eq!(output.status.code(), Some(2), "one name for three: {}", text(&output));
    let output =
        lab.up(&["name=a data=10.10.1.0/24", "name=b data=10.10.1.0/24", "name=c data=10.10.1.0/24"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("through ssh"), "{}", text(&output));
    let pids = lab.world.pids();
    assert_eq!(pids.len(), 3);
    let before: Vec<(u64, u64)> =
        (0..3).map(|host| (lab.spaces.carried(host), lab.spaces.switched(host))).collect();
    lab.world.json(&["submit", &lab.world.file("payload.toml", PAYLOAD)]);
    // Looking costs a login each time, which is telemetry too: look once, late.
    std::thread::sleep(Duration::from_secs(8));
    let status = lab.world.status("payload");
    assert_eq!(status["phase"], "finished", "{status}");
    let (mut on_control, mut on_data) = (0, 0);
    for (host, (control, data)) in before.into_iter().enumerate() {
        on_control += lab.spaces.carried(host) - control;
        on_data += lab.spaces.switched(host) - data;
    }
    // Every cable is counted at one end; a row that crosses passes two ports of the switch.
    println!("{on_control} bytes of control, {on_data} of data");
    assert!(on_data > 40_000_000, "the payload crossed the data network: {on_data}");
    assert!(on_control * 100 < on_data / 2, "{on_control} bytes of control for {on_data} of data");
    for log in agent_logs(&lab) {
        let own = log.lines().find(|line| line.contains("listening on")).unwrap();
        assert!(own.contains("listening on 10.10.1."), "{own}");
        assert!(
            (0..3).any(|host| own.contains(&format!("ssh address {}", lab.spaces.control(host)))),
            "{own}"
        );
    }
    let output = lab.world.tuplane(&["down", "--yes"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(pids.values().all(|pid| !alive(*pid)));
    kit::assert_clean(&lab.remote());
}

fn agent_logs(lab: &Lab) -> Vec<String> {
    let runs = std::fs::read_dir(lab.remote().join("run")).unwrap().flatten();
    let agents = runs.flat_map(|run| std::fs::read_dir(run.path()).unwrap().flatten());
    agents.map(|agent| std::fs::read_to_string(agent.path().join("log")).unwrap()).collect()
}

#[test]
fn road_p05_agents_that_cannot_reach_each_other_are_named_before_any_row_flows() {
    let Some(mut lab) = Lab::new("road_p05") else { return };
    // A name that only its own host knows, as itself: many systems have such a line.
    let name = lab.spaces.name("node");
    let folder = format!("/etc/netns/{}", lab.spaces.name("1"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(format!("{folder}/hosts"), format!("127.0.0.1 localhost\n127.0.1.1 {name}\n")).unwrap();
    // An sshd sees the file only if it was started with it.
    lab.sshds.clear();
    std::fs::remove_dir_all(lab.remote()).unwrap();
    lab = lab.with_sshds();
    lab.assert_refused(
        &["name=a data=exp0", &format!("name=b data={name}"), "name=c data=exp0"],
        &[&lab.spaces.control(1), &name, "127.0.1.1", "loopback"],
    );
    // An address that the others have no way to.
    let (control, second) = (lab.spaces.control(1), lab.spaces.name("1"));
    lab.assert_refused(
        &["name=a data=exp0", "name=b data=ctl0", "name=c data=exp0"],
        &[&format!("agent a cannot reach agent b on host root@{control} at {control}:")],
    );
    // The other way round, too: the coordinator cannot be joined.
    run(&["ip", "-n", &second, "link", "set", "exp0", "down"]);
    lab.assert_refused(
        &["name=a data=exp0", "name=b data=ctl0", "name=c data=exp0"],
        &[&format!(
            "{control}: it cannot reach agent a on host root@{} at 10.10.1.1:",
            lab.spaces.control(0)
        )],
    );
    run(&["ip", "-n", &second, "link", "set", "exp0", "up"]);
    // Both reach the coordinator, but not each other.
    let switch = lab.spaces.name("s");
    for port in ["p1", "p2"] {
        run(&["ip", "-n", &switch, "link", "set", "dev", port, "type", "bridge_slave", "isolated", "on"]);
    }
    lab.assert_refused(
        &["name=a data=exp0", "name=b data=exp0", "name=c data=exp0"],
        &[
            "agent b cannot reach agent c on host",
            "agent c cannot reach agent b on host",
            "10.10.1.2:",
            "10.10.1.3:",
        ],
    );
    for port in ["p1", "p2"] {
        run(&["ip", "-n", &switch, "link", "set", "dev", port, "type", "bridge_slave", "isolated", "off"]);
    }
    // The same hosts with addresses that are said: it works.
    let hosts = lab.hosts(&["name=a data=exp0", "name=b data=exp0", "name=c data=exp0"]);
    assert_eq!(kit::word_count(&lab.world, &["--hosts", &hosts], &lab.ssh()), kit::expected());
    kit::assert_clean(&lab.remote());
}
