//! The lines at the bottom (`/` and `:`) and the help.

use tui_input::{Input, InputRequest};

use super::act::PAGE;
use super::{complain, keys};
use crate::tui::command::open::{Act, Open, of_open};
use crate::tui::command::{self, COMMANDS, Do};
use crate::tui::effect::Effect;
use crate::tui::key::Key;
use crate::tui::model::filter::Filter;
use crate::tui::model::{Mode, Model, Screen, columns, help};

/// So many lines of `:` are remembered.
const REMEMBERED: usize = 50;

/// A longer line than this is a slip.
const LONGEST: usize = 500;

/// The change that a key makes to a line.
fn edit(input: &mut Input, key: Key, act: Option<Act>) -> bool {
    let request = match (key.typed(), act) {
        (_, Some(Act::Edit(request))) => request,
        (Some(c), _) if input.value().chars().count() < LONGEST => InputRequest::InsertChar(c),
        _ => return false,
    };
    input.handle(request).is_some()
}

/// What was pasted goes into a line that is open, as one line; anywhere else it would be taken for keys.
pub(super) fn paste(model: &mut Model, text: &str) {
    let (mut input, mode) = match std::mem::replace(&mut model.mode, Mode::Normal) {
        Mode::Filter(input, before) => (input, Mode::Filter(Input::default(), before)),
        Mode::Command(input) => (input, Mode::Command(Input::default())),
        Mode::Help(input, _) => (input, Mode::Help(Input::default(), 0)),
        other => {
            model.mode = other;
            let (filter, line) = (command::key_of(Do::Filter), command::key_of(Do::CommandLine));
            complain(model, format!("what was pasted was left out: it goes into a line, {filter} or {line}"));
            return;
        }
    };
    let room = LONGEST.saturating_sub(input.value().chars().count());
    let fits = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(room);
    for c in fits {
        input.handle(InputRequest::InsertChar(c));
    }
    model.mode = match mode {
        Mode::Filter(_, before) => {
            model.list_mut(model.screen).filter = Filter::new(input.value());
            Mode::Filter(input, before)
        }
        Mode::Command(_) => Mode::Command(input),
        _ => Mode::Help(input, 0),
    };
}

/// The filter line: rows follow as it is typed.
pub(super) fn filter(model: &mut Model, key: Key) -> Vec<Effect> {
    let Mode::Filter(input, before) = &mut model.mode else { return Vec::new() };
    let act = of_open(key, Open::Filter);
    match act {
        Some(Act::Close) => leave_filter(model),
        Some(Act::Take) => {
            let text = input.value().to_owned();
            let typed = model.list(model.screen).filter;
            let kept = matches!(&model.mode, Mode::Filter(_, before) if text.is_empty() && typed == *before);
            leave_filter(model);
            if !kept {
                set_filter(model, &text);
            }
        }
        Some(Act::Up) => {
            *input = Input::new(before.text.clone());
            let filter = before.clone();
            model.list_mut(model.screen).filter = filter;
        }
        _ => {
            if edit(input, key, act) {
                let filter = Filter::new(input.value());
                model.list_mut(model.screen).filter = filter;
            }
        }
    }
    Vec::new()
}

/// Closes the filter line; the filter is what it was.
pub(super) fn leave_filter(model: &mut Model) {
    if let Mode::Filter(_, before) = std::mem::replace(&mut model.mode, Mode::Normal) {
        model.list_mut(model.screen).filter = before;
    }
}

/// Filters by this, or says why not and leaves the filter as it was.
pub(super) fn set_filter(model: &mut Model, text: &str) {
    let filter = Filter::new(text);
    match filter.fault(columns::columns(model.screen)) {
        Some(why) => complain(model, why),
        None => model.list_mut(model.screen).filter = filter,
    }
}

