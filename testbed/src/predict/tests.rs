//! What predictors are worth on real traces.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tuplane_core::route::predict::{Score, score};

use super::*;
use crate::arrivals::{Column, Format, Scale, Series};
use crate::skip::shared;

/// Slots that a forecast reaches.
const WINDOW: usize = 4;

struct Trace {
    label: &'static str,
    file: &'static str,
    count: &'static str,
    /// A day.
    period: u32,
    scale: Scale,
}

const NAB: [Trace; 4] = [
    nab("load balancer", "arrivals-nab/elb_request_count_8c0756.csv", 288, Scale::AsItIs),
    nab("load balancer, mean 4", "arrivals-nab/elb_request_count_8c0756.csv", 288, Scale::Mean(4.0)),
    nab("taxis", "arrivals-nab/nyc_taxi.csv", 48, Scale::AsItIs),
    nab("tweets AMZN", "arrivals-nab/Twitter_volume_AMZN.csv", 288, Scale::AsItIs),
];

const CUP: [Trace; 1] = [Trace {
    label: "world cup, mean 4",
    file: "arrivals-worldcup98/invocation_count.csv",
    count: "count",
    period: 1440,
    scale: Scale::Mean(4.0),
}];

const fn nab(label: &'static str, file: &'static str, period: u32, scale: Scale) -> Trace {
    Trace { label, file, count: "value", period, scale }
}

impl Trace {
    fn rows(&self, data: &Path) -> Arc<[u64]> {
        let format = Format { count: Some(Column::Name(self.count.into())), ..Format::default() };
        Series::read(&data.join(self.file), &format).unwrap().rows(self.scale, 1).unwrap().into()
    }
}

/// Makes the predictor, runs it over the trace, and prints a line of what came of it.
fn run(label: &str, rows: &Arc<[u64]>, name: &str, options: Value) -> Score {
    let options: Map<String, Value> = serde_json::from_value(options).unwrap();
    let setup = Setup { options, seed: 5, truth: Some(rows.clone()) };
    let mut predictor = predictors().make(name, &setup).unwrap();
    let scored = score(predictor.as_mut(), rows, WINDOW);
    assert_eq!(predictor.failure(), None);
    let mse: Vec<f64> = (1..=WINDOW).map(|ahead| scored.mse(ahead).unwrap()).collect();
    assert!(mse.iter().all(|mse| mse.is_finite() && *mse >= 0.0), "{mse:?}");
    println!("{label:>22} {:>22} MSE by slots ahead {mse:>16.3?}", predictor.name());
    scored
}

fn all(traces: &[Trace], data: &Path) {
    for trace in traces {
        let rows = trace.rows(data);
        let run = |name, options| run(trace.label, &rows, name, options);
        let slots = rows.len() as f64;
        let mean = rows.iter().map(|rows| *rows as f64).sum::<f64>() / slots;
        let variance = rows.iter().map(|rows| (*rows as f64 - mean).powi(2)).sum::<f64>() / slots;
        println!("{:>22} {} slots, mean {mean:.3}, variance {variance:.3}", trace.label, rows.len());

        let perfect = run("perfect", json!({}));
        assert_eq!((1..=WINDOW).map(|ahead| perfect.mse(ahead)).collect::<Vec<_>>(), [Some(0.0); WINDOW]);
        // What nobody predicts errs by all that arrives: variance and squared mean.
        let missed = run("perfect", json!({"missed": 1})).mse(1).unwrap();
        assert!((missed / (variance + mean.powi(2)) - 1.0).abs() < 1e-9, "{missed}");
        for (name, options) in [
            ("kalman", json!({})),
            ("ewma", json!({})),
            ("moving_average", json!({})),
            ("seasonal", json!({"period": trace.period})),
        ] {
            assert_eq!(run(name, options).missing(1), 1, "only the first slot has nothing before it");
        }
        // A lot from the past errs by as much as the past's mean, and by the past's variance on top, whatever arrives.
        let memory = 500;
        let mean_of_past = run("moving_average", json!({"slots": memory})).mse(1).unwrap();
        let lot_of_past = run("distr", json!({"memory": memory})).mse(1).unwrap();
        let (mut on_top, mut sum, mut square) = (0.0, 0, 0);
        for slot in 1..rows.len() {
            let of = |slot: usize| (u128::from(rows[slot]), u128::from(rows[slot]).pow(2));
            (sum, square) = (sum + of(slot - 1).0, square + of(slot - 1).1);
            if slot > memory {
                (sum, square) = (sum - of(slot - 1 - memory).0, square - of(slot - 1 - memory).1);
            }
            let past = slot.min(memory) as u128;
            on_top += (past * square - sum * sum) as f64 / (past * past) as f64;
        }
        let expected = mean_of_past + on_top / (slots - 1.0);
        assert!((lot_of_past / expected - 1.0).abs() < 0.1, "{lot_of_past} {expected}");
    }
}

#[test]
fn predictors_on_the_nab_traces() {
    let Some(data) = shared("predictors_on_the_nab_traces", "data") else { return };
    all(&NAB, &data);
    match prophet_version(None) {
        Ok(version) => {
            println!("{version}");
            for trace in &NAB[..3] {
                let options = json!({"period": trace.period, "every": 500});
                run(trace.label, &trace.rows(&data), "prophet", options);
            }
        }
        // It is not among what a machine needs for the tests: its Debian packages are none.
        Err(missing) => println!("without the Python package prophet: {missing}"),
    }
}

#[test]
fn predictors_on_the_world_cup() {
    let Some(data) = shared("predictors_on_the_world_cup", "data") else { return };
    all(&CUP, &data);
}
