//! From looks to rates: differences of totals, and why a number is not known.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{
    Counts, EARLY, EdgeRates, Figure, InstanceRates, JobRates, Kind, Known, Look, Offer, RateWindow, Track,
    VertexRates,
};
use crate::plan::placement::Instance;
use crate::plan::{Edge, EdgeId, Routing, VertexId};
use crate::scale::keys::KeyShares;
use crate::scale::limit::{FULL, HIGH};

const SECOND: f64 = 1e9;

/// Why a vertex has no rates any more.
const ENDED: &str = "it has ended";

/// Two looks of one agent, by their indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: usize,
    to: usize,
}

pub(super) fn rates(window: &RateWindow, job: &Known<'_>, now: Duration, span: Duration) -> JobRates {
    let seen = Seen::new(window, job, now, span);
    let instances: Vec<InstanceRates> = job.instances.iter().map(|one| seen.instance(one)).collect();
    let edges = (0..job.dag.edges.len() as u32).map(|edge| seen.edge(EdgeId(edge))).collect::<Vec<_>>();
    let vertices = 0..job.dag.vertices.len() as u32;
    let vertices = vertices.map(|vertex| seen.vertex(VertexId(vertex), &instances, &edges)).collect();
    let open = job.instances.iter().filter(|one| !seen.has_ended(one)).map(|one| one.agent);
    let open: BTreeSet<u16> = open.collect();
    let used = job.agents.iter().zip(0u16..).filter(|(_, index)| open.contains(index));
    let used: Vec<String> = used.map(|(name, _)| name.clone()).collect();
    let seconds = used.iter().map(|agent| {
        let track = seen.track(agent)?;
        let span = seen.span(track);
        Ok((track.looks[span.to].at.saturating_sub(track.looks[span.from].at)).as_secs_f64())
    });
    let least = |least: Figure, next: Figure| Ok(least?.min(next?));
    let seconds = seconds.reduce(least).unwrap_or_else(|| Err(ENDED.to_owned()));
    JobRates { seconds, full: window.is_full(&used, now, span), vertices, edges, instances }
}

/// The window, and the run that it is of.
struct Seen<'a> {
    window: &'a RateWindow,
    job: &'a Known<'a>,
    now: Duration,
    /// What rates are means over.
    span: Duration,
    /// Its instances by vertex, as indices.
    of_vertex: Vec<Vec<usize>>,
}

impl<'a> Seen<'a> {
    fn new(window: &'a RateWindow, job: &'a Known<'a>, now: Duration, span: Duration) -> Self {
        let mut of_vertex = vec![Vec::new(); job.dag.vertices.len()];
        for (index, one) in job.instances.iter().enumerate() {
            if let Some(own) = of_vertex.get_mut(one.vertex.0 as usize) {
                own.push(index);
            }
        }
        Self { window, job, now, span, of_vertex }
    }

    /// The instances of a vertex, and what was found out of each in the order of all.
    fn own<'s, T>(&'s self, id: VertexId, all: &'s [T]) -> impl Iterator<Item = (&'a Instance, &'s T)> {
        self.of_vertex[id.0 as usize].iter().map(|index| (&self.job.instances[*index], &all[*index]))
    }

    /// The instances of a vertex.
    fn instances(&self, id: VertexId) -> impl Iterator<Item = &'a Instance> {
        self.of_vertex[id.0 as usize].iter().map(|index| &self.job.instances[*index])
    }
}

