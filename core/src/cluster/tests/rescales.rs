//! Rescales of a job in the state machine: step by step, and many at random with double and late commands.

use std::collections::BTreeSet;

use super::*;
use crate::cluster::job::LISTED;
use crate::cluster::rescale::{Named, Rescale, Step};

mod moves;
mod sources;

fn named(instance: &Instance) -> Named {
    Named { id: instance.id, name: format!("v#{}", instance.number), agent: String::new() }
}

/// A plan with so many new instances of vertex 1 on these agents, without those that go.
pub(super) fn plan(job: &Job, add: &[AgentInfo], going: &[u32]) -> NewScale {
    let (mut agents, mut coming) = (job.agents.clone(), Vec::new());
    let all = |coming: &[Instance]| job.instances.iter().chain(coming).copied().collect::<Vec<_>>();
    for info in add {
        let known = agents.iter().position(|agent| agent.id == info.id);
        let agent = known.unwrap_or_else(|| {
            agents.push(info.clone());
            agents.len() - 1
        });
        let all = all(&coming);
        let of_it = all.iter().filter(|instance| instance.vertex == VertexId(1));
        let number = of_it.map(|instance| instance.number + 1).max().unwrap_or(0);
        let id = all.last().unwrap().id + 1;
        coming.push(Instance { id, vertex: VertexId(1), number, agent: agent as u16 });
    }
    let joining = agents.split_off(job.agents.len());
    let stopped = all(&coming).iter().filter(|instance| going.contains(&instance.id)).map(named).collect();
    NewScale {
        why: None,
        epoch: job.next_epoch(),
        asked: "v=2".to_owned(),
        planner: None,
        predicted: Some(5.0),
        unpredicted: None,
        started: coming.iter().map(named).collect(),
        stopped,
        joining,
        coming,
        going: going.to_vec(),
        maps: Vec::new(),
        sources: Vec::new(),
        dag: "{\"new\":1}".to_owned(),
        halt: None,
    }
}

fn asked(run: u64, new: NewScale) -> Command {
    Command::RescaleAsked { run, new: Box::new(new) }
}

impl Cluster {
    fn job(&self) -> &Job {
        self.state.jobs().next().unwrap()
    }

    fn last(&self) -> Rescale {
        self.job().rescales().0.last().unwrap().clone()
    }

    /// A job on `a` that runs: `src#0` and `out#0`.
    pub(super) fn running(names: &[&str]) -> Self {
        let mut cluster = Self::of(names);
        let agents = cluster.alive();
        cluster.apply(job("count", Restart::Never, &agents[..1]));
        cluster.apply(Command::Prepared { run: 1 });
        cluster
    }

    pub(super) fn prepared_and_committed(&mut self, epoch: u64) -> Vec<Effect> {
        self.apply(Command::RescalePrepared { run: 1, epoch });
        self.apply(Command::RescaleCommitted { run: 1, epoch })
    }
}

#[test]
fn a_rescale_is_asked_prepared_committed_and_done() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let new = plan(cluster.job(), &agents[1..], &[1]);
    assert_eq!((cluster.job().epoch(), new.epoch), (1, 2));
    assert_eq!(cluster.apply(asked(1, new.clone())), [Effect::Extend { run: 1, epoch: 2 }]);
    // Until it is committed the old plan holds, and its new agent keeps the run all the same.
    assert_eq!((cluster.job().epoch(), cluster.job().agents.len(), cluster.job().instances.len()), (1, 1, 2));
    assert_eq!(cluster.state.runs_of(&agents[1].id), [1]);
    assert_eq!(cluster.apply(asked(1, new)), [], "one at a time");
    assert_eq!(cluster.apply(Command::RescaleCommitted { run: 1, epoch: 2 }), [], "not prepared yet");
    assert_eq!(cluster.prepared_and_committed(2), [Effect::Switch { run: 1, epoch: 2 }]);
    let job = cluster.job();
    assert_eq!((job.epoch(), job.agents.len(), job.instances.len()), (2, 2, 3));
    assert_eq!(job.dag, "{\"new\":1}");
    assert_eq!(cluster.apply(Command::RescaleFailed { run: 1, epoch: 2, fault: lost() }), [], "too late");
    cluster.apply(Command::RescaleSwitched { run: 1, epoch: 2 });
    assert_eq!(cluster.last().step, Step::Committed, "one is being drained");
    cluster.apply(ended(1, 1, vec![]));
    let last = cluster.last();
    assert_eq!((last.step, last.predicted, last.measured), (Step::Done, Some(5.0), None));
    assert!(last.prepared_ms > Some(last.asked_ms) && last.committed_ms > last.prepared_ms);
    assert!(last.ended_ms > last.committed_ms);
    assert_eq!(cluster.job().retired, BTreeSet::from([1]));
    assert_eq!(cluster.job().standing().map(|instance| instance.id).collect::<Vec<_>>(), [0, 2]);
    cluster.apply(Command::RescaleMeasured { run: 1, epoch: 2, rows_per_second: Ok(4.5) });
    cluster.apply(Command::RescaleMeasured { run: 1, epoch: 2, rows_per_second: Err("too late".into()) });
    let last = cluster.last();
    assert_eq!((last.measured, last.unmeasured), (Some(4.5), None), "what is known stays");
    // It ends as a job ends, with all that it ever had.
    cluster.apply(ended(1, 0, vec![]));
    assert_eq!(cluster.phase(1), JobPhase::Running);
    cluster.apply(ended(1, 2, vec![]));
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
}

