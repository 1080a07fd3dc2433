//! What a second person at the screen ran into: each fault that was found there has its test here.

use super::world::{Seat, World};
use crate::tui::effect::{Ask, Effect};
use crate::tui::event::{News, Telemetry, What};
use crate::tui::model::{LARGEST, Mode, Screen, Source};
use tuplane_wire::message::JobPhase;

/// The same cluster, asked about another job.
fn another(ms: u64) -> Telemetry {
    let mut telemetry = World::new(3, 1).telemetry(ms);
    let mut other = telemetry.jobs[0].clone();
    (other.run, other.name) = (2, "wordcount".into());
    telemetry.jobs.push(other);
    telemetry.job.as_mut().unwrap().summary.run = 2;
    telemetry
}

#[test]
fn what_is_open_about_a_job_is_closed_when_another_one_is_shown() {
    // A column of the instances that the graph does not have; a filter line; a question.
    for (keys, after) in
        [("1l<enter>s", "GG<enter>"), ("1l<enter>/busy>0.9", "<enter>"), ("C", "<right><enter>")]
    {
        let mut seat = Seat::at(120, 40, &World::new(3, 1));
        seat.keys(keys);
        assert!(!matches!(seat.model.mode, Mode::Normal), "{keys}");
        if keys.ends_with('s') {
            seat.keys(&"<up>".repeat(3));
        }
        seat.tell(12_000, What::Telemetry(Box::new(another(12_000))));
        assert!(matches!(seat.model.mode, Mode::Normal), "{keys}");
        assert_eq!(seat.keys(after), [], "{keys}");
        for screen in Screen::ALL {
            assert!(seat.model.list(screen).filter.is_empty(), "{keys}: {screen:?}");
        }
    }
    // What is typed as a command is about no job, and stays.
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    seat.keys(":po");
    seat.tell(12_000, What::Telemetry(Box::new(another(12_000))));
    assert!(matches!(seat.model.mode, Mode::Command(_)));
}

#[test]
fn enter_opens_what_the_cursor_stands_on_whatever_the_filter_leaves_out() {
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    seat.keys("l/src<enter><enter>");
    assert!(seat.text().contains("instances of w"), "the box that is selected: {}", seat.text());
    // In the list form it is a row that can be seen, and all commands mean that one.
    seat.keys("<esc>v");
    assert_eq!(seat.model.graph.vertex, 0);
    seat.keys("/out<enter>");
    assert_eq!(seat.model.graph.vertex, 2);
    seat.keys("<enter>");
    assert!(seat.text().contains("instances of out"), "{}", seat.text());
}

#[test]
fn marks_are_no_part_of_names() {
    let mut seat = Seat::at(160, 40, &World::new(3, 1));
    let rows = |seat: &mut Seat, keys: &str, screen| {
        seat.keys(keys);
        seat.model.rows(screen).len()
    };
    assert_eq!(rows(&mut seat, "6/agent=a<enter>", Screen::Agents), 1);
    assert!(seat.text().contains("*a"), "the mark is shown: {}", seat.text());
    assert_eq!(rows(&mut seat, "2/edge=src..w<enter>", Screen::Edges), 1);
    assert!(seat.text().contains("⇄ src..w"), "{}", seat.text());
    assert_eq!(rows(&mut seat, "1v/vertex=w<enter>", Screen::Graph), 1);
    assert!(seat.text().contains("*w"), "{}", seat.text());
}

#[test]
fn ages_and_bytes_are_filtered_by_what_is_shown() {
    let mut world = World::new(3, 1);
    world.ages[1] = 4200;
    let mut seat = Seat::at(160, 40, &world);
    let rows = |seat: &mut Seat, keys: &str, screen| {
        seat.keys(keys);
        seat.model.rows(screen).len()
    };
    assert_eq!(rows(&mut seat, "6/age>2<enter>", Screen::Agents), 1);
    assert_eq!(rows(&mut seat, "/age>500ms<enter>", Screen::Agents), 1);
    assert_eq!(rows(&mut seat, "/memory>=11g<enter>", Screen::Agents), 2);
    assert_eq!(rows(&mut seat, "/offset<lt>-300us<enter>", Screen::Agents), 1);
    // An agent that is not there any more has no age that would be small enough.
    let mut telemetry = world.telemetry(12_000);
    telemetry.agents.remove(2);
    seat.tell(12_000, What::Telemetry(Box::new(telemetry)));
    assert_eq!(rows(&mut seat, "5/age>1h<enter>", Screen::Instances), 3);
}

