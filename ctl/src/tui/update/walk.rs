//! Going about: screens, selections, into a thing and back.

use super::complain;
use crate::tui::command::{self, Do, Step};
use crate::tui::effect::Effect;
use crate::tui::model::dialog::Dialog;
use crate::tui::model::filter::Filter;
use crate::tui::model::picture::{EdgePicture, JobPicture};
use crate::tui::model::route_words::why_row;
use crate::tui::model::table::{Cell, Row};
use crate::tui::model::{Mode, Model, Place, Scope, Screen, columns};
use crate::tui::text;

/// Goes to a screen by its number: Esc does not lead back from there.
pub(super) fn show(model: &mut Model, screen: Screen) {
    model.screen = screen;
    model.scope = Scope::All;
    model.back.clear();
}

/// Goes to the prices of the targets of an edge by its name; Esc leads to all edges from there.
pub(super) fn show_routes(model: &mut Model, name: &str) {
    let edges = model.picture().and_then(|picture| picture.job.as_ref()).map(|job| job.edges.as_slice());
    let found = edges.unwrap_or_default().iter().position(|edge| edge.name == name);
    match found.map(|at| (at as u32, &edges.unwrap_or_default()[at])) {
        None => complain(model, format!("there is no edge `{name}`; screen 2 lists them")),
        Some((_, edge)) if !edge.unicast => {
            let why = no_choice(edge);
            complain(model, why);
        }
        Some((edge, _)) => {
            show(model, Screen::Routes);
            select(model, edge.to_string());
            model.edge = edge;
            go(model, Screen::Prices, Scope::All);
        }
    }
}

/// Why an edge has no policy.
pub(super) fn no_choice(edge: &EdgePicture) -> String {
    let (name, routing) = (text::name(&edge.name), text::name(&edge.routing));
    format!("{name} is {routing}: a policy stands on unicast edges alone")
}

fn go(model: &mut Model, screen: Screen, scope: Scope) {
    let here = std::mem::replace(&mut model.scope, scope);
    model.back.push(Place { screen: model.screen, scope: here });
    model.screen = screen;
}

/// Another job is looked at: what was selected of the last one means nothing.
pub(super) fn forget_places(model: &mut Model) {
    model.graph = crate::tui::model::Graph { as_list: model.graph.as_list, ..Default::default() };
    model.edge = 0;
    for screen in
        [Screen::Edges, Screen::Targets, Screen::Routes, Screen::Prices, Screen::Scaling, Screen::Instances]
    {
        model.list_mut(screen).selected = None;
    }
    // What is open is about the last job, and about its screen.
    match &model.mode {
        Mode::Filter(..) => super::line::leave_filter(model),
        Mode::Dialog(_) => {
            model.mode = Mode::Normal;
            complain(
                model,
                "another job is shown now: what was open was closed, and nothing was changed".into(),
            );
        }
        Mode::Normal | Mode::Command(_) | Mode::Help(..) => {}
    }
    let of_one = matches!(model.screen, Screen::Targets | Screen::Prices | Screen::Instances);
    if of_one && !model.back.is_empty() {
        show(model, Screen::Graph);
    }
}

/// In the list form a vertex that is selected is one that can be seen.
pub(super) fn settle(model: &mut Model) {
    let listed = model.screen == Screen::Graph && model.graph_is_list();
    if !listed || model.list(Screen::Graph).filter.is_empty() {
        return;
    }
    let rows = model.rows(Screen::Graph);
    let selected = model.graph.vertex.to_string();
    let first = rows.first().and_then(|row| row.id.parse().ok());
    if let Some(first) = first.filter(|_| !rows.iter().any(|row| row.id == selected)) {
        model.graph.vertex = first;
    }
}

/// Esc, where nothing is open.
pub(super) fn back(model: &mut Model) {
    let list = model.list_mut(model.screen);
    if !list.filter.is_empty() {
        list.filter = Filter::default();
    } else if let Some(place) = model.back.pop() {
        (model.screen, model.scope) = (place.screen, place.scope);
    }
}

