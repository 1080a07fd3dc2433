//! `--set STAGE.OPTION=VALUE`: changes a file's tree before a job is read from it.

use toml::de::{DeTable, DeValue};

use super::table::did_you_mean;
use super::tree::{Entry, FileFormat, Node, Value};
use crate::fault::{At, Fault, Spanned};

/// What stands before the dot for an option of the job itself.
const JOB: &str = "job";

/// Keys of the top level that are no options.
const LISTS: [&str; 5] = [JOB, "stage", "stages", "route", "routes"];

/// Connectors of sources that read nothing.
const MADE_UP: [&str; 3] = ["generator", "nexmark", "ids"];

/// Options that only these have.
const OF_MADE_UP: [&str; 9] =
    ["kind", "n", "seed", "words", "exponent", "per_line", "events", "base_time", "payload"];

/// The place of what the `nth` override (from 0) says: no line, and a column that tells which it was.
fn place(nth: usize) -> At {
    At { line: 0, column: nth as u32 + 1, offset: 0, len: 0 }
}

/// Applies overrides in turn.
pub(super) fn apply(root: &mut Node, sets: &[(String, String)], faults: &mut Vec<Fault>) {
    for (nth, (target, value)) in sets.iter().enumerate() {
        if let Err(fault) = apply_one(root, target, value, place(nth)) {
            faults.push(fault);
        }
    }
}

/// Applies overrides `KEY.KEY=VALUE` to the tree of a file that is no job: the keys lead from its top to the value.
/// What an override sets has no line; [`name_override`] says in its faults which one it was.
pub fn set_keys(root: &mut Node, sets: &[(String, String)], faults: &mut Vec<Fault>) {
    for (nth, (target, value)) in sets.iter().enumerate() {
        let keys: Vec<&str> = target.split('.').collect();
        let written = if keys.iter().any(|key| key.is_empty()) {
            let fault = Fault::new(place(nth), format!("`{target}` does not name an option"));
            Err(fault.help("write KEY=VALUE, or TABLE.KEY=VALUE"))
        } else {
            write(root, &keys, value, place(nth))
        };
        if let Err(fault) = written {
            faults.push(fault);
        }
    }
}

fn apply_one(root: &mut Node, target: &str, value: &str, at: At) -> Result<(), Fault> {
    let of_edge = target.split_once("..").is_some_and(|(from, to)| !from.is_empty() && to.contains('.'));
    if of_edge {
        return Err(not_of_route(at));
    }
    let mut keys = target.split('.');
    let owner = keys.next().unwrap_or_default();
    let keys: Vec<&str> = keys.collect();
    if owner.is_empty() || keys.is_empty() || keys.iter().any(|key| key.is_empty()) {
        let fault = Fault::new(at, format!("`{target}` does not name an option"));
        return Err(fault.help("write STAGE.OPTION=VALUE, or job.OPTION=VALUE"));
    }
    if owner != JOB && keys == ["id"] {
        let fault = Fault::new(at, "the id of a stage cannot be set");
        return Err(fault.help("edit the file, and the inputs that name it"));
    }
    let node = if owner == JOB { options(root, keys[0], at)? } else { stage(root, owner, at)? };
    if owner != JOB && keys == ["path"] {
        read_files_instead(node, at);
    }
    write(node, &keys, value, at)
}

/// A source whose rows are made up reads files once its `path` is set: what the file says about
/// making rows is dropped, so that one job file counts made-up text and any other.
fn read_files_instead(node: &mut Node, at: At) {
    let is = |node: &Node, key: &str, one_of: &[&str]| match node.get(key) {
        Some(Node { value: Value::Text(text), .. }) => one_of.contains(&text.as_str()),
        _ => false,
    };
    if !is(node, "op", &["source"]) || !is(node, "connector", &MADE_UP) {
        return;
    }
    let Value::Table(entries) = &mut node.value else { return };
    // An override of such an option stays, and is then told to belong to another connector.
    entries.retain(|entry| entry.key.at.line == 0 || !OF_MADE_UP.contains(&entry.key.value.as_str()));
    *child(entries, "connector", at) = Node { at, value: Value::Text("file".to_owned()) };
}

/// The table that holds, or shall hold, an option of the job.
fn options<'n>(root: &'n mut Node, key: &str, at: At) -> Result<&'n mut Node, Fault> {
    if LISTS.contains(&key) {
        let fault = Fault::new(at, format!("`{key}` is no option of a job"));
        return Err(fault.help("an option of a stage is set as STAGE.OPTION=VALUE"));
    }
    let in_job =
        root.get(key).is_none() && matches!(root.get(JOB), Some(Node { value: Value::Table(_), .. }));
    if !in_job {
        return Ok(root);
    }
    match &mut root.value {
        Value::Table(entries) => Ok(child(entries, JOB, at)),
        other => Err(Fault::new(at, format!("the job must be a table, not {}", other.kind()))),
    }
}

