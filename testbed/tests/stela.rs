//! `paper stela` without agents: the dry run, and what the model predicts.

use std::process::{Command, Output};

use serde_json::Value;

fn stela(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tuplane-testbed")).args(["paper", "stela"]).args(args).output().unwrap()
}

#[test]
fn a_dry_run_says_how_long_it_takes() {
    let listed = stela(&["--quick", "--dry-run"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.status.success() && text.starts_with("star,stela,live,grow\n"), "{text}");
    assert!(text.ends_with("36 configurations, 36 runs, about 18 min 36 s\n"), "{text}");
    let full = stela(&["--full", "--dry-run", "-o", "json"]);
    let document: Value = serde_json::from_slice(&full.stdout).unwrap();
    assert_eq!((&document["schema"], &document["repeats"]), (&"tuplane/stela-plan/1".into(), &3.into()));
}

#[test]
fn the_model_needs_no_agents() {
    let out = tempfile::tempdir().unwrap();
    let ran = stela(&["--model", "-o", "json", "--out", out.path().to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let claims: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&claims["schema"], claims["claims"].as_array().unwrap().len()),
        (&"tuplane/claims/1".into(), 7)
    );
    let folder = std::path::PathBuf::from(claims["folder"].as_str().unwrap());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("manifest.json").contains("\"complete\""));
    // Six topologies with eight planners, one with four, under both kinds of queue.
    assert_eq!(read("model.csv").lines().count(), 1 + 2 * (6 * 8 + 4));
    let page = read("claims.md");
    for figure in ["model-out-grow.svg", "model-out-block.svg", "model-in.svg"] {
        assert!(read(figure).contains("published (Stela)") && page.contains(figure), "{figure}");
    }
}

#[test]
fn runs_without_the_command_line_and_names_that_there_are_not_leave_nothing() {
    let out = tempfile::tempdir().unwrap();
    let to = out.path().to_str().unwrap();
    // A copy of the program with no other beside it.
    let alone = out.path().join("tuplane-testbed");
    std::fs::copy(env!("CARGO_BIN_EXE_tuplane-testbed"), &alone).unwrap();
    let results = out.path().join("results");
    let refused =
        Command::new(&alone).args(["paper", "stela", "--quick", "--out"]).arg(&results).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("cargo build --release"), "{said}");
    assert!(!results.exists());
    let slip = stela(&["--planner", "bets", "--out", to]);
    let said = String::from_utf8_lossy(&slip.stderr).into_owned();
    assert!(slip.status.code() == Some(2) && said.contains("did you mean `best`?"), "{said}");
}
