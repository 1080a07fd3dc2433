//! Operations: numbered, closed by what came of their plan, the oldest forgotten.

use super::*;
use crate::cluster::operation::{Asked, KEPT, Operation};

fn asked(what: &str, plan: Option<u64>, fault: Option<&str>) -> Command {
    let (what, by, fault) = (what.to_owned(), "ann@h1".to_owned(), fault.map(str::to_owned));
    Command::Asked(Box::new(Asked { what, by, at_ms: 1, run: Some(1), plan, fault }))
}

impl Cluster {
    fn operation(&self) -> Operation {
        self.state.operations().all().next_back().unwrap().clone()
    }

    /// A plan for one sink more on the second agent is asked for.
    fn asked_to_scale(&mut self) -> u64 {
        let agents = self.alive();
        let new = rescales::plan(self.state.run(1).unwrap(), &agents[1..2], &[]);
        let epoch = new.epoch;
        self.apply(Command::RescaleAsked { run: 1, new: Box::new(new) });
        self.apply(asked("scale set v=2", Some(epoch), None));
        epoch
    }
}

#[test]
fn an_operation_is_over_when_its_plan_is() {
    let mut cluster = Cluster::running(&["a", "b"]);
    cluster.apply(asked("set slow.ms=1", None, None));
    let one = cluster.operation();
    assert_eq!((one.id, one.is_open(), one.fault, one.job.unwrap().0), (1, false, None, 1));
    cluster.apply(asked("route a..b potus", None, Some("agent b does not answer")));
    assert_eq!(cluster.operation().fault.as_deref(), Some("agent b does not answer"));
    let epoch = cluster.asked_to_scale();
    assert!(cluster.operation().is_open());
    cluster.prepared_and_committed(epoch);
    assert!(cluster.operation().is_open());
    cluster.apply(Command::RescaleSwitched { run: 1, epoch });
    let done = cluster.operation();
    assert_eq!((done.id, done.is_open(), done.fault), (3, false, None));
    // One that is given up, and one whose job ends first.
    let epoch = cluster.asked_to_scale();
    let fault = WireFault::new(FaultCode::Agent, "b refuses");
    cluster.apply(Command::RescaleFailed { run: 1, epoch, fault });
    assert_eq!(cluster.operation().fault.as_deref(), Some("b refuses"));
    cluster.asked_to_scale();
    cluster.lose("a");
    let last = cluster.operation();
    assert!(!last.is_open() && last.fault.unwrap().contains("agent a was lost"));
}

#[test]
fn the_newest_operations_are_remembered_and_their_numbers_go_on() {
    let mut cluster = Cluster::running(&["a", "b"]);
    for _ in 0..KEPT + 50 {
        cluster.apply(asked("set slow.ms=1", None, None));
    }
    let operations = cluster.state.operations();
    assert_eq!((operations.all().count(), operations.left_out()), (KEPT, 50));
    assert_eq!((operations.last(), operations.all().next().unwrap().id), (KEPT as u64 + 50, 51));
}