/// Selects a row of the present screen.
pub(super) fn select(model: &mut Model, id: String) {
    if model.screen == Screen::Graph {
        if let Ok(vertex) = id.parse() {
            select_vertex(model, vertex);
        }
        return;
    }
    model.list_mut(model.screen).selected = Some(id);
}

/// Selects a vertex of the graph.
pub(super) fn select_vertex(model: &mut Model, vertex: u32) {
    model.graph.vertex = vertex;
    model.graph.on_edges = false;
    model.graph.pan = (0, 0);
}

/// Moves the selection.
pub(super) fn step(model: &mut Model, step: Step) {
    model.changed = true;
    if model.screen == Screen::Graph && !model.graph_is_list() {
        graph_step(model, step);
        return;
    }
    if let Step::Left | Step::Right = step {
        let most = columns::columns(model.screen).len().saturating_sub(2);
        let list = model.list_mut(model.screen);
        list.left = if step == Step::Left { list.left.saturating_sub(1) } else { (list.left + 1).min(most) };
        return;
    }
    let rows = model.rows(model.screen);
    if rows.is_empty() {
        return;
    }
    let (at, last) = (model.selected(model.screen, &rows), rows.len() - 1);
    let page = usize::from(model.height.saturating_sub(6)).max(1);
    let next = match step {
        Step::Up => at.saturating_sub(1),
        Step::Down => (at + 1).min(last),
        Step::PageUp => at.saturating_sub(page),
        Step::PageDown => (at + page).min(last),
        Step::First => 0,
        _ => last,
    };
    select(model, rows[next].id.clone());
}

fn graph_step(model: &mut Model, step: Step) {
    let Some(job) = model.picture().and_then(|picture| picture.job.as_ref()) else { return };
    if model.graph.on_edges {
        let last = (job.edges.len() as u32).saturating_sub(1);
        let at = model.graph.edge.min(last);
        model.graph.edge = match step {
            Step::Up | Step::Left | Step::PageUp => at.saturating_sub(1),
            Step::Down | Step::Right | Step::PageDown => (at + 1).min(last),
            Step::First => 0,
            Step::Last => last,
        };
        model.graph.pan = (0, 0);
        return;
    }
    let vertex = model.graph.vertex;
    let next = match step {
        Step::Left => job.edges.iter().find(|edge| edge.to == vertex).map(|edge| edge.from),
        Step::Right => job.edges.iter().find(|edge| edge.from == vertex).map(|edge| edge.to),
        Step::Up => beside(job, model.width, vertex, -1),
        Step::Down => beside(job, model.width, vertex, 1),
        Step::First | Step::PageUp => Some(0),
        Step::Last | Step::PageDown => (job.vertices.len() as u32).checked_sub(1),
    };
    if let Some(next) = next {
        select_vertex(model, next);
    }
}

/// The next vertex in the order of the drawing: down each column of boxes, then the next column.
fn beside(job: &JobPicture, columns: u16, vertex: u32, by: i32) -> Option<u32> {
    let boxes = &job.plan.laid(columns).boxes;
    let mut order: Vec<(usize, i32, u32)> =
        (0u32..).zip(boxes).map(|(id, spot)| (spot.level, spot.y, id)).collect();
    order.sort_unstable();
    let at = order.iter().position(|(.., id)| *id == vertex)?;
    order.get(at.checked_add_signed(by as isize)?).map(|(.., id)| *id)
}

