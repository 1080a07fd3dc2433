//! Rolling aggregates and stateful stages. Rows of a key come in no promised order from several instances, so
//! the jobs ask for what does not depend on it.

use super::{counted, csv, everywhere, one};

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
