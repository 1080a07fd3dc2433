//! Strategies of placement on plain numbers: small cases worked out by hand, and what holds of all.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tuplane_core::job::Placement;
use tuplane_core::plan::placement::strategy::{
    Container, Flow, NoRoom, Problem, assign, link_load, round_robin, t_heron,
};

/// A problem that owns its parts. Instances come component by component.
#[derive(Debug, Clone)]
struct Case {
    instances: Vec<usize>,
    standing: Vec<(usize, usize)>,
    flows: Vec<Flow>,
    containers: Vec<Container>,
    costs: Vec<Vec<f64>>,
    within: BTreeMap<usize, Vec<usize>>,
}

impl Case {
    /// So many instances of each component, and empty containers without bound at a cost of 1.
    fn new(counts: &[usize], flows: &[(usize, usize, f64)], containers: usize) -> Self {
        let between = |from| (0..containers).map(|to| f64::from(u8::from(from != to))).collect();
        let of_one = |(component, &n)| std::iter::repeat_n(component, n);
        Self {
            instances: counts.iter().enumerate().flat_map(of_one).collect(),
            standing: Vec::new(),
            flows: flows.iter().map(|&(from, to, rate)| Flow { from, to, rate }).collect(),
            containers: vec![Container::default(); containers],
            costs: (0..containers).map(between).collect(),
            within: BTreeMap::new(),
        }
    }

    fn problem(&self) -> Problem<'_> {
        Problem {
            instances: &self.instances,
            standing: &self.standing,
            flows: &self.flows,
            containers: &self.containers,
            costs: &self.costs,
            within: &self.within,
        }
    }

    fn count(&self, component: usize) -> f64 {
        let standing = self.standing.iter().filter(|(c, _)| *c == component).count();
        (self.instances.iter().filter(|&&c| c == component).count() + standing) as f64
    }

    /// Rows from one instance of a component to one of another.
    fn pair(&self, from: usize, to: usize) -> f64 {
        let flows = self.flows.iter().filter(|flow| (flow.from, flow.to) == (from, to));
        flows.map(|flow| flow.rate / self.count(from) / self.count(to)).sum()
    }

    /// Rows of one instance in all.
    fn of_one(&self, component: usize) -> f64 {
        let own = self.flows.iter().filter(|flow| flow.from == component || flow.to == component);
        own.filter(|flow| self.count(flow.from) * self.count(flow.to) > 0.0)
            .map(|flow| flow.rate)
            .sum::<f64>()
            / self.count(component)
    }

    /// The load of each link if these instances, by component and container, are there, each at `cost`.
    fn loads(&self, placed: &[(usize, usize)], cost: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let k = self.containers.len();
        let mut loads = vec![0.0; k * k];
        for &(from, here) in placed {
            for &(to, there) in placed.iter().filter(|(_, there)| *there != here) {
                loads[here * k + there] += self.pair(from, to) * cost(here, there);
            }
        }
        loads
    }

    fn crossing(&self, placed: &[(usize, usize)]) -> f64 {
        self.loads(placed, |_, _| 1.0).iter().sum()
    }

    fn cap(&self) -> u32 {
        let all = self.instances.len() as u32 + self.containers.iter().map(|c| c.taken).sum::<u32>();
        all.div_ceil(self.containers.len() as u32) + 1
    }
}

/// Two of each, 8 rows along either edge: 2 rows between any two that have any.
fn chain() -> Case {
    Case::new(&[2, 2, 2], &[(0, 1, 8.0), (1, 2, 8.0)], 3)
}

