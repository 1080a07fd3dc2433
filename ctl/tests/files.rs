//! `check` and `plan` on files good and bad.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::cli::{Ran, ran, tuplane};

fn jobs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/jobs")
}

fn with(text: &str, args: &[&str]) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.toml");
    std::fs::write(&file, text).unwrap();
    ran(tuplane(&dir).args(&args[..1]).arg(&file).args(&args[1..]))
}

const BROKEN: &str = r#"name = "broken"
[[stage]]
id = "log"
op = "source"
connector = "file"
path = "x"
[[stage]]
id = "m"
op = "map"
in = "lgo"
select = ["line"]
[[stage]]
id = "out"
op = "sink"
in = "m"
connector = "stdout"
colour = "red"
"#;

/// All job files below a folder.
fn job_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(job_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_jobs_that_ship_are_good() {
    let dir = tempfile::tempdir().unwrap();
    let files = job_files(&jobs());
    for path in &files {
        let good = ran(tuplane(&dir).arg("check").arg(path));
        assert_eq!(good.code, Some(0), "{}{}", good.out, good.err);
        assert!(good.out.contains(": ok, "), "{}", good.out);
        let planned = ran(tuplane(&dir).args(["plan", "--strict"]).arg(path));
        // Some examples of rebalance() show one without effect.
        let shows = path.parent().is_some_and(|folder| folder.ends_with("rebalance"));
        let strict = if shows && planned.out.contains("` has no effect on ") { 2 } else { 0 };
        assert_eq!(planned.code, Some(strict), "{}: {}", path.display(), planned.err);
    }
    for folder in ["jobs", "nexmark", "rebalance"] {
        let of = files.iter().filter(|path| path.parent().is_some_and(|parent| parent.ends_with(folder)));
        assert!(of.count() >= 5, "{folder}: {files:?}");
    }
}

#[test]
fn every_fault_is_named_with_its_line_and_a_caret() {
    let bad = with(BROKEN, &["check"]);
    assert_eq!((bad.code, bad.err.as_str()), (Some(2), ""), "{}", bad.out);
    assert!(bad.out.contains("job.toml:10:") && bad.out.contains("job.toml:17:"), "{}", bad.out);
    assert!(bad.out.contains("10 | in = \"lgo\"") && bad.out.contains("log"), "{}", bad.out);
    let caret = bad.out.lines().find(|line| line.trim_start().starts_with("| ") && line.contains('^'));
    assert!(caret.is_some(), "{}", bad.out);
    assert!(!bad.out.contains('\x1b'));

    let json = with(BROKEN, &["check", "-o", "json"]);
    assert_eq!(json.code, Some(2));
    let document: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&document["schema"], &document["ok"]), (&"tuplane/check/1".into(), &false.into()));
    let lines: Vec<u64> =
        document["faults"].as_array().unwrap().iter().map(|fault| fault["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [10, 17]);
}

#[test]
fn faults_of_types_have_lines_too() {
    let text = BROKEN.replace("lgo", "log").replace("colour = \"red\"\n", "").replace("\"line\"", "\"lien\"");
    let bad = with(&text, &["check"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.out.contains("job.toml:11:") && bad.out.contains("lien"), "{}", bad.out);
}

#[test]
fn a_broken_file_is_refused_before_any_agent_starts() {
    let refused = with(BROKEN, &["run"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    assert!(refused.err.contains("job.toml:10:"), "{}", refused.err);
    let json = with(BROKEN, &["submit", "-o", "json"]);
    let document: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(document["faults"].as_array().unwrap().len(), 2);
}

#[test]
fn an_override_is_named_in_its_fault() {
    let wordcount = jobs().join("wordcount.toml");
    let dir = tempfile::tempdir().unwrap();
    let bad = ran(tuplane(&dir).arg("check").arg(&wordcount).args(["--set", "lines.pth=x"]));
    assert_eq!(bad.code, Some(2));
    assert!(bad.out.contains("--set lines.pth"), "{}", bad.out);
    let good = ran(tuplane(&dir).arg("check").arg(&wordcount).args([
        "--set",
        "lines.path=x",
        "--set",
        "lines.encoding=lossy",
    ]));
    assert_eq!(
        good.code,
        Some(0),
        "a made-up source reads files once it has a path: {}{}",
        good.out,
        good.err
    );
}

#[test]
fn what_is_no_job_file_gets_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let folder = ran(tuplane(&dir).arg("check").arg(dir.path()));
    assert_eq!(folder.code, Some(2));
    assert!(folder.err.contains("is a folder"), "{}", folder.err);
    let missing = ran(tuplane(&dir).args(["plan", "no/such/file"]));
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("no/such/file"), "{}", missing.err);
    let binary = dir.path().join("b");
    std::fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    let binary = ran(tuplane(&dir).arg("check").arg(&binary));
    assert_eq!(binary.code, Some(2));
    assert!(binary.err.contains("not UTF-8"), "{}", binary.err);
}

#[test]
fn a_plan_is_text_json_or_dot() {
    let dir = tempfile::tempdir().unwrap();
    let job = jobs().join("nexmark-hot-items.toml");
    let text = ran(tuplane(&dir).arg("plan").arg(&job));
    assert!(text.out.contains("bids..work"), "{}", text.out);
    let dot = ran(tuplane(&dir).arg("plan").arg(&job).args(["-o", "dot"]));
    assert!(dot.out.starts_with("digraph"), "{}", dot.out);
    let json = ran(tuplane(&dir).arg("plan").arg(&job).args(["-o", "json"]));
    let document: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(document["schema"], "tuplane/plan/1");
}

#[test]
fn planner_cases_are_answered_by_a_bare_array() {
    let cases = r#"[
        {"id": "good", "pipeline": {"stages": [{"id": "s", "op": "source"}, {"id": "k", "op": "sink", "in": "s"}]}},
        {"id": "open", "pipeline": {"stages": [{"id": "s", "op": "source"}]}},
        {"id": "odd", "pipeline": {"stages": [{"id": "s", "op": "sauce"}]}}
    ]"#;
    let answered = with(cases, &["plan"]);
    assert_eq!(answered.code, Some(0), "{}", answered.err);
    let answers: Value = serde_json::from_str(&answered.out).unwrap();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, ["good", "open", "odd"]);
    assert_eq!(answers[0]["vertices"].as_array().unwrap().len(), 2);
    assert_eq!(answers[0]["edges"].as_array().unwrap().len(), 1);
    assert_eq!(answers[1]["when"], "planning");
    assert!(answers[2]["error"].as_str().unwrap().contains("sauce"));
}

