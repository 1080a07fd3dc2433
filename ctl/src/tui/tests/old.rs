//! Old data: agents and coordinators that are stopped, lost connections, and what comes after.

use ratatui::style::Modifier;

use super::world::{Seat, World};
use crate::tui::event::{News, What};
use crate::tui::model::Screen;
use crate::tui::model::columns::INSTANCES;

fn dim(seat: &Seat, word: &str) -> bool {
    let buffer = seat.buffer();
    let width = buffer.area.width;
    let text = super::world::text(&buffer);
    let (line, column) = text
        .lines()
        .enumerate()
        .find_map(|(y, line)| Some((y as u16, line[..line.find(word)?].chars().count() as u16)))
        .unwrap_or_else(|| panic!("no `{word}` in\n{text}"));
    assert!(column < width);
    buffer[(column, line)].modifier.contains(Modifier::DIM)
}

#[test]
fn a_stopped_agent_is_grey_with_its_age_within_two_intervals() {
    let mut world = World::new(3, 1);
    let mut seat = Seat::at(120, 24, &world);
    seat.keys("6");
    assert!(seat.text().contains("3/3 agents"), "{}", seat.text());
    assert!(!dim(&seat, "zone-1"));
    // Agent b is stopped at 11.2 s: its age grows while the others' stay young.
    for step in 1..=4u64 {
        let at = 11_000 + step * 500;
        world.ages = [100, 80 + step * 500, 100];
        seat.tell(at, What::Telemetry(Box::new(world.telemetry(at))));
    }
    let shown = seat.text();
    assert!(shown.contains("2 of 3 agents") && shown.contains("silent"), "{shown}");
    assert!(shown.contains("2 s") && dim(&seat, "zone-1") && !dim(&seat, "zone-2"), "{shown}");
    // Its instances too, with the age in words.
    seat.keys("5");
    let row = seat.model.rows(Screen::Instances).into_iter().find(|row| row.cells[1].text() == "b").unwrap();
    let age = INSTANCES.iter().position(|column| column.name == "age").unwrap();
    assert_eq!(row.cells[age].text(), "2 s");
    assert!(row.stale && dim(&seat, "w#1"), "{}", seat.text());
    seat.keys("1");
    let old = seat.text().lines().filter(|line| line.contains(" 2 s old ─")).count();
    assert!(old >= 1, "the boxes say it: {}", seat.text());
    // What limits the job is said as of then, and not as of now.
    assert!(seat.text().contains("as of 2 s ago: limits the job"), "{}", seat.text());
    // It goes on.
    world.ages = [100, 100, 100];
    seat.tell(14_000, What::Telemetry(Box::new(world.telemetry(14_000))));
    seat.keys("5");
    assert!(seat.text().contains("3/3 agents") && !seat.text().contains(" old"), "{}", seat.text());
    assert!(!seat.text().contains("as of"), "{}", seat.text());
}

