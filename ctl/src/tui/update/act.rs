//! Dialogs, and what they ask of the cluster. Nothing is changed without a second key.

use tuplane_core::route::policy_names;

use super::{complain, say};
use crate::output::table::counted;
use crate::report::phase_word;
use crate::tui::effect::{Ask, Effect};
use crate::tui::key::Key;
use crate::tui::model::dialog::{Dialog, Then};
use crate::tui::model::picture::JobPicture;
use crate::tui::model::{Mode, Model};
use crate::tui::text;

/// The job that is looked at as it is now, whatever is held still.
fn live_job(model: &Model) -> Option<&JobPicture> {
    model.live.as_ref()?.job.as_ref()
}

/// Asks whether to end the job.
pub(super) fn cancel_job(model: &mut Model) {
    let Some(job) = live_job(model) else {
        complain(model, "there is no job to cancel".into());
        return;
    };
    let name = text::name(&job.summary.name);
    if job.summary.phase.is_final() {
        let phase = phase_word(job.summary.phase);
        complain(model, format!("job {name} has ended already: {phase}"));
        return;
    }
    let waiting: u64 = job.edges.iter().map(crate::tui::model::picture::EdgePicture::queue).sum();
    let lines = vec![
        format!("{} {} cancelled", phase_word(job.summary.phase), model.options.glyphs.becomes),
        format!(
            "It ends {} on {}.",
            counted(job.instances.len() as u64, "instance"),
            counted(job.agents.len() as u64, "agent")
        ),
        format!(
            "{} that wait on its edges are dropped; its result stays unfinished.",
            counted(waiting, "row")
        ),
    ];
    let (run, title) = (job.summary.run, format!("Cancel job {name} (run {})?", job.summary.run));
    confirm(model, title, lines, ["Keep it running", "Cancel the job"], Ask::Cancel { run });
}

/// Chooses a policy for the edge that is meant, or asks about the one that was named.
pub(super) fn policy(model: &mut Model, named: &str) {
    let Some(edge) = model.meant_edge() else {
        complain(model, "select an edge first: Tab on the graph, or screen 2".into());
        return;
    };
    let Some(picture) = live_job(model).and_then(|job| job.edges.get(edge as usize)) else { return };
    if live_job(model).is_some_and(|job| job.summary.phase.is_final()) {
        complain(model, "the job has ended: its edges carry nothing any more".into());
        return;
    }
    let name = text::name(&picture.name);
    if !picture.unicast {
        let routing = text::name(&picture.routing);
        complain(model, format!("{name} is {routing}: a policy stands on unicast edges alone"));
        return;
    }
    if !named.is_empty() {
        if policy_names().contains(&named) {
            confirm_policy(model, edge, named);
        } else {
            let known = policy_names().join(", ");
            complain(model, format!("there is no policy `{named}`; there are: {known}"));
        }
        return;
    }
    let items: Vec<String> = policy_names().iter().map(|name| (*name).to_owned()).collect();
    let at = items.iter().position(|item| Some(item) == picture.policy.as_ref()).unwrap_or(0);
    let title = format!("policy of {name}");
    model.mode = Mode::Dialog(Dialog::Choice { title, items, at, then: Then::Policy(edge) });
}

fn confirm_policy(model: &mut Model, edge: u32, policy: &str) {
    let Some(job) = live_job(model) else { return };
    let Some(picture) = job.edges.get(edge as usize) else { return };
    let before = picture.policy.clone().unwrap_or_else(|| "-".into());
    let name = text::name(&picture.name);
    if before == policy {
        say(model, format!("{name} goes by {policy} already"));
        return;
    }
    let mut agents: Vec<u16> = Vec::new();
    for target in &picture.targets {
        let found = job.instances.iter().find(|instance| instance.report.instance == target.instance);
        agents.extend(found.map(|instance| instance.agent).filter(|agent| !agents.contains(agent)));
    }
    let lines = vec![
        format!("policy: {} {} {policy}", text::name(&before), model.options.glyphs.becomes),
        format!(
            "It deals {} out to {} on {}.",
            text::rate(picture.rate),
            counted(picture.targets.len() as u64, "instance"),
            counted(agents.len() as u64, "agent")
        ),
        format!(
            "{} in its output queues: from here on by the new policy.",
            counted(picture.facts.queued_out, "row")
        ),
    ];
    let ask = Ask::Route { run: job.summary.run, edge: picture.name.clone(), policy: policy.to_owned() };
    let title = format!("Change the policy of {name}?");
    confirm(model, title, lines, ["Cancel", "Change it"], ask);
}

fn confirm(model: &mut Model, title: String, lines: Vec<String>, [no, yes]: [&'static str; 2], ask: Ask) {
    model.mode = Mode::Dialog(Dialog::Confirm { title, lines, no, yes, on_yes: false, ask });
}

/// A key in a dialog.
pub(super) fn dialog(model: &mut Model, key: Key) -> Vec<Effect> {
    let Mode::Dialog(dialog) = &mut model.mode else { return Vec::new() };
    let pressed = key.name().map(str::to_owned).or_else(|| key.typed().map(|c| c.to_string()));
    let pressed = pressed.unwrap_or_default();
    if matches!(pressed.as_str(), "esc" | "q") {
        model.mode = Mode::Normal;
        return Vec::new();
    }
    match dialog {
        Dialog::Choice { items, at, then, .. } => match pressed.as_str() {
            "up" | "k" | "backtab" => *at = at.checked_sub(1).unwrap_or(items.len().saturating_sub(1)),
            "down" | "j" | "tab" => *at = if *at + 1 < items.len() { *at + 1 } else { 0 },
            "enter" => {
                let (then, at) = (*then, *at);
                let item = items.get(at).cloned().unwrap_or_default();
                model.mode = Mode::Normal;
                match then {
                    Then::Policy(edge) => confirm_policy(model, edge, &item),
                    Then::Sort => model.list_mut(model.screen).order.column = Some(at),
                }
            }
            _ => {}
        },
        Dialog::Confirm { on_yes, ask, .. } => match pressed.as_str() {
            "left" | "h" => *on_yes = false,
            "right" | "l" => *on_yes = true,
            "tab" | "backtab" => *on_yes = !*on_yes,
            "enter" => {
                let asked = on_yes.then(|| ask.clone());
                model.mode = Mode::Normal;
                let Some(ask) = asked else {
                    say(model, "nothing was changed".into());
                    return Vec::new();
                };
                say(model, format!("asked: {}", ask.words()));
                let id = model.next_id;
                model.next_id += 1;
                return vec![Effect::Ask { id, ask }];
            }
            _ => {}
        },
        Dialog::Facts { lines, top, .. } => match pressed.as_str() {
            "up" | "k" => *top = top.saturating_sub(1),
            "down" | "j" => *top = (*top + 1).min(lines.len().saturating_sub(1)),
            "enter" => model.mode = Mode::Normal,
            _ => {}
        },
    }
    Vec::new()
}
