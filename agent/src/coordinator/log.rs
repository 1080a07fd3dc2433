//! The coordinator's log on disk: a snapshot of the state and the numbered commands since, in redb.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tuplane_core::cluster::{FORMAT, Logged, State};
use tuplane_wire::codec;

/// Commands by number, from that of the snapshot on.
const COMMANDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("commands");

/// One entry at most: the number of the commands that it stands for, and the state that they led to.
const SNAPSHOT: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("snapshot");

/// So many commands after the last snapshot comes the next, and they go.
const SNAPSHOT_EVERY: u64 = 1000;

/// The log is read once and then only appended to.
const CACHE: usize = 1 << 20;

/// A log that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The folder or file cannot be opened.
    #[error("cannot open the coordinator's log {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// What stands in it cannot be read.
    #[error(
        "the coordinator's log {} cannot be read at entry {entry}: {cause}; move the file away to begin anew",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Which entry.
        entry: u64,
        /// Why.
        cause: String,
    },
    /// Another build wrote it.
    #[error(
        "the coordinator's log {} has format {found}, and this build reads {FORMAT}: use the build that wrote \
         it, or move the file away to begin anew",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u16,
    },
    /// It cannot be written.
    #[error("cannot write the coordinator's log {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
}

/// An open log.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    database: Arc<Database>,
    /// Number of the next command.
    next: u64,
    /// Commands since the last snapshot.
    since: u64,
    /// So many make the next one due.
    every: u64,
    /// The disk is full.
    #[cfg(test)]
    pub(super) is_full: bool,
}

impl Log {
    /// Opens the log in a folder, or makes it; gives the state that it leads to.
    pub(super) fn open(folder: &Path) -> Result<(Self, State), LogError> {
        let path = folder.join("cluster.redb");
        let fault = |cause: String| LogError::Open { path: path.clone(), cause };
        make_private(folder).map_err(|e| fault(e.to_string()))?;
        let database =
            Builder::new().set_cache_size(CACHE).create(&path).map_err(|e| fault(e.to_string()))?;
        let (mut state, first) = read_snapshot(&database, &path)?;
        let entries = read_commands(&database, &path, first)?;
        let since = entries.len() as u64;
        for entry in entries {
            // Effects of the past were carried out, or a coordinator's start leads to them anew.
            state.apply(entry);
        }
        let log = Self {
            path,
            database: Arc::new(database),
            next: first + since,
            since,
            every: SNAPSHOT_EVERY,
            #[cfg(test)]
            is_full: false,
        };
        Ok((log, state))
    }

    /// Opens the log again after entries could not be appended; gives the state before them.
    ///
    /// # Errors
    /// Also if they stand there all the same.
    pub(super) fn without_the_last(self) -> Result<(Self, State), LogError> {
        let Self { path, database, next, .. } = self;
        // Nobody can open it twice.
        drop(database);
        let (log, state) = Self::open(path.parent().unwrap_or(Path::new(".")))?;
        if log.next == next {
            return Ok((log, state));
        }
        let cause = format!("entry {next} was refused and stands there all the same");
        Err(LogError::Write { path, cause })
    }

    /// Appends entries, which have led to `state`; they are on disk when this returns. Once enough
    /// commands stand there the state takes their place.
    pub(super) async fn append(&mut self, entries: &[Logged], state: &State) -> Result<(), LogError> {
        let fault = |path: &Path, cause: String| LogError::Write { path: path.to_owned(), cause };
        let encoded: Result<Vec<_>, _> = entries.iter().map(encode).collect();
        let encoded = encoded.map_err(|e| fault(&self.path, e.to_string()))?;
        #[cfg(test)]
        if self.is_full {
            return Err(fault(&self.path, "No space left on device".to_owned()));
        }
        let first = self.next;
        let next = first + encoded.len() as u64;
        let since = self.since + encoded.len() as u64;
        let due = since >= self.every;
        let state = due.then(|| state.clone());
        let database = self.database.clone();
        // A sync may take long, and this runtime also serves everybody else.
        let written = tokio::task::spawn_blocking(move || match state.as_ref().and_then(snapshot) {
            Some(snapshot) => write_snapshot(&database, next, &snapshot),
            None => write(&database, first, &encoded),
        });
        let written = written.await.map_err(|e| fault(&self.path, e.to_string()))?;
        written.map_err(|e| fault(&self.path, e.to_string()))?;
        (self.next, self.since) = (next, if due { 0 } else { since });
        Ok(())
    }
}

