//! POTUS on live edges: shares, bounded queues, rows that no price lets go, decisions that can be made again.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::world::{ByHand, World, decisions_of, long, text, vertex, wait};

/// Two agents, a with one slot and b with three; a row costs nothing within an agent and 1 from one to the other.
fn two_agents(world: &World) -> [ByHand; 2] {
    let near = world.agent_with("a", None, |config| {
        "x".clone_into(&mut config.zone);
        config.costs = vec![("x".to_owned(), "y".to_owned(), 1)];
    });
    let far = world.agent_with("b", Some(&near.address), |config| {
        "y".clone_into(&mut config.zone);
        config.slots = 3;
    });
    wait("both are there", Duration::from_secs(20), || {
        let agents = world.json_at(&near.address, &["agents"]);
        agents["agents"].as_array().unwrap().iter().filter(|agent| agent["alive"] == true).count() == 2
    });
    [near, far]
}

/// Numbered rows of one source on agent a into work on all slots.
fn job(name: &str, source: &str, policy: &str, ms: &str) -> String {
    format!(
        r#"
name = "{name}"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
distributed = false
on = ["a"]
{source}
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
{policy}
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = {ms}
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "count"
"#
    )
}

/// The edge into work as its only sender sees it.
fn sender(routes: &Value) -> &Value {
    let edges = routes["edges"].as_array().unwrap();
    let edge = edges.iter().find(|edge| edge["edge"] == "rows..work").unwrap_or_else(|| panic!("{routes}"));
    &edge["senders"][0]
}

fn rows_by_target(routes: &Value) -> Vec<f64> {
    let targets = sender(routes)["targets"].as_array().unwrap();
    targets.iter().map(|target| target["rows"].as_f64().unwrap()).collect()
}

/// Looks in about a second.
const SECOND: usize = 6;

/// What was seen of an edge for some time.
#[derive(Debug)]
struct Seen {
    /// Rows by target.
    rows: Vec<f64>,
    seconds: f64,
    /// Rows to the first target and to all, from one look to the next, some fifth of a second.
    looks: Vec<(f64, f64)>,
    most_waiting: f64,
}

impl Seen {
    fn share(&self, target: usize) -> f64 {
        self.rows[target] / self.rows.iter().sum::<f64>()
    }

    /// From the first to the last look at a job.
    fn of(look: impl Fn() -> Value, time: Duration) -> Self {
        let first = rows_by_target(&look());
        let (start, mut last) = (Instant::now(), first.clone());
        let (mut looks, mut most_waiting) = (Vec::new(), 0f64);
        while start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(150));
            let routes = look();
            let now = rows_by_target(&routes);
            let sent: f64 = now.iter().zip(&last).map(|(now, last)| now - last).sum();
            looks.push((now[0] - last[0], sent));
            last = now;
            let seen = sender(&routes);
            let there: f64 =
                seen["targets"].as_array().unwrap().iter().map(|t| t["queued"].as_f64().unwrap()).sum();
            most_waiting = most_waiting.max(there + seen["queued_out"].as_f64().unwrap());
        }
        let rows = last.iter().zip(&first).map(|(last, first)| last - first).collect();
        Self { rows, seconds: start.elapsed().as_secs_f64(), looks, most_waiting }
    }

    /// The local share, counted over so many looks at a time.
    fn shares(&self, looks: usize) -> Vec<f64> {
        let sum =
            |rows: &[(f64, f64)]| rows.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        let counted = self.looks.chunks_exact(looks).map(sum).filter(|(_, all)| *all > 0.0);
        counted.map(|(local, all)| local / all).collect()
    }

    /// Autocorrelation of these shares at a distance of so many, and their standard deviation.
    ///
    /// A local instance that works all the time takes so many rows a second, and what is counted of them in a
    /// short time differs by the few that fall into this look or the next. Differences of such noise have -0.5
    /// at a distance of one by themselves and 0 at two. A sender that alternates has as much at two, upwards.
    fn autocorrelation(&self, looks: usize, distance: usize) -> (f64, f64) {
        let shares = self.shares(looks);
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let off: Vec<f64> = shares.iter().map(|share| share - mean).collect();
        let variance: f64 = off.iter().map(|x| x * x).sum();
        let lagged: f64 = off.iter().zip(&off[distance..]).map(|(now, later)| now * later).sum();
        let deviation = (variance / shares.len() as f64).sqrt();
        (if variance > 0.0 { lagged / variance } else { 0.0 }, deviation)
    }

    /// Its shares swing from look to look and back, by more than a twentieth of all rows: rows leave a few at a
    /// time, and looks that are no whole number of such times apart count one time more and one less by turns.
    fn alternates(&self) -> bool {
        let ((one, deviation), (two, _)) = (self.autocorrelation(1, 1), self.autocorrelation(1, 2));
        one < -0.3 && two > 0.3 && deviation > 0.05
    }
}

