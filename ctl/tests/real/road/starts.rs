//! Starts that something ends: ssh that is killed, agents that die or are stopped, `clean` at the same time.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::ends::{THREE, ssh_children, up};
use super::kit::{self, Road};
use super::road;
use crate::real::world::{World, alive, signal, text, wait};

/// A road on which agents whose names fit a pattern begin only when the file `go` is there. Until the test
/// has ended, that is: sshd runs what waits for that, and nobody else ends it.
fn held(test: &str, names: &str) -> Option<Road> {
    Road::with(test, &THREE, |world| {
        let script = format!(
            "#!/bin/sh\n\
             case $SSH_ORIGINAL_COMMAND in *'2>>log'*/{names}\\'*)\n\
             touch {0}/held; while [ ! -e {0}/go ]; do sleep 0.05; [ -e {0} ] || exit 1; done;;\n\
             esac\n\
             exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            world.path("").display()
        );
        let path = executable(world, "forced", &script);
        format!("ForceCommand {}\n", path.display())
    })
}

fn executable(world: &World, name: &str, script: &str) -> PathBuf {
    let path = PathBuf::from(world.file(name, script));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn start(road: &Road) -> Child {
    up(road).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The pid that an agent has recorded, once it has.
fn agent_pid(road: &Road, name: &str) -> u32 {
    let mut found = None;
    wait("the agent has recorded its pid", Duration::from_secs(30), || {
        let runs = std::fs::read_dir(road.remote().join("run")).into_iter().flatten().flatten();
        let files = runs.map(|run| run.path().join(name).join("pid"));
        let mut pids = files.filter_map(|file| std::fs::read_to_string(file).ok());
        found = pids.find_map(|text| text.split(' ').next()?.parse().ok());
        found.is_some()
    });
    found.unwrap()
}

/// An agent is held, which is asked for when the first one has answered.
fn wait_until_held(road: &Road) {
    wait("an agent is held", Duration::from_secs(30), || road.world.path("held").exists());
}

/// What the command said, which has failed.
fn failed(owner: Child) -> String {
    let output = owner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn road_clean_leaves_alone_what_is_just_being_started_here() {
    let Some(road) = held("road_clean_while_starting", "c") else { return };
    let mut owner = start(&road);
    wait_until_held(&road);
    let (a, b) = (agent_pid(&road, "a"), agent_pid(&road, "b"));
    let hosts = road.hosts_file(&["name=a", "name=b", "name=c"]);
    let clean = |more: &[&str]| {
        let output = road.command(&[&["clean", "--hosts", &hosts], more].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let why = format!("left alone: pid {} of this machine starts or holds that cluster", owner.id());
    // Nothing would be ended, so nobody is asked.
    for more in [&["--dry-run"][..], &[], &["--yes"], &["--binaries", "--yes"]] {
        let said = clean(more);
        assert!(said.contains(&why), "{more:?}: {said}");
    }
    // With another runtime folder nothing is known of the cluster, and its launcher is seen all the same.
    let mut command = road.command(&["clean", "--hosts", &hosts, "--yes"]);
    let output = command.env("XDG_RUNTIME_DIR", road.world.path("")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(&why), "{}", text(&output));
    assert!(alive(a) && alive(b) && road.remote().join(kit::agent_name()).exists());
    // The start goes on as if nothing had been.
    std::fs::write(road.world.path("go"), "").unwrap();
    wait("the cluster runs", Duration::from_secs(30), || road.world.tuplane(&["agents"]).status.success());
    signal(owner.id(), "INT");
    wait("it ends", Duration::from_secs(20), || owner.try_wait().unwrap().is_some());
    road.assert_clean();
}

/// Ends every ssh of a start that has not come to its end; `before` is done first. What was said.
fn kill_ssh(road: &mut Road, before: impl FnOnce(&mut Road)) -> String {
    let _ = std::fs::remove_file(road.world.path("held"));
    let owner = start(road);
    wait_until_held(road);
    agent_pid(road, "b");
    before(road);
    for pid in ssh_children(owner.id()) {
        // A session ends with its connection.
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
    }
    let said = failed(owner);
    for part in ["127.0.0.", "the connection to it broke off", "SIGKILL"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    for part in ["kex_exchange_identification", "ProxyCommand"] {
        assert!(!said.contains(part), "{part} in {said}");
    }
    said
}

#[test]
fn road_ssh_that_is_killed_during_a_start_is_named_and_nothing_stays() {
    let Some(mut road) = held("road_ssh_killed", "c") else { return };
    // Over new connections what was started is ended.
    let said = kill_ssh(&mut road, |_| {});
    assert!(!said.contains("may be left"), "{said}");
    road.assert_clean();
    // Where there is no new connection what is left is said, and the command that is named removes it.
    let said = kill_ssh(&mut road, Road::end_sshd);
    for part in ["may be left there", "Connection refused", "`tuplane clean --hosts FILE`"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    road.start_sshd();
    let hosts = road.hosts_file(&["", "", ""]);
    let output = road.command(&["clean", "--hosts", &hosts, "--yes"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    road.assert_clean();
}

#[test]
fn road_a_first_agent_that_dies_or_is_stopped_is_named_with_its_last_words() {
    for (action, words) in [
        ("KILL", &["127.0.0.2: agent a: a signal ended it there", "while the cluster was started"][..]),
        ("STOP", &["127.0.0.2: agent a: no answer within 4 s", "its process is stopped (state T)"]),
    ] {
        let Some(road) = held("road_first_agent", "[bc]") else { return };
        let owner = start(&road);
        wait_until_held(&road);
        signal(agent_pid(&road, "a"), action);
        if action == "STOP" {
            // The others begin, and cannot join.
            std::fs::write(road.world.path("go"), "").unwrap();
        }
        let said = failed(owner);
        for part in words.iter().chain(&["; it said: "]) {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(!said.contains("agent b") && !said.contains("agent c"), "only the first is to blame: {said}");
        road.assert_clean();
    }
}

/// An agent's binary that records its pid as an agent does, says something in its log, and then does this.
fn instead_of_an_agent(world: &World, what: &str) -> String {
    let script = format!(
        "#!/bin/sh\necho 'last words' >> log\n\
         echo $$ $(cut -d' ' -f22 /proc/$$/stat) $(uname -n) $(cat /proc/sys/kernel/random/boot_id) > pid\n\
         {what}\n"
    );
    executable(world, "instead", &script).display().to_string()
}

#[test]
fn road_an_agent_that_ends_or_is_stopped_before_it_answers_is_named() {
    let road = road!("road_before_it_answers", &["127.0.0.2"]);
    for (what, words) in [
        ("kill -KILL $$", &["agent a: a signal ended it there", "before it was ready"][..]),
        ("exit 3", &["agent a: it ended with exit code 3 before it was ready"]),
        ("kill -STOP $$", &["agent a: it was not ready within 4 s", "its process is stopped (state T)"]),
    ] {
        let agent = instead_of_an_agent(&road.world, what);
        let output = road.up(&["--detach", "--agent", &agent], &road.hosts_file(&["name=a"]));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in words.iter().chain(&["127.0.0.2: ", "; it said: last words"]) {
            assert!(said.contains(part), "{part} in {said}");
        }
        road.assert_clean();
    }
}

#[test]
fn road_agents_on_this_machine_that_end_or_are_stopped_while_they_start_are_named() {
    let world = World::new();
    for (what, part) in [
        ("exit 3", "it ended (exit status: 3) before it was ready"),
        ("kill -STOP $$", "its process is stopped (state T)"),
    ] {
        let agent = executable(&world, "instead", &format!("#!/bin/sh\necho 'last words' >&2\n{what}\n"));
        let args = ["up", "--local", "2", "--cluster", "t", "--agent", agent.to_str().unwrap()];
        let output = world.tuplane(&args);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        for part in ["agent a ", part, "; it said: last words"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(!world.path("run/tuplane/t").exists());
    }
}

#[test]
fn road_a_first_agent_of_this_machine_that_ends_or_is_stopped_is_named_for_the_others() {
    let world = World::new();
    let agent = kit::agent().display().to_string();
    for (first, others, part) in [
        // It ends by itself after a while, and the others never answer.
        (
            format!("{{ printf '%s\\n' \"$line\"; sleep 2; }} | {agent}; exit 3"),
            "exec sleep 60".to_owned(),
            "it ended (",
        ),
        // It is stopped, and the others cannot join.
        (
            format!("{{ printf '%s\\n' \"$line\"; sleep 30; }} | {agent} & sleep 1.5; kill -STOP $!; wait"),
            format!("sleep 3; {{ printf '%s\\n' \"$line\"; cat; }} | {agent}"),
            "its process is stopped (state T)",
        ),
    ] {
        let script = format!(
            "#!/bin/sh\nread -r line\ncase $line in *'\"name\":\"a\"'*) {first};; *) {others};; esac\n"
        );
        let instead = executable(&world, "instead", &script);
        let args = ["up", "--local", "3", "--cluster", "t", "--agent", instead.to_str().unwrap()];
        let output = world.tuplane(&args);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("agent a ") && said.contains(part), "{said}");
        assert!(!world.path("run/tuplane/t").exists());
    }
}
