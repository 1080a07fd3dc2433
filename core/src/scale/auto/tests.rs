//! The automatic mode: when it acts, when it must not, and what it says.

use super::*;
use crate::scale::graph::FlowEdge;

/// A chain of a source and workers, looked at once a second. What the job is told to have, it has at once, and the window
/// is then empty for 10 s.
struct World {
    /// Of one instance of each vertex.
    capacities: Vec<f64>,
    instances: Vec<u32>,
    most: Option<u32>,
    least: Vec<u32>,
    waiting: Vec<u64>,
    blocked: Vec<f64>,
    room: u32,
    now: u64,
    full_at: u64,
    auto: Auto,
    acts: Vec<(u64, Act)>,
}

impl World {
    fn new(capacities: &[f64], instances: &[u32]) -> Self {
        Self {
            capacities: capacities.to_vec(),
            instances: instances.to_vec(),
            most: None,
            least: Vec::new(),
            waiting: vec![0; capacities.len()],
            blocked: vec![0.0; capacities.len()],
            room: 100,
            now: 0,
            full_at: 10,
            auto: Auto::new(AutoOptions::default()),
            acts: Vec::new(),
        }
    }

    fn second(&mut self, offered: Option<f64>) {
        let vertices = self.capacities.iter().zip(&self.instances).enumerate();
        let vertices = vertices.map(|(index, (capacity, instances))| FlowVertex {
            offered: offered.filter(|_| index == 0),
            ..FlowVertex::new(format!("v{index}"), *instances, *capacity)
        });
        let bound = |index: usize| Bound {
            least: self.least.get(index).copied().unwrap_or(1),
            most: self.most.filter(|_| index > 0).unwrap_or(u32::MAX),
            why: "that is the most".to_owned(),
        };
        let bounds: Vec<Bound> = (0..self.capacities.len()).map(bound).collect();
        let edges = (1..self.capacities.len()).map(|to| FlowEdge { from: to - 1, to, selectivity: 1.0 });
        let graph = FlowGraph::new(vertices.collect(), edges.collect()).unwrap();
        let act = self.auto.look(&Look {
            now: Duration::from_secs(self.now),
            full: self.now >= self.full_at,
            graph: &graph,
            waiting: &self.waiting,
            blocked: &self.blocked,
            room: self.room,
            bounds: &bounds,
        });
        if let Act::Out { instances, .. } | Act::In { instances, .. } = &act {
            self.instances.clone_from(instances);
            self.full_at = self.now + 10;
        }
        if act != Act::Stay {
            self.acts.push((self.now, act));
        }
        self.now += 1;
    }

    fn run(&mut self, seconds: u64, offered: impl Fn(u64) -> f64) {
        for _ in 0..seconds {
            self.second(Some(offered(self.now)));
        }
    }

    fn outs(&self) -> usize {
        self.acts.iter().filter(|(_, act)| matches!(act, Act::Out { .. })).count()
    }

    fn ins(&self) -> usize {
        self.acts.iter().filter(|(_, act)| matches!(act, Act::In { .. })).count()
    }
}

#[test]
fn a_step_is_one_action_after_the_first_full_window_and_then_nothing() {
    let mut world = World::new(&[1e6, 100.0, 300.0], &[1, 1, 1]);
    world.run(3600, |_| 1000.0);
    let (at, Act::Out { instances, why }) = &world.acts[0] else { panic!("{:?}", world.acts) };
    // 1000 / (0.7 * 100) and 1000 / (0.7 * 300), rounded up.
    assert_eq!((*at, instances.as_slice()), (10, [1, 15, 5].as_slice()));
    assert_eq!(why, "`v1` needs 1000 % of what its instances take");
    assert_eq!(world.acts.len(), 1, "{:?}", world.acts);
}

#[test]
fn a_wave_of_a_fifth_is_at_most_two_actions_in_two_hours() {
    for period in [60, 300, 900, 3600, 7200] {
        for start in 1..8 {
            let mut world = World::new(&[1e6, 100.0], &[1, start]);
            let wave = |now: u64| (now as f64 / f64::from(period) * std::f64::consts::TAU).sin();
            world.run(7200, |now| 500.0 * (1.0 + 0.2 * wave(now)));
            assert!(world.acts.len() <= 2, "{period} s from {start}: {:?}", world.acts);
        }
    }
}