#[test]
fn round_robin_goes_on_from_component_to_component() {
    assert_eq!(round_robin(&chain().problem()).unwrap(), [0, 1, 2, 0, 1, 2]);
    let mut bounded = chain();
    bounded.containers[0].slots = Some(1);
    bounded.containers[2] = Container { slots: Some(3), taken: 3 };
    assert_eq!(round_robin(&bounded.problem()).unwrap(), [0, 1, 1, 1, 1, 1]);
    let mut kept = chain();
    kept.within.insert(1, vec![2, 1]);
    assert_eq!(round_robin(&kept.problem()).unwrap(), [0, 1, 2, 1, 2, 0], "1 goes to 1 and 2 only");
    // Behind a full one all others are dealt alike.
    let mut full = Case::new(&[6], &[], 4);
    full.containers[1].slots = Some(0);
    assert_eq!(round_robin(&full.problem()).unwrap(), [0, 2, 3, 0, 2, 3]);
}

#[test]
fn t_heron_puts_talkers_together() {
    // Those in the middle have most: one here, one there. Each end then has 2 local rows at either, and goes
    // to the emptier, until container 0 has its 3.
    assert_eq!(t_heron(&chain().problem()).unwrap(), [0, 1, 0, 1, 0, 1]);
    // c and d have 100 rows each, a has 8, each b has 4. Nobody draws a to where c and d are.
    let two = Case::new(&[1, 2, 1, 1], &[(0, 1, 8.0), (2, 3, 100.0)], 2);
    assert_eq!(t_heron(&two.problem()).unwrap(), [1, 1, 1, 0, 0]);
    // The same in another order of components, so that it is traffic that counts.
    let two = Case::new(&[1, 1, 1, 2], &[(0, 1, 100.0), (2, 3, 8.0)], 2);
    assert_eq!(t_heron(&two.problem()).unwrap(), [0, 0, 1, 1, 1]);
    // Two flows between the same two are one.
    let split = Case::new(&[1, 1, 1, 1], &[(0, 1, 3.0), (2, 3, 5.0), (0, 1, 3.0)], 2);
    assert_eq!(t_heron(&split.problem()).unwrap(), [0, 0, 1, 1]);
}

#[test]
fn the_cap_and_slots_hold() {
    // Seven over three: at most 4 in one. All others would be drawn to container 0.
    let mut star = Case::new(&[1, 6], &[(0, 1, 6.0)], 3);
    assert_eq!(t_heron(&star.problem()).unwrap(), [0, 0, 0, 0, 1, 2, 1]);
    star.containers[0].slots = Some(2);
    assert_eq!(t_heron(&star.problem()).unwrap(), [0, 0, 1, 2, 1, 2, 1]);
    // What is taken counts: ten over three, at most 5, and 3 are there.
    star.containers[0] = Container { slots: None, taken: 3 };
    assert_eq!(t_heron(&star.problem()).unwrap(), [1, 1, 1, 1, 1, 2, 2]);
    // 1 and 9 slots for 8: the cap is 5 and must give way.
    let mut narrow = Case::new(&[8], &[], 2);
    narrow.containers[0].slots = Some(1);
    narrow.containers[1].slots = Some(9);
    for (_, placement) in Placement::ALL {
        assert_eq!(assign(placement, &narrow.problem()).unwrap(), [0, 1, 1, 1, 1, 1, 1, 1], "{placement:?}");
    }
}

#[test]
fn instances_are_drawn_to_those_that_stand() {
    let mut case = Case::new(&[0, 2], &[(0, 1, 1.0)], 3);
    case.standing = vec![(0, 2)];
    case.containers[2].taken = 1;
    // Three over three: at most 2.
    assert_eq!(t_heron(&case.problem()).unwrap(), [2, 0]);
    // Link 2->0 would carry half of the rows; nothing else does.
    assert_eq!(link_load(&case.problem()).unwrap(), [2, 0]);
    // Only container 1 may take them, whatever its cap.
    case.within.insert(1, vec![1]);
    for (_, placement) in Placement::ALL {
        assert_eq!(assign(placement, &case.problem()).unwrap(), [1, 1], "{placement:?}");
    }
}

