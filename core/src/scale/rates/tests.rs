//! Rates from counters that stand still, restart, go back, or are missing.

use proptest::prelude::*;

use super::*;
use crate::job::{FileFormat, Job};
use crate::plan::plan;

const MS: u64 = 1_000_000;
const AGENT: &str = "a0";

/// `s` -> `w` -> `o`, one instance each, on one agent; the stage `w` as given.
fn dag(source: &str, middle: &str) -> (Job, Dag) {
    let text = format!(
        r#"stage = [
{{ id = "s", op = "source", connector = "ids", n = 9{source} }},
{middle}
{{ id = "o", op = "sink", in = "w", connector = "count" }},
]"#
    );
    let job = Job::parse(&text, FileFormat::Toml).unwrap();
    let dag = plan(&job).unwrap();
    (job, dag)
}

const WORK: &str = r#"{ id = "w", op = "work", ms = 1, in = "s" },"#;

/// A run whose counters a test moves on.
struct World {
    job: Job,
    dag: Dag,
    kinds: Vec<Kind>,
    instances: Vec<Instance>,
    window: RateWindow,
    now: Duration,
    counters: Vec<InstanceReport>,
    edges: Vec<EdgeLedger>,
}

impl World {
    fn of((job, dag): (Job, Dag), counts: &[u32]) -> Self {
        let kinds = kinds(&dag, &job, |_, _| None, |_| Err("not read".to_owned()));
        let mut instances = Vec::new();
        for (vertex, count) in (0u32..).zip(counts) {
            for number in 0..*count {
                let id = instances.len() as u32;
                instances.push(Instance { id, vertex: VertexId(vertex), number, agent: 0 });
            }
        }
        let report = |one: &Instance| InstanceReport { instance: one.id, ..InstanceReport::default() };
        let edge = |index: usize| EdgeLedger { edge: index as u32, ..EdgeLedger::default() };
        Self {
            counters: instances.iter().map(report).collect(),
            edges: (0..dag.edges.len()).map(edge).collect(),
            window: RateWindow::new(WindowOptions::default()),
            now: Duration::ZERO,
            kinds,
            job,
            dag,
            instances,
        }
    }

    fn chain() -> Self {
        Self::of(dag("", WORK), &[1, 1, 1])
    }

    /// 250 ms pass in which an instance takes and gives rows and is busy for a while.
    fn moves(&mut self, instance: usize, rows_in: u64, rows_out: u64, busy_ms: u64) {
        let counters = &mut self.counters[instance];
        counters.rows_in += rows_in;
        counters.rows_out += rows_out;
        counters.busy_ns += busy_ms * MS;
        counters.idle_ns += (250 - busy_ms) * MS;
    }

    fn emits(&mut self, edge: usize, rows: u64) {
        self.edges[edge].emitted += rows;
    }

    /// The quarter of a second is over.
    fn reports(&mut self) {
        self.now += Duration::from_millis(250);
        self.window.report(AGENT, self.now, &self.counters, &self.edges);
    }

    /// Quarters of a second in which the chain takes `rows` each, `w` busy for `busy_ms` of each.
    fn runs(&mut self, quarters: u64, rows: u64, busy_ms: u64) {
        for _ in 0..quarters {
            self.moves(0, rows, rows, 10);
            self.moves(1, rows, rows, busy_ms);
            self.moves(2, rows, 0, 5);
            self.emits(0, rows);
            self.emits(1, rows);
            self.reports();
        }
    }

    fn rates(&self) -> JobRates {
        let agents = [AGENT.to_owned()];
        let known = Known { dag: &self.dag, kinds: &self.kinds, instances: &self.instances, agents: &agents };
        self.window.rates(&known, self.now)
    }
}

#[track_caller]
fn near(found: &Figure, wanted: f64) {
    let found = found.clone().unwrap();
    assert!((found / wanted - 1.0).abs() < 1e-9, "{found} is not {wanted}");
}

#[track_caller]
fn because(found: &Figure, words: &str) {
    let why = found.clone().unwrap_err();
    assert!(why.contains(words), "`{why}` does not say `{words}`");
}

