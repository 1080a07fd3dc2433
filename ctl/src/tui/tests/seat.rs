//! What a person at the screen ran into: each fault that was found there has its test here.

use std::collections::BTreeSet;

use tuplane_wire::message::{FaultCode, JobPhase, WireFault};

use super::world::{Seat, World};
use crate::tui::effect::{Ask, Effect};
use crate::tui::event::{News, Telemetry, What};
use crate::tui::model::{Mode, Screen, Source};

#[test]
fn the_made_up_world_adds_up() {
    for (vertices, per_agent) in [(3, 1), (7, 2), (30, 2)] {
        let world = World::new(vertices, per_agent);
        let job = world.telemetry(10_000).job.unwrap();
        for (edge, planned) in job.edges.iter().zip(&world.dag.edges) {
            assert_eq!(edge.emitted, edge.taken + edge.queued_out + edge.in_flight + edge.queued_in);
            let sent: u64 = edge.flows.iter().map(|flow| flow.rows).sum();
            assert_eq!(sent, edge.targets.values().sum::<u64>(), "edge {}", edge.edge);
            assert_eq!(sent, edge.emitted - edge.queued_out);
            let across: u64 =
                edge.flows.iter().filter(|flow| flow.from != flow.to).map(|flow| flow.rows).sum();
            assert_eq!(across > 0, planned.distributed, "local edges stay on their agent");
        }
        let rows = |vertex: usize, count: fn(&tuplane_wire::message::InstanceReport) -> u64| -> u64 {
            let own = job.instances.iter().filter(|instance| instance.vertex.0 as usize == vertex);
            let ids: BTreeSet<u32> = own.map(|instance| instance.id).collect();
            job.counters.iter().filter(|report| ids.contains(&report.instance)).map(count).sum()
        };
        for vertex in 0..vertices {
            let into =
                world.dag.edges.iter().zip(&job.edges).filter(|(edge, _)| edge.to.0 as usize == vertex);
            let taken: u64 = into.map(|(_, facts)| facts.taken).sum();
            assert_eq!(taken, rows(vertex, |report| report.rows_in), "vertex {vertex}");
            for (_, facts) in
                world.dag.edges.iter().zip(&job.edges).filter(|(edge, _)| edge.from.0 as usize == vertex)
            {
                assert_eq!(facts.emitted, rows(vertex, |report| report.rows_out), "vertex {vertex}");
            }
        }
    }
}

#[test]
fn a_job_that_has_ended_does_not_look_alive() {
    let mut world = World::new(7, 2);
    let mut seat = Seat::at(160, 40, &world);
    assert!(seat.text().contains("/s"), "{}", seat.text());
    // It ends a moment after its last rows: rates were known just before.
    world.phase = JobPhase::Finished;
    seat.tell(11_500, What::Telemetry(Box::new(world.telemetry(11_500))));
    for keys in ["1", "1<tab>", "1<tab>v", "v2", "2<enter>", "5"] {
        seat.keys(keys);
        let shown = seat.text();
        let body: Vec<&str> = shown.lines().filter(|line| !line.contains("OUT/S")).collect();
        assert!(!body.concat().contains("/s"), "{keys}: {shown}");
    }
    seat.keys("1");
    let shown = seat.text();
    assert!(shown.contains("[E] ended") && !shown.contains("[B]") && !shown.contains("[P]"), "{shown}");
    // Six instances: 1, 2 and 3 rows a ms twice, and what waits in each.
    assert_eq!(11_500 * (1 + 2 + 3) * 2 + 6 * (39 + 120), 138_954);
    assert!(shown.contains("out 139k rows"), "{shown}");
    assert!(shown.contains("3/3 agents"), "{shown}");
    let rows = seat.model.rows(Screen::Instances);
    assert!(rows.iter().all(|row| row.cells[2].text() == "E" && row.cells[3].text() == "-"));
    // An agent that is not there any more is said, although the job has ended.
    world.ages[1] = 4200;
    seat.tell(12_000, What::Telemetry(Box::new(world.telemetry(12_000))));
    assert!(seat.text().contains("2 of 3 agents: b 4 s old"), "{}", seat.text());
}

