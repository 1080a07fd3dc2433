//! Distincts, co-aggregations and hash joins.

use std::collections::BTreeMap;

use super::{counted, csv, everywhere, one, rows, run};
use crate::real::world::{World, shared, text, vertex};

const ROWS: usize = 3_000;
const KEYS: usize = 37;

/// As [`one`], with several inputs.
fn many(op: &str, id: &str, from: &[&str], more: &str) -> String {
    one(op, id, from[0], more).replace(&format!("in = \"{}\"", from[0]), &format!("in = {from:?}"))
}

fn key(id: usize) -> usize {
    (id * 7919) % KEYS
}

fn sorted(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().collect();
    lines.sort();
    lines
}

#[test]
fn a_distinct_gives_each_key_once() {
    let keys = || sorted((0..KEYS).map(|k| format!("k{k}")));
    let by = one("distinct", "work", "in", "key = \"k\"") + &one("map", "last", "work", "select = [\"k\"]");
    assert_eq!(everywhere("by", &csv(ROWS, KEYS), &by), keys());
    let grouped = one("group_by", "g", "in", "key = \"k\"")
        + &one("distinct", "work", "g", "")
        + &one("map", "last", "work", "select = [\"k\"]");
    assert_eq!(everywhere("grouped", &csv(ROWS, KEYS), &grouped), keys());
    let whole =
        one("map", "few", "in", "select = [\"k\", \"x % 3 as y\"]") + &one("distinct", "last", "few", "");
    let expected = counted((0..ROWS).map(|id| format!("k{},{}", key(id), (id * 31) % 1009 % 3)));
    assert_eq!(everywhere("whole", &csv(ROWS, KEYS), &whole), expected.into_keys().collect::<Vec<_>>());
}

#[test]
fn a_distinct_lets_rows_out_before_its_input_ends() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let source =
        "[[stage]]\nid = \"ids\"\nop = \"source\"\nconnector = \"ids\"\nn = 1000000000\nrate = 2000\n";
    let stages = one("map", "few", "ids", "select = [\"id % 7 as k\"]")
        + &one("distinct", "work", "few", "")
        + &one("sink", "out", "work", "connector = \"count\"");
    let job = world.file("endless.toml", format!("name = \"endless\"\n{source}{stages}"));
    world.json(&["submit", &job]);
    crate::real::world::wait("seven rows are out", std::time::Duration::from_secs(20), || {
        vertex(&world.status("endless"), "out")["rows_in"] == 7
    });
    assert_eq!(world.status("endless")["phase"], "running");
}

#[test]
fn status_says_how_large_the_tables_are() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    let stream = "[[stage]]\nid = \"ids\"\nop = \"source\"\nconnector = \"ids\"\nn = 1000000000\nrate = 5000\n\
                  time = \"arrived()\"\n";
    let stages = many("hash_join", "joined", &["ids", "in"], "on = [\"id % 3000 = id\"]")
        + &one("distinct", "seen", "joined", "key = \"id\"")
        + &one("sink", "first", "seen", "connector = \"count\"")
        + &one("group_by", "by", "joined", "key = \"id\"")
        + &one("window", "w", "by", "type = \"session\"\ngap = \"1h\"")
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
        + &one("sink", "out", "counts", "connector = \"count\"");
    let path = world.file("rows.csv", csv(ROWS, KEYS));
    let stages = stream.to_owned() + &rows(&path, false) + &stages;
    let job = world.file("job.toml", format!("name = \"tables\"\n{stages}"));
    world.json(&["submit", &job]);
    let bytes = |status: &serde_json::Value, id: &str| vertex(status, id)["state_bytes"].as_u64().unwrap();
    // A key alone has 8 bytes, a session more.
    let least = [("joined/collector1", ROWS as u64 * 30), ("seen", 100_000), ("counts", 200_000)];
    crate::real::world::wait("the tables have grown", std::time::Duration::from_secs(30), || {
        let status = world.status("tables");
        least.iter().all(|(id, least)| bytes(&status, id) > *least)
    });
    let status = world.status("tables");
    assert_eq!((bytes(&status, "ids"), bytes(&status, "joined")), (0, 0), "{status}");
    let of_instances = status["per_instance"].as_array().unwrap().iter();
    let of_seen = of_instances.filter(|one| one["vertex"] == "seen").map(|one| &one["state_bytes"]);
    assert_eq!(of_seen.filter_map(serde_json::Value::as_u64).sum::<u64>(), bytes(&status, "seen"));
    world.json(&["cancel", "tables", "--yes"]);
    let status = world.status("tables");
    assert!(least.iter().all(|(id, _)| bytes(&status, id) == 0), "{status}");
}

