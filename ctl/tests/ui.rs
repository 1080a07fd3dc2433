//! The UI on a real terminal: every way out leaves the terminal as it was, and no way in breaks it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tuplane_testbed::skip::skip;

use crate::real::world::World;

/// Two stages; their plan is shown without a cluster.
const JOB: &str = r#"name = "seat"
[[stage]]
id = "lines"
op = "source"
connector = "generator"
kind = "words"
n = 9
[[stage]]
id = "out"
op = "sink"
in = "lines"
connector = "stdout"
format = "csv"
"#;

/// Leaves the alternate screen, shows the cursor, lets go of the mouse.
const GIVEN_BACK: [&[u8]; 3] = [b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"];

struct Pty {
    world: World,
    steps: Vec<String>,
}

impl Pty {
    /// `None`, and noted, where what it needs is missing.
    fn new(test: &str) -> Option<Self> {
        let has = |name: &str| Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        for needed in ["python3", "bash", "stty"] {
            if !has(needed).is_ok_and(|found| found.status.success()) {
                skip(test, needed);
                return None;
            }
        }
        Some(Self { world: World::new(), steps: Vec::new() })
    }

    fn step(mut self, step: &str) -> Self {
        self.steps.push(step.to_owned());
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// Runs `tuplane` with these arguments between two looks at the terminal's settings.
    fn run(&self, args: &str, env: &[(&str, &str)]) -> Ran {
        let folder = self.path("").display().to_string();
        let script = format!(
            "cd {folder}; stty -a > before; $TUPLANE {args} 2> errors; echo $? > code; stty -a > after"
        );
        self.script(&script, env)
    }

    fn script(&self, script: &str, env: &[(&str, &str)]) -> Ran {
        self.world.file("job.toml", JOB);
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui/terminal.py");
        let run = self.path("run");
        std::fs::create_dir_all(&run).unwrap();
        let mut command = Command::new("python3");
        command.arg(driver).arg(script).args(&self.steps);
        command.env("TUPLANE", env!("CARGO_BIN_EXE_tuplane")).env("XDG_RUNTIME_DIR", run);
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        for name in ["TUPLANE_CLUSTER", "TUPLANE_KEY_FILE", "NO_COLOR"] {
            command.env_remove(name);
        }
        let output = command.envs(env.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        Ran {
            code: read("code").trim().to_owned(),
            before: read("before"),
            after: read("after"),
            errors: read("errors"),
            terminal: output.stdout,
        }
    }
}

struct Ran {
    code: String,
    before: String,
    after: String,
    errors: String,
    terminal: Vec<u8>,
}

impl Ran {
    /// The terminal is as it was, and the exit code is this.
    fn is_restored(&self, code: &str, what: &str) {
        assert!(self.before.contains("speed"), "{what}: no `stty -a` before: {}", self.before);
        assert_eq!(self.before, self.after, "{what}");
        assert_eq!(self.code, code, "{what}: {}", self.errors);
        for sequence in GIVEN_BACK {
            assert!(
                contains(&self.terminal, sequence),
                "{what}: no {}",
                String::from_utf8_lossy(&sequence[1..])
            );
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn shown(output: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout).escape_debug(),
        String::from_utf8_lossy(&output.stderr)
    )
}

const PLAN: &str = "tui --plan job.toml";

#[test]
fn keys_and_signals_leave_the_terminal_as_it_was() {
    for (way, step, code) in [
        ("q", "send:q", "0"),
        ("ctrl-c", "send:\\x03", "130"),
        ("term", "kill:TERM", "143"),
        ("hangup", "kill:HUP", "129"),
        ("interrupt", "kill:INT", "130"),
        ("quit", "kill:QUIT", "131"),
        ("user signal", "kill:USR1", "138"),
    ] {
        let Some(pty) = Pty::new("keys_and_signals_leave_the_terminal_as_it_was") else { return };
        let ran = pty.step("wait:PLAN").step("sleep:0.3").step(step).run(PLAN, &[]);
        ran.is_restored(code, way);
        assert_eq!(ran.errors, "", "{way}");
    }
}

#[test]
fn a_panic_anywhere_gives_the_terminal_back_and_can_be_read() {
    for part in ["draw", "task", "update"] {
        let Some(pty) = Pty::new("a_panic_anywhere_gives_the_terminal_back_and_can_be_read") else { return };
        let pty = pty.step("wait:PLAN").step("send:X").step("sleep:0.3").step("send:j");
        let ran = pty.run(PLAN, &[("TUPLANE_TEST_PANIC", part)]);
        ran.is_restored("70", part);
        assert!(
            ran.errors.contains("defect of Tuplane") && ran.errors.contains("as the test wants"),
            "{}",
            ran.errors
        );
        assert_eq!(ran.errors.lines().count(), 1, "said once: {}", ran.errors);
    }
}

#[test]
fn what_is_refused_never_takes_the_terminal() {
    for args in [
        "tui --plan no-such.toml",
        "tui --replay job.toml",
        "tui --replay /dev/zero",
        "tui --replay .",
        "tui --replay pipe",
        "tui --record /no/such/folder/x --plan job.toml",
    ] {
        let Some(pty) = Pty::new("what_is_refused_never_takes_the_terminal") else { return };
        assert!(Command::new("mkfifo").arg(pty.path("pipe")).status().unwrap().success());
        let ran = pty.run(args, &[]);
        assert_eq!(ran.before, ran.after, "{args}");
        assert_eq!(ran.code, "2", "{args}: {}", ran.errors);
        assert!(!ran.errors.is_empty(), "{args}");
        assert!(!contains(&ran.terminal, b"\x1b[?1049h"), "{args}");
    }
}

#[test]
fn ctrl_z_and_fg_give_the_terminal_back_and_take_it_again() {
    let Some(pty) = Pty::new("ctrl_z_and_fg_give_the_terminal_back_and_take_it_again") else { return };
    let folder = pty.path("").display().to_string();
    let script = format!(
        "set -m; cd {folder}; stty -a > before; $TUPLANE {PLAN} 2> errors; stty -a > stopped; echo STOPPED; \
         sleep 0.5; fg > /dev/null; echo $? > code; stty -a > after"
    );
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:\\x1a").step("wait:STOPPED");
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:q");
    let ran = pty.script(&script, &[]);
    ran.is_restored("0", "ctrl-z and fg");
    let stopped = std::fs::read_to_string(pty.path("stopped")).unwrap();
    assert_eq!(ran.before, stopped, "while it is stopped");
}

#[test]
fn without_colours_the_selection_is_reversed_and_nothing_is_coloured() {
    let Some(pty) = Pty::new("without_colours_the_selection_is_reversed_and_nothing_is_coloured") else {
        return;
    };
    let pty = pty.step("wait:PLAN").step("send:v").step("wait:VERTEX").step("sleep:0.3").step("send:q");
    let ran = pty.run(PLAN, &[("NO_COLOR", "1")]);
    ran.is_restored("0", "NO_COLOR");
    let text = String::from_utf8_lossy(&ran.terminal).into_owned();
    assert!(text.contains("\x1b[7m"), "{}", text.escape_debug());
    // The reset that crossterm writes with NO_COLOR behind each attribute would take reverse away again.
    assert!(!text.contains("\x1b[;m"), "{}", text.escape_debug());
    for color in (30..=37).chain(90..=97).map(|n| format!("\x1b[{n}m")).chain(["\x1b[38;".to_owned()]) {
        assert!(!text.contains(&color), "{}", text.escape_debug());
    }
}

#[test]
fn a_locale_without_utf8_gets_ascii_and_a_dumb_terminal_no_escapes() {
    let Some(pty) = Pty::new("a_locale_without_utf8_gets_ascii_and_a_dumb_terminal_no_escapes") else {
        return;
    };
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:q");
    let ran = pty.run(PLAN, &[("LC_ALL", "C")]);
    ran.is_restored("0", "LC_ALL=C");
    assert!(ran.terminal.is_ascii(), "{}", String::from_utf8_lossy(&ran.terminal).escape_debug());

    let Some(pty) = Pty::new("a_locale_without_utf8_gets_ascii_and_a_dumb_terminal_no_escapes") else {
        return;
    };
    for args in ["", PLAN] {
        let ran = pty.script(
            &format!("cd {}; $TUPLANE {args}; echo $? > code", pty.path("").display()),
            &[("TERM", "dumb")],
        );
        assert_eq!(ran.code, "2", "{args}");
        assert!(
            !ran.terminal.contains(&0x1b),
            "{args}: {}",
            String::from_utf8_lossy(&ran.terminal).escape_debug()
        );
    }
}

#[test]
fn a_burst_of_keys_is_read_to_its_end_and_ctrl_c_behind_it_counts_once() {
    let test = "a_burst_of_keys_is_read_to_its_end_and_ctrl_c_behind_it_counts_once";
    let Some(pty) = Pty::new(test) else { return };
    let burst = format!("send:{}", "jk".repeat(1500));
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step(&burst).step("read:").step("send:\\x03");
    pty.run(PLAN, &[]).is_restored("130", "a burst");
    // Text that is typed all at once comes whole.
    let Some(pty) = Pty::new(test) else { return };
    let words = format!("send:/{}", "text ".repeat(60));
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step(&words).step("read:").step("send:!end");
    let ran = pty.step("wait:!end").step("send:\\x1b").step("sleep:0.3").step("send:q").run(PLAN, &[]);
    ran.is_restored("0", "a long filter");
}

#[test]
fn what_is_pasted_is_never_taken_for_keys() {
    let Some(pty) = Pty::new("what_is_pasted_is_never_taken_for_keys") else { return };
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:\\x1b[200~qqq\\x03\\x1b[201~");
    let pty = pty.step("wait:what was pasted was left out").step("send:q");
    let ran = pty.run(PLAN, &[]);
    ran.is_restored("0", "paste");
    for sequence in [b"\x1b[?2004h", b"\x1b[?2004l"] {
        assert!(contains(&ran.terminal, sequence), "asked for, and given back");
    }
}

#[test]
fn a_terminal_of_any_size_is_left_as_it_was() {
    for size in ["65535x65535", "5000x5000", "1x1", "0x0"] {
        let Some(pty) = Pty::new("a_terminal_of_any_size_is_left_as_it_was") else { return };
        let pty = pty.step("wait:PLAN").step(&format!("size:{size}")).step("sleep:0.5").step("send:\\x03");
        let ran = pty.run(PLAN, &[]);
        // The sizes are what was set, and not ours to restore.
        assert_eq!(ran.code, "130", "{size}: {}", ran.errors);
        assert!(contains(&ran.terminal, GIVEN_BACK[0]) && ran.errors.is_empty(), "{size}: {}", ran.errors);
        assert!(ran.terminal.len() < 4_000_000, "{size}: {} bytes", ran.terminal.len());
    }
}

#[test]
fn what_is_recorded_is_played_at_its_size_and_up_to_where_it_was_cut() {
    let test = "what_is_recorded_is_played_at_its_size_and_up_to_where_it_was_cut";
    let Some(pty) = Pty::new(test) else { return };
    let record = |keep: &Path| {
        let Some(pty) = Pty::new(test) else { return };
        let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:v").step("wait:VERTEX").step("send:q");
        pty.run(&format!("{PLAN} --record {}", keep.display()), &[]).is_restored("0", "recording");
    };
    let (whole, cut) = (pty.path("whole"), pty.path("cut"));
    record(&whole);
    let text = std::fs::read(&whole).unwrap();
    assert!(text.starts_with(b"{\"schema\":\"tuplane/recording/1\",\"width\":100,\"height\":30}\n"));
    std::fs::write(&cut, &text[..text.len() - 5]).unwrap();
    for (file, says) in [(&whole, "end of the recording: q quits"), (&cut, "its last line is cut: q quits")] {
        let Some(pty) = Pty::new(test) else { return };
        let pty = pty.step("wait:RECORDING").step("wait:VERTEX").step(&format!("wait:{says}"));
        let ran = pty.step("size:80x24").step("sleep:0.3").step("send:q");
        let ran = ran.run(&format!("tui --replay {}", file.display()), &[]);
        assert_eq!(ran.code, "0", "{says}: {}", ran.errors);
    }
}

#[test]
fn pictures_come_when_something_changes_and_at_most_ten_in_a_second() {
    /// The number of pictures: each hides the cursor before it is written.
    fn pictures(ran: &Ran) -> usize {
        let hides = b"\x1b[?25l";
        ran.terminal.windows(hides.len()).filter(|window| window == hides).count()
    }
    let test = "pictures_come_when_something_changes_and_at_most_ten_in_a_second";
    let run = |keys: usize| {
        let began = std::time::Instant::now();
        let pty = Pty::new(test)?.step("wait:PLAN").step("sleep:0.5");
        let pty = (0..keys).fold(pty, |pty, _| pty.step("send:j").step("sleep:0.01").step("send:k"));
        let ran = pty.step("read:").step("send:q").run(PLAN, &[]);
        ran.is_restored("0", "pictures");
        Some((pictures(&ran), began.elapsed().as_secs_f64()))
    };
    let (Some((still, _)), Some((busy, seconds))) = (run(0), run(200)) else { return };
    assert!(busy > still, "{busy} with keys, {still} without");
    assert!(busy as f64 <= seconds * 10.0 + 2.0, "{busy} pictures in {seconds} s");
}

#[test]
fn where_no_shell_waits_nothing_is_suspended() {
    let Some(pty) = Pty::new("where_no_shell_waits_nothing_is_suspended") else { return };
    // As under `ssh -t`: the parent is of another session.
    let folder = pty.path("").display().to_string();
    let script =
        format!("cd {folder}; setsid --wait $TUPLANE {PLAN} 2> errors; echo $? > code; stty -a > after");
    let pty = pty.step("wait:PLAN").step("sleep:0.3").step("send:\\x1a").step("wait:there is no shell");
    let ran = pty.step("send:q").script(&script, &[]);
    assert_eq!(ran.code, "0", "{}", ran.errors);
}

#[test]
fn a_dumb_terminal_gets_a_line_at_a_time() {
    let Some(pty) = Pty::new("a_dumb_terminal_gets_a_line_at_a_time") else { return };
    pty.world.up(&["--local", "1", "--slots", "1"]);
    let job = pty.world.file("seat.toml", JOB);
    pty.world.json(&["submit", &job]);
    let folder = pty.path("").display().to_string();
    let script = format!("cd {folder}; $TUPLANE tui --cluster t 2> errors; echo $? > code");
    let pty = pty.step("wait:seat").step("sleep:2.5").step("send:\\x03");
    let ran = pty.script(&script, &[("TERM", "dumb")]);
    let text = String::from_utf8_lossy(&ran.terminal).into_owned();
    assert!(!ran.terminal.contains(&0x1b), "{}", text.escape_debug());
    assert_eq!(ran.code, "130", "{} {text}", ran.errors);
    let lines = text.lines().filter(|line| line.contains("seat")).count();
    assert!(lines >= 2, "a line every two seconds: {text}");
}

#[test]
fn a_cluster_that_is_started_elsewhere_is_shown_as_soon_as_it_is_there() {
    let Some(pty) = Pty::new("a_cluster_that_is_started_elsewhere_is_shown_as_soon_as_it_is_there") else {
        return;
    };
    let folder = pty.path("").display().to_string();
    let script = format!(
        "cd {folder}; stty -a > before; \
         (sleep 1; $TUPLANE up --local 1 --detach --cluster t > up 2>&1) & $TUPLANE 2> errors; echo $? > code; \
         stty -a > after; wait; $TUPLANE down --cluster t --yes > down 2>&1"
    );
    let pty = pty.step("wait:NO CLUSTER").step("wait:LIVE").step("wait:There is no job").step("send:q");
    pty.script(&script, &[]).is_restored("0", "a cluster that came");
}

#[test]
fn alone_on_a_terminal_it_is_the_ui_and_starts_agents_on_a_key_and_ends_them() {
    let Some(pty) = Pty::new("alone_on_a_terminal_it_is_the_ui_and_starts_agents_on_a_key_and_ends_them")
    else {
        return;
    };
    let pty = pty.step("wait:NO CLUSTER").step("wait:tuplane up --local 3 --detach").step("send:D");
    // The demo's bids come, and its work limits it.
    let pty = pty.step("wait:limits the job: work").step("sleep:0.5").step("send:q");
    let ran = pty.run("", &[]);
    ran.is_restored("0", "demo");
    let left: Vec<_> = std::fs::read_dir(pty.path("run/tuplane")).map(Iterator::collect).unwrap_or_default();
    assert!(left.is_empty(), "no cluster is left: {left:?}");
}

#[test]
fn an_agent_that_is_gone_and_a_coordinator_that_is_stopped_show_and_the_way_out_stays() {
    let test = "an_agent_that_is_gone_and_a_coordinator_that_is_stopped_show_and_the_way_out_stays";
    let Some(pty) = Pty::new(test) else { return };
    pty.world.up(&["--local", "3", "--slots", "1"]);
    let pids = pty.world.pids();
    let [a, b, c] = ["a", "b", "c"].map(|name| pids[name]);
    // Agent b is stopped and goes on, then the coordinator is stopped and goes on; c is killed.
    let act = format!(
        "(sleep 2; kill -STOP {b}; sleep 4; kill -CONT {b}; sleep 2; kill -STOP {a}; sleep 6; kill -CONT {a}; \
         kill -KILL {c}) &"
    );
    let folder = pty.path("").display().to_string();
    let script = format!(
        "cd {folder}; stty -a > before; {act} $TUPLANE tui --cluster t 2> errors; echo $? > code; stty -a > after; wait"
    );
    let pty = pty.step("wait:3/3 agents").step("send:6").step("wait:silent").step("wait:LOST");
    let ran = pty.step("wait:LIVE").step("wait:lost").step("send:q").script(&script, &[]);
    ran.is_restored("0", "agents stopped and gone");
}
