//! What was asked of a cluster while jobs run, each with a number: who asked, when, and what came of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::job::Job;
use super::rescale::{Rescale, Step};

/// So many operations are remembered, the newest.
pub const KEPT: usize = 200;

/// A change that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// What, as the command says it.
    pub what: String,
    /// Who: a person as `user@host`, or what acts by itself.
    pub by: String,
    /// When, ms since 1970.
    pub at_ms: u64,
    /// The run that it changes, if it changes one.
    pub run: Option<u64>,
    /// The plan that carries it out; `None`: it was over when it was noted.
    pub plan: Option<u64>,
    /// Why it was refused or failed, if it was over by then.
    pub fault: Option<String>,
}

/// A change that was asked for, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// From 1, unique in the cluster.
    pub id: u64,
    /// What was asked, by whom and when.
    pub asked: Asked,
    /// The job's id and name, if it changes one.
    pub job: Option<(u64, String)>,
    /// When it was over, ms since 1970; `None`: it goes on.
    pub ended_ms: Option<u64>,
    /// Why it failed.
    pub fault: Option<String>,
}

impl Operation {
    /// It goes on.
    pub fn is_open(&self) -> bool {
        self.ended_ms.is_none()
    }
}

/// The operations of a cluster, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Operations {
    last: u64,
    all: VecDeque<Operation>,
}

impl Operations {
    /// Those that are remembered, the oldest first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Operation> {
        self.all.iter()
    }

    /// How many older ones are not remembered any more.
    pub fn left_out(&self) -> u64 {
        self.last - self.all.len() as u64
    }

    /// The number of the newest one; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn begin(&mut self, asked: Asked, job: Option<&Job>, at_ms: u64) {
        self.last += 1;
        let ended_ms = asked.plan.is_none().then_some(at_ms);
        let (fault, job) = (asked.fault.clone(), job.map(|job| (job.id, job.name.clone())));
        self.all.push_back(Operation { id: self.last, asked, job, ended_ms, fault });
        if self.all.len() > KEPT {
            self.all.pop_front();
        }
    }

    /// Notes what came of those whose plan is over. `job` gives a job by its id.
    pub(super) fn close<'a>(&mut self, at_ms: u64, job: impl Fn(u64) -> Option<&'a Job>) {
        for open in self.all.iter_mut().filter(|operation| operation.is_open()) {
            let plan =
                open.job.as_ref().and_then(|(id, _)| job(*id)).and_then(|job| entry(job, open.asked.plan));
            match plan {
                Some(plan) if !plan.step.is_final() => {}
                Some(plan) => {
                    open.ended_ms = plan.ended_ms.or(Some(at_ms));
                    let failed = plan.step == Step::Failed;
                    open.fault =
                        plan.fault.clone().or_else(|| failed.then(|| "no reason was kept".to_owned()));
                }
                None => {
                    open.ended_ms = Some(at_ms);
                    open.fault = Some("its job or its plan is not remembered any more".to_owned());
                }
            }
        }
    }
}

/// What is remembered of a plan of a job.
pub fn entry(job: &Job, plan: Option<u64>) -> Option<&Rescale> {
    job.rescales().0.iter().find(|entry| Some(entry.epoch) == plan)
}
