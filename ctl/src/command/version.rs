//! `tuplane version`.

use serde_json::json;

use crate::failure::Outcome;
use crate::output::Output;

pub(super) fn run(output: &mut Output) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    if output.is_text() {
        output.text(&format!("tuplane {version}"))
    } else {
        output.document("version", &json!({ "version": version }))
    }
}
