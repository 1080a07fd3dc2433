//! Ctrl-C: once, and the command ends what it began; twice, and it ends at once.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tuplane_testbed::launch::{AgentEntry, ClusterFile, ClusterFolder};

use crate::failure::{Failure, Outcome};

/// Listens for SIGINT, SIGTERM and SIGHUP.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    seen: watch::Receiver<bool>,
    guarded: Arc<Mutex<Option<Guarded>>>,
}

/// What ends with the second signal.
#[derive(Debug)]
struct Guarded {
    folder: ClusterFolder,
    agents: Vec<AgentEntry>,
}

impl Interrupt {
    /// Begins to listen; from here on a signal does not end the process by itself.
    pub(crate) fn listen() -> Outcome<Self> {
        let broken = |cause: std::io::Error| Failure::Internal(format!("cannot listen for signals: {cause}"));
        let mut int = signal(SignalKind::interrupt()).map_err(broken)?;
        let mut term = signal(SignalKind::terminate()).map_err(broken)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(broken)?;
        let (send, seen) = watch::channel(false);
        let guarded: Arc<Mutex<Option<Guarded>>> = Arc::default();
        let at_once = Arc::clone(&guarded);
        tokio::spawn(async move {
            let mut times = 0;
            loop {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                    _ = hangup.recv() => {}
                }
                times += 1;
                // The command may have ended in between.
                let _ = send.send(true);
                if times > 1 {
                    end_at_once(&at_once);
                }
            }
        });
        Ok(Self { seen, guarded })
    }

    /// From now on a second signal kills these agents and removes their folder.
    pub(crate) fn guard(&self, folder: &ClusterFolder, agents: &[AgentEntry]) {
        let guarded = Guarded { folder: folder.clone(), agents: agents.to_vec() };
        *self.guarded.lock().unwrap_or_else(PoisonError::into_inner) = Some(guarded);
    }

    /// Comes back when the first signal has come.
    pub(crate) async fn wait(&self) {
        let mut seen = self.seen.clone();
        if seen.wait_for(|seen| *seen).await.is_err() {
            // The listener is gone with the runtime: nothing will ever come.
            std::future::pending::<()>().await;
        }
    }

    /// Does the work unless a signal comes first.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        tokio::select! {
            biased;
            () = self.wait() => Err(Failure::Interrupted),
            done = work => done,
        }
    }
}

fn end_at_once(guarded: &Mutex<Option<Guarded>>) {
    if let Some(guarded) = guarded.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // Those on other hosts end with this process: it holds their lifelines.
        let file = ClusterFile::read(&guarded.folder.file());
        let now = file.map_or_else(|_| Vec::new(), |file| file.agents);
        for process in guarded.agents.iter().chain(&now).filter_map(AgentEntry::here) {
            process.kill();
        }
        // What stays is found stale by the next command.
        let _ = guarded.folder.remove();
    }
    std::process::exit(i32::from(Failure::Interrupted.code()));
}