#[test]
fn capacity_comes_from_busy_time_and_rates_from_the_time_that_passed() {
    let mut world = World::chain();
    world.runs(60, 50, 100);
    let rates = world.rates();
    assert!(rates.full);
    let work = &rates.vertices[1];
    near(&work.input, 200.0);
    near(&work.processed, 200.0);
    near(&work.emitted, 200.0);
    near(&work.capacity, 500.0);
    near(&work.busy, 0.4);
    near(&work.selectivity, 1.0);
    near(&rates.edges[0].rate, 200.0);
    near(&rates.throughput(&world.dag), 200.0);
    assert!((10.0..10.3).contains(&rates.seconds.unwrap()));
    assert_eq!(work.offered, None);
    because(&work.skew, "two instances");
}

#[test]
fn only_the_last_ten_seconds_count() {
    let mut world = World::chain();
    world.runs(60, 50, 100);
    world.runs(44, 10, 200);
    let work = &world.rates().vertices[1];
    near(&work.processed, 40.0);
    near(&work.capacity, 50.0);
}

#[test]
fn waits_for_a_core_count_as_busy_and_are_told_apart() {
    let mut world = World::chain();
    for _ in 0..20 {
        world.counters[1].waiting_core_ns += 50 * MS;
        world.runs(1, 50, 100);
    }
    let work = &world.rates().vertices[1];
    near(&work.capacity, 500.0);
    near(&work.capacity_alone, 1000.0);
}

#[test]
fn a_source_is_offered_its_pace_or_what_it_can_give() {
    let mut world = World::of(dag(", rate = 123.5", WORK), &[1, 1, 1]);
    world.runs(8, 10, 10);
    let source = &world.rates().vertices[0];
    near(source.offered.as_ref().unwrap(), 123.5);
    near(&source.input, 123.5);
    near(&source.processed, 40.0);
    let mut world = World::chain();
    world.runs(8, 10, 10);
    near(world.rates().vertices[0].offered.as_ref().unwrap(), 1000.0);
    let changed = |option: &str| (option == "rate").then_some(serde_json::json!(7));
    let kinds = kinds(&world.dag, &world.job, |_, option| changed(option), |_| Ok(1.0));
    assert_eq!(kinds[0], Kind::Source(Offer::Paced(Ok(7.0))));
}

