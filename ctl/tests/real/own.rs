//! Agents with a registry: the example of the agent's package, in three processes.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::world::{World, assert_exact_ledger, text, vertex, wait, workspace};

mod nexmark;

/// An example of the agent's package, which cargo builds with the tests.
fn example(name: &str) -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_tuplane")).with_file_name("examples").join(name);
    assert!(built.exists(), "{} is built by `cargo test --workspace`", built.display());
    built
}

fn own() -> PathBuf {
    example("own")
}

fn own_says(args: &[&str]) -> std::process::Output {
    std::process::Command::new(own()).args(args).output().unwrap()
}

fn job_file(world: &World) -> String {
    let printed = own_says(&["job"]);
    assert!(printed.status.success(), "{}", text(&printed));
    world.file("job.json", printed.stdout)
}

/// What the example's job gives, worked out anew: for each sensor the three highest of its readings.
fn hottest() -> Vec<String> {
    let mut lines = Vec::new();
    for sensor in 0..7 {
        let mut readings: Vec<i64> =
            (0..3000).filter(|row| row % 7 == sensor).map(|row| row % 1000).collect();
        readings.sort_unstable_by(|a, b| b.cmp(a));
        lines.extend(
            readings
                .iter()
                .take(3)
                .map(|fahrenheit| format!("s{sensor} {:.1}", (*fahrenheit as f64 - 32.0) / 1.8)),
        );
    }
    lines.sort();
    lines
}

