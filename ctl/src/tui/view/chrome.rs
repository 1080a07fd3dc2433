//! The lines around the screen: header, banner, what limits the job, footer.

use tuplane_wire::message::JobPhase;

use super::pen::Pen;
use crate::presence::SILENT_MS;
use crate::report::phase_word;
use crate::tui::command::{COMMANDS, Command, Do, key_of};
use crate::tui::model::link::Link;
use crate::tui::model::picture::Picture;
use crate::tui::model::{Mode, Model, Scope, Screen, Source};
use crate::tui::text;
use crate::tui::theme::Tone;

/// Columns of the footer for leaving and for help.
const WAY_OUT: usize = 16;

/// The state of the connection in a word or two.
pub(crate) fn state(model: &Model) -> (String, Tone) {
    let (link, tone) = link(model);
    if model.frozen.is_some() {
        let held = format!("FROZEN {}", text::age(model.now.saturating_sub(model.frozen_at)));
        // Held still or not, an outage is said.
        return if tone == Tone::Bad { (format!("{held}  {link}"), tone) } else { (held, Tone::Limit) };
    }
    (link, tone)
}

/// The connection, whether the picture is held still or not.
fn link(model: &Model) -> (String, Tone) {
    // What a recording was told of its connection is no state of ours.
    match &model.link {
        _ if model.options.source == Source::Recording => ("RECORDING".into(), Tone::Faint),
        Link::Connecting => ("CONNECTING".into(), Tone::Faint),
        Link::Connected => {
            let age = model.live.as_ref().map_or(0, |live| model.now.saturating_sub(live.at));
            if age > SILENT_MS {
                (format!("OLD {}", text::age(age)), Tone::Bad)
            } else {
                ("LIVE".into(), Tone::Good)
            }
        }
        Link::Lost { .. } => ("LOST".into(), Tone::Bad),
        Link::Nobody { .. } => ("NO CLUSTER".into(), Tone::Bad),
        Link::Starting => ("STARTING".into(), Tone::Faint),
        Link::Apart => ("PLAN".into(), Tone::Faint),
    }
}

/// An item of the header.
struct Item {
    text: String,
    /// What stands there before it goes.
    short: Option<String>,
    tone: Tone,
    /// How early it goes on a narrow screen: the larger the earlier; 0 never.
    rank: u8,
}

fn item(text: String, tone: Tone, rank: u8) -> Item {
    Item { text, short: None, tone, rank }
}

/// The job, its agents and rates; on the right the state of the connection.
pub(crate) fn header(pen: &mut Pen<'_>, model: &Model) {
    let (mut state, tone) = state(model);
    if model.options.read_only {
        state = format!("read-only  {state}");
    }
    let room = i32::from(pen.area.width);
    let mut items = match model.picture() {
        Some(picture) => items(model, picture),
        None => vec![item("tuplane".to_owned(), Tone::Head, 0)],
    };
    let right = text::width(&state) as i32;
    let needed = |items: &[Item]| items.iter().map(|item| text::width(&item.text) as i32 + 2).sum::<i32>();
    while needed(&items) + right > room {
        let goes = items.iter().enumerate().filter(|(_, item)| item.rank > 0);
        let Some((place, _)) = goes.max_by_key(|(_, item)| item.rank) else { break };
        match items[place].short.take() {
            Some(short) => items[place].text = short,
            None => drop(items.remove(place)),
        }
    }
    let mut x = 0;
    for Item { text, tone, .. } in &items {
        let left = (room - right - 1 - x).max(0) as usize;
        x = pen.put(x, 0, &text::fit(text, left, pen.glyphs), pen.style(*tone)) + 2;
    }
    pen.put(room - right, 0, &state, pen.style(tone));
}

