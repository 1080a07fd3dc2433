//! The schedule of a trace: no row is lost, none is early, and each step has what its count says.

use proptest::prelude::*;

use super::*;

fn options(factor: f64) -> TraceOptions {
    let scale = TraceScale::Factor(factor);
    TraceOptions { step: Duration::from_secs(1), scale, from: 0, rows: None, repeat: false }
}

/// Rows of each step of the file, in one pass.
fn by_step(trace: &Trace) -> Vec<u64> {
    let mut rows = vec![0; trace.pass_steps() as usize];
    let mut row = 0;
    while let Some(step) = trace.step_of(row) {
        rows[step.number as usize] += step.rows;
        row = step.end();
    }
    rows
}

#[test]
fn a_step_has_its_count_and_spreads_it() {
    let trace = Trace::new(&[2.0, 0.0, 4.0], &options(1.0)).unwrap();
    assert_eq!((trace.rows(), by_step(&trace)), (6, vec![2, 0, 4]));
    let due: Vec<u64> = (0..6).map(|row| trace.step_of(row).unwrap().due(row) / 1_000_000).collect();
    assert_eq!(due, [0, 500, 2000, 2250, 2500, 2750]);
    assert_eq!(trace.step_of(6), None);
    let last = trace.step_of(5).unwrap();
    assert_eq!((last.number, last.first, last.end(), last.begin), (2, 2, 6, 2_000_000_000));
    assert_eq!(
        [1_999_999_999, 2_000_000_000, 2_500_000_000, u64::MAX].map(|at| last.due_by(at)),
        [0, 1, 3, 4]
    );
}

#[test]
fn fractions_are_carried_over_steps_and_passes() {
    let trace = Trace::new(&[1.0; 10], &options(0.25)).unwrap();
    assert_eq!(by_step(&trace), [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]);
    let repeated = TraceOptions { repeat: true, ..options(0.25) };
    let trace = Trace::new(&[1.0; 10], &repeated).unwrap();
    // 2.5 rows a pass: the fifth row ends the second one.
    let steps: Vec<_> = (0..6).map(|row| trace.step_of(row).map(|step| (step.begin, step.number))).collect();
    let second = 1_000_000_000;
    assert_eq!(steps, [3, 7, 11, 15, 19, 23].map(|step| Some((step * second, step % 10))));
    // A sum of tenths is what it is on paper, however long.
    for (count, n, factor, rows) in [(0.1, 1_000_000, 1.0, 100_000), (1.0, 100, 0.29, 29), (1.0, 30, 0.1, 3)]
    {
        assert_eq!(Trace::new(&vec![count; n], &options(factor)).unwrap().rows(), rows);
    }
}

#[test]
fn a_mean_is_of_the_whole_trace() {
    let mean = |mean, from, step| {
        let step = Duration::from_millis(step);
        Trace::new(&[1.0, 3.0], &TraceOptions { step, scale: TraceScale::Mean(mean), from, ..options(1.0) })
    };
    assert_eq!(by_step(&mean(8.0, 0, 1000).unwrap()), [4, 12]);
    assert_eq!(by_step(&mean(8.0, 0, 500).unwrap()), [2, 6]);
    assert_eq!(mean(8.0, 1, 500).unwrap().rows(), 6);
    let tenth =
        Trace::new(&[3.0, 7.0, 1.0], &TraceOptions { scale: TraceScale::Mean(100.0), ..options(1.0) });
    assert_eq!(tenth.unwrap().rows(), 300);
}

#[test]
fn it_begins_where_it_is_told_and_ends_by_rows_or_starts_over() {
    let from = TraceOptions { from: 2, ..options(1.0) };
    let counts = [1.0, 2.0, 3.0];
    let trace = Trace::new(&counts, &from).unwrap();
    let first = trace.step_of(0).unwrap();
    assert_eq!((trace.rows(), first.number, first.begin), (3, 2, 0));
    let over = Trace::new(&counts, &TraceOptions { repeat: true, rows: Some(9), ..from }).unwrap();
    let numbers: Vec<u64> = (0..9).map(|row| over.step_of(row).unwrap().number).collect();
    assert_eq!(numbers, [2, 2, 2, 0, 1, 1, 2, 2, 2]);
    assert_eq!((over.rows(), over.step_of(9)), (9, None));
    let cut = Trace::new(&counts, &TraceOptions { rows: Some(2), ..from }).unwrap();
    // The rows that are left out leave the others their times.
    assert_eq!((cut.rows(), cut.step_of(1).unwrap().due(1)), (2, 333_333_333));
    assert_eq!(Trace::new(&counts, &TraceOptions { rows: Some(200), ..from }).unwrap().rows(), 3);
}