fn report(folder: &std::path::Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with("report-"), "{}", path.display());
        lines.extend(std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

#[test]
fn the_example_runs_on_three_agents() {
    let world = World::new();
    let job = job_file(&world);
    // Without its agents nothing is known of what it names; they know all of it.
    let offline = world.tuplane(&["check", &job]);
    let said = String::from_utf8_lossy(&offline.stdout).into_owned();
    assert!(offline.status.success(), "{}", text(&offline));
    assert!(said.contains("`readings` is no built-in connector: types are unknown from here on"), "{said}");
    assert!(said.contains("ok, 6 stages, 4 warnings"), "{said}");
    let own_check = own_says(&["check", &job]);
    assert!(
        String::from_utf8_lossy(&own_check.stdout).ends_with("job.json: ok, 6 stages\n"),
        "{}",
        text(&own_check)
    );

    // All in one.
    let own = own();
    let own = own.to_str().unwrap();
    let set = format!("report.with.folder={}", world.path("run-report").display());
    let run = world.tuplane(&["run", &job, "--agents", "2", "--agent", own, "--set", &set]);
    assert!(run.status.success(), "{}", text(&run));
    assert_eq!(report(&world.path("run-report")), hottest());

    let held = String::from_utf8(own_says(&["registry"]).stdout).unwrap();
    let sorts: Vec<&str> = held.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(sorts, ["operator", "operator", "source", "sink", "service", "fingerprint"], "{held}");

    world.up(&["--local", "3", "--slots", "2", "--agent", own]);
    let asked = world.tuplane(&["check", "--agents", &job]);
    assert!(String::from_utf8_lossy(&asked.stdout).ends_with("job.json: ok, 6 stages\n"), "{}", text(&asked));
    let folder = world.path("report");
    let set = format!("report.with.folder={}", folder.display());
    let run = world.tuplane(&["submit", &job, "--wait", "--set", &set]);
    assert!(run.status.success(), "{}", text(&run));
    assert_eq!(report(&folder), hottest());
    let status = world.status("hottest");
    assert_exact_ledger(&status);
    assert_eq!(vertex(&status, "celsius")["rows_in"], 3000, "{status}");
    assert!(!status["files"].as_array().unwrap().is_empty(), "{status}");

    // A live option of a source is the engine's own, whoever made the source.
    let slow = world.file("slow.json", std::fs::read_to_string(&job).unwrap().replace("hottest", "slow"));
    let sets = [
        "--set",
        "readings.rate=20",
        "--set",
        &format!("report.with.folder={}", world.path("slow").display()),
    ];
    let submitted = world.tuplane(&[&["submit", &slow][..], &sets].concat());
    assert!(submitted.status.success(), "{}", text(&submitted));
    let changed = world.tuplane(&["set", "slow", "readings.rate=1000000"]);
    assert!(changed.status.success(), "{}", text(&changed));
    // 3,000 rows at 20 a second would take two and a half minutes.
    world.wait_for("slow", "finished", Duration::from_mins(1));
    assert_eq!(report(&world.path("slow")), hottest());
}

#[test]
fn a_service_of_ones_own_answers_rows_on_three_agents() {
    let world = World::new();
    let job = |args: &str| {
        format!(
            "name = \"placed\"\nstage = [{{ id = \"r\", op = \"source\", connector = \"readings\", with = {{ rows = 3000, sensors = 7 }} }},\n\
             {{ id = \"x\", op = \"rebalance\", in = \"r\" }},\n\
             {{ id = \"p\", op = \"map_using_service_async\", in = \"x\", service = \"rooms\", args = [\"{args}\"], select = [\"sensor\", \"room\"] }},\n\
             {{ id = \"g\", op = \"group_by\", in = \"p\", key = [\"sensor\", \"room\"] }},\n\
             {{ id = \"a\", op = \"aggregate\", in = \"g\", compute = \"count(*) as n\" }},\n\
             {{ id = \"o\", op = \"sink\", in = \"a\", path = \"placed\" }}]"
        )
    };
    let good = world.file("placed.toml", job("sensor"));
    let offline = text(&world.tuplane(&["check", &good]));
    assert!(offline.contains("`rooms` is no built-in service"), "{offline}");
    let stock = world.tuplane(&["run", &good, "--agents", "1"]);
    assert_eq!(stock.status.code(), Some(8), "{}", text(&stock));
    world.up(&["--local", "3", "--slots", "1", "--agent", own().to_str().unwrap()]);
    let asked = world.tuplane(&["check", "--agents", &good]);
    assert!(asked.status.success(), "{}", text(&asked));
    let bad = world.file("bad.toml", job("fahrenheit"));
    let refused = world.tuplane(&["submit", &bad]);
    assert!(
        text(&refused).contains("`rooms`: it is asked with a sensor, which is a text"),
        "{}",
        text(&refused)
    );
    let run = world.tuplane(&["submit", &good, "--wait"]);
    assert!(run.status.success(), "{}", text(&run));
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(world.path("placed")).unwrap() {
        let file = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(file.lines().skip(1).map(str::to_owned));
    }
    lines.sort();
    let wanted: Vec<String> = (0..7)
        .map(|sensor| {
            format!("s{sensor},room {sensor},{}", (0..3000).filter(|row| row % 7 == sensor).count())
        })
        .collect();
    assert_eq!(lines, wanted);
    assert_exact_ledger(&world.status("placed"));
}

#[test]
fn options_that_an_operator_refuses_refuse_the_job() {
    let world = World::new();
    let bad = std::fs::read_to_string(job_file(&world)).unwrap().replace("\"rows\": 3\n", "\"row\": 3\n");
    let bad = bad.replace("{\"rows\":3}", "{\"row\":3}");
    let bad = world.file("bad.json", bad);
    let own_check = own_says(&["check", &bad]);
    assert_eq!(own_check.status.code(), Some(2), "{}", text(&own_check));
    let said = String::from_utf8_lossy(&own_check.stdout).into_owned();
    assert!(said.contains("`top`: its options under `with`: unknown field `row`"), "{said}");
    world.up(&["--local", "1", "--agent", own().to_str().unwrap()]);
    for args in [&["check", "--agents", &bad][..], &["submit", &bad]] {
        let refused = world.tuplane(args);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("bad.json:") && said.contains("unknown field `row`"), "{said}");
    }
    // A folder that cannot be written is said before the job's rows flow.
    let (job, set) = (job_file(&world), format!("report.with.folder={bad}"));
    let failed = world.tuplane(&["submit", &job, "--wait", "--set", &set]);
    assert!(!failed.status.success(), "{}", text(&failed));
    assert!(text(&failed).contains("is a file; a sink writes into a folder"), "{}", text(&failed));
}

#[test]
fn a_panic_in_a_closure_fails_the_job_and_no_agent() {
    let world = World::new();
    let job = job_file(&world);
    world.up(&["--local", "3", "--slots", "1", "--agent", own().to_str().unwrap()]);
    let before = world.pids();
    // One column, where the closure looks for a second one.
    let panics = world.file(
        "panics.toml",
        "name = \"panics\"\nstage = [{ id = \"s\", op = \"source\", connector = \"ids\", n = 1000 },\n\
         { id = \"c\", op = \"custom_transform\", in = \"s\", call = \"celsius\" },\n\
         { id = \"o\", op = \"sink\", in = \"c\", connector = \"count\" }]",
    );
    let failed = world.tuplane(&["submit", &panics, "--wait"]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    let fault = world.status("panics")["fault"].clone();
    let said = fault["message"].as_str().unwrap();
    assert!(said.starts_with("c#") && said.contains("panicked: "), "{fault}");
    assert_eq!(fault["kind"], "instance");
    assert_eq!(world.pids(), before, "an agent ended");
    let set = format!("report.with.folder={}", world.path("report").display());
    let run = world.tuplane(&["submit", &job, "--wait", "--set", &set]);
    assert!(run.status.success(), "{}", text(&run));
    assert_eq!(report(&world.path("report")), hottest());
}

#[test]
fn agents_that_lack_an_operator_are_named() {
    let world = World::new();
    let job = job_file(&world);
    world.up(&["--local", "2"]);
    let refused = world.tuplane(&["submit", &job]);
    assert_eq!(refused.status.code(), Some(8), "{}", text(&refused));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("agents a, b lack source `readings`, operator `celsius`"), "{said}");
}

