//! `regex`: the named groups of a pattern become columns.

use regex::{CaptureLocations, Regex};

use super::super::SourceError;
use super::super::columns::{Columns, shortened};

/// A pattern and where its columns stand in it.
pub(super) struct Pattern {
    regex: Regex,
    locations: CaptureLocations,
    /// Group number of each column.
    groups: Vec<usize>,
}

impl Pattern {
    /// Every column must be a named group.
    pub(super) fn new(pattern: &str, columns: &Columns) -> Result<Self, SourceError> {
        let regex = Regex::new(pattern).map_err(|cause| {
            SourceError::Refused(format!("`pattern` is not a regular expression: {cause}"))
        })?;
        let group = |name: &String| {
            regex.capture_names().position(|group| group == Some(name)).ok_or_else(|| {
                let names: Vec<&str> = regex.capture_names().flatten().collect();
                SourceError::Refused(format!(
                    "`pattern` has no group `(?<{name}>...)`; its groups are: {}",
                    names.join(", ")
                ))
            })
        };
        let groups =
            columns.schema().fields().iter().map(|field| group(field.name())).collect::<Result<_, _>>()?;
        Ok(Self { locations: regex.capture_locations(), groups, regex })
    }

    /// Appends a line's row.
    pub(super) fn push(&mut self, text: &str, line: u64, columns: &mut Columns) -> Result<(), String> {
        if self.regex.captures_read(&mut self.locations, text).is_none() {
            return Err(format!("`{}` does not match the pattern", shortened(text)));
        }
        let locations = &self.locations;
        columns.push_texts(
            line,
            self.groups.iter().map(|group| locations.get(*group).map(|(start, end)| &text[start..end])),
        );
        Ok(())
    }
}
