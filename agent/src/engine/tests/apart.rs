//! Instances that hold key partitions, or look into the tables of a join, come and go on two agents while rows flow between
//! them.

use std::collections::BTreeMap;

use tuplane_core::plan::placement::Instance as Placed;
use tuplane_core::plan::{Before, Dag, VertexId};
use tuplane_core::route::moves::{Group, moves};
use tuplane_wire::net::Listener;
use tuplane_wire::scaling::KeyGroup;

use super::*;

/// A run on agents `a` and `b`, whose instances of one vertex change.
struct Apart {
    engines: Vec<Arc<Engine>>,
    events: mpsc::UnboundedReceiver<Event>,
    plan: RunPlan,
    vertex: VertexId,
    retired: BTreeSet<u32>,
    /// Instances that have come to their end.
    ended: BTreeSet<u32>,
}

/// Engines that reach each other, and what they tell.
pub(super) async fn engines(
    folder: &std::path::Path,
    names: &[&str],
) -> (Vec<Arc<Engine>>, Vec<AgentInfo>, mpsc::UnboundedReceiver<Event>) {
    let (send, events) = mpsc::unbounded_channel();
    let (mut engines, mut agents) = (Vec::new(), Vec::new());
    for name in names {
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let config = EngineConfig {
            me: AgentId { name: (*name).to_owned(), incarnation: 1 },
            memory: 16 << 20,
            cores: 0,
            folder: own.clone(),
            state: own,
            security: Security::Insecure,
            registry: Arc::default(),
        };
        let engine = Engine::new(config, Handle::current(), send.clone(), Arc::new(NoSplits)).unwrap();
        let mut listener = Listener::bind("127.0.0.1:0", &Security::Insecure).await.unwrap();
        agents.push(AgentInfo { slots: 2, ..info(name, &listener.local_address().to_string()) });
        let accepts = Arc::clone(&engine);
        tokio::spawn(async move {
            while let Some(incoming) = listener.accept().await {
                accepts.accept_data(incoming);
            }
        });
        engines.push(engine);
    }
    (engines, agents, events)
}

/// A run on agents `a` and `b` has begun: engines, what they tell, the plan, and the vertex of a stage.
pub(super) async fn begun(
    folder: &std::path::Path,
    text: &str,
    stage: &str,
) -> (Vec<Arc<Engine>>, mpsc::UnboundedReceiver<Event>, RunPlan, VertexId) {
    let (engines, agents, events) = engines(folder, &["a", "b"]).await;
    let plan = plan_for(text, 1, agents);
    let dag: Dag = serde_json::from_str(&plan.dag).unwrap();
    let vertex = dag.find_vertex(stage).unwrap();
    for engine in &engines {
        engine.prepare(plan.clone()).await.unwrap();
    }
    for engine in &engines {
        engine.connect(plan.run).await.unwrap();
    }
    for engine in &engines {
        engine.start(plan.run).unwrap();
    }
    (engines, events, plan, vertex)
}

/// Rows go by another plan of the run; tables are copied as two coordinators do of which the first has been killed.
pub(super) async fn go_by(engines: &[Arc<Engine>], plan: &RunPlan) {
    for engine in engines {
        engine.extend(plan.clone()).await.unwrap();
    }
    for engine in engines {
        engine.connect(plan.run).await.unwrap();
    }
    for _ in 0..2 {
        let copies = engines.iter().map(|engine| engine.copy_tables(plan.run, plan.epoch));
        futures::future::try_join_all(copies).await.unwrap();
    }
    for engine in engines {
        engine.start_new(plan.run, plan.epoch).unwrap();
    }
    for engine in engines {
        engine.switch(plan.run, plan.epoch).unwrap();
    }
}

impl Apart {
    async fn new(folder: &std::path::Path, text: &str, stage: &str) -> Self {
        let (engines, events, plan, vertex) = begun(folder, text, stage).await;
        Self { engines, events, plan, vertex, retired: BTreeSet::new(), ended: BTreeSet::new() }
    }

