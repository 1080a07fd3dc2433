//! Reads `connector = "trace"`: rows at the times that counts in a file give.

use std::time::Duration;

use crate::fault::{Fault, Spanned};
use crate::job::model::{MAX_ROW, Text, TraceSource};
use crate::job::table::Table;
use crate::time::{TraceOptions, TraceScale};

/// How long a count's step lasts where nothing is said.
const STEP: Duration = Duration::from_secs(1);

/// The options of a trace.
pub(super) fn read(table: &mut Table<'_>) -> TraceSource {
    let options = TraceOptions {
        step: table.positive_duration("step").unwrap_or(STEP),
        scale: scale(table),
        from: table.whole("from", 0..=u64::MAX).unwrap_or_default(),
        rows: table.whole("rows", 1..=u64::MAX),
        repeat: table.flag("loop").unwrap_or_default(),
    };
    no_rate(table);
    TraceSource {
        path: path(table),
        column: table.column("column"),
        header: table.flag("header"),
        delimiter: super::source::delimiter(table),
        options,
        payload: table.whole_u32("payload", 0..=MAX_ROW as u32).unwrap_or_default(),
    }
}

fn path(table: &mut Table<'_>) -> Text {
    let path = table.text("path");
    if table.node("path").is_none() {
        table.missing("path", "name the csv file that has the counts");
    }
    if let Some(path) = path.as_ref().filter(|path| path.value == "-") {
        let fault = Fault::new(path.at, "standard input cannot be a trace: every instance reads all of it");
        table.fault(fault.help("name a file"));
    }
    path.unwrap_or_else(|| Spanned::new(String::new(), table.at))
}

fn scale(table: &mut Table<'_>) -> TraceScale {
    let (factor, mean) = (table.positive("scale"), table.positive("mean"));
    if let (Some(_), Some(at)) = (table.place_of("scale"), table.place_of("mean")) {
        let fault = Fault::new(at, "`scale` and `mean` exclude each other");
        table
            .fault(fault.help("keep `scale` to multiply the counts, or `mean` to set their rows per second"));
    }
    mean.map_or(TraceScale::Factor(factor.unwrap_or(1.0)), TraceScale::Mean)
}

/// The counts are the rate.
fn no_rate(table: &mut Table<'_>) {
    if let Some(at) = table.place_of("rate") {
        let fault = Fault::new(at, "a trace has its own rate, and takes no `rate`");
        table.fault(fault.help("set `scale` or `mean`"));
    }
}