/// Entries of `[[route]]` have no id to be named by.
fn not_of_route(at: At) -> Fault {
    let fault = Fault::new(at, "an option of [[route]] cannot be set so");
    fault.help("edit the file, or set it while the job runs: `tuplane route JOB EDGE POLICY`")
}

fn stage<'n>(root: &'n mut Node, id: &str, at: At) -> Result<&'n mut Node, Fault> {
    let key = if root.get("stage").is_some() { "stage" } else { "stages" };
    let is = |node: &Node, id: &str| matches!(node.get("id"), Some(Node { value: Value::Text(text), .. }) if text == id);
    let mut ids: Vec<&str> = Vec::new();
    let mut found = None;
    if let Some(Node { value: Value::List(list), .. }) = root.get(key) {
        found = list.iter().position(|node| is(node, id));
        ids.extend(list.iter().filter_map(|node| match node.get("id") {
            Some(Node { value: Value::Text(id), .. }) => Some(id.as_str()),
            _ => None,
        }));
    }
    let missing = || {
        if ["route", "routes"].contains(&id) {
            return not_of_route(at);
        }
        let words = ids.iter().copied().chain([JOB]);
        Fault::new(at, format!("there is no stage `{id}`")).help(did_you_mean(id, words))
    };
    let index = found.ok_or_else(missing)?;
    if let Value::Table(entries) = &mut root.value
        && let Value::List(list) = &mut child(entries, key, at).value
    {
        return Ok(&mut list[index]);
    }
    Err(Fault::new(at, "the job has no list of stages"))
}

/// Walks to the option, makes tables on the way, and puts the value there.
fn write(mut node: &mut Node, keys: &[&str], value: &str, at: At) -> Result<(), Fault> {
    for key in keys {
        let kind = node.value.kind();
        let Value::Table(entries) = &mut node.value else {
            return Err(Fault::new(at, format!("`{key}` cannot be set: what it belongs to is {kind}")));
        };
        node = child(entries, key, at);
    }
    let was_text = matches!(node.value, Value::Text(_));
    *node = Node { at, value: parse(value, was_text) };
    relocate(node, at);
    Ok(())
}

/// The value of a key; an empty table is put there if there is none.
fn child<'n>(entries: &'n mut Vec<Entry>, key: &str, at: At) -> &'n mut Node {
    let index = entries.iter().position(|entry| entry.key.value == key).unwrap_or_else(|| {
        let node = Node { at, value: Value::Table(Vec::new()) };
        entries.push(Entry { key: Spanned::new(key.to_owned(), at), node });
        entries.len() - 1
    });
    &mut entries[index].node
}

/// What TOML reads as text in quotes, a number, a boolean, a list or an inline table is that; anything else
/// is text. Where the file has text, only text in quotes, a list of such texts and a table are read so: a file's
/// name may be a number.
fn parse(value: &str, was_text: bool) -> Value {
    let text = || Value::Text(value.to_owned());
    let is_toml = match DeValue::parse(value.trim()).map(toml::Spanned::into_inner) {
        Ok(DeValue::String(_) | DeValue::Table(_)) => true,
        Ok(DeValue::Array(list)) => {
            !was_text || list.iter().all(|one| matches!(one.get_ref(), DeValue::String(_)))
        }
        Ok(DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => !was_text,
        Ok(DeValue::Datetime(_)) | Err(_) => false,
    };
    if !is_toml {
        return text();
    }
    // Through a document of one key, so that there is one way from TOML to a tree.
    let document = format!("value = {}", value.trim());
    if DeTable::parse(&document).is_err() {
        return text();
    }
    let mut faults = Vec::new();
    let tree = Node::parse(&document, FileFormat::Toml, &mut faults);
    match tree.as_ref().and_then(|tree| tree.get("value")) {
        Some(node) if faults.is_empty() => node.value.clone(),
        _ => text(),
    }
}

/// Everything under an override stands where the override does.
fn relocate(node: &mut Node, at: At) {
    node.at = at;
    match &mut node.value {
        Value::List(list) => list.iter_mut().for_each(|node| relocate(node, at)),
        Value::Table(entries) => {
            for entry in entries {
                entry.key.at = at;
                relocate(&mut entry.node, at);
            }
        }
        _ => {}
    }
}

/// Says in a fault that it concerns an override: `--set lines.path: ..`. For faults that come later,
/// from an expression say, too: the place of what an override set has no line, but a column.
pub fn name_override(fault: &mut Fault, sets: &[(String, String)]) {
    if !fault.at.is_override() {
        return;
    }
    if let Some((target, _)) = sets.get(fault.at.column as usize - 1) {
        fault.message = format!("--set {target}: {}", fault.message);
        fault.at = At::default();
    }
}
