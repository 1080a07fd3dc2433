//! Traces on real agents: the rows that a file's counts make, and the times at which they arrive.

use std::collections::BTreeMap;

use serde_json::Value;

use super::world::{World, assert_exact_ledger, text};

/// 40 + 0 + 10 + 25 rows in four steps.
const COUNTS: &str = "period,count\n10:00,80\n10:01,0\n10:02,20\n10:03,50\n";

fn job(more: &str) -> String {
    format!(
        "name = \"trace\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"trace\"\npath = \"counts.csv\"\n\
         step = \"200ms\"\nscale = 0.5\n{more}\n\
         [[stage]]\nid = \"due\"\nop = \"map\"\nin = \"in\"\n\
         select = [\"id\", \"step\", \"cast(arrived() as bigint) as due\"]\n\
         [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"due\"\nconnector = \"file\"\npath = \"out\"\n"
    )
}

/// Step and due time, in ns, by the row's number; and how long the job ran, in ms.
fn run(world: &World, job: &str, agents: u32, name: &str) -> (BTreeMap<u64, (u64, i64)>, u64) {
    let out = world.path(name);
    let sink = format!("out.path={}", out.display());
    let (agents, job) = (agents.to_string(), world.file(&format!("{name}.toml"), job));
    let output = world.tuplane(&["run", &job, "--agents", &agents, "--set", &sink, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_exact_ledger(&document);
    let mut rows = BTreeMap::new();
    for file in std::fs::read_dir(&out).unwrap() {
        for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines().skip(1) {
            let values: Vec<i64> = line.split(',').map(|value| value.parse().unwrap()).collect();
            let row = rows.insert(values[0] as u64, (values[1] as u64, values[2]));
            assert_eq!(row, None, "{line}");
        }
    }
    (rows, document["running_ms"].as_u64().unwrap())
}

#[test]
fn counts_become_rows_at_their_times() {
    let world = World::new();
    world.file("counts.csv", COUNTS);
    let counts = [(0, 40), (2, 10), (3, 25)];
    let expected: Vec<(u64, i64)> = counts
        .into_iter()
        .flat_map(|(step, rows)| (0..rows).map(move |row| (step, step as i64 * 200 + 200 * row / rows)))
        .collect();
    let (rows, ran) = run(&world, &job("distributed = false"), 2, "one");
    assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..75).collect::<Vec<_>>());
    let begin = rows[&0].1;
    let found: Vec<(u64, i64)> =
        rows.values().map(|(step, due)| (*step, (due - begin + 999) / 1_000_000)).collect();
    assert_eq!(found, expected);
    // The last row is due 792 ms after the first one: none came early.
    assert!(ran >= 790, "{ran} ms");
    for agents in [1, 3] {
        let (rows, _) = run(&world, &job(""), agents, &format!("of-{agents}"));
        let steps: Vec<u64> = rows.values().map(|(step, _)| *step).collect();
        assert_eq!(rows.keys().copied().collect::<Vec<_>>(), (0..75).collect::<Vec<_>>());
        assert_eq!(steps, expected.iter().map(|(step, _)| *step).collect::<Vec<_>>());
    }
    let (rows, _) = run(&world, &job("loop = true\nfrom = 2\nrows = 80"), 2, "loop");
    let steps: Vec<u64> = rows.values().map(|(step, _)| *step).collect();
    let again = [(2, 10), (3, 25), (0, 40), (2, 5)];
    assert_eq!(steps, again.iter().flat_map(|(step, rows)| vec![*step; *rows]).collect::<Vec<_>>());
}

#[test]
fn a_trace_that_cannot_be_is_refused_when_it_is_submitted() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let counts = world.file("counts.csv", COUNTS);
    let submit = |more: &str| world.tuplane(&["submit", &world.file("job.toml", job(more))]);
    let refused = |more: &str, said: &str| {
        let output = submit(more);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    };
    refused("column = \"cuont\"", &format!("{counts}: no column is called `cuont`"));
    refused("column = \"period\"", &format!("{counts}:2: column `period` is `10:00`, which is no number"));
    refused("from = 4", "no step is left from step 4 on");
    std::fs::remove_file(&counts).unwrap();
    refused("", "cannot read");
    world.file("counts.csv", COUNTS);
    assert!(submit("loop = true").status.success());
    let output = world.tuplane(&["set", "trace", "in.rate=5"]);
    assert!(
        !output.status.success() && text(&output).contains("a trace keeps its schedule"),
        "{}",
        text(&output)
    );
    world.json(&["cancel", "trace", "--yes"]);
}
