//! Which vertex limits a job: the busiest one behind which others are blocked, or before which rows pile up.
//!
//! A full queue blocks its writer, back to the sources. So the vertex that holds a job back is busy
//! itself, and a vertex that writes to it is blocked. Shares are those of the busiest and of the most
//! blocked instance: one full instance holds a vertex back whatever the others do.

use serde::{Deserialize, Serialize};

use crate::plan::{Dag, VertexId};

/// Above this share of time blocked a writer is held back (Flink's bound between OK and LOW).
pub const HELD: f64 = 0.10;

/// Above this share of time an instance counts as busy, or as blocked (Flink's bound to HIGH).
pub const HIGH: f64 = 0.50;

/// Above this share of time the busiest instance of a vertex has no time left for more rows.
pub const FULL: f64 = 0.90;

/// A vertex falls behind if the rows that wait for it are worth more than so many seconds of what it takes.
pub const BEHIND_S: f64 = 1.0;

/// Shares of time of one vertex, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Of its busiest instance.
    pub busy: f64,
    /// Of its most blocked instance.
    pub blocked: f64,
}

impl Load {
    /// The load of a vertex from (busy, blocked) of each of its instances; `None` without any.
    pub fn of(instances: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        instances.into_iter().fold(None, |load: Option<Self>, (busy, blocked)| {
            let so_far = load.unwrap_or_default();
            Some(Self { busy: so_far.busy.max(busy), blocked: so_far.blocked.max(blocked) })
        })
    }

    /// What it mostly does.
    pub fn state(self) -> LoadState {
        if self.blocked > HIGH && self.blocked > self.busy {
            LoadState::Blocked
        } else if self.busy > HIGH {
            LoadState::Busy
        } else {
            LoadState::Idle
        }
    }
}

/// What a vertex mostly does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadState {
    /// Its busiest instance works more than half of the time.
    Busy,
    /// An instance waits more than half of the time for room in an output queue.
    Blocked,
    /// Neither.
    Idle,
}

/// What holds a job back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// The busiest vertex behind which others are blocked.
    Vertex {
        /// Which.
        vertex: VertexId,
        /// The share of its busiest instance.
        busy: f64,
        /// The most blocked vertex that writes to it, directly or through others.
        behind: VertexId,
        /// Its share.
        blocked: f64,
    },
    /// Nobody is blocked yet, and the rows that wait for a full vertex grow towards that.
    Queue {
        /// Which.
        vertex: VertexId,
        /// The share of its busiest instance.
        busy: f64,
        /// Seconds that it needs, at its present rate, for the rows that wait for it.
        waits_s: f64,
    },
    /// Nobody is blocked and a source is busy: it gives as fast as it can.
    Source {
        /// Which.
        vertex: VertexId,
        /// Its share.
        busy: f64,
    },
    /// Somebody is blocked, and no vertex that it writes to is busy: the rows wait on their way.
    Transit {
        /// Who is blocked.
        vertex: VertexId,
        /// Its share.
        blocked: f64,
    },
    /// Nobody is held back: the job keeps up with its input.
    Nothing,
}

/// Finds it from the loads of the vertices, by index; `None` where a load is not known, and as the
/// answer where none is. `waits` are the seconds that each vertex needs, at its present rate, for the rows
/// that wait for it; `None` where that is not known.
///
/// Of several equally busy vertices the last one in topological order is named: the others may be busy
/// only because rows wait there.
pub fn limit(dag: &Dag, loads: &[Option<Load>], waits: &[Option<f64>]) -> Option<Limit> {
    let load = |id: VertexId| loads.get(id.0 as usize).copied().flatten();
    let known = || (0u32..).map(VertexId).take(dag.vertices.len()).filter_map(|id| Some((id, load(id)?)));
    known().next()?;
    let held = |id: VertexId| load(id).is_some_and(|load| load.blocked > HELD);
    let behind = |id: VertexId| dag.inputs(id).any(|(_, edge)| held(edge.from));
    let best = |found: Option<(VertexId, Load)>, next: (VertexId, Load)| match found {
        Some(best) if best.1.busy > next.1.busy => Some(best),
        _ => Some(next),
    };
    let full = known().filter(|(id, load)| load.busy > HIGH && behind(*id)).fold(None, best);
    if let Some((vertex, Load { busy, .. })) = full {
        let (behind, blocked) = most_blocked(dag, vertex, &load)?;
        return Some(Limit::Vertex { vertex, busy, behind, blocked });
    }
    let blocked = known().filter(|(_, load)| load.blocked > HIGH);
    if let Some((vertex, load)) = blocked.max_by(|a, b| a.1.blocked.total_cmp(&b.1.blocked)) {
        return Some(Limit::Transit { vertex, blocked: load.blocked });
    }
    if let Some(found) = piled_up(dag, loads, waits) {
        return Some(found);
    }
    let sources = known().filter(|(id, load)| load.busy > HIGH && dag.inputs(*id).next().is_none());
    Some(match sources.fold(None, best) {
        Some((vertex, load)) => Limit::Source { vertex, busy: load.busy },
        None => Limit::Nothing,
    })
}

