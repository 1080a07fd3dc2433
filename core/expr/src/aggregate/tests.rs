//! Every accumulator: reading changes nothing, saved state goes on, halves make a whole.

use std::sync::Arc;

use datafusion_common::arrow::array::{Float64Array, Int64Array, StringArray};
use datafusion_common::arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use tuplane_core::job::{OnError, Text};

use super::*;
use crate::sql::Determinism;

/// Functions whose results depend on nothing but the rows and their order.
const EXACT: &[&str] = &[
    "count(*)",
    "count(x)",
    "sum(x)",
    "sum(f)",
    "avg(f)",
    "min(x)",
    "max(s)",
    "min(f)",
    "count(distinct s)",
    "count(distinct f)",
    "sum(cast(x as decimal(10, 2)))",
    "avg(cast(x as decimal(10, 2)))",
    "median(x)",
    "string_agg(s, ',')",
    "array_agg(x)",
    "first_value(x)",
    "last_value(s)",
    "bool_and(x > 0)",
    "bit_or(x)",
    "sum(distinct x)",
    "approx_distinct(x)",
    "nth_value(x, 2)",
    "min(x > 0)",
    "max(cast(cast(x as int) as date))",
    "bool_or(x > 0)",
    "bit_and(x)",
    "bit_xor(x)",
    "sum(distinct cast(x as decimal(10, 2)))",
    "avg(distinct f)",
    "count(distinct cast(x as decimal(10, 2)))",
    "regr_count(f, x)",
    "percentile_cont(0.3) within group (order by f)",
    "last_value(f) filter (where x > 0)",
    "array_agg(s) filter (where x > 0)",
];

/// Functions with rounding inside: results agree to many digits.
const ROUNDED: &[&str] = &[
    "stddev(f)",
    "stddev_pop(f)",
    "var_samp(f)",
    "var_pop(f)",
    "covar_samp(f, x)",
    "covar_pop(f, x)",
    "corr(f, x)",
    "approx_median(f)",
    "approx_percentile_cont(0.3) within group (order by f)",
    "regr_slope(f, x)",
    "regr_intercept(f, x)",
    "regr_r2(f, x)",
    "regr_avgx(f, x)",
    "regr_avgy(f, x)",
    "regr_sxx(f, x)",
    "regr_syy(f, x)",
    "regr_sxy(f, x)",
];

const GROUPS: usize = 3;

/// Two numbers, a text, and the group.
type Row = (Option<i64>, Option<String>, Option<f64>, u32);

#[derive(Debug, Clone)]
struct Case {
    rows: Vec<Row>,
    cut: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    // Quarters add up exactly in any order.
    let float = prop::option::of((-40i32..40).prop_map(|q| f64::from(q) / 4.0));
    let row = (prop::option::of(-9i64..9), prop::option::of("[a-c]{0,2}"), float, 0..GROUPS as u32);
    (prop::collection::vec(row, 0..24), 0usize..24)
        .prop_map(|(rows, cut)| Case { cut: cut.min(rows.len()), rows })
}

impl Case {
    fn batch(&self) -> RecordBatch {
        let fields = [("x", DataType::Int64), ("s", DataType::Utf8), ("f", DataType::Float64)];
        let schema = Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.rows.iter().map(|r| r.0).collect::<Int64Array>()),
            Arc::new(self.rows.iter().map(|r| r.1.as_deref()).collect::<StringArray>()),
            Arc::new(self.rows.iter().map(|r| r.2).collect::<Float64Array>()),
        ];
        RecordBatch::try_new(Arc::new(schema), columns).unwrap()
    }
}

struct Subject {
    program: AggregateProgram,
    arguments: Vec<ArrayRef>,
    groups: Vec<u32>,
}

impl Subject {
    fn new(function: &str, case: &Case) -> Self {
        let batch = case.batch();
        let compute = [Text::nowhere(format!("{function} as y"))];
        let language = Language::new(Determinism::Required);
        let program =
            AggregateProgram::compile(language, &[], &compute, &batch.schema(), OnError::Fail).unwrap();
        let arguments = program.inner.input.eval(&batch).unwrap().columns().to_vec();
        Self { program, arguments, groups: case.rows.iter().map(|r| r.3).collect() }
    }

