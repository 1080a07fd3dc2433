//! The state machine, command by command and at random.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::types::*;
use super::*;
use crate::job::Restart;
use crate::plan::VertexId;
use crate::plan::placement::Instance;

mod automatic;
mod members;
mod operations;
mod random;
mod rescales;
mod seal;

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
    let split = |number| Split {
        number,
        path: format!("f{number}"),
        start: 0,
        end: u64::MAX,
        seen: None,
        done: None,
    };
    let splits = BTreeMap::from([("src".to_owned(), (0..3).map(split).collect())]);
    Placed { agents: agents.to_vec(), instances, splits }
}

fn job(name: &str, restart: Restart, agents: &[AgentInfo]) -> Command {
    Command::Submitted(Box::new(NewJob {
        name: name.to_owned(),
        job: "{}".to_owned(),
        dag: "{}".to_owned(),
        edge_names: vec!["src..out".to_owned()],
        file_sinks: BTreeMap::from([("out".to_owned(), VertexId(1))]),
        headers: BTreeMap::new(),
        restart,
        placed: placed(agents),
    }))
}

fn ended(run: u64, instance: u32, files: Vec<SinkFile>) -> Command {
    let last = InstanceReport { instance, rows_in: 1, ended: true, ..InstanceReport::default() };
    Command::InstanceEnded { run, instance, last: Box::new(last), files }
}

fn stopped(run: u64, edges: Vec<EdgeLedger>) -> Command {
    Command::Stopped { run, edges, parts: vec![], answered: vec![] }
}

fn part(agent: &str, instance: u32) -> SinkFile {
    let path = format!("/data/.out-{instance}-1-0.csv.part");
    SinkFile { agent: agent.to_owned(), stage: "out".to_owned(), path, rows: 1, bytes: 2 }
}

/// The visible file that an agent made of a part.
fn visible(agent: &str, part: &SinkFile) -> SinkFile {
    let path = part.path.replace("/.", "/").replace(".part", "");
    SinkFile { agent: agent.to_owned(), path, ..part.clone() }
}

fn sealed(run: u64, by: &str, parts: &[SinkFile]) -> Command {
    let files = parts.iter().map(|part| visible(by, part)).collect();
    let work = SealWork { parts: parts.to_vec(), files, ..SealWork::default() };
    Command::Sealed { run, work, edges: ledger(5, 5) }
}

/// What agents are asked to make visible: agent, parts, empty stages.
fn asked(effects: &[Effect]) -> Vec<(&str, usize, usize)> {
    let Some(Effect::Seal { tasks, .. }) = effects.last() else { panic!("{effects:?}") };
    tasks.iter().map(|task| (task.agent.name.as_str(), task.parts.len(), task.empty.len())).collect()
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
    assert_eq!(asked(&effects), [("a", 0, 1)], "nobody wrote a row");
    let made = SealWork { files: vec![visible("a", &part("a", 0))], ..SealWork::default() };
    cluster.apply(Command::Sealed { run: 1, work: made, edges: ledger(5, 5) });
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
    assert_eq!(asked(&cluster.apply(ended(1, 1, vec![file]))), [("a", 1, 0)]);
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
    cluster.apply(stopped(1, vec![]));
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
    cluster.apply(stopped(1, edges));
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
    cluster.apply(stopped(1, edges));
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
fn an_agent_lost_while_a_job_starts_is_left_out_once() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    let effects = cluster.lose("b");
    assert!(matches!(&effects[1], Effect::Stop { run: 1, discard: true, .. }), "{effects:?}");
    let fault = WireFault::new(FaultCode::Agent, "agent a cannot reach agent b");
    assert_eq!(cluster.apply(Command::PrepareFailed { run: 1, fault }), []);
    assert_eq!(cluster.apply(stopped(1, vec![])), [Effect::Replace { run: 1 }]);
    let effects = cluster.apply(Command::Restarted { run: 1, placed: placed(&cluster.alive()) });
    assert_eq!(effects.last(), Some(&Effect::Prepare { run: 2 }));
    assert_eq!(cluster.state.find("1").unwrap().run, 2, "it is still known by its first run");
    // It came back meanwhile, takes part in a later start, and dies again: that is its last one.
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 2))));
    cluster.lose("c");
    cluster.apply(stopped(2, vec![]));
    cluster.apply(Command::Restarted { run: 2, placed: placed(&cluster.alive()) });
    let id = AgentId { name: "b".to_owned(), incarnation: 2 };
    cluster.apply(Command::AgentLost { id, cause: "its process is gone".to_owned() });
    cluster.apply(stopped(3, vec![]));
    let job = cluster.state.find("1").unwrap();
    assert_eq!((job.phase, job.attempt), (JobPhase::Failed, 3));
}

