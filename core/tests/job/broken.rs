//! Broken job files: every fault is named with its line, all of a file in one pass.

use tuplane_core::fault::Fault;
use tuplane_core::job::{FileFormat, Job};

/// The faults of a text that must not parse, as `line: message (help)`.
fn faults(text: &str, format: FileFormat) -> Vec<String> {
    match Job::parse(text, format) {
        Ok(job) => panic!("parsed as {job:?}"),
        Err(faults) => faults.iter().map(line).collect(),
    }
}

fn line(fault: &Fault) -> String {
    let help = fault.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{}: {}{help}", fault.at.line, fault.message)
}

#[track_caller]
fn toml(text: &str, expected: &[&str]) {
    assert_eq!(faults(text, FileFormat::Toml), expected, "in\n{text}");
}

#[track_caller]
fn json(text: &str, expected: &[&str]) {
    assert_eq!(faults(text, FileFormat::Json), expected, "in\n{text}");
}

/// A source, the stages in question, and a sink of `last`.
fn around(stages: &str, last: &str) -> String {
    format!(
        r#"stage = [
{{ id = "src", op = "source" }},
{stages}
{{ id = "out", op = "sink", in = "{last}" }},
]"#
    )
}

// The structural eight of the ten broken files; the other two need types.

#[test]
fn cycle_is_named_once_and_whole() {
    let text = r#"
[[stage]]
id = "src"
op = "source"

[[stage]]
id = "a"
op = "merge"
in = ["src", "c"]

[[stage]]
id = "b"
op = "map"
in = "a"

[[stage]]
id = "c"
op = "map"
in = "b"

[[stage]]
id = "out"
op = "sink"
in = "c"
"#;
    toml(
        text,
        &["9: the stages form a cycle: `a` -> `b` -> `c` -> `a` \
           (rows flow from sources to sinks; take one of these inputs away)"],
    );
}

#[test]
fn two_cycles_are_two_faults() {
    let text = around(
        r#"{ id = "a", op = "merge", in = ["src", "b"] },
{ id = "b", op = "map", in = "a" },
{ id = "c", op = "merge", in = ["b", "d"] },
{ id = "d", op = "map", in = "c" },"#,
        "d",
    );
    let help = " (rows flow from sources to sinks; take one of these inputs away)";
    toml(
        &text,
        &[
            &format!("3: the stages form a cycle: `a` -> `b` -> `a`{help}"),
            &format!("5: the stages form a cycle: `c` -> `d` -> `c`{help}"),
        ],
    );
}

#[test]
fn self_loop() {
    let text = r#"{
  "stages": [
    {"id": "src", "op": "source"},
    {"id": "m", "op": "map",
     "in": "m"},
    {"id": "out", "op": "sink", "in": "m"}
  ]
}"#;
    json(text, &["5: stage `m` reads itself (name the stage that comes before it)"]);
}

#[test]
fn unknown_input_one_letter_off() {
    let text = around(r#"{ id = "parsed", op = "map", in = "scr" },"#, "prased");
    toml(
        &text,
        &[
            "3: stage `parsed` reads `scr`, and there is no such stage (did you mean `src`?)",
            "4: stage `out` reads `prased`, and there is no such stage (did you mean `parsed`?)",
        ],
    );
}

#[test]
fn duplicate_id_names_the_first_place() {
    let text = around(
        r#"{ id = "m", op = "map", in = "src" },
{ id = "m", op = "map", in = "src" },"#,
        "m",
    );
    toml(
        &text,
        &["4: the id `m` is taken; its first stage stands in line 3 (give one of the two another id)"],
    );
}

#[test]
fn stage_without_input() {
    let text = "name = \"x\"\n\n[[stage]]\nop = \"map\"\nid = \"m\"\n\n[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"m\"\n";
    toml(
        text,
        &["5: stage `m` has no input (`map` reads another stage: add in = \"..\" with that stage's id)"],
    );
}

#[test]
fn sink_as_input() {
    let text = r#"{"stages": [
{"id": "src", "op": "source"},
{"id": "out", "op": "sink", "in": "src"},
{"id": "m", "op": "map", "in": "out"},
{"id": "out2", "op": "sink", "in": "m"}
]}"#;
    json(
        text,
        &[
            "4: stage `m` reads `out`, which is a sink (nothing can be read from a sink; read the stage before it)",
        ],
    );
}

