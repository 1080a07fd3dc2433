//! `paper potus`: its results, twice and interrupted, and with a policy of one's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// So few slots and seeds that the runs take seconds without optimisation too.
const SMALL: [&str; 5] = ["--quick", "--slots", "60", "--seeds", "2"];

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tuplane-testbed"))
}

/// The example of the package, which cargo builds with the tests.
fn example() -> Command {
    let built = Path::new(env!("CARGO_BIN_EXE_tuplane-testbed")).with_file_name("examples").join("policy");
    assert!(built.exists(), "{} is built by `cargo test`", built.display());
    Command::new(built)
}

fn potus(mut program: Command, out: &Path, args: &[&str]) -> Output {
    program.args(["paper", "potus", "--out"]).arg(out).args(args).output().unwrap()
}

/// The only folder of results under `out`.
fn results(out: &Path) -> PathBuf {
    let mut folders = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    let folder = folders.next().unwrap();
    assert_eq!(folders.next(), None);
    folder
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{}/{name}: {e}", folder.display()))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// One small application, so that a run takes no time.
fn tiny(folder: &Path) -> PathBuf {
    let app = "component = [{ id = 'in', instances = 2, rate = 2.0 },\n\
               { id = 'out', in = ['in'], capacity = 3 }]\n";
    std::fs::write(folder.join("app.toml"), app).unwrap();
    let file = folder.join("tiny.toml");
    std::fs::write(&file, "applications = ['app.toml']\n[network]\nkind = 'fat_tree'\n").unwrap();
    file
}

#[test]
fn the_results_are_complete_and_the_same_for_the_same_seeds() {
    let out = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let ran = potus(program(), out[0].path(), &[&SMALL[..], &["-o", "json"]].concat());
    assert!(ran.status.success(), "{}", err(&ran));
    let folder = results(out[0].path());
    let claims = json(&String::from_utf8_lossy(&ran.stdout));
    assert_eq!(claims["schema"], "tuplane/claims/1");
    assert_eq!(json(&read(&folder, "claims.json")), claims);
    // Too short for a verdict, and the page says so.
    let all = claims["claims"].as_array().unwrap();
    assert!(all.len() >= 15 && all.iter().all(|claim| claim["verdict"] == "not_shown"), "{claims}");
    let page = read(&folder, "claims.md");
    assert!(page.contains("these runs have 2 and 60"), "{page}");

    let manifest = json(&read(&folder, "manifest.json"));
    assert_eq!((&manifest["state"], &manifest["seeds"]), (&"complete".into(), &serde_json::json!([1, 2])));
    assert_eq!(manifest["options"]["slots"], 60);
    assert_eq!(manifest["runs"], manifest["done"]);

    // Tidy: every run a row, every row as long as the first, no run twice, both seeds of each.
    let runs = read(&folder, "runs.csv");
    let mut reader = csv::Reader::from_reader(runs.as_bytes());
    assert_eq!(&reader.headers().unwrap()[0], "network");
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, manifest["runs"].as_u64().unwrap());
    let names: std::collections::BTreeSet<Vec<&str>> =
        rows.iter().map(|row| row.iter().take(15).collect()).collect();
    assert_eq!(names.len(), rows.len());
    assert_eq!(rows.iter().filter(|row| &row[14] == "1").count() * 2, rows.len());
    assert!(read(&folder, "means.csv").lines().count() > rows.len());

    // Every figure that a claim names is there and shows something.
    for claim in all {
        for figure in claim["figures"].as_array().unwrap() {
            let svg = read(&folder, figure.as_str().unwrap());
            assert!(svg.contains("<circle") && page.contains(figure.as_str().unwrap()), "{figure}");
        }
    }

    let again = potus(program(), out[1].path(), &SMALL);
    assert!(again.status.success(), "{}", err(&again));
    let other = results(out[1].path());
    for name in ["runs.csv", "means.csv", "v-cost-fat_tree.svg"] {
        assert_eq!(read(&folder, name), read(&other, name), "{name}");
    }
    let shown = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(shown.starts_with("CLAIM") && shown.contains("claims.md"), "{shown}");
}

/// Begins an experiment and interrupts it after its first runs. The folder of its results, unless it was done before.
fn interrupted(out: &Path, args: &[&str]) -> Option<PathBuf> {
    let mut child = program()
        .args(["paper", "potus", "--out"])
        .arg(out)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let rows = || {
        let folders = std::fs::read_dir(out).into_iter().flatten().flatten();
        let runs = folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("runs.csv")).ok());
        runs.map(|runs| runs.lines().count()).sum::<usize>()
    };
    while rows() < 3 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = rustix::process::Pid::from_child(&child);
    if child.try_wait().unwrap().is_none() {
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    }
    let code = child.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    (code == Some(130)).then(|| results(out))
}