#[test]
fn link_load_spares_the_most_loaded_link() {
    // Middle 0 and 1; the senders beside them, else link 0->1 would carry 4. The first taker in container 2
    // loads links 0->2 and 1->2 with 2 each, in 0 or 1 some link would carry 4. The second makes one carry 4
    // anywhere; in 0 (2 rows more in sum) it does so by less than in 2 (4 rows more).
    assert_eq!(link_load(&chain().problem()).unwrap(), [0, 1, 0, 1, 2, 0]);
    // Container 2 at a cost of 10: a taker there would load its links with 20.
    let mut far = chain();
    for k in 0..2 {
        far.costs[k][2] = 10.0;
        far.costs[2][k] = 10.0;
    }
    assert_eq!(link_load(&far.problem()).unwrap(), [0, 1, 0, 1, 0, 1]);
    // Free links are as good as none.
    let mut free = chain();
    free.costs = vec![vec![0.0; 3]; 3];
    assert_eq!(link_load(&free.problem()).unwrap(), [2, 0, 0, 1, 1, 2], "by emptiness alone");
}

#[test]
fn odd_numbers_do_no_harm() {
    let mut odd = Case::new(&[2, 1], &[(0, 1, f64::NAN), (0, 1, -1.0), (1, 2, 5.0)], 2);
    odd.costs = vec![vec![f64::INFINITY, f64::NAN], vec![-1.0, f64::INFINITY]];
    for (_, placement) in Placement::ALL {
        assert_eq!(assign(placement, &odd.problem()).unwrap(), [0, 1, 0], "{placement:?}");
        assert_eq!(assign(placement, &Case::new(&[], &[], 2).problem()), Ok(Vec::new()));
        assert_eq!(assign(placement, &Case::new(&[1], &[], 0).problem()), Err(NoRoom { instance: 0 }));
    }
}

fn case() -> impl Strategy<Value = Case> {
    let counts = prop::collection::vec(0usize..5, 1..5);
    let flows = prop::collection::vec((0usize..5, 0usize..5, 0u32..9), 0..8);
    let containers = prop::collection::vec((prop::option::weighted(0.3, 0u32..9), 0u32..4), 1..5);
    let costs = prop::collection::vec(0u32..4, 16);
    let standing = prop::collection::vec((0usize..5, 0usize..5), 0..4);
    (counts, flows, containers, costs, standing).prop_map(|(counts, flows, containers, costs, standing)| {
        let (n, k) = (counts.len(), containers.len());
        // Forward, as in a graph without cycles.
        let forward = flows.iter().map(|&(a, b, rate)| (a.min(b) % n, a.max(b) % n, f64::from(rate)));
        let flows: Vec<_> = forward.filter(|(from, to, _)| from < to).collect();
        let mut case = Case::new(&counts, &flows, k);
        for (container, &(slots, taken)) in case.containers.iter_mut().zip(&containers) {
            *container = Container { slots, taken };
        }
        case.standing = standing.iter().map(|&(component, at)| (component % n, at % k)).collect();
        for &(_, at) in &case.standing {
            case.containers[at].taken += 1;
        }
        let cost =
            |(from, to): (usize, usize)| if from == to { 0.0 } else { f64::from(costs[from * 4 + to]) };
        case.costs = (0..k).map(|from| (0..k).map(|to| cost((from, to))).collect()).collect();
        case
    })
}

/// Free slots, as far as anybody needs to know.
fn free(container: &Container) -> u32 {
    container.slots.map_or(1000, |slots| slots.saturating_sub(container.taken))
}

