//! Running instances give their state to each other, and their splits.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tuplane_core::job::{FileFormat, Job, OnError, Op};
use tuplane_core::plan::{Role, VertexId, plan};
use tuplane_core::route::{Targets, make_policy};
use tuplane_expr::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt16Array, UInt32Array};
use tuplane_expr::arrow::compute::take_record_batch;
use tuplane_expr::arrow::datatypes::SchemaRef;
use tuplane_expr::arrow::util::display::array_value_to_string;
use tuplane_expr::system::own_columns;
use tuplane_expr::{Program, VertexProgram, partitions, resolve, vertex_program};
use tuplane_wire::scaling::Rest;

use super::*;
use crate::engine::due::DueClock;
use crate::engine::ledger::Counters;
use crate::engine::operator::{Aggregate, ChainOperator, Keyed};
use crate::engine::output::{Exit, Output};
use crate::engine::rows::{Budget, Rows};
use crate::engine::splits::Splits;
use crate::engine::timer::Timer;
use crate::exchange::credit::Credit;
use crate::exchange::edge::{Edge, EdgeSpec};
use crate::exchange::inbox::{InputSpec, Side, Taken, Upstream};
use crate::exchange::mark::{Item, Mark};
use crate::exchange::moving::Group;
use crate::exchange::outlet::{Link, Outlet, Outlets};
use crate::exchange::outqueue::{OutQueue, Routes};
use crate::source::SourceContext;

pub(crate) const PARTITIONS: u16 = 16;
const WIDE: u64 = 8 << 20;

/// The last stage but the sink of a job over a source of ids, planned: its program and what its state is of.
pub(crate) fn stage(text: &str) -> (Job, VertexProgram, Option<StateOf>) {
    let job = Job::parse(
        &format!(
            r#"stage = [
{{ id = "s", op = "source", connector = "ids", n = 1 }},
{{ id = "g", op = "group_by", in = "s", key = "id % 50 as k" }},
{{ id = "x", {text} }},
{{ id = "o", op = "sink", in = "x", connector = "count" }},
]"#
        ),
        FileFormat::Toml,
    )
    .unwrap();
    let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
    let vertex = (0..dag.vertices.len() as u32)
        .rev()
        .map(VertexId)
        .find(|v| dag.vertex(*v).stages.last().unwrap() == "x");
    let program = vertex_program(&job, &types, &dag, vertex.unwrap()).unwrap();
    let of = StateOf::of(&job, &job.stages[2], &program);
    (job, program, of)
}

/// An instance that runs, and what comes out of it.
struct Running {
    inbox: Arc<Inbox>,
    target: Arc<Inbox>,
    asking: Asking,
    counters: Arc<Counters>,
    task: JoinHandle<Result<Vec<tuplane_wire::message::SinkFile>, WireFault>>,
    pump: JoinHandle<Result<(), String>>,
    budget: Arc<Budget>,
    out: Vec<String>,
    _start: watch::Sender<bool>,
    _options: mpsc::UnboundedSender<crate::engine::instance::SetOption>,
}

