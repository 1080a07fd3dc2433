//! Instances that hold key partitions come and go on one agent while rows flow: no row is lost, comes twice or too late.

use std::collections::BTreeMap;

use tuplane_core::plan::{Before, Dag, VertexId};
use tuplane_core::route::moves::{Group, moves};
use tuplane_wire::scaling::KeyGroup;

use super::*;

/// A run whose instances of one vertex change.
struct Scaled {
    engine: Arc<Engine>,
    events: mpsc::UnboundedReceiver<Event>,
    plan: RunPlan,
    vertex: VertexId,
    retired: BTreeSet<u32>,
    /// Its owners now.
    owners: Vec<u32>,
    /// Files that instances which a plan has ended have written.
    files: Vec<SinkFile>,
}

impl Scaled {
    async fn new(folder: &std::path::Path, text: &str, stage: &str) -> Self {
        let (engine, events) = engine(folder);
        let agent = AgentInfo { slots: 2, ..info("a", "127.0.0.1:1") };
        let plan = plan_for(text, 1, vec![agent]);
        let dag: Dag = serde_json::from_str(&plan.dag).unwrap();
        let vertex = dag.find_vertex(stage).unwrap();
        let owners = plan.instances.iter().filter(|one| one.vertex == vertex).map(|one| one.id).collect();
        engine.prepare(plan.clone()).await.unwrap();
        engine.start(1).unwrap();
        Self { engine, events, plan, vertex, retired: BTreeSet::new(), owners, files: Vec::new() }
    }

    /// So many more instances, and these go. Each request comes twice, and none does harm when it comes too early.
    async fn change(&mut self, add: usize, remove: &[u32]) {
        let before = &self.plan;
        let dag: Dag = serde_json::from_str(&before.dag).unwrap();
        let job = serde_json::from_str(&before.job).unwrap();
        let all = Before {
            dag: &dag,
            job: &job,
            instances: &before.instances,
            retired: &self.retired,
            agents: &["a".to_owned()],
            maps: &before.maps,
        };
        let after = all.change(&vec![(self.vertex, 0); add], remove, &|_| false).unwrap();
        let [map] = &after.maps[..] else { panic!("{:?}", after.maps) };
        let stands = before.instances.iter().filter(|one| !self.retired.contains(&one.id));
        let mut plan = RunPlan {
            dag: serde_json::to_string(&after.dag).unwrap(),
            instances: stands.chain(&after.new).copied().collect(),
            epoch: before.epoch + 1,
            coming: after.new.iter().map(|one| one.id).collect(),
            going: remove.to_vec(),
            maps: BTreeMap::from([(self.vertex, map.before.clone())]),
            moving: vec![self.vertex],
            sources: Vec::new(),
            ..before.clone()
        };
        let (engine, epoch) = (&self.engine, plan.epoch);
        engine.extend(plan.clone()).await.unwrap();
        engine.connect(1).await.unwrap();
        engine.start_new(1, epoch).unwrap();
        let early = KeyGroup { run: 1, epoch, number: 0, from: 0, to: 0, partitions: Vec::new() };
        assert!(engine.group_begin(&early).await.unwrap_err().message.contains("do not go by plan"));
        for _ in 0..2 {
            engine.switch(1, epoch).unwrap();
        }
        let mut sizes = BTreeMap::new();
        for owner in &self.owners {
            let held: Vec<u16> =
                (0..).zip(&map.before).filter(|(_, of)| *of == owner).map(|(id, _)| id).collect();
            let bytes = engine.key_sizes(1, epoch, *owner, held.clone()).await.unwrap();
            sizes.extend(held.into_iter().zip(bytes));
        }
        let most = sizes.values().sum::<u64>() / 4;
        let groups = moves(&map.before, &map.after, &|partition| sizes[&partition], most);
        for (number, Group { from, to, partitions }) in (0..).zip(groups) {
            let group = KeyGroup { run: 1, epoch, number, from, to, partitions };
            for _ in 0..2 {
                engine.group_begin(&group).await.unwrap();
            }
            for _ in 0..2 {
                engine.group_turn(&group).await.unwrap();
            }
            for _ in 0..2 {
                engine.group_ship(&group).await.unwrap();
            }
            for _ in 0..2 {
                engine.group_await(&group).await.unwrap();
            }
            for _ in 0..2 {
                engine.group_end(&group).unwrap();
            }
            // From the beginning, as a coordinator does that has just taken over.
            engine.group_begin(&group).await.unwrap();
            engine.group_ship(&group).await.unwrap();
        }
        for _ in 0..2 {
            engine.release(1, epoch).unwrap();
        }
        let mut going: BTreeSet<u32> = remove.iter().copied().collect();
        while !going.is_empty() {
            match self.events.recv().await.unwrap() {
                Event::InstanceEnded { instance, files, .. } => {
                    assert!(going.remove(&instance), "{instance} ended");
                    self.files.extend(files);
                }
                other => panic!("{other:?}"),
            }
        }
        self.retired.extend(remove);
        self.owners.retain(|id| !remove.contains(id));
        self.owners.extend(&plan.coming);
        plan.maps = BTreeMap::from([(self.vertex, map.after.clone())]);
        (plan.coming, plan.going) = (Vec::new(), Vec::new());
        self.plan = plan;
    }

