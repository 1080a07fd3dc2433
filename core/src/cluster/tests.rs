//! The state machine, command by command and at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::types::*;
use super::*;
use crate::job::Restart;
use crate::plan::VertexId;
use crate::plan::placement::Instance;

fn info(name: &str, incarnation: u64) -> AgentInfo {
    AgentInfo {
        id: AgentId { name: name.to_owned(), incarnation },
        address: format!("127.0.0.1:{incarnation}"),
        slots: 1,
        cores: 0,
        zone: "z".to_owned(),
        pid: 1,
        version: "0".to_owned(),
        host: "h".to_owned(),
        registry: 0,
    }
}

/// Two instances on each agent: a source `src` and a sink `out` in a file.
fn placed(agents: &[AgentInfo]) -> Placed {
    let instances = (0..2 * agents.len() as u32)
        .map(|id| Instance {
            id,
            vertex: VertexId(id / agents.len() as u32),
            number: id % agents.len() as u32,
            agent: (id % agents.len() as u32) as u16,
        })
        .collect();
    let split = |number| Split { number, path: format!("f{number}"), start: 0, end: u64::MAX, seen: None };
    let splits = BTreeMap::from([("src".to_owned(), (0..3).map(split).collect())]);
    Placed { agents: agents.to_vec(), instances, splits }
}

fn job(name: &str, restart: Restart, agents: &[AgentInfo]) -> Command {
    Command::Submitted(Box::new(NewJob {
        name: name.to_owned(),
        job: "{}".to_owned(),
        dag: "{}".to_owned(),
        edge_names: vec!["src..out".to_owned()],
        file_sinks: vec!["out".to_owned()],
        headers: BTreeMap::new(),
        restart,
        placed: placed(agents),
    }))
}

fn ended(run: u64, instance: u32, files: Vec<SinkFile>) -> Command {
    let last = InstanceReport { instance, rows_in: 1, ended: true, ..InstanceReport::default() };
    Command::InstanceEnded { run, instance, last: Box::new(last), files }
}

fn ledger(emitted: u64, taken: u64) -> Vec<EdgeLedger> {
    vec![EdgeLedger { edge: 0, emitted, taken, ..EdgeLedger::default() }]
}

struct Cluster {
    state: State,
    at_ms: u64,
}

impl Cluster {
    fn of(names: &[&str]) -> Self {
        let mut cluster = Self { state: State::default(), at_ms: 0 };
        cluster.apply(Command::CoordinatorStarted);
        for name in names {
            cluster.apply(Command::AgentRegistered(Box::new(info(name, 1))));
        }
        cluster
    }

    fn apply(&mut self, command: Command) -> Vec<Effect> {
        self.at_ms += 1;
        self.state.apply(Logged { at_ms: self.at_ms, command })
    }

    fn alive(&self) -> Vec<AgentInfo> {
        self.state.alive().cloned().collect()
    }

    fn phase(&self, run: u64) -> JobPhase {
        self.state.run(run).unwrap().phase
    }

    fn lose(&mut self, name: &str) -> Vec<Effect> {
        let id = AgentId { name: name.to_owned(), incarnation: 1 };
        self.apply(Command::AgentLost { id, cause: "its process is gone".to_owned() })
    }
}

#[test]
fn a_job_goes_from_submit_to_finished() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    assert_eq!(cluster.apply(job("count", Restart::Never, &agents)), [Effect::Prepare { run: 1 }]);
    // An instance that ends before all agents have said that they started is not lost.
    assert_eq!(cluster.apply(ended(1, 0, vec![])), []);
    assert_eq!(cluster.apply(Command::Prepared { run: 1 }), []);
    assert_eq!(cluster.phase(1), JobPhase::Running);
    cluster.apply(ended(1, 1, vec![]));
    cluster.apply(ended(1, 1, vec![]));
    cluster.apply(ended(1, 2, vec![]));
    assert_eq!(cluster.phase(1), JobPhase::Running);
    let effects = cluster.apply(ended(1, 3, vec![]));
    assert_eq!(effects, [Effect::Seal { run: 1, empty: vec!["out".to_owned()] }]);
    cluster.apply(Command::SealDone { run: 1, files: vec![], edges: ledger(5, 5) });
    assert_eq!(cluster.phase(1), JobPhase::Finished);
    assert_eq!(cluster.state.run(1).unwrap().ended.len(), 4);
    assert!(cluster.state.run(1).unwrap().rows_lost().is_empty());
}

