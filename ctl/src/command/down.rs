//! `tuplane down`.

use serde_json::json;
use tuplane_testbed::launch::{Ended, Stopped};

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::output::{Output, safe};

/// Options of `down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) async fn run(_: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find_to_end(global, output)?;
    super::confirm(global, &format!("end cluster {} with its jobs and agents", cluster.name))?;
    let stopped = cluster.down().await?;
    if output.is_text() {
        output.text(&text(&cluster.name, &stopped))
    } else {
        let agents: Vec<_> = stopped
            .iter()
            .map(|s| json!({"agent": s.agent.name, "pid": s.agent.process.pid, "ended": word(s.how)}))
            .collect();
        output.document("down", &json!({"cluster": cluster.name, "agents": agents}))
    }
}

fn text(cluster: &str, stopped: &[Stopped]) -> String {
    let mut out = format!("cluster {} has ended", safe::line(cluster));
    for agent in stopped {
        let name = safe::line(&agent.agent.name);
        match agent.how {
            Ended::Itself => {}
            Ended::Gone => out.push_str(&format!("\n  agent {name} was already gone")),
            how => out.push_str(&format!("\n  agent {name} did not end by itself: {}", word(how))),
        }
    }
    out
}

/// How an agent ended, as documents and sentences have it.
pub(super) fn word(how: Ended) -> &'static str {
    match how {
        Ended::Gone => "already gone",
        Ended::Itself => "itself",
        Ended::Terminated => "SIGTERM",
        Ended::Killed => "SIGKILL",
        Ended::Stays => "stays",
    }
}
