//! The page of output names the fields of the real documents, all of them and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;

use super::world::{World, text, workspace};

/// Fields whose members are named by what they count, not by us.
const BY_NAME: [&str; 8] =
    ["instance_states", "dropped", "round_trips_us", "options", "parallelism", "value", "row", "why"];

/// Fields of a schema as the page has them; those that may be missing are marked.
type Page = BTreeMap<String, BTreeMap<String, bool>>;

fn page() -> Page {
    let text = std::fs::read_to_string(workspace().join("docs/output.md")).unwrap();
    let mut page = Page::new();
    let mut schema = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut schema);
        }
        let Some((fields, meaning)) = line.strip_prefix("| `").and_then(|row| row.split_once(" | ")) else {
            continue;
        };
        if !schema.starts_with("tuplane/") {
            continue;
        }
        let optional = meaning.starts_with("only");
        let names = fields.split("`, `").map(|name| name.trim_end_matches('`').to_owned());
        page.entry(schema.clone()).or_default().extend(names.map(|name| (name, optional)));
    }
    page
}

/// Names of all fields of a value, and those below which nothing could be seen.
fn fields(value: &Value, name: &str, seen: &mut BTreeSet<String>, blank: &mut BTreeSet<String>) {
    let last = name.rsplit('.').next().unwrap_or_default().trim_end_matches("[]");
    match value {
        _ if BY_NAME.contains(&last) => drop(seen.insert(name.to_owned())),
        Value::Object(members) => {
            for (key, member) in members {
                let inner = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                fields(member, &inner, seen, blank);
            }
        }
        Value::Array(list) => {
            if list.is_empty() {
                blank.insert(name.to_owned());
            }
            for one in list {
                fields(one, &format!("{name}[]"), seen, blank);
            }
        }
        Value::Null => {
            seen.insert(name.to_owned());
            blank.insert(name.to_owned());
        }
        _ => drop(seen.insert(name.to_owned())),
    }
}

/// What the documents of one schema were seen to hold.
#[derive(Default)]
struct Seen {
    fields: BTreeSet<String>,
    blank: BTreeSet<String>,
}

/// What was seen of every schema.
#[derive(Default)]
struct Documents(BTreeMap<String, Seen>);

impl Documents {
    fn add(&mut self, document: &Value) {
        let schema =
            document["schema"].as_str().unwrap_or_else(|| panic!("no schema: {document}")).to_owned();
        let seen = self.0.entry(schema).or_default();
        fields(document, "", &mut seen.fields, &mut seen.blank);
        seen.fields.remove("schema");
    }

    fn of(&mut self, output: &Output) {
        let document = serde_json::from_slice(&output.stdout);
        self.add(&document.unwrap_or_else(|cause| panic!("{cause}: {}", text(output))));
    }
}

/// Two vertices, a rebalance, a key, a bad line.
const JOB: &str = r#"
name = "documented"
[[stage]]
id = "lines"
op = "source"
path = "in.csv"
format = "csv"
columns = { n = "int" }
[[stage]]
id = "spread"
op = "rebalance"
in = "lines"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 1
[[stage]]
id = "by_n"
op = "group_by"
in = "work"
key = "n"
[[stage]]
id = "counts"
op = "aggregate"
in = "by_n"
compute = ["count(*) as rows"]
[[stage]]
id = "out"
op = "sink"
in = "counts"
path = "out"
[[stage]]
id = "shown"
op = "sink"
in = "counts"
connector = "stdout"
[[stage]]
id = "idle"
op = "rebalance"
in = "counts"
"#;

const ENDLESS: &str = r#"
name = "endless"
[[stage]]
id = "rows"
op = "source"
connector = "generator"
kind = "sequence"
rate = 1000
[[stage]]
id = "work"
op = "work"
in = "rows"
ms = 0.1
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#;

