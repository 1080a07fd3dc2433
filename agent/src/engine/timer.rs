//! Waking at an instant, to within some 0.1 ms: tokio's own wheel turns once a millisecond, which
//! for a wait of 2 ms is half of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

/// A thread that sleeps until the next instant somebody waits for.
#[derive(Debug, Clone)]
pub(crate) struct Timer {
    handle: Arc<Handle>,
}

/// What all clones of a timer hold; the thread ends with it.
#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those who wait, by instant and a number that tells equal instants apart.
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    next: u64,
    closed: bool,
}

impl Timer {
    /// Starts the thread; it ends when the last handle is dropped.
    pub(crate) fn start() -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new().name("timer".into()).spawn(move || theirs.run())?;
        Ok(Self { handle: Arc::new(Handle(shared)) })
    }

    /// Returns at `at`, or at once if that has passed.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        if at <= Instant::now() {
            return;
        }
        let (send, receive) = oneshot::channel();
        let shared = &self.handle.0;
        let waiter = {
            let mut state = shared.lock();
            let number = state.next;
            state.next += 1;
            let first = state.waiting.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
            state.waiting.insert((at, number), send);
            if first {
                shared.changed.notify_one();
            }
            Waiter { shared, entry: (at, number) }
        };
        // The thread is gone only when every handle is.
        let _ = receive.await;
        drop(waiter);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

/// Somebody who waits; its entry goes with it, also where it is dropped before its time.
struct Waiter<'a> {
    shared: &'a Shared,
    entry: (Instant, u64),
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = Instant::now();
            while let Some(entry) = state.waiting.first_entry()
                && entry.key().0 <= now
            {
                // A waiter that is being dropped does not mind.
                let _ = entry.remove().send(());
            }
            state = match state.waiting.first_key_value().map(|((at, _), _)| *at) {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let wait = at.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_thread_ends_when_the_last_two_handles_go_at_once() {
        for _ in 0..200 {
            let timer = Timer::start().unwrap();
            let shared = Arc::downgrade(&timer.handle.0);
            let other = timer.clone();
            let thread = std::thread::spawn(move || drop(other));
            drop(timer);
            thread.join().unwrap();
            let begin = Instant::now();
            while shared.strong_count() > 0 {
                assert!(begin.elapsed() < Duration::from_mins(1), "the thread stays");
                std::thread::yield_now();
            }
        }
    }

    #[tokio::test]
    async fn who_does_not_wait_any_more_leaves_nothing() {
        let timer = Timer::start().unwrap();
        let far = Instant::now() + Duration::from_hours(1);
        for _ in 0..10 {
            tokio::select! {
                () = timer.sleep_until(far) => panic!("an hour has not passed"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(timer.handle.0.lock().waiting.len(), 0);
        timer.sleep_until(Instant::now() + Duration::from_millis(1)).await;
    }
}
