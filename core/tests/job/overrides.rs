//! `--set STAGE.OPTION=VALUE`.

use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{FileFormat, Job, Op, Source, SourceConnector, name_override};

const TEXT: &str = r#"
[job]
partitions = 31

[[stage]]
id = "lines"
op = "source"
connector = "file"
path = "a.log"

[[stage]]
id = "slow"
op = "work"
in = "lines"
ms = 2

[[stage]]
id = "spread"
op = "rebalance"
in = "slow"
policy = "potus"
slot = "5ms"

[[stage]]
id = "out"
op = "sink"
in = "spread"
"#;

fn with(sets: &[(&str, &str)]) -> Result<Job, Vec<String>> {
    let sets: Vec<(String, String)> =
        sets.iter().map(|(target, value)| ((*target).to_owned(), (*value).to_owned())).collect();
    Job::parse_with(TEXT, FileFormat::Toml, &sets).map_err(|faults| {
        faults
            .iter()
            .inspect(|fault| assert_eq!(fault.at.line > 0, fault.at != At::default(), "{fault:?}"))
            .map(ToString::to_string)
            .collect()
    })
}

#[track_caller]
fn refused(sets: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(with(sets).expect_err("refused"), expected);
}

#[test]
fn what_looks_like_a_number_is_one_where_the_file_has_no_text() {
    refused(&[("job.name", "2024")], &["--set job.name: `name` of [job] must be text, not a number"]);
    let job = with(&[("lines.path", "q'"), ("out.connector", "ledger"), ("out.path", "{ x")]);
    let job = job.unwrap_or_else(|faults| panic!("{faults:?}"));
    let Op::Source(Source { connector: Some(SourceConnector::File(file)), .. }) = &job.stages[0].op else {
        panic!("{:?}", job.stages[0])
    };
    assert_eq!(file.paths[0].value, "q'", "what TOML cannot read is text as it is");
}

#[test]
fn quotes_and_lists_of_texts_are_toml_everywhere() {
    let job = with(&[
        ("lines.path", "\"zz\""),
        ("lines.format", "csv"),
        ("lines.header", "true"),
        ("lines.delimiter", "\"\\t\""),
        ("job.name", "'2024'"),
        ("slow.in", "[\"lines\"]"),
    ])
    .unwrap_or_else(|faults| panic!("{faults:?}"));
    let Op::Source(Source { connector: Some(SourceConnector::File(file)), .. }) = &job.stages[0].op else {
        panic!("{:?}", job.stages[0])
    };
    assert_eq!((file.paths[0].value.as_str(), file.delimiter), ("zz", '\t'));
    assert_eq!((job.name.as_str(), job.stages[1].inputs[0].value.as_str()), ("2024", "lines"));
    // Where the file has text, a list of anything else is still text.
    refused(&[("slow.in", "[1]")], &["--set slow.in: stage `slow` reads `[1]`, and there is no such stage"]);
}

#[test]
fn they_reach_the_job() {
    let job = with(&[
        ("lines.path", "123"),
        ("lines.rate", "2.5"),
        ("lines.time.column", "at"),
        ("lines.time.lateness", "5s"),
        ("lines.format", "csv"),
        ("lines.columns", "{ b = \"int\", a = \"text\" }"),
        ("slow.ms", "[1, 2.5]"),
        ("slow.parallelism", "3"),
        ("spread.slot", "20"),
        ("job.partitions", "7"),
        ("job.memory", "1GB"),
        ("job.name", "two words"),
    ])
    .unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(
        (job.name.as_str(), job.options.partitions, job.options.memory),
        ("two words", Some(7), Some(1_000_000_000))
    );
    let Op::Source(Source { connector: Some(SourceConnector::File(file)), rate, time: Some(time), .. }) =
        &job.stages[0].op
    else {
        panic!("{:?}", job.stages[0])
    };
    assert_eq!((file.paths[0].value.as_str(), *rate), ("123", Some(2.5)), "the file has text there");
    assert_eq!(file.paths[0].at.line, 0);
    assert_eq!((time.column.value.as_str(), time.lateness.map(|late| late.as_secs())), ("at", Some(5)));
    assert_eq!(file.columns.len(), 2);
    assert!(matches!(&job.stages[1].op, Op::Work(work) if work.ms == [1.0, 2.5]));
    assert_eq!(job.stages[1].parallelism, Some(3));
    let Op::Rebalance(rebalance) = &job.stages[2].op else { panic!("{:?}", job.stages[2]) };
    assert_eq!(rebalance.route.options["slot"], "20");
}

