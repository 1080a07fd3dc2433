//! An open file or pipe. A pipe is never waited for in a call to the system: a cancelled job would keep the
//! thread, and take what is written for the next one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use tuplane_core::cluster::types::FileState;

use super::super::SourceError;
use super::super::splits::check_unchanged;

/// A pipe is waited for so long at a time.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Reads a file, or a pipe whose writer may come later.
#[derive(Debug)]
pub(super) struct Input {
    file: File,
    is_pipe: bool,
    /// The file at submit.
    seen: Option<FileState>,
    /// The last look found a pipe without a byte, whose writers have not all gone.
    is_empty: bool,
}

impl Input {
    /// Opens it; fails if it is not what was `seen`.
    pub(super) fn open(path: &Path, seen: Option<FileState>) -> Result<Self, SourceError> {
        let fail = |cause| SourceError::file("open", path, cause);
        let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if let Some(seen) = &seen {
            check_unchanged(seen, &meta, path)?;
        }
        Ok(Self { file, is_pipe: meta.file_type().is_fifo(), seen, is_empty: false })
    }

    /// The file, to read from it or to seek in it.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// It is a pipe.
    pub(super) fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Fails if the file has become another, or shorter, since the job was submitted.
    pub(super) fn check(&self, path: &Path) -> Result<(), SourceError> {
        let Some(seen) = &self.seen else { return Ok(()) };
        let meta = self.file.metadata().map_err(|cause| SourceError::file("read", path, cause))?;
        check_unchanged(seen, &meta, path)
    }

    /// A read gives bytes, or the end.
    pub(super) fn is_ready(&mut self, path: &Path) -> Result<bool, SourceError> {
        self.look(path, &Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    /// Waits a moment, where the last look found nothing.
    pub(super) fn wait(&mut self, path: &Path) -> Result<(), SourceError> {
        if self.is_empty { self.look(path, &MOMENT).map(|_| ()) } else { Ok(()) }
    }

    /// Only this tells a pipe that no writer has opened yet from one whose writers have gone: a read gives
    /// no byte from either.
    fn look(&mut self, path: &Path, patience: &Timespec) -> Result<bool, SourceError> {
        if !self.is_pipe {
            return Ok(true);
        }
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        let ready = match poll(&mut fds, Some(patience)) {
            Ok(ready) => ready > 0,
            Err(cause) if io::Error::from(cause).kind() == io::ErrorKind::Interrupted => false,
            Err(cause) => return Err(SourceError::file("wait for", path, cause.into())),
        };
        self.is_empty = !ready;
        Ok(ready)
    }
}