#[test]
fn a_sink_with_files_is_not_empty() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(ended(1, 0, vec![]));
    let file =
        SinkFile { agent: "a".to_owned(), stage: "out".to_owned(), path: "p".to_owned(), rows: 1, bytes: 2 };
    assert_eq!(cluster.apply(ended(1, 1, vec![file])), [Effect::Seal { run: 1, empty: vec![] }]);
}

#[test]
fn names_are_unique_among_live_jobs_only() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    for _ in 0..3 {
        cluster.apply(job("count", Restart::Never, &agents));
    }
    let names: Vec<_> = cluster.state.jobs().map(|job| job.name.clone()).collect();
    assert_eq!(names, ["count", "count-2", "count-3"]);
    cluster.apply(Command::CancelRequested { run: 1 });
    cluster.apply(Command::Stopped { run: 1, edges: vec![] });
    cluster.apply(job("count", Restart::Never, &agents));
    assert_eq!(cluster.state.find("count").unwrap().run, 4, "the live one is meant");
    assert_eq!(cluster.state.find("1").unwrap().run, 1);
    assert!(cluster.state.find("other").is_none());
    // An older log may hold a job that is called as another one's run.
    cluster.apply(job("1", Restart::Never, &agents));
    assert_eq!(cluster.state.find("1").unwrap().name, "count");
}

#[test]
fn a_lost_agent_fails_its_jobs_and_names_the_lost_rows() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    let agents = cluster.alive();
    cluster.apply(job("wide", Restart::Never, &agents));
    cluster.apply(job("narrow", Restart::Never, &agents[..1]));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(Command::Prepared { run: 2 });
    let effects = cluster.lose("b");
    let left = vec![agents[0].id.clone(), agents[2].id.clone()];
    assert_eq!(effects.len(), 2);
    assert_eq!(effects[0], Effect::TellPeersLost { id: agents[1].id.clone() });
    assert!(matches!(&effects[1], Effect::Stop { run: 1, agents, .. } if *agents == left), "{effects:?}");
    assert_eq!(cluster.phase(1), JobPhase::Stopping);
    assert_eq!(cluster.phase(2), JobPhase::Running);
    // The loss of another one, and failures that follow from the first, change nothing.
    assert_eq!(cluster.lose("b"), []);
    let late = WireFault::new(FaultCode::Instance, "channel closed");
    cluster.apply(Command::InstanceFailed { run: 1, instance: 0, fault: late });
    let mut edges = ledger(100, 50);
    edges[0].dropped.insert("bad_line".to_owned(), 8);
    edges[0].dropped.insert(DROPPED_BY_STOP.to_owned(), 30);
    cluster.apply(Command::Stopped { run: 1, edges });
    let job = cluster.state.run(1).unwrap();
    assert_eq!(job.phase, JobPhase::Failed);
    let fault = job.fault.clone().unwrap();
    assert_eq!(fault.code, FaultCode::Agent);
    assert_eq!(fault.message, "agent b was lost: its process is gone; rows lost: src..out 42");
}

