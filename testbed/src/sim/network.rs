//! Networks of servers and switches, and how many switches lie between two servers.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// How servers are joined.
#[derive(Debug, Clone, PartialEq)]
pub enum Network {
    /// A Fat-Tree of 24 switches: 8 edge, 8 aggregation and 8 core switches in 4 pods (potus.md F15). Each pod has
    /// two edge and two aggregation switches, each edge switch is joined to both aggregation switches of its pod,
    /// and each of these to 4 core switches; 2 servers hang on an edge switch.
    FatTree,
    /// A random regular graph of switches, connected; the servers are spread over them in turn.
    Jellyfish {
        /// Switches.
        switches: u32,
        /// Links of a switch to other switches.
        degree: u32,
        /// Servers.
        servers: u32,
        /// Draws the graph.
        seed: u64,
    },
    /// Costs written out: of a row from one server (outer) to another.
    Matrix(Vec<Vec<f64>>),
}

/// The network cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No graph has such degrees.
    #[error(
        "no network of {switches} switches with {degree} links each: the links need an even sum, fewer than {switches} at a switch and, beyond 2 switches, at least 2"
    )]
    Degrees {
        /// Switches.
        switches: u32,
        /// Links of each.
        degree: u32,
    },
    /// No draw gave a connected graph.
    #[error(
        "no connected network of {switches} switches with {degree} links each was found; take another seed"
    )]
    Apart {
        /// Switches.
        switches: u32,
        /// Links of each.
        degree: u32,
    },
}

/// Pods, edge switches in a pod, servers on an edge switch, core switches of the Fat-Tree.
const PODS: usize = 4;
const EDGES: usize = 2;
const LEAVES: usize = 2;
const CORES: usize = 8;

/// Draws of a random graph before it is given up. Of degree 4 about one in 40 is simple.
const DRAWS: usize = 100_000;

impl Network {
    /// Jellyfish as the publication has it: 24 switches, 16 servers. The degree is not given there; 4 is what its
    /// own Fat-Tree's edge switches have.
    pub fn jellyfish(seed: u64) -> Self {
        Self::Jellyfish { switches: 24, degree: 4, servers: 16, seed }
    }

    /// Switches that a row passes from each server to each other, which is what one hop counts here; 0 to itself.
    pub fn costs(&self) -> Result<Vec<Vec<f64>>, NetworkError> {
        match self {
            Self::Matrix(costs) => Ok(costs.clone()),
            Self::FatTree => Ok(hops(&fat_tree(), PODS * EDGES * LEAVES)),
            Self::Jellyfish { switches, degree, servers, seed } => {
                jellyfish(*switches, *degree, *servers, *seed)
            }
        }
    }
}

/// Neighbours of each node; the servers come first.
type Graph = Vec<Vec<usize>>;

fn join(graph: &mut Graph, one: usize, other: usize) {
    graph[one].push(other);
    graph[other].push(one);
}

fn fat_tree() -> Graph {
    let servers = PODS * EDGES * LEAVES;
    let edge = |pod: usize, number: usize| servers + pod * EDGES + number;
    let aggregation = |pod: usize, number: usize| servers + PODS * EDGES + pod * EDGES + number;
    let core = |number: usize| servers + 2 * PODS * EDGES + number;
    let mut graph = vec![Vec::new(); core(CORES)];
    for pod in 0..PODS {
        for number in 0..EDGES {
            for leaf in 0..LEAVES {
                join(&mut graph, (pod * EDGES + number) * LEAVES + leaf, edge(pod, number));
            }
            for other in 0..EDGES {
                join(&mut graph, edge(pod, number), aggregation(pod, other));
            }
            for link in 0..CORES / EDGES {
                join(&mut graph, aggregation(pod, number), core(number * CORES / EDGES + link));
            }
        }
    }
    graph
}

