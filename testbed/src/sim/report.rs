//! The document `tuplane/sim/1` and its text.

use std::fmt::{self, Write as _};

use serde::Serialize;
use tuplane_core::route::{Admission, Setting};

use super::config::{Arrivals, Config};
use super::network::Network;
use super::outcome::Outcome;

/// Runs of one configuration with several seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    schema: &'static str,
    name: String,
    told: Told,
    mean: Means,
    runs: Vec<Outcome>,
}

/// What the runs were told, in words and numbers.
#[derive(Debug, Clone, Serialize)]
struct Told {
    network: String,
    placement: &'static str,
    load: f64,
    uneven: u32,
    slots: u32,
    warmup: u32,
    arrivals: String,
    policy: String,
    setting: Setting,
    v: String,
    beta: String,
    gamma: Option<u64>,
    reprice: bool,
    dead_reckoning: bool,
    admission: Admission,
    max_hold_slots: Option<i64>,
    telemetry_every: u32,
    telemetry_delay: u32,
    telemetry_reckoning: &'static str,
    window: u32,
    window_spread: bool,
    predictor: String,
    predictor_options: serde_json::Map<String, serde_json::Value>,
}

/// Means over the runs; null where no run has the figure.
#[derive(Debug, Clone, Copy, Serialize)]
struct Means {
    response: Option<f64>,
    p99: Option<f64>,
    cost_per_slot: Option<f64>,
    q_in: Option<f64>,
    q_out: Option<f64>,
    weighted_backlog: Option<f64>,
    mse: Option<f64>,
}

/// Puts runs together.
pub fn report(config: &Config, runs: Vec<Outcome>) -> Report {
    let mean = Means {
        response: mean(&runs, |run| run.response.mean),
        p99: mean(&runs, |run| run.response.p99.map(f64::from)),
        cost_per_slot: mean(&runs, |run| Some(run.cost_per_slot)),
        q_in: mean(&runs, |run| Some(run.backlog.q_in)),
        q_out: mean(&runs, |run| Some(run.backlog.q_out)),
        weighted_backlog: mean(&runs, |run| Some(run.weighted_backlog)),
        mse: mean(&runs, |run| run.foresight.mse),
    };
    Report { schema: "tuplane/sim/1", name: config.name.clone(), told: told(config), mean, runs }
}

fn mean(runs: &[Outcome], figure: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
    let figures: Vec<f64> = runs.iter().filter_map(figure).collect();
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

fn told(config: &Config) -> Told {
    let options = &config.routing.options;
    Told {
        network: match &config.network {
            Network::FatTree => "fat_tree".to_owned(),
            Network::Jellyfish { switches, degree, servers, seed } => {
                format!("jellyfish: {switches} switches of degree {degree}, {servers} servers, seed {seed}")
            }
            Network::Matrix(costs) => format!("matrix of {} servers", costs.len()),
        },
        placement: super::read::placement_name(config.placement),
        load: config.load,
        uneven: config.uneven,
        slots: config.slots,
        warmup: config.warmup,
        arrivals: match &config.arrivals {
            Arrivals::Poisson => "poisson".to_owned(),
            Arrivals::Overdispersed { ratio } => format!("overdispersed, variance over mean {ratio}"),
            Arrivals::Trace { name, .. } => format!("trace {name}"),
        },
        policy: config.routing.policy.clone(),
        setting: options.setting,
        v: options.v.to_string(),
        beta: options.beta.to_string(),
        gamma: options.gamma,
        reprice: options.reprice,
        dead_reckoning: options.dead_reckoning,
        admission: options.admission,
        max_hold_slots: config.routing.max_hold(),
        telemetry_every: config.telemetry.every,
        telemetry_delay: config.telemetry.delay,
        telemetry_reckoning: if config.telemetry.by_slot { "by_slot" } else { "agent" },
        window: config.lookahead.size,
        window_spread: config.lookahead.spread,
        predictor: config.lookahead.predictor.clone(),
        predictor_options: config.lookahead.options.clone(),
    }
}

/// A figure, or a dash where there is none.
fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = &self.told;
        writeln!(
            f,
            "{}: {} on {}, v {}, beta {}, window {}{}",
            self.name,
            told.policy,
            told.network,
            told.v,
            told.beta,
            told.window,
            if told.window > 0 { format!(" ({})", told.predictor) } else { String::new() }
        )?;
        writeln!(
            f,
            "\n{:>6} {:>9} {:>6} {:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}",
            "SEED",
            "RESPONSE",
            "P50",
            "P99",
            "COST/SLOT",
            "Q_IN",
            "Q_OUT",
            "WEIGHTED",
            "GROWTH",
            "DEFERRED",
            "FORCED",
            "WASTED"
        )?;
        let whole = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        for run in &self.runs {
            writeln!(
                f,
                "{:>6} {:>9} {:>6} {:>6} {:>10.1} {:>9.1} {:>9.1} {:>9.1} {:>9.4} {:>8} {:>8} {:>8}",
                run.seed,
                figure(run.response.mean),
                whole(run.response.p50),
                whole(run.response.p99),
                run.cost_per_slot,
                run.backlog.q_in,
                run.backlog.q_out,
                run.weighted_backlog,
                run.growth,
                run.deferred,
                run.forced,
                run.foresight.wasted
            )?;
        }
        let mut last = String::new();
        write!(
            last,
            "mean: response {} slots, cost {} a slot",
            figure(self.mean.response),
            figure(self.mean.cost_per_slot)
        )?;
        if let Some(mse) = self.mean.mse {
            write!(last, ", MSE of the forecasts {mse:.2}")?;
        }
        let (missing, late) = self.runs.iter().fold((0, 0), |(missing, late), run| {
            (missing + run.foresight.missing, late + run.foresight.late)
        });
        if missing + late > 0 {
            write!(last, "; {missing} slots of spouts had no forecast, {late} forecasts came too late")?;
        }
        writeln!(f, "\n{last}")?;
        writeln!(
            f,
            "\n{:<16} {:>9} {:>6} {:>9} {:>6} {:>10}",
            "APPLICATION", "INSTANCES", "WINDOW", "RESPONSE", "P99", "COST/SLOT"
        )?;
        let Some(first) = self.runs.first() else { return Ok(()) };
        for (number, app) in first.apps.iter().enumerate() {
            let of = |part: &dyn Fn(&super::AppOutcome) -> Option<f64>| {
                mean(&self.runs, |run| part(&run.apps[number]))
            };
            writeln!(
                f,
                "{:<16} {:>9} {:>6} {:>9} {:>6} {:>10}",
                app.name,
                app.instances,
                app.window,
                figure(of(&|app| app.response.mean)),
                figure(of(&|app| app.response.p99.map(f64::from))),
                figure(of(&|app| Some(app.cost_per_slot)))
            )?;
        }
        Ok(())
    }
}
