//! What more instances would bring, in words.

use tuplane_core::plan::VertexId;
use tuplane_wire::etp::{More, MorePlan};

/// How a command and the UI write names and rates.
pub(crate) struct Wording<'a> {
    /// A vertex's name.
    pub(crate) label: &'a dyn Fn(VertexId) -> String,
    /// Rows a second.
    pub(crate) rate: &'a dyn Fn(f64) -> String,
    /// There is little room: the numbers alone.
    pub(crate) short: bool,
}

/// Gains below this are none, in rows a second.
const LEAST: f64 = 0.5;

/// A sentence on what so many more instances would bring; none if nobody has looked.
pub(crate) fn words(more: &More, wording: &Wording<'_>) -> Option<String> {
    if let Some(why) = &more.why {
        return Some(format!("what more instances bring is not known: {why}"));
    }
    let last = more.plans.last()?;
    let gain = |plan: &MorePlan| match &plan.gain {
        Ok(gain) if *gain >= LEAST => format!("+{}", (wording.rate)(*gain)),
        Ok(_) => "0".to_owned(),
        Err(_) => "?".to_owned(),
    };
    let numbers = more.plans.iter().map(|plan| plan.instances.to_string()).collect::<Vec<_>>().join(", ");
    if more.plans.iter().all(|plan| plan.gain.as_ref().is_ok_and(|gain| *gain < LEAST)) {
        return Some(format!("{numbers} more instances bring nothing: {}", last.why));
    }
    if wording.short {
        let gains: Vec<String> = more.plans.iter().map(gain).collect();
        return Some(format!("{numbers} more: {}", gains.join(", ")));
    }
    let plan = |plan: &MorePlan| {
        let of = |(vertex, count): &(u32, u32)| match count {
            1 => (wording.label)(VertexId(*vertex)),
            count => format!("{count} {}", (wording.label)(VertexId(*vertex))),
        };
        let of: Vec<String> = plan.vertices.iter().map(of).collect();
        let of = if of.is_empty() { "none used".to_owned() } else { of.join(", ") };
        format!("{} {} ({of})", plan.instances, gain(plan))
    };
    let plans: Vec<String> = more.plans.iter().map(plan).collect();
    Some(format!("more instances, by {}: {}", more.planner, plans.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(instances: u32, gain: f64, vertices: &[(u32, u32)]) -> MorePlan {
        let why = format!("no gain from {instances} more: `w` is full");
        MorePlan { instances, gain: Ok(gain), vertices: vertices.to_vec(), why }
    }

    #[test]
    fn what_each_number_brings_is_said_with_where_it_goes_or_why_it_brings_nothing() {
        let label = |vertex: VertexId| format!("v{}", vertex.0);
        let rate = |rows: f64| format!("{rows}/s");
        let said = |plans: Vec<MorePlan>, short| {
            let more = More { planner: "best".to_owned(), plans, why: None };
            words(&more, &Wording { label: &label, rate: &rate, short })
        };
        let gains = || vec![plan(1, 0.0, &[]), plan(2, 10.0, &[(1, 2)]), plan(4, 25.0, &[(1, 3), (2, 1)])];
        assert_eq!(
            said(gains(), false).unwrap(),
            "more instances, by best: 1 0 (none used), 2 +10/s (2 v1), 4 +25/s (3 v1, v2)"
        );
        assert_eq!(said(gains(), true).unwrap(), "1, 2, 4 more: 0, +10/s, +25/s");
        assert_eq!(
            said(vec![plan(1, 0.0, &[]), plan(2, 0.0, &[])], false).unwrap(),
            "1, 2 more instances bring nothing: no gain from 2 more: `w` is full"
        );
        assert_eq!(said(Vec::new(), false), None, "nobody has looked");
        let unknown = More { why: Some("a has not reported yet".to_owned()), ..More::default() };
        let unknown = words(&unknown, &Wording { label: &label, rate: &rate, short: false });
        assert_eq!(unknown.unwrap(), "what more instances bring is not known: a has not reported yet");
    }
}