#[test]
fn the_ledger_of_a_stopped_job_accounts_for_every_row() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(Command::CancelRequested { run: 1 });
    let edge = |index, emitted, taken, in_flight, stopped| EdgeLedger {
        edge: index,
        emitted,
        taken,
        queued_out: 2,
        in_flight,
        queued_in: 3,
        dropped: BTreeMap::from([(DROPPED_BY_STOP.to_owned(), stopped)]),
        ..EdgeLedger::default()
    };
    let edges = vec![
        // Under way at the sender, and dropped by the receiver.
        edge(0, 96_815, 3_573, 25, 93_242),
        // 40 rows went with an agent.
        edge(1, 100, 50, 7, 10),
        // The sender is lost, and what it said last is older than what arrived from it.
        edge(2, 60, 65, 0, 5),
    ];
    cluster.apply(Command::Stopped { run: 1, edges });
    let job = cluster.state.run(1).unwrap();
    assert_eq!(job.phase, JobPhase::Cancelled);
    for edge in &job.ledger {
        assert_eq!((edge.queued_out, edge.in_flight, edge.queued_in), (0, 0, 0));
        assert_eq!(edge.emitted, edge.taken + edge.dropped.values().sum::<u64>(), "{edge:?}");
    }
    let lost: Vec<_> = job.ledger.iter().map(|edge| edge.dropped.get(DROPPED_BY_LOSS).copied()).collect();
    assert_eq!(lost, [None, Some(40), None]);
    assert_eq!(job.ledger[2].emitted, 70);
    let rows: Vec<_> = job.rows_lost().iter().map(|(_, rows)| *rows).collect();
    assert_eq!(rows, [93_242, 50, 5], "both reasons count");
}

#[test]
fn a_loss_that_is_noted_before_a_failed_beginning_starts_again() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    cluster.lose("b");
    let fault = WireFault::new(FaultCode::Agent, "agent a cannot reach agent b");
    assert_eq!(cluster.apply(Command::PrepareFailed { run: 1, fault }), []);
    assert_eq!(cluster.apply(Command::Stopped { run: 1, edges: vec![] }), [Effect::Replace { run: 1 }]);
}

#[test]
fn restart_from_start_begins_a_new_attempt_once_the_old_one_has_stopped() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(Command::OptionSet {
        run: 1,
        stage: "work".to_owned(),
        option: "ms".to_owned(),
        value: "3".to_owned(),
    });
    let NextSplit::Take(_, take) = cluster.state.run(1).unwrap().next_split("src", 0, 0) else { panic!() };
    cluster.apply(take);
    cluster.lose("b");
    let effects = cluster.apply(Command::Stopped { run: 1, edges: ledger(9, 1) });
    assert_eq!(effects, [Effect::Replace { run: 1 }]);
    assert_eq!(cluster.apply(Command::Stopped { run: 1, edges: ledger(9, 1) }), []);
    let left = cluster.alive();
    let effects = cluster.apply(Command::Restarted { run: 1, placed: placed(&left) });
    assert_eq!(effects[1], Effect::Prepare { run: 2 });
    assert!(matches!(effects[0], Effect::Forget { run: 1, .. }));
    let job = cluster.state.run(2).unwrap();
    assert_eq!((job.id, job.attempt, job.phase), (1, 2, JobPhase::Starting));
    assert!(matches!(job.next_split("src", 0, 0), NextSplit::Take(Split { number: 0, .. }, _)));
    // What was set while the first attempt ran holds for the second.
    let effects = cluster.apply(Command::Prepared { run: 2 });
    assert!(matches!(&effects[..], [Effect::Set { run: 2, option, .. }] if option == "ms"), "{effects:?}");
}

#[test]
fn a_failed_beginning_is_not_repeated() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    let fault = WireFault::new(FaultCode::Agent, "agent a does not answer");
    cluster.apply(Command::PrepareFailed { run: 1, fault });
    cluster.apply(Command::Stopped { run: 1, edges: vec![] });
    assert_eq!(cluster.phase(1), JobPhase::Failed);
}

#[test]
fn a_cancel_wins_over_a_restart() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("one", Restart::FromStart, &agents));
    cluster.apply(job("two", Restart::FromStart, &agents));
    cluster.lose("b");
    cluster.apply(Command::CancelRequested { run: 1 });
    cluster.apply(Command::Stopped { run: 1, edges: vec![] });
    assert_eq!(cluster.phase(1), JobPhase::Cancelled);
    cluster.apply(Command::Stopped { run: 2, edges: vec![] });
    cluster.apply(Command::CancelRequested { run: 2 });
    assert_eq!(cluster.phase(2), JobPhase::Cancelled);
    let left = cluster.alive();
    assert_eq!(cluster.apply(Command::Restarted { run: 2, placed: placed(&left) }), []);
}

