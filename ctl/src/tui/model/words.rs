//! What is said of an edge in words, on the graph and above its targets.

use super::picture::{EdgePicture, JobPicture};
use crate::tui::text;
use crate::tui::theme::Tone;

/// All of it, a sentence each.
pub(crate) fn edge_words(job: &JobPicture, edge: &EdgePicture) -> Vec<(String, Tone)> {
    let mut words = vec![(format!("edge {}: {}", text::name(&edge.name), kind(edge)), Tone::Plain)];
    if !job.planned_only {
        let facts = &edge.facts;
        words.push((
            format!(
                "{}  by agent {}  across agents {}  queue {} (out {}, on the way {}, in {})  dropped {}",
                flow(job, edge),
                by_agent(job, edge),
                text::share(edge.across),
                text::rows(edge.queue()),
                text::rows(facts.queued_out),
                text::rows(facts.in_flight),
                text::rows(facts.queued_in),
                text::rows(edge.dropped())
            ),
            Tone::Plain,
        ));
    }
    if let Some(changed) = &edge.rebalance {
        words.push((format!("rebalance: {}", changed_words(changed)), Tone::Rebalance));
    }
    if !edge.why.is_empty() {
        words.push((format!("why: {}", text::name(&edge.why)), Tone::Faint));
    }
    words
}

/// The shares of the agents that take the rows: `a 37 b 33 c 30 %`.
fn by_agent(job: &JobPicture, edge: &EdgePicture) -> String {
    let mut shares: Vec<(u16, f64)> = Vec::new();
    for target in &edge.targets {
        let Some(share) = target.share else { continue };
        let instance = job.instances.iter().find(|instance| instance.report.instance == target.instance);
        let Some(agent) = instance.map(|instance| instance.agent) else { continue };
        match shares.iter_mut().find(|(known, _)| *known == agent) {
            Some((_, sum)) => *sum += share,
            None => shares.push((agent, share)),
        }
    }
    shares.sort_by_key(|(agent, _)| *agent);
    if shares.is_empty() {
        return "-".into();
    }
    let parts: Vec<String> = shares
        .iter()
        .map(|(agent, share)| format!("{} {:.0}", text::name(job.agent_name(*agent)), share * 100.0))
        .collect();
    format!("{} %", parts.join(" "))
}

/// What an edge carries; of a job that has ended, what it carried.
pub(crate) fn flow(job: &JobPicture, edge: &EdgePicture) -> String {
    if job.summary.phase.is_final() {
        return format!("{} rows", text::rows(edge.facts.taken));
    }
    text::rate(edge.rate)
}

/// What a rebalance changed.
pub(crate) fn changed_words(changed: &str) -> String {
    if changed.is_empty() { "no effect".into() } else { text::name(changed) }
}

/// Routing, reach and policy.
pub(crate) fn kind(edge: &EdgePicture) -> String {
    let reach = if edge.distributed { "distributed" } else { "local" };
    let policy = edge.policy.as_ref().filter(|_| edge.unicast);
    let by = policy.map_or_else(String::new, |policy| format!(", {}", text::name(policy)));
    format!("{} {reach}{by}", text::name(&edge.routing))
}