fn lost() -> WireFault {
    WireFault::new(FaultCode::Agent, "it does not answer")
}

#[test]
fn a_plan_that_nobody_will_measure_any_more_says_why() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    for epoch in [2, 3] {
        let new = plan(cluster.job(), &agents[1..2], &[]);
        cluster.apply(asked(1, new));
        cluster.prepared_and_committed(epoch);
        cluster.apply(Command::RescaleSwitched { run: 1, epoch });
        assert_eq!((cluster.last().step, cluster.last().is_unmeasured()), (Step::Done, true));
    }
    let why = |cluster: &Cluster, entry: usize| cluster.job().rescales().0[entry].unmeasured.clone();
    assert!(why(&cluster, 0).is_some_and(|why| why.starts_with("another plan")));
    assert_eq!(why(&cluster, 1), None);
    cluster.apply(Command::CancelRequested { run: 1 });
    assert!(why(&cluster, 1).is_some_and(|why| why.starts_with("the job")));
}

#[test]
fn what_cannot_be_prepared_leaves_the_old_plan() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let before = cluster.job().clone();
    let new = plan(cluster.job(), &agents, &[]);
    cluster.apply(asked(1, new));
    let effects = cluster.apply(Command::RescaleFailed { run: 1, epoch: 2, fault: lost() });
    let all: Vec<_> = agents.iter().map(|agent| agent.id.clone()).collect();
    assert_eq!(effects, [Effect::Abort { run: 1, epoch: 2, agents: all }]);
    let job = cluster.job();
    assert_eq!((&job.instances, &job.agents, job.epoch()), (&before.instances, &before.agents, 1));
    assert_eq!(
        (cluster.last().step, cluster.last().fault.as_deref()),
        (Step::Failed, Some("it does not answer"))
    );
    assert!(cluster.state.runs_of(&agents[1].id).is_empty());
    assert_eq!(cluster.job().next_epoch(), 3, "its number is used");
}

#[test]
fn a_lost_agent_ends_what_is_prepared_on_it_and_only_that() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let new = plan(cluster.job(), &agents[1..], &[]);
    cluster.apply(asked(1, new));
    let effects = cluster.lose("b");
    assert!(
        matches!(&effects[..], [Effect::TellPeersLost { .. }, Effect::Abort { epoch: 2, .. }]),
        "{effects:?}"
    );
    assert_eq!((cluster.phase(1), cluster.last().step), (JobPhase::Running, Step::Failed));
    // One that the job needs takes both with it.
    let new = plan(cluster.job(), &agents[..1], &[]);
    cluster.apply(asked(1, new));
    let effects = cluster.lose("a");
    assert!(matches!(&effects[2], Effect::Stop { run: 1, .. }), "{effects:?}");
    assert_eq!((cluster.phase(1), cluster.last().step), (JobPhase::Stopping, Step::Failed));
}

#[test]
fn a_plan_that_runs_on_a_dead_agent_is_none() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let new = plan(cluster.job(), &agents[1..], &[]);
    cluster.lose("b");
    assert_eq!(cluster.apply(asked(1, new)), []);
    assert!(cluster.job().under_way().is_none() && cluster.job().rescales().0.is_empty());
}