#[test]
fn agents_of_two_builds_run_what_both_have() {
    let world = World::new();
    let job = job_file(&world);
    let stock = PathBuf::from(env!("CARGO_BIN_EXE_tuplane")).with_file_name("tuplane-agent");
    let first = world.agent_of(&own(), "a", "127.0.0.1:0", None);
    let second = world.agent_of(&stock, "b", "127.0.0.1:0", Some(&first.address));
    let plain = workspace().join("testbed/jobs/nexmark-hot-items-plain.toml");
    let out = format!("out.path={}", world.path("out").display());
    let sets = ["--set", "bids.n=1000", "--set", &out];
    let args = [&["submit", plain.to_str().unwrap(), "--wait"][..], &sets].concat();
    let run: Value = world.json_at(&first.address, &args);
    assert_eq!(run["phase"], "finished", "{run}");
    let key = world.path("cluster.json");
    let key = key.to_str().unwrap();
    let refused = world.tuplane(&["submit", &job, "--cluster", &first.address, "--key", key]);
    assert_eq!(refused.status.code(), Some(8), "{}", text(&refused));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("agents b have another registry than the coordinator"), "{said}");
    drop(second);
}

#[test]
fn a_policy_of_ones_own_deals_the_rows_of_a_live_edge() {
    let world = World::new();
    let job = world.file(
        "near.toml",
        "name = \"near\"\nstage = [{ id = \"s\", op = \"source\", connector = \"ids\", n = 4000, rate = 2000, on = \"a\" },\n\
         { id = \"x\", op = \"rebalance\", in = \"s\", policy = \"near_or_drawn\", v = 3 },\n\
         { id = \"w\", op = \"work\", in = \"x\", ms = 1, parallelism = 1 },\n\
         { id = \"o\", op = \"sink\", in = \"w\", connector = \"count\" }]",
    );
    let offline = world.tuplane(&["check", &job]);
    assert!(offline.status.success(), "{}", text(&offline));
    let said = String::from_utf8_lossy(&offline.stdout);
    assert!(said.contains("`near_or_drawn` is no built-in policy"), "{said}");
    let stock = world.tuplane(&["run", &job, "--agents", "2"]);
    assert_eq!(stock.status.code(), Some(2), "{}", text(&stock));
    assert!(text(&stock).contains("no policy `near_or_drawn` here"), "{}", text(&stock));
    world.up(&["--local", "2", "--slots", "1", "--agent", example("routing").to_str().unwrap()]);
    let submitted = world.tuplane(&["submit", &job]);
    assert!(submitted.status.success(), "{}", text(&submitted));
    let routes = world.json(&["routes", "near"]);
    assert_eq!(routes["edges"][0]["policy"], "near_or_drawn", "{routes}");
    let status = world.wait_for("near", "finished", Duration::from_mins(1));
    assert_exact_ledger(&status);
    assert_eq!(vertex(&status, "w")["rows_in"], 4000, "{status}");
    // The near one does a row a millisecond of two that come: what waits there sends rows to the other.
    let instances = status["per_instance"].as_array().unwrap().iter().filter(|one| one["vertex"] == "w");
    let shares: Vec<u64> = instances.map(|one| one["rows_in"].as_u64().unwrap()).collect();
    assert!(shares.len() == 2 && shares.iter().all(|rows| *rows >= 400), "{shares:?}");
    // The agent's planner is asked about a live job, once that has rates: work takes 4 ms of each 5.
    let paced = world.file(
        "paced.toml",
        "name = \"paced\"\nstage = [{ id = \"s\", op = \"source\", connector = \"ids\", n = 1000000, rate = 200, on = \"a\" },\n\
         { id = \"x\", op = \"rebalance\", in = \"s\" },\n\
         { id = \"w\", op = \"work\", in = \"x\", ms = 4, instances = 1 },\n\
         { id = \"o\", op = \"sink\", in = \"w\", connector = \"count\" }]",
    );
    world.json(&["submit", &paced]);
    let out = ["scale", "out", "paced", "--instances", "1", "--planner", "fullest"];
    wait("rates are known", Duration::from_secs(40), || {
        world.tuplane(&[&out[..], &["--dry-run"]].concat()).status.success()
    });
    let done = world.json(&[&out[..], &["--wait=30s"]].concat());
    assert_eq!((&done["planner"], &done["outcome"]["step"]), (&"fullest".into(), &"done".into()), "{done}");
    assert!(done["started"][0]["name"].as_str().unwrap().starts_with("w#"), "{done}");
}
