//! Whatever a service takes its time for, order, marks and counts are as promised.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use tokio::sync::{Notify, mpsc, watch};
use tuplane_core::job::{FileFormat, Job, Op};
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{ArrayRef, AsArray, Int64Array, StringArray, UInt16Array};
use tuplane_expr::arrow::datatypes::Int64Type;
use tuplane_expr::{Program, answer_columns, resolve, vertex_program};

use super::*;
use crate::engine::due::DueClock;
use crate::engine::handover::{Asking, Keeps};
use crate::engine::output::Exit;
use crate::engine::rows::Budget;
use crate::engine::splits::Splits;
use crate::engine::timer::Timer;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{Inbox, InputSpec, Side, Upstream};
use crate::exchange::mark::Item;
use crate::exchange::moving::Group;
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};
use crate::service::{Answering, CallError};

/// Takes some milliseconds, by the row; refuses every seventh.
struct Slow {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    blocks: bool,
}

impl Service for Slow {
    fn name(&self, _: &RecordBatch) -> String {
        "slow".to_owned()
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn call(&self, question: RecordBatch) -> Answering {
        let (now, most, blocks) = (Arc::clone(&self.now), Arc::clone(&self.most), self.blocks);
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let asked: Vec<i64> =
                question.column(0).as_string::<i32>().iter().map(|id| id.unwrap().parse().unwrap()).collect();
            let time = Duration::from_micros(asked.iter().sum::<i64>().unsigned_abs() * 7919 % 3000);
            if blocks {
                std::thread::sleep(time);
            } else {
                tokio::time::sleep(time).await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            if asked.iter().any(|id| id % 7 == 6) {
                return Err(CallError::lasting("seven"));
            }
            let responses: StringArray = asked.iter().map(|id| Some(format!("r{id}"))).collect();
            let status = Int64Array::from(vec![200; asked.len()]);
            let columns: Vec<ArrayRef> = vec![Arc::new(responses), Arc::new(status)];
            Ok(RecordBatch::try_new(answer_columns(), columns).unwrap())
        }
        .boxed()
    }
}

/// What goes in: so many rows, or a watermark; or nothing, until what came before is likely done.
#[derive(Debug, Clone, Copy)]
enum Step {
    Rows(i64),
    Mark,
    Pause,
}

#[derive(Debug, Clone, Copy)]
struct Form {
    concurrency: usize,
    /// Rows of a request, if it is batched.
    batch: Option<usize>,
    ordered: bool,
    blocks: bool,
}

fn compiled(form: Form) -> (ServiceProgram, UsingService) {
    let batched = form.batch.map_or_else(String::new, |batch| format!("batched = true, batch = {batch}, "));
    compiled_over(
        r#"connector = "ids", n = 1 "#,
        &format!(
            r#"url = "cast(id as text)", body = "id", {batched}concurrency = {}, preserve_order = {}, select = ["id", "response"]"#,
            form.concurrency, form.ordered
        ),
    )
}

/// A stage that asks a source's rows.
fn compiled_over(source: &str, stage: &str) -> (ServiceProgram, UsingService) {
    let text = format!(
        r#"stage = [
{{ id = "s", op = "source", {source} }},
{{ id = "c", op = "map_using_service_async", in = "s", service = "http", method = "POST", on_error = "drop", {stage} }},
{{ id = "o", op = "sink", in = "c", connector = "count" }},
]"#
    );
    let job = Job::parse(&text, FileFormat::Toml).unwrap();
    let (types, dag) = (resolve(&job).unwrap(), tuplane_core::plan::plan(&job).unwrap());
    let vertex = (0..dag.vertices.len() as u32)
        .find(|v| dag.vertex(tuplane_core::plan::VertexId(*v)).label() == "c")
        .unwrap();
    let program = vertex_program(&job, &types, &dag, tuplane_core::plan::VertexId(vertex)).unwrap().program;
    let Program::Service(program) = program else { panic!("{program:?}") };
    let Op::UsingService(using) = &job.stages[1].op else { panic!("{:?}", job.stages[1]) };
    (program, using.clone())
}

/// What a run is given besides its steps.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// Bytes of the output's queue.
    queue: u64,
    /// The input does not end before so many rows and marks have come out.
    open_until: usize,
}

const WIDE: Around = Around { queue: 8 << 20, open_until: 0 };

