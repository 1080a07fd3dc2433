//! Key sequences and what comes of them.

use tuplane_wire::message::JobPhase;

use super::world::{Seat, World};
use crate::tui::effect::{Ask, Effect, Quit};
use crate::tui::event::{Mouse, News, What};
use crate::tui::model::{Mode, Screen};

fn seat() -> Seat {
    Seat::at(120, 40, &World::new(7, 2))
}

#[test]
fn numbers_go_to_screens_enter_goes_into_things_and_esc_comes_back() {
    let mut seat = seat();
    for (key, screen) in [
        ("2", Screen::Edges),
        ("3", Screen::Routes),
        ("4", Screen::Scaling),
        ("5", Screen::Instances),
        ("6", Screen::Agents),
        ("0", Screen::Jobs),
        ("1", Screen::Graph),
    ] {
        seat.keys(key);
        assert_eq!(seat.model.screen, screen);
    }
    // There are no more.
    seat.keys("7");
    assert_eq!(seat.model.screen, Screen::Graph);
    seat.keys("l<enter>");
    assert_eq!(seat.model.screen, Screen::Instances);
    let rows = seat.model.rows(Screen::Instances);
    assert_eq!(rows.len(), 6, "those of one vertex");
    assert!(seat.text().contains("graph > instances of "), "{}", seat.text());
    seat.keys("<esc>");
    assert_eq!(seat.model.screen, Screen::Graph);
    seat.keys("2<enter><enter><esc><esc>");
    assert_eq!(seat.model.screen, Screen::Edges);
    seat.keys("6j<enter>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 14, "those on one agent");
    seat.keys("5");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 42, "all");
}

