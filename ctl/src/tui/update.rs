//! The one place where the model changes: an event in, effects out. No clock, no terminal, no cluster.

mod act;
mod keys;
mod line;
mod options;
mod scale;
mod walk;

use std::rc::Rc;

use super::effect::Effect;
use super::event::{EtpFacts, Event, Mouse, News, RouteFacts, Telemetry, What};
use super::model::area;
use super::model::link::Link;
use super::model::picture::Picture;
use super::model::routing::Routes;
use super::model::scaling::Flow;
use super::model::{Flash, LARGEST, Model, Screen, Source};

/// A sentence stays so long.
const FLASH_MS: u64 = 5_000;

/// Takes an event, and notes whether it has changed anything that is shown.
pub(crate) fn update(model: &mut Model, event: Event) -> Vec<Effect> {
    model.changed = false;
    let mut effects = take(model, event);
    walk::settle(model);
    // Routes and rates are asked for only where they are shown.
    let routed = wanted(model, matches!(model.screen, Screen::Routes | Screen::Prices));
    if routed != model.routes_of {
        model.routes_of = routed;
        effects.push(Effect::Routes(routed));
    }
    let flowing = wanted(model, model.screen == Screen::Scaling);
    if flowing != model.flow_of {
        model.flow_of = flowing;
        effects.push(Effect::Etp(flowing));
    }
    effects
}

/// The run of which something is shown that has to be asked for, as long as it can say it.
fn wanted(model: &Model, shown: bool) -> Option<u64> {
    let job =
        model.live.as_ref().filter(|_| shown && model.options.source == Source::Cluster)?.job.as_ref()?;
    (!job.summary.phase.is_final()).then_some(job.summary.run)
}

fn take(model: &mut Model, event: Event) -> Vec<Effect> {
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
        What::Replayed(what) => {
            model.replaying = true;
            // What was asked for and ended then is not asked for or ended again.
            take(model, Event { at: event.at, what: *what });
            model.replaying = false;
        }
        What::PlayedToTheEnd(cut) => {
            model.played_at = Some(model.now);
            model.played_cut = cut;
            model.changed = true;
        }
        What::Key(key) => return keys::key(model, key),
        What::Paste(text) => {
            model.changed = true;
            line::paste(model, &text);
        }
        What::Mouse(mouse) => return self::mouse(model, mouse),
        What::Resize { width, height } => resize(model, width, height),
        What::Telemetry(telemetry) => telemetry_came(model, &telemetry),
        What::Routes(facts) => routes_came(model, *facts),
        What::Etp(facts) => flow_came(model, *facts),
        What::Planned(facts) => scale::planned(model, *facts),
        What::Reply(Ok(done)) => {
            say(model, done);
            let ends = model.ending.take();
            model.flash.iter_mut().for_each(|flash| flash.ends = ends);
        }
        What::Reply(Err(why)) => complain(model, why),
        What::Connection(news) => {
            if matches!(news, News::Connected) && !model.link.is_connected() && model.live.is_some() {
                say(model, "the cluster answers again".to_owned());
            }
            let link = Link::after(&news, model.now);
            model.changed |= link != model.link;
            model.link = link;
        }
    }
    Vec::new()
}

/// A recording is drawn at the size that it was made at: keys and clicks mean the same again.
fn resize(model: &mut Model, width: u16, height: u16) {
    model.changed = true;
    if model.options.source == Source::Recording && !model.replaying {
        return;
    }
    (model.width, model.height) = (width.min(LARGEST.0), height.min(LARGEST.1));
    model.graph.pan = area::held_pan(model, model.graph.pan);
}

/// Says a sentence at the bottom.
fn say(model: &mut Model, text: String) {
    model.flash = Some(Flash { text, bad: false, until: model.now + FLASH_MS, ends: None });
    model.changed = true;
}

/// Says what could not be done.
fn complain(model: &mut Model, text: String) {
    model.flash = Some(Flash { text, bad: true, until: model.now + FLASH_MS, ends: None });
    model.changed = true;
}

fn telemetry_came(model: &mut Model, telemetry: &Telemetry) {
    let first = model.live.is_none();
    let mut picture = Picture::new(model.now, telemetry, &mut model.history, model.plan.clone());
    model.plan = picture.job.as_ref().map(|job| Rc::clone(&job.plan)).or_else(|| model.plan.take());
    let another = model.live.as_ref().is_some_and(|live| live.run() != picture.run());
    if let Some(live) = model.live.as_mut().filter(|_| !another) {
        (picture.routes, picture.flow) = (live.routes.take(), live.flow.take());
    }
    let running = picture.jobs.iter().filter(|job| !job.phase.is_final()).count();
    // Several jobs, or none that runs: the person chooses.
    let may_choose = !picture.jobs.is_empty() && (running != 1 || picture.job.is_none());
    let nothing = picture.jobs.is_empty() && picture.job.is_none();
    match (first, may_choose, nothing) {
        (true, true, _) => model.screen = Screen::Jobs,
        (true, _, true) => model.screen = Screen::Graph,
        _ => {}
    }
    let ended = |run: u64| picture.jobs.iter().any(|job| job.run == run && job.phase.is_final());
    if model.flash.as_ref().is_some_and(|flash| flash.ends.is_some_and(ended)) {
        model.flash = None;
    }
    model.live = Some(picture);
    if another && model.frozen.is_none() {
        walk::forget_places(model);
    }
    model.changed |= model.frozen.is_none();
}

fn routes_came(model: &mut Model, facts: RouteFacts) {
    let now = model.now;
    // An answer about a job that is not looked at any more means nothing.
    let Some(live) = model.live.as_mut().filter(|live| live.run() == Some(facts.run)) else { return };
    live.routes = Some(Rc::new(Routes { at: now, facts }));
    let shown = matches!(model.screen, Screen::Routes | Screen::Prices);
    model.changed |= shown && model.frozen.is_none();
}

fn flow_came(model: &mut Model, facts: EtpFacts) {
    let now = model.now;
    let Some(live) = model.live.as_mut().filter(|live| live.run() == Some(facts.run)) else { return };
    live.flow = Some(Rc::new(Flow { at: now, facts }));
    model.changed |= model.screen == Screen::Scaling && model.frozen.is_none();
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
