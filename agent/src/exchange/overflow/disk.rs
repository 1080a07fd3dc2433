//! The files of one sender's rows, written and read by a thread of their own: nobody who moves rows waits for a disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use tokio::sync::Notify;
use tuplane_expr::arrow::array::{ArrayRef, AsArray, RecordBatch};

use super::Why;
use crate::engine::rows::{Budget, Rows};
use crate::engine::spill::{SpillWriter, Spilled, Spills};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// A file has about so many bytes; its room is free again when it has been read.
const FILE_BYTES: u64 = 64 << 20;
/// More than so many bytes do not wait to be written: the sender is held up.
pub(super) const UNWRITTEN: u64 = 1 << 20;

/// A sender's files, as those see them who move its rows.
#[derive(Debug)]
pub(super) struct Disk {
    orders: Sender<Order>,
    shared: Arc<Shared>,
}

/// What its thread is asked for. It does so in this order.
#[derive(Debug)]
enum Order {
    /// These become the next piece.
    Write(Vec<Rows>),
    /// The next piece is to be read.
    Read,
}

#[derive(Debug)]
struct Shared {
    done: Mutex<Done>,
    /// Nobody wants the rows any more.
    cancelled: AtomicBool,
    /// Told when there is something to take, or room.
    wake: Arc<Notify>,
}

/// What the thread has come to.
#[derive(Debug, Default)]
struct Done {
    /// Pieces that have been read.
    read: VecDeque<Rows>,
    /// Bytes that are yet to be written.
    unwritten: u64,
    /// Bytes of the files.
    on_disk: u64,
    failed: Option<Arc<Why>>,
}

impl Disk {
    /// Starts the thread. `wake` is told when a piece has been read, when there is room again, and of a failure.
    pub(super) fn start(spills: Spills, budget: Arc<Budget>, wake: Arc<Notify>) -> Result<Self, Why> {
        let (orders, taken) = mpsc::channel();
        let done = Mutex::new(Done::default());
        let shared = Arc::new(Shared { done, cancelled: AtomicBool::new(false), wake });
        let theirs = Arc::clone(&shared);
        let serve = move || theirs.serve(Files::new(spills, budget), &taken);
        std::thread::Builder::new().name("waiting rows".to_owned()).spawn(serve).map_err(Why::Thread)?;
        Ok(Self { orders, shared })
    }

    /// These rows are the next piece.
    pub(super) fn write(&self, rows: Vec<Rows>) {
        lock(&self.shared.done).unwritten += bytes_of(&rows);
        self.order(Order::Write(rows));
    }

    /// The next piece is wanted: [`Disk::take`] gives it later.
    pub(super) fn read(&self) {
        self.order(Order::Read);
    }

    fn order(&self, order: Order) {
        // A thread that has ended has said why: `check` gives it.
        let _ = self.orders.send(order);
    }

    /// A piece that has been read.
    pub(super) fn take(&self) -> Option<Rows> {
        lock(&self.shared.done).read.pop_front()
    }

    /// Whether all is well so far.
    pub(super) fn check(&self) -> Result<(), Arc<Why>> {
        lock(&self.shared.done).failed.clone().map_or(Ok(()), Err)
    }

    /// As much waits to be written as may.
    pub(super) fn is_behind(&self) -> bool {
        lock(&self.shared.done).unwritten >= UNWRITTEN
    }

    /// Bytes of its files, those included that are yet to be written.
    pub(super) fn bytes(&self) -> u64 {
        let done = lock(&self.shared.done);
        done.on_disk + done.unwritten
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn serve(&self, mut files: Files, orders: &Receiver<Order>) {
        let _watched = Watched(self);
        for order in orders {
            if self.cancelled.load(Ordering::Relaxed) {
                return;
            }
            let (written, outcome) = match order {
                Order::Write(rows) => (bytes_of(&rows), files.write(&rows).map(|()| None)),
                Order::Read => (0, files.read().map(Some)),
            };
            let mut done = lock(&self.done);
            let was_behind = done.unwritten >= UNWRITTEN;
            done.on_disk = files.on_disk;
            match outcome {
                Ok(read) => {
                    done.unwritten -= written;
                    let wakes = read.is_some() || was_behind && done.unwritten < UNWRITTEN;
                    done.read.extend(read);
                    if wakes {
                        self.wake.notify_one();
                    }
                }
                Err(why) => {
                    done.failed = Some(Arc::new(why));
                    drop(done);
                    self.wake.notify_one();
                    return;
                }
            }
        }
    }
}

/// A panic of the thread is a failure like any other.
struct Watched<'a>(&'a Shared);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.done).failed.get_or_insert_with(|| Arc::new(Why::Panicked));
            self.0.wake.notify_one();
        }
    }
}