#[test]
fn before_the_first_report_nothing_is_said_of_plans() {
    let mut seat = Seat::new(80, 24);
    seat.tell(0, What::Connection(News::Connected));
    let shown = seat.text();
    assert!(shown.contains("Waiting for the first report.") && !shown.contains("cannot be drawn"), "{shown}");
}

#[test]
fn the_way_out_and_to_help_stays_in_the_footer() {
    for width in [40, 60, 80, 120] {
        for keys in
            ["1", "2", "5", "6", "0", "2<enter><enter>", "5/busy>0.1 host=a !nothing !like !that<enter>"]
        {
            let mut seat = Seat::at(width, 24, &World::new(7, 2));
            seat.keys(keys);
            let shown = seat.text();
            let last = shown.lines().last().unwrap();
            assert!(last.contains("? help  q quit"), "{width} {keys}: {last}");
        }
    }
    let shown = Seat::at(80, 24, &World::new(7, 2)).text();
    let last = shown.lines().last().unwrap();
    assert!(last.contains("C cancel") && last.contains("P policy"), "{last}");
}

#[test]
fn all_of_help_can_be_read_at_any_width() {
    for (width, height) in [(120, 40), (80, 24), (40, 12), (20, 5)] {
        let mut seat = Seat::at(width, height, &World::new(7, 2));
        seat.keys("?");
        let first = seat.text();
        if (width, height) == (80, 24) {
            assert!(first.contains("lines below"), "{first}");
            for useful in ["ends the job", "ends the UI", "changes how the selected edge"] {
                assert!(first.contains(useful), "without scrolling: {first}");
            }
        }
        let mut seen = first.clone();
        for _ in 0..600 {
            let before = seat.text();
            seat.keys("<down>");
            seen.push_str(&seat.text());
            if seat.text() == before {
                break;
            }
        }
        // The last words of the last lines, and nothing scrolls beyond them.
        for end in ["their age", "Ctrl-K"] {
            assert!(seen.contains(end), "{width}x{height}: {}", seat.text());
        }
        let end = seat.text();
        assert!(end.contains("away") && !end.contains("lines below"), "{end}");
        seat.keys("<up>");
        assert_ne!(seat.text(), end, "one key leads back one line");
        // A filter begins at the top.
        seat.keys("x");
        assert!(matches!(seat.model.mode, Mode::Help(_, 0)));
    }
}

#[test]
fn a_long_fault_of_an_instance_can_be_read_to_its_end() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(60, 14, &world);
    let mut telemetry = world.telemetry(12_000);
    let note = format!("row 17 of bids.csv: {}the very end", "price is no number, ".repeat(30));
    telemetry.job.as_mut().unwrap().counters[0].note = Some(note);
    seat.tell(12_000, What::Telemetry(Box::new(telemetry)));
    seat.keys("5<enter>");
    let mut seen = seat.text();
    for _ in 0..80 {
        seat.keys("j");
        seen.push_str(&seat.text());
    }
    assert!(seen.contains("row 17 of") && seat.text().contains("very end"), "{}", seat.text());
    let end = seat.text();
    seat.keys("jjjjk");
    assert_ne!(seat.text(), end, "one key leads back one line");
}

#[test]
fn a_cut_name_keeps_its_number_and_rows_that_are_out_of_sight_are_marked() {
    let mut seat = Seat::at(80, 14, &World::new(7, 3));
    let long = |seat: &mut Seat| {
        let job = seat.model.live.as_mut().unwrap().job.as_mut().unwrap();
        for instance in &mut job.instances {
            let (name, number) = instance.name.split_once('#').unwrap();
            instance.name = format!("{name}/a/very/long/name/of/a/fused/vertex#{number}");
        }
    };
    seat.keys("5");
    long(&mut seat);
    let shown = seat.text();
    assert!(shown.contains("…#0 ") && shown.contains("…#8 "), "{shown}");
    assert!(!shown.contains(" AGE ") && shown.contains("QUEUE IN"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("vw/")), "{shown}");
    seat.keys("G");
    long(&mut seat);
    assert!(seat.text().lines().any(|line| line.starts_with('^')), "{}", seat.text());
    let mut wide = Seat::at(120, 40, &World::new(7, 2));
    wide.keys("5");
    assert!(wide.text().contains("TIME"), "{}", wide.text());
}

