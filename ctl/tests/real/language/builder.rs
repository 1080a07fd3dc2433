//! A stage that the builder made asks a real server; what it is sent has every digit.

use std::time::Duration;

use serde_json::Value;
use tuplane_core::job::HttpMethod;
use tuplane_core::job::builder::{Pipeline, ServiceSpec, sinks, sources};

use super::server::{Reply, Server};
use crate::real::world::{World, assert_exact_ledger, text};

#[test]
fn a_service_by_the_builder_gets_decimals_and_objects_as_they_are() {
    let world = World::new();
    let server = Server::start(|request| {
        let asked = format!("{} {} {}", request.method, request.header("x-id").unwrap(), request.body);
        (Duration::ZERO, Reply::Answer(200, asked))
    });
    let prices = ["123456789012345678.1234", "0.1000", "99999999999999999999999999999999.9999"];
    let lines: Vec<String> = prices
        .iter()
        .enumerate()
        .map(|(id, price)| format!("{{\"id\": {id}, \"price\": {price}}}\n"))
        .collect();
    let path = world.file("prices.jsonl", lines.concat());
    let pipeline = Pipeline::new("asked");
    let asks = ServiceSpec::http(&format!("'http://{}/'", server.address))
        .method(HttpMethod::Post)
        .header("X-Id", "cast(id as text)")
        .body("named_struct('price', price, 'id', id)")
        .select(["id", "response as answer"]);
    pipeline
        .read(sources::files(path).jsonl().columns([("id", "bigint"), ("price", "decimal(38, 4)")]))
        .map_using_service_async(asks)
        .sort("id")
        .write(sinks::files(world.path("out").display().to_string()).jsonl());
    let job = world.file("job.json", pipeline.to_json().unwrap());
    let output = world.tuplane(&["run", &job, "--agents", "1", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_exact_ledger(&serde_json::from_slice(&output.stdout).unwrap());
    let files = std::fs::read_dir(world.path("out")).unwrap();
    let written: String =
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<Vec<_>>().concat();
    let mut answers: Vec<String> = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["answer"].as_str().unwrap().to_owned())
        .collect();
    answers.sort();
    let wanted = prices.iter().enumerate();
    let wanted: Vec<String> =
        wanted.map(|(id, price)| format!("POST {id} {{\"price\":{price},\"id\":{id}}}")).collect();
    assert_eq!(answers, wanted);
}
