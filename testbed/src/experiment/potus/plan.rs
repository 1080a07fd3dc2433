//! Which runs the repetition of POTUS' experiments has.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use tuplane_core::route::{BetaRule, RouteOptions, Setting, VRule, Weight, policy_names};

use super::set_up::SetUp;
use crate::sim::{App, Arrivals, Config, Kind, Lookahead, Network, PERFECT, Routing};

/// The load of the experiments whose instances are equal, and of those that need room for phantoms or slow
/// instances.
pub(super) const LOAD: f64 = 0.85;
pub(super) const LIGHT: f64 = 0.75;

/// The load at which there is room for what predictors foresee wrongly.
pub(super) const ROOMY: f64 = 0.5;

/// The window at which errors are injected on purpose.
pub(super) const ERROR_WINDOW: u32 = 4;

/// The window of the comparison of predictors, as published.
pub(super) const PREDICTOR_WINDOW: u32 = 1;

/// `V` of the literal algorithm where it is not swept: at the knee, with costs in hops.
pub(super) const PAPER_V: f64 = 1.0;

/// A pair of `V` and `beta` that setting `default` is measured with beside its own: it was seen to reach the aims on
/// the Fat-Tree under another placement.
pub(super) const PAIRS: [(f64, f64); 1] = [(1.0, 12.0)];

/// Seeds that a figure or a verdict needs.
pub(super) const SEEDS: u32 = 5;

/// The draw of the Jellyfish network, the same in all runs.
const JELLYFISH: u64 = 1;

/// What POTUS is compared with.
pub(super) const BASELINES: [&str; 3] = ["shuffle", "heron", "round-robin"];

/// What is set in a run, the seed last.
pub(super) const FACTORS: [&str; 15] = [
    "network",
    "arrivals",
    "load",
    "uneven",
    "policy",
    "setting",
    "v",
    "beta",
    "window",
    "window_spread",
    "predictor",
    "missed",
    "false_positives",
    "more_arrivals",
    "seed",
];

/// The two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Net {
    FatTree,
    Jellyfish,
}

/// The two kinds of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Poisson,
    /// Those of a trace, or what stands in for it.
    Trace,
}

/// A network and what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) net: Net,
    pub(super) source: Source,
}

impl Net {
    /// As files and tables have it.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::FatTree => "fat_tree",
            Self::Jellyfish => "jellyfish",
        }
    }

    /// As titles have it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::FatTree => "Fat-Tree",
            Self::Jellyfish => "Jellyfish",
        }
    }

    fn network(self) -> Network {
        match self {
            Self::FatTree => Network::FatTree,
            Self::Jellyfish => Network::jellyfish(JELLYFISH),
        }
    }
}

/// A predictor that is compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Forecaster {
    pub(super) name: String,
    pub(super) options: Map<String, Value>,
}

/// One configuration, run once for each seed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) scene: Scene,
    pub(super) load: f64,
    pub(super) uneven: u32,
    pub(super) policy: String,
    pub(super) setting: Setting,
    /// The setting's own if not said.
    pub(super) v: Option<f64>,
    /// The setting's own if not said.
    pub(super) beta: Option<f64>,
    pub(super) window: u32,
    /// Each application's window is drawn from 0 to twice `window`.
    pub(super) spread: bool,
    pub(super) predictor: Forecaster,
    pub(super) missed: bool,
    pub(super) false_positives: f64,
    /// Real arrivals are more by this share, on the instances that are there without it.
    pub(super) more: f64,
}

impl Cell {
    /// Of a policy with equal instances and no look ahead.
    pub(super) fn of(scene: Scene, policy: &str) -> Self {
        Self {
            scene,
            load: LOAD,
            uneven: 0,
            policy: policy.to_owned(),
            setting: Setting::Default,
            v: None,
            beta: None,
            window: 0,
            spread: false,
            predictor: Forecaster { name: PERFECT.to_owned(), options: Map::new() },
            missed: false,
            false_positives: 0.0,
            more: 0.0,
        }
    }

    /// POTUS where nothing is swept.
    pub(super) fn potus(scene: Scene, setting: Setting) -> Self {
        let v = (setting == Setting::Paper).then_some(PAPER_V);
        Self { setting, v, ..Self::of(scene, "potus") }
    }

    pub(super) fn v(self, v: f64) -> Self {
        Self { v: Some(v), ..self }
    }

    /// The own setting with a pair of weights.
    pub(super) fn pair(scene: Scene, (v, beta): (f64, f64)) -> Self {
        Self { beta: Some(beta), ..Self::potus(scene, Setting::Default).v(v) }
    }

    /// Windows are drawn, 0 to twice this.
    pub(super) fn windows(self, window: u32) -> Self {
        Self { window, spread: window > 0, ..self }
    }