#[test]
fn a_job_file_can_come_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.toml");
    std::fs::write(&file, BROKEN).unwrap();
    let from_stdin =
        |command: &str| ran(tuplane(&dir).args([command, "-"]).stdin(std::fs::File::open(&file).unwrap()));
    let bad = from_stdin("check");
    assert_eq!(bad.code, Some(2), "{}", bad.err);
    assert!(bad.out.contains("<stdin>:10:"), "{}", bad.out);
    std::fs::copy(jobs().join("wordcount.toml"), &file).unwrap();
    let (good, planned) = (from_stdin("check"), from_stdin("plan"));
    assert_eq!((good.code, planned.code), (Some(0), Some(0)), "{}{}", good.out, planned.err);
}

const WITH_HEADER: &str = r#"name = "sales"
[[stage]]
id = "sales"
op = "source"
connector = "file"
path = "sales*.csv"
format = "csv"
delimiter = ";"
header = true
[[stage]]
id = "big"
op = "filter"
in = "sales"
where = "length(amount) > 1"
[[stage]]
id = "m"
op = "map"
in = "big"
select = ["shop"]
[[stage]]
id = "out"
op = "sink"
in = "m"
connector = "count"
"#;

#[test]
fn the_header_of_a_csv_file_names_the_columns() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.toml");
    std::fs::write(&file, WITH_HEADER).unwrap();
    let check = || ran(tuplane(&dir).arg("check").arg(&file));
    let missing = check();
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.out.contains("job.toml:6:") && missing.out.contains("no file matches"),
        "{}",
        missing.out
    );
    assert!(missing.out.contains(": 1 fault\n"), "said once: {}", missing.out);
    std::fs::write(dir.path().join("sales1.csv"), "shop;amount\na;10\n").unwrap();
    let good = check();
    assert_eq!(good.code, Some(0), "{}", good.out);

    // Behind a faulty filter the rest is looked at all the same.
    let text = WITH_HEADER.replace("length(amount)", "length(amnt)").replace("\"shop\"", "\"shp\"");
    std::fs::write(&file, text).unwrap();
    let bad = check();
    assert_eq!(bad.code, Some(2));
    assert!(bad.out.contains("`amnt`") && bad.out.contains("`shp`"), "{}", bad.out);
}

