//! Groups of key partitions move over two agents, of which one is asked over a real connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tuplane_core::plan::VertexId;
use tuplane_wire::message::{ClusterReply, ClusterRequest};
use tuplane_wire::net::{Listener, Security};
use tuplane_wire::service::{Handler, Hello, serve_control};

use super::*;

/// What agents are asked, and the faults that they answer before they do as asked.
#[derive(Default)]
struct Agents {
    asked: Mutex<Vec<(String, KeyAsk)>>,
    faults: Mutex<VecDeque<WireFault>>,
    /// Bytes of each partition.
    size: u64,
}

impl Agents {
    fn answer(&self, agent: &str, request: AgentRequest) -> Result<AgentReply, WireFault> {
        let AgentRequest::Keys(ask) = request else { return Ok(AgentReply::Done) };
        let reply = match &ask {
            KeyAsk::Sizes { partitions, .. } => AgentReply::KeySizes(vec![self.size; partitions.len()]),
            _ => AgentReply::Done,
        };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((agent.to_owned(), ask));
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        fault.map_or(Ok(reply), Err)
    }

    /// Who was asked what, in short, since the last call.
    fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        let short = asked.into_iter().map(|(agent, ask)| {
            let ask = format!("{ask:?}");
            format!("{agent} {}", ask.split(['(', ' ']).next().unwrap_or_default())
        });
        short.collect()
    }
}

struct Far(Arc<Agents>);

impl Handler for Far {
    fn hello(&self) -> Hello {
        Hello::ours("0", 0)
    }

    async fn cluster(&self, _: ClusterRequest) -> Result<ClusterReply, WireFault> {
        Ok(ClusterReply::Done)
    }

    async fn agent(&self, request: AgentRequest) -> Result<AgentReply, WireFault> {
        self.0.answer("b", request)
    }
}

fn info(name: &str, address: String) -> AgentInfo {
    AgentInfo {
        id: AgentId { name: name.to_owned(), incarnation: 1 },
        address,
        slots: 1,
        cores: 0,
        zone: String::new(),
        pid: 0,
        version: String::new(),
        host: String::new(),
        registry: 0,
    }
}

/// Links to `a`, which is here, and `b`; instances 0 and 2 are on `a`, 1 and 3 on `b`.
async fn world(size: u64) -> (Links, Arc<Agents>, Places) {
    let agents = Arc::new(Agents { size, ..Agents::default() });
    let mut listener = Listener::bind("127.0.0.1:0", &Security::Insecure).await.unwrap();
    let all = [info("a", String::new()), info("b", listener.local_address().to_string())];
    let far = Arc::clone(&agents);
    tokio::spawn(async move {
        while let Some(incoming) = listener.accept().await {
            let stream = incoming.secure(&Security::Insecure).await.unwrap();
            tokio::spawn(serve_control(stream, Arc::new(Far(Arc::clone(&far)))));
        }
    });
    let (notes, _) = tokio::sync::mpsc::unbounded_channel();
    let here = Arc::clone(&agents);
    let own: crate::coordinator::OwnAgent = Arc::new(move |request| {
        let answer = here.answer("a", request);
        Box::pin(async move { answer })
    });
    let links = Links::new(all[0].id.clone(), own, Security::Insecure, Hello::ours("0", 0), notes);
    links.add(&all[1]);
    let instance = |id: u32| Instance { id, vertex: VertexId(1), number: id, agent: (id % 2) as u16 };
    let instances: Vec<Instance> = (0..4).map(instance).collect();
    (links, agents, Places::new(&all, &instances))
}

fn group(from: u32, to: u32) -> KeyGroup {
    KeyGroup { run: 1, epoch: 2, number: 0, from, to, partitions: vec![5] }
}

