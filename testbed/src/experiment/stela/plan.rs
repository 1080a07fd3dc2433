//! Which runs the repetition of Stela's experiments has, and how long they take.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tuplane_core::fault::suggestion;
use tuplane_core::job;
use tuplane_core::scale::{Engine, Planners};

use super::StelaError;
use super::model::{DEFAULT, DEFAULT_N, Predicted, predict};
use super::topology::{TOPOLOGIES, Topology};

/// The most runs of a configuration.
const MOST_REPEATS: u32 = 100;

/// Phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phases {
    /// Until it is in full swing.
    pub(super) warm_up: Duration,
    /// Before the operation; a job's rates are means over 10 s.
    pub(super) before: Duration,
    /// After it.
    pub(super) after: Duration,
}

/// What starting the agents and the job, working off what waits, and ending them takes, about.
const AROUND: Duration = Duration::from_secs(6);

/// How much of the plan is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// Three topologies, each configuration once.
    Quick,
    /// All topologies, and the configurations that the publication compares.
    Standard,
    /// Every planner with every mechanism.
    Full,
}

impl Set {
    /// How long the phases of its runs are. Where queues grow an instance that is moved has to get through what has come in
    /// all the time before: the second half of the time after the operation begins later.
    fn phases(self, overflow: Overflow) -> Phases {
        let of = |warm_up, before, after| Phases {
            warm_up: Duration::from_secs(warm_up),
            before: Duration::from_secs(before),
            after: Duration::from_secs(after),
        };
        match (self, overflow) {
            (Self::Quick, Overflow::Block) => of(6, 6, 10),
            (Self::Quick, Overflow::Grow) => of(6, 6, 16),
            (_, Overflow::Block) => of(10, 10, 20),
            (_, Overflow::Grow) => of(10, 10, 40),
        }
    }

    /// Runs of each configuration.
    fn repeats(self) -> u32 {
        if self == Self::Quick { 1 } else { 3 }
    }
}

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How much of the plan.
    pub set: Set,
    /// These topologies alone; all of the set's where none is named.
    pub topologies: Vec<String>,
    /// These planners alone, of all that there are.
    pub planners: Vec<String>,
    /// These mechanisms alone, of all that there are.
    pub mechanisms: Vec<String>,
    /// These kinds of queue alone: `grow` or `block`.
    #[serde(default)]
    pub overflows: Vec<String>,
    /// Runs of each configuration; the set's number if nothing is said.
    pub repeats: Option<u32>,
}

impl Options {
    /// All of a set.
    pub fn new(set: Set) -> Self {
        Self {
            set,
            topologies: Vec::new(),
            planners: Vec::new(),
            mechanisms: Vec::new(),
            overflows: Vec::new(),
            repeats: None,
        }
    }
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
    pub(super) const ALL: [Self; 3] = [Self::Live, Self::RestartMoved, Self::RestartAll];

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

    /// In words: what queues do.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Grow => "queues grow",
            Self::Block => "queues block",
        }
    }

    /// What of a job file is set, beside what it says: `--set` of the command line.
    pub(super) fn sets(self) -> &'static [&'static str] {
        match self {
            // Rows are short, so that as many as come in a minute fit into the memory; it is a limit and not taken beforehand.
            Self::Grow => &["job.overflow=grow", "job.memory=64MiB", "feed.payload=100"],
            Self::Block => &[],
        }
    }

    /// What the model calls such an engine.
    pub(super) fn engine(self) -> Engine {
        Engine::from(match self {
            Self::Grow => job::Overflow::Grow,
            Self::Block => job::Overflow::Block,
        })
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
    /// Configurations.
    pub(super) cells: Vec<Cell>,
    pub(super) repeats: u32,
    set: Set,
}