fn items(model: &Model, picture: &Picture) -> Vec<Item> {
    let (silent, all) = (picture.silent(model.shown_now()), picture.all_agents());
    let agents = match (silent.is_empty(), all) {
        (_, 0) => item(String::new(), Tone::Plain, 2),
        (true, _) => item(format!("{all}/{all} agents"), Tone::Plain, 3),
        (false, _) => {
            let short = format!("{} of {all} agents", all - silent.len());
            let names: Vec<String> = silent
                .iter()
                .map(|(name, age)| match age {
                    Some(age) => format!("{} {} old", text::name(name), text::age(*age)),
                    None => format!("{} is gone", text::name(name)),
                })
                .collect();
            Item {
                text: format!("{short}: {}", names.join(", ")),
                short: Some(short),
                tone: Tone::Bad,
                rank: 1,
            }
        }
    };
    let Some(job) = &picture.job else {
        let name = if picture.cluster.is_empty() { "tuplane" } else { &picture.cluster };
        return vec![item(text::name(name), Tone::Head, 0), agents];
    };
    let name = item(text::name(&job.summary.name), Tone::Head, 0);
    if job.planned_only {
        let counts = format!("{} vertices, {} edges", job.vertices.len(), job.edges.len());
        return vec![name, item(counts, Tone::Plain, 1)];
    }
    let phase = job.summary.phase;
    let tone = match phase {
        JobPhase::Failed => Tone::Bad,
        JobPhase::Running => Tone::Good,
        _ => Tone::Plain,
    };
    let ran = job.running_ms.map_or_else(String::new, |ms| {
        let since = if phase.is_final() { 0 } else { model.shown_now().saturating_sub(picture.at) };
        format!(" {}", text::clock(ms + since))
    });
    let lost_tone = if job.lost > 0 { Tone::Bad } else { Tone::Plain };
    let instances = job.instances.iter().filter(|instance| !instance.retired).count();
    let mut items = vec![
        name,
        item(format!("{}{ran}", phase_word(phase).to_uppercase()), tone, 0),
        agents,
        item(format!("{instances} instances"), Tone::Plain, 6),
    ];
    if !phase.is_final() {
        items.push(item(format!("in {}", text::rate(job.rows_in)), Tone::Plain, 4));
        items.push(item(format!("out {}", text::rate(job.rows_out)), Tone::Plain, 5));
        items.push(item(format!("cost {} units/s", text::short(job.cost)), Tone::Plain, 7));
    }
    items.push(item(format!("lost {}", text::rows(job.lost)), lost_tone, if job.lost > 0 { 2 } else { 8 }));
    items.retain(|item| !item.text.is_empty());
    items
}

/// What is wrong with the connection; that the picture is held still.
pub(crate) fn banner(pen: &mut Pen<'_>, model: &Model) {
    let old = model.live.as_ref().map_or(0, |live| model.unfrozen_now().saturating_sub(live.at));
    let (text, tone) = if model.played_at.is_some() {
        let cut = if model.played_cut { ", its last line is cut" } else { "" };
        (format!("end of the recording{cut}: {} quits", key_of(Do::Quit)), Tone::Head)
    } else if model.frozen.is_some() {
        let held = text::age(model.now.saturating_sub(model.frozen_at));
        let goes_on = key_of(Do::Freeze);
        match (&model.link, link(model).1) {
            (Link::Lost { cause, .. }, _) => (
                format!(
                    "held still for {held}; no report for {}; {goes_on} goes on: {}",
                    text::age(old),
                    text::name(cause)
                ),
                Tone::Bad,
            ),
            (_, Tone::Bad) => (
                format!("held still for {held}; no report for {}; {goes_on} goes on", text::age(old)),
                Tone::Bad,
            ),
            _ => {
                (format!("held still for {held}; reports are still taken in; {goes_on} goes on"), Tone::Head)
            }
        }
    } else if let Link::Lost { attempt, next_at, cause } = &model.link {
        let next = next_at.saturating_sub(model.now).div_ceil(1000);
        let next = if next == 0 { "trying now".to_owned() } else { format!("next try in {next} s") };
        let what = format!("no answer: what is shown is {} old", text::age(old));
        (format!("{what}; attempt {attempt}, {next}: {}", text::name(cause)), Tone::Bad)
    } else {
        return;
    };
    let style = pen.theme.selected(pen.style(tone));
    pen.paint(0, style);
    pen.line(0, 0, &text, style);
}

/// What limits the job, or why it ended.
pub(crate) fn limit(pen: &mut Pen<'_>, model: &Model) {
    let Some(job) = model.picture().and_then(|picture| picture.job.as_ref()) else { return };
    let (text, tone) = match (&job.summary.fault, job.summary.phase) {
        (Some(fault), _) => (format!("cause: {}", text::name(&fault.message)), Tone::Bad),
        (None, phase) if phase.is_final() => {
            (format!("the job has ended: {}", phase_word(phase)), Tone::Faint)
        }
        _ => {
            let words = job.limit_text();
            let oldest = model.picture().and_then(|picture| picture.oldest(model.shown_now()));
            match oldest {
                _ if words.is_empty() => {
                    ("what limits the job is known after two reports".to_owned(), Tone::Faint)
                }
                // Rates of an agent that is gone say nothing of the rest.
                Some(u64::MAX) => {
                    ("what limits the job is not known while an agent is gone".to_owned(), Tone::Faint)
                }
                Some(age) => (format!("as of {} ago: {words}", text::age(age)), Tone::Stale),
                None if job.limiting().is_some() => (words, Tone::Limit),
                None => (words, Tone::Faint),
            }
        }
    };
    pen.line(0, 0, &text, pen.style(tone));
}