/// Takes what has come out; gives whether that is all.
fn ended(target: &Inbox, seen: &mut Vec<String>) -> bool {
    loop {
        match target.take(1000, false).unwrap() {
            Taken::Rows { rows, .. } => {
                let batch = rows.batch();
                let responses = batch.column(1).as_string::<i32>();
                seen.extend(responses.iter().map(|response| response.unwrap().to_owned()));
            }
            Taken::Watermark(time) => seen.push(format!("mark {time}")),
            Taken::Ended => return true,
            Taken::Nothing => return false,
            other => panic!("{other:?}"),
        }
    }
}

/// An instance that is yet to run, and what stands around it.
struct Made {
    instance: Instance,
    source: Arc<Inbox>,
    target: Arc<Inbox>,
    edge: Arc<Edge>,
    credit: Arc<Credit>,
    asking: Asking,
    counters: Arc<Counters>,
    most: Arc<AtomicUsize>,
    budget: Arc<Budget>,
    _options: mpsc::UnboundedSender<crate::engine::instance::SetOption>,
    _start: watch::Sender<bool>,
}

/// An instance with a queue of so many bytes behind it.
fn made(form: Form, queue_bytes: u64) -> Made {
    made_behind(form, queue_bytes, 0)
}

/// The same, where so many bytes count as sent already.
fn made_behind(form: Form, queue_bytes: u64, sent_bytes: u64) -> Made {
    let budget = Budget::new(64 << 20);
    let inbox = |credit| {
        let channels = vec![Upstream::Local(credit)];
        Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], 8 << 20, Arc::clone(&budget))
    };
    let wake = Arc::<Notify>::default();
    let (source, credit) = (inbox(Credit::new(Arc::default())), Credit::new(Arc::clone(&wake)));
    let target = inbox(Arc::clone(&credit));
    let link = Link::Local { inbox: Arc::clone(&target), channel: 0 };
    let outlet =
        Outlet { instance: 0, agent: 0, credit: Arc::clone(&credit), link, sent_rows: 0, sent_bytes };
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 256, routes: Routes::Any };
    let edge = Edge::new(spec, Outlets::new(vec![outlet]), wake);
    let room = Arc::<Notify>::default();
    let queue = OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0]]), vec![0]);
    let sender = edge.add_sender(0, queue, queue_bytes, Arc::clone(&room));
    let counters = Arc::new(Counters::new("c".to_owned(), Arc::clone(source.load())));
    let (program, using) = compiled(form);
    let (now, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let service = Arc::new(Slow { now, most: Arc::clone(&most), blocks: form.blocks });
    let schema = Arc::clone(program.output());
    let exit = Exit { edge: Arc::clone(&edge), sender, key: None };
    let output =
        Output::new(vec![exit], room, Arc::clone(&budget), Arc::clone(&counters), schema, OnError::Fail);
    let (options, changes) = mpsc::unbounded_channel();
    let (start, started) = watch::channel(true);
    let (asking, asked) = Asking::new(&source);
    let instance = Instance {
        name: "c#0".to_owned(),
        body: Body::Calls(Box::new(Calls::new("c", program, &using, service))),
        inbox: Arc::clone(&source),
        output,
        counters: Arc::clone(&counters),
        options: changes,
        asked,
        settled: Vec::new(),
        keeps: Keeps::Nothing,
        start: started,
        halt: crate::engine::halt::Halt::new().1,
        timer: Timer::start().unwrap(),
        splits: Splits::None,
        hand: Arc::default(),
        units: crate::engine::instance::sourcing::Units::default(),
        queue_time: true,
        keys: None,
        stamper: None,
        arrivals: None,
        hold: None,
        clock: DueClock::begin(0),
    };
    Made {
        instance,
        source,
        target,
        edge,
        credit,
        asking,
        counters,
        most,
        budget,
        _options: options,
        _start: start,
    }
}

