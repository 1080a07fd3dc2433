//! What agents report, in memory only: counters, ledgers, facts, rates. The log holds none of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tuplane_core::cluster::DROPPED_BY_STOP;
use tuplane_core::scale::rates::{Figure, RateWindow};
use tuplane_wire::message::{AgentId, AgentInfo, EdgeLedger, HostFacts, InstanceReport, Report, RunReport};
use tuplane_wire::scaling::MovedRows;

/// A rate that is not renewed for so long counts as 0.
const STALE: Duration = Duration::from_secs(3);

/// Two samples closer than this give no rate.
const CLOSE: Duration = Duration::from_millis(100);

/// What is known of agents and runs right now.
#[derive(Debug, Default)]
pub(super) struct Live {
    agents: HashMap<AgentId, LiveAgent>,
    runs: HashMap<u64, LiveRun>,
}

/// The last report of an agent.
#[derive(Debug, Clone)]
pub(super) struct LiveAgent {
    /// When it was last heard of.
    pub(super) seen: Instant,
    sequence: u64,
    /// Its facts.
    pub(super) host: HostFacts,
    /// Offset of its clock, and the error.
    pub(super) clock_offset_ns: Option<(i64, u64)>,
    /// Round trips to peers.
    pub(super) round_trips: Vec<(String, u64)>,
}

/// The last reports about a run.
#[derive(Debug, Default)]
pub(super) struct LiveRun {
    /// By instance.
    pub(super) counters: BTreeMap<u32, InstanceReport>,
    /// By agent and edge.
    edges: BTreeMap<String, BTreeMap<u32, EdgeLedger>>,
    /// What moves with key partitions, by agent.
    moved: BTreeMap<String, MovedRows>,
    /// When each agent last reported the run.
    seen: BTreeMap<String, Instant>,
    sent: BTreeMap<String, Sent>,
    /// Agents that have stopped it: what comes from them after that is older.
    stopped: BTreeSet<String>,
    pub(super) rates: Measured,
}

/// What the rates of a run are taken from.
#[derive(Debug, Default)]
pub(super) struct Measured {
    window: RateWindow,
    /// Times of the window are from here on.
    began: Option<Instant>,
    /// The plan that was measured, and whether it was being changed.
    plan: Option<(u64, bool)>,
    /// Mean rates of its traces by stage, once they are read.
    means: BTreeMap<String, Figure>,
}

impl Measured {
    /// The looks that are kept.
    pub(super) fn window(&self) -> &RateWindow {
        &self.window
    }

    /// A moment, as the window counts time.
    pub(super) fn at(&self, now: Instant) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// The mean rate of a stage that is a trace.
    pub(super) fn mean(&self, stage: &str) -> Figure {
        let known = self.means.get(stage).cloned();
        known.unwrap_or_else(|| Err("the counts of the trace are being read".to_owned()))
    }

    fn report(&mut self, agent: &str, report: &RunReport, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let at = now.saturating_duration_since(began);
        self.window.report(agent, at, &report.instances, &report.edges);
        self.window.keys(agent, &report.keys);
    }

    fn cut(&mut self, now: Instant) {
        let at = self.at(now);
        self.window.cut(at);
    }
}

/// Rows that one agent sent to each other one (by index in the plan).
#[derive(Debug)]
struct Sent {
    at: Instant,
    rows: BTreeMap<u16, u64>,
    per_second: BTreeMap<u16, f64>,
}

impl Live {
    /// An agent was heard of; also the beginning of its lease.
    pub(super) fn heard(&mut self, id: &AgentId, now: Instant) {
        if let Some(agent) = self.agents.get_mut(id) {
            agent.seen = now;
        } else {
            let agent = LiveAgent {
                seen: now,
                sequence: 0,
                host: HostFacts::default(),
                clock_offset_ns: None,
                round_trips: Vec::new(),
            };
            self.agents.insert(id.clone(), agent);
        }
    }

