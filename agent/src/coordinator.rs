//! The coordinator: drives the cluster's state machine, keeps its log, and carries out its effects.

mod check;
mod driver;
mod effects;
mod etp;
mod links;
mod live;
mod log;
mod places;
mod scaling;
mod status;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tuplane_wire::message::{
    AgentId, AgentReply, AgentRequest, ClusterReply, ClusterRequest, FaultCode, WireFault,
};
use tuplane_wire::net::Security;

pub use log::LogError;

use crate::registry::Registry;

/// What a coordinator needs to know.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    /// The agent that coordinates.
    pub me: AgentId,
    /// How connections to agents are protected.
    pub security: Security,
    /// Folder of the log.
    pub state: PathBuf,
    /// Relative paths of shared files start here.
    pub folder: PathBuf,
    /// An agent that is not heard of for so long is dead.
    pub lease: Duration,
    /// Cost of a row between zones, `(from, to, cost)`.
    pub costs: Vec<(String, String, u32)>,
    /// Operators, sources and sinks of the user's own that this agent has.
    pub registry: Arc<Registry>,
}

/// Answers requests to the coordinator's own agent, in this process.
pub type OwnAgent = Arc<
    dyn Fn(AgentRequest) -> Pin<Box<dyn Future<Output = Result<AgentReply, WireFault>> + Send>> + Send + Sync,
>;

/// A running coordinator. It lives on the runtime that started it.
#[derive(Debug, Clone)]
pub struct Coordinator {
    notes: mpsc::UnboundedSender<driver::Note>,
    ended: watch::Receiver<Option<Ended>>,
}

/// Why a coordinator has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// A shutdown was asked for, and all other agents were told.
    Shutdown,
    /// Its log cannot be written.
    Failed(String),
}

impl Coordinator {
    /// Opens or makes the log, and goes on from it.
    pub fn start(config: CoordinatorConfig, own: OwnAgent) -> Result<Self, LogError> {
        let (log, state) = log::Log::open(&config.state)?;
        let (notes, inbox) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(None);
        let driver = driver::Driver::new(config, own, notes.clone(), log, state);
        tokio::spawn(driver.run(inbox, end));
        Ok(Self { notes, ended })
    }

    /// Answers a request.
    pub async fn request(&self, request: ClusterRequest) -> Result<ClusterReply, WireFault> {
        let (reply, answer) = oneshot::channel();
        let gone = || {
            // A full disk is no defect, and whoever asks just then hears of it like the one whose request struck it.
            let (code, why) = match &*self.ended.borrow() {
                Some(Ended::Failed(why)) => (FaultCode::Agent, format!(": {why}")),
                Some(Ended::Shutdown) => (FaultCode::Agent, String::new()),
                None => (FaultCode::Internal, String::new()),
            };
            WireFault::new(code, format!("the coordinator has ended{why}"))
        };
        self.notes.send(driver::Note::Asked { request: Box::new(request), reply }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Waits until it has ended.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or(Ended::Shutdown),
            Err(_) => Ended::Failed("the coordinator stopped without a word".to_owned()),
        }
    }
}
