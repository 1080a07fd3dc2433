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
    let empty = Job::parse("name = \"\"\nstage = [{ id = \"s\", op = \"source\" }]", FileFormat::Toml);
    assert!(empty.unwrap_err()[0].message.contains("is empty"));
    for name in ["3", "007", ".", "..", "a/b", "a\nb", "\u{1b}[2J", "-x", "--yes"] {
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
            "2: stage `s` (source) has no `connector` (say what it reads: file, generator, nexmark, ids or trace)",
            "3: stage `t` (source) has no `path` (name a file, a glob or a list of them)",
            "4: stage `u` (source) has no `columns` (write columns = { name = \"type\" }, or header = true to take all as text)",
            "5: stage `v` (source) has no `columns` (write columns = { name = \"type\" })",
            "6: stage `m` (map) has no `select` (say the row it makes: [\"*\", \"expr as name\"])",
            "7: stage `f` (filter) has no `where` (say which rows it keeps)",
            "8: stage `x` (flat_map) has no `unnest` (say the list to unfold: \"words(line) as word\")",
            "9: stage `g` (group_by) has no `key` (say the expression to group by)",
            "10: stage `a` (aggregate) has no `compute` (say what it counts: [\"count(*) as n\"])",
            "11: stage `w` (work) has no `ms` (say how long a row takes)",
            "12: stage `o` (sink) has no `connector` (say where rows go: file, stdout, count or ledger)",
        ],
    );
}

#[test]
fn what_says_timestamps_says_where_they_stand() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 1, timestamps = "source" },
{ id = "r", op = "rebalance", in = "s", policy = "potus" },
{ id = "w", op = "window", in = "r", type = "tumbling", size = "1s" },
{ id = "a", op = "aggregate", in = "w", compute = "count(*) as n" },
{ id = "d", op = "map_using_service", in = "a", service = "own", select = "*" },
{ id = "o", op = "sink", in = "d", connector = "count" },
]
route = [{ edge = "a..d", policy = "shufle" }]"#,
        &["2: stage `s` says `timestamps`, and no `time` says where they stand (write time = \"column\")"],
    );
}

#[test]
fn state_and_order() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 1 },
{ id = "m", op = "map_stateful", in = "s", ttl = "1s" },
{ id = "f", op = "filter_stateful", in = "m", state = "0 as n" },
{ id = "x", op = "flat_map_stateful", in = "f", state = "0 as n", unnest = "range(0, n) as i" },
{ id = "r", op = "rolling_aggregate", in = "x" },
{ id = "b", op = "sort", in = "r" },
{ id = "o", op = "sink", in = "b", connector = "count" },
]"#,
        &[
            "3: stage `m` (map_stateful) has no `state` (say what a key begins with: [\"0 as seen\"])",
            "3: stage `m` (map_stateful) has no `select` (say the row it makes: [\"*\", \"seen\"])",
            "4: stage `f` (filter_stateful) has no `where` (say which rows it keeps: \"seen <= 3\")",
            "6: stage `r` (rolling_aggregate) has no `compute` (say what it counts: [\"count(*) as n\"])",
            "7: stage `b` (sort) has no `by` (say the order: [\"expr desc\"])",
        ],
    );
}

#[test]
fn joins() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 1 },
{ id = "t", op = "source", connector = "ids", n = 1 },
{ id = "j", op = "hash_join", in = ["s", "t"] },
{ id = "c", op = "co_aggregate", in = ["j", "t"], compute = { j = "count(*) as n" } },
{ id = "d", op = "distinct", in = "c" },
{ id = "g", op = "source", connector = "generator", kind = "words" },
{ id = "m", op = "map", in = "g", select = "*" },
{ id = "e", op = "hash_join", in = ["m", "d", "m"], on = ["line = n", "line = line"] },
{ id = "p", op = "sink", in = "e", connector = "count" },
{ id = "o", op = "sink", in = "d", connector = "count" },
{ id = "l", op = "source", connector = "trace", path = "t.csv", loop = true },
{ id = "r", op = "hash_join", in = ["s", "l"], on = "id = id" },
{ id = "q", op = "sink", in = "r", connector = "count" },
]"#,
        &[
            "4: stage `j` (hash_join) has no `on` (write one \"primary expr = enriching expr\" for each input after \
             the first)",
            "5: stage `c` (co_aggregate) has no `compute.t` (say what of `t` it counts: { t = [\"count(*) as n\"] })",
            "9: `e` joins with rows of `g`, which never ends: only its first input may be without end (give `g` an `n`)",
            "13: `r` joins with rows of `l`, which never ends: only its first input may be without end (give `l` `rows`)",
        ],
    );
}

