//! The builder: what it makes is what a file of the same content says, faults included.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use tuplane_core::job::builder::{
    Pipeline, ServiceSpec, Stage, StateSpec, TimeSpec, sinks, sources, windows,
};
use tuplane_core::job::{FileFormat, HttpMethod, Job, Placement};
use tuplane_core::plan::plan;

use super::cases::without_places;

/// The builder's job is the file's, and so is the one that its own file gives.
#[track_caller]
fn same(pipeline: &Pipeline, toml: &str) {
    let from_file = Job::parse(toml, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}"));
    plan(&from_file).unwrap_or_else(|error| panic!("{error}"));
    let built = pipeline.build().unwrap_or_else(|faults| panic!("{faults:?}"));
    assert_eq!(without_places(&built), without_places(&from_file));
    reads_back(pipeline);
}

#[track_caller]
fn reads_back(pipeline: &Pipeline) {
    let built = pipeline.build().unwrap_or_else(|faults| panic!("{faults:?}"));
    let text = pipeline.to_json().unwrap();
    let read = Job::parse(&text, FileFormat::Json).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
    assert_eq!(without_places(&read), without_places(&built), "{text}");
}

/// Rows with event time, for what needs it.
fn timed(pipeline: &Pipeline) -> Stage {
    let time = TimeSpec::column("at").lateness("5s").idle(Duration::from_secs(2)).format("rfc3339");
    pipeline
        .read(sources::files("x").jsonl().columns([("at", "timestamp"), ("k", "text")]).time(time))
        .id("s")
}

const TIMED: &str = r#"
[[stage]]
id = "s"
op = "source"
connector = "file"
path = "x"
format = "jsonl"
columns = { at = "timestamp", k = "text" }
time = { column = "at", lateness = "5s", idle = "2s", format = "rfc3339" }
"#;

#[test]
fn the_readme_job() {
    let p = Pipeline::new("requests-by-status");
    p.read(sources::files("access.log").regex(r"^(?<client>\S+) (?<status>\d+)").rate(2.5).on("a"))
        .id("log")
        .rebalance_with("potus", [("v", json!(2)), ("slot", json!("5ms"))])
        .id("spread")
        .map(["client", "try_cast(status as int) as status"])
        .id("parsed")
        .name("Parsed")
        .parallelism(2)
        .group_by("status")
        .id("by_status")
        .aggregate("count(*) as requests")
        .id("counts")
        .instances(3)
        .write(sinks::files("out").jsonl().distributed_partitioned("status"))
        .id("out");
    same(
        &p.set("on_error", "drop").set("partitions", 31),
        r#"
name = "requests-by-status"
on_error = "drop"
partitions = 31
stage = [
{ id = "log", op = "source", connector = "file", path = "access.log", format = "regex", pattern = '^(?<client>\S+) (?<status>\d+)', rate = 2.5, on = ["a"] },
{ id = "spread", op = "rebalance", in = "log", policy = "potus", v = 2, slot = "5ms" },
{ id = "parsed", op = "map", in = "spread", select = ["client", "try_cast(status as int) as status"], name = "Parsed", parallelism = 2 },
{ id = "by_status", op = "group_by", in = "parsed", key = "status" },
{ id = "counts", op = "aggregate", in = "by_status", compute = ["count(*) as requests"], instances = 3 },
{ id = "out", op = "sink", in = "counts", connector = "file", path = "out", format = "jsonl", type = "distributed_partitioned", key = "status" },
]
"#,
    );
}

#[test]
fn a_job_that_keeps_order() {
    let p = Pipeline::new("order").preserve_order().placement(Placement::THeron);
    p.read(sources::files("a.log")).map("line as l").write(sinks::files("out"));
    same(
        &p,
        r#"
name = "order"
preserve_order = true
placement = "t_heron"
stage = [
{ id = "source", op = "source", connector = "file", path = "a.log" },
{ id = "map", op = "map", in = "source", select = "line as l" },
{ id = "sink", op = "sink", in = "map", connector = "file", path = "out" },
]"#,
    );
}

