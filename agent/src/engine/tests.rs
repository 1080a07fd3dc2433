//! An engine alone: what a stop leaves, whenever it comes.

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tuplane_core::job::FileFormat;
use tuplane_core::plan::{self, AgentSlot};
use tuplane_wire::message::{AgentInfo, Split};

use super::*;

mod apart;
mod keyed;
mod plans;
mod sourced;

struct NoSplits;

impl SplitClient for NoSplits {
    fn next_split(
        &self,
        _: u64,
        _: String,
        _: u32,
        _: u32,
    ) -> BoxFuture<'static, Result<Option<Split>, WireFault>> {
        Box::pin(async { Ok(None) })
    }
}

fn info(name: &str, address: &str) -> AgentInfo {
    AgentInfo {
        id: AgentId { name: name.to_owned(), incarnation: 1 },
        address: address.to_owned(),
        slots: 1,
        cores: 0,
        zone: "z".to_owned(),
        pid: 1,
        version: "0".to_owned(),
        host: "h".to_owned(),
        registry: 0,
    }
}

/// Numbered rows, dealt out over these agents, into files; it lasts.
fn plan_of(run: u64, agents: Vec<AgentInfo>) -> RunPlan {
    let text = r#"
name = "lasting"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
rate = 2000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "out"
op = "sink"
in = "spread"
connector = "file"
format = "csv"
path = "out"
"#;
    plan_for(text, run, agents)
}

/// The first plan of a job.
fn plan_for(text: &str, run: u64, agents: Vec<AgentInfo>) -> RunPlan {
    let job = tuplane_core::job::Job::parse(text, FileFormat::Toml).unwrap();
    let dag = plan::plan(&job).unwrap();
    let slots: Vec<_> = (0u16..)
        .zip(&agents)
        .map(|(index, agent)| AgentSlot { index, name: agent.id.name.clone(), slots: agent.slots })
        .collect();
    let first_agents = agents.len() as u16;
    RunPlan {
        run,
        attempt: 1,
        job: serde_json::to_string(&job).unwrap(),
        dag: serde_json::to_string(&dag).unwrap(),
        instances: plan::place(&dag, &job, &slots).unwrap(),
        agents,
        headers: std::collections::BTreeMap::new(),
        costs: Vec::new(),
        epoch: 1,
        coming: Vec::new(),
        going: Vec::new(),
        first_agents,
        options: Vec::new(),
        policies: Vec::new(),
        maps: std::collections::BTreeMap::new(),
        moving: Vec::new(),
        sources: Vec::new(),
    }
}

fn engine(folder: &std::path::Path) -> (Arc<Engine>, mpsc::UnboundedReceiver<Event>) {
    let (send, events) = mpsc::unbounded_channel();
    let config = EngineConfig {
        me: AgentId { name: "a".to_owned(), incarnation: 1 },
        memory: 16 << 20,
        cores: 0,
        folder: folder.to_owned(),
        state: folder.to_owned(),
        security: Security::Insecure,
        registry: Arc::default(),
    };
    (Engine::new(config, Handle::current(), send, Arc::new(NoSplits)).unwrap(), events)
}

fn assert_nothing_is_left(engine: &Engine) {
    assert!(lock(&engine.runs).is_empty(), "a run is held");
    assert!(lock(&engine.shared.ready).is_empty(), "instances wait to begin");
    assert!(lock(&engine.shared.outbound).is_empty(), "a session is open");
    assert!(engine.reports().is_empty());
}

/// Waits until something holds.
async fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn parts(folder: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.join("out")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path().display().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_the_preparation_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // A peer that takes connections and says nothing.
    let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agents = || vec![info("a", "127.0.0.1:1"), info("b", &peer.local_addr().unwrap().to_string())];
    let (engine, _events) = engine(folder.path());
    for (run, pause_us) in (1..).zip([0, 20, 200, 1_000, 3_000, 10_000, 30_000]) {
        let preparing = tokio::spawn({
            let (engine, plan) = (Arc::clone(&engine), plan_of(run, agents()));
            async move { engine.prepare(plan).await }
        });
        tokio::time::sleep(Duration::from_micros(pause_us)).await;
        // Whether it is found there or not, nothing of it may stay.
        let _ = engine.stop(run, "cancelled", true).await;
        let _ = preparing.await.unwrap();
        assert_nothing_is_left(&engine);
        assert_eq!(engine.prepare(plan_of(run, agents())).await.unwrap_err().code, FaultCode::Stale);
        assert!(engine.start(run).is_err(), "it cannot begin any more");
        assert_nothing_is_left(&engine);
    }
    engine.reopen();
    engine.prepare(plan_of(1, agents())).await.unwrap();
    assert_eq!(lock(&engine.shared.outbound).len(), 1);
    engine.stop(1, "cancelled", true).await.unwrap();
    assert_nothing_is_left(&engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_failed_elsewhere_leaves_no_file_and_a_stop_names_those_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _events) = engine(folder.path());
    for (run, discard) in [(1, true), (2, false)] {
        engine.prepare(plan_of(run, vec![info("a", "127.0.0.1:1")])).await.unwrap();
        engine.start(run).unwrap();
        wait("a part is written", || !parts(folder.path()).is_empty()).await;
        let report = engine.stop(run, "test", discard).await.unwrap();
        let named: Vec<_> = report.parts.iter().map(|part| part.path.clone()).collect();
        assert_eq!(named, parts(folder.path()));
        assert_eq!(named.is_empty(), discard, "{named:?}");
        if discard {
            assert_nothing_is_left(&engine);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_another_agent_become_visible_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _events) = engine(folder.path());
    let path = folder.path().join(".out-3-1-0.csv.part").display().to_string();
    std::fs::write(&path, "id\n1\n").unwrap();
    let part = SinkFile { agent: "b".to_owned(), stage: "out".to_owned(), path, rows: 1, bytes: 5 };
    let sealed = engine.seal(7, vec![part.clone()], vec![]).await.unwrap();
    let file = folder.path().join("out-3-1-0.csv");
    assert_eq!((sealed[0].agent.as_str(), sealed[0].path.clone()), ("a", file.display().to_string()));
    assert_eq!(engine.seal(7, vec![part], vec![]).await.unwrap(), sealed, "again");
    assert_eq!(engine.sink_file(7, &sealed[0].path), Some(file));
    assert_eq!(engine.sink_file(8, &sealed[0].path), None);
    engine.retain(&[8]);
    assert_eq!(engine.sink_file(7, &sealed[0].path), None);
}