#[test]
fn the_remote_share_falls_as_v_grows_and_a_slow_instance_loses_its_share() {
    let world = World::new();
    let [near, _far] = two_agents(&world);
    let file =
        world.file("job.toml", job("p", "n = 100000000\nrate = 800", "policy = \"potus\"\nv = 0", "2"));
    world.json_at(&near.address, &["submit", &file]);
    let look = || world.json_at(&near.address, &["routes", "p"]);
    wait("it runs", Duration::from_secs(10), || {
        world.json_at(&near.address, &["status", "p"])["phase"] == "running"
    });
    let (warm, measure) = if long() { (20, 60) } else { (3, 8) };
    let mut remote = Vec::new();
    for v in ["0", "1", "10", "100"] {
        world.json_at(&near.address, &["route", "p", "rows..work", "potus", "--v", v]);
        std::thread::sleep(Duration::from_secs(warm));
        let seen = Seen::of(look, Duration::from_secs(measure));
        println!(
            "V {v}: remote share {:.3}, {:.0} rows/s, at most {} waiting, lag-1 {:.2} and lag-2 {:.2} of a look, \
             lag-1 {:.2} of a second",
            1.0 - seen.share(0),
            seen.rows.iter().sum::<f64>() / seen.seconds,
            seen.most_waiting,
            seen.autocorrelation(1, 1).0,
            seen.autocorrelation(1, 2).0,
            seen.autocorrelation(SECOND, 1).0
        );
        assert!(seen.most_waiting < 400.0, "V {v}: {seen:?}");
        assert!(seen.rows.iter().sum::<f64>() / seen.seconds > 740.0, "V {v}: {seen:?}");
        assert!(!seen.alternates(), "V {v}: the local share alternates: {seen:?}");
        // Of few seconds chance alone makes more.
        assert!(!long() || seen.autocorrelation(SECOND, 1).0 > -0.3, "V {v}: {seen:?}");
        remote.push(1.0 - seen.share(0));
    }
    let bands = if long() { [(0.65, 0.85), (0.325, 0.425)] } else { [(0.6, 0.9), (0.32, 0.5)] };
    let within = |(least, most): (f64, f64), share: f64| (least..=most).contains(&share);
    assert!(within(bands[0], remote[0]) && within(bands[1], remote[3]), "{remote:?}");
    // A short look at a busy machine finds the local instance slower at times.
    let slack = if long() { 0.03 } else { 0.1 };
    assert!(remote.windows(2).all(|pair| pair[1] <= pair[0] + slack), "{remote:?}");
    // The local instance becomes five times as slow: it has no more than it can do.
    world.json_at(&near.address, &["route", "p", "rows..work", "potus", "--v", "10"]);
    std::thread::sleep(Duration::from_secs(2));
    world.json_at(&near.address, &["set", "p", "work.ms=[10, 2, 2, 2]"]);
    std::thread::sleep(Duration::from_secs(2));
    let seen = Seen::of(look, Duration::from_secs(3));
    println!("slowed: local share {:.3}", seen.share(0));
    assert!(seen.share(0) < 0.25, "{seen:?}");
}

