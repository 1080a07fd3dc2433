//! Rows that come before they arrive move no watermark until they do.

use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::{VertexId, plan};
use tuplane_expr::arrow::array::{ArrayRef, Int64Array};
use tuplane_expr::{Program, resolve, vertex_program};

use super::*;

/// The stamper of a source whose column `id` has seconds since 1970.
fn stamper(clock: DueClock) -> Stamper {
    let text = r#"stage = [
{ id = "in", op = "source", connector = "ids", n = 9, rate = 1, window = 4, time = { column = "id", format = "unix", idle = "1h" } },
{ id = "r", op = "rebalance", in = "in", policy = "potus" },
{ id = "w", op = "window", in = "r2", type = "tumbling", size = "1s" },
{ id = "a", op = "aggregate", in = "w", compute = ["count(*) as n"] },
{ id = "o", op = "sink", in = "a", connector = "count" },
]"#;
    let text =
        text.replace(r#"{ id = "w","#, "{ id = \"r2\", op = \"work\", in = \"r\", ms = 1 },\n{ id = \"w\",");
    let job = Job::parse(&text, FileFormat::Toml).unwrap();
    let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
    let program = vertex_program(&job, &types, &dag, VertexId(0)).unwrap().program;
    let Program::Stamp(program) = program else { panic!("{program:?}") };
    let time = job.stages[0].op.source().unwrap().time.clone().unwrap();
    Stamper::new("in", program, &time, &dag).looking_ahead(clock)
}

/// Rows of these seconds, which arrive so long after the clock began.
fn rows(clock: DueClock, rows: &[(i64, i64)]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let own = RecordBatch::try_from_iter_with_nullable([("id", ids, true)]).unwrap();
    let now = clock.now();
    let due = rows.iter().map(|(_, after_s)| now + after_s * 1_000_000_000);
    with_column(&own, SystemColumn::Due, Arc::new(TimestampNanosecondArray::from_iter_values(due))).unwrap()
}

fn seconds(moved: impl IntoIterator<Item = Moved>) -> Vec<i64> {
    let second = |moved: Moved| match moved {
        Moved::Watermark(time) => time / 1_000_000_000,
        Moved::Idle => -1,
    };
    moved.into_iter().map(second).collect()
}

#[test]
fn a_row_that_comes_before_it_arrives_moves_no_watermark() {
    let clock = DueClock::begin(0);
    let mut stamper = stamper(clock);
    stamper.begin();
    let stamp = |stamper: &mut Stamper, batch: &[(i64, i64)]| {
        let given = stamper.stamp(&rows(clock, batch), None).unwrap();
        assert_eq!(given.rows.num_rows(), batch.len(), "all of them go on");
        seconds(given.before.into_iter().chain(given.after))
    };
    // Without a row to come it is as if there were none: two rows that agree begin time.
    assert_eq!(stamp(&mut stamper, &[(1, -1), (2, -1)]), [2]);
    // Two have arrived and two have not; those that have are told of when somebody looks.
    assert_eq!(stamp(&mut stamper, &[(3, -1), (4, -1), (5, 3600), (9, 7200)]), [0i64; 0]);
    assert!(stamper.next_tick().unwrap() <= Instant::now());
    assert_eq!(seconds(stamper.tick()), [4]);
    let next = stamper.next_tick().unwrap();
    assert!(
        next > Instant::now() + Duration::from_secs(3500)
            && next < Instant::now() + Duration::from_secs(3700)
    );
    // One that has arrived but stands behind those to come waits for them: arrivals are in order.
    assert_eq!(stamp(&mut stamper, &[(20, -1)]), [0i64; 0]);
    assert_eq!(seconds(stamper.tick()), [0i64; 0]);
    assert_eq!(stamper.coming.as_ref().unwrap().times.len(), 3);
}

#[test]
fn arrivals_come_from_the_schedule_and_the_last_is_known() {
    let clock = DueClock::begin(0);
    let mut arrivals = Arrivals::new(clock);
    let own: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let own = RecordBatch::try_from_iter_with_nullable([("id", own, true)]).unwrap();
    let before = clock.now();
    let read = arrivals.add(&own, None).unwrap();
    let dues = tuplane_expr::system::arrivals(&read).unwrap().clone();
    assert!(dues.values().iter().all(|due| *due >= before && *due <= clock.now()));
    assert_eq!(arrivals.latest(), None, "it has arrived");
    let first = Instant::now() + Duration::from_secs(9);
    let read = arrivals.add(&own, Some(Schedule { first, seconds: 0.5 })).unwrap();
    let dues = tuplane_expr::system::arrivals(&read).unwrap();
    let at = |half: u64| clock.at(first + Duration::from_millis(500 * half));
    assert_eq!(dues.values()[..], [at(0), at(1), at(2)]);
    assert_eq!(arrivals.latest(), Some(clock.instant(at(2))));
}