    /// At the light load.
    pub(super) fn light(self) -> Self {
        Self { load: LIGHT, ..self }
    }

    /// Where there is room.
    pub(super) fn roomy(self) -> Self {
        Self { load: ROOMY, ..self }
    }

    pub(super) fn uneven(self, uneven: u32) -> Self {
        Self { uneven, ..self }
    }

    /// The literal algorithm with phantoms at a rate.
    pub(super) fn phantoms(scene: Scene, rate: f64) -> Self {
        Self { window: ERROR_WINDOW, false_positives: rate, ..Self::potus(scene, Setting::Paper).light() }
    }

    /// The same with as many real tuples instead.
    pub(super) fn real(scene: Scene, rate: f64) -> Self {
        Self { more: rate, ..Self::phantoms(scene, 0.0) }
    }

    /// The literal algorithm when nothing is foreseen.
    pub(super) fn unforeseen(scene: Scene) -> Self {
        Self { window: ERROR_WINDOW, missed: true, ..Self::potus(scene, Setting::Paper) }
    }

    /// The literal algorithm with a predictor.
    pub(super) fn predicted(scene: Scene, predictor: &Forecaster) -> Self {
        let predictor = predictor.clone();
        Self { window: PREDICTOR_WINDOW, predictor, ..Self::potus(scene, Setting::Paper) }
    }

    /// `V`, `beta` and the setting say something: not for built-in policies without prices.
    fn is_priced(&self) -> bool {
        self.policy == "potus" || !policy_names().contains(&self.policy.as_str())
    }

    /// What names it in the table: all factors but the seed.
    pub(super) fn factors(&self) -> Vec<String> {
        let options = self.options();
        let priced = |text: String| if self.is_priced() { text } else { String::new() };
        vec![
            self.scene.net.key().to_owned(),
            match self.scene.source {
                Source::Poisson => "poisson".to_owned(),
                Source::Trace => "trace".to_owned(),
            },
            self.load.to_string(),
            self.uneven.to_string(),
            self.policy.clone(),
            priced(self.setting.name().to_owned()),
            priced(options.v.to_string()),
            priced(options.beta.to_string()),
            self.window.to_string(),
            self.spread.to_string(),
            if self.window > 0 { self.predictor.name.clone() } else { String::new() },
            u8::from(self.missed).to_string(),
            self.false_positives.to_string(),
            self.more.to_string(),
        ]
    }

    fn options(&self) -> RouteOptions {
        let own = RouteOptions::of(self.setting);
        RouteOptions {
            deal: 1,
            v: self.v.map_or(own.v, |v| VRule::Number(Weight::clamped(v))),
            beta: self.beta.map_or(own.beta, |beta| BetaRule::Number(Weight::clamped(beta))),
            ..own
        }
    }

    /// What the simulator is told.
    pub(super) fn config(&self, set_up: &SetUp, seed: u64, slots: u32) -> Config {
        let mut options = self.predictor.options.clone();
        if self.missed {
            options.insert("missed".to_owned(), json!(1.0));
        }
        if self.false_positives > 0.0 {
            options.insert("false_positives".to_owned(), json!(self.false_positives));
        }
        let mut apps = set_up.base.apps.clone();
        if self.more > 0.0 {
            for app in &mut apps {
                raise(app, self.load, 1.0 + self.more);
            }
        }
        Config {
            name: self.factors().join(" "),
            apps,
            network: self.scene.net.network(),
            load: self.load,
            uneven: self.uneven,
            slots,
            warmup: slots / 5,
            seed,
            arrivals: match self.scene.source {
                Source::Poisson => Arrivals::Poisson,
                Source::Trace => set_up.trace.clone(),
            },
            lookahead: Lookahead {
                size: self.window,
                spread: self.spread,
                early: false,
                predictor: self.predictor.name.clone(),
                options,
            },
            routing: Routing { policy: self.policy.clone(), options: self.options() },
            ..set_up.base.clone()
        }
    }
}

/// Multiplies what arrives at an application, which keeps the instances that its load gave it.
fn raise(app: &mut App, load: f64, factor: f64) {
    let parallelism = app.parallelism(load);
    for (component, count) in app.components.iter_mut().zip(parallelism) {
        match &mut component.kind {
            Kind::Spout { rate, .. } => *rate *= factor,
            Kind::Bolt { instances, .. } => *instances = Some(count),
        }
    }
}

/// What is swept.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) scenes: Vec<Scene>,
    pub(super) vs: Vec<f64>,
    pub(super) windows: Vec<u32>,
    pub(super) rates: Vec<f64>,
    pub(super) unevens: Vec<u32>,
    pub(super) predictors: Vec<Forecaster>,
    /// Policies beside the baselines.
    pub(super) also: Vec<String>,
}

