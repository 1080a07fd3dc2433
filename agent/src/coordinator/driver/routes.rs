//! Policies of running jobs' edges: what may be set, and how they stand.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::sync::mpsc;
use tuplane_core::cluster::Job;
use tuplane_core::route::options::not_taken;
use tuplane_core::route::{Policies, RouteOptions, Setting};
use tuplane_wire::message::{AgentReply, AgentRequest, ClusterReply, FaultCode, JobRoutes, WireFault};

use super::{Note, Reply};
use crate::coordinator::links::Links;

/// A person waits for it: who does not answer is named.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of decisions in one answer, with room to spare below what a message may have.
const DECISIONS: u64 = 5 << 20;

/// A policy and its options as a command gives them; gives the options.
pub(super) fn check(
    policies: &Policies,
    policy: &str,
    options: &str,
) -> Result<BTreeMap<String, Value>, String> {
    let given = if options.is_empty() { "{}" } else { options };
    let read: BTreeMap<String, Value> =
        serde_json::from_str(given).map_err(|e| format!("the options of a policy cannot be read: {e}"))?;
    if let Some(why) = not_taken(policy, read.keys().map(String::as_str)) {
        return Err(why);
    }
    let options = RouteOptions::read(&read, Setting::Default)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    policies.make(policy, &options, 0).map_err(|e| e.to_string())?;
    Ok(read)
}

/// Asks all agents of a run, and answers with what they say.
pub(super) fn ask(
    job: &Job,
    decisions: bool,
    links: Links,
    notes: mpsc::UnboundedSender<Note>,
    reply: Reply,
) {
    let mut routes = JobRoutes {
        job: job.name.clone(),
        run: job.run,
        dag: job.dag.clone(),
        agents: job.agents.clone(),
        instances: job.standing().copied().collect(),
        edges: Vec::new(),
        silent: Vec::new(),
    };
    tokio::spawn(async move {
        let share = DECISIONS / routes.agents.len().max(1) as u64;
        let request =
            AgentRequest::Routings { run: routes.run, decisions: if decisions { share } else { 0 } };
        let calls = routes.agents.iter().map(|agent| links.call(&agent.id, request.clone(), PATIENCE));
        let answers = join_all(calls).await;
        for ((index, agent), answer) in (0u16..).zip(&routes.agents).zip(answers) {
            match answer {
                Ok(AgentReply::Routings(edges)) => routes.edges.extend(edges.into_iter().map(|e| (index, e))),
                Ok(other) => {
                    let fault = WireFault::new(FaultCode::Internal, format!("unexpected answer: {other:?}"));
                    routes.silent.push((agent.id.name.clone(), fault.message));
                }
                Err(fault) => routes.silent.push((agent.id.name.clone(), fault.message)),
            }
        }
        let result = Box::new(Ok(ClusterReply::Routes(Box::new(routes))));
        // Without its receiver the coordinator has ended.
        let _ = notes.send(Note::Answered { reply, result });
    });
}
