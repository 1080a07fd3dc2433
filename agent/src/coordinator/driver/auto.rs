//! The automatic mode: each second every job that has it on is looked at, and what it wants goes the way of any rescale.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tuplane_core::cluster::automatic::{AutoWhat, Automatic};
use tuplane_core::cluster::rescale::{AUTOMATIC, Rescale, Step};
use tuplane_core::cluster::{Command, Job, NewScale};
use tuplane_core::scale::observed::{Observed, Running};
use tuplane_core::scale::rates::traces_now;
use tuplane_core::scale::{Act, Auto, Bound, Look};
use tuplane_wire::message::{ClusterReply, FaultCode, JobPhase, WireFault};
use tuplane_wire::scaling::{AutoAsk, AutoView, JobAuto, ScaleAsk, ScalePlace};

use super::scale::read;
use super::{Driver, Turn, phase_name};
use crate::coordinator::etp::Seen;
use crate::coordinator::scaling::{Known, Stands};

/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(900);

/// Who chose, as the history says it.
const PLANNER: &str = AUTOMATIC;

/// Who asks for its plans, as operations say it.
const ITSELF: &str = "automatic mode";

/// The jobs that are looked at.
#[derive(Debug)]
pub(super) struct Autos {
    began: Instant,
    /// Wall time at that moment: times that are kept in the log mean something to the next coordinator.
    wall: Duration,
    /// By job id.
    watches: HashMap<u64, Watch>,
}

impl Autos {
    pub(super) fn new(began: Instant, wall_ms: u64) -> Self {
        Self { began, wall: Duration::from_millis(wall_ms), watches: HashMap::new() }
    }

    /// A clock that never goes back while this coordinator lives.
    fn at(&self, now: Instant) -> Duration {
        self.wall + now.saturating_duration_since(self.began)
    }
}

/// One job's automatic mode.
#[derive(Debug)]
struct Watch {
    auto: Auto,
    /// When that was turned on.
    since_ms: u64,
    looked: Option<Instant>,
    /// The newest plan that was taken note of.
    plan: u64,
    /// Its own plan of which it is not known what became.
    own: Option<u64>,
    bounds: Option<(Stands, Vec<Bound>)>,
    /// Live options as they were set when it looked last.
    options: Vec<(String, String, String)>,
}

/// What is to be noted of a look.
type Noted = Option<(AutoWhat, String, Option<u64>)>;

impl Watch {
    /// Goes on where the log says.
    fn resumed(job: &Job, mode: &Automatic, now: Duration) -> Self {
        let under_way =
            |entry: &&Rescale| is_own(entry) && entry.epoch == mode.plan && !entry.step.is_final();
        Self {
            auto: Auto::resumed(mode.options, mode.memory.clone(), now),
            since_ms: mode.since_ms,
            looked: None,
            plan: mode.plan,
            own: job.rescales().0.last().filter(under_way).map(|entry| entry.epoch),
            bounds: None,
            options: job.changed_options(),
        }
    }

    /// Takes note of plans that somebody else has asked for, and of what became of an own one.
    fn catch_up(&mut self, job: &Job, now: Duration) -> Noted {
        let history = job.rescales().0;
        let options = job.changed_options();
        if options != self.options {
            self.options = options;
            self.auto.costs_changed();
        }
        if job.newest_plan() > self.plan {
            self.plan = job.newest_plan();
            let asked = history.last().filter(|last| last.epoch == self.plan).map(|last| last.asked_ms);
            self.auto.changed(asked.map_or(now, |asked| Duration::from_millis(asked).min(now)));
        }
        let entry = history.iter().find(|entry| Some(entry.epoch) == self.own)?;
        match entry.step {
            Step::Done => self.auto.succeeded(),
            Step::Failed => self.auto.failed(),
            _ => return None,
        }
        self.own = None;
        let fault = entry.fault.clone()?;
        Some((AutoWhat::Failed, fault, Some(entry.epoch)))
    }
}

fn is_own(entry: &Rescale) -> bool {
    entry.planner.as_deref() == Some(PLANNER)
}

impl Driver {
    /// Looks at each running job whose automatic mode is on.
    pub(super) fn automatic(&mut self, turn: &mut Turn, now: Instant) {
        let on = |job: &&Job| job.is_live() && job.automatic.as_ref().is_some_and(|mode| mode.on);
        let jobs: Vec<(u64, u64)> = self.state.jobs().filter(on).map(|job| (job.id, job.run)).collect();
        self.autos.watches.retain(|id, _| jobs.iter().any(|(job, _)| job == id));
        for (id, run) in jobs {
            self.look_at(turn, id, run, now);
        }
    }

