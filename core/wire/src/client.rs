//! A client that reconnects: tarpc's own ends for good with its connection.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tarpc::client::{NewClient, RpcError};
use tarpc::context::Context;
use tokio::sync::watch;

use crate::codec::{Codec, MAX_PAYLOAD, Payload};
use crate::message::{AgentReply, AgentRequest, ClusterReply, ClusterRequest, FaultCode, WireFault};
use crate::net::{self, Kind, NetError, Security, Stream};
use crate::service::{ControlClient, Hello, framed};
use crate::version::ControlVersion;

/// First and longest wait between two attempts to connect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Longest that connecting may take, whatever the call's deadline.
const CONNECT: Duration = Duration::from_secs(3);

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection, or it broke before the reply: the request may have been handled.
    #[error("{address} cannot be reached: {cause}")]
    Unreachable {
        /// Where.
        address: String,
        /// What was seen.
        cause: String,
        /// The host answers and nobody listens: the process is gone.
        refused: bool,
    },
    /// No reply in time.
    #[error("{address} did not answer within {} ms", waited.as_millis())]
    Timeout {
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
    },
    /// The other side answered with a fault.
    #[error(transparent)]
    Fault(#[from] WireFault),
}

impl CallError {
    /// The fault that a caller who has to answer somebody else passes on.
    pub fn into_fault(self, otherwise: FaultCode) -> WireFault {
        match self {
            Self::Fault(fault) => fault,
            other => WireFault { retryable: true, ..WireFault::new(otherwise, other.to_string()) },
        }
    }
}

/// Where a client stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkState {
    /// There is a connection.
    Connected,
    /// There is none.
    Disconnected(Outage),
}

/// A time without a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// When it began.
    pub since: Instant,
    /// What was seen last.
    pub cause: String,
    /// Attempts to connect that failed since.
    pub attempt: u32,
    /// Nobody listens there.
    pub refused: bool,
    /// Not dialled again before.
    pub retry_at: Instant,
}

/// Opens the bytes below a connection where an address cannot be dialled from here.
pub trait Carrier: std::fmt::Debug + Send + Sync {
    /// Bytes to and from `host:port`, or why there are none. One that is given up and asked for again goes on
    /// where it was.
    fn open(&self, address: &str) -> BoxFuture<'_, Result<Stream, String>>;

    /// How long that may take, which is no part of a call's deadline: it may have to log in.
    fn patience(&self) -> Duration;
}

/// A control client for one address; may be called from many tasks at once.
#[derive(Debug)]
pub struct Client {
    address: String,
    carrier: Option<Arc<dyn Carrier>>,
    security: Security,
    hello: Hello,
    /// Held while connecting, so that there is one attempt at a time.
    link: tokio::sync::Mutex<Option<Link>>,
    state: watch::Sender<LinkState>,
    theirs: Mutex<Option<Hello>>,
}

#[derive(Debug, Clone)]
struct Link {
    rpc: ControlClient,
    version: ControlVersion,
    /// Closed when the connection has ended.
    life: watch::Receiver<()>,
}

impl Link {
    fn is_alive(&self) -> bool {
        self.life.has_changed().is_ok()
    }
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Cluster,
    Agent,
}

impl Client {
    /// A client that connects at its first call.
    pub fn new(address: impl Into<String>, security: Security, hello: Hello) -> Self {
        let now = Instant::now();
        let state = LinkState::Disconnected(Outage {
            since: now,
            cause: "not connected yet".to_owned(),
            attempt: 0,
            refused: false,
            retry_at: now,
        });
        Self {
            address: address.into(),
            carrier: None,
            security,
            hello,
            link: tokio::sync::Mutex::new(None),
            state: watch::Sender::new(state),
            theirs: Mutex::new(None),
        }
    }

    /// Connects over `carrier` rather than by dialling.
    #[must_use]
    pub fn over(mut self, carrier: Arc<dyn Carrier>) -> Self {
        self.carrier = Some(carrier);
        self
    }

    /// Where it connects to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Follows the connection; its end shows as soon as this side sees it, without a call.
    pub fn watch(&self) -> watch::Receiver<LinkState> {
        self.state.subscribe()
    }

