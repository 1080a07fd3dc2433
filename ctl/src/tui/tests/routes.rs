//! Screen 3: how edges choose their targets, why, and what is changed from there.

use tuplane_wire::routing::Trend;

use super::screens::check;
use super::values::{assert_cells, cells};
use super::world::{Seat, World, styled};
use crate::tui::effect::{Ask, Effect};
use crate::tui::event::{Event, RouteFacts, What};
use crate::tui::glyph::Glyphs;
use crate::tui::model::{Mode, Screen, Source};
use crate::tui::theme::Theme;

/// A UI that was told how the edges of a world choose, on screen 3 or wherever keys lead from the graph.
fn seat_of(width: u16, height: u16, world: &World, keys: &str, change: impl Fn(&mut RouteFacts)) -> Seat {
    let mut seat = Seat::at(width, height, world);
    seat.tell(11_000, What::Telemetry(Box::new(world.priced(11_000))));
    seat.keys(keys);
    let mut routes = world.routes();
    change(&mut routes);
    seat.tell(11_000, What::Routes(Box::new(routes)));
    seat
}

fn seat(width: u16, height: u16, keys: &str) -> Seat {
    seat_of(width, height, &World::new(3, 2), keys, |_| {})
}

/// A line of the screen that contains this.
fn line(seat: &Seat, part: &str) -> String {
    let shown = seat.text();
    shown
        .lines()
        .find(|line| line.contains(part))
        .unwrap_or_else(|| panic!("no {part} in\n{shown}"))
        .to_owned()
}

#[test]
fn golden_screens_of_routes() {
    let steps = [
        ("all edges", "3"),
        ("one edge, nothing waits at its first sender", "3<enter>"),
        ("a target that is full", "3<enter>:filter state=full<enter>"),
        ("where the backlog grows", "3<enter>G"),
        ("a policy without prices", "3j<enter>"),
        ("one target in full", "3<enter><enter>"),
        ("options", "3O"),
        ("before options change", "3:option v=2 setting=paper<enter>"),
    ];
    for (width, height) in [(120, 40), (80, 24), (40, 12)] {
        let mut shown = String::new();
        for (name, keys) in steps {
            let mut seat = seat_of(width, height, &World::new(7, 2), "3", |_| {});
            seat.keys(keys);
            shown.push_str(&format!("== {name}\n{}\n", styled(&seat.buffer())));
        }
        check(&format!("routes-{width}x{height}"), &shown);
    }
    let mut seat = seat(80, 24, "3<enter>");
    seat.model.options.glyphs = Glyphs::of(false);
    seat.model.options.theme = Theme::Mono;
    assert!(seat.text().is_ascii(), "{}", seat.text());
}

#[test]
fn routes_are_asked_for_only_where_they_are_shown() {
    let mut seat = Seat::at(80, 24, &World::new(3, 1));
    for keys in ["2", "5", "6", "0", "1", "j"] {
        assert_eq!(seat.keys(keys), [], "{keys}");
    }
    assert_eq!(seat.keys("3"), [Effect::Routes(Some(1))]);
    assert_eq!(seat.keys("<enter>"), [], "they are asked for already");
    assert_eq!(seat.keys("<enter><esc><esc>2"), [Effect::Routes(None)]);
    // Another job is asked for its own, one that has ended for none.
    seat.keys("3");
    let mut other = World::new(3, 1).telemetry(12_000);
    other.job.as_mut().unwrap().summary.run = 2;
    assert_eq!(seat.tell(12_000, What::Telemetry(Box::new(other.clone()))), [Effect::Routes(Some(2))]);
    // What still comes of the job of before is not shown.
    seat.tell(12_100, What::Routes(Box::new(World::new(3, 1).routes())));
    assert!(seat.text().contains("waiting for the agents' answer"), "{}", seat.text());
    other.job.as_mut().unwrap().summary.phase = tuplane_wire::message::JobPhase::Finished;
    assert_eq!(seat.tell(12_500, What::Telemetry(Box::new(other))), [Effect::Routes(None)]);
    assert!(seat.text().contains("the job has ended: its edges choose no more"), "{}", seat.text());
    // A recording and a plan ask nobody.
    let mut seat = Seat::at(80, 24, &World::new(3, 1));
    seat.model.options.source = Source::Recording;
    assert_eq!(seat.keys("3"), []);
    seat.tell(11_500, What::Replayed(Box::new(What::Routes(Box::new(World::new(3, 1).routes())))));
    seat.keys("<enter>");
    assert!(seat.text().contains("src..w by potus"), "{}", seat.text());
}

