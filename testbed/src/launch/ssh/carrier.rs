//! Bytes to an agent that cannot be dialled from here: its host dials, ssh carries.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, Join, ReadBuf};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::OnceCell;
use tuplane_wire::client::Carrier;
use tuplane_wire::net::Stream;

use super::SshOptions;
use super::connection::Connection;
use super::prepare::Sockets;
use crate::launch::HostEntry;

/// A way to the agents of one host, opened when it is first needed.
#[derive(Debug)]
pub struct SshCarrier {
    host: HostEntry,
    ssh: SshOptions,
    root: PathBuf,
    open: OnceCell<(Connection, Option<Sockets>)>,
}

impl SshCarrier {
    /// For the agents of `host`; its own sockets, if it needs one, lie below the runtime folder `root`.
    pub fn new(host: HostEntry, ssh: SshOptions, root: PathBuf) -> Arc<Self> {
        Arc::new(Self { host, ssh, root, open: OnceCell::new() })
    }

    /// The launcher's connection while that stands, else one of this command's own.
    async fn connection(&self) -> Result<&Connection, String> {
        let open = async || {
            if let Some(known) = Connection::attach(&self.host.target, &self.host.socket).await {
                return Ok((known, None));
            }
            let sockets = Sockets::of_command(&self.root).map_err(|cause| cause.to_string())?;
            let target = &self.host.target;
            let opened = Connection::open(target, &self.ssh, sockets.next(), "", "-").await;
            opened.map(|connection| (connection, Some(sockets))).map_err(|fault| fault.to_string())
        };
        self.open.get_or_try_init(open).await.map(|(connection, _)| connection)
    }
}

impl Carrier for SshCarrier {
    fn open(&self, address: &str) -> BoxFuture<'_, Result<Stream, String>> {
        let address = address.to_owned();
        Box::pin(async move {
            let connection = self.connection().await?;
            let mut child = connection
                .forward(&address)
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