#[test]
fn unknown_key_with_suggestion() {
    let text = around(
        r#"{ id = "m", op = "map", in = "src",
  selct = ["*"], paralellism = 2 },"#,
        "m",
    );
    toml(
        &text.replace("]\n}", "]}"),
        &[
            "4: unknown key `selct` in stage `m` (did you mean `select`?)",
            "4: unknown key `paralellism` in stage `m` (did you mean `parallelism`?)",
        ],
    );
}

#[test]
fn parallelism_zero_or_absurd() {
    let text = around(
        r#"{ id = "m", op = "map", in = "src", parallelism = 0 },
{ id = "n", op = "map", in = "m", instances = 5000 },
{ id = "o", op = "map", in = "n", parallelism = 2.5 },
{ id = "p", op = "map", in = "o", parallelism = "two" },"#,
        "p",
    );
    toml(
        &text,
        &[
            "3: `parallelism` of stage `m` is 0; it must be 1 to 4096",
            "4: `instances` of stage `n` is 5000; it must be 1 to 4096",
            "5: `parallelism` of stage `o` is 2.5; it must be a whole number, 1 to 4096",
            "6: `parallelism` of stage `p` must be a whole number, 1 to 4096, not text",
        ],
    );
}

#[test]
fn all_faults_of_a_file_in_one_pass_and_in_file_order() {
    let text = r#"nam = "x"

[job]
memory = "64 MB!"

[[stage]]
id = "src"
op = "source"
in = "m"

[[stage]]
id = "m"
op = "mpa"
in = "srcs"

[[stage]]
id = "w?"
op = "filter"
parallelism = 0

[[stage]]
id = "out"
op = "sink"
in = "w?"
conector = "file"
"#;
    toml(
        text,
        &[
            "1: unknown key `nam` in the job (did you mean `name`?)",
            "4: `memory` of [job] is not a size (write a number and B, kB, MB, GB, KiB, MiB, GiB or TiB: \"64MiB\")",
            "9: stage `src` is a source and cannot have an input (take `in` away, or give the stage another op)",
            "9: stage `src` reads `m`, which is defined later, in line 12 (move `m` up, before `src`)",
            "13: there is no op `mpa` (did you mean `map`?)",
            "14: stage `m` reads `srcs`, and there is no such stage (did you mean `src`?)",
            "17: `w?` cannot be the id of a stage (an id is made of letters, digits, `_` and `-`, \
             and does not begin with `-`; `name` is free text)",
            "17: stage `w?` has no input (`filter` reads another stage: add in = \"..\" with that stage's id)",
            "19: `parallelism` of stage `w?` is 0; it must be 1 to 4096",
            "25: unknown key `conector` in stage `out` (did you mean `connector`?)",
        ],
    );
}

// More of the same kind.

#[test]
fn later_input_is_told_to_move() {
    let text = around(
        r#"{ id = "a", op = "map", in = "b" },
{ id = "b", op = "map", in = "src" },"#,
        "a",
    );
    toml(&text, &["3: stage `a` reads `b`, which is defined later, in line 4 (move `b` up, before `a`)"]);
}

#[test]
fn ids_names_and_ops() {
    let long = "x".repeat(65);
    let text = format!(
        r#"[[stage]]
op = "source"

[[stage]]
id = "-a"
op = "source"

[[stage]]
id = "{long}"
op = "source"

[[stage]]
id = "b"

[[stage]]
id = 7
op = "source"

[[stage]]
id = ""
op = "source"
"#
    );
    toml(
        &text,
        &[
            "1: stage number 1 has no `id` (other stages name their inputs by id)",
            "5: `-a` cannot be the id of a stage (an id is made of letters, digits, `_` and `-`, \
             and does not begin with `-`; `name` is free text)",
            &format!(
                "9: the id `{long}` has 65 characters; at most 64 are allowed (`name` may hold the long form)"
            ),
            "13: stage `b` has no `op` (say what the stage does, such as op = \"map\")",
            "16: `id` of stage number 5 must be text, not a number",
            "20: `id` of stage number 6 is empty",
        ],
    );
}

