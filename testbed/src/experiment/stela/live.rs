//! One run with agents: warms up, measures, has a planner's choice carried out, and measures what comes of it.

mod cluster;
pub(super) mod gaps;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tuplane_core::scale::{
    Calibrated, Engine, FlowGraph, FlowVertex, Placement, Planners, Rates, calibrated,
};

use super::measure::{Convergence, Series, Tally, tally};
use super::model::{Choice, Situation};
use super::plan::{Cell, Overflow, Phases};
use super::topology::Placed;
use crate::bench::cpu_of_machine;
use crate::experiment::{Stop, rounded};
use cluster::{Cluster, Counted, Running};

/// What is measured in a run, in the table's order; times in ms, rates in rows a second.
pub(super) const METRICS: [&str; 21] = [
    "before",
    "after",
    "predicted_before",
    "calibration",
    "predicted_after",
    "error",
    "slots",
    "moved",
    "operation_ms",
    "convergence_ms",
    "downtime_ms",
    "longest_gap_ms",
    "gap_ms",
    "usual_gap_ms",
    "expected",
    "lost",
    "duplicated",
    "dropped",
    "cores_used",
    "minutes",
    "overrun",
];

/// The source of every job.
const FEED: &str = "feed";

/// The longest gap is looked for in so much time after the operation.
const SOON: usize = 2000;

/// The share of gaps that is usual.
const USUAL: f64 = 0.999;

/// Nanoseconds since 1970 by the wall clock as it was once, and a monotonic one from there: as sinks stamp their rows.
struct Clock {
    wall: u64,
    start: Instant,
}

impl Clock {
    fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { wall: u64::try_from(wall).unwrap_or(u64::MAX), start: Instant::now() }
    }

    /// The moment at which it was started.
    fn origin(&self) -> u64 {
        self.wall
    }

    /// Whole milliseconds from then to another one.
    fn ms(&self, at: Instant) -> usize {
        at.saturating_duration_since(self.start).as_millis() as usize
    }
}

/// Waits so long; false if it is to end early.
fn wait(time: Duration, stop: &Stop) -> bool {
    const LOOK: Duration = Duration::from_millis(50);
    let end = Instant::now() + time;
    while !stop.is_set() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK));
    }
    false
}

/// Does a run; `None`: it was interrupted.
pub(super) fn run(cell: &Cell, phases: &Phases, stop: &Stop) -> Result<Option<Vec<Option<f64>>>> {
    let outcome = whole(cell, phases, stop);
    // A command that fails because the program ends is no failure.
    if stop.is_set() { Ok(None) } else { outcome }
}

fn whole(cell: &Cell, phases: &Phases, stop: &Stop) -> Result<Option<Vec<Option<f64>>>> {
    let topology = cell.topology;
    let mut cluster = Cluster::start(topology.machines.before, Some(topology.kind.cores))?;
    let began = Instant::now();
    match measured(&mut cluster, cell, phases, stop) {
        Err(_) if cell.overflow == Overflow::Grow && cluster.is_overrun() => {
            Ok(Some(overrun(began.elapsed())))
        }
        outcome => outcome,
    }
}

/// What there is to say of a run that was ended because queues had filled the memory.
fn overrun(after: Duration) -> Vec<Option<f64>> {
    let of = |metric: &str| match metric {
        "minutes" => Some(rounded(after.as_secs_f64() / 60.0)),
        "overrun" => Some(1.0),
        _ => None,
    };
    METRICS.map(of).into()
}

