//! Source instances end in a rescale: every unit goes to one other instance, whoever coordinates and however often it is said.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::cluster::types::Progress;
use crate::cluster::units::{Handed, Paced, Rest, SourceGiven, SourceUnit};
use crate::plan::{Giver, SourceMove};

/// A plan in which instances of vertex 0 go and come on these agents.
fn sourced(job: &Job, add: &[AgentInfo], going: &[u32]) -> NewScale {
    let mut new = plan(job, add, going);
    for one in &mut new.coming {
        one.vertex = VertexId(0);
    }
    let stays = |one: &&Instance| one.vertex == VertexId(0) && !going.contains(&one.id);
    let takers: Vec<u32> = job.standing().chain(&new.coming).filter(stays).map(|one| one.id).collect();
    let givers = going.iter().map(|id| Giver { instance: *id, takers: takers.clone() }).collect();
    new.sources = vec![SourceMove { vertex: VertexId(0), stage: "src".to_owned(), givers }];
    new
}

fn unit(number: u32, next: u64) -> SourceUnit {
    let paced = Some(Paced { start_ns: 5, given: next });
    SourceUnit { rest: Rest::Rows { number, step: 7, next }, paced }
}

fn given(instance: u32, units: Vec<SourceUnit>) -> SourceGiven {
    SourceGiven { instance, have: None, units }
}

/// Everything that is said until what sources had is with others, with the effect of each.
fn steps(new: &NewScale, given: Vec<SourceGiven>) -> Vec<(Command, Vec<Effect>)> {
    let (run, epoch) = (1, new.epoch);
    vec![
        (asked(run, new.clone()), vec![Effect::Extend { run, epoch }]),
        (Command::RescalePrepared { run, epoch }, vec![]),
        (Command::RescaleCommitted { run, epoch }, vec![Effect::Switch { run, epoch }]),
        (Command::RescaleSwitched { run, epoch }, vec![Effect::GiveSources { run, epoch }]),
        (Command::SourcesGiven { run, epoch, given }, vec![Effect::HandSources { run, epoch }]),
        (Command::SourcesHanded { run, epoch }, vec![]),
    ]
}

#[test]
fn a_new_coordinator_goes_on_at_each_step_and_nothing_is_handed_twice() {
    for killed in 1..=6 {
        let mut cluster = Cluster::of(&["a", "b", "z"]);
        let agents = cluster.alive();
        cluster.apply(job("count", Restart::Never, &agents[..2]));
        cluster.apply(Command::Prepared { run: 1 });
        let new = sourced(cluster.job(), &agents[..1], &[1]);
        let all = steps(&new, vec![given(1, vec![unit(1, 8)])]);
        let mut due = vec![];
        for (number, (command, effects)) in all.iter().enumerate().take(killed) {
            for later in &all[number + 1..] {
                assert_eq!(cluster.apply(later.0.clone()), [], "it is not its turn");
            }
            assert_eq!(cluster.apply(command.clone()), *effects);
            assert_eq!(cluster.apply(command.clone()), [], "a second time it changes nothing");
            due.clone_from(effects);
        }
        let known = cluster.job().handed().cloned();
        cluster.apply(Command::CoordinatorStarted);
        let mut resumed = vec![];
        for info in [info("z", 2), agents[0].clone(), agents[1].clone()] {
            resumed = cluster.apply(Command::AgentRegistered(Box::new(info)));
        }
        assert_eq!(cluster.job().handed().cloned(), if killed <= 2 { None } else { known });
        match killed {
            1 | 2 => {
                let told = agents[..2].iter().map(|agent| agent.id.clone()).collect();
                assert_eq!(resumed, [Effect::Abort { run: 1, epoch: new.epoch, agents: told }]);
                assert_eq!(cluster.last().step, Step::Failed);
                continue;
            }
            _ => assert_eq!(resumed, due, "after step {killed}"),
        }
        for (command, effects) in &all[killed..] {
            assert_eq!(cluster.apply(command.clone()), *effects);
        }
        assert_eq!(cluster.last().step, Step::Committed, "it has not ended");
        cluster.apply(ended(1, 1, vec![]));
        assert_eq!(cluster.last().step, Step::Done);
    }
}