#[test]
fn number_of_inputs() {
    let text = around(
        r#"{ id = "m", op = "merge", in = "src" },
{ id = "n", op = "hash_join" },
{ id = "o", op = "map", in = ["src", "m"] },
{ id = "p", op = "map", in = [] },
{ id = "q", op = "map", in = 3 },"#,
        "o",
    );
    toml(
        &text,
        &[
            "3: stage `m` has one input; `merge` takes two or more (write in = [\"a\", \"b\"])",
            "4: stage `n` has no input; `hash_join` takes two or more (write in = [\"a\", \"b\"])",
            "5: stage `o` has 2 inputs; `map` takes one (put a `merge` before it)",
            "6: `in` of stage `p` is an empty list",
            "7: `in` of stage `q` must be text or a list of texts, not a number",
        ],
    );
}

#[test]
fn what_may_follow_a_grouped_or_windowed_stage() {
    let text = around(
        r#"{ id = "g", op = "group_by", in = "src", key = "k" },
{ id = "m", op = "map", in = "g" },
{ id = "w", op = "window", in = "g", type = "tumbling" },
{ id = "f", op = "map_stateful", in = "w" },
{ id = "h", op = "group_by", in = "w", key = "k" },
{ id = "a", op = "aggregate", in = "h" },
{ id = "c", op = "co_aggregate", in = ["w", "src"] },"#,
        "g",
    );
    let after_group = "what may follow: aggregate, co_aggregate, distinct, window, custom_transform, \
                       a stateful op or a service call";
    toml(
        &text,
        &[
            &format!("4: stage `m` (map) cannot follow a `group_by` ({after_group})"),
            "6: stage `f` (map_stateful) cannot follow a `window` \
             (what may follow: aggregate, co_aggregate or group_by)",
            "9: stage `c` aggregates by key, but its input `src` has none \
             (put a `group_by` before every input, or before none)",
            &format!("10: stage `out` (sink) cannot follow a `group_by` ({after_group})"),
        ],
    );
}

#[test]
fn parallelism_where_the_op_fixes_it() {
    let text = around(
        r#"{ id = "g", op = "group_by", in = "src", key = "k", parallelism = 2 },
{ id = "a", op = "aggregate", in = "g", parallelism = 2, instances = 3 },
{ id = "t", op = "add_timestamps", in = "a", instances = 3 },
{ id = "one", op = "sink", in = "t", type = "total_parallelism_one", instances = 2 },"#,
        "t",
    );
    toml(
        &text,
        &[
            "3: stage `g` cannot have `parallelism`: `group_by` makes no vertex, so it has no instances \
             (take `parallelism` away)",
            "4: stage `a` has both `parallelism` and `instances` \
             (`parallelism` counts on every agent, `instances` counts in all; keep one)",
            "5: stage `t` cannot have `instances`: `add_timestamps` has as many instances as the stage before it \
             (take `instances` away)",
            "6: stage `one` cannot have `instances`: a sink of type `total_parallelism_one` has one instance \
             (take `instances` away)",
        ],
    );
}

#[test]
fn keys_of_another_connector_or_op_say_where_they_belong() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "file", path = "x", header = true },
{ id = "b", op = "source", connector = "generator", kind = "words", path = "x" },
{ id = "c", op = "source", connector = "fiel", path = "x" },
{ id = "d", op = "map", in = "a", policy = "shuffle" },
{ id = "r", op = "rebalance", in = "a", policy = "shuffle", v = 3 },
{ id = "s", op = "rebalance", in = "a", gamma = 3 },
{ id = "e", op = "sink", in = "d", connector = "count", path = "x" },
]"#;
    toml(
        text,
        &[
            "2: unknown key `header` in stage `a` (`header` belongs to format = \"csv\")",
            "3: unknown key `path` in stage `b` (`path` belongs to connector = \"file\")",
            "4: there is no connector `fiel`; did you mean `file`? \
             (one of: file, generator, nexmark, ids, trace; one of your own takes its options in `with`, not as `path`)",
            "5: unknown key `policy` in stage `d` \
             (a policy stands on an edge: put it on a `rebalance`, or in [[route]])",
            "6: unknown key `v` in stage `r` (the policy `shuffle` has no options)",
            "7: unknown key `gamma` in stage `s` \
             (`gamma` belongs to a policy; add policy = \"potus\" or another that takes it)",
            "8: unknown key `path` in stage `e` (`path` belongs to connector = \"file\" or \"ledger\")",
        ],
    );
}

