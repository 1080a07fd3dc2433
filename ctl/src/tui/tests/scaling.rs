//! Screen 4: what vertices do and could do, what they carry, and what came of rescales.

use super::screens::check;
use super::values::{assert_cells, cells};
use super::world::{Seat, World, styled};
use crate::tui::effect::Effect;
use crate::tui::event::{EtpFacts, What};
use crate::tui::glyph::Glyphs;
use crate::tui::model::{Screen, Source};
use crate::tui::theme::Theme;

fn seat_of(width: u16, height: u16, world: &World, keys: &str, change: impl Fn(&mut EtpFacts)) -> Seat {
    let mut seat = Seat::at(width, height, world);
    seat.keys("4");
    let mut facts = world.flow();
    change(&mut facts);
    seat.tell(11_000, What::Etp(Box::new(facts)));
    seat.keys(keys);
    seat
}

fn begun(facts: &mut EtpFacts) {
    let why = || "a has not reported yet".to_owned();
    let Some(flow) = &mut facts.flow else { return };
    (flow.rates.seconds, flow.rates.full) = (Err(why()), false);
    (flow.etp.throughput, flow.etp.modelled, flow.etp.limit) = (Err(why()), Err(why()), None);
    flow.etp.assumed.clear();
    for rates in &mut flow.rates.vertices {
        (rates.processed, rates.capacity, rates.busy) = (Err(why()), Err(why()), Err(why()));
        (rates.input, rates.emitted, rates.skew) = (Err(why()), Err(why()), Err(why()));
    }
    for etp in &mut flow.etp.vertices {
        etp.congested = Err(why());
        (etp.path, etp.sink_set, etp.flow_share, etp.gain) = (Err(why()), Err(why()), Err(why()), Err(why()));
    }
    facts.history.clear();
}

#[test]
fn golden_screens_of_scaling() {
    for (width, height) in [(120, 40), (80, 24), (40, 12)] {
        let mut shown = String::new();
        for (name, keys) in
            [("all vertices", ""), ("one that is not known", "G"), ("filtered", "/congested=yes<enter>")]
        {
            let seat = seat_of(width, height, &World::new(7, 2), keys, |_| {});
            shown.push_str(&format!("== {name}\n{}\n", styled(&seat.buffer())));
        }
        let seat = seat_of(width, height, &World::new(3, 2), "", begun);
        shown.push_str(&format!("== it has just begun\n{}\n", styled(&seat.buffer())));
        check(&format!("scaling-{width}x{height}"), &shown);
    }
    let mut seat = seat_of(80, 24, &World::new(3, 2), "", |_| {});
    seat.model.options.glyphs = Glyphs::of(false);
    seat.model.options.theme = Theme::Mono;
    assert!(seat.text().is_ascii(), "{}", seat.text());
}

#[test]
fn rates_are_asked_for_only_where_they_are_shown() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(80, 24, &world);
    assert_eq!(seat.keys("2"), []);
    assert_eq!(seat.keys("4"), [Effect::Etp(Some(1))]);
    assert!(seat.text().contains("waiting for the cluster's answer"), "{}", seat.text());
    assert_eq!(seat.keys(":edges<enter>"), [Effect::Etp(None)]);
    assert_eq!(seat.keys(":scaling<enter>"), [Effect::Etp(Some(1))]);
    let failed = EtpFacts { run: 1, fault: Some("nobody answers".into()), ..EtpFacts::default() };
    seat.tell(11_100, What::Etp(Box::new(failed)));
    assert!(seat.text().contains("no answer: nobody answers"), "{}", seat.text());
    let mut other = world.telemetry(12_000);
    other.job.as_mut().unwrap().summary.phase = tuplane_wire::message::JobPhase::Finished;
    assert_eq!(seat.tell(12_000, What::Telemetry(Box::new(other))), [Effect::Etp(None)]);
    assert!(seat.text().contains("there is nothing to scale"), "{}", seat.text());
    let mut seat = Seat::at(80, 24, &world);
    seat.model.options.source = Source::Recording;
    assert_eq!(seat.keys("4"), []);
}

#[test]
fn every_number_is_the_clusters_and_enter_leads_to_the_instances() {
    let mut seat = seat_of(300, 40, &World::new(3, 2), "", |_| {});
    assert_cells(
        &cells(&seat, "*w"),
        &[
            ("vertex", "*w"),
            ("etp", "100 %"),
            ("congested", "yes"),
            ("+1", "+150/s"),
            ("capacity", "150/s"),
            ("inst", "6"),
            ("busy", "98 %"),
            ("in", "6k/s"),
            ("done", "900/s"),
            ("out", "900/s"),
            ("path", "200 %"),
            ("sinks", "100 %"),
            ("skew", "1.2"),
        ],
    );
    let text = seat.text();
    for part in [
        "the sinks take 900/s",
        "means over 10 s; plan 3",
        "plan 2, out --instances 2 by best: done, 2 started, 0 ended; foretold 912/s, came 898/s",
        "plan 3, set w=6: given up",
        "agent c did not answer",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    seat.keys("G<enter>");
    assert_eq!(seat.model.screen, Screen::Instances);
    assert_eq!(seat.model.rows(Screen::Instances).len(), 6);
    let seat = seat_of(120, 40, &World::new(3, 2), "", begun);
    assert!(
        seat.text().contains("src, done, capacity, +1, etp, skew: a has not reported yet"),
        "{}",
        seat.text()
    );
}
