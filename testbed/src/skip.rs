//! For tests of all packages: noting that one was skipped, or failing it where all must run.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that a test is skipped for want of something, and notes it in the file that `TUPLANE_SKIPS`
/// names, from which `make test` counts.
///
/// # Panics
/// If `TUPLANE_REQUIRE` is set: there nothing may be skipped.
pub fn skip(test: &str, missing: &str) {
    let line = format!("SKIPPED {test}: {missing} is missing");
    println!("{line}");
    assert!(std::env::var_os("TUPLANE_REQUIRE").is_none(), "{line}, and TUPLANE_REQUIRE is set");
    if let Some(path) = std::env::var_os("TUPLANE_SKIPS") {
        let noted =
            OpenOptions::new().create(true).append(true).open(path).and_then(|mut f| writeln!(f, "{line}"));
        assert!(noted.is_ok(), "{line}, and TUPLANE_SKIPS cannot be written: {noted:?}");
    }
}

/// A real input beside the checkout, if it is there; the test that wants it is skipped otherwise.
///
/// # Panics
/// As [`skip`].
pub fn shared(test: &str, path: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    let found = checkout.join("../shared").join(path).canonicalize().ok();
    if found.is_none() {
        skip(test, &format!("../shared/{path}"));
    }
    found
}