#[test]
fn less_is_needed_for_two_cooldowns_before_instances_go_and_the_peak_counts() {
    let mut world = World::new(&[1e6, 100.0], &[1, 10]);
    // A peak each 100 s keeps the ten; two cooldowns are 120 s.
    world.run(1000, |now| if now % 100 == 0 { 600.0 } else { 50.0 });
    assert_eq!(world.acts, []);
    world.run(200, |_| 50.0);
    let (at, Act::In { instances, why }) = &world.acts[0] else { panic!("{:?}", world.acts) };
    assert_eq!(instances, &[1, 4], "at most six of ten go at once");
    assert!((1021..=1030).contains(at), "{at}");
    assert_eq!(why, "`v1` needed at most 5 % of its instances for 120 s");
    world.run(300, |_| 50.0);
    assert_eq!((world.ins(), world.instances[1]), (3, 1));
}

#[test]
fn nothing_goes_while_rows_wait() {
    let mut world = World::new(&[1e6, 100.0], &[1, 10]);
    for left in (0..600_000_u64).rev().step_by(1000) {
        world.waiting[1] = left;
        world.second(Some(100.0));
        assert!(left <= 1000 || world.acts.is_empty(), "{:?}", world.acts);
    }
    world.waiting[1] = 0;
    world.run(10, |_| 100.0);
    assert_eq!(world.ins(), 1);
}

#[test]
fn a_blocked_vertex_keeps_its_instances_and_the_one_that_blocks_it_gets_more() {
    let mut world = World::new(&[1e6, 1000.0, 100.0], &[1, 8, 1]);
    world.blocked[1] = 0.9;
    world.run(11, |_| 400.0);
    assert_eq!(world.instances, [1, 8, 6]);
    // It stays blocked by something else.
    world.run(1000, |_| 400.0);
    assert_eq!(world.instances, [1, 8, 6]);
    world.blocked[1] = 0.0;
    world.run(1, |_| 400.0);
    assert_eq!(world.instances, [1, 4, 6]);
}

#[test]
fn what_does_not_help_is_not_repeated_and_said_once() {
    // Whoever writes, the other end takes 100 rows/s.
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    for _ in 0..3600 {
        world.capacities[1] = 100.0 / f64::from(world.instances[1]);
        world.second(Some(500.0));
    }
    assert_eq!(world.outs(), 1, "{:?}", world.acts);
    let (_, Act::AtLimit { why }) = &world.acts[1] else { panic!("{:?}", world.acts) };
    assert_eq!(why, "`v1` took 100 rows/s, and no more with more instances");
    assert_eq!(world.acts.len(), 2, "{:?}", world.acts);
}

#[test]
fn what_was_learned_of_other_costs_is_forgotten() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    world.run(11, |_| 300.0);
    assert_eq!((world.outs(), world.instances[1]), (1, 5));
    // A row costs ten times as much from here on: five take 50, where one took 100.
    world.capacities[1] = 10.0;
    world.auto.costs_changed();
    world.run(120, |_| 300.0);
    assert_eq!((world.outs(), world.instances[1]), (2, 43), "{:?}", world.acts);
}

#[test]
fn a_limit_is_said_once_and_again_after_it_was_none() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    world.most = Some(1);
    world.run(300, |_| 500.0);
    assert_eq!(world.acts.len(), 1, "{:?}", world.acts);
    assert_eq!(
        world.acts[0].1,
        Act::AtLimit { why: "`v1` has 1 instances and needs 8: that is the most".into() }
    );
    world.run(300, |_| 50.0);
    world.run(300, |_| 500.0);
    assert_eq!(world.acts.len(), 2, "{:?}", world.acts);
}

#[test]
fn the_room_there_is_is_used_and_the_lack_is_said() {
    let mut world = World::new(&[1e6, 100.0, 200.0], &[1, 1, 1]);
    world.room = 4;
    world.run(11, |_| 700.0);
    assert_eq!(world.instances, [1, 4, 2]);
    world.room = 0;
    world.run(600, |_| 700.0);
    assert_eq!(world.acts.len(), 2, "{:?}", world.acts);
    let Act::AtLimit { why } = &world.acts[1].1 else { panic!("{:?}", world.acts) };
    assert_eq!(why, "9 more instances are needed, and the agents have room for 0");
}

#[test]
fn no_more_instances_than_there_are_rows() {
    // Four rows wait, each takes 20 s, and one comes in 5 s.
    let mut world = World::new(&[1e6, 0.05], &[1, 1]);
    world.waiting[1] = 3;
    world.run(3600, |_| 0.2);
    assert!(world.instances[1] <= 4, "{:?}", world.acts);
}

#[test]
fn a_source_that_gives_all_it_can_gets_no_more() {
    let mut world = World::new(&[100.0, 200.0], &[2, 4]);
    for _ in 0..1000 {
        world.second(None);
    }
    assert_eq!((world.instances[0], world.outs()), (2, 0), "{:?}", world.acts);
}

