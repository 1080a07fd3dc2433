//! How many rows will arrive: predictors of a source's arrivals, and what is made of their forecasts.

mod rounding;

pub use rounding::Rounding;