#[tokio::test]
async fn each_step_of_a_group_comes_when_the_one_before_is_done() {
    let (links, agents, places) = world(1).await;
    move_group(&links, &places, group(1, 2)).await.unwrap();
    let mut asked = agents.asked();
    asked[2..4].sort_unstable();
    assert_eq!(
        asked,
        ["a Begin", "b Begin", "a Turn", "b Turn", "b Ship", "a Await", "b End", "a End"],
        "the new owner holds rows before anybody sends it some, and the old one stands still until it is done"
    );
    // Both on one agent; and a lost answer, which is asked for again.
    let lost = WireFault { retryable: true, ..WireFault::new(FaultCode::Agent, "the connection broke") };
    agents.faults.lock().unwrap().push_back(lost);
    move_group(&links, &places, group(0, 2)).await.unwrap();
    let mut asked = agents.asked();
    asked[2..4].sort_unstable();
    assert_eq!(asked, ["a Begin", "a Begin", "a Turn", "b Turn", "a Ship", "a Await", "a End"]);
    release(&links, &places, 1, 2).await.unwrap();
    let mut asked = agents.asked();
    asked.sort_unstable();
    assert_eq!(asked, ["a Release", "b Release"]);
}

#[tokio::test]
async fn what_cannot_be_done_ends_it_with_the_name_of_the_agent() {
    let (links, agents, places) = world(1).await;
    let fault = WireFault::new(FaultCode::Refused, "there is no instance 2");
    agents.faults.lock().unwrap().push_back(fault);
    let said = move_group(&links, &places, group(1, 2)).await.unwrap_err();
    assert_eq!((said.code, &said.message[..]), (FaultCode::Refused, "agent a: there is no instance 2"));
    assert_eq!(agents.asked(), ["a Begin"]);
    let said = move_group(&links, &places, group(1, 9)).await.unwrap_err();
    assert_eq!(said.message, "a plan is carried out, and nobody has instance 9");
    links.remove(&places.agents[1].id);
    let said = release(&links, &places, 1, 2).await.unwrap_err();
    assert_eq!((said.code, said.retryable), (FaultCode::Agent, false), "{said:?}");
}

#[tokio::test]
async fn groups_are_as_large_as_may_be_and_go_by_what_their_owners_say() {
    let (links, agents, places) = world(MOST_STATE / 2).await;
    let map = KeyMap { vertex: VertexId(1), before: vec![0, 1, 0, 0, 0, 1], after: vec![2, 1, 2, 2, 0, 3] };
    let groups = divide(&links, 1, 2, &places, &[map]).await.unwrap();
    let group = |from, to, partitions: &[u16]| Group { from, to, partitions: partitions.to_vec() };
    assert_eq!(groups, [group(0, 2, &[0, 2]), group(0, 2, &[3]), group(1, 3, &[5])]);
    let mut asked = agents.asked();
    asked.sort_unstable();
    assert_eq!(asked, ["a Sizes", "b Sizes"], "who gives nothing is not asked");
}

#[tokio::test]
async fn a_partition_that_is_too_large_for_the_road_is_refused_before_it_moves() {
    let map = |after: [u32; 3]| {
        ("sums".to_owned(), KeyMap { vertex: VertexId(1), before: vec![0, 0, 1], after: after.to_vec() })
    };
    let (links, agents, places) = world(MOST_SENT + 1).await;
    let refused = check_sizes(&links, 1, 2, &places, &[map([0, 3, 1])]).await.unwrap_err();
    assert_eq!(refused.code, FaultCode::Refused);
    let said = "key partition 1 of `sums` has 512 MiB of state, and one that goes to another agent may have at most 512";
    assert!(refused.message.contains(said), "{refused}");
    assert_eq!(agents.asked(), ["a Sizes"]);
    check_sizes(&links, 1, 2, &places, &[map([2, 0, 3])]).await.unwrap();
    assert!(agents.asked().is_empty(), "within an agent any size moves");
    let (links, _, places) = world(MOST_SENT).await;
    check_sizes(&links, 1, 2, &places, &[map([0, 3, 1])]).await.unwrap();
}
