//! The one place where the model changes: an event in, effects out. No clock, no terminal, no cluster.

mod act;
mod keys;
mod line;
mod walk;

use std::rc::Rc;

use super::effect::Effect;
use super::event::{Event, Mouse, News, Telemetry, What};
use super::model::picture::Picture;
use super::model::{Flash, Model, Screen};
use super::view::area;

/// A sentence stays so long.
const FLASH_MS: u64 = 5_000;

/// Takes an event.
pub(crate) fn update(model: &mut Model, event: Event) -> Vec<Effect> {
    // A recording may be put together by hand: time does not go back.
    let before = model.now;
    model.now = event.at.max(before);
    let over = model.flash.as_ref().is_some_and(|flash| flash.until <= model.now);
    if over {
        model.flash = None;
    }
    // Ages and countdowns are shown in seconds.
    model.changed |= over || model.now / 1000 != before / 1000;
    match event.what {
        What::Tick => return Vec::new(),
        // The terminal in front has its own size.
        What::Replayed(what) if matches!(*what, What::Resize { .. }) => {}
        What::Replayed(what) => {
            model.replaying = true;
            // What was asked for and ended then is not asked for or ended again.
            update(model, Event { at: event.at, what: *what });
            model.replaying = false;
        }
        What::PlayedToTheEnd => {
            model.played_at = Some(model.now);
            model.changed = true;
        }
        What::Key(key) => return keys::key(model, key),
        What::Mouse(mouse) => return self::mouse(model, mouse),
        What::Resize { width, height } => {
            model.changed |= (model.width, model.height) != (width, height);
            (model.width, model.height) = (width, height);
        }
        What::Telemetry(telemetry) => telemetry_came(model, &telemetry),
        What::Reply { answer, .. } => match answer {
            Ok(done) => say(model, done),
            Err(why) => complain(model, why),
        },
        What::Connection(news) => {
            if matches!(news, News::Connected) && !model.link.is_connected() && model.live.is_some() {
                say(model, "the cluster answers again".to_owned());
            }
            let link = model.link.after(&news, model.now);
            model.changed |= link != model.link;
            model.link = link;
        }
    }
    Vec::new()
}

/// Says a sentence at the bottom.
fn say(model: &mut Model, text: String) {
    model.flash = Some(Flash { text, bad: false, until: model.now + FLASH_MS });
    model.changed = true;
}

/// Says what could not be done.
fn complain(model: &mut Model, text: String) {
    model.flash = Some(Flash { text, bad: true, until: model.now + FLASH_MS });
    model.changed = true;
}

fn telemetry_came(model: &mut Model, telemetry: &Telemetry) {
    let first = model.live.is_none();
    let picture = Picture::new(model.now, telemetry, &mut model.history, model.plan.clone());
    model.plan = picture.job.as_ref().map(|job| Rc::clone(&job.plan)).or_else(|| model.plan.take());
    let of_run = |picture: &Picture| picture.job.as_ref().map(|job| job.summary.run);
    let another = model.live.as_ref().is_some_and(|live| of_run(live) != of_run(&picture));
    // Several jobs, or none that runs: the person chooses.
    let running = picture.jobs.iter().filter(|job| !job.phase.is_final()).count();
    if first && picture.job.is_none() | (running != 1 && !picture.jobs.is_empty()) {
        model.screen = if picture.jobs.is_empty() { Screen::Graph } else { Screen::Jobs };
    }
    model.live = Some(picture);
    if another && model.frozen.is_none() {
        walk::forget_places(model);
    }
    model.changed |= model.frozen.is_none();
}

fn mouse(model: &mut Model, mouse: Mouse) -> Vec<Effect> {
    use super::command::Step;
    use super::model::Mode;
    if !matches!(model.mode, Mode::Normal) {
        return Vec::new();
    }
    match mouse {
        Mouse::Up => walk::step(model, Step::Up),
        Mouse::Down => walk::step(model, Step::Down),
        Mouse::Press(x, y) => {
            if let Some(hit) = area::hit(model, x, y) {
                model.changed = true;
                match hit {
                    area::Hit::Row(id) => walk::select(model, id),
                    area::Hit::Vertex(vertex) => walk::select_vertex(model, vertex),
                }
            }
        }
    }
    Vec::new()
}