#[test]
fn a_stop_names_every_part_and_who_could_not_be_asked() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(ended(1, 2, vec![part("a", 0)]));
    cluster.lose("b");
    let parts = vec![part("a", 0), part("a", 7)];
    let stop =
        |run| Command::Stopped { run, edges: vec![], parts: parts.clone(), answered: vec!["a".to_owned()] };
    cluster.apply(stop(1));
    let job = cluster.state.run(1).unwrap();
    assert_eq!(job.files, parts, "each once");
    let unasked = Unasked { agent: "b".to_owned(), attempt: 1, instances: vec!["out#1".to_owned()] };
    assert_eq!(job.unasked, std::slice::from_ref(&unasked));
    // The next attempt keeps them in mind; what it had written before it was under way is removed.
    cluster.apply(Command::Restarted { run: 1, placed: placed(&agents[..1]) });
    cluster.apply(ended(2, 1, vec![part("a", 9)]));
    cluster.apply(Command::CancelRequested { run: 2 });
    let none = Command::Stopped { run: 2, edges: vec![], parts: vec![], answered: vec!["a".to_owned()] };
    cluster.apply(none);
    let job = cluster.state.run(2).unwrap();
    assert_eq!((job.phase, job.files.len()), (JobPhase::Cancelled, 0));
    assert_eq!((&job.earlier_parts, &job.unasked), (&parts, &vec![unasked]));
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
    let effects = cluster.apply(stopped(1, ledger(9, 1)));
    assert_eq!(effects, [Effect::Replace { run: 1 }]);
    assert_eq!(cluster.apply(stopped(1, ledger(9, 1))), []);
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
    cluster.apply(stopped(1, vec![]));
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
    cluster.apply(stopped(1, vec![]));
    assert_eq!(cluster.phase(1), JobPhase::Cancelled);
    cluster.apply(stopped(2, vec![]));
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
fn a_split_that_is_given_back_goes_to_who_asks_next_and_only_its_holder_gives_it() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    let take = |cluster: &mut Cluster, instance: u32, have: u32| match cluster
        .state
        .run(1)
        .unwrap()
        .next_split("src", instance, have)
    {
        NextSplit::Take(split, command) => {
            cluster.apply(command);
            Some(split)
        }
        NextSplit::Exhausted => None,
        other => panic!("{other:?}"),
    };
    let returned = |instance: u32, split: &Split, offset: u64| Command::SplitReturned {
        run: 1,
        stage: "src".to_owned(),
        instance,
        split: Split { done: Some(Progress { offset, lines: 2 }), ..split.clone() },
    };
    let first = take(&mut cluster, 0, 0).unwrap();
    // Another one has it, or nobody, or it is another split.
    cluster.apply(returned(1, &first, 9));
    cluster.apply(returned(0, &Split { path: "other".to_owned(), ..first.clone() }, 9));
    assert_eq!(take(&mut cluster, 1, 0).unwrap().number, 1);
    cluster.apply(returned(0, &first, 9));
    cluster.apply(returned(0, &first, 8));
    let again = take(&mut cluster, 1, 1).unwrap();
    assert_eq!((again.number, again.done), (0, Some(Progress { offset: 9, lines: 2 })));
    // The one who gave it back cannot do so again, and its answer can be repeated to the one who has it now.
    cluster.apply(returned(0, &first, 7));
    assert_eq!(cluster.state.run(1).unwrap().next_split("src", 1, 1), NextSplit::Again(again));
    assert_eq!(take(&mut cluster, 1, 2).unwrap().number, 2);
    assert_eq!(take(&mut cluster, 1, 3), None);
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
fn a_new_coordinator_takes_agents_back_and_ends_or_repeats_what_ran() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("once", Restart::Never, &agents));
    cluster.apply(job("again", Restart::FromStart, &agents));
    cluster.apply(job("narrow", Restart::FromStart, &agents[..1]));
    for run in 1..=3 {
        cluster.apply(Command::Prepared { run });
    }
    assert_eq!(cluster.apply(Command::CoordinatorStarted), []);
    assert!(cluster.alive().is_empty());
    assert_eq!(cluster.phase(1), JobPhase::Running);
    // Its own agent has a new incarnation, and what it ran is gone.
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("a", 2))));
    assert!(
        matches!(&effects[..], [Effect::TellPeersLost { .. }, Effect::Stop { run: 3, agents, .. }] if agents.is_empty()),
        "{effects:?}"
    );
    assert!(cluster.state.refuses(&info("b", 1)).is_none());
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("b", 1))));
    let runs: Vec<_> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Stop { run, agents: told, discard: false, .. } if told[..] == [agents[1].id.clone()] => {
                *run
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(runs, [1, 2]);
    cluster.apply(stopped(1, vec![]));
    let job = cluster.state.run(1).unwrap();
    assert_eq!(job.phase, JobPhase::Failed);
    assert_eq!(job.fault.as_ref().unwrap().message, "agent a was lost: it was started again");
    assert_eq!(cluster.apply(stopped(2, vec![])), [Effect::Replace { run: 2 }]);
    cluster.apply(Command::Restarted { run: 2, placed: placed(&cluster.alive()) });
    assert_eq!(cluster.state.find("again").unwrap().attempt, 2);
    assert_eq!(cluster.state.runs_of(&agents[1].id), [1, 4], "the old attempt is dropped");
}