    fn owners(&self) -> Vec<u32> {
        let of = |one: &&Placed| one.vertex == self.vertex && !self.retired.contains(&one.id);
        self.plan.instances.iter().filter(of).map(|one| one.id).collect()
    }

    fn agent_of(&self, instance: u32) -> u16 {
        self.plan.instances.iter().find(|one| one.id == instance).unwrap().agent
    }

    /// Whoever has an instance of a plan.
    fn engine(&self, plan: &RunPlan, instance: u32) -> &Arc<Engine> {
        let placed = plan.instances.iter().find(|one| one.id == instance).unwrap();
        &self.engines[usize::from(placed.agent)]
    }

    /// New instances on these agents, by index, and these go.
    async fn change(&mut self, add: &[u16], remove: &[u32]) {
        let before = &self.plan;
        let (dag, job) =
            (serde_json::from_str(&before.dag).unwrap(), serde_json::from_str(&before.job).unwrap());
        let all = Before {
            dag: &dag,
            job: &job,
            instances: &before.instances,
            retired: &self.retired,
            agents: &["a".to_owned(), "b".to_owned()],
            maps: &before.maps,
        };
        let add: Vec<_> = add.iter().map(|agent| (self.vertex, *agent)).collect();
        let after = all.change(&add, remove, &|id| self.ended.contains(&id)).unwrap();
        let map = after.maps.first();
        let stands = before.instances.iter().filter(|one| !self.retired.contains(&one.id));
        let epoch = before.epoch + 1;
        let mut plan = RunPlan {
            dag: serde_json::to_string(&after.dag).unwrap(),
            instances: stands.chain(&after.new).copied().collect(),
            epoch,
            coming: after.new.iter().map(|one| one.id).collect(),
            going: after.going.clone(),
            maps: map.iter().map(|map| (map.vertex, map.before.clone())).collect(),
            moving: map.iter().map(|map| map.vertex).collect(),
            sources: Vec::new(),
            ..before.clone()
        };
        go_by(&self.engines, &plan).await;
        let groups = map.map(|map| moves(&map.before, &map.after, &|_| 1, map.before.len() as u64 / 8));
        for (number, Group { from, to, partitions }) in (0..).zip(groups.unwrap_or_default()) {
            let group = KeyGroup { run: 1, epoch, number, from, to, partitions };
            let (from, to) = (self.engine(&plan, from), self.engine(&plan, to));
            // As two coordinators do of which the first has been killed.
            for _ in 0..2 {
                to.group_begin(&group).await.unwrap();
                from.group_begin(&group).await.unwrap();
                for engine in &self.engines {
                    engine.group_turn(&group).await.unwrap();
                }
                from.group_ship(&group).await.unwrap();
                to.group_await(&group).await.unwrap();
            }
            from.group_end(&group).unwrap();
            to.group_end(&group).unwrap();
        }
        for engine in &self.engines {
            engine.release(1, epoch).unwrap();
        }
        self.until_ended(&after.going).await;
        self.retired.extend(after.going);
        plan.maps = map.iter().map(|map| (map.vertex, map.after.clone())).collect();
        (plan.coming, plan.going) = (Vec::new(), Vec::new());
        self.plan = plan;
    }

    /// Waits until these instances have ended; gives the files of the last one.
    async fn until_ended(&mut self, instances: &[u32]) -> Vec<SinkFile> {
        let mut last = Vec::new();
        while !instances.iter().all(|id| self.ended.contains(id)) {
            let event = tokio::time::timeout(Duration::from_mins(1), self.events.recv()).await;
            match event.unwrap().unwrap() {
                Event::InstanceEnded { instance, files, .. } => {
                    self.ended.insert(instance);
                    last = files;
                }
                other => panic!("{other:?}"),
            }
        }
        last
    }

    /// What is left of the rows comes at once.
    fn faster(&self) {
        self.engines.iter().for_each(|engine| engine.set(1, "rows", "rate", "200000").unwrap());
    }