/// They would stand twice in the file, and be passed over here.
#[test]
fn what_calls_say_cannot_be_set_as_an_option() {
    let p = Pipeline::new("twice").set("stage", 1).set("memory", "1MiB");
    let a = p.read(sources::words().rows(7)).id("a");
    let keyed = a.filter("true").set("in", "b").set("id", "c").set("op", "map").id("kept").group_by("line");
    let both = keyed.co_aggregate("count(*) as n", [(&a.group_by("line as other"), "count(*) as m")]);
    both.set("compute", "count(*) as k").set("parallelism", 1).write(sinks::count()).set("op", "filter");
    let faults = p.build().unwrap_err();
    let said: Vec<String> = faults.iter().map(|fault| fault.message.clone()).collect();
    let of = |key: &str, whose: &str| {
        format!("`{key}` of {whose} is said by calls, and cannot be set as an option")
    };
    for (key, whose) in [
        ("stage", "the job"),
        ("in", "stage `kept`"),
        ("id", "stage `kept`"),
        ("op", "stage `kept`"),
        ("compute", "stage `co_aggregate`"),
        ("op", "stage `sink`"),
    ] {
        assert!(said.contains(&of(key, whose)), "{key} of {whose}: {said:?}");
    }
    assert!(p.to_json().is_err());
}

#[test]
fn stages_without_a_key() {
    let p = Pipeline::new("all");
    let a = p.read(sources::ids(10).set("payload", 5));
    let b = p.read(sources::sequence().rows(7).in_one_place());
    let w = p.read(sources::words().rows(7)).map(vec!["line as value"]).rebalance_by(["value"]);
    let merged = a.map("id as value").merge_all([&b.filter("value > 3"), &w]);
    let joined = merged.hash_join([(&a, "value = id"), (&b, "value = value")]);
    let left = joined.left_hash_join([(&b, "value = value")]);
    let seen = StateSpec::new("0 as seen").update(["seen + 1 as seen"]).ttl("5s");
    left.map_stateful(seen.clone(), ["*", "seen"])
        .filter_stateful(seen.clone(), "seen < 3")
        .flat_map_stateful(seen, "range(0, seen) as i")
        .rolling_aggregate(["count(*) as n"])
        .distinct()
        .distinct_by("value")
        .flat_map("words(value) as word")
        .work([1, 2])
        .set("spread", "exp")
        .custom_transform("mine", json!({ "a": [1, { "b": true }], "c": 1.5 }))
        .set("cooperative", false)
        .map_using_service(ServiceSpec::new("s", json!({})).blocking())
        .filter_using_service_async(ServiceSpec::new("s", json!({ "url": "x" })).set("batched", true))
        .map_using_service_async(
            ServiceSpec::http("'http://localhost/' || word")
                .method(HttpMethod::Post)
                .body("word")
                .header("Accept", "'text/plain'")
                .header("X-A", "env:A")
                .header("Accept", "'application/json'")
                .select(["*", "response as answer"]),
        )
        .filter_using_service(ServiceSpec::http("'http://localhost/'").keep("status = 200"))
        .flat_map_using_service(ServiceSpec::http("'http://localhost/'").unnest("words(response) as w"))
        .peek()
        .peek_sampled(2.5)
        .sort(["word desc", "i"])
        .write(sinks::ledger("l", "word"));
    p.write_all([&a, &a.filter("id > 1")], sinks::count().total_parallelism_one());
    same(
        &p,
        r#"
name = "all"
stage = [
{ id = "source", op = "source", connector = "ids", n = 10, payload = 5 },
{ id = "source-2", op = "source", connector = "generator", kind = "sequence", n = 7, distributed = false },
{ id = "source-3", op = "source", connector = "generator", kind = "words", n = 7 },
{ id = "map", op = "map", in = "source-3", select = "line as value" },
{ id = "rebalance", op = "rebalance", in = "map", key = "value" },
{ id = "map-2", op = "map", in = "source", select = "id as value" },
{ id = "filter", op = "filter", in = "source-2", where = "value > 3" },
{ id = "merge", op = "merge", in = ["map-2", "filter", "rebalance"] },
{ id = "hash_join", op = "hash_join", in = ["merge", "source", "source-2"], on = ["value = id", "value = value"] },
{ id = "hash_join-2", op = "hash_join", in = ["hash_join", "source-2"], on = "value = value", kind = "left" },
{ id = "map_stateful", op = "map_stateful", in = "hash_join-2", state = "0 as seen", update = "seen + 1 as seen", ttl = "5s", select = ["*", "seen"] },
{ id = "filter_stateful", op = "filter_stateful", in = "map_stateful", state = "0 as seen", update = "seen + 1 as seen", ttl = 5000, where = "seen < 3" },
{ id = "flat_map_stateful", op = "flat_map_stateful", in = "filter_stateful", state = "0 as seen", update = "seen + 1 as seen", ttl = "5s", unnest = "range(0, seen) as i" },
{ id = "rolling_aggregate", op = "rolling_aggregate", in = "flat_map_stateful", compute = "count(*) as n" },
{ id = "distinct", op = "distinct", in = "rolling_aggregate" },
{ id = "distinct-2", op = "distinct", in = "distinct", key = "value" },
{ id = "flat_map", op = "flat_map", in = "distinct-2", unnest = "words(value) as word" },
{ id = "work", op = "work", in = "flat_map", ms = [1, 2], spread = "exp" },
{ id = "custom_transform", op = "custom_transform", in = "work", call = "mine", with = { a = [1, { b = true }], c = 1.5 }, cooperative = false },
{ id = "map_using_service", op = "map_using_service", in = "custom_transform", service = "s", cooperative = false },
{ id = "filter_using_service_async", op = "filter_using_service_async", in = "map_using_service", service = "s", with = { url = "x" }, batched = true },
{ id = "map_using_service_async", op = "map_using_service_async", in = "filter_using_service_async", service = "http", url = "'http://localhost/' || word", method = "POST", body = "word", headers = { Accept = "'application/json'", X-A = "env:A" }, select = ["*", "response as answer"] },
{ id = "filter_using_service", op = "filter_using_service", in = "map_using_service_async", service = "http", url = "'http://localhost/'", where = "status = 200" },
{ id = "flat_map_using_service", op = "flat_map_using_service", in = "filter_using_service", service = "http", url = "'http://localhost/'", unnest = "words(response) as w" },
{ id = "peek", op = "peek", in = "flat_map_using_service" },
{ id = "peek-2", op = "peek", in = "peek", sample = "2.5/s" },
{ id = "sort", op = "sort", in = "peek-2", by = ["word desc", "i"] },
{ id = "sink", op = "sink", in = "sort", connector = "ledger", path = "l", id_column = "word" },
{ id = "filter-2", op = "filter", in = "source", where = "id > 1" },
{ id = "sink-2", op = "sink", in = ["source", "filter-2"], connector = "count", type = "total_parallelism_one" },
]"#,
    );
}

