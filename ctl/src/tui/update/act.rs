//! Dialogs, and what they ask of the cluster. Nothing is changed without a second key.

use serde_json::{Map, Value};
use tuplane_core::route::policy_names;

use super::{complain, options, say, scale, walk};
use crate::output::table::counted;
use crate::report::phase_word;
use crate::tui::command::open::{Act, Open, of_open};
use crate::tui::command::{Do, key_of};
use crate::tui::effect::{Ask, Effect};
use crate::tui::key::Key;
use crate::tui::model::area;
use crate::tui::model::dialog::{Dialog, Then};
use crate::tui::model::picture::{EdgePicture, JobPicture};
use crate::tui::model::{Mode, Model, Screen};
use crate::tui::text;

/// Lines of a page in what stands over a screen.
pub(super) const PAGE: usize = 10;

/// A run in full as it is now, whatever is held still; `None` if the cluster was asked about another one.
pub(super) fn live_job(model: &Model, run: u64) -> Option<&JobPicture> {
    model.live.as_ref()?.job.as_ref().filter(|job| job.summary.run == run)
}

/// Asks whether to end the job that is meant: the one under the cursor where jobs are listed, else the one
/// on the screen.
pub(super) fn cancel_job(model: &mut Model) {
    let Some(run) = model.meant_run() else {
        complain(model, "there is no job to cancel".into());
        return;
    };
    let known = model.live.as_ref().and_then(|live| live.jobs.iter().find(|job| job.run == run));
    let Some(summary) = known else {
        complain(model, format!("run {run} is not there any more"));
        return;
    };
    let name = text::name(&summary.name);
    if summary.phase.is_final() {
        let phase = phase_word(summary.phase);
        complain(model, format!("job {name} (run {run}) has ended already: {phase}"));
        return;
    }
    // Of a job that is only listed it is not known what waits.
    let waiting = live_job(model, run).map_or_else(
        || "Rows".to_owned(),
        |job| counted(job.edges.iter().map(EdgePicture::queue).sum(), "row"),
    );
    let lines = vec![
        format!("{} {} cancelled", phase_word(summary.phase), model.options.glyphs.becomes),
        format!(
            "It ends {} on {}.",
            counted(summary.instances.into(), "instance"),
            counted(summary.agents.len() as u64, "agent")
        ),
        format!("{waiting} that wait on its edges are dropped; its result stays unfinished."),
    ];
    let title = format!("Cancel job {name} (run {run})?");
    confirm(model, title, lines, ["Keep it running", "Cancel the job"], Ask::Cancel { run });
}

/// Chooses a policy for the edge that is meant, or asks about the one that was named.
pub(super) fn policy(model: &mut Model, named: &str) {
    let Some(edge) = model.meant_edge() else {
        let (pane, edges) = (key_of(Do::NextPane), key_of(Do::Show(Screen::Edges)));
        complain(model, format!("select an edge first: {pane} on the graph, or screen {edges}"));
        return;
    };
    let Some((run, picture)) = live_edge(model, model.meant_run(), edge) else { return };
    let name = text::name(&picture.name);
    if !picture.unicast {
        complain(model, walk::no_choice(&picture));
        return;
    }
    if !named.is_empty() {
        let (named, given) = named.split_once(' ').unwrap_or((named, ""));
        if !policy_names().contains(&named) {
            let known = policy_names().join(", ");
            complain(model, format!("there is no policy `{named}`; there are: {known}"));
            return;
        }
        match options::read(named, given) {
            Ok(options) => confirm_policy(model, run, edge, named, &options),
            Err(why) => complain(model, why),
        }
        return;
    }
    let items: Vec<String> = policy_names().iter().map(|name| (*name).to_owned()).collect();
    let at = items.iter().position(|item| Some(item) == picture.policy.as_ref()).unwrap_or(0);
    let title = format!("policy of {name}");
    model.mode = Mode::Dialog(Dialog::Choice { title, items, at, then: Then::Policy { run, edge } });
}

/// An edge of a run as it is now, with the run; says why where it cannot be changed.
pub(super) fn live_edge(model: &mut Model, run: Option<u64>, edge: u32) -> Option<(u64, EdgePicture)> {
    let job = run.and_then(|run| live_job(model, run));
    let why = match job {
        None => "the job on this screen is not the one that the cluster was asked about last",
        Some(job) if job.summary.phase.is_final() => "the job has ended: its edges carry nothing any more",
        Some(job) => match job.edges.get(edge as usize) {
            Some(found) => return Some((job.summary.run, found.clone())),
            None => "there is no such edge any more",
        },
    };
    complain(model, why.into());
    None
}

