//! Reading simulation files.

use super::*;

fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn faults(files: &[(&str, &str)], sets: &[(&str, &str)]) -> Vec<String> {
    let folder = written(files);
    let sets: Vec<_> = sets.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let Err(faults) = load(&folder.path().join("sim.toml"), &sets, &Registry::default()) else {
        return Vec::new();
    };
    let prefix = format!("{}/", folder.path().display());
    faults.iter().map(|fault| fault.to_string().replace(&prefix, "")).collect()
}

const APP: (&str, &str) = (
    "app.toml",
    "[[component]]\nid = \"s\"\nrate = 2\n\n[[component]]\nid = \"b\"\nin = [\"s\"]\ncapacity = 3\n",
);

#[test]
fn what_ships_can_be_read() {
    for name in ["fat-tree.toml", "jellyfish.toml"] {
        let config = load(&shipped(name), &[], &Registry::default()).unwrap();
        let shapes: Vec<(usize, usize)> =
            config.apps.iter().map(|app| (app.components.len(), app.depth())).collect();
        assert_eq!(shapes, [(3, 3), (4, 3), (4, 4), (5, 4), (6, 5)]);
    }
}

#[test]
fn a_short_file_takes_the_rest_as_usual() {
    let folder = written(&[("sim.toml", "applications = \"app.toml\"\nslots = 100"), APP]);
    let config = load(&folder.path().join("sim.toml"), &[], &Registry::default()).unwrap();
    assert_eq!((config.name.as_str(), config.slots, config.warmup, config.seed), ("sim", 100, 20, 1));
    assert_eq!((config.routing.policy.as_str(), config.routing.options.deal), ("potus", 1));
    assert!(run(&config).unwrap().response.answered > 100);
}

#[test]
fn all_faults_of_all_files_are_told_at_once_with_their_lines() {
    let sim = r#"
slots = 0
lod = 0.5
load = 1.5
applications = ["app.toml", "none.toml"]

[network]
kind = "ring"

[arrivals]
kind = "overdispersed"
ratio = 1

[routing]
policy = "potos"
v = -1
cost = "zones"

[lookahead]
predictor = "kalmann"
"#;
    let app =
        "[[component]]\nid = \"s\"\n\n[[component]]\nid = \"b\"\nin = [\"x\"]\ncapacity = 0\nrate = 1\n";
    let told = faults(&[("sim.toml", sim), ("app.toml", app)], &[("telemetry.every", "0")]);
    for wanted in [
        "sim.toml:2:9: `slots` of the simulation is 0",
        "sim.toml:3:1: unknown key `lod` in the simulation (did you mean `load`?)",
        "sim.toml:4:8: `load` is 1.5; it must be above 0 and at most 1",
        "none.toml cannot be read",
        "sim.toml:8:8: `kind` of `network` of the simulation cannot be `ring`",
        "sim.toml:12:9: `ratio` is 1; it must be above 1 and at most 1000000",
        "sim.toml:15:1: no policy is called `potos` (did you mean `potus`?)",
        "sim.toml:16:1: `v` is a number of at least 0",
        "sim.toml:17:1: `cost` says nothing in a simulation",
        "sim.toml:20:13: no predictor is called `kalmann`",
        "sim.toml: --set telemetry.every: ",
        "app.toml:1:1: a component has no `rate`",
        "app.toml:6:7: no component before this one is called `x`",
        "app.toml:7:12: `capacity` of a component is 0",
        "app.toml:8:1: unknown key `rate` in a component (it belongs to a spout, which has no `in`)",
    ] {
        assert!(told.iter().any(|fault| fault.contains(wanted)), "{wanted} is not in {told:#?}");
    }
}

#[test]
fn a_file_that_is_not_there_and_one_that_is_no_toml_are_told() {
    assert!(faults(&[], &[])[0].starts_with("sim.toml: cannot be read: "));
    assert!(faults(&[("sim.toml", "slots = = 3")], &[])[0].starts_with("sim.toml:1:"));
    let what = faults(&[("sim.toml", "applications = \"app.toml\"\nuneven = 3"), APP], &[]);
    assert!(what[0].contains("`uneven` leaves instances of `b` of `app` without capacity"), "{what:?}");
}

#[test]
fn traces_and_matrices_are_read_and_overrides_count() {
    let sim = "applications = \"app.toml\"\nslots = 200\n[arrivals]\nkind = \"trace\"\npath = \"counts.csv\"\n[network]\nkind = \"matrix\"\ncosts = [[0, 1], [1, 0]]\n";
    let folder = written(&[("sim.toml", sim), APP, ("counts.csv", "n\n1\n2\n3\n2\n")]);
    let sets =
        [("arrivals.from".to_owned(), "1".to_owned()), ("routing.policy".to_owned(), "heron".to_owned())];
    let config = load(&folder.path().join("sim.toml"), &sets, &Registry::default()).unwrap();
    let Arrivals::Trace { counts, name } = &config.arrivals else { panic!() };
    assert_eq!((counts.values(), name.as_str()), (&[2.0, 3.0, 2.0][..], "counts.csv"));
    assert_eq!(config.routing.policy, "heron");
    assert_eq!(run(&config).unwrap().containers, 2);
    let bad = sim.replace("[1, 0]]", "[1]]");
    assert!(faults(&[("sim.toml", &bad), APP, ("counts.csv", "n\nx\n")], &[]).len() == 2);
}
