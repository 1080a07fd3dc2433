//! Instances on agents, and what edges reach from where.

use std::collections::BTreeMap;

use tuplane_core::plan::placement::{isolated_targets, partition_map, targets, targets_of};
use tuplane_core::plan::{AgentSlot, Dag, Instance, VertexId, place, place_at, plan};

use super::helper::job;

fn agents(slots: &[u32]) -> Vec<AgentSlot> {
    (0..).zip(slots).map(|(index, &slots)| AgentSlot { index, name: format!("h{index}"), slots }).collect()
}

fn placed(text: &str, slots: &[u32]) -> (Dag, Vec<Instance>) {
    let job = job(text);
    let dag = plan(&job).unwrap();
    let instances = place(&dag, &job, &agents(slots)).unwrap();
    assert!(instances.iter().enumerate().all(|(n, i)| i.id == n as u32), "ids are dense");
    (dag, instances)
}

/// Agents of a vertex's instances, by number.
fn on(dag: &Dag, instances: &[Instance], name: &str) -> Vec<u16> {
    let vertex =
        dag.vertices.iter().position(|vertex| vertex.label() == name || vertex.name == name).unwrap();
    let vertex = VertexId(vertex as u32);
    let own: Vec<_> = instances.iter().filter(|i| i.vertex == vertex).collect();
    assert!(own.iter().enumerate().all(|(n, i)| i.number == n as u32), "numbers are dense");
    own.iter().map(|i| i.agent).collect()
}

#[test]
fn per_agent_vertices_stand_on_every_agent() {
    let (dag, all) =
        placed("- s = source parallelism=2\n- m = map s\n- a = aggregate m\n- out = sink a", &[3, 1, 0]);
    assert_eq!(on(&dag, &all, "s"), [0, 0, 1, 1]);
    assert_eq!(on(&dag, &all, "m"), [0, 0, 0, 1]);
    assert_eq!(on(&dag, &all, "a/prepare"), [0, 0, 0, 1]);
    assert_eq!(on(&dag, &all, "a"), [0]);
    assert_eq!(on(&dag, &all, "out"), [0, 0, 0, 1]);
}

#[test]
fn an_undistributed_source_is_made_once() {
    let (dag, all) = placed("- s = source distributed=false\n- r = rebalance s\n- out = sink r", &[2, 2]);
    assert_eq!(on(&dag, &all, "s"), [0]);
    let edge = dag.find_edge("s..out").unwrap();
    assert_eq!(targets(&dag, edge, &all, 0).len(), 4);
}

#[test]
fn a_source_stays_on_its_agents_and_one_instance_follows_it() {
    let text =
        "- s = source on=['h2','h1'] parallelism=2 timestamps='source'\n- a = map_stateful s\n- out = sink a";
    let (dag, all) = placed(text, &[1, 1, 1]);
    assert_eq!(on(&dag, &all, "s"), [1, 1, 2, 2]);
    assert_eq!(on(&dag, &all, "s/timestamps"), [1, 1, 2, 2]);
    assert_eq!(on(&dag, &all, "a"), [1]);
    let job = job(&text.replace("h2", "h3x"));
    let fault = place(&plan(&job).unwrap(), &job, &agents(&[1, 1, 1, 1])).unwrap_err();
    assert!(fault.message.contains("`h3x`") && fault.at.line > 0);
    assert_eq!(fault.help.as_deref(), Some("did you mean `h3`?"));
}

#[test]
fn instances_are_dealt_over_agents_in_turn() {
    let (dag, all) = placed(
        "- s = source instances=4 timestamps='source'\n- m = map s instances=3\n- out = sink m",
        &[8, 8, 8],
    );
    assert_eq!(on(&dag, &all, "s"), [0, 1, 2, 0]);
    assert_eq!(on(&dag, &all, "s/timestamps"), [0, 1, 2, 0]);
    assert_eq!(on(&dag, &all, "m"), [1, 2, 0]);
    let own = dag.find_edge("s..s/timestamps").unwrap();
    for sender in all.iter().filter(|i| i.vertex == VertexId(0)) {
        let reached = targets_of(&dag, own, &all, sender);
        assert_eq!(reached, [sender.id + 4]);
        assert_eq!(all[reached[0] as usize].agent, sender.agent);
    }
}

