//! Values at the edges of their types, and results that no row may have.

use std::sync::Arc;

use tuplane_core::job::OnError;
use tuplane_core::plan::plan;
use tuplane_expr::arrow::array::{ArrayRef, Float32Array, ListArray, RecordBatch, TimestampNanosecondArray};
use tuplane_expr::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use tuplane_expr::{Program, Projection, resolve, vertex_program};

use crate::prelude::*;

fn project(select: &[&str], input: &RecordBatch) -> Result<Vec<String>, String> {
    let projection = Projection::compile(language(), &texts(select), &input.schema())
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    projection.eval(input).map(|made| rows(&made)).map_err(|error| error.message)
}

fn one(expr: &str, input: &RecordBatch) -> String {
    project(&[&format!("{expr} as x")], input).map_or_else(|error| error, |rows| rows.join(", "))
}

#[test]
fn a_text_or_list_above_what_a_row_has_is_an_error_of_its_row() {
    let mib = "x".repeat(1 << 20);
    let input = batch(vec![("t", some_strings(&["y", &mib, "z"])), ("n", integers(&[1, 9, 1]))]);
    let twenty = |one: &str, between: &str| vec![one; 20].join(between);
    for expr in [
        twenty("t", " || "),
        format!("concat({})", twenty("t", ", ")),
        format!("concat_ws('', {})", twenty("t", ", ")),
        format!("make_array({})", twenty("t", ", ")),
        "replace(t, 'x', repeat('y', 20))".to_owned(),
        format!("make_array({0}) || make_array({0})", twenty("t", ", ")),
    ] {
        let select = texts(&[&format!("octet_length(cast({expr} as text)) as l")]);
        let projection = Projection::compile(language(), &select, &input.schema()).unwrap();
        let error = projection.eval(&input).unwrap_err();
        assert_eq!(error.row, Some(1), "{expr}: {error}");
        let (made, dropped) = projection.eval_rows(&input, OnError::Drop).unwrap();
        assert_eq!((made.num_rows(), dropped.len()), (2, 1), "{expr}");
    }
    // And so is one that all of its columns together make too large.
    let columns: Vec<String> = (0..20).map(|n| format!("t as t{n}")).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let projection = Projection::compile(language(), &texts(&columns), &input.schema()).unwrap();
    let (made, dropped) = projection.eval_rows(&input, OnError::Drop).unwrap();
    assert_eq!((made.num_rows(), dropped[0].row), (2, 1));
    assert!(dropped[0].message.contains("16 MiB is the most"), "{}", dropped[0].message);
    let (made, _) = projection.eval_rows(&input, OnError::Null).unwrap();
    assert!(made.column(0).is_null(1) && made.column(19).is_null(1) && made.column(0).is_valid(2));
}

/// Slices of lists have only their own values.
#[test]
fn rows_of_lists_are_no_larger_than_they_are() {
    let many = (0..3000).map(|_| Some((0..1000).map(Some).collect::<Vec<_>>()));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(many));
    let input = batch(vec![("l", lists)]);
    assert_eq!(project(&["l"], &input).unwrap().len(), 3000);
    assert_eq!(project(&["cardinality(array_concat(l, l)) as n"], &input).unwrap(), vec!["2000"; 3000]);
}

/// A chain of doublings ends at a row, whatever the batch.
#[test]
fn a_chain_of_maps_that_double_ends() {
    let mut stages =
        "name = \"test\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"generator\"\nkind = \"sequence\"\nn = 3\n"
            .to_owned();
    stages += "[[stage]]\nid = \"m\"\nop = \"map\"\nin = \"in\"\nselect = [\"cast(value as text) as x\"]\n";
    let mut before = "m".to_owned();
    for n in 0..39 {
        stages += &format!(
            "[[stage]]\nid = \"m{n}\"\nop = \"map\"\nin = \"{before}\"\nselect = [\"x || x as x\"]\n"
        );
        before = format!("m{n}");
    }
    stages += &format!("[[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"{before}\"\nconnector = \"count\"\n");
    let job = tuplane_core::job::Job::parse(&stages, tuplane_core::job::FileFormat::Toml).unwrap();
    let (types, dag) = (resolve(&job).unwrap(), plan(&job).unwrap());
    let v = dag.vertices.iter().position(|vertex| vertex.stages.iter().any(|stage| stage == "m38")).unwrap();
    let id = tuplane_core::plan::VertexId(v as u32);
    let Program::Chain(chain) = vertex_program(&job, &types, &dag, id).unwrap().program else {
        panic!("no chain")
    };
    let values = RecordBatch::try_new(chain.input().clone(), vec![integers(&[1, 2, 3])]).unwrap();
    let mut run = chain.run(values);
    let error = run.next(100, 1 << 20).unwrap().unwrap_err();
    assert!(error.row.is_some() && error.message.contains("16 MiB"), "{error}");
    assert_eq!(run.failed_stage(), Some("m23"));
}