    fn look_at(&mut self, turn: &mut Turn, id: u64, run: u64, now: Instant) {
        let time = self.autos.at(now);
        let known = self.autos.watches.remove(&id);
        let Some(job) = self.state.run(run) else { return };
        let Some(mode) = &job.automatic else { return };
        let known = known.filter(|watch| watch.since_ms == mode.since_ms);
        let mut watch = known.unwrap_or_else(|| Watch::resumed(job, mode, time));
        let due = watch.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK);
        if due && job.phase == JobPhase::Running && !job.waits {
            watch.looked = Some(now);
            let (was, plan) = (mode.memory.clone(), mode.plan);
            let mut noted = watch.catch_up(job, time);
            if noted.is_none() && job.under_way().is_none() {
                noted = self.decide(turn, run, &mut watch, now);
            }
            if noted.is_some() || *watch.auto.memory() != was || watch.plan != plan {
                let memory = Box::new(watch.auto.memory().clone());
                self.apply(turn, Command::AutoNoted { run, memory, plan: watch.plan, note: noted });
            }
        }
        self.autos.watches.insert(id, watch);
    }

    /// One look, and what follows from it.
    fn decide(&mut self, turn: &mut Turn, run: u64, watch: &mut Watch, now: Instant) -> Noted {
        let before = watch.auto.memory().clone();
        let (what, why, new) = match self.wanted_of(run, watch, now)? {
            (act, Ok(new)) => (act, new.1, new.0),
            (_, Err(fault)) => return self.refused(run, watch, fault.message),
        };
        let Some(new) = new else { return Some((what, why, None)) };
        let asked = new.asked.clone();
        match self.carry_out(turn, run, *new, ITSELF.to_owned()) {
            Ok(epoch) => {
                tracing::info!(run, epoch, asked, why, "the automatic mode acts");
                (watch.plan, watch.own) = (epoch, Some(epoch));
                Some((what, why, Some(epoch)))
            }
            Err(fault) if fault.retryable => {
                watch.auto.postponed(before);
                None
            }
            Err(fault) => self.refused(run, watch, fault.message),
        }
    }

    /// What it wants is not to be: the next attempt comes later, and the reason is said once.
    fn refused(&self, run: u64, watch: &mut Watch, why: String) -> Noted {
        watch.auto.failed();
        let mode = self.state.run(run)?.automatic.as_ref()?;
        let same = mode.notes.last().is_some_and(|last| last.what == AutoWhat::Refused && last.why == why);
        (!same).then_some((AutoWhat::Refused, why, None))
    }

    /// What is to be done, why, and the plan for it; a limit has none.
    #[expect(clippy::type_complexity, reason = "one caller takes it apart")]
    fn wanted_of(
        &self,
        run: u64,
        watch: &mut Watch,
        now: Instant,
    ) -> Option<(AutoWhat, Result<(Option<Box<NewScale>>, String), WireFault>)> {
        let job = self.state.run(run)?;
        let mode = job.automatic.as_ref()?;
        let (spec, dag) = read(job).ok()?;
        let known = self.known(job, &spec, &dag);
        let seen = Seen::over(job, self.live.run(run), now, mode.options.window).ok()?;
        let none = BTreeMap::new();
        let kinds = traces_now(&seen.kinds, &dag, &spec, &seen.rates);
        let running = Running { kinds: &kinds, ..seen.running(seen.congestion(), &none) };
        let observed = match running.nothing_known().map_or_else(|| running.observe(), Err) {
            Ok(observed) => observed,
            Err(why) => {
                watch.auto.unseen(&why);
                return None;
            }
        };
        let bounds = known_bounds(watch, &known, mode, &running);
        let vertices = &seen.rates.vertices;
        let act = watch.auto.look(&Look {
            now: self.autos.at(now),
            full: seen.rates.full,
            graph: &observed.least,
            waiting: &vertices.iter().map(|vertex| vertex.waiting.max(vertex.queue_in)).collect::<Vec<_>>(),
            blocked: &vertices.iter().map(|v| v.blocked.clone().unwrap_or(0.0)).collect::<Vec<_>>(),
            room: known.room(),
            bounds: &bounds,
        });
        let (what, instances, why) = match act {
            Act::Stay => return None,
            Act::AtLimit { why } => {
                tracing::warn!(run, why, "the automatic mode is at its limit");
                return Some((AutoWhat::AtLimit, Ok((None, why))));
            }
            Act::Out { instances, why } => (AutoWhat::Out, instances, why),
            Act::In { instances, why } => (AutoWhat::In, instances, why),
        };
        Some((what, planned(&known, &running, &observed, &instances, why)))
    }

    /// What the automatic mode of a job thinks, if it is on.
    pub(super) fn thought(&self, job: &Job) -> Option<String> {
        let mode = job.automatic.as_ref().filter(|mode| mode.on)?;
        // What it thought before it was turned on anew is of other options.
        let watch = self.autos.watches.get(&job.id).filter(|watch| watch.since_ms == mode.since_ms);
        Some(watch.map_or("nothing was seen yet", |watch| watch.auto.thought()).to_owned())
    }

    /// The automatic mode of a job, once it was turned on.
    pub(super) fn automatic_view(&self, job: &Job) -> Option<AutoView> {
        let mode = job.automatic.as_ref()?;
        Some(AutoView {
            on: mode.on,
            options: mode.options,
            since_ms: mode.since_ms,
            thought: self.thought(job),
            notes: mode.notes.clone(),
        })
    }

    /// Turns it on or off, or only shows it.
    pub(super) fn set_automatic(
        &mut self,
        turn: &mut Turn,
        name: &str,
        ask: AutoAsk,
    ) -> Result<ClusterReply, WireFault> {
        let refused = |message: String| WireFault::new(FaultCode::Refused, message);
        let job = self.find(name)?;
        let run = job.run;
        let options = match ask {
            AutoAsk::Show => return Ok(self.shown_automatic(job)),
            AutoAsk::Off => None,
            AutoAsk::On(options) => {
                options.check().map_err(refused)?;
                Some(options)
            }
        };
        if !job.is_live() {
            return Err(refused(format!(
                "job {} is {}: nothing can be scaled",
                job.name,
                phase_name(job.phase)
            )));
        }
        let is_so = job.automatic.as_ref().is_some_and(|mode| match options {
            Some(options) => mode.on && mode.options == options,
            None => !mode.on,
        });
        let is_so = is_so || (options.is_none() && job.automatic.is_none());
        if !is_so {
            self.apply(turn, Command::AutoSet { run, options });
            let what = format!("scale auto {}", if options.is_some() { "on" } else { "off" });
            self.operation(turn, what, self.asker(), Some(run), None);
        }
        Ok(self.shown_automatic(self.find(name)?))
    }

    fn shown_automatic(&self, job: &Job) -> ClusterReply {
        let auto = self.automatic_view(job);
        ClusterReply::Auto(Box::new(JobAuto { job: job.name.clone(), run: job.run, auto }))
    }
}