#[test]
fn every_number_is_that_of_the_agents() {
    let mut seat = seat(300, 40, "3");
    assert_cells(
        &cells(&seat, "src..w"),
        &[
            ("edge", "src..w"),
            ("policy", "potus"),
            ("v", "2.5"),
            ("beta", "8"),
            // 100 to 150 to each of six, from three agents.
            ("rate", "2.2k/s"),
            ("cost/s", "4500"),
            ("waiting", "88"),
            ("backlog", "512"),
            ("trend", "growing"),
            ("forced", "9"),
            ("deferred", "3"),
            ("setting", "default"),
            ("slot", "5 ms"),
            ("warnings", "1"),
        ],
    );
    seat.keys("<enter>:filter from=b to=w#2<enter>");
    assert_cells(
        &cells(&seat, "b       w#2"),
        &[
            ("from", "b"),
            ("to", "w#2"),
            ("price", "-0.5"),
            ("v*u", "7.5"),
            ("q_in", "24"),
            ("beta*q_out", "32"),
            ("share", "13 %"),
            ("rate", "120/s"),
            ("cost/s", "360"),
            ("state", ""),
            ("on", "c"),
            ("age", "12 ms"),
            ("cost", "3"),
            ("rows", "5,002"),
        ],
    );
    let sender = line(&seat, "c  backlog");
    for part in
        ["backlog 390 growing", "V 2.5", "beta 8", "waiting 80", "forced 6", "deferred 2", "slots 1.2k"]
    {
        assert!(sender.contains(part), "{part}: {sender}");
    }
    assert!(sender.ends_with("▇▇▇███") && sender.contains("▁▁"), "{sender}");
    assert!(line(&seat, "by potus").contains("V balance, beta 8, gamma any, setting default, slot 5 ms"));
}

#[test]
fn weights_that_differ_between_agents_are_shown_as_a_span() {
    let change = |routes: &mut RouteFacts| routes.edges[2].1.v.as_mut().unwrap().value = 4.0;
    let mut seat = seat_of(120, 40, &World::of(super::world::chain(3), 1), "3", |routes| {
        let at = routes.edges.iter().position(|(agent, of)| (*agent, of.edge) == (2, 0)).unwrap();
        routes.edges.swap(2.min(at), at);
        change(routes);
    });
    assert!(seat.text().contains(" 2.5..4 "), "{}", seat.text());
    seat.keys("<enter>");
    let value = |agent: &str| line(&seat, &format!("{agent}  backlog"));
    assert!(value("a").contains("V 2.5") && value("c").contains("V 4"), "{}", seat.text());
}

#[test]
fn why_a_target_gets_rows_or_not_is_said_in_words() {
    let mut seat = seat(120, 40, "3<enter>");
    for (from, to, said) in [
        (
            "a",
            "w#0",
            "nothing waits at a; a row that comes goes here first: no target has a smaller V*U + Q_in",
        ),
        (
            "a",
            "w#1",
            "nothing waits at a; a row that comes goes to w#0 first, where V*U + Q_in is 10, not 24.5",
        ),
        ("a", "w#4", "left out while there is another target: b was not heard of for 2 s"),
        ("b", "w#1", "rows go there: -15 < 0, the least price of 6"),
        ("b", "w#0", "its turn comes after w#1, which is at -15 (here -14.5 < 0): its way costs 7.5 more"),
        (
            "b",
            "w#2",
            "its turn comes after w#1, which is at -15 (here -0.5 < 0): its way costs 7.5 more and 7 more wait",
        ),
        // (7.5 + 31) / 8 is over 4.
        (
            "b",
            "w#3",
            "held: 6.5 >= 0; until 5 rows wait at the sender (4 do), or a release rule lets them go",
        ),
        ("b", "w#5", "full: its channel has no credit left"),
    ] {
        seat.keys(&format!("/<c-u>from={from} to={to}<enter>"));
        let shown = seat.text();
        assert!(shown.contains(said), "{from} {to}: {shown}");
    }
    assert!(seat.text().contains("price 20.5 = V*U 7.5 + Q_in 45 - beta*Q_out 32"), "{}", seat.text());
}

