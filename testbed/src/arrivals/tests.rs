//! Tests of the trace reader, on files made here and on the real ones beside the checkout.

use proptest::prelude::*;

use super::*;
use crate::skip::shared;

fn parse(text: &str, format: &Format) -> Result<Series, String> {
    Series::parse(text.as_bytes(), Path::new("t.csv"), format).map_err(|error| error.to_string())
}

fn named(count: &str) -> Format {
    Format { count: Some(Column::Name(count.into())), ..Format::default() }
}

#[test]
fn columns_go_by_name_by_place_or_are_the_last() {
    let text = "\"ds\",\"n, in\",other\n\"2008-01-30\",\"5\",1\n2008-01-16,6.0,2\n";
    assert_eq!(parse(text, &named("n, in")).unwrap().values(), [5.0, 6.0]);
    assert_eq!(parse(text, &Format::default()).unwrap().values(), [1.0, 2.0]);
    let second = Format { count: Some(Column::Place(2)), ..Format::default() };
    assert_eq!(parse(text, &second).unwrap().values(), [5.0, 6.0]);
    let bare = Format { header: false, delimiter: ';', ..Format::default() };
    assert_eq!(parse("a;3\nb;4\n", &bare).unwrap().values(), [3.0, 4.0]);
}

#[test]
fn a_format_that_does_not_fit_is_refused_with_what_there_is() {
    let text = "time,count\n1,2\n";
    assert_eq!(
        parse(text, &named("cuont")).unwrap_err(),
        "t.csv: no column is called `cuont`; there are: time, count; did you mean `count`?"
    );
    let third = Format { count: Some(Column::Place(3)), ..Format::default() };
    assert_eq!(parse(text, &third).unwrap_err(), "t.csv: it has no column 3: there are 2, counted from 1");
    let zeroth = Format { count: Some(Column::Place(0)), ..Format::default() };
    assert!(parse(text, &zeroth).unwrap_err().contains("no column 0"));
    let bare = Format { header: false, ..named("count") };
    assert!(parse(text, &bare).unwrap_err().contains("without a header"));
    assert_eq!(parse("", &Format::default()).unwrap_err(), "t.csv: it is empty");
    assert_eq!(parse("time,count\n", &Format::default()).unwrap_err(), "t.csv: it has no line of counts");
    let both = Format { exp: true, rates: true, ..Format::default() };
    assert!(parse(text, &both).unwrap_err().contains("exclude each other"));
    let missing = Series::read(Path::new("/nowhere/t.csv"), &Format::default()).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read /nowhere/t.csv: "), "{missing}");
}

#[test]
fn a_line_without_a_count_is_named() {
    for (text, fault) in [
        ("n\n1\nx\n", "t.csv:3: `x` is not a number of arrivals"),
        ("n\n1\nnan\n", "t.csv:3: `nan` is not a number of arrivals"),
        ("n\n-1\n", "t.csv:2: `-1` gives -1 arrivals, which is not between 0 and 9007199254740992"),
        ("n\n1\n\n2\n2.5\n", "t.csv:5: `2.5` is not a whole number"),
        ("t,n\n1,1\n2\n", "t.csv:3: CSV error: record 2 (line: 3, byte: 8): found record with 1 fields"),
    ] {
        let said = parse(text, &Format::default()).unwrap_err();
        assert!(said.starts_with(fault), "{said}");
    }
}

#[test]
fn logarithms_and_rates_are_taken_only_where_they_are_said() {
    let text = format!("n\n{}\n{}\n", 17f64.ln(), 2_000_003f64.ln());
    assert!(parse(&text, &Format::default()).unwrap_err().contains("say `exp = true`"));
    let exp = Format { exp: true, ..Format::default() };
    assert_eq!(parse(&text, &exp).unwrap().values(), [17.0, 2_000_003.0]);
    assert!(parse("n\n800\n", &exp).unwrap_err().contains("is not between"));
    let rates = Format { rates: true, ..Format::default() };
    assert_eq!(parse("n\n2.5\n", &rates).unwrap().values(), [2.5]);
}