#[test]
fn t_heron_puts_the_ends_of_a_chain_beside_its_middle() {
    let text = "- s = source instances=2 timestamps='source'\n- r = rebalance s\n- m = work r instances=2\n\
                - w = map m instances=2\n- out = sink w";
    let all_on = |text: &str| {
        let (dag, all) = placed(text, &[4, 4, 4]);
        ["s", "s/timestamps", "m", "w"].map(|name| on(&dag, &all, name))
    };
    assert_eq!(all_on(text), [[0, 1], [0, 1], [2, 0], [1, 2]]);
    assert_eq!(all_on(&format!("placement = 't_heron'\n{text}")), [[0, 1]; 4]);
}

#[test]
fn link_load_heeds_what_ways_cost() {
    let job = job(
        "placement = 'link_load'\n- s = source instances=2\n- r = rebalance s\n- m = work r instances=2\n\
                   - q = rebalance m\n- w = work q instances=2\n- l = rebalance w\n- out = sink l instances=2",
    );
    let (dag, agents) = (plan(&job).unwrap(), agents(&[2, 2, 2]));
    let used = |instances: Vec<Instance>| {
        instances.iter().map(|i| i.agent).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(used(place(&dag, &job, &agents).unwrap()), 3);
    // Eight over three: at most four on an agent, so two are enough where the way to the third is long.
    let far = |from: u16, to: u16| {
        if from == to {
            0.0
        } else if from.max(to) == 2 {
            10.0
        } else {
            1.0
        }
    };
    assert_eq!(used(place_at(&dag, &job, &agents, &far).unwrap()), 2);
}

#[test]
fn one_instance_follows_those_that_a_strategy_places() {
    let text = "placement = 't_heron'\n- s = source on=['h2'] parallelism=2\n- r = rebalance s\n\
                - m = work r instances=2\n- q = rebalance m\n- a = map_stateful q\n- out = sink a";
    let (dag, all) = placed(text, &[1, 1, 1]);
    // 2 sources on h2, a sink on each: 7 over three, so at most 4 on h2.
    assert_eq!([on(&dag, &all, "s"), on(&dag, &all, "m")], [[2, 2], [2, 0]]);
    assert_eq!(on(&dag, &all, "a"), [0], "the first agent that has what it reads");
}

#[test]
fn collectors_stand_with_their_joiners() {
    let (dag, all) =
        placed("- s = source\n- b = source\n- j = hash_join s,b instances=2\n- out = sink j", &[1, 1, 1]);
    assert_eq!(on(&dag, &all, "j"), [0, 1]);
    assert_eq!(on(&dag, &all, "j/collector1"), [0, 1]);
    let build = dag.find_edge("j/collector1..j").unwrap();
    for agent in [0, 1] {
        let reached = targets(&dag, build, &all, agent);
        assert_eq!(reached.len(), 1);
        assert_eq!(all[reached[0] as usize].agent, agent);
    }
    assert_eq!(targets(&dag, dag.find_edge("b..j/collector1").unwrap(), &all, 2).len(), 2);
}

#[test]
fn isolated_pairs_follow_the_rule() {
    let all = |up, down| (0..up).map(|u| isolated_targets(u, up, down)).collect::<Vec<_>>();
    assert_eq!(all(3, 3), [[0], [1], [2]]);
    assert_eq!(all(2, 5), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(all(4, 2), [[0], [1], [0], [1]]);
    assert_eq!(isolated_targets(0, 1, 0), [0; 0]);
    // Against the definition, and: everyone downstream is fed, nobody upstream is left out.
    for up in 1..8 {
        for down in 1..8 {
            let pairs = all(up, down);
            assert!(pairs.iter().all(|d| !d.is_empty()));
            assert!((0..down).all(|d| pairs.iter().any(|p| p.contains(&d))));
            if down >= up {
                assert!((0..down).all(|d| pairs.iter().filter(|p| p.contains(&d)).count() == 1));
            }
        }
    }
}

#[test]
fn isolated_and_local_edges_stay_on_the_agent() {
    let (dag, all) = placed(
        "preserve_order = true\n- s = source parallelism=4\n- m = map s parallelism=2\n- out = sink m",
        &[4, 4],
    );
    let pairs = dag.find_edge("s..m").unwrap();
    let fed: Vec<_> =
        all.iter().filter(|i| i.vertex == VertexId(0)).map(|i| targets_of(&dag, pairs, &all, i)).collect();
    assert_eq!(fed, [[8], [9], [8], [9], [10], [11], [10], [11]]);
    let local = dag.find_edge("m..out").unwrap();
    assert!(targets(&dag, local, &all, 1).iter().all(|&id| all[id as usize].agent == 1));
}

#[test]
fn one_producing_instance_keeps_its_pair() {
    let text = "preserve_order = true\n- s = source distributed=false parallelism=3\n- m = map s parallelism=3\n- out = sink m";
    let (dag, all) = placed(text, &[4, 4]);
    assert_eq!(on(&dag, &all, "s"), [0]);
    assert_eq!(targets_of(&dag, dag.find_edge("s..m").unwrap(), &all, &all[0]).len(), 1);
}

const TWO_KEYED_INPUTS: &str = "- a = source\n- b = source\n- r = rebalance b\n- ga = group_by a key='x'\n- gb = group_by r key='y'\n\
     - c = co_aggregate ga,gb parallelism=2\n- out = sink c";

#[test]
fn partitions_are_dealt_over_agents_then_instances() {
    let (dag, all) = placed(TWO_KEYED_INPUTS, &[2, 2, 2]);
    let edges = [dag.find_edge("a..c").unwrap(), dag.find_edge("b..c").unwrap()];
    let map = partition_map(&dag, edges[0], &all, 271, 0);
    let where_is = |p: usize| (all[map[p] as usize].agent, all[map[p] as usize].number % 2);
    assert_eq!(
        (0..7).map(where_is).collect::<Vec<_>>(),
        [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 0)]
    );
    for edge in edges {
        for sender in 0..3 {
            assert_eq!(partition_map(&dag, edge, &all, 271, sender), map, "co-partitioned, whoever sends");
        }
    }
}

#[test]
fn every_instance_gets_an_equal_share_of_partitions() {
    let (dag, all) =
        placed("- s = source\n- g = group_by s key='k'\n- m = map_stateful g\n- out = sink m", &[5, 1, 2]);
    let map = partition_map(&dag, dag.find_edge("s..m").unwrap(), &all, 271, 0);
    let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
    for id in map {
        *shares.entry(id).or_default() += 1;
    }
    assert_eq!(shares.len(), 8);
    assert!(shares.values().all(|n| (33..=34).contains(n)), "{shares:?}");
}

#[test]
fn the_first_of_two_stages_is_partitioned_on_each_agent() {
    let (dag, all) =
        placed("- s = source\n- g = group_by s key='k'\n- a = aggregate g\n- out = sink a", &[2, 3]);
    let local = dag.find_edge("s..a/prepare").unwrap();
    for (agent, own) in [(0, 2), (1, 3)] {
        let map = partition_map(&dag, local, &all, 10, agent);
        assert!(map.iter().all(|&id| all[id as usize].agent == agent));
        assert_eq!(map.iter().collect::<std::collections::BTreeSet<_>>().len(), own);
    }
    let second = dag.find_edge("a/prepare..a").unwrap();
    assert_eq!(partition_map(&dag, second, &all, 10, 0), partition_map(&dag, second, &all, 10, 1));
}

#[test]
fn more_keyed_instances_than_partitions_are_refused_with_the_numbers() {
    let text = |partitions: u32| {
        format!(
            "partitions = {partitions}\n- s = source\n- g = group_by s key='k'\n- m = map_stateful g parallelism=3\n- out = sink m"
        )
    };
    let six = job(&text(6));
    assert!(place(&plan(&six).unwrap(), &six, &agents(&[1, 1])).is_ok());
    let five = job(&text(5));
    let fault = place(&plan(&five).unwrap(), &five, &agents(&[1, 1])).unwrap_err();
    assert!(
        fault.message.contains("6 instances") && fault.message.contains("5 partitions"),
        "{}",
        fault.message
    );
    assert_eq!(fault.stage.as_deref(), Some("m"));
}

#[test]
fn impossible_placements_are_refused() {
    let one = job("- s = source\n- out = sink s");
    let dag = plan(&one).unwrap();
    assert!(place(&dag, &one, &[]).unwrap_err().message.contains("no agent"));
    assert!(place(&dag, &one, &agents(&[0, 0])).is_err());
    // More than a job file may ask for; a builder may.
    let mut huge = one.clone();
    huge.stages[0].parallelism = Some(60_000);
    let fault = place(&plan(&huge).unwrap(), &huge, &agents(&[1, 1])).unwrap_err();
    assert!(fault.message.contains("120000 instances"), "{}", fault.message);
    // A plan changed by hand: the target of a local edge is kept off an agent that sends.
    let pinned = job("- s = source\n- t = source on=['h0']\n- out = sink s,t");
    let mut dag = plan(&pinned).unwrap();
    dag.edges[0].to = VertexId(1);
    let fault = place(&dag, &pinned, &agents(&[1, 1])).unwrap_err();
    assert!(fault.message.contains("agent `h1` has no instance of `t`"), "{}", fault.message);
}
