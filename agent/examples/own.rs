//! An agent with a source, an operator, a closure, a sink and a service of its own, and a job that uses them.
//!
//! `own job` prints the job; without arguments the program is an agent, which `tuplane up --agent` starts.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tuplane_agent::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use tuplane_agent::arrow::datatypes::{DataType, Float64Type, Int64Type, SchemaRef};
use tuplane_agent::builder::{Pipeline, sinks, sources};
use tuplane_agent::registry::{
    Answering, CallError, Context, Failure, Given, Next, Operator, OperatorKind, Out, PartFile, Service,
    ServiceKind, Sink, SinkFile, SinkFiles, SinkFolder, SinkKind, Source, SourceKind, Taken, columns,
};
use tuplane_agent::{Allocator, Registry};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("job") {
        return print_job();
    }
    tuplane_agent::run(registry())
}

/// What this agent has. A version is raised when what stands behind a name changes.
fn registry() -> Registry {
    Registry::new()
        .source("readings", 1, Readings)
        .closure("celsius", 1, &[("sensor", "text"), ("celsius", "double")], celsius)
        .operator("top", 1, Top)
        .sink("report", 1, Report)
        .service("rooms", 1, Rooms)
}

/// The three highest temperatures of each sensor.
fn print_job() -> ExitCode {
    let pipeline = Pipeline::new("hottest");
    pipeline
        .read(sources::registered("readings", json!({ "rows": 3000, "sensors": 7 })))
        .id("readings")
        .rebalance()
        .custom_transform("celsius", json!({}))
        .id("celsius")
        .group_by("sensor")
        .custom_transform("top", json!({ "rows": 3 }))
        .id("top")
        .write(sinks::registered("report", json!({ "folder": "report" })))
        .id("report");
    match pipeline.to_json() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            for fault in faults {
                eprintln!("{fault}");
            }
            ExitCode::FAILURE
        }
    }
}

/// A source: made-up readings, `sensor` and `fahrenheit`.
struct Readings;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadingsOptions {
    rows: i64,
    sensors: i64,
}

impl SourceKind for Readings {
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure> {
        if given.options::<ReadingsOptions>()?.sensors < 1 {
            return Err("`sensors` must be 1 or more".into());
        }
        columns(&[("sensor", "text"), ("fahrenheit", "bigint")])
    }

    fn make(&self, context: Context) -> Result<Box<dyn Source>, Failure> {
        let (options, output) = (context.options()?, context.output);
        let (next, step) = (i64::from(context.instance), i64::from(context.instances));
        Ok(Box::new(ReadingsInstance { options, output, next, step }))
    }

    fn blocks(&self) -> bool {
        false
    }
}

/// Instance i of k makes the rows i, i + k, i + 2k, ...
struct ReadingsInstance {
    options: ReadingsOptions,
    output: SchemaRef,
    next: i64,
    step: i64,
}

impl Source for ReadingsInstance {
    fn next(&mut self, most: usize) -> Result<Next, Failure> {
        let left = self.next..self.options.rows;
        let rows: Vec<i64> = left.step_by(self.step as usize).take(most).collect();
        let Some(last) = rows.last() else { return Ok(Next::End) };
        self.next = last + self.step;
        let sensor: StringArray =
            rows.iter().map(|row| Some(format!("s{}", row % self.options.sensors))).collect();
        let fahrenheit: Int64Array = rows.iter().map(|row| Some(row % 1000)).collect();
        let made: Vec<ArrayRef> = vec![Arc::new(sensor), Arc::new(fahrenheit)];
        Ok(Next::Rows(RecordBatch::try_new(self.output.clone(), made)?))
    }
}

/// A closure over batches: `sensor` stays, `fahrenheit` becomes `celsius`. On other columns it panics.
fn celsius(batch: &RecordBatch) -> Result<RecordBatch, Failure> {
    let fahrenheit = batch.column(1).as_primitive::<Int64Type>();
    let celsius: Float64Array = fahrenheit.unary(|degrees| (degrees as f64 - 32.0) / 1.8);
    let columns = columns(&[("sensor", "text"), ("celsius", "double")])?;
    Ok(RecordBatch::try_new(columns, vec![batch.column(0).clone(), Arc::new(celsius)])?)
}

/// A keyed operator: the highest values of the last column, for each key, at the end of input.
struct Top;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TopOptions {
    rows: usize,
}