    /// What the other side said at the last connection.
    pub fn theirs(&self) -> Option<Hello> {
        self.theirs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the coordinator.
    pub async fn cluster(
        &self,
        request: ClusterRequest,
        deadline: Duration,
    ) -> Result<ClusterReply, CallError> {
        self.call(Method::Cluster, &request, deadline).await
    }

    /// Asks an agent.
    pub async fn agent(&self, request: AgentRequest, deadline: Duration) -> Result<AgentReply, CallError> {
        self.call(Method::Agent, &request, deadline).await
    }

    async fn call<Request, Reply>(
        &self,
        method: Method,
        request: &Request,
        deadline: Duration,
    ) -> Result<Reply, CallError>
    where
        Request: serde::Serialize,
        Reply: serde::de::DeserializeOwned,
    {
        let timeout = |waited| CallError::Timeout { address: self.address.clone(), waited };
        let connecting =
            deadline + self.carrier.as_ref().map_or(Duration::ZERO, |carrier| carrier.patience());
        let until = Instant::now() + connecting;
        let link = tokio::time::timeout_at(until.into(), self.connected(until))
            .await
            .map_err(|_| timeout(connecting))??;
        let until = if self.carrier.is_some() { Instant::now() + deadline } else { until };
        let payload = Payload::encode(link.version, request)
            .map_err(|e| WireFault::new(FaultCode::Internal, e.to_string()))?;
        let len = payload.as_bytes().len();
        if len > MAX_PAYLOAD {
            let message =
                format!("the request is {len} bytes long, at most {MAX_PAYLOAD} may be sent at once");
            return Err(WireFault::new(FaultCode::Refused, message).into());
        }
        let mut context = Context::current();
        context.deadline = until;
        let reply = async {
            match method {
                Method::Cluster => link.rpc.cluster(context, payload).await,
                Method::Agent => link.rpc.agent(context, payload).await,
            }
        };
        // A deadline of our own: tarpc's is not looked at while its connection cannot be written to.
        match tokio::time::timeout_at(until.into(), reply).await {
            Err(_) | Ok(Err(RpcError::DeadlineExceeded)) => Err(timeout(deadline)),
            Ok(Ok(payload)) => {
                let result: Result<Reply, WireFault> = payload.decode().map_err(|e| {
                    WireFault::new(FaultCode::Version, format!("{} answered with {e}", self.address))
                })?;
                Ok(result?)
            }
            Ok(Err(RpcError::Server(e))) => {
                let busy =
                    WireFault::new(FaultCode::Refused, format!("{} is busy: {}", self.address, e.detail));
                Err(WireFault { retryable: true, ..busy }.into())
            }
            Ok(Err(e)) => {
                tracing::debug!(address = self.address, error = %e, "a call has no reply");
                Err(CallError::Unreachable {
                    address: self.address.clone(),
                    cause: "the connection broke before the reply".to_owned(),
                    refused: false,
                })
            }
        }
    }

    /// A connection that stands: the present one, or a new one once the back-off allows it.
    async fn connected(&self, until: Instant) -> Result<Link, CallError> {
        let mut slot = self.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_alive()) {
            return Ok(link.clone());
        }
        *slot = None;
        let outage = match &*self.state.borrow() {
            LinkState::Disconnected(outage) => outage.clone(),
            // Its end was seen by us before it was published.
            LinkState::Connected => outage("the connection ended".to_owned()),
        };
        if outage.retry_at > until {
            tokio::time::sleep_until(until.into()).await;
            return Err(self.unreachable(&outage));
        }
        tokio::time::sleep_until(outage.retry_at.into()).await;
        let most = CONNECT + self.carrier.as_ref().map_or(Duration::ZERO, |carrier| carrier.patience());
        let limit = most.min(until.saturating_duration_since(Instant::now()));
        match tokio::time::timeout(limit, self.connect(limit)).await {
            Ok(Ok(link)) => {
                *slot = Some(link.clone());
                Ok(link)
            }
            Ok(Err(Failed::Fault(fault))) => {
                self.failed(outage, fault.message.clone(), false);
                Err(CallError::Fault(fault))
            }
            Ok(Err(Failed::Net { cause, refused })) => {
                Err(self.unreachable(&self.failed(outage, cause, refused)))
            }
            Err(_) => {
                let cause = format!("no answer within {} ms", limit.as_millis());
                Err(self.unreachable(&self.failed(outage, cause, false)))
            }
        }
    }

