//! Round-robin: the baseline that any planner has to beat.

use super::{Ask, Plan, Planner, Refusal};

/// Each vertex in turn gets one more instance, in the order of their listing from the first one on, sources included;
/// one that may not have more is passed over.
#[derive(Debug, Clone, Copy)]
pub struct RoundRobin;

impl Planner for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let picks = dealt(ask).into_iter().map(|vertex| (vertex, "is next in turn".to_owned())).collect();
        Ok(Plan::of(self.name(), ask, picks, "every vertex has as many instances as it may have"))
    }
}

/// The vertices that get one more, in turn.
pub(super) fn dealt(ask: &Ask<'_>) -> Vec<usize> {
    let mut instances = ask.graph.instances();
    let mut picks = Vec::new();
    let mut full = 0;
    for vertex in (0..ask.graph.len()).cycle() {
        if picks.len() >= ask.slots as usize || full >= ask.graph.len() {
            break;
        }
        if may_grow(ask, &instances, vertex) {
            instances[vertex] += 1;
            picks.push(vertex);
            full = 0;
        } else {
            full += 1;
        }
    }
    picks
}

/// The vertex may have one more instance.
pub(super) fn may_grow(ask: &Ask<'_>, instances: &[u32], vertex: usize) -> bool {
    instances[vertex] < ask.graph.vertices()[vertex].max_instances.unwrap_or(u32::MAX)
}