#[test]
fn policies_without_prices_say_how_they_choose() {
    for (policy, said) in [
        ("round-robin", "its turn comes: the next agent"),
        ("shuffle", "by lot, as every target"),
        ("heron", "one after the other"),
        ("local_first", "by lot among the instances on a"),
        ("p2c", "the fewest: w#0 has 10"),
        ("jsq", "rows go to the target with the fewest rows: w#0 has 10"),
        ("mine", "the policy mine decides"),
    ] {
        let seat = seat_of(120, 40, &World::new(3, 2), "3<enter>", |routes| {
            for (_, of) in &mut routes.edges {
                (of.policy, of.v, of.beta) = (policy.into(), None, None);
                of.targets.iter_mut().for_each(|target| target.price = None);
            }
        });
        let shown = seat.text();
        assert!(
            shown.contains(said) && shown.contains(&format!("{policy} has no prices")),
            "{policy}: {shown}"
        );
    }
}

#[test]
fn enter_on_an_edge_of_the_graph_and_a_name_lead_to_its_prices() {
    let mut seat = seat(120, 40, "<tab><enter>");
    assert_eq!((seat.model.screen, seat.model.edge), (Screen::Prices, 0));
    assert!(seat.text().contains("graph > prices of src..w"), "{}", seat.text());
    seat.keys("<esc>");
    assert_eq!(seat.model.screen, Screen::Graph);
    seat.keys("4:routes src..w<enter>");
    assert_eq!(seat.model.screen, Screen::Prices);
    seat.keys("<esc>");
    assert_eq!(seat.model.screen, Screen::Routes);
    seat.keys(":routes no..where<enter>");
    assert!(seat.text().contains("there is no edge `no..where`"), "{}", seat.text());
}

