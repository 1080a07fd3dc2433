//! What plans are predicted to bring, whoever made them; and what is said where nothing is known.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tuplane_core::cluster::types::{EdgeLedger, InstanceReport};
use tuplane_core::scale::Congestion;
use tuplane_wire::message::{Report, RunReport};

use super::*;
use crate::coordinator::etp::{Seen, answer};
use crate::coordinator::live::Live;

/// Twelve seconds until now of a job whose two instances of `w` have worked all the time: 100 rows a second each. What an agent
/// said counts for 5 s: who looks by the clock looks at once.
fn measured(now: Instant) -> Live {
    let (ms, mut live) = (1_000_000, Live::default());
    let begin = now.checked_sub(Duration::from_secs(12)).unwrap();
    for second in 0..=12_u64 {
        // Rows a second and milliseconds busy of each second: s, w twice, k.
        let seen = [(0, 200, 100), (1, 100, 1000), (2, 100, 1000), (3, 200, 20)];
        let instances = seen.map(|(instance, rows, busy)| InstanceReport {
            instance,
            rows_in: rows * second,
            rows_out: if instance == 3 { 0 } else { rows * second },
            busy_ns: busy * ms * second,
            blocked_ns: if instance == 0 { 900 * ms * second } else { 0 },
            idle_ns: if instance == 3 { 980 * ms * second } else { 0 },
            ..InstanceReport::default()
        });
        let edge = |edge| EdgeLedger { edge, emitted: 200 * second, ..EdgeLedger::default() };
        let run = RunReport {
            run: 1,
            instances: instances.to_vec(),
            edges: vec![edge(0), edge(1)],
            ..RunReport::default()
        };
        let report = Report { sequence: second, runs: vec![run], ..Report::default() };
        let id = AgentId { name: "a".to_owned(), incarnation: 1 };
        live.report(&id, report, &[1], begin + Duration::from_secs(second));
    }
    live
}

/// A cluster of which `a`, which has all of the job, may use so many cores; 0: all.
fn world(cores: u32) -> World {
    let alike = |name| AgentInfo { cores, ..info(name, 2) };
    World::new(vec![alike("a"), alike("b")])
}

fn set(instances: u32) -> ScaleAsk {
    ScaleAsk::Set { vertex: "w".to_owned(), instances, place: ScalePlace::Anywhere }
}

fn near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found / wanted - 1.0).abs() < 0.02)
}

#[test]
fn what_a_person_asks_for_is_predicted_and_kept_for_the_history() {
    let mut world = world(0);
    let planned = |world: &World, ask: &ScaleAsk| {
        let live = measured(Instant::now());
        let known = Known { live: live.run(1), ..world.known(None) };
        let (plan, new) = known.plan(ask, wanted(ask, &known).unwrap()).unwrap();
        let new = new.unwrap();
        assert_eq!((plan.predicted, &plan.unpredicted), (new.predicted, &new.unpredicted));
        plan
    };
    let more = planned(&world, &set(4));
    assert!(near(more.predicted, 400.0), "{more:?}");
    assert!(more.notes.iter().any(|note| note == "the model says 200 rows/s before it and 400 after it"));
    assert!(near(planned(&world, &set(1)).predicted, 100.0));
    let restarting = ScaleAsk::Restarting { ask: Box::new(set(4)), what: Restarted::Moved, cost_ms: 1000 };
    assert!(near(planned(&world, &restarting).predicted, 400.0));
    let exact = |predicted| {
        let add = vec![("w".to_owned(), "b".to_owned())];
        ScaleAsk::Exact(Box::new(ExactPlan { add, predicted, ..ExactPlan::default() }))
    };
    assert!(near(planned(&world, &exact(None)).predicted, 300.0));
    assert_eq!(planned(&world, &exact(Some(7.0))).predicted, Some(7.0), "what its maker says");
    // Cores of a that all are used: what is on it brings more elsewhere alone.
    for agent in &mut world.agents {
        agent.cores = 2;
    }
    world.drained.insert("b".to_owned());
    let crowded = planned(&world, &set(4)).predicted;
    assert!(crowded > Some(150.0) && crowded < Some(210.0), "four on the cores of two: {crowded:?}");
    world.drained.clear();
    let apart = planned(&world, &set(4)).predicted;
    assert!(apart > crowded.map(|rows| rows * 1.5), "{apart:?} {crowded:?}");
}

#[test]
fn where_nothing_is_known_the_plan_says_why_nothing_is_predicted() {
    let world = world(0);
    let known = world.known(None);
    let ask = set(4);
    let (plan, new) = known.plan(&ask, wanted(&ask, &known).unwrap()).unwrap();
    let why = plan.unpredicted.clone().unwrap();
    assert!(why.starts_with("no rates of job line are known yet: "), "{why}");
    assert_eq!((plan.predicted, new.unwrap().unpredicted), (None, Some(why)));
    let same = set(2);
    let (plan, _) = known.plan(&same, wanted(&same, &known).unwrap()).unwrap();
    assert_eq!((plan.predicted, plan.unpredicted), (None, None), "nothing changes");
}

#[test]
fn what_leaves_a_drained_agent_is_predicted_too() {
    let (world, live) = (world(1), measured(Instant::now()));
    let known = Known { live: live.run(1), ..world.known(None) };
    let (mut change, _) = known.evacuate("a");
    known.foretell(&mut change);
    assert!(change.predicted.is_some_and(|rows| rows > 0.0) && change.unpredicted.is_none(), "{change:?}");
}

#[test]
fn one_more_and_the_automatic_mode_count_on_no_core_that_there_is_not() {
    let now = Instant::now();
    let live = measured(now);
    let said = |cores: u32| {
        let world = world(cores);
        let known = Known { live: live.run(1), ..world.known(None) };
        let flow = answer(&known, None, now, &BTreeMap::new()).unwrap();
        let (seen, none) = (Seen::of(known.job, known.live, now).unwrap(), BTreeMap::new());
        let mut change = Change {
            // As the automatic mode would have it where b takes none.
            add: vec![(VertexId(1), "a".to_owned()); 2],
            ..Change::default()
        };
        let starved = known.foretell_by(&seen.running(Congestion::Demand, &none), &mut change).unwrap();
        assert_eq!(starved, cores > 0, "for want of cores");
        let gains: Vec<f64> = flow.more.plans.iter().map(|plan| plan.gain.clone().unwrap()).collect();
        (flow.etp.vertices[1].gain.clone().unwrap(), gains, change.predicted.unwrap())
    };
    let (gain, gains, auto) = said(0);
    assert!((gain - 100.0).abs() < 1.0 && (auto - 400.0).abs() < 4.0, "{gain} {auto}");
    let wanted = [100.0, 200.0, 400.0];
    assert!(gains.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 4.0), "{gains:?}");
    let (gain, gains, auto) = said(2);
    assert!(gain < 10.0 && auto < 210.0, "{gain} {auto}");
    assert!(gains.iter().all(|gain| *gain < 10.0), "{gains:?}");
}
