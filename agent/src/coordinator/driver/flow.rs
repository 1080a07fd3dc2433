//! Answers to `etp`: what a running job does, and which of its vertices could have more instances.

use std::time::Instant;

use tuplane_wire::etp::JobFlow;
use tuplane_wire::message::{ClusterReply, WireFault};

use super::Driver;
use super::scale::read;
use crate::coordinator::etp;

impl Driver {
    /// Rates, congestion and ETP of a running job. Which vertices can have no more instances is what `scale out` would be
    /// answered; it is asked again only when that may be another answer.
    pub(super) fn etp(&mut self, name: &str, ratio: Option<f64>) -> Result<ClusterReply, WireFault> {
        let job = self.running(name)?;
        let run = job.run;
        let (spec, dag) = read(job)?;
        let known = self.known(job, &spec, &dag);
        let stands = known.stands();
        let fixed = match self.fixed.get(&run) {
            Some((of, fixed)) if *of == stands => fixed.clone(),
            _ => known.fixed_on(&known.open().collect::<Vec<_>>()),
        };
        let flow = etp::answer(&known, ratio, Instant::now(), &fixed)?;
        let flow = JobFlow { auto: self.thought(job), ..flow };
        self.fixed.insert(run, (stands, fixed));
        Ok(ClusterReply::Etp(Box::new(flow)))
    }
}
