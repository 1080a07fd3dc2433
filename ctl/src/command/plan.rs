//! `tuplane plan`: the planned graph of a job file, or of planner cases.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use tuplane_core::job::{Case, cases};
use tuplane_core::plan::{self, When};

use crate::args::Overrides;
use crate::failure::{Failure, Outcome};
use crate::jobfile::{JobFile, types};
use crate::output::{Format, Output, safe};

/// Options of `plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The job file, or a JSON file of planner cases (answered in JSON, one element a case);
    /// `-` reads standard input
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Refuses a job in which something has no effect (exit 2)
    #[arg(long)]
    strict: bool,
}

pub(super) fn run(args: &Args, output: &mut Output) -> Outcome {
    let file = JobFile::read(&args.file, &args.overrides)?;
    if let Some(found) = cases(&file.text) {
        return answer(&file, found, output);
    }
    let job = match file.parse() {
        Ok(job) => job,
        Err(faults) => return Err(file.refuse(&faults, output)),
    };
    let dag = match plan::plan(&job) {
        Ok(dag) => dag,
        Err(error) => return Err(file.refuse(&[error.fault], output)),
    };
    for unknown in job.registered_policies() {
        output.warning(&safe::line(&unknown.to_string()));
    }
    if !types(&job).is_empty() {
        output.notice("expressions were not checked: `tuplane check`");
    }
    match output.format {
        Format::Text => output.text(&safe::lines(&plan::text(&safe::line(&job.name), &dag)))?,
        Format::Dot => output.text(&safe::lines(&plan::dot(&safe::line(&job.name), &dag)))?,
        Format::Json | Format::Jsonl => output.value(&plan::json(&job.name, &dag))?,
    }
    if args.strict && dag.notes.iter().any(|note| note.no_effect) {
        output.notice("--strict: something in this job has no effect (see the notes)");
        return Err(Failure::Shown);
    }
    Ok(())
}

/// Each case gets one element: an array is answered by an array, one case by an object.
fn answer(file: &JobFile, found: Vec<Case>, output: &mut Output) -> Outcome {
    if output.format == Format::Dot {
        return Err(Failure::Usage("planner cases are answered in JSON; dot draws one job file".into()));
    }
    let mut answers: Vec<Value> = found.into_iter().map(|(id, job)| case(&id, job)).collect();
    let is_array = file.text.trim_start_matches('\u{feff}').trim_start().starts_with('[');
    match answers.pop() {
        Some(only) if !is_array => output.value(&only),
        last => {
            answers.extend(last);
            output.value(&Value::Array(answers))
        }
    }
}

fn case(id: &str, job: Result<tuplane_core::job::Job, Vec<tuplane_core::fault::Fault>>) -> Value {
    let answer = match job {
        Ok(job) => match plan::plan(&job) {
            Ok(dag) => plan::case_json(&dag),
            Err(error) => plan::case_error_json(&error),
        },
        Err(faults) => {
            let sentences: Vec<String> = faults.iter().map(ToString::to_string).collect();
            json!({"error": sentences.join("; "), "when": When::ApiCall.name()})
        }
    };
    let mut fields = Map::from_iter([("id".to_owned(), Value::from(id))]);
    if let Value::Object(rest) = answer {
        fields.extend(rest);
    }
    Value::Object(fields)
}