#[test]
fn nan_is_greater_than_all_numbers_wherever_it_comes_from() {
    let input = batch(vec![("z", floats(&[0.0])), ("m", floats(&[-f64::NAN])), ("neg", floats(&[-1.0]))]);
    for nan in ["z / z", "-(z / z)", "m", "z % z", "m + 1", "-m"] {
        assert_eq!(one(&format!("{nan} < 5"), &input), "false", "{nan}");
        assert_eq!(one(&format!("{nan} > 5"), &input), "true", "{nan}");
        assert_eq!(one(&format!("greatest({nan}, z)"), &input), "NaN", "{nan}");
        assert_eq!(one(&format!("least({nan}, z)"), &input), "0.0", "{nan}");
        assert_eq!(
            one(&format!("case {nan} when cast('nan' as double) then 1 else 0 end"), &input),
            "1",
            "{nan}"
        );
    }
    let two = batch(vec![("x", floats(&[-f64::NAN, 5.0]))]);
    let program = program(&[], &["max(x) as most", "min(x) as least"], &two.schema());
    let mut table = table(&program, 1);
    table.update(&two, None).unwrap();
    assert_eq!(sorted_rows(&finals(&mut table)), ["NaN 5.0"]);
}

#[test]
fn the_two_zeros_are_equal() {
    let input = batch(vec![("d", floats(&[-0.0])), ("r", Arc::new(Float32Array::from(vec![-0.0])))]);
    for zero in ["d", "r", "-(d + 0)", "0 * d"] {
        assert_eq!(one(&format!("nullif({zero}, 0)"), &input), "-", "{zero}");
        assert_eq!(one(&format!("case {zero} when 0 then 1 else 0 end"), &input), "1", "{zero}");
        assert_eq!(
            one(&format!("case {zero} when 1 then 2 when 0 then 1 when 5 then 9 else 0 end"), &input),
            "1"
        );
        assert_eq!(one(&format!("{zero} = 0"), &input), "true", "{zero}");
        assert_eq!(one(&format!("{zero} in (0, 1, 2, 3, 4, 5, 6, 7, 8)"), &input), "true", "{zero}");
        assert_eq!(one(&format!("{zero} not in (0, 1, 2, 3, 4, 5, 6, 7, 8)"), &input), "false", "{zero}");
    }
}

#[test]
fn shifts_and_truncated_times_do_not_wrap() {
    let input = batch(vec![("b", integers(&[3])), ("w", integers(&[64])), ("n", integers(&[-1]))]);
    assert_eq!(one("b << 2", &input), "12");
    assert_eq!(one("b >> 1", &input), "1");
    assert_eq!(one("1 << 3", &input), "8");
    for wrong in ["b << 64", "b << w", "b >> w", "b << n", "b << -1", "1 << 100", "1 >> -1"] {
        assert!(one(wrong, &input).contains("cannot be shifted by"), "{wrong}: {}", one(wrong, &input));
    }
    let least: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![i64::MIN]));
    let input = batch(vec![("t", least), ("m", integers(&[i64::MIN]))]);
    for unit in ["day", "hour", "week", "month", "year", "second"] {
        for time in ["t", "to_timestamp_nanos(m)"] {
            let said = one(&format!("date_trunc('{unit}', {time})"), &input);
            assert!(!said.starts_with('2'), "{unit} of {time}: {said}");
        }
    }
}

#[test]
fn what_no_row_could_be_taken_by_is_a_fault() {
    let at = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let input =
        RecordBatch::new_empty(schema(&[("t", DataType::Utf8), ("at", at), ("x", DataType::Float64)]));
    let big = "((a{100}){100}){100}";
    for (expr, why) in [
        (format!("t ~ '{big}'"), "too large"),
        (format!("t !~* '{big}'"), "too large"),
        (format!("regexp_like(t, '{big}')"), "too large"),
        (format!("regexp_replace(t, '{big}', t)"), "too large"),
        (format!("regexp_count(t, '{big}', 1)"), "did not compile"),
        (format!("regexp_match(t, '{big}')"), "too large"),
        ("date_trunc(t, at)".to_owned(), "must be a constant"),
        ("date_part(t, at)".to_owned(), "constant"),
        ("encode(t, t)".to_owned(), "must be a constant"),
    ] {
        let faults = Projection::compile(language(), &texts(&[&expr]), &input.schema()).unwrap_err();
        let said = faults[0].to_string();
        assert!(said.contains(why), "{expr}: {said}");
    }
    for fine in ["regexp_like(t, '^a+$')", "regexp_replace(t, '(a)', t, 'g')", "t ~ t", "regexp_match(t, t)"]
    {
        Projection::compile(language(), &texts(&[fine]), &input.schema()).unwrap();
    }
}

#[test]
fn an_expression_that_is_too_long_is_told_before_it_is_read() {
    let input = batch(vec![("t", some_strings(&["a"]))]);
    let said = one(&format!("length('{}')", "x".repeat(10 << 20)), &input);
    assert!(said.contains("at most 65536 are taken") && said.len() < 200, "{said}");
}