    /// 2, 3, 1, 4, 4 others, 2 instances, and again.
    async fn change_often(&mut self, rounds: usize) {
        assert_eq!(self.owners.len(), 2);
        for _ in 0..rounds {
            self.change(1, &[]).await;
            let gone = self.owners[..2].to_vec();
            self.change(0, &gone).await;
            self.change(3, &[]).await;
            let gone = self.owners.clone();
            self.change(4, &gone).await;
            let gone = self.owners[1..3].to_vec();
            self.change(0, &gone).await;
        }
    }

    fn taken(&self) -> u64 {
        let owners = |one: &&tuplane_wire::message::InstanceReport| self.owners.contains(&one.instance);
        self.engine.reports()[0].instances.iter().filter(owners).map(|one| one.rows_in).sum()
    }

    /// What the sink has written, when all has come to its end; each row's columns.
    async fn end(self) -> Vec<Vec<String>> {
        self.end_files().await.remove(0)
    }

    /// The same, of each file that its instances have written.
    async fn end_files(mut self) -> Vec<Vec<Vec<String>>> {
        let vertex = self.plan.instances.iter().map(|one| one.vertex).max().unwrap();
        let of = self.plan.instances.iter().filter(|one| one.vertex == vertex);
        let mut sinks: BTreeSet<u32> = of.map(|one| one.id).collect();
        sinks.retain(|id| !self.retired.contains(id));
        while !sinks.is_empty() {
            let event = tokio::time::timeout(Duration::from_mins(1), self.events.recv()).await;
            match event.unwrap().unwrap() {
                Event::InstanceEnded { instance, files, .. } => {
                    sinks.remove(&instance);
                    self.files.extend(files);
                }
                other => panic!("{other:?}"),
            }
        }
        let report = self.engine.reports().remove(0);
        for edge in &report.edges {
            assert_eq!(edge.emitted, edge.accounted(), "{edge:?}");
            assert_eq!(edge.emitted, edge.taken, "{edge:?}");
        }
        for instance in &report.instances {
            assert!(instance.dropped.is_empty(), "{instance:?}");
        }
        let read = |file: &SinkFile| {
            let text = std::fs::read_to_string(&file.path).unwrap();
            text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
        };
        self.files.iter().map(read).collect()
    }
}

const ROWS: u64 = 60_000;

