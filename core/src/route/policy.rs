//! Policies of unicast edges: which target takes the next rows of one sending instance.

use std::ops::Range;

/// The most rows of one run in the `default` setting (engine.md section 6): two targets with
/// credit never differ by more than this many rows.
pub const DEAL: u32 = 256;

/// A target as a policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Dense instance id.
    pub instance: u32,
    /// It has credit: a frame may be sent to it.
    pub credit: bool,
}

/// The targets of one edge as one agent sees them: grouped by agent, the sender's own agent first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    list: Vec<Target>,
    groups: Vec<Range<usize>>,
}

impl Targets {
    /// Targets from groups of instance ids, one group an agent. Empty groups are left out.
    pub fn new(groups: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut targets = Self::default();
        for group in groups {
            let start = targets.list.len();
            targets.list.extend(group.into_iter().map(|instance| Target { instance, credit: true }));
            if targets.list.len() > start {
                targets.groups.push(start..targets.list.len());
            }
        }
        targets
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// There is no target.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The targets in order.
    pub fn list(&self) -> &[Target] {
        &self.list
    }

    /// Says whether a target has credit.
    pub fn set_credit(&mut self, index: usize, credit: bool) {
        self.list[index].credit = credit;
    }

    fn has_credit(&self, group: usize) -> bool {
        self.list[self.groups[group].clone()].iter().any(|t| t.credit)
    }
}

/// The next rows go to this target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Index into [`Targets::list`].
    pub target: usize,
    /// At most so many rows; at least 1.
    pub rows: u32,
}

/// Chooses targets for the rows of one sending instance on one edge.
pub trait Policy: Send + std::fmt::Debug {
    /// The policy's name in job files.
    fn name(&self) -> &'static str;

    /// Where the next of `rows` (at least 1) waiting rows go, in runs of at most `deal` rows.
    /// `None` if no target has credit. The caller then reports what it really sent with
    /// [`Policy::sent`].
    fn choose(&mut self, targets: &Targets, rows: u32, deal: u32) -> Option<Choice>;

    /// So many rows of the last choice went out (fewer than chosen if a frame was full).
    fn sent(&mut self, rows: u32);
}

/// No policy has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no policy is called `{name}`; there are: {}", policy_names().join(", "))]
pub struct PolicyError {
    /// The name that was asked for.
    pub name: String,
}

/// The names that [`make_policy`] takes. None of them has options.
pub fn policy_names() -> &'static [&'static str] {
    &["round-robin", "shuffle"]
}

/// Policies that the engine's rules name and this version plans only.
pub fn later_policies() -> &'static [&'static str] {
    &["potus", "p2c", "jsq", "local_first"]
}

/// A policy by name, for one sending instance; `seed` feeds those that draw lots.
///
/// # Errors
/// If no policy has that name.
pub fn make_policy(name: &str, seed: u64) -> Result<Box<dyn Policy>, PolicyError> {
    match name {
        "round-robin" => Ok(Box::<RoundRobin>::default()),
        "shuffle" => Ok(Box::new(Shuffle { lots: Lots(seed), run: None })),
        _ => Err(PolicyError { name: name.to_owned() }),
    }
}

/// Round-robin in two levels that skips a full receiver (Jet's distributed edge; rebalance.md 10.3).
///
/// First over agents, weighted by how many targets each holds, then over the agent's targets.
/// With equal numbers that is Jet's turn exactly.
#[derive(Debug, Default)]
struct RoundRobin {
    /// Smooth weighted turn: each group with credit gains its weight, the richest pays the sum.
    balance: Vec<i64>,
    /// Next target within each group.
    within: Vec<usize>,
    run: Option<Run>,
}

/// A run of rows that is under way.
#[derive(Debug, Clone, Copy)]
struct Run {
    target: usize,
    left: u32,
}

impl Run {
    /// The run goes on if its target still has credit.
    fn resume(run: &mut Option<Run>, targets: &Targets, rows: u32, deal: u32) -> Option<Choice> {
        let run = run.as_mut()?;
        // Runs have become shorter: what is left of this one too.
        run.left = run.left.min(deal);
        let usable = run.left > 0 && targets.list().get(run.target).is_some_and(|t| t.credit);
        usable.then(|| Choice { target: run.target, rows: run.left.min(rows) })
    }

    fn spend(run: &mut Option<Run>, rows: u32) {
        if let Some(run) = run {
            run.left = run.left.saturating_sub(rows);
        }
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn choose(&mut self, targets: &Targets, rows: u32, deal: u32) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, targets, rows, deal) {
            return Some(choice);
        }
        self.balance.resize(targets.groups.len(), 0);
        self.within.resize(targets.groups.len(), 0);
        let mut best: Option<usize> = None;
        let mut paid = 0;
        for (group, range) in targets.groups.iter().enumerate() {
            if !targets.has_credit(group) {
                continue;
            }
            let weight = range.len() as i64;
            self.balance[group] += weight;
            paid += weight;
            if best.is_none_or(|b| self.balance[group] > self.balance[b]) {
                best = Some(group);
            }
        }
        let group = best?;
        self.balance[group] -= paid;
        let range = targets.groups[group].clone();
        let (start, len) = (range.start, range.len());
        let step = (0..len).find(|k| targets.list[start + (self.within[group] + k) % len].credit)?;
        let local = (self.within[group] + step) % len;
        self.within[group] = (local + 1) % len;
        let target = start + local;
        self.run = Some(Run { target, left: deal });
        Some(Choice { target, rows: rows.min(deal) })
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}

