//! Rolling aggregates and stateful stages. Rows of a key come in no promised order from several instances, so
//! the jobs ask for what does not depend on it.

use super::{counted, csv, everywhere, one, rows};
use crate::real::world::{World, text, vertex};

const ROWS: usize = 4_000;
const KEYS: usize = 37;

fn keyed(op: &str, more: &str, select: &str) -> String {
    one("group_by", "by", "in", "key = \"k\"")
        + &one(op, "work", "by", more)
        + &one("map", "last", "work", &format!("select = [{select}]"))
}

/// `k7,1` to `k7,N` for each key with N rows.
fn positions(most: usize) -> Vec<String> {
    let counts = counted((0..ROWS).map(|id| format!("k{}", (id * 7919) % KEYS)));
    let each = |(key, rows): (&String, &usize)| {
        (1..=most.min(*rows)).map(|n| format!("{key},{n}")).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = counts.iter().flat_map(each).collect();
    all.sort();
    all
}

#[test]
fn a_rolling_aggregate_counts_each_row_of_its_key_once() {
    let more = "compute = [\"count(*) as n\", \"max(x) as most\"]";
    let found = everywhere("rolling", &csv(ROWS, KEYS), &keyed("rolling_aggregate", more, "\"k\", \"n\""));
    assert_eq!(found, positions(ROWS));
}

#[test]
fn a_global_rolling_aggregate_sees_all_rows() {
    let more = "compute = [\"count(*) as n\"]";
    let stages = one("rolling_aggregate", "work", "in", more)
        + &one("map", "last", "work", "select = [\"'all' as k\", \"n\"]");
    let mut expected: Vec<String> = (1..=ROWS).map(|n| format!("all,{n}")).collect();
    expected.sort();
    assert_eq!(everywhere("global", &csv(ROWS, KEYS), &stages), expected);
}

#[test]
fn map_stateful_carries_its_keys_state_from_row_to_row() {
    let more = "state = [\"0 as seen\"]\nupdate = [\"seen + 1 as seen\"]\nselect = [\"*\", \"seen\"]";
    let found = everywhere("map", &csv(ROWS, KEYS), &keyed("map_stateful", more, "\"k\", \"seen\""));
    assert_eq!(found, positions(ROWS));
}

#[test]
fn filter_stateful_keeps_the_first_rows_of_each_key() {
    let more = "state = [\"0 as seen\"]\nupdate = [\"seen + 1 as seen\"]\nwhere = \"seen <= 3\"";
    let found = everywhere("filter", &csv(ROWS, KEYS), &keyed("filter_stateful", more, "\"k\""));
    let expected = counted(positions(3).into_iter().map(|line| line.split(',').next().unwrap().to_owned()));
    assert_eq!(counted(found), expected);
}

#[test]
fn flat_map_stateful_makes_several_rows_of_one() {
    // Every tenth row of a key becomes as many rows as there were so far.
    let more = "state = [\"0 as seen\"]\nupdate = [\"seen + 1 as seen\"]\n\
                unnest = \"range(0, case when seen % 10 = 0 then seen else 0 end) as i\"";
    let found = everywhere("flat", &csv(ROWS, KEYS), &keyed("flat_map_stateful", more, "\"k\", \"i\""));
    let tens = positions(ROWS).into_iter().filter_map(|line| {
        let (key, n) = line.split_once(',').unwrap();
        let n: usize = n.parse().unwrap();
        n.is_multiple_of(10).then(|| (0..n).map(|i| format!("{key},{i}")).collect::<Vec<_>>())
    });
    let mut expected: Vec<String> = tens.flatten().collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_row_that_a_state_cannot_take_is_named_by_its_line_and_leaves_no_trace() {
    let world = World::new();
    // Line 1 is the header, so `id` 41 stands on line 43; key and number of that row stay as they are.
    let good = csv(1_000, 4);
    let bad = good.lines().map(|line| match line.strip_prefix("41,") {
        Some(rest) => format!("41,{},none\n", rest.split(',').next().unwrap()),
        None => format!("{line}\n"),
    });
    let bad: String = bad.collect();
    let path = world.file("rows.csv", &bad);
    world.up(&["--local", "3", "--slots", "1"]);
    let stateful = "state = [\"0 as seen\"]\nupdate = [\"seen + cast(x as bigint) * 0 + 1 as seen\"]\n\
                    select = [\"k\", \"seen\"]";
    let all = |options: &str| {
        let source = rows(&path, true).replace("x = \"bigint\"", "x = \"text\"");
        let stages =
            one("group_by", "by", "in", "key = \"k\"") + &one("map_stateful", "work", "by", stateful);
        let last = one("group_by", "keys", "work", "key = \"k\"")
            + &one("aggregate", "most", "keys", "compute = [\"max(seen) as most\", \"count(*) as rows\"]");
        let sink = one("sink", "out", "most", "connector = \"file\"\nformat = \"csv\"\npath = \"out\"");
        world.file("job.toml", format!("name = \"state\"\n{options}\n{source}{stages}{last}{sink}"))
    };
    let failed = world.tuplane(&["submit", &all(""), "--wait"]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    let said = world.status("state")["fault"]["message"].as_str().unwrap().to_owned();
    assert!(said.starts_with("stage work: cannot cast 'none' to bigint"), "{said}");
    assert!(said.ends_with("rows.csv, line 43)"), "{said}");

    let out = world.path("out");
    let sink = format!("out.path={}", out.display());
    let run =
        world.tuplane(&["submit", &all("on_error = \"drop\""), "--wait", "--set", &sink, "--name", "drop"]);
    assert!(run.status.success(), "{}", text(&run));
    let status = world.status("drop");
    let note = vertex(&status, "work")["notes"][0].as_str().unwrap_or_default().to_owned();
    assert!(note.contains("rows.csv, line 43"), "{status}");
    let files = std::fs::read_dir(&out).unwrap().map(|e| std::fs::read_to_string(e.unwrap().path()).unwrap());
    let mut lines: Vec<String> =
        files.flat_map(|t| t.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort();
    // The key of the bad row has one row less, and its state has counted one less.
    let key = (41 * 7919) % 4;
    let expected: Vec<String> = (0..4)
        .map(|k| {
            let n = if k == key { 249 } else { 250 };
            format!("k{k},{n},{n}")
        })
        .collect();
    assert_eq!(lines, expected);
}
