//! The tarpc service and the accepting side: `hello` first for ever, then versioned bytes.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::FutureExt;
use futures::stream::StreamExt;
use serde::{Deserialize, Serialize};
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio::task::JoinSet;

use crate::codec::{Codec, MAX_FRAME, MAX_PAYLOAD, Payload};
use crate::message::{AgentReply, AgentRequest, ClusterReply, ClusterRequest, FaultCode, WireFault};
use crate::net::Stream;
use crate::version::{ControlVersion, DATA_VERSION};

/// What both sides say first. Its layout never changes; nor does it ever stop being the first method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Always [`HELLO_MAGIC`].
    pub magic: u64,
    /// Oldest control version that the sender reads.
    pub min_version: u16,
    /// Newest control version that the sender reads.
    pub max_version: u16,
    /// Build version, for people.
    pub build: String,
    /// Version of the data protocol; must be the same on all agents.
    pub data_version: u16,
    /// Fingerprint of the sender's registry of operators; 0 where it has none.
    pub registry: u64,
}

/// `TUPLANE` and a zero.
pub const HELLO_MAGIC: u64 = u64::from_be_bytes(*b"TUPLANE\0");

impl Hello {
    /// What this build says.
    pub fn ours(build: &str, registry: u64) -> Self {
        Self {
            magic: HELLO_MAGIC,
            min_version: ControlVersion::MIN.number(),
            max_version: ControlVersion::MAX.number(),
            build: build.to_owned(),
            data_version: DATA_VERSION,
            registry,
        }
    }

    /// The control version to speak with a peer that said this, or why there is none.
    pub fn agree(&self) -> Result<ControlVersion, WireFault> {
        let fault = |message: String| WireFault::new(FaultCode::Version, message);
        if self.magic != HELLO_MAGIC {
            return Err(fault("the other side is not Tuplane".to_owned()));
        }
        ControlVersion::agree(self.min_version, self.max_version).ok_or_else(|| {
            fault(format!(
                "build {} speaks control versions {} to {}, this build {} to {}: update the older one",
                self.build,
                self.min_version,
                self.max_version,
                ControlVersion::MIN.number(),
                ControlVersion::MAX.number()
            ))
        })
    }
}

/// The methods. They are only ever appended: their order is the format.
mod rpc {
    use super::{Hello, Payload};

    #[tarpc::service]
    pub trait Control {
        /// First on every connection, for ever.
        async fn hello(hello: Hello) -> Hello;
        /// A `ClusterRequest`; answers with `Result<ClusterReply, WireFault>`.
        async fn cluster(request: Payload) -> Payload;
        /// An `AgentRequest`; answers with `Result<AgentReply, WireFault>`.
        async fn agent(request: Payload) -> Payload;
    }
}

pub(crate) use rpc::{Control, ControlClient};

/// Requests of one connection that are worked on at once; further ones are told to come again.
const MAX_CONCURRENT: usize = 64;

/// What answers requests.
pub trait Handler: Send + Sync + 'static {
    /// What this side says first.
    fn hello(&self) -> Hello;

    /// Answers a request to the coordinator. It is dropped at the caller's deadline, so work that
    /// must be finished belongs into a task.
    fn cluster(
        &self,
        request: ClusterRequest,
    ) -> impl Future<Output = Result<ClusterReply, WireFault>> + Send;

    /// Answers a request to the agent. It is dropped at the caller's deadline.
    fn agent(&self, request: AgentRequest) -> impl Future<Output = Result<AgentReply, WireFault>> + Send;
}

/// Serves one control connection until it ends.
pub async fn serve_control<H: Handler>(stream: Stream, handler: Arc<H>) {
    let transport = tarpc::serde_transport::new(framed(stream), Codec);
    let server = Server { handler, greeted: Arc::new(AtomicBool::new(false)) };
    let channel = BaseChannel::with_defaults(transport).max_concurrent_requests(MAX_CONCURRENT);
    let mut requests = std::pin::pin!(channel.requests());
    let mut running = JoinSet::new();
    while let Some(request) = requests.next().await {
        match request {
            Ok(request) => {
                running.spawn(request.execute(server.clone().serve()));
            }
            Err(e) => {
                tracing::debug!(error = %e, "control connection ended");
                break;
            }
        }
        while running.try_join_next().is_some() {}
    }
}

pub(crate) fn framed(stream: Stream) -> Framed<Stream, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME).new_framed(stream)
}

struct Server<H> {
    handler: Arc<H>,
    greeted: Arc<AtomicBool>,
}

impl<H> Clone for Server<H> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), greeted: self.greeted.clone() }
    }
}

impl<H: Handler> Control for Server<H> {
    async fn hello(self, _: Context, hello: Hello) -> Hello {
        if hello.agree().is_ok() {
            self.greeted.store(true, Ordering::Release);
        }
        self.handler.hello()
    }

    async fn cluster(self, _: Context, request: Payload) -> Payload {
        let handler = &self.handler;
        self.answer(request, |request| handler.cluster(request)).await
    }

    async fn agent(self, _: Context, request: Payload) -> Payload {
        let handler = &self.handler;
        self.answer(request, |request| handler.agent(request)).await
    }
}

impl<H: Handler> Server<H> {
    async fn answer<Request, Reply, Work>(
        &self,
        request: Payload,
        handle: impl FnOnce(Request) -> Work,
    ) -> Payload
    where
        Request: serde::de::DeserializeOwned,
        Reply: Serialize,
        Work: Future<Output = Result<Reply, WireFault>>,
    {
        let version = ControlVersion::from_number(request.version_number()).unwrap_or(ControlVersion::MAX);
        let result = if self.greeted.load(Ordering::Acquire) {
            match request.decode() {
                Ok(request) => {
                    // The panic hook has logged the place; the caller is told that it is a defect.
                    AssertUnwindSafe(async { handle(request).await }).catch_unwind().await.unwrap_or_else(
                        |panic| Err(internal(format!("a handler panicked: {}", panic_text(&*panic)))),
                    )
                }
                Err(e) => Err(WireFault::new(FaultCode::Version, e.to_string())),
            }
        } else {
            Err(WireFault::new(FaultCode::Version, "the versions were not agreed on: say hello first"))
        };
        encode_reply(version, &result)
    }
}

/// A reply that is too long would end the connection, so it becomes a fault.
fn encode_reply<Reply: Serialize>(version: ControlVersion, result: &Result<Reply, WireFault>) -> Payload {
    let fault = match Payload::encode(version, result) {
        Ok(payload) if payload.as_bytes().len() <= MAX_PAYLOAD => return payload,
        Ok(payload) => internal(format!(
            "the reply is {} bytes long, at most {MAX_PAYLOAD} may be sent at once",
            payload.as_bytes().len()
        )),
        Err(e) => internal(e.to_string()),
    };
    let result: Result<(), WireFault> = Err(fault);
    // A fault of two short fields always fits; an empty payload is read as one of version 0.
    Payload::encode(version, &result).unwrap_or_else(|_| Payload::from_bytes(Vec::new()))
}

fn internal(message: String) -> WireFault {
    WireFault::new(FaultCode::Internal, message)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
