//! Response, cost and backlog on the Fat-Tree (potus.md section 10), against the bars of the issue.

use super::*;

/// The pair of `V` and `beta` that meets the bars.
const PAIR: [(&str, &str); 3] =
    [("routing.setting", "default"), ("routing.v", "1.5"), ("routing.beta", "16")];

fn default_with(slots: u32, more: &[(&'static str, &'static str)]) -> Config {
    let mut options = PAIR.to_vec();
    options.extend(more);
    fat_tree(slots, &options)
}

fn policy(slots: u32, name: &'static str, more: &[(&'static str, &'static str)]) -> Config {
    let mut options = vec![("routing.policy", name)];
    options.extend(more);
    fat_tree(slots, &options)
}

#[test]
fn cost_falls_to_its_floor_as_one_over_v_and_backlog_grows_as_v() {
    let at = |v| run(&fat_tree(slots(4_000), &[("routing.setting", "paper"), ("routing.v", v)])).unwrap();
    let runs: Vec<Outcome> = ["1", "2", "4", "8", "16", "32"].into_iter().map(at).collect();
    let floor = runs[5].cost_per_slot;
    let gaps: Vec<f64> = runs.iter().map(|run| run.cost_per_slot - floor).collect();
    // V * gap is bounded: by the largest of the first two it is.
    let bound = gaps[0].max(2.0 * gaps[1]);
    for (gap, v) in gaps.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0]) {
        assert!(v * gap <= bound + 0.01 * floor * v, "{gaps:?}");
    }
    assert!(gaps[0] > 0.1 * floor && gaps[3] < 0.05 * floor, "{gaps:?}");
    // Twice the V, twice the rise.
    let backlogs: Vec<f64> = runs.iter().map(|run| run.weighted_backlog).collect();
    for three in backlogs[1..].windows(3) {
        let ratio = (three[2] - three[1]) / (three[1] - three[0]);
        assert!((1.4..2.6).contains(&ratio), "{backlogs:?}");
    }
}

#[test]
fn default_costs_35_percent_less_than_shuffle_and_answers_within_5_percent() {
    let seeds = 5;
    let (response, cost) = means(seeds, &default_with(slots(2_500), &[]));
    let (of_shuffle, cost_of_shuffle) = means(seeds, &policy(slots(2_500), "shuffle", &[]));
    let (of_turn, cost_of_turn) = means(seeds, &policy(slots(2_500), "round-robin", &[]));
    println!(
        "default {response:.3} at {cost:.1}, shuffle {of_shuffle:.3} at {cost_of_shuffle:.1}, round-robin {of_turn:.3} at {cost_of_turn:.1}"
    );
    assert!(cost <= 0.65 * cost_of_shuffle, "{cost} {cost_of_shuffle}");
    assert!(cost <= 0.65 * cost_of_turn, "{cost} {cost_of_turn}");
    assert!(response <= 1.05 * of_shuffle, "{response} {of_shuffle}");
}

#[test]
fn with_unequal_instances_default_answers_in_a_third_of_round_robins_time() {
    let uneven = [("uneven", "1"), ("load", "0.75")];
    // Round-robin's queues wander: a short run does not see how far.
    let (response, _) = means(2, &default_with(20_000, &uneven));
    let (of_turn, _) = means(2, &policy(20_000, "round-robin", &uneven));
    println!("default {response:.3}, round-robin {of_turn:.3}");
    assert!(response <= 0.3 * of_turn, "{response} {of_turn}");
}

#[test]
fn old_telemetry_costs_little_response() {
    let (fresh, _) = means(2, &default_with(slots(4_000), &[]));
    let by_slot = ("telemetry.reckoning", "by_slot");
    let agents = ("telemetry.reckoning", "agent");
    for (old, reckoning, most) in [
        // As agents reckon, with lengths that are as old as theirs or somewhat older.
        (("telemetry.every", "2"), agents, 1.1),
        (("telemetry.every", "5"), agents, 1.15),
        (("telemetry.delay", "1"), agents, 1.1),
        // Of 20 slots ago, where it is known what others send.
        (("telemetry.every", "20"), by_slot, 1.3),
        (("telemetry.delay", "20"), by_slot, 1.3),
    ] {
        let (response, _) = means(2, &default_with(slots(4_000), &[old, reckoning]));
        println!("fresh {fresh:.3}, {old:?} {reckoning:?} {response:.3}");
        assert!(response <= most * fresh, "{old:?} {reckoning:?}: {response} {fresh}");
    }
}

/// The table of potus.md section 10 was made by another simulator, on the same applications, with another draw.
#[test]
fn the_published_setting_gives_the_known_figures() {
    let near = |config: Config, response: f64, share: f64| {
        let outcome = run(&config).unwrap();
        let got = outcome.response.mean.unwrap();
        println!("{got:.2} slots for {response}, cost {:.1}", outcome.cost_per_slot);
        assert!((got - response).abs() < share * response, "{got} {response}");
    };
    let paper = |v| fat_tree(slots(5_000), &[("routing.setting", "paper"), ("routing.v", v)]);
    near(paper("0"), 8.45, 0.03);
    near(paper("1"), 9.37, 0.05);
    near(paper("2"), 11.2, 0.1);
    near(policy(slots(5_000), "shuffle", &[]), 5.57, 0.03);
    near(policy(slots(5_000), "heron", &[]), 4.88, 0.03);
    near(policy(slots(5_000), "shuffle", &[("load", "0.75")]), 5.27, 0.03);
}
