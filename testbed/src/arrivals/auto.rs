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

/// As a coordinator sees it: one value a second, means over a window of 10 s (users.md P28).
#[test]
fn a_value_of_the_trace_each_second_and_then_a_constant_load() {
    const WINDOW: usize = 10;
    let test = "a_value_of_the_trace_each_second_and_then_a_constant_load";
    let Some(path) = shared(test, "data/arrivals-nab/elb_request_count_8c0756.csv") else { return };
    let load = Series::read(&path, &Format::default()).unwrap();
    // The mean is 60 % of what four instances take, 100 rows/s each.
    let values = &load.values()[..300];
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let offered: Vec<f64> =
        values.iter().map(|value| value / mean * 240.0).chain(std::iter::repeat_n(240.0, 600)).collect();
    let cooldown = AutoOptions::default().cooldown;
    let bounds = vec![Bound { least: 1, most: u32::MAX, why: String::new() }; 2];
    let (mut auto, mut instances, mut full_at) = (Auto::new(AutoOptions::default()), vec![1, 4], WINDOW);
    let mut actions: Vec<(usize, bool)> = Vec::new();
    for second in WINDOW..offered.len() {
        let window = &offered[second - WINDOW..second];
        let rows = window.iter().sum::<f64>() / WINDOW as f64;
        let source = FlowVertex { offered: Some(rows), ..FlowVertex::new("trace", instances[0], 1e6) };
        let work = FlowVertex::new("work", instances[1], 100.0);
        let edges = vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }];
        let graph = FlowGraph::new(vec![source, work], edges).unwrap();
        let act = auto.look(&Look {
            now: Duration::from_secs(second as u64),
            full: second >= full_at,
            graph: &graph,
            waiting: &[0; 2],
            blocked: &[0.0; 2],
            room: 100,
            bounds: &bounds,
        });
        let (after, is_out) = match act {
            Act::Out { instances, .. } => (instances, true),
            Act::In { instances, .. } => (instances, false),
            Act::Stay | Act::AtLimit { .. } => continue,
        };
        actions.push((second, is_out));
        (instances, full_at) = (after, second + WINDOW);
    }
    println!("one value a second: {actions:?}");
    assert!(actions.iter().any(|(_, is_out)| *is_out), "the load is not one that asks for more: {actions:?}");
    for pair in actions.windows(2) {
        let apart = Duration::from_secs((pair[1].0 - pair[0].0) as u64);
        assert!(apart >= cooldown, "{actions:?}");
        assert!(!pair[0].1 || pair[1].1 || apart >= 2 * cooldown, "{actions:?}");
    }
    // Constant from 300 s on: what the peaks have added may go once, and nothing is added or taken in the last 20 windows.
    assert!(actions.iter().all(|(second, _)| *second < offered.len() - 20 * WINDOW), "{actions:?}");
    assert!(!actions.iter().any(|(second, is_out)| *is_out && *second >= 300 + WINDOW), "{actions:?}");
}
