//! What the demo and the benchmarks share: a folder for a while, and the command line beside them.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

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

/// The command line, for one cluster, which is found in a folder of its own.
pub(crate) struct Commands {
    pub(crate) tuplane: PathBuf,
    pub(crate) folder: Folder,
    pub(crate) cluster: &'static str,
}

impl Commands {
    /// Runs a command on the cluster; gives what it says. Ctrl-C on the terminal does not reach it: who called it ends
    /// what it has begun.
    pub(crate) fn call(&self, args: &[&str]) -> Result<Vec<u8>> {
        let output = Command::new(&self.tuplane)
            .args(args)
            .args(["--cluster", self.cluster])
            .env("XDG_RUNTIME_DIR", &self.folder.path)
            .stdin(Stdio::null())
            .process_group(0)
            .output()
            .with_context(|| format!("cannot run {}", self.tuplane.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "`tuplane {}` failed ({}): {}",
            args.join(" "),
            output.status,
            said.trim()
        );
        Ok(output.stdout)
    }

    /// The same for its document.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value> {
        let mut all = args.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_slice(&self.call(&all)?).context("a document cannot be read")
    }
}