impl Seen<'_> {
    /// An agent's looks, if rates can be taken from them.
    fn track(&self, agent: &str) -> Result<&Track, String> {
        let track = self.window.agents.get(agent);
        let Some(track) = track.filter(|track| !track.looks.is_empty()) else {
            return Err(match self.window.cut {
                Some(cut) => {
                    let since = self.now.saturating_sub(cut).as_secs_f64();
                    format!(
                        "agent {agent} has not reported since the job was changed {since:.0} s ago: ask again in a moment"
                    )
                }
                None => format!("agent {agent} has not reported yet"),
            });
        };
        let silent = self.now.saturating_sub(track.heard);
        if silent > self.window.options.stale {
            return Err(format!("agent {agent} has not reported for {:.0} s", silent.as_secs_f64()));
        }
        if track.looks.len() < 2 {
            let step = self.window.options.step.as_secs_f64();
            let since = self.window.cut.map_or_else(String::new, |cut| {
                let since = self.now.saturating_sub(cut).as_secs_f64();
                format!(" since the job was changed {since:.0} s ago")
            });
            return Err(format!(
                "one look at the counters of agent {agent}{since}, and rates need two, {step} s apart: ask again in {} s",
                2.0 * step
            ));
        }
        Ok(track)
    }

    /// The last window.
    fn span(&self, track: &Track) -> Span {
        let to = track.looks.len() - 1;
        let begin = track.looks[to].at + EARLY;
        let old = |look: &Look| look.at + self.span <= begin;
        // The youngest that is old enough.
        let from = track.looks.iter().rposition(old).unwrap_or(0).min(to.saturating_sub(1));
        Span { from, to }
    }

    fn agent(&self, instance: &Instance) -> &str {
        self.job.agents.get(usize::from(instance.agent)).map_or("?", String::as_str)
    }

    fn kind(&self, vertex: VertexId) -> &Kind {
        self.job.kinds.get(vertex.0 as usize).unwrap_or(&Kind::Rows)
    }

    /// The span over which the costs of a row and what comes of it are known: the last window, or whole bursts.
    fn costs(&self, agent: &str, track: &Track, vertex: VertexId) -> Result<Span, String> {
        let span = self.span(track);
        if *self.kind(vertex) != Kind::Bursts {
            return Ok(span);
        }
        let here = self.instances(vertex).filter(|one| self.agent(one) == agent);
        let ids: Vec<u32> = here.map(|one| one.id).collect();
        let out = |look: &Look| -> u64 {
            ids.iter().filter_map(|id| look.instance(*id)).map(|counts| counts.rows_out).sum()
        };
        let totals: Vec<u64> = track.looks.iter().map(out).collect();
        let gave = |at: usize| at > 0 && totals[at] > totals[at - 1];
        let steps = span.to - span.from;
        if (span.from + 1..=span.to).filter(|at| gave(*at)).count() * 2 >= steps {
            return Ok(span);
        }
        // Where a burst is over: nothing more came with the next look.
        let over: Vec<usize> =
            (1..=span.to).filter(|at| gave(*at) && *at < span.to && !gave(*at + 1)).collect();
        if let [from, .., to] = over[..] {
            return Ok(Span { from, to });
        }
        let kept = track.looks[span.to].at.saturating_sub(track.looks[0].at);
        Err(format!(
            "its windows close in bursts, and {} seen in {:.0} s: what a row costs is known after two",
            if over.is_empty() { "none was" } else { "one was" },
            kept.as_secs_f64()
        ))
    }

    fn has_ended(&self, instance: &Instance) -> bool {
        let track = self.window.agents.get(self.agent(instance));
        let last = track.and_then(|track| track.looks.back()).and_then(|look| look.instance(instance.id));
        last.is_some_and(|counts| counts.ended)
    }

    /// An instance's counters at the ends of a span, or as far as it was there.
    fn ends<'t>(track: &'t Track, span: Span, one: &Instance) -> Option<(&'t Counts, &'t Counts)> {
        let looks = || track.looks.range(span.from..=span.to).filter_map(|look| look.instance(one.id));
        looks().next().zip(looks().next_back())
    }

    /// What an instance did between two looks, whether it has ended or not.
    fn change(track: &Track, span: Span, one: &Instance) -> Option<Passed> {
        Self::ends(track, span, one).map(|(first, last)| Passed::between(first, last))
    }

    /// What an instance that goes on did between two looks, or since it is there.
    fn passed(track: &Track, span: Span, one: &Instance) -> Result<Passed, String> {
        let Some((first, last)) = Self::ends(track, span, one) else {
            return Err("its agent has not named it yet".to_owned());
        };
        let passed = Passed::between(first, last);
        if last.ended {
            Err(ENDED.to_owned())
        } else if passed.ns() == 0 {
            Err("one look at its counters so far: rates need two".to_owned())
        } else {
            Ok(passed)
        }
    }

    fn instance(&self, one: &Instance) -> InstanceRates {
        let agent = self.agent(one);
        let seen =
            self.track(agent).and_then(|track| Ok((track, Self::passed(track, self.span(track), one)?)));
        let (track, passed) = match seen {
            Ok(seen) => seen,
            Err(why) => return unknown(one, &why),
        };
        let seconds = passed.ns() as f64 / SECOND;
        let share = |ns: u64| Ok(ns as f64 / passed.ns() as f64);
        let costs = match self.kind(one.vertex) {
            Kind::Places(places) if (passed.busy as f64) < FULL * passed.ns() as f64 => Err(format!(
                "{places} rows may be in hand at once, and that many were in {:.0} % of the time: what it can do is \
                 known from {:.0} % on",
                passed.busy as f64 / passed.ns() as f64 * 100.0,
                FULL * 100.0
            )),
            _ => self.costs(agent, track, one.vertex).and_then(|span| Self::passed(track, span, one)),
        };
        let capacity = |waits_count: bool| costs.as_ref().map_err(Clone::clone)?.capacity(waits_count);
        InstanceRates {
            instance: one.id,
            vertex: one.vertex,
            seconds: Ok(seconds),
            // What came was taken or waits.
            input: Ok((passed.rows_in as f64 + passed.piled_up).max(0.0) / seconds),
            processed: Ok(passed.rows_in as f64 / seconds),
            emitted: Ok(passed.rows_out as f64 / seconds),
            capacity: capacity(true),
            capacity_alone: capacity(false),
            busy: share(passed.busy),
            blocked: share(passed.blocked),
            idle: share(passed.idle),
        }
    }

    /// Rows emitted on an edge, and processed by those who send on it, between two looks of each agent that they
    /// are on; with the seconds that passed.
    fn emitted(&self, edge: EdgeId, costs: bool) -> Result<Vec<(f64, f64, f64)>, String> {
        let from = self.job.dag.edge(edge).from;
        let mut all = Vec::new();
        let mut here: BTreeMap<u16, Vec<&Instance>> = BTreeMap::new();
        for one in self.instances(from) {
            here.entry(one.agent).or_default().push(one);
        }
        for (index, own) in here {
            let Some(agent) = self.job.agents.get(usize::from(index)) else { continue };
            let (ended, senders): (Vec<&Instance>, Vec<&Instance>) =
                own.into_iter().partition(|one| self.has_ended(one));
            if senders.is_empty() {
                continue;
            }
            let track = self.track(agent)?;
            let span = if costs { self.costs(agent, track, from)? } else { self.span(track) };
            let passed: Vec<Passed> =
                senders.iter().map(|one| Self::passed(track, span, one)).collect::<Result<_, _>>()?;
            // The edge's rows are of all that were there, those that ended meanwhile, too.
            let meanwhile = ended.iter().filter_map(|one| Self::change(track, span, one));
            let rows = |look: usize| track.looks[look].edge(edge.0).map(|sent| sent.emitted);
            let Some((before, after)) = rows(span.from).zip(rows(span.to)) else {
                return Err(format!("{agent} has not named the edge yet"));
            };
            let seconds = passed.iter().map(Passed::ns).max().unwrap_or(0) as f64 / SECOND;
            let processed: u64 = passed.iter().copied().chain(meanwhile).map(|passed| passed.rows_in).sum();
            all.push((after.saturating_sub(before) as f64, processed as f64, seconds));
        }
        if all.is_empty() { Err(ENDED.to_owned()) } else { Ok(all) }
    }

    fn edge(&self, edge: EdgeId) -> EdgeRates {
        let rate = self.emitted(edge, false);
        let selectivity = self.emitted(edge, true).and_then(|all| {
            let sum = |of: fn(&(f64, f64, f64)) -> f64| all.iter().map(of).sum::<f64>();
            per_row(
                sum(|(rows, ..)| *rows),
                sum(|(_, processed, _)| *processed),
                sum(|(.., s)| *s) / all.len() as f64,
            )
        });
        EdgeRates { rate: rate.map(|all| all.iter().map(|(rows, _, s)| rows / s).sum()), selectivity }
    }

    fn vertex(&self, id: VertexId, instances: &[InstanceRates], edges: &[EdgeRates]) -> VertexRates {
        let own = self.own(id, instances).filter(|(one, _)| !self.has_ended(one));
        let own: Vec<&InstanceRates> = own.map(|(_, rates)| rates).collect();
        let sum = |of: fn(&InstanceRates) -> &Figure| -> Figure {
            if own.is_empty() {
                return Err(ENDED.to_owned());
            }
            own.iter().map(|rates| of(rates).clone()).sum()
        };
        let most = |of: fn(&InstanceRates) -> &Figure| -> Figure {
            let known = own.iter().map(|rates| of(rates).clone());
            known.reduce(|most, next| Ok(most?.max(next?))).unwrap_or_else(|| Err(ENDED.to_owned()))
        };
        let mean = |of: fn(&InstanceRates) -> &Figure| sum(of).map(|sum| sum / own.len() as f64);
        // The mean of those for which it is known.
        let capacity = |of: fn(&InstanceRates) -> &Figure| -> (Figure, u32) {
            let known: Vec<f64> = own.iter().filter_map(|rates| of(rates).clone().ok()).collect();
            if known.is_empty() {
                let why = own.iter().find_map(|rates| of(rates).clone().err());
                return (Err(why.unwrap_or_else(|| ENDED.to_owned())), 0);
            }
            (Ok(known.iter().sum::<f64>() / known.len() as f64), known.len() as u32)
        };
        let (mean_capacity, measured) = capacity(|rates| &rates.capacity);
        let offered = match self.kind(id) {
            Kind::Source(_) if own.is_empty() => Some(Err(ENDED.to_owned())),
            Kind::Source(Offer::Paced(rate)) => Some(rate.clone()),
            Kind::Source(Offer::Unbounded) => {
                Some(mean_capacity.clone().map(|capacity| capacity * own.len() as f64))
            }
            _ => None,
        };
        let inputs = || self.job.dag.inputs(id).map(|(edge, _)| &edges[edge.0 as usize]);
        // Nothing comes on an edge whose senders have ended.
        let open = || inputs().filter(|edge| edge.rate.as_ref().err().is_none_or(|why| why != ENDED));
        let input = match &offered {
            Some(offered) => offered.clone(),
            None => open().map(|edge| edge.rate.clone()).sum(),
        };
        let skew = match own.len() {
            0 | 1 => Err("it needs two instances".to_owned()),
            _ => most(|rates| &rates.input).and_then(|most| {
                let mean = mean(|rates| &rates.input)?;
                if mean > 0.0 { Ok(most / mean) } else { Err(idle(self.span.as_secs_f64())) }
            }),
        };
        let keys = self.keys(id);
        let queue_in =
            own.iter().filter_map(|rates| self.last(rates.instance)).map(|last| last.queue_in).sum();
        VertexRates {
            instances: own.len() as u32,
            input,
            processed: sum(|rates| &rates.processed),
            emitted: sum(|rates| &rates.emitted),
            capacity: mean_capacity,
            capacity_alone: capacity(|rates| &rates.capacity_alone).0,
            measured,
            busy: mean(|rates| &rates.busy),
            busiest: most(|rates| &rates.busy),
            blocked: most(|rates| &rates.blocked),
            queue_in,
            waiting: self.job.dag.inputs(id).map(|(edge, _)| self.waiting(edge)).sum(),
            selectivity: self.selectivity(id),
            skew,
            key_skew: keys.as_ref().map(KeyShares::skew).map_err(Clone::clone),
            keys,
            offered,
        }
    }

    /// Shares of its rows by key, as its instances last said.
    fn keys(&self, id: VertexId) -> Result<KeyShares, String> {
        let by_key = |edge: &Edge| matches!(edge.routing, Routing::Partitioned { .. });
        if !self.job.dag.inputs(id).any(|(_, edge)| by_key(edge)) {
            return Err("its rows do not come by key".to_owned());
        }
        let own = || self.job.instances.iter().filter(|one| one.vertex == id && !self.has_ended(one));
        if own().next().is_none() {
            return Err(ENDED.to_owned());
        }
        let mut loads = Vec::new();
        for one in own() {
            loads.extend(self.track(self.agent(one))?.keys.get(&one.id));
        }
        if loads.is_empty() {
            return Err("no rows have come by key yet".to_owned());
        }
        KeyShares::of(loads).ok_or_else(|| idle(self.span.as_secs_f64()))
    }

    /// Rows emitted for one processed, over the spans that say what comes of a row.
    fn selectivity(&self, id: VertexId) -> Figure {
        let (mut out, mut taken, mut seconds) = (0, 0, 0.0_f64);
        for one in self.instances(id).filter(|one| !self.has_ended(one)) {
            let agent = self.agent(one);
            let track = self.track(agent)?;
            let passed = Self::passed(track, self.costs(agent, track, id)?, one)?;
            out += passed.rows_out;
            taken += passed.rows_in;
            seconds = seconds.max(passed.ns() as f64 / SECOND);
        }
        if seconds > 0.0 { per_row(out as f64, taken as f64, seconds) } else { Err(ENDED.to_owned()) }
    }

    /// Rows that wait on an edge, as its agents last said.
    fn waiting(&self, edge: EdgeId) -> u64 {
        let last = self.window.agents.values().filter_map(|track| track.looks.back()?.edge(edge.0));
        last.map(|sent| sent.waiting).sum()
    }

    fn last(&self, instance: u32) -> Option<&Counts> {
        self.window.agents.values().find_map(|track| track.looks.back()?.instance(instance))
    }
}

