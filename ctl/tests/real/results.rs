//! Results on real input, whatever the number of agents.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

mod places;

use super::world::{World, assert_exact_ledger, csv_rows, shared, skip, text, workspace};

fn job(name: &str) -> String {
    workspace().join("testbed/jobs").join(name).to_str().unwrap().to_owned()
}

/// Counts words with so many agents; gives the rows.
fn word_count(world: &World, path: &str, agents: &str, more: &[&str]) -> Vec<Vec<String>> {
    let out = world.path(&format!("out-{agents}"));
    let (lines, sink) = (format!("lines.path={path}"), format!("out.path={}", out.display()));
    let wordcount = job("wordcount.toml");
    let mut args = vec!["run", wordcount.as_str(), "--agents", agents, "--set", &lines, "--set", &sink];
    args.extend(more);
    let document = world.json(&args);
    assert_eq!(document["phase"], "finished", "{document}");
    assert_exact_ledger(&document);
    let (header, rows) = csv_rows(&out);
    assert_eq!(header, "word,count");
    rows
}

fn total(rows: &[Vec<String>]) -> u64 {
    rows.iter().map(|row| row[1].parse::<u64>().unwrap()).sum()
}

fn count_of<'a>(rows: &'a [Vec<String>], word: &str) -> &'a str {
    &rows.iter().find(|row| row[0] == word).unwrap()[1]
}

#[test]
fn words_of_shakespeare_on_one_two_and_three_agents() {
    let test = "words_of_shakespeare";
    let Some(input) = shared(test, "data/text-shakespeare/tinyshakespeare.txt") else { return };
    let world = World::new();
    let mut first: Option<Vec<Vec<String>>> = None;
    for agents in ["1", "2", "3"] {
        let rows = word_count(&world, input.to_str().unwrap(), agents, &[]);
        assert_eq!((count_of(&rows, "the"), count_of(&rows, "and")), ("6279", "5479"), "{agents} agents");
        assert_eq!((rows.len(), total(&rows)), (23_641, 202_651), "{agents} agents");
        match &first {
            Some(first) => assert_eq!(&rows, first, "{agents} agents give another result than one"),
            None => first = Some(rows),
        }
    }
}

#[test]
fn words_of_many_files_that_are_not_all_utf8() {
    let Some(folder) = shared("words_of_many_files", "data/text-state-union") else { return };
    let world = World::new();
    let glob = format!("{}/*.txt", folder.display());
    let rows = word_count(&world, &glob, "3", &["--set", "lines.encoding=lossy"]);
    assert_eq!((total(&rows), count_of(&rows, "the")), (349_711, "20805"));
}

#[test]
fn words_from_standard_input() {
    let world = World::new();
    let out = world.path("out");
    let sink = format!("out.path={}", out.display());
    let wordcount = job("wordcount.toml");
    let mut child = world
        .command(&["run", &wordcount, "--agents", "2", "--set", "lines.path=-", "--set", &sink, "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"to be or\r\nnot TO be\n\nthat").unwrap();
    assert!(child.wait().unwrap().success());
    let (_, rows) = csv_rows(&out);
    let rows: Vec<(&str, &str)> = rows.iter().map(|r| (r[0].as_str(), r[1].as_str())).collect();
    assert_eq!(rows, [("be", "2"), ("not", "1"), ("or", "1"), ("that", "1"), ("to", "2")]);
}

#[test]
fn words_of_generated_text() {
    let world = World::new();
    let sink = format!("out.path={}", world.path("out").display());
    let document = world.json(&["run", &job("wordcount.toml"), "--set", &sink, "--set", "lines.n=1000"]);
    assert_eq!(document["phase"], "finished", "{document}");
    let (_, rows) = csv_rows(&world.path("out"));
    assert_eq!(total(&rows), 10_000);
}

#[test]
fn a_submitted_job_says_how_the_rows_of_a_stdout_sink_are_got() {
    let world = World::new();
    world.json(&["up", "--local", "1", "--cluster", "t", "--detach"]);
    let rows = "name = \"few\"\n[[stage]]\nid = \"rows\"\nop = \"source\"\nconnector = \"ids\"\nn = 3\n\
                [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"rows\"\nconnector = \"stdout\"\n";
    let output = world.tuplane(&["submit", &world.file("few.toml", rows)]);
    assert!(output.status.success(), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("`tuplane fetch 1 DIR` brings its rows"), "{said}");
    world.wait_for("few", "finished", std::time::Duration::from_secs(20));
    let folder = world.path("brought").display().to_string();
    let output = world.tuplane(&["fetch", "1", &folder]);
    assert!(output.status.success() && text(&output).contains("3 rows"), "{}", text(&output));
    assert!(world.tuplane(&["down", "--yes"]).status.success());
}

#[test]
fn an_empty_input_ends_well() {
    let world = World::new();
    let empty = world.file("empty.txt", "");
    let (lines, sink) = (format!("lines.path={empty}"), format!("out.path={}", world.path("out").display()));
    let output = world.tuplane(&["run", &job("wordcount.toml"), "--set", &lines, "--set", &sink]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("0 rows"), "{}", text(&output));
    let (header, rows) = csv_rows(&world.path("out"));
    assert_eq!((header.as_str(), rows.len()), ("word,count", 0));
}

#[test]
fn a_missing_file_and_a_glob_without_a_match_are_refused() {
    let world = World::new();
    for path in ["/nowhere/at/all.txt", "/nowhere/*.txt"] {
        let output = world.tuplane(&["run", &job("wordcount.toml"), "--set", &format!("lines.path={path}")]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(path), "{}", text(&output));
    }
}

#[test]
fn requests_by_status_and_client_equal_a_plain_script() {
    let test = "requests_by_status_and_client";
    let Some(input) = shared(test, "data/logs-apache-access/apache_logs") else { return };
    if Command::new("python3").arg("--version").output().is_err() {
        return skip(test, "python3");
    }
    let world = World::new();
    for (file, field) in [("apache-status.toml", "status"), ("apache-clients.toml", "client")] {
        let out = world.path(field);
        let log = format!("log.path={}", input.display());
        let sink = format!("out.path={}", out.display());
        let (job, to) = (job(file), "out.connector=file");
        let document =
            world.json(&["run", &job, "--agents", "3", "--set", &log, "--set", to, "--set", &sink]);
        assert_eq!(document["phase"], "finished");
        let (_, rows) = csv_rows(&out);
        let ours: BTreeMap<String, String> = rows.into_iter().map(|r| (r[0].clone(), r[1].clone())).collect();
        assert_eq!(ours, by_script(&input, field), "{file}");
    }
}

/// Requests by status or client, counted by a script that shares nothing with us.
fn by_script(input: &Path, field: &str) -> BTreeMap<String, String> {
    let script = r#"
import collections, re, sys
n = {"client": 0, "status": 1}[sys.argv[2]]
count = collections.Counter()
for line in open(sys.argv[1], encoding="utf-8"):
    m = re.match(r'(\S+) \S+ \S+ \[[^\]]*\] "(?:[^"\\]|\\.)*" (\d+) ', line)
    count[m.groups()[n]] += 1
for key, rows in count.items():
    print(key, rows)
"#;
    let output = Command::new("python3")
        .args(["-c", script])
        .arg(input)
        .arg(field)
        .output()
        .expect("python3 was there");
    assert!(output.status.success(), "{}", text(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str| line.split_once(' ').map(|(key, rows)| (key.to_owned(), rows.to_owned()));
    lines.lines().filter_map(pair).collect()
}
