//! A cluster whose agents are tasks, and what a test asks of it.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tuplane_agent::Registry;
use tuplane_agent::node::{self, Build, Farewell};
use tuplane_core::job::{FileFormat, Job};
use tuplane_wire::client::Client;
use tuplane_wire::launch::{AgentConfig, AgentReady};
use tuplane_wire::message::{ClusterReply, ClusterRequest, JobPhase, JobStatus};
use tuplane_wire::net::Security;
use tuplane_wire::service::Hello;

/// Far more than any job here takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often a job is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Some agents, the first of which coordinates. They end with it.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
    farewells: Vec<mpsc::UnboundedSender<Farewell>>,
    folder: TempDir,
}

impl Cluster {
    /// So many agents, called `a`, `b`, ..., with two slots each.
    pub(crate) fn new(agents: u8) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(tuplane_agent::engine::STACK)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut farewells = Vec::new();
        let mut coordinator = None;
        for number in 0..agents {
            let name = char::from(b'a' + number).to_string();
            let home = folder.path().join(&name);
            std::fs::create_dir_all(&home).unwrap();
            let home = home.to_str().unwrap().to_owned();
            let config = AgentConfig {
                cluster: "tasks".to_owned(),
                name,
                listen: "127.0.0.1:0".to_owned(),
                announce: None,
                coordinator: coordinator.clone(),
                key: None,
                slots: 2,
                cores: 0,
                zone: "z".to_owned(),
                costs: Vec::new(),
                memory: 32 << 20,
                lease_ms: 60_000,
                state: home.clone(),
                folder: home,
                log: None,
                detached: false,
                road: None,
            };
            let (farewell, inbox) = mpsc::unbounded_channel();
            let (answer, answered) = oneshot::channel();
            let build = Build { version: "test".to_owned(), registry: Arc::new(Registry::new()) };
            let data = runtime.handle().clone();
            let ready = move |ready: &AgentReady| answer.send(ready.clone()).unwrap();
            runtime.spawn(async move { node::run(config, build, data, inbox, ready).await.unwrap() });
            let AgentReady::Ready { address, .. } = runtime.block_on(answered).unwrap() else { panic!() };
            coordinator.get_or_insert(address);
            farewells.push(farewell);
        }
        let security = Security::from_pem(None).unwrap();
        let client = Client::new(coordinator.unwrap(), security, Hello::ours("test", 0));
        Self { runtime, client, farewells, folder }
    }

    fn ask(&self, request: ClusterRequest) -> ClusterReply {
        self.runtime.block_on(self.client.cluster(request, PATIENCE)).unwrap()
    }

    /// Runs a job (JSON, its file sink writing to `out`) to its end; gives how it ended and the lines of all its
    /// files behind their headers, in order.
    pub(crate) fn run(&self, job: &serde_json::Value) -> (JobStatus, Vec<String>) {
        let mut job = job.clone();
        let out = tempfile::tempdir_in(self.folder.path()).unwrap();
        let sink = job["stages"].as_array_mut().unwrap().last_mut().unwrap();
        sink["path"] = serde_json::Value::from(out.path().to_str().unwrap());
        let text = job.to_string();
        let parsed =
            Job::parse(&text, FileFormat::Json).unwrap_or_else(|faults| panic!("{faults:?}\n{text}"));
        let request = ClusterRequest::Submit { job: serde_json::to_string(&parsed).unwrap(), force: true };
        let ClusterReply::Submitted { run, .. } = self.ask(request) else { panic!("{text}") };
        let began = std::time::Instant::now();
        let status = loop {
            let ClusterReply::Status(status) =
                self.ask(ClusterRequest::Status { job: Some(run.to_string()) })
            else {
                panic!("no status of run {run}")
            };
            if matches!(status.summary.phase, JobPhase::Finished | JobPhase::Failed | JobPhase::Cancelled) {
                break *status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end: {:?}\n{text}", status.summary);
            std::thread::sleep(LOOK);
        };
        let mut lines = Vec::new();
        for file in std::fs::read_dir(out.path()).unwrap() {
            let content = std::fs::read_to_string(file.unwrap().path()).unwrap();
            lines.extend(content.lines().skip(1).map(str::to_owned));
        }
        lines.sort();
        (status, lines)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for farewell in &self.farewells {
            // One that has ended already has said why.
            let _ = farewell.send(Farewell::Shutdown);
        }
    }
}
