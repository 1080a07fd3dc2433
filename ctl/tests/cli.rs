//! Usage, exit codes, and what stands on which stream.

use std::io::Read;
use std::process::{Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;

/// `tuplane` with a runtime folder of its own.
pub(crate) fn tuplane(runtime: &tempfile::TempDir) -> Command {
    let mut command = Command::new(cargo_bin("tuplane"));
    command
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env_remove("TUPLANE_CLUSTER")
        .env_remove("TUPLANE_KEY_FILE")
        .stdin(Stdio::null());
    command
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn runtime() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A cluster that looks alive: its one "agent" is this test's own process.
fn pretend(runtime: &tempfile::TempDir, name: &str, coordinator: &str) {
    use std::os::unix::fs::DirBuilderExt;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", std::process::id())).unwrap();
    let started: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let folder = runtime.path().join("tuplane").join(name);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    let process = serde_json::json!({"pid": std::process::id(), "started": started});
    let file = serde_json::json!({
        "schema": "tuplane/cluster/1",
        "name": name,
        "coordinator": coordinator,
        "key": null,
        "agents": [{"name": "a", "address": coordinator, "pid": process["pid"], "started": process["started"]}],
        "launcher": process,
        "detached": true,
    });
    std::fs::write(folder.join("cluster.json"), file.to_string()).unwrap();
}

#[test]
fn help_is_on_stdout_and_lists_what_there_is() {
    let help = ran(tuplane(&runtime()).arg("--help"));
    assert_eq!(help.code, Some(0));
    assert!(help.err.is_empty());
    for command in [
        "up", "down", "agents", "check", "plan", "run", "submit", "jobs", "status", "cancel", "set", "route",
        "routes", "fetch", "tui", "version", "clean", "hosts",
    ] {
        assert!(
            help.out.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}"
        );
        let own = ran(tuplane(&runtime()).args([command, "--help"]));
        assert_eq!(own.code, Some(0), "{command}: {}", own.err);
    }
    assert!(help.out.contains("Exit codes"));
}

#[test]
fn without_a_command_it_says_the_commands_and_exits_2() {
    let bare = ran(&mut tuplane(&runtime()));
    assert_eq!((bare.code, bare.out.as_str()), (Some(2), ""));
    assert!(bare.err.contains("Usage:"));
}

#[test]
fn off_a_terminal_the_ui_is_refused_in_a_sentence() {
    let refused = ran(tuplane(&runtime()).arg("tui"));
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    assert!(refused.err.contains("needs a terminal"), "{}", refused.err);
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
}

#[test]
fn wrong_usage_is_exit_2() {
    for args in [
        &["no-such-command"][..],
        &["check"],
        &["up", "--local", "0"],
        &["up"],
        &["run", "x.toml", "--set", "path=x"],
        &["agents", "--timeout", "5 days"],
        &["agents", "-o", "dot"],
        &["agents", "-q", "-v"],
    ] {
        let bad = ran(tuplane(&runtime()).args(args));
        assert_eq!((bad.code, bad.out.as_str()), (Some(2), ""), "{args:?}: {}", bad.err);
        assert!(!bad.err.is_empty(), "{args:?}");
    }
}

#[test]
fn faults_of_a_list_of_hosts_name_their_entry() {
    let bad = ran(tuplane(&runtime()).args(["hosts", "check", "h1,h2 slot=4"]));
    assert_eq!((bad.code, bad.out.as_str()), (Some(2), ""));
    assert!(bad.err.contains("entry 2 of --hosts: unknown key `slot`"), "{}", bad.err);
    for args in [&["hosts", "check", ""][..], &["clean", "--hosts", ""], &["clean", "--hosts", ","]] {
        let bad = ran(tuplane(&runtime()).args(args));
        assert_eq!(bad.code, Some(2), "{args:?}: {}", bad.err);
        assert!(bad.err.contains("no host is named"), "{args:?}: {}", bad.err);
    }
}

#[test]
fn help_is_a_command_too() {
    let whole = ran(tuplane(&runtime()).arg("help"));
    assert_eq!((whole.code, whole.err.as_str()), (Some(0), ""));
    assert!(whole.out.contains("Exit codes"), "{}", whole.out);
    let own = ran(tuplane(&runtime()).args(["help", "submit"]));
    assert!(own.code == Some(0) && own.out.contains("--wait"), "{}{}", own.out, own.err);
}

#[test]
fn a_wrong_command_line_is_a_document_where_one_was_asked_for() {
    let bad = ran(tuplane(&runtime()).args(["check", "--no-such-option", "-o", "json"]));
    assert_eq!(bad.code, Some(2));
    let document: Value = serde_json::from_str(&bad.out).unwrap();
    assert_eq!((&document["schema"], &document["kind"]), (&"tuplane/error/1".into(), &"refused".into()));
    assert!(document["message"].as_str().unwrap().contains("--no-such-option"), "{document}");
    assert!(bad.err.contains("--no-such-option"), "{}", bad.err);
}

#[test]
fn a_run_takes_no_address_for_its_name() {
    let job = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/jobs/wordcount.toml");
    let bad = ran(tuplane(&runtime()).arg("run").arg(job).args(["--cluster", "127.0.0.1:1"]));
    assert_eq!(bad.code, Some(2), "{}", bad.err);
    assert!(bad.err.contains("is an address"), "{}", bad.err);
}

#[test]
fn without_a_cluster_commands_name_the_one_that_makes_one() {
    for args in [
        &["agents"][..],
        &["jobs"],
        &["status"],
        &["status", "-w"],
        &["down", "--yes"],
        &["cancel", "x", "--yes"],
        &["set", "x", "work.ms=1"],
        &["route", "x", "a..b", "shuffle"],
        &["fetch", "x", "dir"],
    ] {
        let none = ran(tuplane(&runtime()).args(args));
        assert_eq!((none.code, none.out.as_str()), (Some(3), ""), "{args:?}: {}", none.err);
        assert_eq!(none.err.lines().count(), 1, "an error is one sentence: {}", none.err);
        let advice = if args[0] == "down" { "nothing to end" } else { "tuplane up --local" };
        assert!(none.err.contains(advice), "{}", none.err);
        let json = ran(tuplane(&runtime()).args(args).args(["-o", "json"]));
        let document: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!((&document["schema"], &document["exit"]), (&"tuplane/error/1".into(), &3.into()));
        assert_eq!(document["kind"], "unreachable");
    }
}

#[test]
fn of_several_clusters_one_must_be_named() {
    let runtime = runtime();
    pretend(&runtime, "one", "127.0.0.1:1");
    pretend(&runtime, "two", "127.0.0.1:1");
    let several = ran(tuplane(&runtime).arg("agents"));
    assert_eq!(several.code, Some(2), "{}", several.err);
    assert!(several.err.contains("one, two"), "{}", several.err);
    let unknown = ran(tuplane(&runtime).args(["agents", "--cluster", "three"]));
    assert_eq!(unknown.code, Some(3));
    assert!(unknown.err.contains("one, two"), "{}", unknown.err);
    // Named, by option or environment: nobody listens on port 1.
    let by_option = ran(tuplane(&runtime).args(["agents", "--cluster", "two", "--timeout", "1s"]));
    assert_eq!(by_option.code, Some(3), "{}", by_option.err);
    assert!(by_option.err.contains("cluster two is not reachable"), "{}", by_option.err);
    let by_environment =
        ran(tuplane(&runtime).args(["agents", "--timeout", "1s"]).env("TUPLANE_CLUSTER", "one"));
    assert!(by_environment.err.contains("cluster one is not reachable"), "{}", by_environment.err);
}

#[test]
fn a_silent_coordinator_is_given_up_after_the_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = runtime();
    pretend(&runtime, "mute", &listener.local_addr().unwrap().to_string());
    let began = std::time::Instant::now();
    let given_up = ran(tuplane(&runtime).args(["agents", "--timeout", "300ms"]));
    assert_eq!(given_up.code, Some(3), "{}", given_up.err);
    assert!(began.elapsed().as_secs() < 5, "took {:?}", began.elapsed());
}

