//! Operators on real agents: the same result on one, two and three of them, rebalanced or not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::world::{World, assert_exact_ledger, text};

mod builder;
mod joins;
pub(crate) mod nexmark;
mod order;
mod rebalance;
mod server;
mod service;
mod state;
mod ysb;

/// A csv file with so many rows: `id`, `k` (one of `keys`) and `x`.
fn csv(rows: usize, keys: usize) -> String {
    let mut csv = "id,k,x\n".to_owned();
    for id in 0..rows {
        writeln!(csv, "{id},k{},{}", (id * 7919) % keys, (id * 31) % 1009).unwrap();
    }
    csv
}

/// An entry of a job file.
fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

/// What stands before the stages under test: the rows, from one file, perhaps dealt out over all agents.
fn rows(path: &str, rebalance: bool) -> String {
    let columns = "columns = { id = \"bigint\", k = \"text\", x = \"bigint\" }";
    let source = format!(
        "[[stage]]\nid = \"rows\"\nop = \"source\"\npath = \"{path}\"\nconnector = \"file\"\nformat = \"csv\"\nheader = true\n{columns}\n"
    );
    let spread = one("rebalance", "in", "rows", "");
    source + &if rebalance { spread } else { one("map", "in", "rows", "select = [\"*\"]") }
}

/// Runs a job that writes csv to `out`, which must finish; gives the lines of each file behind its header.
fn run(world: &World, job: &str, agents: usize, name: &str) -> Vec<Vec<String>> {
    let out = world.path(name);
    let sink = format!("out.path={}", out.display());
    let job = world.file(&format!("{name}.toml"), format!("name = \"language\"\n{job}"));
    let output = world.tuplane(&["run", &job, "--agents", &agents.to_string(), "--set", &sink, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["phase"], "finished", "{document}");
    assert_exact_ledger(&document);
    let files = std::fs::read_dir(&out).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    files.map(|text| text.unwrap().lines().skip(1).map(str::to_owned).collect()).collect()
}

/// The result on one to three agents, with and without a rebalance before the stages; all must be equal but for
/// their order.
fn everywhere(name: &str, content: &str, stages: &str) -> Vec<String> {
    let world = World::new();
    let path = world.file("rows.csv", content);
    let sink = "connector = \"file\"\nformat = \"csv\"\npath = \"out\"";
    let mut first: Option<Vec<String>> = None;
    for agents in 1..=3 {
        for rebalance in [false, true] {
            let job = rows(&path, rebalance) + stages + &one("sink", "out", "last", sink);
            let made = run(&world, &job, agents, &format!("{name}-{agents}-{rebalance}"));
            let mut lines: Vec<String> = made.into_iter().flatten().collect();
            lines.sort();
            match &first {
                Some(first) => assert_eq!(&lines, first, "{agents} agents, rebalance {rebalance}"),
                None => first = Some(lines),
            }
        }
    }
    first.unwrap_or_default()
}

/// How often each line stands there.
fn counted(lines: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    lines.into_iter().fold(BTreeMap::new(), |mut counts, line| {
        *counts.entry(line).or_default() += 1;
        counts
    })
}
