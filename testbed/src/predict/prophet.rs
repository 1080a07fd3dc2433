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
const WITHIN: Duration = Duration::from_mins(1);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::external::tests::has_python;

    /// Where a package of that name is found, the script of that name is not taken for it.
    #[test]
    fn the_script_finds_the_package_and_not_itself() {
        if !has_python("the_script_finds_the_package_and_not_itself") {
            return;
        }
        let packages = tempfile::tempdir().unwrap();
        for name in ["pandas.py", "prophet.py"] {
            std::fs::write(packages.path().join(name), "__version__ = 'of the package'\n").unwrap();
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/predictors");
        for arguments in [["prophet.py", "--check", "--every=9"], ["-c", SCRIPT, "--check"]] {
            let mut command = Command::new(PYTHON);
            command.args(arguments).current_dir(folder).env("PYTHONPATH", packages.path());
            let run = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
            let said = String::from_utf8(run.stdout).unwrap();
            assert!(
                said.starts_with("prophet of the package, pandas of the package, Python 3"),
                "{said}{}",
                String::from_utf8_lossy(&run.stderr)
            );
        }
    }
}
