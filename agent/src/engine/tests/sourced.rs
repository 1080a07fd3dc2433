//! Source instances come and go on two agents while rows flow: others go on with what they have not read.

use std::collections::BTreeMap;

use tuplane_core::cluster::{Handed, SourceUnit};
use tuplane_core::plan::{Before, VertexId};
use tuplane_wire::scaling::SourceAsk;

use super::apart::{begun, go_by};
use super::*;

/// A run on agents `a` and `b`, whose source changes.
struct Sourced {
    engines: Vec<Arc<Engine>>,
    events: mpsc::UnboundedReceiver<Event>,
    plan: RunPlan,
    vertex: VertexId,
    retired: BTreeSet<u32>,
}

impl Sourced {
    async fn new(folder: &std::path::Path, text: &str) -> Self {
        let (engines, events, plan, vertex) = begun(folder, text, "rows").await;
        Self { engines, events, plan, vertex, retired: BTreeSet::new() }
    }

    fn instances(&self) -> Vec<u32> {
        let stands = self.plan.instances.iter().filter(|one| !self.retired.contains(&one.id));
        stands.filter(|one| one.vertex == self.vertex).map(|one| one.id).collect()
    }

    async fn all(&self, ask: SourceAsk) {
        for engine in &self.engines {
            engine.sources(ask.clone()).await.unwrap();
        }
    }

