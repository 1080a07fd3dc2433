//! Why a job cannot be planned: the kind, the moment, and the fault to show.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fault::{At, Fault};
use crate::job::Stage;

/// A job that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{fault}")]
pub struct PlanError {
    /// Whether the stage itself was refused, or the job as a whole.
    pub when: When,
    /// What to show.
    pub fault: Fault,
    /// Which rule was broken.
    pub kind: Kind,
}

impl PlanError {
    pub(super) fn new(kind: Kind, fault: Fault) -> Self {
        Self { when: kind.when(), fault, kind }
    }

    pub(super) fn at_stage(kind: Kind, stage: &Stage, message: impl Into<String>) -> Self {
        Self::new(kind, Fault::new(stage.at, message).stage(stage.id.clone()))
    }

    pub(super) fn at(kind: Kind, at: At, message: impl Into<String>) -> Self {
        Self::new(kind, Fault::new(at, message))
    }

    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.fault = self.fault.help(help);
        self
    }
}

/// The moment at which Jet refuses it: as a stage is attached, or as the whole is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// The stage does not fit its inputs, whatever comes later.
    ApiCall,
    /// The job as a whole does not fit together.
    Planning,
}

impl When {
    /// As the planner cases write it.
    pub fn name(self) -> &'static str {
        match self {
            When::ApiCall => "api-call",
            When::Planning => "planning",
        }
    }
}

/// The rule that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A stage other than a sink has no consumer.
    Incomplete,
    /// A rebalance without a key on an edge that keeps order.
    IsolatedRebalance,
    /// A peek directly on a rebalanced view.
    PeekOnRebalanced,
    /// A window over rows without event time.
    WindowWithoutTimestamps,
    /// A merge of rows with event time and rows without.
    MergeMixedTimestamps,
    /// An explicit parallelism on `add_timestamps`.
    TimestampsParallelism,
    /// `add_timestamps` on rows that have event time.
    TimestampsTwice,
    /// An operation that a stage with a grouping key does not offer.
    NotOfferedOnGrouped,
    /// An operation that a windowed stage does not offer.
    NotOfferedOnWindowed,
    /// An operation that needs its input to end, on a stream.
    NotOfferedOnStream,
    /// A derived vertex name equals another vertex's name.
    NameInUse,
    /// Inputs that are missing, too many, unknown or later than their reader.
    Inputs,
    /// An option that does not fit its stage.
    Option,
    /// A routing policy where there is no choice, or on no edge at all.
    Route,
    /// `instances` where order is kept within an agent.
    Instances,
}

impl Kind {
    /// The moment that goes with the rule.
    pub fn when(self) -> When {
        match self {
            Kind::Incomplete | Kind::IsolatedRebalance | Kind::NameInUse | Kind::Route | Kind::Instances => {
                When::Planning
            }
            _ => When::ApiCall,
        }
    }

    /// The `error` text of the planner cases.
    pub fn case_text(self) -> &'static str {
        match self {
            Kind::Incomplete => {
                "incomplete pipeline: a stage other than a sink has no consumer \
                 (a rebalanced view that nobody reads does not count as a consumer)"
            }
            Kind::IsolatedRebalance => {
                "unkeyed rebalance refused: the edge it applies to is an order-keeping isolated edge \
                 (preserve-order pipeline, or the edge into an add-timestamps vertex)"
            }
            Kind::PeekOnRebalanced => "peek may not be attached directly to a rebalanced view",
            Kind::WindowWithoutTimestamps => "windowed aggregation on a stream without timestamps",
            Kind::MergeMixedTimestamps => "merging a timestamped with a non-timestamped stage",
            Kind::TimestampsParallelism => {
                "the add-timestamps stage does not accept an explicit local parallelism"
            }
            Kind::TimestampsTwice => "timestamps are already assigned on this stage",
            Kind::NotOfferedOnGrouped => {
                "not offered: a stage with a grouping key has no rebalance (and no other keyless) \
                 operation; rebalance must precede groupingKey"
            }
            Kind::NotOfferedOnWindowed => {
                "not offered: a windowed stage has no rebalance operation; rebalance must precede window"
            }
            Kind::NotOfferedOnStream => "not offered: a stream does not end",
            Kind::NameInUse => "vertex name already in use",
            Kind::Inputs => "inputs do not fit the stage",
            Kind::Option => "option does not fit the stage",
            Kind::Route => "routing policy refused",
            Kind::Instances => "instances refused on an order-keeping isolated edge",
        }
    }
}
