//! Planners that answer what cannot be carried out, or do not answer at all, are refused in words.

use std::fmt;

use tuplane_core::scale::machines::Takes;
use tuplane_core::scale::planner::{Move, Step};
use tuplane_core::scale::{
    Ask, Engine, FlowEdge, FlowGraph, FlowVertex, Machine, Placement, Plan, Planner, Planners, Refusal,
    Removal, TakeAsk,
};

type Out = fn(&Ask<'_>, Plan) -> Plan;
type In = fn(&TakeAsk<'_>, Removal) -> Removal;

/// Spoils a good plan.
struct Spoiled {
    out: Out,
    take: In,
}

impl fmt::Debug for Spoiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spoiled")
    }
}

impl Planner for Spoiled {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let picks = (0..ask.slots).map(|_| (1, "is the second".to_owned())).collect();
        Ok((self.out)(ask, Plan::of("mine", ask, picks, "")))
    }

    fn scale_in(&self, ask: &TakeAsk<'_>) -> Result<Removal, Refusal> {
        Planners::default().scale_in("best", ask).map(|removal| (self.take)(ask, removal))
    }
}

/// A source and a sink of two instances each on two machines, and a third that is new.
fn job() -> (FlowGraph, Placement) {
    let vertices = vec![
        FlowVertex { offered: Some(500.0), ..FlowVertex::new("src", 2, 300.0) },
        FlowVertex { max_instances: Some(9), ..FlowVertex::new("sink", 2, 100.0) },
    ];
    let graph = FlowGraph::new(vertices, vec![FlowEdge { from: 0, to: 1, selectivity: 1.0 }]).unwrap();
    let machines = ["a", "b", "new"].map(|name| Machine::new(name, 2.0)).to_vec();
    (graph, Placement { machines, on: vec![vec![0, 1]; 2] })
}

fn said(out: Out, slots: u32, machines: bool) -> String {
    let (graph, placement) = job();
    let mut planners = Planners::default();
    planners.add(Spoiled { out, take: |_, removal| removal });
    let ask =
        Ask { placement: machines.then_some(&placement), ..Ask::new(&graph, Engine::BackPressured, slots) };
    planners.scale_out("mine", &ask).unwrap_err().0
}

fn step(vertex: usize, machine: Option<usize>) -> Step {
    Step { vertex, machine, why: String::new(), before: 0.0, after: 0.0 }
}

#[test]
fn plans_that_cannot_be_carried_out_are_refused() {
    let cases: [(Out, &str); 9] = [
        (|_, _| panic!("out of ideas"), "planner `mine` failed: it panicked: out of ideas"),
        (|_, plan| Plan { steps: vec![step(7, None)], ..plan }, "step 1 names vertex 7, of 2"),
        (
            |_, plan| Plan { steps: vec![step(1, None); 3], ..plan },
            "it has 3 new instances, and 2 are asked for",
        ),
        (
            |_, plan| Plan { instances: vec![2, 1], ..plan },
            "says that `sink` then has 1 instances; 2 and its steps are 4",
        ),
        (|_, plan| Plan { instances: vec![2, 4, 4], ..plan }, "it has instances of 3 vertices, of 2"),
        (|_, plan| Plan { steps: vec![step(1, Some(3)); 2], ..plan }, "step 1 names machine 3, of 3"),
        (|_, plan| Plan { after: f64::NAN, ..plan }, "it predicts NaN rows/s"),
        (
            |_, plan| Plan { moves: vec![Move { vertex: 0, instance: 5, from: 0, to: 1 }], ..plan },
            "it moves instance 5 of vertex 0 away from machine 0, where none is",
        ),
        (
            |_, plan| Plan { moves: vec![Move { vertex: 0, instance: 1, from: 1, to: 9 }], ..plan },
            "it moves to machine 9, of 3",
        ),
    ];
    for (out, words) in cases {
        let refused = said(out, 2, true);
        assert!(refused.contains("`mine`") && refused.contains(words), "{refused}");
    }
    assert!(said(|_, plan| plan, 8, false).contains("step 8 gives `sink` more than its 9 instances"));
    let on_one = |_: &Ask<'_>, plan: Plan| Plan { steps: vec![step(1, Some(0)); 2], ..plan };
    assert!(said(on_one, 2, false).contains("step 1 names machine 0, and none is known"));
}

