//! Reads simulation files: everything that is wrong in one pass, with file and line.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tuplane_core::fault::Fault;
use tuplane_core::job::table::{Table, did_you_mean};
use tuplane_core::job::tree::{Entry, Node, Value};
use tuplane_core::job::{FileFormat, Placement, name_override, set_keys};
use tuplane_core::route::RouteOptions;
use tuplane_core::route::predict::Setup;

use super::Registry;
use super::app::{App, Component, Kind};
use super::config::{Arrivals, Config, Lookahead, PERFECT, Routing, Telemetry};
use super::network::Network;
use super::world::World;
use crate::arrivals::{Format, Series};

/// What is wrong in which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// The file.
    pub path: PathBuf,
    /// What.
    pub fault: Fault,
}

/// `file:line:column: message (help)`.
impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.fault.at.line > 0 { ":" } else { ": " };
        write!(f, "{}{place}{}", self.path.display(), self.fault)
    }
}

/// The most slots of a run, of a window, and of a queue length's age.
const MOST_SLOTS: u32 = 100_000_000;
const MOST_AHEAD: u32 = 10_000;

/// The longest file of a simulation or application, in bytes.
const LONGEST: u64 = 16 << 20;
/// The largest variance over mean that is drawn.
const MOST_RATIO: f64 = 1e6;

/// Routing options that say nothing in a simulation.
const LIVE_ONLY: [&str; 4] = ["between_slots", "fresh_notes", "cost", "record"];

/// Reads a simulation file with overrides, each (`KEY` or `TABLE.KEY`, value). Paths in it are relative to it.
///
/// # Errors
/// All that is wrong in it and in the files that it names.
pub fn load(path: &Path, sets: &[(String, String)], registry: &Registry) -> Result<Config, Vec<FileFault>> {
    let mut reader = Reader { registry, path: path.to_owned(), faults: Vec::new() };
    let text = reader.text(path);
    let config = text.and_then(|text| {
        let mut faults = Vec::new();
        let config = Node::parse(&text, FileFormat::guess(&path.to_string_lossy(), &text), &mut faults)
            .and_then(|mut root| {
                set_keys(&mut root, sets, &mut faults);
                reader.config(&root, &mut faults)
            });
        for fault in &mut faults {
            name_override(fault, sets);
        }
        faults.sort_by_key(|fault| fault.at);
        let own = faults.into_iter().map(|fault| FileFault { path: path.to_owned(), fault });
        reader.faults.splice(0..0, own);
        config
    });
    match config {
        Some(config) if reader.faults.is_empty() => Ok(config),
        _ => Err(reader.faults),
    }
}

struct Reader<'r> {
    registry: &'r Registry,
    path: PathBuf,
    faults: Vec<FileFault>,
}