#[test]
fn filters_take_text_inverse_text_and_terms_and_follow_as_they_are_typed() {
    let mut seat = seat();
    seat.keys("5/busy>0.9");
    assert!(matches!(seat.model.mode, Mode::Filter(..)));
    assert_eq!(seat.model.rows(Screen::Instances).len(), 6);
    seat.keys(" host=a<enter>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 2);
    assert!(seat.text().contains("/busy>0.9 host=a"), "{}", seat.text());
    // Esc in the line goes back to the filter of before, and without a line clears it.
    seat.keys("/<c-u>nothing<esc>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 2);
    seat.keys("<esc>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 42);
    seat.keys("/!src<enter>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 36);
    seat.keys(":filter host=rack-2<enter>");
    assert_eq!(seat.model.rows(Screen::Instances).len(), 14);
    seat.keys("/<c-u>no such<enter>");
    assert!(seat.text().contains("nothing fits the filter"), "{}", seat.text());
}

#[test]
fn tables_are_sorted_by_any_column_and_turned_around() {
    let mut seat = seat();
    let first = |seat: &Seat| seat.model.rows(Screen::Instances)[0].cells[0].text();
    seat.keys("5:sort busy<enter>");
    assert!(first(&seat).starts_with("w#"), "{}", first(&seat));
    assert!(seat.text().contains("BUSY ▼"), "{}", seat.text());
    seat.keys("i");
    assert!(!first(&seat).starts_with("w#") && seat.text().contains("BUSY ▲"), "{}", seat.text());
    seat.keys("i>");
    assert!(first(&seat).starts_with("src#") && seat.text().contains("BLOCKED ▼"), "{}", seat.text());
    seat.keys("<lt>");
    assert!(first(&seat).starts_with("w#"));
    seat.keys("s");
    assert!(seat.text().contains("sort by"), "{}", seat.text());
    seat.keys("gk<esc>");
    seat.keys(":sort nothing<enter>");
    assert!(seat.text().contains("there is no column"), "{}", seat.text());
}

#[test]
fn a_policy_changes_only_after_a_second_yes() {
    let mut seat = seat();
    assert_eq!(seat.keys("<tab>P"), []);
    assert!(seat.text().contains("policy of "), "{}", seat.text());
    seat.keys("j<enter>");
    let shown = seat.text();
    for part in ["round-robin → shuffle", "6 instances on 3 agents", "[ Cancel ]", "[ Change it ]"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Cancel is what Enter means at first.
    assert_eq!(seat.keys("<enter>"), []);
    assert!(seat.text().contains("nothing was changed"), "{}", seat.text());
    let edge = seat.model.picture().unwrap().job.as_ref().unwrap().edges[0].name.clone();
    let asked = seat.keys("Pj<enter><tab><enter>");
    let ask = Ask::Route { run: 1, edge: edge.clone(), policy: "shuffle".into(), options: String::new() };
    assert_eq!(asked, [Effect::Ask(ask)]);
    seat.tell(11_100, What::Reply(Ok(format!("{edge} goes by shuffle now"))));
    assert!(seat.text().contains("goes by shuffle now"), "{}", seat.text());
    seat.tell(11_200, What::Reply(Err("the edge is isolated".into())));
    assert!(seat.text().contains("the edge is isolated"), "{}", seat.text());
    // By name, and what cannot be.
    assert_eq!(seat.keys(":policy shuffle<enter>l<enter>").len(), 1);
    seat.keys(":policy best<enter>");
    assert!(seat.text().contains("there is no policy `best`"), "{}", seat.text());
    // The policy that it has already changes nothing.
    assert_eq!(seat.keys(":policy round-robin<enter>"), []);
    assert!(matches!(seat.model.mode, Mode::Normal));
}

#[test]
fn a_job_is_cancelled_only_after_a_second_yes_and_never_read_only() {
    let mut seat = seat();
    seat.keys("C");
    let shown = seat.text();
    for part in [
        "Cancel job nexmark-hot-items (run 1)?",
        "running → cancelled",
        "42 instances on 3 agents",
        "[ Keep it running ]",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(seat.keys("<enter>"), []);
    assert_eq!(seat.keys("C<esc>"), []);
    assert_eq!(seat.keys("C<right><enter>"), [Effect::Ask(Ask::Cancel { run: 1 })]);
    seat.keys(":read-only<enter>");
    assert_eq!(seat.keys("C<right><enter>"), []);
    assert!(seat.text().contains("read-only"), "{}", seat.text());
    assert_eq!(seat.keys("2P<enter><tab><enter>"), []);
}

#[test]
fn ctrl_c_always_quits_and_q_where_nothing_is_typed() {
    for open in ["", "?", "/x", ":x", "C", "P", "s", "5<enter>"] {
        let mut seat = seat();
        seat.keys(open);
        assert_eq!(seat.keys("<c-c>"), [Effect::Quit(Quit::Interrupted)], "{open}");
        seat.tell(11_000, What::Resize { width: 5, height: 2 });
        assert_eq!(seat.keys("q"), [Effect::Quit(Quit::Asked)], "{open}, tiny");
    }
    let mut seat = seat();
    assert_eq!(seat.keys("q"), [Effect::Quit(Quit::Asked)]);
    assert_eq!(seat.keys("/q<esc>:qu<enter>"), [Effect::Quit(Quit::Asked)]);
    // In help and dialogs it closes those.
    assert_eq!(seat.keys("?q"), []);
    assert_eq!(seat.keys("Cq"), []);
    assert!(matches!(seat.model.mode, Mode::Normal));
    assert_eq!(seat.keys("<c-z>"), [Effect::Suspend]);
    assert_eq!(seat.keys("?<c-l>"), [Effect::Redraw]);
}

#[test]
fn the_graph_is_walked_along_its_edges() {
    let mut seat = seat();
    assert_eq!(seat.model.graph.vertex, 0);
    seat.keys("l");
    let job = || seat.model.picture().unwrap().job.clone().unwrap();
    assert!(job().edges.iter().any(|edge| edge.from == 0 && edge.to == seat.model.graph.vertex));
    seat.keys("h");
    assert_eq!(seat.model.graph.vertex, 0);
    seat.keys("G");
    assert_eq!(seat.model.graph.vertex, 6);
    // Every vertex is reached by going up and down alone.
    seat.keys("g");
    let mut seen = std::collections::BTreeSet::from([0]);
    for _ in 0..20 {
        seat.keys("j");
        seen.insert(seat.model.graph.vertex);
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
    seat.keys("<tab>jj<enter>");
    assert_eq!((seat.model.screen, seat.model.edge), (Screen::Prices, 2));
}

#[test]
fn several_jobs_or_none_that_runs_begin_with_the_list() {
    let world = World::new(3, 1);
    let mut two = world.telemetry(10_000);
    let mut other = two.jobs[0].clone();
    (other.run, other.name) = (2, "wordcount".into());
    two.jobs.push(other);
    let mut seat = Seat::new(100, 24);
    seat.tell(0, What::Telemetry(Box::new(two)));
    assert_eq!(seat.model.screen, Screen::Jobs);
    assert!(seat.text().contains("wordcount"), "{}", seat.text());
    assert_eq!(seat.keys("<enter>"), [Effect::Watch(2)]);
    assert_eq!(seat.keys(":job nexmark-hot-items<enter>"), [Effect::Watch(1)]);
    seat.keys(":job nobody<enter>");
    assert!(seat.text().contains("there is no job `nobody`"), "{}", seat.text());

    let ended = World { phase: JobPhase::Finished, ..World::new(3, 1) };
    assert_eq!(Seat::at(80, 24, &ended).model.screen, Screen::Jobs);
    assert_eq!(Seat::at(80, 24, &world).model.screen, Screen::Graph);
}

#[test]
fn without_a_cluster_it_says_how_to_get_one_and_starts_one_on_a_key() {
    let mut seat = Seat::new(80, 24);
    assert!(seat.text().contains("CONNECTING"), "{}", seat.text());
    seat.tell(1, What::Connection(News::Nobody("no cluster runs here".into())));
    let shown = seat.text();
    for part in ["NO CLUSTER", "tuplane up --local 3 --detach", "Press D", "Leaving this UI ends"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(seat.keys("D"), [Effect::StartLocal]);
    seat.tell(2, What::Connection(News::Starting));
    assert_eq!(seat.keys("D"), []);
    assert!(seat.text().contains("STARTING"), "{}", seat.text());
    let mut told = seat;
    told.tell(3, What::Connection(News::Connected));
    assert_eq!(told.keys("D"), [], "there is one now");
    // A cluster without a job says how to run one.
    let mut telemetry = World::new(3, 1).telemetry(1000);
    (telemetry.job, telemetry.jobs) = (None, Vec::new());
    told.tell(4, What::Telemetry(Box::new(telemetry)));
    told.tell(12_000, What::Tick);
    assert!(told.text().contains("tuplane submit FILE"), "{}", told.text());
}

#[test]
fn the_mouse_selects_rows_and_boxes() {
    let mut seat = seat();
    seat.tell(11_000, What::Mouse(Mouse::Press(2, 3)));
    assert_eq!(seat.model.graph.vertex, 0);
    let spot = seat.model.picture().unwrap().job.as_ref().unwrap().plan.laid(120).boxes[1];
    seat.tell(11_000, What::Mouse(Mouse::Press(spot.x as u16 + 1, spot.y as u16 + 3)));
    assert_eq!(seat.model.graph.vertex, 1);
    seat.keys("5");
    let y = seat.text().lines().position(|line| line.contains("src#3")).unwrap() as u16;
    seat.tell(11_000, What::Mouse(Mouse::Press(5, y)));
    let rows = seat.model.rows(Screen::Instances);
    assert_eq!(seat.model.selected(Screen::Instances, &rows), 3);
    seat.tell(11_000, What::Mouse(Mouse::Down));
    assert_eq!(seat.model.selected(Screen::Instances, &rows), 4);
}

#[test]
fn help_lists_what_works_here_and_typing_filters_it() {
    let mut seat = seat();
    seat.keys("?");
    let shown = seat.text();
    assert!(shown.contains("from vertices to edges") && !shown.contains("turns the order around"), "{shown}");
    seat.keys("suspend");
    assert!(seat.text().contains("Ctrl-Z") && !seat.text().contains("pan-left"), "{}", seat.text());
    seat.keys("<esc>4?");
    assert!(seat.text().contains("turns the order around"), "{}", seat.text());
}

/// Two jobs that run; the cluster was asked about the first one.
fn two_jobs() -> crate::tui::event::Telemetry {
    let mut telemetry = World::new(3, 1).telemetry(10_000);
    let mut other = telemetry.jobs[0].clone();
    (other.run, other.name, other.instances) = (2, "wordcount".into(), 4);
    telemetry.jobs.push(other);
    telemetry
}

#[test]
fn the_job_under_the_cursor_is_cancelled_and_never_another_one() {
    let mut seat = Seat::new(100, 24);
    seat.tell(0, What::Telemetry(Box::new(two_jobs())));
    assert_eq!(seat.model.screen, Screen::Jobs);
    // The newest stands first; the cluster was asked about run 1.
    seat.keys("C");
    let shown = seat.text();
    assert!(shown.contains("Cancel job wordcount (run 2)?") && shown.contains("ends 4 instances"), "{shown}");
    assert_eq!(seat.keys("<right><enter>"), [Effect::Ask(Ask::Cancel { run: 2 })]);
    seat.keys("jC");
    assert!(seat.text().contains("Cancel job nexmark-hot-items (run 1)?"), "{}", seat.text());
    assert_eq!(seat.keys("<right><enter>"), [Effect::Ask(Ask::Cancel { run: 1 })]);
    // Sorted and filtered: what is under the cursor counts.
    seat.keys(":sort run<enter>i/wordcount<enter>");
    assert_eq!(seat.keys("C<right><enter>"), [Effect::Ask(Ask::Cancel { run: 2 })]);
    seat.keys("/<c-u>nobody<enter>");
    assert_eq!(seat.keys("C<right><enter>"), []);
    // On other screens it is the job that they show.
    seat.keys("1C");
    assert!(seat.text().contains("Cancel job nexmark-hot-items (run 1)?"), "{}", seat.text());
    seat.keys("<esc>");
    // A name that is a number does not stand for that run.
    let mut named = two_jobs();
    named.jobs[1].name = "1".into();
    seat.tell(500, What::Telemetry(Box::new(named)));
    seat.keys("0<esc>");
    assert_eq!(seat.keys(":job 1<enter>"), [Effect::Watch(1)]);
}

#[test]
fn what_is_held_still_is_what_commands_mean() {
    let mut seat = Seat::new(120, 40);
    seat.tell(0, What::Telemetry(Box::new(World::new(3, 1).telemetry(10_000))));
    seat.keys("<tab><space>");
    let mut next = two_jobs();
    if let Some(job) = &mut next.job {
        (job.summary.run, job.summary.name) = (2, "wordcount".into());
    }
    seat.tell(500, What::Telemetry(Box::new(next)));
    seat.keys("C");
    assert!(seat.text().contains("Cancel job nexmark-hot-items (run 1)?"), "{}", seat.text());
    seat.keys("<esc>P");
    assert!(matches!(seat.model.mode, Mode::Normal), "an edge of the other job is not meant");
    assert!(seat.text().contains("not the one that the cluster"), "{}", seat.text());
    // A choice that was opened before the job changed leads to nothing either.
    let mut seat = Seat::at(120, 40, &World::new(3, 1));
    seat.keys("<tab>P");
    let mut next = two_jobs();
    if let Some(job) = &mut next.job {
        job.summary.run = 2;
    }
    seat.tell(12_000, What::Telemetry(Box::new(next)));
    assert_eq!(seat.keys("j<enter><right><enter>"), []);
}

#[test]
fn in_the_list_form_the_selected_vertex_counts() {
    let mut seat = seat();
    seat.keys("<tab>jjv");
    // The edge that is selected on the drawing cannot be seen here: it is not meant, and the source reads none.
    assert_eq!((seat.model.graph.edge, seat.model.meant_edge()), (2, None));
    seat.keys("j");
    let into: Vec<u32> = (0u32..)
        .zip(&seat.model.picture().unwrap().job.as_ref().unwrap().edges)
        .filter(|(_, edge)| edge.to == seat.model.graph.vertex)
        .map(|(id, _)| id)
        .collect();
    assert_eq!(seat.model.meant_edge().into_iter().collect::<Vec<_>>(), into);
}
