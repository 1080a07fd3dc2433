//! What runs under `/bin/sh` on a host. One line each: csh takes no line end inside quotes.
//!
//! Nothing here depends on the PATH or the start-up files of the login shell.

/// What is said of a folder or file that others could have put something into.
pub(super) const NOT_ALONE: &str = "belongs to another user, or others may write to it";

/// `o PATH`: it is this user's and only this user may write to it, or it is not there. `s PATH`: says so and ends
/// the script if it is not. Whoever can write to the folder could put another program in the agent's place,
/// which would run as this user and get the cluster's key.
const SAFE: &str = r#"o() { [ -e "$1" ] || return 0; g=$(ls -ldnL -- "$1") || return 1; set -- $g; [ "$3" = "$(id -u)" ] || return 1; case $1 in ?????w*|????????w*) return 1;; esac; }; s() { o "$1" || { printf "%s belongs to another user, or others may write to it\n" "$1" >&2; exit 1; }; }; "#;

/// Every line of an answer begins so; other lines are what start-up files print.
pub(super) const MARK: &str = "TUPLANE-HOST ";

/// A PATH of our own, and files that are nobody else's.
const BEGIN: &str = r#"PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/run/current-system/sw/bin${PATH:+:$PATH}"; export PATH; umask 077; "#;

/// `a PID START`: that process runs. `w PID START TENTHS`: waits until it does not. `p FOLDER`: reads the
/// pid file there into `q` and `t`, and sets `how` to gone, runs, elsewhere or, where the file is no whole
/// line, unreadable. `e FOLDER TENTHS`: ends the agent whose pid file lies there, sets `how`, and removes the
/// folder.
const END: &str = r#"a() { [ -r "/proc/$1/stat" ] || return 1; IFS= read -r l <"/proc/$1/stat" || return 1; l="${l##*) }"; s=$2; set -- $l; [ "$1" != Z ] && [ "${20}" = "$s" ]; }; w() { n=$3; while a "$1" "$2"; do [ "$n" -gt 0 ] || return 1; n=$((n-1)); sleep 0.1; done; }; p() { how=gone; q=0; [ -e "$1/pid" ] || return 0; m=; read -r q t m b <"$1/pid" || m=; case $q$t in *[!0-9]*) m=;; esac; read -r k </proc/sys/kernel/random/boot_id || k=$b; if [ -z "$m" ]; then how=unreadable; q=0; elif [ "$m" != "$(uname -n)" ]; then how=elsewhere; elif [ "$b" = "$k" ] && a "$q" "$t"; then how=runs; fi; }; e() { p "$1"; if [ "$how" = runs ]; then how=itself; w "$q" "$t" "$2" || { kill -TERM "$q"; how=term; w "$q" "$t" 30 || { kill -KILL "$q"; how=kill; w "$q" "$t" 20 || how=stays; }; }; fi; case $how in elsewhere|stays|unreadable) ;; *) rm -rf -- "$1" || how=left;; esac; }; "#;

/// Arguments: folder for everything, file name of the binary. Says what the host is, and waits for the
/// end of its input: the connection lives as long as this does.
pub(super) fn probe() -> String {
    let say = r#"y() { printf "TUPLANE-HOST %s %s\n" "$1" "$2"; }; "#;
    format!(
        r#"{BEGIN}{SAFE}{say}h="${{HOME:-/tmp}}"; case $1 in /*) d=$1;; *) d="$h/$1";; esac; printf "\n"; y machine "$(uname -m)"; y kernel "$(uname -r)"; y processors "$(getconf _NPROCESSORS_ONLN || nproc)"; while read -r k v u; do [ "$k" = MemTotal: ] && y memory "$v"; done </proc/meminfo; y ssh "$SSH_CONNECTION"; z=; [ -f "$d/$2" ] && [ -x "$d/$2" ] && z=$(wc -c <"$d/$2"); y binary "$z"; for f in "$d" "$d/$2"; do o "$f" || y alone "$f"; done; y folder "$d"; y end .; exec cat >/dev/null"#
    )
}

/// Arguments: folder, file name, a name for the meantime, size. Takes the binary from its input, unless
/// it is there by now.
pub(super) fn copy() -> String {
    format!(
        r#"{BEGIN}{SAFE}s "$1"; if [ -x "$1/$2" ] && [ "$(wc -c <"$1/$2")" -eq "$4" ]; then exit 0; fi; mkdir -p -- "$1" || exit 1; if cat >"$1/$3" && [ "$(wc -c <"$1/$3")" -eq "$4" ] && chmod 700 "$1/$3" && mv -f -- "$1/$3" "$1/$2"; then exit 0; fi; rm -f -- "$1/$3"; exit 1"#
    )
}

