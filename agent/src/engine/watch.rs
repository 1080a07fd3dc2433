//! What runs beside an engine's callers: instances, edges and slots of a run, each watched until it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tuplane_wire::message::{Event, FaultCode, WireFault};

use super::instance::Instance;
use super::internal;
use super::run::{Local, Run};
use crate::exchange::edge::Edge;

/// Runs an instance and says how it ended. A panic ends the instance, not the agent.
pub(super) async fn watch_instance(
    run: Arc<Run>,
    local: Arc<Local>,
    instance: Instance,
    events: mpsc::UnboundedSender<Event>,
) {
    let name = instance.name.clone();
    let ended = std::panic::AssertUnwindSafe(instance.run()).catch_unwind().await;
    local.counters.clock.end();
    local.counters.ended.store(true, Ordering::Relaxed);
    if matches!(ended, Ok(Ok(_))) {
        // What other agents say to all of their targets here is for nobody any more.
        local.inbox.close();
    }
    let id = local.placed.id;
    let event = match ended {
        Ok(Ok(files)) => {
            run.wait_until_arrived(&local).await;
            let last = Box::new(run.instance_report(&local));
            Event::InstanceEnded { run: run.run, instance: id, last, edges: run.ledger(), files }
        }
        Ok(Err(fault)) => Event::InstanceFailed { run: run.run, instance: id, fault },
        Err(panic) => {
            let message = format!("{name}: panicked: {}", said(panic.as_ref()));
            let fault = WireFault::new(FaultCode::Instance, message);
            Event::InstanceFailed { run: run.run, instance: id, fault }
        }
    };
    // The receiver is this agent's own control side; without it the agent is ending.
    let _ = events.send(event);
}

/// Moves an edge's rows; a panic ends the run and not only the movement.
pub(super) async fn watch_edge(run: Arc<Run>, edge: Arc<Edge>, events: mpsc::UnboundedSender<Event>) {
    let name = run.edge_name(edge.index());
    let fault = match std::panic::AssertUnwindSafe(edge.run()).catch_unwind().await {
        Ok(Ok(())) => None,
        Ok(Err(cause)) => Some(WireFault::new(FaultCode::Instance, cause)),
        Err(panic) => {
            Some(internal(&format!("moving the rows of {name} panicked: {}", said(panic.as_ref()))))
        }
    };
    if let Some(fault) = fault {
        // The receiver is this agent's own control side; without it the agent is ending.
        let _ = events.send(Event::InstanceFailed { run: run.run, instance: 0, fault });
    }
}

/// Ends slots for edges that hold rows; a panic ends the run and not only the slots.
pub(super) async fn watch_manager(run: Arc<Run>, events: mpsc::UnboundedSender<Event>) {
    let manager = run.slots_manager();
    if let Err(panic) = std::panic::AssertUnwindSafe(manager.run()).catch_unwind().await {
        let fault = internal(&format!("choosing targets panicked: {}", said(panic.as_ref())));
        // The receiver is this agent's own control side; without it the agent is ending.
        let _ = events.send(Event::InstanceFailed { run: run.run, instance: 0, fault });
    }
}

/// Copies what waits for long and keeps much more than itself alive, until the run is stopped.
pub(super) async fn compact(run: Arc<Run>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        for edge in run.stand().edges.values() {
            edge.compact(std::time::Instant::now());
        }
    }
}

/// What a panic said.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
