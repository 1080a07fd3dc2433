//! What screen 3 says above and below its tables: an edge's policy, each sender's backlog, and why the selected
//! target gets rows or not.

use tuplane_wire::routing::{EdgeRouting, InForce};

use super::picture::JobPicture;
use super::routing::{instance_name, of_row, senders, tone_of, trend_word};
use super::why::{Names, why};
use super::{Model, Screen, Seen};
use crate::presence::SILENT_MS;
use crate::tui::glyph::Glyphs;
use crate::tui::text::{self, signed};
use crate::tui::theme::Tone;

/// Lines with how they look.
type Lines = Vec<(String, Tone)>;

/// Columns that a line over time has at least.
const LEAST_OVER_TIME: usize = 12;

/// Lines above the table, at most `most`.
pub(crate) fn above(model: &Model, width: usize, most: usize) -> Lines {
    let (Some(seen), true) = (model.seen(), most > 0) else { return Vec::new() };
    let Some(job) = &seen.picture.job else { return Vec::new() };
    let mut lines: Lines = Vec::new();
    let say = |sentence: &str, tone: Tone, lines: &mut Lines| {
        lines.extend(text::wrap(sentence, width).into_iter().map(|line| (line, tone)));
    };
    let senders = senders(&seen, model.edge);
    let first = senders.first().map(|(_, routing)| *routing);
    let of_one = model.screen == Screen::Prices;
    match (of_one, first) {
        (true, Some(routing)) => say(&policy_words(job, model.edge, routing), Tone::Head, &mut lines),
        (true, None) => {
            let name = job.edges.get(model.edge as usize).map_or("?", |edge| edge.name.as_str());
            say(&format!("{}: nothing was said of its targets", text::name(name)), Tone::Faint, &mut lines);
        }
        (false, _) => {}
    }
    for (sentence, tone) in complaints(&seen, job) {
        say(&sentence, tone, &mut lines);
    }
    // Where there is little room a sender has a line of it.
    cut(&mut lines, if of_one && !senders.is_empty() { (most - 1).max(1) } else { most });
    if of_one && !senders.is_empty() {
        // The sender of the selected target is among those that are shown.
        let rows = model.rows(Screen::Prices);
        let at = rows
            .get(model.selected(Screen::Prices, &rows))
            .and_then(|row| of_row(&seen, model.edge, &row.id))
            .and_then(|(agent, ..)| senders.iter().position(|(of, _)| *of == agent));
        let room = most - lines.len();
        let from = super::area::first_row(at.unwrap_or(0), senders.len(), room);
        for (agent, routing) in senders.iter().skip(from).take(room) {
            let name = text::name(job.agent_name(*agent));
            lines.push((sender_line(&name, routing, width, seen.glyphs), tone_of_line(routing)));
        }
    }
    lines
}

fn tone_of_line(routing: &EdgeRouting) -> Tone {
    match tone_of(routing.trend) {
        Tone::Limit => Tone::Limit,
        _ => Tone::Plain,
    }
}

/// Why the tables say nothing, or not all.
fn complaints(seen: &Seen<'_>, job: &JobPicture) -> Lines {
    if job.summary.phase.is_final() {
        return vec![("the job has ended: its edges choose no more targets".to_owned(), Tone::Faint)];
    }
    let Some(routes) = &seen.picture.routes else {
        return vec![("waiting for the agents' answer".to_owned(), Tone::Faint)];
    };
    let mut lines: Lines = Vec::new();
    if let Some(fault) = &routes.facts.fault {
        lines.push((format!("no answer: {}", text::name(fault)), Tone::Bad));
    }
    let age = seen.now.saturating_sub(routes.at);
    if age > SILENT_MS {
        lines.push((format!("as of {} ago", text::age(age)), Tone::Stale));
    }
    lines.extend(routes.facts.silent.iter().map(|(agent, cause)| {
        (format!("agent {} did not answer: {}", text::name(agent), text::name(cause)), Tone::Bad)
    }));
    lines
}

/// The policy of an edge with its rules, in a sentence.
fn policy_words(job: &JobPicture, edge: u32, routing: &EdgeRouting) -> String {
    let name = job.edges.get(edge as usize).map_or("?", |edge| edge.name.as_str());
    let mut words = format!("{} by {}", text::name(name), text::name(&routing.policy));
    let rule = |weight: &Option<InForce>| weight.as_ref().map(|weight| text::name(&weight.rule));
    if let (Some(v), Some(beta)) = (rule(&routing.v), rule(&routing.beta)) {
        words += &format!(": V {v}, beta {beta}");
    }
    if !routing.setting.is_empty() {
        let gamma = routing.gamma.map_or_else(|| "any".to_owned(), text::rows);
        words += &format!(
            ", gamma {gamma}, setting {}, slot {} ms",
            text::name(&routing.setting),
            signed(routing.slot_us as f64 / 1e3)
        );
    }
    words
}