    async fn connect(&self, limit: Duration) -> Result<Link, Failed> {
        let stream = match &self.carrier {
            None => net::dial(&self.address, Kind::Control, &self.security, limit).await?,
            Some(carrier) => {
                let failed = |cause| Failed::Net { cause, refused: false };
                let bytes = carrier.open(&self.address).await.map_err(failed)?;
                net::dial_over(bytes, &self.address, Kind::Control, &self.security, limit).await?
            }
        };
        let transport = tarpc::serde_transport::new(framed(stream), Codec);
        let NewClient { client: rpc, dispatch } =
            ControlClient::new(tarpc::client::Config::default(), transport);
        let (ends, life) = watch::channel(());
        let (state, address) = (self.state.clone(), self.address.clone());
        // Published only by a connection that got as far as `Connected`.
        tokio::spawn(async move {
            let cause = match dispatch.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(e) => e.to_string(),
            };
            tracing::debug!(address, cause, "control connection ended");
            let now = Instant::now();
            state.send_if_modified(|state| {
                let connected = *state == LinkState::Connected;
                if connected {
                    *state = LinkState::Disconnected(Outage {
                        since: now,
                        cause,
                        attempt: 0,
                        refused: false,
                        retry_at: now,
                    });
                }
                connected
            });
            drop(ends);
        });
        let mut context = Context::current();
        context.deadline = Instant::now() + limit;
        let theirs = rpc.hello(context, self.hello.clone()).await.map_err(|e| Failed::Net {
            cause: format!("it did not answer the greeting ({e})"),
            refused: false,
        })?;
        let version = theirs.agree().map_err(|fault| {
            Failed::Fault(WireFault { message: format!("{}: {}", self.address, fault.message), ..fault })
        })?;
        *self.theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(theirs);
        let link = Link { rpc, version, life };
        self.state.send_replace(LinkState::Connected);
        // It may have ended in between, and then nobody else would say so.
        if !link.is_alive() {
            self.state.send_replace(LinkState::Disconnected(outage("the connection ended".to_owned())));
        }
        Ok(link)
    }

    /// Notes a failed attempt and when the next one may be made.
    fn failed(&self, before: Outage, cause: String, refused: bool) -> Outage {
        let retry_at = Instant::now() + backoff(before.attempt, random());
        let outage = Outage { cause, refused, attempt: before.attempt.saturating_add(1), retry_at, ..before };
        self.state.send_replace(LinkState::Disconnected(outage.clone()));
        outage
    }

    fn unreachable(&self, outage: &Outage) -> CallError {
        CallError::Unreachable {
            address: self.address.clone(),
            cause: outage.cause.clone(),
            refused: outage.refused,
        }
    }
}

fn outage(cause: String) -> Outage {
    let now = Instant::now();
    Outage { since: now, cause, attempt: 0, refused: false, retry_at: now }
}

/// Why there is no connection.
enum Failed {
    Net { cause: String, refused: bool },
    Fault(WireFault),
}

impl From<NetError> for Failed {
    fn from(error: NetError) -> Self {
        let cause = error.to_string();
        match error {
            NetError::Auth { .. } | NetError::Insecure { .. } => {
                Self::Fault(WireFault::new(FaultCode::Refused, cause))
            }
            NetError::Version { .. } => Self::Fault(WireFault::new(FaultCode::Version, cause)),
            NetError::Refused { .. } => Self::Net { cause, refused: true },
            _ => Self::Net { cause, refused: false },
        }
    }
}

/// The wait after a number of failed attempts: doubled each time up to the cap, then shortened by
/// up to half, so that many clients of one server do not come back at once.
fn backoff(attempt: u32, random: f64) -> Duration {
    let full = BACKOFF.0.saturating_mul(1 << attempt.min(16)).min(BACKOFF.1);
    full.mul_f64(1.0 - random / 2.0)
}

/// At random in 0..1, to spread retries. The keys of std's hash maps are random, and good enough.
pub fn random() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap() {
        let ms = |attempt, random| backoff(attempt, random).as_millis();
        assert_eq!(
            [ms(0, 0.0), ms(1, 0.0), ms(4, 0.0), ms(5, 0.0), ms(40, 0.0)],
            [250, 500, 4000, 5000, 5000]
        );
        assert_eq!(ms(5, 1.0), 2500);
        for _ in 0..100 {
            let random = random();
            assert!((0.0..1.0).contains(&random), "{random}");
        }
    }
}
