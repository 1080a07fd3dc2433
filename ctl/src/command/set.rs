//! `tuplane set`.

use serde_json::{Value, json};
use tuplane_wire::message::ClusterRequest;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::{Output, safe};

/// Options of `set`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// What to change, such as work.ms=10
    #[arg(value_name = "STAGE.OPTION=VALUE", value_parser = assignment)]
    assignment: Assignment,
}

#[derive(Debug, Clone, PartialEq)]
struct Assignment {
    stage: String,
    option: String,
    value: Value,
}

/// The value is JSON where it reads as such, else text.
fn assignment(text: &str) -> Result<Assignment, String> {
    let parts = text.split_once('=').and_then(|(target, value)| Some((target.split_once('.')?, value)));
    match parts {
        Some(((stage, option), value)) if !stage.is_empty() && !option.is_empty() => Ok(Assignment {
            stage: stage.into(),
            option: option.into(),
            value: serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        }),
        _ => Err("write STAGE.OPTION=VALUE".into()),
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let Assignment { stage, option, value } = args.assignment;
    let request = ClusterRequest::Set {
        job: args.job.clone(),
        stage: stage.clone(),
        option: option.clone(),
        value: value.to_string(),
    };
    cluster.tell(request).await?;
    if output.is_text() {
        output.text(&safe::line(&format!("{}: {stage}.{option} = {value}", args.job)))
    } else {
        output.document("set", &json!({"job": args.job, "stage": stage, "option": option, "value": value}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json_or_text() {
        let parsed = |text| assignment(text).map(|a| (a.stage, a.option, a.value));
        assert_eq!(parsed("work.ms=10"), Ok(("work".into(), "ms".into(), json!(10))));
        assert_eq!(parsed("work.ms=[1, 2]"), Ok(("work".into(), "ms".into(), json!([1, 2]))));
        assert_eq!(parsed("work.mode=spin"), Ok(("work".into(), "mode".into(), json!("spin"))));
        assert!(parsed("ms=10").is_err() && parsed("work.ms").is_err() && parsed(".ms=1").is_err());
    }
}
