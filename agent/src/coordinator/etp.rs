//! Answers to `etp`: rates of a running job, from the reports that are kept, and what follows from them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tuplane_core::cluster::Job;
use tuplane_core::job::{self, Op, Settings, Source, SourceConnector};
use tuplane_core::plan::placement::Instance;
use tuplane_core::plan::{Dag, VertexId};
use tuplane_core::scale::congestion::{Congestion, PUBLISHED};
use tuplane_core::scale::fluid::Engine;
use tuplane_core::scale::observed::Running;
use tuplane_core::scale::rates::{Figure, JobRates, Kind, Known, WindowOptions, kinds};
use tuplane_wire::etp::JobFlow;
use tuplane_wire::message::{FaultCode, WireFault};

use super::driver::Note;
use super::live::{LiveRun, Measured};
use super::scaling::{self, Model};
use crate::source;

/// What was measured of a running job.
pub(super) struct Seen {
    pub(super) dag: Dag,
    pub(super) kinds: Vec<Kind>,
    pub(super) engine: Engine,
    pub(super) rates: JobRates,
    /// Its instances, without those that a rescale has ended.
    pub(super) instances: Vec<Instance>,
    partitions: u16,
    agents: Vec<String>,
    /// The setting's, where it has one.
    ratio: Option<f64>,
}

impl Seen {
    /// Rates of a job now, as far as they are known.
    pub(super) fn of(job: &Job, live: Option<&LiveRun>, now: Instant) -> Result<Self, WireFault> {
        Self::over(job, live, now, WindowOptions::default().span)
    }

    /// Rates of a job over the last so long.
    pub(super) fn over(
        job: &Job,
        live: Option<&LiveRun>,
        now: Instant,
        span: Duration,
    ) -> Result<Self, WireFault> {
        let unread = |what: &str, e: serde_json::Error| {
            WireFault::new(FaultCode::Internal, format!("{what} cannot be read: {e}"))
        };
        let dag: Dag = serde_json::from_str(&job.dag).map_err(|e| unread("the plan", e))?;
        let submitted: job::Job = serde_json::from_str(&job.job).map_err(|e| unread("the job", e))?;
        let nothing = Measured::default();
        let measured = live.map_or(&nothing, |live| &live.rates);
        let changed = job.changed_options();
        let set = |stage: &str, option: &str| {
            let found = changed.iter().find(|(of, name, _)| of == stage && name == option);
            serde_json::from_str(&found?.2).ok()
        };
        let kinds = kinds(&dag, &submitted, set, |stage| measured.mean(stage));
        let instances: Vec<Instance> = job.standing().copied().collect();
        let agents: Vec<String> = job.agents.iter().map(|agent| agent.id.name.clone()).collect();
        let known = Known { dag: &dag, kinds: &kinds, instances: &instances, agents: &agents };
        let rates = measured.window().rates_over(&known, measured.at(now), span);
        let engine = Engine::from(submitted.options.overflow);
        let ratio = (submitted.options.settings == Settings::Paper).then_some(PUBLISHED);
        let partitions = submitted.options.partitions();
        Ok(Self { dag, kinds, engine, rates, instances, partitions, agents, ratio })
    }

    /// As scaling takes it. `fixed` are vertices that can have no more instances.
    pub(super) fn running<'a>(
        &'a self,
        congestion: Congestion,
        fixed: &'a BTreeMap<VertexId, String>,
    ) -> Running<'a> {
        let Self { dag, kinds, rates, engine, partitions, .. } = self;
        Running {
            dag,
            kinds,
            rates,
            engine: *engine,
            congestion,
            fixed,
            partitions: *partitions,
            alone: false,
        }
    }

    /// The test of congestion that the job's setting has.
    pub(super) fn congestion(&self) -> Congestion {
        self.ratio.map_or(Congestion::Demand, Congestion::Ratio)
    }
}

/// Rates, congestion and ETP of a running job, and what more instances would bring. `fixed` are vertices that can have no more of
/// them, and why.
pub(super) fn answer(
    known: &scaling::Known<'_>,
    ratio: Option<f64>,
    now: Instant,
    fixed: &BTreeMap<VertexId, String>,
) -> Result<JobFlow, WireFault> {
    let job = known.job;
    let seen = Seen::of(job, known.live, now)?;
    let (congestion, words) = match ratio.or(seen.ratio) {
        Some(ratio) if ratio.is_finite() && ratio > 0.0 => {
            (Congestion::Ratio(ratio), format!("input > {ratio} * processed"))
        }
        Some(ratio) => {
            let message = format!("a congestion ratio of {ratio} is no number above 0");
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        None => (Congestion::Demand, "demand > capacity".to_owned()),
    };
    let running = seen.running(congestion, fixed);
    let model = known.more_model(&running);
    let on_machines = model.as_ref().ok().map(Model::on_machines);
    let etp = running.etp(on_machines.as_ref());
    let more = known.more(&running, model);
    Ok(JobFlow {
        job: job.name.clone(),
        run: job.run,
        epoch: job.epoch(),
        dag: job.dag.clone(),
        agents: seen.agents,
        instances: seen.instances,
        engine: seen.engine.name().to_owned(),
        congestion: words,
        rates: seen.rates,
        etp,
        more,
        auto: None,
    })
}

/// Reads the counts of a run's traces beside the driver, for their mean rates.
pub(super) fn read_traces(run: u64, job: String, folder: PathBuf, notes: mpsc::UnboundedSender<Note>) {
    let Ok(job) = serde_json::from_str::<job::Job>(&job) else { return };
    let is_trace = |stage: &job::Stage| {
        matches!(&stage.op, Op::Source(Source { connector: Some(SourceConnector::Trace(_)), .. }))
    };
    if !job.stages.iter().any(is_trace) {
        return;
    }
    tokio::task::spawn_blocking(move || {
        let mean = |stage: &job::Stage| {
            let Op::Source(Source { connector: Some(SourceConnector::Trace(trace)), .. }) = &stage.op else {
                return None;
            };
            let mean: Figure =
                source::trace_schedule(trace, &folder).map(|trace| trace.mean()).map_err(|e| e.to_string());
            Some((stage.id.clone(), mean))
        };
        let means: BTreeMap<String, Figure> = job.stages.iter().filter_map(mean).collect();
        // Without its receiver the coordinator has ended.
        let _ = notes.send(Note::Means { run, means });
    });
}