#[test]
fn what_destroys_needs_yes_where_nobody_can_be_asked() {
    let runtime = runtime();
    pretend(&runtime, "one", "127.0.0.1:1");
    let refused = ran(tuplane(&runtime).args(["down", "-o", "json"]));
    assert_eq!(refused.code, Some(7), "{}", refused.err);
    assert!(refused.err.contains("--yes"), "{}", refused.err);
    let document: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(document["kind"], "needs_yes");
}

#[test]
fn who_wants_to_end_a_cluster_is_not_told_to_start_one() {
    let runtime = runtime();
    for more in [&[][..], &["--cluster", "none"]] {
        let got = ran(tuplane(&runtime).arg("down").args(more));
        assert_eq!(got.code, Some(3), "{}", got.err);
        assert!(got.err.contains("nothing to end") && !got.err.contains("tuplane up"), "{}", got.err);
        let got = ran(tuplane(&runtime).arg("jobs").args(more));
        assert!(got.err.contains("`tuplane up --local 3"), "{}", got.err);
    }
    // Nobody listens on a port that has just been let go.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    pretend(&runtime, "dead", &gone);
    let got = ran(tuplane(&runtime).arg("jobs"));
    assert_eq!(got.code, Some(3), "{}", got.err);
    assert!(
        got.err.contains("`tuplane down --cluster dead` ends what is left and forgets it"),
        "{}",
        got.err
    );
}

