//! What is shown of an edge that chooses its targets: prices, shares, backlogs.

use std::collections::VecDeque;
use std::time::Instant;

use tuplane_core::route::{Cost, Price, RouteOptions};
use tuplane_wire::routing::{EdgeRouting, InForce, TargetRouting, Trend};

use super::{Ahead, Edge, Sender, State};
use crate::exchange::outlet::{Link, Outlet};
use crate::exchange::priced::Priced;
use crate::sync::lock;

/// Samples for rates and shares: two seconds.
const RECENT: usize = 8;
/// Samples for the trend: ten seconds.
const TREND: usize = 40;
/// Samples of one second.
const SECOND: usize = 4;

/// What is shown of an edge beside its counters.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) given: String,
    pub(super) options: RouteOptions,
    pub(super) costs: Vec<Cost>,
    /// Rows sent by target, and when.
    sent: VecDeque<(Instant, Vec<u64>)>,
    backlogs: VecDeque<f64>,
}

impl Samples {
    /// What was seen of the backlog so far is past.
    pub(super) fn begin_series(&mut self) {
        self.backlogs.clear();
    }

    /// Its targets have other numbers from now on.
    pub(super) fn forget_targets(&mut self) {
        self.sent.clear();
    }
}

impl Edge {
    /// Four times a second: what rates, shares and the trend are made of.
    pub(crate) fn sample(&self, now: Instant) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        let backlog = state.backlog(now);
        let sent = state.outlets[0].list().iter().map(|o| o.sent_rows).collect();
        let samples = &mut state.samples;
        if samples.sent.len() > RECENT {
            samples.sent.pop_front();
        }
        samples.sent.push_back((now, sent));
        if samples.backlogs.len() >= TREND {
            samples.backlogs.pop_front();
        }
        samples.backlogs.push_back(backlog);
    }

    /// How it stands; `None` for an edge that has no choice. The newest decisions come with it, as many as `bytes`
    /// hold, which they are taken off.
    pub(crate) fn routing(&self, bytes: &mut u64) -> Option<EdgeRouting> {
        let now = Instant::now();
        let state = lock(&self.state);
        let policy = state.senders.first()?.queue.policy()?.to_owned();
        let samples = &state.samples;
        let priced = state.priced.as_deref();
        let (v, beta) = match priced.and_then(Priced::weights) {
            Some((v, beta)) => (
                Some(InForce { rule: samples.options.v.to_string(), value: v.value() }),
                Some(InForce { rule: samples.options.beta.to_string(), value: beta.value() }),
            ),
            None => (None, None),
        };
        let counts = state.counts;
        let bound = state.senders.iter().map(|s| s.bound).min().unwrap_or(0);
        let looking = || state.senders.iter().filter_map(|sender| sender.ahead.as_deref());
        Some(EdgeRouting {
            edge: self.index,
            policy,
            options: samples.given.clone(),
            setting: priced.map_or("", |_| samples.options.setting.name()).to_owned(),
            slot_us: priced.map_or(0, |_| samples.options.slot.as_micros() as u64),
            v,
            beta,
            gamma: samples.options.gamma.filter(|_| priced.is_some()),
            queued_out: state.senders.iter().map(Sender::rows).sum(),
            longest_out: state.longest_out(),
            backlog: state.backlog(now),
            backlogs: samples.backlogs.iter().copied().collect(),
            trend: trend(&samples.backlogs),
            slots: counts.slots,
            deferred: counts.deferred,
            forced: counts.forced,
            warnings: priced.map(|p| p.warnings(bound, state.row_bytes())).unwrap_or_default(),
            targets: state.targets(now),
            decisions: priced.map(|priced| priced.newest(bytes)).unwrap_or_default(),
            window: looking().map(Ahead::size).max().unwrap_or(0),
            early: looking().map(|ahead| ahead.early).sum(),
            to_come: looking().map(Ahead::to_come).sum(),
        })
    }
}

impl State {
    fn longest_out(&self) -> u64 {
        self.senders.iter().map(|sender| sender.queue.rows()).max().unwrap_or(0)
    }

