//! Keys and commands.

use tui_input::Input;

use super::{act, complain, line, options, say, scale, walk};
use crate::tui::command::{self, Command, Do};
use crate::tui::effect::{Effect, Quit};
use crate::tui::key::Key;
use crate::tui::model::area;
use crate::tui::model::dialog::{Dialog, Then};
use crate::tui::model::picture::Picture;
use crate::tui::model::table::{no_column, shown};
use crate::tui::model::{Mode, Model, Screen, columns};

/// Takes a key: what is open has it first, but for those that work everywhere.
pub(super) fn key(model: &mut Model, key: Key) -> Vec<Effect> {
    let bound = command::of_key(key, model.screen);
    let everywhere = bound.filter(|command| {
        matches!(command.what, Do::Interrupt | Do::Redraw | Do::Suspend)
            // Nothing that is open can be seen there.
            || model.is_tiny() && command.what == Do::Quit
    });
    if let Some(command) = everywhere {
        return run(model, command, "");
    }
    model.changed = true;
    match &model.mode {
        Mode::Normal => match bound {
            Some(command) => run(model, command, ""),
            None => Vec::new(),
        },
        Mode::Filter(..) => line::filter(model, key),
        Mode::Command(_) => line::command(model, key),
        Mode::Help(..) => line::help(model, key),
        Mode::Dialog(_) => act::dialog(model, key),
    }
}

/// Carries out a command.
pub(super) fn run(model: &mut Model, command: &Command, argument: &str) -> Vec<Effect> {
    model.changed = true;
    // A recording shows what the keys did then.
    if let Some(why) = command.why_not(model).filter(|_| !model.replaying) {
        complain(model, format!("{}: {why}", command.name));
        return Vec::new();
    }
    match command.what {
        Do::Show(Screen::Routes) if !argument.is_empty() => walk::show_routes(model, argument),
        Do::Show(screen) => walk::show(model, screen),
        Do::Move(step) => walk::step(model, step),
        Do::Pan(columns, lines) => {
            let (x, y) = model.graph.pan;
            model.graph.pan = area::held_pan(model, (x + columns, y + lines));
        }
        Do::Enter => return walk::enter(model),
        // A notice goes first.
        Do::Back if model.flash.take().is_some() => {}
        Do::Back => walk::back(model),
        Do::NextPane => {
            let edges = model.picture().and_then(|p| p.job.as_ref()).map_or(0, |job| job.edges.len());
            model.graph.on_edges = !model.graph.on_edges && edges > 0;
            model.graph.pan = (0, 0);
        }
        // It begins anew: what it was is a key away, and stays until something is typed.
        Do::Filter if argument.is_empty() => {
            model.mode = Mode::Filter(Input::default(), model.list(model.screen).filter);
        }
        Do::Filter => line::set_filter(model, argument),
        Do::Sort => sort(model, argument),
        Do::SortBeside(by) => {
            let count = columns::columns(model.screen).len() as i32;
            let now = model.list(model.screen).order.column;
            let beside = now.map_or(if by > 0 { 0 } else { count - 1 }, |at| at as i32 + by);
            sort_by(model, (0..count).contains(&beside).then_some(beside as usize));
        }
        Do::Invert => {
            let order = &mut model.list_mut(model.screen).order;
            order.inverted = !order.inverted;
        }
        Do::Freeze => freeze(model),
        Do::List => model.graph.as_list = !model.graph.as_list,
        Do::Help => model.mode = Mode::Help(Input::default(), 0),
        Do::CommandLine => model.mode = Mode::Command(Input::default()),
        Do::CancelJob => act::cancel_job(model),
        Do::Policy => act::policy(model, argument),
        Do::Option => options::option(model, argument),
        Do::Scale => return scale::scale(model, argument),
        Do::Job => return job(model, argument),
        Do::StartLocal => return vec![Effect::StartLocal],
        Do::ReadOnly => {
            model.options.read_only = true;
            say(model, "nothing is changed from this UI any more".into());
        }
        Do::Redraw => return vec![Effect::Redraw],
        Do::Suspend => return vec![Effect::Suspend],
        Do::Quit => return vec![Effect::Quit(Quit::Asked)],
        Do::Interrupt => return vec![Effect::Quit(Quit::Interrupted)],
    }
    Vec::new()
}

fn freeze(model: &mut Model) {
    if let Some(held) = model.frozen.take() {
        if model.live.as_ref().map(Picture::run) != Some(held.run()) {
            walk::forget_places(model);
        }
        return;
    }
    model.frozen.clone_from(&model.live);
    model.frozen_at = model.now;
}

fn sort(model: &mut Model, argument: &str) {
    let columns = columns::columns(model.screen);
    if argument.is_empty() {
        let items = columns.iter().map(|column| column.name.to_owned()).collect();
        let at = model.list(model.screen).order.column.unwrap_or(0);
        model.mode = Mode::Dialog(Dialog::Choice { title: "sort by".into(), items, at, then: Then::Sort });
        return;
    }
    match columns.iter().position(|column| column.is_called(argument)) {
        Some(at) => sort_by(model, Some(at)),
        None => complain(model, no_column(argument, columns)),
    }
}

/// Sorts by a column, and says so if it is one that cannot be seen.
pub(super) fn sort_by(model: &mut Model, column: Option<usize>) {
    let columns = columns::columns(model.screen);
    let list = model.list_mut(model.screen);
    list.order.column = column;
    let (left, order) = (list.left, list.order);
    let Some(column) = column.filter(|at| {
        let shown = shown(columns, model.width, left, order);
        !shown.iter().any(|(known, _)| known == at)
    }) else {
        return;
    };
    let why =
        if column > 0 && column <= left { "scrolled out to the left" } else { "this screen is too narrow" };
    let name = columns.get(column).map_or("?", |column| column.name);
    say(model, format!("sorted by {name}, which is hidden: {why}"));
}

/// Looks at a job: by name or run.
pub(super) fn job(model: &mut Model, wanted: &str) -> Vec<Effect> {
    let jobs = model.live.as_ref().map(|live| live.jobs.as_slice()).unwrap_or_default();
    // A run's number counts before a name: Enter on a row gives the number.
    let by_run = jobs.iter().find(|job| job.run.to_string() == wanted);
    let named = by_run.or_else(|| jobs.iter().rev().find(|job| job.name == wanted));
    let Some(run) = named.map(|job| job.run) else {
        let message =
            if wanted.is_empty() { "say which job".into() } else { format!("there is no job `{wanted}`") };
        complain(model, message);
        return Vec::new();
    };
    model.frozen = None;
    walk::show(model, Screen::Graph);
    vec![Effect::Watch(run)]
}
