//! Key partitions that a committed plan moves: their sizes, the way of a group, and what is let go after the last one.

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join_all;
use tuplane_core::plan::KeyMap;
use tuplane_core::plan::placement::Instance;
use tuplane_core::route::groups::{MOST_SENT, MOST_STATE};
use tuplane_core::route::moves::{Group, moved, moves};
use tuplane_wire::message::{AgentId, AgentInfo, AgentReply, AgentRequest, FaultCode, WireFault};
use tuplane_wire::scaling::{KeyAsk, KeyGroup};

use super::{Links, of_agent, unexpected, until_answered};

/// Where the instances of a plan are.
#[derive(Debug, Clone, Default)]
pub(in crate::coordinator) struct Places {
    agents: Vec<AgentInfo>,
    instances: HashMap<u32, u16>,
}

impl Places {
    /// Of the instances that stand.
    pub(in crate::coordinator) fn new<'a>(
        agents: &[AgentInfo],
        instances: impl IntoIterator<Item = &'a Instance>,
    ) -> Self {
        let instances = instances.into_iter().map(|one| (one.id, one.agent)).collect();
        Self { agents: agents.to_vec(), instances }
    }

    /// The agent of an instance.
    pub(super) fn agent(&self, instance: u32) -> Result<&AgentId, WireFault> {
        let place = self.instances.get(&instance).and_then(|agent| self.agents.get(usize::from(*agent)));
        place.map(|agent| &agent.id).ok_or_else(|| {
            WireFault::new(
                FaultCode::Internal,
                format!("a plan is carried out, and nobody has instance {instance}"),
            )
        })
    }

    /// Agents with an instance.
    pub(super) fn all(&self) -> Vec<&AgentId> {
        let has = |index: usize| self.instances.values().any(|agent| usize::from(*agent) == index);
        let all = self.agents.iter().enumerate();
        all.filter(|(index, _)| has(*index)).map(|(_, agent)| &agent.id).collect()
    }

    /// All agents of the plan.
    pub(in crate::coordinator) fn agents(&self) -> &[AgentInfo] {
        &self.agents
    }
}

async fn ask(links: &Links, agent: &AgentId, ask: KeyAsk) -> Result<AgentReply, WireFault> {
    let answer = until_answered(links, agent, &AgentRequest::Keys(ask)).await;
    answer.map_err(|fault| of_agent(agent, fault))
}

/// What of these maps moves together, by how large the partitions are now.
pub(in crate::coordinator) async fn divide(
    links: &Links,
    run: u64,
    epoch: u64,
    places: &Places,
    maps: &[KeyMap],
) -> Result<Vec<Group>, WireFault> {
    let mut groups = Vec::new();
    for KeyMap { before, after, .. } in maps {
        let mut held: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        for ((from, _), partitions) in moved(before, after) {
            held.entry(from).or_default().extend(partitions);
        }
        let sizes = sizes_of(links, run, epoch, places, held).await?;
        let size = |partition: u16| sizes.get(&partition).copied().unwrap_or_default();
        groups.extend(moves(before, after, &size, MOST_STATE));
    }
    Ok(groups)
}

/// How large key partitions are, each in bytes; by who holds them.
async fn sizes_of(
    links: &Links,
    run: u64,
    epoch: u64,
    places: &Places,
    held: BTreeMap<u32, Vec<u16>>,
) -> Result<HashMap<u16, u64>, WireFault> {
    let sizes = held.into_iter().map(async |(instance, partitions)| {
        let agent = places.agent(instance)?;
        let sizes = KeyAsk::Sizes { run, epoch, instance, partitions: partitions.clone() };
        match ask(links, agent, sizes).await? {
            AgentReply::KeySizes(sizes) if sizes.len() == partitions.len() => {
                Ok(partitions.into_iter().zip(sizes).collect::<Vec<(u16, u64)>>())
            }
            other => Err(unexpected(agent, &other)),
        }
    });
    Ok(try_join_all(sizes).await?.into_iter().flatten().collect())
}

/// Refuses a plan that would move a key partition to another agent which is too large for that: behind the commit it would
/// end the job. `maps` are those that it moves, each with its vertex as people call it.
pub(in crate::coordinator) async fn check_sizes(
    links: &Links,
    run: u64,
    epoch: u64,
    places: &Places,
    maps: &[(String, KeyMap)],
) -> Result<(), WireFault> {
    for (label, KeyMap { before, after, .. }) in maps {
        let mut held: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
        for ((from, to), partitions) in moved(before, after) {
            if places.agent(from)? != places.agent(to)? {
                held.entry(from).or_default().extend(partitions);
            }
        }
        let sizes = sizes_of(links, run, epoch, places, held).await?;
        if let Some((partition, bytes)) = sizes.into_iter().max_by_key(|(_, bytes)| *bytes)
            && bytes > MOST_SENT
        {
            let message = format!(
                "key partition {partition} of `{label}` has {} MiB of state, and one that goes to another agent may have at \
                 most {}: keep its instances on the agents that have them, or give the job more `partitions`",
                bytes >> 20,
                MOST_SENT >> 20
            );
            return Err(WireFault::new(FaultCode::Refused, message));
        }
    }
    Ok(())
}

/// Moves a group, each step once those before it are done. What was done of it before, also by an earlier coordinator,
/// is not done again.
pub(in crate::coordinator) async fn move_group(
    links: &Links,
    places: &Places,
    group: KeyGroup,
) -> Result<(), WireFault> {
    let (from, to) = (places.agent(group.from)?, places.agent(group.to)?);
    // The new owner holds what comes before the old one hears of it, and the old one knows before any sender.
    let both: Vec<&AgentId> = if from == to { vec![to] } else { vec![to, from] };
    for owner in &both {
        ask(links, owner, KeyAsk::Begin(group.clone())).await?;
    }
    on_all(links, places, &KeyAsk::Turn(group.clone())).await?;
    ask(links, from, KeyAsk::Ship(group.clone())).await?;
    ask(links, to, KeyAsk::Await(group.clone())).await?;
    for owner in both.iter().rev() {
        ask(links, owner, KeyAsk::End(group.clone())).await?;
    }
    Ok(())
}

/// All groups have moved: lets go what holds nothing any more.
pub(in crate::coordinator) async fn release(
    links: &Links,
    places: &Places,
    run: u64,
    epoch: u64,
) -> Result<(), WireFault> {
    on_all(links, places, &KeyAsk::Release { run, epoch }).await
}

async fn on_all(links: &Links, places: &Places, all: &KeyAsk) -> Result<(), WireFault> {
    let calls = places.all().into_iter().map(|agent| ask(links, agent, all.clone()));
    try_join_all(calls).await.map(|_| ())
}

#[cfg(test)]
mod tests;