/// Arguments: the agent's folder, the binary. Becomes the agent.
pub(super) fn start() -> String {
    format!(
        r#"{BEGIN}{SAFE}s "${{2%/*}}"; s "$2"; mkdir -p -- "$1" && cd "$1" && mkdir -p state files || exit 1; [ -x "$2" ] || {{ printf "%s cannot be executed: permission denied, or its file system is mounted noexec\n" "$2" >&2; exit 126; }}; exec "$2" 2>>log"#
    )
}

/// Arguments: the binary. Becomes an agent that answers a probe.
pub(super) fn probe_agent() -> String {
    format!(
        r#"{BEGIN}{SAFE}s "${{1%/*}}"; s "$1"; [ -x "$1" ] || {{ printf "%s cannot be executed: permission denied, or its file system is mounted noexec\n" "$1" >&2; exit 126; }}; exec "$1""#
    )
}

/// Arguments: the agent's folder. The state of its process, as its stat file has it, and the end of its log.
pub(super) fn fate() -> String {
    format!(
        r#"{BEGIN}{END}p "$1"; if [ "$how" = runs ]; then IFS= read -r l <"/proc/$q/stat"; l="${{l##*) }}"; printf "TUPLANE-HOST state %s\n" "${{l%% *}}"; else printf "TUPLANE-HOST state %s\n" "$how"; fi; tail -n 5 -- "$1/log""#
    )
}

/// Arguments: tenths of a second to wait before signals, then agents' folders.
pub(super) fn end() -> String {
    format!(
        r#"{BEGIN}{END}g=$1; shift; for f do e "$f" "$g"; printf "TUPLANE-HOST %s %s %s\n" "$how" "$q" "$f"; rmdir -- "${{f%/*}}" "${{f%/*/*}}" 2>/dev/null || true; done"#
    )
}

