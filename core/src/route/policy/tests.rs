//! What each policy deals.

use proptest::prelude::*;

use super::turn::RoundRobin;
use super::*;
use crate::route::options::Setting;
use crate::route::price::Cost;
use crate::route::rank::Rank;

const ONE_ROW: Waiting = Waiting { rows: 1, mandatory: 0, deal: 1 };

/// Two local targets (0, 1), one on each of two other agents (2, 3), as in rebalance.md 10.3.
fn jet() -> Targets {
    // The publication's trace counts the local ones as one entry: weights are 1 there because
    // each member has one processor per entry; equal numbers per agent give the same turn.
    Targets::new([vec![0, 1], vec![2, 4], vec![3, 5]])
}

fn take(policy: &mut dyn Policy, targets: &Targets, n: usize) -> Vec<u32> {
    (0..n)
        .filter_map(|_| {
            let choice = policy.choose(&ONE_ROW, targets)?;
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
    assert_eq!(policy.choose(&ONE_ROW, &targets), None);
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
                let choice = policy.choose(&Waiting { rows: rows.into(), mandatory: 0, deal }, &targets).unwrap();
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

fn queues(of: &[(u64, f64)]) -> Targets {
    let mut targets = Targets::with_local([vec![0], (1..of.len() as u32).collect()]);
    for (target, (queued, cost)) in targets.list_mut().iter_mut().zip(of) {
        (target.queued, target.cost) = (*queued, Cost::new(*cost).unwrap());
    }
    targets
}

/// Sends rows one by one as a driver does: what was sent counts at its target.
fn deal(policy: &mut dyn Policy, targets: &mut Targets, rows: u64, deal: u32) -> Vec<u64> {
    let mut shares = vec![0; targets.len()];
    let mut left = rows;
    while left > 0 {
        let Some(choice) = policy.choose(&Waiting { rows: left, mandatory: 0, deal }, targets) else { break };
        let sent = u64::from(choice.rows).min(left);
        assert!(sent > 0 && sent <= u64::from(deal.max(1)));
        targets.list_mut()[choice.target].take(sent);
        policy.sent(sent as u32);
        shares[choice.target] += sent;
        left -= sent;
    }
    shares
}

fn made(name: &str, options: serde_json::Value) -> Box<dyn Policy> {
    let options = RouteOptions::read(&serde_json::from_value(options).unwrap(), Setting::Default).unwrap();
    Policies::default().make(name, &options, 11).unwrap()
}

#[test]
fn every_built_in_name_makes_a_policy_of_that_name_and_no_other_does() {
    let names: Vec<String> = Policies::default().names().map(str::to_owned).collect();
    assert_eq!(names, policy_names());
    for name in policy_names() {
        assert_eq!(make_policy(name, 1).unwrap().name(), *name);
    }
    let error = make_policy("potos", 1).unwrap_err().to_string();
    assert!(
        error.starts_with("no policy is called `potos` (did you mean `potus`?); there are: heron,"),
        "{error}"
    );
}

#[test]
fn a_policy_of_the_users_own_is_made_by_its_name() {
    #[derive(Debug)]
    struct Last;
    impl Policy for Last {
        fn name(&self) -> &'static str {
            "last"
        }
        fn choose(&mut self, _: &Waiting, targets: &Targets) -> Option<Choice> {
            Some(Choice { target: targets.len().checked_sub(1)?, rows: 1 })
        }
        fn sent(&mut self, _: u32) {}
    }
    let mut policies = Policies::default();
    policies.add("last", |_, _| Ok(Box::new(Last)));
    let mut policy = policies.make("last", &RouteOptions::default(), 0).unwrap();
    assert_eq!(take(policy.as_mut(), &jet(), 2), [5, 5]);
}

#[test]
#[should_panic(expected = "a built-in policy is called `potus`")]
fn a_built_in_policys_name_is_not_for_ones_own() {
    Policies::default().add("potus", |_, _| Ok(make_policy("shuffle", 1).unwrap()));
}

#[test]
fn a_choice_that_cannot_be_carried_out_is_named() {
    let mut targets = Targets::new([vec![4, 5]]);
    targets.set_credit(1, false);
    let check = |target, rows| Choice { target, rows }.check("mine", &targets);
    assert_eq!(check(0, 1), Ok(()));
    let said = [check(2, 1), check(1, 1), check(0, 0)].map(Result::unwrap_err);
    assert_eq!(said[0], "the policy `mine` chose 1 rows for target 2: there are 2");
    assert_eq!(said[1], "the policy `mine` chose 1 rows for target 1: which takes none now");
    assert!(said[2].starts_with("the policy `mine` chose 0 rows for target 0: and a choice"), "{}", said[2]);
}

#[test]
fn heron_begins_anywhere_and_then_takes_its_turn() {
    let firsts: std::collections::BTreeSet<u32> = (0..64)
        .map(|seed| {
            let mut policy = make_policy("heron", seed).unwrap();
            let dealt = take(policy.as_mut(), &jet(), 7);
            let places: Vec<usize> =
                dealt.iter().map(|i| jet().list().iter().position(|t| t.instance == *i).unwrap()).collect();
            assert!(places.windows(2).all(|w| w[1] == (w[0] + 1) % 6), "{places:?}");
            dealt[0]
        })
        .collect();
    assert_eq!(firsts.len(), 6);
}

#[test]
fn local_first_leaves_its_agent_only_when_nothing_there_takes_rows() {
    let mut targets = Targets::with_local([vec![0, 1], vec![2], vec![3]]);
    let mut policy = made("local_first", serde_json::json!({}));
    let dealt = take(policy.as_mut(), &targets, 1000);
    assert!(dealt.iter().all(|i| *i < 2) && dealt.iter().filter(|i| **i == 0).count() > 400);
    targets.set_credit(0, false);
    assert_eq!(take(policy.as_mut(), &targets, 5), [1; 5]);
    targets.set_credit(1, false);
    assert!(take(policy.as_mut(), &targets, 50).iter().all(|i| *i >= 2));
    let mut elsewhere = Targets::with_local([vec![], vec![2, 3]]);
    assert_eq!(take(policy.as_mut(), &elsewhere, 50).len(), 50);
    elsewhere.set_credit(0, false);
    assert_eq!(take(policy.as_mut(), &elsewhere, 2), [3, 3]);
}

#[test]
fn jsq_levels_queues_and_p2c_nearly_does() {
    let mut targets = queues(&[(0, 0.0), (7, 5.0), (3, 1.0), (90, 0.0)]);
    let shares = deal(made("jsq", serde_json::json!({})).as_mut(), &mut targets, 80, 256);
    assert_eq!(shares, [30, 23, 27, 0]);
    let mut targets = queues(&[(0, 0.0), (0, 5.0), (0, 1.0), (5000, 0.0)]);
    let shares = deal(made("p2c", serde_json::json!({})).as_mut(), &mut targets, 3000, 1);
    assert_eq!(shares[3], 0);
    assert!(shares[..3].iter().all(|n| (990..1010).contains(n)), "{shares:?}");
}

#[test]
fn potus_keeps_rows_here_until_the_way_pays() {
    // V * U = 10: the remote ones get rows once 10 wait here; the price of the last row is below 0.
    let mut policy = made("potus", serde_json::json!({ "v": 10, "beta": 1 }));
    policy.begin_slot(0, &Seen::new(queues(&[(0, 0.0), (0, 1.0), (0, 1.0)]).list(), 100));
    let mut targets = queues(&[(0, 0.0), (0, 1.0), (0, 1.0)]);
    let shares = deal(policy.as_mut(), &mut targets, 16, 256);
    assert_eq!(shares.iter().sum::<u64>(), 8, "{shares:?}");
    let mut targets = queues(&[(0, 0.0), (0, 1.0), (0, 1.0)]);
    let shares = deal(policy.as_mut(), &mut targets, 60, 256);
    assert!(
        shares[0] > 10 && shares[0] - shares[1] <= 11 && shares[1].abs_diff(shares[2]) <= 1,
        "{shares:?}"
    );
    // Nothing waits where a row would cost more than it presses.
    let mut full = queues(&[(50, 0.0), (60, 1.0), (60, 1.0)]);
    assert_eq!(deal(policy.as_mut(), &mut full, 40, 256), [0; 3]);
}

#[test]
fn what_has_to_leave_leaves_at_any_price_and_dead_targets_get_nothing() {
    let mut policy = made("potus", serde_json::json!({ "v": 1e6, "beta": 1 }));
    let mut targets = queues(&[(9, 1.0), (9, 2.0)]);
    policy.begin_slot(0, &Seen::new(targets.list(), 1));
    let waiting = Waiting { rows: 1, mandatory: 0, deal: 256 };
    assert_eq!(policy.choose(&waiting, &targets), None);
    let forced = Waiting { mandatory: 1, ..waiting };
    assert_eq!(policy.choose(&forced, &targets), Some(Choice { target: 0, rows: 1 }));
    targets.set_credit(0, false);
    assert_eq!(policy.choose(&forced, &targets), Some(Choice { target: 1, rows: 1 }));
    targets.set_credit(1, false);
    assert_eq!(policy.choose(&forced, &targets), None);
}

#[test]
fn the_papers_potus_sends_a_slots_rows_to_one_target() {
    let mut policy = made("potus", serde_json::json!({ "setting": "paper" }));
    let targets = queues(&[(4, 0.0), (2, 1.0), (2, 1.0)]);
    policy.begin_slot(0, &Seen::new(targets.list(), 90));
    let choice = policy.choose(&Waiting { rows: 90, mandatory: 0, deal: 1 }, &targets);
    assert_eq!(choice, Some(Choice { target: 1, rows: 90 }));
    assert_eq!(Rank::listed(1), targets.list()[1].rank);
}
