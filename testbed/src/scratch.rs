//! What the demo and the benchmarks share: a folder for a while, and the command line beside them.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The command line beside this program.
pub(crate) fn tuplane() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own place")?;
    let path = own.with_file_name("tuplane");
    ensure!(path.is_file(), "{} is not there; build it with `cargo build --release`", path.display());
    Ok(path)
}

/// A folder that goes when its command ends.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    /// A new one for this purpose.
    pub(crate) fn make(purpose: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("tuplane-{purpose}-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self { path })
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It lies among temporary files: left behind it harms nobody.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
