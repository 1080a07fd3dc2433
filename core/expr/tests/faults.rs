//! What a person reads when an expression is wrong.

use tuplane_core::fault::{At, Fault};
use tuplane_core::job::{
    BadLine, Encoding, FileFormat, FileSource, Files, Format, Job, OnError, Op, SourceConnector,
    StatefulShape, Text,
};
use tuplane_expr::arrow::datatypes::{DataType, Field};
use tuplane_expr::{
    AggregateProgram, Determinism, Filter, KeyExprs, Language, Projection, Unnest, resolve, resolve_with,
};

use crate::prelude::*;

fn columns() -> tuplane_expr::arrow::datatypes::SchemaRef {
    schema(&[
        ("client", DataType::Utf8),
        ("status", DataType::Utf8),
        ("bytes", DataType::Int64),
        ("user.id", DataType::Int64),
        ("tags", DataType::List(Field::new_list_field(DataType::Utf8, true).into())),
    ])
}

fn fault(expr: &str) -> Fault {
    // As in `key = "expr"` on line 7, from column 7.
    let at = At { line: 7, column: 7, offset: 60, len: expr.len() as u32 + 2 };
    let select = [Text::new(expr.to_owned(), at)];
    let mut faults = Projection::compile(language(), &select, &columns()).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.remove(0)
}

fn said(expr: &str) -> String {
    fault(expr).to_string()
}

#[test]
fn an_unknown_column_is_named_with_its_neighbour_and_its_place() {
    assert_eq!(
        said("length(clent)"),
        "7:15: no column `clent`; did you mean `client`? \
         (columns: client, status, bytes, \"user.id\", tags)"
    );
    assert!(said("Status").starts_with("7:8: no column `Status`; did you mean `status`?"));
    assert!(said("bytes + other").starts_with("7:16: no column `other` (columns:"));
}

#[test]
fn a_column_with_a_dot_must_be_quoted() {
    assert_eq!(
        said("bytes + user.id"),
        "7:16: the column `user.id` has a dot in its name and must be quoted \
         (write \"user.id\", with the double quotes; in TOML a text that holds them stands in single quotes)"
    );
    Projection::compile(language(), &texts(&["\"user.id\" + 1 as next"]), &columns()).unwrap();
}

#[test]
fn a_keyword_that_is_no_column() {
    assert_eq!(said("bytes + user").split(" (").next(), Some("7:16: no column `user`"));
}

#[test]
fn text_in_double_quotes_is_taken_for_a_column() {
    let said = said("client = \"localhost\"");
    assert!(said.contains("no column `localhost`"), "{said}");
    assert!(said.contains("text stands in single quotes: 'localhost'"), "{said}");
}

#[test]
fn functions() {
    assert_eq!(said("uper(client)"), "7:8: no function `uper`; did you mean `upper`?");
    assert!(said("bytes + count(*)").starts_with("7:16: `count` is an aggregate"));
    assert!(said("unnest(tags)").contains("use a flat_map stage"));
    assert!(said("sum(bytes) over ()").contains("is not available"));
    assert!(said("(select 1)").contains("a query cannot stand inside an expression"));
}

#[test]
fn functions_that_do_not_replay_are_refused_unless_waived() {
    for call in ["now()", "current_date", "current_timestamp", "random()", "uuid()"] {
        let said = said(call);
        assert!(
            said.contains("results must replay; `[job] deterministic = false` allows it"),
            "{call}: {said}"
        );
        let waived = Language::new(Determinism::Waived);
        Projection::compile(waived, &texts(&[call]), &columns()).unwrap();
    }
}

