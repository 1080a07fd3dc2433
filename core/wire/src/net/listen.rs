//! The accepting side: prefaces are read apart, so a silent or foreign client holds nobody up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::{Kind, NetError, Preface, Security, Stream, handshake_error, owner, resolve};
use crate::version::PREFACE_VERSION;

/// A client that says nothing for so long is dropped, and a handshake that takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that have not finished their handshake; further ones are closed at once.
const HALF_OPEN: usize = 256;

/// A bound port. Dropping it frees the port; streams that came from it live on.
#[derive(Debug)]
pub struct Listener {
    local: SocketAddr,
    incoming: mpsc::Receiver<Incoming>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens on `host:port`; port 0 lets the system choose. Needs a tokio runtime around it.
    pub async fn bind(address: &str, security: &Security) -> Result<Self, NetError> {
        let fault = |cause: String| NetError::Bind { address: address.to_owned(), cause };
        let resolved = resolve(address).await.map_err(|e| fault(e.to_string()))?;
        let target = *resolved.first().ok_or_else(|| fault("the name has no address".to_owned()))?;
        security.permits(target)?;
        let socket = open(target).map_err(|e| fault(bind_cause(target, &e)))?;
        let local = socket.local_addr().map_err(|e| fault(e.to_string()))?;
        let (send, incoming) = mpsc::channel(HALF_OPEN);
        let task = tokio::spawn(accept_all(socket, security.clone(), send));
        Ok(Self { local, incoming, task })
    }

    /// The address with the port that was chosen.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The next connection whose preface is a member's. `None` once the socket itself has failed.
    pub async fn accept(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The address that a listener on `host:port` would have, or why there can be none: the port is
/// bound and let go again.
pub async fn bindable(address: &str) -> Result<SocketAddr, NetError> {
    let fault = |cause: String| NetError::Bind { address: address.to_owned(), cause };
    let resolved = resolve(address).await.map_err(|e| fault(e.to_string()))?;
    let target = *resolved.first().ok_or_else(|| fault("the name has no address".to_owned()))?;
    let socket = open(target).map_err(|e| fault(bind_cause(target, &e)))?;
    socket.local_addr().map_err(|e| fault(e.to_string()))
}

/// A connection that has said what it is for and is not authenticated yet.
#[derive(Debug)]
pub struct Incoming {
    kind: Kind,
    peer: SocketAddr,
    /// Belongs to no runtime, so that it can be taken to another one.
    socket: std::net::TcpStream,
    _half_open: OwnedSemaphorePermit,
}

impl Incoming {
    /// What it is for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Who connected.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Does the handshake on the current runtime.
    pub async fn secure(self, security: &Security) -> Result<Stream, NetError> {
        let address = self.peer.to_string();
        security.permits(self.peer)?;
        let socket = TcpStream::from_std(self.socket)
            .map_err(|e| NetError::Other { address: address.clone(), cause: e.to_string() })?;
        match security {
            Security::Insecure => Ok(Box::new(socket)),
            Security::Key(key) => match tokio::time::timeout(PATIENCE, key.accept(socket)).await {
                Ok(Ok(stream)) => Ok(Box::new(stream)),
                Ok(Err(e)) => Err(handshake_error(&address, &e)),
                Err(_) => Err(NetError::Timeout { address, waited: PATIENCE }),
            },
        }
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart binds although old connections of the port still wait out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

fn bind_cause(address: SocketAddr, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::AddrInUse {
        return error.to_string();
    }
    match owner::of_port(address) {
        Some(owner) => format!("port {} is held by {owner}", address.port()),
        None => format!("port {} is in use by another process", address.port()),
    }
}

async fn accept_all(listener: TcpListener, security: Security, out: mpsc::Sender<Incoming>) {
    let half_open = Arc::new(Semaphore::new(HALF_OPEN));
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of descriptors, or a connection that was reset before it was taken.
                tracing::warn!(error = %e, "accept failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = half_open.clone().try_acquire_owned() else {
            tracing::warn!(%peer, "closed: too many connections wait for their handshake");
            continue;
        };
        let (security, out) = (security.clone(), out.clone());
        tokio::spawn(async move {
            match tokio::time::timeout(PATIENCE, greet(socket, &security)).await {
                Ok(Ok((kind, socket))) => {
                    // The receiver is gone only when the listener is.
                    let _ = out.send(Incoming { kind, peer, socket, _half_open: permit }).await;
                }
                Ok(Err(e)) => tracing::debug!(%peer, error = %e, "closed: not a member"),
                Err(_) => tracing::debug!(%peer, "closed: said nothing"),
            }
        });
    }
}

/// Reads the preface and answers with ours.
async fn greet(mut socket: TcpStream, security: &Security) -> io::Result<(Kind, std::net::TcpStream)> {
    socket.set_nodelay(true)?;
    let mut bytes = [0; 8];
    socket.read_exact(&mut bytes).await?;
    let theirs =
        Preface::from_bytes(bytes).ok_or_else(|| io::Error::other("its first bytes are not ours"))?;
    let ours = Preface::ours(theirs.kind, security);
    // Answered even if they do not fit, so that the other side can say why.
    socket.write_all(&ours.to_bytes()).await?;
    if theirs.version != PREFACE_VERSION {
        return Err(io::Error::other(format!("connection version {}", theirs.version)));
    }
    if theirs.secure != ours.secure {
        return Err(io::Error::other("only one side has a key"));
    }
    Ok((theirs.kind, socket.into_std()?))
}