impl Reader<'_> {
    fn text(&mut self, path: &Path) -> Option<String> {
        let read = std::fs::File::open(path).and_then(|file| {
            let mut text = String::new();
            file.take(LONGEST + 1).read_to_string(&mut text)?;
            if text.len() as u64 > LONGEST {
                return Err(std::io::Error::other(format!("it is longer than {} MiB", LONGEST >> 20)));
            }
            Ok(text)
        });
        match read {
            Ok(text) => Some(text),
            Err(cause) => {
                let fault =
                    Fault::new(tuplane_core::fault::At::default(), format!("cannot be read: {cause}"));
                self.faults.push(FileFault { path: path.to_owned(), fault });
                None
            }
        }
    }

    fn beside(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn config(&mut self, root: &Node, faults: &mut Vec<Fault>) -> Option<Config> {
        let mut table = Table::new(root, "the simulation", faults)?;
        let name = named(&mut table);
        let slots = table.whole_u32("slots", 1..=MOST_SLOTS).unwrap_or(20_000);
        let warmup = table.whole_u32("warmup", 0..=slots - 1).unwrap_or(slots / 5);
        let seed = table.whole("seed", 0..=u64::MAX).unwrap_or(1);
        let load = table.number("load");
        if let Some(load) = load.as_ref().filter(|load| load.value <= 0.0 || load.value > 1.0) {
            table.fault(Fault::new(
                load.at,
                format!("`load` is {}; it must be above 0 and at most 1", load.value),
            ));
        }
        let uneven = table.whole_u32("uneven", 0..=1000).unwrap_or(0);
        let placement = table.choice("placement", &PLACEMENTS).unwrap_or(Placement::THeron);
        let network = network(&mut table);
        let arrivals = self.arrivals(&mut table);
        let lookahead = self.lookahead(&mut table);
        let routing = self.routing(&mut table);
        let telemetry = telemetry(&mut table);
        let apps = self.apps(&mut table);
        table.finish(faults, |_| None);
        let config = Config {
            name: name
                .unwrap_or_else(|| self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
            network: network?,
            apps,
            load: load.map_or(0.85, |load| load.value),
            uneven,
            slots,
            warmup,
            seed,
            placement,
            arrivals: arrivals?,
            lookahead: lookahead?,
            routing: routing?,
            telemetry: telemetry?,
        };
        if faults.is_empty() && self.faults.is_empty() {
            // What only shows once all is put together: a matrix that is too small, capacities that end.
            World::new(&config).map_err(|why| faults.push(Fault::new(root.at, why.to_string()))).ok()?;
        }
        Some(config)
    }

    fn arrivals(&mut self, table: &mut Table<'_>) -> Option<Arrivals> {
        if table.place_of("arrivals").is_none() {
            table.know(&["arrivals"]);
            return Some(Arrivals::Poisson);
        }
        let mut part = table.table("arrivals")?;
        let kinds = [("poisson", "poisson"), ("overdispersed", "overdispersed"), ("trace", "trace")];
        let arrivals = match part.choice("kind", &kinds) {
            Some("poisson") => Some(Arrivals::Poisson),
            Some("overdispersed") => match part.number("ratio") {
                Some(ratio) if ratio.value > 1.0 && ratio.value <= MOST_RATIO => {
                    Some(Arrivals::Overdispersed { ratio: ratio.value })
                }
                Some(ratio) => {
                    part.fault(
                        Fault::new(
                            ratio.at,
                            format!(
                                "`ratio` is {}; it must be above 1 and at most {MOST_RATIO}",
                                ratio.value
                            ),
                        )
                        .help("it is variance over mean; of Poisson counts it is 1"),
                    );
                    None
                }
                None => {
                    part.missing("ratio", "variance over mean, above 1");
                    None
                }
            },
            Some(_) => self.trace(&mut part),
            None => {
                if part.place_of("kind").is_none() {
                    part.missing("kind", "poisson, overdispersed or trace");
                }
                part.know(&[
                    "ratio",
                    "path",
                    "count",
                    "time",
                    "header",
                    "delimiter",
                    "exp",
                    "rates",
                    "from",
                    "slots",
                ]);
                None
            }
        };
        table.close(part);
        arrivals
    }

    fn trace(&mut self, part: &mut Table<'_>) -> Option<Arrivals> {
        let plain = Format::default();
        let format = Format {
            count: part.column("count"),
            time: part.column("time"),
            header: part.flag("header").unwrap_or(plain.header),
            delimiter: part
                .text("delimiter")
                .and_then(|text| text.value.chars().next())
                .unwrap_or(plain.delimiter),
            exp: part.flag("exp").unwrap_or(plain.exp),
            rates: part.flag("rates").unwrap_or(plain.rates),
        };
        let from = part.whole("from", 0..=u64::from(MOST_SLOTS)).unwrap_or(0) as usize;
        let slots = part.whole("slots", 1..=u64::from(MOST_SLOTS)).map(|slots| slots as usize);
        let Some(path) = part.text("path") else {
            if part.place_of("path").is_none() {
                part.missing("path", "a CSV file of counts");
            }
            return None;
        };
        let read =
            Series::read(&self.beside(&path.value), &format).and_then(|series| series.part(from, slots));
        match read {
            Ok(series) => Some(Arrivals::Trace { counts: Arc::new(series), name: path.value }),
            Err(why) => {
                part.fault(Fault::new(path.at, why.to_string()));
                None
            }
        }
    }

    fn lookahead(&mut self, table: &mut Table<'_>) -> Option<Lookahead> {
        if table.place_of("lookahead").is_none() {
            table.know(&["lookahead"]);
            return Some(Lookahead::default());
        }
        let mut part = table.table("lookahead")?;
        let named = part.text("predictor");
        let options = part.with().as_object().cloned().unwrap_or_default();
        let lookahead = Lookahead {
            size: part.whole_u32("size", 0..=MOST_AHEAD).unwrap_or(0),
            spread: part.flag("spread").unwrap_or(false),
            early: part.choice("start", &[("full", false), ("early", true)]).unwrap_or(false),
            predictor: named.as_ref().map_or_else(|| PERFECT.to_owned(), |name| name.value.clone()),
            options,
        };
        // Made once over nothing, for its name and options.
        let setup = Setup { options: lookahead.options.clone(), seed: 0, truth: Some([0].into()) };
        if let Err(why) = self.registry.predictors.make(&lookahead.predictor, &setup) {
            part.fault(Fault::new(named.map_or(part.at, |name| name.at), why.to_string()));
        }
        table.close(part);
        Some(lookahead)
    }

    fn routing(&mut self, table: &mut Table<'_>) -> Option<Routing> {
        let mut options = RouteOptions { deal: 1, ..RouteOptions::default() };
        let mut policy = "potus".to_owned();
        let Some(node) = table.node("routing") else { return Some(Routing { policy, options }) };
        let Value::Table(entries) = &node.value else {
            table.fault(Fault::new(node.at, format!("`routing` must be a table, not {}", node.value.kind())));
            return None;
        };
        let place =
            |key: &str| entries.iter().find(|entry| entry.key.value == key).map_or(node.at, |e| e.key.at);
        let given = |entry: &&Entry| entry.key.value != "policy";
        let given: std::collections::BTreeMap<String, serde_json::Value> = entries
            .iter()
            .filter(given)
            .map(|entry| (entry.key.value.clone(), entry.node.to_json()))
            .collect();
        for key in LIVE_ONLY.iter().filter(|key| given.contains_key(**key)) {
            table.fault(
                Fault::new(place(key), format!("`{key}` says nothing in a simulation"))
                    .help("costs are the network's, and tuples move at the ends of slots"),
            );
        }
        match RouteOptions::read(&given, options.setting) {
            // Some ten tuples leave a sender in a slot: a run of more than one would be the whole slot's.
            Ok(read) => {
                options =
                    RouteOptions { deal: if given.contains_key("deal") { read.deal } else { 1 }, ..read }
            }
            Err(errors) => {
                for error in errors {
                    table.fault(Fault::new(place(&error.key), error.to_string()));
                }
            }
        }
        match node.get("policy") {
            Some(Node { value: Value::Text(name), .. }) => policy.clone_from(name),
            Some(other) => table.fault(Fault::new(other.at, "`policy` must be a policy's name")),
            None => {}
        }
        if let Err(why) = self.registry.policies.make(&policy, &options, 0) {
            table.fault(Fault::new(place("policy"), why.to_string()));
        }
        Some(Routing { policy, options })
    }

    fn apps(&mut self, table: &mut Table<'_>) -> Vec<App> {
        let Some(files) = table.texts("applications") else {
            if table.place_of("applications").is_none() {
                table.missing("applications", "a list of application files");
            }
            return Vec::new();
        };
        let mut apps: Vec<App> = Vec::new();
        for file in files {
            let path = self.beside(&file.value);
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                Err(cause) => {
                    table.fault(Fault::new(file.at, format!("{} cannot be read: {cause}", path.display())));
                    continue;
                }
            };
            let mut faults = Vec::new();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            apps.extend(app(&text, stem, &mut faults));
            self.faults.extend(faults.into_iter().map(|fault| FileFault { path: path.clone(), fault }));
        }
        apps
    }
}

