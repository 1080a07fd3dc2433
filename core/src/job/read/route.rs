//! Reads how an edge chooses targets: on a rebalance, or in `[[route]]`.

use crate::fault::Fault;
use crate::job::model::{Route, RouteEntry};
use crate::job::table::Table;
use crate::job::tree::{Node, Value};
use crate::route::policy_names;

/// Options of the policies that price targets.
const OPTIONS: [&str; 8] = ["v", "beta", "gamma", "slot", "setting", "admission", "max_hold", "cost"];

/// One entry of `[[route]]`.
pub(super) fn entry(node: &Node, faults: &mut Vec<Fault>) -> Option<RouteEntry> {
    let mut table = Table::new(node, "[[route]]", faults)?;
    let edge = table.text("edge");
    match &edge {
        Some(edge) => table.at = edge.at,
        None if table.node("edge").is_none() => {
            table.missing("edge", "two stages, such as edge = \"parsed..counts\"");
        }
        None => {}
    }
    let route = read(&mut table);
    if edge.is_some() && table.node("policy").is_none() {
        table.missing("policy", "name the policy that the edge shall have");
    }
    table.finish(faults, |key| belongs(&route, key));
    edge.map(|edge| RouteEntry { edge, route })
}

/// `policy` and its options.
pub(super) fn read(table: &mut Table<'_>) -> Route {
    let policy = table.text("policy");
    let mut route = Route { policy, ..Route::default() };
    if table.node("policy").is_some() && !plain(&route) {
        for key in OPTIONS {
            let Some(node) = table.node(key) else { continue };
            check(table, key, node);
            route.options.insert(key.to_owned(), node.to_json());
        }
    }
    route
}

fn plain(route: &Route) -> bool {
    route.policy.as_ref().is_some_and(|policy| policy_names().contains(&policy.value.as_str()))
}

/// Options are kept as they were written; here only what can be said without the policy.
fn check(table: &mut Table<'_>, key: &'static str, node: &Node) {
    match key {
        // A rule's name, or a number.
        "v" | "beta" if matches!(node.value, Value::Text(_)) => drop(table.text(key)),
        "v" | "gamma" => drop(table.number(key)),
        "beta" => drop(table.positive(key)),
        "slot" => drop(table.positive_duration(key)),
        "max_hold" if matches!(&node.value, Value::Text(text) if text == "none") => {}
        "max_hold" => drop(table.duration(key)),
        "setting" => drop(table.choice(key, &[("paper", ()), ("default", ())])),
        "admission" => drop(table.choice(key, &[("strict", ()), ("relaxed", ())])),
        _ => {}
    }
}

/// A word on a key that stands elsewhere.
pub(super) fn belongs(route: &Route, key: &str) -> Option<String> {
    match (key, &route.policy) {
        ("window" | "predictor", _) => Some(format!("`{key}` stands on the source, not on an edge")),
        (key, None) if OPTIONS.contains(&key) => {
            Some(format!("`{key}` belongs to a policy; add policy = \"potus\" or another that takes it"))
        }
        (key, Some(policy)) if OPTIONS.contains(&key) => {
            Some(format!("the policy `{}` has no options", policy.value))
        }
        _ => None,
    }
}