/// Runs an instance over the steps; gives what left it, its counters and the most calls at once.
async fn outcome(form: Form, steps: &[Step], around: Around) -> (Vec<String>, Arc<Counters>, usize) {
    let Made { instance, source, target, edge, counters, most, budget, .. } = made(form, around.queue);
    let running = tokio::spawn(instance.run());
    let pump = tokio::spawn({
        let edge = Arc::clone(&edge);
        async move { edge.run().await }
    });
    let (mut id, mut time) = (0, 0);
    for step in steps {
        match step {
            Step::Rows(count) => {
                let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(id..id + count));
                let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap();
                source.push(0, Item::Rows(Rows::new(batch, None, &budget).unwrap()));
                id += count;
            }
            Step::Mark => {
                time += 1;
                source.push(0, Item::Mark(Mark::Watermark(time)));
            }
            Step::Pause => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        tokio::task::yield_now().await;
    }
    let mut seen = Vec::new();
    let all = async {
        while seen.len() < around.open_until {
            assert!(!ended(&target, &mut seen));
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_mins(1), all).await;
    assert!(in_time.is_ok(), "the input is quiet, and only {seen:?} came out");
    source.push(0, Item::Mark(Mark::End));
    running.await.unwrap().unwrap();
    pump.abort();
    assert!(ended(&target, &mut seen));
    (seen, counters, most.load(Ordering::SeqCst))
}

/// What must leave, in order, where no row is refused with others.
fn wanted(steps: &[Step], refused: impl Fn(i64) -> bool) -> Vec<String> {
    let (mut id, mut time, mut all) = (0, 0, Vec::new());
    for step in steps {
        match step {
            Step::Rows(count) => {
                all.extend((id..id + count).filter(|id| !refused(*id)).map(|id| format!("r{id}")));
                id += count;
            }
            Step::Mark => {
                time += 1;
                all.push(format!("mark {time}"));
            }
            Step::Pause => {}
        }
    }
    all
}

/// Without the marks behind which another follows at once: of such the last says all.
fn without_passed_marks(all: &[String]) -> Vec<String> {
    let is_mark = |one: &String| one.starts_with("mark");
    let passed = |at: usize| is_mark(&all[at]) && all.get(at + 1).is_some_and(is_mark);
    (0..all.len()).filter(|at| !passed(*at)).map(|at| all[at].clone()).collect()
}

/// Rows between two marks, whatever their order.
fn groups(all: &[String]) -> Vec<Vec<String>> {
    let mut groups = vec![Vec::new()];
    for one in all {
        if one.starts_with("mark") {
            groups.push(vec![one.clone()]);
        } else if let Some(last) = groups.last_mut() {
            last.push(one.clone());
        }
    }
    for group in &mut groups {
        group.sort();
    }
    groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn order_marks_bounds_and_counts_hold(
        steps in prop::collection::vec(prop_oneof![4 => (1..30i64).prop_map(Step::Rows), 1 => Just(Step::Mark)], 1..12),
        concurrency in 1..6usize,
        batch in prop::option::of(1..9usize),
        ordered: bool,
        blocks: bool,
        queue in prop_oneof![Just(1u64), Just(8 << 20)],
    ) {
        let form = Form { concurrency, batch, ordered, blocks };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (seen, counters, most) = runtime.block_on(outcome(form, &steps, Around { queue, ..WIDE }));
        let rows: i64 = steps.iter().map(|step| if let Step::Rows(count) = step { *count } else { 0 }).sum();
        let dropped = counters.rare_facts().0.get(DROPPED_BY_SERVICE).copied().unwrap_or_default();
        let left = seen.iter().filter(|one| !one.starts_with("mark")).count() as u64;
        prop_assert_eq!(left + dropped, rows as u64);
        prop_assert_eq!(counters.load.working(), 0);
        prop_assert_eq!(counters.rows_out.load(Ordering::Relaxed), left);
        prop_assert!(most <= concurrency);
        // Where a request may have several rows, a refused one takes its neighbours with it.
        let there = |id: i64| seen.contains(&format!("r{id}"));
        let wanted = wanted(&steps, |id| if batch.is_some() { !there(id) } else { id % 7 == 6 });
        let (seen, wanted) = (without_passed_marks(&seen), without_passed_marks(&wanted));
        if ordered {
            prop_assert_eq!(&seen, &wanted);
        } else {
            prop_assert_eq!(groups(&seen), groups(&wanted));
        }
    }
}

#[test]
fn what_is_answered_leaves_while_the_input_is_quiet() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for round in 0..60 {
        let form = Form { concurrency: 1 + round % 4, batch: None, ordered: round % 2 == 0, blocks: false };
        // A row a step, and a queue that one row fills: whether it is full changes all the time.
        let mut steps = vec![Step::Rows(1); 6];
        let around = Around { queue: 1, open_until: steps.len() + 1 };
        // A mark that no row is before, every other time.
        steps.extend((round % 4 < 2).then_some(Step::Pause));
        steps.push(Step::Mark);
        let (seen, ..) = runtime.block_on(outcome(form, &steps, around));
        assert_eq!(groups(&seen), groups(&wanted(&steps, |_| false)), "{form:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_of_a_key_partition_leaves_before_it_is_given_and_before_it_is_settled() {
    for round in 0..20 {
        let form =
            Form { concurrency: 1 + round % 4, batch: None, ordered: round % 2 == 0, blocks: round % 3 == 0 };
        let Made { instance, source, target, edge, asking, counters, budget, .. } = made(form, 8 << 20);
        let running = tokio::spawn(instance.run());
        let pump = tokio::spawn({
            let edge = Arc::clone(&edge);
            async move { edge.run().await }
        });
        source.open_moves().unwrap();
        let (all, mut seen) = (0..120, Vec::new());
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(all.clone()));
        let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap();
        let of: UInt16Array = all.clone().map(|id| Some((id % 2) as u16)).collect();
        source.push(0, Item::Rows(Rows::new(batch, Some(of), &budget).unwrap()));
        while counters.rows_in.load(Ordering::Relaxed) < 3 + round as u64 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let partitions = [0u16].into_iter().collect();
        let group = Group { epoch: 1, number: 0, from: 0, to: 1, partitions };
        source.begin_group(group.clone(), Side::Gives).unwrap();
        source.push(0, Item::Mark(Mark::Moved { epoch: 1, group: 0 }));
        let given = asking.give(vec![0]).await.unwrap();
        assert!(!ended(&target, &mut seen));
        assert!(given.units.is_empty());
        let given = given
            .rows
            .iter()
            .flat_map(|(_, rows)| rows.batch().column(0).as_primitive::<Int64Type>().values().to_vec());
        let given: Vec<i64> = given.collect();
        assert!(!given.is_empty(), "all were taken before");
        for id in all.clone().filter(|id| id % 2 == 0 && id % 7 != 6) {
            assert_ne!(seen.contains(&format!("r{id}")), given.contains(&id), "round {round}: {id}");
        }
        // As one that has taken a group.
        source.end_group(group.order());
        while source.counts().iter().any(|(_, waiting, ..)| *waiting > 0) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        asking.settle(vec![0]).await.unwrap();
        assert!(!ended(&target, &mut seen));
        let rest = all.filter(|id| id % 7 != 6 && !given.contains(id));
        assert_eq!(seen.len(), rest.count(), "round {round}");
        source.close_moves();
        source.push(0, Item::Mark(Mark::End));
        running.await.unwrap().unwrap();
        pump.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_a_key_partition_waits_for_no_room_behind() {
    for (ordered, batch) in [(true, None), (false, None), (true, Some(4))] {
        let form = Form { concurrency: 16, batch, ordered, blocks: false };
        // One row fills its queue, and what is behind takes none.
        let Made { instance, source, target, edge, credit, asking, counters, budget, .. } =
            made_behind(form, 1, 1 << 40);
        let running = tokio::spawn(instance.run());
        source.open_moves().unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..400).map(|n| n * 7)));
        let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap();
        let of: UInt16Array = (0..400).map(|id| Some((id % 2) as u16)).collect();
        source.push(0, Item::Rows(Rows::new(batch, Some(of), &budget).unwrap()));
        while counters.rows_in.load(Ordering::Relaxed) < 16 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        // All that was asked is answered, and waits for room.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let in_time = async |what| {
            let asked = async {
                match what {
                    "sizes" => asking.sizes(vec![0]).await.map(|sizes| sizes.len()),
                    "give" => asking.give(vec![0]).await.map(|given| given.rows.len()),
                    _ => asking.settle(vec![0]).await.map(|()| 0),
                }
            };
            let answered = tokio::time::timeout(Duration::from_secs(20), asked).await;
            answered.unwrap_or_else(|_| panic!("{what} waits for room ({form:?})")).unwrap()
        };
        in_time("sizes").await;
        let partitions = [0u16].into_iter().collect();
        let group = Group { epoch: 1, number: 0, from: 0, to: 1, partitions };
        source.begin_group(group.clone(), Side::Gives).unwrap();
        source.push(0, Item::Mark(Mark::Moved { epoch: 1, group: 0 }));
        assert!(in_time("give").await > 0, "all were taken before");
        source.end_group(group.order());
        in_time("settle").await;
        // There is room again, and it goes on.
        credit.grant(1 << 41, 1 << 20);
        let pump = tokio::spawn(async move { edge.run().await });
        source.close_moves();
        source.push(0, Item::Mark(Mark::End));
        let mut seen = Vec::new();
        while !ended(&target, &mut seen) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        running.await.unwrap().unwrap();
        pump.abort();
        assert!(seen.len() >= 200, "{}", seen.len());
    }
}

