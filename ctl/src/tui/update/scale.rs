//! More and fewer instances: what is typed, the plan that the cluster makes of it, and the question before it is carried
//! out.

use tui_input::Input;
use tuplane_wire::scaling::{Named, ScaleAsk, ScalePlace, ScalePlan};

use super::act::confirm;
use super::{complain, say};
use crate::tui::command::{Do, of};
use crate::tui::effect::{Ask, Effect};
use crate::tui::event::PlanFacts;
use crate::tui::model::dialog::{Dialog, Then};
use crate::tui::model::{Mode, Model, Screen};
use crate::tui::text;

/// Instances of a plan that are named; of more than that the number is said.
const NAMED: usize = 6;

/// Remarks of a plan that are shown.
const REMARKS: usize = 4;

/// How to write it.
const HOW: &str = "write `out N`, `out agents N`, `in N`, `in AGENT` or `VERTEX=N`; `--planner NAME` after `out` and `in N`";

/// What may be chosen: in words, and the beginning of what is then typed.
const CHOICES: [(&str, &str); 4] = [
    ("out: more instances, where they pay most", "out 1"),
    ("out: more agents, of those without an instance of the job", "out agents 1"),
    ("in: fewer agents; what they have moves to others", "in 1"),
    ("the selected vertex: a number of instances", ""),
];

/// Chooses what is to be scaled, or asks the cluster for the plan of what was typed.
pub(super) fn scale(model: &mut Model, typed: &str) -> Vec<Effect> {
    let Some(run) = running(model) else { return Vec::new() };
    if typed.is_empty() {
        let items = CHOICES.iter().map(|(words, _)| (*words).to_owned()).collect();
        let title = "scale the job".to_owned();
        model.mode = Mode::Dialog(Dialog::Choice { title, items, at: 0, then: Then::Scale });
        return Vec::new();
    }
    match read(typed) {
        Ok(ask) => {
            say(model, "the cluster makes a plan".to_owned());
            vec![Effect::Plan { run, ask }]
        }
        Err(why) => {
            complain(model, why);
            Vec::new()
        }
    }
}

/// The run that is looked at, if it can be scaled.
fn running(model: &mut Model) -> Option<u64> {
    let job = model.live.as_ref().and_then(|live| live.job.as_ref());
    let why = match job {
        None => "there is no job to scale",
        Some(job) if job.summary.phase.is_final() => "the job has ended: there is nothing to scale",
        Some(job) => return Some(job.summary.run),
    };
    complain(model, why.to_owned());
    None
}

/// Opens the line for what was chosen.
pub(super) fn type_it(model: &mut Model, choice: usize) {
    let Some((_, begin)) = CHOICES.get(choice) else { return };
    let begin = if begin.is_empty() { selected(model).unwrap_or_default() } else { (*begin).to_owned() };
    model.mode = Mode::Command(Input::new(format!("{} {begin}", of(Do::Scale).name)));
}

/// `VERTEX=N` of the vertex under the cursor, as it is.
fn selected(model: &Model) -> Option<String> {
    let rows = model.rows(Screen::Scaling);
    let index: usize = rows.get(model.selected(Screen::Scaling, &rows))?.id.parse().ok()?;
    let vertex = model.live.as_ref()?.job.as_ref()?.vertices.get(index)?;
    Some(format!("{}={}", vertex.label, vertex.instances))
}

/// What was typed.
fn read(typed: &str) -> Result<ScaleAsk, String> {
    let count = |word: &str| {
        let count = word.parse::<u32>().ok().filter(|count| *count > 0);
        count.ok_or_else(|| format!("`{word}` is no number from 1 on; {HOW}"))
    };
    let mut words: Vec<&str> = typed.split_whitespace().collect();
    let planner = named_planner(&mut words)?;
    let planner = || planner.clone();
    let out = |agents, instances| ScaleAsk::Out { agents, instances, planner: planner(), anywhere: false };
    let take = |agents| ScaleAsk::In { agents, agent: None, planner: planner(), keep: true };
    if planner().is_some() && !matches!(words.first(), Some(&("out" | "in"))) {
        return Err(format!("`--planner` belongs to `out` and `in`; {HOW}"));
    }
    match words[..] {
        ["out"] => Ok(out(0, 1)),
        ["out", "agents" | "agent", n] => Ok(out(count(n)?, 0)),
        ["out", n] => Ok(out(0, count(n)?)),
        ["in"] => Ok(take(1)),
        ["in", who] => Ok(match who.parse::<u32>() {
            Ok(_) => take(count(who)?),
            Err(_) => ScaleAsk::In { agents: 1, agent: Some(who.to_owned()), planner: planner(), keep: true },
        }),
        ["set", assignment] | [assignment] if assignment.contains('=') => {
            let (vertex, n) = assignment.rsplit_once('=').unwrap_or_default();
            let instances = n.parse().map_err(|_| format!("`{n}` is no number of instances; {HOW}"))?;
            Ok(ScaleAsk::Set { vertex: vertex.to_owned(), instances, place: ScalePlace::Anywhere })
        }
        _ => Err(HOW.to_owned()),
    }
}