    fn empty(&self) -> Box<dyn Accumulator> {
        let mut new = self.program.inner.aggregates[0].accumulator().unwrap();
        new.resize(GROUPS);
        new
    }

    fn update(&self, to: &mut dyn Accumulator, rows: Range<usize>) {
        let groups = &self.groups[rows.clone()];
        let rows: Vec<u32> = (rows.start as u32..rows.end as u32).collect();
        let arguments = &self.arguments[self.program.inner.aggregates[0].arguments.clone()];
        to.update(arguments, Rows { rows: &rows, groups }).unwrap();
    }

    fn merge(to: &mut dyn Accumulator, from: &dyn Accumulator) {
        let all: Vec<u32> = (0..GROUPS as u32).collect();
        to.merge(&from.save(0..GROUPS).unwrap(), Rows { rows: &all, groups: &all }).unwrap();
    }

    fn check(&self, cut: usize, same: impl Fn(&ArrayRef, &ArrayRef) -> bool) -> Result<(), TestCaseError> {
        let all = self.groups.len();
        let mut whole = self.empty();
        self.update(&mut *whole, 0..cut);
        self.update(&mut *whole, cut..all);
        let expected = whole.value(0..GROUPS).unwrap();

        let mut read = self.empty();
        for row in 0..all {
            self.update(&mut *read, row..row + 1);
            read.value(0..GROUPS).unwrap();
            read.save(0..GROUPS).unwrap();
        }
        let got = read.value(0..GROUPS).unwrap();
        prop_assert!(same(&got, &expected), "read on the way: {got:?} for {expected:?}");
        let again = read.value(0..GROUPS).unwrap();
        prop_assert!(same(&again, &got), "read twice: {again:?} for {got:?}");

        let mut first = self.empty();
        self.update(&mut *first, 0..cut);
        let mut loaded = self.empty();
        Self::merge(&mut *loaded, &*first);
        self.update(&mut *loaded, cut..all);
        let got = loaded.value(0..GROUPS).unwrap();
        prop_assert!(same(&got, &expected), "saved and loaded: {got:?} for {expected:?}");

        let mut second = self.empty();
        self.update(&mut *second, cut..all);
        Self::merge(&mut *first, &*second);
        let got = first.value(0..GROUPS).unwrap();
        prop_assert!(same(&got, &expected), "two halves: {got:?} for {expected:?}");
        Ok(())
    }
}

fn close(got: &ArrayRef, expected: &ArrayRef) -> bool {
    use datafusion_common::arrow::array::AsArray;
    use datafusion_common::arrow::datatypes::Float64Type;
    let (got, expected) = (got.as_primitive::<Float64Type>(), expected.as_primitive::<Float64Type>());
    got.iter().zip(expected).all(|pair| match pair {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs().max(1.0) || a.is_nan() && b.is_nan(),
        (a, b) => a.is_none() && b.is_none(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn exact_aggregates(case in cases()) {
        for function in EXACT.iter().copied() {
            let same = |got: &ArrayRef, expected: &ArrayRef| got == expected;
            Subject::new(function, &case)
                .check(case.cut, same)
                .map_err(|e| TestCaseError::fail(format!("{function}: {e}")))?;
        }
    }

    #[test]
    fn rounded_aggregates(case in cases()) {
        for function in ROUNDED.iter().copied() {
            Subject::new(function, &case)
                .check(case.cut, close)
                .map_err(|e| TestCaseError::fail(format!("{function}: {e}")))?;
        }
    }
}

#[test]
fn our_own_are_chosen() {
    let case = Case { rows: Vec::new(), cut: 0 };
    for function in &EXACT[..11] {
        let subject = Subject::new(function, &case);
        assert!(!matches!(subject.program.inner.aggregates[0].kind, Kind::Adapted(_)), "{function}");
    }
}