/// The names of placements.
const PLACEMENTS: [(&str, Placement); 3] = [
    ("t_heron", Placement::THeron),
    ("round_robin", Placement::RoundRobin),
    ("link_load", Placement::LinkLoad),
];

/// A placement as a file names it.
pub(super) fn placement_name(placement: Placement) -> &'static str {
    PLACEMENTS.iter().find(|(_, one)| *one == placement).map_or("", |(name, _)| name)
}

fn network(table: &mut Table<'_>) -> Option<Network> {
    if table.place_of("network").is_none() {
        table.know(&["network"]);
        return Some(Network::FatTree);
    }
    let mut part = table.table("network")?;
    let kinds = [("fat_tree", "fat_tree"), ("jellyfish", "jellyfish"), ("matrix", "matrix")];
    let kind = part.choice("kind", &kinds);
    let network = match kind {
        Some("fat_tree") => Some(Network::FatTree),
        Some("jellyfish") => Some(Network::Jellyfish {
            switches: part.whole_u32("switches", 1..=10_000).unwrap_or(24),
            degree: part.whole_u32("degree", 0..=1000).unwrap_or(4),
            servers: part.whole_u32("servers", 1..=10_000).unwrap_or(16),
            seed: part.whole("seed", 0..=u64::MAX).unwrap_or(1),
        }),
        Some(_) => part.node("costs").map(matrix).transpose().unwrap_or_else(|fault| {
            part.fault(fault);
            None
        }),
        None => {
            if part.place_of("kind").is_none() {
                part.missing("kind", "fat_tree, jellyfish or matrix");
            }
            part.know(&["switches", "degree", "servers", "seed", "costs"]);
            None
        }
    };
    if kind == Some("matrix") && part.place_of("costs").is_none() {
        part.missing("costs", "a list of rows, one for each server");
    }
    table.close(part);
    network
}