/// Bytes with the format before them.
fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, codec::CodecError> {
    let mut bytes = FORMAT.to_be_bytes().to_vec();
    bytes.extend(codec::encode(value)?);
    Ok(bytes)
}

/// Why bytes are no value.
enum Unread {
    Format(u16),
    Broken(String),
}

impl Unread {
    fn at(self, path: &Path, entry: u64) -> LogError {
        let path = path.to_owned();
        match self {
            Self::Format(found) => LogError::Format { path, found },
            Self::Broken(cause) => LogError::Read { path, entry, cause },
        }
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unread> {
    let Some((format, value)) = bytes.split_first_chunk() else {
        return Err(Unread::Broken("it is too short".to_owned()));
    };
    match u16::from_be_bytes(*format) {
        FORMAT => codec::decode(value).map_err(|e| Unread::Broken(e.to_string())),
        found => Err(Unread::Format(found)),
    }
}

/// The state as bytes, if they can be read again: commands must not go for bytes that cannot.
fn snapshot(state: &State) -> Option<Vec<u8>> {
    let bytes = encode(state).ok();
    let bytes = bytes.filter(|bytes| decode::<State>(bytes).is_ok_and(|read| read == *state));
    if bytes.is_none() {
        tracing::warn!("the coordinator's state cannot be written at once; its log keeps all commands");
    }
    bytes
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// The last snapshot, and the number of the first command behind it.
fn read_snapshot(database: &Database, path: &Path) -> Result<(State, u64), LogError> {
    let fault = |cause: String| LogError::Read { path: path.to_owned(), entry: 0, cause };
    let reading = database.begin_read().map_err(|e| fault(e.to_string()))?;
    let table = match reading.open_table(SNAPSHOT) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok((State::default(), 0)),
        Err(e) => return Err(fault(e.to_string())),
    };
    match table.last().map_err(|e| fault(e.to_string()))? {
        Some((number, bytes)) => {
            let first = number.value();
            Ok((decode(bytes.value()).map_err(|unread| unread.at(path, first))?, first))
        }
        None => Ok((State::default(), 0)),
    }
}

fn read_commands(database: &Database, path: &Path, first: u64) -> Result<Vec<Logged>, LogError> {
    let fault = |entry: u64, cause: String| LogError::Read { path: path.to_owned(), entry, cause };
    let reading = database.begin_read().map_err(|e| fault(first, e.to_string()))?;
    let table = match reading.open_table(COMMANDS) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(e) => return Err(fault(first, e.to_string())),
    };
    let mut entries = Vec::new();
    for row in table.iter().map_err(|e| fault(first, e.to_string()))? {
        let expected = first + entries.len() as u64;
        let (number, bytes) = row.map_err(|e| fault(expected, e.to_string()))?;
        if number.value() != expected {
            return Err(fault(expected, format!("entry {} follows instead", number.value())));
        }
        entries.push(decode(bytes.value()).map_err(|unread| unread.at(path, expected))?);
    }
    Ok(entries)
}

fn write(database: &Database, first: u64, entries: &[Vec<u8>]) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(COMMANDS)?;
        for (number, entry) in (first..).zip(entries) {
            table.insert(number, entry.as_slice())?;
        }
    }
    writing.commit()?;
    Ok(())
}

