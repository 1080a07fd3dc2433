//! Which runs the repetition of Stela's experiments has, and how long they take.

use std::collections::BTreeSet;
use std::time::Duration;

use super::StelaError;
use super::model::{DEFAULT, DEFAULT_N, Predicted, predict};
use super::topology::{TOPOLOGIES, Topology};
use tuplane_core::scale::{Engine, Planners};

/// Phases of a run: until it is in full swing, before the operation, after it.
const WARM_UP: Duration = Duration::from_secs(5);
const BEFORE: Duration = Duration::from_secs(10);
const AFTER: Duration = Duration::from_secs(20);

/// What starting the agents and the job and ending them takes, about.
const AROUND: Duration = Duration::from_secs(5);

/// How much of the plan is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// Three topologies, each configuration once.
    Quick,
    /// All topologies, and the configurations that the publication compares.
    Standard,
    /// Every planner with every mechanism.
    Full,
}

/// How a plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mechanism {
    /// As the product does it: nothing that is not in the plan is touched.
    Live,
    /// Stela's: agents whose part of the job changes restart it.
    RestartMoved,
    /// Storm's rebalance: sources pause, everything is stopped and started anew.
    RestartAll,
}

impl Mechanism {
    const ALL: [Self; 3] = [Self::Live, Self::RestartMoved, Self::RestartAll];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::RestartMoved => "restart-moved",
            Self::RestartAll => "restart-all",
        }
    }
}

/// What a queue does that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// It grows: as in the publication's engine.
    Grow,
    /// It blocks its writer: as a job does unless it says otherwise.
    Block,
}

impl Overflow {
    pub(super) const ALL: [Self; 2] = [Self::Grow, Self::Block];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grow => "grow",
            Self::Block => "block",
        }
    }

    /// What the model calls such an engine.
    pub(super) fn engine(self) -> Engine {
        match self {
            Self::Grow => Engine::Queueing,
            Self::Block => Engine::BackPressured,
        }
    }
}

/// One configuration, run so many times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) topology: &'static Topology,
    pub(super) planner: &'static str,
    pub(super) mechanism: Mechanism,
    pub(super) overflow: Overflow,
}

/// What is set in a run, beside the number of its repeat.
pub(super) const FACTORS: [&str; 4] = ["topology", "planner", "mechanism", "overflow"];

impl Cell {
    /// What names it in tables, by [`FACTORS`].
    pub(super) fn factors(&self) -> Vec<String> {
        [self.topology.key, self.planner, self.mechanism.name(), self.overflow.name()]
            .map(str::to_owned)
            .into()
    }
}

/// Planners that add machines, and those that take some, Storm's default among both.
pub(super) const OUT: [&str; 8] =
    ["stela", "stela-code", "best", "ds2", "round-robin", DEFAULT, DEFAULT_N, "least-link-load"];
pub(super) const IN: [&str; 4] = ["etp-sum", "best", "random", DEFAULT];

/// The planners that fit a topology.
pub(super) fn planners(topology: &Topology) -> &'static [&'static str] {
    if topology.is_scale_out() { &OUT } else { &IN }
}

/// The runs.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) cells: Vec<Cell>,
    pub(super) repeats: u32,
}

impl Plan {
    pub(super) fn new(set: Set) -> Self {
        let topologies = if set == Set::Quick { &TOPOLOGIES[..3] } else { &TOPOLOGIES[..] };
        let mut cells = Vec::new();
        for topology in topologies {
            for overflow in Overflow::ALL {
                let pairs = if set == Set::Full { every(topology) } else { compared(topology) };
                cells.extend(pairs.into_iter().map(|(planner, mechanism)| Cell {
                    topology,
                    planner,
                    mechanism,
                    overflow,
                }));
            }
        }
        Self { cells, repeats: if set == Set::Quick { 1 } else { 3 } }
    }

    /// Runs of all configurations.
    pub(super) fn runs(&self) -> usize {
        self.cells.len() * self.repeats as usize
    }

    /// How long they take, one after the other: they share the machine's cores, so two at a time would not be alone.
    pub(super) fn time(&self) -> Duration {
        let runs = u32::try_from(self.runs()).unwrap_or(u32::MAX);
        (WARM_UP + BEFORE + AFTER + AROUND).saturating_mul(runs)
    }
}

