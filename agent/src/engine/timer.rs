//! Waking at an instant, to within some 0.1 ms: tokio's own wheel turns once a millisecond, which
//! for a wait of 2 ms is half of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;

/// A thread that sleeps until the next instant somebody waits for.
#[derive(Debug, Clone)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
}

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
        Ok(Self { shared })
    }

    /// Returns at `at`, or at once if that has passed.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        if at <= Instant::now() {
            return;
        }
        let (send, receive) = oneshot::channel();
        {
            let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            let number = state.next;
            state.next += 1;
            let first = state.waiting.first_key_value().is_none_or(|((earliest, _), _)| at < *earliest);
            state.waiting.insert((at, number), send);
            if first {
                self.shared.changed.notify_one();
            }
        }
        // The thread is gone only when every handle is.
        let _ = receive.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // One reference is the thread's.
        if Arc::strong_count(&self.shared) <= 2 {
            self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
            self.shared.changed.notify_one();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.closed {
            let now = Instant::now();
            while let Some(entry) = state.waiting.first_entry()
                && entry.key().0 <= now
            {
                // A waiter that was dropped meanwhile does not mind.
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
