//! The locks and atomics of the queues: the standard ones, or shuttle's when its feature is on,
//! so that a test can run every queue hand-off under a scheduler that looks for lost wake-ups.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};

/// Locks, also behind a panic: the engine catches panics of operators, and no queue is left
/// half-changed by one, since operators never run under a lock. Policies of the user's own do, under their edge's: a
/// panic of one ends the run, whose queues are then only counted and let go.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