/// What an instance did between two looks.
#[derive(Debug, Clone, Copy)]
struct Passed {
    rows_in: u64,
    rows_out: u64,
    busy: u64,
    waiting_core: u64,
    blocked: u64,
    idle: u64,
    /// Rows by which what waits has grown.
    piled_up: f64,
}

impl Passed {
    /// Totals never fall between two looks that are kept.
    fn between(first: &Counts, last: &Counts) -> Self {
        Self {
            rows_in: last.rows_in.saturating_sub(first.rows_in),
            rows_out: last.rows_out.saturating_sub(first.rows_out),
            busy: last.busy.saturating_sub(first.busy),
            waiting_core: last.waiting_core.saturating_sub(first.waiting_core),
            blocked: last.blocked.saturating_sub(first.blocked),
            idle: last.idle.saturating_sub(first.idle),
            piled_up: last.queue_in as f64 - first.queue_in as f64,
        }
    }

    fn ns(&self) -> u64 {
        self.busy + self.blocked + self.idle
    }

    /// Rows a second with work all the time.
    fn capacity(&self, waits_count: bool) -> Figure {
        let seconds = self.ns() as f64 / SECOND;
        let waits = if waits_count { 0 } else { self.waiting_core };
        let busy = self.busy.saturating_sub(waits);
        let share = |ns: u64| ns as f64 / self.ns() as f64;
        if self.rows_in > 0 && busy > 0 {
            Ok(self.rows_in as f64 * SECOND / busy as f64)
        } else if self.rows_in > 0 {
            Err(format!("never busy in {seconds:.0} s"))
        } else if share(self.busy) > HIGH {
            Err(format!("no row was begun in {seconds:.0} s: one takes longer"))
        } else if share(self.blocked) > HIGH {
            Err(format!("blocked: no rows in {seconds:.0} s"))
        } else {
            Err(idle(seconds))
        }
    }
}

fn idle(seconds: f64) -> String {
    format!("idle: no rows in {seconds:.0} s")
}

/// Rows for one row.
fn per_row(rows: f64, processed: f64, seconds: f64) -> Figure {
    if processed > 0.0 { Ok(rows / processed) } else { Err(idle(seconds)) }
}

fn unknown(one: &Instance, why: &str) -> InstanceRates {
    let none = || Err(why.to_owned());
    InstanceRates {
        instance: one.id,
        vertex: one.vertex,
        seconds: none(),
        input: none(),
        processed: none(),
        emitted: none(),
        capacity: none(),
        capacity_alone: none(),
        busy: none(),
        blocked: none(),
        idle: none(),
    }
}
