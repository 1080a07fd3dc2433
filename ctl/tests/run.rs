//! One whole run on agents of its own; the rest of what agents do is tested where they live.

use std::path::Path;

use serde_json::Value;

use super::cli::{ran, tuplane};

/// The agent beside the binary under test; it is built by `make test` and by every whole build.
fn agent_is_there() -> bool {
    let there = assert_cmd::cargo::cargo_bin("tuplane").with_file_name("tuplane-agent").is_file();
    if !there {
        tuplane_testbed::skip::skip(
            "words_of_a_file_and_of_standard_input",
            "tuplane-agent beside the command",
        );
    }
    there
}

#[test]
fn words_of_a_file_and_of_standard_input_are_counted() {
    if !agent_is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let job = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/jobs/wordcount.toml");
    let text = dir.path().join("text");
    std::fs::write(&text, "the cat and THE dog\nand the end").unwrap();

    let counted = ran(tuplane(&dir).current_dir(dir.path()).arg("run").arg(&job).args([
        "--agents",
        "2",
        "--set",
        "lines.path=text",
        "--set",
        "out.path=result",
        "-o",
        "json",
    ]));
    assert_eq!(counted.code, Some(0), "{}{}", counted.out, counted.err);
    let document: Value = serde_json::from_str(&counted.out).unwrap();
    assert_eq!((&document["schema"], &document["result_rows"]), (&"tuplane/run/1".into(), &5.into()));
    let mut rows: Vec<String> = Vec::new();
    for file in document["files"].as_array().unwrap() {
        let text = std::fs::read_to_string(file["path"].as_str().unwrap()).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("word,count"));
        rows.extend(lines.map(str::to_owned));
    }
    rows.sort();
    assert_eq!(rows, ["and,2", "cat,1", "dog,1", "end,1", "the,3"]);
    for edge in document["edges"].as_array().unwrap() {
        assert_eq!(edge["emitted"], edge["taken"], "{edge}");
    }

    let mut piped = tuplane(&dir);
    piped
        .arg("run")
        .arg(&job)
        .args([
            "--agents",
            "1",
            "--set",
            "lines.path=-",
            "--set",
            "out.connector=stdout",
            "--set",
            "out.path=",
        ])
        .stdin(std::fs::File::open(&text).unwrap());
    let refused = ran(&mut piped);
    assert_eq!(refused.code, Some(2), "a stdout sink has no path: {}", refused.err);

    let again = ran(tuplane(&dir)
        .arg("run")
        .arg(&job)
        .args(["--agents", "1", "--set", "lines.path=-", "--set"])
        .arg(format!("out.path={}", dir.path().join("other").display()))
        .stdin(std::fs::File::open(&text).unwrap()));
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert!(again.out.contains("result: 5 rows"), "{}", again.out);
    assert!(again.out.contains("at most once"), "{}", again.out);
    let left: Vec<_> = std::fs::read_dir(dir.path().join("tuplane")).unwrap().collect();
    assert!(left.is_empty(), "no cluster is left: {left:?}");
}