#[test]
fn what_makes_no_rows_is_refused() {
    let refused =
        |counts: &[f64], options: &TraceOptions| Trace::new(counts, options).unwrap_err().to_string();
    for (counts, part) in
        [(&[][..], "the trace has 0"), (&[0.0, 0.0], "every count is 0"), (&[1.0, -2.0], "step 1 counts -2")]
    {
        let said = refused(counts, &options(1.0));
        assert!(said.contains(part), "{said}");
    }
    assert!(refused(&[f64::NAN], &options(1.0)).contains("NaN"));
    assert!(refused(&[1.0, 0.0], &TraceOptions { from: 1, ..options(1.0) }).contains("less than one"));
    assert!(refused(&[1.0], &options(0.5)).contains("0.5 rows"));
    assert!(refused(&[1.0], &TraceOptions { from: 7, ..options(1.0) }).contains("step 7"));
    for (count, factor) in [(1.0, 1e300), (1e300, 1e300), (1e15, 1.0)] {
        assert!(refused(&[count], &options(factor)).contains("at most"), "{count} {factor}");
    }
    let never = TraceOptions { repeat: true, ..options(1e-300) };
    assert!(refused(&[1.0], &never).contains("less than one"));
}

#[test]
fn columns_go_by_name_or_place() {
    let first = ["time", "count"];
    assert_eq!(Column::Name("count".into()).index(&first, true), Ok(1));
    assert_eq!(Column::Place(1).index(&first, false), Ok(0));
    for (column, header, part) in [
        (Column::Place(0), true, "no column 0"),
        (Column::Place(3), true, "there are 2, counted from 1"),
        (Column::Name("count".into()), false, "without a header"),
        (Column::Name("cuont".into()), true, "did you mean `count`?"),
    ] {
        let said = column.index(&first, header).unwrap_err();
        assert!(said.contains(part), "{said}");
    }
}

fn counts() -> impl Strategy<Value = Vec<f64>> {
    let count = prop_oneof![Just(0.0), (0_u32..50).prop_map(f64::from), 0.0..9.0];
    proptest::collection::vec(count, 1..40)
}

proptest! {
    #[test]
    fn rows_are_conserved_and_in_order(
        counts in counts(), factor in 0.01..3.0, step in 1_u64..5_000_000_000, repeat: bool, from in 0_usize..40,
    ) {
        let from = from % counts.len();
        let step = Duration::from_nanos(step);
        let options = TraceOptions { step, from: from as u64, repeat, ..options(factor) };
        let Ok(trace) = Trace::new(&counts, &options) else {
            let left: f64 = counts[from..].iter().sum();
            prop_assert!(counts.iter().sum::<f64>() == 0.0 || !repeat && left * factor < 1.0);
            return Ok(());
        };
        let passes = if repeat { 3 } else { 1 };
        let (mut sum, mut row, mut due) = (0.0, 0, 0);
        for k in 0..passes * trace.pass_steps() {
            let place = (from as u64 + k) as usize % counts.len();
            sum += counts[place];
            let (pass, within) = (k / trace.pass_steps(), (k % trace.pass_steps()) as usize);
            prop_assert_eq!(trace.before(pass, within), row);
            let after = trace.before(pass, within + 1);
            prop_assert!((after as f64 - (sum * factor).floor()).abs() <= 1.0);
            prop_assert!(after as f64 <= sum * factor + 1e-6 && after as f64 > sum * factor - 1.0 - 1e-6);
            for one in row..after {
                let found = trace.step_of(one).unwrap();
                prop_assert_eq!((found.number, found.first, found.rows), (place as u64, row, after - row));
                prop_assert_eq!(u128::from(found.begin), step.as_nanos() * u128::from(k));
                let at = found.due(one);
                prop_assert!(at >= due && at >= found.begin && at < found.begin + found.length);
                due = at;
                // What is due by then are the rows up to this one, or more that are due in the same nanosecond.
                let by = found.due_by(at);
                prop_assert!(by > one - row && found.due(row + by - 1) == at);
                prop_assert!(at == 0 || found.due_by(at - 1) <= one - row);
            }
            row = after;
        }
        prop_assert!(repeat || trace.rows() == row);
    }
}
