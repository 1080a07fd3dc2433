//! A coordinator that is killed at each step of a plan: before the commit the old plan holds on all agents, from it on
//! the new one, and the next plan can be asked for.

use std::time::Duration;

use serde_json::Value;

use super::keyed::{Cluster, assert_even, held};
use super::world::{Processes, World, signal, vertex, wait};
use super::{keyed, rescale};

/// Where the coordinator is killed, and whether the new plan holds then: behind the entry of its log of this name; with
/// `+` once all agents may have done what follows from it, which the log does not know.
const STEPS: [(&str, bool); 8] = [
    // Prepared on all agents.
    ("RescaleAsked+", false),
    // No agent knows of the commit; then all do.
    ("RescaleCommitted", true),
    ("RescaleCommitted+", true),
    // Rows go by the new plan, but for all key partitions.
    ("RescaleSwitched", true),
    // It is known what moves; the first group has moved, and another may be on its way.
    ("GroupsMade", true),
    ("GroupsMade+", true),
    ("GroupMoved+", true),
    // All have moved.
    ("OwnersReleased", true),
];

impl Cluster {
    /// The coordinator c, which has no instances, and a and b with so many rows of a job.
    fn held_at(step: &str, submit: impl FnOnce(&World) -> String) -> Self {
        let world = World::new();
        let first = world.coordinator_held("c", "127.0.0.1:0", Some(step));
        let address = first.address.clone();
        let others = ["a", "b"].map(|name| world.agent_by_hand(name, "127.0.0.1:0", Some(&address)));
        let cluster = Self { world, address, first: Some(first), others: others.into() };
        cluster.wait_for_agents(3);
        cluster.at(&["submit", &submit(&cluster.world)]);
        wait("rows come out", Duration::from_secs(20), || {
            vertex(&cluster.status(), "out")["rows_in"].as_u64().unwrap_or(0) > 100
        });
        cluster
    }

    /// Asks for a plan at which the coordinator stands still, kills it there, and starts the next one, which is to stand
    /// still elsewhere. Gives what the history says of the plan in the end.
    fn killed_in(&mut self, asked: &str, next: Option<&str>) -> Value {
        let others = Processes::of(self.others.iter().map(|agent| agent.pid));
        let plan = self.at(&["scale", "set", "line", asked]);
        let log = self.world.path("c.log");
        wait("it stands still", Duration::from_secs(30), || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("the coordinator stands still"))
        });
        if let Some(first) = self.first.take() {
            signal(first.pid, "KILL");
        }
        std::fs::remove_file(&log).unwrap();
        self.first = Some(self.world.coordinator_held("c", &self.address, next));
        self.wait_for_agents(3);
        let mut last = Value::Null;
        wait("the plan is over", Duration::from_secs(30), || {
            let history = self.at(&["scale", "history", "line"]);
            last = history["history"].as_array().unwrap().last().cloned().unwrap_or_default();
            ["done", "failed"].iter().any(|step| last["step"] == *step)
        });
        assert_eq!(last["epoch"], plan["next"], "{last}");
        others.assert_up();
        last
    }

    /// Each instance that runs of a stage gets rows.
    fn wait_until_all_take(&self, stage: &str) {
        let rows = |status: &Value| -> Vec<u64> {
            let all = status["per_instance"].as_array().unwrap().iter();
            let runs = all.filter(|one| one["vertex"].as_str().unwrap().contains(stage));
            let runs = runs.filter(|one| one["state"] == "running");
            runs.map(|one| one["rows_in"].as_u64().unwrap()).collect()
        };
        let before = rows(&self.status());
        // One that is held up by the stage behind it takes none for a while.
        wait("all take rows", Duration::from_mins(1), || {
            before.iter().zip(rows(&self.status())).all(|(was, is)| is > *was)
        });
    }
}

/// That rows of both source instances are counted without a gap or a repetition at the end, through all of these plans,
/// is only so if both agents have the same map each time, and the partition's state is where it says.
#[test]
fn whichever_step_of_a_keyed_plan_it_is_killed_at_all_have_the_old_map_or_the_new_one() {
    const ROWS: u64 = 45_000;
    let mut cluster = Cluster::held_at(STEPS[0].0, |world| keyed::job(world, ROWS, 1000));
    let mut instances = 2;
    for (number, (step, holds)) in STEPS.into_iter().enumerate() {
        let wanted = if instances == 2 { 5 } else { 2 };
        let before = held(&cluster.status(), "counts");
        let next = STEPS.get(number + 1).map(|(step, _)| *step);
        let last = cluster.killed_in(&format!("counts={wanted}"), next);
        assert_eq!(last["step"], if holds { "done" } else { "failed" }, "{step}: {last}");
        let status = cluster.status();
        assert_eq!(status["phase"], "running", "{step}: {status}");
        if holds {
            instances = wanted;
        } else {
            assert_eq!(held(&status, "counts"), before, "{step}");
        }
        assert_even(&status, "counts", instances);
        cluster.wait_until_all_take("counts");
        println!("killed at {step}: {}", last["step"]);
    }
    cluster.scale(&["set", "line", "counts=3"]);
    cluster.finish(ROWS, 2);
}

#[test]
fn whichever_step_of_a_plan_without_state_it_is_killed_at_the_old_one_or_the_new_one_holds() {
    const ROWS: u64 = 30_000;
    let steps = STEPS.into_iter().filter(|(step, _)| step.starts_with("Rescale"));
    let steps: Vec<_> = steps.collect();
    let mut cluster = Cluster::held_at(steps[0].0, |world| rescale::job(world, ROWS, 2, 2.0, ""));
    let mut instances = 2;
    for (number, (step, holds)) in steps.iter().enumerate() {
        let wanted = if instances == 2 { 4 } else { 2 };
        let next = steps.get(number + 1).map(|(step, _)| *step);
        let last = cluster.killed_in(&format!("work={wanted}"), next);
        assert_eq!(last["step"], if *holds { "done" } else { "failed" }, "{step}: {last}");
        if *holds {
            instances = wanted;
        }
        let status = cluster.status();
        assert_eq!(status["phase"], "running", "{step}: {status}");
        assert_eq!(rescale::running(&status, "work").len(), instances, "{step}: {status}");
        cluster.wait_until_all_take("work");
    }
    rescale::finish(&cluster.world, &|args| cluster.at(args), ROWS);
}
