//! What is shown of an edge that chooses its targets: prices, shares, backlogs.

use std::collections::VecDeque;
use std::time::Instant;

use tuplane_core::route::{Cost, Price, RouteOptions, Setting};
use tuplane_wire::routing::{EdgeRouting, InForce, TargetRouting, Trend};

use super::{Ahead, Edge, Sender, State};
use crate::exchange::outlet::{Link, Outlet};
use crate::exchange::priced::Priced;
use crate::sync::lock;

/// Samples for rates and shares: two seconds.
const RECENT: usize = 8;
/// Samples for the trend: ten seconds.
const TREND: usize = 40;

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
        let counts = priced.map(|priced| priced.counts).unwrap_or_default();
        let bound = state.senders.iter().map(|s| s.bound).min().unwrap_or(0);
        let looking = || state.senders.iter().filter_map(|sender| sender.ahead.as_deref());
        Some(EdgeRouting {
            edge: self.index,
            policy,
            options: samples.given.clone(),
            setting: match samples.options.setting {
                Setting::Paper => "paper",
                Setting::Default => "default",
            }
            .to_owned(),
            slot_us: samples.options.slot.as_micros() as u64,
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
            warnings: priced.and_then(|p| p.warning(bound, state.row_bytes())).into_iter().collect(),
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

/// Over at least five seconds: the last third of them against the first.
fn trend(backlogs: &VecDeque<f64>) -> Trend {
    let third = backlogs.len() / 3;
    if backlogs.len() < TREND / 2 {
        return Trend::Unknown;
    }
    let mean = |part: &mut dyn Iterator<Item = &f64>| part.take(third).sum::<f64>() / third as f64;
    let (first, last) = (mean(&mut backlogs.iter()), mean(&mut backlogs.iter().rev()));
    if last > first * 1.25 + 10.0 { Trend::Growing } else { Trend::Stable }
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
        assert_eq!(of(&mut (0..40).map(|n| f64::from(200 - n * 5))), Trend::Stable);
    }
}
