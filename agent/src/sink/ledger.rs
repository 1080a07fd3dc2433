//! `ledger`: which row came out where and when, for experiments.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tuplane_expr::arrow::array::{Array, RecordBatch, TimestampNanosecondArray};
use tuplane_expr::arrow::util::display::{ArrayFormatter, FormatOptions};
use tuplane_wire::message::SinkFile;

use super::csv::{push_shown, push_text};
use super::part::{Part, Place};
use super::{Sink, SinkContext, SinkError};

/// The header line.
pub(super) fn header() -> Vec<u8> {
    b"id,instance,agent,arrival_ns,done_ns\n".to_vec()
}

/// Writes a line per row.
pub(super) struct Ledger {
    place: Place,
    id: usize,
    /// `,instance,agent,`: the same in every line.
    middle: Vec<u8>,
    clock: Clock,
    part: Option<Part>,
    text: Vec<u8>,
}

impl Ledger {
    /// A ledger of the column `id`.
    pub(super) fn new(id: &str, place: Place, context: &SinkContext) -> Result<Self, SinkError> {
        let fields = context.schema.fields();
        let names = || fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
        let position = fields.iter().position(|field| field.name() == id).ok_or_else(|| {
            SinkError::Refused(format!(
                "ledger `{}`: there is no column `{id}`; its rows have: {}",
                context.stage,
                names()
            ))
        })?;
        let mut middle = format!(",{},", context.instance_number).into_bytes();
        push_text(&context.agent, &mut middle);
        middle.push(b',');
        Ok(Self { place, id: position, middle, clock: Clock::start(), part: None, text: Vec::new() })
    }
}

impl Ledger {
    fn append(
        &mut self,
        batch: &RecordBatch,
        arrivals: Option<&TimestampNanosecondArray>,
    ) -> Result<(), SinkError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let now = self.clock.now();
        self.text = if self.part.is_none() { header() } else { Vec::new() };
        let options = FormatOptions::new();
        let ids = batch.column(self.id);
        let shown = ArrayFormatter::try_new(ids.as_ref(), &options)?;
        let done = self.clock.now();
        for row in 0..batch.num_rows() {
            if ids.is_valid(row) {
                push_text(&shown.value(row).try_to_string()?, &mut self.text);
            }
            self.text.extend_from_slice(&self.middle);
            let known = arrivals.filter(|known| known.is_valid(row));
            push_shown(&known.map_or(now, |known| known.value(row)), &mut self.text);
            self.text.push(b',');
            push_shown(&done, &mut self.text);
            self.text.push(b'\n');
        }
        let part = match &mut self.part {
            Some(part) => part,
            None => self.part.insert(Part::create(&self.place)?),
        };
        part.append(&self.text, batch.num_rows())
    }
}

impl Sink for Ledger {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.append(batch, None)
    }

    fn write_arrived(
        &mut self,
        batch: &RecordBatch,
        arrivals: &TimestampNanosecondArray,
    ) -> Result<(), SinkError> {
        self.append(batch, Some(arrivals))
    }

    fn finish(&mut self) -> Result<Vec<SinkFile>, SinkError> {
        self.part.take().map(Part::finish).transpose().map(|file| file.into_iter().collect())
    }
}

/// Nanoseconds since 1970 that never go back: the wall clock once, a monotonic one from there.
struct Clock {
    wall: i64,
    start: Instant,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { wall: i64::try_from(wall).unwrap_or(i64::MAX), start: Instant::now() }
    }

    fn now(&self) -> i64 {
        self.wall.saturating_add(i64::try_from(self.start.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }
}
