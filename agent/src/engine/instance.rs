//! One running instance: takes a few rows, runs its operator, appends what comes of it, and says
//! where its time goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tuplane_core::time::Moved;
use tuplane_expr::arrow::array::RecordBatch;
use tuplane_expr::system::{arrivals, own_part};
use tuplane_wire::message::{SinkFile, Split, WireFault};

use super::calls::{self, Calls};
use super::clock::Doing;
use super::due::DueClock;
use super::halt::{self, Halted};
use super::handover::{Answer, Ask, Keeps};
use super::hold::Hold;
use super::keys::KeyTap;
use super::ledger::Counters;
use super::meter::StateMeter;
use super::operator::Operator;
use super::output::Output;
use super::rows::{MOST_BYTES, MOST_ROWS, Rows};
use super::splits::Splits;
use super::stamp::{Arrivals, Stamper};
use super::timer::Timer;
use super::work::Work;
use crate::exchange::inbox::{Inbox, Taken};
use crate::exchange::mark::Mark;
use crate::sink::Sink;
use crate::source::{Polled, Source};

mod early;
mod faults;
pub(crate) mod sourcing;
mod stride;

use early::until_due;
use faults::source_fault;
pub(super) use faults::{fault, instance_fault};
use sourcing::{Hand, Units};
use stride::Stride;

/// A step lasts about so long; then others have their turn.
pub(super) const STEP: Duration = Duration::from_millis(2);
/// Windows are divided anew this often.
pub(super) const ADAPT: Duration = Duration::from_millis(100);
/// An instance that is over its bound looks at least this often whether an option has changed.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// What an instance runs.
pub(crate) enum Body {
    Source(Box<dyn Source>),
    Operator(Box<dyn Operator>),
    Work(Work),
    Sink(Box<dyn Sink>),
    Calls(Box<Calls>),
}

/// A change of a live option, checked before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct SetOption {
    pub(crate) option: String,
    pub(crate) value: serde_json::Value,
}

/// One instance, before it runs.
pub(crate) struct Instance {
    /// For people: `id#n`.
    pub(crate) name: String,
    pub(crate) body: Body,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) output: Output,
    pub(crate) counters: Arc<Counters>,
    pub(crate) options: mpsc::UnboundedReceiver<SetOption>,
    /// What others ask of its state.
    pub(crate) asked: mpsc::UnboundedReceiver<Ask>,
    pub(crate) keeps: Keeps,
    /// Who waits until all has been passed on that came of settled partitions.
    pub(crate) settled: Vec<Answer<()>>,
    pub(crate) start: watch::Receiver<bool>,
    pub(crate) halt: Halted,
    pub(crate) timer: Timer,
    pub(crate) splits: Splits,
    /// Of a source: whether it may end, and what it has to do with units of others.
    pub(crate) hand: Arc<Hand>,
    pub(crate) units: Units,
    /// Of a source that gives its rows their event times, and says when they arrived.
    pub(crate) stamper: Option<Stamper>,
    pub(crate) arrivals: Option<Arrivals>,
    /// Of one that takes rows only when they have arrived, and where they may come before.
    pub(crate) hold: Option<Hold>,
    pub(crate) clock: DueClock,
    /// What waits is bounded in time as well as in bytes.
    pub(crate) queue_time: bool,
    /// Where rows come by key.
    pub(crate) keys: Option<KeyTap>,
}

impl Instance {
    /// It holds up the thread that it runs on: in a call to the system, or in a busy loop.
    pub(crate) fn blocks(&self) -> bool {
        match &self.body {
            Body::Source(source) => source.blocks(),
            Body::Operator(operator) => !operator.is_cooperative(),
            Body::Work(work) => work.spins(),
            Body::Sink(sink) => sink.blocks(),
            Body::Calls(calls) => calls.blocks(),
        }
    }

    /// The cost of a row, where it is known before any was worked on.
    fn expected(&self) -> Duration {
        match &self.body {
            Body::Work(work) => work.mean(),
            _ => Duration::ZERO,
        }
    }