#[test]
fn five_vertices_fit_120_columns_and_the_queue_of_an_edge_80() {
    let dag = super::world::chain(5);
    let world = World::of(dag, 2);
    let seat = Seat::at(120, 40, &world);
    let drawn: Vec<String> = seat.text().lines().skip(2).take(5).map(str::to_owned).collect();
    for name in ["src", "w1", "w2", "w3", "out"] {
        assert!(drawn[0].contains(&format!(" {name} x6 ")), "{name}: {}", seat.text());
    }
    let shown = Seat::at(80, 24, &world).text();
    assert!(shown.contains("  queue "), "{shown}");
    let queue = shown.lines().find(|line| line.contains("⇄ src..w1")).unwrap();
    assert!(queue.contains("queue ") && queue.contains("across"), "{queue}");
}

#[test]
fn a_job_that_was_cancelled_says_so_and_nothing_is_being_stopped_any_more() {
    let mut world = World::new(3, 1);
    let mut seat = Seat::at(120, 40, &world);
    assert_eq!(seat.keys("C<right><enter>"), [Effect::Ask(Ask::Cancel { run: 1 })]);
    seat.tell(11_100, What::Reply(Ok("run 1 is being stopped".into())));
    assert!(seat.text().contains("run 1 is being stopped"), "{}", seat.text());
    world.phase = JobPhase::Cancelled;
    seat.tell(11_500, What::Telemetry(Box::new(world.telemetry(11_500))));
    let shown = seat.text();
    assert!(shown.contains("the job has ended: cancelled") && !shown.contains("being stopped"), "{shown}");
}

#[test]
fn the_jobs_mark_the_one_that_is_shown_and_dialogs_name_their_keys() {
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    seat.tell(12_000, What::Telemetry(Box::new(another(12_000))));
    seat.keys("0");
    assert!(seat.text().contains(" *wordcount") || seat.text().contains("2  *"), "{}", seat.text());
    for (keys, named) in
        [("C", "Left Right choose"), ("<esc>2P", "Enter takes it"), ("<esc>5<enter>", "Esc closes")]
    {
        seat.keys(keys);
        assert!(seat.text().contains(named), "{keys}: {}", seat.text());
    }
}

#[test]
fn a_filter_begins_anew_and_the_last_one_is_a_key_away() {
    let mut seat = Seat::at(120, 40, &World::new(7, 2));
    seat.keys("5/src<enter>/w<enter>");
    assert_eq!(seat.model.list(Screen::Instances).filter.text, "w");
    // Nothing typed changes nothing.
    seat.keys("/<enter>");
    assert_eq!(seat.model.list(Screen::Instances).filter.text, "w");
    seat.keys("/<up>#0<enter>");
    assert_eq!(seat.model.list(Screen::Instances).filter.text, "w#0");
    // Typed and taken away again clears it.
    seat.keys("/x<backspace><enter>");
    assert!(seat.model.list(Screen::Instances).filter.is_empty());
}

#[test]
fn what_is_pasted_goes_into_a_line_and_is_never_keys() {
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    assert_eq!(seat.tell(11_000, What::Paste("Cq\nq".into())), []);
    assert!(matches!(seat.model.mode, Mode::Normal) && seat.text().contains("left out"), "{}", seat.text());
    seat.keys("5/");
    seat.tell(11_000, What::Paste("busy>0.9\nhost=a".into()));
    seat.keys("<enter>");
    assert_eq!(seat.model.list(Screen::Instances).filter.text, "busy>0.9 host=a");
    seat.keys(":");
    seat.tell(11_000, What::Paste("x".repeat(1_000_000)));
    assert!(matches!(&seat.model.mode, Mode::Command(input) if input.value().len() == 500));
}

#[test]
fn a_terminal_of_any_size_is_drawn_on_as_far_as_anybody_can_read() {
    let mut seat = Seat::new(65_535, 65_535);
    assert_eq!((seat.model.width, seat.model.height), LARGEST);
    seat.tell(1, What::Telemetry(Box::new(World::new(3, 1).telemetry(1000))));
    assert_eq!(seat.buffer().area.width, LARGEST.0);
}

#[test]
fn panning_ends_at_the_border_and_the_first_key_back_moves() {
    let mut seat = Seat::at(80, 24, &World::new(30, 1));
    seat.keys(&"L".repeat(500));
    let end = seat.text();
    seat.keys("H");
    assert_ne!(seat.text(), end);
}