impl OperatorKind for Top {
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure> {
        given.options::<TopOptions>()?;
        let ([key], Some(value)) = (given.key, given.input.fields().last()) else {
            return Err("it stands behind a `group_by` with one key".into());
        };
        match (key.data_type(), value.data_type()) {
            (DataType::Utf8, DataType::Float64) => {
                columns(&[(key.name().as_str(), "text"), (value.name().as_str(), "double")])
            }
            _ => Err("its key must be text, and its last column double".into()),
        }
    }

    fn make(&self, context: Context) -> Result<Box<dyn Operator>, Failure> {
        let TopOptions { rows } = context.options()?;
        Ok(Box::new(TopInstance { rows, output: context.output, highest: BTreeMap::new() }))
    }
}

struct TopInstance {
    rows: usize,
    output: SchemaRef,
    /// The highest values of each key, highest first.
    highest: BTreeMap<String, Vec<f64>>,
}

impl Operator for TopInstance {
    fn rows(&mut self, taken: Taken<'_>, _out: &mut Out) -> Result<(), Failure> {
        let values = taken.batch.columns().last().ok_or("no column")?.as_primitive::<Float64Type>();
        for (key, value) in taken.keys[0].as_string::<i32>().iter().zip(values) {
            let (Some(key), Some(value)) = (key, value) else { continue };
            let highest = self.highest.entry(key.to_owned()).or_default();
            highest.insert(highest.partition_point(|other| *other > value), value);
            highest.truncate(self.rows);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Out) -> Result<(), Failure> {
        let rows =
            self.highest.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, *value)));
        let (keys, values): (Vec<&String>, Vec<f64>) = rows.unzip();
        let keys: StringArray = keys.into_iter().map(Some).collect();
        let made: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(Float64Array::from(values))];
        out.give(RecordBatch::try_new(self.output.clone(), made)?);
        Ok(())
    }
}

/// A service: in which room a sensor is.
struct Rooms;

impl ServiceKind for Rooms {
    fn output(&self, given: &Given<'_>) -> Result<SchemaRef, Failure> {
        match given.input.fields().iter().map(|field| field.data_type()).collect::<Vec<_>>()[..] {
            [DataType::Utf8] => columns(&[("room", "text")]),
            _ => Err("it is asked with a sensor, which is a text".into()),
        }
    }

    fn make(&self, context: Context) -> Result<Arc<dyn Service>, Failure> {
        Ok(Arc::new(RoomsInstance { output: context.output }))
    }
}

struct RoomsInstance {
    output: SchemaRef,
}

impl Service for RoomsInstance {
    fn name(&self, _: &RecordBatch) -> String {
        "rooms".to_owned()
    }

    fn call(&self, question: RecordBatch) -> Answering {
        let output = self.output.clone();
        Box::pin(async move {
            // A real one would wait for somebody here.
            let room = |sensor: &str| format!("room {}", sensor.trim_start_matches('s'));
            let rooms = question.column(0).as_string::<i32>().iter().map(|sensor| sensor.map(room));
            let made: Vec<ArrayRef> = vec![Arc::new(rooms.collect::<StringArray>())];
            RecordBatch::try_new(output, made).map_err(|why| CallError::lasting(why.to_string()))
        })
    }
}

/// A sink: a line of text a row, in files that become visible when the job has finished.
struct Report;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportOptions {
    folder: String,
}

impl SinkKind for Report {
    fn check(&self, given: &Given<'_>) -> Result<(), Failure> {
        given.options::<ReportOptions>()?;
        let kinds: Vec<&DataType> = given.input.fields().iter().map(|field| field.data_type()).collect();
        match kinds[..] {
            [DataType::Utf8, DataType::Float64] => Ok(()),
            _ => Err("it writes a text and a double".into()),
        }
    }

    fn make(&self, context: Context, files: SinkFiles) -> Result<Box<dyn Sink>, Failure> {
        let ReportOptions { folder } = context.options()?;
        Ok(Box::new(ReportInstance { folder: files.folder(&folder, "txt")?, file: None }))
    }
}

struct ReportInstance {
    folder: SinkFolder,
    file: Option<PartFile>,
}

impl Sink for ReportInstance {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let (names, values) =
            (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Float64Type>());
        let mut text = String::new();
        for (name, value) in names.iter().zip(values) {
            text.push_str(&format!("{} {:.1}\n", name.unwrap_or("?"), value.unwrap_or(f64::NAN)));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.folder.create()?),
        };
        file.append(text.as_bytes(), batch.num_rows())
    }

    fn finish(&mut self) -> Result<Vec<SinkFile>, Failure> {
        Ok(self.file.take().map(PartFile::finish).transpose()?.into_iter().collect())
    }
}
