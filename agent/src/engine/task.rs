//! Where the parts of a run execute: on the data runtime, or on a thread of their own if they block.

use std::time::Duration;

use futures::future::{AbortHandle, abortable};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A thread that was told to end is waited for so long: a read of a pipe that nobody writes to never
/// returns, and must not keep a job from ending.
const PATIENCE: Duration = Duration::from_millis(500);

/// The stack of a thread that runs instances: expressions are evaluated by recursion, at most 400 deep.
/// What is not used costs nothing.
pub const STACK: usize = 8 << 20;

/// Something that runs until its end or until it is told to end.
#[derive(Debug)]
pub(crate) enum Task {
    /// On the data runtime, whose few threads all runs share: it may not block.
    Shared(JoinHandle<()>),
    /// On a thread of its own: a slow disk, a pipe or a busy loop holds up nobody else.
    Own {
        /// Ends it where it next waits.
        abort: AbortHandle,
        /// Closed when the thread has ended.
        ended: oneshot::Receiver<()>,
    },
}

impl Task {
    /// Runs on the data runtime.
    pub(crate) fn shared(data: &Handle, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::Shared(data.spawn(work))
    }

    /// Runs on a thread of its own, with the data runtime's timers and connections.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn own(
        name: &str,
        data: &Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (work, abort) = abortable(work);
        let (ending, ended) = oneshot::channel();
        let data = data.clone();
        // Linux shows the first 15 bytes of it, so the number must not be cut off: `id#n` is short.
        std::thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(move || {
            // Aborted or done: its end is what counts.
            let _ = data.block_on(work);
            drop(ending);
        })?;
        Ok(Self::Own { abort, ended })
    }

    /// Tells it to end; [`Task::ended`] waits until it has.
    pub(crate) fn abort(&self) {
        match self {
            Self::Shared(task) => task.abort(),
            Self::Own { abort, .. } => abort.abort(),
        }
    }

    /// It has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        match self {
            Self::Shared(task) => task.is_finished(),
            Self::Own { ended, .. } => ended.try_recv() == Err(oneshot::error::TryRecvError::Closed),
        }
    }

    /// Waits until it has ended. False: it stands in a call to the system, and ends when that returns.
    pub(crate) async fn ended(self) -> bool {
        match self {
            // An aborted task answers with an error; it has ended either way.
            Self::Shared(task) => {
                let _ = task.await;
                true
            }
            Self::Own { ended, .. } => tokio::time::timeout(PATIENCE, ended).await.is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_blocked_thread_holds_up_neither_the_runtime_nor_a_stop() {
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = std::sync::mpsc::channel();
        let work = async move {
            begins.send(()).unwrap();
            let _ = blocked.recv();
            std::future::pending::<()>().await;
        };
        let stuck = Task::own("stuck", &Handle::current(), work).unwrap();
        let waits = Task::own("waits", &Handle::current(), std::future::pending()).unwrap();
        tokio::spawn(async {}).await.unwrap();
        // One that is told to end before it has begun never stands anywhere.
        begun.recv().unwrap();
        stuck.abort();
        waits.abort();
        assert!(waits.ended().await);
        assert!(!stuck.ended().await);
        drop(release);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_of_its_own_has_timers_and_ends_by_itself() {
        let (send, receive) = oneshot::channel();
        let work = async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let _ = send.send(std::thread::current().name().map(str::to_owned));
        };
        let task = Task::own("out#1", &Handle::current(), work).unwrap();
        assert_eq!(receive.await.unwrap().as_deref(), Some("out#1"));
        assert!(task.ended().await);
    }
}
