//! Instances that hold key partitions come and go on two agents while rows flow between them.

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
}

/// Engines that reach each other, and what they tell.
pub(super) async fn engines(
    folder: &std::path::Path,
) -> (Vec<Arc<Engine>>, Vec<AgentInfo>, mpsc::UnboundedReceiver<Event>) {
    let (send, events) = mpsc::unbounded_channel();
    let (mut engines, mut agents) = (Vec::new(), Vec::new());
    for name in ["a", "b"] {
        let own = folder.join(name);
        std::fs::create_dir(&own).unwrap();
        let config = EngineConfig {
            me: AgentId { name: name.to_owned(), incarnation: 1 },
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

impl Apart {
    async fn new(folder: &std::path::Path, text: &str, stage: &str) -> Self {
        let (engines, agents, events) = engines(folder).await;
        let plan = plan_for(text, 1, agents);
        let dag: Dag = serde_json::from_str(&plan.dag).unwrap();
        let vertex = dag.find_vertex(stage).unwrap();
        for engine in &engines {
            engine.prepare(plan.clone()).await.unwrap();
        }
        for engine in &engines {
            engine.connect(1).await.unwrap();
        }
        for engine in &engines {
            engine.start(1).unwrap();
        }
        Self { engines, events, plan, vertex, retired: BTreeSet::new() }
    }

    fn owners(&self) -> Vec<u32> {
        let of = |one: &&Placed| one.vertex == self.vertex && !self.retired.contains(&one.id);
        self.plan.instances.iter().filter(of).map(|one| one.id).collect()
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
        let after = all.change(&add, remove, &|_| false).unwrap();
        let [map] = &after.maps[..] else { panic!("{:?}", after.maps) };
        let stands = before.instances.iter().filter(|one| !self.retired.contains(&one.id));
        let epoch = before.epoch + 1;
        let mut plan = RunPlan {
            dag: serde_json::to_string(&after.dag).unwrap(),
            instances: stands.chain(&after.new).copied().collect(),
            epoch,
            coming: after.new.iter().map(|one| one.id).collect(),
            going: remove.to_vec(),
            maps: BTreeMap::from([(self.vertex, map.before.clone())]),
            moving: vec![self.vertex],
            sources: Vec::new(),
            ..before.clone()
        };
        for engine in &self.engines {
            engine.extend(plan.clone()).await.unwrap();
        }
        for engine in &self.engines {
            engine.connect(1).await.unwrap();
        }
        for engine in &self.engines {
            engine.start_new(1, epoch).unwrap();
        }
        for engine in &self.engines {
            engine.switch(1, epoch).unwrap();
        }
        for (number, Group { from, to, partitions }) in
            (0..).zip(moves(&map.before, &map.after, &|_| 1, map.before.len() as u64 / 8))
        {
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
        let mut going: BTreeSet<u32> = remove.iter().copied().collect();
        while !going.is_empty() {
            match self.events.recv().await.unwrap() {
                Event::InstanceEnded { instance, .. } => {
                    going.remove(&instance);
                }
                other => panic!("{other:?}"),
            }
        }
        self.retired.extend(remove);
        plan.maps = BTreeMap::from([(self.vertex, map.after.clone())]);
        (plan.coming, plan.going) = (Vec::new(), Vec::new());
        self.plan = plan;
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
    let files = loop {
        let event = tokio::time::timeout(Duration::from_mins(1), apart.events.recv()).await;
        match event.unwrap().unwrap() {
            Event::InstanceEnded { instance, files, .. } if instance == sink => break files,
            Event::InstanceEnded { .. } => {}
            other => panic!("{other:?}"),
        }
    };
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
