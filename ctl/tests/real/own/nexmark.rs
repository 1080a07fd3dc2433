//! The queries of the example `nexmark`, on one to three agents, against a plain computation over the same
//! events.

use std::collections::{BTreeMap, HashMap};
use std::process::Command;

use super::example;
use crate::real::language::nexmark::{Rows, Runner, dump, milliseconds, sorted};
use crate::real::world::{World, text};

/// Six seconds of event time: 1,200 persons, 3,600 auctions, 55,200 bids. An auction is open for up to 0.34.
const EVENTS: u64 = 60_000;

/// An auction, with what was bid for it while it was open.
#[derive(Debug)]
struct Sold {
    id: i64,
    seller: i64,
    category: i64,
    closes: i64,
    price: i64,
}

/// Auctions that somebody bid for while they were open; the other bids, before and after, are counted.
fn sold(auctions: &[Vec<i64>], bids: &[Vec<i64>]) -> (Vec<Sold>, usize, usize) {
    let mut by_auction: HashMap<i64, Vec<(i64, i64)>> = HashMap::new();
    for bid in bids {
        by_auction.entry(bid[0]).or_default().push((bid[2], bid[1]));
    }
    let (mut sold, mut early, mut late) = (Vec::new(), 0, 0);
    for auction in auctions {
        let &[id, seller, category, closes, opens] = &auction[..] else { panic!("{auction:?}") };
        let bids = by_auction.get(&id).map_or(&[][..], Vec::as_slice);
        early += bids.iter().filter(|(at, _)| *at < opens).count();
        late += bids.iter().filter(|(at, _)| *at > closes).count();
        let open = bids.iter().filter(|(at, _)| (opens..=closes).contains(at));
        if let Some(price) = open.map(|(_, price)| *price).max() {
            sold.push(Sold { id, seller, category, closes, price });
        }
    }
    (sold, early, late)
}

fn mean(prices: &[i64]) -> f64 {
    prices.iter().sum::<i64>() as f64 / prices.len() as f64
}

/// Key and mean of each row.
fn means(rows: &Rows) -> BTreeMap<i64, f64> {
    let means: BTreeMap<i64, f64> =
        rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect();
    assert_eq!(means.len(), rows.len(), "a key has two rows");
    means
}

/// Prices of what was sold, by key, in the order in which auctions closed.
fn prices(sold: &[Sold], key: impl Fn(&Sold) -> i64) -> BTreeMap<i64, Vec<i64>> {
    let mut prices: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for sold in sold {
        prices.entry(key(sold)).or_default().push(sold.price);
    }
    prices
}

fn numbers(rows: Rows) -> Vec<Vec<i64>> {
    rows.into_iter().map(|row| row.iter().map(|value| value.parse().unwrap()).collect()).collect()
}

#[test]
fn nexmark_by_the_builder_gives_what_a_plain_computation_gives() {
    let world = World::new();
    let program = example("nexmark");
    let job = |query: &str| {
        let printed = Command::new(&program).args(["job", query]).output().unwrap();
        assert!(printed.status.success(), "{}", text(&printed));
        let file = world.file(&format!("{query}.json"), printed.stdout);
        let checked = Command::new(&program).args(["check", &file]).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        assert!(said.contains(": ok, ") && !said.contains("warning"), "{}", text(&checked));
        file
    };
    let (q3, q4, q6) = (job("q3"), job("q4"), job("q6"));
    let (mut local, mut categories, mut sellers) = (Rows::new(), BTreeMap::new(), BTreeMap::new());
    for agents in 1..=3 {
        let runner = Runner::up(&world, agents, EVENTS, &["--agent", program.to_str().unwrap()]);
        if agents == 1 {
            let persons = dump(&runner, "person", r#""id", "name", "city", "state""#);
            let columns = format!(r#""id", "seller", "category", "{} as closes""#, milliseconds("expires"));
            let auctions = numbers(dump(&runner, "auction", &columns));
            let bids = numbers(dump(&runner, "bid", r#""auction", "price""#));
            assert_eq!((persons.len(), auctions.len(), bids.len()), (1_200, 3_600, 55_200));

            let there = ["or", "id", "ca"];
            let persons: HashMap<i64, &[String]> = persons
                .iter()
                .filter(|row| there.contains(&row[3].to_lowercase().as_str()))
                .map(|row| (row[0].parse().unwrap(), &row[1..4]))
                .collect();
            let offers = auctions.iter().filter(|auction| auction[2] == 10);
            local = sorted(offers.filter_map(|auction| {
                Some([persons.get(&auction[1])?, &[auction[0].to_string()][..]].concat())
            }));

            let (mut sold, early, late) = sold(&auctions, &bids);
            sold.sort_by_key(|sold| (sold.closes, sold.id));
            let by_category = prices(&sold, |sold| sold.category);
            categories = by_category.iter().map(|(key, prices)| (*key, mean(prices))).collect();
            let by_seller = prices(&sold, |sold| sold.seller);
            let last = |prices: &[i64]| mean(&prices[prices.len().saturating_sub(10)..]);
            sellers = by_seller.iter().map(|(key, prices)| (*key, last(prices))).collect();
            // What the queries are about is there.
            assert!(!local.is_empty() && categories.len() == 5, "{} {categories:?}", local.len());
            assert!(early > 0 && late > 0 && sold.len() < auctions.len(), "{early} {late} {}", sold.len());
            assert!(by_seller.values().any(|prices| prices.len() > 10));
        }
        // On two agents one side comes long before the other: auctions before persons, bids before auctions.
        let run = |job: &str, sources: [&'static str; 2], late: &'static str| {
            let late = (agents == 2).then_some(late);
            runner.run(job, &sources.into_iter().chain(late).collect::<Vec<_>>())
        };
        assert_eq!(run(&q3, ["persons", "auctions"], "persons.rate=1200"), local, "q3 on {agents}");
        let found = run(&q4, ["auctions", "bids"], "auctions.rate=3600");
        assert_eq!(means(&found), categories, "q4 on {agents}");
        let found = run(&q6, ["auctions", "bids"], "auctions.rate=3600");
        assert_eq!(means(&found), sellers, "q6 on {agents}");
    }
}
