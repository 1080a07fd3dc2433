//! Where instances go by the strategies of placement, on agents of two zones.

use serde_json::Value;

use super::world::{World, assert_exact_ledger, text};

const ROWS: u64 = 40_000;

/// Four stages of two instances each, all rows from each to the next, and a file for each of the last two.
fn chain(world: &World) -> String {
    let out = world.path("out").display().to_string();
    world.file(
        "chain.toml",
        format!(
            r#"name = "chain"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
payload = 100
instances = 2
[[stage]]
id = "dealt"
op = "rebalance"
in = "rows"
[[stage]]
id = "twice"
op = "map"
in = "dealt"
select = ["*", "id * 2 as twice"]
instances = 2
[[stage]]
id = "again"
op = "rebalance"
in = "twice"
[[stage]]
id = "some"
op = "filter"
in = "again"
where = "id % 4 < 3"
instances = 2
[[stage]]
id = "last"
op = "rebalance"
in = "some"
[[stage]]
id = "out"
op = "sink"
in = "last"
connector = "file"
path = "{out}"
instances = 2
"#
        ),
    )
}

/// The agents of a vertex's instances.
fn agents_of<'s>(status: &'s Value, stage: &str) -> Vec<&'s str> {
    let all = status["per_instance"].as_array().unwrap().iter();
    all.filter(|instance| instance["vertex"] == stage).map(|one| one["agent"].as_str().unwrap()).collect()
}

/// Bytes that went along each link between agents, times the cost of the two zones: `c` alone is in `y`.
fn loads(status: &Value) -> Vec<(String, u64)> {
    let mut loads: Vec<(String, u64)> = Vec::new();
    let flows = status["edges"].as_array().unwrap().iter().flat_map(|edge| edge["flows"].as_array().unwrap());
    for flow in flows.filter(|flow| flow["from"] != flow["to"]) {
        let [from, to] = ["from", "to"].map(|end| flow[end].as_str().unwrap());
        let cost = if from == "c" || to == "c" { 10 } else { 1 };
        let (link, load) = (format!("{from}..{to}"), flow["bytes"].as_u64().unwrap() * cost);
        match loads.iter_mut().find(|(known, _)| *known == link) {
            Some((_, sum)) => *sum += load,
            None => loads.push((link, load)),
        }
    }
    loads
}

#[test]
fn strategies_place_the_same_job_and_keep_its_rows() {
    let world = World::new();
    let costs = world.file("costs", "x y 10\n");
    world.up(&["--local", "3", "--zones", "x,x,y", "--costs", &costs, "--slots", "2"]);
    let file = chain(&world);
    let run = |strategy: &str| {
        let output =
            world.tuplane(&["submit", &file, "--placement", strategy, "--name", strategy, "--wait=60s"]);
        assert!(output.status.success(), "{}", text(&output));
        let status = world.status(strategy);
        assert_exact_ledger(&status);
        let mut rows: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(world.path("out")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            rows.extend(text.lines().skip(1).map(str::to_owned));
        }
        std::fs::remove_dir_all(world.path("out")).unwrap();
        rows.sort();
        (status, rows)
    };
    let (dealt, rows) = run("round_robin");
    assert_eq!(rows.len() as u64, ROWS / 4 * 3);
    let (stages, ends) = (["rows", "twice", "some", "out"], ["a", "b"]);
    let on = |status| stages.map(|stage| agents_of(status, stage));
    assert_eq!(on(&dealt), [["a", "b"], ["c", "a"], ["b", "c"], ["a", "b"]]);
    let (packed, same) = run("t_heron");
    assert_eq!(on(&packed), [ends; 4], "eight over three: at most four on an agent, and these talk");
    assert_eq!(same, rows);
    let (spared, same) = run("link_load");
    assert_eq!(same, rows);

    let beyond = |status: &Value| -> u64 {
        loads(status).iter().filter(|(link, _)| link.contains('c')).map(|(_, load)| load).sum()
    };
    assert!(beyond(&dealt) > 0, "{dealt}");
    assert_eq!(beyond(&packed), 0, "{packed}");
    assert_eq!(beyond(&spared), 0, "the cost table counts: with equal costs it takes `c` too; {spared}");
    let greatest = |status: &Value| loads(status).iter().map(|(_, load)| *load).max().unwrap();
    let [dealt, spared] = [greatest(&dealt), greatest(&spared)];
    assert!(spared * 4 < dealt, "the most loaded link: {spared}, dealt in turn {dealt}");
}

#[test]
fn a_strategy_that_is_none_is_refused_with_the_files_other_faults() {
    let world = World::new();
    let file = chain(&world);
    for command in ["submit", "run"] {
        let output = world.tuplane(&[command, &file, "--placement", "t-heron", "--set", "twice.instances=0"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("`placement` of [job] cannot be `t-heron`"), "{said}");
        assert!(
            said.contains("did you mean `t_heron`?") && said.contains("`instances` of stage `twice`"),
            "{said}"
        );
    }
    let output = world.tuplane(&["check", &file, "--set", "job.placement=link_load"]);
    assert!(output.status.success() && !text(&output).contains("no effect"), "{}", text(&output));
    let plain = std::fs::read_to_string(&file).unwrap().replace("instances = 2\n", "");
    let plain = world.file("plain.toml", format!("placement = \"t_heron\"\n{plain}"));
    let said = text(&world.tuplane(&["check", &plain]));
    assert!(said.contains("placement = \"t_heron\" has no effect: no stage has `instances`"), "{said}");
}