/// The command line.
pub(super) fn command(model: &mut Model, key: Key) -> Vec<Effect> {
    let Mode::Command(input) = &mut model.mode else { return Vec::new() };
    let act = of_open(key, Open::Command);
    match act {
        Some(Act::Close) => model.mode = Mode::Normal,
        Some(Act::Edit(InputRequest::DeletePrevChar)) if input.value().is_empty() => {
            model.mode = Mode::Normal;
        }
        Some(Act::Take) => {
            let text = input.value().trim().to_owned();
            model.mode = Mode::Normal;
            return carry_out(model, &text);
        }
        Some(Act::Complete) => {
            if let Some(name) = complete(input.value()) {
                *input = Input::new(name);
            }
        }
        Some(arrow @ (Act::Up | Act::Down)) => {
            let at = model.commands.iter().position(|known| known == input.value());
            let count = model.commands.len();
            let next = match (arrow, at) {
                (Act::Up, None) => count.checked_sub(1),
                (Act::Up, Some(at)) => at.checked_sub(1),
                (_, Some(at)) => Some(at + 1).filter(|next| *next < count),
                _ => None,
            };
            if let Some(known) = next.and_then(|next| model.commands.get(next)) {
                *input = Input::new(known.clone());
            }
        }
        _ => {
            edit(input, key, act);
        }
    }
    Vec::new()
}

fn carry_out(model: &mut Model, text: &str) -> Vec<Effect> {
    if text.is_empty() {
        return Vec::new();
    }
    model.commands.retain(|known| known != text);
    model.commands.push(text.to_owned());
    if model.commands.len() > REMEMBERED {
        model.commands.remove(0);
    }
    let (name, argument) = text.split_once(' ').unwrap_or((text, ""));
    match command::of_name(name) {
        Ok(command) if command.what == Do::Scale && !command.works_on(model.screen) => {
            let mut effects = keys::run(model, command::of(Do::Show(Screen::Scaling)), "");
            effects.extend(keys::run(model, command, argument.trim()));
            effects
        }
        Ok(command) if !command.works_on(model.screen) => {
            complain(
                model,
                format!("`{}` does not work on the screen {}", command.name, model.screen.name()),
            );
            Vec::new()
        }
        Ok(command) => keys::run(model, command, argument.trim()),
        Err(message) => {
            complain(model, message);
            Vec::new()
        }
    }
}

/// The rest of a name that only one command can have, or what all that it can be share.
fn complete(typed: &str) -> Option<String> {
    let fits: Vec<&str> =
        COMMANDS.iter().map(|command| command.name).filter(|name| name.starts_with(typed)).collect();
    let first = fits.first()?;
    let shared =
        (0..=first.len()).rev().find(|len| fits.iter().all(|name| name.get(..*len) == first.get(..*len)))?;
    let space = if fits.len() == 1 { " " } else { "" };
    Some(format!("{}{space}", first.get(..shared)?))
}

/// The help: typing filters it.
pub(super) fn help(model: &mut Model, key: Key) -> Vec<Effect> {
    let most = help::last_top(model);
    let Mode::Help(input, top) = &mut model.mode else { return Vec::new() };
    let act = of_open(key, Open::Help);
    // What leaves the UI or opens the help elsewhere closes it, as long as nothing is typed.
    let leaves = command::of_key(key, model.screen)
        .is_some_and(|command| matches!(command.what, Do::Quit | Do::Help) && input.value().is_empty());
    match act {
        _ if leaves => model.mode = Mode::Normal,
        Some(Act::Close) => model.mode = Mode::Normal,
        Some(Act::Up) => *top = (*top).min(most).saturating_sub(1),
        Some(Act::Down) => *top = (*top + 1).min(most),
        Some(Act::PageUp) => *top = (*top).min(most).saturating_sub(PAGE),
        Some(Act::PageDown) => *top = (*top + PAGE).min(most),
        _ => {
            edit(input, key, act);
            *top = 0;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_as_far_as_they_are_clear() {
        assert_eq!(complete("gr").as_deref(), Some("graph "));
        assert_eq!(complete("sort-").as_deref(), Some("sort-"));
        assert_eq!(complete("pan").as_deref(), Some("pan"));
        assert_eq!(complete("x"), None);
    }
}
