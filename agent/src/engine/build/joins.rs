//! Joins of a run on this agent: the tables that their collectors and joiners share, and where rows go that
//! wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use tuplane_core::job::{Job, Op, Stage};
use tuplane_core::plan::{EdgeId, Role, Routing};
use tuplane_expr::{JoinProgram, VertexProgram};
use tuplane_wire::message::WireFault;

use super::{Builder, stage_refused};
use crate::engine::operator::{Collector, Joiner, Operator, OperatorError, TableSlot};
use crate::exchange::overflow::Overflow;

/// A slot for each enriching input, by stage.
pub(super) type Tables = HashMap<String, Vec<TableSlot>>;

/// Empty slots for all joins of a job.
pub(super) fn tables(job: &Job) -> Tables {
    let joins = job.stages.iter().filter(|stage| matches!(stage.op, Op::HashJoin { .. }));
    let slots = |stage: &Stage| stage.inputs.iter().skip(1).map(|_| TableSlot::default()).collect();
    joins.map(|stage| (stage.id.clone(), slots(stage))).collect()
}

impl Builder<'_> {
    /// A collector of one of the join's inputs, or a joiner.
    pub(super) fn join(
        &self,
        stage: &Stage,
        role: Role,
        program: &JoinProgram,
    ) -> Result<Box<dyn Operator>, WireFault> {
        let slots = self.tables.get(&stage.id).cloned().unwrap_or_default();
        let Role::Collector { input } = role else {
            return Ok(Box::new(Joiner::new(&stage.id, program.clone(), slots)));
        };
        let refused = |e: OperatorError| stage_refused(stage, &e.to_string());
        let input = (input as usize).saturating_sub(1);
        let slot = slots.get(input).cloned().unwrap_or_default();
        Ok(Box::new(Collector::new(&stage.id, program.clone(), input, slot).map_err(refused)?))
    }

    /// Where a sender's rows go for which an edge's queue has no room.
    pub(super) fn overflow(&self, edge: EdgeId, sender: &VertexProgram) -> Overflow {
        let partitioned = matches!(self.dag.edge(edge).routing, Routing::Partitioned { .. });
        let (name, folder) = (self.dag.edge_name(edge), self.shared.state.clone());
        Overflow::new(name, folder, &sender.output, partitioned, Arc::clone(&self.budget))
    }
}
