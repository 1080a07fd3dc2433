//! Event time: how far a source instance's watermark has come, and what several of them come to.

mod least;
mod policy;
mod window;

pub use least::{Least, Moved, Standing};
pub use policy::{CONFIRM, Seen, WatermarkOptions, WatermarkPolicy};
pub(crate) use window::{LONG_SLIDE, gcd};
pub use window::{Panes, WindowSpec};

/// The reason under which rows are counted that came when all of their windows had been given.
pub const DROPPED_AS_LATE: &str = "late";

/// The reason under which partial results of a window in two stages are counted that came when the window had been
/// given. Each stands for all rows of a group that one instance of the first stage had.
pub const DROPPED_PARTS_AS_LATE: &str = "late_partials";

/// The reason under which rows are counted whose event time cannot be read.
pub const DROPPED_BY_TIME: &str = "time";