fn bytes_of(rows: &[Rows]) -> u64 {
    rows.iter().map(Rows::bytes).sum()
}

/// Pieces of rows, in files that are read in the order in which they were written.
#[derive(Debug)]
struct Files {
    spills: Spills,
    budget: Arc<Budget>,
    /// Files that are complete; the first one is being read.
    complete: VecDeque<(Spilled, Held)>,
    writing: Option<(SpillWriter, Held)>,
    /// Bytes of them all.
    on_disk: u64,
}

/// What a file holds.
#[derive(Debug, Default)]
struct Held {
    /// Pieces that have not been read.
    pieces: u64,
    /// Its length in bytes.
    bytes: u64,
}

impl Held {
    /// The file is so long now; gives by how much it has grown.
    fn grow(&mut self, length: u64) -> u64 {
        let more = length.saturating_sub(self.bytes);
        self.bytes += more;
        more
    }
}

impl Files {
    fn new(spills: Spills, budget: Arc<Budget>) -> Self {
        Self { spills, budget, complete: VecDeque::new(), writing: None, on_disk: 0 }
    }

    /// Adds a piece.
    fn write(&mut self, rows: &[Rows]) -> Result<(), Why> {
        let Some(rows) = Rows::join(rows)? else { return Ok(()) };
        let ids = rows.partitions().map(|ids| Arc::new(ids.clone()) as ArrayRef);
        let columns = rows.batch().columns().iter().cloned().chain(ids).collect();
        let batch = RecordBatch::try_new(Arc::clone(self.spills.schema()), columns)?;
        let (mut writer, mut held) = match self.writing.take() {
            Some(writing) => writing,
            None => (self.spills.begin().map_err(Why::Disk)?, Held::default()),
        };
        writer.write(&batch).map_err(Why::Disk)?;
        held.pieces += 1;
        self.on_disk += held.grow(writer.written().map_err(Why::Disk)?);
        let full = held.bytes >= FILE_BYTES;
        self.writing = Some((writer, held));
        if full { self.complete() } else { Ok(()) }
    }

    /// The file that is being written can be read.
    fn complete(&mut self) -> Result<(), Why> {
        if let Some((writer, mut held)) = self.writing.take() {
            let (mut file, written) = writer.finish().map_err(Why::Disk)?;
            self.on_disk += held.grow(written);
            file.read().map_err(Why::Disk)?;
            self.complete.push_back((file, held));
        }
        Ok(())
    }

    /// The next piece.
    fn read(&mut self) -> Result<Rows, Why> {
        if self.complete.is_empty() {
            self.complete()?;
        }
        let (file, held) = self.complete.front_mut().ok_or(Why::Short)?;
        let batch = file.next_rows().map_err(Why::Disk)?.ok_or(Why::Short)?;
        held.pieces -= 1;
        if held.pieces == 0 {
            self.on_disk -= held.bytes;
            self.complete.pop_front();
        }
        let partitioned =
            batch.schema_ref().fields().last().is_some_and(|field| field.name() == super::PARTITION);
        let width = batch.num_columns() - usize::from(partitioned);
        let ids = partitioned.then(|| batch.column(width).as_primitive().clone());
        let batch = batch.project(&(0..width).collect::<Vec<_>>())?;
        Rows::new(batch, ids, &self.budget).ok_or(Why::Short)
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::overflow::tests::{rows, spills};

    #[test]
    fn files_are_counted_by_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(64 << 20);
        let mut files = Files::new(spills(folder.path(), true), Arc::clone(&budget));
        for n in 0..20 {
            files.write(&[rows(n * 5000..n * 5000 + 5000, true, &budget)]).unwrap();
        }
        let before = files.on_disk;
        let (file, held) = files.writing.take().unwrap();
        let (_, length) = file.finish().unwrap();
        let end_of_stream = 8;
        assert_eq!((before, held.bytes), (length - end_of_stream, before));
    }
}
