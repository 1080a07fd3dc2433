//! `docs/stages.md`: its examples run, and what stands under them is what `tuplane plan` says. With
//! `TUPLANE_UPDATE_DOCS` set that text is written anew.

use super::world::{World, assert_exact_ledger, text, workspace};

/// Where a job's text begins and ends in the page.
const OPEN: &str = "```toml\n";
const PLAN: &str = "```text\n";
const CLOSE: &str = "```\n";

/// An example: the heading that it stands under, its stages, and the plan that the page tells (empty if none).
struct Example {
    heading: String,
    stages: String,
    plan: String,
}

/// The source and the sink around all examples, the examples, and the page with the plans from `plans` (those
/// it has where there is none).
fn read(page: &str, plans: &[String]) -> (String, Vec<Example>, String) {
    let (mut heading, mut around, mut examples) = (String::new(), None, Vec::new());
    let mut made = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(OPEN) {
        let before = &rest[..at];
        if let Some(last) = before.lines().rev().find(|line| line.starts_with("## ")) {
            last.trim_start_matches("## ").clone_into(&mut heading);
        }
        let body = &rest[at + OPEN.len()..];
        let end = body.find(CLOSE).unwrap();
        made += &rest[..at + OPEN.len() + end + CLOSE.len()];
        let stages = body[..end].to_owned();
        rest = &body[end + CLOSE.len()..];
        if around.is_none() {
            around = Some(stages);
            continue;
        }
        let mut plan = String::new();
        if let Some(told) = rest.strip_prefix('\n').and_then(|rest| rest.strip_prefix(PLAN)) {
            let end = told.find(CLOSE).unwrap();
            told[..end].clone_into(&mut plan);
            rest = &told[end + CLOSE.len()..];
        }
        let fresh = plans.get(examples.len()).unwrap_or(&plan);
        made += &format!("\n{PLAN}{fresh}{CLOSE}");
        examples.push(Example { heading: heading.clone(), stages, plan });
    }
    (around.unwrap(), examples, made + rest)
}

/// A whole job of an example: options first, then the source, the stages, the sink.
fn job(around: &str, stages: &str) -> String {
    let split = |text: &str, at: &str| {
        let at = text.find(at).unwrap();
        (text[..at].to_owned(), text[at..].to_owned())
    };
    let (options, stages) = split(stages, "[[stage]]");
    let (source, sink) = split(around, "[[stage]]\nid = \"out\"");
    format!("name = \"example\"\n{options}\n{source}\n{stages}\n{sink}")
}

#[test]
fn the_examples_of_the_stages_run_and_plan_as_the_page_says() {
    let world = World::new();
    let path = workspace().join("docs/stages.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (around, examples, _) = read(&page, &[]);
    assert!(examples.len() >= 18, "{} examples were found", examples.len());
    let mut plans = Vec::new();
    for (n, example) in examples.iter().enumerate() {
        let file = world.file(&format!("{n}.toml"), job(&around, &example.stages));
        let output = world.tuplane(&["plan", &file]);
        assert!(output.status.success(), "{}: {}", example.heading, text(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        // Vertices are told by the edges; lines of notes count from the file that was made here.
        let edges = &said[said.find("edges\n").unwrap() + "edges\n".len()..];
        let edges = edges.split("\nnotes\n").next().unwrap();
        let lines = edges.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).chain([""]).collect();
        plans.push(lines.join("\n"));
        let output = world.tuplane(&["run", &file, "--agents", "2", "-o", "json"]);
        assert!(output.status.success(), "{}: {}", example.heading, text(&output));
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(status["result_rows"].as_u64().unwrap() > 0, "{}: {status}", example.heading);
        assert_exact_ledger(&status);
    }
    if std::env::var_os("TUPLANE_UPDATE_DOCS").is_some() {
        std::fs::write(&path, read(&page, &plans).2).unwrap();
        return;
    }
    for (example, plan) in examples.iter().zip(plans) {
        let why = format!(
            "docs/stages.md, \"{}\": the plan is another one now; run this test with TUPLANE_UPDATE_DOCS=1",
            example.heading
        );
        assert_eq!(example.plan, plan, "{why}");
    }
}
