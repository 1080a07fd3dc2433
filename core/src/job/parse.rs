//! The ways into a job: text, text with overrides, a tree, an array of planner cases.

use super::model::Job;
use super::overrides::{apply, name_override};
use super::read;
use super::tree::{FileFormat, Node, Value};
use crate::fault::{At, Fault};

/// A planner case: its id, and its job or what is wrong with it.
pub type Case = (String, Result<Job, Vec<Fault>>);

impl Job {
    /// Reads a job file. On failure every fault of the file, in file order.
    pub fn parse(text: &str, format: FileFormat) -> Result<Self, Vec<Fault>> {
        Self::parse_with(text, format, &[])
    }

    /// The same with overrides, each (`STAGE.OPTION` or `job.OPTION`, value). What an override sets
    /// has no line; its faults begin with `--set`.
    pub fn parse_with(text: &str, format: FileFormat, sets: &[(String, String)]) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let Some(mut root) = Node::parse(text, format, &mut faults) else { return Err(faults) };
        apply(&mut root, sets, &mut faults);
        read::job(&root, &mut faults).ok_or_else(|| {
            for fault in &mut faults {
                name_override(fault, sets);
            }
            faults
        })
    }

    /// Of a file with faults, what can be looked at further: its stages without a fault that read none with one.
    pub fn sound_part(text: &str, format: FileFormat, sets: &[(String, String)]) -> Option<Self> {
        let mut faults = Vec::new();
        let mut root = Node::parse(text, format, &mut faults)?;
        apply(&mut root, sets, &mut faults);
        read::sound(&root, &mut faults)
    }

    /// Reads a job from a tree, such as a part of a larger file.
    pub fn from_tree(root: &Node) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        read::job(root, &mut faults).ok_or(faults)
    }
}

/// Recognises planner cases in JSON text: an array of objects with a `pipeline`, or one such object.
/// Keys beside `id` and `pipeline` (a note, what is expected) are not looked at.
pub fn cases(text: &str) -> Option<Vec<Case>> {
    let mut faults = Vec::new();
    let root = Node::parse(text, FileFormat::Json, &mut faults)?;
    let mut found = match &root.value {
        Value::List(list) => list.iter().enumerate().map(|(index, node)| case(node, index)).collect(),
        Value::Table(_) if root.get("pipeline").is_some() => vec![case(&root, 0)],
        _ => return None,
    };
    // A doubled key belongs to the case it stands in.
    for fault in faults {
        let holder = match &root.value {
            Value::List(list) => list.iter().position(|node| holds(node.at, fault.at)),
            _ => Some(0),
        };
        if let Some((_, result)) = holder.and_then(|index| found.get_mut(index)) {
            match result {
                Ok(_) => *result = Err(vec![fault]),
                Err(others) => others.push(fault),
            }
        }
    }
    Some(found)
}

fn holds(outer: At, inner: At) -> bool {
    (outer.offset..outer.offset + outer.len).contains(&inner.offset)
}

fn case(node: &Node, index: usize) -> Case {
    let id = match node.get("id") {
        Some(Node { value: Value::Text(id), .. }) => id.clone(),
        _ => format!("#{}", index + 1),
    };
    let job = match node.get("pipeline") {
        Some(pipeline) => Job::from_tree(pipeline),
        None => Err(vec![Fault::new(node.at, format!("case `{id}` has no `pipeline`"))]),
    };
    (id, job)
}