/// An agent's part of an edge in one line, its backlog over time at the end.
fn sender_line(agent: &str, routing: &EdgeRouting, width: usize, glyphs: &Glyphs) -> String {
    let mut line = format!("{agent}  backlog {} {}", signed(routing.backlog), trend_word(routing.trend));
    let weight = |name: &str, weight: &Option<InForce>| {
        weight.as_ref().map(|weight| format!("{name} {}", signed(weight.value)))
    };
    let parts = [
        weight("V", &routing.v),
        weight("beta", &routing.beta),
        Some(format!("waiting {}", text::rows(routing.queued_out))),
        (routing.v.is_some()).then(|| format!("forced {}", text::rows(routing.forced))),
        (routing.v.is_some()).then(|| format!("deferred {}", text::rows(routing.deferred))),
        (routing.slots > 0).then(|| format!("slots {}", text::rows(routing.slots))),
    ];
    let room = width.saturating_sub(LEAST_OVER_TIME);
    for part in parts.into_iter().flatten() {
        if text::width(&line) + 2 + text::width(&part) + 2 > room {
            break;
        }
        line = format!("{line}  {part}");
    }
    let left = width.saturating_sub(text::width(&line) + 2);
    format!("{line}  {}", over_time(&routing.backlogs, left, glyphs))
}

/// The last values that have room, a column each, from nothing to the most of them.
pub(crate) fn over_time(values: &[f64], columns: usize, glyphs: &Glyphs) -> String {
    let shown = &values[values.len().saturating_sub(columns)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let level = |value: &f64| {
        let top = glyphs.levels.len() - 1;
        let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
        glyphs.levels[(part * top as f64).round() as usize]
    };
    shown.iter().map(level).collect()
}

/// Lines below the table, at most `most`: why the selected target gets rows or not, then warnings.
pub(crate) fn below(model: &Model, width: usize, most: usize) -> Lines {
    let Some(seen) = model.seen() else { return Vec::new() };
    let edge = if model.screen == Screen::Routes { model.meant_edge() } else { Some(model.edge) };
    let (Some(job), Some(edge)) = (&seen.picture.job, edge) else { return Vec::new() };
    let mut said: Lines = Vec::new();
    if model.screen == Screen::Prices {
        said.extend(why_selected(model, &seen, job).into_iter().map(|line| (line, Tone::Plain)));
    }
    let mut warned: Vec<&str> = Vec::new();
    for (agent, routing) in senders(&seen, edge) {
        for warning in routing.warnings.iter().filter(|warning| !warned.contains(&warning.as_str())) {
            said.push((format!("{}: {}", text::name(job.agent_name(agent)), text::name(warning)), Tone::Bad));
        }
        // The same of another agent says nothing new.
        warned.extend(routing.warnings.iter().map(String::as_str));
    }
    let lines = said.into_iter().flat_map(|(sentence, tone)| {
        text::wrap(&sentence, width).into_iter().map(move |line| (line, tone)).collect::<Vec<_>>()
    });
    let mut lines: Lines = lines.collect();
    cut(&mut lines, most);
    lines
}

/// Leaves out what there is no room for: the last line goes on with the next one, so that it is marked as cut.
pub(super) fn cut(lines: &mut Lines, most: usize) {
    let next = lines.get(most).map(|(line, _)| line.clone());
    lines.truncate(most);
    if let (Some(next), Some((last, _))) = (next, lines.last_mut()) {
        *last = format!("{last} {next}");
    }
}

/// Why the selected target gets rows or not.
fn why_selected(model: &Model, seen: &Seen<'_>, job: &JobPicture) -> Vec<String> {
    let rows = model.rows(Screen::Prices);
    let row = rows.get(model.selected(Screen::Prices, &rows));
    row.map(|row| why_row(seen, job, &row.id)).unwrap_or_default()
}

/// Why the target of a row gets rows or not; nothing for a row that is not there any more.
pub(crate) fn why_row(seen: &Seen<'_>, job: &JobPicture, id: &str) -> Vec<String> {
    let Some((agent, routing, target)) = of_row(seen, seen.edge, id) else { return Vec::new() };
    let sender = text::name(job.agent_name(agent));
    let names = Names {
        from: agent,
        sender: &sender,
        instance: &|id| text::name(&instance_name(job, id)),
        agent: &|agent| text::name(job.agent_name(agent)),
    };
    why(routing, target, &names)
}
