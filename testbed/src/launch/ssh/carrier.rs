//! Bytes to an agent that cannot be dialled from here: its host dials, ssh carries.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tuplane_wire::client::Carrier;
use tuplane_wire::net::Stream;

use super::SshOptions;
use super::connection::{Connection, SHELL};
use super::prepare::Sockets;
use crate::launch::HostEntry;

/// A way to the agents of one host, opened when it is first needed, and anew when it has gone.
#[derive(Debug)]
pub struct SshCarrier {
    host: HostEntry,
    ssh: SshOptions,
    root: PathBuf,
    way: Mutex<Way>,
}

/// A connection, and where its socket lies if it is this command's own.
#[derive(Debug)]
struct Open {
    connection: Connection,
    _sockets: Option<Sockets>,
}

#[derive(Debug)]
enum Way {
    None,
    /// A task of its own: a login goes on when the call that needed it has given up, for the next one.
    Opening(JoinHandle<Result<Open, String>>),
    Open(Box<Open>),
}

impl SshCarrier {
    /// For the agents of `host`; its own sockets, if it needs one, lie below the runtime folder `root`.
    pub fn new(host: HostEntry, ssh: SshOptions, root: PathBuf) -> Arc<Self> {
        Arc::new(Self { host, ssh, root, way: Mutex::new(Way::None) })
    }

    /// Bytes to `host:port`, over a connection that stands, ready to be started.
    async fn forward(&self, address: &str) -> Result<Command, String> {
        let mut way = self.way.lock().await;
        if let Way::Open(open) = &*way
            && !open.connection.stands().await
        {
            // Its socket goes before another one is made.
            *way = Way::None;
        }
        if matches!(&*way, Way::None) {
            *way = Way::Opening(tokio::spawn(open(self.host.clone(), self.ssh.clone(), self.root.clone())));
        }
        if let Way::Opening(login) = &mut *way {
            let opened = login.await.map_err(|cause| format!("the login was interrupted: {cause}"));
            *way = Way::None;
            *way = Way::Open(Box::new(opened.flatten()?));
        }
        match &*way {
            Way::Open(open) => Ok(open.connection.forward(address)),
            Way::None | Way::Opening(_) => Err("there is no way to its host".into()),
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Self::Opening(login) = self {
            login.abort();
        }
    }
}

/// The launcher's connection while that stands, else one of this command's own.
async fn open(host: HostEntry, ssh: SshOptions, root: PathBuf) -> Result<Open, String> {
    if let Some(connection) = Connection::attach(&host.target, &host.socket).await {
        return Ok(Open { connection, _sockets: None });
    }
    let sockets = Sockets::of_command(&root).map_err(|cause| cause.to_string())?;
    let opened = Connection::open(&host.target, &ssh, sockets.next(), "", "-").await;
    let connection = opened.map_err(|fault| fault.to_string())?;
    Ok(Open { connection, _sockets: Some(sockets) })
}

impl Carrier for SshCarrier {
    fn open(&self, address: &str) -> BoxFuture<'_, Result<Stream, String>> {
        let address = address.to_owned();
        Box::pin(async move {
            let mut child = self
                .forward(&address)
                .await?
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|cause| format!("ssh cannot be run ({cause})"))?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("the input and output of ssh are not there".into());
            };
            let stream: Stream = Box::new(Carried { bytes: tokio::io::join(stdout, stdin), _child: child });
            Ok(stream)
        })
    }

    fn patience(&self) -> Duration {
        self.ssh.connect() + SHELL
    }
}

/// The stdio of `ssh -W`, which ends with this.
#[derive(Debug)]
struct Carried {
    bytes: Join<ChildStdout, ChildStdin>,
    _child: Child,
}

impl AsyncRead for Carried {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.bytes).poll_read(context, buffer)
    }
}

impl AsyncWrite for Carried {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.bytes).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.bytes).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.bytes).poll_shutdown(context)
    }
}