#[test]
fn keyed_and_windowed_stages() {
    let p = Pipeline::new("windows");
    let rows = timed(&p);
    let by = rows.group_by(["k"]).id("by");
    let other = rows.rebalance().id("spread").group_by("k as key").id("other");
    by.co_aggregate("count(*) as a", [(&other, ["sum(at) as b", "min(at) as c"])]).write(sinks::stdout());
    by.window(windows::tumbling(Duration::from_millis(1500)).early("100ms"))
        .aggregate(["count(*) as n"])
        .set("combine", false)
        .write(sinks::count());
    rows.window(windows::sliding("10s", Duration::from_micros(2500)))
        .group_by("k")
        .aggregate("count(*) as n")
        .write(sinks::count());
    let session = |stage: &Stage| stage.window(windows::session(Duration::from_nanos(7)));
    session(&rows)
        .co_aggregate("count(*) as n", [(&session(&rows).id("w"), "count(*) as m")])
        .write(sinks::count());
    same(
        &p,
        &format!(
            "name = \"windows\"\n{TIMED}\n{}",
            r#"
[[stage]]
id = "by"
op = "group_by"
in = "s"
key = "k"
[[stage]]
id = "spread"
op = "rebalance"
in = "s"
[[stage]]
id = "other"
op = "group_by"
in = "spread"
key = "k as key"
[[stage]]
id = "co_aggregate"
op = "co_aggregate"
in = ["by", "other"]
compute = { by = "count(*) as a", other = ["sum(at) as b", "min(at) as c"] }
[[stage]]
id = "sink"
op = "sink"
in = "co_aggregate"
connector = "stdout"
[[stage]]
id = "window"
op = "window"
in = "by"
type = "tumbling"
size = "1500ms"
early_ms = 100
[[stage]]
id = "aggregate"
op = "aggregate"
in = "window"
compute = "count(*) as n"
combine = false
[[stage]]
id = "sink-2"
op = "sink"
in = "aggregate"
connector = "count"
[[stage]]
id = "window-2"
op = "window"
in = "s"
type = "sliding"
size = "10s"
slide = "2500us"
[[stage]]
id = "group_by"
op = "group_by"
in = "window-2"
key = "k"
[[stage]]
id = "aggregate-2"
op = "aggregate"
in = "group_by"
compute = "count(*) as n"
[[stage]]
id = "sink-3"
op = "sink"
in = "aggregate-2"
connector = "count"
[[stage]]
id = "window-3"
op = "window"
in = "s"
type = "session"
gap = "7ns"
[[stage]]
id = "w"
op = "window"
in = "s"
type = "session"
gap = "7ns"
[[stage]]
id = "co_aggregate-2"
op = "co_aggregate"
in = ["window-3", "w"]
compute = { window-3 = "count(*) as n", w = "count(*) as m" }
[[stage]]
id = "sink-4"
op = "sink"
in = "co_aggregate-2"
connector = "count"
"#
        ),
    );
}

