//! The decision's forms agree with each other, with the conformance vectors and with exhaustive search.

use proptest::prelude::*;
use tuplane_core::route::whatif::{self, Form};
use tuplane_core::route::{
    Component, Cost, Decision, Dispatch, Heaps, Order, Rank, Scratch, Target, Terms, UNLIMITED, Want, Weight,
    fast, literal, repriced, repriced_literal,
};

const CASES: &str = include_str!("../vectors/potus_cases.json");

#[test]
fn all_vectors_are_decided_as_they_say_in_both_forms() {
    let (cases, _) = whatif::read(CASES).unwrap();
    assert_eq!(cases.len(), 400);
    for case in &cases {
        let expected = case.send.as_ref().unwrap();
        for form in [Form::Literal, Form::Fast] {
            let answer = case.decide(form).unwrap();
            assert_eq!((&answer.send, answer.deferred), (expected, 0), "case {} {form:?}", case.id);
        }
    }
}

#[test]
fn numbers_of_2_to_the_64_end_and_saturate_in_every_form() {
    let want = |component, mandatory| Want {
        component,
        beta: Weight::new(1.0).unwrap(),
        q_out: u64::MAX,
        mandatory,
    };
    let decide = |wants: &[Want], component: &Component| {
        let components = || vec![component.clone(), component.clone()];
        // In long runs: prices of 2^61 are all alike, and would be taken in turns of a row.
        let (mut by_run, mut heaps) = (Decision::default(), Heaps::default());
        repriced(wants, UNLIMITED, &mut components(), u64::MAX, &mut heaps, &mut by_run);
        [
            literal(wants, UNLIMITED, &mut components()),
            decide_fast(wants, UNLIMITED, &mut components()),
            by_run,
        ]
    };
    // The budget ends before the rows do.
    let open = Component::new(Weight::new(1.0).unwrap(), vec![Target::new(1)]);
    for decision in decide(&[want(0, 0), want(1, 0)], &open) {
        assert!(decision.rows() > 1 << 40, "{decision:?}");
    }
    // More than 2^64 rows have to leave and cannot.
    let shut = Component::new(Weight::new(1.0).unwrap(), vec![Target { credit: 0, ..Target::new(1) }]);
    for decision in decide(&[want(0, u64::MAX), want(1, 5)], &shut) {
        assert_eq!((decision.rows(), decision.deferred), (0, u64::MAX));
    }
}