/// The full vertex before which most rows have piled up, by the time that it needs for them. Arguments are those of [`limit`].
pub fn piled_up(dag: &Dag, loads: &[Option<Load>], waits: &[Option<f64>]) -> Option<Limit> {
    let waits = |id: VertexId| waits.get(id.0 as usize).copied().flatten().unwrap_or(0.0);
    let all = (0u32..).map(VertexId).take(dag.vertices.len());
    let known = all.filter_map(|id| Some((id, loads.get(id.0 as usize).copied().flatten()?)));
    let behind = known.filter(|(id, load)| load.busy > FULL && waits(*id) > BEHIND_S);
    let (vertex, load) = behind.max_by(|a, b| waits(a.0).total_cmp(&waits(b.0)))?;
    Some(Limit::Queue { vertex, busy: load.busy, waits_s: waits(vertex) })
}

/// The most blocked vertex upstream of one, over writers that are held back without a gap; the nearest
/// of equals.
fn most_blocked(
    dag: &Dag,
    below: VertexId,
    load: &impl Fn(VertexId) -> Option<Load>,
) -> Option<(VertexId, f64)> {
    let mut seen = vec![false; dag.vertices.len()];
    let mut found: Option<(VertexId, f64)> = None;
    let mut next = std::collections::VecDeque::from([below]);
    while let Some(vertex) = next.pop_front() {
        for (_, edge) in dag.inputs(vertex) {
            let from = edge.from;
            let Some(share) = load(from).map(|load| load.blocked).filter(|share| *share > HELD) else {
                continue;
            };
            if std::mem::replace(&mut seen[from.0 as usize], true) {
                continue;
            }
            if found.is_none_or(|(_, most)| share > most) {
                found = Some((from, share));
            }
            next.push_back(from);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{FileFormat, Job};
    use crate::plan::plan;

    /// `a` -> `b` -> `c` -> `d`, unfused.
    fn chain() -> Dag {
        let mut text = "[[stage]]\nid=\"a\"\nop=\"source\"\nconnector=\"nexmark\"\nn=9\n".to_owned();
        for (id, from) in [("b", "a"), ("c", "b")] {
            text.push_str(&format!("[[stage]]\nid=\"{id}\"\nop=\"work\"\nms=1\nin=\"{from}\"\n"));
        }
        text.push_str("[[stage]]\nid=\"d\"\nop=\"sink\"\nin=\"c\"\nconnector=\"stdout\"\nformat=\"csv\"\n");
        let job = Job::parse(&text, FileFormat::Toml).unwrap();
        let dag = plan(&job).unwrap();
        assert_eq!(dag.vertices.len(), 4);
        dag
    }

    #[expect(clippy::unnecessary_wraps, reason = "a list of loads has places without one")]
    fn load(busy: f64, blocked: f64) -> Option<Load> {
        Some(Load { busy, blocked })
    }

    #[test]
    fn the_busiest_behind_which_others_are_blocked() {
        let loads = [load(0.05, 0.91), load(0.3, 0.6), load(0.98, 0.0), load(0.1, 0.0)];
        let found = limit(&chain(), &loads, &[]);
        let (vertex, behind) = (VertexId(2), VertexId(0));
        assert_eq!(found, Some(Limit::Vertex { vertex, busy: 0.98, behind, blocked: 0.91 }));
    }

    #[test]
    fn a_busy_vertex_that_holds_nobody_back_is_not_the_limit() {
        // `c` is busier, and nobody waits for it.
        let loads = [load(0.0, 0.8), load(0.9, 0.0), load(0.97, 0.0), load(0.0, 0.0)];
        let found = limit(&chain(), &loads, &[]);
        assert!(matches!(found, Some(Limit::Vertex { vertex: VertexId(1), .. })), "{found:?}");
    }

    #[test]
    fn a_gap_in_the_chain_of_blocked_writers_ends_it() {
        let loads = [load(0.0, 0.99), load(0.9, 0.0), load(0.0, 0.4), load(0.95, 0.0)];
        let found = limit(&chain(), &loads, &[]);
        let expected = Limit::Vertex { vertex: VertexId(3), busy: 0.95, behind: VertexId(2), blocked: 0.4 };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn without_a_busy_reader_the_rows_wait_on_their_way() {
        let loads = [load(0.1, 0.8), load(0.2, 0.0), load(0.2, 0.0), load(0.1, 0.0)];
        let found = limit(&chain(), &loads, &[]);
        assert_eq!(found, Some(Limit::Transit { vertex: VertexId(0), blocked: 0.8 }));
    }

    #[test]
    fn a_busy_source_or_nothing_at_all() {
        let mut loads = [load(0.97, 0.02), load(0.2, 0.0), load(0.2, 0.0), load(0.1, 0.0)];
        assert_eq!(limit(&chain(), &loads, &[]), Some(Limit::Source { vertex: VertexId(0), busy: 0.97 }));
        loads[0] = load(0.2, 0.0);
        assert_eq!(limit(&chain(), &loads, &[]), Some(Limit::Nothing));
        assert_eq!(limit(&chain(), &[None, None, None, None], &[]), None);
        assert_eq!(limit(&chain(), &[], &[]), None);
    }

    #[test]
    fn a_full_vertex_before_which_rows_pile_up_is_the_limit_before_anybody_is_blocked() {
        let mut loads = [load(0.4, 0.0), load(0.99, 0.0), load(0.95, 0.0), load(0.1, 0.0)];
        let waits = [None, Some(7.4), Some(1.5), Some(0.0)];
        let found = |loads: &[Option<Load>], waits: &[Option<f64>]| limit(&chain(), loads, waits);
        let queue = Limit::Queue { vertex: VertexId(1), busy: 0.99, waits_s: 7.4 };
        assert_eq!(found(&loads, &waits), Some(queue.clone()));
        // A little waits before every busy vertex, and one with time to spare catches up.
        assert_eq!(found(&loads, &[None, Some(0.9), None, None]), Some(Limit::Nothing));
        loads[2] = load(0.6, 0.0);
        assert_eq!(found(&loads, &[None, Some(0.1), Some(9.0), None]), Some(Limit::Nothing));
        // A source that works all the time does not limit what cannot be taken.
        loads[0] = load(0.97, 0.0);
        assert_eq!(found(&loads, &waits), Some(queue));
        // Once somebody is blocked that decides.
        loads[0] = load(0.1, 0.8);
        assert!(matches!(found(&loads, &waits), Some(Limit::Vertex { vertex: VertexId(1), .. })));
    }

    #[test]
    fn one_full_instance_makes_the_vertex_full() {
        let load = Load::of([(0.98, 0.0), (0.1, 0.0), (0.0, 0.2)]).unwrap();
        assert_eq!(load, Load { busy: 0.98, blocked: 0.2 });
        assert_eq!(load.state(), LoadState::Busy);
        assert_eq!(Load { busy: 0.3, blocked: 0.6 }.state(), LoadState::Blocked);
        assert_eq!(Load { busy: 0.6, blocked: 0.55 }.state(), LoadState::Busy);
        assert_eq!(Load::default().state(), LoadState::Idle);
        assert_eq!(Load::of([]), None);
    }
}
