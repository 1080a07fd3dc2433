//! Jobs from text, and what tests ask of a plan.

use std::fmt::Write;

use tuplane_core::job::{FileFormat, Job};
use tuplane_core::plan::{Dag, Edge, PlanError, plan};

/// A job of TOML stages. A line `id = op in,in key=value ..` is a stage; other lines stand as they are.
pub(super) fn job(text: &str) -> Job {
    let mut toml = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let Some((id, rest)) = line.strip_prefix("- ").and_then(|l| l.split_once(" = ")) else {
            writeln!(toml, "{line}").unwrap();
            continue;
        };
        let mut words = rest.split_whitespace();
        writeln!(toml, "[[stage]]\nid = '{id}'\nop = '{}'", words.next().unwrap()).unwrap();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => writeln!(toml, "{key} = {value}").unwrap(),
                None => writeln!(toml, "in = {:?}", word.split(',').collect::<Vec<_>>()).unwrap(),
            }
        }
    }
    Job::parse(&toml, FileFormat::Toml).unwrap_or_else(|faults| panic!("{faults:?}\n{toml}"))
}

pub(super) fn planned(text: &str) -> Dag {
    plan(&job(text)).unwrap()
}

pub(super) fn refused(text: &str) -> PlanError {
    plan(&job(text)).unwrap_err()
}

/// The edge of this name.
pub(super) fn edge<'a>(dag: &'a Dag, name: &str) -> &'a Edge {
    dag.edge(dag.find_edge(name).unwrap())
}

/// Texts of the notes that say "no effect", and of the others.
pub(super) fn notes(dag: &Dag, no_effect: bool) -> Vec<&str> {
    dag.notes.iter().filter(|n| n.no_effect == no_effect).map(|n| n.text.value.as_str()).collect()
}
