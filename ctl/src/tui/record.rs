//! Recordings: every event of a session, one JSON document a line; and playing them again.

use std::io::{self, BufRead, Read, Write};

use super::event::{Event, What};

/// A longer line than this is no event.
const LONGEST: u64 = 64 << 20;

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
pub(crate) fn read(mut from: impl BufRead) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        // No more than that is held, whatever the file is.
        let read = (&mut from).take(LONGEST + 1).read_until(b'\n', &mut line);
        if read.map_err(|cause| format!("line {number} cannot be read: {cause}"))? == 0 {
            break;
        }
        if line.len() as u64 > LONGEST {
            return Err(format!("line {number} is longer than 64 MiB"));
        }
        if !line.trim_ascii().is_empty() {
            let event = serde_json::from_slice(&line);
            events.push(event.map_err(|cause| format!("line {number} is no event: {cause}"))?);
        }
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
        assert_eq!(read(&b"\n \r\n"[..]).unwrap(), []);
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let endless = io::BufReader::new(io::Cursor::new(b"\n").chain(io::repeat(0)));
        assert_eq!(read(endless).unwrap_err(), "line 2 is longer than 64 MiB");
    }
}
