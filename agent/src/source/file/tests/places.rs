//! Rows that carry the place where they entered.

use tuplane_core::place::{Numbering, RowPlace, SourcePlaces, words};
use tuplane_expr::arrow::array::UInt64Array;
use tuplane_expr::arrow::datatypes::UInt64Type;
use tuplane_expr::system::Places;

use super::super::lines::Counted;
use super::super::lines_before;
use super::*;

/// Texts of a column, each with the words for its row's place. The file's path is cut to its name.
fn placed(
    file: &job::Source,
    schema: &SchemaRef,
    splits: &[Split],
    column: &str,
    max: usize,
) -> Vec<(String, String)> {
    let numbering = Numbering::Agent { agent: 1, agents: 3 };
    let context = SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: Arc::clone(schema),
        places: Some(SourcePlaces { source: 2, numbering }),
        ahead: None,
    };
    let mut made = make(file, context).unwrap();
    let (mut left, mut rows) = (splits.iter().cloned(), Vec::new());
    loop {
        match made.poll(max).unwrap() {
            Polled::Rows(batch) => {
                let texts = batch.column_by_name(column).unwrap().as_string::<i32>();
                let at: &UInt64Array = batch.column_by_name("_at").unwrap().as_primitive::<UInt64Type>();
                assert_eq!(batch.schema().fields().last().unwrap().name(), "_at");
                assert_eq!(at.len(), texts.len());
                let places = Places::of(&batch);
                for row in 0..batch.num_rows() {
                    let place = places.of_row(row).unwrap();
                    assert_eq!(place.source(), 2);
                    let (agent, number) = tuplane_core::place::owner(place.split(), 3);
                    assert_eq!(agent, 1);
                    let split = splits.iter().find(|split| split.number == number).unwrap();
                    let found = words(split, place.line(), |split| lines_before(split, Path::new("")));
                    let file = found.rsplit('/').next().unwrap().to_owned();
                    rows.push((texts.value(row).to_owned(), file));
                }
            }
            Polled::Wait(_) => {}
            Polled::NeedSplit => made.split(left.next()).unwrap(),
            Polled::End => return rows,
        }
    }
}

fn of_text(file: FileSource, schema: &SchemaRef, text: &str, column: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, text).unwrap();
    let all = placed(&source(file.clone()), schema, &[whole(&path)], column, 100);
    for max in 1..5 {
        assert_eq!(placed(&source(file.clone()), schema, &[whole(&path)], column, max), all, "{max} at once");
    }
    all
}

fn pairs(rows: &[(&str, u64)]) -> Vec<(String, String)> {
    rows.iter().map(|(text, line)| ((*text).to_owned(), format!("in.txt, line {line}"))).collect()
}

#[test]
fn a_record_has_the_line_where_it_begins() {
    let file = FileSource { header: true, ..options(Format::Csv) };
    let text = "a,b\r\n\"x\r\ny\r\n\",1\r\n\r\nz,\"2\r\n3\"\r\nbad\r\nlast,4\r\n";
    assert_eq!(of_text(file, &texts(&["b"]), text, "b"), pairs(&[("1", 2), ("2\r\n3", 6), ("4", 9)]));
}

#[test]
fn a_row_keeps_its_line_where_others_are_left_out() {
    let columns = schema(&[("t", DataType::Utf8), ("n", DataType::Int32)]);
    let text = "{\"t\":\"a\",\"n\":1}\n\n{\"t\":\"b\",\"n\":99999999999}\nnot json\n{\"t\":\"c\",\"n\":3}\n";
    assert_eq!(of_text(options(Format::Jsonl), &columns, text, "t"), pairs(&[("a", 1), ("c", 5)]));
    let words = of_text(options(regex(r"^(?<w>\w+)$")), &texts(&["w"]), "\u{feff}one\n-\ntwo\n", "w");
    assert_eq!(words, pairs(&[("one", 1), ("two", 3)]));
    let document = of_text(options(Format::Json), &texts(&["t"]), "[{\"t\":\"a\"},\n{\"t\":\"b\"}]", "t");
    assert_eq!(document, pairs(&[("a", 1), ("b", 1)]));
}