fn measured(
    cluster: &mut Cluster,
    cell: &Cell,
    phases: &Phases,
    stop: &Stop,
) -> Result<Option<Vec<Option<f64>>>> {
    let began = Instant::now();
    let (topology, placed) = (cell.topology, cell.topology.place()?);
    let machines = topology.machines;
    cluster.submit(topology.file.0, topology.file.1, cell.overflow.sets())?;
    let there = cluster.agents.len();
    if topology.is_scale_out() {
        cluster.add(machines.after - machines.before)?;
    }
    if !wait(phases.warm_up, stop) {
        return Ok(None);
    }
    let (clock, cpu) = (Clock::start(), cpu_of_machine()?);
    if !wait(phases.before, stop) {
        return Ok(None);
    }
    let now = Now::of(cluster, &placed, there, cell.overflow.engine())?;
    let more: Vec<_> = cluster.agents[there..].iter().map(|agent| topology.host(agent)).collect();
    let choice = now.situation(&placed, cell, &Planners::default()).choose(cell.planner, &more);
    let choice = choice.map_err(|why| anyhow::anyhow!("`{}` has no plan: {why}", cell.planner))?;
    let plan = now.plan(&placed.graph, &choice, cell.planner);
    // What is there before and stays as it is has nothing that could be carried out.
    let at = match plan {
        Some(plan) => cluster.apply(&plan, cell.mechanism.name())?,
        None => Instant::now(),
    };
    let operation = at.elapsed();
    if !wait(phases.after.saturating_sub(at.elapsed()), stop) {
        return Ok(None);
    }
    let (end, used) = (Instant::now(), cpu_of_machine()? - cpu);
    let seconds = clock.ms(end) as f64 / 1000.0;
    let operators: Vec<String> = placed.graph.vertices().iter().map(|vertex| vertex.id.clone()).collect();
    let counted = cluster.drain(FEED, &operators)?;
    cluster.cancel()?;
    let came = Came::read(cluster, &placed.sinks().collect::<Vec<_>>())?;
    let rows = came.tally(&counted, |sink, number| placed.copies(sink, number));
    let (at, end) = (clock.ms(at), clock.ms(end));
    let series = came.series(&clock, end);
    let before = series.throughput(&(0..at));
    // It has converged by then, or `convergence` says when.
    let after = series.throughput(&(usize::midpoint(at, end)..end));
    let count = |rows: u64| Some(rows as f64);
    let usual = series.usual_gap(&(0..at), USUAL) as f64;
    let longest = series.longest_gap(&(at..end.min(at + SOON))) as f64;
    let metrics: [Option<f64>; METRICS.len()] = [
        before,
        after,
        Some(now.modelled),
        Some(now.calibration),
        Some(choice.after),
        after.map(|after| after / choice.after - 1.0),
        topology.is_scale_out().then_some(f64::from(choice.slots)),
        Some(choice.moved as f64),
        Some(operation.as_millis() as f64),
        series.convergence(at, &Convergence::short(at, end)).map(|ms| ms as f64),
        Some(series.downtime(&(0..at), &(at..end)) as f64),
        Some(longest),
        Some((longest - usual).max(0.0)),
        Some(usual),
        count(rows.expected),
        count(rows.lost),
        count(rows.duplicated),
        count(counted.dropped),
        Some(used / seconds),
        Some(began.elapsed().as_secs_f64() / 60.0),
        Some(0.0),
    ];
    Ok(Some(metrics.into_iter().map(|figure| figure.map(rounded)).collect()))
}

/// A running job as a planner sees it: its operators with measured capacities and rates, and where they are.
struct Now {
    /// Calibrated: the model says of it what was measured.
    graph: FlowGraph,
    /// What it said before, rows a second at the sinks.
    modelled: f64,
    /// What capacities were scaled by.
    calibration: f64,
    rates: Vec<Rates>,
    placement: Placement,
    /// Names of the operators' instances, as the placement has them.
    names: Vec<Vec<String>>,
}