    /// Takes a report, unless a newer one of the agent came first. `known` are runs that still count.
    pub(super) fn report(&mut self, id: &AgentId, report: Report, known: &[u64], now: Instant) {
        self.heard(id, now);
        let Some(agent) = self.agents.get_mut(id) else { return };
        if report.sequence <= agent.sequence && report.sequence != 0 {
            return;
        }
        agent.sequence = report.sequence;
        agent.host = report.host;
        agent.clock_offset_ns = report.clock_offset_ns;
        agent.round_trips = report.round_trips;
        for run in report.runs {
            if known.contains(&run.run) {
                let known = self.runs.entry(run.run).or_default();
                if !known.stopped.contains(&id.name) {
                    known.rates.report(&id.name, &run, now);
                    known.moved.insert(id.name.clone(), run.moved.clone());
                }
                self.run_reported(&id.name, run, now);
            }
        }
    }

    /// The last words about an instance that has ended.
    pub(super) fn instance_ended(
        &mut self,
        agent: &str,
        run: u64,
        last: InstanceReport,
        edges: Vec<EdgeLedger>,
    ) {
        let now = Instant::now();
        let instances = vec![last];
        self.run_reported(agent, RunReport { run, instances, edges, ..RunReport::default() }, now);
    }

    fn run_reported(&mut self, agent: &str, report: RunReport, now: Instant) {
        let run = self.runs.entry(report.run).or_default();
        if run.stopped.contains(agent) {
            return;
        }
        run.seen.insert(agent.to_owned(), now);
        for counters in report.instances {
            // A report that was under way when its instance ended is older than the end.
            let ended = run.counters.get(&counters.instance).is_some_and(|known| known.ended);
            if !ended || counters.ended {
                run.counters.insert(counters.instance, counters);
            }
        }
        let edges = run.edges.entry(agent.to_owned()).or_default();
        for edge in report.edges {
            match edges.get(&edge.edge) {
                // The same, for an edge: its totals never go back.
                Some(known) if known.emitted > edge.emitted || known.taken > edge.taken => {}
                _ => {
                    edges.insert(edge.edge, edge);
                }
            }
        }
        let mut rows: BTreeMap<u16, u64> = BTreeMap::new();
        for ((_, to), flow) in edges.values().flat_map(|edge| &edge.flows) {
            *rows.entry(*to).or_default() += flow.rows;
        }
        match run.sent.get_mut(agent) {
            Some(sent) => sent.update(rows, now),
            None => {
                run.sent.insert(agent.to_owned(), Sent { at: now, rows, per_second: BTreeMap::new() });
            }
        }
    }

    /// What an agent said in reply to a stop: its last word. Counters of instances that had ended
    /// before stay as they are.
    pub(super) fn stopped(&mut self, agent: &str, run: u64, last: RunReport) {
        let run = self.runs.entry(run).or_default();
        for counters in last.instances {
            if !run.counters.get(&counters.instance).is_some_and(|known| known.ended) {
                run.counters.insert(counters.instance, counters);
            }
        }
        run.edges.insert(agent.to_owned(), last.edges.into_iter().map(|edge| (edge.edge, edge)).collect());
        run.moved.insert(agent.to_owned(), last.moved);
        run.stopped.insert(agent.to_owned());
    }

    /// The plan of a run that holds now, and whether another one is under way. Rates of another plan than before
    /// are not those of this one. True if nothing was known of the run before.
    pub(super) fn plan_is(&mut self, run: u64, epoch: u64, changing: bool, now: Instant) -> bool {
        let rates = &mut self.runs.entry(run).or_default().rates;
        let before = rates.plan.replace((epoch, changing));
        if before.is_some_and(|before| before != (epoch, changing)) {
            rates.cut(now);
        }
        before.is_none()
    }

