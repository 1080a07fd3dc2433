//! Predictors by name: the built-in ones, and those that a program registers.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::seasonal::Seasons;
use super::{
    Distribution, Ewma, FalsePositives, Kalman, Missed, MovingAverage, Perfect, Predictor, Seasonal,
};
use crate::fault::suggestion;

/// Counts that `distr` draws from, and slots of which variances are estimated, if nothing else is said.
const MEMORY: usize = 1000;

/// What a predictor is made from.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Its options, as a job or experiment file gives them. The registry itself takes two of them from any predictor:
    /// `missed` (see [`Missed`]) and `false_positives` (see [`FalsePositives`]).
    pub options: Map<String, Value>,
    /// Feeds those that draw lots. Two source instances take different ones.
    pub seed: u64,
    /// What will arrive in slots 0, 1, .., where that is known: in a simulation, or from a source that can see ahead.
    pub truth: Option<Arc<[u64]>>,
}

impl Setup {
    /// The options as a structure, which should refuse unknown ones (`deny_unknown_fields`).
    ///
    /// # Errors
    /// What does not fit, in serde's words.
    pub fn options<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_value(Value::Object(self.options.clone())).map_err(Refusal::new)
    }
}

/// Why a predictor cannot be made from its options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl Refusal {
    /// In one sentence, without the predictor's name.
    pub fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

/// Why the registry has not done what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictorError {
    /// Nothing has that name.
    #[error("no predictor is called `{name}`; there are: {}{}", names.join(", "), hint(name, names))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those that there are.
        names: Vec<String>,
    },
    /// It cannot be made.
    #[error("predictor `{name}`: {cause}")]
    Refused {
        /// Which.
        name: String,
        /// Why.
        cause: Refusal,
    },
    /// The name is in use.
    #[error("a predictor is called `{0}` already: register this one under another name")]
    Taken(String),
}

fn hint(name: &str, names: &[String]) -> String {
    let near = suggestion(name, names.iter().map(String::as_str));
    near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

type Make = dyn Fn(&Setup) -> Result<Box<dyn Predictor>, Refusal> + Send + Sync;

/// Makes predictors by name. The default has `perfect`, `kalman`, `distr`, `moving_average`, `ewma` and `seasonal`.
#[derive(Clone)]
pub struct PredictorRegistry(BTreeMap<String, Arc<Make>>);

impl PredictorRegistry {
    /// Adds a predictor.
    ///
    /// # Errors
    /// If the name is in use.
    pub fn register<F>(&mut self, name: impl Into<String>, make: F) -> Result<(), PredictorError>
    where
        F: Fn(&Setup) -> Result<Box<dyn Predictor>, Refusal> + Send + Sync + 'static,
    {
        let name = name.into();
        if self.0.contains_key(&name) {
            return Err(PredictorError::Taken(name));
        }
        self.0.insert(name, Arc::new(make));
        Ok(())
    }

    /// The names that [`Self::make`] takes, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The predictor of that name, with the errors that its options inject.
    ///
    /// # Errors
    /// If no predictor has that name, or it cannot be made from these options.
    pub fn make(&self, name: &str, setup: &Setup) -> Result<Box<dyn Predictor>, PredictorError> {
        let Some(make) = self.0.get(name) else {
            let names = self.0.keys().cloned().collect();
            return Err(PredictorError::Unknown { name: name.to_owned(), names });
        };
        injected(make.as_ref(), setup)
            .map_err(|cause| PredictorError::Refused { name: name.to_owned(), cause })
    }
}

impl Default for PredictorRegistry {
    fn default() -> Self {
        let mut makers: BTreeMap<String, Arc<Make>> = BTreeMap::new();
        makers.insert("perfect".into(), Arc::new(perfect));
        makers.insert("kalman".into(), Arc::new(kalman));
        makers.insert("distr".into(), Arc::new(distr));
        makers.insert("moving_average".into(), Arc::new(moving_average));
        makers.insert("ewma".into(), Arc::new(ewma));
        makers.insert("seasonal".into(), Arc::new(seasonal));
        Self(makers)
    }
}

impl fmt::Debug for PredictorRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PredictorRegistry").field(&self.0.keys()).finish()
    }
}