impl Plan {
    /// The whole, or (`quick`) a part of it that shows the same.
    pub(super) fn new(quick: bool, predictors: Vec<Forecaster>, also: Vec<String>) -> Self {
        let scene = |net, source| Scene { net, source };
        let mut scenes = vec![scene(Net::FatTree, Source::Poisson), scene(Net::Jellyfish, Source::Trace)];
        if quick {
            return Self {
                scenes,
                vs: vec![0.0, 1.0, 2.0, 5.0, 20.0],
                windows: vec![2, 8],
                rates: vec![0.2, 0.5],
                unevens: vec![0, 1],
                predictors,
                also,
            };
        }
        scenes.insert(1, scene(Net::FatTree, Source::Trace));
        scenes.insert(2, scene(Net::Jellyfish, Source::Poisson));
        Self {
            scenes,
            vs: vec![0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0],
            windows: vec![1, 2, 4, 8, 16],
            rates: vec![0.1, 0.2, 0.3, 0.5],
            unevens: vec![0, 1, 2],
            predictors,
            also,
        }
    }

    /// Policies without a sweep of `V`.
    pub(super) fn others(&self) -> impl Iterator<Item = &str> {
        BASELINES.into_iter().chain(self.also.iter().map(String::as_str))
    }

    /// The networks, each once.
    pub(super) fn nets(&self) -> Vec<Net> {
        let nets = [Net::FatTree, Net::Jellyfish].into_iter();
        nets.filter(|net| self.scenes.iter().any(|scene| scene.net == *net)).collect()
    }

    /// All cells, each once.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &scene in &self.scenes {
            for setting in Setting::ALL {
                let swept = self.vs.iter().map(|v| Cell::potus(scene, setting).v(*v));
                cells.extend(swept);
                let windows = std::iter::once(&0).chain(&self.windows);
                cells.extend(windows.map(|window| Cell::potus(scene, setting).windows(*window)));
                cells.extend(self.unevens.iter().map(|d| Cell::potus(scene, setting).light().uneven(*d)));
            }
            for policy in self.others() {
                cells.push(Cell::of(scene, policy));
                cells.extend(self.unevens.iter().map(|d| Cell::of(scene, policy).light().uneven(*d)));
            }
            // A policy of one's own may weigh costs by `V` too.
            for policy in &self.also {
                cells.extend(self.vs.iter().map(|v| Cell::of(scene, policy).v(*v)));
            }
            cells.push(Cell::potus(scene, Setting::Paper).roomy());
            for predictor in &self.predictors {
                cells.push(Cell::predicted(scene, predictor));
                cells.push(Cell::predicted(scene, predictor).roomy());
            }
            cells.extend(PAIRS.iter().map(|pair| Cell::pair(scene, *pair)));
            cells.push(Cell::unforeseen(scene));
            let rates = std::iter::once(&0.0).chain(&self.rates);
            for rate in rates {
                cells.push(Cell::phantoms(scene, *rate));
                cells.push(Cell::real(scene, *rate));
            }
        }
        let mut known = HashSet::new();
        cells.retain(|cell| known.insert(cell.factors()));
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(quick: bool) -> Plan {
        let perfect = Forecaster { name: PERFECT.to_owned(), options: Map::new() };
        Plan::new(quick, vec![perfect], vec!["mine".to_owned()])
    }

    #[test]
    fn every_cell_has_a_name_of_its_own() {
        for quick in [true, false] {
            let cells = plan(quick).cells();
            let names: HashSet<Vec<String>> = cells.iter().map(Cell::factors).collect();
            assert_eq!(names.len(), cells.len());
            assert!(names.iter().all(|name| name.len() + 1 == FACTORS.len()));
        }
        assert!(plan(true).cells().len() * 2 < plan(false).cells().len());
    }

    #[test]
    fn the_quick_plan_has_both_networks_and_both_arrivals() {
        let plan = plan(true);
        assert_eq!(plan.nets(), [Net::FatTree, Net::Jellyfish]);
        assert!(plan.scenes.iter().any(|scene| scene.source == Source::Trace));
    }

    #[test]
    fn only_policies_with_prices_have_weights_in_the_table() {
        let scene = plan(true).scenes[0];
        assert_eq!(Cell::of(scene, "shuffle").factors()[5..8], ["", "", ""]);
        assert_eq!(Cell::potus(scene, Setting::Paper).factors()[5..8], ["paper", "1", "1"]);
        assert_eq!(Cell::of(scene, "mine").v(2.0).factors()[5..7], ["default", "2"]);
    }
}