#[test]
fn an_unknown_connector_is_one_fault() {
    let text = WITH_HEADER.replace("connector = \"file\"", "connector = \"kafka\"");
    let bad = with(&text, &["check"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.out.contains("`kafka`") && bad.out.contains("nexmark"), "{}", bad.out);
    assert!(bad.out.contains(": 1 fault\n"), "{}", bad.out);
}

/// A rebalance that nobody reads, and a policy.
const IDLE: &str = "name = \"n\"\n[[stage]]\nid = \"a\"\nop = \"source\"\nconnector = \"ids\"\nn = 5\n\
    [[stage]]\nid = \"r\"\nop = \"rebalance\"\nin = \"a\"\n\
    [[stage]]\nid = \"k\"\nop = \"sink\"\nin = \"a\"\nconnector = \"count\"\n";

#[test]
fn what_has_no_effect_is_a_warning_of_check() {
    let warned = with(IDLE, &["check"]);
    assert_eq!(warned.code, Some(0), "{}{}", warned.out, warned.err);
    assert!(warned.out.contains("rebalance `r` has no effect: no stage reads it"), "{}", warned.out);
    assert!(
        warned.out.contains("job.toml:8: ") && warned.out.contains(": ok, 3 stages, 1 warning"),
        "{}",
        warned.out
    );
    let json = with(IDLE, &["check", "-o", "json"]);
    let document: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&document["ok"], &document["warnings"][0]["line"]), (&true.into(), &8.into()), "{document}");
}

#[test]
fn a_plan_needs_no_expressions_but_says_that_it_looked_at_none() {
    let text = IDLE.replace("op = \"rebalance\"", "op = \"filter\"\nwhere = \"idd > 1\"");
    let text = text.replace("op = \"sink\"\nin = \"a\"", "op = \"sink\"\nin = \"r\"");
    let planned = with(&text, &["plan"]);
    assert_eq!(planned.code, Some(0), "{}", planned.err);
    assert_eq!(planned.err, "tuplane: expressions were not checked: `tuplane check`\n");
    assert_eq!(with(&text.replace("idd", "id"), &["plan"]).err, "");
    let nowhere =
        with(&IDLE.replace("op = \"rebalance\"", "op = \"rebalance\"\npolicy = \"best\""), &["plan"]);
    assert_eq!(nowhere.code, Some(0), "{}", nowhere.err);
    assert!(nowhere.err.contains("`best` is no built-in policy"), "{}", nowhere.err);
    let later =
        with(&IDLE.replace("op = \"rebalance\"", "op = \"rebalance\"\npolicy = \"potus\""), &["plan"]);
    assert_eq!(later.code, Some(0), "{}", later.err);
}

#[test]
fn types_that_a_format_cannot_hold_are_refused() {
    let job = |format: &str, kind: &str| {
        format!(
            "name = \"n\"\n[[stage]]\nid = \"a\"\nop = \"source\"\npath = \"x\"\nformat = \"{format}\"\n\
             columns = {{ c = \"{kind}\" }}\n[[stage]]\nid = \"k\"\nop = \"sink\"\nin = \"a\"\nconnector = \"count\"\n"
        )
    };
    for (format, kind) in [("csv", "text[]"), ("jsonl", "int[][]"), ("csv", "struct<a int>")] {
        let bad = with(&job(format, kind), &["check"]);
        assert_eq!(bad.code, Some(2), "{format} {kind}: {}", bad.out);
        assert!(bad.out.contains("job.toml:7:"), "{}", bad.out);
    }
    let csv = with(&job("csv", "text[]"), &["check"]);
    assert!(
        csv.out.contains("csv cannot be read as text[]") && csv.out.contains("jsonl and json"),
        "{}",
        csv.out
    );
    for (format, kind) in
        [("jsonl", "text[]"), ("json", "bigint[]"), ("jsonl", "date[]"), ("csv", "decimal(10, 2)")]
    {
        let good = with(&job(format, kind), &["check"]);
        assert_eq!(good.code, Some(0), "{format} {kind}: {}", good.out);
    }
}

