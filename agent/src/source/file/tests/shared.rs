//! Files of the shared test data.

use super::*;

#[test]
fn csv_spectrum() {
    let Some(folder) = data("csv-spectrum/csvs") else { return };
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let stored = entry.unwrap().path();
        let mut text = fs::read_to_string(&stored).unwrap();
        if stored.display().to_string().ends_with("_crlf.csv") && !text.contains('\r') {
            // A checkout turned the line ends, which are the point of these files, into plain ones.
            text = text.replace('\n', "\r\n");
        }
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join(stored.file_name().unwrap());
        fs::write(&path, text).unwrap();
        let names = csv_header(&path, ',').unwrap();
        let columns = texts(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let file = FileSource { header: true, ..options(Format::Csv) };
        let outcome = run(&source(file), &columns, vec![whole(&path)], 100).unwrap();
        assert_eq!(outcome.rejected, Rejected::default(), "{}", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap();
        let answer = fs::read_to_string(folder.join(format!("../json/{name}.json"))).unwrap();
        let answer = match serde_json::from_str(&answer).unwrap() {
            serde_json::Value::Array(rows) => rows,
            row => vec![row],
        };
        assert_eq!(outcome.rows.num_rows(), answer.len(), "{name}");
        for (row, answer) in answer.iter().enumerate() {
            for column in &names {
                if (name, column.as_str()) == ("location_coordinates", "Contact Phone Number") {
                    // The collection's own answer is another number than its csv file's.
                    assert_eq!(outcome.column(column)[row].as_deref(), Some("2095257564"));
                    continue;
                }
                assert_eq!(
                    outcome.column(column)[row].as_deref(),
                    answer[column].as_str(),
                    "{name} {column} {row}"
                );
            }
        }
        files += 1;
    }
    assert_eq!(files, 12);
}

#[test]
fn json_testsuite() {
    let Some(folder) = data("json-testsuite/test_parsing") else { return };
    let columns = schema(&[("no such member", DataType::Utf8)]);
    let (mut good, mut bad) = (0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        if name.starts_with("i_") || lines != 1 {
            continue;
        }
        let outcome = run(&source(options(Format::Jsonl)), &columns, vec![whole(&path)], 10).unwrap();
        if name.starts_with("y_") {
            let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let is_row = value.is_object();
            assert_eq!(outcome.rows.num_rows(), usize::from(is_row), "{name}: {}", outcome.last());
            assert!(
                is_row || outcome.last().contains("where an object is expected"),
                "{name}: {}",
                outcome.last()
            );
            good += 1;
        } else {
            bad += 1;
            assert_eq!(outcome.rows.num_rows(), 0, "{name}");
            if bytes == "\u{feff}".as_bytes() {
                // As a document it is wrong; as JSON lines it is a file without a line.
                continue;
            }
            assert_eq!(outcome.rejected.total(), 1, "{name}");
            let last = outcome.last();
            assert!(last.contains("not JSON") || last.contains("not UTF-8"), "{name}: {last}");
        }
    }
    assert_eq!((good, bad), (93, 183));
}

#[test]
fn state_union_has_the_same_words_in_any_cut() {
    let Some(folder) = data("text-state-union") else { return };
    let file = FileSource { encoding: Encoding::Lossy, ..options(Format::Lines) };
    let paths = vec![Spanned::nowhere(folder.join("*.txt").display().to_string())];
    let files: Vec<Split> =
        splits(&FileSource { paths, split: Some(job::Split::File), ..file.clone() }, &folder, 1).unwrap();
    assert_eq!(files.len(), 65);
    for size in [997, 65_536, u64::MAX] {
        let splits = files.iter().flat_map(|split| cut(Path::new(&split.path), size)).collect();
        let outcome = run(&source(file.clone()), &texts(&["line"]), splits, 8192).unwrap();
        let words: usize = outcome.lines().iter().map(|line| line.split_ascii_whitespace().count()).sum();
        assert_eq!((outcome.rows.num_rows(), words), (7288, 349_711), "size {size}");
    }
}

#[test]
fn apache_log_by_regex() {
    let Some(path) = data("logs-apache-access/apache_logs") else { return };
    let pattern = r#"^(?<client>\S+) \S+ \S+ \[(?<at>[^\]]+)\] "(?<request>[^"]*)" (?<status>\d+) "#;
    let columns = schema(&[("client", DataType::Utf8), ("status", DataType::Int64)]);
    let outcome = run(&source(options(regex(pattern))), &columns, cut(&path, 100_000), 1000).unwrap();
    assert_eq!(outcome.rows.num_rows() as u64 + outcome.rejected.total(), 10_000);
    let clients: std::collections::BTreeSet<_> = outcome.column("client").into_iter().collect();
    let not_found =
        outcome.rows.column(1).as_primitive::<Int64Type>().values().iter().filter(|s| **s == 404).count();
    assert_eq!((outcome.rejected.total(), clients.len(), not_found), (0, 1753, 213));
}

#[test]
fn airports_by_csv() {
    let Some(path) = data("csv-openflights/airports.dat") else { return };
    let names: Vec<String> = (0..14).map(|place| format!("f{place}")).collect();
    let columns = texts(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let outcome = run(&source(options(Format::Csv)), &columns, vec![whole(&path)], 8192).unwrap();
    let empty = (0..14)
        .flat_map(|place| outcome.column(&names[place]))
        .filter(|f| f.as_deref() == Some("\\N"))
        .count();
    assert_eq!((outcome.rows.num_rows(), outcome.rejected.total(), empty), (7698, 0, 3354));
    let states = outcome.column("f3").iter().filter(|f| f.as_deref() == Some("United States")).count();
    assert_eq!(states, 1512);
}
