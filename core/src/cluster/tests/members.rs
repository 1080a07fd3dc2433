//! Agents that are drained and released.

use super::*;

fn drained(name: &str, drained: bool) -> Command {
    Command::AgentDrained { name: name.to_owned(), drained }
}

fn released(name: &str, incarnation: u64) -> Command {
    Command::AgentReleased { id: info(name, incarnation).id }
}

impl Cluster {
    fn names(&self) -> Vec<&str> {
        self.state.agents().map(|agent| agent.info.id.name.as_str()).collect()
    }

    fn open(&self) -> Vec<&str> {
        self.state.open().map(|info| info.id.name.as_str()).collect()
    }
}

#[test]
fn a_drained_agent_is_alive_and_takes_nothing_until_that_is_undone() {
    let mut cluster = Cluster::of(&["a", "b"]);
    cluster.apply(drained("z", true));
    assert!(!cluster.state.is_drained("z"), "there is none");
    assert_eq!(cluster.apply(drained("b", true)), []);
    assert_eq!((cluster.open(), cluster.alive().len()), (vec!["a"], 2));
    // Whatever becomes of its process and of the coordinator.
    cluster.lose("b");
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 2))));
    cluster.apply(Command::CoordinatorStarted);
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 2))));
    assert!(cluster.state.is_drained("b") && cluster.open().is_empty());
    cluster.apply(drained("b", false));
    assert_eq!(cluster.open(), ["b"]);
}

#[test]
fn an_agent_is_released_when_it_is_drained_and_no_job_needs_it() {
    let mut cluster = Cluster::of(&["a", "b", "c"]);
    let agents = cluster.alive();
    cluster.apply(job("count", Restart::Never, &agents[..2]));
    cluster.apply(Command::Prepared { run: 1 });
    assert_eq!(cluster.apply(released("c", 1)), [], "it is not drained");
    for name in ["b", "c"] {
        cluster.apply(drained(name, true));
    }
    let held = cluster.state.held_by(&agents[1].id);
    assert_eq!((held.len(), held[0].instances.len(), held[0].files), (1, 2, false));
    assert_eq!(cluster.apply(released("b", 1)), [], "two instances are there");
    assert_eq!(cluster.apply(released("c", 7)), [], "there is no such incarnation");
    assert_eq!(cluster.names(), ["a", "b", "c"]);
    assert_eq!(cluster.apply(released("c", 1)), [Effect::TellPeersLost { id: agents[2].id.clone() }]);
    assert_eq!(cluster.names(), ["a", "b"]);
    assert_eq!(cluster.apply(released("c", 1)), [], "it is none any more");
    assert_eq!(cluster.phase(1), JobPhase::Running);
    // With the job's end it goes, drained as it is; but its files are made visible first.
    for instance in [0, 1, 2] {
        cluster.apply(ended(1, instance, vec![]));
    }
    cluster.apply(ended(1, 3, vec![part("b", 3)]));
    assert_eq!(cluster.phase(1), JobPhase::Sealing);
    assert!(cluster.state.held_by(&agents[1].id)[0].files);
    assert_eq!(cluster.apply(released("b", 1)), []);
    cluster.apply(sealed(1, "b", &[part("b", 3)]));
    assert_eq!(cluster.phase(1), JobPhase::Finished);
    assert_eq!(cluster.apply(released("b", 1)).len(), 1);
    assert_eq!(cluster.names(), ["a"]);
}

#[test]
fn a_released_process_is_not_taken_back_and_another_one_of_its_name_is() {
    let mut cluster = Cluster::of(&["a", "b"]);
    cluster.apply(drained("b", true));
    cluster.apply(released("b", 1));
    // The same process with a new incarnation, as it makes one when it was given up.
    let mut again = info("b", 2);
    again.address = info("b", 1).address;
    for same in [info("b", 1), again] {
        let refused = cluster.state.refuses(&same).unwrap();
        assert_eq!((refused.code, refused.retryable), (FaultCode::Refused, false));
        assert_eq!(cluster.apply(Command::AgentRegistered(Box::new(same))), []);
        assert_eq!(cluster.names(), ["a"]);
    }
    assert!(cluster.state.refuses(&info("b", 2)).is_none());
    cluster.apply(Command::AgentRegistered(Box::new(info("b", 2))));
    assert_eq!((cluster.names(), cluster.open()), (vec!["a", "b"], vec!["a", "b"]), "and is not drained");
}

#[test]
fn a_dead_agent_is_forgotten_without_being_drained() {
    let mut cluster = Cluster::of(&["a", "b"]);
    cluster.lose("b");
    assert_eq!(cluster.apply(released("b", 1)).len(), 1);
    assert_eq!(cluster.names(), ["a"]);
}

#[test]
fn a_plan_that_is_being_prepared_holds_its_agents() {
    let mut cluster = Cluster::running(&["a", "b"]);
    let agents = cluster.alive();
    let new = rescales::plan(cluster.state.run(1).unwrap(), &agents[1..], &[1]);
    cluster.apply(Command::RescaleAsked { run: 1, new: Box::new(new) });
    cluster.apply(drained("b", true));
    assert!(cluster.state.held_by(&agents[1].id)[0].prepares);
    assert_eq!(cluster.apply(released("b", 1)), []);
    cluster.prepared_and_committed(2);
    assert_eq!(cluster.state.held_by(&agents[1].id)[0].instances.len(), 1);
    // And once it has moved away again nothing does.
    cluster.apply(Command::RescaleSwitched { run: 1, epoch: 2 });
    cluster.apply(ended(1, 1, vec![]));
    let new = rescales::plan(cluster.state.run(1).unwrap(), &agents[..1], &[2]);
    cluster.apply(Command::RescaleAsked { run: 1, new: Box::new(new) });
    cluster.prepared_and_committed(3);
    cluster.apply(Command::RescaleSwitched { run: 1, epoch: 3 });
    assert_eq!(cluster.apply(released("b", 1)), [], "it is being drained");
    cluster.apply(ended(1, 2, vec![]));
    assert_eq!(cluster.apply(released("b", 1)), [Effect::TellPeersLost { id: agents[1].id.clone() }]);
    assert_eq!(cluster.phase(1), JobPhase::Running);
}