#[test]
fn one_slow_instance_of_four_holds_nobody_up() {
    let world = World::new();
    let agent = world.agent_with("a", None, |config| config.slots = 4);
    let file =
        world.file("job.toml", job("p", "n = 100000000\nrate = 300", "policy = \"potus\"", "[20, 1, 1, 1]"));
    world.json_at(&agent.address, &["submit", &file]);
    wait("it runs", Duration::from_secs(10), || {
        world.json_at(&agent.address, &["status", "p"])["phase"] == "running"
    });
    let (warm, measure) = if long() { (20, 60) } else { (2, 8) };
    std::thread::sleep(Duration::from_secs(warm));
    let look = || world.json_at(&agent.address, &["routes", "p"]);
    let seen = Seen::of(look, Duration::from_secs(measure));
    let rate = seen.rows.iter().sum::<f64>() / seen.seconds;
    println!("{rate:.0} rows/s, the slow one's share {:.3}", seen.share(0));
    assert!((285.0..315.0).contains(&rate) && seen.most_waiting < 60.0, "{seen:?}");
    assert!((0.03..0.2).contains(&seen.share(0)), "{seen:?}");
}

#[test]
fn no_row_is_stranded_by_its_price() {
    let world = World::new();
    let agent = world.agent_with("a", None, |config| config.slots = 2);
    let at = |args: &[&str]| world.json_at(&agent.address, args);
    // Even the way to the agent itself costs something: nothing is ever worth it.
    let dear = "policy = \"potus\"\nv = 1e6\ncost = { \"a..a\" = 1 }";
    let few = "n = 14\nrate = 2";
    at(&["submit", &world.file("d.toml", job("default", few, dear, "0"))]);
    wait("the first row has left", Duration::from_secs(10), || {
        at(&["status", "default"])["result_rows"].as_u64() > Some(0)
    });
    let early = at(&["status", "default"]);
    wait("all have", Duration::from_secs(10), || at(&["status", "default"])["phase"] == "finished");
    assert_eq!(at(&["status", "default"])["result_rows"], 14);
    assert!(early["result_rows"].as_u64() < Some(14), "it left before the end: {early}");
    // As published only the end lets them go, unless what arrives must not wait.
    let paper = format!("{dear}\nsetting = \"paper\"\nadmission = \"relaxed\"");
    at(&["submit", &world.file("p.toml", job("paper", few, &paper, "0"))]);
    wait("rows wait", Duration::from_secs(10), || {
        vertex(&at(&["status", "paper"]), "rows")["queue_out"].as_u64() > Some(2)
    });
    assert_eq!(at(&["status", "paper"])["result_rows"], 0);
    wait("they go at the end", Duration::from_secs(10), || at(&["status", "paper"])["phase"] == "finished");
    assert_eq!(at(&["status", "paper"])["result_rows"], 14);
    // Rows of 64 KiB: queues are at their bounds, and move.
    for setting in ["default", "paper"] {
        let options =
            format!("{dear}\nsetting = \"{setting}\"\nadmission = \"relaxed\"\nmax_hold = \"none\"");
        let job = job("long", "n = 300\npayload = 65536", &options, "0.1");
        let file = world.file("l.toml", format!("{job}\n[job]\nmemory = \"4MiB\"\n"));
        let run = at(&["submit", &file, "--wait"]);
        assert_eq!(run["result_rows"], 300, "{setting}: {run}");
    }
}

#[test]
fn decisions_of_two_jobs_on_the_same_agents_are_those_of_their_queue_lengths() {
    let world = World::new();
    let [near, _far] = two_agents(&world);
    let at = |args: &[&str]| world.json_at(&near.address, args);
    let one = "policy = \"potus\"\nv = 3\nbeta = 2\nrecord = 100";
    let other = "policy = \"potus\"\nsetting = \"paper\"\ngamma = 9\nrecord = 100";
    at(&["submit", &world.file("one.toml", job("one", "n = 100000000\nrate = 600", one, "2"))]);
    at(&["submit", &world.file("other.toml", job("other", "n = 100000000\nrate = 300", other, "3"))]);
    std::thread::sleep(Duration::from_secs(4));
    for name in ["one", "other"] {
        let routes = at(&["routes", name, "--decisions"]);
        let decisions = decisions_of(sender(&routes));
        assert_eq!(decisions.len(), 100, "{name}");
        assert!(decisions.iter().map(|decided| decided.sends.len()).sum::<usize>() > 9, "{name}");
        for decided in &decisions {
            assert_eq!(Some(decided.decision()), decided.again(), "{name}: {decided:?}");
            let sent: u64 = decided.sends.iter().map(|(_, _, rows)| rows).sum();
            assert!(sent <= decided.gamma, "{name}: {decided:?}");
        }
        if name == "other" {
            assert!(decisions.iter().all(|decided| decided.gamma <= 9 && !decided.between));
        }
    }
    // They go on over the targets that a rescale brings.
    let done = at(&["scale", "set", "one", "work=6", "--wait=20s", "--yes"]);
    assert_eq!(done["outcome"]["step"], "done", "{done}");
    let mut seen = Vec::new();
    wait("rows are dealt to the new ones", Duration::from_secs(10), || {
        seen = decisions_of(sender(&at(&["routes", "one", "--decisions"])));
        seen.last().is_some_and(|last| last.edges[0].targets.len() == 6)
    });
    assert!(seen.iter().all(|decided| Some(decided.decision()) == decided.again()), "{seen:?}");
    // Without being asked for they do not come.
    assert_eq!(sender(&at(&["routes", "one"])).get("decisions"), None);
}

