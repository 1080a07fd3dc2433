//! Every option of every op that a job file can hold.

use std::time::Duration;

use tuplane_core::job::*;
use tuplane_core::time::{Column, TraceOptions, TraceScale};

fn parse(text: &str) -> Job {
    Job::parse(text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"))
}

fn values(texts: &[Text]) -> Vec<&str> {
    texts.iter().map(|text| text.value.as_str()).collect()
}

#[test]
fn the_example_of_the_design() {
    let job = parse(
        r#"name = "requests-by-status"

[[stage]]
id = "log"
op = "source"
connector = "file"
path = "access.log"
format = "regex"
pattern = '''^(?<client>\S+) "(?<request>[^"]*)" (?<status>\d+) '''

[[stage]]
id = "spread"
op = "rebalance"
in = "log"

[[stage]]
id = "parsed"
op = "map"
in = "spread"
select = ["client", "try_cast(status as int) as status"]

[[stage]]
id = "by_status"
op = "group_by"
in = "parsed"
key = "status"

[[stage]]
id = "counts"
op = "aggregate"
in = "by_status"
compute = ["count(*) as requests"]

[[stage]]
id = "out"
op = "sink"
in = "counts"
connector = "file"
path = "out"
format = "csv"
"#,
    );
    assert_eq!(job.name, "requests-by-status");
    assert_eq!(job.runnable(), Ok(()));
    let parsed = &job.stages[2];
    assert_eq!((parsed.at.line, parsed.at.column), (17, 6));
    let Op::Map { select } = &parsed.op else { panic!("{parsed:?}") };
    assert_eq!(select[1].value, "try_cast(status as int) as status");
    assert_eq!((select[1].at.line, select[1].at.column, select[1].at.len), (20, 21, 35));
    assert_eq!(parsed.inputs[0].at.line, 19);
    let Op::Source(Source { connector: Some(SourceConnector::File(file)), .. }) = &job.stages[0].op else {
        panic!("{:?}", job.stages[0])
    };
    assert_eq!(values(&file.paths), ["access.log"]);
    assert!(matches!(&file.format, Format::Regex { pattern } if pattern.value.starts_with("^(?<client>")));
}

#[test]
fn job_options_and_defaults() {
    let stage = "[[stage]]\nid = 's'\nop = 'source'\n";
    let job = parse(stage);
    assert_eq!((job.name.as_str(), &job.options), ("job", &Options::default()));
    assert_eq!(job.options.partitions(), 271);
    let job = parse(&format!(
        "name = 'n'\nmemory = '16 MiB'\n[job]\nsettings = 'paper'\npreserve_order = true\ndefault_parallelism = 3\n\
         deterministic = false\npartitions = 31\nrestart = 'from_start'\non_error = 'null'\noverflow = 'grow'\n\
         placement = 'link_load'\n{stage}"
    ));
    assert_eq!(
        job.options,
        Options {
            settings: Settings::Paper,
            preserve_order: true,
            default_parallelism: Some(3),
            deterministic: Some(false),
            partitions: Some(31),
            partitions_at: job.options.partitions_at,
            restart: Restart::FromStart,
            memory: Some(16 << 20),
            on_error: OnError::Null,
            overflow: Overflow::Grow,
            placement: Placement::LinkLoad,
        }
    );
}

#[test]
fn file_source_and_time() {
    let job = parse(
        r#"[[stage]]
id = "s"
op = "source"
connector = "file"
path = ["a.csv", "b/*.csv"]
format = "csv"
encoding = "latin1"
columns = { z = "int", "a.b" = "text" }
header = true
delimiter = "\t"
quoted_newlines = false
files = "each"
split = "bytes"
on_bad_line = "fail"
on = ["h1", "h2"]
rate = 2.5
max_row = "1MiB"
instances = 4
time = { column = "z", format = "%s", zone = "UTC", lateness = "5s", idle = "1m", max_ahead = "2h" }
"#,
    );
    let stage = &job.stages[0];
    assert_eq!((stage.instances, stage.parallelism), (Some(4), None));
    let Op::Source(source) = &stage.op else { panic!("{stage:?}") };
    assert_eq!((source.rate, source.max_row), (Some(2.5), Some(1 << 20)));
    assert_eq!(values(&source.on), ["h1", "h2"]);
    let Some(time) = &source.time else { panic!("no time") };
    assert_eq!(time.lateness, Some(Duration::from_secs(5)));
    assert_eq!(time.idle, Some(Duration::from_mins(1)));
    assert_eq!(time.max_ahead, Some(Duration::from_hours(2)));
    assert_eq!(
        (time.column.value.as_str(), time.zone.as_ref().map(|zone| zone.value.as_str())),
        ("z", Some("UTC"))
    );
    let Some(SourceConnector::File(file)) = &source.connector else { panic!("{source:?}") };
    assert_eq!(values(&file.paths), ["a.csv", "b/*.csv"]);
    let columns: Vec<_> = file.columns.iter().map(|(name, kind)| (&*name.value, &*kind.value)).collect();
    assert_eq!(columns, [("z", "int"), ("a.b", "text")], "in the order they were written");
    assert_eq!((file.header, file.delimiter, file.quoted_newlines), (true, '\t', false));
    assert_eq!((file.encoding, file.files, file.split), (Encoding::Latin1, Files::Each, Some(Split::Bytes)));
    assert_eq!((file.on_bad_line, &file.format), (BadLine::Fail, &Format::Csv));

    let job = parse("[[stage]]\nid='s'\nop='source'\nconnector='file'\npath='x'\ntime='at'\n");
    let Op::Source(source) = &job.stages[0].op else { panic!("no source") };
    assert_eq!(source.time.as_ref().map(|time| time.column.value.as_str()), Some("at"));
    let Some(SourceConnector::File(file)) = &source.connector else { panic!("no file") };
    assert_eq!(
        (&file.format, file.delimiter, file.quoted_newlines, file.split),
        (&Format::Lines, ',', true, None)
    );
}

#[test]
fn made_up_sources() {
    let job = parse(
        r#"stage = [
{ id = "a", op = "source", connector = "generator", kind = "words" },
{ id = "b", op = "source", connector = "generator", kind = "words", n = 9, seed = 1, words = 5, exponent = 0, per_line = 2 },
{ id = "c", op = "source", connector = "generator", kind = "sequence", n = 3 },
{ id = "d", op = "source", connector = "nexmark" },
{ id = "e", op = "source", connector = "nexmark", events = "auction", n = 10, base_time = 5 },
{ id = "f", op = "source", connector = "ids", n = 7, payload = 100 },
{ id = "g", op = "source", connector = "mine", with = { a = 1, b = ["x"], c = 1979-05-27 } },
{ id = "h", op = "source", connector = "nexmark", kind = "stream", n = 10 },
]"#,
    );
    let sources: Vec<_> = job
        .stages
        .iter()
        .map(|stage| match &stage.op {
            Op::Source(source) => (source.kind, source.connector.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let words = GeneratorKind::Words { words: 10_000, exponent: 1.0, per_line: 10 };
    let generator = |kind, n, seed| Some(SourceConnector::Generator(Generator { kind, n, seed }));
    assert_eq!(sources[0], (SourceKind::Stream, generator(words, None, 42)));
    let words = GeneratorKind::Words { words: 5, exponent: 0.0, per_line: 2 };
    assert_eq!(sources[1], (SourceKind::Batch, generator(words, Some(9), 1)));
    assert_eq!(sources[2], (SourceKind::Batch, generator(GeneratorKind::Sequence, Some(3), 42)));
    let nexmark = |events, n, base_time| Some(SourceConnector::Nexmark(Nexmark { events, n, base_time }));
    assert_eq!(sources[3], (SourceKind::Stream, nexmark(NexmarkEvents::Bid, None, 0)));
    assert_eq!(sources[4], (SourceKind::Batch, nexmark(NexmarkEvents::Auction, Some(10), 5)));
    assert_eq!(sources[5].1, Some(SourceConnector::Ids { n: 7, payload: 100 }));
    let Some(SourceConnector::Registered { name, with }) = &sources[6].1 else { panic!("{:?}", sources[6]) };
    assert_eq!(
        (name.value.as_str(), with),
        ("mine", &serde_json::json!({"a": 1, "b": ["x"], "c": "1979-05-27"}))
    );
    assert_eq!(sources[7].0, SourceKind::Stream);
}

#[test]
fn traces() {
    let job = parse(
        r#"stage = [
{ id = "a", op = "source", connector = "trace", path = "t.csv" },
{ id = "b", op = "source", connector = "trace", path = "/t.csv", column = "n", header = false, delimiter = ";", step = "10ms", mean = 5, from = 3, rows = 9, loop = true, payload = 7 },
{ id = "c", op = "source", connector = "trace", path = "t.csv", column = 2, scale = 0.5, loop = true },
]"#,
    );
    let trace = |id: usize| match &job.stages[id].op {
        Op::Source(Source { kind, connector: Some(SourceConnector::Trace(trace)), .. }) => {
            (*kind, trace.clone())
        }
        other => panic!("{other:?}"),
    };
    let (kind, a) = trace(0);
    let options = TraceOptions {
        step: Duration::from_secs(1),
        scale: TraceScale::Factor(1.0),
        from: 0,
        rows: None,
        repeat: false,
    };
    assert_eq!((kind, a.path.value.as_str(), a.column, a.header), (SourceKind::Batch, "t.csv", None, None));
    assert_eq!((a.delimiter, a.options, a.payload), (',', options, 0));
    let (kind, b) = trace(1);
    assert_eq!((kind, b.column, b.header), (SourceKind::Batch, Some(Column::Name("n".into())), Some(false)));
    let step = Duration::from_millis(10);
    let options = TraceOptions { step, scale: TraceScale::Mean(5.0), from: 3, rows: Some(9), repeat: true };
    assert_eq!((b.delimiter, b.options, b.payload), (';', options, 7));
    let (kind, c) = trace(2);
    assert_eq!(
        (kind, c.column, c.options.scale),
        (SourceKind::Stream, Some(Column::Place(2)), TraceScale::Factor(0.5))
    );
    let mut moved = job.clone();
    moved.rebase("/srv");
    let paths: Vec<&str> = moved
        .stages
        .iter()
        .filter_map(|stage| match &stage.op {
            Op::Source(Source { connector: Some(SourceConnector::Trace(trace)), .. }) => {
                Some(trace.path.value.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(paths, ["/srv/t.csv", "/t.csv", "/srv/t.csv"]);
    let rate = job.stages[0].op.live("rate", &serde_json::json!(5));
    assert_eq!(rate.unwrap_err(), "cannot be changed while the job runs: a trace keeps its schedule");
}

#[test]
fn the_other_ops() {
    let job = parse(
        r#"stage = [
{ id = "s", op = "source" },
{ id = "m", op = "map", in = "s", select = "*" },
{ id = "f", op = "filter", in = "m", where = "a > 1", name = "big", parallelism = 2 },
{ id = "u", op = "flat_map", in = "f", unnest = "words(line) as word" },
{ id = "mg", op = "merge", in = ["m", "f", "u"] },
{ id = "g", op = "group_by", in = "mg", key = ["a", "b"] },
{ id = "w", op = "window", in = "g", type = "sliding", size = "10s", slide = "2s", early_ms = 0 },
{ id = "x", op = "window", in = "s", type = "session", gap = "10s" },
{ id = "a", op = "aggregate", in = "w", compute = "count(*) as n" },
{ id = "c", op = "co_aggregate", in = ["s", "m"], compute = { s = ["count(*) as n"], m = "sum(a) as t" }, builder = true },
{ id = "j", op = "hash_join", in = ["s", "m"], on = "s.a = m.a", kind = "left" },
{ id = "st", op = "flat_map_stateful", in = "g", state = "0 as n", update = ["n + 1 as n"], unnest = "list as x", ttl = "1h" },
{ id = "ro", op = "rolling_aggregate", in = "g", compute = ["sum(a) as t"] },
{ id = "d", op = "distinct", in = "s", key = "a" },
{ id = "so", op = "sort", in = "s", by = ["a desc"] },
{ id = "sv", op = "filter_using_service_async", in = "s", service = "geo", batched = true, with = { u = 1 } },
{ id = "ct", op = "custom_transform", in = "s", call = "mine", cooperative = false, preferred_parallelism = 2 },
{ id = "wk", op = "work", in = "s", ms = [2, 0.5], spread = "pareto", mode = "spin" },
{ id = "w1", op = "work", in = "s", ms = 2 },
{ id = "pk", op = "peek", in = "s", sample = "10/s" },
{ id = "ts", op = "add_timestamps", in = "s", time = "at" },
{ id = "r", op = "rebalance", in = "s", policy = "potus", v = "balance", beta = 8, gamma = 3, slot = "5ms", setting = "paper", admission = "strict", max_hold = "none", cost = 2 },
{ id = "o1", op = "sink", in = "r", connector = "file", path = "out", format = "jsonl", shared = false },
{ id = "o2", op = "sink", in = "r", connector = "stdout" },
{ id = "o3", op = "sink", in = "r", connector = "count", type = "partitioned", key = "a" },
{ id = "o4", op = "sink", in = "r", connector = "ledger", path = "led" },
{ id = "o5", op = "sink", in = "r", connector = "mine", with = { a = 1 } },
]
route = [{ edge = "m:0..f:0", policy = "shuffle" }]
"#,
    );
    let op = |id: &str| {
        job.stages
            .iter()
            .find(|stage| stage.id == id)
            .map_or_else(|| panic!("no {id}"), |stage| stage.op.clone())
    };
    let sink = |id: &str| match op(id) {
        Op::Sink(sink) => sink,
        other => panic!("{other:?}"),
    };
    assert!(matches!(op("m"), Op::Map { select } if values(&select) == ["*"]));
    assert!(matches!(op("f"), Op::Filter { predicate: Some(text) } if text.value == "a > 1"));
    assert_eq!((job.stages[2].name.as_deref(), job.stages[2].parallelism), (Some("big"), Some(2)));
    assert!(matches!(op("u"), Op::FlatMap { unnest: Some(text) } if text.value == "words(line) as word"));
    assert!(matches!(op("g"), Op::GroupBy { key } if values(&key) == ["a", "b"]));
    let seconds = |n| Some(Duration::from_secs(n));
    assert_eq!(
        op("w"),
        Op::Window(Window { kind: WindowKind::Sliding, size: seconds(10), slide: seconds(2), early: None })
    );
    assert_eq!(
        op("x"),
        Op::Window(Window { kind: WindowKind::Session, size: seconds(10), slide: None, early: None })
    );
    assert!(
        matches!(op("a"), Op::Aggregate { compute, combine: true } if values(&compute) == ["count(*) as n"])
    );
    assert!(matches!(op("c"), Op::CoAggregate { compute, combine: true, builder: true }
        if values(&compute["s"]) == ["count(*) as n"] && values(&compute["m"]) == ["sum(a) as t"]));
    assert!(matches!(op("j"), Op::HashJoin { on, kind: JoinKind::Left, .. } if values(&on) == ["s.a = m.a"]));
    assert!(matches!(op("st"), Op::Stateful { shape: StatefulShape::FlatMap, state, update, then, ttl }
        if values(&state) == ["0 as n"] && values(&update) == ["n + 1 as n"]
            && values(&then) == ["list as x"] && ttl == Some(Duration::from_hours(1))));
    assert!(matches!(op("ro"), Op::RollingAggregate { compute } if compute.len() == 1));
    assert!(matches!(op("d"), Op::Distinct { key } if values(&key) == ["a"]));
    assert!(matches!(op("so"), Op::Sort { by } if values(&by) == ["a desc"]));
    assert!(matches!(op("sv"), Op::UsingService(service)
        if service.op_name() == "filter_using_service_async" && service.batched && service.with["u"] == 1));
    assert!(matches!(
        op("ct"),
        Op::CustomTransform { call: Some(_), cooperative: false, preferred_parallelism: Some(2), .. }
    ));
    assert_eq!(op("wk"), Op::Work(Work { ms: vec![2.0, 0.5], spread: Spread::Pareto, mode: WorkMode::Spin }));
    assert_eq!(op("w1"), Op::Work(Work { ms: vec![2.0], spread: Spread::None, mode: WorkMode::Sleep }));
    assert_eq!(op("pk"), Op::Peek { sample_per_second: Some(10.0) });
    assert!(matches!(op("ts"), Op::AddTimestamps { time: Some(_) }));
    let Op::Rebalance(rebalance) = op("r") else { panic!("no rebalance") };
    let options = serde_json::to_value(&rebalance.route.options).expect("data");
    assert_eq!(
        options,
        serde_json::json!({"v": "balance", "beta": 8, "gamma": 3, "slot": "5ms", "setting": "paper",
            "admission": "strict", "max_hold": "none", "cost": 2})
    );
    assert!(matches!(sink("o1").connector,
        Some(SinkConnector::File { path, format: SinkFormat::Jsonl, shared: false }) if path.value == "out"));
    assert_eq!(sink("o2").connector, Some(SinkConnector::Stdout { format: SinkFormat::Csv }));
    assert_eq!((sink("o3").kind, values(&sink("o3").key)), (SinkKind::Partitioned, vec!["a"]));
    assert!(matches!(sink("o4").connector, Some(SinkConnector::Ledger { id, .. }) if id.value == "id"));
    assert!(matches!(sink("o5").connector, Some(SinkConnector::Registered { with, .. }) if with["a"] == 1));
    assert_eq!(job.routes[0].edge.value, "m:0..f:0");
}

#[test]
fn paths_count_from_the_files_folder() {
    let text = r#"stage = [
{ id = "a", op = "source", connector = "file", path = ["x.log", "/abs/*.log", "-"] },
{ id = "b", op = "source", connector = "file", path = "x.log", files = "each" },
{ id = "c", op = "sink", in = "a", connector = "file", path = "out" },
{ id = "d", op = "sink", in = "a", connector = "file", path = "out", shared = false },
{ id = "e", op = "sink", in = "a", connector = "ledger", path = "led" },
]"#;
    let paths = |job: &Job| {
        let mut paths = Vec::new();
        for stage in &job.stages {
            match &stage.op {
                Op::Source(Source { connector: Some(SourceConnector::File(file)), .. }) => {
                    paths.extend(file.paths.iter().map(|path| path.value.clone()));
                }
                Op::Sink(Sink {
                    connector: Some(SinkConnector::File { path, .. } | SinkConnector::Ledger { path, .. }),
                    ..
                }) => paths.push(path.value.clone()),
                other => panic!("{other:?}"),
            }
        }
        paths
    };
    let mut job = parse(text);
    let before = paths(&job);
    job.rebase("");
    job.rebase(".");
    assert_eq!(paths(&job), before);
    job.rebase("jobs");
    assert_eq!(paths(&job), ["jobs/x.log", "/abs/*.log", "-", "x.log", "jobs/out", "out", "jobs/led"]);
    job.rebase("/srv/");
    assert_eq!(paths(&job)[0], "/srv/jobs/x.log");
}

#[test]
fn format_by_name_or_by_text() {
    let guess = FileFormat::guess;
    assert_eq!(guess("a.toml", "{}"), FileFormat::Toml);
    assert_eq!(guess("a.JSON", "x = 1"), FileFormat::Json);
    assert_eq!(guess("-", " \n{\"a\": 1}"), FileFormat::Json);
    assert_eq!(guess("-", "[ {}]"), FileFormat::Json);
    assert_eq!(guess("-", "[]"), FileFormat::Json);
    assert_eq!(guess("-", "[[stage]]"), FileFormat::Toml);
    assert_eq!(guess("job.txt", "[job]"), FileFormat::Toml);
    assert_eq!(guess("", ""), FileFormat::Toml);
}

#[test]
fn options_of_a_service_call() {
    let text = r#"stage = [
{ id = "s", op = "source" },
{ id = "c", op = "map_using_service_async", in = "s", service = "http", url = "'http://h/' || a", method = "PUT", body = "a",
  headers = { X-A = "'1'", X-B = "env:B_1" }, select = ["*", "response as r"], timeout = "2s", retries = 0, on_error = "null",
  concurrency = 7, preserve_order = false, batched = true, batch = 9, max_response = "2MiB", cooperative = false },
{ id = "d", op = "filter_using_service", in = "c", service = "http", url = "a", where = "status = 200" },
{ id = "o", op = "sink", in = "d" },
]"#;
    let job = Job::parse(text, FileFormat::Toml).unwrap();
    let (Op::UsingService(all), Op::UsingService(few)) = (&job.stages[1].op, &job.stages[2].op) else {
        panic!("{job:?}");
    };
    let http = all.http.as_ref().unwrap();
    assert_eq!((http.url.as_ref().unwrap().value.as_str(), http.method.name()), ("'http://h/' || a", "PUT"));
    let headers: Vec<(&str, &str)> =
        http.headers.iter().map(|(name, value)| (name.value.as_str(), value.value.as_str())).collect();
    assert_eq!(headers, [("X-A", "'1'"), ("X-B", "env:B_1")]);
    let variables: Vec<Option<&str>> = headers.iter().map(|(_, value)| environment_variable(value)).collect();
    assert_eq!(variables, [None, Some("B_1")]);
    let calls = &all.calls;
    assert_eq!(
        (calls.timeout(), calls.retries(), calls.on_error),
        (Duration::from_secs(2), 0, Some(OnError::Null))
    );
    assert_eq!((calls.concurrency(true), calls.preserve_order(), calls.batch(true)), (7, false, 9));
    assert_eq!((calls.max_response(), all.cooperative, all.then.len()), (2 << 20, false, 2));
    let calls = &few.calls;
    assert_eq!((calls.timeout(), calls.retries(), calls.on_error), (Duration::from_secs(5), 3, None));
    assert_eq!((calls.concurrency(false), calls.concurrency(true), calls.batch(false)), (1, 64, 1));
    assert!(calls.preserve_order());
    // Kept as JSON in a coordinator's log, also from before there were such options.
    let mut json = serde_json::to_value(&job).unwrap();
    assert_eq!(serde_json::from_value::<Job>(json.clone()).unwrap(), job);
    let old = json["stages"][1]["op"]["UsingService"].as_object_mut().unwrap();
    for key in ["http", "then", "calls"] {
        old.remove(key).unwrap();
    }
    assert!(serde_json::from_value::<Job>(json).is_ok());
    for (option, said) in [
        ("retries = 101", "0 to 100"),
        ("timeout = 0", "it must be more"),
        ("max_response = \"17MiB\"", "at most 16MiB"),
        ("concurrency = 2", "belongs to the async form, `filter_using_service_async`"),
        ("batch = 2", "belongs to the async form with batched = true"),
        ("with = { a = 1 }", "stand beside `service`"),
        ("select = \"*\"", "`filter_using_service` says `where`"),
        ("headers = { \"a b\" = \"x\" }", "cannot name a header"),
        ("headers = { a = 1 }", "needs a text"),
        ("headers = { Content-length = \"a\" }", "the header `Content-length` is the agent's to write"),
        ("headers = { transfer-encoding = \"'chunked'\" }", "the agent's to write"),
        ("headers = { Connection = \"env:X\" }", "the agent's to write"),
        ("headers = { HOST = \"a\" }", "the agent's to write"),
        ("headers = { A = \"'x'\", a = \"'y'\" }", "`A` and `a` name the same header"),
        ("method = \"xyzzyxyzzy\"", "one of: GET, POST"),
    ] {
        let broken = text.replace("url = \"a\", ", &format!("url = \"a\", {option}, "));
        let faults = Job::parse(&broken, FileFormat::Toml).unwrap_err();
        assert!(faults.iter().any(|fault| fault.to_string().contains(said)), "{option}: {faults:?}");
    }
    for (url, refused) in [
        ("'http://me:pw@h/' || a", true),
        (" 'https://me@h' || a", true),
        ("'http://h/@' || a", false),
        ("'http://h?m=a@b'", false),
        ("'http://' || a || '@h'", false),
    ] {
        let changed = text.replace("url = \"a\", ", &format!("url = \"{url}\", "));
        let faults = Job::parse(&changed, FileFormat::Toml).err().unwrap_or_default();
        let said = faults
            .iter()
            .any(|fault| fault.to_string().contains("names a user before `@` (give them in a header"));
        assert_eq!((said, !faults.is_empty()), (refused, refused), "{url}: {faults:?}");
    }
}

#[test]
fn a_job_of_too_many_stages_is_refused_before_they_are_read() {
    let job = |filters: usize| {
        let mut text =
            "stages = [{ id = \"a\", op = \"source\", connector = \"generator\", kind = \"sequence\", n = 1 }".to_owned();
        let mut before = "a".to_owned();
        for n in 0..filters {
            text += &format!(", {{ id = \"f{n}\", op = \"filter\", in = \"{before}\", where = \"true\" }}");
            before = format!("f{n}");
        }
        text += &format!(", {{ id = \"out\", op = \"sink\", in = \"{before}\", connector = \"count\" }}]\n");
        Job::parse(&text, FileFormat::Toml)
    };
    assert_eq!(job(998).unwrap().stages.len(), 1000);
    let faults = job(8000).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].message.contains("8002 stages; at most 1000"), "{}", faults[0]);
}
