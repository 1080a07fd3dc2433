//! An instance that calls a service: rows in hand are bounded, results leave in order or as they come, and a
//! mark never passes a row.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tuplane_core::job::{self, OnError, UsingService};
use tuplane_expr::arrow::array::{RecordBatch, new_null_array};
use tuplane_expr::arrow::compute::concat_batches;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::system::Places;
use tuplane_expr::{Advanced, Dropped, EvalError, ServiceProgram};
use tuplane_wire::message::{FaultCode, WireFault};

use super::clock::Doing;
use super::handover::{Ask, RowsAlone};
use super::instance::{ADAPT, Body, Instance, LOOK, STEP, fault, instance_fault};
use super::ledger::Counters;
use super::operator::{DROPPED_BY_EXPRESSION, DroppedRows, OperatorError, Remark};
use super::output::Output;
use super::rows::{Kept, MOST_BYTES, MOST_ROWS, Rows, own_bytes};
use crate::exchange::inbox::{Inbox, Taken};
use crate::exchange::mark::Mark;
use crate::service::{Service, ask};

mod line;

use line::{Held, Leaving, Line};

/// The reason under which rows are counted whose call failed.
const DROPPED_BY_SERVICE: &str = "service";

/// One instance's calls.
pub(crate) struct Calls {
    stage: String,
    program: ServiceProgram,
    service: Arc<dyn Service>,
    options: job::Calls,
    /// Requests under way at once.
    most: usize,
    /// Rows of a request.
    batch: usize,
    ordered: bool,
    /// It gets a thread of its own (`cooperative = false`).
    own_thread: bool,
    /// Rows that no request has taken yet.
    waiting: VecDeque<Question>,
    waiting_rows: usize,
    /// What was asked, in the order of the rows, with the marks between them.
    line: Line,
    /// Rows that are asked, or answered and not gone.
    asked_rows: usize,
    /// A mark that stands behind waiting rows.
    mark: Option<Mark>,
    running: JoinSet<Back>,
    /// Rows that requests have taken so far.
    sent: u64,
    /// Dropped with the instance, which ends calls that block before their next try: a thread cannot be aborted.
    alive: watch::Sender<()>,
    /// Another one in every instance, so that calls that fail everywhere at once do not come again together.
    lots: RandomState,
    /// Rows that have left since windows were divided last.
    done: u64,
}

/// Rows, and what each asks.
struct Question {
    rows: RecordBatch,
    question: RecordBatch,
    /// Their charges stay until they are done.
    kept: Vec<Arc<Kept>>,
}

/// A request is back.
struct Back {
    /// Its number in the line.
    number: u64,
    /// Its first row's number among all that were asked, from 1.
    first: u64,
    answer: Result<RecordBatch, String>,
}

impl Calls {
    pub(crate) fn new(
        stage: &str,
        program: ServiceProgram,
        using: &UsingService,
        service: Arc<dyn Service>,
    ) -> Self {
        Self {
            stage: stage.to_owned(),
            program,
            service,
            options: using.calls(),
            most: using.calls.concurrency(using.asynchronous),
            batch: using.calls.batch(using.batched),
            ordered: using.calls.preserve_order(),
            own_thread: !using.cooperative,
            waiting: VecDeque::new(),
            waiting_rows: 0,
            line: Line::default(),
            asked_rows: 0,
            mark: None,
            running: JoinSet::new(),
            sent: 0,
            alive: watch::Sender::default(),
            lots: RandomState::new(),
            done: 0,
        }
    }

    /// It wants a thread of its own.
    pub(crate) fn blocks(&self) -> bool {
        self.own_thread
    }

    /// Rows that may be taken. A row keeps its place until it has left, also behind one that is slow.
    fn room(&self) -> usize {
        (self.most * self.batch).saturating_sub(self.waiting_rows + self.asked_rows)
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.line.is_empty() && self.mark.is_none() && self.running.is_empty()
    }

    fn take(&mut self, rows: &Rows, with: &With<'_>) -> Result<(), WireFault> {
        let places = Places::of(rows.batch());
        let asked = self.program.ask(rows.batch().clone());
        let asked = asked.map_err(|error| with.failed(&self.stage, error, &places))?;
        with.left_out(&self.stage, &asked.dropped, asked.last, &places);
        with.finished(asked.dropped.len());
        if asked.rows.num_rows() > 0 {
            self.waiting_rows += asked.rows.num_rows();
            let kept = vec![Arc::new(rows.kept())];
            self.waiting.push_back(Question { rows: asked.rows, question: asked.question, kept });
        }
        Ok(())
    }

