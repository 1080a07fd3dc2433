//! Prices of targets in fixed point, so that every machine decides alike (potus.md F19).

use serde::{Deserialize, Serialize};

/// One row, as a fixed-point number: 16 bits stand behind the point.
pub const ONE: i64 = 1 << 16;
/// Terms of a price saturate here, so that the sum of three fits.
const MOST: i64 = 1 << 61;
/// The largest weight and cost that are taken.
const LARGEST: f64 = Cost::MOST as f64;

fn fixed(value: f64) -> Option<i64> {
    let number = (0.0..=LARGEST).contains(&value).then(|| (value * ONE as f64).round() as i64);
    // What is above 0 and would become 0 is not what was meant.
    number.filter(|number| *number > 0 || value == 0.0)
}

/// What [`Weight::new`] and [`Cost::new`] take, for errors.
pub const RANGE: &str = "a number of at least 0 (0, or from 1/65536 to 1073741824)";

/// `V` or `beta`: a weight of at least 0 and at most 2^30.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(i64);

impl Weight {
    /// The weight nearest to a number; `None` below 0, above 2^30, for what is no number, and for what is above 0 and
    /// nearer to 0 than to the least step, 1/65536.
    pub fn new(value: f64) -> Option<Self> {
        fixed(value).map(Self)
    }

    /// As [`Weight::new`], with what is out of range taken to the nearest bound and no number to 0.
    pub fn clamped(value: f64) -> Self {
        Self(fixed(value.clamp(0.0, LARGEST)).unwrap_or(0))
    }

    /// Its value.
    pub fn value(self) -> f64 {
        self.0 as f64 / ONE as f64
    }
}

/// `U`: what one row costs on its way between two agents; at least 0, at most 2^30.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(i64);

impl Cost {
    /// The largest that is taken: 2^30.
    pub const MOST: u32 = 1 << 30;

    /// As [`Cost::new`], with what is out of range taken to the nearest bound and no number to 0.
    pub fn clamped(value: f64) -> Self {
        Self(Weight::clamped(value).0)
    }

    /// The cost nearest to a number; `None` where [`Weight::new`] has none.
    pub fn new(value: f64) -> Option<Self> {
        fixed(value).map(Self)
    }

    /// Its value.
    pub fn value(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// It is 0.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// A price, or a part of one, in rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Price(pub(super) i64);

impl Price {
    /// Its value in rows.
    pub fn value(self) -> f64 {
        self.0 as f64 / ONE as f64
    }

    /// A row is sent at prices below 0 only; at 0 it gains nothing.
    pub fn is_good(self) -> bool {
        self.0 < 0
    }
}

/// The three terms of a price (POTUS, equation 16).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// `V * U`: the way to the target.
    pub way: Price,
    /// `Q_in`: what waits at the target.
    pub target: Price,
    /// `beta * Q_out`: what waits at the sender. It is taken off.
    pub sender: Price,
}

impl Terms {
    /// The terms for `q_in` rows at the target and `q_out` at the sender.
    pub fn new(v: Weight, cost: Cost, q_in: u64, beta: Weight, q_out: u64) -> Self {
        Self { way: way(v, cost), target: rows(q_in), sender: pressure(beta, q_out) }
    }

    /// What is the same for all senders of an agent: `V * U + Q_in` (potus.md 7.1).
    pub fn key(&self) -> Price {
        Price(self.way.0 + self.target.0)
    }

    /// `V * U + Q_in - beta * Q_out`.
    pub fn price(&self) -> Price {
        Price(self.key().0 - self.sender.0)
    }
}

/// `V * U + Q_in`.
pub(super) fn key(v: Weight, cost: Cost, q_in: u64) -> i64 {
    way(v, cost).0 + rows(q_in).0
}

/// `V * U`, rounded to the nearest.
fn way(v: Weight, cost: Cost) -> Price {
    let product = (i128::from(v.0) * i128::from(cost.0) + i128::from(ONE / 2)) >> 16;
    Price(product.min(i128::from(MOST)) as i64)
}

/// `beta * Q_out`.
pub(super) fn pressure(beta: Weight, q_out: u64) -> Price {
    let product = i128::from(beta.0) * i128::from(q_out);
    Price(product.min(i128::from(MOST)) as i64)
}

/// So many rows, as a price.
pub(super) fn rows(count: u64) -> Price {
    Price(i64::try_from(count).unwrap_or(MOST).saturating_mul(ONE).min(MOST))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weight(value: f64) -> Weight {
        Weight::new(value).unwrap()
    }

    fn terms(v: f64, u: f64, q_in: u64, beta: f64, q_out: u64) -> Terms {
        Terms::new(weight(v), Cost::new(u).unwrap(), q_in, weight(beta), q_out)
    }

    #[test]
    fn the_terms_are_those_of_equation_16() {
        let terms = terms(2.0, 6.0, 30, 0.5, 29);
        assert_eq!((terms.way.value(), terms.target.value(), terms.sender.value()), (12.0, 30.0, 14.5));
        assert_eq!((terms.key().value(), terms.price().value()), (42.0, 27.5));
    }

    #[test]
    fn a_price_of_nothing_is_not_good() {
        assert!(!terms(1.0, 3.0, 1, 1.0, 4).price().is_good());
        assert!(terms(1.0, 3.0, 1, 1.0, 5).price().is_good());
    }

    #[test]
    fn what_is_too_large_saturates_and_what_is_no_weight_is_refused() {
        let terms = terms(LARGEST, LARGEST, u64::MAX, LARGEST, u64::MAX);
        assert_eq!(terms.key().0, 2 * MOST);
        assert_eq!(terms.price().0, MOST);
        assert_eq!([-0.1, f64::NAN, f64::INFINITY, 2.0 * LARGEST].map(Weight::new), [None; 4]);
        assert_eq!([-1.0, f64::NAN].map(Cost::new), [None; 2]);
        // Half a step is nearer to the step than to 0; less is nearer to 0, and refused.
        assert_eq!([7.7e-6, 7.6e-6, 0.0].map(Weight::new), [Some(Weight(1)), None, Some(Weight(0))]);
        assert_eq!(Weight::clamped(f64::INFINITY), weight(LARGEST));
        assert_eq!(Weight::clamped(f64::NAN), weight(0.0));
    }

    proptest! {
        #[test]
        fn small_numbers_are_exact(v in 0u32..1000, u in 0u32..1000, q_in in 0u64..100_000, beta in 0u32..64, q_out in 0u64..100_000) {
            let exact = i64::from(v * u) + q_in as i64 - i64::from(beta) * q_out as i64;
            let terms = terms(f64::from(v), f64::from(u), q_in, f64::from(beta), q_out);
            prop_assert_eq!(terms.price().0, exact * ONE);
        }
    }
}