/// The sender of a row computes its key, and so does the receiver: they would not agree.
#[test]
fn keys_and_orders_replay_even_where_that_is_waived() {
    let other = source_of(100, "other");
    let find = "[[stage]]\nid = \"find\"\nop = \"hash_join\"\nin = [\"rows\", \"other\"]\n";
    for (refused, stages) in [
        ("now", stage_of("group_by", "key = \"cast(now() as date) as day\"")),
        ("random", stage_of("group_by", "key = [\"line\", \"cast(floor(random() * 10) as int) as k\"]")),
        ("uuid", stage_of("distinct", "key = \"uuid()\"")),
        ("random", stage_of("rebalance", "key = \"random()\"")),
        ("current_date", stage_of("sort", "by = [\"current_date desc\"]")),
        ("random", format!("{other}{find}on = [\"random() + length(rows.line) = length(other.line)\"]\n")),
        ("random", format!("{other}{find}on = [\"length(rows.line) = random() + length(other.line)\"]\n")),
    ] {
        let head = "name = \"test\"\n[job]\ndeterministic = false\n";
        let text = format!("{head}{}{stages}", source_of(100, "rows"));
        let job = Job::parse(&text, FileFormat::Toml).unwrap_or_else(|faults| panic!("{stages}: {faults:?}"));
        let faults = resolve(&job).unwrap_err();
        let said = faults[0].to_string();
        let why = format!(
            "`{refused}` gives another result each time, and a key or an order is computed more than once"
        );
        assert!(said.contains(&why) && said.contains("in a map before"), "{stages}: {said}");
    }
}

fn source_of(n: u32, id: &str) -> String {
    let more = "op = \"source\"\nconnector = \"generator\"\nkind = \"words\"";
    format!("[[stage]]\nid = \"{id}\"\n{more}\nn = {n}\n")
}

fn stage_of(op: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"next\"\nop = \"{op}\"\nin = \"rows\"\n{more}\n")
}

#[test]
fn types_are_said_in_sql_words() {
    for (expr, words) in [
        ("client + true", &["`client + true`: ", "text", "boolean"][..]),
        ("date_trunc('hour', bytes)", &["date_trunc", "bigint"]),
        ("not client", &["text"]),
    ] {
        let said = said(expr);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        for prefix in ["Error during planning", "Utf8", "Int64", "Internal error", "\n"] {
            assert!(!said.contains(prefix), "{said}");
        }
    }
}

#[test]
fn syntax_errors_have_a_place() {
    let fault = fault("bytes + ) 1");
    assert_eq!((fault.at.line, fault.at.column), (7, 16), "{fault}");
    assert!(fault.message.starts_with("`bytes + ) 1`: expected"), "{fault}");
    assert!(!fault.message.contains("Line:"), "{fault}");
    assert!(said("bytes as a b").contains("end of expression"));
    assert!(said(" ").contains("an expression is missing"));
    assert!(said("null as x").contains("always null"));
}

#[test]
fn filters_need_booleans_and_unnest_needs_lists() {
    let fault = Filter::compile(language(), &text("bytes + 1"), &columns()).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "`where` needs true or false, and `bytes + 1` is bigint (compare it with something)"
    );
    let fault = Unnest::compile(language(), &text("client as c"), &columns()).unwrap_err();
    assert!(fault.message.contains("`unnest` needs a list, and `client as c` is text"), "{fault}");
    let faults = KeyExprs::compile(language(), &texts(&["tags"]), &columns()).unwrap_err();
    assert_eq!(faults[0].message, "`tags` is text[], which cannot be a key");
}

#[test]
fn two_columns_of_one_name() {
    let faults =
        Projection::compile(language(), &texts(&["*", "upper(client) as client"]), &columns()).unwrap_err();
    assert_eq!(faults[0].to_string(), "two columns are called `client` (name one of them with `as`)");
}

#[test]
fn all_faults_of_a_job_at_once_and_each_once() {
    let stages = vec![
        stage("lines", words_source(), &[]),
        stage("first", map(&["lien", "line as a", "foo(line)"]), &["lines"]),
        stage("after", map(&["nothing"]), &["first"]),
        stage("other", Op::Filter { predicate: Some(text("line")) }, &["lines"]),
        stage("good", map(&["upper(line) as line"]), &["lines"]),
    ];
    let faults = resolve(&job(stages)).unwrap_err();
    let by_stage: Vec<Option<&str>> = faults.iter().map(|f| f.stage.as_deref()).collect();
    assert_eq!(by_stage, [Some("first"), Some("first"), Some("other")], "{faults:?}");
}