#[test]
fn columns_keep_their_order() {
    let p = Pipeline::new("order");
    let columns = [("z", "int"), ("a", "text"), ("m", "text[]")];
    let csv = sources::files(["b.csv", "a.csv"]).csv().columns(columns).set("delimiter", ";");
    p.read(csv).write(sinks::files("out"));
    p.read(sources::files("h").csv().header()).write(sinks::count());
    p.read(sources::nexmark("bid").rows(3)).write(sinks::registered("mine", json!({ "n": u64::MAX })));
    p.read(sources::registered("mine", json!({ "n": -1 })))
        .add_timestamps(TimeSpec::column("at"))
        .write(sinks::count());
    let p = p.route("source..sink", "potus", [("v", 1.5)]);
    same(
        &p,
        r#"
name = "order"
stage = [
{ id = "source", op = "source", connector = "file", path = ["b.csv", "a.csv"], format = "csv", columns = { z = "int", a = "text", m = "text[]" }, delimiter = ";" },
{ id = "sink", op = "sink", in = "source", connector = "file", path = "out" },
{ id = "source-2", op = "source", connector = "file", path = "h", format = "csv", header = true },
{ id = "sink-2", op = "sink", in = "source-2", connector = "count" },
{ id = "source-3", op = "source", connector = "nexmark", events = "bid", n = 3 },
{ id = "sink-3", op = "sink", in = "source-3", connector = "mine", with = { n = 18446744073709551615.0 } },
{ id = "source-4", op = "source", connector = "mine", with = { n = -1 } },
{ id = "add_timestamps", op = "add_timestamps", in = "source-4", time = "at" },
{ id = "sink-4", op = "sink", in = "add_timestamps", connector = "count" },
]
route = [{ edge = "source..sink", policy = "potus", v = 1.5 }]"#,
    );
    assert_eq!(
        p.to_json().unwrap().lines().skip(8).take(5).map(str::trim).collect::<Vec<_>>(),
        [
            "\"format\": \"csv\",",
            "\"columns\": {",
            "\"z\": \"int\",",
            "\"a\": \"text\",",
            "\"m\": \"text[]\""
        ]
    );
}

/// Messages of a pipeline that is refused.
#[track_caller]
fn refused(pipeline: &Pipeline) -> Vec<String> {
    assert_eq!(pipeline.to_json().unwrap_err(), pipeline.build().unwrap_err());
    pipeline.build().unwrap_err().into_iter().map(|fault| fault.message).collect()
}

