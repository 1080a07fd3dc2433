//! What a job needs to run, beyond what it needs to be planned.

use tuplane_core::job::{FileFormat, Job};

#[track_caller]
fn missing(text: &str, expected: &[&str]) {
    let job = Job::parse(text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"));
    let told: Vec<String> = match job.runnable() {
        Ok(()) => Vec::new(),
        Err(faults) => faults
            .iter()
            .map(|fault| {
                format!("{}: {} ({})", fault.at.line, fault.message, fault.help.as_deref().unwrap_or("-"))
            })
            .collect(),
    };
    assert_eq!(told, expected);
}

#[test]
fn a_name_that_means_something_else_names_no_job() {
    let says = |name: &str| {
        let text = format!(
            "name = {}\nstage = [{{ id = \"s\", op = \"source\" }}]",
            serde_json::to_string(name).unwrap()
        );
        let mut job = Job::parse(&text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"));
        assert_eq!(job.name, name);
        job.stages.clear();
        job.runnable().err().map(|faults| faults[0].message.clone()).unwrap_or_default()
    };
    for name in ["", "3", "007", ".", "..", "a/b", "a\nb", "\u{1b}[2J", "-x", "--yes"] {
        let said = says(name);
        assert!(said.contains("cannot name a job") && !said.contains(['\n', '\u{1b}']), "{name:?}: {said}");
    }
    for name in ["words", "3a", "count-2", "a b", ".hidden", "日本"] {
        assert_eq!(says(name), "", "{name}");
    }
}

#[test]
fn functions_and_connectors() {
    missing(
        r#"stage = [
{ id = "s", op = "source" },
{ id = "t", op = "source", connector = "file" },
{ id = "u", op = "source", connector = "file", path = "x", format = "csv" },
{ id = "v", op = "source", connector = "file", path = "x", format = "jsonl" },
{ id = "m", op = "map", in = "s" },
{ id = "f", op = "filter", in = "m" },
{ id = "x", op = "flat_map", in = "f" },
{ id = "g", op = "group_by", in = "x" },
{ id = "a", op = "aggregate", in = "g" },
{ id = "w", op = "work", in = "a" },
{ id = "o", op = "sink", in = "w" },
]"#,
        &[
            "2: stage `s` (source) has no `connector` (say what it reads: file, generator, nexmark, ids or a registered name)",
            "3: stage `t` (source) has no `path` (name a file, a glob or a list of them)",
            "4: stage `u` (source) has no `columns` (write columns = { name = \"type\" }, or header = true to take all as text)",
            "5: stage `v` (source) has no `columns` (write columns = { name = \"type\" })",
            "6: stage `m` (map) has no `select` (say the row it makes: [\"*\", \"expr as name\"])",
            "7: stage `f` (filter) has no `where` (say which rows it keeps)",
            "8: stage `x` (flat_map) has no `unnest` (say the list to unfold: \"words(line) as word\")",
            "9: stage `g` (group_by) has no `key` (say the expression to group by)",
            "10: stage `a` (aggregate) has no `compute` (say what it counts: [\"count(*) as n\"])",
            "11: stage `w` (work) has no `ms` (say how long a row takes)",
            "12: stage `o` (sink) has no `connector` (say where rows go: file, stdout, count, ledger or a registered name)",
        ],
    );
}

#[test]
fn ops_and_policies_that_only_plan() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 1, timestamps = "source" },
{ id = "r", op = "rebalance", in = "s", policy = "potus" },
{ id = "w", op = "window", in = "r", type = "tumbling", size = "1s" },
{ id = "a", op = "aggregate", in = "w", compute = "count(*) as n" },
{ id = "d", op = "distinct", in = "a" },
{ id = "o", op = "sink", in = "d", connector = "count" },
]
route = [{ edge = "a..d", policy = "shufle" }]"#,
        &[
            "2: `timestamps` plans, but this version does not run it yet (-)",
            "3: this version does not run the policy `potus` yet (one of: round-robin, shuffle)",
            "4: `window` plans, but this version does not run it yet (-)",
            "6: `distinct` plans, but this version does not run it yet (-)",
            "9: there is no policy `shufle` (did you mean `shuffle`?)",
        ],
    );
}

#[test]
fn a_whole_job_runs() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "generator", kind = "words", n = 1 },
{ id = "t", op = "source", connector = "file", path = "x", format = "csv", header = true },
{ id = "u", op = "flat_map", in = "s", unnest = "words(line) as word" },
{ id = "r", op = "rebalance", in = "u", policy = "shuffle" },
{ id = "m", op = "merge", in = ["r", "t"] },
{ id = "w", op = "work", in = "m", ms = 1 },
{ id = "g", op = "group_by", in = "w", key = "word" },
{ id = "a", op = "aggregate", in = "g", compute = "count(*) as n" },
{ id = "o", op = "sink", in = "a", connector = "stdout" },
]"#,
        &[],
    );
}