#[test]
fn an_agent_that_a_rescale_has_emptied_may_be_lost() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let new = plan(cluster.job(), &agents[1..], &[]);
    cluster.apply(asked(1, new));
    cluster.prepared_and_committed(2);
    cluster.apply(Command::RescaleSwitched { run: 1, epoch: 2 });
    let new = plan(cluster.job(), &[], &[2]);
    cluster.apply(asked(1, new));
    cluster.prepared_and_committed(3);
    cluster.apply(Command::RescaleSwitched { run: 1, epoch: 3 });
    assert!(cluster.job().needs(&agents[1].id), "it is being drained");
    cluster.apply(ended(1, 2, vec![]));
    assert!(!cluster.job().needs(&agents[1].id));
    assert_eq!(cluster.lose("b").len(), 1);
    assert_eq!(cluster.phase(1), JobPhase::Running);
}

#[test]
fn a_job_that_ends_meanwhile_ends_its_rescale() {
    for commits in [false, true] {
        let mut cluster = Cluster::running(&["a"]);
        let agents = cluster.alive();
        let new = plan(cluster.job(), &agents, &[]);
        cluster.apply(asked(1, new));
        if commits {
            cluster.prepared_and_committed(2);
            cluster.apply(ended(1, 2, vec![]));
        }
        cluster.apply(ended(1, 0, vec![]));
        let effects = cluster.apply(ended(1, 1, vec![]));
        assert!(matches!(effects.last(), Some(Effect::Seal { .. })), "{effects:?}");
        assert_eq!(matches!(effects[0], Effect::Abort { .. }), !commits);
        assert_eq!(cluster.last().step, if commits { Step::Done } else { Step::Failed });
        assert!(cluster.job().under_way().is_none());
    }
}

#[test]
fn another_attempt_has_another_plan_and_nothing_of_the_old_one() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("again", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    let new = plan(cluster.job(), &agents, &[2]);
    cluster.apply(asked(1, new));
    cluster.prepared_and_committed(2);
    cluster.lose("b");
    assert_eq!(cluster.last().step, Step::Failed);
    cluster.apply(stopped(1, vec![]));
    cluster.apply(Command::Restarted { run: 1, placed: placed(&agents[..1]) });
    let job = cluster.job();
    assert_eq!((job.epoch(), job.attempt, job.retired.len(), job.first_agents), (3, 2, 0, 1));
    assert!(job.dag.contains("new"), "the plan that held goes on");
    assert_eq!(cluster.apply(Command::RescaleCommitted { run: 2, epoch: 2 }), []);
}

/// One thing that happens to a job that is rescaled again and again.
#[derive(Debug, Clone)]
enum Happens {
    Asked {
        add: Vec<usize>,
        go: usize,
    },
    Prepared,
    Failed,
    Committed,
    Switched,
    Drained,
    /// The same as some time before: late or double.
    Again(usize),
    Lost(usize),
    Back(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (prop::collection::vec(0..3usize, 0..4), 0..4usize).prop_map(|(add, go)| Happens::Asked { add, go }),
        6 => Just(Happens::Prepared),
        1 => Just(Happens::Failed),
        6 => Just(Happens::Committed),
        6 => Just(Happens::Switched),
        6 => Just(Happens::Drained),
        4 => (0..40usize).prop_map(Happens::Again),
        1 => (1..3usize).prop_map(Happens::Lost),
        2 => (1..3usize).prop_map(Happens::Back),
    ]
}

