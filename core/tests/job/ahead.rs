//! Sources that look ahead: what they may say, and what may stand behind them.

use std::time::Duration;

use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::ahead::{Ahead, ahead, refuses_route};
use tuplane_core::plan::{EdgeId, VertexId, plan};

const TRACE: &str = "connector = \"trace\"\npath = \"t.csv\"\nwindow = 4";

/// A source with these options, a rebalance by POTUS, what `stages` say, and a sink behind `last`.
fn job(source: &str, stages: &str, last: &str) -> Job {
    let text = format!(
        "[[stage]]\nid = \"in\"\nop = \"source\"\n{source}\n\
         [[stage]]\nid = \"spread\"\nop = \"rebalance\"\nin = \"in\"\npolicy = \"potus\"\n{stages}\n\
         [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"{last}\"\nconnector = \"count\"\n"
    );
    Job::parse(&format!("name = \"j\"\n{text}"), FileFormat::Toml)
        .unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// What is said of a job, each with its line.
fn told(job: &Job) -> Vec<String> {
    let faults = job.ready([]).err().unwrap_or_default();
    faults.iter().map(|fault| format!("{}: {}", fault.at.line, fault.message)).collect()
}

#[track_caller]
fn says(job: &Job, expected: &str) {
    let told = told(job);
    assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
}

fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

#[test]
fn a_source_with_a_schedule_may_look_ahead() {
    for source in [
        TRACE,
        "connector = \"ids\"\nn = 9\nrate = 5\nwindow = 1\npredictor = \"perfect\"",
        "connector = \"generator\"\nkind = \"sequence\"\nrate = 5\nwindow = 10000",
        "connector = \"nexmark\"\nn = 9\nrate = 5\nwindow = 2",
        "path = \"a.log\"\nrate = 5\nwindow = 2",
        "path = \"a.log\"\nwindow = 0",
    ] {
        assert_eq!(told(&job(source, "", "spread")), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn one_that_does_not_know_when_its_rows_arrive_may_not() {
    let refused = |source: &str, why: &str| says(&job(source, "", "spread"), why);
    refused(
        "path = \"a.log\"\nwindow = 2",
        "6: `in` cannot look ahead: without a `rate` a row arrives when it is read",
    );
    refused("path = \"-\"\nrate = 5\nwindow = 2", "cannot look ahead: what comes by standard input");
    refused("connector = \"mine\"\nwindow = 2", "cannot look ahead: a registered source");
    refused(
        &format!("{TRACE}\npredictor = \"kalman\""),
        "8: `kalman` predicts how many rows will arrive, not the rows",
    );
    refused(
        &format!("{TRACE}\npredictor = \"kalmann\""),
        "no predictor `kalmann` for a source; did you mean `kalman`?",
    );
    refused(
        "path = \"a.log\"\npredictor = \"perfect\"",
        "says how a `window` is filled, and this source has none",
    );
    let text = "name = \"j\"\nstage = [{ id = \"in\", op = \"source\", path = \"a\", window = 10001 }]";
    assert!(Job::parse(text, FileFormat::Toml).unwrap_err()[0].message.contains("window"));
}

#[test]
fn stages_that_go_by_order_or_the_clock_may_not_stand_behind() {
    let behind = |op: &str, more: &str, why: &str| {
        let stages = one("work", "w", "spread", "ms = 1") + &one(op, "s", "w", more);
        says(
            &job(TRACE, &stages, "s"),
            &format!("7: rows of `in` may be sent before they arrive (window = 4), and `s` ({op}) {why}"),
        );
        // Without a window nothing is said.
        assert_eq!(told(&job(&TRACE.replace("= 4", "= 0"), &stages, "s")), Vec::<String>::new(), "{op}");
    };
    behind("rolling_aggregate", "compute = [\"count(*) as n\"]", "depends on the order in which rows arrive");
    behind("distinct", "key = \"id\"", "keeps the row that arrives first");
    behind("custom_transform", "call = \"mine\"", "may depend on when and in which order rows arrive");
    let stateful = "state = [\"0 as n\"]\nupdate = [\"n + 1 as n\"]\nwhere = \"n < 3\"";
    behind("filter_stateful", stateful, "depends on the order in which rows arrive");
    let service = "service = \"http\"\nurl = \"'http://127.0.0.1/'\"\nselect = [\"*\"]";
    behind("map_using_service", service, "would ask its service before the row has arrived");
    let windows = |early: &str| {
        let window = format!("type = \"tumbling\"\nsize = \"10s\"\n{early}");
        one("work", "x", "spread", "ms = 1")
            + &one("group_by", "g", "x", "key = \"id % 3\"")
            + &one("window", "w", "g", &window)
            + &one("aggregate", "a", "w", "compute = [\"count(*) as n\"]")
    };
    let timed = format!("{TRACE}\ntime = {{ column = \"step\", format = \"unix\" }}");
    says(&job(&timed, &windows("early_ms = 100"), "a"), "`a` (aggregate) gives early results by the clock");
}

#[test]
fn only_a_price_says_which_rows_leave_early() {
    let mut plain = job(TRACE, "", "spread");
    let at = |job: &Job| plan(job).map(drop).unwrap_err().fault;
    plain.stages.remove(1);
    plain.stages[1].inputs[0].value = "in".to_owned();
    let fault = at(&plain);
    assert_eq!(fault.at.line, 7, "{fault:?}");
    assert!(
        fault.message.contains("`in` looks ahead (window = 4), and in..out has the policy `round-robin`"),
        "{fault:?}"
    );
    assert!(fault.help.unwrap().contains("rebalance with policy = \"potus\""));
    let counted = one("aggregate", "a", "g", "compute = [\"count(*) as n\"]");
    let more = job(
        TRACE,
        &(one("group_by", "g", "in", "key = \"id\"")
            + &counted
            + &one("sink", "o2", "a", "connector = \"count\"")),
        "spread",
    );
    assert!(at(&more).message.contains("leaves no choice of when a row is sent where"), "{:?}", at(&more));
    // Edges of one source count in the same slots.
    let two = one("rebalance", "r", "in", "policy = \"potus\"\nslot = \"7ms\"")
        + &one("sink", "o2", "r", "connector = \"count\"");
    let fault = at(&job(TRACE, &two, "spread"));
    assert!(
        fault.message.contains("slots of 7ms and 5ms") || fault.message.contains("slots of 5ms and 7ms"),
        "{fault:?}"
    );
}

#[test]
fn a_window_lasts_so_many_slots_of_its_edge_and_keeps_them() {
    let job = job(TRACE, "", "spread");
    let dag = plan(&job).unwrap();
    let found = ahead(&dag, &job, VertexId(0));
    assert_eq!(found, Some(Ahead { slots: 4, slot: Duration::from_millis(5) }));
    assert_eq!(ahead(&dag, &job, VertexId(1)), None);
    let refuses = |policy: &str, options: serde_json::Value| {
        refuses_route(&dag, &job, EdgeId(0), policy, &serde_json::from_value(options).unwrap())
    };
    assert_eq!(refuses("potus", serde_json::json!({ "v": 3, "admission": "strict" })), None);
    let slot = refuses("potus", serde_json::json!({ "slot": "20ms" })).unwrap();
    assert!(slot.contains("counted in slots of 5ms") && slot.contains("cannot be 20ms"), "{slot}");
    let policy = refuses("jsq", serde_json::json!({})).unwrap();
    assert!(policy.contains("has the policy `jsq`") && policy.contains("`potus`"), "{policy}");
}