fn matrix(node: &Node) -> Result<Network, Fault> {
    let wrong =
        |at| Fault::new(at, "`costs` must be a square of numbers of at least 0, a list for each server");
    let Value::List(rows) = &node.value else { return Err(wrong(node.at)) };
    let mut costs = Vec::new();
    for row in rows {
        let Value::List(cells) = &row.value else { return Err(wrong(row.at)) };
        if cells.len() != rows.len() {
            return Err(wrong(row.at));
        }
        let cell = |cell: &Node| match cell.value {
            Value::Integer(cost) if cost >= 0 => Ok(cost as f64),
            Value::Float(cost) if cost >= 0.0 && cost.is_finite() => Ok(cost),
            _ => Err(wrong(cell.at)),
        };
        costs.push(cells.iter().map(cell).collect::<Result<Vec<_>, _>>()?);
    }
    if costs.is_empty() { Err(wrong(node.at)) } else { Ok(Network::Matrix(costs)) }
}

fn telemetry(table: &mut Table<'_>) -> Option<Telemetry> {
    if table.place_of("telemetry").is_none() {
        table.know(&["telemetry"]);
        return Some(Telemetry::FRESH);
    }
    let mut part = table.table("telemetry")?;
    let telemetry = Telemetry {
        every: part.whole_u32("every", 1..=MOST_AHEAD).unwrap_or(1),
        delay: part.whole_u32("delay", 0..=MOST_AHEAD).unwrap_or(0),
        by_slot: part.choice("reckoning", &[("agent", false), ("by_slot", true)]).unwrap_or(false),
    };
    table.close(part);
    Some(telemetry)
}