/// What is to be said next, as far as there is something.
fn command(cluster: &Cluster, next: &Happens, said: &[Command]) -> Option<Command> {
    let job = cluster.job();
    let (run, now) = (job.run, job.under_way());
    let epoch = now.map_or(job.epoch(), |plan| plan.new.epoch);
    Some(match next {
        Happens::Asked { add, go } => {
            let alive = cluster.alive();
            let add: Vec<_> = add.iter().map(|index| alive[index % alive.len()].clone()).collect();
            let sinks = job.standing().filter(|one| one.vertex == VertexId(1)).map(|one| one.id);
            let going: Vec<u32> = sinks.take(*go).collect();
            asked(run, plan(job, &add, &going))
        }
        Happens::Prepared => Command::RescalePrepared { run, epoch },
        Happens::Failed => Command::RescaleFailed { run, epoch, fault: lost() },
        Happens::Committed => Command::RescaleCommitted { run, epoch },
        Happens::Switched => Command::RescaleSwitched { run, epoch },
        Happens::Drained => {
            let left = now?.new.going.iter().find(|id| !job.ended.contains_key(id))?;
            // Only what the plan in force leaves out is drained.
            (now?.step == Step::Committed).then(|| ended(run, *left, vec![]))?
        }
        Happens::Again(back) => said.iter().rev().nth(*back)?.clone(),
        Happens::Lost(index) => {
            let info = info(["a", "b", "c"][*index], 1 + cluster.at_ms);
            let known = cluster.state.alive().find(|agent| agent.id.name == info.id.name)?;
            Command::AgentLost { id: known.id.clone(), cause: "gone".to_owned() }
        }
        Happens::Back(index) => {
            let name = ["a", "b", "c"][*index];
            if cluster.state.alive().any(|agent| agent.id.name == name) {
                return None;
            }
            Command::AgentRegistered(Box::new(info(name, 1 + cluster.at_ms)))
        }
    })
}

