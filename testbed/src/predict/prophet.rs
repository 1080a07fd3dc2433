//! The predictor `prophet`: the script `testbed/predictors/prophet.py`, run as an external one.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use tuplane_core::route::predict::{Predictor, Refusal, Setup};

use super::External;
use super::external::Within;

const SCRIPT: &str = include_str!("../../predictors/prophet.py");

/// The interpreter, if nothing else is said.
const PYTHON: &str = "python3";

/// Fitting takes seconds.
const WITHIN: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    python: Option<String>,
    within: Option<Within>,
    window: Option<u32>,
    period: Option<u32>,
    slot_seconds: Option<f64>,
    memory: Option<u32>,
    every: Option<u32>,
}

pub(super) fn make(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let options: Options = setup.options()?;
    let python = options.python.as_deref().unwrap_or(PYTHON);
    let whole = |value: Option<u32>| value.map(|value| value.to_string());
    let mut words = Vec::new();
    for (option, value) in [
        ("--window", whole(options.window)),
        ("--period", whole(options.period)),
        ("--slot-seconds", options.slot_seconds.map(|seconds| seconds.to_string())),
        ("--memory", whole(options.memory)),
        ("--every", whole(options.every)),
    ] {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).args(&words);
    let shown = [&[python.to_owned(), "prophet.py".to_owned()], words.as_slice()].concat().join(" ");
    let within = options.within.map_or(Ok(WITHIN), |within| within.duration())?;
    Ok(Box::new(External::start("prophet", command, shown, within)?))
}

/// The versions of prophet and of what it runs on, for a report.
///
/// # Errors
/// Where `python` (`python3` if not said) does not have it: one line that says what is missing.
pub fn prophet_version(python: Option<&str>) -> Result<String, String> {
    let python = python.unwrap_or(PYTHON);
    let run = Command::new(python).args(["-c", SCRIPT, "--check"]).output();
    let run = run.map_err(|cause| format!("cannot start `{python}`: {cause}"))?;
    let last =
        |said: &[u8]| String::from_utf8_lossy(said).trim().lines().last().unwrap_or_default().to_owned();
    if run.status.success() { Ok(last(&run.stdout)) } else { Err(last(&run.stderr)) }
}
