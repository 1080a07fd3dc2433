//! Where a source instance gets its splits: from the coordinator, or (files of its own) from its agent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tuplane_wire::message::{Split, WireFault};

/// Pause before the coordinator is asked again, when it did not answer or cannot take it now.
pub(crate) const AGAIN: Duration = Duration::from_millis(250);

/// Asks the coordinator for splits.
pub trait SplitClient: Send + Sync {
    /// The next split of a stage for one instance that was given `have` so far.
    fn next_split(
        &self,
        run: u64,
        stage: String,
        instance: u32,
        have: u32,
    ) -> BoxFuture<'static, Result<Option<Split>, WireFault>>;
}

/// Splits of one source instance.
pub(crate) enum Splits {
    /// The instance reads none.
    None,
    /// The coordinator hands them out, over the whole cluster.
    Shared { client: Arc<dyn SplitClient>, run: u64, stage: String, instance: u32, have: u32 },
    /// The agent's own files, dealt to its instances as they ask.
    Own(Arc<Mutex<Vec<Split>>>),
}

impl Splits {
    /// How many splits the coordinator has given; `None` where it gives none.
    pub(crate) fn have(&self) -> Option<u32> {
        match self {
            Self::Shared { have, .. } => Some(*have),
            Self::None | Self::Own(_) => None,
        }
    }

    /// The next split; `None` if there is none any more.
    pub(crate) async fn next(&mut self) -> Result<Option<Split>, WireFault> {
        match self {
            Self::None => Ok(None),
            Self::Own(splits) => Ok(splits.lock().unwrap_or_else(PoisonError::into_inner).pop()),
            Self::Shared { client, run, stage, instance, have } => loop {
                match client.next_split(*run, stage.clone(), *instance, *have).await {
                    Ok(split) => {
                        *have += u32::from(split.is_some());
                        return Ok(split);
                    }
                    // Asking again gives the same answer, so nothing is lost or read twice.
                    Err(fault) if fault.retryable => tokio::time::sleep(AGAIN).await,
                    Err(fault) => return Err(fault),
                }
            },
        }
    }
}