#[test]
fn a_vertex_whose_instances_have_ended_has_no_rates_while_the_job_goes_on() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(120, 40, &world);
    let mut telemetry = world.telemetry(11_500);
    let job = telemetry.job.as_mut().unwrap();
    for report in &mut job.counters {
        report.ended = job.instances.iter().any(|i| i.id == report.instance && i.vertex.0 < 2);
    }
    seat.tell(11_500, What::Telemetry(Box::new(telemetry)));
    let job = seat.model.picture().unwrap().job.clone().unwrap();
    assert!(job.vertices[0].over && job.vertices[1].over && !job.vertices[2].over);
    assert_eq!((job.rows_in, job.vertices[1].in_rate, job.edges[0].rate), (None, None, None));
    assert!(job.edges[1].rate.is_some() && job.rows_out.is_some());
    assert!(seat.text().contains("[E] ended"), "{}", seat.text());
}

#[test]
fn nothing_is_confirmed_unseen() {
    let mut asked_on_some = 0;
    for keys in ["C", "<tab>P<down><enter>"] {
        for width in (1..=90).step_by(4) {
            for height in [1, 4, 5, 7, 9, 10, 11, 12, 16, 24] {
                let mut seat = Seat::at(80, 24, &World::new(3, 2));
                seat.keys(keys);
                seat.tell(11_000, What::Resize { width, height });
                let shown = seat.text();
                let flat: String = shown.chars().filter(char::is_ascii_alphanumeric).collect();
                let parts = if keys == "C" {
                    ["nexmarkhotitemsrun1", "runningcancelled", "Keepitrunning", "Cancelthejob"]
                } else {
                    ["srcw", "roundrobinshuffle", "Cancel", "Changeit"]
                };
                let effects = seat.keys("<right><enter>");
                if effects.is_empty() {
                    assert!(width < 44 || height < 12, "{width}x{height} {keys}: {shown}");
                    if width >= 20 && height >= 5 {
                        assert!(flat.contains("toosmall"), "{width}x{height}: {shown}");
                    }
                    assert!(matches!(seat.model.mode, Mode::Dialog(_)), "{width}x{height}");
                    seat.keys("<esc>");
                    assert!(matches!(seat.model.mode, Mode::Normal), "{width}x{height}");
                    continue;
                }
                asked_on_some += 1;
                for part in parts {
                    // A frame may stand between what was broken into lines.
                    assert!(flat.contains(part), "{part} at {width}x{height}: {shown}");
                }
            }
        }
    }
    assert!(asked_on_some > 100, "{asked_on_some}");
    // The answers stand one below the other where there is no room beside each other.
    let mut seat = Seat::at(40, 12, &World::new(3, 2));
    seat.keys("C");
    let shown = seat.text();
    for part in ["[ Keep it running ]", "[ Cancel the job ]", "running → cancelled", "hot-items (run"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(seat.keys("<down><enter>"), [Effect::Ask(Ask::Cancel { run: 1 })]);
    let mut seat = Seat::at(20, 5, &World::new(3, 2));
    seat.keys("C");
    assert!(seat.text().replace('\n', " ").contains("too small to ask"), "{}", seat.text());
}

fn replay(seat: &mut Seat, at: u64, what: What) -> Vec<Effect> {
    seat.tell(at, What::Replayed(Box::new(what)))
}

#[test]
fn a_recording_is_played_to_its_end_and_stands_still_there() {
    let world = World::new(3, 1);
    let mut seat = Seat::new(100, 24);
    seat.model.options.source = Source::Recording;
    seat.model.link = crate::tui::model::link::Link::Apart;
    replay(&mut seat, 0, What::Resize { width: 110, height: 30 });
    seat.tell(0, What::Resize { width: 20, height: 5 });
    assert_eq!((seat.model.width, seat.model.height), (110, 30), "the size that it was made at counts");
    replay(&mut seat, 1, What::Connection(News::Connected));
    for ms in [10_000, 11_000] {
        replay(&mut seat, ms, What::Telemetry(Box::new(world.telemetry(ms))));
    }
    assert!(seat.text().contains("RECORDING") && !seat.text().contains("LIVE"), "{}", seat.text());
    // What was done then is seen, and neither ends this UI nor asks anybody.
    for key in ["C", "<right>", "<enter>"] {
        if key == "<right>" {
            assert!(seat.text().contains("Cancel job nexmark-hot-items (run 1)?"), "{}", seat.text());
        }
        assert_eq!(replay(&mut seat, 11_100, What::Key(key.parse().unwrap())), []);
    }
    for key in ["q", "<c-c>", "<c-z>"] {
        assert_eq!(replay(&mut seat, 11_200, What::Key(key.parse().unwrap())), [], "{key}");
    }
    seat.tell(11_300, What::PlayedToTheEnd(false));
    let end = seat.text();
    assert!(end.contains("end of the recording: q quits"), "{end}");
    seat.tell(99_000, What::Tick);
    let later = seat.text();
    assert!(later.contains("3/3 agents") && later.contains("RECORDING"), "nothing grows old: {later}");
    // Keys of now change nothing on a cluster, go about, and quit.
    assert_eq!(seat.keys("C"), []);
    assert!(matches!(seat.model.mode, Mode::Normal));
    seat.keys("5");
    assert_eq!(seat.model.screen, Screen::Instances);
    assert_eq!(seat.keys("q").len(), 1);
}

#[test]
fn a_filter_on_nothing_that_is_there_says_so_and_changes_nothing() {
    let mut seat = Seat::at(100, 30, &World::new(7, 2));
    seat.keys("5/busy>0.9<enter>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 6);
    for (keys, said) in [
        ("/<c-u>nonsense>3<enter>", "there is no column `nonsense` here; there are: instance, agent"),
        (":filter nonsense=3<enter>", "there is no column `nonsense`"),
        ("/<c-u>busy>lots<enter>", "`lots` in `busy>lots` is no number"),
        (":sort nonsense<enter>", "there is no column `nonsense`"),
    ] {
        seat.keys(keys);
        assert!(seat.text().contains(said), "{said}: {}", seat.text());
        assert_eq!(seat.model.rows(Screen::Instances).len(), 6, "{keys}");
    }
}

#[test]
fn a_notice_stands_above_the_keys_and_goes_with_esc_or_after_five_seconds() {
    let mut seat = Seat::at(80, 24, &World::new(7, 2));
    seat.keys("5/work<enter>:sort nonsense<enter>");
    let shown = seat.text();
    assert!(shown.contains("there is no column"), "{shown}");
    assert!(shown.contains("dropped, age"), "all of it: {shown}");
    assert!(shown.lines().last().unwrap().contains("? help"), "{shown}");
    seat.keys("<esc>");
    assert!(!seat.text().contains("there is no column"), "{}", seat.text());
    assert!(!seat.model.list(Screen::Instances).filter.is_empty(), "the notice goes first");
    seat.keys(":sort nonsense<enter>");
    seat.tell(15_900, What::Tick);
    assert!(seat.text().contains("there is no column"), "{}", seat.text());
    seat.tell(16_000, What::Tick);
    assert!(!seat.text().contains("there is no column"), "{}", seat.text());
}

#[test]
fn keys_that_do_nothing_are_not_offered() {
    let last = |seat: &Seat| seat.text().lines().last().unwrap().to_owned();
    // A plan: nothing runs.
    let mut telemetry: Telemetry = World::new(3, 1).telemetry(0);
    let job = telemetry.job.as_mut().unwrap();
    (job.instances, job.counters, job.agents, job.edges) = Default::default();
    (telemetry.jobs, telemetry.agents) = Default::default();
    let mut plan = Seat::new(120, 40);
    plan.model.options.source = Source::Plan;
    plan.model.link = crate::tui::model::link::Link::Apart;
    plan.tell(1, What::Telemetry(Box::new(telemetry)));
    for word in ["instances", "agents", "jobs", "freeze", "policy", "cancel"] {
        assert!(!last(&plan).contains(word), "{word}: {}", last(&plan));
    }
    assert!(last(&plan).contains("2 edges") && last(&plan).contains("/ filter"), "{}", last(&plan));
    plan.keys("5");
    assert_eq!(plan.model.screen, Screen::Graph);
    assert!(plan.text().contains("instances: a plan has none"), "{}", plan.text());
    plan.keys("<esc>?");
    let help = plan.text();
    assert!(!help.contains(":cancel") && !help.contains(":demo") && help.contains(":quit"), "{help}");
    // No cluster.
    let mut nobody = Seat::new(120, 40);
    nobody.tell(1, What::Connection(News::Nobody("none runs".into())));
    for word in ["graph", "jobs", "filter", "freeze", "cancel", "policy"] {
        assert!(!last(&nobody).contains(word), "{word}: {}", last(&nobody));
    }
    nobody.keys("?");
    assert!(nobody.text().contains(":demo") && !nobody.text().contains(":cancel"), "{}", nobody.text());
    // Read-only.
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    assert!(last(&seat).contains("C cancel"), "{}", last(&seat));
    seat.keys("?");
    assert!(seat.text().contains(":cancel") && !seat.text().contains(":demo"), "{}", seat.text());
    seat.keys("<esc>:read-only<enter><esc>?");
    let help = seat.text();
    assert!(!help.contains(":cancel") && !help.contains(":policy") && !help.contains(":read-only"), "{help}");
    assert!(!last(&seat).contains("cancel"), "{}", last(&seat));
}

#[test]
fn the_cause_stays_cut_in_the_table_and_stands_whole_below_it() {
    let cause = "agent c was lost: it was not heard of for 5 s, and the job is not replayed; start the agent \
                 again with `tuplane-agent --name c` and submit the job anew THE-END";
    let mut telemetry = World::new(3, 1).telemetry(10_000);
    let mut failed = telemetry.jobs[0].clone();
    (failed.run, failed.phase, failed.ended_ms) = (2, JobPhase::Failed, Some(1_002_000));
    failed.fault = Some(WireFault::new(FaultCode::Agent, cause));
    telemetry.jobs.push(failed);
    for (width, height) in [(40, 12), (60, 16), (80, 24), (120, 40)] {
        let mut seat = Seat::new(width, height);
        seat.tell(0, What::Telemetry(Box::new(telemetry.clone())));
        seat.keys("0");
        let shown = seat.text();
        let head = shown.lines().find(|line| line.contains("RUN  JOB")).unwrap();
        assert!(head.contains("CAU"), "{width}x{height}: {shown}");
        let row = shown.lines().find(|line| line.contains("failed")).unwrap();
        assert!(row.contains('…'), "{width}x{height}: {shown}");
        let flat = shown.replace('\n', " ");
        assert!(flat.contains(&format!("cause: {cause}")), "{width}x{height}: {shown}");
        // The mouse finds the rows where they stand.
        let y = shown.lines().position(|line| line.contains("running")).unwrap() as u16;
        seat.tell(1, What::Mouse(crate::tui::event::Mouse::Press(3, y)));
        assert_eq!(seat.model.meant_run(), Some(1), "{width}x{height}");
        assert!(!seat.text().contains("cause:"), "{}", seat.text());
    }
}

#[test]
fn a_source_that_works_in_bursts_reads_its_mean() {
    let world = World::new(3, 1);
    let mut seat = Seat::new(120, 40);
    // Its rows come every two seconds, all at once.
    for step in 0..=24u64 {
        let ms = 10_000 + step * 500;
        let mut telemetry = world.telemetry(ms);
        for report in &mut telemetry.job.as_mut().unwrap().counters {
            let bursts = 2000 * (step / 4);
            report.rows_out = bursts;
            report.rows_in = bursts;
        }
        seat.tell(ms, What::Telemetry(Box::new(telemetry)));
        let job = seat.model.picture().unwrap().job.clone().unwrap();
        if step > 10 {
            let rate = job.rows_in.unwrap();
            assert!((2300.0..=3700.0).contains(&rate), "three instances of 1,000/s: {rate} at {step}");
        }
    }
}

#[test]
fn an_agent_that_is_stale_or_gone_is_named_and_edges_and_vertices_agree_on_it() {
    let mut world = World::new(3, 1);
    let mut seat = Seat::at(120, 40, &world);
    let sound = |seat: &Seat| {
        let job = seat.model.picture().unwrap().job.clone().unwrap();
        (job.vertices[1].in_rate.unwrap(), job.edges[0].rate.unwrap())
    };
    let (vertex, edge) = sound(&seat);
    assert!((vertex - edge).abs() < 1.0 && (vertex - 6000.0).abs() < 1.0, "{vertex} {edge}");
    // Agent b stops at 11 s: its counters stay, its age grows.
    let before = world.telemetry(11_000);
    for step in 1..=16u64 {
        let at = 11_000 + step * 500;
        world.ages[1] = 80 + step * 500;
        let mut telemetry = world.telemetry(at);
        let (job, old) = (telemetry.job.as_mut().unwrap(), before.job.as_ref().unwrap());
        for (report, old) in job.counters.iter_mut().zip(&old.counters) {
            if job.instances[report.instance as usize].agent == 1 {
                *report = old.clone();
            }
        }
        // What the instance of b would have taken waits.
        let missing = (at - 11_000) * 2;
        job.edges[0].taken -= missing;
        job.edges[0].in_flight += missing;
        seat.tell(at, What::Telemetry(Box::new(telemetry)));
    }
    let (vertex, edge) = sound(&seat);
    assert!((vertex - edge).abs() < 1.0 && (vertex - 4000.0).abs() < 1.0, "{vertex} {edge}");
    let shown = seat.text();
    for part in ["2 of 3 agents: b 8 s old", "8 s old ─", "as of 8 s ago: limits the job: w (busy 98 %"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // It comes back with all that it did meanwhile: no burst on the edge.
    world.ages[1] = 80;
    for at in [19_500, 20_000, 20_500] {
        seat.tell(at, What::Telemetry(Box::new(world.telemetry(at))));
        let (vertex, edge) = sound(&seat);
        assert!(edge < 6100.0 && vertex < 6100.0, "{vertex} {edge} at {at}");
    }
    let (vertex, edge) = sound(&seat);
    assert!((vertex - edge).abs() < 1.0 && (vertex - 6000.0).abs() < 1.0, "{vertex} {edge}");
    // One that is gone.
    let mut telemetry = world.telemetry(21_000);
    telemetry.agents[2].alive = false;
    seat.tell(21_000, What::Telemetry(Box::new(telemetry)));
    assert!(seat.text().contains("2 of 3 agents: c is gone"), "{}", seat.text());
    // A rescale had left it empty before: it is not missed.
    let mut telemetry = world.telemetry(21_500);
    telemetry.agents.remove(2);
    let job = telemetry.job.as_mut().unwrap();
    job.retired = job.instances.iter().filter(|one| one.agent == 2).map(|one| one.id).collect();
    seat.tell(21_500, What::Telemetry(Box::new(telemetry.clone())));
    let shown = seat.text();
    assert!(shown.contains("2/2 agents") && !shown.contains("is gone"), "{shown}");
    assert!(!shown.contains("not known while an agent is gone"), "{shown}");
    let mut telemetry = world.telemetry(22_000);
    telemetry.agents[2].alive = false;
    seat.tell(22_000, What::Telemetry(Box::new(telemetry)));
    seat.tell(21_000, What::Resize { width: 60, height: 20 });
    assert!(seat.text().contains("2 of 3 agents"), "{}", seat.text());
}

#[test]
fn columns_go_by_the_width_of_the_screen_and_not_by_numbers() {
    let head = |seat: &Seat, first: &str| {
        seat.text()
            .lines()
            .find(|line| line.trim_start_matches(['<', ' ']).starts_with(first))
            .unwrap()
            .to_owned()
    };
    // The last is the width at which all columns fit.
    for (keys, first, all) in [("2", "EDGE", 160), ("5", "INSTANCE", 200)] {
        for width in [40, 60, 80, 100, 120, 160, 200, 240] {
            let mut heads = BTreeSet::new();
            for times in [1, 1000, 10_000_000] {
                let mut telemetry = World::new(3, 1).telemetry(9000);
                let job = telemetry.job.as_mut().unwrap();
                for report in &mut job.counters {
                    (report.rows_in, report.rows_out) = (report.rows_in * times, report.rows_out * times);
                    report.queue_in *= times;
                }
                for edge in &mut job.edges {
                    (edge.emitted, edge.taken) = (edge.emitted * times, edge.taken * times);
                }
                let mut seat = Seat::new(width, 30);
                seat.tell(0, What::Telemetry(Box::new(telemetry)));
                seat.keys(keys);
                heads.insert(head(&seat, first));
                assert_eq!(head(&seat, first).ends_with('>'), width < all, "{width}: {}", seat.text());
                for line in seat.text().lines().skip(3).take(3) {
                    assert!(!line.contains(",…"), "a number is never cut: {line}");
                }
            }
            assert_eq!(heads.len(), 1, "{width}: {heads:?}");
        }
    }
    let mut seat = Seat::at(80, 24, &World::new(3, 1));
    seat.keys("2:sort kind<enter>");
    assert!(
        seat.text().contains("sorted by kind, which is hidden: this screen is too narrow"),
        "{}",
        seat.text()
    );
    seat.keys("<esc>:sort taken<enter>");
    assert!(seat.model.flash.is_none() && seat.text().contains("TAKEN ▼"), "{}", seat.text());
}