/// Takes `--planner NAME` out of what was typed.
fn named_planner(words: &mut Vec<&str>) -> Result<Option<String>, String> {
    let Some(at) = words.iter().position(|word| *word == "--planner" || word.starts_with("--planner="))
    else {
        return Ok(None);
    };
    let name = match words.remove(at).split_once('=') {
        Some((_, name)) => name,
        None if at < words.len() => words.remove(at),
        None => "",
    };
    if name.is_empty() {
        return Err(format!("`--planner` wants a name, such as `out 2 --planner stela`; {HOW}"));
    }
    Ok(Some(name.to_owned()))
}

/// The cluster has made a plan, or says why there is none: it is shown before anything changes.
pub(super) fn planned(model: &mut Model, facts: PlanFacts) {
    let run = model.live.as_ref().and_then(|live| live.job.as_ref()).map(|job| job.summary.run);
    // Whoever does something else by now is not interrupted.
    if run != Some(facts.run) || !matches!(model.mode, Mode::Normal) {
        return;
    }
    let plan = match facts.plan {
        Ok(plan) => plan,
        Err(why) => return complain(model, text::name(&why)),
    };
    if plan.is_empty() {
        return say(model, text::name(&plan.notes.join("; ")));
    }
    model.flash = None;
    let lines = lines(&plan, model.options.glyphs.becomes);
    let title = format!("Scale job {}: {}?", text::name(&plan.job), text::name(&plan.asked));
    let ask =
        Ask::Scale { run: facts.run, ask: facts.ask, epoch: plan.epoch, id: plan.id, words: plan.asked };
    confirm(model, title, lines, ["Leave it", "Scale it"], ask);
}

/// What a plan does, and why.
fn lines(plan: &ScalePlan, becomes: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for count in &plan.counts {
        lines.push(format!(
            "{}: {} {becomes} {} instances",
            text::name(&count.name),
            count.before,
            count.after
        ));
    }
    let mut named = |what: &str, all: Vec<String>| {
        if !all.is_empty() {
            let more = all.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let first = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            lines.push(format!("{what} {first}{more}"));
        }
    };
    let on = |one: &Named| format!("{} on {}", text::name(&one.name), text::name(&one.agent));
    named("starts", plan.started.iter().map(|one| on(&one.instance)).collect());
    let moved = plan.moved.iter();
    named("moves", moved.map(|one| format!("{} {becomes} {}", on(&one.from), on(&one.to))).collect());
    named("ends", plan.stopped.iter().map(|one| on(&one.instance)).collect());
    for edge in &plan.edges {
        lines.push(format!(
            "{}: {} ({})",
            text::name(&edge.name),
            text::name(&edge.change),
            text::name(&edge.why)
        ));
    }
    if let Some(rows) = plan.predicted {
        lines.push(format!("predicted: the sinks take {}", text::rate(Some(rows))));
    }
    if let Some(why) = &plan.unpredicted {
        lines.push(format!("predicted: nothing, for {}", text::name(why)));
    }
    let planner = plan.planner.as_ref().map(|planner| format!("{}: ", text::name(planner)));
    if let Some(why) = &plan.why {
        lines.push(format!("{}{}", planner.unwrap_or_default(), text::name(why)));
    }
    lines.extend(plan.notes.iter().take(REMARKS).map(|note| text::name(note)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_what_the_command_takes() {
        let out = |agents, instances| ScaleAsk::Out { agents, instances, planner: None, anywhere: false };
        assert_eq!(read("out"), Ok(out(0, 1)));
        assert_eq!(read("out 3"), Ok(out(0, 3)));
        assert_eq!(read("out agents 2"), Ok(out(2, 0)));
        let leave = |agents, agent: Option<&str>| {
            Ok(ScaleAsk::In { agents, agent: agent.map(str::to_owned), planner: None, keep: true })
        };
        assert_eq!(read("in 2"), leave(2, None));
        assert_eq!(read("in h3"), leave(1, Some("h3")));
        for typed in ["set work=6", "work=6"] {
            let set = ScaleAsk::Set { vertex: "work".into(), instances: 6, place: ScalePlace::Anywhere };
            assert_eq!(read(typed), Ok(set));
        }
        let stela = |agents, instances| {
            let planner = Some("stela".to_owned());
            Ok(ScaleAsk::Out { agents, instances, planner, anywhere: false })
        };
        assert_eq!(read("out 2 --planner stela"), stela(0, 2));
        assert_eq!(read("out --planner=stela agents 2"), stela(2, 0));
        assert!(matches!(
            read("in 2 --planner etp-sum"),
            Ok(ScaleAsk::In { agents: 2, agent: None, planner: Some(name), keep: true }) if name == "etp-sum"
        ));
        for wrong in ["out 2 --planner", "work=2 --planner best"] {
            assert!(read(wrong).unwrap_err().starts_with("`--planner`"), "{wrong}");
        }
        for wrong in ["out 0", "out x", "in 0", "work", "work=two", "out agents", "a b c"] {
            assert!(read(wrong).unwrap_err().contains("write `out N`"), "{wrong}");
        }
    }
}
