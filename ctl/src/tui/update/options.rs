//! Options of an edge's policy: which there are, what is typed, and the question before they change.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use tui_input::Input;
use tuplane_core::route::options::{not_taken, options_of};
use tuplane_core::route::{RouteOptions, Setting};
use tuplane_wire::routing::EdgeRouting;

use super::act::{confirm, live_edge, live_job, touched};
use super::{complain, say};
use crate::command::route::{assignment, plain};
use crate::tui::command::{Do, of};
use crate::tui::effect::Ask;
use crate::tui::model::dialog::{Dialog, Then};
use crate::tui::model::picture::EdgePicture;
use crate::tui::model::{Mode, Model};
use crate::tui::text;

/// What stands for an option that was not given.
const NOT_GIVEN: &str = "as the setting has it";

/// Options as they are typed, `v=2 beta=capacity`; says what is wrong with them for this policy.
pub(super) fn read(policy: &str, text: &str) -> Result<Map<String, Value>, String> {
    let given: Map<String, Value> = text
        .split_whitespace()
        .map(assignment)
        .collect::<Result<_, _>>()
        .map_err(|how| format!("options are `KEY=VALUE`, with spaces between them: {how}"))?;
    check(policy, &given)?;
    Ok(given)
}

/// What the agents would refuse is refused here, before a question.
fn check(policy: &str, options: &Map<String, Value>) -> Result<(), String> {
    if let Some(why) = not_taken(policy, options.keys().map(String::as_str)) {
        return Err(why);
    }
    let read: BTreeMap<String, Value> =
        options.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let said = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    RouteOptions::read(&read, Setting::Default).map(drop).map_err(said)
}

