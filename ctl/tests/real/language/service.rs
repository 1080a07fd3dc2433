//! Service calls against a real server: exact results in order, bounds as the server sees them, failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::server::{Reply, Request, Server};
use super::{csv, one, rows, run};
use crate::real::world::{World, assert_exact_ledger, text, vertex, wait};

const SINK: &str = "connector = \"file\"\nformat = \"csv\"\npath = \"out\"";

/// A call by GET of `/items/ID`.
fn call(op: &str, server: &str, more: &str) -> String {
    one(op, "asked", "in", &format!("service = \"http\"\nurl = \"'http://{server}/items/' || id\"\n{more}"))
}

fn ok(body: impl Into<String>) -> Reply {
    Reply::Answer(200, body.into())
}

/// A time between 0 and 20 ms that a number decides: answers come out of order.
fn uneven(number: u64) -> Duration {
    Duration::from_millis(number.wrapping_mul(2_654_435_761) % 21)
}

fn ids(lines: &[String]) -> Vec<u64> {
    lines.iter().map(|line| line.split(',').next().unwrap().parse().unwrap()).collect()
}

/// Runs a job that is not to finish; gives what it says.
fn fails(world: &World, job: &str, name: &str) -> String {
    let job = world.file(&format!("{name}.toml"), format!("name = \"{name}\"\n{job}"));
    let output = world.tuplane(&[
        "run",
        &job,
        "--agents",
        "1",
        "--set",
        &format!("out.path={}", world.path(name).display()),
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn answers_out_of_order_leave_in_order_and_no_instance_asks_more_than_it_may() {
    let world = World::new();
    let server = Server::start(|request| {
        let number = request.number();
        (uneven(number), ok(format!("item {number}")))
    });
    let path = world.file("rows.csv", csv(1500, 7));
    let select = "select = [\"id\", \"response as item\", \"status as code\"]\nconcurrency = 8";
    for ordered in [true, false] {
        let stage = call(
            "map_using_service_async",
            &server.address,
            &format!("{select}\npreserve_order = {ordered}"),
        );
        let job = rows(&path, true) + &stage + &one("sink", "out", "asked", SINK);
        let files = run(&world, &job, 3, &format!("async-{ordered}"));
        assert_eq!(files.len(), 3, "each agent asks");
        let sorted = files.iter().all(|file| ids(file).is_sorted());
        assert_eq!(sorted, ordered, "three files of rows that were dealt out in order");
        let all: BTreeSet<String> = files.into_iter().flatten().collect();
        assert_eq!(all, (0..1500).map(|id| format!("{id},item {id},200")).collect());
    }
    // Slots are processors over agents, at least one.
    let instances = std::thread::available_parallelism().unwrap().get().div_ceil(3) * 3;
    assert!(server.most() <= instances * 8 && server.most() > 8, "{}", server.most());
    assert_eq!(server.requests().len(), 3000);
    assert!(server.connections() <= instances * 8 * 2, "kept alive: {}", server.connections());
}

#[test]
fn a_blocking_form_has_one_request_at_a_time_and_all_forms_see_the_answer() {
    let world = World::new();
    let server = Server::start(|request| {
        let number = request.number();
        (
            Duration::from_millis(1),
            if number % 3 == 0 {
                Reply::Answer(404, String::new())
            } else {
                ok(format!("{number}|x{number}"))
            },
        )
    });
    let path = world.file("rows.csv", csv(90, 7));
    for (form, more, wanted) in [
        (
            "map_using_service",
            "select = [\"id\", \"status\"]",
            (0..90).map(|id| format!("{id},{}", if id % 3 == 0 { 404 } else { 200 })).collect(),
        ),
        (
            "filter_using_service",
            "where = \"status = 200\"",
            (0..90).filter(|id| id % 3 != 0).map(|id| id.to_string()).collect(),
        ),
        (
            "flat_map_using_service",
            "unnest = \"string_to_array(response, '|') as part\"",
            (0..90)
                .filter(|id| id % 3 != 0)
                .flat_map(|id| [format!("{id},{id}"), format!("{id},x{id}")])
                .collect::<Vec<String>>(),
        ),
    ] {
        let job = rows(&path, true)
            + &call(form, &server.address, &format!("{more}\nparallelism = 1"))
            + &one(
                "map",
                "short",
                "asked",
                &format!(
                    "select = [\"id\"{}]",
                    match form {
                        "map_using_service" => ", \"status\"",
                        "flat_map_using_service" => ", \"part\"",
                        _ => "",
                    }
                ),
            )
            + &one("sink", "out", "short", SINK);
        let mut lines: Vec<String> = run(&world, &job, 3, form).into_iter().flatten().collect();
        let mut wanted: Vec<String> = wanted;
        lines.sort();
        wanted.sort();
        assert_eq!(lines, wanted, "{form}");
    }
    assert!(server.most() <= 3, "one at a time on each of three agents: {}", server.most());
}

#[test]
fn rows_are_collected_while_a_request_is_under_way() {
    let world = World::new();
    let server = Server::start(|request| {
        let sent: Vec<Value> = serde_json::from_str(&request.body).unwrap();
        let back: Vec<Value> = sent.iter().map(|one| format!("got {}", one["n"]).into()).collect();
        (Duration::from_millis(5), ok(Value::from(back).to_string()))
    });
    let path = world.file("rows.csv", csv(2000, 7));
    let more = "batched = true\nbatch = 50\nmethod = \"POST\"\nbody = \"named_struct('n', id)\"\n\
                headers = { X-Kind = \"k\", X-Agent = \"env:HOME\" }\nselect = [\"id\", \"response\"]";
    let more = format!("{more}\nurl = \"'http://{}/all'\"\nservice = \"http\"", server.address);
    let job = rows(&path, false)
        + &one("map_using_service_async", "asked", "in", &more)
        + &one("sink", "out", "asked", SINK);
    let lines: BTreeSet<String> = run(&world, &job, 1, "batched").into_iter().flatten().collect();
    assert_eq!(lines, (0..2000).map(|id| format!("{id},got {id}")).collect());
    let requests = server.requests();
    let lengths = |request: &Request| serde_json::from_str::<Vec<Value>>(&request.body).unwrap().len();
    assert!(requests.iter().all(|request| lengths(request) <= 50));
    // Neighbours differ in `k`, so a request has a row, unless two with one key come together.
    assert_eq!(requests.iter().map(lengths).sum::<usize>(), 2000);
    let home = std::env::var("HOME").unwrap();
    assert!(requests.iter().all(|request| request.method == "POST"
        && request.header("x-agent") == Some(&home)
        && request.header("content-type") == Some("application/json")));
    // With the same address and headers a request is full.
    let before = requests.len();
    let job = job.replace("X-Kind = \"k\", ", "");
    let lines = run(&world, &job, 1, "full").into_iter().flatten().count();
    let requests = server.requests().split_off(before);
    assert_eq!((lines, requests.iter().map(lengths).sum::<usize>()), (2000, 2000));
    assert!(
        requests.len() < 200 && requests.iter().any(|request| lengths(request) == 50),
        "{}",
        requests.len()
    );
}

#[test]
fn what_may_pass_is_tried_again_and_what_stays_goes_by_on_error() {
    let world = World::new();
    let tries: Mutex<BTreeMap<u64, u32>> = Mutex::default();
    let server = Server::start(move |request| {
        let number = request.number();
        let mut tries = tries.lock().unwrap();
        let tried = tries.entry(number).or_default();
        *tried += 1;
        let reply = match (number % 10, *tried) {
            // A fault of the server, one of the connection, too many requests: each passes.
            (1, 1..=2) => Reply::Answer(500, "broken".to_owned()),
            (2, 1) => Reply::Close,
            (3, 1) => Reply::Answer(429, String::new()),
            (4, 1) => Reply::Hang,
            // One that stays.
            (5, _) => Reply::Answer(503, "gone".to_owned()),
            _ => ok(format!("{tried}")),
        };
        (Duration::ZERO, reply)
    });
    let path = world.file("rows.csv", csv(100, 7));
    for (on_error, offset) in [("drop", 0), ("null", 1000)] {
        let more = format!(
            "service = \"http\"\nurl = \"'http://{}/' || (id + {offset})\"\ntimeout = \"1s\"\non_error = \"{on_error}\"\n\
             select = [\"id\", \"response as tried\", \"status as code\"]",
            server.address
        );
        let job = rows(&path, false)
            + &one("map_using_service_async", "asked", "in", &more)
            + &one("sink", "out", "asked", SINK);
        let out = world.path(on_error).display().to_string();
        let job = world.file("job.toml", format!("name = \"errors\"\n{job}"));
        let document = world.json(&["run", &job, "--agents", "2", "--set", &format!("out.path={out}")]);
        assert_exact_ledger(&document);
        let asked = vertex(&document, "asked");
        let mut lines = BTreeSet::new();
        for file in std::fs::read_dir(&out).unwrap() {
            lines.extend(
                std::fs::read_to_string(file.unwrap().path()).unwrap().lines().skip(1).map(str::to_owned),
            );
        }
        let mut wanted = BTreeSet::new();
        for id in 0..100 {
            match (id % 10, on_error) {
                (1, _) => drop(wanted.insert(format!("{id},3,200"))),
                (2..=4, _) => drop(wanted.insert(format!("{id},2,200"))),
                (5, "drop") => {}
                (5, _) => drop(wanted.insert(format!("{id},,"))),
                _ => drop(wanted.insert(format!("{id},1,200"))),
            }
        }
        assert_eq!(lines, wanted, "{on_error}");
        assert_eq!(asked["dropped"]["service"].as_u64(), (on_error == "drop").then_some(10), "{asked}");
        let note = asked["notes"][0].as_str().unwrap_or_default();
        assert!(
            note.contains("it answered with status 503 (4 tries)") && note.contains("rows.csv, line "),
            "{note}"
        );
    }
}

#[test]
fn what_must_not_come_twice_is_not_tried_again_unasked() {
    let world = World::new();
    let path = world.file("rows.csv", csv(10, 7));
    for (method, more, requests) in [
        ("POST", "body = \"id\"", 10),
        ("PATCH", "body = \"id\"", 10),
        ("POST", "body = \"id\"\nretries = 1", 20),
        ("PUT", "body = \"id\"\nretries = 1", 20),
        ("DELETE", "retries = 1", 20),
        ("PUT", "body = \"id\"", 40),
    ] {
        let server = Server::start(|_| (Duration::ZERO, Reply::Answer(503, String::new())));
        let more = format!("method = \"{method}\"\n{more}\non_error = \"drop\"\nselect = [\"*\"]");
        let job = rows(&path, false)
            + &call("map_using_service_async", &server.address, &more)
            + &one("sink", "out", "asked", "connector = \"count\"");
        let job = world.file("job.toml", format!("name = \"once\"\n{job}"));
        let document = world.json(&["run", &job, "--agents", "1"]);
        assert_exact_ledger(&document);
        assert_eq!(vertex(&document, "asked")["dropped"]["service"], 10, "{document}");
        assert_eq!(server.requests().len(), requests, "{method} {more}");
    }
}

#[test]
fn a_server_that_is_away_fails_the_job_with_stage_host_and_cause() {
    let world = World::new();
    let path = world.file("rows.csv", csv(5, 7));
    // A port that nobody listens on any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let job = |more: &str| {
        rows(&path, false)
            + &call("map_using_service_async", &address, &format!("{more}\nselect = [\"*\"]"))
            + &one("sink", "out", "asked", SINK)
    };
    let said = fails(&world, &job("retries = 1"), "away");
    let wanted = format!("stage asked: GET {address}: Connection refused (os error 111) (2 tries)");
    assert!(said.contains(&wanted) && said.contains("rows.csv, line "), "{said}");
    let slow = Server::start(|_| (Duration::ZERO, Reply::Hang));
    let said =
        fails(&world, &job("retries = 0\ntimeout = \"300ms\"").replace(&address, &slow.address), "slow");
    assert!(said.contains(&format!("GET {}: no answer within 300ms", slow.address)), "{said}");
    // A constant is looked at before anything runs.
    let scheme =
        world.file("scheme.toml", format!("name = \"scheme\"\n{}", job("").replace("'http://", "'ftp://")));
    let refused = world.tuplane(&["check", &scheme]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("it begins with http:// or https://"), "{}", text(&refused));
}

#[test]
fn a_cancelled_job_ends_its_requests() {
    let world = World::new();
    let server = Server::start(|_| (Duration::ZERO, Reply::Hang));
    let path = world.file("rows.csv", csv(50, 7));
    let job = rows(&path, true)
        + &call(
            "map_using_service_async",
            &server.address,
            "timeout = \"10m\"\nconcurrency = 4\nselect = [\"*\"]",
        )
        + &one("sink", "out", "asked", "connector = \"count\"");
    let job = world.file("job.toml", format!("name = \"hangs\"\n{job}"));
    world.up(&["--local", "3", "--slots", "1"]);
    world.json(&["submit", &job]);
    wait("all that may ask have asked", Duration::from_secs(20), || server.requests().len() == 12);
    let status = world.status("hangs");
    let asked = vertex(&status, "asked");
    assert_eq!(asked["rows_in"], 12, "in hand is bounded: {asked}");
    // They wait, and can take no further row.
    assert!(asked["busy"].as_f64().unwrap() > 0.9, "{asked}");
    assert_eq!(asked["queue_in"].as_u64().unwrap(), 50, "{asked}");
    world.json(&["cancel", "hangs", "--yes"]);
    wait("the requests have ended", Duration::from_secs(10), || server.left() == 12);
    let status = world.status("hangs");
    assert_exact_ledger(&status);
    assert_eq!(vertex(&status, "asked")["dropped"]["stopped"], 12, "{status}");
}

#[test]
fn rows_of_a_key_are_asked_in_one_instance_and_in_order() {
    let world = World::new();
    let server = Server::start(|request| (uneven(request.number()), ok("")));
    let path = world.file("rows.csv", csv(300, 5));
    let group = one("group_by", "by", "spread", "key = \"k\"");
    let source = rows(&path, true).replace("id = \"in\"", "id = \"spread\"");
    let stage = call("map_using_service", &server.address, "parallelism = 1\nselect = [\"id\", \"k\"]")
        .replace("in = \"in\"", "in = \"by\"");
    let job = source + &group + &stage + &one("sink", "out", "asked", SINK);
    let files = run(&world, &job, 3, "grouped");
    let mut home: BTreeMap<String, usize> = BTreeMap::new();
    for (file, lines) in files.iter().enumerate() {
        for line in lines {
            let key = line.split_once(',').unwrap().1.to_owned();
            assert_eq!(*home.entry(key).or_insert(file), file, "a key has one instance");
        }
    }
    assert_eq!((home.len(), files.iter().map(Vec::len).sum::<usize>()), (5, 300));
}

/// What is wrong with a call is said before it runs.
#[test]
fn check_says_what_a_call_lacks() {
    let world = World::new();
    let path = world.file("rows.csv", csv(1, 1));
    let told = |stage: &str| {
        let job = rows(&path, false) + stage + &one("sink", "out", "asked", SINK);
        let job = world.file("job.toml", job);
        let output = world.tuplane(&["check", &job]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        text(&output)
    };
    let mut all = String::new();
    for (op, more, wanted) in [
        ("map_using_service", "service = \"http\"", "has no `url`"),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"http://h/\"\nselect = [\"*\"]",
            "a constant stands in single quotes",
        ),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"id\"\nselect = [\"*\"]",
            "`url` needs text, and `id` is bigint",
        ),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"'http://h/'\"\nconcurrency = 2\nselect = [\"*\"]",
            "belongs to the async form",
        ),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"'http://h/'\"\nwhere = \"true\"",
            "`map_using_service` says `select`",
        ),
        (
            "map_using_service_async",
            "service = \"http\"\nurl = \"'http://h/'\"\nbatched = true\nselect = [\"*\"]",
            "sends several rows at once, and has no `body`",
        ),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"'http://h/'\"\nbody = \"k\"\nselect = [\"*\"]",
            "sends a `body` with GET",
        ),
        (
            "map_using_service",
            "service = \"http\"\nurl = \"'http://h/'\"\nheaders = { \"a b\" = \"k\" }\nselect = [\"*\"]",
            "cannot name a header",
        ),
        (
            "filter_using_service",
            "service = \"http\"\nurl = \"'http://h/'\"\nwhere = \"response\"",
            "needs true or false",
        ),
    ] {
        let said = told(&one(op, "asked", "in", more));
        writeln!(all, "{said}").unwrap();
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    let named = one("map", "named", "in", "select = [\"id\", \"k as status\"]")
        + &call("map_using_service", "h", "select = [\"*\"]").replace("in = \"in\"", "in = \"named\"");
    assert!(told(&named).contains("the row has a column `status`"));
}

/// A variable that the agent lacks is named with the agent, before a row is read.
#[test]
fn a_secret_that_is_not_there_is_named() {
    let world = World::new();
    let path = world.file("rows.csv", csv(5, 7));
    let more = "headers = { Authorization = \"env:TUPLANE_TEST_NOT_SET\" }\nselect = [\"*\"]";
    let job = rows(&path, false)
        + &call("map_using_service", "127.0.0.1:1", more)
        + &one("sink", "out", "asked", SINK);
    let began = Instant::now();
    let said = fails(&world, &job, "secret");
    assert!(
        said.contains(
            "`asked`: on agent a: the header `Authorization` is read from the variable TUPLANE_TEST_NOT_SET"
        ),
        "{said} {:?}",
        began.elapsed()
    );
}
