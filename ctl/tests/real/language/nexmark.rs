//! The queries under `testbed/jobs/nexmark`, on one to three agents, against a plain computation over the
//! same events.

use std::collections::{BTreeMap, BTreeSet};

use crate::real::world::{World, text, workspace};

/// Events of all kinds: at 10,000 a second of event time, two windows of ten seconds and part of a third.
const EVENTS: u64 = 240_000;
/// Units of what event times are read in here.
const SECOND: i64 = 1_000;

/// The columns of a job's result, in the order of its header.
type Rows = Vec<Vec<String>>;

/// A cluster of so many agents; gives the rows of a job run on it.
struct Runner<'a> {
    world: &'a World,
    agents: usize,
}

impl Runner<'_> {
    fn up(world: &World, agents: usize) -> Runner<'_> {
        let cluster = format!("n{agents}");
        let output =
            world.tuplane(&["up", "--local", &agents.to_string(), "--detach", "--cluster", &cluster]);
        assert!(output.status.success(), "{}", text(&output));
        Runner { world, agents }
    }

    fn run(&self, file: &str, sources: &[&str]) -> Rows {
        let stem = std::path::Path::new(file).file_stem().unwrap().to_str().unwrap();
        let out = self.world.path(&format!("{stem}-{}", self.agents));
        let sets: Vec<String> = sources
            .iter()
            .map(|source| format!("{source}.n={EVENTS}"))
            .chain([format!("out.path={}", out.display())])
            .collect();
        let cluster = format!("n{}", self.agents);
        let mut args = vec!["submit", file, "--wait", "--cluster", &cluster, "-q"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let output = self.world.tuplane(&args);
        assert!(output.status.success(), "{file} on {}: {}", self.agents, text(&output));
        let mut rows = Vec::new();
        for entry in std::fs::read_dir(&out).unwrap() {
            let content = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            rows.extend(content.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()));
        }
        rows.sort();
        rows
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let cluster = format!("n{}", self.agents);
        self.world.tuplane(&["down", "--cluster", &cluster, "--yes"]);
    }
}

/// Events of one kind as the source gives them: these columns, `at` last, in milliseconds.
fn dump(runner: &Runner<'_>, events: &str, columns: &str) -> Rows {
    let job = format!(
        r#"
name = "dump-{events}"
[[stage]]
id = "events"
op = "source"
connector = "nexmark"
events = "{events}"
[[stage]]
id = "parts"
op = "map"
in = "events"
select = [{columns}, "cast(date_part('epoch', date_time) * 1000 as bigint) as at"]
[[stage]]
id = "out"
op = "sink"
in = "parts"
connector = "file"
format = "csv"
path = "out"
"#
    );
    runner.run(&runner.world.file(&format!("dump-{events}.toml"), job), &["events"])
}

#[derive(Debug, Clone, Copy)]
struct Bid {
    auction: i64,
    bidder: i64,
    price: i64,
    at: i64,
}