fn jellyfish(switches: u32, degree: u32, servers: u32, seed: u64) -> Result<Vec<Vec<f64>>, NetworkError> {
    let possible = (switches * degree).is_multiple_of(2)
        && degree < switches.max(1)
        && (degree >= 2 || switches <= 1 || (switches == 2 && degree == 1));
    if !possible {
        return Err(NetworkError::Degrees { switches, degree });
    }
    let (switches, degree, servers) = (switches as usize, degree as usize, servers as usize);
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..DRAWS {
        let Some(links) = regular(switches, degree, &mut random) else { continue };
        let mut graph = vec![Vec::new(); servers + switches];
        for server in 0..servers {
            join(&mut graph, server, servers + server % switches);
        }
        for (one, other) in links {
            join(&mut graph, servers + one, servers + other);
        }
        let hops = hops(&graph, servers);
        if hops.iter().flatten().all(|hops| hops.is_finite()) {
            return Ok(hops);
        }
    }
    Err(NetworkError::Apart { switches: switches as u32, degree: degree as u32 })
}

/// Pairs the ends of links at random, over again where a pair cannot be; `None` where the last ends cannot be
/// paired (Steger and Wormald's way to a random regular graph).
fn regular(switches: usize, degree: usize, random: &mut SmallRng) -> Option<Vec<(usize, usize)>> {
    let mut ends: Vec<usize> = (0..switches * degree).map(|end| end / degree).collect();
    ends.shuffle(random);
    let mut links: Vec<(usize, usize)> = Vec::with_capacity(ends.len() / 2);
    while let Some(one) = ends.pop() {
        let fits: Vec<usize> = (0..ends.len())
            .filter(|&place| {
                let other = ends[place];
                other != one && !links.contains(&(one, other)) && !links.contains(&(other, one))
            })
            .collect();
        if fits.is_empty() {
            return None;
        }
        let other = ends.swap_remove(fits[random.random_range(0..fits.len())]);
        links.push((one, other));
    }
    Some(links)
}

/// Nodes on the shortest way between the first `servers` nodes; infinite where there is none.
fn hops(graph: &Graph, servers: usize) -> Vec<Vec<f64>> {
    (0..servers)
        .map(|server| {
            let mut far = vec![f64::INFINITY; graph.len()];
            far[server] = 0.0;
            let mut todo = std::collections::VecDeque::from([server]);
            while let Some(node) = todo.pop_front() {
                for &next in &graph[node] {
                    if far[next].is_infinite() {
                        far[next] = far[node] + 1.0;
                        todo.push_back(next);
                    }
                }
            }
            let between = |links: f64| (links - 1.0).max(0.0);
            far.truncate(servers);
            far.into_iter().map(between).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fat_tree_has_16_servers_1_3_or_5_switches_apart() {
        let costs = Network::FatTree.costs().unwrap();
        assert_eq!(costs.len(), 16);
        assert_eq!(fat_tree().len() - 16, 24);
        let row: Vec<f64> = vec![0.0, 1.0, 3.0, 3.0, 5.0, 5.0, 5.0, 5.0];
        assert_eq!(costs[0][..8], row);
        assert_eq!(costs[15][..1], [5.0]);
    }

    #[test]
    fn a_network_that_cannot_be_is_refused() {
        let network =
            |switches, degree| Network::Jellyfish { switches, degree, servers: 4, seed: 1 }.costs().is_err();
        assert!(network(5, 3) && network(4, 4) && network(4, 1));
        assert!(!network(4, 3) && !network(2, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_jellyfish_is_regular_connected_and_drawn_by_its_seed(seed in 0u64..10_000) {
            let mut random = SmallRng::seed_from_u64(seed);
            if let Some(links) = regular(24, 4, &mut random) {
                for switch in 0..24 {
                    let mut ends: Vec<usize> = links.iter().filter(|(a, b)| *a == switch || *b == switch).map(|(a, b)| a + b - switch).collect();
                    ends.sort_unstable();
                    ends.dedup();
                    prop_assert_eq!(ends.len(), 4);
                    prop_assert!(!ends.contains(&switch));
                }
            }
            let costs = Network::jellyfish(seed).costs().unwrap();
            prop_assert_eq!(costs.len(), 16);
            for (from, row) in costs.iter().enumerate() {
                for (to, hops) in row.iter().enumerate() {
                    prop_assert!(hops.total_cmp(&costs[to][from]).is_eq());
                    prop_assert!((from == to) == (*hops == 0.0) && (from == to || (2.0..=8.0).contains(hops)));
                }
            }
            prop_assert_eq!(Network::jellyfish(seed).costs().unwrap(), costs);
        }
    }
}