    /// Runs to the end of input; gives the files that a sink wrote.
    pub(crate) async fn run(mut self) -> Result<Vec<SinkFile>, WireFault> {
        // Nobody drops the sender before the instance has ended; if it does, the run is over.
        if self.start.wait_for(|started| *started).await.is_err() {
            return Ok(Vec::new());
        }
        if let Some(stamper) = &mut self.stamper {
            stamper.begin();
        }
        if let Body::Operator(operator) = &mut self.body {
            operator.begin();
        }
        let result = match self.body {
            Body::Source(_) => self.produce().await.map(|()| Vec::new()),
            Body::Calls(_) => calls::run(&mut self).await.map(|()| Vec::new()),
            _ => self.consume().await,
        };
        if result.is_err() {
            self.counters.drop_in_hand();
        }
        match result {
            Ok(files) => {
                self.leave().await?;
                Ok(files)
            }
            Err(fault) => Err(fault),
        }
    }

    /// The end: passes it on and waits until everything has left.
    async fn leave(&mut self) -> Result<(), WireFault> {
        self.output.mark(Mark::End).map_err(|e| fault(&self.name, &e))?;
        self.counters.clock.set(Doing::Blocked);
        while !self.output.is_drained() {
            self.output.wait().await;
        }
        self.output.flush();
        self.counters.clock.set(Doing::Idle);
        Ok(())
    }