fn bids(runner: &Runner<'_>) -> Vec<Bid> {
    let rows = dump(runner, "bid", r#""auction", "bidder", "price""#);
    let number = |row: &[String], column: usize| row[column].parse().unwrap();
    let bid = |row: &Vec<String>| Bid {
        auction: number(row, 0),
        bidder: number(row, 1),
        price: number(row, 2),
        at: number(row, 3),
    };
    rows.iter().map(bid).collect()
}

/// Milliseconds since 1970 as results show them, where they are whole seconds.
fn shown(ms: i64) -> String {
    let (seconds, sign) = (ms / SECOND, if ms < 0 { "before" } else { "" });
    assert!(sign.is_empty() && seconds < 60, "these tests begin in 1970 and are short");
    format!("1970-01-01T00:00:{seconds:02}Z")
}

fn sorted(rows: impl IntoIterator<Item = Vec<String>>) -> Rows {
    let mut rows: Rows = rows.into_iter().collect();
    rows.sort();
    rows
}

/// q5: for each window of ten seconds that ends at an even one, the auctions with the most bids.
fn hot_items(bids: &[Bid]) -> Rows {
    let mut counts: BTreeMap<i64, BTreeMap<i64, i64>> = BTreeMap::new();
    for bid in bids {
        let first = bid.at - bid.at % (2 * SECOND) + 2 * SECOND;
        for end in (0..5).map(|step| first + step * 2 * SECOND) {
            *counts.entry(end).or_default().entry(bid.auction).or_default() += 1;
        }
    }
    let most = |(end, counts): (i64, BTreeMap<i64, i64>)| {
        let most = counts.values().max().copied().unwrap_or(0);
        let hot = counts.into_iter().filter(move |(_, bids)| *bids == most);
        hot.map(move |(auction, bids)| vec![auction.to_string(), bids.to_string(), shown(end)])
    };
    sorted(counts.into_iter().flat_map(most))
}

/// q7: the highest bids of each ten seconds.
fn highest(bids: &[Bid]) -> Rows {
    let mut windows: BTreeMap<i64, Vec<Bid>> = BTreeMap::new();
    for bid in bids {
        windows.entry(bid.at - bid.at % (10 * SECOND) + 10 * SECOND).or_default().push(*bid);
    }
    let top = |(end, bids): (i64, Vec<Bid>)| {
        let most = bids.iter().map(|bid| bid.price).max().unwrap_or(0);
        let top = bids.into_iter().filter(move |bid| bid.price == most);
        top.map(move |bid| {
            vec![bid.auction.to_string(), bid.price.to_string(), bid.bidder.to_string(), shown(end)]
        })
    };
    sorted(windows.into_iter().flat_map(top))
}

fn query(name: &str) -> String {
    workspace().join(format!("testbed/jobs/nexmark/{name}.toml")).to_str().unwrap().to_owned()
}

#[test]
fn nexmark_gives_what_a_plain_computation_gives() {
    let world = World::new();
    let mut first: BTreeMap<&str, Rows> = BTreeMap::new();
    for agents in 1..=3 {
        let runner = Runner::up(&world, agents);
        if agents == 1 {
            let bids = bids(&runner);
            assert_eq!(bids.len() as u64, EVENTS / 50 * 46);
            let plain = |row: fn(&Bid) -> Option<Vec<String>>| sorted(bids.iter().filter_map(row));
            first.insert(
                "q2",
                plain(|bid| {
                    (bid.auction % 123 == 0).then(|| vec![bid.auction.to_string(), bid.price.to_string()])
                }),
            );
            first.insert("q5", hot_items(&bids));
            first.insert("q7", highest(&bids));
            let by_bidder = bids.iter().fold(BTreeMap::new(), |mut totals: BTreeMap<i64, i64>, bid| {
                *totals.entry(bid.bidder).or_default() += 1;
                totals
            });
            first.insert(
                "q12",
                sorted(by_bidder.iter().map(|(bidder, n)| vec![bidder.to_string(), n.to_string()])),
            );
            let window = |row: &[String]| {
                let at: i64 = row.last().unwrap().parse().unwrap();
                at - at % (10 * SECOND)
            };
            let persons = dump(&runner, "person", r#""id", "name""#);
            let auctions = dump(&runner, "auction", r#""id", "seller""#);
            let sellers: BTreeSet<(String, i64)> =
                auctions.iter().map(|row| (row[1].clone(), window(row))).collect();
            let new = persons.iter().filter(|row| sellers.contains(&(row[0].clone(), window(row))));
            first.insert(
                "q8",
                sorted(new.map(|row| vec![row[0].clone(), row[1].clone(), shown(window(row))])),
            );
            assert!(first.values().all(|rows| !rows.is_empty()));
            // A price in euros is 0.908 of it; what passes through passes whole.
            let euros =
                |rows: Rows| -> f64 { rows.iter().map(|row| row[2].parse::<f64>().unwrap()).sum::<f64>() };
            let (all, converted) = (runner.run(&query("q0"), &["bids"]), runner.run(&query("q1"), &["bids"]));
            let total: i64 = bids.iter().map(|bid| bid.price).sum();
            assert_eq!((all.len(), converted.len()), (bids.len(), bids.len()));
            assert!((euros(all) - total as f64).abs() < 1.0);
            assert!((euros(converted) / total as f64 - 0.908).abs() < 1e-9);
        }
        for name in ["q2", "q5", "q7"] {
            assert_eq!(runner.run(&query(name), &["bids"]), first[name], "{name} on {agents}");
        }
        let found = runner.run(&query("q8"), &["persons", "auctions"]);
        assert_eq!(found, first["q8"], "q8 on {agents}");
        // Windows of processing time fall as they fall; what is in them all is the same.
        let found = runner.run(&query("q12"), &["bids"]);
        let totals = found.iter().fold(BTreeMap::new(), |mut totals: BTreeMap<i64, i64>, row| {
            *totals.entry(row[0].parse().unwrap()).or_default() += row[3].parse::<i64>().unwrap();
            totals
        });
        let totals = sorted(totals.iter().map(|(bidder, n)| vec![bidder.to_string(), n.to_string()]));
        assert_eq!(totals, first["q12"], "q12 on {agents}");
    }
}
