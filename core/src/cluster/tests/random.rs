//! Any commands in any order.

use super::*;

fn any_command() -> impl Strategy<Value = Command> {
    let run = 0..6u64;
    let instance = 0..6u32;
    let fault = prop_oneof![
        Just(WireFault::new(FaultCode::Agent, "agent")),
        Just(WireFault::new(FaultCode::Instance, "instance"))
    ];
    let agent = (0..3usize, 1..4u64).prop_map(|(name, incarnation)| info(["a", "b", "c"][name], incarnation));
    let instance2 = instance.clone();
    let restart = prop_oneof![Just(Restart::Never), Just(Restart::FromStart)];
    prop_oneof![
        1 => Just(Command::CoordinatorStarted),
        6 => agent.clone().prop_map(|info| Command::AgentRegistered(Box::new(info))),
        3 => agent.clone().prop_map(|info| Command::AgentLost { id: info.id, cause: "gone".to_owned() }),
        6 => (prop::collection::vec(agent.clone(), 1..3), restart)
            .prop_map(|(agents, restart)| job("job", restart, &agents)),
        6 => run.clone().prop_map(|run| Command::Prepared { run }),
        2 => (run.clone(), fault.clone()).prop_map(|(run, fault)| Command::PrepareFailed { run, fault }),
        12 => (run.clone(), instance.clone())
            .prop_map(|(run, instance)| ended(run, instance, vec![part("a", instance)])),
        2 => (run.clone(), instance.clone(), fault.clone())
            .prop_map(|(run, instance, fault)| Command::InstanceFailed { run, instance, fault }),
        2 => run.clone().prop_map(|run| Command::CancelRequested { run }),
        6 => (run.clone(), 0..9u64, 0..9u64)
            .prop_map(|(run, emitted, taken)| stopped(run, ledger(emitted, taken))),
        4 => (run.clone(), 0..3usize, instance.clone()).prop_map(|(run, agent, instance)| {
            let agent = ["a", "b", "c"][agent];
            sealed(run, agent, &[part(agent, instance)])
        }),
        1 => run.clone().prop_map(|run| {
            let causes = BTreeMap::from([("a".to_owned(), "full".to_owned())]);
            Command::Sealed { run, work: SealWork { causes, ..SealWork::default() }, edges: vec![] }
        }),
        4 => (run.clone(), instance, 0..4u32).prop_map(|(run, instance, split)| Command::SplitTaken {
            run,
            stage: "src".to_owned(),
            instance,
            split,
        }),
        2 => (run.clone(), instance2, 0..4u32).prop_map(|(run, instance, number)| {
            let done = Some(Progress { offset: 7, lines: 2 });
            let split = Split { number, path: format!("f{number}"), start: 0, end: u64::MAX, seen: None, done };
            Command::SplitReturned { run, stage: "src".to_owned(), instance, split }
        }),
        1 => run.clone().prop_map(|run| Command::PolicySet { run, edge: 0, policy: "shuffle".to_owned(), options: String::new() }),
        3 => (run.clone(), agent.clone()).prop_map(|(run, agent)| Command::Restarted { run, placed: placed(&[agent]) }),
        1 => (run, fault).prop_map(|(run, fault)| Command::RestartFailed { run, fault }),
        1 => Just(Command::ShutdownRequested),
        3 => (agent.clone(), any::<bool>())
            .prop_map(|(info, drained)| Command::AgentDrained { name: info.id.name, drained }),
        3 => agent.prop_map(|info| Command::AgentReleased { id: info.id }),
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
                    if old.phase == JobPhase::Sealing {
                        let goes_on = matches!(job.phase, JobPhase::Sealing | JobPhase::Finished);
                        prop_assert!(goes_on, "it had finished, and is {:?}", job.phase);
                    }
                    if old.phase == JobPhase::Finished {
                        prop_assert_eq!(job.phase, JobPhase::Finished);
                        prop_assert!(job.pending.len() <= old.pending.len());
                        prop_assert_eq!(&old.ledger, &job.ledger);
                    } else if old.phase.is_final() {
                        prop_assert_eq!(old, job, "an ended job does not change");
                    }
                    prop_assert!(!(job.waits && job.phase.is_final()));
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
                    // A new coordinator has not heard of it yet.
                    let away = job.waits
                        && state.agents().any(|known| {
                            known.info.id == agent.id && known.presence == Presence::Away
                        });
                    prop_assert!(
                        away || state.is_alive(&agent.id),
                        "{} runs on dead {:?}",
                        job.name,
                        agent.id
                    );
                }
            }
        }
    }
}