#[test]
fn enter_on_an_agent_or_a_target_shows_its_instances_whatever_was_filtered() {
    for keys in ["6j<enter>", "2<enter><enter>"] {
        let mut seat = Seat::at(120, 40, &World::new(3, 1));
        seat.keys("5/nothing<enter>");
        seat.keys(keys);
        assert!(!seat.model.rows(Screen::Instances).is_empty(), "{keys}: {}", seat.text());
    }
}

#[test]
fn without_utf8_names_are_ascii_too() {
    let mut world = World::new(3, 1);
    world.name = "größe-日本".into();
    let mut seat = Seat::at(120, 40, &world);
    seat.model.options.glyphs = crate::tui::glyph::Glyphs::of(false);
    let mut telemetry = world.telemetry(12_000);
    telemetry.agents[0].info.host = "häuschen".into();
    seat.tell(12_000, What::Telemetry(Box::new(telemetry)));
    for keys in ["1", "5", "6", "0", "C"] {
        seat.keys(keys);
        assert!(seat.text().is_ascii(), "{keys}: {}", seat.text());
    }
    assert!(seat.text().contains("gr??e-????"), "{}", seat.text());
}

#[test]
fn in_a_recording_another_job_cannot_be_chosen_and_keys_say_so() {
    let mut seat = Seat::at(100, 24, &World::new(3, 1));
    seat.tell(12_000, What::Telemetry(Box::new(another(12_000))));
    seat.model.options.source = Source::Recording;
    seat.keys("0j");
    assert_eq!(seat.keys("<enter>"), []);
    assert_eq!(seat.model.screen, Screen::Jobs);
    assert!(seat.text().contains("another job cannot be chosen here"), "{}", seat.text());
}

#[test]
fn rows_that_pile_up_before_a_full_vertex_limit_the_job() {
    let world = World::new(3, 1);
    let mut seat = Seat::at(120, 40, &world);
    for ms in [12_000, 13_000] {
        let mut telemetry = world.telemetry(ms);
        let job = telemetry.job.as_mut().unwrap();
        for report in &mut job.counters {
            // The source waits for its clock, and the work is never done.
            report.idle_ns += std::mem::take(&mut report.blocked_ns);
        }
        job.edges[0].queued_in = 45_000;
        seat.tell(ms, What::Telemetry(Box::new(telemetry)));
    }
    let shown = seat.text();
    assert!(shown.contains("limits the job: w (busy 98 %, 7 s of its work waits before it)"), "{shown}");
    assert!(shown.contains(" limits the job ─"), "{shown}");
}

#[test]
fn the_cost_is_a_mean_of_lately() {
    let world = World::new(3, 1);
    let mut seat = Seat::new(160, 40);
    for (step, cost) in [800.0, 400.0, 900.0, 300.0].into_iter().enumerate() {
        let ms = 10_000 + step as u64 * 500;
        let mut telemetry = world.telemetry(ms);
        telemetry.job.as_mut().unwrap().cost_per_second = cost;
        seat.tell(ms, What::Telemetry(Box::new(telemetry)));
    }
    assert!(seat.text().contains("cost 600 units/s"), "{}", seat.text());
}

#[test]
fn what_columns_say_of_policies_and_silence_is_what_there_is() {
    use crate::presence::SILENT_MS;
    use crate::tui::model::columns::{AGENTS, EDGES};
    let doc = |columns: &'static [crate::tui::model::table::Column], name: &str| {
        columns.iter().find(|column| column.name == name).unwrap().doc
    };
    let policies = tuplane_core::route::policy_names().join(", ");
    assert!(doc(EDGES, "policy").contains(&policies), "{policies}");
    let silent = format!("{} s", SILENT_MS as f64 / 1000.0);
    assert!(doc(AGENTS, "state").contains(&silent), "{silent}");
}

#[test]
fn nothing_is_drawn_anew_where_nothing_has_changed() {
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    let mut changes = |at, what| {
        seat.tell(at, what);
        seat.model.changed
    };
    assert!(changes(11_000, What::Key("j".parse().unwrap())));
    assert!(!changes(11_100, What::Tick));
    assert!(!changes(11_200, What::Connection(News::Connected)));
    // Ages are shown in seconds.
    assert!(changes(12_000, What::Tick));
    assert!(!changes(12_999, What::Tick));
}