#[test]
fn merge_lists_the_difference() {
    let stages = vec![
        stage("lines", words_source(), &[]),
        stage("a", map(&["line", "1 as n"]), &["lines"]),
        stage("b", map(&["line", "'x' as n", "2 as m"]), &["lines"]),
        stage("both", Op::Merge, &["a", "b"]),
        stage("c", map(&["1 as n", "line"]), &["lines"]),
        stage("order", Op::Merge, &["a", "c"]),
    ];
    let faults = resolve(&job(stages)).unwrap_err();
    assert_eq!(
        faults[0].message,
        "merge: the columns of `a` and `b` differ: `n` is bigint and text; only `b` has `m`"
    );
    assert!(faults[1].message.contains("their order is line, n and n, line"), "{}", faults[1]);
}

#[test]
fn a_merge_of_times_in_different_units_names_them_as_a_cast_does() {
    let merged = |left: &str, right: &str| {
        resolve(&job(vec![
            stage("lines", words_source(), &[]),
            stage("a", map(&[left]), &["lines"]),
            stage("b", map(&[right]), &["lines"]),
            stage("both", Op::Merge, &["a", "b"]),
        ]))
    };
    let times = "to_timestamp_millis(length(line)) as t";
    for (other, words) in [
        ("to_timestamp(length(line)) as t", "timestamp"),
        ("to_timestamp_micros(length(line)) as t", "timestamp(6)"),
        ("to_timestamp_seconds(length(line)) as t", "timestamp(0)"),
    ] {
        let faults = merged(times, other).unwrap_err();
        let wanted = format!("merge: the columns of `a` and `b` differ: `t` is timestamp(3) and {words}");
        assert_eq!(faults[0].message, wanted);
        // What is said can be written.
        merged(&format!("cast({} as {words}) as t", times.trim_end_matches(" as t")), other).unwrap();
    }
}

fn file(format: Format, columns: &[(&str, &str)], header: bool) -> Op {
    source(SourceConnector::File(FileSource {
        paths: texts(&["in"]),
        format,
        encoding: Encoding::Utf8,
        columns: columns.iter().map(|(name, kind)| (text(name), text(kind))).collect(),
        header,
        delimiter: ',',
        quoted_newlines: true,
        files: Files::Shared,
        split: None,
        on_bad_line: BadLine::Skip,
    }))
}

fn types_of(op: Op) -> Result<String, Vec<Fault>> {
    let types = resolve_with(&job(vec![stage("s", op, &[])]), &|id| {
        (id == "s").then(|| vec!["a".to_owned(), "b".to_owned()])
    })?;
    let schema = types.output("s").unwrap();
    Ok(schema
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), f.data_type()))
        .collect::<Vec<_>>()
        .join(", "))
}

#[test]
fn file_sources() {
    let regex = |pattern: &str| Format::Regex { pattern: text(pattern) };
    assert_eq!(types_of(file(Format::Lines, &[], false)).unwrap(), "line Utf8");
    assert_eq!(
        types_of(file(regex(r"^(?<client>\S+) (?<status>\d+)"), &[("status", "int")], false)).unwrap(),
        "client Utf8, status Int32"
    );
    assert_eq!(
        types_of(file(
            Format::Csv,
            &[("at", "timestamp"), ("price", "decimal(10, 2)"), ("raw", "binary")],
            false
        ))
        .unwrap(),
        "at Timestamp(ns), price Decimal128(10, 2), raw Binary"
    );
    assert_eq!(types_of(file(Format::Csv, &[], true)).unwrap(), "a Utf8, b Utf8");

    let said = |op| types_of(op).unwrap_err()[0].to_string();
    assert!(said(file(Format::Csv, &[], false)).starts_with("csv without a header needs `columns`"));
    assert!(
        said(file(Format::Jsonl, &[("a", "itn")], false)).starts_with("no type `itn`; did you mean `int`?")
    );
    assert!(said(file(regex(r"\d+"), &[], false)).starts_with("the pattern has no named group"));
    assert!(said(file(regex(r"(?<a>\d+"), &[], false)).contains("unclosed group"));
    assert!(
        said(file(regex(r"(?<client>\d+)"), &[("clent", "int")], false))
            .starts_with("the pattern has no group `clent`; did you mean `client`?")
    );
}

