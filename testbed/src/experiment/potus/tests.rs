//! The publication's experiments: plan, figures, claims.

use tuplane_core::route::Setting;

use super::*;
use crate::experiment::{Claim, Verdict};

fn plan() -> Plan {
    let named = |name: &str| Forecaster { name: name.to_owned(), options: Map::new() };
    Plan::new(true, PREDICTORS.iter().map(|name| named(name)).collect(), vec!["mine".to_owned()])
}

/// What a run might have measured if all were as published: the theorem's shapes, and responses that fall by a slot
/// for each slot of window.
fn as_published(cell: &Cell, metric: &str) -> f64 {
    let (potus, window) = (cell.policy == "potus", f64::from(cell.window));
    let phantoms = 1.0 + cell.false_positives + cell.more;
    let v = cell.v.unwrap_or(2.0);
    match metric {
        "cost_per_slot" if potus => phantoms * if v == 0.0 { 370.0 } else { 200.0 + 40.0 / v },
        "cost_per_slot" => 374.0,
        "tuples_per_slot" => 200.0 * phantoms,
        "weighted_backlog" => 300.0 + 60.0 * v,
        "response_mean" if potus && cell.uneven > 0 => 10.0,
        "response_mean" if cell.uneven > 0 => 60.0,
        "response_mean" if potus => {
            let seen = if cell.missed { 0.0 } else { window };
            // The own setting is about as fast as shuffle.
            let none = if cell.setting == Setting::Paper { 8.0 + 2.0 * v } else { 5.0 + v / 10.0 };
            (none - seen).max(0.5)
        }
        "response_mean" => 5.6,
        "mse" if cell.window > 0 => 12.0,
        "growth" => 0.0,
        "slots" => 8000.0,
        _ => 1.0,
    }
}

fn claims_of(plan: &Plan, measured: impl Fn(&Cell, &str) -> f64) -> Vec<Claim> {
    let mut records = Vec::new();
    for cell in plan.cells() {
        for seed in 1..=5u64 {
            // Seeds differ a little.
            let figure = |metric: &str| measured(&cell, metric) * (1.0 + 0.001 * seed as f64);
            let metrics = METRICS.iter().map(|metric| Some(super::super::rounded(figure(metric))));
            records.push(Record { factors: factors(&cell, seed), metrics: metrics.collect() });
        }
    }
    let table = Table::new(Prepared::columns(), records);
    let view = View { plan, table: &table, trace: "trace" };
    for figure in figures::figures(&view) {
        figure.svg().unwrap();
    }
    claims::claims(&view)
}

fn verdict(claims: &[Claim], id: &str) -> Verdict {
    claims.iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("no claim {id}")).verdict
}

#[test]
fn what_is_as_published_holds_and_what_theory_denies_does_not() {
    let claims = claims_of(&plan(), as_published);
    let failed: Vec<&str> = claims
        .iter()
        .filter(|claim| claim.verdict != Verdict::Holds)
        .map(|claim| claim.id.as_str())
        .collect();
    // The literal algorithm is slower than Shuffle without a window (F5).
    assert_eq!(failed, ["response-equal"], "{claims:#?}");
    let gap = claims.iter().find(|claim| claim.id == "cost-gap").unwrap();
    assert_eq!(gap.parts[0].measured, "cost = 200.6 + 40.1 / V hops per slot, R² = 1.000, from V = 1 on");
    let slow = claims.iter().find(|claim| claim.id == "response-equal").unwrap();
    assert!(slow.why.as_ref().unwrap().contains("F5"), "{slow:?}");
    assert!(slow.parts[0].measured.contains("(+78.6 % to shuffle)"), "{slow:?}");
}

#[test]
fn a_claim_fails_where_its_figures_do() {
    let plan = plan();
    let failed = |id: &str, change: &dyn Fn(&Cell, &str) -> Option<f64>| {
        let claims = claims_of(&plan, |cell, metric| {
            change(cell, metric).unwrap_or_else(|| as_published(cell, metric))
        });
        assert_eq!(verdict(&claims, id), Verdict::DoesNotHold, "{id}");
    };
    let swept = |cell: &Cell| cell.policy == "potus" && cell.window == 0;
    let v = |cell: &Cell| cell.v.unwrap_or(1.0);
    failed("cost-gap", &|c, m| (m == "cost_per_slot" && swept(c)).then(|| 200.0 + v(c)));
    failed("backlog", &|c, m| (m == "weighted_backlog" && swept(c)).then(|| 300.0 - v(c)));
    failed("stable", &|c, m| (m == "growth" && v(c) > 10.0).then_some(5.0));
    failed("window", &|c, m| (m == "response_mean" && c.window == 8).then_some(30.0));
    failed("mild-window", &|c, m| (m == "response_mean" && c.window > 0).then_some(8.0));
    failed("mis-prediction", &|c, m| (m == "response_mean" && c.predictor.name == "distr").then_some(12.0));
    failed("mse-span", &|c, m| (m == "mse" && c.predictor.name == "ewma").then_some(23.0));
    failed("all-missed", &|c, m| (m == "response_mean" && c.missed).then_some(9.5));
    failed("false-positives", &|c, m| (m == "cost_per_slot" && c.false_positives > 0.3).then_some(500.0));
    failed("cost-shuffle", &|c, m| (m == "cost_per_slot" && c.policy == "shuffle").then_some(100.0));
    failed("response-unequal", &|c, m| (m == "growth" && c.uneven == 1).then_some(5.0));
    failed("both-networks", &|c, m| {
        (m == "cost_per_slot" && c.policy == "shuffle" && c.scene.net.key() == "jellyfish").then_some(100.0)
    });
    failed("own-equal", &|c, m| (m == "response_mean" && c.policy == "shuffle").then_some(4.0));
    failed("own-unequal", &|c, m| (m == "response_mean" && c.policy == "round-robin").then_some(20.0));
}

#[test]
fn runs_that_are_too_few_or_short_show_nothing() {
    let mut claims = claims_of(&plan(), as_published);
    claims::without_verdicts(&mut claims, "Too short.");
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotShown && claim.why.is_some()));
}

#[test]
fn names_are_policies_or_predictors() {
    let registry = Registry::default();
    let named =
        |names: &[&str]| also(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), &registry);
    // What is compared anyway is not compared twice.
    let (policies, predictors) = named(&["jsq", "shuffle", "potus", "kalman"]).unwrap();
    assert_eq!((policies, predictors), (vec!["jsq".to_owned()], vec![]));
    assert!(named(&["kalmann"]).unwrap_err().to_string().ends_with("did you mean `kalman`?"));
}
