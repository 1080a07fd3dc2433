//! Recordings: a line that says what it is, then every event of a session, one JSON document a line.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use super::event::{Event, What};

/// What the first line names; another one for recordings that this build cannot play.
const SCHEMA: &str = "tuplane/recording/1";

/// A longer line than this is no event.
const LONGEST: u64 = 64 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    schema: String,
    /// Columns and lines of the terminal at the start.
    width: u16,
    height: u16,
}

/// A recording.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recording {
    /// What happened; at first the size of the terminal.
    pub(crate) events: Vec<Event>,
    /// Its last line has no end: the session was ended while it was written.
    pub(crate) cut: bool,
}

/// Writes events as they come.
#[derive(Debug)]
pub(crate) struct Recorder<W: Write> {
    to: W,
}

impl<W: Write> Recorder<W> {
    /// Writes to this, at first what it is and the size of the terminal in columns and lines.
    pub(crate) fn new(to: W, (width, height): (u16, u16)) -> io::Result<Self> {
        let mut recorder = Self { to };
        recorder.line(&Head { schema: SCHEMA.to_owned(), width, height })?;
        Ok(recorder)
    }

    /// Writes one; ticks are left out, since players make their own. Whole lines only, so that what was
    /// written before an end by force can be read.
    pub(crate) fn write(&mut self, event: &Event) -> io::Result<()> {
        if event.what == What::Tick { Ok(()) } else { self.line(event) }
    }

    fn line(&mut self, document: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(document)?;
        line.push(b'\n');
        self.to.write_all(&line)?;
        self.to.flush()
    }
}

/// Reads a recording, or says which line is wrong. One that was cut in its last line is read up to there.
pub(crate) fn read(mut from: impl BufRead) -> Result<Recording, String> {
    let mut recording = Recording { events: Vec::new(), cut: false };
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
        if number == 1 {
            recording.events.push(head(&line)?);
        } else if !line.trim_ascii().is_empty() {
            match serde_json::from_slice(&line) {
                Ok(event) => recording.events.push(event),
                Err(_) if !line.ends_with(b"\n") => recording.cut = true,
                Err(cause) => return Err(format!("line {number} is no event: {cause}")),
            }
        }
    }
    if recording.events.is_empty() { Err("it is empty".to_owned()) } else { Ok(recording) }
}

/// The size of the terminal that the first line tells.
fn head(line: &[u8]) -> Result<Event, String> {
    let of_schema = |head: &Head| head.schema == SCHEMA;
    match serde_json::from_slice::<Head>(line).ok().filter(of_schema) {
        Some(Head { width, height, .. }) => Ok(Event { at: 0, what: What::Resize { width, height } }),
        None => Err(format!(
            "its first line does not say `{SCHEMA}`; a recording of another version is played by that version"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &[Event]) -> Vec<u8> {
        let mut recorder = Recorder::new(Vec::new(), (80, 24)).unwrap();
        for event in events {
            recorder.write(event).unwrap();
        }
        recorder.to
    }

    #[test]
    fn what_was_written_is_read() {
        let events = [
            Event { at: 0, what: What::Resize { width: 80, height: 24 } },
            Event { at: 2, what: What::Key("<c-c>".parse().unwrap()) },
            Event { at: 3, what: What::Telemetry(Box::default()) },
            Event { at: 9, what: What::Tick },
        ];
        let mut bytes = written(&events[1..]);
        let whole = Recording { events: events[..3].to_vec(), cut: false };
        assert_eq!(read(&bytes[..]).unwrap(), whole);
        bytes.extend(b"\n \r\n");
        assert_eq!(read(&bytes[..]).unwrap(), whole, "empty lines");
        bytes.extend(b"{}\n");
        assert!(read(&bytes[..]).unwrap_err().contains("line 6 is no event"));
    }

    #[test]
    fn one_that_was_cut_in_its_last_line_is_read_up_to_there() {
        let key = Event { at: 2, what: What::Key("j".parse().unwrap()) };
        let bytes = written(&[key.clone(), key]);
        let second = bytes.split_inclusive(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
        for end in second..=bytes.len() {
            let found = read(&bytes[..end]).unwrap();
            // All but the line's end is there.
            let whole = end >= bytes.len() - 1;
            let expected = (if whole { 3 } else { 2 }, !whole && end > second);
            assert_eq!((found.events.len(), found.cut), expected, "{end}");
        }
    }

    #[test]
    fn what_is_none_is_refused_by_its_first_line() {
        for other in ["{\"schema\":\"tuplane/recording/2\",\"width\":1,\"height\":1}\n", "{}\n", "\n", "x"] {
            assert!(
                read(other.as_bytes()).unwrap_err().contains("does not say `tuplane/recording/1`"),
                "{other}"
            );
        }
        assert_eq!(read(&b""[..]).unwrap_err(), "it is empty");
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let head = written(&[]);
        let endless = io::BufReader::new(io::Cursor::new(head).chain(io::repeat(0)));
        assert_eq!(read(endless).unwrap_err(), "line 2 is longer than 64 MiB");
    }
}
