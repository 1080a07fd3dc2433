//! A person's way through the UI, typed into tmux: a cluster, a job, filter, freeze, policy, cancel, quit.

use std::process::{Command, Output};
use std::time::Duration;

use super::world::{World, skip, wait};

/// Six seconds of work on three agents with one core each.
const JOB: &str = r#"name = "seat"
[[stage]]
id = "bids"
op = "source"
connector = "nexmark"
events = "bid"
n = 1000000
on = "a"
[[stage]]
id = "spread"
op = "rebalance"
in = "bids"
[[stage]]
id = "work"
op = "work"
in = "spread"
ms = 2
[[stage]]
id = "out"
op = "sink"
in = "work"
connector = "stdout"
format = "csv"
"#;

/// A tmux server of its own.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux").args(["-S", &self.socket, "-f", "/dev/null"]).args(args).output().unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        let mut args = vec!["send-keys", "-t", "seat"];
        args.extend(keys);
        assert!(self.tmux(&args).status.success());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p", "-t", "seat"]).stdout).into_owned()
    }

    /// Waits until the screen shows a text.
    fn shows(&self, part: &str) -> String {
        let until = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let text = self.text();
            if text.contains(part) {
                return text;
            }
            assert!(std::time::Instant::now() < until, "`{part}` does not come:\n{text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_persons_way_through_the_ui() {
    if Command::new("tmux").arg("-V").output().is_err() {
        skip("a_persons_way_through_the_ui", "tmux");
        return;
    }
    let world = World::new();
    world.up(&["--local", "3", "--slots", "1", "--cores", "1"]);
    let job = world.file("seat.toml", JOB);
    world.json(&["submit", &job]);
    world.wait_for("seat", "running", Duration::from_secs(10));

    let tmux = Tmux { socket: world.path("tmux").display().to_string() };
    let run = world.path("run").display().to_string();
    let command = format!(
        "stty -a > {0}/before; XDG_RUNTIME_DIR={run} LC_ALL=C.UTF-8 {1}; echo ended $?; stty -a > {0}/after; sleep 60",
        world.path("").display(),
        env!("CARGO_BIN_EXE_tuplane"),
    );
    let made =
        tmux.tmux(&["new-session", "-d", "-s", "seat", "-x", "120", "-y", "40", "bash", "-c", &command]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    // From the graph alone: what limits the job, and which edge is rebalanced.
    let graph = tmux.shows("limits the job: work (busy");
    assert!(graph.contains("⇄ bids..work") && graph.contains("rebalance: "), "{graph}");
    assert!(graph.contains("3/3 agents") && graph.contains("LIVE"), "{graph}");

    // Filter.
    tmux.keys(&["5"]);
    tmux.shows("bids#0");
    tmux.keys(&["/", "busy>0.8 host=a", "Enter"]);
    let filtered = tmux.shows("/busy>0.8 host=a");
    assert!(filtered.contains("work#") && !filtered.contains("bids#"), "{filtered}");
    tmux.keys(&["Escape"]);
    tmux.shows("bids#0");

    // Freeze, and go on.
    tmux.keys(&["Space"]);
    tmux.shows("FROZEN");
    tmux.keys(&["Space"]);
    tmux.shows("LIVE");

    // Another policy, through a dialog whose first answer is Cancel.
    tmux.keys(&["1", "Tab", "P"]);
    tmux.shows("policy of bids..work");
    tmux.keys(&["Down", "Enter"]);
    tmux.shows("round-robin → shuffle");
    tmux.keys(&["Enter"]);
    tmux.shows("nothing was changed");
    assert_eq!(super::world::edge(&world.status("seat"), "bids..work")["policy"], "round-robin");
    tmux.keys(&["P", "Down", "Enter", "Tab", "Enter"]);
    tmux.shows("bids..work goes by shuffle now");
    wait("the edge goes by shuffle", Duration::from_secs(5), || {
        super::world::edge(&world.status("seat"), "bids..work")["policy"] == "shuffle"
    });
    tmux.shows("unicast distributed, shuffle");

    // How it chooses its targets, by POTUS from here on, and with another V; each price is said in words.
    tmux.keys(&["3"]);
    tmux.shows("bids..work    shuffle");
    tmux.keys(&["Enter"]);
    tmux.shows("bids..work by shuffle");
    tmux.shows("shuffle has no prices");
    tmux.keys(&[":policy potus v=2", "Enter"]);
    tmux.shows("with v=2; nothing else");
    tmux.keys(&["Tab", "Enter"]);
    tmux.shows("bids..work by potus: V 2, beta 16");
    let prices = tmux.shows("= V*U ");
    assert!(prices.contains("a  backlog ") && prices.contains(" to work#"), "{prices}");
    tmux.keys(&[":option v=balance gamma=500", "Enter"]);
    tmux.shows("v: 2 → balance");
    tmux.keys(&["Tab", "Enter"]);
    tmux.shows("V balance, beta 16, gamma 500");
    let routes = world.json(&["routes", "seat"]);
    assert_eq!(routes["edges"][0]["options"], serde_json::json!({"v": "balance", "gamma": 500}));
    // One instance more, through a plan that is shown first.
    let work = super::world::vertex(&world.status("seat"), "work")["instances"].as_u64().unwrap();
    tmux.keys(&["4"]);
    tmux.shows("the sinks take");
    tmux.keys(&[&format!(":scale work={}", work + 1), "Enter"]);
    let plan = tmux.shows("[ Leave it ]");
    assert!(plan.contains(&format!("work: {work} → {} instances", work + 1)), "{plan}");
    tmux.keys(&["Tab", "Enter"]);
    tmux.shows("being carried out");
    wait("it has one instance more", Duration::from_secs(10), || {
        super::world::vertex(&world.status("seat"), "work")["instances"] == work + 1
    });
    tmux.keys(&["1"]);

    // Cancel the job, and leave.
    tmux.keys(&["C"]);
    tmux.shows("[ Keep it running ]");
    tmux.keys(&["Right", "Enter"]);
    tmux.shows("CANCELLED");
    assert_eq!(world.status("seat")["phase"], "cancelled");
    tmux.keys(&["q"]);
    tmux.shows("ended 0");
    wait("stty has written", Duration::from_secs(5), || {
        std::fs::read(world.path("after")).is_ok_and(|text| !text.is_empty())
    });
    let settings = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(settings("before"), settings("after"));
}
