//! Event time on real agents: windows over real logs, whatever the number of agents; late rows, wrong stamps,
//! silent inputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::world::{World, assert_exact_ledger, shared, text, vertex, wait, workspace};

/// An entry of a job file.
fn one(op: &str, id: &str, from: &str, more: &str) -> String {
    format!("[[stage]]\nid = \"{id}\"\nop = \"{op}\"\nin = \"{from}\"\n{more}\n")
}

fn source(more: &str) -> String {
    format!("name = \"time\"\n[[stage]]\nid = \"in\"\nop = \"source\"\n{more}\n")
}

/// Key, window, aggregate and sink behind `from`; gives `KEY,START,END,n`.
fn counted(from: &str, key: &str, window: &str) -> String {
    one("group_by", "by", from, &format!("key = \"{key}\""))
        + &one("window", "w", "by", window)
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
        + &one("sink", "out", "counts", "path = \"out\"")
}

/// Runs a job that writes csv; gives its document and the lines of its files, sorted, without headers.
fn run(world: &World, job: &str, agents: usize, name: &str) -> (Value, Vec<String>) {
    let out = world.path(name);
    let sink = format!("out.path={}", out.display());
    let job = world.file(&format!("{name}.toml"), job);
    let output = world.tuplane(&["run", &job, "--agents", &agents.to_string(), "--set", &sink, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_exact_ledger(&document);
    let files = std::fs::read_dir(&out).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let mut lines: Vec<String> =
        files.flat_map(|text| text.unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort();
    (document, lines)
}

/// The last column of all lines, as numbers.
fn last(lines: &[String]) -> Vec<u64> {
    lines.iter().map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}

/// Rows dropped for a reason, over all stages.
fn dropped(document: &Value, reason: &str) -> u64 {
    let vertices = document["vertices"].as_array().unwrap();
    vertices.iter().filter_map(|vertex| vertex["dropped"][reason].as_u64()).sum()
}

/// Rows, and partial results, that were too late.
fn all_late(document: &Value) -> u64 {
    dropped(document, "late") + dropped(document, "late_partials")
}

const TENS: &str = "type = \"tumbling\"\nsize = \"10s\"";

/// A window's bounds as a csv sink writes them, from seconds since 1970 of the same day.
fn clock(of_day: u64) -> String {
    format!("{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[test]
fn rows_out_of_order_are_counted_or_late_and_none_is_lost() {
    let Some(input) = shared("rows_out_of_order", "data/json-zeek/dns_head3k.jsonl") else { return };
    let world = World::new();
    let job = |lateness: &str| {
        source(&format!(
            "path = \"{}\"\nformat = \"jsonl\"\ncolumns = {{ ts = \"text\", query = \"text\" }}\n\
             time = {{ column = \"ts\", lateness = \"{lateness}\" }}",
            input.display()
        )) + &counted("in", "query", TENS)
    };
    for (lateness, agents) in [("0s", 1), ("0s", 2), ("5s", 1), ("5s", 3)] {
        let (document, lines) = run(&world, &job(lateness), agents, &format!("late-{lateness}-{agents}"));
        let late = dropped(&document, "late");
        assert_eq!(last(&lines).iter().sum::<u64>() + late, 3_000, "{lateness}, {agents} agents");
        if late > 0 {
            let notes = document["vertices"].to_string();
            assert!(notes.contains("dns_head3k.jsonl, line "), "{notes}");
        }
    }
    // Each row by its own window, without a watermark.
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(&input).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (day, time) = row["ts"].as_str().unwrap().split_once('T').unwrap();
        let parts: Vec<f64> = time.trim_end_matches('Z').split(':').map(|p| p.parse().unwrap()).collect();
        let start = (parts[0] * 3600.0 + parts[1] * 60.0 + parts[2]) as u64 / 10 * 10;
        let query = row["query"].as_str().unwrap_or_default();
        *expected
            .entry(format!("{query},{day}T{},{day}T{}", clock(start), clock(start + 10)))
            .or_default() += 1;
    }
    let mut expected: Vec<String> = expected.into_iter().map(|(cell, n)| format!("{cell},{n}")).collect();
    expected.sort();
    for agents in 1..=3 {
        let (document, lines) = run(&world, &job("60s"), agents, &format!("all-{agents}"));
        assert_eq!(all_late(&document), 0);
        assert_eq!(lines, expected, "{agents} agents");
    }
}

#[test]
fn views_by_campaign_and_ten_seconds() {
    let test = "views_by_campaign";
    let Some(input) = shared(test, "data/json-ysb/ysb_6k_skew.jsonl") else { return };
    let Some(map) = shared(test, "data/json-ysb/ad_to_campaign.csv") else { return };
    let world = World::new();
    let map = std::fs::read_to_string(map).unwrap();
    let campaign: BTreeMap<&str, &str> = map.lines().filter_map(|line| line.split_once(',')).collect();
    let mut rows = String::new();
    for line in std::fs::read_to_string(&input).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let of = |name: &str| row[name].as_str().unwrap().to_owned();
        writeln!(rows, "{},{},{}", campaign[of("ad_id").as_str()], of("event_type"), of("event_time"))
            .unwrap();
    }
    let path = world.file("views.csv", &rows);
    let columns = "columns = { campaign = \"text\", type = \"text\", at = \"text\" }";
    let file = format!("path = \"{path}\"\nformat = \"csv\"\n{columns}");
    let time = "time = { column = \"at\", format = \"unix_ms\", lateness = \"100ms\" }";
    let filter = |from: &str| one("filter", "views", from, "where = \"type = 'view'\"");
    let mut first: Option<Vec<String>> = None;
    // Stamped by the source, by a vertex of its own behind it, and by a stage; in two stages, and in one behind
    // a rebalance.
    let jobs = [
        source(&format!("{file}\n{time}")) + &filter("in"),
        source(&format!("{file}\n{time}\ntimestamps = \"source\"")) + &filter("in"),
        source(&file) + &one("add_timestamps", "stamped", "in", time) + &filter("stamped"),
        source(&format!("{file}\n{time}")) + &one("rebalance", "spread", "in", "") + &filter("spread"),
    ];
    for (number, job) in jobs.iter().enumerate() {
        for agents in 1..=3 {
            let last_stage = if number == 3 { one("rebalance", "again", "views", "") } else { String::new() };
            let from = if number == 3 { "again" } else { "views" };
            let job = format!("{job}{last_stage}{}", counted(from, "campaign", TENS));
            let (document, lines) = run(&world, &job, agents, &format!("views-{number}-{agents}"));
            assert_eq!(all_late(&document), 0, "job {number}, {agents} agents");
            assert_eq!((lines.len(), last(&lines).iter().sum::<u64>()), (102, 2_005));
            match &first {
                Some(first) => assert_eq!(&lines, first, "job {number}, {agents} agents"),
                None => first = Some(lines),
            }
        }
    }
}

#[test]
fn sessions_of_clients_in_a_web_servers_log() {
    let Some(input) = shared("sessions_of_clients", "data/logs-apache-access/apache_logs") else { return };
    let world = World::new();
    let pattern = r"^(?<client>\\S+) \\S+ \\S+ \\[(?<at>[^\\]]+)\\] ";
    let job = source(&format!(
        "path = \"{}\"\nformat = \"regex\"\npattern = \"{pattern}\"\n\
         time = {{ column = \"at\", format = \"%d/%b/%Y:%H:%M:%S %z\", lateness = \"60s\" }}",
        input.display()
    )) + &counted("in", "client", "type = \"session\"\ngap = \"30m\"");
    let mut first: Option<Vec<String>> = None;
    for agents in 1..=3 {
        let (document, lines) = run(&world, &job, agents, &format!("sessions-{agents}"));
        let requests = last(&lines);
        assert_eq!(all_late(&document), 0);
        assert_eq!(
            (requests.len(), requests.iter().sum::<u64>(), requests.iter().max()),
            (3_052, 10_000, Some(&108))
        );
        match &first {
            Some(first) => assert_eq!(&lines, first, "{agents} agents"),
            None => first = Some(lines),
        }
    }
}

#[test]
fn a_row_dated_two_hours_ahead_changes_no_window_but_its_own() {
    let world = World::new();
    // A row a second for 10 minutes, from 00:00:00.
    let rows: Vec<String> =
        (0..600).map(|second| format!("2024-02-29 {},k\n", clock(second).trim_end_matches('Z'))).collect();
    let columns = "format = \"csv\"\ncolumns = { at = \"text\", k = \"text\" }\ntime = \"at\"\nrate = 20000";
    let good = |lines: &[String]| {
        let path = world.file("rows.csv", lines.concat());
        source(&format!("path = \"{path}\"\n{columns}")) + &counted("in", "k", TENS)
    };
    let (_, plain) = run(&world, &good(&rows), 1, "plain");
    assert_eq!((plain.len(), last(&plain).iter().sum::<u64>()), (60, 600));
    // Line 301 says 02:05:00 at 00:05:00; or the very first line does.
    for place in [300, 0] {
        let mut wrong = rows.clone();
        wrong.insert(place, "2024-02-29 02:05:00,k\n".to_owned());
        let (document, mut lines) = run(&world, &good(&wrong), 1, &format!("wrong-{place}"));
        let its_own = "k,2024-02-29T02:05:00Z,2024-02-29T02:05:10Z,1";
        assert_eq!(lines.iter().filter(|line| *line == its_own).count(), 1, "{lines:?}");
        lines.retain(|line| line != its_own);
        assert_eq!(lines, plain, "line {}", place + 1);
        assert_eq!(all_late(&document), 0);
        if place > 0 {
            let source = vertex(&document, "in");
            assert_eq!(source["ahead"], 1, "{source}");
            let note = source["notes"][0].as_str().unwrap();
            assert!(note.contains("2024-02-29T02:05:00Z") && note.contains("rows.csv, line 301"), "{note}");
        }
    }
}

#[test]
fn a_row_without_a_time_is_named_by_its_line() {
    let world = World::new();
    let path = world.file("rows.csv", "2024-02-29T00:00:01Z,a\nsoon,a\n2024-02-29T00:00:02Z,a\n");
    let columns = "format = \"csv\"\ncolumns = { at = \"text\", k = \"text\" }\ntime = \"at\"";
    let job = |options: &str| {
        let job = source(&format!("path = \"{path}\"\n{columns}")) + &counted("in", "k", TENS);
        job.replacen("name = \"time\"", &format!("name = \"time\"\n{options}"), 1)
    };
    let failing = world.file("failing.toml", job(""));
    let failed = world.tuplane(&["run", &failing]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains("stage in: cannot read 'soon' as a time (RFC 3339"), "{said}");
    assert!(said.contains("rows.csv, line 2)"), "{said}");
    let (document, lines) = run(&world, &job("on_error = \"drop\""), 2, "drop");
    assert_eq!(lines, ["a,2024-02-29T00:00:00Z,2024-02-29T00:00:10Z,2"]);
    assert_eq!(dropped(&document, "time"), 1);
    assert!(vertex(&document, "in")["notes"][0].as_str().unwrap().contains("line 2"), "{document}");
}

#[test]
fn a_window_over_windows_finds_the_most_frequent() {
    let world = World::new();
    let bids = "connector = \"nexmark\"\nevents = \"bid\"\nn = 20000\ntime = \"date_time\"";
    let sliding = "type = \"sliding\"\nsize = \"4s\"\nslide = \"1s\"";
    let counts = one("group_by", "by", "in", "key = \"auction\"")
        + &one("window", "w", "by", sliding)
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]");
    let most = one("window", "again", "counts", "type = \"tumbling\"\nsize = \"1s\"")
        + &one("aggregate", "most", "again", "compute = [\"max(n) as most\", \"sum(n) as bids\"]");
    let sink = |from: &str| one("sink", "out", from, "path = \"out\"");
    let mut first: Option<Vec<String>> = None;
    for agents in 1..=3 {
        let job = source(bids) + &counts;
        let (_, by_auction) =
            run(&world, &(job.clone() + &sink("counts")), agents, &format!("auctions-{agents}"));
        // 46 of 50 events are bids, and each is in 4 windows.
        assert_eq!(last(&by_auction).iter().sum::<u64>(), 20_000 / 50 * 46 * 4);
        let mut expected: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in &by_auction {
            let fields: Vec<&str> = line.split(',').collect();
            let (end, n): (_, u64) = (fields[2].to_owned(), fields[3].parse().unwrap());
            let known = expected.entry(end).or_default();
            *known = (known.0.max(n), known.1 + n);
        }
        let expected: Vec<String> =
            expected.into_iter().map(|(end, (most, bids))| format!("{end},{most},{bids}")).collect();
        let (document, lines) =
            run(&world, &(job + &most + &sink("most")), agents, &format!("most-{agents}"));
        assert_eq!(all_late(&document), 0);
        let found: Vec<String> =
            lines.iter().map(|line| line.split_once(',').unwrap().1.to_owned()).collect();
        assert_eq!(found, expected, "{agents} agents");
        match &first {
            Some(first) => assert_eq!(&lines, first, "{agents} agents"),
            None => first = Some(lines),
        }
    }
}

#[test]
fn windows_of_a_stream_end_while_it_runs_and_a_silent_input_does_not_hold_them_back() {
    let world = World::new();
    world.up(&["--local", "2", "--slots", "1"]);
    // The second source gives one row and then none for an hour.
    let job = |idle: &str| {
        let stream = |id: &str, rate: &str, idle: &str| {
            format!(
                "[[stage]]\nid = \"{id}\"\nop = \"source\"\nconnector = \"generator\"\nkind = \"sequence\"\n\
                 rate = {rate}\ntime = {{ column = \"arrived()\"{idle} }}\ndistributed = false\n"
            )
        };
        let all = stream("busy", "500", "") + &stream("silent", "0.0003", idle);
        format!(
            "name = \"streams\"\n{all}[[stage]]\nid = \"both\"\nop = \"merge\"\nin = [\"busy\", \"silent\"]\n"
        ) + &one("window", "w", "both", "type = \"tumbling\"\nsize = \"500ms\"")
            + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
            + &one("sink", "out", "counts", "connector = \"count\"")
    };
    let submitted = world.file("job.toml", job(", idle = \"200ms\""));
    world.json(&["submit", &submitted, "--name", "idle"]);
    let results = |name: &str| world.status(name)["result_rows"].as_u64().unwrap();
    wait("windows end", Duration::from_secs(30), || results("idle") >= 4);
    let status = world.status("idle");
    let counts = vertex(&status, "counts");
    assert!(counts["watermark_at"].as_str().unwrap().starts_with("20"), "{counts}");
    assert!(counts["behind_ms"].as_i64().unwrap() < 30_000, "{counts}");
    assert_eq!(all_late(&status), 0, "{status}");
    world.json(&["cancel", "idle", "--yes"]);

    let submitted = world.file("job.toml", job(""));
    world.json(&["submit", &submitted, "--name", "held"]);
    wait("rows flow", Duration::from_secs(30), || {
        vertex(&world.status("held"), "both")["rows_out"].as_u64().unwrap() > 2_000
    });
    assert_eq!(results("held"), 0, "the silent input holds all windows back");
    world.json(&["cancel", "held", "--yes"]);
}

#[test]
fn a_window_that_holds_rows_is_waited_for_though_its_input_is_silent() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "2"]);
    let stream = |id: &str| {
        let pipe = world.path(id);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        format!(
            "[[stage]]\nid = \"{id}\"\nop = \"source\"\npath = \"{}\"\nformat = \"csv\"\n\
             columns = {{ at = \"bigint\" }}\nfiles = \"each\"\n\
             time = {{ column = \"at\", format = \"unix\", idle = \"200ms\" }}\n",
            pipe.display()
        )
    };
    let job = stream("few")
        + &stream("many")
        + &one("window", "w1", "few", TENS)
        + &one("aggregate", "tens", "w1", "compute = [\"count(*) as n\"]")
        + &one("map", "left", "tens", "select = [\"n\"]")
        + &one("map", "right", "many", "select = [\"cast(0 as bigint) as n\"]")
        + "[[stage]]\nid = \"both\"\nop = \"merge\"\nin = [\"left\", \"right\"]\n"
        + &one("window", "w2", "both", "type = \"tumbling\"\nsize = \"100s\"")
        + &one("aggregate", "all", "w2", "compute = [\"count(*) as rows\", \"sum(n) as n\"]")
        + &one("map", "short", "all", "select = [\"rows\", \"n\"]")
        + &one("sink", "out", "short", "path = \"out\"");
    let (job, out) = (world.file("job.toml", format!("name = \"waits\"\n{job}")), world.path("out"));
    world.json(&["submit", &job, "--set", &format!("out.path={}", out.display())]);
    // Opening waits until the source has opened the other end.
    let open = |id: &str| std::fs::OpenOptions::new().write(true).open(world.path(id)).unwrap();
    let (mut few, mut many) = (open("few"), open("many"));
    few.write_all(b"100\n101\n102\n").unwrap();
    many.write_all(b"150\n151\n3000\n3001\n").unwrap();
    wait("all rows are taken in", Duration::from_secs(30), || {
        let status = world.status("waits");
        vertex(&status, "right")["rows_in"] == 4 && vertex(&status, "few")["rows_out"] == 3
    });
    // Both fall idle; then the first goes on.
    std::thread::sleep(Duration::from_secs(1));
    few.write_all(b"130\n131\n").unwrap();
    drop((few, many));
    let status = world.wait_for("waits", "finished", Duration::from_secs(30));
    assert_eq!(all_late(&status), 0, "{status}");
    let text = std::fs::read_dir(&out).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let mut lines: Vec<String> =
        text.flat_map(|text| text.unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort();
    // Two of the one, and the windows of 100 and 130 of the other; later those of 3000.
    assert_eq!(lines, ["2,0", "4,5"]);
}