fn running(body: Body, state: Option<StateOf>, columns: &SchemaRef, queue: u64, splits: Splits) -> Running {
    let budget = Budget::new(64 << 20);
    let inbox = |credit| {
        let channels = vec![Upstream::Local(credit)];
        Inbox::new(vec![InputSpec { edge: 0, priority: 0, channels }], WIDE, Arc::clone(&budget))
    };
    let wake = Arc::<Notify>::default();
    let (own, credit) = (inbox(Credit::new(Arc::default())), Credit::new(Arc::clone(&wake)));
    let target = inbox(Arc::clone(&credit));
    let link = Link::Local { inbox: Arc::clone(&target), channel: 0 };
    let outlet = Outlet { instance: 0, agent: 0, credit, link, sent_rows: 0, sent_bytes: 0 };
    let spec = EdgeSpec { index: 0, barriers_in_order: false, deal: 256, routes: Routes::Any };
    let edge = Edge::new(spec, Outlets::new(vec![outlet]), wake);
    let room = Arc::<Notify>::default();
    let waiting = OutQueue::pool(make_policy("round-robin", 0).unwrap(), Targets::new([vec![0]]), vec![0]);
    let sender = edge.add_sender(0, waiting, queue, Arc::clone(&room));
    let counters = Arc::new(Counters::new("x".to_owned(), Arc::clone(own.load())));
    let exit = Exit { edge: Arc::clone(&edge), sender, key: None };
    let columns = Arc::clone(columns);
    let output =
        Output::new(vec![exit], room, Arc::clone(&budget), Arc::clone(&counters), columns, OnError::Fail);
    let (options, changes) = mpsc::unbounded_channel();
    let (start, started) = watch::channel(true);
    let (asking, asked) = Asking::new(&own);
    let instance = Instance {
        name: "x#0".to_owned(),
        body,
        inbox: Arc::clone(&own),
        output,
        counters: Arc::clone(&counters),
        options: changes,
        asked,
        settled: Vec::new(),
        keeps: state.map_or(Keeps::Own, Keeps::ByKey),
        start: started,
        halt: crate::engine::halt::Halt::new().1,
        timer: Timer::start().unwrap(),
        splits,
        hand: Arc::default(),
        units: crate::engine::instance::sourcing::Units::default(),
        queue_time: true,
        keys: None,
        stamper: None,
        arrivals: None,
        clock: DueClock::begin(0),
        hold: None,
    };
    let task = tokio::spawn(instance.run());
    let pump = tokio::spawn(async move { edge.run().await.map_err(|e| format!("{e:?}")) });
    Running {
        inbox: own,
        target,
        asking,
        counters,
        task,
        pump,
        budget,
        out: Vec::new(),
        _start: start,
        _options: options,
    }
}

/// An instance of a keyed stage.
fn keyed(text: &str, queue: u64) -> Running {
    let (_, program, of) = stage(text);
    let body: Box<dyn crate::engine::operator::Operator> = match &program.program {
        Program::Aggregate(aggregate) => {
            Box::new(Aggregate::new("x", aggregate.clone(), Role::Whole, PARTITIONS, false).unwrap())
        }
        Program::Chain(chain) => Box::new(ChainOperator::new(chain.clone())),
        other => Box::new(Keyed::new("x", other, PARTITIONS).unwrap()),
    };
    running(Body::Operator(body), of, &program.output, queue, Splits::None)
}