impl Now {
    /// Of a job whose machines are the first agents, so many.
    fn of(cluster: &Cluster, placed: &Placed, machines: usize, engine: Engine) -> Result<Self> {
        let doc = cluster.rates()?;
        let vertices = doc["vertices"].as_array().context("no rates")?;
        let mut rates = Vec::new();
        let mut measured = Vec::new();
        for operator in placed.graph.vertices() {
            let found = vertices.iter().find(|vertex| vertex["vertex"] == operator.id.as_str());
            let found = found.with_context(|| format!("no rates of `{}`", operator.id))?;
            let figure = |field: &str| {
                let why = found["why"][field].as_str().unwrap_or("no reason is given");
                found[field].as_f64().with_context(|| format!("`{field}` of `{}`: {why}", operator.id))
            };
            measured.push(FlowVertex { capacity: figure("capacity_alone_per_s")?, ..operator.clone() });
            rates.push(Rates {
                input: figure("input_per_s")?,
                processed: figure("processed_per_s")?,
                emitted: figure("emitted_per_s")?,
            });
        }
        let graph = FlowGraph::new(measured, placed.graph.edges().to_vec());
        let graph = graph.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        let running = cluster.running()?;
        let (mut on, mut names) = (Vec::new(), Vec::new());
        for operator in placed.graph.vertices() {
            let mut own: Vec<&Running> = running.iter().filter(|one| one.vertex == operator.id).collect();
            own.sort_by_key(|one| one.number);
            let place = |one: &&Running| cluster.agents.iter().position(|agent| *agent == one.agent);
            on.push(own.iter().map(place).collect::<Option<Vec<usize>>>().context("an unknown agent")?);
            names.push(own.iter().map(|one| format!("{}#{}", one.vertex, one.number)).collect());
        }
        let machines = cluster.agents[..machines].iter().map(|agent| placed.topology.host(agent)).collect();
        let placement = Placement { machines, on };
        let Calibrated { graph, factor: calibration, modelled, .. } =
            calibrated(&graph, &placement, engine, Some(&rates));
        Ok(Self { graph, modelled, calibration, rates, placement, names })
    }

    fn situation<'a>(&'a self, placed: &Placed, cell: &Cell, planners: &'a Planners) -> Situation<'a> {
        let Self { graph, rates, placement, .. } = self;
        let engine = cell.overflow.engine();
        Situation { topology: placed.topology, graph, placement, engine, measured: Some(rates), planners }
    }

    /// A choice as the document that `scale apply` takes; none if it changes nothing.
    fn plan(&self, graph: &FlowGraph, choice: &Choice, planner: &str) -> Option<Value> {
        let machine = |index: usize| choice.placement.machines[index].name.as_str();
        let (mut moves, mut add) = (Vec::new(), Vec::new());
        for (vertex, places) in choice.placement.on.iter().enumerate() {
            let (before, names) = (&self.placement.on[vertex], &self.names[vertex]);
            for ((from, to), name) in before.iter().zip(places).zip(names) {
                if from != to {
                    moves.push(json!({"instance": name, "agent": machine(*to)}));
                }
            }
            let new = places.iter().skip(before.len());
            let id = &graph.vertices()[vertex].id;
            add.extend(new.map(|to| json!({"vertex": id, "agent": machine(*to)})));
        }
        (!moves.is_empty() || !add.is_empty()).then(|| {
            json!({
                "add": add, "move": moves, "planner": planner,
                "predicted_per_s": Some(choice.after).filter(|rate| rate.is_finite()),
            })
        })
    }
}

/// Which rows came to the sinks, and when.
struct Came {
    /// By sink: a row's number, and nanoseconds since 1970.
    rows: BTreeMap<String, Vec<(u64, u64)>>,
    /// Where sinks note a count with the number: both.
    counts: Vec<(u64, u64)>,
}

impl Came {
    /// What these sinks have written.
    fn read(cluster: &Cluster, sinks: &[&str]) -> Result<Self> {
        let mut came = Self { rows: BTreeMap::new(), counts: Vec::new() };
        for sink in sinks {
            let mut own = Vec::new();
            for file in cluster.files_of(sink)? {
                read_ledger(&file, &mut own, &mut came.counts)?;
            }
            came.rows.insert((*sink).to_owned(), own);
        }
        Ok(came)
    }

    /// Rows that came from the clock's start to so many milliseconds after it.
    fn series(&self, clock: &Clock, end: usize) -> Series {
        let times = self.rows.values().flatten();
        let since = times.filter_map(|(_, at)| at.checked_sub(clock.origin()));
        Series::of_times(since.map(|ns| ns / 1_000_000), end)
    }

    /// What became of the rows that were sent, each of which was to come to a sink so often. Source instance i of k numbers
    /// its rows i, i + k, i + 2k, ...
    fn tally(&self, counted: &Counted, copies: impl Fn(&str, u64) -> u32) -> Tally {
        let feeds = counted.sent.len() as u64;
        let most = counted.sent.iter().max().copied().unwrap_or(0) * feeds;
        let was_sent = |number: u64| number / feeds < counted.sent[(number % feeds) as usize];
        let mut all = Tally::default();
        for (sink, rows) in &self.rows {
            let copies = |number| if was_sent(number) { copies(sink, number) } else { 0 };
            let own = tally(&(0..most), copies, rows.iter().map(|(number, _)| *number));
            all.expected += own.expected;
            all.lost += own.lost;
            all.duplicated += own.duplicated;
        }
        all
    }
}