/// A name, which results have in them: no control characters, which a terminal would obey.
fn named(table: &mut Table<'_>) -> Option<String> {
    let name = table.text("name")?;
    if name.value.chars().any(char::is_control) {
        let fault = format!("`name` is {:?}: it must have no control characters", name.value);
        table.fault(Fault::new(name.at, fault));
    }
    Some(name.value)
}

/// Reads an application's file.
fn app(text: &str, stem: String, faults: &mut Vec<Fault>) -> Option<App> {
    let root = Node::parse(text, FileFormat::guess(&stem, text), faults)?;
    let mut table = Table::new(&root, "the application", faults)?;
    let name = named(&mut table).unwrap_or(stem);
    let mut components: Vec<Component> = Vec::new();
    match table.node("component").map(|node| (&node.value, node.at)) {
        Some((Value::List(list), _)) if !list.is_empty() => {
            let mut inner = Vec::new();
            for node in list {
                components.extend(component(node, &components, &mut inner));
            }
            for fault in inner {
                table.fault(fault);
            }
        }
        Some((_, at)) => {
            table.fault(Fault::new(at, "`component` must be a list: write [[component]] before each"));
        }
        None => table.missing("component", "write [[component]] before each"),
    }
    let app = App { name, components };
    for (number, component) in app.components.iter().enumerate() {
        if component.inputs.is_empty() && app.successors(number).next().is_none() {
            let fault = format!("the spout `{}` feeds nothing: its tuples would stay for ever", component.id);
            table.fault(Fault::new(root.at, fault));
        }
    }
    table.finish(faults, |_| None);
    Some(app)
}

fn component(node: &Node, before: &[Component], faults: &mut Vec<Fault>) -> Option<Component> {
    let mut table = Table::new(node, "a component", faults)?;
    let Some(id) = table.text("id") else {
        if table.place_of("id").is_none() {
            table.missing("id", "a name that no other component of the application has");
        }
        table.finish_open(faults);
        return None;
    };
    if before.iter().any(|other| other.id == id.value) {
        table.fault(Fault::new(id.at, format!("two components are called `{}`", id.value)));
    }
    let mut inputs = Vec::new();
    for input in table.texts("in").unwrap_or_default() {
        match before.iter().position(|other| other.id == input.value) {
            Some(index) if inputs.contains(&index) => {
                table.fault(Fault::new(input.at, format!("`{}` is named twice", input.value)));
            }
            Some(index) => inputs.push(index),
            None => {
                let known = before.iter().map(|other| other.id.as_str());
                let fault =
                    Fault::new(input.at, format!("no component before this one is called `{}`", input.value));
                let help = if before.is_empty() {
                    "a component stands behind those that feed it".to_owned()
                } else {
                    did_you_mean(&input.value, known)
                };
                table.fault(fault.help(help));
            }
        }
    }
    let is_spout = table.place_of("in").is_none();
    let kind = if is_spout {
        let rate = table.number("rate").map(|rate| rate.value);
        if table.place_of("rate").is_none() {
            table.missing("rate", "mean tuples per slot at each instance; or `in`, if it is no spout");
        }
        Kind::Spout {
            rate: rate.unwrap_or(0.0),
            instances: table.whole_u32("instances", 1..=10_000).unwrap_or(1),
        }
    } else {
        let capacity = table.whole_u32("capacity", 1..=1_000_000);
        if table.place_of("capacity").is_none() {
            table.missing("capacity", "tuples that an instance works on in a slot");
        }
        Kind::Bolt {
            capacity: capacity.unwrap_or(1),
            instances: table.whole_u32("instances", 1..=10_000),
            selectivity: table.number("selectivity").map_or(1.0, |share| share.value),
        }
    };
    table.finish(faults, |key| {
        let other = if is_spout { "a bolt, which has `in`" } else { "a spout, which has no `in`" };
        ["rate", "capacity", "selectivity"].contains(&key).then(|| format!("it belongs to {other}"))
    });
    Some(Component { id: id.value, kind, inputs })
}
