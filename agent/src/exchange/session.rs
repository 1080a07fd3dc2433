//! What both halves of a data session agree on: greetings and times.

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tuplane_wire::message::AgentId;

/// Each side says something at least this often.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(250);
/// After so long without a word a connection is closed and dialled anew.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// No greeting is longer.
const MOST_GREETING: u32 = 64 << 10;

/// First message of the dialling side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The data format that it speaks.
    pub(crate) version: u16,
    /// Who sends rows.
    pub(crate) from: AgentId,
    /// Which of its sessions, by the clock of its start: a new one numbers its frames from 1.
    pub(crate) session: u64,
    /// Whom it means.
    pub(crate) to: AgentId,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    /// The session goes on behind this frame.
    Go {
        /// The last number received; 0 at first.
        received: u64,
    },
    /// Another incarnation, or another agent, listens here.
    NotMe(AgentId),
    /// Another data format is spoken here.
    Version(u16),
}

/// Writes a short message: its length, then JSON.
pub(crate) async fn write_message<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    to.write_all(&(body.len() as u32).to_le_bytes()).await?;
    to.write_all(&body).await?;
    to.flush().await
}

/// Reads one.
pub(crate) async fn read_message<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let read = async {
        let mut length = [0; 4];
        from.read_exact(&mut length).await?;
        let length = u32::from_le_bytes(length);
        if length > MOST_GREETING {
            return Err(io::Error::other(format!("a greeting of {length} bytes")));
        }
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    };
    tokio::time::timeout(SILENCE * 2, read)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not greet")))
}