    /// An option of a run was set: what a row costs from now on says nothing of before.
    pub(super) fn option_set(&mut self, run: u64, now: Instant) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.rates.cut(now);
        }
    }

    /// Counters of other instances are not needed any more.
    pub(super) fn keep(&mut self, run: u64, listed: &dyn Fn(u32) -> bool) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.counters.retain(|instance, _| listed(*instance));
        }
    }

    /// The mean rates of a run's traces.
    pub(super) fn set_means(&mut self, run: u64, means: BTreeMap<String, Figure>) {
        self.runs.entry(run).or_default().rates.means = means;
    }

    /// Runs that are not listed any more.
    pub(super) fn forget(&mut self, run: u64) {
        self.runs.remove(&run);
    }

    /// An agent's incarnation that is gone for good.
    pub(super) fn forget_agent(&mut self, id: &AgentId) {
        self.agents.remove(id);
    }

    /// Its last report.
    pub(super) fn agent(&self, id: &AgentId) -> Option<&LiveAgent> {
        self.agents.get(id)
    }

    /// Its last reports.
    pub(super) fn run(&self, run: u64) -> Option<&LiveRun> {
        self.runs.get(&run)
    }

    /// This process did not run for a while: nobody else is to blame for the silence.
    pub(super) fn forgive(&mut self, pause: Duration) {
        for agent in self.agents.values_mut() {
            agent.seen += pause;
        }
    }
}

impl Sent {
    fn update(&mut self, rows: BTreeMap<u16, u64>, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        if passed < CLOSE {
            return;
        }
        self.per_second = rows
            .iter()
            .map(|(to, total)| {
                let before = self.rows.get(to).copied().unwrap_or(0);
                (*to, total.saturating_sub(before) as f64 / passed.as_secs_f64())
            })
            .collect();
        self.at = now;
        self.rows = rows;
    }
}

impl LiveRun {
    /// The ledger at a moment of a run. Agents report one after another: where a target's report has rows for
    /// which the sender's is too old, as many were emitted as were taken or dropped, at least.
    pub(super) fn ledger(&self) -> Vec<EdgeLedger> {
        let mut ledger = self.reported();
        for edge in &mut ledger {
            edge.emitted = edge.emitted.max(edge.accounted());
        }
        ledger
    }

    /// What was reported, summed over agents.
    fn reported(&self) -> Vec<EdgeLedger> {
        let mut sums: BTreeMap<u32, EdgeLedger> = BTreeMap::new();
        for edge in self.edges.values().flat_map(BTreeMap::values) {
            let sum = sums.entry(edge.edge);
            sum.or_insert_with(|| EdgeLedger { edge: edge.edge, ..Default::default() }).add(edge);
        }
        // Groups are taken in their order. What one agent has taken, another need not know of yet.
        let taken = self.moved.values().filter_map(|moved| moved.taken).max();
        let away = self.moved.values().flat_map(|moved| &moved.away);
        for twice in away.filter(|away| taken >= Some(away.group)) {
            let Some(sum) = sums.get_mut(&twice.edge) else { continue };
            let counted = if twice.dropped {
                sum.dropped.entry(DROPPED_BY_STOP.to_owned()).or_default()
            } else {
                &mut sum.queued_in
            };
            *counted = counted.saturating_sub(twice.rows);
            sum.dropped.retain(|_, rows| *rows > 0);
        }
        sums.into_values().collect()
    }

    /// All rows that were emitted have been taken or dropped.
    pub(super) fn is_settled(&self) -> bool {
        self.reported().iter().all(EdgeLedger::is_settled)
    }

    /// The ledger at the end: once every row is taken or dropped, none waits or is under way, and
    /// samples that say so are older than that.
    pub(super) fn final_ledger(&self) -> Vec<EdgeLedger> {
        let mut ledger = self.reported();
        for edge in &mut ledger {
            if edge.is_settled() {
                (edge.queued_out, edge.in_flight, edge.queued_in) = (0, 0, 0);
            }
        }
        ledger
    }

    /// Age of the oldest last word of these agents, by name.
    pub(super) fn age(&self, now: Instant, counts: impl Fn(&str) -> bool) -> Duration {
        let seen = self.seen.iter().filter(|(agent, _)| counts(agent)).map(|(_, seen)| seen);
        seen.map(|seen| now.saturating_duration_since(*seen)).max().unwrap_or_default()
    }

