//! Screen 4: what vertices do and could do, what they carry, and what came of rescales.

use tuplane_core::scale::KeyShares;
use tuplane_wire::etp::More;
use tuplane_wire::scaling::{Named, ScaleAsk, ScaleCount, ScaleInstance, ScalePlace, ScalePlan};

use super::screens::check;
use super::values::{assert_cells, cells};
use super::world::{Seat, World, styled};
use crate::tui::effect::{Ask, Effect};
use crate::tui::event::{EtpFacts, PlanFacts, What};
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
    flow.more = More { planner: "best".into(), plans: Vec::new(), why: Some(why()) };
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

fn out(instances: u32) -> ScaleAsk {
    ScaleAsk::Out { agents: 0, instances, planner: None, anywhere: false }
}

fn planned(ask: ScaleAsk, plan: Result<ScalePlan, String>) -> What {
    What::Planned(Box::new(PlanFacts { run: 1, ask, plan }))
}

/// Two more instances of `w`.
fn plan() -> ScalePlan {
    let named = |id: u32| Named { id, name: format!("w#{id}"), agent: "c".into() };
    ScalePlan {
        job: "job".into(),
        run: 1,
        epoch: 3,
        id: Some(7),
        operation: None,
        next: None,
        asked: "out --instances 2".into(),
        planner: Some("best".into()),
        started: [6, 7].map(|id| ScaleInstance { vertex: 1, instance: named(id) }).to_vec(),
        moved: Vec::new(),
        stopped: Vec::new(),
        edges: Vec::new(),
        notes: vec!["the model says 900 rows/s before it and 1200 after it".into()],
        staying: Vec::new(),
        predicted: Some(1200.0),
        unpredicted: None,
        why: Some("w carries 100 % of the output, limits it at 900 rows/s".into()),
        counts: vec![ScaleCount { vertex: 1, name: "w".into(), before: 6, after: 8 }],
    }
}

#[test]
fn the_busiest_key_partition_and_heavy_keys_stand_below() {
    let keyed = |keys: &[(&str, f64)]| {
        let keys: Vec<(String, f64)> = keys.iter().map(|(key, share)| ((*key).to_owned(), *share)).collect();
        let shares = KeyShares { partition: 12, share: 0.2, partitions: 271, keys };
        let seat = seat_of(120, 40, &World::new(3, 2), "", move |facts| {
            for rates in facts.flow.iter_mut().flat_map(|flow| &mut flow.rates.vertices) {
                rates.keys = Ok(shares.clone());
            }
        });
        seat.text()
    };
    let text = keyed(&[("ab", 0.151), ("c", 0.01)]);
    let line = "by key: partition 12 has 20.0 % of the rows, 54.2 times the mean; ab 15.1 %, c 1.0 %";
    assert!(text.contains(line), "{text}");
    assert!(keyed(&[]).contains("no key has 1 %"));
}

#[test]
fn a_plan_is_shown_before_anything_changes_and_only_its_second_answer_carries_it_out() {
    let mut seat = seat_of(100, 30, &World::new(3, 2), "S", |_| {});
    assert!(seat.text().contains("scale the job"), "{}", seat.text());
    assert_eq!(seat.keys("<enter>"), []);
    assert!(seat.text().contains("scale out 1"), "{}", seat.text());
    assert_eq!(seat.keys("<enter>"), [Effect::Plan { run: 1, ask: out(1) }]);
    assert!(seat.text().contains("the cluster makes a plan"), "{}", seat.text());
    seat.tell(11_500, planned(out(1), Ok(plan())));
    for part in
        ["out --instances 2?", "w: 6 → 8 instances", "starts w#6 on c, w#7 on c", "1.2k/s", "best: w carries"]
    {
        assert!(seat.text().contains(part), "{part}: {}", seat.text());
    }
    assert_eq!(seat.keys("<enter>"), []);
    assert!(seat.text().contains("nothing was changed"), "{}", seat.text());
    // The vertex under the cursor, as it is, is what is typed further.
    seat.keys("S<up><enter>");
    assert!(seat.text().contains("scale w=6") || seat.text().contains("scale out="), "{}", seat.text());
    seat.keys("<esc>");
    let set = ScaleAsk::Set { vertex: "w".into(), instances: 8, place: ScalePlace::Anywhere };
    assert_eq!(seat.keys(":scale w=8<enter>"), [Effect::Plan { run: 1, ask: set.clone() }]);
    seat.tell(12_000, planned(set.clone(), Ok(plan())));
    let words = "out --instances 2".to_owned();
    let carried = Ask::Scale { run: 1, ask: set, epoch: 3, id: Some(7), words };
    assert_eq!(seat.keys("<tab><enter>"), [Effect::Ask(carried)]);
}

#[test]
fn scale_without_words_opens_its_form_from_any_screen() {
    let mut seat = seat_of(100, 30, &World::new(3, 2), "", |_| {});
    for screen in ["1", "2", "5", "0"] {
        seat.keys(screen);
        seat.keys(":scale<enter>");
        assert!(seat.text().contains("scale the job"), "{}", seat.text());
        seat.keys("<esc>");
        assert!(!seat.text().contains("scale the job"), "{}", seat.text());
    }
    seat.keys("1");
    // The plan is asked for, and the rates of the screen.
    let plan = Effect::Plan { run: 1, ask: out(1) };
    assert_eq!(seat.keys(":scale out 1<enter>"), [plan, Effect::Etp(Some(1))]);
}

#[test]
fn a_plan_that_is_none_or_comes_too_late_asks_nothing() {
    let mut seat = seat_of(100, 30, &World::new(3, 2), ":scale in 9<enter>", |_| {});
    seat.tell(11_500, planned(out(1), Err("9 machines are to be given back, of 3".into())));
    assert!(seat.text().contains("9 machines are to be given back"), "{}", seat.text());
    let nothing = ScalePlan { started: Vec::new(), notes: vec!["nothing to do".into()], ..plan() };
    seat.tell(11_600, planned(out(1), Ok(nothing)));
    assert!(seat.text().contains("nothing to do"), "{}", seat.text());
    seat.keys("?");
    seat.tell(11_700, planned(out(1), Ok(plan())));
    assert!(!seat.text().contains("Scale it"), "{}", seat.text());
    seat.keys("<esc>");
    let mut other = plan();
    other.run = 9;
    seat.tell(11_800, What::Planned(Box::new(PlanFacts { run: 9, ask: out(1), plan: Ok(other) })));
    assert!(!seat.text().contains("Scale it"), "{}", seat.text());
    assert_eq!(seat.keys(":scale w<enter>"), []);
    assert!(seat.text().contains("write `out N`"), "{}", seat.text());
    assert_eq!(seat.keys(":read-only<enter>:scale out<enter>"), []);
    assert!(seat.text().contains("this UI is read-only"), "{}", seat.text());
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
        let mut seat = seat_of(width, height, &World::new(7, 2), ":scale out 2<enter>", |_| {});
        seat.tell(11_500, planned(out(2), Ok(plan())));
        shown.push_str(&format!("== before it is scaled\n{}\n", styled(&seat.buffer())));
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
        "more instances, by best: 1 +150/s (w), 2 +300/s (2 w), 4 +600/s (4 w)",
        "plan 2, out --instances 2 by best: done, 2 started, 0 ended; predicted 912/s, measured 898/s",
        "plan 3, set w=6: failed",
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