/// The bounds of a job's vertices, found anew only when what they depend on has changed.
fn known_bounds(watch: &mut Watch, known: &Known<'_>, mode: &Automatic, running: &Running<'_>) -> Vec<Bound> {
    let of = known.stands();
    match &watch.bounds {
        Some((known, bounds)) if *known == of => bounds.clone(),
        _ => {
            let bounds = known.bounds(mode.options.most, |vertex| running.no_more(vertex));
            watch.bounds = Some((of, bounds.clone()));
            bounds
        }
    }
}

/// The plan that gives the job so many instances.
fn planned(
    known: &Known<'_>,
    running: &Running<'_>,
    observed: &Observed,
    instances: &[u32],
    why: String,
) -> Result<(Option<Box<NewScale>>, String), WireFault> {
    let graph = &observed.graph;
    let mut change = known.to(&graph.instances(), instances)?;
    change.planner = Some(PLANNER.to_owned());
    change.why = Some(why.clone());
    // By the rates that it has looked at itself, which need not be those of the last 10 s.
    match known.foretell_by(running, &mut change) {
        Ok(true) if change.remove.is_empty() => {
            let more =
                graph.vertices().iter().zip(instances).filter(|(vertex, after)| vertex.instances < **after);
            let more: Vec<String> = more.map(|(vertex, _)| format!("`{}`", vertex.id)).collect();
            let message = format!(
                "more of {} would bring nothing: the cores of the agents that they would be on are used up",
                more.join(", ")
            );
            return Err(WireFault::new(FaultCode::Refused, message));
        }
        said => change.unpredicted = said.err(),
    }
    let changed =
        graph.vertices().iter().zip(instances).filter(|(vertex, after)| vertex.instances != **after);
    let changed: Vec<String> = changed.map(|(vertex, after)| format!("{}={after}", vertex.id)).collect();
    // Only its words differ from those of somebody who asks for one vertex.
    let ask = ScaleAsk::Set { vertex: String::new(), instances: 0, place: ScalePlace::Anywhere };
    let (_, new) = known.plan(&ask, change)?;
    let Some(new) = new else {
        let message = format!("{} is as it was asked for", changed.join(", "));
        return Err(WireFault::new(FaultCode::Refused, message));
    };
    Ok((Some(Box::new(NewScale { asked: format!("set {}", changed.join(" ")), ..new })), why))
}