/// Reads a ledger: `id,instance,agent,arrival_ns,done_ns` in each line, where the first may be `id/count`.
fn read_ledger(path: &PathBuf, into: &mut Vec<(u64, u64)>, counts: &mut Vec<(u64, u64)>) -> Result<()> {
    let name = || path.display().to_string();
    let mut reader = csv::Reader::from_path(path).with_context(name)?;
    for row in reader.records() {
        let row = row.with_context(name)?;
        let number = |text: &str| text.parse::<u64>().ok();
        let (id, count) = match row.get(0).unwrap_or_default().split_once('/') {
            Some((id, count)) => (number(id), Some(number(count))),
            None => (row.get(0).and_then(number), None),
        };
        let (Some(id), Some(done), false) = (id, row.get(4).and_then(number), count == Some(None)) else {
            bail!("{}: a line that is none of a ledger: {row:?}", name());
        };
        into.push((id, done));
        counts.extend(count.flatten().map(|count| (id, count)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::stela::topology::TOPOLOGIES;

    #[test]
    fn a_choice_is_the_moves_and_additions_that_make_it() {
        let placed = TOPOLOGIES[0].place().unwrap();
        let names = |at: usize, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{}#{number}", placed.graph.vertices()[at].id)).collect()
        };
        let before = placed.placement.clone();
        let now = Now {
            graph: placed.graph.clone(),
            modelled: 1.0,
            calibration: 1.0,
            rates: Vec::new(),
            names: before.on.iter().enumerate().map(|(at, on)| names(at, on.len())).collect(),
            placement: before.clone(),
        };
        let choice = |placement: Placement| Choice {
            before: 1.0,
            after: 2.5,
            slots: 1,
            added: Vec::new(),
            moved: 1,
            placement,
        };
        assert_eq!(now.plan(&placed.graph, &choice(before.clone()), "best"), None);
        let mut after = before;
        after.machines.push(placed.topology.host("e"));
        after.on[0][1] = 4;
        after.on[2].push(4);
        let plan = now.plan(&placed.graph, &choice(after), "best").unwrap();
        let expected = json!({
            "add": [{"vertex": "centre", "agent": "e"}],
            "move": [{"instance": "spout1#1", "agent": "e"}],
            "planner": "best",
            "predicted_per_s": 2.5,
        });
        assert_eq!(plan, expected);
    }

    #[test]
    fn rows_are_counted_by_the_numbers_that_each_source_instance_has_given() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out-0-1-0.csv");
        let header = "id,instance,agent,arrival_ns,done_ns\n";
        std::fs::write(&file, format!("{header}0,0,a,1,5\n2,0,a,1,6\n4,0,a,1,7\n1,0,a,1,8\n1,0,a,1,9\n"))
            .unwrap();
        let (mut rows, mut counts) = (Vec::new(), Vec::new());
        read_ledger(&file, &mut rows, &mut counts).unwrap();
        assert_eq!((rows.len(), rows[4], counts.len()), (5, (1, 9), 0));
        // Instance 0 of two gave 0, 2 and 4; instance 1 gave 1 and 3, of which one came twice and the other did not.
        let came = Came { rows: BTreeMap::from([("out".to_owned(), rows)]), counts };
        let counted = Counted { sent: vec![3, 2], dropped: 0 };
        assert_eq!(came.tally(&counted, |_, _| 1), Tally { expected: 5, lost: 1, duplicated: 1 });
        let (mut rows, mut counts) = (Vec::new(), Vec::new());
        std::fs::write(&file, format!("{header}7/2,0,a,1,5\n")).unwrap();
        read_ledger(&file, &mut rows, &mut counts).unwrap();
        assert_eq!((rows, counts), (vec![(7, 5)], vec![(7, 2)]));
        for bad in ["0,0,a", "7/,0,a,1,5", "7/x,0,a,1,5"] {
            std::fs::write(&file, format!("{header}{bad}\n")).unwrap();
            assert!(read_ledger(&file, &mut Vec::new(), &mut Vec::new()).is_err(), "{bad}");
        }
    }
}
