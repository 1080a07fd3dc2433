//! What the experiments run on: applications, placement, arrivals of a trace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::PaperError;
use crate::arrivals::{Format, Scale, Series};
use crate::sim::{self, Arrivals, Config, Registry};

/// The set-up that ships with the product: the simulation file first.
const FILES: [(&str, &str); 6] = [
    ("fat-tree.toml", include_str!("../../../experiments/potus/fat-tree.toml")),
    ("chain-3.toml", include_str!("../../../experiments/potus/chain-3.toml")),
    ("diamond.toml", include_str!("../../../experiments/potus/diamond.toml")),
    ("chain-4.toml", include_str!("../../../experiments/potus/chain-4.toml")),
    ("fork-5.toml", include_str!("../../../experiments/potus/fork-5.toml")),
    ("fork-6.toml", include_str!("../../../experiments/potus/fork-6.toml")),
];

/// Variance over mean of the stand-in for a trace. With 2 tuples a slot the variance is 11.2, which is what the
/// published errors of predictors suggest (potus.md 5.2).
pub(super) const RATIO: f64 = 5.6;

/// What all runs have in common.
#[derive(Debug, Clone)]
pub(super) struct SetUp {
    /// Of it the applications, the placement and the telemetry are taken.
    pub(super) base: Config,
    /// The arrivals that are not Poisson's.
    pub(super) trace: Arrivals,
}

impl SetUp {
    /// Of a simulation file, or what ships with the product: that is written into `folder` and read from there. The
    /// trace is `trace`'s, else the file's own arrivals where they are not Poisson's, else a stand-in.
    pub(super) fn load(
        base: Option<&Path>,
        trace: Option<&Path>,
        folder: &Path,
        registry: &Registry,
    ) -> Result<Self, PaperError> {
        let file = match base {
            Some(file) => file.to_owned(),
            None => shipped(folder)?,
        };
        let base = sim::load(&file, &[], registry).map_err(PaperError::SetUp)?;
        let trace = match (trace, &base.arrivals) {
            (Some(path), _) => {
                let counts = Series::read(path, &Format::default())?;
                // What has no mean to scale is refused before anything runs.
                counts.rows(Scale::Mean(1.0), 0)?;
                Arrivals::Trace { counts: Arc::new(counts), name: path.display().to_string() }
            }
            (None, Arrivals::Poisson) => Arrivals::Overdispersed { ratio: RATIO },
            (None, other) => other.clone(),
        };
        Ok(Self { base, trace })
    }

    /// Where the arrivals that are not Poisson's are from, as a sentence.
    pub(super) fn trace_words(&self) -> String {
        match &self.trace {
            Arrivals::Trace { name, .. } => {
                format!("Arrivals called `trace` are those of {name}, scaled to the means of the spouts.")
            }
            Arrivals::Overdispersed { ratio } => format!(
                "No trace was named (`--trace FILE`): arrivals called `trace` are a stand-in, Poisson counts whose mean \
                 is drawn from a gamma distribution in each slot, variance over mean {ratio}."
            ),
            Arrivals::Poisson => "Arrivals called `trace` are Poisson's too.".to_owned(),
        }
    }
}

fn shipped(folder: &Path) -> Result<PathBuf, PaperError> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|cause| PaperError::Write { path: path.to_owned(), cause })
    };
    std::fs::create_dir_all(folder).map_err(|cause| PaperError::Write { path: folder.to_owned(), cause })?;
    for (name, text) in FILES {
        write(&folder.join(name), text)?;
    }
    Ok(folder.join(FILES[0].0))
}