#[test]
fn options_that_exclude_or_need_each_other() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "file", path = "x", format = "csv", split = "bytes", delimiter = ";;" },
{ id = "b", op = "source", connector = "file", path = "x", format = "regex" },
{ id = "c", op = "source", connector = "ids" },
{ id = "d", op = "source", connector = "nexmark", kind = "batch" },
{ id = "r", op = "rebalance", in = "a", key = "k", policy = "shuffle" },
{ id = "e", op = "sink", in = "r", connector = "file" },
{ id = "f", op = "sink", in = "r", type = "partitioned" },
{ id = "g", op = "sink", in = "r", key = "k" },
{ id = "h", op = "window", in = "r", type = "tumbling", slide = "1s", size = "0s" },
{ id = "i", op = "window", in = "r", type = "session", gap = "1s", size = "5s" },
{ id = "j", op = "window", in = "r", type = "sliding", slide = "10s", size = "5s" },
{ id = "k", op = "window", in = "r" },
]"#;
    toml(
        text,
        &[
            "2: a csv file whose fields may hold line ends cannot be cut by bytes \
             (add `quoted_newlines = false`, or set split = \"file\")",
            "2: `delimiter` must be one ASCII character, and no quote or line end (such as \",\", \";\" or \"\\t\")",
            "3: stage `b` has no `pattern` (its named groups, (?<name>..), become columns)",
            "4: stage `c` has no `n` (say how many rows there are)",
            "5: a source of kind `batch` has an end, but nothing says how many events there are \
             (add `n`, or set kind = \"stream\")",
            "6: stage `r` has both `key` and `policy` \
             (a key decides where a row goes, so no policy can choose; keep one of them)",
            "7: stage `e` has no `path` (name the folder that the sink writes into)",
            "8: stage `f` has no `key` (a partitioned sink routes rows by it)",
            "9: only a partitioned sink has a `key` \
             (add type = \"partitioned\" or \"distributed_partitioned\", or take `key` away)",
            "10: only a window of type `sliding` has `slide` (set type = \"sliding\", or take `slide` away)",
            "10: `size` of stage `h` is 0; it must be more",
            "11: a session window has `gap` or `size`, which mean the same; keep one",
            "12: `slide` is longer than `size`, so rows between would be lost (make `slide` at most `size`)",
            "13: stage `k` has no `type` (type = \"tumbling\", \"sliding\" or \"session\")",
        ],
    );
}

#[test]
fn values_of_the_wrong_kind() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "file", path = ["x", 3, ""], format = "cvs", rate = 0 },
{ id = "b", op = "source", distributed = "yes", max_row = "big", rate = nan, time = { lateness = "soon" } },
{ id = "m", op = "map", in = "a", select = 3 },
{ id = "n", op = "co_aggregate", in = ["a", "m"], compute = { a = "count(*) as n", n = ["count(*) as n"] } },
{ id = "o", op = "hash_join", in = ["a", "m", "n"], on = "a.x = m.x" },
{ id = "p", op = "work", in = "a", ms = [1, -2, "x"], mode = "nap" },
{ id = "q", op = "peek", in = "a", sample = "10 per second" },
{ id = "r", op = "custom_transform", in = "a", with = 3 },
"three",
]
route = [
{ edge = "a..mm", policy = "shuffle" },
{ edge = "a-m", policy = "shuffle" },
{ edge = "a..m" },
{ edge = "m/prepare:0..n:1", policy = "potus", v = "balance", beta = 0, slot = "x", admission = "lax" },
{ edge = "a..m", policy = "potus", window = 3 },
]
"#;
    toml(
        text,
        &[
            "2: `path` of stage `a` must be text, not a number",
            "2: `path` of stage `a` is empty",
            "2: `format` of stage `a` cannot be `cvs` (did you mean `csv`?)",
            "2: `rate` of stage `a` is 0; it must be more",
            "3: `distributed` of stage `b` must be true or false, not text",
            "3: `max_row` of stage `b` is not a size (write a number and B, kB, MB, GB, KiB, MiB, GiB or TiB: \"64MiB\")",
            "3: `rate` of stage `b` is NaN; it must be 0 or more",
            "3: `time` of stage `b` has no `column` (the column or expression that holds the time)",
            "3: `lateness` of `time` of stage `b` is not a duration \
             (write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\")",
            "4: `select` of stage `m` must be text or a list of texts, not a number",
            "5: `compute` names `n`, which is no input of the stage (did you mean `a`?)",
            "6: `on` has 1 entries for 2 enriching inputs (one \"primary expr = enriching expr\" per input after the first)",
            "7: `ms` of stage `p` is -2; it must be 0 or more",
            "7: `ms` of stage `p` is not a duration \
             (write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\")",
            "7: `mode` of stage `p` cannot be `nap` (one of: sleep, spin)",
            "8: `sample` cannot be `10 per second` (rows per second, such as \"10/s\")",
            "9: `with` of stage `r` must be a table, not a number",
            "10: stage number 9 must be a table, not text",
            "13: the edge names `mm`, and there is no such stage (did you mean `m`?)",
            "14: `a-m` does not name an edge \
             (write `from..to` with the ids of two stages, or `from:ordinal..to:ordinal`)",
            "15: [[route]] has no `policy` (name the policy that the edge shall have)",
            "16: `beta` of [[route]] is a number above 0 (from 1/65536 to 1073741824) or \"capacity\"",
            "16: `slot` of [[route]] is not a duration \
             (write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\")",
            "16: `admission` of [[route]] is \"strict\" or \"relaxed\"",
            "17: the edge `a..m` has two entries; the other stands in line 15 (keep one of them)",
            "17: unknown key `window` in [[route]] (`window` stands on the source, not on an edge)",
        ],
    );
}

