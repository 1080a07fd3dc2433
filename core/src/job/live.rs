//! Options that can be changed while a job runs: which there are, and what they take.

use serde_json::Value;

use super::model::{Op, Source, SourceConnector};

/// The longest time that `work` takes for a row, in milliseconds: one day.
pub const MAX_WORK_MS: f64 = 86_400_000.0;

/// An option of an op that can be changed while a job runs.
struct LiveOption {
    op: &'static str,
    name: &'static str,
    takes: &'static str,
    fits: fn(&Value) -> bool,
}

/// All of them.
const LIVE: [LiveOption; 2] = [
    LiveOption {
        op: "work",
        name: "ms",
        takes: "milliseconds, at most 86400000 (one day), or a list with one per instance",
        fits: fits_work_ms,
    },
    LiveOption {
        op: "source",
        name: "rate",
        takes: "rows per second above 0, or null for as fast as possible",
        fits: fits_rate,
    },
];

impl Op {
    /// Whether `option` can be set to `value` while the job runs; `Err` goes on after the option's name.
    pub fn check_live(&self, option: &str, value: &Value) -> Result<(), String> {
        if let Self::Source(Source { connector: Some(SourceConnector::Trace(_)), .. }) = self {
            return Err("cannot be changed while the job runs: a trace keeps its schedule".to_owned());
        }
        let own: Vec<&LiveOption> = LIVE.iter().filter(|live| live.op == self.name()).collect();
        if own.is_empty() {
            return Err(format!("a {} has no option that can be changed while the job runs", self.name()));
        }
        let Some(live) = own.iter().find(|live| live.name == option) else {
            let names: Vec<String> = own.iter().map(|live| format!("`{}`", live.name)).collect();
            return Err(format!("cannot be changed while the job runs; {} can", names.join(", ")));
        };
        if (live.fits)(value) { Ok(()) } else { Err(format!("takes {}; not {value}", live.takes)) }
    }
}

/// A time that `work` can take for a row.
pub(super) fn is_work_ms(ms: f64) -> bool {
    (0.0..=MAX_WORK_MS).contains(&ms)
}

fn fits_work_ms(value: &Value) -> bool {
    let one = |value: &Value| value.as_f64().is_some_and(is_work_ms);
    match value {
        Value::Array(list) => !list.is_empty() && list.iter().all(one),
        single => one(single),
    }
}

fn fits_rate(value: &Value) -> bool {
    value.is_null() || value.as_f64().is_some_and(|rate| rate.is_finite() && rate > 0.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{Spread, Work, WorkMode};

    #[test]
    fn a_time_of_work_is_bounded() {
        let work = Op::Work(Work { ms: vec![1.0], spread: Spread::None, mode: WorkMode::Sleep });
        for good in [json!(0), json!(2.5), json!(86_400_000), json!([1, 2])] {
            assert_eq!(work.check_live("ms", &good), Ok(()), "{good}");
        }
        for bad in
            [json!(-1), json!(86_400_001), json!(1e300), json!([]), json!([1, -1]), json!("1"), json!(null)]
        {
            let said = work.check_live("ms", &bad).unwrap_err();
            assert!(said.starts_with("takes milliseconds") && said.contains(&bad.to_string()), "{said}");
        }
        assert_eq!(
            work.check_live("mode", &json!("spin")).unwrap_err(),
            "cannot be changed while the job runs; `ms` can"
        );
    }

    #[test]
    fn a_rate_is_positive_or_null_and_other_ops_have_nothing_live() {
        assert!(fits_rate(&json!(null)) && fits_rate(&json!(0.5)));
        assert!(!fits_rate(&json!(0)) && !fits_rate(&json!(-1)) && !fits_rate(&json!("5")));
        assert_eq!(
            Op::Merge.check_live("ms", &json!(1)).unwrap_err(),
            "a merge has no option that can be changed while the job runs"
        );
    }
}
