//! Predictors that are processes of their own, beside those of core.

mod external;
mod prophet;

pub use external::External;
pub use prophet::prophet_version;
use tuplane_core::route::predict::{Predictor, PredictorRegistry, Refusal, Setup};

type Make = fn(&Setup) -> Result<Box<dyn Predictor>, Refusal>;

/// Core's predictors by name, and `external` and `prophet`.
pub fn predictors() -> PredictorRegistry {
    let mut registry = PredictorRegistry::default();
    for (name, make) in [("external", external::make as Make), ("prophet", prophet::make)] {
        // Core has neither name.
        let _ = registry.register(name, make);
    }
    registry
}

#[cfg(test)]
mod tests;