impl Plan {
    /// What these options ask for.
    ///
    /// # Errors
    /// If they name what there is not, or nothing is left.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        let Options { set, topologies, planners, mechanisms, overflows, repeats } = options;
        let all = || TOPOLOGIES.iter();
        known("topology", topologies, &all().map(|topology| topology.key).collect::<Vec<_>>())?;
        known("planner", planners, &OUT.iter().chain(&IN).copied().collect::<Vec<_>>())?;
        known("mechanism", mechanisms, &Mechanism::ALL.map(Mechanism::name))?;
        known("overflow", overflows, &Overflow::ALL.map(Overflow::name))?;
        let chosen = |of: &[String], name: &str| of.is_empty() || of.iter().any(|one| one == name);
        let some = if *set == Set::Quick && topologies.is_empty() { 3 } else { TOPOLOGIES.len() };
        // Who names planners or mechanisms is not bound to the pairs that are compared anyway.
        let by_name = !planners.is_empty() || !mechanisms.is_empty();
        let mut cells = Vec::new();
        for topology in all().take(some).filter(|topology| chosen(topologies, topology.key)) {
            let pairs = if by_name || *set == Set::Full { every(topology) } else { compared(topology) };
            let pairs = || {
                let named = |(planner, how): &&(&str, Mechanism)| {
                    chosen(planners, planner) && chosen(mechanisms, how.name())
                };
                pairs.iter().filter(named)
            };
            for overflow in Overflow::ALL.into_iter().filter(|one| chosen(overflows, one.name())) {
                let cell = |(planner, mechanism): &(&'static str, Mechanism)| Cell {
                    topology,
                    planner,
                    mechanism: *mechanism,
                    overflow,
                };
                cells.extend(pairs().map(cell));
            }
        }
        if cells.is_empty() {
            return Err("no configuration is left: a planner either adds machines or takes some".to_owned());
        }
        let repeats = repeats.unwrap_or(set.repeats());
        if !(1..=MOST_REPEATS).contains(&repeats) {
            return Err(format!("`--repeats` is from 1 to {MOST_REPEATS}"));
        }
        Ok(Self { cells, repeats, set: *set })
    }

    /// How long the phases of a configuration's runs are.
    pub(super) fn phases(&self, overflow: Overflow) -> Phases {
        self.set.phases(overflow)
    }

    /// The kinds of queue that are run.
    pub(super) fn overflows(&self) -> impl Iterator<Item = Overflow> {
        Overflow::ALL.into_iter().filter(|one| self.cells.iter().any(|cell| cell.overflow == *one))
    }

    /// Runs of all configurations.
    pub(super) fn runs(&self) -> usize {
        self.cells.len() * self.repeats as usize
    }

    /// How long they take, one after the other: they share the machine's cores, so two at a time would not be alone.
    pub(super) fn time(&self) -> Duration {
        let of = |cell: &Cell| {
            let Phases { warm_up, before, after } = self.phases(cell.overflow);
            warm_up + before + after + AROUND
        };
        self.cells.iter().map(of).sum::<Duration>().saturating_mul(self.repeats)
    }
}

/// What is named is there.
fn known(what: &str, named: &[String], there: &[&str]) -> Result<(), String> {
    match named.iter().find(|name| !there.contains(&name.as_str())) {
        Some(name) => {
            let near = suggestion(name, there.iter().copied());
            let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            Err(format!("`--{what} {name}`: there is none of that name, but {}{near}", there.join(", ")))
        }
        None => Ok(()),
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

    fn plan(set: Set) -> Plan {
        Plan::new(&Options::new(set)).unwrap()
    }

    #[test]
    fn the_sets_are_parts_of_the_whole() {
        let factors = |set: Set| -> Vec<Vec<String>> { plan(set).cells.iter().map(Cell::factors).collect() };
        let [quick, standard, full] = [Set::Quick, Set::Standard, Set::Full].map(factors);
        // Seven topologies, six configurations under both kinds of queue; in all eight and four planners with three mechanisms.
        assert_eq!((quick.len(), standard.len(), full.len()), (36, 84, (6 * 8 + 4) * 3 * 2));
        let all: BTreeSet<_> = full.iter().collect();
        assert_eq!(all.len(), full.len());
        assert!(
            quick.iter().all(|cell| standard.contains(cell))
                && standard.iter().all(|cell| all.contains(cell))
        );
        assert!(full.iter().all(|cell| cell.len() == FACTORS.len()));
        // A person can wait for it.
        let blocks = Options { overflows: vec!["block".to_owned()], ..Options::new(Set::Quick) };
        let blocks = Plan::new(&blocks).unwrap();
        assert!(blocks.time() < Duration::from_mins(10));
        assert_eq!((blocks.cells.len(), blocks.overflows().collect::<Vec<_>>()), (18, vec![Overflow::Block]));
        assert!(plan(Set::Quick).time() < Duration::from_mins(20));
        assert_eq!(plan(Set::Standard).runs(), 252);
    }

    #[test]
    fn what_is_named_is_run_and_what_there_is_not_is_refused() {
        let named = Options {
            topologies: vec!["star".to_owned(), "linear".to_owned()],
            planners: vec!["best".to_owned()],
            mechanisms: vec!["live".to_owned()],
            repeats: Some(5),
            ..Options::new(Set::Standard)
        };
        let plan = Plan::new(&named).unwrap();
        assert_eq!((plan.cells.len(), plan.runs()), (4, 20));
        let why = |options: &Options| Plan::new(options).unwrap_err();
        let slip = Options { planners: vec!["bets".to_owned()], ..named.clone() };
        assert!(why(&slip).contains("did you mean `best`?"), "{}", why(&slip));
        let none = Options { planners: vec!["etp-sum".to_owned()], ..named.clone() };
        assert!(why(&none).starts_with("no configuration is left"));
        let kind = Options { overflows: vec!["grows".to_owned()], ..named.clone() };
        assert!(why(&kind).contains("did you mean `grow`?"), "{}", why(&kind));
        assert!(why(&Options { repeats: Some(0), ..named }).contains("--repeats"));
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