#[test]
fn every_field_of_every_document_is_on_the_page() {
    let world = World::new();
    world.file("in.csv", "1\n2\n2\nthree\n");
    let (job, endless) = (world.file("job.toml", JOB), world.file("endless.toml", ENDLESS));
    let broken = world.file("broken.toml", JOB.replace("count(*)", "cuont(*)"));
    let failing = JOB.replace("format = \"csv\"", "format = \"csv\"\non_bad_line = \"fail\"");
    let failing = world.file("failing.toml", failing.replace("\"documented\"", "\"failing\""));
    let mut documents = Documents::default();
    documents.add(&world.json(&["up", "--detach", "--cluster", "t", "--local", "2", "--slots", "1"]));
    let costs = world.file("costs", "default default 1\n");
    documents.add(&world.json(&["up", "--local", "2", "--dry-run", "--costs", &costs]));
    // Nobody listens on that port: what is said of a host that cannot be reached has every field.
    let hosts = world.file("hosts", "127.0.0.1:1 name=a\n127.0.0.1:2 spare=true\n");
    let known = world.path("known").display().to_string();
    let ways = ["--ssh-config", "/dev/null", "--known-hosts", known.as_str()];
    documents.add(&world.json(&["up", "--hosts", &hosts, "--dry-run", "--costs", &costs]));
    for args in [&["hosts", "check", hosts.as_str()][..], &["clean", "--hosts", hosts.as_str(), "--binaries"]]
    {
        documents.of(&world.tuplane(&[args, &ways, &["-o", "json"]].concat()));
    }
    for args in [
        &["check", job.as_str()][..],
        &["check", broken.as_str()],
        &["plan", job.as_str()],
        &["submit", broken.as_str()],
        &["status", "nobody"],
        &["version"],
        &["submit", job.as_str(), "--wait"],
        &["submit", failing.as_str(), "--wait", "--force"],
        &["status", "documented"],
        &["status", "failing"],
        &["submit", endless.as_str()],
        &["set", "endless", "work.ms=0.2"],
        &["route", "endless", "rows..work", "shuffle"],
        &["route", "endless", "rows..work", "potus", "--record", "3"],
        &["peek", "endless", "work", "-n", "2"],
        &["scale", "set", "endless", "work=3"],
        &["scale", "auto", "endless", "on", "--most", "4"],
    ] {
        documents.of(&world.tuplane(&[args, &["-o", "json"]].concat()));
    }
    std::thread::sleep(Duration::from_secs(2));
    let to = world.path("fetched");
    for args in [
        &["status", "endless"][..],
        &["routes", "endless", "--decisions"],
        &["etp", "endless"],
        &["op", "wait", "4", "--within", "20s"],
        &["op", "list", "endless"],
        &["scale", "set", "endless", "work=2"],
        &["scale", "history", "endless"],
        &["scale", "auto", "endless", "off"],
        &["cancel", "endless", "--yes"],
        &["fetch", "documented", to.to_str().unwrap()],
        &["jobs"],
        &["agents"],
        &["agents", "add", "--local", "1"],
        &["agents", "drain", "c"],
        &["agents", "release", "c", "--yes"],
        &["down", "--yes"],
    ] {
        documents.add(&world.json(args));
    }
    let mut page = page();
    let status = page["tuplane/status/1"].clone();
    page.entry("tuplane/run/1".to_owned()).or_default().extend(status.clone());
    page.insert("tuplane/cancel/1".to_owned(), status);
    let schemas: BTreeSet<&String> = documents.0.keys().collect();
    assert_eq!(schemas, page.keys().collect(), "schemas of real documents, and of the page");
    for (schema, seen) in &documents.0 {
        let told = &page[schema];
        let untold: Vec<&String> = seen.fields.iter().filter(|name| !told.contains_key(*name)).collect();
        assert!(untold.is_empty(), "{schema}: not on the page: {untold:?}");
        let hidden = |name: &str| {
            seen.blank.iter().any(|blank| {
                name.strip_prefix(blank.as_str()).is_some_and(|rest| rest.starts_with(['.', '[']))
            })
        };
        let parent = |name: &str| seen.fields.iter().any(|other| other.starts_with(&format!("{name}.")));
        let gone: Vec<&String> = told
            .iter()
            .filter(|(name, optional)| {
                !**optional && !seen.fields.contains(*name) && !hidden(name) && !parent(name)
            })
            .map(|(name, _)| name)
            .collect();
        assert!(gone.is_empty(), "{schema}: on the page and in no document: {gone:?}");
    }
}