/// The state after all commands below `next`, which go in the same transaction.
fn write_snapshot(database: &Database, next: u64, state: &[u8]) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    writing.delete_table(COMMANDS)?;
    writing.delete_table(SNAPSHOT)?;
    writing.open_table(SNAPSHOT)?.insert(next, state)?;
    writing.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tuplane_core::cluster::{Command, NewJob, Placed, SealWork};
    use tuplane_core::job::Restart;
    use tuplane_core::plan::{Instance, VertexId};
    use tuplane_wire::message::{AgentId, AgentInfo, EdgeLedger, Flow, InstanceReport, SinkFile, Split};

    use super::*;

    fn entries(numbers: std::ops::Range<u64>) -> Vec<Logged> {
        let join = |n: u64| Command::AgentRegistered(Box::new(info("abc", n)));
        numbers.map(|at_ms| Logged { at_ms, command: join(at_ms + 1) }).collect()
    }

    fn applied(entries: &[Logged]) -> State {
        let mut state = State::default();
        for entry in entries {
            state.apply(entry.clone());
        }
        state
    }

    fn commands(log: &Log) -> usize {
        read_commands(&log.database, &log.path, log.next - log.since).unwrap().len()
    }

    #[tokio::test]
    async fn what_was_appended_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, found) = Log::open(folder.path()).unwrap();
        assert_eq!(found, State::default());
        log.append(&entries(0..3), &applied(&entries(0..3))).await.unwrap();
        log.append(&entries(3..5), &applied(&entries(0..5))).await.unwrap();
        // Two coordinators with one log would each go their own way.
        let error = Log::open(folder.path()).unwrap_err();
        assert!(matches!(error, LogError::Open { .. }), "{error}");
        drop(log);
        let (mut log, found) = Log::open(folder.path()).unwrap();
        assert_eq!((found, commands(&log)), (applied(&entries(0..5)), 5));
        log.append(&entries(5..6), &applied(&entries(0..6))).await.unwrap();
        drop(log);
        assert_eq!(Log::open(folder.path()).unwrap().1, applied(&entries(0..6)));
    }

    #[test]
    fn a_log_that_cannot_be_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cluster.redb"), b"this is no log at all".repeat(400)).unwrap();
        let error = Log::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("cluster.redb"), "{error}");
    }

    #[test]
    fn another_format_and_a_broken_entry_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (log, _) = Log::open(folder.path()).unwrap();
        let good = encode(&entries(0..1)[0]).unwrap();
        let [high, low] = FORMAT.to_be_bytes();
        write(&log.database, 0, &[good, vec![high, low, 250, 1]]).unwrap();
        drop(log);
        let text = Log::open(folder.path()).unwrap_err().to_string();
        assert!(text.contains("entry 1"), "{text}");
        let (log, _) = {
            fs::remove_file(folder.path().join("cluster.redb")).unwrap();
            Log::open(folder.path()).unwrap()
        };
        write_snapshot(&log.database, 7, &[0, 77, 1, 2, 3]).unwrap();
        drop(log);
        let error = Log::open(folder.path()).unwrap_err();
        assert!(matches!(error, LogError::Format { found: 77, .. }), "{error}");
        assert!(error.to_string().contains("has format 77, and this build reads"), "{error}");
    }

    fn info(names: &str, number: u64) -> AgentInfo {
        let name = names.chars().nth(number as usize % names.len()).unwrap().to_string();
        AgentInfo {
            id: AgentId { name, incarnation: 1 + number / 8 },
            address: "127.0.0.1:1".to_owned(),
            slots: 1,
            cores: 0,
            zone: "z".to_owned(),
            pid: 1,
            version: "0".to_owned(),
            host: "h".to_owned(),
            registry: 0,
        }
    }

    fn placed(agents: Vec<AgentInfo>) -> Placed {
        let instance = |id| Instance { id, vertex: VertexId(id % 2), number: id / 2, agent: 0 };
        let split =
            Split { number: 0, path: "f".to_owned(), start: 0, end: u64::MAX, seen: None, done: None };
        let splits = BTreeMap::from([("src".to_owned(), vec![split])]);
        Placed { agents, instances: (0..2).map(instance).collect(), splits }
    }

    fn edges() -> Vec<EdgeLedger> {
        let flows = BTreeMap::from([((0, 1), Flow { rows: 1, bytes: 2, wire_bytes: 3 })]);
        let dropped = BTreeMap::from([("bad_line".to_owned(), 1)]);
        vec![EdgeLedger { emitted: 3, taken: 1, flows, dropped, ..EdgeLedger::default() }]
    }

    fn part(agent: &str) -> SinkFile {
        let path = format!("/data/.out-{agent}.part");
        SinkFile { agent: agent.to_owned(), stage: "out".to_owned(), path, rows: 1, bytes: 2 }
    }

    /// A command that fits often, from three numbers.
    fn command(kind: u8, run: u64, number: u64) -> Command {
        let agent = info("ab", number);
        match kind {
            0 => Command::CoordinatorStarted,
            1..=3 => Command::AgentRegistered(Box::new(agent)),
            4 => Command::AgentLost { id: agent.id, cause: "gone".to_owned() },
            5..=7 => Command::Submitted(Box::new(NewJob {
                name: "job".to_owned(),
                job: "{}".to_owned(),
                dag: "{}".to_owned(),
                edge_names: vec!["src..out".to_owned()],
                file_sinks: BTreeMap::from([("out".to_owned(), VertexId(1))]),
                headers: BTreeMap::new(),
                restart: if number.is_multiple_of(2) { Restart::FromStart } else { Restart::Never },
                placed: placed(vec![agent]),
            })),
            8..=10 => Command::Prepared { run },
            11 => Command::CancelRequested { run },
            12 => Command::Stopped { run, edges: edges(), parts: vec![part("a")], answered: vec![] },
            13 => Command::Restarted { run, placed: placed(vec![agent]) },
            14 => Command::SplitTaken { run, stage: "src".to_owned(), instance: 0, split: 0 },
            15 => Command::OptionSet {
                run,
                stage: "work".to_owned(),
                option: "ms".to_owned(),
                value: number.to_string(),
            },
            16 => {
                let work = SealWork { parts: vec![part("a")], files: vec![part("b")], ..SealWork::default() };
                Command::Sealed { run, work, edges: edges() }
            }
            _ => Command::InstanceEnded {
                run,
                instance: (number % 2) as u32,
                last: Box::new(InstanceReport { instance: (number % 2) as u32, ..InstanceReport::default() }),
                files: if number % 2 == 1 { vec![part(&agent.id.name)] } else { vec![] },
            },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn replay_with_snapshots_gives_the_state_that_all_commands_give(
            numbers in prop::collection::vec((0..20u8, 0..6u64, 0..24u64), 1..80),
            batch in 1..6usize,
            every in 1..30u64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let all: Vec<Logged> = (0..)
                .zip(numbers)
                .map(|(at_ms, (kind, run, number))| Logged { at_ms, command: command(kind, run, number) })
                .collect();
            let mut state = State::default();
            for (turn, entries) in all.chunks(batch).enumerate() {
                let (mut log, found) = Log::open(folder.path()).unwrap();
                prop_assert_eq!(&found, &state, "before turn {}", turn);
                log.every = every;
                for entry in entries {
                    state.apply(entry.clone());
                }
                runtime.block_on(log.append(entries, &state)).unwrap();
                prop_assert!((commands(&log) as u64) < every, "what a snapshot holds goes");
            }
            let (log, found) = Log::open(folder.path()).unwrap();
            prop_assert_eq!(&found, &applied(&all));
            prop_assert_eq!(log.next, all.len() as u64, "numbers go on");
        }
    }
}
