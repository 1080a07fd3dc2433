//! What a lookahead window does to response times (potus.md sections 4 and 5).

use std::collections::HashMap;

use super::*;

type Key = (i64, u32, u32);

fn answers(config: &Config) -> (Outcome, HashMap<Key, u32>) {
    let (outcome, answers) = run_with_answers(config, &Registry::default()).unwrap();
    let by_tuple = answers.iter().map(|answer| ((answer.slot, answer.spout, answer.number), answer.response));
    (outcome, by_tuple.collect())
}

/// Relaxed admission, ranks keyed by slot + W, the run begun at slot -W: every tuple is answered W slots earlier, or
/// at once. Both runs are empty when they begin.
#[test]
fn begun_early_a_window_shifts_every_single_response() {
    for options in [
        &[("routing.setting", "paper"), ("routing.admission", "relaxed")][..],
        &[("routing.setting", "default"), ("routing.v", "1")][..],
        &[("routing.setting", "default"), ("routing.v", "4"), ("routing.max_hold", "25ms")][..],
        &[("routing.policy", "shuffle"), ("routing.admission", "relaxed")][..],
    ] {
        let (_, without) = answers(&fat_tree(slots(1_500), options));
        for size in ["1", "5"] {
            let mut options = options.to_vec();
            options.extend([("lookahead.size", size), ("lookahead.start", "early")]);
            let (_, with) = answers(&fat_tree(slots(1_500), &options));
            let shift: u32 = size.parse().unwrap();
            assert!(without.len() > 40_000);
            for (tuple, response) in &without {
                assert_eq!(with[tuple], response.saturating_sub(shift), "{tuple:?} {options:?}");
            }
        }
    }
}

/// Begun at slot 0 with a full window the two runs are in other states, and their means come close.
#[test]
fn begun_with_a_full_window_the_means_are_shifted() {
    let options = [("routing.setting", "paper"), ("routing.admission", "relaxed")];
    let long = slots(5_000);
    let (outcome, without) = answers(&fat_tree(long, &options));
    let warmup = i64::from(long / 5);
    for size in ["2", "8"] {
        let mut options = options.to_vec();
        options.push(("lookahead.size", size));
        let with = run(&fat_tree(long, &options)).unwrap().response.mean.unwrap();
        let shift: u32 = size.parse().unwrap();
        let measured = || without.iter().filter(|((slot, ..), _)| *slot >= warmup);
        let sum: f64 = measured().map(|(_, response)| f64::from(response.saturating_sub(shift))).sum();
        let shifted = sum / measured().count() as f64;
        let most = if long >= 20_000 { 0.005 } else { 0.015 };
        assert!(
            (with - shifted).abs() <= most * shifted.max(1.0),
            "{with} and {shifted}, of {:?}",
            outcome.response
        );
    }
}

#[test]
fn all_missed_is_as_good_as_no_window() {
    let paper = ("routing.setting", "paper");
    let without = run(&fat_tree(slots(3_000), &[paper])).unwrap();
    let missed = [paper, ("lookahead.size", "4"), ("lookahead.with", "{ missed = 1 }")];
    let missed = run(&fat_tree(slots(3_000), &missed)).unwrap();
    let (one, other) = (without.response.mean.unwrap(), missed.response.mean.unwrap());
    assert!((one - other).abs() < 0.03 * one, "{one} {other}");
    assert_eq!((missed.foresight.pre_served, missed.foresight.wasted), (0, 0));
    assert_eq!(missed.response.before_arrival, 0);
}

#[test]
fn false_positives_cost_what_they_add() {
    let with = |share: &str| {
        let options = [
            ("routing.setting", "paper"),
            ("load", "0.75"),
            ("lookahead.size", "4"),
            ("lookahead.with", share),
        ];
        run(&fat_tree(slots(4_000), &options)).unwrap()
    };
    let (none, some) = (with("{}"), with("{ false_positives = 0.2 }"));
    let slots = some.slots as f64;
    // A copy of each phantom goes to each successor of its spout: 36 copies of the 30 tuples of a slot.
    let wasted = some.foresight.wasted as f64 / slots;
    assert!((5.5..7.5).contains(&wasted), "{wasted}");
    let more = some.tuples_per_slot / none.tuples_per_slot;
    assert!((1.15..1.22).contains(&more), "{more}");
    assert!(some.cost_per_slot > 1.1 * none.cost_per_slot);
    assert!(some.response.mean > none.response.mean);
    // What arrives is answered as before, phantoms are not.
    assert!(some.response.answered.abs_diff(none.response.answered) < 200);
}

#[test]
fn windows_are_drawn_by_application_and_predictors_err_as_they_must() {
    let outcome = run(&fat_tree(300, &[("lookahead.size", "6"), ("lookahead.spread", "true")])).unwrap();
    let windows: Vec<u32> = outcome.apps.iter().map(|app| app.window).collect();
    assert!(windows.iter().all(|window| *window <= 12) && windows.iter().any(|window| *window != windows[0]));

    let mse = |predictor| {
        let options = [("lookahead.size", "1"), ("lookahead.predictor", predictor), ("routing.v", "1")];
        run(&fat_tree(2_000, &options)).unwrap().foresight.mse.unwrap()
    };
    // Poisson counts of mean 2: drawing from the past errs by twice the variance, estimating the mean by little more
    // than the variance.
    assert!((mse("distr") - 4.0).abs() < 0.3);
    for predictor in ["kalman", "moving_average", "ewma"] {
        let mse = mse(predictor);
        assert!((1.8..2.6).contains(&mse), "{predictor}: {mse}");
    }
}

#[test]
fn a_window_lowers_response_and_leaves_cost_where_it_was() {
    let with = |size| {
        run(&fat_tree(slots(3_000), &[("routing.setting", "paper"), ("lookahead.size", size)])).unwrap()
    };
    let runs: Vec<Outcome> = ["0", "2", "4", "8", "16"].into_iter().map(with).collect();
    let responses: Vec<f64> = runs.iter().map(|run| run.response.mean.unwrap()).collect();
    assert!(responses.windows(2).all(|pair| pair[1] < pair[0]), "{responses:?}");
    assert!(responses[4] < 0.15 * responses[0], "{responses:?}");
    for run in &runs {
        let cost = run.cost_per_slot / runs[0].cost_per_slot;
        assert!((0.95..1.05).contains(&cost), "{cost}");
    }
}