/// Arguments: folder for everything, `end` or `look`, `binaries` or `-`, then the runs that may be ended.
/// `look` only says what there is of all runs; `end` ends what is recorded of these, and leaves others alone.
/// With `binaries` the copies of agents go too, unless agents are left that may run them. A copy's name is
/// `agent-` and 32 digits.
pub(super) fn clean() -> String {
    format!(
        r#"{BEGIN}{END}case $1 in /*) d=$1;; *) d="${{HOME:-/tmp}}/$1";; esac; c=$2; z=$3; shift 3; v=; for f in "$d"/run/*/*; do [ -d "$f" ] || continue; r="${{f%/*}}"; r="${{r##*/}}"; how=skipped; q=0; if [ "$c" = look ]; then p "$f"; case $how in elsewhere|unreadable) v=1;; esac; else for x do [ "$x" = "$r" ] && how=; done; if [ -n "$how" ]; then v=1; else e "$f" 0; [ -d "$f" ] && v=1; fi; fi; printf "TUPLANE-HOST %s %s %s\n" "$how" "$q" "$f"; [ "$c" = look ] || rmdir -- "${{f%/*}}" "$d/run" 2>/dev/null || true; done; [ "$z" = binaries ] || exit 0; for f in "$d"/agent-*; do h="${{f##*/agent-}}"; [ -f "$f" ] && [ ! -L "$f" ] && [ "${{#h}}" -eq 32 ] || continue; case $h in *[!0-9a-f]*) continue;; esac; if [ -n "$v" ]; then how=kept; elif [ "$c" = look ]; then how=copy; elif rm -f -- "$f"; then how=removed; else how=left; fi; printf "TUPLANE-HOST %s 0 %s\n" "$how" "$f"; done"#
    )
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::launch::ProcessId;
    use crate::launch::ssh::quote::command;

    fn run(script: &str, arguments: &[&str]) -> Output {
        let line = command(script, arguments);
        Command::new("/bin/sh").args(["-c", &line]).env_clear().stdin(Stdio::null()).output().unwrap()
    }

    fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn every_script_is_one_line_that_every_shell_takes() {
        for script in [probe(), copy(), start(), probe_agent(), fate(), end(), clean()] {
            assert!(!script.contains('\n') && !script.contains('\''), "{script}");
            // fish reads these inside single quotes.
            assert!(!script.contains(r"\\") && !script.contains(r"\'"), "{script}");
        }
    }

    #[test]
    fn a_probe_says_what_the_host_is_without_a_path() {
        let output = run(&probe(), &["some where", "agent-x"]);
        let text = text(&output);
        for key in ["machine", "kernel", "processors", "memory", "folder /tmp/some where", "end ."] {
            assert!(text.contains(&format!("{MARK}{key}")), "{key} in {text}");
        }
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A folder with the pid file of a process, and the process.
    fn agent(root: &std::path::Path, script: &str, shift: u64) -> (std::path::PathBuf, std::process::Child) {
        let child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let id = ProcessId::of(child.id()).unwrap();
        let folder = root.join("run").join("t 1").join(format!("it's {}", id.pid));
        std::fs::create_dir_all(&folder).unwrap();
        let node = Command::new("uname").arg("-n").output().unwrap().stdout;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let node = String::from_utf8(node).unwrap();
        let line = tuplane_wire::launch::pid_line(id.pid, id.started + shift, node.trim(), boot.trim());
        std::fs::write(folder.join("pid"), line).unwrap();
        (folder, child)
    }

    #[test]
    fn the_recorded_process_is_ended_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let (polite, mut first) = agent(root.path(), "exec sleep 30", 0);
        let (reused, mut second) = agent(root.path(), "exec sleep 30", 1);
        let (short, mut third) = agent(root.path(), "exec sleep 0.5", 0);
        let folders = [&polite, &reused, &short].map(|p| p.to_str().unwrap().to_owned());
        // One that ended is its parent's to bury; the script must not wait for that.
        let buried = std::thread::spawn(move || (first.wait().unwrap(), third.wait().unwrap()));
        let output = run(&end(), &["10", &folders[2], &folders[0], &folders[1]]);
        let said = text(&output);
        assert!(said.contains(&format!("{MARK}term ")), "{said} {output:?}");
        assert!(said.contains(&format!("{MARK}gone ")) && said.contains(&format!("{MARK}itself ")), "{said}");
        buried.join().unwrap();
        assert!(ProcessId::of(second.id()).unwrap().is_alive(), "its start time is another one");
        second.kill().unwrap();
        second.wait().unwrap();
        assert!(!root.path().join("run").exists(), "folders are gone with those above them");
    }

    #[test]
    fn clean_finds_what_is_recorded_and_leaves_what_it_is_told_to() {
        let root = tempfile::tempdir().unwrap();
        let (folder, mut child) = agent(root.path(), "exec sleep 30", 0);
        let clean =
            |more: &[&str]| text(&run(&super::clean(), &[&[root.path().to_str().unwrap()], more].concat()));
        for other in [&["end", "-"][..], &["end", "-", "t", "1"]] {
            let said = clean(other);
            assert!(said.contains(&format!("{MARK}skipped 0 ")), "{said}");
        }
        let said = clean(&["look", "-"]);
        assert!(said.contains(&format!("{MARK}runs {} ", child.id())), "{said}");
        assert!(folder.exists() && child.try_wait().unwrap().is_none(), "looking changes nothing");
        let buried = std::thread::spawn(move || child.wait().unwrap());
        let said = clean(&["end", "-", "t", "t 1"]);
        assert!(said.contains(&format!("{MARK}term ")), "{said}");
        buried.join().unwrap();
        assert!(!folder.exists());
        assert_eq!(clean(&["look", "binaries"]), "", "nothing is left");
    }

    #[test]
    fn a_pid_file_that_is_no_whole_line_is_another_machines_to_nobody_and_nothing_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let (folder, mut child) = agent(root.path(), "exec sleep 30", 0);
        let whole = std::fs::read_to_string(folder.join("pid")).unwrap();
        let (dir, shown) = (root.path().to_str().unwrap(), folder.display().to_string());
        let cut = [whole.trim_end(), &whole[..whole.find(' ').unwrap()], "", "\n", "a b c d\n", "1 x h b\n"];
        for text in cut {
            std::fs::write(folder.join("pid"), text).unwrap();
            let answer = format!("{MARK}unreadable 0 {shown}\n");
            for how in ["look", "end"] {
                assert_eq!(self::text(&run(&clean(), &[dir, how, "-", "t 1"])), answer, "{text:?}");
            }
            assert_eq!(self::text(&run(&end(), &["0", &shown])), answer, "{text:?}");
        }
        assert!(folder.exists() && child.try_wait().unwrap().is_none());
        // One that is whole may be another machine's.
        let words: Vec<&str> = whole.split(' ').collect();
        let other = [words[0], words[1], "other-machine", words[3]].join(" ");
        std::fs::write(folder.join("pid"), other).unwrap();
        assert!(self::text(&run(&clean(), &[dir, "look", "-"])).contains("elsewhere"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_fate_of_an_agent_is_its_state_and_the_end_of_its_log() {
        let root = tempfile::tempdir().unwrap();
        let (folder, mut child) = agent(root.path(), "exec sleep 30", 0);
        std::fs::write(folder.join("log"), "first\nlast\n").unwrap();
        let fate = || text(&run(&fate(), &[folder.to_str().unwrap()]));
        assert_eq!(fate(), format!("{MARK}state S\nfirst\nlast\n"));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let stopped = format!("{MARK}state T\nfirst\nlast\n");
        // The signal is on its way for a moment.
        for _ in 0..100 {
            if fate() == stopped {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(fate(), stopped);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fate(), format!("{MARK}state gone\nfirst\nlast\n"));
    }

    #[test]
    fn clean_removes_copies_of_agents_and_nothing_else_unless_agents_are_left() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a dir");
        let run_folder = dir.join("run").join("t").join("a");
        std::fs::create_dir_all(&run_folder).unwrap();
        let hash = "0123456789abcdef0123456789abcdef";
        let copy = dir.join(format!("agent-{hash}"));
        let others = ["agent-", "agent-mine", "agent", "notes"].map(|name| dir.join(name));
        let long = [format!("agent-{hash}0"), format!("agent-{}", hash.replace('a', "g"))];
        let others: Vec<_> = others.into_iter().chain(long.map(|name| dir.join(name))).collect();
        for file in others.iter().chain([&copy]) {
            std::fs::write(file, "x").unwrap();
        }
        let linked = dir.join(format!("agent-{}", hash.replace('0', "1")));
        std::os::unix::fs::symlink(&others[3], &linked).unwrap();
        let clean = |more: &[&str]| text(&run(&super::clean(), &[&[dir.to_str().unwrap()], more].concat()));
        let shown = copy.display();
        let answer = |how: &str| format!("{MARK}{how} 0 {shown}\n");
        // Another cluster's folder: its agents may run the copy.
        assert!(clean(&["end", "binaries"]).ends_with(&answer("kept")));
        assert!(clean(&["look", "binaries"]).ends_with(&answer("copy")));
        assert!(copy.exists() && run_folder.exists(), "looking changes nothing");
        assert!(!clean(&["end", "-", "t"]).contains("agent-"), "not unless it is asked for");
        assert_eq!(clean(&["end", "binaries"]), answer("removed"));
        assert!(!copy.exists());
        assert!(others.iter().chain([&linked]).all(|file| file.exists()), "{others:?}");
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_said_and_nothing_there_runs() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let (dir, run_folder) = (root.path().join("a dir"), root.path().join("run"));
        std::fs::create_dir(&dir).unwrap();
        let (agent, proof) = (dir.join("agent"), root.path().join("proof"));
        std::fs::write(&agent, format!("#!/bin/sh\ntouch {}\n", proof.display())).unwrap();
        let (shown, program) = (dir.to_str().unwrap(), agent.to_str().unwrap());
        let mode = |path: &std::path::Path, mode: u32| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let all = || {
            let folder = run_folder.to_str().unwrap();
            [
                run(&start(), &[folder, program]),
                run(&probe_agent(), &[program]),
                run(&copy(), &[shown, "agent", ".new", "1"]),
            ]
        };
        let said = || text(&run(&probe(), &[shown, "agent"]));
        for (folder, file, bad) in [(0o777, 0o700, &dir), (0o770, 0o700, &dir), (0o700, 0o722, &agent)] {
            mode(&dir, folder);
            mode(&agent, file);
            assert!(said().contains(&format!("{MARK}alone {}\n", bad.display())), "{}", said());
            for output in all().iter().take(if bad == &dir { 3 } else { 2 }) {
                let words = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(words.contains(NOT_ALONE) && words.contains(bad.to_str().unwrap()), "{words}");
                assert_eq!(output.status.code(), Some(1), "{words}");
            }
            assert!(!proof.exists() && !run_folder.exists());
        }
        mode(&dir, 0o755);
        mode(&agent, 0o755);
        assert!(!said().contains("alone"), "{}", said());
        assert!(all()[0].status.success() && proof.exists());
    }

    #[test]
    fn a_copy_that_was_cut_short_leaves_nothing() {
        use std::io::Write;
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("a dir");
        let copied = |size: &str| {
            let line = command(&copy(), &[dir.to_str().unwrap(), "agent", ".new", size]);
            let mut child =
                Command::new("/bin/sh").args(["-c", &line]).stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"12345").unwrap();
            child.wait().unwrap().success()
        };
        assert!(!copied("6"));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        assert!(copied("5"));
        assert_eq!(std::fs::read(dir.join("agent")).unwrap(), b"12345");
    }
}
