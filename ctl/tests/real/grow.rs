//! Queues that grow: nobody is held up, and the job ends before they fill the memory.

use std::time::Duration;

use super::world::{World, assert_exact_ledger, edge, vertex, wait};

/// It is over in seconds, on a machine with much else to do.
const SOON: Duration = Duration::from_secs(30);

const JOB: &str = r#"
name = "grows"
overflow = "grow"
memory = "32MiB"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 1_000_000_000
payload = 1000
rate = 800
parallelism = 1
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 50
instances = 2
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#;

#[test]
fn queues_grow_through_a_rescale_until_the_memory_ends_the_job() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "2"]);
    let file = world.file("job.toml", JOB);
    world.json(&["submit", &file]);
    // Far more than any queue holds that blocks its writer within 100 ms of work.
    let waits = || edge(&world.status("grows"), "rows..work")["queued_in"].as_u64().unwrap();
    wait("rows wait before `work`", SOON, || waits() > 300);
    world.json(&["scale", "set", "grows", "work=3", "--wait=30s", "--yes"]);
    let before = waits();
    wait("more of them do", SOON, || waits() > before + 200);
    let status = world.status("grows");
    assert_eq!((&status["engine"], &status["phase"]), (&"queueing".into(), &"running".into()), "{status}");
    assert_eq!(vertex(&status, "rows")["blocked"].as_f64(), Some(0.0), "{status}");
    assert_eq!(world.json(&["etp", "grows"])["engine"], "queueing");
    world.json(&["set", "grows", "rows.rate=20000"]);
    let status = world.wait_for("grows", "failed", SOON);
    let cause = status["fault"]["message"].as_str().unwrap();
    assert!(
        cause.starts_with("agent ")
            && cause.contains(": rows in queues that grow (`overflow = \"grow\"`) fill ")
            && cause.contains(" of 32.0 MiB, and may fill 90 %; most of them, ")
            && cause.ends_with(" lower `rate`, or scale `work` out"),
        "{cause}"
    );
    assert_exact_ledger(&status);
}
