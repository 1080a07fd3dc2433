//! Sources: where rows come from, and how bytes become rows.

use serde::{Deserialize, Serialize};

use super::{Text, Time};
use crate::fault::Spanned;
use crate::time::{Column, TraceOptions};

/// The longest row that any source gives, in bytes; a frame between agents holds one such row.
pub const MAX_ROW: u64 = 16 << 20;

/// Rows that are moved, worked on or asked at once, at most.
pub const BATCH_ROWS: u32 = 8192;

/// `source`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// A batch ends by itself, a stream does not.
    pub kind: SourceKind,
    /// `false`: one instance in the cluster produces.
    pub distributed: bool,
    /// Where event times come from.
    pub timestamps: Timestamps,
    /// What is read; absent in planner cases.
    pub connector: Option<SourceConnector>,
    /// Event time of rows.
    pub time: Option<Time>,
    /// Agents (by name) that read; all unless set.
    pub on: Vec<Text>,
    /// Rows per second over all instances; as fast as possible unless set.
    pub rate: Option<f64>,
    /// A longer row is refused and counted, in bytes; [`MAX_ROW`] unless set.
    pub max_row: Option<u64>,
    /// Rows of so many slots to come may be sent before they arrive; 0: none. Where it is set, rows carry their
    /// arrival to the sinks.
    #[serde(default)]
    pub window: Option<Spanned<u32>>,
    /// What says which rows are to come.
    #[serde(default)]
    pub predictor: Option<Text>,
}

/// The longest window of a source, in slots.
pub const MOST_WINDOW: u32 = 10_000;

impl Source {
    /// Slots that it looks ahead.
    pub fn ahead(&self) -> u32 {
        self.window.as_ref().map_or(0, |window| window.value)
    }

    /// Its rows come at times of their own, however many are taken: by a `rate`, or by the counts of a trace.
    pub fn is_paced(&self) -> bool {
        self.rate.is_some() || matches!(self.connector, Some(SourceConnector::Trace(_)))
    }
}

/// `source.kind`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// Ends.
    #[default]
    Batch,
    /// Goes on.
    Stream,
}

/// `source.timestamps`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timestamps {
    /// Rows carry none.
    #[default]
    None,
    /// Assigned behind the source (its own vertex, `<source>-add-timestamps`).
    Source,
    /// The source itself emits watermarks.
    Native,
}

/// `source.connector` with its options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SourceConnector {
    /// Files, by path or glob.
    File(FileSource),
    /// Rows made up: `sequence` or Zipf `words`.
    Generator(Generator),
    /// `NEXMark` auction events.
    Nexmark(Nexmark),
    /// Numbered rows for experiments: `id`, `payload`.
    Ids {
        /// How many.
        n: u64,
        /// Bytes of the `payload` column; no such column if 0.
        payload: u32,
    },
    /// Numbered rows at the times that counts in a file give: `id`, `step`, `payload`.
    Trace(TraceSource),
    /// A registered source.
    Registered {
        /// Its registered name.
        name: Text,
        /// Its options, unchecked here.
        with: serde_json::Value,
    },
}

/// `connector = "file"` of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSource {
    /// Paths or globs; one in a job file is a string, several a list.
    pub paths: Vec<Text>,
    /// How bytes become rows.
    pub format: Format,
    /// How bytes become text.
    pub encoding: Encoding,
    /// Columns and their SQL types; for `regex` the named groups, text unless said.
    pub columns: Vec<(Text, Text)>,
    /// csv: the first line names the columns (all text unless `columns` gives types).
    pub header: bool,
    /// csv: the separator.
    pub delimiter: char,
    /// csv: a quoted field may hold line ends; if not, files can be split by bytes.
    pub quoted_newlines: bool,
    /// `shared`: each split is read once in the cluster; `each`: every agent reads its own.
    pub files: Files,
    /// Files are read whole or by ranges of bytes.
    pub split: Option<Split>,
    /// What happens to a line that does not parse: counted and left out, or the job fails.
    pub on_bad_line: BadLine,
}

/// Formats of a file source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Format {
    /// Each line is the text column `line`.
    Lines,
    /// Comma-separated values.
    Csv,
    /// One JSON object a line.
    Jsonl,
    /// One JSON document a file.
    Json,
    /// Named groups of a pattern become columns.
    Regex {
        /// The pattern.
        pattern: Text,
    },
}

impl Format {
    /// Its name in a job file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Json => "json",
            Self::Regex { .. } => "regex",
        }
    }
}

/// Encodings of a file source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// A line that is not UTF-8 is a bad line.
    #[default]
    Utf8,
    /// Bytes that are not UTF-8 become U+FFFD.
    Lossy,
    /// Each byte is a character.
    Latin1,
}

/// `source.files`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Files {
    /// Every agent sees the same paths.
    #[default]
    Shared,
    /// Every agent reads its own.
    Each,
}

/// `source.split`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Split {
    /// A file is one split.
    File,
    /// A file is cut into byte ranges at line ends.
    Bytes,
}

/// `source.on_bad_line`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BadLine {
    /// Counted with file and line; the rest goes on.
    #[default]
    Skip,
    /// The job fails.
    Fail,
}

/// `connector = "generator"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// What is made.
    pub kind: GeneratorKind,
    /// How many rows in all; without end unless set.
    pub n: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
}

/// `generator.kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GeneratorKind {
    /// `value`: 0, 1, 2, ...
    Sequence,
    /// `line`: words drawn by Zipf's law from a dictionary of `words`.
    Words {
        /// Size of the dictionary.
        words: u32,
        /// Zipf exponent.
        exponent: f64,
        /// Words in a line.
        per_line: u32,
    },
}

/// `connector = "nexmark"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nexmark {
    /// Which events: one kind.
    pub events: NexmarkEvents,
    /// How many events (of all kinds) in all; without end unless set.
    pub n: Option<u64>,
    /// Event time of the first event, ms since 1970.
    pub base_time: u64,
}

/// `nexmark.events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NexmarkEvents {
    /// Persons only.
    Person,
    /// Auctions only.
    Auction,
    /// Bids only.
    #[default]
    Bid,
}

/// `connector = "trace"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceSource {
    /// The csv file with a count for each step; every agent sees the same.
    pub path: Text,
    /// Where the counts are: the last column with a number unless set.
    pub column: Option<Column>,
    /// The first line names the columns. Unless set it does, and the file is refused if the line may be a count.
    pub header: Option<bool>,
    /// Between fields.
    pub delimiter: char,
    /// How counts become rows.
    pub options: TraceOptions,
    /// Bytes of the `payload` column; no such column if 0.
    pub payload: u32,
}

impl TraceSource {
    /// It goes on for ever.
    pub fn is_endless(&self) -> bool {
        self.options.repeat && self.options.rows.is_none()
    }
}