#[test]
fn whole_numbers_may_be_written_with_an_exponent() {
    let text = "name = \"n\"\n[[stage]]\nid = \"a\"\nop = \"source\"\nconnector = \"ids\"\nn = 5\n\
                [[stage]]\nid = \"k\"\nop = \"sink\"\nin = \"a\"\nconnector = \"count\"\n";
    let good = with(text, &["check", "--set", "a.n=1e3"]);
    assert_eq!(good.code, Some(0), "{}{}", good.out, good.err);
    let bad = with(text, &["check", "--set", "a.n=1.5"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.out.contains("whole number"), "{}", bad.out);
}

/// The lines of the faults that `check` finds.
fn fault_lines(text: &str, args: &[&str]) -> Vec<u64> {
    let checked = with(text, &[&["check", "-o", "json"], args].concat());
    let document: Value = serde_json::from_str(&checked.out).unwrap();
    document["faults"].as_array().unwrap().iter().map(|fault| fault["line"].as_u64().unwrap()).collect()
}

#[test]
fn an_unknown_key_does_not_hide_what_is_wrong_elsewhere() {
    let text = r#"stage = [
{ id = "numbers", op = "source", connector = "generator", kind = "sequence", n = 9 },
{ id = "m", op = "map", in = "numbers", select = ["valu"] },
{ id = "f", op = "filter", in = "numbers" },
{ id = "g", op = "group_by", in = "numbers", key = "q", foo = 1 },
{ id = "a", op = "aggregate", in = "g", compute = ["cuont(*) as n"] },
{ id = "out", op = "sink", in = ["m", "f", "a"], connector = "count" },
]"#;
    // `a` waits for `g`, which could not be read, and `m`'s fault is not said again for `out`.
    assert_eq!(fault_lines(text, &[]), [3, 4, 5]);
    assert_eq!(fault_lines(&text.replace(", foo = 1", ""), &[]), [3, 4, 5]);
    let by_override = with(text, &["check", "--set", "m.select=[\"vlaue\"]"]);
    assert!(by_override.out.contains("--set m.select: no column `vlaue`"), "{}", by_override.out);
}

#[test]
fn columns_that_a_header_does_not_have_are_found() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in.csv"), "id,client,status\n1,a,200\n").unwrap();
    let file = dir.path().join("job.toml");
    let text = r#"[[stage]]
id = "in"
op = "source"
path = "in.csv"
format = "csv"
header = true
columns = { id = "int", clent = "text" }
[[stage]]
id = "out"
op = "sink"
in = "in"
connector = "count"
"#;
    std::fs::write(&file, text).unwrap();
    let bad = ran(tuplane(&dir).arg("check").arg(&file));
    assert_eq!(bad.code, Some(2), "{}", bad.out);
    assert!(
        bad.out.contains("has no column `clent`") && bad.out.contains("did you mean `client`?"),
        "{}",
        bad.out
    );
    std::fs::write(&file, text.replace("clent", "client")).unwrap();
    assert_eq!(ran(tuplane(&dir).arg("check").arg(&file)).code, Some(0));
    // What cannot be looked at from here may be there for the agents.
    std::fs::write(&file, text.replace("in.csv", "none.csv")).unwrap();
    assert_eq!(ran(tuplane(&dir).arg("check").arg(&file)).code, Some(0));
}

#[test]
fn too_few_partitions_are_found_before_a_cluster_is_asked() {
    let text = r#"stage = [
{ id = "numbers", op = "source", connector = "generator", kind = "sequence", n = 9 },
{ id = "g", op = "group_by", in = "numbers", key = "value" },
{ id = "a", op = "aggregate", in = "g", compute = ["count(*) as n"], parallelism = 2 },
{ id = "out", op = "sink", in = "a", connector = "count" },
]"#;
    for command in ["check", "plan"] {
        let bad = with(text, &[command, "--set", "job.partitions=1"]);
        assert_eq!(bad.code, Some(2), "{command}: {}", bad.out);
        let said = format!("{}{}", bad.out, bad.err);
        assert!(said.contains("--set job.partitions: `a/prepare` would have 2 instances by key"), "{said}");
        assert_eq!(with(text, &[command]).code, Some(0));
    }
}
