//! What a source needs that looks ahead, and what may not stand behind it.

use crate::fault::{Fault, Spanned, suggestion};
use crate::job::model::{Job, Op, Source, SourceConnector, Stage};
use crate::route::predict::PredictorRegistry;

/// The predictor that knows what comes: of a source, its schedule.
const PERFECT: &str = "perfect";

impl Job {
    /// Whether a source can look as far ahead as it says, and whether the stages behind it allow that.
    pub(super) fn looks_ahead(&self, stage: &Stage, faults: &mut Vec<Fault>) {
        let Op::Source(source) = &stage.op else { return };
        predictor(source, faults);
        let Some(window) = source.window.as_ref().filter(|window| window.value > 0) else { return };
        if let Some((why, help)) = cannot_see(source) {
            let fault = Fault::new(window.at, format!("`{}` cannot look ahead: {why}", stage.id));
            faults.push(fault.help(help));
            return;
        }
        for behind in self.behind(&stage.id) {
            let Some(why) = refuses(self, behind) else { continue };
            let message = format!(
                "rows of `{}` may be sent before they arrive (window = {}), and `{}` ({}) {why}",
                stage.id,
                window.value,
                behind.id,
                behind.op.name()
            );
            let help = format!("set window = 0 at `{}`, or take `{}` off its way", stage.id, behind.id);
            faults.push(Fault::new(window.at, message).help(help));
        }
    }

    /// The stages that a stage's rows reach, in file order.
    fn behind(&self, id: &str) -> Vec<&Stage> {
        let mut reached = vec![id];
        let mut behind = Vec::new();
        for stage in &self.stages {
            if stage.inputs.iter().any(|input| reached.contains(&input.value.as_str())) {
                reached.push(&stage.id);
                behind.push(stage);
            }
        }
        behind
    }
}

/// A live edge sends rows that exist: what else a predictor could say of a source would be sent in vain.
fn predictor(source: &Source, faults: &mut Vec<Fault>) {
    let Some(Spanned { value: name, at }) = &source.predictor else { return };
    if name == PERFECT {
        if source.window.is_none() {
            let fault =
                Fault::new(*at, "`predictor` says how a `window` is filled, and this source has none");
            faults.push(fault.help("set `window` to a number of slots, or take `predictor` away"));
        }
        return;
    }
    let registry = PredictorRegistry::default();
    let known: Vec<&str> = registry.names().collect();
    let message = if known.contains(&name.as_str()) {
        format!(
            "`{name}` predicts how many rows will arrive, not the rows, and no row can be sent before it is there"
        )
    } else {
        let near = suggestion(name, known.iter().copied());
        let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        format!("there is no predictor `{name}` for a source{hint}")
    };
    let help = "a source has `perfect`, its own schedule; others are compared in `tuplane-testbed sim`";
    faults.push(Fault::new(*at, message).help(help));
}

/// Why nothing is known of rows that a source has yet to give, and what would help.
fn cannot_see(source: &Source) -> Option<(&'static str, &'static str)> {
    match &source.connector {
        None | Some(SourceConnector::Trace(_)) => None,
        Some(SourceConnector::Registered { .. }) => {
            Some(("a registered source does not say when its next rows arrive", "set window = 0"))
        }
        Some(SourceConnector::File(file)) if file.paths.iter().any(|path| path.value == "-") => {
            Some(("what comes by standard input is not there before it arrives", "read a file"))
        }
        Some(_) if source.rate.is_none() => {
            Some(("without a `rate` a row arrives when it is read", "set `rate`, or window = 0"))
        }
        Some(_) => None,
    }
}

/// Why a stage may not be given rows that have not arrived.
fn refuses(job: &Job, stage: &Stage) -> Option<&'static str> {
    match &stage.op {
        Op::RollingAggregate { .. } | Op::Stateful { .. } => {
            Some("depends on the order in which rows arrive")
        }
        Op::Distinct { .. } => Some("keeps the row that arrives first"),
        Op::CustomTransform { .. } => Some(
            "may depend on when and in which order rows arrive: nothing is known of an operator of a registry",
        ),
        Op::UsingService(_) => Some("would ask its service before the row has arrived"),
        Op::Aggregate { .. } | Op::CoAggregate { .. } if is_early(job, stage) => {
            Some("gives early results by the clock")
        }
        _ => None,
    }
}

/// The window that a stage aggregates by gives results before it ends.
fn is_early(job: &Job, stage: &Stage) -> bool {
    let mut before = stage.inputs.first();
    // At most as many views as stages, in case inputs form a ring.
    for _ in 0..job.stages.len() {
        let Some(view) = before.and_then(|id| job.stages.iter().find(|stage| stage.id == id.value)) else {
            return false;
        };
        match &view.op {
            Op::Window(window) => return window.early.is_some_and(|early| !early.is_zero()),
            Op::GroupBy { .. } | Op::Rebalance(_) => before = view.inputs.first(),
            _ => return false,
        }
    }
    false
}
