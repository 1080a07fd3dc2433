//! The automatic mode of scaling under a real load: it acts seldom, and does not take back what it gave.

use std::time::Duration;

use tuplane_core::scale::{Act, Auto, AutoOptions, Bound, FlowEdge, FlowGraph, FlowVertex, Look};

use super::{Format, Series};
use crate::skip::shared;

/// Seconds between two values of the series.
const STEP: u64 = 300;

#[test]
fn at_most_one_action_in_a_cooldown_and_none_that_is_taken_back_within_two() {
    let test = "at_most_one_action_in_a_cooldown_and_none_that_is_taken_back_within_two";
    let Some(path) = shared(test, "data/arrivals-nab/elb_request_count_8c0756.csv") else { return };
    let load = Series::read(&path, &Format::default()).unwrap();
    for (minutes, capacity) in [(5, 20.0), (10, 20.0), (30, 20.0), (30, 5.0), (60, 50.0)] {
        let cooldown = Duration::from_mins(minutes);
        let mut auto = Auto::new(AutoOptions { cooldown, ..AutoOptions::default() });
        let mut instances = vec![1, 1, 1];
        let mut waiting = [0_u64; 3];
        let mut actions: Vec<(Duration, bool)> = Vec::new();
        let bounds = vec![Bound { least: 1, most: u32::MAX, why: String::new() }; 3];
        let mut full_at = Duration::from_secs(10);
        for (slot, rows) in load.values().iter().enumerate() {
            for second in [0, 60, 120, 180, 240] {
                let now = Duration::from_secs(slot as u64 * STEP + second);
                let vertex = |index: usize, capacity| FlowVertex {
                    offered: (index == 0).then_some(*rows),
                    ..FlowVertex::new(index.to_string(), instances[index], capacity)
                };
                let vertices = vec![vertex(0, 1e6), vertex(1, capacity), vertex(2, 2.0 * capacity)];
                let edges = [(0, 1), (1, 2)].map(|(from, to)| FlowEdge { from, to, selectivity: 1.0 });
                let graph = FlowGraph::new(vertices, edges.to_vec()).unwrap();
                let takes = f64::from(instances[1]) * capacity;
                waiting[1] = ((waiting[1] as f64) + (rows - takes) * 60.0).max(0.0) as u64;
                let look = Look {
                    now,
                    full: now >= full_at,
                    graph: &graph,
                    waiting: &waiting,
                    blocked: &[0.0; 3],
                    room: 100,
                    bounds: &bounds,
                };
                let (after, is_out) = match auto.look(&look) {
                    Act::Out { instances, .. } => (instances, true),
                    Act::In { instances, .. } => (instances, false),
                    Act::Stay | Act::AtLimit { .. } => continue,
                };
                if let Some((last, was_out)) = actions.last() {
                    assert!(now >= *last + cooldown, "{minutes} min: {last:?} and {now:?}");
                    let back = *was_out != is_out;
                    assert!(
                        is_out || !back || now >= *last + 2 * cooldown,
                        "{minutes} min: {last:?} and {now:?}"
                    );
                }
                actions.push((now, is_out));
                instances = after;
                full_at = now + Duration::from_secs(10);
            }
        }
        println!("cooldown {minutes} min, {capacity} rows/s each: {} actions in 14 days", actions.len());
        assert!(!actions.is_empty());
    }
}
