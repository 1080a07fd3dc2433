//! The strategies by which instances get containers, on plain numbers: the planner's agents and the
//! simulator's servers are placed by the same functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::job::Placement;

/// Parts that the rows of all flows together are: what two instances exchange is a whole number of them, so that
/// sums do not depend on an order.
const ALL_ROWS: f64 = (1u128 << 64) as f64;

/// Parts of one unit of cost.
const COST: f64 = (1u64 << 16) as f64;

/// A higher cost counts as this.
const MOST_COST: f64 = (1u64 << 32) as f64;

/// A number of parts of rows as it is compared, in 2^-32 of all rows: each part was rounded, and what is equal
/// but for that is a tie.
fn rounded(rows: u128) -> u128 {
    (rows + (1 << 31)) >> 32
}

/// The same for rows times cost.
fn rounded_load(load: u128) -> u128 {
    (load + (1 << 47)) >> 48
}

/// Rows from all instances of one component to all of another. They are taken to be split evenly over the
/// pairs of instances: before a run nobody knows better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// The component that sends.
    pub from: usize,
    /// The component that takes.
    pub to: usize,
    /// Rows per second, per slot, or relative to other flows: only ratios count.
    pub rate: f64,
}

/// What instances are put into: an agent, or a server of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Container {
    /// Instances that it has room for; as many as come where `None`.
    pub slots: Option<u32>,
    /// Instances that are in it already, whoever's they are.
    pub taken: u32,
}

/// Instances without a container, and all that a strategy looks at. Components and containers are named by
/// numbers from 0; a number that is not there panics.
#[derive(Debug, Clone, Copy)]
pub struct Problem<'a> {
    /// The component of each instance that is to be placed, in the order in which round-robin deals.
    pub instances: &'a [usize],
    /// Component and container of each instance that stands already and has traffic with these. They are
    /// among `taken` of their containers.
    pub standing: &'a [(usize, usize)],
    /// Traffic between components; several flows between the same two add up.
    pub flows: &'a [Flow],
    /// Where instances may go.
    pub containers: &'a [Container],
    /// Cost of a row from one container (row) to another (column), 0 or more; only `link_load` looks at it.
    pub costs: &'a [Vec<f64>],
    /// The containers that the instances of a component may go to; all for components that are not in it.
    pub within: &'a BTreeMap<usize, Vec<usize>>,
}

/// No container that an instance may go to has a slot left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// Which of [`Problem::instances`].
    pub instance: usize,
}

/// The container of each instance, by the strategy of this name.
///
/// # Errors
/// If the containers' `slots` do not suffice.
pub fn assign(placement: Placement, problem: &Problem<'_>) -> Result<Vec<usize>, NoRoom> {
    match placement {
        Placement::RoundRobin => round_robin(problem),
        Placement::THeron => t_heron(problem),
        Placement::LinkLoad => link_load(problem),
    }
}

/// Storm's default: instances are dealt in turn, going on from component to component: each goes to the next
/// container after the last one's, in the order of their numbers, that it may go to and that has a free slot.
///
/// # Errors
/// If the containers' `slots` do not suffice.
pub fn round_robin(problem: &Problem<'_>) -> Result<Vec<usize>, NoRoom> {
    let (all, mut filled) = (problem.all(), Filled::new(problem));
    let mut dealt = Vec::with_capacity(problem.instances.len());
    // Behind a full container the turn goes on from the one that took its place, which else got twice as many.
    let mut next = 0;
    for (instance, &component) in problem.instances.iter().enumerate() {
        let may = problem.may(component, &all).iter().copied();
        let free = may.filter(|&k| filled.has_slot(k));
        let first = free.min_by_key(|&k| (k + all.len() - next) % all.len());
        let container = first.ok_or(NoRoom { instance })?;
        next = (container + 1) % all.len();
        filled.put(component, container);
        dealt.push(container);
    }
    Ok(dealt)
}

/// T-Heron: instances in descending order of all rows that they send and take, each to the container for which
/// the fewest of its rows, to and from instances that have a container already, pass between containers. Ties
/// go to the container with fewer instances, then to the lower number.
///
/// A container takes at most ceil(N / K) + 1 instances, N being all of them, to be placed and `taken`, and K
/// the containers (without that cap one container would get everything); and never more than its slots. Where
/// every container that an instance may go to is at the cap, the cap does not hold for it.
///
/// # Errors
/// If the containers' `slots` do not suffice.
pub fn t_heron(problem: &Problem<'_>) -> Result<Vec<usize>, NoRoom> {
    greedy(problem, &mut Local)
}

