//! The wire over real sockets: keys, hostile clients, replies that are too long, reconnecting.

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tuplane_wire::client::{CallError, Client, LinkState};
use tuplane_wire::message::{AgentReply, AgentRequest, ClusterReply, ClusterRequest, FaultCode, WireFault};
use tuplane_wire::net::{self, ClusterKey, Kind, Listener, NetError, Security, Stream};
use tuplane_wire::service::{Handler, Hello, serve_control};

const SOON: Duration = Duration::from_secs(5);

fn key() -> Security {
    Security::Key(ClusterKey::generate().unwrap())
}

/// Sends back what comes, over every accepted stream.
async fn echo(security: Security) -> (String, tokio::task::JoinHandle<()>) {
    let mut listener = Listener::bind("127.0.0.1:0", &security).await.unwrap();
    let address = listener.local_address().to_string();
    let task = tokio::spawn(async move {
        while let Some(incoming) = listener.accept().await {
            let security = security.clone();
            tokio::spawn(async move {
                let kind = incoming.kind();
                let Ok(mut stream) = incoming.secure(&security).await else { return };
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    let answer = if kind == Kind::Data { byte[0] + 1 } else { byte[0] };
                    stream.write_all(&[answer]).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    });
    (address, task)
}

async fn say(stream: &mut Stream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(&[byte]).await?;
    stream.flush().await?;
    stream.read_u8().await
}

#[tokio::test]
async fn members_of_a_cluster_reach_each_other() {
    let security = key();
    let (address, _task) = echo(security.clone()).await;
    let mut control = net::dial(&address, Kind::Control, &security, SOON).await.unwrap();
    let mut data = net::dial(&address, Kind::Data, &security, SOON).await.unwrap();
    assert_eq!(say(&mut control, 7).await.unwrap(), 7);
    assert_eq!(say(&mut data, 7).await.unwrap(), 8);
}

#[tokio::test]
async fn the_key_survives_its_way_as_text() {
    let Security::Key(key) = key() else { unreachable!() };
    let (address, _task) = echo(Security::Key(key.clone())).await;
    let copy = Security::Key(ClusterKey::from_pem(key.to_pem()).unwrap());
    let mut stream = net::dial(&address, Kind::Control, &copy, SOON).await.unwrap();
    assert_eq!(say(&mut stream, 1).await.unwrap(), 1);
    assert!(!format!("{key:?}").contains("PRIVATE"));
    let mut broken = key.to_pem().clone();
    broken.certificate = "no certificate".to_owned();
    assert!(ClusterKey::from_pem(&broken).is_err());
}

#[tokio::test]
async fn another_key_is_refused_and_so_is_none() {
    let (address, _task) = echo(key()).await;
    for foreign in [key(), Security::Insecure] {
        let error = net::dial(&address, Kind::Control, &foreign, SOON).await.err().unwrap();
        assert!(matches!(error, NetError::Auth { .. }), "{error}");
        assert!(error.to_string().contains(&address), "{error}");
    }
    let (plain, _task) = echo(Security::Insecure).await;
    let error = net::dial(&plain, Kind::Control, &key(), SOON).await.err().unwrap();
    assert!(matches!(error, NetError::Auth { .. }), "{error}");
    let mut stream = net::dial(&plain, Kind::Control, &Security::Insecure, SOON).await.unwrap();
    assert_eq!(say(&mut stream, 3).await.unwrap(), 3);
}

/// A client that knows the preface and pretends to go on in the clear.
#[tokio::test]
async fn the_listener_lets_nobody_in_without_proof() {
    let security = key();
    let mut listener = Listener::bind("127.0.0.1:0", &security).await.unwrap();
    let mut socket = TcpStream::connect(listener.local_address()).await.unwrap();
    socket.write_all(b"TUPLN\x01cs").await.unwrap();
    socket.write_all(b"let me in, I am one of yours").await.unwrap();
    let incoming = listener.accept().await.unwrap();
    assert!(incoming.secure(&security).await.is_err());
}

#[tokio::test]
async fn plain_connections_stay_on_loopback() {
    let error = Listener::bind("0.0.0.0:0", &Security::Insecure).await.unwrap_err();
    assert!(matches!(error, NetError::Insecure { .. }), "{error}");
    let error = net::dial("192.0.2.1:9", Kind::Control, &Security::Insecure, SOON).await.err().unwrap();
    assert!(matches!(error, NetError::Insecure { .. }), "{error}");
}

#[tokio::test]
async fn bytes_that_something_else_carries_need_the_key_all_the_same() {
    let security = key();
    let (address, _task) = echo(security.clone()).await;
    let carrier = async || {
        let stream: Stream = Box::new(TcpStream::connect(&address).await.unwrap());
        stream
    };
    let mut stream =
        net::dial_over(carrier().await, "10.0.0.1:1", Kind::Control, &security, SOON).await.unwrap();
    assert_eq!(say(&mut stream, 5).await.unwrap(), 5);
    let error =
        net::dial_over(carrier().await, "10.0.0.1:1", Kind::Control, &key(), SOON).await.err().unwrap();
    assert!(matches!(error, NetError::Auth { .. }), "{error}");
    let error = net::dial_over(carrier().await, "10.0.0.1:1", Kind::Control, &Security::Insecure, SOON)
        .await
        .err()
        .unwrap();
    assert!(matches!(error, NetError::Insecure { .. }), "{error}");
}

#[tokio::test]
async fn a_port_that_is_taken_names_its_owner() {
    let security = key();
    let first = Listener::bind("127.0.0.1:0", &security).await.unwrap();
    let address = first.local_address().to_string();
    let text = Listener::bind(&address, &security).await.unwrap_err().to_string();
    assert!(text.contains(&address) && text.contains(&format!("pid {} (", std::process::id())), "{text}");
    drop(first);
    // The task that holds the socket ends at its next turn.
    tokio::time::sleep(Duration::from_millis(50)).await;
    Listener::bind(&address, &security).await.unwrap();
}

#[tokio::test]
async fn silent_and_foreign_clients_are_dropped_and_hold_nobody_up() {
    let security = key();
    let (address, _task) = echo(security.clone()).await;
    let mut silent = TcpStream::connect(&address).await.unwrap();
    let begun = Instant::now();
    let mut browser = TcpStream::connect(&address).await.unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Closed with or without a reset: bytes that we did not read were waiting.
    let _ = browser.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    let mut member = net::dial(&address, Kind::Control, &security, SOON).await.unwrap();
    assert_eq!(say(&mut member, 9).await.unwrap(), 9);
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!((4..8).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn half_open_connections_are_bounded() {
    let security = key();
    let (address, _task) = echo(security.clone()).await;
    let mut silent = Vec::new();
    for _ in 0..256 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    // One too many: closed at once.
    let error = net::dial(&address, Kind::Control, &security, SOON).await.err().unwrap();
    assert!(matches!(error, NetError::Other { .. }), "{error}");
    drop(silent);
    tokio::time::sleep(Duration::from_millis(100)).await;
    net::dial(&address, Kind::Control, &security, SOON).await.unwrap();
}

#[tokio::test]
async fn nobody_there_is_told_apart_from_no_answer() {
    let security = key();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = net::dial(&free, Kind::Control, &security, SOON).await.err().unwrap();
    assert!(matches!(error, NetError::Refused { .. }), "{error}");
    // A socket that is listened on and never accepted: the kernel connects, nobody answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let begun = Instant::now();
    let limit = Duration::from_millis(300);
    let error = net::dial(&address, Kind::Control, &security, limit).await.err().unwrap();
    assert!(matches!(error, NetError::Timeout { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    let client = Client::new(free, security.clone(), Hello::ours("test", 0));
    let error = client.agent(AgentRequest::Ping, SOON).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { refused: true, .. }), "{error}");
    let client = Client::new(address, security, Hello::ours("test", 0));
    let error = client.agent(AgentRequest::Ping, limit).await.unwrap_err();
    assert!(!matches!(error, CallError::Fault(_) | CallError::Unreachable { refused: true, .. }), "{error}");
}

/// Answers by the request: each stands for one case.
#[derive(Default)]
struct Cases {
    handled: AtomicU64,
}

impl Handler for Cases {
    fn hello(&self) -> Hello {
        Hello::ours("server", 42)
    }

    async fn cluster(&self, request: ClusterRequest) -> Result<ClusterReply, WireFault> {
        match request {
            ClusterRequest::Jobs => Err(WireFault::new(FaultCode::NotCoordinator, "ask another")),
            ClusterRequest::Submit { .. } => panic!("a defect"),
            _ => Ok(ClusterReply::Done),
        }
    }

    async fn agent(&self, request: AgentRequest) -> Result<AgentReply, WireFault> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        match request {
            AgentRequest::ReadFile { offset, .. } => Ok(AgentReply::Bytes(vec![7; offset as usize])),
            AgentRequest::Stop { .. } => {
                tokio::time::sleep(Duration::from_mins(1)).await;
                Ok(AgentReply::Done)
            }
            _ => Ok(AgentReply::Done),
        }
    }
}

struct Served {
    address: String,
    handler: Arc<Cases>,
    task: tokio::task::JoinHandle<()>,
}

async fn serve(address: &str, security: &Security) -> Served {
    let mut listener = Listener::bind(address, security).await.unwrap();
    let address = listener.local_address().to_string();
    let handler = Arc::new(Cases::default());
    let (for_task, security) = (handler.clone(), security.clone());
    let task = tokio::spawn(async move {
        // All connections end with the task, as with a process.
        let mut connections = tokio::task::JoinSet::new();
        while let Some(incoming) = listener.accept().await {
            let (handler, security) = (for_task.clone(), security.clone());
            connections.spawn(async move {
                if let Ok(stream) = incoming.secure(&security).await {
                    serve_control(stream, handler).await;
                }
            });
        }
    });
    Served { address, handler, task }
}

fn client(served: &Served, security: &Security) -> Client {
    Client::new(served.address.clone(), security.clone(), Hello::ours("client", 0))
}

fn read(len: u64) -> AgentRequest {
    AgentRequest::ReadFile { run: 1, path: "p".to_owned(), offset: len }
}

#[tokio::test]
async fn requests_are_answered_and_faults_arrive() {
    let security = key();
    let served = serve("127.0.0.1:0", &security).await;
    let client = client(&served, &security);
    assert_eq!(client.agent(AgentRequest::Ping, SOON).await.unwrap(), AgentReply::Done);
    assert_eq!(client.theirs().unwrap().registry, 42);
    let Err(CallError::Fault(fault)) = client.cluster(ClusterRequest::Jobs, SOON).await else { panic!() };
    assert_eq!(fault.code, FaultCode::NotCoordinator);
    let submit = ClusterRequest::Submit { job: String::new(), force: false };
    let Err(CallError::Fault(fault)) = client.cluster(submit, SOON).await else { panic!() };
    assert_eq!(fault.code, FaultCode::Internal);
    assert!(fault.message.contains("a defect"), "{}", fault.message);
    assert_eq!(client.cluster(ClusterRequest::Agents, SOON).await.unwrap(), ClusterReply::Done);
}

#[tokio::test]
async fn too_long_a_reply_or_request_leaves_the_connection_alive() {
    let security = key();
    let served = serve("127.0.0.1:0", &security).await;
    let client = client(&served, &security);
    let mut watch = client.watch();
    client.agent(AgentRequest::Ping, SOON).await.unwrap();
    watch.mark_unchanged();
    for len in [7 << 20, 9 << 20, 20 << 20] {
        let Err(CallError::Fault(fault)) = client.agent(read(len), SOON).await else { panic!() };
        assert_eq!(fault.code, FaultCode::Internal);
        assert!(fault.message.contains("bytes long"), "{}", fault.message);
    }
    let submit = ClusterRequest::Submit { job: "x".repeat(8 << 20), force: false };
    let Err(CallError::Fault(fault)) = client.cluster(submit, SOON).await else { panic!() };
    assert_eq!(fault.code, FaultCode::Refused);
    let AgentReply::Bytes(bytes) = client.agent(read(6 << 20), SOON).await.unwrap() else { panic!() };
    assert_eq!(bytes.len(), 6 << 20);
    assert!(!watch.has_changed().unwrap(), "it is still the first connection");
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_the_connection_goes_on() {
    let security = key();
    let served = serve("127.0.0.1:0", &security).await;
    let client = client(&served, &security);
    client.agent(AgentRequest::Ping, SOON).await.unwrap();
    let begun = Instant::now();
    let stop = AgentRequest::Stop { run: 1, reason: String::new(), discard: false };
    let error = client.agent(stop, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert!((150..1500).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    client.agent(AgentRequest::Ping, SOON).await.unwrap();
    assert_eq!(served.handler.handled.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_client_finds_a_server_that_was_started_again() {
    let security = key();
    let served = serve("127.0.0.1:0", &security).await;
    let client = client(&served, &security);
    client.agent(AgentRequest::Ping, SOON).await.unwrap();
    let mut watch = client.watch();
    watch.mark_unchanged();
    served.task.abort();
    let _ = served.task.await;
    // Seen without a call.
    tokio::time::timeout(SOON, watch.changed()).await.unwrap().unwrap();
    assert!(matches!(*watch.borrow(), LinkState::Disconnected(_)));
    let error = client.agent(AgentRequest::Ping, SOON).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable { refused: true, .. }), "{error}");
    // Same port, although old connections of it wait out.
    let again = serve(&served.address, &security).await;
    client.agent(AgentRequest::Ping, SOON).await.unwrap();
    assert_eq!(again.handler.handled.load(Ordering::Relaxed), 1);
    assert_eq!(*client.watch().borrow(), LinkState::Connected);
}

/// Calls as a build of another version would make them.
mod raw {
    use tarpc::context::Context;
    use tuplane_wire::codec::{Codec, Payload};
    use tuplane_wire::version::ControlVersion;

    use super::*;

    #[derive(serde::Serialize, serde::Deserialize)]
    enum Request {
        Hello { hello: Hello },
        Cluster { request: Payload },
        Agent { request: Payload },
    }

    impl tarpc::RequestName for Request {
        fn name(&self) -> &'static str {
            "raw"
        }
    }

    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    enum Reply {
        Hello(Hello),
        Cluster(Payload),
        Agent(Payload),
    }

    type Channel = tarpc::client::Channel<Request, Reply>;

    async fn connect(address: &str, security: &Security) -> Channel {
        let stream = net::dial(address, Kind::Control, security, SOON).await.unwrap();
        let framed = tarpc::tokio_util::codec::LengthDelimitedCodec::builder().new_framed(stream);
        let transport = tarpc::serde_transport::new(framed, Codec);
        tarpc::client::new(tarpc::client::Config::default(), transport).spawn()
    }

    async fn agent(channel: &Channel, payload: Payload) -> Result<AgentReply, WireFault> {
        match channel.call(Context::current(), Request::Agent { request: payload }).await.unwrap() {
            Reply::Agent(payload) => payload.decode::<Result<AgentReply, WireFault>>().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_unknown_version_is_a_fault_and_hello_comes_first() {
        let security = key();
        let served = serve("127.0.0.1:0", &security).await;
        let channel = connect(&served.address, &security).await;
        let ping = Payload::encode(ControlVersion::V1, &AgentRequest::Ping).unwrap();
        let early = agent(&channel, ping.clone()).await.unwrap_err();
        assert!(early.message.contains("hello first"), "{}", early.message);
        let mut future = Hello::ours("from the future", 0);
        (future.min_version, future.max_version) = (98, 99);
        let hello = Request::Hello { hello: future };
        let Reply::Hello(theirs) = channel.call(Context::current(), hello).await.unwrap() else { panic!() };
        assert_eq!(
            theirs,
            Hello::ours("server", 42),
            "it says what it speaks, so that the other can say why not"
        );
        assert_eq!(agent(&channel, ping.clone()).await.unwrap_err().code, FaultCode::Version);
        let hello = Request::Hello { hello: Hello::ours("raw", 0) };
        channel.call(Context::current(), hello).await.unwrap();
        for (bytes, says) in [
            (vec![0, 99, 10], "version 99"),
            (vec![0, 1, 250, 250], "cannot decode"),
            (vec![0, 1, 10, 10], "left over"),
            (vec![], "version 0"),
        ] {
            let fault = agent(&channel, Payload::from_bytes(bytes)).await.unwrap_err();
            assert_eq!(fault.code, FaultCode::Version);
            assert!(fault.message.contains(says), "{}", fault.message);
        }
        assert_eq!(agent(&channel, ping.clone()).await.unwrap(), AgentReply::Done);
        let other = channel.call(Context::current(), Request::Cluster { request: ping }).await.unwrap();
        assert!(matches!(other, Reply::Cluster(_)));
    }
}