#[test]
fn lists_are_columns_of_json_alone() {
    let columns = [("tags", "text[]")];
    assert_eq!(types_of(file(Format::Jsonl, &columns, false)).unwrap(), "tags List(Utf8)");
    for format in [Format::Csv, Format::Regex { pattern: text("(?<tags>.*)") }] {
        let said = types_of(file(format, &columns, false)).unwrap_err()[0].to_string();
        assert!(said.contains("cannot be read as text[]") && said.contains("string_to_array"), "{said}");
    }
    let said = types_of(file(Format::Json, &[("a", "int[][]")], false)).unwrap_err()[0].to_string();
    assert!(said.starts_with("column `a`: json cannot be read as int[][]"), "{said}");
}

#[test]
fn a_sum_of_texts_says_what_to_do() {
    let faults =
        AggregateProgram::compile(language(), &[], &texts(&["sum(client)"]), &columns(), OnError::Fail);
    let said = faults.unwrap_err()[0].to_string();
    assert!(said.contains("cast(x as double)"), "{said}");
}

#[test]
fn stateful_stages_and_sorts_say_all_that_is_wrong_with_them() {
    let of = |op: Op| {
        let stages = vec![stage("lines", words_source(), &[]), stage("s", op, &["lines"])];
        let faults = resolve(&job(stages)).unwrap_err();
        faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>()
    };
    let stateful = |state: &[&str], then: &[&str], ttl: Option<u64>| Op::Stateful {
        shape: StatefulShape::Filter,
        state: texts(state),
        update: texts(&["nothing as s"]),
        then: texts(then),
        ttl: ttl.map(std::time::Duration::from_secs),
    };
    let faults = of(stateful(&["0 as s"], &["s > lin"], Some(60)));
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert_eq!(faults[2], "`ttl` counts event time, and the rows of this stage have none");
    assert!(of(stateful(&[], &[], None)).contains(&"`where` is missing".to_owned()));
    assert!(of(stateful(&["0 as s"], &["s > 1", "s > 2"], None)).len() == 2);
    assert_eq!(of(Op::Sort { by: Vec::new() }), ["`by` is missing"]);
    assert_eq!(of(Op::Sort { by: texts(&["linee desc", "nulls"]) }).len(), 2);
    assert_eq!(of(Op::RollingAggregate { compute: Vec::new() }), ["`compute` is missing"]);
}

#[test]
fn long_chains_are_compiled_and_endless_ones_refused() {
    let chain = |terms: usize| {
        let select = vec!["length(line)"; terms].join(" + ");
        job(vec![stage("s", words_source(), &[]), stage("m", map(&[&format!("{select} as n")]), &["s"])])
    };
    let casts = |n: usize| {
        let select = format!("line{}", "::text".repeat(n));
        job(vec![stage("s", words_source(), &[]), stage("m", map(&[&format!("{select} as n")]), &["s"])])
    };
    // A thread as the coordinator's: without a stack of their own these would end the process.
    for fine in [chain(300), casts(150)] {
        assert!(resolve(&fine).is_ok());
    }
    for (endless, why) in [(chain(500), "inside one another"), (chain(2000), "at most 4000")] {
        let faults = resolve(&endless).unwrap_err();
        assert!(faults[0].to_string().contains(why), "{}", faults[0]);
    }
    assert!(resolve(&casts(3000)).is_err());
}

