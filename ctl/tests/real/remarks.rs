//! What commands say beside a result, on which stream, and when they return.

use std::process::Output;

use super::world::{World, text};

/// Numbers from a file to a sink.
fn numbers(world: &World, name: &str, sink: &str) -> String {
    world.file(
        &format!("{name}.toml"),
        format!(
            "name = \"{name}\"\n[[stage]]\nid = \"in\"\nop = \"source\"\npath = \"{name}.csv\"\nformat = \"csv\"\n\
             columns = {{ n = \"int\" }}\n[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"in\"\n{sink}\n"
        ),
    )
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_source_that_leaves_out_every_line_is_said_in_capitals() {
    let world = World::new();
    world.file("bad.csv", "one\ntwo\nthree\n");
    let job = numbers(&world, "bad", "connector = \"count\"");
    let output = world.tuplane(&["run", &job, "--agents", "1", "-q"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = err(&output);
    assert!(
        said.contains("NOTHING WAS READ: `in` left out every line of its input, 3 lines (bad_line)"),
        "{said}"
    );
    assert!(said.contains("bad.csv:3: column `n`: `three`"), "the last: {said}");
    assert!(
        said.contains("(the first of this instance: ") && said.contains("bad.csv:1: column `n`: `one`"),
        "the first one: {said}"
    );
    // One good line, and it is an ordinary warning.
    world.file("bad.csv", "one\n2\nthree\n");
    let said = err(&world.tuplane(&["run", &job, "--agents", "1"]));
    assert!(said.contains("warning: 2 lines left out (bad_line) by `in`; last: "), "{said}");
}

#[test]
fn rows_that_an_expression_dropped_are_counted_aloud() {
    let world = World::new();
    world.file("in.txt", "1\nx\n3\n");
    let job = "name = \"d\"\non_error = \"drop\"\n[[stage]]\nid = \"in\"\nop = \"source\"\npath = \"in.txt\"\n\
               [[stage]]\nid = \"n\"\nop = \"map\"\nin = \"in\"\nselect = [\"cast(line as int) as n\"]\n\
               [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"n\"\nconnector = \"count\"\n";
    let output = world.tuplane(&["run", &world.file("d.toml", job), "--agents", "1"]);
    assert!(output.status.success(), "{}", text(&output));
    let said = err(&output);
    assert!(said.contains("warning: 1 row left out (expression) by `n`; last: "), "{said}");
    assert!(said.contains("in.txt, line 2"), "{said}");
}

#[test]
fn a_failed_job_with_a_stdout_sink_leaves_standard_output_empty() {
    let world = World::new();
    world.file("f.csv", "1\nx\n");
    let job = numbers(&world, "f", "connector = \"stdout\"");
    let output = world.tuplane(&["run", &job, "--agents", "1", "--set", "in.on_bad_line=fail"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(output.stdout.is_empty(), "{}", text(&output));
    assert!(err(&output).contains("guarantee: "), "the summary is on standard error: {}", text(&output));
}

#[test]
fn a_run_names_its_cluster_as_it_was_told() {
    let world = World::new();
    world.file("n.csv", "1\n");
    let job = numbers(&world, "n", "connector = \"count\"");
    let document = world.json(&["run", &job, "--agents", "1", "--cluster", "mine"]);
    assert_eq!(document["cluster"], "mine");
    // The environment names a cluster that runs, which this is not.
    let output = world
        .command(&["run", &job, "--agents", "1", "-o", "json"])
        .env("TUPLANE_CLUSTER", "another")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"cluster\": \"run-"), "{}", text(&output));
}

#[test]
fn a_submit_returns_when_the_job_runs_and_says_what_becomes_of_its_times() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let job = "name = \"w\"\nmemory = \"1TiB\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"generator\"\n\
               kind = \"sequence\"\nrate = 100\n[[stage]]\nid = \"work\"\nop = \"work\"\nin = \"in\"\n\
               ms = [1, \"2ms\", 3]\n[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"work\"\nconnector = \"count\"\n";
    let file = world.file("w.toml", job);
    let output = world.tuplane(&["submit", &file]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("job w runs, as run "), "{}", text(&output));
    assert!(
        err(&output)
            .contains("`ms` of stage `work` has 3 values for 2 instances: those at the end are not used"),
        "{}",
        text(&output)
    );
    assert!(err(&output).contains("`memory` of the job is 1.0 TiB"), "{}", text(&output));
    let changed = world.tuplane(&["set", "w", "work.ms=1"]);
    assert!(changed.status.success(), "at once: {}", text(&changed));
    let verbose = world.tuplane(&["status", "w", "-v"]);
    let shown = String::from_utf8_lossy(&verbose.stdout).into_owned();
    assert!(shown.contains("QUEUE OUT") && shown.contains("work#1"), "{shown}");
    let status = world.status("w");
    assert_eq!(
        status["per_instance"].as_array().unwrap().len() as u64,
        status["instances"].as_u64().unwrap()
    );
    let waited = world.tuplane(&["submit", &file, "--wait", "1s", "--name", "second"]);
    assert_eq!(waited.status.code(), Some(4), "{}", text(&waited));
    world.json(&["cancel", "w", "--yes"]);
    world.json(&["cancel", "second", "--yes"]);
}

#[test]
fn what_an_unfinished_run_left_is_named_by_the_next_and_fetched_by_nobody() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "1"]);
    world.file("p.csv", "1\n2\n");
    let job = numbers(&world, "p", "path = \"out\"");
    std::fs::create_dir(world.path("out")).unwrap();
    world.file("out/.out-0-1-7.csv.part", "n\n1\n");
    world.file("out/.other-0-1-7.csv.part", "n\n1\n");
    let output = world.tuplane(&["submit", &job, "--wait"]);
    assert!(output.status.success(), "{}", text(&output));
    let said = err(&output);
    assert!(
        said.contains("1 hidden file of runs that did not finish") && said.contains(".out-0-1-7.csv.part"),
        "{said}"
    );
    assert!(!said.contains(".other-"), "{said}");
    let counting = numbers(&world, "p", "connector = \"count\"");
    world.json(&["submit", &counting, "--wait", "--name", "counted"]);
    let to = world.path("to");
    let fetched = world.tuplane(&["fetch", "counted", to.to_str().unwrap()]);
    assert_eq!(fetched.status.code(), Some(2), "{}", text(&fetched));
    assert!(err(&fetched).contains("has no file to fetch") && !to.exists(), "{}", text(&fetched));
}
