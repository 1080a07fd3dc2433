//! Recordings: every event of a session, one JSON document a line; and playing them again.

use std::io::{self, BufRead, Write};

use super::event::{Event, What};

/// A longer line than this is no event.
const LONGEST: usize = 64 << 20;

/// Writes events as they come.
#[derive(Debug)]
pub(crate) struct Recorder<W: Write> {
    to: W,
}

impl<W: Write> Recorder<W> {
    /// Writes to this.
    pub(crate) fn new(to: W) -> Self {
        Self { to }
    }

    /// Writes one; ticks are left out, since players make their own. Whole lines only, so that what was
    /// written before an end by force can be read.
    pub(crate) fn write(&mut self, event: &Event) -> io::Result<()> {
        if event.what == What::Tick {
            return Ok(());
        }
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.to.write_all(&line)?;
        self.to.flush()
    }
}

/// Reads all events of a recording, or says which line is none.
pub(crate) fn read(from: impl BufRead) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(from.lines()) {
        let line = line.map_err(|cause| format!("line {number} cannot be read: {cause}"))?;
        if line.trim().is_empty() {
            continue;
        }
        if line.len() > LONGEST {
            return Err(format!("line {number} is too long for an event"));
        }
        events.push(
            serde_json::from_str(&line).map_err(|cause| format!("line {number} is no event: {cause}"))?,
        );
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let events = vec![
            Event { at: 1, what: What::Resize { width: 80, height: 24 } },
            Event { at: 2, what: What::Key("<c-c>".parse().unwrap()) },
            Event { at: 3, what: What::Telemetry(Box::default()) },
        ];
        let mut recorder = Recorder::new(Vec::new());
        for event in &events {
            recorder.write(event).unwrap();
        }
        recorder.write(&Event { at: 9, what: What::Tick }).unwrap();
        assert_eq!(read(&recorder.to[..]).unwrap(), events);
        assert!(read(&b"{}\n"[..]).unwrap_err().contains("line 1"));
    }
}
