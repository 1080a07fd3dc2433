//! From counters of a running job to its congestion, ETP, and what one more instance would bring.

use std::collections::BTreeMap;
use std::time::Duration;

use tuplane_core::cluster::types::{EdgeLedger, InstanceReport};
use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Dag, VertexId, plan};
use tuplane_core::scale::observed::{JobEtp, OnMachines, Running};
use tuplane_core::scale::rates::{Known, RateWindow, WindowOptions, kinds};
use tuplane_core::scale::{Ask, Congestion, Engine, Limit, Machine, Placement, Planners};

const MS: u64 = 1_000_000;

/// Rows a second and milliseconds busy of each second, for each vertex.
struct Seen {
    rows: f64,
    busy_ms: u64,
    blocked_ms: u64,
}

fn seen(rows: f64, busy_ms: u64, blocked_ms: u64) -> Seen {
    Seen { rows, busy_ms, blocked_ms }
}

/// `rows` (a source of this rate) into `slow` into `out`.
fn chain(rate: &str, sink: &str) -> (Job, Dag) {
    let text = format!(
        r#"stage = [
{{ id = "rows", op = "source", connector = "ids", n = 9{rate} }},
{{ id = "slow", op = "work", ms = 1, in = "rows" }},
{{ id = "out", op = "sink", in = "slow", connector = "count"{sink} }},
]"#
    );
    let job = Job::parse(&text, FileFormat::Toml).unwrap();
    let dag = plan(&job).unwrap();
    (job, dag)
}

/// What follows from twelve seconds of such counters, one instance each.
fn etp(job: &(Job, Dag), all: &[Seen], congestion: Congestion, fixed: &BTreeMap<VertexId, String>) -> JobEtp {
    running(job, all, congestion, fixed, |running| running.etp(None))
}