#[test]
fn job_options() {
    let text = r#"memory = "1GB"
overflow = "grwo"
[job]
settings = "papers"
memory = 7
partitions = 70000
placement = "t-heron"
preserve_order = 1
[[stage]]
id = "a"
op = "source"
"#;
    toml(
        text,
        &[
            "2: `overflow` of [job] cannot be `grwo` (did you mean `grow`?)",
            "4: `settings` of [job] cannot be `papers` (did you mean `paper`?)",
            "5: `memory` stands both in [job] and at the top level (keep one; the other stands in line 1)",
            "5: `memory` of [job] is 7 bytes; it must be at least 1MiB",
            "6: `partitions` of [job] is 70000; it must be 1 to 65535",
            "7: `placement` of [job] cannot be `t-heron` (did you mean `t_heron`?)",
            "8: `preserve_order` of [job] must be true or false, not a number",
        ],
    );
    toml("", &["1: the job has no `stage` (a job is a list of stages: [[stage]] with `id` and `op`)"]);
    json("[]", &["1: the job must be a table, not a list"]);
    json(r#"{"stages": []}"#, &["1: the job has no stages (each needs an `id` and an `op`)"]);
    json(
        r#"{"stages": {"id": "a"}}"#,
        &[
            "1: `stage` must be a list of tables, not a table (write [[stage]] in TOML, \"stages\": [..] in JSON)",
        ],
    );
    json(
        r#"{"stages": [{"id":"a","op":"source"}], "stage": [{"id":"a","op":"source"}]}"#,
        &["1: the job has both `stage` and `stages` (put all of them in one list)"],
    );
    json(
        r#"{"id": "A01", "pipeline": {}, "stages": [{"id":"a","op":"source"}]}"#,
        &[
            "1: unknown key `id` in the job (one of: default_parallelism, deterministic, job, memory, name, on_error, \
             overflow, partitions, placement, preserve_order, restart, route, routes, settings, stage, stages)",
            "1: unknown key `pipeline` in the job (this is a planner case; `plan` takes it, as JSON)",
        ],
    );
}

#[test]
fn a_single_bracket_is_one_slip_however_often_it_is_made() {
    let slip =
        "`stage` must be a list of tables, not a table (write [[stage]] in TOML, \"stages\": [..] in JSON)";
    for (text, line) in [
        ("[stage]\nid = 'a'\nop = 'source'\n", 1),
        // The last one stands for all.
        (
            "[stage]\nid = 'a'\nop = 'source'\n[stage]\nid = 'b'\nop = 'sink'\nin = 'a'\n[stage]\nid = 'c'\n",
            8,
        ),
    ] {
        toml(text, &[&format!("{line}: {slip}")]);
    }
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "generator", kind = "sequence", n = 1, max_row = "1MiB" },
{ id = "b", op = "source", connector = "nexmark", n = 1, max_row = "1MiB" },
{ id = "c", op = "source", path = "x", max_row = "17MiB" },
{ id = "d", op = "source", connector = "ids", n = 1, max_row = "16MiB" },
]"#;
    let belongs = "`max_row` belongs to connector = \"file\" or \"ids\"";
    toml(
        text,
        &[
            &format!("2: unknown key `max_row` in stage `a` ({belongs})"),
            &format!("3: unknown key `max_row` in stage `b` ({belongs})"),
            "4: `max_row` of stage `c` is 17825792 bytes; it must be at most 16MiB",
        ],
    );
}

