//! Service calls: what rows ask, and what they become with their answers.

use std::sync::Arc;

use tuplane_core::job::{Calls, HttpCall, HttpMethod, OnError, StatefulShape, UsingService};
use tuplane_expr::arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use tuplane_expr::arrow::datatypes::{DataType, SchemaRef};
use tuplane_expr::system::{Places, SystemColumn, SystemColumns, with_system};
use tuplane_expr::{Advanced, ServiceProgram, answer_columns};

use crate::prelude::*;

#[expect(clippy::default_trait_access, reason = "the type of `with` is no dependency here")]
fn using(shape: StatefulShape, url: &str, body: Option<&str>, then: &[&str]) -> UsingService {
    let http = HttpCall {
        url: Some(text(url)),
        method: HttpMethod::Post,
        body: body.map(text),
        headers: vec![(text("url"), text("k")), (text("secret"), text("env:S"))],
    };
    UsingService {
        shape,
        asynchronous: false,
        batched: false,
        service: Some(text("http")),
        with: Default::default(),
        http: Some(http),
        args: Vec::new(),
        then: texts(then),
        calls: Calls::default(),
        cooperative: true,
        preferred_parallelism: None,
    }
}

fn compiled(
    using: UsingService,
    input: &SchemaRef,
    system: SystemColumns,
    on_error: OnError,
) -> Result<ServiceProgram, String> {
    let stage = stage("c", tuplane_core::job::Op::UsingService(using.clone()), &["s"]);
    ServiceProgram::compile(language(), &stage, &using, (input, &answer_columns()), system, on_error)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn answers(responses: &[Option<&str>], status: &[i64]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![strings(responses.iter().copied()), integers(status)];
    RecordBatch::try_new(answer_columns(), columns).unwrap()
}

fn made(advanced: Advanced) -> Vec<String> {
    match advanced {
        Advanced::Rows(made) => rows(&made),
        Advanced::Unnest(mut state) => {
            std::iter::from_fn(|| state.next(2, 1 << 20)).flat_map(|made| rows(&made.unwrap())).collect()
        }
    }
}

fn input() -> RecordBatch {
    batch(vec![("k", some_strings(&["a", "b", "c"])), ("x", some_strings(&["1", "no", "3"]))])
}

#[test]
fn rows_ask_and_become_something_with_the_answer() {
    let input = input();
    let answers = answers(&[Some("p,q"), None, Some("")], &[200, 404, 500]);
    for (shape, then, wanted) in [
        (
            StatefulShape::Map,
            vec!["*", "response as r", "status / 100 as s"],
            vec!["a 1 p,q 2", "b no - 4", "c 3  5"],
        ),
        (StatefulShape::Filter, vec!["status < 500"], vec!["a 1", "b no"]),
        (StatefulShape::FlatMap, vec!["string_to_array(response, ',') as r"], vec!["a 1 p", "a 1 q"]),
    ] {
        let using = using(shape, "'http://h/' || k", Some("x"), &then);
        let program = compiled(using, &input.schema(), SystemColumns::NONE, OnError::Fail).unwrap();
        let asked = program.ask(input.clone()).unwrap();
        assert_eq!(
            rows(&asked.question),
            ["http://h/a 1 a", "http://h/b no b", "http://h/c 3 c"],
            "no secret is asked with"
        );
        let answered = program.answer(&asked.rows, &answers).unwrap();
        assert_eq!(made(answered.made), wanted, "{shape:?}");
    }
}

#[test]
fn what_a_row_cannot_ask_goes_by_on_error() {
    let input = input();
    let using =
        || using(StatefulShape::Map, "k", Some("cast(x as int)"), &["k", "cast(response as int) as n"]);
    let program = |on_error| compiled(using(), &input.schema(), SystemColumns::NONE, on_error).unwrap();
    let error = program(OnError::Fail).ask(input.clone()).unwrap_err();
    assert_eq!(error.row, Some(1), "{error:?}");
    let asked = program(OnError::Drop).ask(input.clone()).unwrap();
    assert_eq!((rows(&asked.rows), asked.dropped.len()), (vec!["a 1".to_owned(), "c 3".to_owned()], 1));
    let answered =
        program(OnError::Drop).answer(&asked.rows, &answers(&[Some("7"), Some("x")], &[200, 200])).unwrap();
    assert_eq!((answered.dropped.len(), answered.last.as_ref().map(|last| last.row)), (1, Some(1)));
    assert_eq!(made(answered.made), ["a 7"]);
    let asked = program(OnError::Null).ask(input.clone()).unwrap();
    assert_eq!(rows(&asked.question), ["a 1 a", "b - b", "c 3 c"]);
    let answered = program(OnError::Null)
        .answer(&asked.rows, &answers(&[Some("x"), None, None], &[200, 200, 200]))
        .unwrap();
    assert_eq!(made(answered.made), ["a -", "b -", "c -"]);
}

#[test]
fn where_a_row_entered_is_known_while_it_waits_and_goes_on_if_it_is_needed() {
    let own = input();
    let at = SystemColumns::only(SystemColumn::At);
    let at_column: ArrayRef = Arc::new(UInt64Array::from(vec![5, 6, 7]));
    let columns = own.columns().iter().cloned().chain([at_column]).collect();
    let input = RecordBatch::try_new(with_system(&own.schema(), at), columns).unwrap();
    for system in [SystemColumns::NONE, at] {
        let using = using(StatefulShape::Filter, "k", None, &["status = 200"]);
        let program = compiled(using, &own.schema(), system, OnError::Fail).unwrap();
        let asked = program.ask(input.clone()).unwrap();
        assert!(Places::of(&asked.rows).of_row(2).is_some());
        let answered = program.answer(&asked.rows, &answers(&[None; 3], &[200, 0, 200])).unwrap();
        let wanted = if system.is_empty() { ["a 1", "c 3"] } else { ["a 1 5", "c 3 7"] };
        assert_eq!(made(answered.made), wanted);
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let input = schema(&[("k", DataType::Utf8), ("n", DataType::Int64)]);
    let told = |using: UsingService| compiled(using, &input, SystemColumns::NONE, OnError::Fail).unwrap_err();
    for (url, then, said) in [
        ("n", "*", "`url` needs text, and `n` is bigint"),
        ("https://h/", "*", "a constant stands in single quotes"),
        ("k || nope", "*", "nope"),
        ("k", "response + nope as x", "nope"),
        ("k", "*", ""),
    ] {
        let using = using(StatefulShape::Map, url, None, &[then]);
        if said.is_empty() {
            assert!(compiled(using, &input, SystemColumns::NONE, OnError::Fail).is_ok());
        } else {
            let told = told(using);
            assert!(told.contains(said), "{url} {then}: {told}");
        }
    }
    let taken = schema(&[("k", DataType::Utf8), ("status", DataType::Utf8), ("response", DataType::Utf8)]);
    let using = using(StatefulShape::Map, "k", None, &["*"]);
    let told = compiled(using, &taken, SystemColumns::NONE, OnError::Fail).unwrap_err();
    assert!(told.contains("`status`") && told.contains("`response`"), "{told}");
}