fn confirm_policy(model: &mut Model, run: u64, edge: u32, policy: &str, options: &Map<String, Value>) {
    let Some((run, picture)) = live_edge(model, Some(run), edge) else { return };
    let Some(job) = live_job(model, run) else { return };
    let before = picture.policy.clone().unwrap_or_else(|| "-".into());
    let name = text::name(&picture.name);
    let differs = options::given_up(model, edge, policy, options);
    if before == policy && options.is_empty() && differs.is_empty() {
        say(model, format!("{name} goes by {policy} already"));
        return;
    }
    let becomes = model.options.glyphs.becomes;
    let mut lines = vec![format!("policy: {} {becomes} {policy}", text::name(&before))];
    if !options.is_empty() {
        lines.push(format!("with {}; nothing else", options::words(options)));
    }
    lines.extend(differs);
    lines.extend(touched(job, &picture, "policy"));
    let ask = options::ask(run, &picture, policy, options);
    let title = format!("Change the policy of {name}?");
    confirm(model, title, lines, ["Cancel", "Change it"], ask);
}

/// What a change of an edge's policy, or of something else of it, touches.
pub(super) fn touched(job: &JobPicture, picture: &EdgePicture, new: &str) -> Vec<String> {
    let mut agents: Vec<u16> = Vec::new();
    for target in &picture.targets {
        let found = job.instances.iter().find(|instance| instance.report.instance == target.instance);
        agents.extend(found.map(|instance| instance.agent).filter(|agent| !agents.contains(agent)));
    }
    vec![
        format!(
            "It deals {} out to {} on {}.",
            text::rate(picture.rate),
            counted(picture.targets.len() as u64, "instance"),
            counted(agents.len() as u64, "agent")
        ),
        format!(
            "{} in its output queues: from here on by the new {new}.",
            counted(picture.facts.queued_out, "row")
        ),
    ]
}

pub(super) fn confirm(
    model: &mut Model,
    title: String,
    lines: Vec<String>,
    [no, yes]: [&'static str; 2],
    ask: Ask,
) {
    model.mode = Mode::Dialog(Dialog::Confirm { title, lines, no, yes, on_yes: false, ask });
}

/// A key in a dialog.
pub(super) fn dialog(model: &mut Model, key: Key) -> Vec<Effect> {
    let Mode::Dialog(open) = &model.mode else { return Vec::new() };
    let blind = matches!(open, Dialog::Confirm { .. }) && !area::can_answer(model, open);
    let most = area::facts_top(model, open);
    let Mode::Dialog(dialog) = &mut model.mode else { return Vec::new() };
    let open = match dialog {
        Dialog::Choice { .. } => Open::Choice,
        Dialog::Confirm { .. } => Open::Question,
        Dialog::Facts { .. } => Open::Facts,
    };
    let Some(act) = of_open(key, open) else { return Vec::new() };
    if act == Act::Close {
        model.mode = Mode::Normal;
        return Vec::new();
    }
    // What cannot be seen is not answered, and the answer that changes nothing is selected again.
    if blind {
        if let Dialog::Confirm { on_yes, .. } = dialog {
            *on_yes = false;
        }
        return Vec::new();
    }
    match dialog {
        Dialog::Choice { items, at, then, .. } => match act {
            Act::Up => *at = at.checked_sub(1).unwrap_or(items.len().saturating_sub(1)),
            Act::Down => *at = if *at + 1 < items.len() { *at + 1 } else { 0 },
            Act::Take => {
                let (then, at) = (*then, *at);
                let item = items.get(at).cloned().unwrap_or_default();
                model.mode = Mode::Normal;
                match then {
                    Then::Policy { run, edge } => confirm_policy(model, run, edge, &item, &Map::new()),
                    Then::Option { run, edge } => options::type_value(model, run, edge, at),
                    Then::Scale => scale::type_it(model, at),
                    Then::Sort => super::keys::sort_by(model, Some(at)),
                }
            }
            _ => {}
        },
        Dialog::Confirm { on_yes, ask, .. } => match act {
            Act::No => *on_yes = false,
            Act::Yes => *on_yes = true,
            Act::Other => *on_yes = !*on_yes,
            Act::Take => {
                let asked = on_yes.then(|| ask.clone());
                model.mode = Mode::Normal;
                let Some(ask) = asked else {
                    say(model, "nothing was changed".into());
                    return Vec::new();
                };
                say(model, format!("asked: {}", ask.words()));
                if let Ask::Cancel { run } = ask {
                    model.ending = Some(run);
                }
                return vec![Effect::Ask(ask)];
            }
            _ => {}
        },
        Dialog::Facts { top, .. } => match act {
            Act::Up => *top = (*top).min(most).saturating_sub(1),
            Act::Down => *top = (*top + 1).min(most),
            Act::PageUp => *top = (*top).min(most).saturating_sub(PAGE),
            Act::PageDown => *top = (*top + PAGE).min(most),
            Act::Take => model.mode = Mode::Normal,
            _ => {}
        },
    }
    Vec::new()
}