#[test]
fn options_of_a_trace_that_cannot_be() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "trace", rate = 5, scale = 2, mean = 3, n = 7 },
{ id = "b", op = "source", connector = "trace", path = "-", column = 0, step = "0s", delimiter = ";;" },
{ id = "c", op = "source", connector = "trace", path = "x", loop = true, kind = "batch", max_row = "1MiB" },
{ id = "d", op = "source", connector = "trace", path = "x", scale = 0, from = -1, rows = 0, loop = 1 },
{ id = "e", op = "source", connector = "ids", n = 1, mean = 5 },
]"#;
    toml(
        text,
        &[
            "2: stage `a` has no `path` (name the csv file that has the counts)",
            "2: a trace has its own rate, and takes no `rate` (set `scale` or `mean`)",
            "2: `scale` and `mean` exclude each other \
             (keep `scale` to multiply the counts, or `mean` to set their rows per second)",
            "2: unknown key `n` in stage `a` (a trace ends after so many `rows`)",
            "3: standard input cannot be a trace: every instance reads all of it (name a file)",
            "3: `column` must be a column's name, or its place from 1",
            "3: `step` of stage `b` is 0; it must be more",
            "3: `delimiter` must be one ASCII character, and no quote or line end (such as \",\", \";\" or \"\\t\")",
            "4: a source of kind `batch` has an end, but nothing says how many events there are \
             (add `rows`, or set kind = \"stream\")",
            "4: unknown key `max_row` in stage `c` (`max_row` belongs to connector = \"file\" or \"ids\")",
            "5: `scale` of stage `d` is 0; it must be more",
            "5: `from` of stage `d` is -1; it must be 0 or more",
            "5: `rows` of stage `d` is 0; it must be 1 or more",
            "5: `loop` of stage `d` must be true or false, not a number",
            "6: unknown key `mean` in stage `e` (`mean` belongs to connector = \"trace\")",
        ],
    );
}

#[test]
fn syntax_has_its_place() {
    toml("name = \"x\"\n[[stage]\nid = 'a'", &["2: not TOML: unclosed array table, expected `]`"]);
    // What is behind a fault is told only where it is one of its own.
    let log = "1.2.3.4 - - [17/May/2015] \"GET / HTTP\" 200 5\n".repeat(50);
    let found = faults(&log, FileFormat::Toml);
    assert_eq!(found.len(), 1, "{found:?}");
    let gap = "\n".repeat(9);
    let two = format!("name = \"x\n{gap}[[stage]]\nid = \"a\n");
    let found = faults(&two, FileFormat::Toml);
    assert_eq!(found.len(), 2, "{found:?}");
    json("{\"name\": \"x\",\n}", &["1: not JSON: trailing commas are not allowed"]);
    json("{\"name\": \"x\" // why\n}", &["1: not JSON: comments are not allowed"]);
    json("", &["1: not JSON: the text is empty"]);
    let faults = Job::parse("{\"é\": 1,\n\"ü\": 'x'}", FileFormat::Json).expect_err("single quotes");
    assert_eq!((faults[0].at.line, faults[0].at.column, faults[0].at.offset), (2, 6, 16));
    let faults = Job::parse("\u{feff}# é\nname = 'é' 'x'", FileFormat::Toml).expect_err("two values");
    assert_eq!((faults[0].at.line, faults[0].at.column), (2, 12));
    assert!(Job::parse(&"[".repeat(100_000), FileFormat::Json).is_err());
    assert!(Job::parse(&format!("a = {}", "[".repeat(100_000)), FileFormat::Toml).is_err());
    assert!(Job::parse(&format!("a{} = 1", ".a".repeat(100_000)), FileFormat::Toml).is_err());
}

#[test]
fn a_key_given_twice_does_not_hide_other_faults() {
    json(
        "{\"stages\": [\n{\"id\": \"a\", \"op\": \"source\",\n\"op\": \"sink\", \"x\": 1}]}",
        &[
            "3: key `op` is given twice; first in line 2",
            "3: unknown key `x` in stage `a` (one of: connector, distributed, id, in, instances, kind, max_row, name, \
             on, op, parallelism, predictor, rate, time, timestamps, window)",
        ],
    );
    toml(
        "[[stage]]\nid = 'a'\nop = 'source'\nid = 'b'\nparallelism = 0\n",
        &["4: not TOML: duplicate key", "5: `parallelism` of stage `a` is 0; it must be 1 to 4096"],
    );
}