/// Options in words: `v=2, beta=8`.
pub(super) fn words(options: &Map<String, Value>) -> String {
    let word = |(key, value): (&String, &Value)| format!("{key}={}", text::name(&plain(value)));
    options.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The request for a policy with these options and no others.
pub(super) fn ask(run: u64, edge: &EdgePicture, policy: &str, options: &Map<String, Value>) -> Ask {
    let options = if options.is_empty() { String::new() } else { Value::Object(options.clone()).to_string() };
    Ask::Route { run, edge: edge.name.clone(), policy: policy.to_owned(), options }
}

/// An edge as its first sender has it, as it is now.
fn live_routing(model: &Model, edge: u32) -> Option<EdgeRouting> {
    let routes = model.live.as_ref()?.routes.as_ref()?;
    routes.of(edge).next().map(|(_, routing)| routing.clone())
}

/// The options that were given to an edge's policy.
fn given(routing: &EdgeRouting) -> Map<String, Value> {
    serde_json::from_str(&routing.options).unwrap_or_default()
}

/// The edge that is meant with its policy; says why there is none whose options could be changed.
fn meant(model: &mut Model) -> Option<(u64, u32, EdgePicture, EdgeRouting)> {
    let Some(edge) = model.meant_edge() else {
        complain(model, "there is no edge to change".into());
        return None;
    };
    let (run, picture) = live_edge(model, model.meant_run(), edge)?;
    let Some(routing) = live_routing(model, edge) else {
        complain(model, "the agents have not said yet what its options are".into());
        return None;
    };
    let policy = text::name(&routing.policy);
    if options_of(&routing.policy).is_empty() {
        complain(
            model,
            format!("the policy {policy} has no options; {} changes the policy", key(Do::Policy)),
        );
        return None;
    }
    Some((run, edge, picture, routing))
}

fn key(what: Do) -> String {
    crate::tui::command::key_of(what)
}

/// Chooses an option, or asks about those that were typed.
pub(super) fn option(model: &mut Model, typed: &str) {
    let Some((run, edge, picture, routing)) = meant(model) else { return };
    if !typed.is_empty() {
        match changed(&routing, typed) {
            Ok(options) => confirm_options(model, run, &picture, &routing, &options),
            Err(why) => complain(model, why),
        }
        return;
    }
    let given = given(&routing);
    let item = |key: &&str| format!("{key}: {}", in_force(&routing, &given, key));
    let items = options_of(&routing.policy).iter().map(item).collect();
    let title = format!("{} of {}", text::name(&routing.policy), text::name(&picture.name));
    model.mode = Mode::Dialog(Dialog::Choice { title, items, at: 0, then: Then::Option { run, edge } });
}

/// An option as it was given or as it holds, with the value that a rule gives.
fn in_force(routing: &EdgeRouting, given: &Map<String, Value>, key: &str) -> String {
    let weight = match key {
        "v" => routing.v.as_ref(),
        "beta" => routing.beta.as_ref(),
        _ => None,
    };
    if let Some(weight) = weight {
        let rule = text::name(&weight.rule);
        return match rule.parse::<f64>() {
            Ok(_) => rule,
            Err(_) => format!("{rule} ({} now)", text::signed(weight.value)),
        };
    }
    match (key, given.get(key)) {
        ("setting", _) => text::name(&routing.setting),
        (_, Some(value)) => text::name(&plain(value)),
        ("slot", None) => format!("{} ms", text::signed(routing.slot_us as f64 / 1e3)),
        _ => of_setting(&routing.setting, key),
    }
}

/// An option as a setting has it.
fn of_setting(setting: &str, key: &str) -> String {
    let options = RouteOptions::of(Setting::named(setting).unwrap_or_default());
    let ms = |time: Duration| format!("{} ms", text::signed(time.as_secs_f64() * 1e3));
    match key {
        "v" => options.v.to_string(),
        "beta" => options.beta.to_string(),
        "gamma" => "any".to_owned(),
        "slot" => ms(options.slot),
        "max_hold" => options.max_hold.map_or_else(|| "none".to_owned(), ms),
        "record" | "with" => "none".to_owned(),
        _ => {
            let all = serde_json::to_value(&options).unwrap_or_default();
            all.get(key).map_or_else(|| NOT_GIVEN.to_owned(), plain)
        }
    }
}

/// What an edge's policy was given and what becomes of it by a request for a policy with these options alone: what is
/// not among them is as the setting has it, or is no more where the new policy has no such option.
pub(super) fn given_up(model: &Model, edge: u32, policy: &str, options: &Map<String, Value>) -> Vec<String> {
    let Some(routing) = live_routing(model, edge) else { return Vec::new() };
    let before = given(&routing);
    let becomes = model.options.glyphs.becomes;
    let setting = match options.get("setting") {
        Some(setting) => plain(setting),
        // What was given goes with the rest; the job's is not known here.
        None if before.contains_key("setting") => Setting::default().name().to_owned(),
        None => routing.setting.clone(),
    };
    let after = |key: &str| match options.get(key) {
        Some(value) => text::name(&plain(value)),
        None if options_of(policy).contains(&key) => of_setting(&setting, key),
        None => "none".to_owned(),
    };
    let given = options_of(&routing.policy).iter().filter(|key| before.contains_key(**key));
    given
        .filter(|key| before.get(**key) != options.get(**key) && **key != "setting")
        .map(|key| format!("{key}: {} {becomes} {}", in_force(&routing, &before, key), after(key)))
        .collect()
}

/// Opens the line for the value of an option, with what was given.
pub(super) fn type_value(model: &mut Model, run: u64, edge: u32, at: usize) {
    let now = live_edge(model, Some(run), edge).and_then(|_| live_routing(model, edge));
    let Some(routing) = now else { return };
    let Some(key) = options_of(&routing.policy).get(at) else { return };
    let value = given(&routing).get(*key).map(plain).unwrap_or_default();
    model.mode = Mode::Command(Input::new(format!("{} {key}={value}", of(Do::Option).name)));
}

/// All options once those that were typed are changed; one without a value is taken back.
fn changed(routing: &EdgeRouting, typed: &str) -> Result<Map<String, Value>, String> {
    let mut options = given(routing);
    let known = options_of(&routing.policy);
    let mut set: Vec<&str> = Vec::new();
    for part in typed.split_whitespace() {
        match part.strip_suffix('=') {
            Some(key) if known.contains(&key) => {
                options.remove(key);
            }
            _ => set.push(part),
        }
    }
    options.extend(read(&routing.policy, &set.join(" "))?);
    check(&routing.policy, &options)?;
    Ok(options)
}

fn confirm_options(
    model: &mut Model,
    run: u64,
    picture: &EdgePicture,
    routing: &EdgeRouting,
    options: &Map<String, Value>,
) {
    let (before, name) = (given(routing), text::name(&picture.name));
    let shown = |value: Option<&Value>| value.map_or_else(|| NOT_GIVEN.to_owned(), |v| text::name(&plain(v)));
    let becomes = model.options.glyphs.becomes;
    let differs: Vec<String> = options_of(&routing.policy)
        .iter()
        .filter(|key| before.get(**key) != options.get(**key))
        .map(|key| {
            let after = shown(options.get(*key));
            format!("{key}: {} {becomes} {after}", in_force(routing, &before, key))
        })
        .collect();
    if differs.is_empty() {
        say(model, format!("{name} has these options already"));
        return;
    }
    let Some(job) = live_job(model, run) else { return };
    let mut lines = differs;
    let others: Map<String, Value> = options
        .iter()
        .filter(|(key, value)| before.get(*key) == Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !others.is_empty() {
        lines.push(format!("as before: {}", words(&others)));
    }
    lines.extend(touched(job, picture, "options"));
    let ask = ask(run, picture, &routing.policy, options);
    let title = format!("Change {} of {name}?", text::name(&routing.policy));
    confirm(model, title, lines, ["Cancel", "Change it"], ask);
}
