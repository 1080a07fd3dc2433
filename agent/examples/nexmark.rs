//! `NEXMark`'s queries 3, 4 and 6: an agent with the keyed operators that they need, and their jobs.
//!
//! `nexmark job q3` prints a job (`q3`, `q4` or `q6`); without arguments the program is an agent, which
//! `tuplane run --agent` starts. The other queries are job files: `testbed/jobs/nexmark`.
//!
//! All three give the same rows in whatever order events come and however many agents there are.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tuplane_agent::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, Int64Array, PrimitiveArray, RecordBatch,
    StringArray, TimestampMillisecondArray,
};
use tuplane_agent::arrow::datatypes::{DataType, Int64Type, SchemaRef, TimestampMillisecondType};
use tuplane_agent::builder::{Pipeline, Stage, sinks, sources};
use tuplane_agent::registry::{Context, Failure, Given, Operator, OperatorKind, Out, Taken, columns};
use tuplane_agent::{Allocator, Registry};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Events of all kinds that a job reads, unless `--set SOURCE.n=` says otherwise for each of its sources.
const EVENTS: u64 = 500_000;

/// Closed auctions over which query 6 averages.
const RECENT: usize = 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let pipeline = match args[..] {
        ["job", "q3"] => local_items(),
        ["job", "q4"] => prices_of_categories(),
        ["job", "q6"] => prices_of_sellers(),
        ["job", ..] => {
            eprintln!("usage: nexmark job q3|q4|q6");
            return ExitCode::from(2);
        }
        _ => return tuplane_agent::run(registry()),
    };
    match pipeline.to_json() {
        Ok(job) => print!("{job}"),
        Err(faults) => {
            eprintln!("{faults:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What this agent has.
fn registry() -> Registry {
    Registry::new().operator("sold_by", 1, SOLD_BY).operator("won", 1, WON).operator(
        "recent",
        1,
        RECENT_PRICES,
    )
}

/// Query 3, local item suggestion: who sells something of category 10 in Oregon, Idaho or California, and in
/// which auction. A join that gives a row as soon as both sides have come.
fn local_items() -> Pipeline {
    let pipeline = Pipeline::new("nexmark-q3");
    let persons = events(&pipeline, "person", "persons")
        .filter("upper(state) in ('OR', 'ID', 'CA')")
        .id("local")
        .map(["id as person", "name", "city", "state", "cast(null as bigint) as auction"])
        .id("sellers");
    let no_text = ["name", "city", "state"].map(|column| format!("cast(null as text) as {column}"));
    let columns = [&["seller as person".to_owned()][..], &no_text, &["id as auction".to_owned()]].concat();
    let auctions = events(&pipeline, "auction", "auctions")
        .filter("category = 10")
        .id("items")
        .map(columns)
        .id("offers");
    let sold = persons.merge(&auctions).group_by("person").custom_transform("sold_by", json!({}));
    sold.id("sold").write(sinks::files("out-nexmark")).id("out");
    pipeline
}

/// Query 4, average price of a category: the mean of the winning bids of its auctions.
fn prices_of_categories() -> Pipeline {
    let pipeline = Pipeline::new("nexmark-q4");
    let prices = winning_bids(&pipeline).group_by("category").aggregate("avg(price) as price");
    prices.id("prices").write(sinks::files("out-nexmark")).id("out");
    pipeline
}

/// Query 6, average selling price by seller: the mean of the winning bids of each seller's last ten auctions, by
/// the time at which they close, and then by id. Auctions without a bid were not sold and do not count.
///
/// The benchmark's own form is continuous: each auction that closes gives a row, with the mean of it and those
/// before it. Here a seller has one row, at the end of input, which is the last one of that form: a row at each
/// close needs closes in order, and that a bid which comes later can no longer win. At the end of input all that is
/// so without waiting for a watermark, auctions that close after the last event included.
fn prices_of_sellers() -> Pipeline {
    let pipeline = Pipeline::new("nexmark-q6");
    let prices = winning_bids(&pipeline).group_by("seller").custom_transform("recent", json!({}));
    prices.id("prices").write(sinks::files("out-nexmark")).id("out");
    pipeline
}

/// The highest bid of each auction that got one while it was open. An auction and its bids meet by its id, in a
/// merged stream: a bid has no seller, category and end, and an auction no price.
fn winning_bids(pipeline: &Pipeline) -> Stage {
    let auctions = events(pipeline, "auction", "auctions");
    let opened = auctions.map([
        "id as auction",
        "seller",
        "category",
        "expires as closes",
        "date_time as at",
        "cast(null as bigint) as price",
    ]);
    let bids = events(pipeline, "bid", "bids");
    let bid = bids.map([
        "auction",
        "cast(null as bigint) as seller",
        "cast(null as bigint) as category",
        "cast(null as timestamp(3)) as closes",
        "date_time as at",
        "price",
    ]);
    let both = opened.id("opened").merge(&bid.id("bid"));
    both.group_by("auction").custom_transform("won", json!({})).id("won")
}

/// Events of one kind.
fn events(pipeline: &Pipeline, kind: &str, id: &str) -> Stage {
    pipeline.read(sources::nexmark(kind).rows(EVENTS)).id(id)
}

/// Columns by name and SQL type.
type Columns = &'static [(&'static str, &'static str)];

/// An operator behind a `group_by` with one whole number as the key, which is what all of these are.
struct Keyed {
    takes: Columns,
    gives: Columns,
    make: fn(SchemaRef) -> Box<dyn Operator>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

impl OperatorKind for Keyed {
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure> {
        let NoOptions {} = given.options()?;
        if !matches!(given.key, [key] if *key.data_type() == DataType::Int64) {
            return Err("it stands behind a `group_by` with one key, a bigint".into());
        }
        let wanted = columns(self.takes)?;
        let kinds = |columns: &SchemaRef| -> Vec<(String, DataType)> {
            columns.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        if kinds(given.input) != kinds(&wanted) {
            return Err(format!("its input must have the columns {}", in_words(self.takes)).into());
        }
        columns(self.gives)
    }

    fn make(&self, context: Context) -> Result<Box<dyn Operator>, Failure> {
        Ok((self.make)(context.output))
    }

    fn types(&self) -> String {
        format!("{} -> {}", in_words(self.takes), in_words(self.gives))
    }
}

fn in_words(columns: Columns) -> String {
    columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect::<Vec<_>>().join(", ")
}

/// The value of a row; null is none.
fn value<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
    column.is_valid(row).then(|| column.value(row))
}

/// Persons and their auctions, joined. A row without an auction is a person.
const SOLD_BY: Keyed = Keyed {
    takes: &[
        ("person", "bigint"),
        ("name", "text"),
        ("city", "text"),
        ("state", "text"),
        ("auction", "bigint"),
    ],
    gives: &[("name", "text"), ("city", "text"), ("state", "text"), ("auction", "bigint")],
    make: |output| Box::new(SoldBy { output, sellers: BTreeMap::new() }),
};

struct SoldBy {
    output: SchemaRef,
    sellers: BTreeMap<i64, Seller>,
}

/// Name, city and state of a person.
type Person = [Option<String>; 3];

/// What is known of a key.
enum Seller {
    /// The person has come: auctions need not be kept.
    Known(Person),
    /// Auctions that wait for the person.
    Awaited(Vec<i64>),
}

impl Operator for SoldBy {
    fn rows(&mut self, taken: Taken<'_>, out: &mut Out) -> Result<(), Failure> {
        let ids = taken.keys[0].as_primitive::<Int64Type>();
        let texts = [1, 2, 3].map(|column| taken.batch.column(column).as_string::<i32>());
        let auctions = taken.batch.column(4).as_primitive::<Int64Type>();
        let mut joined: Vec<(Person, i64)> = Vec::new();
        for row in 0..taken.batch.num_rows() {
            let Some(id) = value(ids, row) else { continue };
            let seller = self.sellers.entry(id).or_insert(Seller::Awaited(Vec::new()));
            match (&mut *seller, value(auctions, row)) {
                (Seller::Known(person), Some(auction)) => joined.push((person.clone(), auction)),
                (Seller::Awaited(waiting), Some(auction)) => waiting.push(auction),
                (Seller::Known(_), None) => return Err(format!("two persons have the id {id}").into()),
                (Seller::Awaited(waiting), None) => {
                    let person = texts.map(|text| text.is_valid(row).then(|| text.value(row).to_owned()));
                    joined.extend(waiting.iter().map(|auction| (person.clone(), *auction)));
                    *seller = Seller::Known(person);
                }
            }
        }
        let text = |column: usize| -> ArrayRef {
            Arc::new(joined.iter().map(|(person, _)| person[column].as_deref()).collect::<StringArray>())
        };
        let auctions = Int64Array::from_iter_values(joined.iter().map(|(_, auction)| *auction));
        let made = vec![text(0), text(1), text(2), Arc::new(auctions)];
        out.give(RecordBatch::try_new(self.output.clone(), made)?);
        Ok(())
    }
}

/// Auctions and their bids, one row an auction. A row without a price is an auction.
const WON: Keyed = Keyed {
    takes: &[
        ("auction", "bigint"),
        ("seller", "bigint"),
        ("category", "bigint"),
        ("closes", "timestamp(3)"),
        ("at", "timestamp(3)"),
        ("price", "bigint"),
    ],
    gives: &[
        ("auction", "bigint"),
        ("seller", "bigint"),
        ("category", "bigint"),
        ("closes", "timestamp(3)"),
        ("price", "bigint"),
    ],
    make: |output| Box::new(Won { output, auctions: BTreeMap::new() }),
};

struct Won {
    output: SchemaRef,
    auctions: BTreeMap<i64, Auction>,
}

/// What is known of an auction. Times are milliseconds since 1970.
enum Auction {
    /// Its bids, each with its time, wait for it: only it says which of them came while it was open.
    Awaited(Vec<(i64, i64)>),
    /// It has come: of its bids the highest is enough.
    Opened(Opened),
}

struct Opened {
    seller: i64,
    category: i64,
    at: i64,
    closes: i64,
    highest: Option<i64>,
}

impl Opened {
    fn bid(&mut self, at: i64, price: i64) {
        if (self.at..=self.closes).contains(&at) {
            self.highest = self.highest.max(Some(price));
        }
    }
}

impl Operator for Won {
    fn rows(&mut self, taken: Taken<'_>, _out: &mut Out) -> Result<(), Failure> {
        let ids = taken.keys[0].as_primitive::<Int64Type>();
        let [sellers, categories, prices] =
            [1, 2, 5].map(|column| taken.batch.column(column).as_primitive::<Int64Type>());
        let [closes, times] =
            [3, 4].map(|column| taken.batch.column(column).as_primitive::<TimestampMillisecondType>());
        for row in 0..taken.batch.num_rows() {
            let (Some(id), Some(at)) = (value(ids, row), value(times, row)) else { continue };
            let auction = self.auctions.entry(id).or_insert(Auction::Awaited(Vec::new()));
            match (&mut *auction, value(prices, row)) {
                (Auction::Opened(opened), Some(price)) => opened.bid(at, price),
                (Auction::Awaited(bids), Some(price)) => bids.push((at, price)),
                (Auction::Opened(_), None) => return Err(format!("two auctions have the id {id}").into()),
                (Auction::Awaited(bids), None) => {
                    let (Some(seller), Some(category), Some(closes)) =
                        (value(sellers, row), value(categories, row), value(closes, row))
                    else {
                        return Err(format!("auction {id} lacks its seller, category or end").into());
                    };
                    let mut opened = Opened { seller, category, at, closes, highest: None };
                    for (at, price) in bids.iter() {
                        opened.bid(*at, *price);
                    }
                    *auction = Auction::Opened(opened);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        let sold = std::mem::take(&mut self.auctions).into_iter().filter_map(|(id, auction)| match auction {
            Auction::Opened(opened) => Some((id, opened.highest?, opened)),
            Auction::Awaited(_) => None,
        });
        let sold: Vec<(i64, i64, Opened)> = sold.collect();
        let each = |of: fn(&(i64, i64, Opened)) -> i64| sold.iter().map(of);
        let integers = |of| -> ArrayRef { Arc::new(Int64Array::from_iter_values(each(of))) };
        let closes = TimestampMillisecondArray::from_iter_values(each(|(.., opened)| opened.closes));
        let made = vec![
            integers(|(id, ..)| *id),
            integers(|(.., opened)| opened.seller),
            integers(|(.., opened)| opened.category),
            Arc::new(closes),
            integers(|(_, price, _)| *price),
        ];
        out.give(RecordBatch::try_new(self.output.clone(), made)?);
        Ok(())
    }
}

/// Mean prices over the auctions of each seller that closed last.
const RECENT_PRICES: Keyed = Keyed {
    takes: WON.gives,
    gives: &[("seller", "bigint"), ("price", "double")],
    make: |output| Box::new(RecentPrices { output, sellers: BTreeMap::new() }),
};

struct RecentPrices {
    output: SchemaRef,
    /// For each seller at most [`RECENT`] auctions: when they close, id, price.
    sellers: BTreeMap<i64, BTreeSet<(i64, i64, i64)>>,
}

impl Operator for RecentPrices {
    fn rows(&mut self, taken: Taken<'_>, _out: &mut Out) -> Result<(), Failure> {
        let sellers = taken.keys[0].as_primitive::<Int64Type>();
        let [auctions, prices] = [0, 4].map(|column| taken.batch.column(column).as_primitive::<Int64Type>());
        let closes = taken.batch.column(3).as_primitive::<TimestampMillisecondType>();
        for (((seller, closes), auction), price) in sellers.iter().zip(closes).zip(auctions).zip(prices) {
            let (Some(seller), Some(closes), Some(auction), Some(price)) = (seller, closes, auction, price)
            else {
                return Err("a winning bid lacks its seller, end, auction or price".into());
            };
            let recent = self.sellers.entry(seller).or_default();
            recent.insert((closes, auction, price));
            if recent.len() > RECENT {
                recent.pop_first();
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        let mean = |recent: &BTreeSet<(i64, i64, i64)>| {
            recent.iter().map(|(.., price)| *price).sum::<i64>() as f64 / recent.len() as f64
        };
        let prices = Float64Array::from_iter_values(self.sellers.values().map(mean));
        let sellers = Int64Array::from_iter_values(self.sellers.keys().copied());
        out.give(RecordBatch::try_new(self.output.clone(), vec![Arc::new(sellers), Arc::new(prices)])?);
        Ok(())
    }
}