#[test]
fn what_a_file_is_refused_for_is_refused_in_the_same_words() {
    // The table of rebalance.md 6, "API call" and "planning", as far as the types do not refuse it.
    type Wrong = fn(&Pipeline);
    let table: [(Wrong, &str); 9] = [
        (
            |p| drop(p.read(sources::ids(1)).rebalance().peek().write(sinks::count())),
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'rebalance', op = 'rebalance', in = 'source' }, { id = 'peek', op = 'peek', in = 'rebalance' }, \
             { id = 'sink', op = 'sink', in = 'peek', connector = 'count' }]",
        ),
        (
            |p| drop(p.read(sources::ids(1)).merge(&timed(p)).write(sinks::count())),
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 's', op = 'source', connector = 'file', path = 'x', time = 'at' }, \
             { id = 'merge', op = 'merge', in = ['source', 's'] }, \
             { id = 'sink', op = 'sink', in = 'merge', connector = 'count' }]",
        ),
        (
            |p| {
                let window = windows::tumbling("1s");
                drop(p.read(sources::ids(1)).window(window).aggregate("count(*) as n").write(sinks::count()));
            },
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'window', op = 'window', in = 'source', type = 'tumbling', size = '1s' }, \
             { id = 'aggregate', op = 'aggregate', in = 'window', compute = 'count(*) as n' }, \
             { id = 'sink', op = 'sink', in = 'aggregate', connector = 'count' }]",
        ),
        (
            |p| {
                drop(
                    p.read(sources::ids(1))
                        .add_timestamps(TimeSpec::column("id"))
                        .parallelism(2)
                        .write(sinks::count()),
                );
            },
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'add_timestamps', op = 'add_timestamps', in = 'source', time = 'id', parallelism = 2 }, \
             { id = 'sink', op = 'sink', in = 'add_timestamps', connector = 'count' }]",
        ),
        (
            |p| drop(timed(p).add_timestamps(TimeSpec::column("at")).write(sinks::count())),
            "name = 'j'\nstage = [{ id = 's', op = 'source', connector = 'file', path = 'x', time = 'at' }, \
             { id = 'add_timestamps', op = 'add_timestamps', in = 's', time = 'at' }, \
             { id = 'sink', op = 'sink', in = 'add_timestamps', connector = 'count' }]",
        ),
        (
            |p| drop(p.read(sources::sequence()).aggregate("count(*) as n").write(sinks::count())),
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'generator', kind = 'sequence' }, \
             { id = 'aggregate', op = 'aggregate', in = 'source', compute = 'count(*) as n' }, \
             { id = 'sink', op = 'sink', in = 'aggregate', connector = 'count' }]",
        ),
        (
            |p| drop(p.read(sources::ids(1)).rebalance()),
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'rebalance', op = 'rebalance', in = 'source' }]",
        ),
        (
            |p| {
                drop(
                    p.read(sources::ids(1))
                        .map("id")
                        .name("a-prepare")
                        .aggregate("count(*) as n")
                        .name("a")
                        .write(sinks::count()),
                );
            },
            "name = 'j'\nstage = [{ id = 'source', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'map', op = 'map', in = 'source', select = 'id', name = 'a-prepare' }, \
             { id = 'aggregate', op = 'aggregate', in = 'map', compute = 'count(*) as n', name = 'a' }, \
             { id = 'sink', op = 'sink', in = 'aggregate', connector = 'count' }]",
        ),
        (
            |p| {
                let a = p.read(sources::ids(1)).id("a b");
                let b = p.read(sources::ids(1).rate(-1.0)).id("b");
                a.hash_join([(&b, "id = id")]).set("on", ["x", "y"]).id("b").write(sinks::files(" "));
                drop(p.clone().route("a..c", "shuffle", [] as [(&str, i32); 0]));
            },
            "name = 'j'\nstage = [{ id = 'a b', op = 'source', connector = 'ids', n = 1 }, \
             { id = 'b', op = 'source', connector = 'ids', n = 1, rate = -1.0 }, \
             { id = 'b', op = 'hash_join', in = ['a b', 'b'], on = ['x', 'y'] }, \
             { id = 'sink', op = 'sink', in = 'b', connector = 'file', path = ' ' }]\n\
             route = [{ edge = 'a..c', policy = 'shuffle' }]",
        ),
    ];
    for (wrong, toml) in table {
        let pipeline = Pipeline::new("j");
        wrong(&pipeline);
        let mut said = refused(&pipeline);
        let mut expected: Vec<String> = match Job::parse(toml, FileFormat::Toml) {
            Ok(job) => vec![plan(&job).unwrap_err().fault.message],
            // Places are in some sentences.
            Err(faults) => faults
                .into_iter()
                .map(|fault| fault.message.replace("in line 2", "outside the file"))
                .collect(),
        };
        said.sort();
        expected.sort();
        assert_eq!(said, expected, "{toml}");
    }
}

