//! Reads how an edge chooses targets: on a rebalance, or in `[[route]]`.

use std::collections::BTreeMap;

use crate::fault::Fault;
use crate::job::model::{Route, RouteEntry};
use crate::job::table::Table;
use crate::job::tree::Node;
use crate::route::options::{OPTIONS, options_of};
use crate::route::{RouteOptions, Setting};

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
    if table.node("policy").is_some() {
        let name = route.policy.as_ref().map(|policy| policy.value.as_str());
        let mut places = BTreeMap::new();
        for key in options_of(name.unwrap_or_default()) {
            let Some(node) = table.node(key) else { continue };
            places.insert(*key, node.at);
            route.options.insert((*key).to_owned(), node.to_json());
        }
        // They are kept as they were written: the setting that they stand on may be the job's.
        for error in RouteOptions::read(&route.options, Setting::Default).err().into_iter().flatten() {
            let at = places.get(error.key.as_str()).copied().unwrap_or(table.at);
            table.fault(Fault::new(at, format!("`{}` of {} {}", error.key, table.what(), error.message)));
        }
    }
    route
}

/// A word on a key that stands elsewhere.
pub(super) fn belongs(route: &Route, key: &str) -> Option<String> {
    match (key, &route.policy) {
        ("window" | "predictor", _) => Some(format!("`{key}` stands on the source, not on an edge")),
        (key, None) if OPTIONS.contains(&key) => {
            Some(format!("`{key}` belongs to a policy; add policy = \"potus\" or another that takes it"))
        }
        (key, Some(policy)) if OPTIONS.contains(&key) => Some(match options_of(&policy.value) {
            [] => format!("the policy `{}` has no options", policy.value),
            taken => format!("the policy `{}` takes {}", policy.value, taken.join(", ")),
        }),
        _ => None,
    }
}
