//! The one module by which every connection, control and data, is opened and accepted.
//!
//! Both sides first send a plain preface of 8 bytes (magic, version, kind, security), then speak
//! TLS 1.3 with the cluster's key. The preface comes first so that the accepting side can hand a
//! data connection to another runtime before the costly handshake.

mod key;
mod listen;
mod owner;

pub use key::{ClusterKey, KeyError, Security};
pub use listen::{Incoming, Listener, bindable};

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::version::PREFACE_VERSION;

/// A stream whose peer holds the cluster's key (or is on this machine, with `Insecure`).
pub type Stream = Box<dyn Duplex>;

/// Bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests and replies.
    Control,
    /// Rows.
    Data,
}

/// An error of a connection in words: without the address of a manual that a library puts behind it.
pub fn in_words(error: &impl std::fmt::Display) -> String {
    let said = error.to_string();
    let end = said.find(": https://").unwrap_or(said.len());
    said[..end].to_owned()
}

/// Why there is no connection. Each is a sentence with the address.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The host answers, but nobody listens there.
    #[error("nobody listens on {address}")]
    Refused {
        /// Where.
        address: String,
    },
    /// No answer in time.
    #[error("{address} did not answer within {} ms", waited.as_millis())]
    Timeout {
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
    },
    /// The other side holds another key, or none.
    #[error("{address} is not a member of this cluster: {cause}")]
    Auth {
        /// Where.
        address: String,
        /// What was seen.
        cause: String,
    },
    /// The other side speaks another version.
    #[error(
        "{address} speaks connection version {found}, this build speaks {PREFACE_VERSION}: use one build everywhere"
    )]
    Version {
        /// Where.
        address: String,
        /// Its version.
        found: u8,
    },
    /// Plain connections are for loopback only.
    #[error("refused to use {address} without a key: only loopback addresses may go without one")]
    Insecure {
        /// Where.
        address: String,
    },
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// Where.
        address: String,
        /// Why; names the process that holds the port where that can be read.
        cause: String,
    },
    /// Anything else.
    #[error("cannot talk to {address}: {cause}")]
    Other {
        /// Where.
        address: String,
        /// What was seen.
        cause: String,
    },
}

const MAGIC: [u8; 5] = *b"TUPLN";

/// The first 8 bytes of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Preface {
    version: u8,
    kind: Kind,
    secure: bool,
}

impl Preface {
    fn ours(kind: Kind, security: &Security) -> Self {
        Self { version: PREFACE_VERSION, kind, secure: matches!(security, Security::Key(_)) }
    }

    fn to_bytes(self) -> [u8; 8] {
        let kind = match self.kind {
            Kind::Control => b'c',
            Kind::Data => b'd',
        };
        {
            let mut bytes = [0; 8];
            bytes[..5].copy_from_slice(&MAGIC);
            bytes[5..].copy_from_slice(&[self.version, kind, if self.secure { b's' } else { b'p' }]);
            bytes
        }
    }

    /// `None` for bytes that no member of a cluster sends.
    fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        let [magic @ .., version, kind, security] = bytes;
        let kind = match kind {
            b'c' => Kind::Control,
            b'd' => Kind::Data,
            _ => return None,
        };
        let secure = match security {
            b's' => true,
            b'p' => false,
            _ => return None,
        };
        (magic == MAGIC).then_some(Self { version, kind, secure })
    }
}

/// Opens a connection to `host:port`.
pub async fn dial(
    address: &str,
    kind: Kind,
    security: &Security,
    timeout: Duration,
) -> Result<Stream, NetError> {
    tokio::time::timeout(timeout, dial_unbounded(address, kind, security))
        .await
        .unwrap_or_else(|_| Err(NetError::Timeout { address: address.to_owned(), waited: timeout }))
}

