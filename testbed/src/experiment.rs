//! Experiments: a folder of results, a tidy table, intervals, figures, and a page of claims.
//!
//! Nothing here knows what is measured: [`potus`] and [`stela`] are experiments on it.

mod axis;
pub mod claims;
mod clock;
mod figure;
pub mod finish;
mod folder;
pub mod potus;
mod runs;
mod stats;
pub mod stela;
mod svg;
mod table;

pub use axis::{Axis, Scale};
pub use claims::{Claim, Claims, Part, Verdict};
pub use figure::{Figure, FigureError, Level, Point, Series, Style};
pub use folder::{Folder, Manifest, State};
pub use runs::{Stop, run_all};
pub use stats::{Interval, Line, interval, line, student_t};
pub use table::{Columns, Record, Table, rounded};