/// Holds its thread, and has no answer.
struct Never(AtomicUsize);

impl Service for Never {
    fn name(&self, _: &RecordBatch) -> String {
        "never".to_owned()
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, _: RecordBatch) -> Answering {
        self.0.fetch_add(1, Ordering::SeqCst);
        async { Err(CallError::passing("not now")) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_blocks_is_not_tried_again_once_its_instance_is_gone() {
    let form = Form { concurrency: 4, batch: None, ordered: true, blocks: true };
    let (program, mut using) = compiled(form);
    // More than ten minutes of tries.
    using.calls.retries = Some(100);
    let service = Arc::new(Never(AtomicUsize::new(0)));
    let other = Calls::new("c", program.clone(), &using, Arc::clone(&service) as Arc<dyn Service>);
    let mut calls = Calls::new("c", program, &using, Arc::clone(&service) as Arc<dyn Service>);
    assert_ne!(calls.lots.hash_one(0), other.lots.hash_one(0), "instances wait alike");
    drop(other);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..4));
    let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap();
    let budget = Budget::new(1 << 20);
    let counters = Counters::new("c".to_owned(), Arc::default());
    let with = With { name: "c#0", counters: &counters };
    calls.take(&Rows::new(batch, None, &budget).unwrap(), &with).unwrap();
    calls.send(true).unwrap();
    let until = |done: &'static (dyn Fn(&Arc<Never>) -> bool + Sync)| {
        let service = Arc::clone(&service);
        tokio::time::timeout(Duration::from_mins(1), async move {
            while !done(&service) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    until(&|service| service.0.load(Ordering::SeqCst) > 4).await.expect("it is tried again");
    drop(calls);
    // This one, and that of the wait.
    until(&|service| Arc::strong_count(service) == 2).await.expect("the calls have ended");
}

/// An instance that only collects, and rows of one text each.
fn collecting(batch: usize) -> (Calls, impl Fn(&mut Calls, usize, usize)) {
    let stage = format!(r#"url = "t", body = "t", batched = true, batch = {batch}, select = ["*"]"#);
    let source = r#"connector = "file", path = "x", format = "csv", columns = { n = "bigint", t = "text" }"#;
    let (program, using) = compiled_over(source, &stage);
    let service = Slow { now: Arc::default(), most: Arc::default(), blocks: false };
    let (counters, budget) = (Counters::new("c".to_owned(), Arc::default()), Budget::new(1 << 30));
    let take = move |calls: &mut Calls, first: usize, length: usize| {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![first as i64]));
        let t: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(length)]));
        let batch = RecordBatch::try_from_iter_with_nullable([("n", n, true), ("t", t, true)]).unwrap();
        let with = With { name: "c#0", counters: &counters };
        calls.take(&Rows::new(batch, None, &budget).unwrap(), &with).unwrap();
    };
    (Calls::new("c", program, &using, Arc::new(service)), take)
}

#[test]
fn no_more_is_joined_than_a_request_takes() {
    let (mut calls, take) = collecting(100);
    (0..1000).for_each(|n| take(&mut calls, n, 10));
    let mut found = Vec::new();
    for left in (0..10).rev() {
        let Question { rows, question, kept } = calls.next_question().unwrap();
        assert_eq!((rows.num_rows(), question.num_rows(), kept.len()), (100, 100, 100));
        assert_eq!(calls.waiting.len(), left * 100, "what waits is left as it is");
        found.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
    }
    assert!(found.into_iter().eq(0..1000));
    // Long rows: a request ends before it has all that it may.
    let (mut calls, take) = collecting(100);
    (0..20).for_each(|n| take(&mut calls, n, 100 << 10));
    take(&mut calls, 20, 3 << 20);
    let mut found = Vec::new();
    while !calls.waiting.is_empty() {
        let Question { rows, question, .. } = calls.next_question().unwrap();
        let bytes = own_bytes(&rows) + own_bytes(&question);
        assert!(bytes <= MOST_BYTES || rows.num_rows() == 1, "{bytes} bytes in {} rows", rows.num_rows());
        found.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
    }
    assert!(found.into_iter().eq(0..21));
}