#[test]
fn of_old_data_nobody_says_that_nothing_limits_the_job() {
    let mut world = World::new(3, 1);
    let mut seat = Seat::at(120, 24, &world);
    // Everybody is idle, and one agent falls silent.
    let mut idle = |seat: &mut Seat, at: u64, age: u64| {
        world.ages[1] = age;
        let mut telemetry = world.telemetry(at);
        for report in &mut telemetry.job.as_mut().unwrap().counters {
            (report.busy_ns, report.blocked_ns, report.idle_ns) = (0, 0, at * 1_000_000);
        }
        seat.tell(at, What::Telemetry(Box::new(telemetry)));
        seat.text()
    };
    for at in [12_000, 13_000, 14_000] {
        idle(&mut seat, at, 100);
    }
    let line = |shown: String| shown.lines().nth(1).unwrap().trim().to_owned();
    let nothing = "nothing limits the job: it keeps up with its input";
    assert_eq!(line(idle(&mut seat, 15_000, 100)), nothing);
    assert_eq!(line(idle(&mut seat, 16_000, 4_000)), format!("as of 4 s ago: {nothing}"));
    // Nobody is busy or blocked, and yet it does not keep up: a policy holds more rows than come in a second.
    world.ages[1] = 100;
    let mut held = world.telemetry(16_500);
    let job = held.job.as_mut().unwrap();
    for report in &mut job.counters {
        (report.busy_ns, report.blocked_ns, report.idle_ns) = (0, 0, 16_500 * 1_000_000);
    }
    let edge = job.edges.iter_mut().find(|edge| edge.edge == 0).unwrap();
    (edge.policy, edge.queued_out) = (Some("potus".to_owned()), 17_079_000);
    seat.tell(16_500, What::Telemetry(Box::new(held.clone())));
    let said = line(seat.text());
    assert!(said.starts_with("rows are held by the policy of ") && said.ends_with(" wait there"), "{said}");
    held.job.as_mut().unwrap().edges.iter_mut().for_each(|edge| edge.policy = Some("shuffle".to_owned()));
    seat.tell(16_600, What::Telemetry(Box::new(held)));
    assert_eq!(line(seat.text()), nothing, "it holds none: they wait for credit");
    // Gone: what is known of the others does not speak for it.
    let mut telemetry = world.telemetry(17_000);
    telemetry.agents.remove(1);
    seat.tell(17_000, What::Telemetry(Box::new(telemetry)));
    assert!(line(seat.text()).contains("not known while an agent is gone"), "{}", seat.text());
}

#[test]
fn a_stopped_coordinator_makes_everything_old_and_the_banner_says_so() {
    let mut seat = Seat::at(120, 24, &World::new(3, 1));
    assert!(seat.text().contains("LIVE"), "{}", seat.text());
    seat.tell(13_000, What::Tick);
    let shown = seat.text();
    assert!(shown.contains("OLD 2 s") && shown.contains("0 of 3 agents"), "{shown}");
    let lost = News::Lost {
        cause: "127.0.0.1:7100 did not answer within 2000 ms".into(),
        attempt: 3,
        next_in: 2000,
    };
    seat.tell(18_000, What::Connection(lost));
    let shown = seat.text();
    for part in ["LOST", "what is shown is 7 s old", "attempt 3", "next try in 2 s", "did not answer"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    seat.keys("6");
    assert!(dim(&seat, "zone-0"), "{}", seat.text());
}

#[test]
fn after_a_pause_no_rate_is_wrong() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(120, 24, &world);
    let before = seat.model.picture().unwrap().job.as_ref().unwrap().vertices[1].in_rate.unwrap();
    // The coordinator was stopped for 10 s: first it repeats what it knew, then it has heard the agents.
    let mut repeated = world.telemetry(11_000);
    repeated.wall_ms += 10_000;
    seat.tell(21_000, What::Telemetry(Box::new(repeated)));
    seat.tell(21_500, What::Telemetry(Box::new(world.telemetry(21_500))));
    let after = seat.model.picture().unwrap().job.as_ref().unwrap().vertices[1].in_rate.unwrap();
    assert!((after - before).abs() < before * 0.01, "{before} then {after}");
    // A new attempt counts from nothing: no rate rather than a wrong or a negative one.
    let mut again = world.telemetry(300);
    if let Some(job) = &mut again.job {
        job.summary.attempt = 2;
    }
    seat.tell(22_000, What::Telemetry(Box::new(again)));
    let vertices = &seat.model.picture().unwrap().job.as_ref().unwrap().vertices;
    assert!(vertices.iter().all(|vertex| vertex.in_rate.is_none() && vertex.load.is_none()));
    assert!(seat.text().contains("no rates yet"), "{}", seat.text());
}

#[test]
fn what_is_held_still_stays_while_reports_are_taken_in() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(100, 24, &world);
    seat.keys("5<space>");
    let held = seat.text();
    assert!(held.contains("FROZEN"), "{held}");
    seat.tell(19_000, What::Telemetry(Box::new(world.telemetry(19_000))));
    let later = seat.text();
    assert!(later.contains("held still for 8 s") && later.contains("FROZEN 8 s"), "{later}");
    let body = |text: &str| text.lines().skip(3).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&held), body(&later));
    seat.keys("<space>");
    assert!(seat.text().contains("LIVE"), "{}", seat.text());
    assert_eq!(seat.model.picture().unwrap().at, 19_000);
}

