//! A coordinator is killed at each step of a plan that moves key partitions or ends sources, and another goes on from its log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tuplane_core::cluster::rescale::Step;
use tuplane_core::job::{FileFormat, Job};
use tuplane_wire::message::{
    AgentId, AgentInfo, AgentReply, AgentRequest, ClusterReply, ClusterRequest, Event, FaultCode, JobPhase,
    WireFault,
};
use tuplane_wire::net::Security;
use tuplane_wire::operation::OperationNow;
use tuplane_wire::scaling::{KeyAsk, Rest, ScaleAsk, ScalePlace, SourceAsk, SourceGiven, SourceUnit};

use crate::coordinator::{Coordinator, CoordinatorConfig, OwnAgent};
use crate::registry::Registry;

mod refused;

const JOB: &str = "partitions = 12\n\
     [[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\ninstances=1\n\
     [[stage]]\nid='g'\nop='group_by'\nin='s'\nkey='id % 50 as k'\n\
     [[stage]]\nid='x'\nop='rolling_aggregate'\nin='g'\ncompute=['count(*) as n']\ninstances=2\n\
     [[stage]]\nid='k'\nop='sink'\nin='x'\nconnector='count'\ninstances=1\n";

const SOURCES: &str = "[[stage]]\nid='x'\nop='source'\nconnector='ids'\nn=90\ninstances=4\n\
     [[stage]]\nid='k'\nop='sink'\nin='x'\nconnector='count'\ninstances=1\n";

type Asked = Arc<Mutex<Vec<AgentRequest>>>;

/// An agent that does as asked, and keeps what it was asked of key partitions and sources; after so many it answers no
/// more.
fn agent(asked: &Asked, answers: usize) -> OwnAgent {
    let asked = Arc::clone(asked);
    Arc::new(move |request| {
        let asked = Arc::clone(&asked);
        Box::pin(async move {
            let reply = match &request {
                AgentRequest::Keys(KeyAsk::Sizes { partitions, .. }) => {
                    AgentReply::KeySizes(vec![100; partitions.len()])
                }
                AgentRequest::Sources(SourceAsk::Give { instance, .. }) => {
                    let rest = Rest::Rows { number: *instance, step: 4, next: u64::from(*instance) + 40 };
                    let units = vec![SourceUnit { rest, paced: None }];
                    AgentReply::SourceGiven(Box::new(SourceGiven { instance: *instance, have: None, units }))
                }
                AgentRequest::Keys(_) | AgentRequest::Sources(_) => AgentReply::Done,
                _ => return Ok(AgentReply::Done),
            };
            let before = {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.push(request);
                asked.len() - 1
            };
            if before >= answers {
                std::future::pending::<()>().await;
            }
            Ok(reply)
        })
    })
}

fn start(folder: &Path, asked: &Asked, answers: usize) -> Coordinator {
    Coordinator::start(config(folder), agent(asked, answers)).unwrap()
}

fn config(folder: &Path) -> CoordinatorConfig {
    CoordinatorConfig {
        me: AgentId { name: "a".to_owned(), incarnation: 1 },
        security: Security::Insecure,
        state: folder.to_owned(),
        folder: folder.to_owned(),
        lease: Duration::from_mins(1),
        costs: Vec::new(),
        registry: Arc::new(Registry::default()),
    }
}

fn info() -> AgentInfo {
    AgentInfo {
        id: AgentId { name: "a".to_owned(), incarnation: 1 },
        address: "127.0.0.1:1".to_owned(),
        slots: 4,
        cores: 0,
        zone: String::new(),
        pid: 0,
        version: String::new(),
        host: String::new(),
        registry: 0,
    }
}

async fn register(coordinator: &Coordinator) {
    coordinator.request(ClusterRequest::Register(info())).await.unwrap();
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute: {what}");
}

async fn phase(coordinator: &Coordinator) -> JobPhase {
    match coordinator.request(ClusterRequest::Status { job: None }).await.unwrap() {
        ClusterReply::Status(status) => status.summary.phase,
        other => panic!("{other:?}"),
    }
}