#[test]
fn options_that_cannot_be_are_refused_in_words_of_ours() {
    for (args, words) in [
        (&["up", "--local", "three"][..], "write a whole number from 1 to 256"),
        (&["run", "--agents", "three", "x.toml"], "write a whole number from 1 to 256"),
        (&["up", "--hosts", "h1,", "--fan-out", "0"], "write a whole number from 1 to 1024"),
        (
            &["up", "--hosts", "h1,", "--ssh-config", "/nowhere/config"],
            "--ssh-config /nowhere/config cannot be read",
        ),
        (&["hosts", "check", "h2"], "a host alone is written with a comma: `h2,`"),
    ] {
        let got = ran(tuplane(&runtime()).args(args));
        assert_eq!(got.code, Some(2), "{args:?}: {}", got.err);
        assert!(got.err.contains(words) && !got.err.contains("invalid digit"), "{}", got.err);
    }
}

#[test]
fn an_address_needs_a_key() {
    let refused = ran(tuplane(&runtime()).args(["agents", "--cluster", "127.0.0.1:1"]));
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("--key"), "{}", refused.err);
}

#[test]
fn a_runtime_folder_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let runtime = runtime();
    pretend(&runtime, "one", "127.0.0.1:1");
    std::fs::set_permissions(runtime.path().join("tuplane"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = ran(tuplane(&runtime).arg("agents"));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("chmod 700"), "{}", refused.err);
}

#[test]
fn what_is_left_of_a_dead_cluster_is_removed_with_a_notice() {
    let runtime = runtime();
    pretend(&runtime, "dead", "127.0.0.1:1");
    let file = runtime.path().join("tuplane/dead/cluster.json");
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    document["agents"][0]["started"] = 1.into();
    std::fs::write(&file, document.to_string()).unwrap();
    let none = ran(tuplane(&runtime).arg("agents"));
    assert_eq!(none.code, Some(3));
    assert!(none.err.contains("cluster dead"), "{}", none.err);
    assert!(!file.exists());
    let quiet = ran(tuplane(&runtime).arg("agents"));
    assert_eq!(quiet.err.lines().count(), 1, "said once: {}", quiet.err);
}

