//! What commands print: text for people, documents with a schema for programs, never both.

pub(crate) mod safe;
pub(crate) mod table;
pub(crate) mod time;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::{self, Failure, Outcome};

/// `-o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// A graph for Graphviz (`plan` only).
    Dot,
}

/// `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal that can, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Standard output and what may be said beside it.
#[derive(Debug)]
pub(crate) struct Output {
    /// How results are written.
    pub(crate) format: Format,
    /// `-q`: no notices.
    quiet: bool,
    /// `-v`: details that help when something goes wrong.
    verbose: bool,
    color: Color,
    documents: u32,
}

impl Output {
    pub(crate) fn new(format: Format, color: Color, quiet: bool, verbose: bool) -> Self {
        Self { format, quiet, verbose, color, documents: 0 }
    }

    /// Results are for people.
    pub(crate) fn is_text(&self) -> bool {
        self.format == Format::Text
    }

    /// Writes text to standard output.
    #[expect(clippy::unused_self, reason = "whoever writes holds the output")]
    pub(crate) fn text(&self, text: &str) -> Outcome {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// How wide the terminal is that results go to, if they go to one.
    #[expect(clippy::unused_self, reason = "whoever writes holds the output")]
    pub(crate) fn room(&self) -> Option<usize> {
        let terminal = io::stdout().is_terminal();
        terminal
            .then(|| ratatui::crossterm::terminal::size().ok())
            .flatten()
            .map(|(columns, _)| columns.into())
    }

    /// Writes bytes to standard output as they are.
    #[expect(clippy::unused_self, reason = "whoever writes holds the output")]
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Outcome {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        Ok(())
    }

    /// Writes a document: `schema` and the fields of `body`, in the order of their names.
    pub(crate) fn document(&mut self, name: &str, body: &impl Serialize) -> Outcome {
        let mut document = Map::new();
        document.insert("schema".into(), format!("tuplane/{name}/1").into());
        match to_value(body)? {
            Value::Object(fields) => document.extend(fields),
            other => {
                document.insert("value".into(), other);
            }
        }
        self.value(&Value::Object(document))
    }

    /// Writes a value without a schema, for answers that are bare arrays.
    pub(crate) fn value(&mut self, value: &Value) -> Outcome {
        let written = match self.format {
            Format::Jsonl => serde_json::to_string(value),
            Format::Json | Format::Text | Format::Dot => serde_json::to_string_pretty(value),
        };
        let text =
            written.map_err(|cause| Failure::Internal(format!("a document cannot be written: {cause}")))?;
        self.documents += 1;
        self.text(&text)
    }

    /// `-q`: hints, tables and sentences that only explain are left out.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// `-v`: more than usual is shown.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// What makes a result other than it looks: said on standard error, under `-q` too.
    #[expect(clippy::unused_self, reason = "whoever writes holds the output")]
    pub(crate) fn warning(&self, sentence: &str) {
        to_stderr(&format!("tuplane: warning: {}\n", safe::line(sentence)));
    }

    /// A sentence on standard error that is neither result nor error.
    pub(crate) fn notice(&self, sentence: &str) {
        if !self.quiet {
            to_stderr(&format!("tuplane: {}\n", safe::line(sentence)));
        }
    }

    /// Text on standard error that stands for itself, such as faults with their lines.
    #[expect(clippy::unused_self, reason = "whoever writes holds the output")]
    pub(crate) fn aside(&self, text: &str) {
        to_stderr(text);
    }

    /// A detail on standard error, under `-v`.
    pub(crate) fn detail(&self, sentence: &str) {
        if self.verbose {
            to_stderr(&format!("tuplane: {}\n", safe::line(sentence)));
        }
    }

    /// A line that overwrites itself, where standard error is a terminal.
    pub(crate) fn progress(&self, line: &str) {
        if self.shows_progress() {
            to_stderr(&format!("\r\x1b[K{}", safe::line(line)));
        }
    }

    /// Takes the progress line away.
    pub(crate) fn progress_done(&self) {
        if self.shows_progress() {
            to_stderr("\r\x1b[K");
        }
    }

    fn shows_progress(&self) -> bool {
        !self.quiet && io::stderr().is_terminal() && terminal_can_move()
    }

    /// Standard output is a terminal that can be repainted.
    pub(crate) fn repaints(&self) -> bool {
        self.is_text() && io::stdout().is_terminal() && terminal_can_move()
    }

    /// Colours on standard output.
    pub(crate) fn colors(&self) -> bool {
        self.colors_on(io::stdout().is_terminal())
    }

    /// Colours on standard error.
    pub(crate) fn error_colors(&self) -> bool {
        self.colors_on(io::stderr().is_terminal())
    }

    /// As `--color` says.
    pub(crate) fn color(&self) -> Color {
        self.color
    }

    fn colors_on(&self, terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                terminal
                    && terminal_can_move()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }

    /// Says an error: once, on standard error as a sentence; where results are documents and none
    /// was written yet, as a document too, so that a program never reads nothing.
    pub(crate) fn error(&mut self, failure: &Failure) {
        if matches!(failure, Failure::BrokenPipe) {
            return;
        }
        self.progress_done();
        if !matches!(failure, Failure::Shown | Failure::Ended(_)) {
            to_stderr(&format!("tuplane: {}\n", safe::lines(&failure.to_string())));
        }
        if matches!(self.format, Format::Json | Format::Jsonl) && self.documents == 0 {
            // The error itself was said above; a reader that has gone misses nothing.
            let _ = self.document("error", &failure::document(failure));
        }
    }
}

/// A body as a value; it fails only for a type that JSON cannot hold.
pub(crate) fn to_value(body: &impl Serialize) -> Outcome<Value> {
    serde_json::to_value(body)
        .map_err(|cause| Failure::Internal(format!("a document cannot be written: {cause}")))
}

/// A rate or share as JSON has it: null where it is not a number.
pub(crate) fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// A closed standard error is no reason to fail.
fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The terminal takes escape sequences.
pub(crate) fn terminal_can_move() -> bool {
    std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}
