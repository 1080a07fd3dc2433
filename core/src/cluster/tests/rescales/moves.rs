//! Key partitions that move in a rescale: each group once, in order, whoever coordinates.

use std::collections::BTreeMap;

use super::*;
use crate::plan::KeyMap;
use crate::route::moves::{Group, moves, remap};

/// As [`plan`], and vertex 1 holds six key partitions, each of them of one byte.
fn keyed(job: &Job, add: &[AgentInfo], going: &[u32]) -> NewScale {
    let new = plan(job, add, going);
    let held = |all: &[Instance]| -> Vec<u32> {
        let of = all.iter().filter(|one| one.vertex == VertexId(1));
        of.map(|one| one.id).filter(|id| !job.retired.contains(id)).collect()
    };
    let first = || remap(&[u32::MAX; 6], &held(&job.instances));
    let before = job.maps().get(&VertexId(1)).cloned().unwrap_or_else(first);
    let all: Vec<Instance> = job.instances.iter().chain(&new.coming).copied().collect();
    let owners: Vec<u32> = held(&all).into_iter().filter(|id| !going.contains(id)).collect();
    let after = remap(&before, &owners);
    NewScale { maps: vec![KeyMap { vertex: VertexId(1), before, after }], ..new }
}

fn groups_of(map: &KeyMap, most: u64) -> Vec<Group> {
    moves(&map.before, &map.after, &|_| 1, most)
}

/// Everything that is said until a plan is done, with the effect of each.
fn steps(new: &NewScale, run: u64) -> Vec<(Command, Vec<Effect>)> {
    let epoch = new.epoch;
    let groups = groups_of(&new.maps[0], 1);
    let count = groups.len() as u32;
    let mut all = vec![
        (asked(run, new.clone()), vec![Effect::Extend { run, epoch }]),
        (Command::RescalePrepared { run, epoch }, vec![]),
        (Command::RescaleCommitted { run, epoch }, vec![Effect::Switch { run, epoch }]),
        (Command::RescaleSwitched { run, epoch }, vec![Effect::Divide { run, epoch }]),
        (Command::GroupsMade { run, epoch, groups }, vec![Effect::Move { run, epoch, group: 0 }]),
    ];
    all.extend((0..count).map(|group| {
        let next = match group + 1 {
            next if next < count => Effect::Move { run, epoch, group: next },
            _ => Effect::Release { run, epoch },
        };
        (Command::GroupMoved { run, epoch, group }, vec![next])
    }));
    all.push((Command::OwnersReleased { run, epoch }, vec![]));
    all
}

/// A coordinator `z` without a part in the job, which runs on `a` and `b`.
fn beside() -> Cluster {
    let mut cluster = Cluster::of(&["a", "b", "z"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents[..2]));
    cluster.apply(Command::Prepared { run: 1 });
    cluster
}

fn map_of(cluster: &Cluster) -> Vec<u32> {
    cluster.job().maps()[&VertexId(1)].clone()
}

#[test]
fn groups_move_one_after_the_other_and_then_the_plan_is_done() {
    let mut cluster = beside();
    let agents = cluster.alive();
    let new = keyed(cluster.job(), &agents[..1], &[]);
    let (before, after) = (new.maps[0].before.clone(), new.maps[0].after.clone());
    assert_eq!(new.maps[0].moves(), 2);
    let all = steps(&new, 1);
    assert_eq!(all.len(), 8);
    for (number, (command, effects)) in all.iter().enumerate() {
        for later in &all[number + 1..] {
            assert_eq!(cluster.apply(later.0.clone()), [], "it is not its turn");
        }
        assert_eq!(cluster.apply(command.clone()), *effects);
        assert_eq!(cluster.apply(command.clone()), [], "a second time it changes nothing");
        match number {
            0..=4 => assert_eq!(map_of(&cluster), before),
            5 => assert_eq!(map_of(&cluster).iter().zip(&before).filter(|(now, was)| now != was).count(), 1),
            _ => assert_eq!(map_of(&cluster), after),
        }
        assert_eq!(cluster.last().step == Step::Done, number == 7);
    }
    // What goes has given its partitions away before it ends.
    let new = keyed(cluster.job(), &[], &[new.coming.last().unwrap().id]);
    assert_eq!(new.maps[0].before, after);
    for (command, effects) in steps(&new, 1) {
        assert_eq!(cluster.apply(command), effects);
    }
    assert_eq!(cluster.last().step, Step::Committed, "it is being drained");
    cluster.apply(ended(1, new.going[0], vec![]));
    assert_eq!((cluster.last().step, map_of(&cluster)), (Step::Done, new.maps[0].after.clone()));
}