fn running<T>(
    (job, dag): &(Job, Dag),
    all: &[Seen],
    congestion: Congestion,
    fixed: &BTreeMap<VertexId, String>,
    asked: impl Fn(Running<'_>) -> T,
) -> T {
    let kinds = kinds(dag, job, |_, _| None, |_| Err("not read".to_owned()));
    let instance = |index: u32| Instance { id: index, vertex: VertexId(index), number: 0, agent: 0 };
    let instances: Vec<Instance> = (0..all.len() as u32).map(instance).collect();
    let mut window = RateWindow::new(WindowOptions::default());
    let mut now = Duration::ZERO;
    for second in 1..=12_u64 {
        now = Duration::from_secs(second);
        let total = |rows: f64| (rows * second as f64) as u64;
        let report = |(index, seen): (usize, &Seen)| InstanceReport {
            instance: index as u32,
            rows_in: total(seen.rows),
            rows_out: if index + 1 == all.len() { 0 } else { total(seen.rows) },
            busy_ns: seen.busy_ms * MS * second,
            blocked_ns: seen.blocked_ms * MS * second,
            idle_ns: (1000 - seen.busy_ms - seen.blocked_ms) * MS * second,
            ..InstanceReport::default()
        };
        let reports: Vec<InstanceReport> = all.iter().enumerate().map(report).collect();
        let ledger = |(index, edge): (usize, &tuplane_core::plan::Edge)| EdgeLedger {
            edge: index as u32,
            emitted: total(all[edge.from.0 as usize].rows),
            ..EdgeLedger::default()
        };
        let edges: Vec<EdgeLedger> = dag.edges.iter().enumerate().map(ledger).collect();
        window.report("a", now, &reports, &edges);
    }
    let agents = ["a".to_owned()];
    let rates = window.rates(&Known { dag, kinds: &kinds, instances: &instances, agents: &agents }, now);
    let engine = Engine::BackPressured;
    let partitions = job.options.partitions();
    asked(Running { dag, kinds: &kinds, rates: &rates, engine, congestion, fixed, partitions, alone: false })
}

#[test]
fn under_back_pressure_demand_shows_who_is_congested_and_the_published_test_does_not() {
    let job = chain(", rate = 300", "");
    let all = [seen(100.0, 10, 900), seen(100.0, 1000, 0), seen(100.0, 20, 0)];
    let none = BTreeMap::new();
    let found = etp(&job, &all, Congestion::Demand, &none);
    let congested: Vec<bool> =
        found.vertices.iter().map(|vertex| vertex.congested.clone().unwrap()).collect();
    assert_eq!(congested, [false, true, false]);
    assert_eq!(found.vertices[1].demand, Ok(300.0));
    assert_eq!(found.vertices[1].gain.as_ref().map(|gain| gain.round()), Ok(100.0));
    assert_eq!(found.vertices[2].gain, Ok(0.0));
    let shares: Vec<f64> = found.vertices.iter().map(|vertex| vertex.flow_share.clone().unwrap()).collect();
    assert_eq!(shares, [0.0, 1.0, 1.0]);
    assert!(shares[0].is_sign_positive(), "-0 is no share");
    assert!(matches!(found.limit, Some(Limit::Vertex { vertex: VertexId(1), .. })), "{:?}", found.limit);
    assert_eq!(found.modelled, Ok(100.0));
    let published = etp(&job, &all, Congestion::Ratio(1.2), &none);
    assert!(published.vertices.iter().all(|vertex| vertex.congested == Ok(false)));
}

#[test]
fn where_machines_are_known_one_more_counts_on_no_core_that_there_is_not() {
    let job = chain(", rate = 300", "");
    let all = [seen(100.0, 10, 900), seen(100.0, 1000, 0), seen(100.0, 20, 0)];
    let gain = |machines: &[f64]| {
        running(&job, &all, Congestion::Demand, &BTreeMap::new(), |running| {
            let graph = Running { alone: true, ..running }.observe().unwrap().graph;
            let machines = machines.iter().map(|cores| Machine::new(cores.to_string(), *cores)).collect();
            let placement = Placement { machines, on: vec![vec![0]; 3] };
            let modelled = placement.expected(&graph, running.engine).throughput;
            let on = OnMachines { graph: &graph, placement: &placement, modelled };
            let found = running.etp(Some(&on));
            assert_eq!(found.modelled, Ok(modelled));
            found.vertices[1].gain.clone().unwrap()
        })
    };
    // Alone it fills the core; the fluid without machines says 100.
    assert!(gain(&[1.0]).abs() < 1e-9, "{}", gain(&[1.0]));
    assert!((gain(&[9.0]) - 100.0).abs() < 1e-6 && gain(&[1.0, 1.0]) > 80.0, "{}", gain(&[1.0, 1.0]));
}

#[test]
fn a_source_without_a_rate_gives_what_it_can_and_more_of_it_may_help() {
    let all = [seen(100.0, 1000, 0), seen(100.0, 100, 0), seen(100.0, 20, 0)];
    let none = BTreeMap::new();
    let found = etp(&chain("", ""), &all, Congestion::Demand, &none);
    assert!(found.vertices.iter().all(|vertex| vertex.congested == Ok(false)));
    assert_eq!(found.vertices[0].gain.as_ref().map(|gain| gain.round()), Ok(100.0));
    assert_eq!(found.vertices[1].gain, Ok(0.0));
    let fixed = BTreeMap::from([(VertexId(0), "its rows are dealt already".to_owned())]);
    let found = etp(&chain("", ""), &all, Congestion::Demand, &fixed);
    assert_eq!(found.vertices[0].gain, Err("its rows are dealt already".to_owned()));
}

#[test]
fn a_vertex_of_which_nothing_is_known_limits_nothing_and_that_is_said() {
    let all = [seen(100.0, 10, 0), seen(100.0, 100, 0), seen(100.0, 0, 0)];
    let none = BTreeMap::new();
    let found = etp(&chain(", rate = 100", ""), &all, Congestion::Demand, &none);
    assert_eq!(found.vertices[2].gain, Err("never busy in 10 s".to_owned()));
    assert_eq!(found.assumed, ["out limits nothing: what it can do is not known (never busy in 10 s)"]);
    assert_eq!(found.modelled, Ok(100.0));
    let idle = [seen(0.0, 0, 0), seen(0.0, 0, 0), seen(0.0, 0, 0)];
    let found = etp(&chain(", rate = 100", ""), &idle, Congestion::Demand, &none);
    for vertex in &found.vertices {
        for figure in [&vertex.demand, &vertex.path, &vertex.flow_share, &vertex.gain] {
            assert_eq!(figure, &Err("idle: no rows in 10 s".to_owned()));
        }
    }
    assert_eq!(found.throughput, Ok(0.0));
}

#[test]
fn a_source_that_gave_nothing_because_it_is_held_up_offers_more_than_any_plan_takes() {
    let all = [seen(0.0, 0, 1000), seen(100.0, 1000, 0), seen(100.0, 500, 0)];
    let none = BTreeMap::new();
    let found = etp(&chain("", ""), &all, Congestion::Demand, &none);
    let congested: Vec<bool> =
        found.vertices.iter().map(|vertex| vertex.congested.clone().unwrap()).collect();
    assert_eq!(congested, [false, true, false]);
    assert_eq!(found.vertices[1].gain.as_ref().map(|gain| gain.round()), Ok(100.0));
    assert_eq!(found.vertices[2].gain, Ok(0.0));
    assert!(found.vertices[1].demand.is_err(), "{:?}", found.vertices[1]);
    assert!(
        found
            .assumed
            .contains(&"rows offers more than is taken of it: it is held up 100 % of the time".into()),
        "{:?}",
        found.assumed
    );
    // The next ones go where the next bottleneck is.
    let planned = |planner: &str| {
        running(&chain("", ""), &all, Congestion::Demand, &none, |running| {
            let seen = running.observe().unwrap();
            let ask = Ask::new(&seen.graph, Engine::BackPressured, 3);
            Planners::default().scale_out(planner, &ask).unwrap()
        })
    };
    for planner in ["best", "ds2"] {
        let plan = planned(planner);
        assert_eq!((&plan.instances[..], plan.after.round()), (&[1, 3, 2][..], 300.0), "{plan:?}");
    }
    // What it offers at least is what is taken of it.
    let least =
        running(&chain("", ""), &all, Congestion::Demand, &none, |running| running.observe().unwrap());
    let offered = least.least.vertices()[0].offered.unwrap();
    assert!((offered / 100.0 - 1.0).abs() < 1e-3, "{offered}");
    // One that has nothing to give offers nothing.
    let all = [seen(0.0, 0, 0), seen(100.0, 1000, 0), seen(100.0, 500, 0)];
    let found = etp(&chain("", ""), &all, Congestion::Demand, &none);
    assert_eq!((found.vertices[1].congested.clone(), found.vertices[1].gain.clone()), (Ok(false), Ok(0.0)));
    assert!(found.assumed.contains(&"rows offers what it gives, 0 rows/s".into()), "{:?}", found.assumed);
}

#[test]
fn the_authors_planner_counts_what_a_sink_takes() {
    let all = [seen(100.0, 10, 900), seen(100.0, 1000, 0), seen(100.0, 20, 0)];
    let none = BTreeMap::new();
    let plan = running(&chain(", rate = 300", ""), &all, Congestion::Demand, &none, |running| {
        let observed = running.observe().unwrap();
        let rates = observed.rates.clone().unwrap();
        assert_eq!((rates[2].processed, rates[2].emitted), (100.0, 100.0), "its counter of rows given is 0");
        let ask = Ask {
            rates,
            congestion: Congestion::Demand,
            ..Ask::new(&observed.graph, Engine::BackPressured, 2)
        };
        Planners::default().scale_out("stela-code", &ask).unwrap()
    });
    assert_eq!((plan.instances, plan.left), (vec![1, 3, 1], None));
}

#[test]
fn a_vertex_has_no_more_instances_than_there_are_key_partitions() {
    let job = |partitions: u16| {
        let text = format!(
            r#"partitions = {partitions}
stage = [
{{ id = "rows", op = "source", connector = "ids", n = 9, rate = 600 }},
{{ id = "keyed", op = "rebalance", key = "id", in = "rows" }},
{{ id = "slow", op = "work", ms = 1, in = "keyed" }},
{{ id = "out", op = "sink", in = "slow", connector = "count" }},
]"#
        );
        let job = Job::parse(&text, FileFormat::Toml).unwrap();
        let dag = plan(&job).unwrap();
        (job, dag)
    };
    // It needs six instances for what the source offers.
    let all = [seen(100.0, 10, 900), seen(100.0, 1000, 0), seen(100.0, 20, 0)];
    let none = BTreeMap::new();
    for planner in ["best", "stela", "ds2", "round-robin"] {
        running(&job(4), &all, Congestion::Demand, &none, |running| {
            let observed = running.observe().unwrap();
            assert_eq!(observed.graph.vertices()[1].max_instances, Some(4));
            let ask = Ask {
                congestion: Congestion::Demand,
                ..Ask::new(&observed.graph, Engine::BackPressured, 30)
            };
            let plan = Planners::default().scale_out(planner, &ask).unwrap();
            let slow = plan.steps.iter().filter(|step| step.vertex == 1).count();
            assert_eq!(slow, 3, "{planner}: {:?}", plan.left);
            if planner == "best" {
                let left = plan.left.unwrap();
                assert_eq!(left.slots, 27);
                assert!(left.why.contains("no more than 4 instances"), "{left:?}");
            }
        });
    }
    let found = etp(&job(1), &all, Congestion::Demand, &none);
    let why = found.vertices[1].gain.clone().unwrap_err();
    assert!(why.contains("its keys are in 1 partitions"), "{why}");
}