    async fn consume(&mut self) -> Result<Vec<SinkFile>, WireFault> {
        let mut stride = Stride::new(self.expected());
        self.counters.load.measured(stride.ns_per_row as u64);
        let mut meter = StateMeter::new();
        let merges = matches!(&self.body, Body::Operator(operator) if operator.merges());
        if merges {
            self.inbox.read_by_channel();
        }
        loop {
            self.halt.go(&self.counters.clock).await;
            if self.set_options() {
                stride = Stride::new(self.expected());
                self.counters.load.measured(stride.ns_per_row as u64);
            }
            if self.answer() {
                meter.changed = true;
                self.counters.clock.set(Doing::Busy);
                self.pull().await?;
                self.pass_settled()?;
            }
            let began = Instant::now();
            // Whether there was room when nothing more was to be taken; `None`: the step's time was up.
            let mut nothing = None;
            while nothing.is_none() && began.elapsed() < STEP {
                let full = self.output.is_full() || self.hold.as_ref().is_some_and(Hold::is_full);
                let taken = self.inbox.take(stride.rows(), full).map_err(|e| self.fault(&e))?;
                meter.changed |= !matches!(taken, Taken::Nothing);
                match taken {
                    Taken::Rows { rows, .. } if self.halt.discards() => halt::discard(rows, &self.counters),
                    Taken::Rows { input, channel, rows } => {
                        let input = if merges { channel } else { input };
                        self.counters.clock.set(Doing::Busy);
                        let Some(rows) = self.hold_back(input, rows)? else { continue };
                        let (count, busy) = (rows.len(), self.counters.clock.read().busy);
                        self.process(input, rows, false).await?;
                        // Time blocked on output says nothing of the cost of a row.
                        stride.measure(count, self.counters.clock.read().busy - busy);
                        self.counters.load.measured(stride.ns_per_row as u64);
                    }
                    Taken::Watermark(time) => {
                        self.take_arrived(Some(time)).await?;
                        self.watermark(time).await?;
                    }
                    Taken::Idle => self.idle().await?,
                    Taken::Barrier(number) => self.pass(Mark::Barrier(number))?,
                    Taken::InputEnded(input) | Taken::ChannelEnded(input) => {
                        self.take_all().await?;
                        self.end_input(input).await?;
                    }
                    Taken::Ended => {
                        self.take_all().await?;
                        self.counters.clock.set(Doing::Busy);
                        return self.finish().await;
                    }
                    Taken::Nothing => nothing = Some(full),
                }
            }
            self.take_arrived(None).await?;
            self.tick_operator(nothing == Some(false)).await?;
            if let Body::Operator(operator) = &self.body {
                meter.look(&**operator, &self.counters);
            }
            self.output.end_step().map_err(|e| fault(&self.name, &e))?;
            if stride.adapted.elapsed() >= ADAPT {
                stride.adapted = Instant::now();
                self.inbox.adapt(stride.ns_per_row as u64, self.queue_time);
            }
            match nothing {
                Some(full) => self.rest(full, &meter).await,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Waits until there may be something to take, or room. `full` is what [`Inbox::take`] was told:
    /// looking again would miss room that came in between, and rows that were passed over for its want.
    async fn rest(&mut self, full: bool, meter: &StateMeter) {
        self.counters.clock.set(if full { Doing::Blocked } else { Doing::Idle });
        if !full {
            self.output.flush();
        }
        self.inbox.set_blocked(full);
        let tick = match &self.body {
            Body::Operator(operator) => operator.next_tick().into_iter().chain(meter.due()).min(),
            _ => None,
        };
        tokio::select! {
            () = self.inbox.wait() => {}
            () = self.output.wait(), if full => {}
            () = tokio::time::sleep(LOOK), if full => {}
            () = until(tick) => {}
            () = until_due(&self.timer, self.hold.as_ref()) => {}
        }
        self.inbox.set_blocked(false);
    }

    /// The least watermark of all inputs has risen.
    async fn watermark(&mut self, time: i64) -> Result<(), WireFault> {
        self.counters.set_watermark(time);
        // The least of all says only that those who were idle are so no more.
        if let Body::Operator(operator) = &mut self.body
            && time > i64::MIN
        {
            self.counters.clock.set(Doing::Busy);
            operator.watermark(time).map_err(|e| fault(&self.name, &e))?;
            self.pull().await?;
        }
        if self.holds_event_time() { Ok(()) } else { self.pass(Mark::Watermark(time)) }
    }

    /// All inputs are idle.
    async fn idle(&mut self) -> Result<(), WireFault> {
        if let Body::Operator(operator) = &mut self.body {
            self.counters.clock.set(Doing::Busy);
            operator.idle().map_err(|e| fault(&self.name, &e))?;
            self.pull().await?;
        }
        let holds = matches!(&self.body, Body::Operator(operator) if operator.holds_results());
        if holds || self.holds_event_time() { Ok(()) } else { self.pass(Mark::Idle) }
    }

    fn holds_event_time(&self) -> bool {
        matches!(&self.body, Body::Operator(operator) if operator.holds_event_time())
    }

    /// Lets an operator do what it does by the clock, if it is time. `quiet`: no rows wait for it, nor what it gave
    /// for room.
    async fn tick_operator(&mut self, quiet: bool) -> Result<(), WireFault> {
        let Body::Operator(operator) = &mut self.body else { return Ok(()) };
        if operator.next_tick().is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        self.counters.clock.set(Doing::Busy);
        operator.tick(Instant::now(), quiet).map_err(|e| fault(&self.name, &e))?;
        self.pull().await
    }

    /// `held`: the rows were here before they arrived.
    async fn process(&mut self, input: usize, rows: Rows, held: bool) -> Result<(), WireFault> {
        self.counters.clock.set(Doing::Busy);
        let count = rows.len() as u64;
        self.counters.add_in(count);
        if let Some(keys) = &mut self.keys {
            keys.took(input, &rows, &self.counters.keys);
        }
        self.output.comes_of(&rows);
        match &mut self.body {
            Body::Operator(operator) => {
                let partitions = rows.partitions().cloned();
                // The rows' charge is kept until their results are out.
                let batch = rows.batch().clone();
                operator.push(input, batch, partitions.as_ref()).map_err(|e| fault(&self.name, &e))?;
                self.pull().await?;
            }
            Body::Work(work) => {
                work.run(rows.len(), &self.counters.clock).await;
                self.emit(rows.batch().clone())?;
            }
            Body::Sink(sink) => {
                let own = own_part(rows.batch()).map_err(|e| instance_fault(&self.name, &e.to_string()))?;
                self.output.show(&own);
                let written = match arrivals(rows.batch()) {
                    Some(arrivals) => sink.write_arrived(&own, arrivals),
                    None => sink.write(&own),
                };
                written.map_err(|e| instance_fault(&self.name, &e.to_string()))?;
                self.counters.responses.written(rows.batch(), held, self.clock.now());
            }
            Body::Source(_) | Body::Calls(_) => return Err(self.fault("rows came to what takes none here")),
        }
        self.counters.load.clear();
        Ok(())
    }

    /// Takes out what the operator has to give, waiting for room between two pieces.
    async fn pull(&mut self) -> Result<(), WireFault> {
        let mut began = Instant::now();
        loop {
            let Body::Operator(operator) = &mut self.body else { return Ok(()) };
            tell(operator.take_moved(), &mut self.output, &self.counters, &self.name)?;
            let piece = operator.pull(MOST_ROWS, MOST_BYTES as usize).map_err(|e| fault(&self.name, &e))?;
            self.counters.drop_rows(operator.take_dropped());
            if let Some(remark) = operator.take_remark() {
                self.counters.remark(&remark);
            }
            self.counters.ahead.fetch_add(operator.take_ahead(), Ordering::Relaxed);
            let Some(piece) = piece else {
                tell(operator.take_moved(), &mut self.output, &self.counters, &self.name)?;
                operator.take_asked().into_iter().for_each(|channel| self.inbox.ask(channel));
                return Ok(());
            };
            self.emit(piece)?;
            // Whoever asks for its state does not wait for room: the result goes out whole, past the bound.
            while self.output.is_full() && self.asked.is_empty() {
                self.counters.clock.set(Doing::Blocked);
                self.inbox.set_blocked(true);
                tokio::select! {
                    () = self.output.wait() => {}
                    () = self.inbox.wait() => {}
                }
                self.inbox.set_blocked(false);
                self.counters.clock.set(Doing::Busy);
            }
            // A row may become millions: others have their turn, and the run can be stopped.
            if began.elapsed() >= STEP {
                tokio::task::yield_now().await;
                began = Instant::now();
            }
        }
    }

    async fn end_input(&mut self, input: usize) -> Result<(), WireFault> {
        if let Body::Operator(operator) = &mut self.body {
            operator.end_input(input).map_err(|e| fault(&self.name, &e))?;
            self.pull().await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<Vec<SinkFile>, WireFault> {
        match &mut self.body {
            Body::Operator(operator) => {
                operator.end().map_err(|e| fault(&self.name, &e))?;
                self.pull().await?;
                if let Body::Operator(operator) = &self.body {
                    self.counters.state_bytes.store(operator.state_bytes() as u64, Ordering::Relaxed);
                }
                Ok(Vec::new())
            }
            Body::Sink(sink) => sink.finish().map_err(|e| instance_fault(&self.name, &e.to_string())),
            Body::Work(_) | Body::Source(_) | Body::Calls(_) => Ok(Vec::new()),
        }
    }

    async fn produce(&mut self) -> Result<(), WireFault> {
        let mut stride = Stride::new(Duration::ZERO);
        loop {
            self.halt.go(&self.counters.clock).await;
            self.set_options();
            self.answer();
            if self.waits_for_units().await {
                continue;
            }
            let began = Instant::now();
            self.tick_source()?;
            self.resume_time(false)?;
            while began.elapsed() < STEP {
                if self.output.is_full() {
                    self.output.end_step().map_err(|e| fault(&self.name, &e))?;
                    self.counters.clock.set(Doing::Blocked);
                    tokio::select! {
                        () = self.output.wait() => {}
                        () = tokio::time::sleep(LOOK) => {}
                        () = until_tick(self.stamper.as_ref()) => {}
                    }
                    if let Some(stamper) = &mut self.stamper {
                        stamper.wait();
                    }
                    break;
                }
                self.counters.clock.set(Doing::Busy);
                let Body::Source(source) = &mut self.body else { return Ok(()) };
                let (polled_at, polled) = (Instant::now(), source.poll(stride.rows()));
                let rejected = source.rejected();
                if rejected.total() > 0 {
                    let totals = rejected.by_reason.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect();
                    self.counters.set_rejected(totals, rejected.note());
                }
                match polled.map_err(|e| source_fault(&self.name, &e))? {
                    Polled::Rows(batch) => {
                        stride.measure(batch.num_rows(), polled_at.elapsed().as_nanos() as u64);
                        self.counters.add_in(batch.num_rows() as u64);
                        self.enter(batch)?;
                    }
                    Polled::Wait(until) => {
                        self.output.end_step().map_err(|e| fault(&self.name, &e))?;
                        self.output.flush();
                        self.counters.clock.set(Doing::Idle);
                        tokio::select! {
                            () = self.timer.sleep_until(until) => {}
                            () = self.inbox.wait() => {}
                            () = until_tick(self.stamper.as_ref()) => {}
                        }
                        break;
                    }
                    Polled::NeedSplit => {
                        self.output.end_step().map_err(|e| fault(&self.name, &e))?;
                        self.output.flush();
                        self.counters.clock.set(Doing::Idle);
                        let Some(split) = self.next_split().await? else { break };
                        if let Some(stamper) = &mut self.stamper {
                            stamper.begin_split();
                        }
                        if let Body::Source(source) = &mut self.body {
                            source.split(split).map_err(|e| source_fault(&self.name, &e))?;
                        }
                    }
                    Polled::End => {
                        self.output.end_step().map_err(|e| fault(&self.name, &e))?;
                        if self.has_read_all().await? {
                            return self.wait_for_arrivals().await;
                        }
                        break;
                    }
                }
            }
            self.output.end_step().map_err(|e| fault(&self.name, &e))?;
            tokio::task::yield_now().await;
        }
    }

    /// Rows enter here: they get their times, and go on.
    fn enter(&mut self, batch: RecordBatch) -> Result<(), WireFault> {
        let batch = match (&mut self.arrivals, &self.body) {
            (Some(arrivals), Body::Source(source)) => {
                let schedule = source.schedule(batch.num_rows());
                arrivals.add(&batch, schedule).map_err(|e| self.fault(&e.to_string()))?
            }
            _ => batch,
        };
        let Some(stamper) = &mut self.stamper else { return self.emit(batch) };
        let Body::Source(source) = &self.body else { return Ok(()) };
        let given = stamper.stamp(&batch, source.unit()).map_err(|e| fault(&self.name, &e))?;
        stamper.keep(&|unit| source.has(unit));
        self.counters.drop_rows(stamper.take_dropped());
        self.counters.ahead.fetch_add(stamper.take_ahead(), Ordering::Relaxed);
        if let Some(remark) = stamper.take_remark() {
            self.counters.remark(&remark);
        }
        tell(given.before, &mut self.output, &self.counters, &self.name)?;
        self.emit(given.rows)?;
        tell(given.after, &mut self.output, &self.counters, &self.name)
    }

    /// A source without rows may have become idle.
    fn tick_source(&mut self) -> Result<(), WireFault> {
        let Some(stamper) = &mut self.stamper else { return Ok(()) };
        if stamper.next_tick().is_none_or(|at| at > Instant::now()) {
            return Ok(());
        }
        tell(stamper.tick(), &mut self.output, &self.counters, &self.name)
    }

    /// The next split, `None` if none is left; the instance may become idle while it waits for one. Nothing, where it is asked
    /// something meanwhile: the coordinator gives the same answer again.
    async fn next_split(&mut self) -> Result<Option<Option<Split>>, WireFault> {
        let Self { splits, stamper, output, counters, name, inbox, asked: questions, .. } = self;
        let mut asked = std::pin::pin!(splits.next());
        loop {
            tokio::select! {
                split = &mut asked => return split.map(Some),
                () = inbox.wait() => {
                    if !questions.is_empty() {
                        return Ok(None);
                    }
                }
                () = until_tick(stamper.as_ref()) => {
                    if let Some(stamper) = stamper {
                        tell(stamper.tick(), output, counters, name)?;
                    }
                }
            }
        }
    }

    fn emit(&mut self, batch: RecordBatch) -> Result<(), WireFault> {
        self.output.emit(batch).map_err(|e| fault(&self.name, &e))
    }

    pub(super) fn pass(&mut self, mark: Mark) -> Result<(), WireFault> {
        self.output.mark(mark).map_err(|e| fault(&self.name, &e))
    }

    /// True if an option was changed.
    fn set_options(&mut self) -> bool {
        let mut changed = false;
        while let Ok(SetOption { option, value }) = self.options.try_recv() {
            let result = match &mut self.body {
                Body::Source(source) => source.set(&option, &value),
                Body::Operator(operator) => operator.set(&option, &value),
                Body::Work(work) => work.set(&option, &value),
                Body::Sink(_) | Body::Calls(_) => {
                    Err(format!("`{option}` of this stage cannot be changed while it runs"))
                }
            };
            match result {
                Ok(()) => changed = true,
                Err(error) => {
                    tracing::warn!(instance = %self.name, %error, "an option was not changed");
                }
            }
        }
        changed
    }

    fn fault(&self, message: &str) -> WireFault {
        instance_fault(&self.name, message)
    }
}

/// Passes on what a source or operator says of event time itself.
fn tell(
    moved: impl IntoIterator<Item = Moved>,
    output: &mut Output,
    counters: &Counters,
    name: &str,
) -> Result<(), WireFault> {
    for moved in moved {
        if let Moved::Watermark(time) = moved {
            counters.set_watermark(time);
        }
        output.mark(moved.into()).map_err(|e| fault(name, &e))?;
    }
    Ok(())
}

/// Until an instant; for ever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn until_tick(stamper: Option<&Stamper>) {
    until(stamper.and_then(Stamper::next_tick)).await;
}
