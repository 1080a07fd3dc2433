//! Joins of a run on this agent: the tables that their collectors and joiners share, and where rows go that
//! wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use tuplane_core::job::{Job, Op, Stage};
use tuplane_core::plan::{EdgeId, Role, Routing, VertexId};
use tuplane_expr::{JoinProgram, JoinTable, Program, StateOf, VertexProgram, vertex_program};
use tuplane_wire::message::{FaultCode, WireFault};

use super::{Builder, internal, refused, stage_refused};
use crate::engine::operator::{Collector, Joiner, Operator, OperatorError, TableSlot};
use crate::engine::run::Stand;
use crate::engine::tables::{Gives, Tables, Takes};
use crate::exchange::overflow::Overflow;
use crate::exchange::parcels::{Address, Expected, MOST_PARCEL};

/// A slot for each enriching input, by stage.
pub(crate) type JoinTables = HashMap<String, Vec<TableSlot>>;

/// A larger table (bytes in memory) is not copied: a quarter of what may go over is left for what bytes on the way are more.
const MOST_TABLE: u64 = MOST_PARCEL / 4 * 3;

/// Empty slots for all joins of a job; those that there are where instances stay that look into them. `stays`: an instance
/// is in the plan.
pub(super) fn tables(job: &Job, old: Option<&Stand>, stays: &dyn Fn(u32) -> bool) -> JoinTables {
    let joins = job.stages.iter().filter(|stage| matches!(stage.op, Op::HashJoin { .. }));
    let used = |stage: &&Stage| {
        let old = old?;
        let of = |id: VertexId| old.dag.vertex(id).stages.contains(&stage.id);
        let here = old.local.iter().any(|local| of(local.placed.vertex) && stays(local.placed.id));
        old.tables.get(&stage.id).filter(|_| here).cloned()
    };
    let empty = |stage: &Stage| stage.inputs.iter().skip(1).map(|_| TableSlot::default()).collect();
    joins.map(|stage| (stage.id.clone(), used(&stage).unwrap_or_else(|| empty(stage)))).collect()
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

    /// Tables that leave with this plan for agents that get their first instances of a join, and those that come here.
    pub(super) fn copies(&self, stand: &mut Stand) -> Result<Tables, WireFault> {
        let coming = |id| self.plan.coming.contains(&id);
        let mut all = Vec::new();
        for copy in self.dag.table_copies(&self.plan.instances, &coming) {
            let collectors = self.dag.collectors(copy.vertex).enumerate();
            all.extend(collectors.map(|(input, collector)| (copy, input, collector)));
        }
        let mut tables = Tables::default();
        for (place, (copy, input, collector)) in all.iter().enumerate() {
            if self.me != copy.from && self.me != copy.to {
                continue;
            }
            // They come in this order, and before all groups of key partitions.
            let same_way = |(other, ..): &&(_, usize, VertexId)| {
                let other: &tuplane_core::plan::TableCopy = other;
                (other.from, other.to) == (copy.from, copy.to)
            };
            let number = -(all[place..].iter().filter(same_way).count() as i64);
            let (run, attempt, epoch) = (self.plan.run, self.plan.attempt, self.plan.epoch as u32);
            let stage = self.stage(copy.vertex)?;
            let program = vertex_program(&self.job, &self.types, &self.dag, *collector);
            let program = program.map_err(|f| refused(&[f]))?;
            let of = StateOf::of(&self.job, stage, &program);
            let (Program::Join(join), Some(of)) = (&program.program, of) else {
                return Err(internal("what makes the table of a join is none"));
            };
            let slot = self.tables.get(&stage.id).and_then(|slots| slots.get(*input)).cloned();
            let slot = slot.ok_or_else(|| internal("a join has more tables than inputs"))?;
            if self.me == copy.from {
                let table = self.table(stage, &slot)?;
                let session = self.shared.road_to(&self.plan.agents[usize::from(copy.to)], run);
                stand.sessions.entry(copy.to).or_insert_with(|| Arc::clone(&session));
                let to = Address { run, attempt, epoch, number, target: copy.target, edges: Vec::new() };
                tables.gives.push(Gives { session, to, table, of });
                continue;
            }
            let session = self.shared.session_from(&self.plan.agents[usize::from(copy.from)].id);
            let (partitions, inputs) = (vec![0], Vec::new());
            let expected = Expected { run, attempt, epoch, number, target: copy.target, partitions, inputs };
            let arrival = session.expect(expected).ok_or_else(|| internal("a table is expected already"))?;
            let loader = join.loader(*input, of).map_err(|e| stage_refused(stage, &e.to_string()))?;
            tables.takes.push(Takes { arrival, loader, slot });
        }
        Ok(tables)
    }

    /// A table that is complete, and can be copied.
    fn table(&self, stage: &Stage, slot: &TableSlot) -> Result<Arc<JoinTable>, WireFault> {
        let refuse = |why: &str| {
            let agent = &self.shared.me.name;
            WireFault::new(FaultCode::Refused, format!("the table of `{}` on agent {agent} {why}", stage.id))
        };
        let table = slot.get().ok_or_else(|| refuse("is not complete yet; ask again when it is"))?;
        let bytes = table.bytes() as u64;
        if bytes > MOST_TABLE {
            return Err(refuse(&format!(
                "has {} MiB, and one of more than {} MiB is not copied to another agent: put new instances where some are",
                bytes >> 20,
                MOST_TABLE >> 20
            )));
        }
        Ok(Arc::clone(table))
    }

    /// Where a sender's rows go for which an edge's queue has no room.
    pub(super) fn overflow(&self, edge: EdgeId, sender: &VertexProgram) -> Overflow {
        let partitioned = matches!(self.dag.edge(edge).routing, Routing::Partitioned { .. });
        let (name, folder) = (self.dag.edge_name(edge), self.shared.state.clone());
        Overflow::new(name, folder, &sender.output, partitioned, Arc::clone(&self.budget))
    }
}
