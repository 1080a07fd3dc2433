//! A planner: the next instance goes to the vertex whose instances have least to spare.

use tuplane_core::scale::{Ask, Plan, Planner, Refusal};

/// See docs/own-planners.md.
#[derive(Debug)]
pub(crate) struct Fullest;

impl Planner for Fullest {
    fn name(&self) -> &'static str {
        "fullest"
    }

    fn scale_out(&self, ask: &Ask<'_>) -> Result<Plan, Refusal> {
        let vertices = ask.graph.vertices();
        let mut instances = ask.graph.instances();
        let mut picks = Vec::new();
        while picks.len() < ask.slots as usize {
            let used = |vertex: usize| {
                let takes = f64::from(instances[vertex].max(1)) * vertices[vertex].capacity;
                ask.rates[vertex].processed / takes
            };
            let may =
                |vertex: &usize| vertices[*vertex].max_instances.is_none_or(|most| instances[*vertex] < most);
            let fullest = (0..vertices.len()).filter(may).max_by(|a, b| used(*a).total_cmp(&used(*b)));
            let Some(vertex) = fullest else { break };
            picks.push((vertex, format!("uses {:.0} % of what its instances take", 100.0 * used(vertex))));
            instances[vertex] += 1;
        }
        Ok(Plan::of(self.name(), ask, picks, "every vertex has as many instances as it may have"))
    }
}
