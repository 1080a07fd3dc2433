//! The runs of an experiment: those that its folder of results lacks are done, and each is written as it ends.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::folder::FolderError;
use super::table::TableError;
use super::{Claims, Columns, Folder, Record, State, Stop, Table, run_all};

/// The table of runs.
pub const RUNS: &str = "runs.csv";

/// Why runs cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// The folder of results.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The table of runs.
    #[error("{path}: {cause}", path = path.display())]
    Table {
        /// Where.
        path: PathBuf,
        /// Why.
        cause: TableError,
    },
    /// It cannot be added to.
    #[error("cannot write {path}: {cause}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Runs that are done.
    pub done: usize,
    /// Of so many.
    pub all: usize,
    /// What is likely to be left to wait.
    pub left: Duration,
}

/// What came of it.
#[derive(Debug)]
pub enum Finished {
    /// All runs are done, and this is what they show.
    Complete(Box<Claims>),
    /// It was interrupted; the folder can be gone on with.
    Interrupted {
        /// Runs that are done.
        done: usize,
        /// Of so many.
        all: usize,
    },
}

/// An experiment's runs, which do not depend on one another.
pub trait Runs: Sync {
    /// What is set in one, its seed or the number of its repeat included.
    type Run: Sync;
    /// Why one cannot be done.
    type Error: From<RunsError> + std::fmt::Display + Send;

    /// The columns of the table.
    fn columns(&self) -> Columns;
    /// All of them, in the table's order.
    fn runs(&self) -> &[Self::Run];
    /// What names one in the table.
    fn factors(&self, run: &Self::Run) -> Vec<String>;
    /// So many are done at a time.
    fn threads(&self) -> usize;
    /// Does one; `None`: it was interrupted.
    ///
    /// # Errors
    /// If it cannot be done.
    fn run(&self, run: &Self::Run) -> Result<Option<Record>, Self::Error>;
    /// Writes what all of them show.
    ///
    /// # Errors
    /// If a figure has no points, or a file cannot be written.
    fn show(&self, folder: &Folder, table: &Table) -> Result<Claims, Self::Error>;
}

/// Does what has not been done, and writes what it shows.
///
/// # Errors
/// If a run fails or something cannot be written. The folder is then marked as incomplete, with the reason.
pub fn finish<R: Runs>(
    of: &R,
    mut folder: Folder,
    stop: &Stop,
    progress: impl FnMut(Progress),
) -> Result<Finished, R::Error> {
    let mut done = 0;
    let finished = finish_runs(of, &mut folder, stop, progress, &mut done);
    let (state, why) = match &finished {
        Ok(Finished::Complete(_)) => (State::Complete, None),
        Ok(Finished::Interrupted { .. }) => (State::Incomplete, Some("interrupted".to_owned())),
        Err(error) => (State::Incomplete, Some(error.to_string())),
    };
    folder.mark(state, why, done).map_err(RunsError::from)?;
    finished
}

fn finish_runs<R: Runs>(
    of: &R,
    folder: &mut Folder,
    stop: &Stop,
    mut progress: impl FnMut(Progress),
    done: &mut usize,
) -> Result<Finished, R::Error> {
    let path = folder.path().join(RUNS);
    let fault = |cause: TableError| RunsError::Table { path: path.clone(), cause };
    let old = match std::fs::File::open(&path) {
        Ok(file) => Table::read(of.columns(), file).map_err(fault)?,
        Err(_) => Table::new(of.columns(), Vec::new()),
    };
    let runs = of.runs();
    let mut records: Vec<Option<Record>> =
        runs.iter().map(|run| old.find(&of.factors(run)).cloned()).collect();
    let pending: Vec<usize> = (0..records.len()).filter(|index| records[*index].is_none()).collect();
    *done = records.len() - pending.len();

    // What is there is written anew, so that nothing follows a line that was cut off.
    let whole = |records: Vec<Record>| -> Result<Vec<u8>, RunsError> {
        let mut text = Vec::new();
        Table::new(of.columns(), records).write(&mut text).map_err(|cause| fault(cause.into()))?;
        Ok(text)
    };
    let mut file = {
        let there = whole(records.iter().flatten().cloned().collect())?;
        folder.write(RUNS, &there).and_then(|_| folder.append(RUNS)).map_err(RunsError::from)?
    };
    let (all, started) = (records.len(), Instant::now());
    let work = |number: usize| of.run(&runs[pending[number]]);
    run_all(pending.len(), of.threads(), stop, work, |number, record| {
        let Some(record) = record else { return Ok(()) };
        let mut row = csv::Writer::from_writer(Vec::new());
        record.write(&mut row).map_err(|cause| fault(cause.into()))?;
        let row = row.into_inner().unwrap_or_default();
        file.write_all(&row).map_err(|cause| RunsError::Write { path: path.clone(), cause })?;
        records[pending[number]] = Some(record);
        *done += 1;
        let here = *done - (all - pending.len());
        let left = started.elapsed().mul_f64((all - *done) as f64 / here as f64);
        progress(Progress { done: *done, all, left });
        Ok::<_, R::Error>(())
    })?;
    if *done < all {
        return Ok(Finished::Interrupted { done: *done, all });
    }
    let table = Table::new(of.columns(), records.into_iter().flatten().collect());
    let text = whole(table.records().to_vec())?;
    folder.write(RUNS, &text).map_err(RunsError::from)?;
    Ok(Finished::Complete(Box::new(of.show(folder, &table)?)))
}
