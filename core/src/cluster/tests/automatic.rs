//! The automatic mode in the state machine: it outlives a coordinator, and off is off.

use super::rescales::plan;
use super::*;
use crate::cluster::automatic::{AutoWhat, Automatic};
use crate::scale::{AutoOptions, Memory};

fn on(run: u64) -> Command {
    Command::AutoSet { run, options: Some(AutoOptions::default()) }
}

fn noted(run: u64, what: AutoWhat, plan: Option<u64>) -> Command {
    let memory = serde_json::json!(
        {"acted": {"secs": 7, "nanos": 0}, "added": [], "useless": [2.0], "said": true, "failures": 1}
    );
    let memory: Memory = serde_json::from_value(memory).unwrap();
    let note = Some((what, "because".to_owned(), plan));
    Command::AutoNoted { run, memory: Box::new(memory), plan: plan.unwrap_or(1), note }
}

fn automatic(cluster: &Cluster) -> Automatic {
    cluster.state.jobs().next().unwrap().automatic.clone().unwrap()
}

#[test]
fn it_is_off_until_asked_for_and_what_it_did_stays_when_it_is_off_again() {
    let mut cluster = Cluster::running(&["a", "b"]);
    assert_eq!(cluster.state.jobs().next().unwrap().automatic, None);
    cluster.apply(noted(1, AutoWhat::Out, Some(2)));
    assert_eq!(cluster.state.jobs().next().unwrap().automatic, None);
    cluster.apply(on(1));
    assert_eq!((automatic(&cluster).on, automatic(&cluster).plan), (true, 1));
    cluster.apply(noted(1, AutoWhat::Out, Some(2)));
    let acted = automatic(&cluster).memory.acted();
    assert!(acted.is_some());
    cluster.apply(Command::AutoSet { run: 1, options: None });
    cluster.apply(noted(1, AutoWhat::In, Some(3)));
    let off = automatic(&cluster);
    let what: Vec<AutoWhat> = off.notes.iter().map(|note| note.what).collect();
    assert_eq!((off.on, what), (false, vec![AutoWhat::On, AutoWhat::Out, AutoWhat::Off]));
    // The cooldown goes on, and what was said counts no more.
    assert_eq!(off.memory.acted(), acted);
    assert_eq!(off.memory, off.memory.cooldown_alone());
}

#[test]
fn a_new_coordinator_goes_on_with_it() {
    let mut cluster = Cluster::running(&["a", "b"]);
    cluster.apply(on(1));
    let job = cluster.state.jobs().next().unwrap();
    let new = plan(job, &[], &[]);
    cluster.apply(Command::RescaleAsked { run: 1, new: Box::new(new) });
    assert_eq!(cluster.state.jobs().next().unwrap().newest_plan(), 2);
    cluster.apply(noted(1, AutoWhat::Out, Some(2)));
    let before = automatic(&cluster);
    cluster.apply(Command::CoordinatorStarted);
    assert_eq!(automatic(&cluster), before);
    let kept = serde_json::to_string(&cluster.state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&kept).unwrap(), cluster.state);
    for _ in 0..60 {
        cluster.apply(noted(1, AutoWhat::AtLimit, None));
    }
    assert_eq!(automatic(&cluster).notes.len(), 50);
}

#[test]
fn what_instances_took_before_is_forgotten_with_a_changed_option_by_whoever_decides_next_too() {
    let mut cluster = Cluster::running(&["a", "b"]);
    cluster.apply(on(1));
    cluster.apply(noted(1, AutoWhat::Out, Some(2)));
    let useless =
        |cluster: &Cluster| serde_json::to_value(&automatic(cluster).memory).unwrap()["useless"].clone();
    assert_eq!(useless(&cluster), serde_json::json!([2.0]));
    let set = Command::OptionSet {
        run: 1,
        stage: "work".to_owned(),
        option: "ms".to_owned(),
        value: "3".to_owned(),
    };
    cluster.apply(set.clone());
    assert_eq!(useless(&cluster), serde_json::json!([null]));
    // What is so already changes nothing.
    cluster.apply(noted(1, AutoWhat::Out, Some(2)));
    cluster.apply(set);
    assert_eq!(useless(&cluster), serde_json::json!([2.0]));
}
