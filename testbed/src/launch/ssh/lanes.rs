//! Work on many hosts, some at a time.

use std::collections::BTreeMap;

use tokio::sync::Semaphore;

use super::Target;

/// Hosts that work is under way on at once through the same jump host: its sshd counts the logins too.
pub(super) const FAN_OUT_JUMP: usize = 4;

/// Lets so many through at once.
#[derive(Debug)]
pub(super) struct Lanes {
    all: Semaphore,
    jumps: BTreeMap<String, Semaphore>,
}

impl Lanes {
    /// For these targets, at most `fan_out` at once.
    pub(super) fn new<'t>(fan_out: usize, targets: impl Iterator<Item = &'t Target>) -> Self {
        let jumps = targets.filter_map(|target| target.jump.clone());
        Self {
            all: Semaphore::new(fan_out.max(1)),
            jumps: jumps.map(|jump| (jump, Semaphore::new(FAN_OUT_JUMP))).collect(),
        }
    }

    /// Does the work on a target when its turn has come.
    pub(super) async fn pass<T>(&self, target: &Target, work: impl Future<Output = T>) -> T {
        let through = target.jump.as_ref().and_then(|jump| self.jumps.get(jump));
        // Never closed, so a permit is only late.
        let _through = match through {
            Some(jump) => jump.acquire().await.ok(),
            None => None,
        };
        let _own = self.all.acquire().await.ok();
        work.await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;

    use super::*;

    /// The most that were under way at once, of 20 hosts.
    async fn most(fan_out: usize, jump: Option<&str>) -> usize {
        let target = |n: usize| Target { host: format!("h{n}"), port: None, jump: jump.map(str::to_owned) };
        let targets: Vec<Target> = (0..20).map(target).collect();
        let lanes = Lanes::new(fan_out, targets.iter());
        let (now, most) = (Cell::new(0), Cell::new(0));
        let work = targets.iter().map(|target| {
            lanes.pass(target, async {
                now.set(now.get() + 1);
                most.set(most.get().max(now.get()));
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                now.set(now.get() - 1);
            })
        });
        assert_eq!(join_all(work).await.len(), 20);
        most.get()
    }

    #[tokio::test]
    async fn no_more_than_asked_for_and_four_through_one_jump_host() {
        assert_eq!((most(3, None).await, most(100, None).await), (3, 20));
        assert_eq!((most(3, Some("gate")).await, most(100, Some("gate")).await), (3, FAN_OUT_JUMP));
    }
}
