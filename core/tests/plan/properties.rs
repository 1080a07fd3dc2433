//! Random small jobs: planning never panics, is repeatable, and makes well-formed graphs.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use tuplane_core::fault::{At, Spanned};
use tuplane_core::job::{
    Job, JoinKind, Op, Options, Placement, Rebalance, Sink, SinkKind, Source, SourceKind, Stage,
    StatefulShape, Timestamps, Window, WindowKind,
};
use tuplane_core::plan::placement::{partition_map, targets};
use tuplane_core::plan::{
    AgentSlot, Dag, EdgeId, Instance, Routing, VertexId, case_error_json, case_json, dot, json, place, plan,
    text,
};

/// Numbers from which a stage is made; what they mean depends on the stages before it.
type Seed = (u8, u8, u8, u8, Option<u32>);

fn key(n: u8) -> Vec<Spanned<String>> {
    vec![Spanned::nowhere(format!("k{}", n % 3))]
}

fn op(kind: u8, detail: u8) -> Op {
    let shape = [StatefulShape::Map, StatefulShape::Filter, StatefulShape::FlatMap][usize::from(detail) % 3];
    match kind % 18 {
        0 => Op::Source(Source {
            kind: if detail & 1 == 0 { SourceKind::Batch } else { SourceKind::Stream },
            distributed: detail & 2 == 0,
            timestamps: [Timestamps::None, Timestamps::Source, Timestamps::Native]
                [usize::from(detail / 4) % 3],
            connector: None,
            time: None,
            on: Vec::new(),
            rate: None,
            max_row: None,
            window: None,
            predictor: None,
        }),
        1 => Op::Map { select: Vec::new() },
        2 => Op::Filter { predicate: None },
        3 => Op::FlatMap { unnest: None },
        4 | 5 => Op::Rebalance(Rebalance {
            key: if detail.is_multiple_of(2) { Vec::new() } else { key(detail / 2) },
            ..Rebalance::default()
        }),
        6 => Op::Merge,
        7 => Op::GroupBy { key: key(detail) },
        8 => Op::Window(Window {
            kind: [WindowKind::Tumbling, WindowKind::Sliding, WindowKind::Session][usize::from(detail) % 3],
            size: Some(std::time::Duration::from_millis(u64::from(detail) * 7)),
            slide: None,
            early: None,
        }),
        9 => Op::Aggregate { compute: Vec::new(), combine: !detail.is_multiple_of(4) },
        10 => Op::CoAggregate {
            compute: BTreeMap::default(),
            combine: !detail.is_multiple_of(4),
            builder: false,
        },
        11 => Op::HashJoin { on: Vec::new(), kind: JoinKind::Inner, builder: false },
        12 => Op::Stateful { shape, state: Vec::new(), update: Vec::new(), then: Vec::new(), ttl: None },
        13 => Op::Distinct { key: if detail.is_multiple_of(2) { Vec::new() } else { key(detail) } },
        14 => Op::Sort { by: Vec::new() },
        15 => Op::Peek { sample_per_second: None },
        16 => Op::AddTimestamps { time: None },
        _ => Op::Sink(Sink {
            kind: [
                SinkKind::Default,
                SinkKind::Partitioned,
                SinkKind::DistributedPartitioned,
                SinkKind::TotalParallelismOne,
            ][usize::from(detail) % 4],
            key: key(detail),
            preferred_parallelism: None,
            connector: None,
        }),
    }
}

fn stage(id: String, op: Op, inputs: Vec<String>, parallelism: Option<u32>, instances: Option<u32>) -> Stage {
    let inputs = inputs.into_iter().map(Spanned::nowhere).collect();
    Stage { id, at: At::default(), op, inputs, name: None, parallelism, instances }
}

/// A job from seeds: it starts with a source, and in the end every stage that may be read gets a sink.
fn build(seeds: &[Seed], preserve_order: bool, default_parallelism: Option<u32>, finish: bool) -> Job {
    let mut stages = vec![stage("s0".into(), op(0, 4), Vec::new(), None, None)];
    for (n, &(kind, detail, left, right, lp)) in seeds.iter().enumerate() {
        let readable: Vec<&Stage> = stages.iter().filter(|s| !matches!(s.op, Op::Sink(_))).collect();
        // Mostly go on from the latest stage, so that chains arise.
        let pick = |seed: u8| {
            let back = if seed.is_multiple_of(3) { usize::from(seed / 3) % readable.len() } else { 0 };
            readable[readable.len() - 1 - back].id.clone()
        };
        let op = op(kind, detail);
        let inputs = match op {
            Op::Source(_) => Vec::new(),
            Op::Merge | Op::CoAggregate { .. } | Op::HashJoin { .. } => vec![pick(left), pick(right)],
            _ => vec![pick(left)],
        };
        let view = matches!(op, Op::GroupBy { .. } | Op::Window(_) | Op::AddTimestamps { .. });
        let lp = lp.filter(|_| !view);
        let (parallelism, instances) = if detail % 5 == 4 { (None, lp) } else { (lp, None) };
        stages.push(stage(format!("t{n}"), op, inputs, parallelism, instances));
    }
    if finish {
        let read: HashSet<String> = stages.iter().flat_map(|s| &s.inputs).map(|i| i.value.clone()).collect();
        let open: Vec<String> = stages
            .iter()
            .filter(|s| !read.contains(&s.id) && !matches!(s.op, Op::Sink(_)))
            .map(|s| s.id.clone())
            .collect();
        for id in open {
            let last = stages.iter().find(|s| s.id == id).unwrap();
            let reader = match last.op {
                Op::GroupBy { .. } => op(12, 0),
                Op::Window(_) => op(9, 1),
                _ => op(17, 0),
            };
            let sink = matches!(reader, Op::Sink(_));
            stages.push(stage(format!("end-{id}"), reader, vec![id.clone()], None, None));
            if !sink {
                stages.push(stage(format!("out-{id}"), op(17, 0), vec![format!("end-{id}")], None, None));
            }
        }
    }
    let options = Options { preserve_order, default_parallelism, ..Options::default() };
    Job { name: "random".into(), options, stages, routes: Vec::new() }
}