#[test]
fn what_names_no_cluster_is_refused_before_anything_is_suggested() {
    let runtime = runtime();
    for name in ["", "../c1", "a b", "127.0.0.1:99999", ":1", "127.0.0.1:"] {
        let got = ran(tuplane(&runtime).args(["status", "--cluster", name]));
        assert_eq!(got.code, Some(2), "{name}: {}", got.err);
        assert!(!got.err.contains("starts one") && got.err.contains(&format!("`{name}`")), "{}", got.err);
    }
}

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = tuplane(&runtime()).args(args).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("cannot write the output"), "{said}");
    }
}

#[test]
fn usage_repeats_no_control_characters() {
    let got = ran(tuplane(&runtime()).args(["agents", "--x\u{1b}[2J\u{202e}"]));
    assert_eq!(got.code, Some(2));
    assert!(!got.err.contains(['\u{1b}', '\u{202e}']) && got.err.contains("\\u{202e}"), "{}", got.err);
}

#[test]
fn a_device_without_an_end_is_no_job_file() {
    let got = ran(tuplane(&runtime()).args(["check", "/dev/zero"]));
    assert_eq!(got.code, Some(2));
    assert!(got.err.contains("/dev/zero is longer than 16 MiB"), "{}", got.err);
}

#[test]
fn a_plan_shows_names_without_control_characters() {
    let runtime = runtime();
    let job = runtime.path().join("job.toml");
    let stages = "[[stage]]\nid = \"s\"\nname = \"\\u001b[31m\\u202ered\"\nop = \"source\"\n\
                  [[stage]]\nid = \"o\"\nop = \"sink\"\nin = \"s\"\n";
    std::fs::write(&job, format!("name = \"a\\u001b]0;x\\u0007\\u061cb\"\n{stages}")).unwrap();
    for format in ["text", "dot"] {
        let got = ran(tuplane(&runtime).args(["plan", "-o", format]).arg(&job));
        assert_eq!(got.code, Some(0), "{}", got.err);
        assert!(!got.out.contains(['\u{1b}', '\u{7}', '\u{61c}', '\u{202e}']), "{}", got.out);
        assert!(got.out.contains("\\u{1b}"), "{}", got.out);
    }
}

#[test]
fn a_job_is_not_called_by_a_number() {
    let runtime = runtime();
    let job = runtime.path().join("job.toml");
    let stages = "[[stage]]\nid = \"s\"\nop = \"source\"\nconnector = \"ids\"\nn = 1\n\
                  [[stage]]\nid = \"o\"\nop = \"sink\"\nin = \"s\"\nconnector = \"count\"\n";
    std::fs::write(&job, format!("name = \"3\"\n{stages}")).unwrap();
    let got = ran(tuplane(&runtime).arg("check").arg(&job));
    assert_eq!(got.code, Some(2));
    assert!(got.out.contains("`3` cannot name a job: digits only"), "{}", got.out);
    // Another name makes it one; then the cluster is missing.
    let got = ran(tuplane(&runtime).arg("submit").arg(&job).args(["--name", "three"]));
    assert_eq!(got.code, Some(3), "{}", got.err);
    let got = ran(tuplane(&runtime).arg("submit").arg(&job).args(["--name=-x"]));
    assert_eq!(got.code, Some(2), "{}", got.err);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let runtime = runtime();
    for args in [&["--help"][..], &["version"], &["up", "--local", "3", "--dry-run", "--agent", "/bin/true"]]
    {
        let mut child =
            tuplane(&runtime).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn closed_streams_change_no_exit_code() {
    let runtime = runtime();
    let job = runtime.path().join("job.toml");
    let stages = "[[stage]]\nid='a'\nop='source'\nconnector='ids'\nn=1\n[[stage]]\nid='b'\nop='sink'\nconnector='count'\nin='a'\n";
    std::fs::write(&job, stages).unwrap();
    let job = job.to_str().unwrap();
    for (args, code) in [
        (&["version"][..], 0),
        (&["--help"], 0),
        (&["plan", job, "-o", "json"], 0),
        (&["check", job], 0),
        (&["up", "--local", "2", "--dry-run"], 0),
        (&["jobs"], 3),
        (&["no-such-command"], 2),
        (&["tui"], 2),
    ] {
        for closed in [">&-", "2>&-", "<&-", "<&- >&- 2>&-"] {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("\"$@\" {closed}"), "sh"]).arg(cargo_bin("tuplane")).args(args);
            let ran = ran(shell.env("XDG_RUNTIME_DIR", runtime.path()).env_remove("TUPLANE_CLUSTER"));
            assert_eq!(ran.code, Some(code), "{args:?} {closed}: {}", ran.err);
            assert!(!ran.err.contains("defect"), "{args:?} {closed}: {}", ran.err);
        }
    }
}

