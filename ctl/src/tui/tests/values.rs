//! Every value on a screen comes from a known input: each field has a number of its own.

use std::collections::BTreeMap;

use tuplane_wire::message::{InstanceReport, JobPhase, Response, WireFault};

use super::world::{Seat, World};
use crate::tui::event::{EdgeFacts, FlowFacts, Telemetry, What};

/// The cells of the table on the screen: the row that begins with a name, by column header.
pub(super) fn cells(seat: &Seat, first: &str) -> BTreeMap<String, String> {
    let buffer = seat.buffer();
    let lines: Vec<Vec<&str>> = (0..buffer.area.height)
        .map(|y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect())
        .collect();
    let text = |line: &[&str]| line.concat();
    let columns = crate::tui::model::columns::columns(seat.model.screen);
    let head = lines.iter().find(|line| text(line).trim_start().starts_with(&columns[0].name.to_uppercase()));
    let head = text(head.unwrap_or_else(|| panic!("no header in\n{}", seat.text())));
    let row = lines.iter().find(|line| text(line).trim_start_matches(['›', ' ']).starts_with(first));
    let row = row.unwrap_or_else(|| panic!("no row {first} in\n{}", seat.text()));
    // Columns stand two apart; a header's end (numbers) or begin (text) says where its cell stands.
    let mut places: Vec<(usize, usize, &str)> = Vec::new();
    let mut from = 0;
    for column in columns {
        let name = column.name.to_uppercase();
        let Some(at) = head[from..].find(&name).map(|at| from + at) else { continue };
        places.push((at, at + name.len(), column.name));
        from = at + name.len();
    }
    let right = |name: &str| columns.iter().any(|column| column.name == name && column.right);
    let mut found = BTreeMap::new();
    for (index, (begin, end, name)) in places.iter().enumerate() {
        let previous = index.checked_sub(1).map_or(0, |before| places[before].1);
        let next = places.get(index + 1).map_or(row.len(), |next| next.0);
        // A number may begin before its header, a text may end behind it.
        let cell = if right(name) {
            text(&row[previous.min(*end)..*end])
                .rsplit("  ")
                .find(|part| !part.trim().is_empty())
                .unwrap_or("")
                .to_owned()
        } else {
            text(&row[*begin..next]).split("  ").next().unwrap_or("").to_owned()
        };
        found.insert((*name).to_owned(), cell.trim().to_owned());
    }
    found
}

pub(super) fn assert_cells(found: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    for (column, value) in expected {
        assert_eq!(found.get(*column).map(String::as_str), Some(*value), "{column} of {found:?}");
    }
    // No column goes unchecked.
    for column in found.keys() {
        assert!(expected.iter().any(|(known, _)| known == column), "{column} is not checked: {found:?}");
    }
}

/// One instance a vertex; between the two reports `w` takes 3 rows and emits 7 in its second.
fn seat(change: impl Fn(&mut Telemetry)) -> Seat {
    let world = World::new(3, 1);
    let mut seat = Seat::new(300, 30);
    for step in 0..2u64 {
        let mut telemetry = world.telemetry(5000);
        let job = telemetry.job.as_mut().unwrap();
        job.instances.retain(|instance| instance.number == 0);
        let instance = job.instances.iter().find(|instance| instance.vertex.0 == 1).unwrap().id;
        let target = job.instances.iter().find(|instance| instance.vertex.0 == 2).unwrap().id;
        job.counters = vec![InstanceReport {
            instance,
            rows_in: 1100 + 3 * step,
            rows_out: 2200 + 7 * step,
            dropped: BTreeMap::from([("bad line".to_owned(), 61)]),
            busy_ns: 9_000_000_000 + 620_000_000 * step,
            waiting_core_ns: 80_000_000 * step,
            blocked_ns: 150_000_000 * step,
            idle_ns: 230_000_000 * step,
            queue_in: 71,
            queue_out: 72,
            note: Some("line 12 of x.log".into()),
            ended: false,
            note_place: None,
            watermark: Some(1_431_857_103_500_000_000),
            ahead: 0,
            unanswered: 0,
            state_bytes: 74,
            response: Response::default(),
        }];
        // The sink's clock, which the edge's rate is by.
        job.counters.push(InstanceReport {
            instance: target,
            rows_in: 7 * step,
            idle_ns: 9_000_000_000 + 1_000_000_000 * step,
            queue_in: 73,
            ..InstanceReport::default()
        });
        job.edges = vec![EdgeFacts {
            edge: 1,
            emitted: 8000 + 30 * step,
            taken: 7500 + 20 * step,
            queued_out: 81,
            in_flight: 82,
            queued_in: 83,
            dropped: BTreeMap::from([("stopped".to_owned(), 4), ("lost".to_owned(), 5)]),
            policy: Some("shuffle".into()),
            targets: BTreeMap::from([(target, 7700 + 25 * step)]),
            flows: vec![
                FlowFacts { from: 0, to: 0, rows: 100 + 15 * step, wire_bytes: 0 },
                FlowFacts { from: 0, to: 1, rows: 300 + 45 * step, wire_bytes: 4096 },
            ],
        }];
        job.running_ms = Some(125_000);
        change(&mut telemetry);
        seat.tell(20_000 + 1000 * step, What::Telemetry(Box::new(telemetry)));
    }
    seat
}