#[test]
fn a_trace_is_offered_what_it_gives_as_long_as_it_is_not_held_up() {
    let job = "stage = [{ id = \"t\", op = \"source\", connector = \"trace\", path = \"x\" },
        { id = \"k\", op = \"sink\", in = \"t\", connector = \"count\" }]";
    let job = Job::parse(job, FileFormat::Toml).unwrap();
    let dag = plan(&job).unwrap();
    let mean = kinds(&dag, &job, |_, _| None, |_| Ok(70.0));
    let mut world = World::chain();
    world.runs(8, 10, 10);
    let now = |rates: &JobRates| match traces_now(&mean, &dag, &job, rates).remove(0) {
        Kind::Source(Offer::Paced(Ok(rate))) => rate,
        other => panic!("{other:?}"),
    };
    let mut rates = world.rates();
    near(&Ok(now(&rates)), 40.0);
    rates.vertices[0].blocked = Ok(0.9);
    near(&Ok(now(&rates)), 70.0);
    rates.vertices[0].processed = Ok(90.0);
    near(&Ok(now(&rates)), 90.0);
    rates.vertices[0].processed = Err("silent".to_owned());
    near(&Ok(now(&rates)), 70.0);
}

#[test]
fn what_is_not_known_has_a_reason() {
    let mut world = World::chain();
    let rates = world.rates();
    because(&rates.vertices[1].processed, "has not reported yet");
    because(&rates.seconds, "has not reported yet");
    world.runs(1, 50, 100);
    because(&world.rates().vertices[1].capacity, "one look");
    // An idle vertex: its rate is known to be 0, and not what it could do.
    world.runs(60, 0, 0);
    let rates = world.rates();
    assert_eq!(rates.vertices[1].processed, Ok(0.0));
    because(&rates.vertices[1].capacity, "idle: no rows in 10 s");
    because(&rates.edges[1].selectivity, "idle: no rows in 10 s");
    // One row that takes for ever.
    world.runs(60, 0, 250);
    because(&world.rates().vertices[1].capacity, "one takes longer");
    world.now += Duration::from_secs(4);
    because(&world.rates().vertices[1].processed, "a0 has not reported for 4 s");
    assert!(!world.rates().full);
    world.counters[1].ended = true;
    world.runs(4, 0, 0);
    because(&world.rates().vertices[1].processed, "ended");
}

#[test]
fn nothing_from_before_a_cut_counts() {
    let mut world = World::chain();
    world.runs(60, 50, 100);
    world.window.cut(world.now);
    because(&world.rates().vertices[1].capacity, "since the job was changed");
    world.runs(13, 20, 200);
    let rates = world.rates();
    near(&rates.vertices[1].capacity, 100.0);
    assert!(!rates.full);
    world.runs(40, 20, 200);
    assert!(world.rates().full);
}

#[test]
fn after_a_change_one_is_told_when_to_ask_again() {
    let mut world = World::chain();
    world.runs(40, 50, 100);
    world.window.cut(world.now);
    world.now += Duration::from_millis(100);
    because(&world.rates().seconds, "since the job was changed 0 s ago: ask again in a moment");
    world.runs(1, 50, 100);
    let why = world.rates().seconds.unwrap_err();
    assert!(
        why.contains("one look at the counters of agent a0 since the job was changed 0 s ago, and rates need two, 1 s apart"),
        "{why}"
    );
    assert!(why.ends_with(": ask again in 2 s"), "{why}");
}

#[test]
fn counters_that_go_back_begin_anew() {
    let mut world = World::chain();
    world.runs(40, 50, 100);
    for counters in &mut world.counters {
        *counters = InstanceReport { instance: counters.instance, ..InstanceReport::default() };
    }
    world.edges.iter_mut().for_each(|edge| edge.emitted = 0);
    world.runs(1, 5, 50);
    because(&world.rates().vertices[1].processed, "one look");
    world.runs(8, 5, 50);
    near(&world.rates().vertices[1].capacity, 100.0);
}

#[test]
fn rates_over_a_gap_in_the_reports_are_those_of_the_time_that_passed() {
    let mut world = World::chain();
    world.runs(8, 50, 100);
    for _ in 0..100 {
        world.moves(0, 50, 50, 10);
        world.moves(1, 50, 50, 100);
        world.moves(2, 50, 0, 5);
        world.emits(0, 50);
        world.emits(1, 50);
    }
    world.now += Duration::from_secs(25);
    world.reports();
    let rates = world.rates();
    near(&rates.vertices[1].processed, 200.0);
    near(&rates.edges[1].rate, 200.0);
    assert!(rates.seconds.unwrap() > 25.0);
}

#[test]
fn rows_that_pile_up_are_input_and_not_processed() {
    let mut world = World::chain();
    for _ in 0..48 {
        world.emits(0, 50);
        world.counters[1].queue_in += 50;
        world.runs(1, 50, 250);
    }
    let rates = world.rates();
    let work = &rates.vertices[1];
    near(&work.input, 400.0);
    near(&work.processed, 200.0);
    near(&rates.instances[1].input, 400.0);
    near(&rates.edges[0].selectivity, 2.0);
    assert!((2000..=2400).contains(&work.queue_in), "{}", work.queue_in);
    assert_eq!(work.waiting, 0);
    // Those that have not come as far as its inputs wait, too.
    (world.edges[0].queued_out, world.edges[0].in_flight, world.edges[0].queued_in) = (13_000, 300, 18);
    world.runs(4, 50, 250);
    assert_eq!(world.rates().vertices[1].waiting, 13_318);
}

#[test]
fn what_had_piled_up_and_is_worked_off_is_no_rate_that_lasts() {
    let mut world = World::chain();
    for _ in 0..48 {
        world.moves(0, 20, 20, 10);
        world.moves(1, 50, 50, 250);
        world.moves(2, 50, 0, 5);
        world.emits(0, 20);
        world.emits(1, 50);
        world.reports();
    }
    let rates = world.rates();
    near(&rates.throughput(&world.dag), 200.0);
    near(&rates.worked_off(&world.dag), 120.0);
}

#[test]
fn skew_is_the_most_over_the_mean_and_idle_instances_get_the_others_capacity() {
    let mut world = World::of(dag("", WORK), &[1, 3, 1]);
    for _ in 0..48 {
        world.moves(0, 100, 100, 10);
        world.moves(1, 80, 80, 200);
        world.moves(2, 20, 20, 50);
        world.moves(3, 0, 0, 0);
        world.moves(4, 100, 0, 1);
        world.reports();
    }
    let work = &world.rates().vertices[1];
    near(&work.skew, 2.4);
    near(&work.capacity, 400.0);
    assert_eq!((work.measured, work.instances), (2, 3));
    near(&work.busiest, 0.8);
    near(&work.busy, 1.0 / 3.0);
}

#[test]
fn shares_by_key_are_of_the_instances_that_there_are() {
    let keyed = r#"{ id = "by", op = "group_by", in = "s", key = "id" },
{ id = "w", op = "rolling_aggregate", in = "by", compute = ["count(*) as n"] },"#;
    let mut world = World::of(dag("", keyed), &[1, 2, 1]);
    (0..8).for_each(|_| world.reports());
    let rates = world.rates();
    because(&rates.vertices[0].key_skew, "do not come by key");
    because(&rates.vertices[1].key_skew, "no rows have come by key yet");
    let load = |rows: u64| {
        let mut counter = crate::scale::KeyCounter::default();
        (0..rows).for_each(|row| counter.came(&[(row % 4) as u16], 10));
        counter.came(&[7], 10);
        counter.sampled("a");
        counter.load().unwrap()
    };
    // Instance 0 takes no rows by key.
    world.window.keys(AGENT, &[(1, load(7)), (2, load(3))]);
    let work = world.rates().vertices[1].clone();
    near(&work.key_skew, 3.0 / 12.0 * 10.0);
    assert_eq!(work.keys.unwrap().keys, [("a".to_owned(), 1.0)]);
    world.counters[1].ended = true;
    (0..4).for_each(|_| world.reports());
    near(&world.rates().vertices[1].key_skew, 1.0 / 4.0 * 10.0);
    let mut idle = load(1);
    idle.rows = 0.1;
    world.window.keys(AGENT, &[(2, idle)]);
    because(&world.rates().vertices[1].key_skew, "idle: no rows");
}

const WINDOWED: &str = r#"{ id = "t", op = "add_timestamps", in = "s", time = "id" },
{ id = "by", op = "group_by", in = "t", key = "id" },
{ id = "win", op = "window", in = "by", type = "tumbling", size = "60s" },
{ id = "w", op = "aggregate", in = "win", compute = ["count(*) as n"], two_stage = false },"#;

/// Windows of 60 s: 100 rows a second for 1 ms each, and 20 s of work on closing. What it can do is 60 s of rows in
/// 6 s of taking and 20 s of closing.
#[test]
fn bursts_are_measured_whole() {
    let plain = WINDOWED.replace(", two_stage = false", "");
    let (job, dag) = dag("", &plain);
    let vertex = dag.vertices.iter().position(|v| v.window.is_some()).unwrap();
    let counts: Vec<u32> = dag.vertices.iter().map(|_| 1).collect();
    let mut world = World::of((job, dag), &counts);
    assert_eq!(world.kinds[vertex], Kind::Bursts);
    // 34 s of rows at 25 a quarter, then 20 s of closing; rows wait meanwhile and are taken at 10 ms a row.
    let cycle = |world: &mut World| {
        for quarter in 0..240 {
            match quarter {
                0..160 => world.moves(vertex, 37, 0, 37),
                160..239 => world.moves(vertex, 0, 0, 250),
                _ => world.moves(vertex, 0, 500, 250),
            }
            world.reports();
        }
    };
    cycle(&mut world);
    because(&world.rates().vertices[vertex].capacity, "none was seen in");
    cycle(&mut world);
    because(&world.rates().vertices[vertex].capacity, "one was seen in");
    for _ in 0..2 {
        cycle(&mut world);
        for _ in 0..25 {
            world.moves(vertex, 37, 0, 37);
            world.reports();
        }
        let rates = world.rates();
        let busy_s = 160.0 * 0.037 + 80.0 * 0.25;
        let wanted = 160.0 * 37.0 / busy_s;
        let found = rates.vertices[vertex].capacity.clone().unwrap();
        assert!((found / wanted - 1.0).abs() < 0.1, "{found} is not about {wanted}");
        // The last look may be most of a second old.
        let processed = rates.vertices[vertex].processed.clone().unwrap();
        assert!((processed / (37.0 * 25.0 / 10.0) - 1.0).abs() < 0.1, "{processed}");
    }
}

#[test]
fn a_vertex_that_waits_for_a_service_is_known_once_its_places_are_used_up() {
    let calls = r#"{ id = "w", op = "map_using_service_async", in = "s", service = "x", concurrency = 4 },"#;
    let mut world = World::of(dag("", calls), &[1, 1, 1]);
    assert_eq!(world.kinds[1], Kind::Places(4));
    world.runs(48, 50, 100);
    because(&world.rates().vertices[1].capacity, "4 rows may be in hand at once");
    world.runs(48, 50, 240);
    near(&world.rates().vertices[1].capacity, 50.0 / 0.24);
}

/// What may happen to a run.
#[derive(Debug, Clone)]
enum Happens {
    Runs { instance: usize, rows: u64, busy_ms: u64 },
    Reports,
    Missing(u64),
    StandsStill,
    Begins(usize),
    Cut,
    Ends(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    let runs = (0usize..3, 0u64..1000, 0u64..=250);
    prop_oneof![
        4 => runs.prop_map(|(instance, rows, busy_ms)| Happens::Runs { instance, rows, busy_ms }),
        6 => Just(Happens::Reports),
        1 => (1u64..60).prop_map(Happens::Missing),
        1 => Just(Happens::StandsStill),
        1 => (0usize..3).prop_map(Happens::Begins),
        1 => Just(Happens::Cut),
        1 => (0usize..3).prop_map(Happens::Ends),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_figure_is_a_number_that_can_be_or_a_reason(all in prop::collection::vec(happens(), 1..80)) {
        let mut world = World::chain();
        for one in all {
            match one {
                Happens::Runs { instance, rows, busy_ms } => {
                    world.moves(instance, rows, rows, busy_ms);
                    if instance < 2 {
                        world.emits(instance, rows);
                    }
                }
                Happens::Reports => world.reports(),
                Happens::Missing(seconds) => world.now += Duration::from_secs(seconds),
                Happens::StandsStill => (0..9).for_each(|_| world.reports()),
                Happens::Begins(instance) => {
                    let id = world.counters[instance].instance;
                    world.counters[instance] = InstanceReport { instance: id, ..InstanceReport::default() };
                }
                Happens::Cut => world.window.cut(world.now),
                Happens::Ends(instance) => world.counters[instance].ended = true,
            }
            let rates = world.rates();
            for instance in &rates.instances {
                let all = [&instance.input, &instance.processed, &instance.emitted, &instance.seconds];
                for figure in all.into_iter().chain([&instance.capacity, &instance.capacity_alone]) {
                    sound(figure, f64::INFINITY)?;
                }
                for share in [&instance.busy, &instance.blocked, &instance.idle] {
                    sound(share, 1.0)?;
                }
                // A capacity is never less than what was done, nor 0.
                if let (Ok(capacity), Ok(processed)) = (&instance.capacity, &instance.processed) {
                    prop_assert!(*capacity > 0.0 && *capacity * (1.0 + 1e-9) >= *processed);
                }
            }
            for vertex in &rates.vertices {
                let figures = [&vertex.input, &vertex.processed, &vertex.emitted, &vertex.capacity, &vertex.skew];
                for figure in figures.into_iter().chain([&vertex.selectivity, &vertex.key_skew]) {
                    sound(figure, f64::INFINITY)?;
                }
                sound(&vertex.busy, 1.0)?;
            }
            for edge in &rates.edges {
                sound(&edge.rate, f64::INFINITY)?;
                sound(&edge.selectivity, f64::INFINITY)?;
            }
        }
    }
}

fn sound(figure: &Figure, most: f64) -> Result<(), TestCaseError> {
    match figure {
        Ok(value) => prop_assert!(value.is_finite() && (0.0..=most).contains(value), "{}", value),
        Err(why) => prop_assert!(!why.is_empty()),
    }
    Ok(())
}

#[test]
fn a_sender_that_ends_beside_another_leaves_selectivity_as_it_is() {
    // Two sources on one agent, of which one ends in the middle of the window.
    let mut world = World::of(dag("", WORK), &[2, 1, 1]);
    for step in 0..40 {
        for source in [0, 1] {
            if source == 0 && step >= 20 {
                world.counters[0].ended = true;
                continue;
            }
            world.moves(source, 100, 100, 10);
            world.emits(0, 100);
        }
        world.reports();
        if step >= 20 {
            let rates = world.rates();
            near(&rates.edges[0].selectivity, 1.0);
            near(&rates.vertices[0].selectivity, 1.0);
        }
    }
}

#[test]
fn what_has_ended_offers_nothing_and_does_not_hide_the_others() {
    let two = r#"stage = [
{ id = "s", op = "source", connector = "ids", n = 9, rate = 400 },
{ id = "t", op = "source", connector = "ids", n = 9, rate = 300 },
{ id = "o", op = "sink", in = "s", connector = "count" },
{ id = "p", op = "sink", in = "t", connector = "count" },
]"#;
    let job = Job::parse(two, FileFormat::Toml).unwrap();
    let plan = plan(&job).unwrap();
    let mut world = World::of((job, plan), &[1, 1, 1, 1]);
    let name = |world: &World, name: &str| {
        (0..world.dag.vertices.len() as u32)
            .find(|vertex| world.dag.vertex(VertexId(*vertex)).label() == name)
            .unwrap() as usize
    };
    let (s, o, p) = (name(&world, "s"), name(&world, "o"), name(&world, "p"));
    for _ in 0..60 {
        for one in 0..4 {
            let rows = if one == s || one == o { 100 } else { 75 };
            world.moves(one, rows, rows, 10);
        }
        world.reports();
    }
    near(&world.rates().throughput(&world.dag), 700.0);
    for ended in [s, o] {
        world.counters[ended].ended = true;
    }
    for _ in 0..60 {
        world.moves(name(&world, "t"), 75, 75, 10);
        world.moves(p, 75, 75, 10);
        world.reports();
    }
    near(&world.rates().throughput(&world.dag), 300.0);
    because(world.rates().vertices[s].offered.as_ref().unwrap(), "ended");
    because(&world.rates().vertices[s].input, "ended");
    for one in 0..4 {
        world.counters[one].ended = true;
    }
    world.reports();
    because(&world.rates().throughput(&world.dag), "ended");
}

#[test]
fn a_window_as_long_as_the_history_is_full_at_every_look() {
    let options = WindowOptions::default();
    let mut window = RateWindow::new(options);
    let agents = ["a".to_owned()];
    let full: Vec<bool> = (0..700_u64)
        .map(|second| {
            // A report is a little late now and then.
            let now = Duration::from_millis(second * 1000 + second % 7 * 30);
            window.report("a", now, &[], &[]);
            window.is_full(&agents, now, options.history)
        })
        .collect();
    let first = full.iter().position(|full| *full).unwrap();
    assert!((299..=301).contains(&first), "{first}");
    assert!(full[first..].iter().all(|full| *full));
}