#[test]
fn all_checks_hold() {
    refused(
        &[("slow.parallelism", "0"), ("slow.in", "line"), ("lines.pth", "x"), ("spread.slot", "soon")],
        &[
            "--set slow.parallelism: `parallelism` of stage `slow` is 0; it must be 1 to 4096",
            "--set slow.in: stage `slow` reads `line`, and there is no such stage (did you mean `lines`?)",
            "--set lines.pth: unknown key `pth` in stage `lines` (did you mean `path`?)",
            "--set spread.slot: `slot` of stage `spread` is not a duration \
             (write a number and ns, us, ms, s, m, h or d: \"250us\", \"5ms\", \"1.5h\")",
        ],
    );
}

#[test]
fn targets_that_are_not_there() {
    refused(
        &[
            ("lnes.path", "x"),
            ("lines", "x"),
            ("lines..x.policy", "jsq"),
            ("route.policy", "jsq"),
            ("lines..x", "x"),
            ("job.stage", "x"),
            ("lines.id", "x"),
            ("lines.path.x", "1"),
            ("slow.ms", "-1"),
        ],
        &[
            "--set lnes.path: there is no stage `lnes` (did you mean `lines`?)",
            "--set lines: `lines` does not name an option (write STAGE.OPTION=VALUE, or job.OPTION=VALUE)",
            "--set lines..x.policy: an option of [[route]] cannot be set so (edit the file, or set it while the job runs: \
             `tuplane route JOB EDGE POLICY`)",
            "--set route.policy: an option of [[route]] cannot be set so (edit the file, or set it while the job runs: \
             `tuplane route JOB EDGE POLICY`)",
            "--set lines..x: `lines..x` does not name an option (write STAGE.OPTION=VALUE, or job.OPTION=VALUE)",
            "--set job.stage: `stage` is no option of a job (an option of a stage is set as STAGE.OPTION=VALUE)",
            "--set lines.id: the id of a stage cannot be set (edit the file, and the inputs that name it)",
            "--set lines.path.x: `x` cannot be set: what it belongs to is text",
            "--set slow.ms: `ms` of stage `slow` is -1; it must be 0 or more",
        ],
    );
}

#[test]
fn a_file_without_a_job_table_takes_options_at_the_top() {
    let text = "memory = '1GB'\n[[stage]]\nid = 'a'\nop = 'source'\n";
    let sets = [("job.memory".to_owned(), "2GB".to_owned()), ("job.partitions".to_owned(), "3".to_owned())];
    let job = Job::parse_with(text, FileFormat::Toml, &sets).unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!((job.options.memory, job.options.partitions), (Some(2_000_000_000), Some(3)));
}

#[test]
fn faults_that_come_later_can_be_named_too() {
    let sets = [("a.connector".to_owned(), "x".to_owned()), ("a.time".to_owned(), "nope".to_owned())];
    let job = Job::parse_with("[[stage]]\nid = 'a'\nop = 'source'\n", FileFormat::Toml, &sets)
        .unwrap_or_else(|faults| panic!("{faults:?}"));
    let Op::Source(Source { time: Some(time), .. }) = &job.stages[0].op else { panic!("{job:?}") };
    let mut fault = Fault::new(time.column.at, "there is no column `nope`");
    name_override(&mut fault, &sets);
    assert_eq!(fault.to_string(), "--set a.time: there is no column `nope`");
}

#[test]
fn too_few_partitions_stand_where_they_were_set() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "ids", n = 1 },
{ id = "g", op = "group_by", in = "a", key = "id" },
{ id = "c", op = "aggregate", in = "g", compute = ["count(*) as n"], parallelism = 2 },
{ id = "o", op = "sink", in = "c", connector = "count" },
]"#;
    let sets = [("job.partitions".to_owned(), "1".to_owned())];
    let job = Job::parse_with(text, FileFormat::Toml, &sets).unwrap();
    let mut fault = tuplane_core::plan::plan(&job).unwrap_err().fault;
    tuplane_core::job::name_override(&mut fault, &sets);
    assert!(fault.message.starts_with("--set job.partitions: `c/prepare` would have 2 instances"), "{fault}");
    let job = Job::parse(&format!("partitions = 1\n{text}"), FileFormat::Toml).unwrap();
    assert_eq!(tuplane_core::plan::plan(&job).unwrap_err().fault.at.line, 5);
}
