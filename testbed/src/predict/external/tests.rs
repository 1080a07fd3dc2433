//! Tests of the protocol with real commands: `testbed/predictors/last.py`, and shells.

use serde_json::json;
use tuplane_core::route::predict::score;

use super::*;
use crate::launch::ProcessId;
use crate::predict::{predictors, prophet_version};
use crate::skip::skip;

/// Long enough for any answer on a busy machine; nothing waits for it where answers come.
const LONG: Duration = Duration::from_mins(1);

/// Short; tests wait for it where no answer comes.
const SHORT: Duration = Duration::from_millis(30);

const LAST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/predictors/last.py");

pub(crate) fn has_python(test: &str) -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success());
    if !found {
        skip(test, "python3");
    }
    found
}

/// `last.py` with these arguments, or nothing without python3.
fn last(test: &str, arguments: &[&str]) -> Option<External> {
    has_python(test).then(|| {
        let mut command = Command::new("python3");
        command.arg(LAST).args(arguments);
        External::start("external", command, format!("last.py {}", arguments.join(" ")), LONG).unwrap()
    })
}

fn shell(line: &str) -> External {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]);
    External::start("external", command, line.into(), LONG).unwrap()
}

#[test]
fn each_slot_has_its_answer() {
    let Some(mut external) = last("each_slot_has_its_answer", &["--window", "3"]) else { return };
    assert_eq!(external.forecast(2), [0.0; 0]);
    for (slot, arrived) in (0..).zip([4, 0, 7]) {
        external.observe(slot, arrived);
        assert_eq!(external.forecast(2), [arrived as f64; 2]);
        // Asked again, and for more than it says.
        assert_eq!(external.forecast(5), [arrived as f64; 3]);
    }
    // Slots for which nobody asked.
    external.observe(3, 1);
    external.observe(4, 2);
    assert_eq!(external.forecast(1), [2.0]);
    assert_eq!((external.late(), external.failure()), (0, None));
}

#[test]
fn a_late_answer_is_discarded_with_its_slot() {
    let Some(mut external) = last("a_late_answer_is_discarded_with_its_slot", &["--hold", "1"]) else {
        return;
    };
    external.observe(0, 4);
    assert_eq!(external.forecast(1), [4.0]);
    external.within = SHORT;
    external.observe(1, 5);
    assert_eq!(external.forecast(1), [0.0; 0]);
    // Once late, always late, and counted once.
    assert_eq!(external.forecast(1), [0.0; 0]);
    assert_eq!(external.late(), 1);
    external.within = LONG;
    external.observe(2, 6);
    assert_eq!(external.forecast(1), [6.0]);
    assert_eq!((external.late(), external.failure()), (1, None));
}

#[test]
fn a_slot_without_an_answer_is_late_though_nobody_asked() {
    let mut external = shell("read line; sleep 77");
    external.within = SHORT;
    external.observe(0, 4);
    thread::sleep(2 * SHORT);
    external.observe(1, 4);
    assert_eq!((external.late(), external.failure()), (1, None));
}

#[test]
fn junk_is_said_once_with_the_line_it_answers() {
    let Some(mut external) = last("junk_is_said_once_with_the_line_it_answers", &["--junk", "1"]) else {
        return;
    };
    external.observe(0, 4);
    assert_eq!(external.forecast(1), [4.0]);
    external.observe(1, 5);
    assert_eq!(external.forecast(1), [0.0; 0]);
    let said = external.failure().unwrap().to_owned();
    assert!(
        said.starts_with("predictor `external`: `last.py --junk 1` answered `junk` to `{\"slot\":1,\"arrived\":5}`: expected value at line 1 column 1. It must answer each line with one line"),
        "{said}"
    );
    // The first failure stays, and nothing is asked any more.
    external.observe(2, 5);
    assert_eq!(external.forecast(1), [0.0; 0]);
    assert_eq!(external.failure(), Some(said.as_str()));
}

#[test]
fn answers_that_do_not_fit_are_faults() {
    for (answer, words) in [
        ("{\"forecast\":[1,NaN]}", "expected value"),
        ("{\"forecast\":[1e999]}", "number out of range"),
        ("{\"forecast\":5}", "expected a sequence"),
        ("{}", "missing field `forecast`"),
        ("", "answered `` to"),
        ("{\"forecast\":[1],\"slot\":3}", "it is for slot 3"),
        ("{\"forecast\":[1]}\n{\"forecast\":[1]}", "though every line has its answer"),
    ] {
        let mut external = shell(&format!("read line; echo '{answer}'; sleep 77"));
        external.observe(0, 4);
        external.forecast(1);
        let until = Instant::now() + LONG;
        while external.failure().is_none() && Instant::now() < until {
            external.forecast(1);
        }
        let said = external.failure().unwrap();
        assert!(said.contains(words), "{answer}: {said}");
    }
    // What is below 0 is 0.
    let mut external = shell("read line; echo '{\"forecast\":[-1.5, 2.5]}'; sleep 77");
    external.observe(0, 4);
    assert_eq!(external.forecast(2), [0.0, 2.5]);
}

