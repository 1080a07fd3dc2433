//! One agent process: it listens, joins the cluster, reports, and ends when its owner does.

mod keys;
mod member;
mod report;
mod upstream;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tuplane_wire::launch::{AgentConfig, AgentReady};
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentReply, AgentRequest, ClusterReply, ClusterRequest, FaultCode, WireFault,
};
use tuplane_wire::net::{Kind, Listener, Security};
use tuplane_wire::service::{Handler, Hello, serve_control};

use crate::coordinator::{Coordinator, CoordinatorConfig, Ended, OwnAgent};
use crate::registry::Registry;
use crate::telemetry;
use member::Member;
use upstream::{Slot, Upstream};

/// Longest part of a file that one call reads.
const FILE_CHUNK: u64 = 1 << 20;

/// An agent that cannot join within this time says so and ends.
const JOIN: Duration = Duration::from_secs(8);

/// How long the coordinator may take to answer a registration.
const REGISTER: Duration = Duration::from_secs(3);

/// Replies that are under way when the agent ends get so long.
const LAST_WORDS: Duration = Duration::from_millis(150);

/// Why an agent could not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The port cannot be listened on.
    #[error(transparent)]
    Net(#[from] tuplane_wire::net::NetError),
    /// The key is none.
    #[error(transparent)]
    Key(#[from] tuplane_wire::net::KeyError),
    /// The coordinator's log cannot be used.
    #[error(transparent)]
    Log(#[from] crate::coordinator::LogError),
    /// The system refused something.
    #[error("cannot start the agent: {0}")]
    System(#[from] std::io::Error),
    /// The coordinator refused it, or was not there.
    #[error("cannot join the cluster: {0}")]
    Join(String),
}

/// Why an agent has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Farewell {
    /// The cluster was shut down, or has released this agent.
    Shutdown,
    /// Its owner's end of standard input is closed.
    OwnerGone,
    /// A signal.
    Signal(&'static str),
    /// The coordinator was not reached for a lease.
    CoordinatorGone(String),
    /// It cannot go on.
    Failed(String),
}

/// What an agent is built from, beside its configuration.
#[derive(Debug, Clone)]
pub struct Build {
    /// Version, for people.
    pub version: String,
    /// Operators, sources and sinks of the user's own.
    pub registry: Arc<Registry>,
}

/// Things that end an agent, seen elsewhere in the process.
pub type Farewells = mpsc::UnboundedReceiver<Farewell>;

/// What the parts of an agent share.
struct Node {
    config: AgentConfig,
    build: Build,
    security: Security,
    data: Handle,
    address: String,
    host: String,
    slot: Slot,
    /// The cluster's lease, as the coordinator said it last.
    lease_ms: AtomicU64,
    /// Replaced when the cluster has given this incarnation up.
    member: RwLock<Arc<Member>>,
    end: mpsc::UnboundedSender<Farewell>,
}

/// Runs an agent on the current (control) runtime until it ends; `data` runs its instances.
/// `ready` is called once, when it has joined.
pub async fn run(
    config: AgentConfig,
    build: Build,
    data: Handle,
    mut farewells: Farewells,
    ready: impl FnOnce(&AgentReady),
) -> Result<Farewell, NodeError> {
    let security = Security::from_pem(config.key.as_ref())?;
    let mut listener = Listener::bind(&config.listen, &security).await?;
    let address = announced(&config, listener.local_address());
    let (end, mut ends) = mpsc::unbounded_channel();
    let node = Node::new(config, build, security, data, address, end)?;
    let serving = node.clone();
    let accepting = tokio::spawn(async move {
        while let Some(incoming) = listener.accept().await {
            serving.accept(incoming);
        }
    });
    // Its owner may go, or end it, while it waits for a coordinator.
    tokio::select! {
        joined = node.join() => joined?,
        Some(farewell) = farewells.recv() => {
            tracing::info!(?farewell, "the agent ends before it has joined");
            accepting.abort();
            return Ok(farewell);
        }
    }
    ready(&AgentReady::Ready {
        address: node.address.clone(),
        pid: std::process::id(),
        started: telemetry::process_start().unwrap_or(0),
        version: node.build.version.clone(),
        binary: String::new(),
    });
    let reporting = tokio::spawn(report::report(node.clone()));
    let farewell = tokio::select! {
        Some(farewell) = farewells.recv() => farewell,
        Some(farewell) = ends.recv() => farewell,
        farewell = node.coordinator_ended() => farewell,
    };
    tracing::info!(?farewell, "the agent ends");
    tokio::time::sleep(LAST_WORDS).await;
    reporting.abort();
    accepting.abort();
    Ok(farewell)
}

/// `host:port` for others: the announced host, or the one that is listened on.
fn announced(config: &AgentConfig, local: std::net::SocketAddr) -> String {
    match &config.announce {
        Some(host) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{}", local.port()),
        Some(host) => format!("{host}:{}", local.port()),
        None => local.to_string(),
    }
}

impl Node {
    fn new(
        config: AgentConfig,
        build: Build,
        security: Security,
        data: Handle,
        address: String,
        end: mpsc::UnboundedSender<Farewell>,
    ) -> Result<Arc<Self>, NodeError> {
        let host = telemetry::host_name();
        let id = AgentId { name: config.name.clone(), incarnation: wall_ns() };
        let slot = Slot::default();
        let member = Arc::new(Member::new(
            &config,
            id.clone(),
            &security,
            &data,
            slot.clone(),
            build.registry.clone(),
        )?);
        let node = Arc::new(Self {
            lease_ms: AtomicU64::new(config.lease_ms.max(1)),
            config,
            build,
            security,
            data,
            address,
            host,
            slot,
            member: RwLock::new(member),
            end,
        });
        node.slot.set(node.make_upstream(id)?);
        Ok(node)
    }

    fn make_upstream(self: &Arc<Self>, me: AgentId) -> Result<Upstream, NodeError> {
        if let Some(address) = &self.config.coordinator {
            return Ok(Upstream::remote(address, &self.security, self.hello()));
        }
        let config = CoordinatorConfig {
            me,
            security: self.security.clone(),
            state: PathBuf::from(&self.config.state),
            folder: PathBuf::from(&self.config.folder),
            lease: self.lease(),
            costs: self.config.costs.clone(),
            registry: self.build.registry.clone(),
        };
        let weak = Arc::downgrade(self);
        let own: OwnAgent = Arc::new(move |request| {
            let node = weak.upgrade();
            Box::pin(async move {
                match node {
                    Some(node) => node.answer(request).await,
                    None => Err(WireFault::new(FaultCode::Agent, "the agent has ended")),
                }
            })
        });
        Ok(Upstream::Local(Coordinator::start(config, own)?))
    }

    fn hello(&self) -> Hello {
        Hello::ours(&self.build.version, self.build.registry.fingerprint())
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed))
    }

    fn member(&self) -> Arc<Member> {
        self.member.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn info(&self, id: AgentId) -> AgentInfo {
        AgentInfo {
            id,
            address: self.address.clone(),
            slots: self.config.slots,
            cores: self.config.cores,
            zone: self.config.zone.clone(),
            pid: std::process::id(),
            version: self.build.version.clone(),
            host: self.host.clone(),
            registry: self.build.registry.fingerprint(),
        }
    }

    fn upstream(&self) -> Result<Upstream, WireFault> {
        let early = || WireFault::new(FaultCode::Internal, "the agent is still starting");
        self.slot.get().ok_or_else(early)
    }

    /// Joins the cluster for the first time.
    async fn join(self: &Arc<Self>) -> Result<(), NodeError> {
        let until = Instant::now() + JOIN;
        loop {
            match self.register().await {
                Ok(()) => return Ok(()),
                Err(fault) if fault.retryable && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(fault) => return Err(NodeError::Join(fault.message)),
            }
        }
    }

    /// Registers; as a new incarnation if the present one was given up.
    async fn register(self: &Arc<Self>) -> Result<(), WireFault> {
        let id = self.member().id.clone();
        match self.register_as(id).await {
            Err(fault) if fault.code == FaultCode::Stale => self.register_as(self.begin_anew()?).await,
            result => result,
        }
    }

    async fn register_as(&self, id: AgentId) -> Result<(), WireFault> {
        let upstream = self.upstream()?;
        match upstream.call(ClusterRequest::Register(self.info(id)), REGISTER).await? {
            ClusterReply::Registered { lease_ms, .. } => {
                self.lease_ms.store(lease_ms.max(1), Ordering::Relaxed);
                upstream.same_data_version()
            }
            other => Err(WireFault::new(FaultCode::Internal, format!("unexpected answer: {other:?}"))),
        }
    }

    /// Drops all that the old incarnation ran: the cluster has written it off.
    fn begin_anew(self: &Arc<Self>) -> Result<AgentId, WireFault> {
        let old = self.member();
        let id = AgentId { name: old.id.name.clone(), incarnation: wall_ns().max(old.id.incarnation + 1) };
        tracing::warn!(incarnation = id.incarnation, "this agent was given up; it joins anew");
        let registry = self.build.registry.clone();
        let (security, slot) = (&self.security, self.slot.clone());
        let member = Member::new(&self.config, id.clone(), security, &self.data, slot, registry)
            .map_err(|e| WireFault::new(FaultCode::Internal, e.to_string()))?;
        *self.member.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(member);
        old.engine.close();
        Ok(id)
    }

    fn accept(self: &Arc<Self>, incoming: tuplane_wire::net::Incoming) {
        if incoming.kind() == Kind::Data {
            self.member().engine.accept_data(incoming);
            return;
        }
        let node = self.clone();
        tokio::spawn(async move {
            let peer = incoming.peer();
            match incoming.secure(&node.security).await {
                Ok(stream) => serve_control(stream, node).await,
                Err(error) => tracing::info!(%peer, %error, "connection refused"),
            }
        });
    }

    async fn coordinator_ended(&self) -> Farewell {
        match self.slot.get() {
            Some(Upstream::Local(coordinator)) => match coordinator.ended().await {
                Ended::Shutdown => Farewell::Shutdown,
                Ended::Failed(message) => Farewell::Failed(message),
            },
            _ => std::future::pending().await,
        }
    }

    async fn answer(&self, request: AgentRequest) -> Result<AgentReply, WireFault> {
        let engine = &self.member().engine;
        match request {
            AgentRequest::Prepare(plan) => engine.prepare(*plan).await.map(|()| AgentReply::Done),
            AgentRequest::Connect { run } => engine.connect(run).await.map(|()| AgentReply::Done),
            AgentRequest::Start { run } => engine.start(run).map(|()| AgentReply::Done),
            AgentRequest::Extend(plan) => engine.extend(*plan).await.map(|()| AgentReply::Done),
            AgentRequest::StartNew { run, epoch } => keys::start_new(engine, run, epoch).await,
            AgentRequest::Halt { run, epoch, instances } => {
                engine.halt(run, epoch, &instances).map(|()| AgentReply::Done)
            }
            AgentRequest::Switch { run, epoch } => engine.switch(run, epoch).map(|()| AgentReply::Done),
            AgentRequest::Abort { run, epoch } => {
                engine.abort(run, epoch).await;
                Ok(AgentReply::Done)
            }
            AgentRequest::Keys(ask) => keys::answer(engine, ask).await,
            AgentRequest::Sources(ask) => keys::sources(engine, ask).await,
            AgentRequest::Stop { run, reason, discard } => {
                engine.stop(run, &reason, discard).await.map(|report| AgentReply::Stopped(Box::new(report)))
            }
            AgentRequest::Seal { run, empty, parts } => {
                engine.seal(run, parts, empty).await.map(AgentReply::Sealed)
            }
            AgentRequest::Forget { run } => {
                engine.forget(run).await;
                Ok(AgentReply::Done)
            }
            AgentRequest::Set { run, stage, option, value } => {
                engine.set(run, &stage, &option, &value).map(|()| AgentReply::Done)
            }
            AgentRequest::Route { run, edge, policy, options } => {
                engine.route(run, edge, &policy, &options).map(|()| AgentReply::Done)
            }
            AgentRequest::Routings { run, decisions } => {
                engine.routings(run, decisions).map(AgentReply::Routings)
            }
            AgentRequest::PeerLost(id) => {
                engine.peer_lost(&id);
                Ok(AgentReply::Done)
            }
            AgentRequest::ReadFile { run, path, offset } => {
                let Some(file) = engine.sink_file(run, &path) else {
                    let message = format!("run {run} wrote no file `{path}` on this agent");
                    return Err(WireFault::new(FaultCode::NotFound, message));
                };
                let read = tokio::task::spawn_blocking(move || read_part(&file, offset)).await;
                let fault = |cause: String| {
                    WireFault::new(FaultCode::Instance, format!("`{path}` cannot be read: {cause}"))
                };
                let bytes = read.map_err(|e| fault(e.to_string()))?.map_err(|e| fault(e.to_string()))?;
                Ok(AgentReply::Bytes(bytes))
            }
            AgentRequest::Locate { run, place } => engine.locate(run, place).await.map(AgentReply::Located),
            AgentRequest::Peek { run, vertex, follower, rate, from } => {
                let peeked = engine.peek(run, vertex, follower, rate, from)?;
                Ok(AgentReply::Peeked(Box::new(peeked)))
            }
            AgentRequest::Ping => Ok(AgentReply::Clock(wall_ns())),
            AgentRequest::Shutdown => {
                // Without its receiver the agent is ending already.
                let _ = self.end.send(Farewell::Shutdown);
                Ok(AgentReply::Done)
            }
        }
    }
}

impl Handler for Node {
    fn hello(&self) -> Hello {
        Node::hello(self)
    }

    async fn cluster(&self, request: ClusterRequest) -> Result<ClusterReply, WireFault> {
        match self.upstream()? {
            Upstream::Local(coordinator) => coordinator.request(request).await,
            Upstream::Remote(client) => {
                let message = format!("this agent does not coordinate; ask {}", client.address());
                Err(WireFault::new(FaultCode::NotCoordinator, message))
            }
        }
    }

    async fn agent(&self, request: AgentRequest) -> Result<AgentReply, WireFault> {
        self.answer(request).await
    }
}

fn read_part(path: &std::path::Path, offset: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(FILE_CHUNK).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Wall clock, for names and for display.
pub fn wall_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
