//! An agent's cores (`--cores`): who works has one, and who wants one shares them by time with the others, as threads do
//! under an operating system.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::sync::{Mutex, lock};

/// So many cores. Whoever has had least of them is next: an instance whose rows take twice as long as another's gets half
/// as many turns while both always have rows.
#[derive(Debug)]
pub(crate) struct Cores {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: u32,
    /// What the last one had had that was given a core, in ns.
    now: u64,
    /// Those who wait, by what they have had and a number that tells equals apart.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<Core>>,
    next: u64,
}

/// What one instance has had of its agent's cores, in ns: others' shares are measured by the same clock.
#[derive(Debug, Default)]
pub(crate) struct Share(u64);

/// A core, until this is dropped.
#[derive(Debug)]
pub(crate) struct Core(Arc<Cores>);

impl Cores {
    pub(crate) fn new(cores: u32) -> Arc<Self> {
        let state = State { free: cores, now: 0, waiting: BTreeMap::new(), next: 0 };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Waits for a core to work on for so long. What somebody did not ask for while others did is not made up for.
    pub(crate) async fn take(self: &Arc<Self>, share: &mut Share, work: Duration) -> Option<Core> {
        let (mut waiter, mut given) = {
            let mut state = lock(&self.state);
            let had = share.0.max(state.now);
            share.0 = had.saturating_add(work.as_nanos() as u64);
            if state.free > 0 {
                state.free -= 1;
                state.now = had;
                return Some(Core(Arc::clone(self)));
            }
            let entry = (had, state.next);
            state.next += 1;
            let (give, given) = oneshot::channel();
            state.waiting.insert(entry, give);
            (Waiter { cores: self, entry: Some(entry) }, given)
        };
        // Whoever gives a core back hands it to one who waits.
        let core = (&mut given).await.ok();
        waiter.entry = None;
        core
    }

    fn give_back(self: &Arc<Self>) {
        let next = {
            let mut state = lock(&self.state);
            let next = state.waiting.pop_first();
            match &next {
                Some(((had, _), _)) => state.now = state.now.max(*had),
                None => state.free += 1,
            }
            next
        };
        if let Some((_, give)) = next {
            // One that does not wait any more has let it go, and it goes to the next.
            drop(give.send(Core(Arc::clone(self))));
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Somebody who waits; its entry goes with it, also where it is dropped before its time.
struct Waiter<'a> {
    cores: &'a Arc<Cores>,
    entry: Option<(u64, u64)>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            lock(&self.cores.state).waiting.remove(&entry);
        }
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Who gets the only core how often, of instances that always want it for so many milliseconds.
    async fn turns(of: &[u32], turns: usize) -> Vec<usize> {
        let cores = Cores::new(1);
        let mut counts = vec![0; of.len()];
        let held = cores.take(&mut Share::default(), Duration::ZERO).await;
        let wants = |index: usize, mut share: Share| {
            let (cores, work) = (Arc::clone(&cores), of[index] * MS);
            async move {
                let core = cores.take(&mut share, work).await;
                (index, share, core)
            }
        };
        let mut waiting = futures::stream::FuturesUnordered::new();
        for index in 0..of.len() {
            waiting.push(wants(index, Share::default()).boxed());
        }
        // All wait before the first has it.
        assert!(futures::StreamExt::next(&mut waiting).now_or_never().is_none());
        drop(held);
        for _ in 0..turns {
            let Some((index, share, core)) = futures::StreamExt::next(&mut waiting).await else { break };
            counts[index] += 1;
            waiting.push(wants(index, share).boxed());
            assert!(futures::StreamExt::next(&mut waiting).now_or_never().is_none(), "there is one core");
            drop(core);
        }
        counts
    }

    #[tokio::test]
    async fn cores_are_shared_by_time_and_not_by_rows() {
        assert_eq!(turns(&[5, 5], 200).await, [100, 100]);
        let shared = turns(&[5, 10, 5], 500).await;
        assert!((99..=101).contains(&shared[1]) && (199..=201).contains(&shared[0]), "{shared:?}");
    }

    #[tokio::test]
    async fn who_has_not_asked_for_long_does_not_hold_the_others_up() {
        let cores = Cores::new(1);
        let (mut busy, mut late) = (Share::default(), Share::default());
        for _ in 0..100 {
            drop(cores.take(&mut busy, 10 * MS).await);
        }
        for _ in 0..10 {
            drop(cores.take(&mut late, 10 * MS).await);
        }
        assert!(late.0 >= busy.0, "it begins where the others are: {} and {}", late.0, busy.0);
    }

    #[tokio::test]
    async fn one_that_is_given_up_leaves_the_core_to_the_next() {
        let cores = Cores::new(1);
        let core = cores.take(&mut Share::default(), MS).await;
        let (mut first, mut second) = (Share::default(), Share::default());
        let mut gives_up = Box::pin(cores.take(&mut first, MS));
        let mut stays = Box::pin(cores.take(&mut second, MS));
        assert!((&mut gives_up).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(gives_up);
        drop(core);
        assert!((&mut stays).now_or_never().flatten().is_some());
        // It was given one, and is dropped before it has looked.
        let core = cores.take(&mut Share::default(), MS).await;
        let mut third = Share::default();
        let mut gives_up = Box::pin(cores.take(&mut third, MS));
        assert!((&mut gives_up).now_or_never().is_none());
        drop(core);
        drop(gives_up);
        assert!(cores.take(&mut Share::default(), MS).now_or_never().flatten().is_some());
    }
}