    /// Rows at the targets, and `beta` times those that wait here.
    fn backlog(&self, now: Instant) -> f64 {
        let outlets = &self.outlets[0];
        let there: u64 = (0..outlets.list().len()).map(|target| outlets.queued(target, now, true)).sum();
        let here: u64 = self.senders.iter().map(Sender::rows).sum();
        let beta = self.priced.as_ref().and_then(|p| p.weights()).map_or(1.0, |(_, beta)| beta.value());
        there as f64 + beta * here as f64
    }

    fn targets(&self, now: Instant) -> Vec<TargetRouting> {
        let outlets = &self.outlets[0];
        let samples = &self.samples;
        let first = samples.sent.front();
        let span = first.map_or(0.0, |(at, _)| now.saturating_duration_since(*at).as_secs_f64());
        let since = |index: usize| {
            let before = first.and_then(|(_, rows)| rows.get(index)).copied();
            outlets.list()[index].sent_rows.saturating_sub(before.unwrap_or(0))
        };
        let all: u64 = (0..outlets.list().len()).map(since).sum();
        let q_out = self.longest_out();
        let target = |(index, outlet): (usize, &Outlet)| {
            let seen = self.priced.as_ref().and_then(|p| Some((p, p.component().targets().get(index)?)));
            let cost = seen.map_or_else(
                || samples.costs.get(index).copied().unwrap_or_default().value(),
                |(_, target)| target.cost.value(),
            );
            let rate = if span > 0.0 { since(index) as f64 / span } else { 0.0 };
            let local = matches!(outlet.link, Link::Local { .. });
            TargetRouting {
                instance: outlet.instance,
                agent: outlet.agent,
                rows: outlet.sent_rows,
                share: if all > 0 { since(index) as f64 / all as f64 } else { 0.0 },
                rows_per_second: rate,
                cost,
                cost_per_second: cost * rate,
                queued: outlets.queued(index, now, true),
                age_ms: outlets.age(index, now).filter(|_| !local).map(|age| age.as_millis() as u64),
                open: outlet.credit.left(outlet.sent_bytes) > 0,
                masked: outlets.is_silent(index, now),
                price: seen
                    .and_then(|(priced, _)| priced.terms(index, q_out))
                    .map(|terms| [terms.price(), terms.way, terms.target, terms.sender].map(Price::value)),
            }
        };
        outlets.list().iter().enumerate().map(target).collect()
    }
}

/// Over at least five seconds: the last third of them against the first. What falls again by the last second does not
/// grow.
fn trend(backlogs: &VecDeque<f64>) -> Trend {
    let third = backlogs.len() / 3;
    if backlogs.len() < TREND / 2 {
        return Trend::Unknown;
    }
    let mean =
        |part: &mut dyn Iterator<Item = &f64>, count: usize| part.take(count).sum::<f64>() / count as f64;
    let newest = || backlogs.iter().rev();
    let (first, last) = (mean(&mut backlogs.iter(), third), mean(&mut newest(), third));
    let most = newest().take(third).copied().fold(0.0, f64::max);
    let falls = mean(&mut newest(), SECOND) < most * 0.85;
    if last > first * 1.25 + 10.0 && !falls { Trend::Growing } else { Trend::Stable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_grows_or_does_not() {
        let of = |values: &mut dyn Iterator<Item = f64>| trend(&values.collect());
        assert_eq!(of(&mut std::iter::repeat_n(5.0, 10)), Trend::Unknown);
        assert_eq!(of(&mut (0..40).map(|n| f64::from(n % 7))), Trend::Stable);
        assert_eq!(of(&mut (0..40).map(|n| f64::from(n * 5))), Trend::Growing);
        assert_eq!(of(&mut (0..40).map(|n| f64::from(n % 7 + n * 5))), Trend::Growing);
        assert_eq!(of(&mut (0..40).map(|n| f64::from(200 - n * 5))), Trend::Stable);
        // It grew, and drains: half of its greatest, or nothing, is left.
        let drains = |n: i32| f64::from(if n < 34 { n * 40 } else { 34 * 40 - (n - 33) * 190 }.max(0));
        assert_eq!(of(&mut (0..37).map(drains)), Trend::Stable);
        assert_eq!(of(&mut (0..40).map(drains)), Trend::Stable);
        // Nor is it the beginning of something else that it has never been empty.
        assert_eq!(of(&mut (0..40).map(|n| f64::from(800 + n % 3))), Trend::Stable);
    }
}