/// Replays a greedy strategy from first principles: no step had a choice that weighs less.
fn check_steps(case: &Case, assigned: &[usize], weight: impl Fn(&[(usize, usize)]) -> f64) {
    let mut order: Vec<usize> = (0..assigned.len()).collect();
    // Sums of the same size may differ in their last bits.
    let traffic = |&instance: &usize| (case.of_one(case.instances[instance]) * 1e9).round() as u64;
    order.sort_by_key(|instance| std::cmp::Reverse(traffic(instance)));
    let mut placed = case.standing.clone();
    let mut used: Vec<u32> = case.containers.iter().map(|container| container.taken).collect();
    for instance in order {
        let (component, chosen) = (case.instances[instance], assigned[instance]);
        let has_slot = |k: usize| case.containers[k].slots.is_none_or(|slots| used[k] < slots);
        let below = |k: usize| has_slot(k) && used[k] < case.cap();
        let all = 0..used.len();
        let any_below = all.clone().any(below);
        let rooms: Vec<usize> = all.filter(|&k| if any_below { below(k) } else { has_slot(k) }).collect();
        assert!(rooms.contains(&chosen), "{chosen} of {rooms:?}");
        let mut with = |k: usize| {
            placed.push((component, k));
            let weighs = weight(&placed);
            placed.pop();
            weighs
        };
        let taken = with(chosen);
        for &other in &rooms {
            let weighs = with(other);
            assert!(
                taken <= weighs + 1e-6,
                "{instance} went to {chosen} ({taken}), not to {other} ({weighs})"
            );
        }
        placed.push((component, chosen));
        used[chosen] += 1;
    }
}

proptest! {
    #[test]
    fn every_instance_gets_a_slot_or_there_are_too_few(case in case()) {
        let slots: u32 = case.containers.iter().map(free).sum();
        for (_, placement) in Placement::ALL {
            let Ok(assigned) = assign(placement, &case.problem()) else {
                prop_assert!((slots as usize) < case.instances.len());
                continue;
            };
            prop_assert_eq!(assigned.len(), case.instances.len());
            for (k, container) in case.containers.iter().enumerate() {
                let own = assigned.iter().filter(|&&at| at == k).count() as u32;
                prop_assert!(own <= free(container));
                let bounded = case.containers.iter().any(|container| container.slots.is_some());
                if placement != Placement::RoundRobin && !bounded {
                    prop_assert!(own == 0 || own + container.taken <= case.cap());
                }
            }
            prop_assert_eq!(assign(placement, &case.problem()), Ok(assigned));
        }
    }

    #[test]
    fn each_step_of_t_heron_crosses_least(case in case()) {
        if let Ok(assigned) = t_heron(&case.problem()) {
            check_steps(&case, &assigned, |placed| case.crossing(placed));
        }
    }

    #[test]
    fn each_step_of_link_load_leaves_the_least_greatest_load(case in case()) {
        if let Ok(assigned) = link_load(&case.problem()) {
            let greatest = |placed: &[(usize, usize)]| {
                case.loads(placed, |from, to| case.costs[from][to]).into_iter().fold(0.0, f64::max)
            };
            check_steps(&case, &assigned, greatest);
        }
    }

    /// Whoever has more traffic is spread evenly by both; the others are then put where most of it is, as far
    /// as the cap allows, and round-robin keeps below the cap. (With more flows a greedy choice may lose.)
    #[test]
    fn with_one_flow_t_heron_never_crosses_more_than_round_robin(a in 1usize..9, b in 1usize..9, k in 1usize..7) {
        let case = Case::new(&[a, b], &[(0, 1, 7.0)], k);
        let crossing = |assigned: Vec<usize>| {
            case.crossing(&case.instances.iter().copied().zip(assigned).collect::<Vec<_>>())
        };
        let [dealt, packed] = [round_robin, t_heron].map(|by| crossing(by(&case.problem()).unwrap()));
        prop_assert!(packed <= dealt + 1e-9, "{} > {}", packed, dealt);
    }

    #[test]
    fn only_ratios_of_rates_count(case in case()) {
        let mut louder = case.clone();
        louder.flows.iter_mut().for_each(|flow| flow.rate *= 1024.0);
        for (_, placement) in Placement::ALL {
            prop_assert_eq!(assign(placement, &louder.problem()), assign(placement, &case.problem()));
        }
    }
}
