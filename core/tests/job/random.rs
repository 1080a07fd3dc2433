//! Whatever the text, parsing ends, and every fault has a place within it.

use proptest::prelude::*;
use tuplane_core::job::{self, FileFormat, Job};

const TOML: &str = include_str!("random.toml");

fn places_are_within(text: &str, format: FileFormat) -> Result<(), TestCaseError> {
    match Job::parse(text, format) {
        Ok(job) => prop_assert_eq!(job.check(), vec![]),
        Err(faults) => {
            prop_assert!(!faults.is_empty());
            for fault in faults {
                let (start, len) = (fault.at.offset as usize, fault.at.len as usize);
                prop_assert!(text.get(start..start + len).is_some(), "{:?}", fault);
                let before = &text[..start];
                let line = before.matches('\n').count() + 1;
                let from = before.rfind('\n').map_or(0, |end| end + 1);
                let column = before[from..]
                    .strip_prefix('\u{feff}')
                    .filter(|_| from == 0)
                    .unwrap_or(&before[from..])
                    .chars()
                    .count()
                    + 1;
                prop_assert_eq!(
                    (line, column),
                    (fault.at.line as usize, fault.at.column as usize),
                    "{:?}",
                    fault
                );
                prop_assert!(!fault.message.ends_with('.'), "{:?}", fault);
            }
        }
    }
    Ok(())
}

/// A good file as JSON, so that both formats are cut and spliced.
fn as_json(text: &str) -> String {
    let value: toml::Value = toml::from_str(text).expect("random.toml is TOML");
    serde_json::to_string_pretty(&value).expect("and JSON can say it")
}

/// The words that mean something, to be put anywhere.
fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,3}".prop_map(|word| word),
        prop::sample::select(vec![
            "id",
            "op",
            "in",
            "key",
            "window",
            "source",
            "sink",
            "merge",
            "path",
            "ms",
            "0",
            "-1",
            "1e999",
            "99999999999999999999",
            "true",
            "null",
            "\"",
            "'''",
            "{",
            "}",
            "[",
            "]",
            ",",
            "=",
            ":",
            ".",
            "\n",
            "é",
            "\u{feff}",
            "\u{0}",
            "\r\n",
            "[[stage]]",
            "5ms",
            "nan",
            "1979-05-27T07:32:00Z",
            "#",
            "//",
        ])
        .prop_map(str::to_owned),
    ]
}

fn splice(text: &str, edits: &[(prop::sample::Index, usize, String)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (index, remove, insert) in edits {
        let at = index.index(chars.len() + 1);
        let end = (at + remove).min(chars.len());
        chars.splice(at..end, insert.chars());
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        places_are_within(&text, FileFormat::Toml)?;
        places_are_within(&text, FileFormat::Json)?;
        let _ = job::cases(&text);
    }

    #[test]
    fn any_tokens(tokens in prop::collection::vec(token(), 0..60)) {
        let text = tokens.concat();
        places_are_within(&text, FileFormat::Toml)?;
        places_are_within(&text, FileFormat::Json)?;
    }

    #[test]
    fn a_good_file_cut_and_spliced(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, token()), 0..6)
    ) {
        places_are_within(&splice(TOML, &edits), FileFormat::Toml)?;
        let json = splice(&as_json(TOML), &edits);
        places_are_within(&json, FileFormat::Json)?;
        let _ = job::cases(&format!("[{{\"pipeline\": {json}}}]"));
    }

    #[test]
    fn any_override(
        target in prop_oneof![Just("lines".to_owned()), Just("job".to_owned()), token()],
        option in prop::collection::vec(token(), 0..3),
        value in prop::collection::vec(token(), 0..4),
    ) {
        let target = format!("{target}.{}", option.join("."));
        let sets = [(target, value.concat())];
        if let Err(faults) = Job::parse_with(TOML, FileFormat::Toml, &sets) {
            for fault in faults {
                prop_assert_eq!(fault.at.line == 0, fault.message.starts_with("--set "), "{:?}", fault);
            }
        }
    }

    #[test]
    fn any_graph_is_judged(inputs in prop::collection::vec(prop::collection::vec(0usize..12, 0..3), 1..12)) {
        let count = inputs.len();
        let stages: Vec<String> = inputs
            .iter()
            .enumerate()
            .map(|(index, inputs)| {
                let ids: Vec<String> = inputs.iter().map(|input| format!("\"s{input}\"")).collect();
                format!("{{ id = \"s{}\", op = \"merge\", in = [\"s0\", {}] }}", index + 1, ids.join(", "))
            })
            .collect();
        let text = format!("stage = [{{ id = \"s0\", op = \"source\" }},\n{}]", stages.join(",\n"));
        places_are_within(&text, FileFormat::Toml)?;
        let backward = inputs.iter().enumerate().all(|(index, inputs)| inputs.iter().all(|input| *input <= index));
        let enough = inputs.iter().all(|inputs| !inputs.is_empty());
        let known = inputs.iter().flatten().all(|input| *input <= count);
        prop_assert_eq!(Job::parse(&text, FileFormat::Toml).is_ok(), backward && enough && known);
    }
}

#[test]
fn the_good_file_is_good() {
    assert!(Job::parse(TOML, FileFormat::Toml).is_ok());
    assert!(Job::parse(&as_json(TOML), FileFormat::Json).is_ok());
}