#[test]
fn a_constant_that_takes_long_to_compute_is_refused_however_small_it_is() {
    for (expr, name) in [
        ("levenshtein(repeat('a', 20000), repeat('b', 20000))", "levenshtein"),
        ("array_has_all(range(0, 30000), range(0, 30000))", "array_has_all"),
        ("length(replace(repeat('a', 100000), 'a', 'b'))", "replace"),
        ("regexp_like(repeat('a', 30000), 'a*a*b')", "regexp_like"),
        ("repeat('a', 30000) ~ 'a*a*b'", "~"),
    ] {
        let said = said(expr);
        assert!(said.contains(&format!("the constant `{name}` takes ")), "{expr}: {said}");
    }
    for expr in [
        "levenshtein(repeat('a', 100), 'b')",
        "array_has_any(range(0, 5000), range(0, 5000))",
        "array_has(range(0, 30000), bytes)",
        "array_length(make_array(1, 2)) + bytes",
    ] {
        Projection::compile(language(), &texts(&[&format!("{expr} as x")]), &columns()).unwrap();
    }
}

#[test]
fn aggregates_that_no_accumulator_takes_are_refused() {
    let compute = texts(&["count(distinct bytes, status) as n"]);
    let faults = AggregateProgram::compile(language(), &[], &compute, &columns(), OnError::Fail).unwrap_err();
    let said = faults[0].to_string();
    assert!(
        said.starts_with("`count(distinct bytes, status) as n`: ") && said.contains("multiple"),
        "{said}"
    );
}

#[test]
fn constants_that_overflow_are_refused_and_others_have_their_value() {
    for expr in [
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "9223372036854775807 * 2 + bytes",
        "cast(2147483647 as int) + cast(1 as int)",
        "-(-9223372036854775807 - 1)",
        "bytes + cast(9223372036854775807 + length('ab') as bigint)",
        "case when bytes > 9223372036854775807 + 1 then 1 else 2 end",
        "coalesce(bytes, 1 + (3037000500 * 3037000500))",
    ] {
        let said = said(expr);
        assert!(said.to_lowercase().contains("overflow"), "{expr}: {said}");
    }
    let schema = columns();
    for compute in
        ["sum(bytes + 9223372036854775807 * 2) as s", "sum(bytes) + (9223372036854775807 + 1) as s"]
    {
        let faults = AggregateProgram::compile(language(), &[], &texts(&[compute]), &schema, OnError::Fail);
        let said = faults.unwrap_err()[0].to_string();
        assert!(said.to_lowercase().contains("overflow"), "{compute}: {said}");
    }
    let row = batch(vec![("x", integers(&[7]))]);
    let fine = [
        "9223372036854775806 + 1 as a",
        "-(-5) * 2 - 3 + x as b",
        "1.5 * 2 as c",
        "-9223372036854775807 - 1 as d",
    ];
    let given = Projection::compile(language(), &texts(&fine), &row.schema()).unwrap();
    let given = given.eval(&row).unwrap();
    assert_eq!(rows(&given), ["9223372036854775807 14 3.0 -9223372036854775808"]);
}

#[test]
fn a_constant_that_would_fill_the_memory_is_refused_before_it_is_computed() {
    for (expr, size) in [
        ("range(0, 150000000)", "150000001"),
        ("generate_series(0, 1000 * 1000 * 1000, 2)", "500000001"),
        (
            "generate_series(timestamp '2020-01-01', timestamp '2021-01-01', interval '1 millisecond')",
            "31622400001",
        ),
        ("repeat(repeat('ab', 1000), 1000000)", "2000000000"),
        ("length(lpad('a', 2000000000))", "2000000000"),
        ("array_repeat(1, 99000000)", "99000000"),
    ] {
        let said = said(expr);
        assert!(said.contains(&format!("would have {size} values or characters")), "{expr}: {said}");
    }
    let fine = [
        "range(0, 1000) as a",
        "repeat('ab', 10) as b",
        "repeat(client, 2000000000) as c",
        "range(1, bytes) as d",
    ];
    Projection::compile(language(), &texts(&fine), &columns()).unwrap();
}