#[test]
fn a_dry_run_starts_nothing_and_says_what_it_would() {
    let runtime = runtime();
    let costs = runtime.path().join("costs");
    std::fs::write(&costs, "x y 7\n").unwrap();
    let plan = ran(tuplane(&runtime)
        .args([
            "up",
            "--local",
            "3",
            "--zones",
            "x,y",
            "--slots",
            "2",
            "--cores",
            "4",
            "--dry-run",
            "-o",
            "json",
        ])
        .args(["--agent", "/bin/true", "--costs"])
        .arg(&costs));
    assert_eq!(plan.code, Some(0), "{}", plan.err);
    let document: Value = serde_json::from_str(&plan.out).unwrap();
    assert_eq!(document["schema"], "tuplane/up-plan/1");
    assert_eq!(
        (&document["slots"], &document["cores"], &document["cluster"]),
        (&2.into(), &4.into(), &"local".into())
    );
    let zones: Vec<&Value> =
        document["agents"].as_array().unwrap().iter().map(|agent| &agent["zone"]).collect();
    assert_eq!(zones, ["x", "y", "x"]);
    assert_eq!(document["costs"].as_array().unwrap().len(), 2, "the pair holds both ways");
    assert!(!runtime.path().join("tuplane").exists());

    std::fs::write(&costs, "x z 7\nx y many\n").unwrap();
    let faulty = ran(tuplane(&runtime)
        .args(["up", "--local", "2", "--zones", "x,y", "--dry-run", "--agent", "/bin/true", "--costs"])
        .arg(&costs));
    assert_eq!(faulty.code, Some(2));
    assert!(faulty.err.contains("line 1") && faulty.err.contains("line 2"), "{}", faulty.err);
}

#[test]
fn an_agent_that_does_not_come_up_is_named_with_its_cause() {
    let runtime = runtime();
    let failed = ran(tuplane(&runtime).args(["up", "--local", "2", "--agent", "/bin/false"]));
    assert_eq!(failed.code, Some(1), "{}", failed.err);
    for part in ["agent a", "127.0.0.1:0", "exit status: 1"] {
        assert!(failed.err.contains(part), "{part}: {}", failed.err);
    }
    let left: Vec<_> = std::fs::read_dir(runtime.path().join("tuplane")).unwrap().collect();
    assert!(left.is_empty(), "nothing is left: {left:?}");
}

#[test]
fn the_version_is_text_or_a_document() {
    let text = ran(tuplane(&runtime()).arg("version"));
    assert_eq!(text.out.trim(), concat!("tuplane ", env!("CARGO_PKG_VERSION")));
    let json = ran(tuplane(&runtime()).args(["version", "-o", "jsonl"]));
    assert_eq!(json.out.lines().count(), 1);
    let document: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(document["schema"], "tuplane/version/1");
}