fn check(dag: &Dag, job: &Job) {
    let names: HashSet<_> = dag.vertices.iter().map(|v| &v.name).collect();
    assert_eq!(names.len(), dag.vertices.len(), "vertex names are unique");
    let labels: HashSet<_> = dag.vertices.iter().map(tuplane_core::plan::Vertex::label).collect();
    assert_eq!(labels.len(), dag.vertices.len(), "labels are unique");
    for id in (0..dag.vertices.len() as u32).map(VertexId) {
        let inputs: Vec<u32> = dag.inputs(id).map(|(_, e)| e.ordinal).collect();
        assert_eq!(inputs, (0..inputs.len() as u32).collect::<Vec<_>>(), "input ordinals have no gap");
        let outputs: Vec<u32> = dag.outputs(id).map(|(_, e)| e.from_ordinal).collect();
        assert_eq!(outputs, (0..outputs.len() as u32).collect::<Vec<_>>(), "output ordinals have no gap");
        let first = job.stages.iter().find(|s| s.id == dag.vertex(id).stages[0]).unwrap();
        let last = job.stages.iter().find(|s| Some(&s.id) == dag.vertex(id).stages.last()).unwrap();
        let begins =
            matches!(first.op, Op::Source(_)) && dag.vertex(id).role == tuplane_core::plan::Role::Whole;
        assert_eq!(begins, inputs.is_empty(), "sources alone have no input");
        assert_eq!(matches!(last.op, Op::Sink(_)), outputs.is_empty(), "sinks alone have no output");
    }
    for (n, edge) in dag.edges.iter().enumerate() {
        let id = EdgeId(n as u32);
        assert!(edge.from < edge.to, "edges go forward");
        assert!(!edge.why.is_empty());
        assert!(!(edge.routing == Routing::Isolated && edge.distributed), "pairs are on one agent");
        assert_eq!(dag.find_edge(&dag.edge_name(id)), Ok(id), "a name finds its edge");
    }
}

fn check_placement(dag: &Dag, job: &Job) {
    let agents: Vec<_> = (0..3)
        .map(|index| AgentSlot { index, name: format!("h{index}"), slots: 1 + u32::from(index) })
        .collect();
    for (_, placement) in Placement::ALL {
        let mut job = job.clone();
        job.options.placement = placement;
        let instances = place(dag, &job, &agents).unwrap();
        check_targets(dag, &instances);
    }
}

fn check_targets(dag: &Dag, instances: &[Instance]) {
    for (n, edge) in dag.edges.iter().enumerate() {
        let id = EdgeId(n as u32);
        for sender in instances.iter().filter(|i| i.vertex == edge.from) {
            let reached = targets(dag, id, instances, sender.agent);
            assert!(!reached.is_empty(), "every sender has a target");
            let map = partition_map(dag, id, instances, 271, sender.agent);
            assert!(map.len() == 271 && map.iter().all(|i| instances[*i as usize].vertex == edge.to));
            if matches!(edge.routing, Routing::Partitioned { .. }) {
                assert!(map.iter().all(|i| reached.contains(i)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn random_jobs_plan_well_or_are_refused(
        seeds in prop::collection::vec((0u8..18, any::<u8>(), any::<u8>(), any::<u8>(), prop::option::weighted(0.2, 1u32..5)), 0..12),
        preserve_order in prop::bool::weighted(0.2),
        default_parallelism in prop::option::weighted(0.3, 1u32..6),
        finish in prop::bool::weighted(0.95),
    ) {
        let job = build(&seeds, preserve_order, default_parallelism, finish);
        let before = job.clone();
        let first = plan(&job);
        prop_assert_eq!(&first, &plan(&job));
        prop_assert_eq!(&job, &before);
        match first {
            Ok(dag) => {
                check(&dag, &job);
                check_placement(&dag, &job);
                text(&job.name, &dag);
                dot(&job.name, &dag);
                json(&job.name, &dag);
                case_json(&dag);
            }
            Err(error) => {
                case_error_json(&error);
                prop_assert_eq!(error.when, error.kind.when());
            }
        }
    }
}

/// The generator would prove little if most of what it makes were refused.
#[test]
fn many_random_jobs_are_planned() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let seeds = prop::collection::vec((0u8..18, any::<u8>(), any::<u8>(), any::<u8>(), Just(None)), 0..12);
    let mut runner = TestRunner::deterministic();
    let jobs = (0..400).map(|_| build(&seeds.new_tree(&mut runner).unwrap().current(), false, None, true));
    let planned: Vec<Dag> = jobs.filter_map(|job| plan(&job).ok()).collect();
    let edges: usize = planned.iter().map(|d| d.edges.len()).sum();
    assert!(planned.len() > 80 && edges > 400, "{} planned, {edges} edges", planned.len());
}