#[test]
fn what_was_interrupted_can_be_gone_on_with_to_the_same_results() {
    let out = tempfile::tempdir().unwrap();
    let base = tiny(out.path());
    let args = ["--quick", "--seeds", "2", "--slots", "3000", "--base", base.to_str().unwrap()];
    let results_of = |name: &str| out.path().join(name);
    // On a busy machine it may be done before the signal comes.
    let mut tries = (0..5).map(|attempt| results_of(&format!("cut-{attempt}")));
    let folder = tries.find_map(|to| interrupted(&to, &args)).expect("one of five is cut off");
    let manifest = json(&read(&folder, "manifest.json"));
    assert_eq!((&manifest["state"], &manifest["why"]), (&"incomplete".into(), &"interrupted".into()));
    assert!(manifest["done"].as_u64() < manifest["runs"].as_u64(), "{manifest}");
    assert!(!folder.join("claims.md").exists());

    let resumed = program().args(["paper", "potus", "--resume"]).arg(&folder).output().unwrap();
    assert!(resumed.status.success(), "{}", err(&resumed));
    assert_eq!(json(&read(&folder, "manifest.json"))["state"], "complete");
    let whole = potus(program(), &results_of("whole"), &args);
    assert!(whole.status.success(), "{}", err(&whole));
    assert_eq!(read(&folder, "runs.csv"), read(&results(&results_of("whole")), "runs.csv"));
    let over = program().args(["paper", "potus", "--resume"]).arg(&folder).output().unwrap();
    assert!(err(&over).contains("there is nothing to go on with"), "{}", err(&over));
}

#[test]
fn a_dry_run_lists_the_runs_and_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    let dry = potus(program(), out.path(), &["--dry-run", "--quick", "--slots", "500"]);
    let listed = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.status.success(), "{}", err(&dry));
    assert!(listed.contains("fat_tree,poisson,0.85,0,potus,paper,1,1,0,false,,0,0,0\n"), "{listed}");
    assert!(listed.lines().last().unwrap().contains(" runs, about "), "{listed}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_run_is_refused_and_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    for (args, words) in [
        (&["--also", "jsqq"][..], "`--also jsqq`: no policy and no predictor is called so"),
        (&["--also", "jsqq"], "did you mean `jsq`?"),
        (&["--slots", "10"], "`--slots` is at least 50"),
        (&["--seeds", "0"], "`--seeds` and `--threads` are at least 1"),
        (&["--trace", "none.csv"], "none.csv: No such file"),
        (&["--base", "none.toml"], "none.toml: cannot be read"),
        (&["--resume", "none"], "cannot be used with"),
    ] {
        let refused = potus(program(), out.path(), args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {}", err(&refused));
        assert!(err(&refused).contains(words), "{args:?}: {}", err(&refused));
    }
    let sim = program().args(["sim", "none.toml"]).output().unwrap();
    assert_eq!(sim.status.code(), Some(2), "{}", err(&sim));
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn a_trace_takes_the_place_of_the_stand_in() {
    let Some(trace) = tuplane_testbed::skip::shared(
        "a_trace_takes_the_place_of_the_stand_in",
        "data/arrivals-nab/Twitter_volume_AAPL.csv",
    ) else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let base = tiny(out.path());
    let args = [&SMALL[..], &["--period", "12", "--base", base.to_str().unwrap(), "--trace"]].concat();
    let ran =
        potus(program(), &out.path().join("results"), &[&args[..], &[trace.to_str().unwrap()]].concat());
    assert!(ran.status.success(), "{}", err(&ran));
    let folder = results(&out.path().join("results"));
    let page = read(&folder, "claims.md");
    assert!(page.contains("Twitter_volume_AAPL.csv, scaled to the means of the spouts"), "{page}");
    assert!(page.contains("Jellyfish, trace"), "{page}");
    assert!(read(&folder, "runs.csv").contains(",seasonal,"));
}

#[test]
fn a_policy_of_ones_own_is_simulated_and_compared() {
    let out = tempfile::tempdir().unwrap();
    let base = tiny(out.path());
    let simulated = example()
        .args(["sim", base.to_str().unwrap(), "--set", "slots=100", "--set", "routing.policy=near_or_drawn"])
        .args(["-o", "json"])
        .output()
        .unwrap();
    assert!(simulated.status.success(), "{}", err(&simulated));
    assert_eq!(json(&String::from_utf8_lossy(&simulated.stdout))["told"]["policy"], "near_or_drawn");

    let args = [&SMALL[..], &["--also", "near_or_drawn", "--base", base.to_str().unwrap()]].concat();
    let ran = potus(example(), &out.path().join("results"), &args);
    assert!(ran.status.success(), "{}", err(&ran));
    let folder = results(&out.path().join("results"));
    let own = read(&folder, "runs.csv");
    let of_own = |line: &&str| line.contains(",near_or_drawn,");
    assert!(own.lines().filter(of_own).count() >= 8, "{own}");
    assert!(read(&folder, "frontier-fat_tree-poisson.svg").contains(">near_or_drawn<"));
    assert!(read(&folder, "claims.md").contains("; near_or_drawn "));

    // The stock program does not know it.
    let stock = potus(program(), &out.path().join("stock"), &args);
    assert!(err(&stock).contains("`--also near_or_drawn`: no policy and no predictor"), "{}", err(&stock));
}
