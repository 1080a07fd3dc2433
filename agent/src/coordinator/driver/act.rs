//! What commands lead to: effects, carried out apart from the driver, and the end of a finished run.

use std::time::{Duration, Instant};

use tuplane_core::cluster::{Asked, Command, Effect};
use tuplane_wire::message::{AgentId, AgentRequest, EdgeLedger, FaultCode};

use super::{Driver, Note, Reply, Turn, ids, wall_ms};
use crate::coordinator::live::LiveRun;
use crate::coordinator::{check, effects};

/// How long a finished run may take until its last rows are accounted for.
const SETTLE: Duration = Duration::from_secs(3);

impl Driver {
    /// Asks agents for a change, which becomes a command once they have all taken it.
    pub(super) fn change(
        &mut self,
        run: u64,
        what: String,
        agents: Vec<AgentId>,
        ask: AgentRequest,
        command: Command,
        reply: Reply,
    ) {
        let (by, at_ms) = (self.asker(), wall_ms());
        let asked = Asked { what, by, at_ms, run: Some(run), plan: None, fault: None };
        *self.changing.entry(run).or_default() += 1;
        let (links, notes) = (self.links.clone(), self.notes.clone());
        tokio::spawn(async move {
            let result = effects::change(&links, &agents, ask).await;
            // Without its receiver the coordinator has ended.
            let _ = notes.send(Note::Changed { run, asked, command, result, reply });
        });
    }

    /// Ends a run that was sealed, once all its rows are accounted for.
    pub(super) fn settle(&mut self, turn: &mut Turn, run: u64, now: Instant) {
        let Some((since, _)) = self.settling.get(&run) else { return };
        let Some(job) = self.state.run(run) else {
            self.settling.remove(&run);
            return;
        };
        // What was pending when it finished comes later, and its ledger stands.
        let finished = !job.is_live();
        let live = self.live.run(run);
        let late = now.saturating_duration_since(*since) > SETTLE;
        if !finished && !late && !live.is_some_and(LiveRun::is_settled) {
            return;
        }
        let edges = live.map(LiveRun::final_ledger).unwrap_or_default();
        if let Some((_, work)) = self.settling.remove(&run) {
            self.apply(turn, Command::Sealed { run, work, edges });
            if let Some(job) = self.state.run(run).filter(|job| !finished && !job.is_live()) {
                self.name_unsettled(run, &job.ledger);
                let agents: Vec<_> = job.agents.iter().map(|agent| agent.id.clone()).collect();
                let links = self.links.clone();
                // Its files may still be fetched; its instances and queues are not needed any more.
                let ask = AgentRequest::Stop { run, reason: "finished".to_owned(), discard: false };
                tokio::spawn(async move { effects::tell(&links, &agents, ask).await });
            }
        }
    }

    /// A finished run whose rows do not add up is a defect, or a report that never came.
    fn name_unsettled(&self, run: u64, edges: &[EdgeLedger]) {
        for edge in edges {
            let accounted = edge.accounted();
            if !edge.is_settled() {
                let names = self.state.run(run).map(|job| &job.edge_names);
                let name = names.and_then(|names| names.get(edge.edge as usize)).map_or("?", String::as_str);
                tracing::warn!(
                    run,
                    edge = name,
                    emitted = edge.emitted,
                    accounted,
                    difference = edge.emitted.abs_diff(accounted),
                    "a finished run's ledger is not exact"
                );
            }
        }
    }

    /// Carries out an effect; what takes long goes on beside the driver and comes back as a note.
    pub(super) async fn act(&mut self, effect: Effect) {
        let (links, notes) = (self.links.clone(), self.notes.clone());
        match effect {
            Effect::Prepare { run } => self.begin(run),
            Effect::Stop { run, agents, reason, discard } => {
                self.settling.remove(&run);
                let beginning = self.beginning.remove(&run);
                tokio::spawn(async move {
                    if let Some(beginning) = beginning {
                        beginning.abort();
                    }
                    let last = effects::stop(&links, run, &agents, &reason, discard).await;
                    let _ = notes.send(Note::Stopped { run, last });
                });
            }
            Effect::Replace { run } => {
                let Some(job) = self.state.run(run) else { return };
                let (job, dag, around) = (job.job.clone(), job.dag.clone(), self.surroundings());
                tokio::task::spawn_blocking(move || {
                    let result = check::place_again(&job, &dag, &around);
                    let _ = notes.send(Note::Placed { run, result });
                });
            }
            Effect::Seal { run, tasks } => {
                tokio::spawn(async move {
                    let work = effects::seal(&links, run, tasks).await;
                    let _ = notes.send(Note::Sealed { run, work });
                });
            }
            Effect::Forget { run, agents } => {
                self.live.forget(run);
                self.shown.remove(&run);
                self.fixed.remove(&run);
                tokio::spawn(
                    async move { effects::tell(&links, &agents, AgentRequest::Forget { run }).await },
                );
            }
            Effect::Set { run, stage, option, value } => {
                self.tell_run(run, AgentRequest::Set { run, stage, option, value });
            }
            Effect::Route { run, edge, policy, options } => {
                self.tell_run(run, AgentRequest::Route { run, edge, policy, options });
            }
            Effect::TellPeersLost { id } => {
                self.links.remove(&id);
                let agents: Vec<_> = self.state.alive().map(|info| info.id.clone()).collect();
                tokio::spawn(async move { effects::tell(&links, &agents, AgentRequest::PeerLost(id)).await });
            }
            Effect::Extend { run, epoch } => self.extend(run, epoch),
            Effect::Switch { run, epoch } => self.switch(run, epoch),
            Effect::Divide { run, epoch } => self.divide(run, epoch),
            Effect::Move { run, epoch, group } => self.move_group(run, epoch, group),
            Effect::Release { run, epoch } => self.release_owners(run, epoch),
            Effect::GiveSources { run, epoch } => self.give_sources(run, epoch),
            Effect::HandSources { run, epoch } => self.hand_sources(run, epoch),
            Effect::Abort { run, epoch, agents } => {
                tokio::spawn(async move { effects::abort(&links, &agents, run, epoch).await });
            }
            Effect::EndAgents => {
                let agents: Vec<_> = self
                    .state
                    .alive()
                    .map(|info| info.id.clone())
                    .filter(|id| *id != self.config.me)
                    .collect();
                let told = effects::tell(&links, &agents, AgentRequest::Shutdown);
                // An agent that does not answer ends with its lease.
                let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
                self.ending = true;
            }
        }
    }

    fn begin(&mut self, run: u64) {
        let Some(job) = self.state.run(run) else { return };
        let plan = self.run_plan(job);
        let (links, notes) = (self.links.clone(), self.notes.clone());
        let agents = job.agents.clone();
        let task = tokio::spawn(async move {
            let command = match effects::begin(&links, plan).await {
                Ok(()) => Command::Prepared { run },
                Err(fault) => {
                    if fault.code == FaultCode::Agent {
                        // An agent that died is a loss, whichever of its peers saw that first. The
                        // loss is noted before, and then the failed beginning changes nothing.
                        for (id, cause) in links.gone_among(&agents).await {
                            let _ = notes.send(Note::Gone { id, cause });
                        }
                    }
                    Command::PrepareFailed { run, fault }
                }
            };
            let _ = notes.send(Note::Happened(command));
        });
        self.beginning.insert(run, task.abort_handle());
    }

    fn tell_run(&self, run: u64, ask: AgentRequest) {
        let Some(job) = self.state.run(run) else { return };
        let (links, agents) = (self.links.clone(), ids(job));
        tokio::spawn(async move { effects::tell(&links, &agents, ask).await });
    }
}