#[test]
fn a_generators_kind_without_its_connector() {
    let text = r#"stage = [
{ id = "a", op = "source", kind = "sequence" },
{ id = "b", op = "source", connector = "generater", kind = "words" },
{ id = "c", op = "source", connector = "ids", n = 1, kind = "words" },
{ id = "o", op = "sink", in = ["a", "b", "c"], connector = "count" },
]"#;
    toml(
        text,
        &[
            "2: `kind` of stage `a` cannot be `sequence` \
             (`sequence` is a kind of connector = \"generator\", and this source has no `connector`)",
            "3: there is no connector `generater`; did you mean `generator`? (one of: file, generator, nexmark, ids, \
             trace; \
             one of your own takes its options in `with`, not as `kind`)",
            "4: `kind` of stage `c` cannot be `words` (`words` is a kind of connector = \"generator\")",
        ],
    );
}

#[test]
fn a_duration_or_size_that_is_too_large_is_told_so() {
    let text = r#"memory = "99999999TiB"
stage = [
{ id = "a", op = "source", time = { column = "t", max_ahead = "1000000h", idle = "5 parsecs" } },
{ id = "o", op = "sink", in = "a", connector = "count" },
]"#;
    toml(
        text,
        &[
            "1: `memory` of [job] is too large: 10^18 bytes are the most",
            "3: `max_ahead` of `time` of stage `a` is too long (a hundred years are the most: \"36500d\")",
            "3: `idle` of `time` of stage `a` is not a duration \
             (write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\")",
        ],
    );
}

#[test]
fn what_may_follow_a_window_is_said_as_the_plan_takes_it() {
    let text = around(
        r#"{ id = "w", op = "window", in = "src", type = "tumbling", size = "1s" },
{ id = "g", op = "group_by", in = "w", key = "k" },
{ id = "m", op = "map", in = "g", select = ["*"] },"#,
        "m",
    );
    toml(
        &text,
        &["5: stage `m` (map) cannot follow a `group_by` (what may follow: aggregate or co_aggregate)"],
    );
}

#[test]
fn an_address_or_a_service_that_cannot_be() {
    let call = |options: &str| {
        let stage = format!(
            "{{ id = \"m\", op = \"map_using_service\", in = \"src\", select = [\"*\"], {options} }},"
        );
        Job::parse(&around(&stage, "m"), FileFormat::Toml).map_err(|faults| line(&faults[0]))
    };
    for good in ["'http://h/' || a", "'HTTPS://h/x'", "'a' || b", "base || '/x'"] {
        call(&format!("service = \"http\", url = \"{good}\"")).unwrap();
    }
    for bad in ["'htp://x'", "'ftp://h/' || a", "'inventory/items'"] {
        let said = call(&format!("service = \"http\", url = \"{bad}\"")).unwrap_err();
        assert!(said.starts_with(&format!("3: `url` is `{bad}`, which is no address (")), "{said}");
    }
    let said = call("service = \"grpc\", url = \"'http://h'\"").unwrap_err();
    assert!(said.contains("the only one that is built in; `grpc` would be of an agent's registry"), "{said}");
}

#[test]
fn what_has_no_fault_is_there_to_be_looked_at_further() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "ids", n = 1 },
{ id = "b", op = "map", in = "a", select = ["id"] },
{ id = "c", op = "group_by", in = "b", key = "id", foo = 1 },
{ id = "d", op = "aggregate", in = "c", compute = ["count(*) as n"] },
{ id = "e", op = "filter", in = "b", where = "id > 1" },
{ id = "o", op = "sink", in = ["d", "e"], connector = "count" },
]"#;
    let part = Job::sound_part(text, FileFormat::Toml, &[]).unwrap();
    let ids: Vec<&str> = part.stages.iter().map(|stage| stage.id.as_str()).collect();
    assert_eq!((ids, part.options.deterministic), (vec!["a", "b", "e"], None));
    // It may be `deterministic = false` that could not be read.
    let part = Job::sound_part(&format!("determnistic = false\n{text}"), FileFormat::Toml, &[]).unwrap();
    assert_eq!(part.options.deterministic, Some(false));
}
