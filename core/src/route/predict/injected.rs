//! Errors that an experiment injects into forecasts on purpose: missed arrivals, false positives.

use std::collections::VecDeque;

use super::registry::within;
use super::rounding::poisson;
use super::{Predictor, Refusal};
use crate::route::rank::Lots;

/// Leaves a share of the arrivals unpredicted: forecasts are multiplied by what is left. With a share of 1 nothing is
/// predicted (the publication's "all arrivals unpredicted").
#[derive(Debug)]
pub struct Missed {
    inner: Box<dyn Predictor>,
    share: f64,
    name: String,
}

impl Missed {
    /// Misses `share`, 0 to 1, of what `inner` predicts.
    ///
    /// # Errors
    /// If the share is not within.
    pub fn new(inner: Box<dyn Predictor>, share: f64) -> Result<Self, Refusal> {
        let share = within("missed", share, 0.0..=1.0, "from 0 to 1")?;
        let name = format!("{}, {share} missed", inner.name());
        Ok(Self { inner, share, name })
    }
}

impl Predictor for Missed {
    fn name(&self) -> &str {
        &self.name
    }

    fn observe(&mut self, slot: u64, arrived: u64) {
        self.inner.observe(slot, arrived);
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        let mut forecast = self.inner.forecast(window);
        for rows in &mut forecast {
            *rows *= 1.0 - self.share;
        }
        forecast
    }

    fn failure(&self) -> Option<&str> {
        self.inner.failure()
    }

    fn late(&self) -> u64 {
        self.inner.late()
    }
}

/// Adds rows that will not arrive: a Poisson number in each slot that has a forecast, whose mean is a rate times the
/// mean arrivals of a slot. It is drawn when the window first reaches the slot, and stays.
#[derive(Debug)]
pub struct FalsePositives {
    inner: Box<dyn Predictor>,
    rate: f64,
    /// The mean arrivals, where they are known from the start.
    known: Option<f64>,
    slots: f64,
    sum: f64,
    lots: Lots,
    /// Drawn for the slots after the last observed one.
    ahead: VecDeque<u64>,
    name: String,
}

impl FalsePositives {
    /// Adds `rate` times the mean arrivals; that mean is `mean` rows a slot, or is taken of what has been seen so far.
    ///
    /// # Errors
    /// If the rate or the mean is not finite or is below 0.
    pub fn new(inner: Box<dyn Predictor>, rate: f64, mean: Option<f64>, seed: u64) -> Result<Self, Refusal> {
        let rate = within("false_positives", rate, 0.0..=1e6, "from 0 to 1000000")?;
        let known =
            mean.map(|mean| within("the mean arrivals", mean, 0.0..=f64::MAX, "at least 0")).transpose()?;
        let name = format!("{}, {rate} false positives", inner.name());
        Ok(Self { inner, rate, known, slots: 0.0, sum: 0.0, lots: Lots(seed), ahead: VecDeque::new(), name })
    }
}

impl Predictor for FalsePositives {
    fn name(&self) -> &str {
        &self.name
    }

    fn observe(&mut self, slot: u64, arrived: u64) {
        self.ahead.pop_front();
        self.slots += 1.0;
        self.sum += arrived as f64;
        self.inner.observe(slot, arrived);
    }

    fn forecast(&mut self, window: usize) -> Vec<f64> {
        let mean = self.known.unwrap_or(if self.slots > 0.0 { self.sum / self.slots } else { 0.0 });
        while self.ahead.len() < window {
            self.ahead.push_back(poisson(&mut self.lots, self.rate * mean));
        }
        let forecast = self.inner.forecast(window);
        forecast.iter().zip(&self.ahead).map(|(rows, phantoms)| rows + *phantoms as f64).collect()
    }

    fn failure(&self) -> Option<&str> {
        self.inner.failure()
    }

    fn late(&self) -> u64 {
        self.inner.late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::predict::{MovingAverage, Perfect, score};

    fn perfect(arrivals: &[u64]) -> Box<dyn Predictor> {
        Box::new(Perfect::new(arrivals.into()))
    }

    #[test]
    fn what_is_missed_is_not_predicted() {
        let mut half = Missed::new(perfect(&[4, 6]), 0.5).unwrap();
        assert_eq!(half.forecast(2), [2.0, 3.0]);
        assert_eq!(half.name(), "perfect, 0.5 missed");
        let arrivals = [3, 0, 5, 1];
        let mut all = Missed::new(perfect(&arrivals), 1.0).unwrap();
        // Each arrival is an error of its own size.
        assert_eq!(score(&mut all, &arrivals, 1).mse(1), Some(35.0 / 4.0));
        for share in [-0.1, 1.1, f64::NAN] {
            assert!(Missed::new(perfect(&[]), share).is_err());
        }
    }

    #[test]
    fn false_positives_are_poisson_at_a_rate_of_the_mean() {
        let arrivals = [2, 6].repeat(20_000);
        for mean in [None, Some(4.0)] {
            let mut predictor = FalsePositives::new(perfect(&arrivals), 0.5, mean, 9).unwrap();
            let scored = score(&mut predictor, &arrivals, 2);
            for horizon in 1..=2 {
                // Phantoms of mean and variance 2: their mean square is 6. Five standard deviations or more.
                let (bias, mse) = (scored.bias(horizon).unwrap(), scored.mse(horizon).unwrap());
                assert!((bias - 2.0).abs() < 0.036 && (mse - 6.0).abs() < 0.25, "{bias} {mse}");
            }
        }
        for rate in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(FalsePositives::new(perfect(&[]), rate, None, 1).is_err());
        }
    }

    /// Late and given up.
    #[derive(Debug)]
    struct Gone;

    impl Predictor for Gone {
        fn name(&self) -> &'static str {
            "gone"
        }

        fn observe(&mut self, _slot: u64, _arrived: u64) {}

        fn forecast(&mut self, _window: usize) -> Vec<f64> {
            Vec::new()
        }

        fn failure(&self) -> Option<&str> {
            Some("why")
        }

        fn late(&self) -> u64 {
            3
        }
    }

    #[test]
    fn what_a_predictor_says_of_itself_is_passed_on() {
        let inner = Missed::new(Box::new(Gone), 0.5).unwrap();
        let outer = FalsePositives::new(Box::new(inner), 0.5, None, 1).unwrap();
        assert_eq!((outer.failure(), outer.late()), (Some("why"), 3));
    }

    #[test]
    fn phantoms_of_a_slot_stay_and_none_stand_where_there_is_no_forecast() {
        let mut predictor = FalsePositives::new(perfect(&[0; 50]), 1.0, Some(30.0), 3).unwrap();
        let mut before = predictor.forecast(3);
        for slot in 0..40 {
            predictor.observe(slot, 0);
            let now = predictor.forecast(3);
            assert_eq!(before[1..], now[..2]);
            before = now;
        }
        let empty = Box::new(MovingAverage::new(2).unwrap());
        assert_eq!(FalsePositives::new(empty, 1.0, Some(3.0), 3).unwrap().forecast(4), [0.0; 0]);
    }
}
