//! What sinks have written becomes visible when a job has ended, whoever is lost.

use super::*;

/// A cluster in which a job's instances have all ended; its sinks have written a part on each agent.
fn all_ended(hosts: &[(&str, &str)]) -> (Cluster, Vec<Effect>) {
    let mut cluster = Cluster::of(&[]);
    for (name, host) in hosts {
        let info = AgentInfo { host: (*host).to_owned(), ..info(name, 1) };
        cluster.apply(Command::AgentRegistered(Box::new(info)));
    }
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::FromStart, &agents));
    cluster.apply(Command::Prepared { run: 1 });
    let count = hosts.len() as u32;
    let mut effects = Vec::new();
    for instance in 0..2 * count {
        let index = instance % count;
        let files = if instance < count { vec![] } else { vec![part(hosts[index as usize].0, index)] };
        effects = cluster.apply(ended(1, instance, files));
    }
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
    (cluster, effects)
}

#[test]
fn a_job_whose_instances_have_ended_finishes_whatever_is_lost() {
    let (mut cluster, effects) = all_ended(&[("a", "h1"), ("b", "h2")]);
    assert_eq!(asked(&effects), [("a", 1, 0), ("b", 1, 0)]);
    let id = AgentId { name: "b".to_owned(), incarnation: 1 };
    assert_eq!(cluster.lose("b"), [Effect::TellPeersLost { id }], "nothing is stopped or begun again");
    let fault = WireFault::new(FaultCode::Agent, "late");
    assert_eq!(cluster.apply(Command::InstanceFailed { run: 1, instance: 0, fault }), []);
    assert_eq!(cluster.apply(Command::CancelRequested { run: 1 }), []);
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
    assert_eq!(cluster.apply(sealed(1, "a", &[part("a", 0)])), []);
    let job = cluster.state.run(1).unwrap();
    assert_eq!((job.phase, job.fault.clone()), (JobPhase::Finished, None));
    assert_eq!(job.files, [visible("a", &part("a", 0))]);
    let said: Vec<_> = job.pending.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "pending on b: its hidden parts are at /data/.out-1-1-0.csv.part (it was lost before it had renamed them)"
        ]
    );
    // It comes back as another process on its own host, and can rename what it wrote before.
    cluster.apply(Command::AgentRegistered(Box::new(info("c", 1))));
    let back = AgentInfo { host: "h2".to_owned(), ..info("b", 2) };
    let effects = cluster.apply(Command::AgentRegistered(Box::new(back)));
    assert_eq!(asked(&effects), [("b", 1, 0)]);
    cluster.apply(sealed(1, "b", &[part("b", 1)]));
    let job = cluster.state.run(1).unwrap();
    assert!(job.pending.is_empty());
    assert_eq!(job.files, [visible("a", &part("a", 0)), visible("b", &part("b", 1))]);
    assert_eq!(job.ledger, ledger(5, 5));
    let old = cluster.state.clone();
    cluster.apply(sealed(1, "b", &[part("b", 1)]));
    assert_eq!(cluster.state, old, "said twice");
}

#[test]
fn another_agent_of_the_host_renames_what_a_lost_one_wrote() {
    let (mut cluster, _) = all_ended(&[("a", "h"), ("b", "h"), ("c", "other")]);
    cluster.lose("b");
    let effects = cluster.apply(sealed(1, "a", &[part("a", 0)]));
    assert_eq!(asked(&effects), [("a", 1, 0), ("c", 1, 0)], "b's part is on a's host");
    let effects = cluster.apply(sealed(1, "a", &[part("b", 1)]));
    assert_eq!(asked(&effects), [("c", 1, 0)]);
    cluster.apply(sealed(1, "c", &[part("c", 2)]));
    let job = cluster.state.run(1).unwrap();
    assert_eq!((job.phase, job.files.len(), job.pending.len()), (JobPhase::Finished, 3, 0));
    assert_eq!(job.files[1].agent, "a", "who has it now");
}

#[test]
fn agents_that_cannot_make_files_visible_are_not_asked_again_and_again() {
    let (mut cluster, _) = all_ended(&[("a", "h"), ("b", "h")]);
    cluster.lose("b");
    let mut rounds = 0;
    let cause = |agent: &str| SealWork {
        causes: BTreeMap::from([(agent.to_owned(), "the disk is full".to_owned())]),
        ..SealWork::default()
    };
    while cluster.phase(1) == JobPhase::Sealing {
        rounds += 1;
        assert!(rounds < 5);
        cluster.apply(Command::Sealed { run: 1, work: cause("a"), edges: vec![] });
    }
    let pending = &cluster.state.run(1).unwrap().pending;
    assert_eq!(pending.len(), 2);
    assert_eq!((pending[0].agent.as_str(), pending[0].cause.as_str()), ("a", "the disk is full"));
}

#[test]
fn sealing_goes_on_under_a_new_coordinator() {
    let (mut cluster, _) = all_ended(&[("a", "h"), ("b", "h")]);
    assert_eq!(cluster.apply(Command::CoordinatorStarted), []);
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
    assert_eq!(cluster.apply(Command::AgentRegistered(Box::new(info("b", 1)))), [], "a is still away");
    let back = AgentInfo { host: "h".to_owned(), ..info("a", 2) };
    let effects = cluster.apply(Command::AgentRegistered(Box::new(back)));
    assert_eq!(asked(&effects), [("a", 1, 0), ("b", 1, 0)]);
}