#[test]
fn an_id_that_was_given_is_not_made_again() {
    let p = Pipeline::new("j");
    p.read(sources::ids(1)).map("id").map("id").map("id").id("map-2").write(sinks::count()).id("source");
    let ids: Vec<String> = p.build().unwrap().stages.into_iter().map(|stage| stage.id).collect();
    assert_eq!(ids, ["source-2", "map", "map-3", "map-2", "source"]);
}

#[test]
fn stages_of_two_pipelines_make_no_job() {
    let (p, q) = (Pipeline::new("p"), Pipeline::new("q"));
    let theirs = q.read(sources::ids(1)).id("theirs");
    let merged = p.read(sources::ids(1)).merge(&theirs);
    merged.write(sinks::count());
    let said = refused(&p);
    assert_eq!(said[0], "a `merge` reads `theirs`, which is a stage of another pipeline");
    let q = Pipeline::new("q");
    q.write_all([&theirs], sinks::count());
    assert_eq!(refused(&q)[0], "a sink of this pipeline reads a stage of another pipeline");
    let none = Pipeline::new("none");
    none.write_all([], sinks::count());
    assert_eq!(refused(&none), ["stage `sink` has no input"]);
    assert!(refused(&Pipeline::new("empty"))[0].contains("no stages"));
}

#[test]
fn a_view_leaves_the_stage_usable_and_ids_stay_unique() {
    let p = Pipeline::new("j");
    let rows = p.read(sources::ids(1)).id("rows");
    rows.rebalance().map("id").write(sinks::count());
    rows.map("id").write(sinks::count());
    let job = p.build().unwrap();
    let ids: Vec<&str> = job.stages.iter().map(|stage| stage.id.as_str()).collect();
    assert_eq!(ids, ["rows", "rebalance", "map", "sink", "map-2", "sink-2"]);
    let dag = plan(&job).unwrap();
    let distributed = |name: &str| dag.edge(dag.find_edge(name).unwrap()).distributed;
    assert!(distributed("rows..map") && !distributed("rows..map-2"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Whatever the calls, the file of a job that is built reads back to it.
    #[test]
    fn any_calls(steps in prop::collection::vec((0u8..16, any::<prop::sample::Index>(), "\\PC{1,6}"), 0..14)) {
        let p = Pipeline::new("j");
        let mut stages = vec![p.read(sources::ids(5))];
        for (step, which, text) in steps {
            let from = which.get(&stages).clone();
            let made = match step {
                0 => from.map([text.as_str(), "*"]),
                1 => from.filter(text.as_str()),
                2 => from.flat_map(text),
                3 => from.rebalance(),
                4 => from.rebalance_by(text),
                5 => from.merge(&stages[0]),
                6 => from.group_by(text.as_str()).aggregate(text),
                7 => from.sort(vec![text]),
                8 => from.custom_transform("x", json!({ text.as_str(): [text.as_str(), "1"] })),
                9 => from.work(text.len() as u64),
                10 => from.group_by("k").co_aggregate("a", [(&stages[0].group_by(text.as_str()), "b")]),
                11 => from.hash_join([(&stages[0], text.as_str())]),
                12 => from.name(&text).parallelism(3),
                13 => from.rolling_aggregate(text).instances(2),
                14 => from.group_by(text).map_stateful(StateSpec::new("0 as s"), "s"),
                _ => p.read(sources::files(text).jsonl().columns([("b", "int"), ("a", "text")])),
            };
            stages.push(made);
        }
        for stage in &stages {
            stage.write(sinks::count());
        }
        match p.build() {
            Ok(_) => reads_back(&p),
            Err(faults) => prop_assert!(!faults.is_empty()),
        }
    }
}