#[test]
fn state_with_a_ttl_is_gone_when_a_row_or_the_watermark_has_passed_it() {
    let world = World::new();
    let pipe = world.path("rows.csv");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    world.up(&["--local", "1", "--slots", "1"]);
    let columns = "format = \"csv\"\ncolumns = { k = \"text\", at = \"bigint\" }\nfiles = \"each\"";
    let time = "time = { column = \"at\", format = \"unix\" }";
    let stateful = "state = [\"0 as seen\"]\nupdate = [\"seen + 1 as seen\"]\nselect = [\"k\", \"at\", \"seen\"]\nttl = \"10s\"";
    let job = source(&format!("path = \"{}\"\n{columns}\n{time}", pipe.display()))
        + &one("group_by", "by", "in", "key = \"k\"")
        + &one("map_stateful", "work", "by", stateful)
        + &one("sink", "out", "work", "path = \"out\"");
    let (job, out) = (world.file("job.toml", job), world.path("out"));
    let sink = format!("out.path={}", out.display());
    world.json(&["submit", &job, "--name", "ttl", "--set", &sink]);
    // Opening waits until the source has opened the other end.
    let mut rows = std::fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    rows.write_all(b"a,0\nb,5\na,6\nb,20\nb,21\n").unwrap();
    wait("the watermark rises", Duration::from_secs(30), || {
        vertex(&world.status("ttl"), "work")["watermark_at"] == "1970-01-01T00:00:21.000Z"
    });
    rows.write_all(b"a,22\na,23\nb,24\n").unwrap();
    drop(rows);
    world.wait_for("ttl", "finished", Duration::from_secs(30));
    let text = std::fs::read_dir(&out).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let mut lines: Vec<String> =
        text.flat_map(|text| text.unwrap().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort_by_key(|line| line.split(',').nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(lines, ["a,0,1", "b,5,1", "a,6,2", "b,20,1", "b,21,2", "a,22,1", "a,23,2", "b,24,3"]);
}

#[test]
fn early_results_come_before_a_window_ends() {
    let world = World::new();
    world.up(&["--local", "1", "--slots", "1"]);
    let job = source("connector = \"generator\"\nkind = \"sequence\"\nrate = 200\ntime = \"arrived()\"")
        + &one("window", "w", "in", "type = \"tumbling\"\nsize = \"10h\"\nearly_ms = 200")
        + &one("aggregate", "counts", "w", "compute = [\"count(*) as n\"]")
        + &one("sink", "out", "counts", "connector = \"count\"");
    let job = world.file("job.toml", job);
    world.json(&["submit", &job, "--name", "early"]);
    wait("early results", Duration::from_secs(30), || {
        world.status("early")["result_rows"].as_u64().unwrap() >= 3
    });
    world.json(&["cancel", "early", "--yes"]);
}

#[test]
fn the_example_of_the_page_runs() {
    let page = std::fs::read_to_string(workspace().join("docs/jobs.md")).unwrap();
    let (_, section) = page.split_once("\n## Event time and windows\n").unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    let (job, rest) = block.split_once("```").unwrap();
    let world = World::new();
    let lines: String = (0..9)
        .map(|n| format!("1.2.3.4 - - [17/May/2015:12:05:0{n} +0200] \"GET / HTTP/1.1\" 200 5\n"))
        .chain(["1.2.3.4 - - [17/May/2015:10:07:00 +0000] \"GET / HTTP/1.1\" 404 5\n".to_owned()])
        .collect();
    let log = world.file("access.log", lines);
    let job = job.replace("access.log", &log);
    let (_, lines) = run(&world, &job, 2, "page");
    assert_eq!(lines.len(), 2);
    assert!(rest.contains(&format!("`{}`", lines[0])), "the page shows such a row: {lines:?}");
    assert_eq!(lines[1], "404,2015-05-17T10:07:00Z,2015-05-17T10:08:00Z,1");
}

#[test]
fn rows_without_event_time_are_refused_before_a_window() {
    let world = World::new();
    let rows = source("connector = \"ids\"\nn = 10");
    let job = world.file("job.toml", rows + &counted("in", "id", TENS));
    for command in ["check", "submit", "run"] {
        let refused = world.tuplane(&[command, &job]);
        assert!(!refused.status.success());
        if command != "submit" {
            let said = text(&refused);
            assert!(said.contains("rows of `in` have no event time"), "{said}");
            assert!(said.contains("add_timestamps before the window"), "{said}");
        }
    }
}