/// As [`dial`], over bytes that something else carries to `address`, such as a forwarding of ssh.
pub async fn dial_over(
    carrier: Stream,
    address: &str,
    kind: Kind,
    security: &Security,
    timeout: Duration,
) -> Result<Stream, NetError> {
    // Without a key nothing would say that the carrier ends at an agent of this cluster.
    if matches!(security, Security::Insecure) {
        return Err(NetError::Insecure { address: address.to_owned() });
    }
    tokio::time::timeout(timeout, greet(carrier, address, kind, security))
        .await
        .unwrap_or_else(|_| Err(NetError::Timeout { address: address.to_owned(), waited: timeout }))
}

async fn dial_unbounded(address: &str, kind: Kind, security: &Security) -> Result<Stream, NetError> {
    let other = |cause: String| NetError::Other { address: address.to_owned(), cause };
    let mut refused = Err(other("the name has no address".to_owned()));
    for resolved in resolve(address).await.map_err(|e| other(e.to_string()))? {
        security.permits(resolved)?;
        match TcpStream::connect(resolved).await {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(|e| other(e.to_string()))?;
                return greet(socket, address, kind, security).await;
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                refused = Err(NetError::Refused { address: address.to_owned() });
            }
            Err(e) => refused = Err(other(e.to_string())),
        }
    }
    refused
}

async fn greet<S: Duplex + 'static>(
    mut socket: S,
    address: &str,
    kind: Kind,
    security: &Security,
) -> Result<Stream, NetError> {
    let other = |e: io::Error| NetError::Other { address: address.to_owned(), cause: e.to_string() };
    let auth = |cause: &str| NetError::Auth { address: address.to_owned(), cause: cause.to_owned() };
    let ours = Preface::ours(kind, security);
    socket.write_all(&ours.to_bytes()).await.map_err(other)?;
    socket.flush().await.map_err(other)?;
    let mut answer = [0; 8];
    socket.read_exact(&mut answer).await.map_err(|e| NetError::Other {
        address: address.to_owned(),
        cause: format!("it closed the connection ({e})"),
    })?;
    let Some(theirs) = Preface::from_bytes(answer) else {
        return Err(auth("what listens there is not a Tuplane agent"));
    };
    if theirs.version != PREFACE_VERSION {
        return Err(NetError::Version { address: address.to_owned(), found: theirs.version });
    }
    match (security, theirs.secure) {
        (Security::Key(key), true) => {
            let stream = key.connect(socket).await.map_err(|e| handshake_error(address, &e))?;
            Ok(Box::new(stream))
        }
        (Security::Insecure, false) => Ok(Box::new(socket)),
        (Security::Key(_), false) => Err(auth("it runs without a key, and this side has one")),
        (Security::Insecure, true) => Err(auth("it asks for the cluster's key, and this side has none")),
    }
}

/// An error of TLS means another key; one of the socket below does not.
fn handshake_error(address: &str, error: &io::Error) -> NetError {
    let address = address.to_owned();
    if error.get_ref().is_some_and(
        <dyn std::error::Error + std::marker::Send + std::marker::Sync + 'static>::is::<
            tokio_rustls::rustls::Error,
        >,
    ) {
        NetError::Auth { address, cause: format!("the keys differ ({error})") }
    } else {
        NetError::Other { address, cause: format!("the handshake broke off ({error})") }
    }
}

async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host(address).await?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preface_round_trips_and_refuses_other_bytes() {
        for kind in [Kind::Control, Kind::Data] {
            for secure in [true, false] {
                let preface = Preface { version: 7, kind, secure };
                assert_eq!(Preface::from_bytes(preface.to_bytes()), Some(preface));
            }
        }
        assert_eq!(Preface::from_bytes(*b"GET / HT"), None);
        assert_eq!(Preface::from_bytes(*b"TUPLN\x01xs"), None);
        assert_eq!(&Preface { version: 1, kind: Kind::Data, secure: true }.to_bytes(), b"TUPLN\x01ds");
    }
}