#[test]
fn a_new_coordinator_goes_on_at_each_step_and_the_map_is_the_old_or_the_new_one() {
    let count = steps(&keyed(beside().job(), &beside().alive()[..1], &[]), 1).len();
    for killed in 1..=count {
        let mut cluster = beside();
        let agents = cluster.alive();
        let new = keyed(cluster.job(), &agents[..1], &[]);
        let (before, after) = (new.maps[0].before.clone(), new.maps[0].after.clone());
        let all = steps(&new, 1);
        let mut due = vec![];
        for (command, effects) in &all[..killed] {
            assert_eq!(cluster.apply(command.clone()), *effects);
            due.clone_from(effects);
        }
        cluster.apply(Command::CoordinatorStarted);
        let mut resumed = vec![];
        for info in [info("z", 2), agents[0].clone(), agents[1].clone()] {
            resumed = cluster.apply(Command::AgentRegistered(Box::new(info)));
        }
        if killed <= 2 {
            // It was not committed.
            let told = agents[..2].iter().map(|agent| agent.id.clone()).collect();
            assert_eq!(resumed, [Effect::Abort { run: 1, epoch: new.epoch, agents: told }]);
            assert_eq!(cluster.last().step, Step::Failed);
            let again = keyed(cluster.job(), &agents[..1], &[]);
            assert_eq!(again.maps[0].before, before, "the old map holds");
            continue;
        }
        assert_eq!(resumed, due, "what was asked for is asked for again");
        for (command, effects) in &all[killed..] {
            assert_eq!(cluster.apply(command.clone()), *effects);
        }
        assert_eq!((cluster.last().step, map_of(&cluster)), (Step::Done, after));
    }
}

#[test]
fn groups_that_do_not_make_the_new_map_end_the_attempt() {
    let cluster = beside();
    let agents = cluster.alive();
    let new = keyed(cluster.job(), &agents[..1], &[]);
    let switched = || {
        let mut cluster = beside();
        for (command, _) in &steps(&new, 1)[..4] {
            cluster.apply(command.clone());
        }
        cluster
    };
    let good = groups_of(&new.maps[0], 9);
    let made = |groups: &[Group]| Command::GroupsMade { run: 1, epoch: new.epoch, groups: groups.to_vec() };
    let twice: Vec<Group> = good.iter().chain(&good[..1]).cloned().collect();
    let mut elsewhere = good.clone();
    elsewhere[0].to = 0;
    for wrong in [&good[1..], &twice, &elsewhere, &[]] {
        let mut cluster = switched();
        let effects = cluster.apply(made(wrong));
        assert!(matches!(effects[..], [Effect::Stop { run: 1, .. }]), "{wrong:?}: {effects:?}");
        let last = cluster.last();
        assert_eq!(last.step, Step::Failed);
        assert!(last.fault.unwrap().contains("do not make its map"));
    }
    assert_eq!(switched().apply(made(&good)), [Effect::Move { run: 1, epoch: new.epoch, group: 0 }]);
}

#[test]
fn a_plan_whose_maps_are_not_what_holds_is_refused() {
    let mut cluster = beside();
    let agents = cluster.alive();
    let new = keyed(cluster.job(), &agents[..1], &[]);
    for (command, _) in steps(&new, 1) {
        cluster.apply(command);
    }
    let good = keyed(cluster.job(), &[], &[new.coming.last().unwrap().id]);
    let mut stale = good.clone();
    stale.maps[0].before.clone_from(&new.maps[0].before);
    let mut gone = good.clone();
    gone.maps[0].after[0] = good.going[0];
    let mut short = good.clone();
    short.maps[0].after.pop();
    for wrong in [stale, gone, short] {
        assert_eq!(cluster.apply(asked(1, wrong)), []);
    }
    assert_eq!(cluster.apply(asked(1, good.clone())), [Effect::Extend { run: 1, epoch: good.epoch }]);
}

#[test]
fn another_attempt_deals_its_partitions_anew() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("again", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    let new = keyed(cluster.job(), &agents[..1], &[]);
    for (command, _) in &steps(&new, 1)[..6] {
        cluster.apply(command.clone());
    }
    assert_eq!(cluster.job().groups().map(|(all, moved)| (all.len(), moved)), Some((2, 1)));
    cluster.lose("b");
    assert_eq!(cluster.last().step, Step::Failed);
    let group = Command::GroupMoved { run: 1, epoch: new.epoch, group: 1 };
    assert_eq!(cluster.apply(group), [], "it stops");
    cluster.apply(stopped(1, vec![]));
    cluster.apply(Command::Restarted { run: 1, placed: placed(&agents[..1]) });
    assert_eq!(cluster.job().maps(), BTreeMap::new());
}