    /// Begins requests. A request with fewer rows than it may have waits until the one before it is back, unless
    /// nothing is to come.
    fn send(&mut self, ending: bool) -> Result<(), WireFault> {
        while self.running.len() < self.most && self.waiting_rows > 0 {
            let pressing = ending || self.mark.is_some() || self.running.is_empty();
            if self.waiting_rows < self.batch && !pressing {
                break;
            }
            let Question { rows, question, kept } = self.next_question()?;
            self.waiting_rows -= rows.num_rows();
            self.asked_rows += rows.num_rows();
            let first = self.sent + 1;
            self.sent += rows.num_rows() as u64;
            let number = self.line.ask(Held { rows, _kept: kept });
            let seed = self.lots.hash_one(number);
            let call = ask(Arc::clone(&self.service), question, self.options.clone(), seed);
            if self.service.blocks() {
                let handle = tokio::runtime::Handle::current();
                let mut alive = self.alive.subscribe();
                let call = async move {
                    tokio::select! {
                        biased;
                        _ = alive.changed() => Err("the job was stopped".to_owned()),
                        answer = call => answer,
                    }
                };
                self.running.spawn_blocking(move || Back { number, first, answer: handle.block_on(call) });
            } else {
                self.running.spawn(async move { Back { number, first, answer: call.await } });
            }
        }
        if self.waiting.is_empty()
            && let Some(mark) = self.mark.take()
        {
            self.line.mark(mark);
        }
        Ok(())
    }

    /// The rows of the next request.
    fn next_question(&mut self) -> Result<Question, WireFault> {
        let joined = |pieces: &[RecordBatch]| {
            concat_batches(pieces[0].schema_ref(), pieces)
                .map_err(|e| instance_fault(&self.stage, &e.to_string()))
        };
        let pieces = self.pieces_of_next();
        if pieces > 1 {
            let all: Vec<Question> = self.waiting.drain(..pieces).collect();
            let rows: Vec<RecordBatch> = all.iter().map(|one| one.rows.clone()).collect();
            let questions: Vec<RecordBatch> = all.iter().map(|one| one.question.clone()).collect();
            let (rows, question) = (joined(&rows)?, joined(&questions)?);
            // Joined rows are copies: the charges of those they were made of stand for them.
            let kept = all.into_iter().flat_map(|one| one.kept).collect();
            self.waiting.push_front(Question { rows, question, kept });
        }
        let Some(mut all) = self.waiting.pop_front() else {
            return Err(instance_fault(&self.stage, "a request without rows"));
        };
        let count = self.service.fits(&all.question, self.batch);
        let left = all.rows.num_rows() - count;
        if left > 0 {
            let kept = all.kept.clone();
            let (rows, question) = (all.rows.slice(count, left), all.question.slice(count, left));
            self.waiting.push_front(Question { rows, question, kept });
            (all.rows, all.question) = (all.rows.slice(0, count), all.question.slice(0, count));
        }
        Ok(all)
    }

    /// How many pieces that wait are joined for the next request: until its rows are there (at most 8,192, a job's
    /// limit), or so many bytes.
    fn pieces_of_next(&self) -> usize {
        let (mut rows, mut bytes) = (0, 0);
        for (piece, one) in self.waiting.iter().enumerate() {
            bytes += own_bytes(&one.rows) + own_bytes(&one.question);
            if rows >= self.batch || bytes > MOST_BYTES && piece > 0 {
                return piece;
            }
            rows += one.rows.num_rows();
        }
        self.waiting.len()
    }

    /// A request is back.
    fn note(&mut self, joined: Result<Back, JoinError>, with: &With<'_>) -> Result<(), WireFault> {
        let Back { number, first, answer } =
            joined.map_err(|error| instance_fault(with.name, &broken(error)))?;
        let Some(asked) = self.line.asked(number) else {
            return Err(instance_fault(with.name, "an answer to nothing"));
        };
        let rows = asked.num_rows();
        let answer = match (answer, self.program.on_error()) {
            (Ok(answer), _) => answer,
            (Err(message), on_error) => {
                let at = Places::of(asked).of_row(0);
                let remark = Remark::of(&self.stage, &message, at);
                match on_error {
                    OnError::Fail if at.is_some() => {
                        return Err(WireFault::new(FaultCode::Row, remark.text()).at(at));
                    }
                    OnError::Fail => {
                        // Without a place a row is known by its number here.
                        let message = format!("{}: row {first}: {message}", with.name);
                        return Err(WireFault::new(FaultCode::Row, message));
                    }
                    OnError::Drop => {
                        with.counters.remark(&remark);
                        let dropped = DroppedRows::from([(DROPPED_BY_SERVICE.to_owned(), rows as u64)]);
                        with.counters.drop_rows(dropped);
                        with.finished(rows);
                        self.asked_rows -= rows;
                        self.line.drop_asked(number);
                        return Ok(());
                    }
                    OnError::Null => {
                        with.counters.remark(&remark);
                        with.counters.unanswered(rows);
                        nothing(self.program.answered(), rows)
                            .map_err(|e| with.failed(&self.stage, e, &Places::default()))?
                    }
                }
            }
        };
        self.line.answer(number, answer);
        Ok(())
    }