    fn taken(&self) -> u64 {
        let owners = self.owners();
        let reports = self.engines.iter().flat_map(|engine| engine.reports());
        let all = reports.flat_map(|report| report.instances);
        all.filter(|one| owners.contains(&one.instance)).map(|one| one.rows_in).sum()
    }
}

const ROWS: u64 = 80_000;

#[tokio::test(flavor = "multi_thread")]
async fn counts_go_on_without_a_gap_where_their_keys_change_agents() {
    let text = format!(
        r#"
name = "apart"
[job]
memory = "2MiB"
partitions = 64
[[stage]]
id = "rows"
op = "source"
connector = "ids"
payload = 1000
n = {ROWS}
rate = 20000
instances = 2
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % 53 as k"
[[stage]]
id = "counts"
op = "rolling_aggregate"
in = "by_key"
compute = ["count(*) as c"]
instances = 2
[[stage]]
id = "slow"
op = "work"
in = "counts"
ms = 0.01
instances = 1
[[stage]]
id = "out"
op = "sink"
in = "slow"
instances = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut apart = Apart::new(folder.path(), &text, "counts").await;
    let sink = apart.plan.instances.iter().max_by_key(|one| one.vertex).unwrap().id;
    wait("rows flow", || apart.taken() > 500).await;
    apart.change(&[1], &[]).await;
    let gone = apart.owners()[..2].to_vec();
    apart.change(&[], &gone).await;
    apart.change(&[0, 1, 0], &[]).await;
    let gone = apart.owners();
    apart.change(&[1, 0], &gone).await;
    let files = apart.until_ended(&[sink]).await;
    // Of each key: what its count was at each row.
    let mut keys: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for line in std::fs::read_to_string(&files[0].path).unwrap().lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let [id, count] = [row[0], row[row.len() - 1]].map(|text| text.parse::<u64>().unwrap());
        assert_eq!(keys.entry(id % 53).or_default().insert(count, id), None, "a count came twice");
    }
    assert_eq!(keys.len(), 53);
    for (key, counts) in keys {
        let expected = (0..ROWS).filter(|id| id % 53 == key).count() as u64;
        assert!(counts.keys().copied().eq(1..=expected), "key {key}: {} of {expected}", counts.len());
        for source in 0..2 {
            let ids: Vec<u64> = counts.values().copied().filter(|id| id % 2 == source).collect();
            assert!(ids.is_sorted(), "key {key}: rows of one source instance in another order");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_look_into_copies_of_their_tables_on_agents_that_they_come_to() {
    let text = format!(
        r#"
name = "joined"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 5000
instances = 2
[[stage]]
id = "words"
op = "source"
connector = "ids"
n = 5000
[[stage]]
id = "sized"
op = "map"
in = "words"
select = ["id as k", "id * 3 as v", "repeat('x', 200) as w"]
[[stage]]
id = "few"
op = "source"
connector = "ids"
n = 10
[[stage]]
id = "joined"
op = "hash_join"
in = ["rows", "sized", "few"]
on = ["id % 5000 = k", "id % 10 = id"]
instances = 1
[[stage]]
id = "out"
op = "sink"
in = "joined"
instances = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut apart = Apart::new(folder.path(), &text, "joined").await;
    let sink = apart.plan.instances.iter().max_by_key(|one| one.vertex).unwrap().id;
    let dag: Dag = serde_json::from_str(&apart.plan.dag).unwrap();
    let collectors: Vec<VertexId> = dag.collectors(apart.vertex).collect();
    let made = apart.plan.instances.iter().filter(|one| collectors.contains(&one.vertex));
    let made: Vec<u32> = made.map(|one| one.id).collect();
    apart.until_ended(&made).await;
    wait("rows flow", || apart.taken() > 500).await;
    let first = apart.owners();
    let here = apart.plan.instances.iter().find(|one| one.id == first[0]).unwrap().agent;
    let there = 1 - here;
    // Two where none is, one beside that; then all that were there first go, with what made their table, and one comes back.
    apart.change(&[there, there], &[]).await;
    apart.change(&[there], &first).await;
    assert!(made.iter().all(|id| apart.retired.contains(id) || here != apart.agent_of(*id)));
    apart.change(&[here], &[]).await;
    let gone = apart.owners()[..3].to_vec();
    apart.change(&[], &gone).await;
    let taken = apart.taken();
    wait("the one that came back takes rows", || apart.taken() > taken + 500).await;
    apart.faster();
    let files = apart.until_ended(&[sink]).await;
    let mut ids = BTreeSet::new();
    for line in std::fs::read_to_string(&files[0].path).unwrap().lines().skip(1) {
        let row: Vec<&str> = line.split(',').collect();
        let [id, k, v] = [row[0], row[1], row[2]].map(|text| text.parse::<u64>().unwrap());
        assert_eq!((k, v, row[3].len(), row[4]), (id % 5000, k * 3, 200, &*(id % 10).to_string()), "{line}");
        assert!(ids.insert(id), "{id} came twice");
    }
    assert_eq!(ids.len() as u64, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn fixed_pairs_leave_an_agent_as_a_whole() {
    let text = format!(
        r#"
name = "pairs"
[job]
preserve_order = true
partitions = 64
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 5000
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
key = "id % 53"
[[stage]]
id = "through"
op = "map"
in = "spread"
select = ["id"]
[[stage]]
id = "behind"
op = "work"
in = "through"
ms = 0.01
[[stage]]
id = "out"
op = "sink"
in = "behind"
parallelism = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut apart = Apart::new(folder.path(), &text, "through").await;
    let dag: Dag = serde_json::from_str(&apart.plan.dag).unwrap();
    let behind = dag.find_vertex("behind").unwrap();
    wait("rows flow", || apart.taken() > 500).await;
    let on_b = |one: &&Placed| one.agent == 1 && (one.vertex == apart.vertex || one.vertex == behind);
    let pairs: Vec<u32> = apart.plan.instances.iter().filter(on_b).map(|one| one.id).collect();
    assert_eq!(pairs.len(), 4);
    apart.change(&[], &pairs).await;
    let last = apart.plan.instances.iter().map(|one| one.vertex).max().unwrap();
    let sinks: Vec<u32> =
        apart.plan.instances.iter().filter(|one| one.vertex == last).map(|one| one.id).collect();
    apart.faster();
    apart.until_ended(&sinks).await;
    let mut ids = BTreeSet::new();
    for agent in ["a", "b"] {
        for part in parts(&folder.path().join(agent)) {
            let text = std::fs::read_to_string(part).unwrap();
            assert!(
                text.lines().skip(1).all(|line| ids.insert(line.parse::<u64>().unwrap())),
                "a row came twice"
            );
        }
    }
    assert_eq!(ids.len() as u64, ROWS);
}

/// The plan after one whose instances that go have ended: these sinks come (by agent) and go.
fn sinks(before: &RunPlan, retired: &BTreeSet<u32>, add: &[u16], remove: &[u32]) -> RunPlan {
    let dag: Dag = serde_json::from_str(&before.dag).unwrap();
    let job = serde_json::from_str(&before.job).unwrap();
    let names: Vec<String> = before.agents.iter().map(|agent| agent.id.name.clone()).collect();
    let (instances, maps) = (&before.instances, &before.maps);
    let all = Before { dag: &dag, job: &job, instances, retired, agents: &names, maps };
    let add: Vec<_> = add.iter().map(|agent| (dag.find_vertex("out").unwrap(), *agent)).collect();
    let after = all.change(&add, remove, &|_| false).unwrap();
    let stands = before.instances.iter().filter(|one| !retired.contains(&one.id));
    RunPlan {
        dag: serde_json::to_string(&after.dag).unwrap(),
        instances: stands.chain(&after.new).copied().collect(),
        epoch: before.epoch + 1,
        coming: after.new.iter().map(|one| one.id).collect(),
        going: remove.to_vec(),
        ..before.clone()
    }
}

/// Carries out a plan on these engines.
async fn carry(engines: &[&Arc<Engine>], plan: &RunPlan) {
    for engine in engines {
        engine.extend(plan.clone()).await.unwrap();
    }
    for engine in engines {
        engine.connect(1).await.unwrap();
    }
    for engine in engines {
        engine.start_new(1, plan.epoch).unwrap();
    }
    for engine in engines {
        engine.switch(1, plan.epoch).unwrap();
    }
}

/// An agent is emptied and ends; later plans neither wait for it nor send to it, and one in its place gets rows.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_given_back_is_not_met_again_and_another_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
name = "lasting"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = 100000000
rate = 2000
instances = 1
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
[[stage]]
id = "out"
op = "sink"
in = "spread"
instances = 2
connector = "file"
format = "csv"
path = "out"
"#;
    let (mut engines, mut agents, mut events) = engines(folder.path(), &["a", "b", "c"]).await;
    let third = agents.pop().unwrap();
    let first = plan_for(text, 1, agents);
    let source = first.instances.iter().min_by_key(|one| one.vertex).unwrap().agent;
    let (stays, leaves) = (usize::from(source), usize::from(1 - source));
    let mut plan = first;
    for engine in &engines[..2] {
        engine.prepare(plan.clone()).await.unwrap();
    }
    for engine in &engines[..2] {
        engine.connect(1).await.unwrap();
    }
    for engine in &engines[..2] {
        engine.start(1).unwrap();
    }
    let taken = |engine: &Engine, instance: u32| {
        let all = engine.reports().into_iter().flat_map(|report| report.instances);
        all.filter(|one| one.instance == instance).map(|one| one.rows_in).sum::<u64>()
    };
    let there = plan.instances.iter().filter(|one| usize::from(one.agent) == leaves).map(|one| one.id);
    let gone: BTreeSet<u32> = there.collect();
    assert!(!gone.is_empty());
    wait("rows go to both", || gone.iter().all(|id| taken(&engines[leaves], *id) > 50)).await;
    let none = BTreeSet::new();
    plan = sinks(&plan, &none, &[], &gone.iter().copied().collect::<Vec<_>>());
    carry(&[&engines[0], &engines[1]], &plan).await;
    let mut left = gone.clone();
    while !left.is_empty() {
        match events.recv().await.unwrap() {
            Event::InstanceEnded { instance, .. } => left.remove(&instance),
            other => panic!("{other:?}"),
        };
    }
    let session = || lock(&engines[stays].shared.outbound).len();
    assert_eq!(session(), 1);
    // It is given back: it answers nobody, and nobody is told that it is to be met.
    let back = engines[leaves].shared.me.clone();
    engines[stays].peer_lost(&back);
    engines[leaves].close();
    // A plan without it, which is given up; and one with another agent in its place.
    let mut other = sinks(&plan, &gone, &[source], &[]);
    engines[stays].extend(other.clone()).await.unwrap();
    engines[stays].connect(1).await.unwrap();
    engines[stays].abort(1, other.epoch).await;
    assert_eq!(session(), 0);
    other = RunPlan { agents: plan.agents.iter().cloned().chain([third.clone()]).collect(), ..plan.clone() };
    other.epoch += 1;
    let mut next = sinks(&other, &gone, &[2], &[]);
    engines[stays].extend(next.clone()).await.unwrap();
    assert_eq!(session(), 1);
    engines[stays].abort(1, next.epoch).await;
    wait("no session is kept for what was given up", || session() == 0).await;
    next.epoch += 1;
    let last = next.coming[0];
    carry(&[&engines[stays], &engines[2]], &next).await;
    wait("rows go to the new one", || taken(&engines[2], last) > 50).await;
    for engine in engines.drain(..) {
        // One of them has no run any more.
        let _ = engine.stop(1, "test", true).await;
    }
}
