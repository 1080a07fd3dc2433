//! Options that can be changed while a job runs: which there are, and what they take.

use serde_json::Value;

use super::model::{Op, Source, SourceConnector};
use super::units;

/// The longest time that `work` takes for a row, in milliseconds: one day.
pub const MAX_WORK_MS: f64 = 86_400_000.0;

/// An option of an op that can be changed while a job runs.
struct LiveOption {
    op: &'static str,
    name: &'static str,
    takes: &'static str,
    /// The value as an instance takes it, if it fits.
    read: fn(&Value) -> Option<Value>,
}

/// All of them.
const LIVE: [LiveOption; 2] = [
    LiveOption {
        op: "work",
        name: "ms",
        takes: "milliseconds or a duration such as \"5ms\", at most one day, or a list with one per instance",
        read: work_ms,
    },
    LiveOption {
        op: "source",
        name: "rate",
        takes: "rows per second above 0, or null for as fast as possible",
        read: rate,
    },
];

impl Op {
    /// What `option` becomes if it is set to `value` while the job runs; `Err` goes on after the option's name.
    pub fn live(&self, option: &str, value: &Value) -> Result<Value, String> {
        if let Self::Source(Source { connector: Some(SourceConnector::Trace(_)), .. }) = self {
            return Err("cannot be changed while the job runs: a trace keeps its schedule".to_owned());
        }
        let own: Vec<&LiveOption> = LIVE.iter().filter(|live| live.op == self.name()).collect();
        if own.is_empty() && matches!(self, Self::Rebalance(_)) {
            return Err(
                "is set with its policy while the job runs: `tuplane route JOB EDGE POLICY`, with all its options"
                    .to_owned(),
            );
        }
        if own.is_empty() {
            return Err(format!("a {} has no option that can be changed while the job runs", self.name()));
        }
        let Some(live) = own.iter().find(|live| live.name == option) else {
            let names: Vec<String> = own.iter().map(|live| format!("`{}`", live.name)).collect();
            return Err(format!("cannot be changed while the job runs; {} can", names.join(", ")));
        };
        (live.read)(value).ok_or_else(|| format!("takes {}; not {value}", live.takes))
    }
}

/// A time that `work` can take for a row.
pub(super) fn is_work_ms(ms: f64) -> bool {
    (0.0..=MAX_WORK_MS).contains(&ms)
}

fn work_ms(value: &Value) -> Option<Value> {
    let one = |value: &Value| {
        let ms = match value {
            Value::String(text) => units::duration(text)?.as_secs_f64() * 1e3,
            number => number.as_f64()?,
        };
        is_work_ms(ms).then(|| Value::from(ms))
    };
    match value {
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => list.iter().map(one).collect::<Option<Vec<_>>>().map(Value::from),
        single => one(single),
    }
}

fn rate(value: &Value) -> Option<Value> {
    let fits = value.is_null() || value.as_f64().is_some_and(|rate| rate.is_finite() && rate > 0.0);
    fits.then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Spread, Work, WorkMode};

    #[test]
    fn a_time_of_work_is_bounded() {
        let work = Op::Work(Work { ms: vec![1.0], spread: Spread::None, mode: WorkMode::Sleep });
        for (good, taken) in [
            (json!(0), json!(0.0)),
            (json!(86_400_000), json!(86_400_000.0)),
            (json!([1, 2.5]), json!([1.0, 2.5])),
            // As in a job file.
            (json!("5ms"), json!(5.0)),
            (json!(["250us", "1"]), json!([0.25, 1.0])),
        ] {
            assert_eq!(work.live("ms", &good), Ok(taken), "{good}");
        }
        for bad in
            [json!(-1), json!(86_400_001), json!(1e300), json!([]), json!([1, -1]), json!("2d"), json!(null)]
        {
            let said = work.live("ms", &bad).unwrap_err();
            assert!(said.starts_with("takes milliseconds") && said.contains(&bad.to_string()), "{said}");
        }
        assert_eq!(
            work.live("mode", &json!("spin")).unwrap_err(),
            "cannot be changed while the job runs; `ms` can"
        );
    }

    #[test]
    fn a_rate_is_positive_or_null_and_other_ops_have_nothing_live() {
        for good in [json!(null), json!(0.5)] {
            assert_eq!(rate(&good), Some(good));
        }
        assert!([json!(0), json!(-1), json!("5")].iter().all(|bad| rate(bad).is_none()));
        assert_eq!(
            Op::Merge.live("ms", &json!(1)).unwrap_err(),
            "a merge has no option that can be changed while the job runs"
        );
    }
}