    /// Lets out what may leave, waiting for room between pieces; what is asked of the instance meanwhile comes before the
    /// next piece. A piece is joined into one batch, whose texts must stay far below the 2 GiB of a column.
    async fn release(
        &mut self,
        output: &mut Output,
        with: &With<'_>,
        control: &Control<'_>,
    ) -> Result<(), WireFault> {
        let mut first = true;
        loop {
            if !first && self.line.has_results(self.ordered) && !with.room(output, control).await {
                return Ok(());
            }
            match self.line.leave(self.ordered, MOST_BYTES) {
                Some(Leaving::Mark(mark)) => output.mark(mark).map_err(|e| fault(with.name, &e))?,
                Some(Leaving::Rows(ready)) => {
                    first = false;
                    self.emit(ready, output, with, control).await?;
                }
                None => return Ok(()),
            }
        }
    }

    async fn emit(
        &mut self,
        ready: Vec<(Held, RecordBatch)>,
        output: &mut Output,
        with: &With<'_>,
        control: &Control<'_>,
    ) -> Result<(), WireFault> {
        with.counters.clock.set(Doing::Busy);
        let (held, answers): (Vec<Held>, Vec<RecordBatch>) = ready.into_iter().unzip();
        let broken = |e: &dyn std::fmt::Display| instance_fault(with.name, &e.to_string());
        let rows = concat_batches(held[0].rows.schema_ref(), held.iter().map(|one| &one.rows))
            .map_err(|e| broken(&e))?;
        let answers = concat_batches(self.program.answered(), &answers).map_err(|e| broken(&e))?;
        let places = Places::of(&rows);
        let answered = self.program.answer(&rows, &answers);
        let answered = answered.map_err(|error| with.failed(&self.stage, error, &places))?;
        with.left_out(&self.stage, &answered.dropped, answered.last, &places);
        match answered.made {
            Advanced::Rows(made) => output.emit(made).map_err(|e| fault(with.name, &e))?,
            Advanced::Unnest(mut state) => {
                while let Some(piece) = state.next(MOST_ROWS, MOST_BYTES as usize) {
                    let piece = piece.map_err(|error| with.failed(&self.stage, error, &places))?;
                    output.emit(piece).map_err(|e| fault(with.name, &e))?;
                    // What has begun to leave goes out whole, past the bound if need be.
                    with.room(output, control).await;
                }
            }
        }
        self.asked_rows -= rows.num_rows();
        self.done += rows.num_rows() as u64;
        with.finished(rows.num_rows());
        Ok(())
    }
}

/// Why a call came to no end.
fn broken(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => format!("a call panicked: {}", super::said(panic.as_ref())),
        Err(error) => format!("a call was ended: {error}"),
    }
}

/// Answers that are not there.
fn nothing(columns: &SchemaRef, rows: usize) -> Result<RecordBatch, EvalError> {
    let nulls = columns.fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
    Ok(RecordBatch::try_new(Arc::clone(columns), nulls)?)
}

/// What an instance's calls say things with.
struct With<'a> {
    name: &'a str,
    counters: &'a Counters,
}

impl With<'_> {
    fn failed(&self, stage: &str, error: EvalError, places: &Places) -> WireFault {
        fault(self.name, &OperatorError::of(stage, error, places))
    }

    /// Rows that an expression could not take.
    fn left_out(&self, stage: &str, dropped: &[Dropped], last: Option<Dropped>, places: &Places) {
        if !dropped.is_empty() {
            let count = dropped.len() as u64;
            self.counters.drop_rows(DroppedRows::from([(DROPPED_BY_EXPRESSION.to_owned(), count)]));
        }
        if let Some(last) = last {
            self.counters.remark(&Remark::of(stage, &last.message, places.of_row(last.row)));
        }
    }

    /// Waits until no queue is full, or until something is asked of the instance; true if there is room, or what was asked
    /// waits for the rows that are to leave.
    async fn room(&self, output: &Output, control: &Control<'_>) -> bool {
        while output.is_full() && !control.drains {
            if !control.asked.is_empty() {
                return false;
            }
            self.counters.clock.set(Doing::Blocked);
            tokio::select! {
                () = output.wait() => {}
                () = control.inbox.wait() => {}
            }
            self.counters.clock.set(Doing::Busy);
        }
        true
    }

    /// So many rows are no longer in hand.
    fn finished(&self, rows: usize) {
        self.counters.load.done(rows as u64);
    }
}

/// What is asked of an instance whose key partitions move. That waits for no room behind: what it waits for goes out past the
/// bound.
struct Control<'a> {
    /// What was not looked at yet; the inbox is nudged with it.
    asked: &'a mpsc::UnboundedReceiver<Ask>,
    inbox: &'a Inbox,
    /// Something that was asked waits for all rows in hand.
    drains: bool,
}