/// Each planner with each mechanism.
fn every(topology: &Topology) -> Vec<(&'static str, Mechanism)> {
    let with = |planner: &'static str| Mechanism::ALL.map(|mechanism| (planner, mechanism));
    planners(topology).iter().flat_map(|planner| with(planner)).collect()
}

/// The standard set.
fn compared(topology: &Topology) -> Vec<(&'static str, Mechanism)> {
    use Mechanism::{Live, RestartAll, RestartMoved};
    if topology.is_scale_out() {
        vec![
            ("stela", Live),
            ("best", Live),
            (DEFAULT, Live),
            (DEFAULT_N, Live),
            (DEFAULT, RestartAll),
            ("stela", RestartMoved),
        ]
    } else {
        vec![
            ("etp-sum", Live),
            ("best", Live),
            ("random", Live),
            (DEFAULT, Live),
            (DEFAULT, RestartAll),
            ("etp-sum", RestartMoved),
        ]
    }
}

/// Names of the command line: planners that are known, and not compared anyway.
///
/// # Errors
/// If one is not.
pub(super) fn also(names: &[String], planners: &Planners) -> Result<Vec<&'static str>, StelaError> {
    let known = |name: &String| {
        if OUT.contains(&name.as_str()) || IN.contains(&name.as_str()) {
            return Err(StelaError::Also(format!("`--also {name}`: it is compared anyway")));
        }
        planners.get(name).map_err(|unknown| StelaError::Also(format!("`--also {name}`: {unknown}")))?;
        // A name of the command line lives as long as the program.
        Ok(&*String::leak(name.clone()))
    };
    names.iter().map(known).collect()
}

/// What the model says of these topologies under every kind of queue and planner, those that are compared, `also`, behind the
/// others; and in which of these has no plan for which topology.
///
/// # Errors
/// If a topology cannot be planned or a planner of the publication's comparison refuses.
pub(super) fn predictions(
    of: &'static [Topology],
    also: &[&'static str],
    among: &Planners,
) -> Result<(Vec<Predicted>, Vec<String>), StelaError> {
    let mut all = Vec::new();
    let mut without = BTreeSet::new();
    for topology in of {
        let placed = topology.place()?;
        for overflow in Overflow::ALL {
            for planner in planners(topology) {
                all.push(predict(&placed, planner, overflow, among)?);
            }
            for planner in also {
                match predict(&placed, planner, overflow, among) {
                    Ok(predicted) => all.push(predicted),
                    Err(refused) => drop(without.insert(refused.to_string())),
                }
            }
        }
    }
    Ok((all, without.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_are_parts_of_the_whole() {
        let factors =
            |set: Set| -> Vec<Vec<String>> { Plan::new(set).cells.iter().map(Cell::factors).collect() };
        let [quick, standard, full] = [Set::Quick, Set::Standard, Set::Full].map(factors);
        // Seven topologies, two kinds of queue, six configurations; in all eight and four planners with three mechanisms.
        assert_eq!((quick.len(), standard.len(), full.len()), (36, 84, (6 * 8 + 4) * 3 * 2));
        let all: BTreeSet<_> = full.iter().collect();
        assert_eq!(all.len(), full.len());
        assert!(
            quick.iter().all(|cell| standard.contains(cell))
                && standard.iter().all(|cell| all.contains(cell))
        );
        assert!(full.iter().all(|cell| cell.len() == FACTORS.len()));
        let plan = Plan::new(Set::Quick);
        assert_eq!((plan.runs(), plan.time()), (36, Duration::from_mins(24)));
        assert_eq!(Plan::new(Set::Standard).runs(), 252);
    }

    #[test]
    fn every_planner_of_the_plan_is_a_planner() {
        let known = Planners::default();
        for planner in OUT.iter().chain(&IN).filter(|planner| **planner != DEFAULT_N) {
            assert!(known.get(planner).is_ok(), "{planner}");
        }
        let own = [
            "storm-default",
            "stela",
            "stela-code",
            "best",
            "ds2",
            "round-robin",
            "least-link-load",
            "etp-sum",
            "random",
        ];
        assert_eq!(known.names().collect::<BTreeSet<_>>(), BTreeSet::from(own), "a planner is not compared");
    }
}