/// The one rescale of the job is done. Instances that have been asked for what they have not read end.
async fn done(coordinator: &Coordinator, asked: &Asked) {
    let given = || {
        let mut all = so_far(asked).into_iter();
        all.find_map(|ask| match ask {
            AgentRequest::Sources(SourceAsk::Take { run, .. }) => Some(run),
            _ => None,
        })
    };
    let going = until("it has been asked", async || {
        match coordinator.request(ClusterRequest::Scalings { job: "1".to_owned() }).await.unwrap() {
            ClusterReply::Scalings(all) if all.history.first()?.stopped.is_empty() => Some(vec![]),
            ClusterReply::Scalings(all) => given().map(|_| all.history[0].stopped.clone()),
            other => panic!("{other:?}"),
        }
    })
    .await;
    let ended = |instance| {
        let last = Box::default();
        Event::InstanceEnded { run: 1, instance, last, edges: vec![], files: vec![] }
    };
    let events = going.iter().map(|one| ended(one.id)).collect();
    let agent = AgentId { name: "a".to_owned(), incarnation: 1 };
    coordinator.request(ClusterRequest::Events { agent, events }).await.unwrap();
    until("the plan is done", async || {
        match coordinator.request(ClusterRequest::Scalings { job: "1".to_owned() }).await.unwrap() {
            ClusterReply::Scalings(all) => (all.history.first()?.step == Step::Done).then_some(()),
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert_eq!(phase(coordinator).await, JobPhase::Running);
}

async fn running(coordinator: &Coordinator, text: &str) {
    register(coordinator).await;
    let job = serde_json::to_string(&Job::parse(text, FileFormat::Toml).unwrap()).unwrap();
    coordinator.request(ClusterRequest::Submit { job, force: false }).await.unwrap();
    until("the job runs", async || (phase(coordinator).await == JobPhase::Running).then_some(())).await;
}

/// Three instances of `x`.
fn third(if_plan: Option<u64>, dry_run: bool) -> ClusterRequest {
    let ask = ScaleAsk::Set { vertex: "x".to_owned(), instances: 3, place: ScalePlace::Anywhere };
    ClusterRequest::Scale { job: "1".to_owned(), ask, if_epoch: None, if_plan, dry_run }
}

/// Runs the job, and asks for three instances of `x`.
async fn scale(coordinator: &Coordinator, text: &str) {
    running(coordinator, text).await;
    coordinator.request(third(None, false)).await.unwrap();
}

#[test]
fn a_plan_that_was_shown_is_carried_out_or_none_and_is_an_operation() {
    let (folder, asked) = (tempfile::tempdir().unwrap(), Asked::default());
    Runtime::new().unwrap().block_on(async {
        let coordinator = start(folder.path(), &asked, usize::MAX);
        running(&coordinator, JOB).await;
        let scaled = async |request: ClusterRequest| {
            let request = ClusterRequest::By { who: "ann@h1".to_owned(), request: Box::new(request) };
            match coordinator.request(request).await? {
                ClusterReply::Scaled(plan) => Ok::<_, WireFault>(*plan),
                other => panic!("{other:?}"),
            }
        };
        let shown = scaled(third(None, true)).await.unwrap();
        assert!(shown.id.is_some() && shown.operation.is_none());
        assert_eq!(scaled(third(None, true)).await.unwrap().id, shown.id);
        let fault = scaled(third(Some(1), false)).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Stale, "{fault}");
        let carried = scaled(third(shown.id, false)).await.unwrap();
        assert_eq!((carried.id, carried.next), (shown.id, Some(2)));
        done(&coordinator, &asked).await;
        let list = match coordinator.request(ClusterRequest::Operations { job: Some("1".to_owned()) }).await {
            Ok(ClusterReply::Operations(list)) => list,
            other => panic!("{other:?}"),
        };
        let [one] = &list.all[..] else { panic!("{list:?}") };
        let OperationNow { operation, step, moved } = one;
        assert_eq!(
            (Some(operation.id), operation.is_open(), &operation.fault),
            (carried.operation, false, &None)
        );
        assert_eq!((operation.asked.what.as_str(), operation.asked.by.as_str()), ("scale set x=3", "ann@h1"));
        assert_eq!((*step, *moved, operation.asked.plan), (Some(Step::Done), None, Some(2)));
    });
}

fn so_far(asked: &Asked) -> Vec<AgentRequest> {
    asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What the coordinator had logged when it asked this: sizes, a group by its number, or the release; or that sources have
/// given what they have not read.
fn step(ask: &AgentRequest) -> (u8, u32) {
    match ask {
        AgentRequest::Keys(ask) => match ask {
            KeyAsk::Sizes { .. } => (0, 0),
            KeyAsk::Begin(group)
            | KeyAsk::Turn(group)
            | KeyAsk::Ship(group)
            | KeyAsk::Await(group)
            | KeyAsk::End(group) => (1, group.number),
            KeyAsk::Release { .. } => (2, 0),
        },
        AgentRequest::Sources(SourceAsk::Take { .. }) => (4, 0),
        _ => (3, 0),
    }
}

/// As they are asked for at once, in no order.
fn sorted(mut asks: Vec<AgentRequest>) -> Vec<AgentRequest> {
    asks.sort_by_key(|ask| (step(ask), matches!(ask, AgentRequest::Sources(_)).then(|| format!("{ask:?}"))));
    asks
}

/// Runs it to its end once, and then as often with a coordinator that is killed at each thing that it asks.
fn killed_at_each_step(text: &str) -> Vec<AgentRequest> {
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = Asked::default();
    Runtime::new().unwrap().block_on(async {
        let coordinator = start(folder.path(), &undisturbed, usize::MAX);
        scale(&coordinator, text).await;
        done(&coordinator, &undisturbed).await;
    });
    let all = sorted(so_far(&undisturbed));
    for killed in 0..all.len() {
        let (folder, first, second) = (tempfile::tempdir().unwrap(), Asked::default(), Asked::default());
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let coordinator = start(folder.path(), &first, killed);
            scale(&coordinator, text).await;
            until("it is asked", async || (so_far(&first).len() > killed).then_some(())).await;
        });
        runtime.shutdown_timeout(Duration::from_secs(10));
        Runtime::new().unwrap().block_on(async {
            let coordinator = start(folder.path(), &second, usize::MAX);
            register(&coordinator).await;
            done(&coordinator, &second).await;
        });
        let again = all.iter().position(|ask| step(ask) == step(&all[killed])).unwrap();
        assert_eq!(sorted(so_far(&second)), all[again..], "killed when it asked {:?}", all[killed]);
    }
    all
}

#[test]
fn a_coordinator_that_takes_over_goes_on_with_the_step_that_was_under_way() {
    let all = killed_at_each_step(JOB);
    let steps: BTreeSet<_> = all.iter().map(step).collect();
    assert!(steps.len() >= 4 && all.len() > 10, "{all:?}");
}

#[test]
fn what_sources_have_not_read_is_handed_on_by_a_coordinator_that_takes_over() {
    let all = killed_at_each_step(SOURCES);
    let taken: Vec<&SourceUnit> = all
        .iter()
        .filter_map(|ask| match ask {
            AgentRequest::Sources(SourceAsk::Take { units, .. }) => Some(units),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!((all.len(), taken.len()), (6, 1), "{all:?}");
    assert_eq!(taken[0].rest, Rest::Rows { number: 3, step: 4, next: 43 });
}