/// Least link load. A link leads from one container to another; its load is the rows that go along it times
/// their cost. Instances are taken in the order of [`t_heron`] and under its cap; each goes to the container
/// for which the greatest load of any link, of the instances that have a container already and this one, is
/// least. Ties go to the least sum of all loads, then to the container with fewer instances, then to the lower
/// number.
///
/// # Errors
/// If the containers' `slots` do not suffice.
pub fn link_load(problem: &Problem<'_>) -> Result<Vec<usize>, NoRoom> {
    greedy(problem, &mut Links::new(problem))
}

/// What a greedy strategy keeps small.
trait Weigh {
    type Weight: Ord;

    /// What putting an instance of a component into a container leads to.
    fn weigh(
        &self,
        traffic: &Traffic,
        filled: &Filled<'_>,
        component: usize,
        container: usize,
    ) -> Self::Weight;

    /// An instance goes there; `filled` is how it was before.
    fn put(&mut self, traffic: &Traffic, filled: &Filled<'_>, component: usize, container: usize);
}

/// One instance after the other, in descending order of traffic, to where it weighs least.
fn greedy<W: Weigh>(problem: &Problem<'_>, weigher: &mut W) -> Result<Vec<usize>, NoRoom> {
    let (all, traffic, mut filled) = (problem.all(), Traffic::new(problem), Filled::new(problem));
    for &(component, container) in problem.standing {
        weigher.put(&traffic, &filled, component, container);
        filled.count(component, container);
    }
    let mut order: Vec<usize> = (0..problem.instances.len()).collect();
    order.sort_by_key(|&instance| Reverse(rounded(traffic.of_one[problem.instances[instance]])));
    let mut containers = vec![0; problem.instances.len()];
    for instance in order {
        let component = problem.instances[instance];
        let may = problem.may(component, &all);
        let least = |room: &dyn Fn(usize) -> bool| {
            let weight = |k: usize| (weigher.weigh(&traffic, &filled, component, k), filled.used[k], k);
            may.iter().copied().filter(|&k| room(k)).min_by_key(|&k| weight(k))
        };
        let below_cap = least(&|k| filled.has_slot(k) && filled.used[k] < filled.cap);
        let container = below_cap.or_else(|| least(&|k| filled.has_slot(k))).ok_or(NoRoom { instance })?;
        weigher.put(&traffic, &filled, component, container);
        filled.put(component, container);
        containers[instance] = container;
    }
    Ok(containers)
}

/// Weighs by the rows that stay within the container: all others of the instance pass between containers.
struct Local;

impl Weigh for Local {
    type Weight = Reverse<u128>;

    fn weigh(
        &self,
        traffic: &Traffic,
        filled: &Filled<'_>,
        component: usize,
        container: usize,
    ) -> Self::Weight {
        let peers = traffic.peers[component].iter();
        let local = |peer: &Peer| (peer.sent + peer.taken) * filled.of(peer.component, container);
        Reverse(rounded(peers.map(local).sum()))
    }

    fn put(&mut self, _: &Traffic, _: &Filled<'_>, _: usize, _: usize) {}
}

/// Loads of all links, by containers from and to.
struct Links {
    costs: Vec<Vec<u128>>,
    loads: Vec<Vec<u128>>,
    /// The greatest of them, and the sum of all.
    all: (u128, u128),
}

impl Links {
    fn new(problem: &Problem<'_>) -> Self {
        // What is below 0 becomes 0 by the conversion, and what is no number becomes the most.
        let parts = |cost: &f64| (cost.min(MOST_COST) * COST).round() as u128;
        let costs: Vec<Vec<u128>> = problem.costs.iter().map(|row| row.iter().map(parts).collect()).collect();
        let containers = problem.containers.len();
        Self { costs, loads: vec![vec![0; containers]; containers], all: (0, 0) }
    }

    /// The links whose load an instance in a container would change, with what is added.
    fn added(
        &self,
        traffic: &Traffic,
        filled: &Filled<'_>,
        component: usize,
        container: usize,
    ) -> impl Iterator<Item = ((usize, usize), u128)> {
        let peers = &traffic.peers[component];
        (0..self.loads.len()).filter(move |&other| other != container).flat_map(move |other| {
            let (mut out, mut back) = (0, 0);
            for peer in peers {
                let there = filled.of(peer.component, other);
                out += peer.sent * there;
                back += peer.taken * there;
            }
            [
                ((container, other), out * self.costs[container][other]),
                ((other, container), back * self.costs[other][container]),
            ]
        })
    }