#[test]
fn while_it_is_held_still_an_outage_is_said_too() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(120, 24, &world);
    seat.keys("<space>");
    // Connected, and nothing comes.
    seat.tell(14_000, What::Tick);
    let shown = seat.text();
    assert!(shown.contains("FROZEN 3 s  OLD 3 s") && shown.contains("no report for 3 s"), "{shown}");
    let lost = News::Lost { cause: "nobody listens there".into(), attempt: 1, next_in: 500 };
    seat.tell(18_000, What::Connection(lost));
    let shown = seat.text();
    for part in ["FROZEN 7 s  LOST", "held still for 7 s; no report for 7 s", "nobody listens there"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("still taken in"), "{shown}");
    seat.tell(18_500, What::Connection(News::Connected));
    seat.tell(18_600, What::Telemetry(Box::new(world.telemetry(18_600))));
    assert!(
        seat.text().contains("reports are still taken in") && !seat.text().contains("LOST"),
        "{}",
        seat.text()
    );
}

#[test]
fn of_a_vertex_its_own_agents_count_and_they_age_without_reports() {
    let world = World::new(3, 1);
    let mut telemetry = world.telemetry(12_000);
    // Vertex 0 runs on a alone.
    telemetry.job.as_mut().unwrap().instances.retain(|instance| instance.vertex.0 > 0 || instance.agent == 0);
    telemetry.agents[1].age_ms = 4000;
    let mut seat = Seat::at(120, 40, &world);
    seat.tell(12_000, What::Telemetry(Box::new(telemetry)));
    assert!(!seat.text().contains("agents is old"), "{}", seat.text());
    seat.keys("l");
    assert!(seat.text().contains("(1 of its 3 agents is old)"), "{}", seat.text());
    seat.tell(16_000, What::Tick);
    assert!(seat.text().contains("(3 of its 3 agents are old)"), "{}", seat.text());
}

#[test]
fn what_a_session_was_told_shows_the_same_again_whatever_terminal_plays_it() {
    use crate::tui::model::Source;
    use crate::tui::record::{Recorder, read};
    let world = World::new(7, 1);
    let mut bytes = Vec::new();
    let mut first = Seat::new(90, 30);
    let mut recorder = Recorder::new(&mut bytes, (90, 30)).unwrap();
    let mut tell = |what: What, at| {
        let event = crate::tui::event::Event { at, what };
        recorder.write(&event).unwrap();
        first.tell(event.at, event.what);
    };
    tell(What::Connection(News::Connected), 1);
    tell(What::Telemetry(Box::new(world.telemetry(5000))), 2);
    tell(What::Telemetry(Box::new(world.telemetry(6000))), 1002);
    tell(What::Key("5".parse().unwrap()), 1100);
    tell(What::Resize { width: 70, height: 20 }, 1150);
    tell(What::Key("s".parse().unwrap()), 1200);
    tell(What::Key("<pagedown>".parse().unwrap()), 1250);
    tell(What::Key("<enter>".parse().unwrap()), 1300);
    tell(What::Key("<pagedown>".parse().unwrap()), 1350);
    tell(What::Mouse(crate::tui::event::Mouse::Press(4, 12)), 1400);
    let mut second = Seat::new(200, 60);
    second.model.options.source = Source::Recording;
    for event in read(&bytes[..]).unwrap().events {
        second.tell(event.at, What::Replayed(Box::new(event.what)));
        second.tell(event.at, What::Resize { width: 120, height: 40 });
    }
    // The header says that it is a recording, and the footer does not offer to change anything.
    let below = |seat: &Seat| seat.text().lines().skip(1).take(18).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(below(&first), below(&second));
    assert!(first.text().contains("INSTANCE"), "{}", first.text());
}