/// Goes into what is selected.
pub(super) fn enter(model: &mut Model) -> Vec<Effect> {
    let drawn = model.screen == Screen::Graph && !model.graph_is_list();
    if drawn && model.graph.on_edges {
        model.edge = model.graph.edge;
        let job = model.picture().and_then(|picture| picture.job.as_ref());
        let chooses = job.is_some_and(|job| {
            let edge = job.edges.get(model.edge as usize);
            !job.summary.phase.is_final() && edge.is_some_and(|edge| edge.unicast)
        });
        go(model, if chooses { Screen::Prices } else { Screen::Targets }, Scope::All);
        return Vec::new();
    }
    // On the drawing a vertex that the filter leaves out is grey, and may be selected.
    let chosen = if drawn { Some(model.graph.vertex.to_string()) } else { chosen(model) };
    let Some(id) = chosen else { return Vec::new() };
    match model.screen {
        Screen::Graph | Screen::Scaling => {
            if let Ok(vertex) = id.parse() {
                go_to_instances(model, Scope::Vertex(vertex));
            }
        }
        Screen::Edges | Screen::Routes => {
            if let Ok(edge) = id.parse() {
                model.edge = edge;
                let into = if model.screen == Screen::Edges { Screen::Targets } else { Screen::Prices };
                go(model, into, Scope::All);
            }
        }
        Screen::Prices => price_facts(model, &id),
        Screen::Agents => go_to_instances(model, Scope::Agent(id)),
        Screen::Targets => {
            go_to_instances(model, Scope::All);
            select(model, id);
        }
        Screen::Instances => facts(model, &id),
        Screen::Jobs => return super::keys::run(model, command::of(Do::Job), &id),
    }
    Vec::new()
}

/// The id of the row under the cursor.
fn chosen(model: &Model) -> Option<String> {
    let rows = model.rows(model.screen);
    rows.get(model.selected(model.screen, &rows)).map(|row| row.id.clone())
}

/// Into some of the instances: none of them is left out by a filter of before.
fn go_to_instances(model: &mut Model, scope: Scope) {
    model.list_mut(Screen::Instances).filter = Filter::default();
    go(model, Screen::Instances, scope);
}

/// The cells of a row that say something, by the names of their columns.
fn named_cells(screen: Screen, row: &Row) -> Vec<(String, String)> {
    let cells = columns::columns(screen).iter().zip(&row.cells);
    let named = cells.map(|(column, cell)| (column.name.to_owned(), cell.text()));
    named.filter(|(_, value)| !value.is_empty()).collect()
}

/// All that is known of a target as one agent sees it, and why it gets rows or not.
fn price_facts(model: &mut Model, id: &str) {
    let rows = model.rows(Screen::Prices);
    let (Some(row), Some(seen)) = (rows.iter().find(|row| row.id == id), model.seen()) else { return };
    let Some(job) = &seen.picture.job else { return };
    let mut lines = vec![("why".to_owned(), why_row(&seen, job, id).join("; "))];
    lines.extend(named_cells(Screen::Prices, row));
    let title = row.cells.get(1).map_or_else(String::new, Cell::text);
    model.mode = Mode::Dialog(Dialog::Facts { title, lines, top: 0 });
}

/// All that is known of an instance.
fn facts(model: &mut Model, id: &str) {
    let rows = model.rows(Screen::Instances);
    let (Some(row), Some(job)) =
        (rows.iter().find(|row| row.id == id), model.picture().and_then(|picture| picture.job.as_ref()))
    else {
        complain(model, "that instance is not there any more".into());
        return;
    };
    let mut lines = named_cells(Screen::Instances, row);
    let instance = job.instances.iter().find(|instance| instance.report.instance.to_string() == id);
    if let Some(report) = instance.map(|instance| &instance.report) {
        lines.extend(report.dropped.iter().map(|(reason, n)| (reason.clone(), format!("{n} rows dropped"))));
        lines.extend(report.note.iter().map(|note| ("last fault".to_owned(), note.clone())));
    }
    let title = lines.first().map_or_else(String::new, |(_, name)| name.clone());
    model.mode = Mode::Dialog(Dialog::Facts { title, lines, top: 0 });
}