/// Uniform choice over the targets with credit, a new lot for each run.
#[derive(Debug)]
struct Shuffle {
    lots: Lots,
    run: Option<Run>,
}

impl Policy for Shuffle {
    fn name(&self) -> &'static str {
        "shuffle"
    }

    fn choose(&mut self, targets: &Targets, rows: u32, deal: u32) -> Option<Choice> {
        if let Some(choice) = Run::resume(&mut self.run, targets, rows, deal) {
            return Some(choice);
        }
        let open = targets.list().iter().filter(|t| t.credit).count();
        if open == 0 {
            return None;
        }
        let nth = self.lots.below(open as u64) as usize;
        let (target, _) = targets.list().iter().enumerate().filter(|(_, t)| t.credit).nth(nth)?;
        self.run = Some(Run { target, left: deal });
        Some(Choice { target, rows: rows.min(deal) })
    }

    fn sent(&mut self, rows: u32) {
        Run::spend(&mut self.run, rows);
    }
}

/// `SplitMix64`: small, seeded, the same everywhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lots(pub(crate) u64);

impl Lots {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number under `bound`, by the high bits of a product (bias under 2^-32 for our bounds).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two local targets (0, 1), one on each of two other agents (2, 3), as in rebalance.md 10.3.
    fn jet() -> Targets {
        // The publication's trace counts the local ones as one entry: weights are 1 there because
        // each member has one processor per entry; equal numbers per agent give the same turn.
        Targets::new([vec![0, 1], vec![2, 4], vec![3, 5]])
    }

    fn take(policy: &mut dyn Policy, targets: &Targets, n: usize) -> Vec<u32> {
        (0..n)
            .filter_map(|_| {
                let choice = policy.choose(targets, 1, 1)?;
                policy.sent(1);
                Some(targets.list()[choice.target].instance)
            })
            .collect()
    }

    #[test]
    fn equal_numbers_give_jets_turn() {
        let mut policy = RoundRobin::default();
        assert_eq!(take(&mut policy, &jet(), 7), [0, 2, 3, 1, 4, 5, 0]);
    }

    #[test]
    fn an_agent_without_credit_is_skipped_and_the_others_keep_their_turn() {
        let mut policy = RoundRobin::default();
        let mut targets = jet();
        assert_eq!(take(&mut policy, &targets, 6), [0, 2, 3, 1, 4, 5]);
        targets.set_credit(2, false);
        targets.set_credit(3, false);
        assert_eq!(take(&mut policy, &targets, 4), [0, 3, 1, 5]);
    }

    #[test]
    fn a_full_turn_without_credit_gives_nothing_and_one_freed_target_is_next() {
        let mut policy = RoundRobin::default();
        let mut targets = jet();
        for i in 0..targets.len() {
            targets.set_credit(i, false);
        }
        assert_eq!(policy.choose(&targets, 1, 1), None);
        targets.set_credit(1, true);
        assert_eq!(take(&mut policy, &targets, 1), [1]);
    }

    #[test]
    fn agents_are_weighted_by_their_instances() {
        let mut policy = RoundRobin::default();
        let targets = Targets::new([vec![0, 1, 2], vec![3]]);
        let dealt = take(&mut policy, &targets, 400);
        for instance in 0..4 {
            assert_eq!(dealt.iter().filter(|i| **i == instance).count(), 100);
        }
    }

    #[test]
    fn shuffle_is_uniform_over_targets_with_credit() {
        let mut policy = make_policy("shuffle", 7).unwrap();
        let mut targets = jet();
        targets.set_credit(0, false);
        let dealt = take(policy.as_mut(), &targets, 50_000);
        for instance in 1..6u32 {
            let share = dealt.iter().filter(|i| **i == instance).count();
            assert!((9_500..10_500).contains(&share), "instance {instance}: {share}");
        }
        assert!(!dealt.contains(&0));
    }

    proptest! {
        /// Two targets that always have credit never differ by more than one run.
        #[test]
        fn shares_stay_within_one_deal(sizes in prop::collection::vec(1usize..5, 1..5), deal in 1u32..300, chunks in prop::collection::vec(1u32..9000, 1..40)) {
            let mut next = 0;
            let targets = Targets::new(sizes.iter().map(|n| { let group = (next..next + *n as u32).collect(); next += *n as u32; group }));
            let mut policy = RoundRobin::default();
            let mut shares = vec![0u64; targets.len()];
            for mut rows in chunks {
                while rows > 0 {
                    let choice = policy.choose(&targets, rows, deal).unwrap();
                    prop_assert!(choice.rows >= 1 && choice.rows <= rows.min(deal));
                    policy.sent(choice.rows);
                    shares[choice.target] += u64::from(choice.rows);
                    rows -= choice.rows;
                }
            }
            let (low, high) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            prop_assert!(high - low <= u64::from(deal), "{shares:?}");
        }
    }
}