#[test]
fn times_are_checked_where_a_column_is_named() {
    let timed = Format { time: Some(Column::Place(1)), ..Format::default() };
    assert!(
        parse("t,n\n9,1\n10,2\n10,3\n", &timed).is_ok(),
        "numbers go by value, and equal times are in order"
    );
    assert!(parse("t,n\n2008-01-30,1\n2008-01-31,2\n", &timed).is_ok());
    let said = parse("t,n\n2008-01-30,1\n2008-01-16,2\n", &timed).unwrap_err();
    assert!(
        said.starts_with("t.csv:3: the time `2008-01-16` comes after `2008-01-30`: sort the file"),
        "{said}"
    );
}

#[test]
fn a_format_is_read_from_toml() {
    let format: Format = toml::from_str("count = \"value\"\ntime = 1\nrates = true").unwrap();
    assert_eq!(format, Format { time: Some(Column::Place(1)), rates: true, ..named("value") });
    assert!(
        toml::from_str::<Format>("cuont = 1").unwrap_err().to_string().contains("expected one of `count`")
    );
}

#[test]
fn parts_and_scales_that_cannot_be_are_refused() {
    let series = parse("n\n1\n2\n3\n", &Format::default()).unwrap();
    assert_eq!(series.part(1, None).unwrap().values(), [2.0, 3.0]);
    assert_eq!(series.part(0, Some(2)).unwrap().values(), [1.0, 2.0]);
    for (from, slots) in [(3, None), (0, Some(0)), (usize::MAX, Some(1)), (1, Some(3))] {
        assert!(series.part(from, slots).is_err(), "{from} {slots:?}");
    }
    for scale in [Scale::Factor(0.0), Scale::Factor(-1.0), Scale::Mean(f64::NAN), Scale::Factor(1e16)] {
        assert!(series.rows(scale, 1).is_err(), "{scale:?}");
    }
    let zeros = parse("n\n0\n0\n", &Format::default()).unwrap();
    assert!(zeros.rows(Scale::Mean(4.0), 1).is_err());
    assert_eq!(zeros.rows(Scale::AsItIs, 1).unwrap(), [0, 0]);
}

#[test]
fn the_real_traces_are_read() {
    let test = "the_real_traces_are_read";
    let Some(data) = shared(test, "data") else { return };
    let read = |file: &str, format: &Format| Series::read(&data.join(file), format);
    let cup = Format { time: Some(Column::Name("period".into())), ..named("count") };
    let cup = read("arrivals-worldcup98/invocation_count.csv", &cup).unwrap();
    assert_eq!(cup.values().len(), 125_300);
    let rows = cup.rows(Scale::AsItIs, 1).unwrap();
    assert_eq!(rows.iter().max(), Some(&229_426));
    // Not in the order of time, quoted, and logarithms.
    let wiki = "arrivals-wikipedia/example_wp_log_R.csv";
    assert!(read(wiki, &Format::default()).unwrap_err().to_string().contains("exp = true"));
    let mut format = Format { exp: true, ..named("y") };
    assert_eq!(read(wiki, &format).unwrap().values()[..1], [394.0]);
    format.time = Some(Column::Name("ds".into()));
    assert!(read(wiki, &format).unwrap_err().to_string().contains("sort the file"));
    assert!(
        read("arrivals-nab/art_daily_small_noise.csv", &named("value"))
            .unwrap_err()
            .to_string()
            .contains("rates")
    );
    let load = read("arrivals-nab/elb_request_count_8c0756.csv", &named("value")).unwrap();
    assert_eq!(load.values()[..3], [94.0, 56.0, 187.0]);
}

proptest! {
    #[test]
    fn a_scaled_series_keeps_its_shape_and_its_mean(counts in prop::collection::vec(0u32..1000, 1..200), mean in 0.01..50.0, seed: u64) {
        let text: String = std::iter::once("n".to_owned()).chain(counts.iter().map(ToString::to_string)).collect::<Vec<_>>().join("\n");
        let series = parse(&text, &Format::default()).unwrap();
        prop_assert_eq!(series.rows(Scale::AsItIs, seed).unwrap(), counts.iter().map(|n| u64::from(*n)).collect::<Vec<_>>());
        prop_assume!(series.mean() > 0.0);
        let factor = mean / series.mean();
        let rows = series.rows(Scale::Mean(mean), seed).unwrap();
        for (rows, count) in rows.iter().zip(&counts) {
            prop_assert!((*rows as f64 - f64::from(*count) * factor).abs() < 1.0 + 1e-9);
        }
        prop_assert_eq!(&rows, &series.rows(Scale::Factor(factor), seed).unwrap());
    }
}