#[test]
fn incarnations_keep_old_agents_out() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    // Registering again as the same is nothing new.
    assert_eq!(cluster.apply(Command::AgentRegistered(Box::new(info("b", 1)))), []);
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("b", 2))));
    assert_eq!(effects[0], Effect::TellPeersLost { id: agents[1].id.clone() });
    assert_eq!(cluster.phase(1), JobPhase::Stopping);
    let refused = cluster.state.refuses(&info("b", 1)).unwrap();
    assert_eq!(refused.code, FaultCode::Stale);
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 1))));
    assert!(cluster.state.is_alive(&info("b", 2).id));
    cluster.lose("a");
    assert!(cluster.state.refuses(&info("a", 1)).is_some(), "the dead stay dead");
    assert!(cluster.state.refuses(&info("a", 2)).is_none());
}

#[test]
fn splits_are_given_once_and_repeated_on_request() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    let mut given = Vec::new();
    for (instance, have) in [(0, 0), (1, 0), (0, 1)] {
        match cluster.state.run(1).unwrap().next_split("src", instance, have) {
            NextSplit::Take(split, command) => {
                given.push(split.number);
                cluster.apply(command.clone());
                cluster.apply(command);
                let again = cluster.state.run(1).unwrap().next_split("src", instance, have);
                assert_eq!(again, NextSplit::Again(split));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given, [0, 1, 2]);
    assert_eq!(cluster.state.run(1).unwrap().next_split("src", 1, 1), NextSplit::Exhausted);
    assert_eq!(cluster.state.run(1).unwrap().next_split("other", 1, 1), NextSplit::Unknown);
}

#[test]
fn a_new_coordinator_fails_what_ran_and_takes_agents_back() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(Command::CoordinatorStarted);
    assert_eq!(cluster.phase(1), JobPhase::Failed);
    assert!(cluster.alive().is_empty());
    assert!(cluster.state.refuses(&info("b", 1)).is_none());
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 1))));
    assert!(cluster.state.is_alive(&agents[1].id));
    assert!(cluster.state.runs_of(&agents[1].id).is_empty(), "it drops the run");
}

#[test]
fn a_shutdown_ends_jobs_first_and_agents_after() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    let effects = cluster.apply(Command::ShutdownRequested);
    assert!(matches!(&effects[..], [Effect::Stop { run: 1, .. }]), "{effects:?}");
    assert_eq!(cluster.apply(Command::Stopped { run: 1, edges: vec![] }), [Effect::EndAgents]);
    cluster.apply(job("late", Restart::Never, &agents));
    assert_eq!(cluster.phase(2), JobPhase::Failed);
}