#[test]
fn a_job_all_of_whose_agents_come_back_goes_on_under_a_new_coordinator() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    let agents = cluster.alive();
    for name in ["goes-on", "ends", "fails", "cancelled"] {
        cluster.apply(job(name, Restart::Never, &agents[1..]));
    }
    cluster.apply(job("starts", Restart::Never, &agents[1..]));
    for run in 1..=4 {
        cluster.apply(Command::Prepared { run });
    }
    let set = |run| Command::PolicySet { run, edge: 0, policy: "shuffle".to_owned(), options: String::new() };
    cluster.apply(set(1));
    cluster.apply(Command::CoordinatorStarted);
    // The coordinator's own agent has no part in any of them.
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("a", 2))));
    assert!(matches!(&effects[..], [Effect::TellPeersLost { .. }]), "{effects:?}");
    assert_eq!(cluster.apply(Command::AgentRegistered(Box::new(info("b", 1)))), []);
    // What happens before the last one is back is kept until then.
    for instance in 0..cluster.state.run(2).unwrap().instances.len() as u32 {
        assert_eq!(cluster.apply(ended(2, instance, vec![])), []);
    }
    let fault = WireFault::new(FaultCode::Instance, "a bad row");
    assert_eq!(cluster.apply(Command::InstanceFailed { run: 3, instance: 0, fault }), []);
    assert_eq!(cluster.apply(Command::CancelRequested { run: 4 }), []);
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("c", 1))));
    let both = |told: &[AgentId]| told.len() == 2;
    assert!(
        matches!(
            &effects[..],
            [
                Effect::Route { run: 1, .. },
                Effect::Seal { run: 2, .. },
                Effect::Stop { run: 3, agents: third, .. },
                Effect::Stop { run: 4, agents: fourth, .. },
                Effect::Stop { run: 5, .. },
            ] if both(third) && both(fourth)
        ),
        "{effects:?}"
    );
    assert_eq!(cluster.phase(1), JobPhase::Running);
    assert!(!cluster.state.run(1).unwrap().waits);
    cluster.apply(stopped(3, vec![]));
    cluster.apply(stopped(4, vec![]));
    cluster.apply(stopped(5, vec![]));
    assert_eq!(
        [3, 4, 5].map(|run| cluster.phase(run)),
        [JobPhase::Failed, JobPhase::Cancelled, JobPhase::Failed]
    );
    let fault = cluster.state.run(3).unwrap().fault.clone().unwrap();
    assert_eq!(fault.message, "a bad row");
}

#[test]
fn an_agent_that_does_not_come_back_is_waited_for_until_it_counts_as_dead() {
    let mut cluster = Cluster::of(&["a", "b"]);
    let agents = cluster.alive();
    cluster.apply(job("again", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    cluster.apply(Command::CoordinatorStarted);
    cluster.apply(Command::AgentRegistered(Box::new(info("a", 1))));
    assert!(cluster.state.run(1).unwrap().waits);
    let effects = cluster.lose("b");
    assert!(
        matches!(&effects[1], Effect::Stop { run: 1, agents: told, .. } if told.len() == 1),
        "{effects:?}"
    );
    // A second end of the coordinator while it waits for its places.
    cluster.apply(stopped(1, vec![]));
    cluster.apply(Command::CoordinatorStarted);
    let effects = cluster.apply(Command::AgentRegistered(Box::new(info("a", 1))));
    assert_eq!(effects, [Effect::Replace { run: 1 }]);
}

#[test]
fn a_shutdown_ends_jobs_first_and_agents_after() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents));
    let effects = cluster.apply(Command::ShutdownRequested);
    assert!(matches!(&effects[..], [Effect::Stop { run: 1, .. }]), "{effects:?}");
    assert_eq!(cluster.apply(stopped(1, vec![])), [Effect::EndAgents]);
    cluster.apply(job("late", Restart::Never, &agents));
    assert_eq!(cluster.phase(2), JobPhase::Failed);
}

#[test]
fn old_jobs_are_forgotten() {
    let mut cluster = Cluster::of(&["a"]);
    let agents = cluster.alive();
    let mut forgotten = Vec::new();
    for run in 1..=106 {
        cluster.apply(job("count", Restart::Never, &agents));
        cluster.apply(Command::CancelRequested { run });
        for effect in cluster.apply(stopped(run, vec![])) {
            match effect {
                Effect::Forget { run, .. } => forgotten.push(run),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(forgotten, [1, 2, 3, 4, 5, 6]);
    assert_eq!(cluster.state.jobs().count(), 100);
}