#[test]
fn a_route_is_changed_with_its_options_and_says_what_is_in_force() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1", "--zones", "x,y"]);
    world.json(&["submit", &world.file("job.toml", job("p", "n = 100000000\nrate = 500", "", "1"))]);
    world.wait_for("p", "running", Duration::from_secs(10));
    let told = world.json(&[
        "route",
        "p",
        "rows..work",
        "potus",
        "--v",
        "latency=20ms",
        "--beta",
        "capacity",
        "--gamma",
        "90",
        "--cost",
        "x..y=2.5",
        "--max-hold",
        "50ms",
    ]);
    assert_eq!(told["options"]["cost"]["x..y"], 2.5);
    wait("rates are known", Duration::from_secs(10), || {
        sender(&world.json(&["routes", "p"]))["v"]["value"].as_f64() > Some(0.0)
    });
    let routes = world.json(&["routes", "p"]);
    let edge = &routes["edges"][0];
    assert_eq!(
        (&edge["policy"], &edge["setting"], &edge["options"]),
        (&"potus".into(), &"default".into(), &told["options"])
    );
    let seen = sender(&routes);
    assert_eq!((&seen["v"]["rule"], &seen["beta"]["rule"]), (&"latency=20ms".into(), &"capacity".into()));
    assert_eq!(seen["gamma"], 90);
    let target = &seen["targets"][1];
    assert_eq!(
        (target["cost"].as_f64(), &target["agent"], &target["local"]),
        (Some(2.5), &"b".into(), &false.into())
    );
    let price = &target["price"];
    let term = |name: &str| price[name].as_f64().unwrap();
    assert!((term("price") - (term("way") + term("target") - term("sender"))).abs() < 1e-3, "{price}");
    let shown = world.tuplane(&["routes", "p"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("rows..work by potus, setting default, slot 5 ms, V "), "{shown}");
    assert!(shown.contains("(latency=20ms)") && shown.contains("work#1"), "{shown}");
    for (args, code, said) in [
        (&["--v", "fast"][..], 2, "`v` is a number of at least 0"),
        (&["--option", "deel=1"][..], 2, "has no option `deel`"),
        (&["--slot", "1us"][..], 2, "`slot`"),
    ] {
        let mut all = vec!["route", "p", "rows..work", "potus"];
        all.extend(args);
        let output = world.tuplane(&all);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(said), "{args:?}: {}", text(&output));
    }
    let plain = world.tuplane(&["route", "p", "rows..work", "round-robin", "--v", "1"]);
    assert!(text(&plain).contains("the policy `round-robin` has no options"), "{}", text(&plain));
    // Measured costs: the way to itself costs nothing.
    world.json(&["route", "p", "rows..work", "potus", "--cost", "measured"]);
    wait("a round trip is measured", Duration::from_secs(10), || {
        let routes = world.json(&["routes", "p"]);
        let targets = sender(&routes)["targets"].as_array().unwrap();
        targets[0]["cost"].as_f64() == Some(0.0)
            && targets[1]["cost"].as_f64().is_some_and(|cost| cost > 0.0 && cost < 2.9)
    });
    world.json(&["route", "p", "rows..work", "round-robin"]);
    assert_eq!(world.json(&["routes", "p"])["edges"][0]["policy"], "round-robin");
}