    /// The greatest load and the sum of all, if an instance is in a container too.
    fn with(
        &self,
        traffic: &Traffic,
        filled: &Filled<'_>,
        component: usize,
        container: usize,
    ) -> (u128, u128) {
        let (mut greatest, mut sum) = self.all;
        for ((from, to), load) in self.added(traffic, filled, component, container) {
            greatest = greatest.max(self.loads[from][to] + load);
            sum += load;
        }
        (greatest, sum)
    }
}

impl Weigh for Links {
    /// The greatest load, and the sum of all.
    type Weight = (u128, u128);

    fn weigh(
        &self,
        traffic: &Traffic,
        filled: &Filled<'_>,
        component: usize,
        container: usize,
    ) -> Self::Weight {
        let (greatest, sum) = self.with(traffic, filled, component, container);
        (rounded_load(greatest), rounded_load(sum))
    }

    fn put(&mut self, traffic: &Traffic, filled: &Filled<'_>, component: usize, container: usize) {
        self.all = self.with(traffic, filled, component, container);
        let added: Vec<_> = self.added(traffic, filled, component, container).collect();
        for ((from, to), load) in added {
            self.loads[from][to] += load;
        }
    }
}

/// Rows between single instances, in parts of [`ALL_ROWS`].
struct Traffic {
    /// By component: those that its instances have traffic with.
    peers: Vec<Vec<Peer>>,
    /// By component: what one instance sends and takes in all.
    of_one: Vec<u128>,
}

/// What one instance exchanges with one instance of another component.
struct Peer {
    component: usize,
    sent: u128,
    taken: u128,
}

impl Traffic {
    fn new(problem: &Problem<'_>) -> Self {
        let mut instances = vec![0u32; problem.components()];
        let standing = problem.standing.iter().map(|(component, _)| component);
        for &component in problem.instances.iter().chain(standing) {
            instances[component] += 1;
        }
        let (mut pairs, mut all) = (BTreeMap::<(usize, usize), f64>::new(), 0.0);
        for flow in problem.flows.iter().filter(|flow| flow.rate > 0.0) {
            // What nobody sends, or nobody takes, is no traffic.
            if instances[flow.from] > 0 && instances[flow.to] > 0 {
                *pairs.entry((flow.from, flow.to)).or_default() += flow.rate;
                all += flow.rate;
            }
        }
        let parts = |rate: f64, shares: f64| (rate / all / shares * ALL_ROWS).round() as u128;
        let mut traffic = Self {
            peers: (0..instances.len()).map(|_| Vec::new()).collect(),
            of_one: vec![0; instances.len()],
        };
        for (&(from, to), &rate) in &pairs {
            let (senders, takers) = (f64::from(instances[from]), f64::from(instances[to]));
            let one = parts(rate, senders * takers);
            traffic.peers[from].push(Peer { component: to, sent: one, taken: 0 });
            traffic.peers[to].push(Peer { component: from, sent: 0, taken: one });
            traffic.of_one[from] += parts(rate, senders);
            traffic.of_one[to] += parts(rate, takers);
        }
        traffic
    }
}

impl Problem<'_> {
    /// As many components as anything names.
    fn components(&self) -> usize {
        let standing = self.standing.iter().map(|(component, _)| *component);
        let flowing = self.flows.iter().flat_map(|flow| [flow.from, flow.to]);
        let named = self.instances.iter().copied().chain(standing).chain(flowing);
        named.max().map_or(0, |last| last + 1)
    }

    /// Every container.
    fn all(&self) -> Vec<usize> {
        (0..self.containers.len()).collect()
    }

    /// The containers that an instance may go to, `all` being every one.
    fn may<'k>(&'k self, component: usize, all: &'k [usize]) -> &'k [usize] {
        self.within.get(&component).map_or(all, Vec::as_slice)
    }
}

/// How full containers are.
struct Filled<'a> {
    problem: &'a Problem<'a>,
    /// By container: instances in it.
    used: Vec<u32>,
    /// By component and container: instances with traffic.
    counts: Vec<Vec<u32>>,
    cap: u32,
}

impl<'a> Filled<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let used: Vec<u32> = problem.containers.iter().map(|container| container.taken).collect();
        let instances = problem.instances.len() as u32 + used.iter().sum::<u32>();
        Self {
            problem,
            counts: vec![vec![0; used.len()]; problem.components()],
            cap: instances.div_ceil(used.len().max(1) as u32) + 1,
            used,
        }
    }

    fn has_slot(&self, container: usize) -> bool {
        self.problem.containers[container].slots.is_none_or(|slots| self.used[container] < slots)
    }

    fn of(&self, component: usize, container: usize) -> u128 {
        u128::from(self.counts[component][container])
    }

    fn count(&mut self, component: usize, container: usize) {
        self.counts[component][container] += 1;
    }

    fn put(&mut self, component: usize, container: usize) {
        self.count(component, container);
        self.used[container] += 1;
    }
}