/// Makes it, and puts the errors around it that its options ask for.
fn injected(make: &Make, setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let mut setup = setup.clone();
    let mut taken = |key: &str| match setup.options.remove(key) {
        None => Ok(None),
        Some(value) => value
            .as_f64()
            .map(Some)
            .ok_or_else(|| Refusal::new(format!("`{key}` is {value}, which is not a number"))),
    };
    let (missed, false_positives) = (taken("missed")?, taken("false_positives")?);
    let mut predictor = make(&setup)?;
    if let Some(share) = missed {
        predictor = Box::new(Missed::new(predictor, share)?);
    }
    if let Some(rate) = false_positives {
        let mean = setup
            .truth
            .as_ref()
            .filter(|truth| !truth.is_empty())
            .map(|truth| truth.iter().map(|rows| *rows as f64).sum::<f64>() / truth.len() as f64);
        predictor =
            Box::new(FalsePositives::new(predictor, rate, mean, super::rounding::stream(setup.seed, 1))?);
    }
    Ok(predictor)
}

/// The value, if it is in the range.
pub(super) fn within(
    what: &str,
    value: f64,
    range: RangeInclusive<f64>,
    words: &str,
) -> Result<f64, Refusal> {
    if range.contains(&value) {
        return Ok(value);
    }
    Err(Refusal::new(format!("`{what}` is {value}: it must be {words}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

fn perfect(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let NoOptions {} = setup.options()?;
    let truth = setup.truth.clone().ok_or_else(|| {
        Refusal::new(
            "what will arrive is not known here: it serves simulations, and sources that can see ahead",
        )
    })?;
    Ok(Box::new(Perfect::new(truth)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KalmanOptions {
    q: Option<f64>,
    r: Option<f64>,
    memory: Option<usize>,
}

fn kalman(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let KalmanOptions { q, r, memory } = setup.options()?;
    Ok(Box::new(match (q, r, memory) {
        (None, None, memory) => Kalman::estimating(memory.unwrap_or(MEMORY))?,
        (Some(q), Some(r), None) => Kalman::with_variances(q, r)?,
        _ => return Err(Refusal::new("it takes `q` and `r` together, or `memory` to estimate both")),
    }))
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DistrOptions {
    memory: usize,
}

impl Default for DistrOptions {
    fn default() -> Self {
        Self { memory: MEMORY }
    }
}

fn distr(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let DistrOptions { memory } = setup.options()?;
    Ok(Box::new(Distribution::new(memory, setup.seed)?))
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AverageOptions {
    slots: usize,
}

impl Default for AverageOptions {
    fn default() -> Self {
        Self { slots: 10 }
    }
}

fn moving_average(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let AverageOptions { slots } = setup.options()?;
    Ok(Box::new(MovingAverage::new(slots)?))
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EwmaOptions {
    alpha: f64,
}

impl Default for EwmaOptions {
    fn default() -> Self {
        Self { alpha: 0.2 }
    }
}

fn ewma(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let EwmaOptions { alpha } = setup.options()?;
    Ok(Box::new(Ewma::new(alpha)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeasonalOptions {
    period: Periods,
    memory: Option<usize>,
    every: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`period` takes a number of slots, or a list of them")]
enum Periods {
    One(usize),
    More(Vec<usize>),
}

fn seasonal(setup: &Setup) -> Result<Box<dyn Predictor>, Refusal> {
    let SeasonalOptions { period, memory, every } = setup.options()?;
    let periods = match period {
        Periods::One(period) => vec![period],
        Periods::More(periods) => periods,
    };
    let longest = periods.iter().copied().max().unwrap_or_default();
    let memory = memory.unwrap_or(longest.saturating_mul(8).min(Seasonal::MOST));
    let every = every.unwrap_or(longest.max(1));
    Ok(Box::new(Seasonal::new(Seasons { periods, memory, every })?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(options: Value) -> Setup {
        let Value::Object(options) = options else { panic!("{options} is no table") };
        Setup { options, seed: 1, truth: None }
    }

    fn said(name: &str, options: Value) -> String {
        PredictorRegistry::default().make(name, &setup(options)).unwrap_err().to_string()
    }

    #[test]
    fn each_name_makes_the_predictor_of_that_name() {
        let registry = PredictorRegistry::default();
        let truth: Arc<[u64]> = [1, 2, 3].into();
        for name in registry.names() {
            let options =
                if name == "seasonal" { serde_json::json!({"period": 4}) } else { serde_json::json!({}) };
            let made = registry.make(name, &Setup { truth: Some(truth.clone()), ..setup(options) }).unwrap();
            assert_eq!(made.name(), name);
        }
        assert_eq!(registry.names().count(), 6);
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_there_are() {
        assert_eq!(
            said("kalmann", serde_json::json!({})),
            "no predictor is called `kalmann`; there are: distr, ewma, kalman, moving_average, perfect, seasonal; did you mean `kalman`?"
        );
    }

    #[test]
    fn options_that_do_not_fit_are_refused_by_name() {
        for (name, options, words) in [
            (
                "ewma",
                serde_json::json!({"alhpa": 0.1}),
                "predictor `ewma`: unknown field `alhpa`, expected `alpha`",
            ),
            ("ewma", serde_json::json!({"alpha": 2}), "predictor `ewma`: `alpha` is 2: it must be above 0"),
            ("moving_average", serde_json::json!({"slots": 0}), "`slots` is 0"),
            ("distr", serde_json::json!({"memory": -1}), "expected usize"),
            ("kalman", serde_json::json!({"q": 1.0}), "`q` and `r` together"),
            ("kalman", serde_json::json!({"q": 1.0, "r": 1.0, "memory": 3}), "`q` and `r` together"),
            ("perfect", serde_json::json!({"q": 1.0}), "unknown field `q`"),
            ("perfect", serde_json::json!({}), "what will arrive is not known here"),
            ("seasonal", serde_json::json!({}), "missing field `period`"),
            ("seasonal", serde_json::json!({"period": "day"}), "a number of slots, or a list"),
            ("seasonal", serde_json::json!({"period": [1440, 1]}), "each at least 2"),
            (
                "seasonal",
                serde_json::json!({"period": 100_000}),
                "`memory` is 131072: it takes at least two of the longest period",
            ),
            ("ewma", serde_json::json!({"missed": "all"}), "`missed` is \"all\", which is not a number"),
            ("ewma", serde_json::json!({"missed": 2}), "`missed` is 2: it must be from 0 to 1"),
            ("ewma", serde_json::json!({"false_positives": -1}), "`false_positives` is -1: it must be"),
        ] {
            let said = said(name, options);
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn errors_are_injected_into_any_predictor() {
        let registry = PredictorRegistry::default();
        let known = |options| Setup { truth: Some([4; 2000].into()), ..setup(options) };
        let mut missed = registry.make("perfect", &known(serde_json::json!({"missed": 1}))).unwrap();
        assert_eq!(missed.forecast(3), [0.0; 3]);
        // Twice the mean of what is known, before anything was seen; six standard deviations.
        let both = serde_json::json!({"missed": 0.5, "false_positives": 2.0});
        let mut both = registry.make("perfect", &known(both)).unwrap();
        let mean = both.forecast(2000).iter().sum::<f64>() / 2000.0;
        assert!((mean - 10.0).abs() < 0.38, "{mean}");
        assert_eq!(both.name(), "perfect, 0.5 missed, 2 false positives");
    }

    #[test]
    fn own_predictors_stand_beside_the_built_in_ones() {
        let mut registry = PredictorRegistry::default();
        registry.register("mine", |_: &Setup| Ok(Box::new(Ewma::new(1.0)?))).unwrap();
        let mut mine = registry.make("mine", &Setup::default()).unwrap();
        mine.observe(0, 5);
        assert_eq!(mine.forecast(2), [5.0; 2]);
        let taken = registry.register("ewma", |_: &Setup| Ok(Box::new(Ewma::new(1.0)?))).unwrap_err();
        assert!(taken.to_string().starts_with("a predictor is called `ewma` already"), "{taken}");
        assert!(format!("{registry:?}").contains("mine"));
    }
}
