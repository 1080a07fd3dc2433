//! Why a target of an edge gets rows or not, in words.

use tuplane_wire::routing::{EdgeRouting, TargetRouting};

use crate::output::table::counted;
use crate::tui::text::{self, signed};

/// What sentences call the ends of an edge.
pub(crate) struct Names<'a> {
    /// The sending agent's index.
    pub(crate) from: u16,
    /// Its name.
    pub(crate) sender: &'a str,
    /// An instance by its dense id.
    pub(crate) instance: &'a dyn Fn(u32) -> String,
    /// An agent by its index.
    pub(crate) agent: &'a dyn Fn(u16) -> String,
}

/// What the price means for the target, then the sum that gives it. The verdict is of the moment at which the agent
/// answered; the shares are of the last two seconds.
pub(crate) fn why(routing: &EdgeRouting, target: &TargetRouting, names: &Names<'_>) -> Vec<String> {
    let to = (names.instance)(target.instance);
    let from = match target.price {
        Some([price, way, queued, held]) => format!(
            "price {} = V*U {} + Q_in {} - beta*Q_out {}",
            signed(price),
            signed(way),
            signed(queued),
            signed(held)
        ),
        None => {
            format!("{} has no prices; {} there", text::name(&routing.policy), counted(target.queued, "row"))
        }
    };
    vec![format!("{} to {to}: {}", names.sender, verdict(routing, target, names)), from]
}

fn verdict(routing: &EdgeRouting, target: &TargetRouting, names: &Names<'_>) -> String {
    if target.masked {
        let agent = (names.agent)(target.agent);
        let last = target.age_ms.map_or_else(String::new, |ms| format!(" for {}", text::lapse(ms as f64)));
        return format!("left out while there is another target: {agent} was not heard of{last}");
    }
    if !target.open {
        return "full: its channel has no credit left, so rows go to another target or wait".to_owned();
    }
    match (target.price, routing.v.is_some()) {
        (Some(price), true) => priced(routing, target, price, names),
        _ => unpriced(routing, target, names),
    }
}

/// Of those that can take rows the target of the least `key`; the first one of several.
fn least<'a>(
    routing: &'a EdgeRouting,
    key: &dyn Fn(&TargetRouting) -> Option<f64>,
) -> Option<(&'a TargetRouting, f64)> {
    let open = routing.targets.iter().filter(|target| target.open && !target.masked);
    open.filter_map(|target| Some((target, key(target)?))).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// `V*U + Q_in`.
fn near(target: &TargetRouting) -> Option<f64> {
    target.price.map(|[_, way, queued, _]| way + queued)
}

fn priced(
    routing: &EdgeRouting,
    target: &TargetRouting,
    [price, way, queued, held]: [f64; 4],
    names: &Names<'_>,
) -> String {
    let name = |target: &TargetRouting| (names.instance)(target.instance);
    let first = least(routing, &near);
    let others = routing.targets.len().saturating_sub(1);
    if routing.longest_out == 0 {
        return match first {
            Some((first, key)) if first.instance != target.instance && key < way + queued => format!(
                "nothing waits at {}; a row that comes goes to {} first, where V*U + Q_in is {}, not {}",
                names.sender,
                name(first),
                signed(key),
                signed(way + queued)
            ),
            _ => format!(
                "nothing waits at {}; a row that comes goes here first: no target has a smaller V*U + Q_in",
                names.sender
            ),
        };
    }
    if price >= 0.0 {
        let beta = routing.beta.as_ref().map_or(0.0, |beta| beta.value);
        // A row goes once beta * Q_out is above the two other terms.
        let rows = ((way + queued) / beta).floor() + 1.0;
        let until = if beta > 0.0 && rows.is_finite() {
            format!("until {} wait at the sender ({} do)", counted(rows as u64, "row"), signed(held / beta))
        } else {
            "as long as beta is 0".to_owned()
        };
        return format!("held: {} >= 0; {until}, or a release rule lets them go", signed(price));
    }
    match first {
        Some((first, key)) if first.instance != target.instance && key < way + queued => {
            let [_, first_way, first_queued, _] = first.price.unwrap_or_default();
            format!(
                "its turn comes after {}, which is at {} (here {} < 0): {}",
                name(first),
                signed(key - held),
                signed(price),
                dearer(way - first_way, queued - first_queued)
            )
        }
        _ if others == 0 => format!("rows go there: {} < 0, and there is no other target", signed(price)),
        _ => format!("rows go there: {} < 0, the least price of {}", signed(price), others + 1),
    }
}

/// By what a target's price is above the least one.
fn dearer(way: f64, queued: f64) -> String {
    match (way > 0.0, queued > 0.0) {
        (true, true) => format!("its way costs {} more and {} more wait here", signed(way), signed(queued)),
        (true, false) => format!("its way costs {} more", signed(way)),
        (false, _) => format!("{} more wait here", signed(queued)),
    }
}

fn unpriced(routing: &EdgeRouting, target: &TargetRouting, names: &Names<'_>) -> String {
    let shortest = || {
        least(routing, &|target| Some(target.queued as f64)).map_or_else(
            || "-".to_owned(),
            |(shortest, rows)| format!("{} has {}", (names.instance)(shortest.instance), signed(rows)),
        )
    };
    match routing.policy.as_str() {
        "round-robin" => "its turn comes: the next agent, weighted by its instances, and there the next \
                          instance; full ones are skipped"
            .to_owned(),
        "shuffle" => "by lot, as every target that is not full".to_owned(),
        "heron" => "one after the other, from a random first one on".to_owned(),
        "local_first" => {
            let own = |other: &TargetRouting| other.agent == names.from;
            let near = routing.targets.iter().any(|other| own(other) && other.open);
            match (own(target), near) {
                (true, _) => format!("by lot among the instances on {}", names.sender),
                (false, true) => format!("nothing while an instance on {} can take rows", names.sender),
                (false, false) => format!("by lot: no instance on {} can take rows", names.sender),
            }
        }
        "p2c" => format!("of two targets drawn by lot the one with fewer rows; the fewest: {}", shortest()),
        "jsq" => format!("rows go to the target with the fewest rows: {}", shortest()),
        other => format!("the policy {} decides", text::name(other)),
    }
}