#[test]
fn slots_without_a_word_are_left() {
    let (graph, _) = job();
    let mut planners = Planners::default();
    planners.add(Spoiled { out: |ask, _| Plan::of("mine", ask, Vec::new(), ""), take: |_, removal| removal });
    let ask = Ask::new(&graph, Engine::Queueing, 2);
    assert_eq!(planners.scale_out("mine", &ask).unwrap().left.unwrap().slots, 2);
    planners.add(Spoiled {
        out: |ask, _| Plan { left: None, ..Plan::of("mine", ask, Vec::new(), "") },
        take: |_, removal| removal,
    });
    let left = planners.scale_out("mine", &ask).unwrap().left.unwrap();
    assert_eq!((left.slots, left.why.as_str()), (2, "the planner does not say why"));
}

#[test]
fn machines_that_cannot_go_are_refused() {
    let (graph, mut placement) = job();
    placement.machines[0].kept = Some("the only host of source `src`".into());
    let cases: [(In, &str); 5] = [
        (|_, _| panic!("{}", "no"), "it panicked: no"),
        (
            |_, removal| Removal { machines: vec![1, 2], ..removal },
            "it gives back 2 machines, and 1 are asked for",
        ),
        (|_, removal| Removal { machines: vec![8], ..removal }, "it gives back machine 8, of 3"),
        (
            |_, removal| Removal { machines: vec![0], ..removal },
            "a, which cannot go: the only host of source `src`",
        ),
        (
            |ask, removal| Removal {
                machines: vec![1],
                moves: Vec::new(),
                placement: ask.placement.clone(),
                ..removal
            },
            "instances stay on b, which it gives back",
        ),
    ];
    for (take, words) in cases {
        let mut planners = Planners::default();
        planners.add(Spoiled { out: |_, plan| plan, take });
        let ask = TakeAsk::new(&graph, &placement, Engine::BackPressured, 1);
        let refused = planners.scale_in("mine", &ask).unwrap_err().0;
        assert!(refused.contains("`mine`") && refused.contains(words), "{refused}");
    }
}

#[test]
fn a_machine_that_takes_nothing_gets_nothing_by_a_move_either() {
    let (graph, mut placement) = job();
    placement.machines[2].takes = Takes::Nothing;
    let mut planners = Planners::default();
    planners.add(Spoiled {
        out: |_, plan| Plan { moves: vec![Move { vertex: 0, instance: 1, from: 1, to: 2 }], ..plan },
        take: |_, removal| removal,
    });
    let ask = Ask { placement: Some(&placement), ..Ask::new(&graph, Engine::BackPressured, 2) };
    let said = planners.scale_out("mine", &ask).unwrap_err().0;
    assert!(said.contains("it moves to new, which takes no instances"), "{said}");
}

/// As many as there are machines then.
#[derive(Debug)]
struct OneEach;

impl Planner for OneEach {
    fn name(&self) -> &'static str {
        "one-each"
    }

    fn slots(&self, new_machines: u32, _: u32, machines: u32) -> u32 {
        assert!(new_machines < 100, "too many");
        new_machines + machines
    }
}

#[test]
fn a_planner_may_say_how_many_instances_new_machines_are_worth() {
    let mut planners = Planners::default();
    planners.add(OneEach);
    let slots = |name: &str, new: u32| planners.slots(name, new, 12, 4).map_err(|refusal| refusal.0);
    assert_eq!(slots("one-each", 2), Ok(6));
    assert_eq!(slots("one-each", 100), Err("planner `one-each` failed: it panicked: too many".to_owned()));
    assert_eq!((slots("stela", 2), slots("stela-code", 2), slots("best", 2)), (Ok(6), Ok(2), Ok(6)));
}