#[tokio::test(flavor = "multi_thread")]
async fn rolling_counts_go_on_without_a_gap_at_full_queues() {
    let text = format!(
        r#"
name = "rolling"
[job]
memory = "2MiB"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
payload = 200
n = {ROWS}
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
[[stage]]
id = "slow"
op = "work"
in = "counts"
ms = 0.1
parallelism = 1
[[stage]]
id = "out"
op = "sink"
in = "slow"
parallelism = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut scaled = Scaled::new(folder.path(), &text, "counts").await;
    wait("rows flow", || scaled.taken() > 500).await;
    scaled.change_often(1).await;
    scaled.engine.set(1, "slow", "ms", "0.005").unwrap();
    // Of each key: what its count was at each row.
    let mut keys: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for row in scaled.end().await {
        let [id, count] = [&row[0], &row[row.len() - 1]].map(|text| text.parse::<u64>().unwrap());
        assert_eq!(keys.entry(id % 53).or_default().insert(count, id), None, "a count came twice");
    }
    for (key, counts) in keys {
        let expected = (0..ROWS).filter(|id| id % 53 == key).count() as u64;
        assert!(counts.keys().copied().eq(1..=expected), "key {key}: {} of {expected}", counts.len());
        for sender in 0..2 {
            let ids: Vec<u64> = counts.values().copied().filter(|id| id % 2 == sender).collect();
            assert!(ids.is_sorted(), "key {key}: rows of one source instance in another order");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_and_windows_over_them_lose_nothing_and_find_no_row_late() {
    let text = format!(
        r#"
name = "windows"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 5000
time = {{ column = "id", format = "unix_ms" }}
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % 7 as k"
[[stage]]
id = "tenths"
op = "window"
in = "by_key"
type = "tumbling"
size = "100ms"
[[stage]]
id = "counts"
op = "aggregate"
in = "tenths"
compute = ["count(*) as c"]
[[stage]]
id = "again"
op = "group_by"
in = "counts"
key = "k"
[[stage]]
id = "seconds"
op = "window"
in = "again"
type = "tumbling"
size = "1s"
[[stage]]
id = "sums"
op = "aggregate"
in = "seconds"
compute = ["sum(c) as s", "min(c) as least"]
[[stage]]
id = "out"
op = "sink"
in = "sums"
parallelism = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut scaled = Scaled::new(folder.path(), &text, "counts").await;
    wait("rows flow", || scaled.taken() > 100).await;
    scaled.change_often(2).await;
    scaled.engine.set(1, "rows", "rate", "20000").unwrap();
    let mut sums: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut windows = 0;
    for row in scaled.end().await {
        let (key, sum) = (row[0].parse().unwrap(), row[3].parse::<u64>().unwrap());
        // 1970-01-01T00:00:SSZ
        let second = row[1][17..19].parse().unwrap();
        assert_eq!(sums.insert((key, second), sum), None, "a window came twice");
        windows += 1;
    }
    assert_eq!(windows, 7 * ROWS / 1000);
    for ((key, second), sum) in sums {
        let expected = (second * 1000..(second + 1) * 1000).filter(|id| id % 7 == key).count() as u64;
        assert_eq!(sum, expected, "key {key}, second {second}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_sinks_take_each_row_once_and_a_key_changes_files_once_a_plan() {
    let text = format!(
        r#"
name = "sinks"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
n = {ROWS}
rate = 5000
[[stage]]
id = "out"
op = "sink"
in = "rows"
type = "distributed_partitioned"
key = "id % 53"
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut scaled = Scaled::new(folder.path(), &text, "out").await;
    wait("rows flow", || scaled.taken() > 500).await;
    scaled.change_often(1).await;
    scaled.engine.set(1, "rows", "rate", "200000").unwrap();
    // Of the rows of a key from one source instance: which file each is in.
    let mut keys: BTreeMap<(u64, u64), BTreeMap<u64, usize>> = BTreeMap::new();
    for (file, rows) in scaled.end_files().await.into_iter().enumerate() {
        let mut last: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for row in rows {
            let id: u64 = row[0].parse().unwrap();
            let of = (id % 53, id % 2);
            assert!(last.insert(of, id).is_none_or(|last| last < id), "{id} came behind a later one");
            assert_eq!(keys.entry(of).or_default().insert(id, file), None, "{id} came twice");
        }
    }
    assert_eq!(keys.values().map(BTreeMap::len).sum::<usize>() as u64, ROWS);
    for (of, rows) in keys {
        let files: Vec<usize> = rows.into_values().collect();
        let changes = files.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 5, "{of:?}: its rows went to and fro, {changes} times");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_by_key_through_a_stage_without_state_at_full_queues_and_none_is_late() {
    let text = format!(
        r#"
name = "through"
[job]
memory = "2MiB"
[[stage]]
id = "rows"
op = "source"
connector = "ids"
payload = 200
n = {ROWS}
time = {{ column = "id", format = "unix_ms" }}
[[stage]]
id = "spread"
op = "rebalance"
in = "rows"
key = "id % 53"
[[stage]]
id = "through"
op = "work"
in = "spread"
ms = 0.3
[[stage]]
id = "by_key"
op = "group_by"
in = "through"
key = "id % 7 as k"
[[stage]]
id = "second"
op = "window"
in = "by_key"
type = "tumbling"
size = "1s"
[[stage]]
id = "counts"
op = "aggregate"
in = "second"
compute = ["count(*) as c", "sum(id) as s"]
[[stage]]
id = "out"
op = "sink"
in = "counts"
parallelism = 1
connector = "file"
format = "csv"
path = "out"
"#
    );
    let folder = tempfile::tempdir().unwrap();
    let mut scaled = Scaled::new(folder.path(), &text, "through").await;
    wait("rows flow", || scaled.taken() > 500).await;
    scaled.change_often(1).await;
    scaled.engine.set(1, "through", "ms", "0.005").unwrap();
    let mut found = BTreeMap::new();
    for row in scaled.end().await {
        // Key, start and end of the window, count, sum
        let (key, second): (u64, u64) = (row[0].parse().unwrap(), row[1][17..19].parse().unwrap());
        let given: (u64, u64) = (row[3].parse().unwrap(), row[4].parse().unwrap());
        assert_eq!(found.insert((key, second), given), None, "a window came twice");
    }
    assert_eq!(found.len() as u64, 7 * ROWS / 1000);
    for ((key, second), given) in found {
        let ids = || (second * 1000..(second + 1) * 1000).filter(|id| id % 7 == key);
        assert_eq!(given, (ids().count() as u64, ids().sum()), "key {key}, second {second}");
    }
}
