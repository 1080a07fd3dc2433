//! Response times at a vertex's sinks, over all its instances.

use serde::Serialize;
use serde_json::Value;
use tuplane_wire::message::{InstanceReport, Response};

use crate::output::number;

/// Response times at a sink, from a row's arrival to its writing.
#[derive(Debug, Serialize)]
pub(super) struct ResponseView {
    pub(super) rows: u64,
    /// Rows that were there before they arrived, and were held until then.
    pub(super) early: u64,
    pub(super) mean_ms: Value,
    pub(super) p50_ms: Value,
    pub(super) p99_ms: Value,
}

impl ResponseView {
    pub(super) fn of<'a>(reports: impl Iterator<Item = &'a InstanceReport>) -> Option<Self> {
        let mut all = Response::default();
        reports.for_each(|report| all.add(&report.response));
        let ms = |us: f64| number(us / 1e3);
        let quantile = |part: f64| all.quantile_us(part).map_or(Value::Null, |us| ms(us as f64));
        let mean_ms = ms(all.mean_us()?);
        Some(Self {
            rows: all.rows,
            early: all.early,
            mean_ms,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
        })
    }
}
