//! A row that an expression cannot take is named by its file and line, wherever it met the expression.

use std::fmt::Write as _;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::real::world::{World, assert_exact_ledger, edge, text, vertex};

/// A source, dealt out over all agents, and a cast of its column `n`.
fn job(options: &str, source: &str) -> String {
    let spread = one("rebalance", "spread", "rows", "");
    let parsed = one("map", "parsed", "spread", "select = [\"cast(n as int) as n\"]");
    let sink = one("sink", "out", "parsed", "connector = \"count\"");
    format!(
        "name = \"places\"\n{options}\n[[stage]]\nid = \"rows\"\nop = \"source\"\nconnector = \"file\"\n{source}\n{spread}{parsed}{sink}"
    )
}

fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

fn three_agents() -> World {
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1"]);
    world
}

/// Runs a job that must fail; gives the sentence.
fn failure(world: &World, job: &str) -> String {
    let output = world.tuplane(&["submit", &world.file("job.toml", job), "--wait"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let status = world.status("places");
    assert_eq!(status["fault"]["kind"], "row", "{status}");
    assert_exact_ledger(&status);
    status["fault"]["message"].as_str().unwrap().to_owned()
}

/// Runs a job that must finish; gives its document.
fn success(world: &World, job: &str) -> Value {
    let output = world.tuplane(&["submit", &world.file("job.toml", job), "--wait"]);
    assert!(output.status.success(), "{}", text(&output));
    let status = world.status("places");
    assert_exact_ledger(&status);
    status
}

/// The notes of a vertex.
fn notes(status: &Value, name: &str) -> Vec<String> {
    let notes = vertex(status, name)["notes"].as_array().unwrap();
    notes.iter().map(|note| note.as_str().unwrap().to_owned()).collect()
}

/// csv of so many rows with line ends in quotes, and a bad number in some row; gives the line where that
/// row begins.
fn csv(rows: usize, bad: usize, end: &str) -> (String, usize) {
    let (mut csv, mut line, mut found) = (format!("name,n{end}"), 2, 0);
    for row in 0..rows {
        let name = if row % 7 == 3 { format!("\"a{end}b{end}c\"") } else { format!("name {row}") };
        let value = if row == bad { "abc".to_owned() } else { row.to_string() };
        if row == bad {
            found = line;
        }
        write!(csv, "{name},{value}{end}").unwrap();
        line += if row % 7 == 3 { 3 } else { 1 };
    }
    (csv, found)
}

#[test]
fn a_bad_number_of_a_csv_file_is_named_by_file_and_line() {
    let world = three_agents();
    for end in ["\n", "\r\n"] {
        // A row that begins before its quotes end, and one behind them.
        for bad in [4000, 3 + 7 * 400] {
            let (content, line) = csv(6000, bad, end);
            let path = world.file("access.csv", content);
            let source = format!("path = \"{path}\"\nformat = \"csv\"\nheader = true");
            assert_eq!(
                failure(&world, &job("", &source)),
                format!("stage parsed: cannot cast 'abc' to int ({path}, line {line})")
            );
        }
    }
}

#[test]
fn of_several_files_the_right_one_is_named() {
    let world = three_agents();
    let (first, _) = csv(6000, 9999, "\n");
    world.file("part-1.csv", first);
    let (second, line) = csv(3000, 1234, "\n");
    let path = world.file("part-2.csv", second);
    let glob = path.replace("part-2", "part-*");
    let source = format!("path = \"{glob}\"\nformat = \"csv\"\nheader = true");
    let said = failure(&world, &job("", &source));
    assert!(said.ends_with(&format!("({path}, line {line})")), "{said}");

    let mut jsonl = String::new();
    for row in 0..5000 {
        let value = if row == 3210 { "\"abc\"".to_owned() } else { format!("\"{row}\"") };
        // Blank lines are lines too.
        write!(jsonl, "{{\"n\": {value}, \"more\": [1]}}\n\n").unwrap();
    }
    let path = world.file("rows.jsonl", jsonl);
    let source = format!("path = \"{path}\"\nformat = \"jsonl\"\ncolumns = {{ n = \"text\" }}");
    let said = failure(&world, &job("", &source));
    assert!(said.ends_with(&format!("({path}, line {})", 2 * 3210 + 1)), "{said}");
}

/// Lines for a pattern, of so many bytes or more, with a bad one; gives its number.
fn lines(bytes: usize) -> (String, usize) {
    let (mut content, mut count) = (String::new(), 0);
    while content.len() < bytes {
        count += 1;
        writeln!(content, "n={count} and what else stands on such a line").unwrap();
    }
    content.push_str("n=abc and what else\nn=1 and the last\n");
    (content, count + 1)
}

const LINES: &str = "format = \"regex\"\npattern = '^n=(?<n>\\w+) '";

#[test]
fn a_file_that_was_cut_by_bytes_has_its_own_line_numbers() {
    let world = three_agents();
    let (content, line) = lines(2 << 20);
    let path = world.file("big.log", content);
    let said = failure(&world, &job("", &format!("path = \"{path}\"\nsplit = \"bytes\"\n{LINES}")));
    assert!(said.ends_with(&format!("({path}, line {line})")), "{said}");
}

#[test]
fn an_agents_own_file_is_looked_up_by_that_agent() {
    let world = three_agents();
    let (content, line) = lines(700 << 10);
    let path = world.file("own.log", content);
    let said = failure(&world, &job("", &format!("path = \"{path}\"\nfiles = \"each\"\n{LINES}")));
    assert!(said.ends_with(&format!("({path}, line {line})")), "{said}");
}

#[test]
fn a_line_of_standard_input_has_no_file() {
    let world = World::new();
    let (content, line) = csv(500, 400, "\r\n");
    let source = "path = \"-\"\nformat = \"csv\"\ncolumns = { name = \"text\", n = \"text\" }\nheader = true";
    let file = world.file("job.toml", job("", source));
    let mut child = world
        .command(&["run", &file, "--agents", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("stage parsed: cannot cast 'abc' to int (standard input, line {line})");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn rows_that_are_dropped_or_made_null_are_noted_with_their_place() {
    let world = three_agents();
    let (content, line) = csv(6000, 2500, "\n");
    let path = world.file("access.csv", content);
    let source = format!("path = \"{path}\"\nformat = \"csv\"\nheader = true");
    let expected = format!("cannot cast 'abc' to int ({path}, line {line})");
    for (on_error, left) in [("drop", 5999), ("null", 6000)] {
        let status = success(&world, &job(&format!("on_error = \"{on_error}\""), &source));
        assert_eq!(notes(&status, "parsed"), std::slice::from_ref(&expected), "{on_error}");
        assert_eq!(edge(&status, "rows..parsed")["taken"], 6000, "{status}");
        assert_eq!(edge(&status, "parsed..out")["taken"], left, "{status}");
        let dropped = vertex(&status, "parsed")["dropped"]["expression"].as_u64().unwrap_or(0);
        assert_eq!(dropped, 6000 - left, "{status}");
        assert_eq!(status["result_rows"], left, "{status}");
    }
}

#[test]
fn a_key_and_an_argument_of_an_aggregate_name_their_row() {
    let world = three_agents();
    let (content, line) = csv(6000, 2500, "\n");
    let path = world.file("access.csv", content);
    let source = format!("path = \"{path}\"\nformat = \"csv\"\nheader = true");
    let at = format!("cannot cast 'abc' to int ({path}, line {line})");
    let counted = |options: &str, via: &str, key: &str, compute: &str| {
        let head = format!(
            "name = \"places\"\n{options}\n[[stage]]\nid = \"rows\"\nop = \"source\"\nconnector = \"file\"\n{source}\n"
        );
        head + via
            + &one(
                "group_by",
                "by",
                if via.is_empty() { "rows" } else { "spread" },
                &format!("key = \"{key}\""),
            )
            + &one("aggregate", "counts", "by", &format!("compute = [\"{compute}\"]"))
            + &one("sink", "out", "counts", "connector = \"count\"")
    };
    let sum = "sum(cast(n as int)) as total";
    let spread = one("rebalance", "spread", "rows", "");
    for via in ["", spread.as_str()] {
        let said = failure(&world, &counted("", via, "length(name)", sum));
        assert_eq!(said, format!("stage counts: {at}"));
        let dropping =
            success(&world, &counted("on_error = \"drop\"", via, "cast(n as int)", "count(*) as rows"));
        assert_eq!(edge(&dropping, "counts..out")["taken"], 5999, "{dropping}");
        let of = |name: &str| vertex(&dropping, name)["dropped"]["expression"].as_u64().unwrap_or(0);
        let names = dropping["vertices"].as_array().unwrap().iter().map(|v| v["vertex"].as_str().unwrap());
        assert_eq!(names.map(of).sum::<u64>(), 1, "the row is counted once: {dropping}");
    }
    // The key is computed where rows leave for the stage that it brings together, and named by its own.
    for via in ["", spread.as_str()] {
        assert_eq!(
            failure(&world, &counted("", via, "cast(n as int)", "count(*) as rows")),
            format!("stage by: {at}")
        );
    }
}

#[test]
fn sinks_write_no_places_and_a_merge_keeps_those_that_there_are() {
    let world = three_agents();
    let path = world.file("in.txt", "1\n2\nthree\n4\n");
    let folder = world.path("out");
    // The raw rows go to a sink from a stage whose other reader needs their places.
    let job = [
        "name = \"places\"\non_error = \"drop\"\n[[stage]]\nid = \"rows\"\nop = \"source\"\n".to_owned(),
        format!("connector = \"file\"\npath = \"{path}\"\n"),
        "[[stage]]\nid = \"made\"\nop = \"source\"\nconnector = \"generator\"\nkind = \"words\"\nn = 3\n"
            .to_owned(),
        "[[stage]]\nid = \"both\"\nop = \"merge\"\nin = [\"rows\", \"made\"]\n".to_owned(),
        one("work", "worked", "both", "ms = 0"),
        one(
            "sink",
            "out",
            "worked",
            &format!("connector = \"file\"\npath = \"{}\"\nformat = \"csv\"", folder.display()),
        ),
        one("filter", "digits", "worked", "where = \"length(line) < 10\""),
        one("map", "parsed", "digits", "select = [\"cast(line as int) as n\"]"),
        one("sink", "numbers", "parsed", "connector = \"count\""),
    ];
    let status = success(&world, &job.concat());
    assert_eq!(edge(&status, "worked..out")["taken"], 7, "{status}");
    assert_eq!(
        notes(&status, "digits+parsed"),
        [format!("stage parsed: cannot cast 'three' to int ({path}, line 3)")]
    );
    assert_eq!(edge(&status, "digits+parsed..numbers")["taken"], 3, "{status}");
    let mut lines = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let content = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(content.lines().next(), Some("line"), "{content}");
        lines += content.lines().count() - 1;
    }
    assert_eq!(lines, 7);
}