/// Where the person is: `agents > instances on a`.
pub(crate) fn crumbs(model: &Model) -> String {
    let mut names: Vec<String> = model.back.iter().map(|place| place.screen.name().to_owned()).collect();
    let job = model.picture().and_then(|picture| picture.job.as_ref());
    let here = match (&model.scope, model.screen, job) {
        (_, Screen::Targets | Screen::Prices, Some(job)) => {
            let edge = job.edges.get(model.edge as usize).map_or("?", |edge| edge.name.as_str());
            format!("{} of {}", model.screen.name(), text::name(edge))
        }
        (Scope::Vertex(vertex), Screen::Instances, Some(job)) => {
            let label = job.vertices.get(*vertex as usize).map_or("?", |vertex| vertex.label.as_str());
            format!("instances of {}", text::name(label))
        }
        (Scope::Agent(agent), Screen::Instances, _) => format!("instances on {}", text::name(agent)),
        _ => model.screen.name().to_owned(),
    };
    names.push(here);
    names.join(" > ")
}

/// A sentence that stands above the keys for a while.
pub(crate) fn notice(pen: &mut Pen<'_>, model: &Model) {
    let Some(flash) = &model.flash else { return };
    let style = pen.style(if flash.bad { Tone::Bad } else { Tone::Head });
    let lines = text::wrap(&text::name(&flash.text), usize::from(pen.area.width));
    let last = i32::from(pen.area.height) - 1;
    for (y, line) in (0..=last).zip(&lines) {
        // What there is no room for is marked.
        let more = y == last && lines.len() > usize::from(pen.area.height);
        let line = if more { format!("{line} {}", lines[y as usize + 1]) } else { line.clone() };
        pen.line(0, y, &line, style);
    }
}

/// Keys, or a line that is typed; gives the cursor's column then.
pub(crate) fn footer(pen: &mut Pen<'_>, model: &Model) -> Option<u16> {
    let typed = match &model.mode {
        Mode::Filter(input, _) => Some(("/", input)),
        Mode::Command(input) => Some((":", input)),
        _ => None,
    };
    if let Some((mark, input)) = typed {
        let room = usize::from(pen.area.width).saturating_sub(2);
        let from = input.visual_scroll(room);
        let shown: String = skip(input.value(), from);
        let x = pen.put(0, 0, mark, pen.style(Tone::Head));
        pen.put(x, 0, &text::name(&shown), pen.style(Tone::Plain));
        return Some((1 + input.visual_cursor().saturating_sub(from)) as u16);
    }
    let filter = model.list(model.screen).filter;
    let mut left = crumbs(model);
    if !filter.is_empty() {
        left = format!("{left}  /{}", text::name(&filter.text));
    }
    // Where the person is stands first where there are several steps or a filter; screens name themselves.
    let mut x = 0;
    if !model.back.is_empty() || !filter.is_empty() {
        // The way out and to help stays in sight however long that is.
        let room = usize::from(pen.area.width).saturating_sub(WAY_OUT);
        x = pen.put(0, 0, &text::fit(&left, room, pen.glyphs), pen.style(Tone::Head)) + 2;
    }
    let hints = COMMANDS.iter().map(|command| (command, command.hint_on(model.screen)));
    let mut hints: Vec<(&Command, String, &str)> = hints
        .filter(|(command, hint)| !hint.is_empty() && command.is_offered(model))
        .map(|(command, hint)| (command, command.shown_keys(), hint))
        .collect();
    // How to get out and to help stays, then what is used most, in the order of all commands.
    let wide =
        |(_, keys, hint): &(&Command, String, &str)| (text::width(keys) + 1 + text::width(hint)) as i32 + 2;
    let mut room = i32::from(pen.area.width) - x + 2;
    let mut by_rank: Vec<usize> = (0..hints.len()).collect();
    by_rank.sort_by_key(|at| hints[*at].0.hint_rank());
    let mut kept = vec![false; hints.len()];
    for at in by_rank {
        kept[at] = wide(&hints[at]) <= room;
        room -= if kept[at] { wide(&hints[at]) } else { 0 };
    }
    let mut kept = kept.into_iter();
    hints.retain(|_| kept.next().unwrap_or(false));
    for (command, keys, hint) in hints {
        let here = command.what == Do::Show(model.screen);
        let word = pen.style(if here { Tone::Head } else { Tone::Faint });
        let word = if here { pen.theme.selected(word) } else { word };
        x = pen.put(x, 0, &keys, pen.style(Tone::Head)) + 1;
        x = pen.put(x, 0, hint, word) + 2;
    }
    None
}

/// A text without its first columns.
fn skip(text: &str, columns: usize) -> String {
    let mut rest = text;
    let mut gone = 0;
    while let Some(c) = rest.chars().next().filter(|_| gone < columns) {
        gone += text::width(c.encode_utf8(&mut [0; 4])).max(1);
        rest = &rest[c.len_utf8()..];
    }
    rest.to_owned()
}