/// Counts and sums of two inputs, by key or of all rows.
fn co(keyed: bool) -> String {
    let (a, b) = if keyed { ("ga", "gb") } else { ("in", "few") };
    let few = one("filter", "some", "in", "where = \"id % 10 = 0 and k <> 'k5'\"")
        + &one("map", "few", "some", "select = [\"upper(k) as key\", \"cast(x as int) as y\"]");
    let groups = one("group_by", "ga", "in", "key = \"k\"")
        + &one("group_by", "gb", "few", "key = \"lower(key) as q\"");
    let compute = format!(
        "compute = {{ {b} = [\"count(*) as m\", \"sum(y) as t\"], {a} = [\"count(*) as n\", \"max(x) as most\"] }}"
    );
    few + if keyed { &groups } else { "" } + &many("co_aggregate", "last", &[a, b], &compute)
}

fn co_expected(of: impl Fn(usize) -> String) -> Vec<String> {
    // Rows and greatest x of all rows; rows and sum of x of some.
    let mut groups: BTreeMap<String, (usize, usize, usize, usize)> = BTreeMap::new();
    for id in 0..ROWS {
        let (x, group) = ((id * 31) % 1009, groups.entry(of(id)).or_default());
        (group.0, group.1) = (group.0 + 1, group.1.max(x));
        if id.is_multiple_of(10) && key(id) != 5 {
            (group.2, group.3) = (group.2 + 1, group.3 + x);
        }
    }
    sorted(groups.into_iter().map(|(k, (n, most, m, t))| {
        let t = if m == 0 { String::new() } else { t.to_string() };
        format!("{k}{n},{most},{m},{t}")
    }))
}

#[test]
fn inputs_meet_by_key_in_one_stage_and_in_two() {
    let found = everywhere("co", &csv(ROWS, KEYS), &co(true));
    assert!(found.iter().any(|line| line.starts_with("k5,") && line.ends_with(",0,")), "{found:?}");
    assert_eq!(found, co_expected(|id| format!("k{},", key(id))));
}

#[test]
fn inputs_without_a_key_give_one_row() {
    assert_eq!(everywhere("co-all", &csv(ROWS, KEYS), &co(false)), co_expected(|_| String::new()));
}

/// The rows joined with some of themselves, by key.
fn joined(kind: &str) -> String {
    one("filter", "some", "in", "where = \"id < 60 and x % 2 = 0\"")
        + &one("map", "few", "some", "select = [\"k as key\", \"cast(x as smallint) as y\", \"id as e\"]")
        + &one("filter", "fewer", "in", "where = \"id < 5\"")
        + &many(
            "hash_join",
            "work",
            &["in", "few", "fewer"],
            &format!("on = [\"k = key and x % 2 = few.y % 2\", \"in.k = k\"]\nkind = \"{kind}\""),
        )
        + &one("map", "last", "work", "select = [\"id\", \"\\\"few.e\\\" as e\", \"\\\"fewer.id\\\" as f\"]")
}

fn join_expected(left: bool) -> Vec<String> {
    let x = |id: usize| (id * 31) % 1009;
    let or_null = |found: Vec<usize>| -> Vec<String> {
        let found: Vec<String> = found.iter().map(usize::to_string).collect();
        if found.is_empty() && left { vec![String::new()] } else { found }
    };
    let mut all = Vec::new();
    for id in 0..ROWS {
        let few = |e: &usize| x(*e).is_multiple_of(2) && key(*e) == key(id) && x(id).is_multiple_of(2);
        for e in or_null((0..60).filter(few).collect()) {
            for f in or_null((0..5).filter(|f| key(*f) == key(id)).collect()) {
                all.push(format!("{id},{e},{f}"));
            }
        }
    }
    sorted(all)
}

#[test]
fn a_join_of_three_inputs_finds_all_partners() {
    let found = everywhere("inner", &csv(ROWS, KEYS), &joined("inner"));
    assert!(!found.is_empty());
    assert_eq!(found, join_expected(false));
    assert_eq!(everywhere("left", &csv(ROWS, KEYS), &joined("left")), join_expected(true));
}

#[test]
fn order_is_kept_by_a_join_where_the_job_keeps_it() {
    let world = World::new();
    let path = world.file("rows.csv", csv(ROWS, KEYS));
    let job = "preserve_order = true\n".to_owned()
        + &rows(&path, false).replace(
            "[[stage]]\nid = \"rows\"",
            "[[stage]]\nid = \"rows\"\nparallelism = 1\nsplit = \"file\"",
        )
        + &one("map", "few", "in", "select = [\"id\", \"k as other\"]")
        + &many("hash_join", "work", &["in", "few"], "on = [\"id = id\"]")
        + &one(
            "sink",
            "out",
            "work",
            "connector = \"file\"\nformat = \"csv\"\npath = \"out\"\nparallelism = 1",
        );
    let files = run(&world, &job, 2, "order");
    let full: Vec<&Vec<String>> = files.iter().filter(|lines| !lines.is_empty()).collect();
    assert_eq!(full.len(), 1);
    let ids: Vec<usize> =
        full[0].iter().map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(ids.into_iter().eq(0..ROWS), "not in order");
}

