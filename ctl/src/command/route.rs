//! `tuplane route`.

use serde_json::json;
use tuplane_wire::message::ClusterRequest;

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::{Output, safe};

/// Options of `route`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// The edge, such as lines..work (see `tuplane status`)
    edge: String,
    /// The policy: round-robin or shuffle
    policy: String,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    let Args { job, edge, policy } = args;
    cluster
        .tell(ClusterRequest::Route { job: job.clone(), edge: edge.clone(), policy: policy.clone() })
        .await?;
    if output.is_text() {
        output.text(&safe::line(&format!("{job}: {edge} goes by {policy}")))
    } else {
        output.document("route", &json!({"job": job, "edge": edge, "policy": policy}))
    }
}