#[test]
fn one_name_for_two_is_refused() {
    let case = |instances: [&str; 2]| {
        let targets =
            instances.map(|name| format!(r#"{{ "instance": "{name}", "q_in": 0, "u": 0 }}"#)).join(",");
        format!(
            r#"{{ "id": "a", "V": 1, "beta": 1, "successors": [{{ "successor": "s", "q_out": 3, "targets": [{targets}] }}] }}"#
        )
    };
    let same =
        "case number 1 (a): successor `s`, target `x`, instance: another one of the case has this name";
    assert_eq!(whatif::read(&case(["x", "x"])).unwrap_err(), [same]);
    let (mut cases, _) = whatif::read(&case(["x", "y"])).unwrap();
    cases[0].successors[0].targets[1].instance = "x".to_owned();
    assert_eq!(cases[0].decide(Form::Fast).unwrap_err(), "case a: two instances are called x");
    let twice = format!("[{0}, {0}]", case(["x", "y"]));
    assert_eq!(whatif::read(&twice).unwrap_err(), ["case number 2 (a): another one before it has this id"]);
    let doubled = case(["x", "y"]).replace(r#""beta": 1"#, r#""beta": 1, "beta": 2"#);
    assert_eq!(whatif::read(&doubled).unwrap_err(), ["line 1: key `beta` is given twice; first in line 1"]);
    let tiny = case(["x", "y"]).replace(r#""beta": 1"#, r#""beta": 1e-6"#);
    let error = &whatif::read(&tiny).unwrap_err()[0];
    let beta = "case number 1 (a): beta: it is 1e-6, and must be a number of at least 0 (0, or from 1/65536";
    assert!(error.starts_with(beta), "{error}");
}

/// A sender and its components, small numbers so that prices tie often.
fn system(max_targets: usize, max_rows: u64) -> impl Strategy<Value = (Vec<Want>, u64, Vec<Component>)> {
    let target = (0u64..12, 0u32..4, prop_oneof![4 => Just(UNLIMITED), 1 => 0u64..6], 0u32..6);
    let component = (
        prop::collection::vec(target, 0..=max_targets),
        prop_oneof![Just(0.5), Just(1.0), Just(2.0), Just(8.0)],
        0..=max_rows,
        prop_oneof![3 => Just(0.0), 1 => 0.0..1.0f64],
    );
    let gamma = prop_oneof![Just(UNLIMITED), 0u64..20];
    (prop::collection::vec(component, 1..5), gamma, prop_oneof![Just(0.0), Just(1.0), Just(2.5)]).prop_map(
        |(parts, gamma, v)| {
            let mut wants = Vec::new();
            let mut components = Vec::new();
            let mut id = 0;
            for (index, (targets, beta, q_out, must)) in parts.into_iter().enumerate() {
                let mandatory = (q_out as f64 * must) as u64;
                wants.push(Want { component: index, beta: Weight::new(beta).unwrap(), q_out, mandatory });
                let made = targets.into_iter().map(|(queued, cost, credit, lot)| {
                    id += 1;
                    let cost = Cost::new(f64::from(cost)).unwrap();
                    Target { instance: id, credit, queued, cost, rank: Rank::drawn(id, i64::from(lot), 0) }
                });
                components.push(Component::new(Weight::new(v).unwrap(), made.collect()));
            }
            (wants, gamma, components)
        },
    )
}

fn decide_fast(wants: &[Want], gamma: u64, components: &mut [Component]) -> Decision {
    let mut orders: Vec<Order> = components.iter().map(Order::of).collect();
    let mut decision = Decision::default();
    fast(wants, gamma, components, &mut orders, &mut Scratch::default(), &mut decision);
    decision
}

/// The sum that problem (15) minimises, in rows.
fn objective(wants: &[Want], components: &[Component], v: f64, sends: &[Dispatch]) -> f64 {
    let price = |send: &Dispatch| {
        let want = &wants[send.want];
        let target = &components[want.component].targets()[send.target];
        v * target.cost.value() + target.queued as f64 - want.beta.value() * want.q_out as f64
    };
    sends.iter().map(|send| price(send) * send.rows as f64).sum()
}

/// The least sum over all ways to send, without rows that have to leave: each row in turn is sent somewhere or kept.
fn exhaustive(wants: &[Want], gamma: u64, components: &[Component], v: f64) -> f64 {
    fn over(places: &[(f64, usize, u64)], rooms: &mut [u64], gamma: u64) -> f64 {
        let Some(((price, want, credit), rest)) = places.split_first() else { return 0.0 };
        (0..=rooms[*want].min(*credit).min(gamma))
            .map(|rows| {
                rooms[*want] -= rows;
                let sum = price * rows as f64 + over(rest, rooms, gamma - rows);
                rooms[*want] += rows;
                sum
            })
            .fold(f64::INFINITY, f64::min)
    }
    let mut places = Vec::new();
    for (index, want) in wants.iter().enumerate() {
        for target in components[want.component].targets() {
            let price =
                v * target.cost.value() + target.queued as f64 - want.beta.value() * want.q_out as f64;
            places.push((price, index, target.credit));
        }
    }
    over(&places, &mut wants.iter().map(|want| want.q_out).collect::<Vec<_>>(), gamma)
}

/// By want, rows that a decision sends at prices of 0 or more, where prices stand.
fn dear(wants: &[Want], components: &[Component], decision: &Decision) -> Vec<u64> {
    let mut dear = vec![0; wants.len()];
    for send in &decision.sends {
        let want = &wants[send.want];
        let component = &components[want.component];
        let target = component.targets()[send.target];
        if !Terms::new(component.v(), target.cost, target.queued, want.beta, want.q_out).price().is_good() {
            dear[send.want] += send.rows;
        }
    }
    dear
}

fn check(wants: &[Want], gamma: u64, components: &[Component], decision: &Decision) {
    assert!(decision.rows() <= gamma);
    for (index, want) in wants.iter().enumerate() {
        let of = |send: &&Dispatch| send.want == index;
        let rows: u64 = decision.sends.iter().filter(of).map(|send| send.rows).sum();
        assert!(rows <= want.q_out);
        for (number, target) in components[want.component].targets().iter().enumerate() {
            let to: u64 =
                decision.sends.iter().filter(of).filter(|s| s.target == number).map(|s| s.rows).sum();
            assert!(to <= target.credit);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(20_000), ..ProptestConfig::default() })]

    #[test]
    fn the_fast_form_decides_as_the_published_loop((wants, gamma, components) in system(6, 15)) {
        let (mut by_loop, mut by_fast) = (components.clone(), components.clone());
        let expected = literal(&wants, gamma, &mut by_loop);
        let found = decide_fast(&wants, gamma, &mut by_fast);
        prop_assert_eq!(expected.totals(), found.totals());
        prop_assert_eq!((expected.deferred, &expected.forced), (found.deferred, &found.forced));
        prop_assert_eq!(&found.forced, &dear(&wants, &components, &found));
        let credits = |all: &[Component]| all.iter().flat_map(|c| c.targets().iter().map(|t| t.credit)).collect::<Vec<_>>();
        prop_assert_eq!(credits(&by_loop), credits(&by_fast));
        check(&wants, gamma, &components, &found);
    }

    #[test]
    fn repricing_in_runs_decides_as_row_by_row((wants, gamma, components) in system(5, 40)) {
        let (mut by_row, mut by_run) = (components.clone(), components.clone());
        // The oracle walks row by row: a bound on its work.
        let gamma = gamma.min(300);
        let expected = repriced_literal(&wants, gamma, &mut by_row);
        let mut found = Decision::default();
        repriced(&wants, gamma, &mut by_run, 1, &mut Heaps::default(), &mut found);
        prop_assert_eq!(expected.totals(), found.totals());
        prop_assert_eq!((expected.deferred, &expected.forced), (found.deferred, &found.forced));
        for (a, b) in by_row.iter().zip(&by_run) {
            prop_assert_eq!(a.targets(), b.targets());
        }
        check(&wants, gamma, &components, &found);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(20_000) / 20, ..ProptestConfig::default() })]

    #[test]
    fn no_other_way_to_send_has_a_smaller_sum((mut wants, gamma, components) in system(2, 4)) {
        wants.truncate(3);
        for want in &mut wants {
            want.mandatory = 0;
        }
        // All components have the same V; two prices tell which.
        for v in [0.0, 1.0, 2.5] {
            let weight = Weight::new(v).unwrap();
            let fresh = |all: &[Component]| -> Vec<Component> {
                all.iter().map(|c| Component::new(weight, c.targets().to_vec())).collect()
            };
            let mut priced = fresh(&components);
            let decision = decide_fast(&wants, gamma, &mut priced);
            let found = objective(&wants, &components, v, &decision.sends);
            let least = exhaustive(&wants, gamma, &components, v);
            prop_assert!((found - least).abs() < 1e-6, "{found} against {least}");
        }
    }

    #[test]
    fn without_weight_on_costs_the_shortest_queue_gets_the_rows((mut wants, _, components) in system(6, 15)) {
        let zero = Weight::new(0.0).unwrap();
        let mut components: Vec<Component> =
            components.iter().map(|c| Component::new(zero, c.targets().iter().map(|t| Target { credit: UNLIMITED, ..*t }).collect())).collect();
        for want in &mut wants {
            want.mandatory = 0;
        }
        let decision = decide_fast(&wants, UNLIMITED, &mut components);
        for send in &decision.sends {
            let targets = components[wants[send.want].component].targets();
            prop_assert_eq!(Some(targets[send.target].queued), targets.iter().map(|t| t.queued).min());
        }
        for (index, want) in wants.iter().enumerate() {
            let least = components[want.component].targets().iter().map(|t| t.queued).min();
            let goes = least.is_some_and(|least| (least as f64) < want.beta.value() * want.q_out as f64);
            let sent: u64 = decision.sends.iter().filter(|s| s.want == index).map(|s| s.rows).sum();
            prop_assert_eq!(sent, if goes { want.q_out } else { 0 });
        }
    }

    #[test]
    fn senders_of_one_agent_share_credit_in_both_forms((wants, gamma, components) in system(4, 15), turns in 1usize..4) {
        let (mut by_loop, mut by_fast) = (components.clone(), components);
        let mut orders: Vec<Order> = by_fast.iter().map(Order::of).collect();
        for turn in 0..turns {
            let mut wants = wants.clone();
            for want in &mut wants {
                want.q_out += turn as u64;
            }
            let expected = literal(&wants, gamma, &mut by_loop);
            let mut found = Decision::default();
            fast(&wants, gamma, &mut by_fast, &mut orders, &mut Scratch::default(), &mut found);
            prop_assert_eq!(expected.totals(), found.totals());
        }
    }
}

/// A long campaign (`make test-long`) tries a million instances.
fn cases(usually: u32) -> u32 {
    if std::env::var_os("TUPLANE_LONG").is_some() { 1_000_000 } else { usually }
}
