//! A tidy table: a row for each run, a column for each thing that was set and each that was measured.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};

use super::stats::{Interval, interval};

/// The columns of a table, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// What was set, the seed last: together they name a run.
    pub factors: Vec<&'static str>,
    /// What was measured.
    pub metrics: Vec<&'static str>,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// As many as there are factors.
    pub factors: Vec<String>,
    /// As many as there are metrics, as [`rounded`] gives them; none where a run has no such figure.
    pub metrics: Vec<Option<f64>>,
}

/// Why a table cannot be read again.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Not CSV, or not to be read.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// Another table's columns.
    #[error("its columns are not those of this experiment: it was made by another version")]
    Columns,
    /// A figure that is none.
    #[error("line {line}: `{text}` is not a figure")]
    Figure {
        /// The line, from 1.
        line: u64,
        /// What stands there.
        text: String,
    },
}

/// A figure as the table has it: six decimals, so that what is read again is what was written.
pub fn rounded(figure: f64) -> f64 {
    const DECIMALS: f64 = 1e6;
    let rounded = (figure * DECIMALS).round() / DECIMALS;
    if rounded.is_finite() { rounded } else { figure }
}

impl Columns {
    fn header(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.factors.iter().chain(&self.metrics).copied()
    }

    /// Writes the names of the columns.
    pub fn write_header(&self, to: &mut csv::Writer<impl Write>) -> csv::Result<()> {
        to.write_record(self.header())
    }
}

impl Record {
    /// Writes its row.
    pub fn write(&self, to: &mut csv::Writer<impl Write>) -> csv::Result<()> {
        let figures = self.metrics.iter().map(|metric| metric.map(|figure| figure.to_string()));
        to.write_record(self.factors.iter().cloned().chain(figures.map(Option::unwrap_or_default)))
    }

    /// Its seed.
    fn seed(&self) -> &str {
        self.factors.last().map_or("", String::as_str)
    }

    /// Its factors but the seed: what several seeds have in common.
    pub fn cell(&self) -> &[String] {
        self.factors.split_last().map_or(&[], |(_, cell)| cell)
    }
}

/// The runs of an experiment.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Columns,
    records: Vec<Record>,
    /// The records of each cell.
    cells: HashMap<Vec<String>, Vec<usize>>,
}

impl Table {
    /// Of these runs, in this order.
    pub fn new(columns: Columns, records: Vec<Record>) -> Self {
        let mut cells: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
        for (index, record) in records.iter().enumerate() {
            cells.entry(record.cell().to_vec()).or_default().push(index);
        }
        Self { columns, records, cells }
    }

    /// Reads a table that was written before. A last line that a run was cut off in is left out: one without an end
    /// may lack digits of its last figure.
    ///
    /// # Errors
    /// If it is not a table of these columns.
    pub fn read(columns: Columns, mut from: impl Read) -> Result<Self, TableError> {
        let mut text = Vec::new();
        from.read_to_end(&mut text).map_err(csv::Error::from)?;
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(&*text);
        if !reader.headers()?.iter().eq(columns.header()) {
            return Err(TableError::Columns);
        }
        let mut records = Vec::new();
        for row in reader.records() {
            let row = row?;
            if row.len() < columns.header().count() {
                continue;
            }
            let line = row.position().map_or(0, csv::Position::line);
            let figure = |text: &str| match (text, text.parse::<f64>()) {
                ("", _) => Ok(None),
                (_, Ok(figure)) if figure.is_finite() => Ok(Some(figure)),
                _ => Err(TableError::Figure { line, text: text.to_owned() }),
            };
            let (factors, metrics) =
                (row.iter().take(columns.factors.len()), row.iter().skip(columns.factors.len()));
            records.push(Record {
                factors: factors.map(str::to_owned).collect(),
                metrics: metrics.map(figure).collect::<Result<_, _>>()?,
            });
        }
        Ok(Self::new(columns, records))
    }