    /// Cost of the rows sent in a second, by a cost per row between two agents.
    pub(super) fn cost_per_second(
        &self,
        agents: &[AgentInfo],
        now: Instant,
        cost: impl Fn(&AgentInfo, &AgentInfo) -> u32,
    ) -> f64 {
        let fresh = self.sent.iter().filter(|(_, sent)| now.saturating_duration_since(sent.at) < STALE);
        fresh
            .filter_map(|(name, sent)| Some((agents.iter().find(|agent| agent.id.name == *name)?, sent)))
            .flat_map(|(from, sent)| sent.per_second.iter().map(move |(to, rate)| (from, *to, *rate)))
            .filter_map(|(from, to, rate)| Some(f64::from(cost(from, agents.get(to as usize)?)) * rate))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuplane_wire::message::Flow;
    use tuplane_wire::scaling::AwayRows;

    fn id(name: &str) -> AgentId {
        AgentId { name: name.to_owned(), incarnation: 1 }
    }

    fn edge(emitted: u64, taken: u64, sent: &[(u16, u64)]) -> EdgeLedger {
        let flow = |rows: u64| Flow { rows, bytes: rows * 10, wire_bytes: 0 };
        let flows = sent.iter().map(|(to, rows)| ((0, *to), flow(*rows))).collect();
        EdgeLedger { edge: 0, emitted, taken, flows, queued_in: 1, ..EdgeLedger::default() }
    }

    fn report(sequence: u64, edge: EdgeLedger) -> Report {
        let run = RunReport { run: 7, edges: vec![edge], ..RunReport::default() };
        Report { sequence, runs: vec![run], ..Report::default() }
    }

    fn info(name: &str, zone: &str, host: &str) -> AgentInfo {
        AgentInfo {
            id: id(name),
            address: String::new(),
            slots: 1,
            cores: 0,
            zone: zone.to_owned(),
            pid: 0,
            version: String::new(),
            host: host.to_owned(),
            registry: 0,
        }
    }

    #[test]
    fn ledgers_are_summed_over_agents_and_never_go_back() {
        let (mut live, now) = (Live::default(), Instant::now());
        live.report(&id("a"), report(1, edge(10, 0, &[(1, 8)])), &[7], now);
        live.report(&id("b"), report(1, edge(0, 7, &[])), &[7], now);
        assert_eq!(live.run(7).unwrap().ledger()[0].emitted, 10);
        assert!(!live.run(7).unwrap().is_settled());
        live.report(&id("b"), report(3, edge(0, 10, &[])), &[7], now);
        live.report(&id("b"), report(2, edge(0, 8, &[])), &[7], now);
        live.report(&id("b"), report(4, edge(0, 9, &[])), &[7], now);
        let run = live.run(7).unwrap();
        assert!(run.is_settled());
        let last = &run.final_ledger()[0];
        assert_eq!((last.emitted, last.taken, last.queued_in), (10, 10, 0));
        assert_eq!(last.flows[&(0, 1)], Flow { rows: 8, bytes: 80, wire_bytes: 0 });
        live.report(&id("b"), report(5, edge(0, 9, &[])), &[], now);
        live.forget(7);
        live.report(&id("b"), report(6, edge(0, 9, &[])), &[], now);
        assert!(live.run(7).is_none(), "a run that is not known any more stays away");
    }

    #[test]
    fn no_more_rows_are_taken_than_emitted_where_the_senders_report_is_old() {
        let (mut live, now) = (Live::default(), Instant::now());
        live.report(&id("a"), report(1, edge(10, 0, &[])), &[7], now);
        live.report(&id("b"), report(1, edge(0, 12, &[])), &[7], now);
        let run = live.run(7).unwrap();
        assert_eq!((run.ledger()[0].emitted, run.final_ledger()[0].emitted), (12, 10));
        assert!(!run.is_settled());
        live.report(&id("a"), report(2, edge(13, 0, &[])), &[7], now);
        assert_eq!(live.run(7).unwrap().ledger()[0].emitted, 13);
    }

    #[test]
    fn rows_that_have_moved_count_where_they_were_taken() {
        let lasts = |taken: Option<(u32, u32)>| {
            let of = |rows, moved| {
                let dropped = BTreeMap::from([(DROPPED_BY_STOP.to_owned(), rows)]);
                let edge = EdgeLedger { edge: 0, emitted: 9, dropped, ..EdgeLedger::default() };
                RunReport { run: 7, edges: vec![edge], moved, ..RunReport::default() }
            };
            let away = vec![AwayRows { edge: 0, group: (2, 3), rows: 5, dropped: true }];
            // Five of nine have left with a group; it has come where they count as dropped, or not.
            let there = if taken.is_some_and(|taken| taken >= (2, 3)) { 14 } else { 9 };
            let mut live = Live::default();
            live.stopped("a", 7, of(9, MovedRows { taken: None, away }));
            live.stopped("b", 7, of(there, MovedRows { taken, away: Vec::new() }));
            live.run(7).unwrap().reported().remove(0)
        };
        for taken in [None, Some((2, 2)), Some((2, 3)), Some((3, 0))] {
            let ledger = lasts(taken);
            assert!(ledger.emitted == 18 && ledger.is_settled(), "{taken:?}: {ledger:?}");
        }
        let waiting = |taken| {
            let away = vec![AwayRows { edge: 0, group: (2, 3), rows: 1, dropped: false }];
            let moved = MovedRows { taken, away };
            let run = RunReport { run: 7, edges: vec![edge(1, 0, &[])], moved, ..RunReport::default() };
            let mut live = Live::default();
            live.report(
                &id("a"),
                Report { sequence: 1, runs: vec![run], ..Report::default() },
                &[7],
                Instant::now(),
            );
            live.run(7).unwrap().ledger()[0].queued_in
        };
        assert_eq!((waiting(None), waiting(Some((2, 3)))), (1, 0));
    }

    #[test]
    fn the_reply_to_a_stop_is_an_agents_last_word() {
        let (mut live, now) = (Live::default(), Instant::now());
        let counters = |instance, rows_in, ended| InstanceReport {
            instance,
            rows_in,
            ended,
            ..InstanceReport::default()
        };
        let report = |sequence, instances, emitted| Report {
            sequence,
            runs: vec![RunReport {
                run: 7,
                instances,
                edges: vec![edge(emitted, 0, &[])],
                ..RunReport::default()
            }],
            ..Report::default()
        };
        live.report(&id("a"), report(1, vec![counters(0, 5, true), counters(1, 5, false)], 10), &[7], now);
        let instances = vec![counters(0, 4, false), counters(1, 8, false)];
        let last = RunReport { run: 7, instances, edges: vec![edge(12, 0, &[])], ..RunReport::default() };
        live.stopped("a", 7, last);
        // One that was under way is older.
        live.report(&id("a"), report(2, vec![counters(1, 6, false)], 11), &[7], now);
        let run = live.run(7).unwrap();
        assert_eq!((run.counters[&0].rows_in, run.counters[&1].rows_in), (5, 8));
        assert_eq!(run.ledger()[0].emitted, 12);
    }

    #[test]
    fn cost_is_rows_a_second_times_the_pairs_cost() {
        let (mut live, start) = (Live::default(), Instant::now());
        let later = start + Duration::from_millis(500);
        live.report(&id("a"), report(1, edge(0, 0, &[(0, 0), (1, 100)])), &[7], start);
        live.report(&id("a"), report(2, edge(0, 0, &[(0, 50), (1, 200)])), &[7], later);
        let agents = [info("a", "z", "h"), info("b", "z", "h")];
        let run = live.run(7).unwrap();
        let cost = |from: &AgentInfo, to: &AgentInfo| if from.id == to.id { 0 } else { 3 };
        assert!((run.cost_per_second(&agents, later, cost) - 600.0).abs() < 1e-9);
        assert!(run.cost_per_second(&agents, later + Duration::from_secs(4), cost).abs() < 1e-9);
    }

    #[test]
    fn a_pause_of_this_process_is_nobodys_silence() {
        let (mut live, start) = (Live::default(), Instant::now());
        live.heard(&id("a"), start);
        live.forgive(Duration::from_secs(20));
        assert_eq!(live.agent(&id("a")).unwrap().seen, start + Duration::from_secs(20));
    }
}