proptest! {
    /// Wherever a file is cut, a line's place is its number in the whole file.
    #[test]
    fn any_cut_gives_the_same_places(
        lines in prop::collection::vec("[ab\r]{0,9}", 1..14),
        marked in any::<bool>(),
        size in 1_u64..30,
        max in 1_usize..5,
    ) {
        let mut text = if marked { "\u{feff}".to_owned() } else { String::new() };
        for (n, line) in lines.iter().enumerate() {
            text.push_str(&format!("{n}{line}\n"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.txt");
        fs::write(&path, &text).unwrap();
        let splits = cut(&path, size);
        let rows = placed(&source(options(Format::Lines)), &texts(&["line"]), &splits, "line", max);
        let number = |text: &str| text.trim_end_matches(['a', 'b', '\r']).parse::<u64>().unwrap();
        prop_assert_eq!(rows.len(), lines.len());
        for (text, place) in rows {
            prop_assert_eq!(place, format!("in.txt, line {}", number(&text) + 1));
        }
    }
}

#[test]
fn lines_before_a_split_far_into_a_file_are_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, "a\nb\n").unwrap();
    let far = Split { start: 2 << 30, ..whole(&path) };
    assert_eq!(lines_before(&far, Path::new("")), None);
    assert_eq!(lines_before(&Split { start: 2, ..whole(&path) }, Path::new("")), Some(1));
    let gone = Split { start: 2, ..whole(&folder.path().join("gone")) };
    assert_eq!(lines_before(&gone, Path::new("")), None);
}

#[test]
fn a_split_whose_number_is_too_large_gives_rows_without_places() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.txt");
    fs::write(&path, "a\n").unwrap();
    let context = SourceContext {
        stage: "in".to_owned(),
        instance_number: 0,
        instances: 1,
        handed: false,
        folder: PathBuf::new(),
        schema: texts(&["line"]),
        places: Some(SourcePlaces { source: 0, numbering: Numbering::Cluster }),
        ahead: None,
    };
    let mut made = make(&source(options(Format::Lines)), context).unwrap();
    made.split(Some(Split { number: 1 << 20, ..whole(&path) })).unwrap();
    let Polled::Rows(batch) = made.poll(10).unwrap() else { panic!("there is a row") };
    assert_eq!((batch.num_rows(), Places::of(&batch).of_row(0)), (1, None::<RowPlace>));
}

#[test]
fn a_bad_line_in_every_split_does_not_read_the_file_again_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.jsonl");
    let text: String =
        (0..3000).map(|n| if n % 10 == 7 { "bad\n".into() } else { format!("{{\"n\":{n}}}\n") }).collect();
    fs::write(&path, &text).unwrap();
    let (splits, columns) = (cut(&path, 200), schema(&[("n", DataType::Int64)]));
    assert!(splits.len() > 100);
    let outcome = run(&source(options(Format::Jsonl)), &columns, splits.clone(), 100).unwrap();
    assert_eq!((outcome.rows.num_rows(), outcome.rejected.total()), (2700, 300));
    assert!(outcome.rejected.first.unwrap().contains("in.jsonl:8:"));
    assert!(outcome.rejected.last.unwrap().contains("in.jsonl:2998:"));

    let mut counted = Counted::default();
    let starts: Vec<u64> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at as u64 + 1)).collect();
    for (lines, start) in starts.iter().enumerate() {
        assert_eq!(counted.before(&path, *start).unwrap(), Some(lines as u64));
    }
    assert_eq!(counted.read, text.len() as u64);
    // Back in the file, it is counted from its beginning; far in it, it is not.
    assert_eq!(counted.before(&path, starts[5]).unwrap(), Some(5));
    assert_eq!(counted.before(&path, 2 << 30).unwrap(), None);
}