#[test]
fn two_joins_that_wait_for_each_other_end() {
    let world = World::new();
    let ids = |id: &str| {
        format!("[[stage]]\nid = \"{id}\"\nop = \"source\"\nconnector = \"ids\"\nn = 40000\npayload = 100\n")
    };
    let job = ids("a")
        + &ids("b")
        + &one("map", "ka", "a", "select = [\"id\"]")
        + &one("map", "kb", "b", "select = [\"id\"]")
        + &many("hash_join", "first", &["a", "kb"], "on = [\"id = id\"]")
        + &many("hash_join", "second", &["b", "ka"], "on = [\"id = id\"]")
        + &many("sink", "out", &["first", "second"], "connector = \"count\"");
    let job = world.file("cross.toml", format!("name = \"cross\"\n{job}"));
    world.up(&["--local", "2", "--slots", "1", "--memory", "4MiB"]);
    let output = world.tuplane(&["submit", &job, "--wait", "--timeout", "120s"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(vertex(&world.status("cross"), "out")["rows_in"], 80_000);
}

#[test]
fn a_row_whose_key_a_join_cannot_take_is_named_by_its_line() {
    let world = World::new();
    let bad = csv(500, 4).replace("\n41,", "\nno,");
    let path = world.file("rows.csv", &bad);
    world.up(&["--local", "3", "--slots", "1"]);
    let job = |options: &str, primary: bool| {
        let source = rows(&path, true).replace("id = \"bigint\"", "id = \"text\"");
        let numbers = "[[stage]]\nid = \"ids\"\nop = \"source\"\nconnector = \"ids\"\nn = 1000\n";
        let (inputs, on) = if primary {
            (["in", "ids"], "cast(id as bigint) = id")
        } else {
            (["ids", "in"], "id = cast(id as bigint)")
        };
        let join = many("hash_join", "work", &inputs, &format!("on = [\"{on}\"]"));
        let sink = one("sink", "out", "work", "connector = \"count\"");
        world.file("job.toml", format!("name = \"join\"\n{options}\n{source}{numbers}{join}{sink}"))
    };
    for (primary, stage) in [(true, "work"), (false, "work/collector1")] {
        let failed = world.tuplane(&["submit", &job("", primary), "--wait", "--name", "fail"]);
        assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
        let said = world.status("fail")["fault"]["message"].as_str().unwrap().to_owned();
        assert!(said.starts_with("stage work: cannot cast 'no' to bigint"), "{said}");
        assert!(said.ends_with("rows.csv, line 43)"), "{said}");
        let name = format!("drop-{primary}");
        let dropped = job("on_error = \"drop\"", primary);
        world.json(&["submit", &dropped, "--wait", "--name", &name]);
        let status = world.status(&name);
        assert_eq!(vertex(&status, "out")["rows_in"], 499, "{status}");
        let note = vertex(&status, stage)["notes"][0].as_str().unwrap_or_default().to_owned();
        assert!(note.contains("rows.csv, line 43"), "{status}");
    }
}

#[test]
fn views_of_the_yahoo_benchmark_find_their_campaigns() {
    let test = "views_of_the_yahoo_benchmark";
    let Some(events) = shared(test, "data/json-ysb/ysb_6k_skew.jsonl") else { return };
    let Some(ads) = shared(test, "data/json-ysb/ad_to_campaign.csv") else { return };
    let world = World::new();
    let source = |id: &str, path: &std::path::Path, more: &str| {
        format!("[[stage]]\nid = \"{id}\"\nop = \"source\"\npath = \"{}\"\n{more}\n", path.display())
    };
    let job = source(
        "events",
        &events,
        "format = \"jsonl\"\ncolumns = { ad_id = \"text\", event_type = \"text\" }",
    ) + &source("ads", &ads, "format = \"csv\"\nheader = true")
        + &one("filter", "views", "events", "where = \"event_type = 'view'\"")
        + &many("hash_join", "found", &["views", "ads"], "on = [\"ad_id = ad_id\"]\nkind = \"left\"")
        + &one("group_by", "by", "found", "key = \"\\\"ads.campaign_id\\\" as campaign\"")
        + &one("aggregate", "counts", "by", "compute = [\"count(*) as views\"]")
        + &one("sink", "out", "counts", "connector = \"file\"\nformat = \"csv\"\npath = \"out\"");
    for agents in 1..=3 {
        let lines: Vec<String> = run(&world, &job, agents, &format!("ysb-{agents}")).concat();
        let counts: BTreeMap<&str, u64> = lines
            .iter()
            .map(|line| line.rsplit_once(',').unwrap())
            .map(|(c, n)| (c, n.parse().unwrap()))
            .collect();
        assert!(counts.keys().all(|campaign| !campaign.is_empty()), "a view found no campaign");
        let most = counts.values().max().copied().unwrap();
        assert_eq!((counts.len(), counts.values().sum::<u64>(), most), (100, 2005, 33), "{agents} agents");
    }
}