#[test]
fn old_jobs_are_forgotten() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    let mut forgotten = Vec::new();
    for run in 1..=70 {
        cluster.apply(job("count", Restart::Never, &agents));
        cluster.apply(Command::CancelRequested { run });
        for effect in cluster.apply(Command::Stopped { run, edges: vec![] }) {
            match effect {
                Effect::Forget { run, .. } => forgotten.push(run),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(forgotten, [1, 2, 3, 4, 5, 6]);
    assert_eq!(cluster.state.jobs().count(), 64);
}

fn any_command() -> impl Strategy<Value = Command> {
    let run = 0..6u64;
    let instance = 0..6u32;
    let fault = prop_oneof![
        Just(WireFault::new(FaultCode::Agent, "agent")),
        Just(WireFault::new(FaultCode::Instance, "instance"))
    ];
    let agent = (0..3usize, 1..4u64).prop_map(|(name, incarnation)| info(["a", "b", "c"][name], incarnation));
    let restart = prop_oneof![Just(Restart::Never), Just(Restart::FromStart)];
    prop_oneof![
        1 => Just(Command::CoordinatorStarted),
        6 => agent.clone().prop_map(|info| Command::AgentRegistered(Box::new(info))),
        3 => agent.clone().prop_map(|info| Command::AgentLost { id: info.id, cause: "gone".to_owned() }),
        6 => (prop::collection::vec(agent.clone(), 1..3), restart)
            .prop_map(|(agents, restart)| job("job", restart, &agents)),
        6 => run.clone().prop_map(|run| Command::Prepared { run }),
        2 => (run.clone(), fault.clone()).prop_map(|(run, fault)| Command::PrepareFailed { run, fault }),
        12 => (run.clone(), instance.clone()).prop_map(|(run, instance)| ended(run, instance, vec![])),
        2 => (run.clone(), instance.clone(), fault.clone())
            .prop_map(|(run, instance, fault)| Command::InstanceFailed { run, instance, fault }),
        2 => run.clone().prop_map(|run| Command::CancelRequested { run }),
        6 => (run.clone(), 0..9u64, 0..9u64)
            .prop_map(|(run, emitted, taken)| Command::Stopped { run, edges: ledger(emitted, taken) }),
        3 => run.clone().prop_map(|run| Command::SealDone { run, files: vec![], edges: vec![] }),
        1 => (run.clone(), fault.clone()).prop_map(|(run, fault)| Command::SealFailed { run, fault }),
        4 => (run.clone(), instance, 0..4u32).prop_map(|(run, instance, split)| Command::SplitTaken {
            run,
            stage: "src".to_owned(),
            instance,
            split,
        }),
        1 => run.clone().prop_map(|run| Command::PolicySet { run, edge: 0, policy: "shuffle".to_owned() }),
        3 => (run.clone(), agent).prop_map(|(run, agent)| Command::Restarted { run, placed: placed(&[agent]) }),
        1 => (run, fault).prop_map(|(run, fault)| Command::RestartFailed { run, fault }),
        1 => Just(Command::ShutdownRequested),
    ]
}

fn rank(phase: JobPhase) -> u8 {
    match phase {
        JobPhase::Starting => 0,
        JobPhase::Running => 1,
        JobPhase::Sealing => 2,
        JobPhase::Stopping => 3,
        JobPhase::Finished | JobPhase::Cancelled | JobPhase::Failed => 4,
    }
}

proptest! {
    #[test]
    fn any_log_is_applied_the_same_way_and_phases_only_go_forward(
        commands in prop::collection::vec(any_command(), 0..120)
    ) {
        let log: Vec<Logged> =
            (0..).zip(commands).map(|(at_ms, command)| Logged { at_ms, command }).collect();
        let mut state = State::default();
        let mut effects = Vec::new();
        for entry in log.clone() {
            let before: BTreeMap<_, _> = state.jobs().map(|job| (job.id, job.clone())).collect();
            effects.push(state.apply(entry));
            for job in state.jobs() {
                if let Some(old) = before.get(&job.id) {
                    let (was, is) = ((old.attempt, rank(old.phase)), (job.attempt, rank(job.phase)));
                    prop_assert!(is >= was, "{:?} to {:?}", old.phase, job.phase);
                    if old.phase.is_final() {
                        prop_assert_eq!(old, job, "an ended job does not change");
                    }
                }
                prop_assert!(job.ended.len() <= job.instances.len());
                prop_assert_eq!(job.phase.is_final(), job.ended_ms.is_some());
            }
            let mut live: Vec<_> = state.jobs().filter(|job| job.is_live()).map(|job| &job.name).collect();
            let count = live.len();
            live.sort();
            live.dedup();
            prop_assert_eq!(live.len(), count, "live names are unique");
            let runs: std::collections::BTreeSet<_> = state.jobs().map(|job| job.run).collect();
            prop_assert_eq!(runs.len(), state.jobs().count(), "run ids are unique");
        }
        // The log as it is kept: through text and back.
        let kept = serde_json::to_string(&log).unwrap();
        let mut replayed = State::default();
        let again: Vec<_> = serde_json::from_str::<Vec<Logged>>(&kept)
            .unwrap()
            .into_iter()
            .map(|entry| replayed.apply(entry))
            .collect();
        prop_assert_eq!(&again, &effects);
        prop_assert_eq!(replayed, state);
    }

    #[test]
    fn every_active_job_on_a_dead_agent_is_stopped(commands in prop::collection::vec(any_command(), 0..80)) {
        let mut state = State::default();
        for (at_ms, command) in (0..).zip(commands) {
            state.apply(Logged { at_ms, command });
            for job in state.jobs().filter(|job| job.is_active()) {
                for agent in &job.agents {
                    prop_assert!(state.is_alive(&agent.id), "{} runs on dead {:?}", job.name, agent.id);
                }
            }
        }
    }
}