    /// New instances on these agents, by index, and these go; each step as two coordinators do of which the first has been
    /// killed.
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
        let [moved] = &after.sources[..] else { panic!("{:?}", after.sources) };
        let stands = before.instances.iter().filter(|one| !self.retired.contains(&one.id));
        let (run, epoch) = (1, before.epoch + 1);
        let mut plan = RunPlan {
            dag: serde_json::to_string(&after.dag).unwrap(),
            instances: stands.chain(&after.new).copied().collect(),
            epoch,
            coming: after.new.iter().map(|one| one.id).collect(),
            going: after.going.clone(),
            sources: after.sources.clone(),
            ..before.clone()
        };
        go_by(&self.engines, &plan).await;
        let of = |id: u32| {
            let placed = plan.instances.iter().find(|one| one.id == id).unwrap();
            &self.engines[usize::from(placed.agent)]
        };
        let mut handed = Handed::new();
        for round in 0..2 {
            let instances: Vec<u32> = moved.takers().into_iter().collect();
            self.all(SourceAsk::Hold { run, epoch, instances }).await;
            for giver in &moved.givers {
                let instance = giver.instance;
                let given = of(instance).sources(SourceAsk::Give { run, epoch, instance }).await.unwrap();
                if round == 0 {
                    let none = |_: u32| 0;
                    let units: Vec<SourceUnit> = given.unwrap().units;
                    tuplane_core::cluster::units::deal(units, &giver.takers, &none, &mut handed);
                }
            }
            for giver in &moved.givers {
                let (from, to) = (giver.instance, giver.takers.clone());
                self.all(SourceAsk::Behind { run, epoch, from, to }).await;
            }
        }
        for instance in moved.takers().into_iter().chain(moved.takers()) {
            let units = handed.get(&instance).cloned().unwrap_or_default();
            of(instance).sources(SourceAsk::Take { run, epoch, instance, units }).await.unwrap();
        }
        let mut going: BTreeSet<u32> = after.going.iter().copied().collect();
        while !going.is_empty() {
            let event = tokio::time::timeout(Duration::from_mins(1), self.events.recv()).await;
            match event.unwrap().unwrap() {
                Event::InstanceEnded { instance, .. } => {
                    going.remove(&instance);
                }
                other => panic!("{other:?}"),
            }
        }
        self.retired.extend(&after.going);
        (plan.coming, plan.going, plan.sources) = (Vec::new(), Vec::new(), Vec::new());
        self.plan = plan;
    }

    fn given(&self) -> u64 {
        let reports = self.engines.iter().flat_map(|engine| engine.reports());
        let all = reports.flat_map(|report| report.instances);
        let instances = self.instances();
        all.filter(|one| instances.contains(&one.instance)).map(|one| one.rows_out).sum()
    }

    /// Two instances: one goes to another agent, then both are one, which goes to the other agent, and there are two again
    /// on one agent, of which one ends.
    async fn change_often(&mut self) {
        for (add, remove) in [
            (vec![1], vec![0]),
            (vec![], vec![1]),
            (vec![0], vec![0]),
            (vec![0], vec![0]),
            (vec![1], vec![0]),
        ] {
            let before = self.given();
            wait("rows flow", || self.given() > before + 200).await;
            let remove: Vec<u32> = remove.into_iter().map(|place: usize| self.instances()[place]).collect();
            self.change(&add, &remove).await;
        }
    }

    /// What the sink has written, when all has come to its end, which is soon; each row's columns.
    async fn end(mut self) -> Vec<Vec<String>> {
        for engine in &self.engines {
            engine.set(1, "rows", "rate", "200000").unwrap();
            engine.set(1, "slow", "ms", "0.001").unwrap();
        }
        let sink = self.plan.instances.iter().max_by_key(|one| one.vertex).unwrap().id;
        let files = loop {
            let event = tokio::time::timeout(Duration::from_mins(1), self.events.recv()).await;
            match event.unwrap().unwrap() {
                Event::InstanceEnded { instance, files, .. } if instance == sink => break files,
                Event::InstanceEnded { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        for instance in
            self.engines.iter().flat_map(|engine| engine.reports()).flat_map(|report| report.instances)
        {
            assert!(instance.dropped.is_empty(), "{instance:?}");
        }
        let text = std::fs::read_to_string(&files[0].path).unwrap();
        text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }
}

/// More than come by [`PACES`] in the time in which sources change, on a busy machine too: the rest comes fast.
const ROWS: u64 = 100_000;

/// Under a schedule, and at full queues; with the time that a row costs behind them.
const PACES: [(&str, &str); 2] = [("rate = 1500", "0.02"), ("", "0.5")];

/// A source of [`ROWS`] rows by key into a stage that counts them.
fn job(rows: &str, ms: &str, counts: &str) -> String {
    format!(
        r#"
name = "sourced"
[job]
memory = "2MiB"
partitions = 16
[[stage]]
id = "rows"
op = "source"
connector = "ids"
instances = 2
n = {ROWS}
payload = 300
{rows}
[[stage]]
id = "by_key"
op = "group_by"
in = "rows"
key = "id % 5 as k"
{counts}
[[stage]]
id = "slow"
op = "work"
in = "counts"
ms = {ms}
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
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_changes_agents_and_no_row_is_lost_given_twice_or_out_of_order() {
    for (pace, ms) in PACES {
        let counts = "[[stage]]\nid = 'counts'\nop = 'rolling_aggregate'\nin = 'by_key'\ncompute = ['count(*) as c']\n\
                      instances = 2";
        let folder = tempfile::tempdir().unwrap();
        let mut sourced = Sourced::new(folder.path(), &job(pace, ms, counts)).await;
        sourced.change_often().await;
        let mut keys: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
        for row in sourced.end().await {
            let [id, count] = [&row[0], &row[row.len() - 1]].map(|text| text.parse::<u64>().unwrap());
            assert_eq!(keys.entry(id % 5).or_default().insert(count, id), None, "a count came twice");
        }
        assert_eq!(keys.len(), 5);
        for (key, counts) in keys {
            assert!(counts.keys().copied().eq(1..=ROWS / 5), "key {key}: {} counts", counts.len());
            for unit in 0..2 {
                let ids: Vec<u64> = counts.values().copied().filter(|id| id % 2 == unit).collect();
                assert!(ids.is_sorted(), "key {key}: rows of one unit in another order ({pace})");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_row_is_late_where_a_source_changes_agents() {
    // Rows as wide as the source's, so that queues hold no more of them.
    let counts = "[[stage]]\nid = 'tens'\nop = 'window'\nin = 'by_key'\ntype = 'tumbling'\nsize = '10ms'\n\
                  [[stage]]\nid = 'counts'\nop = 'aggregate'\nin = 'tens'\ncompute = ['max(payload) as p', 'count(*) as c']\n\
                  instances = 2";
    for (pace, ms) in PACES {
        let source = format!("{pace}\ntime = {{ column = 'id', format = 'unix_ms' }}");
        let folder = tempfile::tempdir().unwrap();
        let mut sourced = Sourced::new(folder.path(), &job(&source, ms, counts)).await;
        sourced.change_often().await;
        // A row that came late would have been dropped, or its window given twice.
        let rows = sourced.end().await;
        assert_eq!(rows.len() as u64, ROWS / 2);
        assert!(rows.iter().all(|row| row[row.len() - 1] == "2"), "a window lacks a row");
    }
}