/// Runs an instance of calls to the end of its input.
pub(super) async fn run(instance: &mut Instance) -> Result<(), WireFault> {
    let Instance { name, body, inbox, output, counters, queue_time, asked, .. } = instance;
    let Body::Calls(calls) = body else { return Err(instance_fault(name, "it calls no service")) };
    let (with, moving) = (With { name, counters }, RowsAlone { name, inbox, counters });
    let (mut ending, mut began) = (false, Instant::now());
    // What was asked about its key partitions and has to wait.
    let mut ask: Option<Ask> = None;
    let mut adapted = (Instant::now(), 0);
    loop {
        while let Some(joined) = calls.running.try_join_next() {
            calls.note(joined, &with)?;
        }
        if ask.is_none() {
            ask = asked.try_recv().ok();
        }
        let drains = ask.as_ref().is_some_and(Ask::waits_for_rows);
        // A mark that waits for nothing stands in the line after this, and may leave at once.
        calls.send(ending || drains)?;
        // Looked at once: room that came after answers were held back for its want must end the wait below.
        let full = output.is_full() && !drains;
        if !full {
            calls.release(output, &with, &Control { asked, inbox, drains }).await?;
            if ask.is_none() && !asked.is_empty() {
                // The wait for room may have taken the inbox's only nudge.
                continue;
            }
        }
        // Rows that it has asked the service for are not handed over: they leave first.
        if ask.as_ref().is_some_and(|ask| !ask.waits_for_rows() || calls.is_empty())
            && let Some(ask) = ask.take()
        {
            // Small pieces that are joined have not gone yet.
            output.end_step().map_err(|e| fault(name, &e))?;
            if let Some(settled) = moving.answer(ask) {
                output.mark(Mark::Resume).map_err(|e| fault(name, &e))?;
                // Whoever has gone without waiting for an answer needs none.
                let _ = settled.send(Ok(()));
            }
            continue;
        }
        let open = !ending && calls.mark.is_none() && ask.is_none();
        let room = calls.room();
        let taken = if open {
            inbox.take(room.max(1), full || room == 0).map_err(|e| instance_fault(name, &e))?
        } else {
            Taken::Nothing
        };
        let nothing = matches!(taken, Taken::Nothing);
        match taken {
            Taken::Rows { rows, .. } => {
                let count = rows.len() as u64;
                counters.add_in(count);
                counters.clock.set(Doing::Busy);
                calls.take(&rows, &with)?;
            }
            Taken::Watermark(time) => {
                counters.set_watermark(time);
                calls.mark = Some(Mark::Watermark(time));
            }
            Taken::Idle => calls.mark = Some(Mark::Idle),
            Taken::Barrier(number) => calls.mark = Some(Mark::Barrier(number)),
            Taken::Ended => ending = true,
            Taken::InputEnded(_) | Taken::ChannelEnded(_) | Taken::Nothing => {}
        }
        if ending && calls.is_empty() {
            return output.end_step().map_err(|e| fault(name, &e));
        }
        if adapted.0.elapsed() >= ADAPT {
            let busy = counters.clock.read().busy;
            if let Some(ns_per_row) = (busy - adapted.1).checked_div(calls.done) {
                counters.load.measured(ns_per_row);
                inbox.adapt(ns_per_row, *queue_time);
            }
            (adapted, calls.done) = ((Instant::now(), busy), 0);
        }
        if !nothing {
            if began.elapsed() >= STEP {
                output.end_step().map_err(|e| fault(name, &e))?;
                tokio::task::yield_now().await;
                began = Instant::now();
            }
            continue;
        }
        output.end_step().map_err(|e| fault(name, &e))?;
        let at_most = ending || calls.mark.is_some() || ask.is_some() || room == 0;
        counters.clock.set(match () {
            () if full && calls.line.has_results(calls.ordered) => Doing::Blocked,
            // Rows in hand, and no further one can be taken: it works as hard as it may.
            () if at_most && !calls.running.is_empty() => Doing::Busy,
            () => Doing::Idle,
        });
        if !full {
            output.flush();
        }
        tokio::select! {
            Some(joined) = calls.running.join_next(), if !calls.running.is_empty() => {
                calls.note(joined, &with)?;
            }
            // Also for what is asked of it.
            () = inbox.wait(), if open || (ask.is_none() && !calls.running.is_empty()) => {}
            () = output.wait(), if full => {}
            () = tokio::time::sleep(LOOK), if full => {}
            // Nothing to wait for: what is there goes on with the next look.
            else => tokio::task::yield_now().await,
        }
        began = Instant::now();
    }
}

#[cfg(test)]
mod tests;
