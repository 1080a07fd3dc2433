//! What an instance needs to know of its rows' times: event times, arrivals, and rows that come before they arrive.

use tuplane_core::job::{Op, Stage};
use tuplane_core::plan::Role;
use tuplane_core::plan::placement::Instance as Placed;
use tuplane_expr::system::{SystemColumn, SystemColumns};
use tuplane_expr::{Program, VertexProgram};
use tuplane_wire::message::WireFault;

use super::Builder;
use super::bodies::entering;
use crate::engine::due::DueClock;
use crate::engine::hold::Hold;
use crate::engine::stamp::{Arrivals, Stamper};

impl Builder<'_> {
    /// Where rows may come before they arrive, windows, aggregates and sinks take them when they do.
    pub(super) fn hold(
        &self,
        placed: &Placed,
        program: &VertexProgram,
        bound: u64,
        clock: DueClock,
    ) -> Result<Option<Hold>, WireFault> {
        let stage = self.stage(placed.vertex)?;
        let takes = matches!(stage.op, Op::Sink(_) | Op::Aggregate { .. } | Op::CoAggregate { .. });
        let knows = program.input.iter().any(|input| SystemColumns::of(input).has(SystemColumn::Due));
        Ok((takes && knows && self.looks_ahead()).then(|| Hold::new(clock, bound)))
    }

    /// Some source gives rows before they arrive.
    fn looks_ahead(&self) -> bool {
        self.job.stages.iter().filter_map(|stage| stage.op.source()).any(|source| source.ahead() > 0)
    }

    /// What gives the rows of a vertex their event times.
    pub(super) fn stamper(&self, stage: &Stage, program: &VertexProgram, clock: DueClock) -> Option<Stamper> {
        let Program::Stamp(stamp) = &program.program else { return None };
        let time = match &stage.op {
            Op::Source(source) => source.time.as_ref(),
            Op::AddTimestamps { time } => time.as_ref(),
            _ => None,
        };
        let made = Stamper::new(&stage.id, stamp.clone(), time?, &self.dag);
        Some(if self.looks_ahead() { made.looking_ahead(clock) } else { made })
    }

    /// What a source's instance says of its rows' times itself.
    pub(super) fn source_times(
        &self,
        placed: &Placed,
        program: &VertexProgram,
        clock: DueClock,
    ) -> Result<(Option<Stamper>, Option<Arrivals>), WireFault> {
        let stage = self.stage(placed.vertex)?;
        if !matches!(stage.op, Op::Source(_)) || program.role != Role::Whole {
            return Ok((None, None));
        }
        let known = SystemColumns::of(entering(program)).has(SystemColumn::Due);
        Ok((self.stamper(stage, program, clock), known.then(|| Arrivals::new(clock))))
    }
}