#[test]
fn a_split_is_handed_as_far_as_it_was_read_and_one_that_was_never_heard_of_too() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    let take = |cluster: &mut Cluster, instance, have| match cluster.job().next_split("src", instance, have) {
        NextSplit::Take(split, command) => {
            cluster.apply(command);
            split
        }
        other => panic!("{other:?}"),
    };
    let first = take(&mut cluster, 0, 0);
    // The answer that gave it the second one has been lost.
    let second = take(&mut cluster, 0, 1);
    let new = sourced(cluster.job(), &agents[1..], &[0]);
    let rest = Split { done: Some(Progress { offset: 9, lines: 2 }), ..first };
    let read = SourceUnit { rest: Rest::Split(rest.clone()), paced: None };
    let said = SourceGiven { instance: 0, have: Some(1), units: vec![read.clone()] };
    let all = steps(&new, vec![said]);
    for (command, _) in &all[..5] {
        cluster.apply(command.clone());
    }
    let unheard = SourceUnit { rest: Rest::Split(second), paced: None };
    assert_eq!(cluster.job().handed(), Some(&Handed::from([(1, vec![unheard]), (4, vec![read])])));
    assert_eq!(cluster.job().split("src", 0), Some(&rest));
    // What it asks for late it does not get: nobody would read it.
    assert_eq!(cluster.job().next_split("src", 0, 1), NextSplit::Exhausted);
    cluster.apply(Command::SourcesHanded { run: 1, epoch: 2 });
    cluster.apply(ended(1, 0, vec![]));
    assert_eq!(cluster.job().next_split("src", 0, 1), NextSplit::Exhausted);
    assert_eq!(take(&mut cluster, 4, 0).number, 2);
}

proptest! {
    /// Whatever comes and goes, each unit is with one instance that has not ended.
    #[test]
    fn units_are_partitioned_among_instances(
        began in 1usize..4,
        changes in prop::collection::vec((0usize..4, prop::collection::vec(any::<prop::sample::Index>(), 1..4)), 1..8),
    ) {
        let names = ["a", "b", "c"];
        let mut cluster = Cluster::of(&names);
        let agents = cluster.alive();
        cluster.apply(job("count", Restart::Never, &agents[..began]));
        cluster.apply(Command::Prepared { run: 1 });
        let mut held: BTreeMap<u32, BTreeSet<u32>> = (0..began as u32).map(|id| (id, BTreeSet::from([id]))).collect();
        for (come, picks) in changes {
            let ids: Vec<u32> = held.keys().copied().collect();
            let going: BTreeSet<u32> = picks.iter().map(|pick| *pick.get(&ids)).collect();
            let going: Vec<u32> = going.into_iter().collect();
            // No more of them than go.
            let come = come.min(going.len());
            if come + held.len() == going.len() {
                continue;
            }
            let new = sourced(cluster.job(), &vec![agents[0].clone(); come], &going);
            let said = going.iter().map(|id| {
                let units = held[id].iter().map(|number| unit(*number, u64::from(*number) + 70));
                given(*id, units.collect())
            });
            for (command, effects) in &steps(&new, said.collect())[..5] {
                prop_assert_eq!(&cluster.apply(command.clone()), effects);
            }
            let handed = cluster.job().handed().unwrap().clone();
            for id in &going {
                held.remove(id);
            }
            for one in &new.coming {
                held.insert(one.id, BTreeSet::new());
            }
            for (taker, units) in &handed {
                let own = held.get_mut(taker).expect("who takes stays");
                for unit in units {
                    prop_assert!(own.insert(unit.number()), "unit {} twice", unit.number());
                }
            }
            let all: Vec<u32> = held.values().flatten().copied().collect();
            let different: BTreeSet<u32> = all.iter().copied().collect();
            prop_assert_eq!((all.len(), different.len()), (began, began), "{:?}", &held);
            // Who has come has something, as long as there is something for each.
            for one in &new.coming {
                prop_assert!(!held[&one.id].is_empty(), "{:?}", &held);
            }
            cluster.apply(Command::SourcesHanded { run: 1, epoch: new.epoch });
            for id in going {
                cluster.apply(ended(1, id, vec![]));
            }
            prop_assert_eq!(cluster.last().step, Step::Done);
        }
    }
}