#[test]
fn three_rows_in_and_seven_out_on_every_screen_that_shows_them() {
    let mut seat = seat(|_| {});
    let shown = seat.text();
    assert!(shown.contains("in 3 out 7/s") && shown.contains("[B] busy 62 %"), "{shown}");
    seat.keys("v");
    let found = cells(&seat, "w ");
    assert_cells(
        &found,
        &[
            ("vertex", "w"),
            ("load", "B"),
            ("busy", "62 %"),
            ("blocked", "15 %"),
            ("in/s", "3/s"),
            ("out/s", "7/s"),
            ("inst", "1"),
            ("queue", "143"),
            ("dropped", "61"),
        ],
    );
    seat.keys("5");
    let found = cells(&seat, "w#0");
    assert_cells(
        &found,
        &[
            ("instance", "w#0"),
            ("agent", "a"),
            ("load", "B"),
            ("busy", "62 %"),
            ("blocked", "15 %"),
            ("idle", "23 %"),
            ("time", "███████▒▒···"),
            ("core", "8 %"),
            ("in/s", "3/s"),
            ("out/s", "7/s"),
            ("queue in", "71"),
            ("queue out", "72"),
            ("rows in", "1,103"),
            ("rows out", "2,207"),
            ("dropped", "61"),
            ("age", ""),
            ("watermark", "2015-05-17T10:05:03.500Z"),
        ],
    );
    seat.keys("/w#<enter><enter>");
    let shown = seat.text();
    assert!(shown.contains("line 12 of x.log") && shown.contains("61 rows dropped"), "{shown}");
}

#[test]
fn an_edge_shows_its_ledger_its_shares_and_what_waits() {
    let mut seat = seat(|_| {});
    seat.keys("2");
    let name = seat.model.picture().unwrap().job.as_ref().unwrap().edges[1].name.clone();
    let found = cells(&seat, &name);
    let kind = found["kind"].clone();
    assert!(
        kind == "unicast, local" || kind == "isolated, local" || kind == "unicast, distributed",
        "{kind}"
    );
    assert_cells(
        &found,
        &[
            ("edge", &name),
            ("kind", &kind),
            ("policy", "shuffle"),
            ("rate", "20/s"),
            ("across", "75 %"),
            ("emitted", "8,030"),
            ("taken", "7,520"),
            ("dropped", "lost 5, stopped 4"),
            ("queued out", "81"),
            ("in flight", "82"),
            ("queued in", "83"),
            ("wire", "4.0 KiB"),
        ],
    );
    // On the graph: the queue is all that waits, lost rows are in the header.
    seat.keys("1");
    let shown = seat.text();
    assert!(shown.contains("20/s  queue 246    across  75 %") && shown.contains("lost 9"), "{shown}");
    assert!(shown.contains("RUNNING 2:05"), "{shown}");
    seat.keys("2j<enter>");
    let found = cells(&seat, "out#0");
    assert_cells(
        &found,
        &[
            ("target", "out#0"),
            ("agent", "a"),
            ("share", "100 %"),
            ("rate", "25/s"),
            ("rows", "7,725"),
            ("queue", "73"),
            ("busy", "0 %"),
        ],
    );
}

#[test]
fn an_agent_shows_its_host_its_clock_and_its_round_trips() {
    let mut seat = seat(|_| {});
    seat.keys("6");
    let found = cells(&seat, "b ");
    assert_cells(
        &found,
        &[
            ("agent", "b"),
            ("state", "up"),
            ("age", "0.1 s"),
            ("cpu", "50 %"),
            ("memory", "11.0 GiB"),
            ("of", "64.0 GiB"),
            ("rss anon", "101.0 MiB"),
            ("queued", "4.0 MiB"),
            ("budget", "128.0 MiB"),
            ("inst", "3"),
            ("slots", "2"),
            ("cores", "4"),
            ("zone", "zone-1"),
            ("offset", "-250 us ± 40 us"),
            ("round trips", "-"),
            ("machine", "rack-1, 16 processors, Linux 6.1"),
        ],
    );
    let shown = seat.text();
    assert!(shown.contains("*a") && shown.contains("b 180 us, c 2.4 ms"), "{shown}");
}

#[test]
fn a_job_that_failed_shows_why_and_how_long_it_ran() {
    let mut seat = seat(|telemetry| {
        for job in telemetry.jobs.iter_mut().chain(telemetry.job.as_mut().map(|job| &mut job.summary)) {
            job.phase = JobPhase::Failed;
            job.ended_ms = Some(job.submitted_ms + 65_000);
            job.fault = Some(WireFault::new(tuplane_wire::message::FaultCode::Agent, "agent c was lost"));
        }
    });
    seat.keys("0");
    let found = cells(&seat, "1 ");
    assert_cells(
        &found,
        &[
            ("run", "1"),
            ("job", "*nexmark-hot-items"),
            ("phase", "failed"),
            ("since", "1m05s"),
            ("inst", "9"),
            ("agents", "a b c"),
            ("cause", "agent c was lost"),
        ],
    );
    assert!(seat.text().contains("cause: agent c was lost"), "{}", seat.text());
}

#[test]
fn the_screen_says_what_limits_the_job_and_which_edge_is_rebalanced() {
    for (width, height) in [(120, 40), (80, 24), (60, 14), (40, 12)] {
        let seat = Seat::at(width, height, &World::new(3, 2));
        let shown = seat.text();
        assert!(shown.contains("limits the job: w (busy 98 %"), "{width}x{height}: {shown}");
        if width >= 60 {
            assert!(shown.contains("⇄"), "{width}x{height}: {shown}");
        }
    }
    let shown = Seat::at(80, 24, &World::new(3, 2)).text();
    assert!(shown.contains("limits the job: w (busy 98 %, src blocked 91 %)"), "{shown}");
    assert!(shown.contains("rebalance: ") && shown.contains(" limits the job ─"), "{shown}");
}