#[test]
fn a_change_by_hand_starts_the_cooldown() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    world.auto.changed(Duration::from_secs(5));
    world.run(64, |_| 500.0);
    assert_eq!(world.acts, []);
    world.run(10, |_| 500.0);
    assert_eq!((world.outs(), world.acts[0].0), (1, 65));
}

#[test]
fn a_vertex_keeps_what_it_cannot_give_and_one_without_rows_is_left_one() {
    let mut world = World::new(&[1e6, 100.0, f64::INFINITY], &[1, 10, 4]);
    world.least = vec![1, 10, 1];
    // Nothing comes, so it is not known what the last one could take.
    world.run(2000, |_| 0.0);
    assert_eq!(world.instances, [1, 10, 1], "{:?}", world.acts);
    // One that works on one row for longer than a window has no capacity either, and keeps its instances.
    let mut world = World::new(&[1e6, f64::INFINITY], &[1, 4]);
    world.waiting[1] = 3;
    world.run(1000, |_| 0.0);
    assert_eq!(world.acts, []);
}

#[test]
fn what_is_kept_goes_on_with_the_cooldown_and_says_nothing_twice() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    world.most = Some(4);
    world.run(11, |_| 500.0);
    assert_eq!((world.outs(), world.acts[0].0), (1, 10));
    let next = |world: &mut World, now: u64| {
        let kept = serde_json::to_string(world.auto.memory()).unwrap();
        let kept = serde_json::from_str(&kept).unwrap();
        world.auto = Auto::resumed(AutoOptions::default(), kept, Duration::from_secs(now));
    };
    next(&mut world, 12);
    world.most = Some(9);
    world.run(58, |_| 500.0);
    assert_eq!(world.acts.len(), 1, "within the cooldown of the one before");
    assert_eq!(world.auto.thought(), "2 s of the cooldown are left");
    world.run(63, |_| 500.0);
    assert_eq!((world.outs(), world.instances[1]), (2, 8));
    world.run(100, |_| 2000.0);
    world.run(100, |_| 2000.0);
    assert!(matches!(world.acts.last(), Some((_, Act::AtLimit { .. }))), "{:?}", world.acts);
    let said = world.acts.len();
    let now = world.now;
    next(&mut world, now);
    world.run(200, |_| 2000.0);
    assert_eq!(world.acts.len(), said, "{:?}", world.acts);
    // A clock that was set back: a whole cooldown from now.
    let kept = world.auto.memory().clone();
    let early = Duration::from_secs(5);
    assert_eq!(Auto::resumed(AutoOptions::default(), kept, early).memory().acted(), Some(early));
}

#[test]
fn what_fails_is_tried_again_ever_more_seldom() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    let mut tried = Vec::new();
    for second in 0..10_000 {
        world.second(Some(500.0));
        if world.acts.len() > tried.len() {
            tried.push(second);
            world.auto.failed();
            (world.instances, world.full_at) = (vec![1, 1], 0);
        }
    }
    let gaps: Vec<u64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [120, 240, 480, 960, 1920, 1920, 1920, 1920], "{tried:?}");
    world.auto.succeeded();
    assert!(world.auto.memory().acted().is_some());
}

#[test]
fn instances_that_have_not_come_are_not_weighed() {
    let mut world = World::new(&[1e6, 100.0], &[1, 1]);
    for _ in 0..11 {
        world.second(Some(1000.0));
    }
    assert_eq!(world.outs(), 1, "{:?}", world.acts);
    // The plan was given up: as many as before.
    world.instances = vec![1, 1];
    world.auto.failed();
    world.run(1000, |_| 1000.0);
    assert_eq!(world.outs(), 2, "it is no useless vertex: {:?}", world.acts);
}

#[test]
fn a_capacity_that_jumps_is_not_believed_before_a_second_look_agrees() {
    let mut world = World::new(&[1e6, 1000.0], &[1, 2]);
    world.run(60, |_| 1000.0);
    assert_eq!(world.acts, []);
    // A machine that stood still for a moment: one look.
    for wrong in [2.0, 50_000.0] {
        world.capacities[1] = wrong;
        world.run(1, |_| 1000.0);
        assert!(
            world.auto.thought().starts_with("it looks again: an instance of `v1`"),
            "{}",
            world.auto.thought()
        );
        world.capacities[1] = 1000.0;
        world.run(30, |_| 1000.0);
        assert_eq!(world.acts, [], "{wrong}");
    }
    // It stays so.
    world.capacities[1] = 50.0;
    world.run(1, |_| 1000.0);
    assert_eq!(world.acts, []);
    world.run(1, |_| 1000.0);
    assert!(matches!(&world.acts[..], [(_, Act::Out { .. })]), "{:?}", world.acts);
}