#[test]
fn options_change_only_after_a_second_yes_and_keep_what_was_given() {
    let mut seat = seat(120, 40, "3");
    assert_eq!(seat.keys("O"), []);
    let shown = seat.text();
    for part in [
        "potus of src..w",
        "v: balance (2.5 now)",
        "beta: 8",
        "gamma: any",
        "setting: default",
        "admission: relaxed",
        "max_hold: 100 ms",
        "deal: 256",
        "reprice: true",
        "cost: zones",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The line has what was given.
    seat.keys("<enter>");
    assert!(matches!(&seat.model.mode, Mode::Command(input) if input.value() == "option v=balance"));
    assert_eq!(seat.keys("<c-w><c-u>option v=2<enter>"), []);
    let shown = seat.text();
    for part in ["Change potus of src..w?", "v: balance (2.5 now) → 2", "as before: beta=8", "[ Cancel ]"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(seat.keys("<enter>"), []);
    let ask = |options: &str| {
        let (edge, policy) = ("src..w".into(), "potus".into());
        [Effect::Ask(Ask::Route { run: 1, edge, policy, options: options.into() })]
    };
    assert_eq!(seat.keys(":option v=2<enter><right><enter>"), ask(r#"{"beta":8,"v":2}"#));
    // Several at once, one taken back; from the screen of the edge too.
    assert_eq!(
        seat.keys(
            "<enter>:option beta= gamma=50 v=latency=50ms cost=a..b=3 setting=paper<enter><right><enter>"
        ),
        ask(r#"{"cost":{"a..b":3.0},"gamma":50,"setting":"paper","v":"latency=50ms"}"#)
    );
    for (typed, said) in [
        ("v=much", "`v`"),
        ("nonsense=3", "the policy `potus` has no option `nonsense`; it has: v, beta"),
        ("v", "write KEY=VALUE"),
        ("beta=8", "src..w has these options already"),
        ("slot=5h", "longer than 10s"),
    ] {
        assert_eq!(seat.keys(&format!(":option {typed}<enter>")), []);
        assert!(matches!(seat.model.mode, Mode::Normal), "{typed}: {}", seat.text());
        assert!(seat.text().contains(said), "{said}: {}", seat.text());
    }
    // A policy with its options; what becomes of those that were given is shown.
    seat.keys(":policy potus v=1<enter>");
    let shown = seat.text();
    for part in ["with v=1; nothing else", "v: balance (2.5 now) → 1", "beta: 8 → 16"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    seat.keys("<esc>:policy jsq<enter>");
    assert!(seat.text().contains("beta: 8 → none"), "{}", seat.text());
    seat.keys("<esc>");
    assert_eq!(seat.keys(":policy potus v=1<enter><right><enter>"), ask(r#"{"v":1}"#));
    seat.keys(":policy shuffle v=1<enter>");
    assert!(seat.text().contains("the policy `shuffle` has no options"), "{}", seat.text());
    // Never read-only, and not before the agents have answered.
    seat.keys(":read-only<enter>");
    assert_eq!(seat.keys("O<enter><enter>"), []);
    assert_eq!(seat.keys(":option v=3<enter><right><enter>"), []);
    let mut seat = Seat::at(120, 40, &World::new(3, 2));
    seat.keys("3O");
    assert!(seat.text().contains("the agents have not said yet"), "{}", seat.text());
}

#[test]
fn what_is_old_missing_or_held_still_is_said() {
    let world = World::new(3, 2);
    let mut seat = seat_of(120, 40, &world, "3<enter>", |routes| {
        routes.edges.retain(|(agent, _)| *agent != 1);
        routes.silent.push(("b".into(), "no answer within 2 s".into()));
    });
    assert!(seat.text().contains("agent b did not answer: no answer within 2 s"), "{}", seat.text());
    seat.keys("<space>");
    let mut next = world.routes();
    next.edges[0].1.trend = Trend::Growing;
    seat.tell(11_500, What::Routes(Box::new(next)));
    assert!(seat.text().contains("agent b did not answer"), "held still: {}", seat.text());
    seat.keys("<space>");
    assert!(!seat.text().contains("did not answer"), "{}", seat.text());
    // Telemetry goes on and routes do not.
    seat.tell(15_000, What::Telemetry(Box::new(world.priced(15_000))));
    assert!(seat.text().contains("as of 3 s ago"), "{}", seat.text());
    let fault = RouteFacts { run: 1, fault: Some("the job is not known".into()), ..RouteFacts::default() };
    seat.tell(15_500, What::Routes(Box::new(fault)));
    let shown = seat.text();
    assert!(
        shown.contains("no answer: the job is not known") && shown.contains("nothing to show"),
        "{shown}"
    );
}

#[test]
fn no_size_panics_and_a_small_screen_still_says_why() {
    for keys in ["3", "3<enter>", "3<enter>G", "3<enter><enter>", "3O", "3:option v=2<enter>"] {
        let mut seat = seat(80, 24, "3");
        seat.keys(keys);
        for width in (0..=60).step_by(3) {
            for height in 0..=20 {
                seat.tell(11_000, What::Resize { width, height });
                seat.buffer();
            }
        }
    }
    let mut seat = seat(40, 12, "3<enter>");
    seat.keys("G");
    let shown = seat.text();
    let flat = shown.replace('\n', " ");
    for part in
        ["c to w#5: its turn comes after w#0, which is at -302.5", "c  backlog 390 growing", "PRICE", "SHARE"]
    {
        assert!(flat.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_recording_holds_routes() {
    let event = Event { at: 5, what: What::Routes(Box::new(World::new(3, 2).routes())) };
    let line = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
}
