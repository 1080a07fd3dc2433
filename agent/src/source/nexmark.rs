//! Auction events of the benchmark, from the `nexmark` crate, at event times that do not depend on the clock.

use std::sync::Arc;

use ::nexmark::EventGenerator;
use ::nexmark::config::NexmarkConfig;
use ::nexmark::event::{Event, EventType};
use tuplane_core::job::{Nexmark, NexmarkEvents};
use tuplane_expr::arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampMillisecondBuilder,
};

use super::generate::{Arranged, Series};
use super::{BATCH_BYTES, SourceContext, SourceError};

/// Of 50 events in a row 1 is a person, then 3 are auctions, then 46 are bids: the benchmark's own shares.
const CYCLE: u64 = 50;

/// First place and number of a kind in the cycle, its crate's name, columns and about how many bytes a row has.
fn facts(events: NexmarkEvents) -> (u64, u64, EventType, &'static [&'static str], usize) {
    match events {
        NexmarkEvents::Person => (
            0,
            1,
            EventType::Person,
            &["id", "name", "email_address", "credit_card", "city", "state", "extra", "date_time"],
            250,
        ),
        NexmarkEvents::Auction => (
            1,
            3,
            EventType::Auction,
            &[
                "id",
                "initial_bid",
                "reserve",
                "seller",
                "category",
                "item_name",
                "description",
                "extra",
                "date_time",
                "expires",
            ],
            600,
        ),
        NexmarkEvents::Bid => (
            4,
            46,
            EventType::Bid,
            &["auction", "bidder", "price", "channel", "url", "extra", "date_time"],
            250,
        ),
    }
}

/// How many of the first `n` events are of a kind.
pub(super) fn rows_among(events: NexmarkEvents, n: u64) -> u64 {
    let (first, number, ..) = facts(events);
    n / CYCLE * number + (n % CYCLE).saturating_sub(first).min(number)
}

/// Events of one kind; rows are numbered within the kind, so that instances share them evenly.
pub(super) struct Events {
    columns: Arranged,
    generator: EventGenerator,
    config: NexmarkConfig,
    step: u64,
    kind: NexmarkEvents,
    row_bytes: usize,
}

impl Events {
    /// This instance's share of the events.
    pub(super) fn new(options: &Nexmark, context: &SourceContext) -> Result<Self, SourceError> {
        let (_, _, event_type, names, row_bytes) = facts(options.events);
        let columns = Arranged::new(&context.schema, names)?;
        let config = NexmarkConfig { base_time: options.base_time, ..NexmarkConfig::default() };
        let step = u64::from(context.instances);
        let generator = generator(&config, event_type, u64::from(context.instance_number), step);
        Ok(Self { columns, generator, config, step, kind: options.events, row_bytes })
    }
}

/// Every `step`-th event of a type, from one on.
fn generator(config: &NexmarkConfig, event_type: EventType, first: u64, step: u64) -> EventGenerator {
    EventGenerator::new(config.clone()).with_type_filter(event_type).with_offset(first).with_step(step)
}

impl Series for Events {
    fn rows(&mut self, first: u64, step: u64, count: usize) -> Result<RecordBatch, SourceError> {
        if (first, step) != (self.generator.offset(), self.step) {
            // Of another unit.
            let (_, _, event_type, ..) = facts(self.kind);
            self.generator = generator(&self.config, event_type, first, step);
            self.step = step;
        }
        let count = count.min(BATCH_BYTES / self.row_bytes).max(1);
        let (integers, texts, times) = match self.kind {
            NexmarkEvents::Person => (1, 6, 1),
            NexmarkEvents::Auction => (5, 3, 2),
            NexmarkEvents::Bid => (3, 3, 1),
        };
        let mut made = Made::new(integers, texts, times, count);
        for event in self.generator.by_ref().take(count) {
            match event {
                Event::Person(person) => made.row(
                    &[person.id],
                    &[
                        &person.name,
                        &person.email_address,
                        &person.credit_card,
                        &person.city,
                        &person.state,
                        &person.extra,
                    ],
                    &[person.date_time],
                ),
                Event::Auction(auction) => made.row(
                    &[auction.id, auction.initial_bid, auction.reserve, auction.seller, auction.category],
                    &[&auction.item_name, &auction.description, &auction.extra],
                    &[auction.date_time, auction.expires],
                ),
                Event::Bid(bid) => made.row(
                    &[bid.auction, bid.bidder, bid.price],
                    &[&bid.channel, &bid.url, &bid.extra],
                    &[bid.date_time],
                ),
            }
        }
        self.columns.batch(&made.finish())
    }
}

/// Builders in the order in which [`facts`] names columns: integers, texts, times.
struct Made {
    integers: Vec<Int64Builder>,
    texts: Vec<StringBuilder>,
    times: Vec<TimestampMillisecondBuilder>,
}

impl Made {
    fn new(integers: usize, texts: usize, times: usize, rows: usize) -> Self {
        Self {
            integers: (0..integers).map(|_| Int64Builder::with_capacity(rows)).collect(),
            texts: (0..texts).map(|_| StringBuilder::with_capacity(rows, rows * 40)).collect(),
            times: (0..times).map(|_| TimestampMillisecondBuilder::with_capacity(rows)).collect(),
        }
    }

    fn row(&mut self, integers: &[usize], texts: &[&String], times: &[u64]) {
        for (builder, value) in self.integers.iter_mut().zip(integers) {
            builder.append_value(*value as i64);
        }
        for (builder, value) in self.texts.iter_mut().zip(texts) {
            builder.append_value(value);
        }
        for (builder, value) in self.times.iter_mut().zip(times) {
            builder.append_value(*value as i64);
        }
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let integers = self.integers.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef);
        let texts = self.texts.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef);
        let times = self.times.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef);
        integers.chain(texts).chain(times).collect()
    }
}