#[test]
fn a_command_that_ends_is_said_with_its_last_words() {
    let Some(mut external) = last("a_command_that_ends_is_said_with_its_last_words", &["--die", "1"]) else {
        return;
    };
    external.observe(0, 4);
    assert_eq!(external.forecast(1), [4.0]);
    external.observe(1, 5);
    assert_eq!(external.forecast(1), [0.0; 0]);
    let said = external.failure().unwrap();
    assert!(
        said.contains("ended (exit status: 1) after 1 answers and before it answered `{\"slot\":1,\"arrived\":5}`; its last words: told to end at slot 1."),
        "{said}"
    );
}

#[test]
fn a_command_that_closes_its_output_is_ended() {
    let mut external = shell("exec >&-; sleep 77");
    external.observe(0, 4);
    assert_eq!(external.forecast(1), [0.0; 0]);
    assert!(external.failure().unwrap().contains("closed its output"), "{:?}", external.failure());
    assert!(external.group.ended.is_some());
}

#[test]
fn all_processes_of_the_command_end_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let note = folder.path().join("pid");
    let external =
        shell(&format!("sleep 77 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait", note.display()));
    let until = Instant::now() + LONG;
    let below = loop {
        if let Ok(pid) = std::fs::read_to_string(&note) {
            break ProcessId::of(pid.trim().parse().unwrap()).unwrap();
        }
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    };
    assert!(below.is_alive());
    drop(external);
    while below.is_alive() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(5));
    }
}

fn made(options: serde_json::Value) -> Result<Box<dyn Predictor>, String> {
    let serde_json::Value::Object(options) = options else { panic!("{options} is no table") };
    predictors().make("external", &Setup { options, ..Setup::default() }).map_err(|error| error.to_string())
}

#[test]
fn options_make_the_command() {
    let mut external = made(json!({"command": ["/bin/sh", "-c", "read line; echo '{\"forecast\":[2]}'; read line"], "within": "1m"})).unwrap();
    external.observe(0, 1);
    assert_eq!(external.forecast(3), [2.0]);
    for (options, words) in [
        (json!({}), "missing field `command`"),
        (json!({"command": []}), "`command` is empty"),
        (json!({"command": 5}), "as a list, or a line for the shell"),
        (
            json!({"command": ["/nowhere/predictor"]}),
            "predictor `external`: cannot start `/nowhere/predictor`: ",
        ),
        (json!({"command": "cat", "within": "soon"}), "`within` is soon"),
        (json!({"command": "cat", "within": 0}), "`within` is 0"),
        (json!({"command": "cat", "wihtin": 5}), "unknown field `wihtin`"),
    ] {
        let said = made(options).unwrap_err();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn what_a_terminal_would_obey_and_what_no_slot_can_have_are_told_in_words() {
    for (answer, said) in [
        ("\\033[31mred", "answered `\\u{1b}[31mred` to"),
        ("{\"forecast\":[1e308]}", "rows are more than the 9007199254740992 that a slot can have"),
    ] {
        let mut external = shell(&format!("read line; printf '{answer}\\n'; read line"));
        external.observe(0, 1);
        assert!(external.forecast(1).is_empty());
        let failure = external.failure().unwrap();
        assert!(failure.contains(said), "{failure}");
    }
}

#[test]
fn prophet_says_that_it_is_missing_or_predicts() {
    let test = "prophet_says_that_it_is_missing_or_predicts";
    if !has_python(test) {
        return;
    }
    let mut options = serde_json::Map::new();
    for (key, value) in [("period", 12), ("memory", 60), ("every", 48)] {
        options.insert(key.into(), value.into());
    }
    let mut prophet = predictors().make("prophet", &Setup { options, ..Setup::default() }).unwrap();
    let arrivals = [0, 5, 9, 14, 20, 30, 41, 30, 22, 14, 9, 4].repeat(8);
    let scored = score(prophet.as_mut(), &arrivals, 2);
    match prophet_version(None) {
        Ok(_) => {
            assert_eq!(prophet.failure(), None);
            // It repeats exactly: from the first fit on there is little error left. The mean would err by 147.
            assert!(scored.mse(1).unwrap() < 60.0, "{scored:?}");
        }
        Err(missing) => {
            let said = prophet.failure().unwrap();
            assert!(said.contains("exit status: 3") && said.contains(&missing), "{said}");
            assert_eq!(missing.lines().count(), 1);
            // It is not among what a machine needs for the tests: its Debian packages are none.
            println!("without the Python package prophet: {missing}");
        }
    }
}