impl Running {
    /// Rows come, all of them or those of some partitions; gives how many.
    fn push(&self, ids: std::ops::Range<i64>, of: Option<&[u16]>) -> u64 {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone()));
        let batch = RecordBatch::try_from_iter_with_nullable([("id", id, true)]).unwrap();
        let key: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.map(|id| id % 50)));
        let all = partitions(&[key], PARTITIONS).unwrap();
        let mine = |row: &u32| of.is_none_or(|of| of.contains(&all.value(*row as usize)));
        let mine = UInt32Array::from_iter_values((0..batch.num_rows() as u32).filter(mine));
        let count = mine.len() as u64;
        if count == 0 {
            return 0;
        }
        let known: UInt16Array = mine.values().iter().map(|row| Some(all.value(*row as usize))).collect();
        let batch = take_record_batch(&batch, &mine).unwrap();
        self.inbox.push(0, Item::Rows(Rows::new(batch, Some(known), &self.budget).unwrap()));
        count
    }

    /// Takes what has come out; true if that is all.
    fn look(&mut self) -> bool {
        loop {
            match self.target.take(1000, false).unwrap() {
                Taken::Rows { rows, .. } => self.out.extend(shown(rows.batch())),
                Taken::Ended => return true,
                Taken::Nothing => return false,
                _ => {}
            }
        }
    }

    async fn worked_on(&mut self, rows: u64) {
        while self.counters.rows_in.load(Ordering::Relaxed) < rows || self.counters.load.working() > 0 {
            self.look();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn end(mut self) -> Vec<String> {
        self.inbox.push(0, Item::Mark(Mark::End));
        self.ended().await
    }

    async fn ended(&mut self) -> Vec<String> {
        while !self.look() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (&mut self.task).await.unwrap().unwrap();
        self.pump.abort();
        std::mem::take(&mut self.out)
    }
}

fn shown(rows: &RecordBatch) -> Vec<String> {
    let value = |row: usize| {
        let values = rows.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join(" ")
    };
    (0..rows.num_rows()).map(value).collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

const ROLLING: &str =
    r#"op = "rolling_aggregate", in = "g", compute = ["count(*) as n", "sum(id) as total"]"#;
const TOTALS: &str = r#"op = "aggregate", in = "g", compute = ["count(*) as n", "array_agg(id) as all"]"#;
const DISTINCT: &str = r#"op = "distinct", in = "g""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_go_on_with_each_others_partitions() {
    for text in [ROLLING, TOTALS, DISTINCT] {
        let (moved, left): (Vec<u16>, Vec<u16>) = (0..PARTITIONS).partition(|partition| partition % 3 == 0);
        let alone = keyed(text, WIDE);
        alone.push(0..700, None);
        alone.push(700..1000, None);
        let wanted = sorted(alone.end().await);

        let (mut first, mut second) = (keyed(text, WIDE), keyed(text, WIDE));
        first.push(0..700, None);
        first.worked_on(700).await;
        let before = first.asking.sizes(moved.clone()).await.unwrap();
        assert!(before.iter().sum::<u64>() > 0, "{text}");
        let given = first.asking.give(moved.clone()).await.unwrap();
        assert_eq!(given.watermark, None);
        assert_eq!(first.asking.sizes(moved.clone()).await.unwrap(), vec![0; moved.len()]);
        let mut loader = second.asking.loader().await.unwrap().unwrap();
        let mut units = Vec::new();
        for pieces in given.into_pieces() {
            for piece in pieces {
                units.extend(loader.load(&piece.unwrap()).unwrap());
            }
        }
        assert_eq!(units.len(), moved.len());
        second.asking.take(units, Vec::new()).await.unwrap();
        first.push(700..1000, Some(&left));
        let rows = second.push(700..1000, Some(&moved));
        second.worked_on(rows).await;
        second.asking.settle(moved.clone()).await.unwrap();
        let after = second.asking.sizes(moved.clone()).await.unwrap();
        assert!(after.iter().zip(&before).all(|(after, before)| (*after > 0) == (*before > 0)), "{text}");
        let mut found = first.end().await;
        found.extend(second.end().await);
        assert_eq!(sorted(found), wanted, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_does_not_come_where_there_is_some() {
    let (mut first, mut second) = (keyed(DISTINCT, WIDE), keyed(DISTINCT, WIDE));
    for instance in [&mut first, &mut second] {
        instance.push(0..100, None);
        instance.worked_on(100).await;
    }
    let given = first.asking.give((0..PARTITIONS).collect()).await.unwrap();
    let fault = second.asking.take(given.units, Vec::new()).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Refused);
    assert!(fault.message.starts_with("x#0: internal: partition"), "{}", fault.message);
    assert!(fault.message.ends_with("has state here already"), "{}", fault.message);
    let fault = second.asking.give(vec![PARTITIONS]).await.unwrap_err();
    assert_eq!(fault.message, "x#0: internal: partition 16 does not exist: there are 16");
    assert_eq!(sorted(first.end().await), sorted(second.end().await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_is_given_though_nobody_takes_what_comes_out() {
    let mut instance = keyed(ROLLING, 1);
    instance.pump.abort();
    instance.push(0..50_000, None);
    let given = tokio::time::timeout(Duration::from_mins(1), async {
        // It stands in the middle of a result as soon as some has come out.
        while instance.counters.rows_in.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        instance.asking.give(vec![1, 2]).await.unwrap()
    });
    let given = given.await.unwrap();
    assert_eq!(given.units.len(), 2);
    assert!(!instance.look());
    instance.task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_state_to_give_says_so() {
    let mut plain = keyed(r#"op = "map", in = "s", select = ["id"]"#, WIDE);
    let fault = plain.asking.give(vec![0]).await.unwrap_err();
    assert_eq!(fault.message, "x#0: it keeps no state by key that another instance could go on with");
    assert_eq!(plain.asking.give_back().await.unwrap_err().message, "x#0: it reads nothing");
    let asking = plain.asking.clone();
    plain.inbox.push(0, Item::Mark(Mark::End));
    plain.ended().await;
    assert!(asking.sizes(vec![0]).await.unwrap_err().message.contains("has ended"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_is_gone_on_with_where_it_was_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let lines: Vec<String> = (0..40_000).map(|n| format!("{n},\"line\nof {n}\"\n")).collect();
    std::fs::write(&path, lines.concat()).unwrap();
    let text = format!(
        r#"stage = [
{{ id = "s", op = "source", connector = "file", path = "{}", format = "csv", columns = {{ n = "bigint", t = "text" }} }},
{{ id = "o", op = "sink", in = "s", connector = "count" }},
]"#,
        path.display()
    );
    let job = Job::parse(&text, FileFormat::Toml).unwrap();
    let columns = resolve(&job).unwrap().edge("s").unwrap();
    let Op::Source(source) = &job.stages[0].op else { panic!() };
    let Some(tuplane_core::job::SourceConnector::File(file)) = &source.connector else { panic!() };
    let splits = Arc::new(Mutex::new(crate::source::splits(file, Path::new(""), 2).unwrap()));
    let reading = |queue| {
        let context = SourceContext {
            stage: "s".to_owned(),
            instance_number: 0,
            instances: 1,
            handed: false,
            folder: folder.path().to_owned(),
            schema: own_columns(&columns),
            places: None,
            ahead: None,
        };
        let body = Body::Source(crate::source::make(source, context).unwrap());
        running(body, None, &columns, queue, Splits::Own(Arc::clone(&splits)))
    };
    let mut found = Vec::new();
    let mut given_back = 0;
    // Each is held up by its full queue until it has given back what it has not read.
    for _ in 0..4 {
        let mut instance = reading(1 << 10);
        while instance.counters.rows_in.load(Ordering::Relaxed) == 0 && !instance.task.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for unit in instance.asking.give_back().await.unwrap().units {
            let Rest::Split(rest) = unit.rest else { panic!("it reads a file") };
            assert!(rest.done.is_some());
            splits.lock().unwrap_or_else(PoisonError::into_inner).push(rest);
            given_back += 1;
        }
        found.extend(instance.ended().await);
    }
    found.extend(reading(WIDE).ended().await);
    assert!(given_back > 0);
    let wanted: Vec<String> = (0..40_000).map(|n| format!("{n} line\nof {n}")).collect();
    assert!(found == wanted, "{} rows came for {}", found.len(), wanted.len());
}

/// Rows that had come to the first instance and were not worked on go with the state, and those that come to the second
/// one early wait for it: nothing is counted twice or in another order, also where the first is held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_wait_go_with_their_partitions() {
    let moved: Vec<u16> = (0..PARTITIONS).filter(|partition| partition % 3 == 0).collect();
    let left: Vec<u16> = (0..PARTITIONS).filter(|partition| partition % 3 != 0).collect();
    let alone = keyed(ROLLING, WIDE);
    alone.push(0..6000, None);
    let wanted = sorted(alone.end().await);

    // Little may wait behind the first, so that most of its rows are still to be worked on.
    let (first, mut second) = (keyed(ROLLING, 1), keyed(ROLLING, WIDE));
    for from in [0, 2000] {
        first.push(from..from + 2000, None);
    }
    let partitions = moved.iter().copied().collect();
    let group = Group { epoch: 2, number: 0, from: 0, to: 1, partitions };
    second.inbox.begin_group(group.clone(), Side::Takes).unwrap();
    first.inbox.begin_group(group.clone(), Side::Gives).unwrap();
    let early = second.push(4000..5000, Some(&moved));
    assert!(
        first
            .asking
            .give(moved.clone())
            .await
            .unwrap_err()
            .message
            .contains("have said that the group moves")
    );
    let mark = Mark::Moved { epoch: 2, group: 0 };
    first.inbox.push(0, Item::Mark(mark));
    second.inbox.push(0, Item::Mark(mark));
    first.inbox.all_marked(group.order()).await;
    let given = first.asking.give(moved.clone()).await.unwrap();
    let cut: u64 = given.rows.iter().map(|(_, rows)| rows.len() as u64).sum();
    assert_eq!(second.counters.rows_in.load(Ordering::Relaxed), 0, "they have no state yet");
    second.asking.take(given.units, given.rows).await.unwrap();
    second.worked_on(cut + early).await;
    assert!(!second.inbox.is_catching_up());
    second.asking.settle(moved.clone()).await.unwrap();
    first.inbox.end_group(group.order());
    first.push(4000..6000, Some(&left));
    second.push(5000..6000, Some(&moved));
    first.inbox.close_moves();
    second.inbox.close_moves();
    let mut found = first.end().await;
    found.extend(second.end().await);
    assert_eq!(sorted(found), wanted);
}
