//! What must hold of simulations (issue "Route tuples by POTUS").

mod counts;
mod figures;
mod files;
mod window;

use std::path::PathBuf;

use tuplane_core::job::tree::{FileFormat, Node};
use tuplane_core::route::{Choice, Policy, Targets, Waiting};

use super::*;

/// Slots of a run: 20,000 where long runs are asked for (`make test-long`).
fn slots(usually: u32) -> u32 {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse::<u32>().ok());
    if cases.is_some_and(|cases| cases >= 20_000) { 20_000 } else { usually }
}

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("experiments/potus").join(name)
}

/// The Fat-Tree as shipped, with other options and so many slots.
fn fat_tree(slots: u32, sets: &[(&str, &str)]) -> Config {
    let mut all =
        vec![("slots".to_owned(), slots.to_string()), ("warmup".to_owned(), (slots / 5).to_string())];
    all.extend(sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    load(&shipped("fat-tree.toml"), &all, &Registry::default()).unwrap()
}

/// Means of response and cost over so many seeds.
fn means(seeds: u64, config: &Config) -> (f64, f64) {
    let runs: Vec<Outcome> =
        (1..=seeds).map(|seed| run(&Config { seed, ..config.clone() }).unwrap()).collect();
    let mean = |figure: &dyn Fn(&Outcome) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len() as f64;
    (mean(&|run| run.response.mean.unwrap()), mean(&|run| run.cost_per_slot))
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_others() {
    let json = |seed| {
        let config =
            Config { seed, ..fat_tree(500, &[("lookahead.size", "2"), ("lookahead.spread", "true")]) };
        let once = run(&config).unwrap();
        serde_json::to_string(&report(&config, vec![once])).unwrap()
    };
    assert_eq!(json(7), json(7));
    assert_ne!(json(7), json(8));
    assert!(json(7).starts_with(r#"{"schema":"tuplane/sim/1","#));
}

/// Sends everything to the first target but for what its field says.
#[derive(Debug)]
struct First {
    target: usize,
    rows: u32,
}

impl Policy for First {
    fn name(&self) -> &'static str {
        "first"
    }

    fn choose(&mut self, _: &Waiting, _: &Targets) -> Option<Choice> {
        Some(Choice { target: self.target, rows: self.rows })
    }

    fn sent(&mut self, _: u32) {}
}

#[test]
fn a_policy_of_ones_own_runs_and_one_that_breaks_the_rules_is_named() {
    let with = |target, rows| {
        let mut registry = Registry::default();
        registry.policies.add("first", move |_, _| Ok(Box::new(First { target, rows })));
        let mut config = fat_tree(50, &[]);
        config.routing.policy = "first".to_owned();
        run_with(&config, &registry)
    };
    assert!(with(0, 3).unwrap().cost_per_slot > 0.0);
    let said = |outcome: Result<Outcome, SimError>| outcome.unwrap_err().to_string();
    assert!(
        said(with(99, 1)).starts_with("in slot 0: the policy `first` chose 1 rows for target 99: there are ")
    );
    assert!(said(with(0, 0)).contains("chose 0 rows"));
}

#[test]
fn every_built_in_policy_runs_on_both_networks() {
    for name in tuplane_core::route::policy_names() {
        for network in [Network::FatTree, Network::jellyfish(3)] {
            let mut config = fat_tree(300, &[("routing.v", "1")]);
            config.routing.policy = (*name).to_owned();
            config.network = network;
            let outcome = run(&config).unwrap();
            assert_eq!(outcome.instances, 63);
            assert!(outcome.response.answered > 4_000, "{name}: {:?}", outcome.response);
        }
    }
}

#[test]
fn a_budget_holds_and_what_could_not_leave_is_counted() {
    let config = fat_tree(400, &[("routing.setting", "paper"), ("routing.gamma", "5")]);
    let outcome = run(&config).unwrap();
    // Spouts with two successors send four tuples a slot in the mean: more than five of them come now and then.
    assert!(outcome.deferred > 0);
    assert_eq!(run(&fat_tree(400, &[("routing.setting", "paper"), ("routing.v", "1")])).unwrap().deferred, 0);
}

#[test]
fn selectivity_multiplies_tuples() {
    let emitted = |selectivity: f64| {
        let mut config = fat_tree(2000, &[("routing.policy", "heron")]);
        config.apps.truncate(1);
        let Kind::Bolt { selectivity: of_first, .. } = &mut config.apps[0].components[1].kind else {
            panic!()
        };
        *of_first = selectivity;
        run(&config).unwrap()
    };
    // Six tuples a slot to the first bolt, and from it half as many or twice as many.
    let half = emitted(0.5);
    assert!((half.tuples_per_slot - 9.0).abs() < 0.3, "{}", half.tuples_per_slot);
    assert!((emitted(2.0).tuples_per_slot - 18.0).abs() < 0.6);
    assert!(half.response.answered > 0);
}

#[test]
fn the_document_has_the_fields_that_are_documented() {
    let config = fat_tree(200, &[]);
    let report = report(&config, vec![run(&config).unwrap()]);
    let json = serde_json::to_string(&report).unwrap();
    let tree = Node::parse(&json, FileFormat::Json, &mut Vec::new()).unwrap();
    let runs = tree.get("runs").unwrap().to_json();
    for field in [
        "response",
        "cost_per_slot",
        "backlog",
        "weighted_backlog",
        "deferred",
        "forced",
        "foresight",
        "apps",
    ] {
        assert!(!runs[0][field].is_null(), "{field}");
    }
    assert!(report.to_string().contains("APPLICATION"));
}
