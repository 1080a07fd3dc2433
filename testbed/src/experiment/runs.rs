//! Runs that do not depend on one another, on several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Asks runs to end early.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that is set when the user interrupts the program (Ctrl-C) or the system asks it to end.
    ///
    /// # Errors
    /// If the system gives no such signals.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let stop = Self::default();
        let set = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut end) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => (), _ = end.recv() => () }
            });
            set.set();
        })?;
        Ok(stop)
    }

    /// Asks them to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// They are asked to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Does the runs 0 to `count` - 1 on so many threads, each a whole at a time, and hands each result to `done`, on
/// the caller's thread and in the order in which they come. Ends early, with what has been done, when `stop` is set;
/// a run that is under way is done first.
///
/// # Errors
/// The first of a run or of `done`; nothing new begins behind it.
pub fn run_all<R: Send, E: Send>(
    count: usize,
    threads: usize,
    stop: &Stop,
    work: impl Fn(usize) -> Result<R, E> + Sync,
    mut done: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let (sender, next, work, failed) = (sender.clone(), &next, &work, &failed);
            scope.spawn(move || {
                while !stop.is_set() && !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || sender.send((index, work(index))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut outcome = Ok(());
        for (index, result) in receiver {
            if outcome.is_err() {
                continue;
            }
            outcome = result.and_then(|result| done(index, result));
            failed.store(outcome.is_err(), Ordering::Relaxed);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_done_once() {
        let mut seen = vec![0; 40];
        let work = |index: usize| Ok::<_, String>(index * 2);
        run_all(40, 3, &Stop::default(), work, |index, result| {
            assert_eq!(result, index * 2);
            seen[index] += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [1; 40]);
        run_all(0, 2, &Stop::default(), work, |_, _| Err("nothing is done".to_owned())).unwrap();
    }

    #[test]
    fn a_failure_and_a_stop_end_the_rest() {
        let work = |index: usize| if index == 3 { Err("third") } else { Ok(()) };
        let mut done = 0;
        let failed = run_all(1000, 1, &Stop::default(), work, |_, ()| {
            done += 1;
            Ok(())
        });
        assert_eq!((failed, done), (Err("third"), 3));
        let stop = Stop::default();
        let mut done = 0;
        let work = |index: usize| {
            if index == 5 {
                stop.set();
            }
            Ok::<_, ()>(())
        };
        let stopped = run_all(1000, 1, &stop, work, |_, ()| {
            done += 1;
            Ok(())
        });
        assert_eq!((stopped, done), (Ok(()), 6));
    }
}