    /// All of it as CSV.
    pub fn write(&self, to: impl Write) -> csv::Result<()> {
        let mut to = csv::Writer::from_writer(to);
        self.columns.write_header(&mut to)?;
        self.records.iter().try_for_each(|record| record.write(&mut to))?;
        Ok(to.flush()?)
    }

    /// Its rows.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The run of these factors, seed included.
    pub fn find(&self, factors: &[String]) -> Option<&Record> {
        let (_, cell) = factors.split_last()?;
        self.of(cell).find(|record| record.factors == factors)
    }

    /// The figures of a cell by seed; a run without the figure is left out.
    pub fn by_seed(&self, cell: &[String], metric: &str) -> BTreeMap<&str, f64> {
        let column = self.columns.metrics.iter().position(|name| *name == metric);
        let figure = |record: &'_ Record| record.metrics[column?];
        let of = |record| Some((Record::seed(record), figure(record)?));
        self.of(cell).filter_map(of).collect()
    }

    /// The mean of a cell over its seeds; none where no run has the figure.
    pub fn mean(&self, cell: &[String], metric: &str) -> Option<Interval> {
        interval(&self.by_seed(cell, metric).into_values().collect::<Vec<_>>())
    }

    fn of(&self, cell: &[String]) -> impl Iterator<Item = &Record> {
        self.cells.get(cell).into_iter().flatten().map(|index| &self.records[*index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = Columns { factors: vec!["policy", "seed"], metrics: vec!["response", "mse"] };
        let record = |policy: &str, seed: u32, response: f64| Record {
            factors: vec![policy.to_owned(), seed.to_string()],
            metrics: vec![Some(rounded(response)), None],
        };
        Table::new(columns, vec![record("a", 1, 1.0 / 3.0), record("a", 2, 2.5), record("b, c", 1, 7.0)])
    }

    fn text(table: &Table) -> String {
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_table_has_a_row_for_each_run_and_reads_as_it_was_written() {
        let table = table();
        let written = text(&table);
        assert_eq!(written, "policy,seed,response,mse\na,1,0.333333,\na,2,2.5,\n\"b, c\",1,7,\n");
        let again = Table::read(table.columns.clone(), written.as_bytes()).unwrap();
        assert_eq!(again.records(), table.records());
        assert_eq!(text(&again), written);
        // Cut off in the middle of a row, of its last figure, and before its end.
        for cut in [5, 2, 1] {
            let left =
                Table::read(table.columns.clone(), &written.as_bytes()[..written.len() - cut]).unwrap();
            assert_eq!(left.records(), &table.records()[..2]);
        }
    }

    #[test]
    fn other_columns_and_text_for_figures_are_refused() {
        let columns = table().columns;
        let other = Table::read(columns.clone(), "policy,seed,mse,response\n".as_bytes()).unwrap_err();
        assert!(matches!(other, TableError::Columns), "{other}");
        for text in ["fast", "nan", "inf"] {
            let table = format!("policy,seed,response,mse\na,1,{text},\n");
            let error = Table::read(columns.clone(), table.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), format!("line 2: `{text}` is not a figure"));
        }
    }

    #[test]
    fn a_cell_is_what_seeds_have_in_common() {
        let table = table();
        let cell = ["a".to_owned()];
        assert_eq!(table.by_seed(&cell, "response"), BTreeMap::from([("1", 0.333_333), ("2", 2.5)]));
        assert!(table.by_seed(&cell, "mse").is_empty());
        assert_eq!(table.mean(&cell, "response").unwrap().count, 2);
        assert_eq!(table.mean(&cell, "mse"), None);
        assert_eq!(table.mean(&cell, "nothing"), None);
        assert!(table.find(&["a".to_owned(), "2".to_owned()]).is_some());
        assert!(table.find(&["a".to_owned(), "3".to_owned()]).is_none());
    }
}