#[test]
fn what_only_a_registry_knows_is_no_fault_and_is_said() {
    let text = r#"stage = [
{ id = "s", op = "source", connector = "kafka" },
{ id = "c", op = "custom_transform", in = "s", call = "dedup" },
{ id = "o", op = "sink", in = "c", connector = "stdot" },
]"#;
    missing(text, &[]);
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let said: Vec<String> =
        job.registered().iter().map(|fault| format!("{}: {}", fault.at.line, fault.message)).collect();
    assert_eq!(
        said,
        [
            "2: `kafka` is no built-in connector: types are unknown from here on",
            "3: `dedup` is an operator of a registry: types are unknown from here on",
            "4: `stdot` is no built-in connector (did you mean `stdout`?): only agents know whether they have it",
        ]
    );
    missing(
        &text.replace(", call = \"dedup\"", ""),
        &["3: stage `c` (custom_transform) has no `call` (name an operator that the agents' registry holds)"],
    );
}

#[test]
fn policies_of_a_registry_are_noted_and_a_slip_is_named() {
    let text = r#"stage = [
{ id = "s", op = "source" },
{ id = "r", op = "rebalance", in = "s", policy = "potus" },
{ id = "q", op = "rebalance", in = "s", policy = "best" },
{ id = "o", op = "sink", in = "r" },
{ id = "p", op = "sink", in = "q" },
]
route = [{ edge = "s..o", policy = "shufle" }]"#;
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let told: Vec<String> = job.registered_policies().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("`best` is no built-in policy: only agents know whether they have it"),
        "{told:?}"
    );
    assert!(told[1].contains("`shufle` is no built-in policy (did you mean `shuffle`?)"), "{told:?}");
}

#[test]
fn remarks_are_no_faults() {
    let text = r#"settings = "paper"
stage = [
{ id = "s", path = "x", op = "source" },
{ id = "w", op = "work", in = "s", ms = ["5ms", 1, 2], instances = 6 },
{ id = "v", op = "work", in = "w", ms = [1, 2], instances = 1 },
{ id = "u", op = "work", in = "v", ms = 1, instances = 3 },
{ id = "o", op = "sink", in = "u", path = "out" },
]"#;
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    assert_eq!(job.runnable(), Ok(()), "a path alone means files");
    let told: Vec<String> = job.remarks().into_iter().map(|remark| remark.message).collect();
    assert_eq!(
        told,
        [
            "settings = \"paper\": rows are dealt one by one, policies and planners are as published, and so is what counts as congested",
            "`ms` of stage `w` has 3 values for 6 instances: the last serves the rest",
            "`ms` of stage `v` has 2 values for 1 instances: those at the end are not used",
        ]
    );
    assert_eq!(job.times_of_work("w", 3), None);
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

#[test]
fn a_service_call_needs_its_parts() {
    missing(
        r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 1 },
{ id = "a", op = "map_using_service", in = "s" },
{ id = "b", op = "filter_using_service", in = "a", service = "geo", args = ["id"] },
{ id = "c", op = "flat_map_using_service_async", in = "b", service = "http", batched = true },
{ id = "d", op = "map_using_service", in = "c", service = "http", url = "x", body = "y", select = "*" },
{ id = "e", op = "map_using_service", in = "d", service = "http", url = "x", select = "*" },
{ id = "p", op = "peek", in = "e" },
{ id = "o", op = "sink", in = "p", connector = "count" },
]"#,
        &[
            "3: stage `a` (map_using_service) has no `service` \
             (say what is called: service = \"http\", or one that the agents' registry holds)",
            "4: stage `b` (filter_using_service) has no `where` (say which rows it keeps: \"status = 200\")",
            "5: stage `c` (flat_map_using_service_async) has no `url` \
             (say what is asked, as an expression: \"'http://host/items/' || id\")",
            "5: stage `c` (flat_map_using_service_async) has no `unnest` \
             (say the list to unfold: \"string_to_array(response, ',') as item\")",
            "5: stage `c` sends several rows at once, and has no `body` \
             (set `body` to what each row gives, and method = \"POST\"; or take `batched` away)",
            "6: stage `d` sends a `body` with GET (set method = \"POST\", or take `body` away)",
        ],
    );
}

#[test]
fn a_rebalance_that_costs_rows_is_warned_of() {
    let text = r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 9 },
{ id = "r", op = "rebalance", in = "s", key = "id" },
{ id = "t", op = "add_timestamps", in = "r", time = { column = "id", format = "unix" } },
{ id = "o", op = "sink", in = "t", connector = "count" },
]"#;
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let warnings = job.ready([]).unwrap();
    assert_eq!((warnings.len(), warnings[0].at.line), (1, 3), "{warnings:?}");
    assert!(warnings[0].message.contains("mixes the rows of several instances"), "{}", warnings[0].message);
}
