//! Shells that are not what one thinks, folders that cannot be used, binaries that are stale (P32).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kit::{self, Road};
use super::road;
use crate::real::world::{World, text};

/// sshd runs a script for every session, which then does what was asked.
fn forced(world: &World, script: &str) -> String {
    let path = PathBuf::from(world.file("forced", script));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("ForceCommand {}\n", path.display())
}

#[test]
fn road_p32_a_shell_that_greets_and_has_no_path_is_no_hindrance() {
    let greeting = "#!/bin/sh\necho 'Welcome to the lab!'\necho 'TUPLANE-AGENT'\nexport PATH=\nexec /bin/dash -c \"$SSH_ORIGINAL_COMMAND\"\n";
    let test = "road_p32_greeting";
    let Some(road) = Road::with(test, &["127.0.0.2", "127.0.0.3"], |world| forced(world, greeting)) else {
        return;
    };
    // The folder has a space, a quote and what csh takes for history.
    let odd = road.world.path("it's an odd! folder");
    kit::seed(&odd);
    let hosts = road.hosts_file(&["name=a", "name=b"]);
    let mut options = road.ssh();
    let place = options.iter().position(|option| option == "--remote-dir").unwrap();
    options[place + 1] = odd.display().to_string();
    assert_eq!(kit::word_count(&road.world, &["--hosts", &hosts], &options), kit::expected());
    kit::assert_clean(&odd);
    // What was printed is kept beside the logs.
    let output = road.up(&["--detach"], &hosts);
    assert!(output.status.success(), "{}", text(&output));
    let noise = std::fs::read_to_string(road.world.path("run/tuplane/t/logs/shell-noise.log")).unwrap();
    assert!(noise.contains("shell noise: Welcome to the lab!"), "{noise}");
    assert!(road.world.tuplane(&["down", "--yes"]).status.success());
    road.assert_clean();
}

#[test]
fn road_p32_a_shell_that_waits_for_input_is_given_up() {
    let silent = "#!/bin/sh\nexec sleep 60\n";
    let test = "road_p32_silent";
    let Some(road) = Road::with(test, &["127.0.0.2"], |world| forced(world, silent)) else { return };
    let output = road.up(&["--connect-timeout", "1s"], &road.hosts_file(&["name=a"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("neither the login nor its shell answered within 6 s"),
        "{}",
        text(&output)
    );
}

#[test]
fn road_p32_a_stale_binary_is_named_with_its_host() {
    let road = road!("road_p32_stale", &["127.0.0.2"]);
    // The right name and size, and another content: no copy would notice.
    let place = road.remote().join(kit::agent_name());
    let mut bytes = std::fs::read(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    // Behind the sections that are loaded, so that it runs.
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&place, bytes).unwrap();
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
    let output = road.up(&["--detach"], &road.hosts_file(&["name=a"]));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in ["127.0.0.2: ", "another build", "remove ", &kit::agent_name()] {
        assert!(said.contains(part), "{part} in {said}");
    }
    road.assert_clean();
}

#[test]
fn road_the_binary_is_copied_once_and_again_when_it_differs() {
    let road = road!("road_copy", &["127.0.0.2", "127.0.0.3"]);
    let fresh = road.world.path("fresh");
    let hosts = road.hosts_file(&["name=a", "name=b"]);
    let mut options = road.ssh();
    let place = options.iter().position(|option| option == "--remote-dir").unwrap();
    options[place + 1] = fresh.display().to_string();
    let check = || {
        let mut command = road.world.command(&["hosts", "check", &hosts, "-o", "json"]);
        let output = command.args(&options).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let hosts = document["hosts"].as_array().unwrap();
        hosts.iter().map(|host| host["copied"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert!(check().contains(&true));
    let copied = fresh.join(kit::agent_name());
    let mode = std::fs::metadata(&copied).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(std::fs::read(&copied).unwrap(), std::fs::read(kit::agent()).unwrap());
    assert_eq!(check(), [false, false]);
    // Cut short by somebody else, it is copied anew.
    std::fs::write(&copied, "short").unwrap();
    assert!(check().contains(&true));
    kit::assert_clean(&fresh);
}

/// A small file system of its own; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn road_a_full_disk_and_one_that_nothing_runs_from_are_named() {
    let test = "road_disks";
    let road = road!("road_disks", &["127.0.0.2"]);
    let (full, inert) = (road.world.path("full"), road.world.path("inert"));
    let (Some(_full), Some(_inert)) =
        (Mount::new(&full, "size=1m,mode=700"), Mount::new(&inert, "noexec,mode=700"))
    else {
        return crate::real::world::skip(test, "the right to mount");
    };
    let hosts = road.hosts_file(&["name=a"]);
    for (folder, words) in
        [(&full, ["the disk is full", "--remote-dir"]), (&inert, ["noexec", "--remote-dir"])]
    {
        let mut options = road.ssh();
        let place = options.iter().position(|option| option == "--remote-dir").unwrap();
        options[place + 1] = folder.display().to_string();
        let output =
            road.world.command(&["up", "--detach", "--hosts", &hosts]).args(&options).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
        kit::assert_clean(folder);
    }
    assert!(
        !std::fs::read_dir(&full).unwrap().flatten().any(|e| e.file_name() != "lost+found"),
        "no part stays"
    );
}

#[test]
fn road_a_disk_without_room_for_a_pid_file_leaves_nothing_that_looks_like_one() {
    let test = "road_pid_file";
    let road = road!("road_pid_file", &["127.0.0.2"]);
    let full = road.world.path("full");
    let Some(_mount) = Mount::new(&full, "size=64k,mode=700") else {
        crate::real::world::skip(test, "mount");
        return;
    };
    // Only the binary is elsewhere: all blocks are taken, and there is room for folders and names.
    std::os::unix::fs::symlink(kit::agent(), full.join(kit::agent_name())).unwrap();
    let _ = std::fs::write(full.join("agent-filler"), vec![0; 1 << 20]);
    let hosts = road.hosts_file(&["name=a"]);
    let mut options = road.ssh();
    let place = options.iter().position(|option| option == "--remote-dir").unwrap();
    options[place + 1] = full.display().to_string();
    let run = |args: &[&str]| road.world.command(args).args(&options).output().unwrap();
    let output = run(&["up", "--detach", "--hosts", &hosts]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in ["127.0.0.2: agent a: the disk is full", "cannot write the pid file", "--remote-dir"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("may be left"), "{said}");
    kit::assert_clean(&full);
    // What an older build has left there is named as what it is, and nothing is removed.
    let folder = full.join("run/t-1-1/a");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("pid"), "").unwrap();
    for more in [&["--dry-run"][..], &["--yes"]] {
        let output = run(&[&["clean", "--hosts", &hosts], more].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown = folder.display().to_string();
        assert!(said.contains(&shown) && said.contains("a pid file that names no process"), "{said}");
        assert!(!said.contains("another machine") && folder.exists(), "{said}");
    }
}