fn check(before: &Job, job: &Job) {
    let (was, is) = (before.rescales().0, job.rescales().0);
    assert!(job.epoch() >= before.epoch() && job.next_epoch() >= before.next_epoch());
    if job.attempt == before.attempt && job.epoch() == before.epoch() {
        assert_eq!((&job.instances, &job.agents, &job.dag), (&before.instances, &before.agents, &before.dag));
    }
    assert!(job.instances.is_sorted_by(|one, next| one.id < next.id), "ids go on");
    let new = job.instances.iter().filter(|one| !before.instances.contains(one));
    let last = before.instances.last().unwrap();
    assert!(new.into_iter().all(|one| one.id > last.id), "no id is used again");
    let names: BTreeSet<_> = job.instances.iter().map(|one| (one.vertex, one.number)).collect();
    assert_eq!(names.len(), job.instances.len(), "no name is used again");
    assert!(job.retired.iter().all(|id| job.ended.contains_key(id)));
    let folded = |job: &Job| job.folded.values().map(|of| of.instances as usize).sum::<usize>();
    assert!(before.retired.len() + folded(before) <= job.retired.len() + folded(job), "none comes back");
    let open = is.iter().filter(|entry| !entry.step.is_final()).count();
    assert_eq!(open, usize::from(job.under_way().is_some()));
    for (old, new) in was.iter().zip(is).filter(|(old, _)| old.step.is_final()) {
        // But that it will never be measured may be known later.
        let unmeasured = old.unmeasured.clone().or(new.unmeasured.clone());
        assert_eq!(&Rescale { unmeasured, ..old.clone() }, new, "what came of it stays");
    }
    for entry in is {
        match entry.step {
            Step::Asked | Step::Prepared => assert_eq!(entry.committed_ms, None),
            Step::Committed | Step::Done => assert!(entry.committed_ms.is_some()),
            Step::Failed => assert!(entry.fault.is_some()),
        }
        assert_eq!(entry.ended_ms.is_some(), entry.step.is_final());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_comes_in_whatever_order_a_job_has_the_old_plan_or_the_new_one(
        all in prop::collection::vec(happens(), 0..600)
    ) {
        let mut cluster = Cluster::running(&["a", "b", "c"]);
        let mut said: Vec<Command> = Vec::new();
        let mut log = Vec::new();
        for next in &all {
            let Some(command) = command(&cluster, next, &said) else { continue };
            let before = cluster.job().clone();
            log.push(Logged { at_ms: cluster.at_ms + 1, command: command.clone() });
            let effects = cluster.apply(command.clone());
            said.push(command);
            let job = cluster.job();
            check(&before, job);
            for effect in &effects {
                match effect {
                    Effect::Abort { epoch, .. } => prop_assert!(*epoch > job.epoch(), "it holds"),
                    Effect::Switch { epoch, .. } => prop_assert_eq!(*epoch, job.epoch()),
                    Effect::Extend { epoch, .. } => prop_assert!(*epoch > job.epoch()),
                    _ => {}
                }
            }
            for agent in job.agents.iter().filter(|agent| job.is_active() && job.needs(&agent.id)) {
                prop_assert!(cluster.state.is_alive(&agent.id));
            }
            if !job.is_active() {
                break;
            }
        }
        let kept = serde_json::to_string(&cluster.state).unwrap();
        prop_assert_eq!(serde_json::from_str::<State>(&kept).unwrap(), cluster.state);
    }
}

/// 500 rescales that are carried out, each with what it needs and the rest of its commands twice.
#[test]
fn five_hundred_rescales_in_a_row_end_in_the_plan_that_was_asked_for() {
    let mut cluster = Cluster::running(&["a", "b", "c"]);
    let agents = cluster.alive();
    let mut wanted = 1;
    for round in 0..500u64 {
        let job = cluster.job();
        let sinks: Vec<u32> =
            job.standing().filter(|one| one.vertex == VertexId(1)).map(|one| one.id).collect();
        assert_eq!(sinks.len(), wanted);
        let go = (round * 7 % 5) as usize % sinks.len();
        let add = (round * 11 % 4) as usize + usize::from(go == sinks.len());
        let add: Vec<_> = (0..add).map(|n| agents[(n + round as usize) % 3].clone()).collect();
        wanted = sinks.len() + add.len() - go;
        let new = plan(job, &add, &sinks[..go]);
        let epoch = new.epoch;
        let twice = [
            asked(1, new),
            Command::RescalePrepared { run: 1, epoch },
            Command::RescaleCommitted { run: 1, epoch },
            Command::RescaleSwitched { run: 1, epoch },
        ];
        for command in twice {
            cluster.apply(command.clone());
            assert_eq!(cluster.apply(command), [], "a second time it changes nothing");
        }
        for id in &sinks[..go] {
            cluster.apply(ended(1, *id, vec![]));
        }
        assert_eq!((cluster.last().step, cluster.job().epoch()), (Step::Done, epoch));
    }
    let (kept, left_out) = cluster.job().rescales();
    assert_eq!((kept.len() as u64 + left_out, cluster.job().epoch()), (500, 501));
}

/// The sink is replaced again and again: what a plan adds to the log, and what is kept and listed, does not grow.
#[test]
fn three_hundred_plans_leave_no_more_behind_than_a_hundred() {
    let mut cluster = Cluster::running(&["a", "b", "c"]);
    let agents = cluster.alive();
    let size = |of: &dyn Fn() -> serde_json::Result<String>| of().unwrap().len();
    let (mut entries, mut states) = (Vec::new(), Vec::new());
    for round in 0..300 {
        let job = cluster.job();
        let sink = job.standing().find(|one| one.vertex == VertexId(1)).unwrap().id;
        let new = plan(job, &[agents[round % 3].clone()], &[sink]);
        let epoch = new.epoch;
        let command = asked(1, new);
        entries.push(size(&|| serde_json::to_string(&command)));
        cluster.apply(command);
        cluster.prepared_and_committed(epoch);
        cluster.apply(Command::RescaleSwitched { run: 1, epoch });
        cluster.apply(ended(1, sink, vec![]));
        assert_eq!((cluster.last().step, cluster.job().epoch()), (Step::Done, epoch));
        states.push(size(&|| serde_json::to_string(&cluster.state)));
        let job = cluster.job();
        assert!(job.instances.len() <= 2 + LISTED && job.ended.len() <= LISTED && job.agents.len() <= 3);
    }
    // Numbers have more digits by then, and the first plans have an agent that joins.
    assert!(entries[299] <= entries[3] + 32, "{} of {}", entries[299], entries[3]);
    assert!(states[299] <= states[199] + 1024, "{} of {}", states[299], states[199]);
    let job = cluster.job();
    let folded = &job.folded[&VertexId(1)];
    assert_eq!(folded.instances as usize + job.retired.len(), 300);
    assert_eq!(folded.counters.rows_in + job.ended.len() as u64, 300, "each has taken a row");
    assert_eq!(cluster.apply(ended(1, 1, vec![])), [], "one that is folded has ended before");
    // It ends as any job does.
    for id in cluster.job().standing().map(|one| one.id).collect::<Vec<_>>() {
        cluster.apply(ended(1, id, vec![]));
    }
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
}
