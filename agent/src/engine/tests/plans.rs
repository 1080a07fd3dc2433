//! A run that gets other plans while rows flow: prepared, taken back, carried through, asked twice and too late.

use std::collections::BTreeSet;

use tuplane_core::plan::{Before, Dag, VertexId};

use super::*;

/// The plan after `before` with so many more sinks here, without those of `remove`.
fn next(before: &RunPlan, retired: &[u32], add: usize, remove: &[u32]) -> RunPlan {
    let dag: Dag = serde_json::from_str(&before.dag).unwrap();
    let job = serde_json::from_str(&before.job).unwrap();
    let retired: BTreeSet<u32> = retired.iter().copied().collect();
    let all = Before {
        dag: &dag,
        job: &job,
        instances: &before.instances,
        retired: &retired,
        agents: &["a".to_owned()],
        maps: &before.maps,
    };
    let after = all.change(&vec![(VertexId(1), 0); add], remove, &|_| false).unwrap();
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

fn taken(engine: &Engine, instance: u32) -> u64 {
    let reports = engine.reports();
    let found = reports[0].instances.iter().find(|one| one.instance == instance);
    found.map_or(0, |one| one.rows_in)
}

fn instances(engine: &Engine) -> usize {
    engine.reports()[0].instances.len()
}

/// Carries a plan through.
async fn carry(engine: &Arc<Engine>, plan: &RunPlan) {
    for _ in 0..2 {
        engine.extend(plan.clone()).await.unwrap();
    }
    engine.connect(plan.run).await.unwrap();
    assert!(engine.switch(plan.run, plan.epoch).is_err(), "nothing of it has started");
    for _ in 0..2 {
        engine.start_new(plan.run, plan.epoch).unwrap();
    }
    for _ in 0..2 {
        engine.switch(plan.run, plan.epoch).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_taken_back_leaves_what_there_was() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, _events) = engine(folder.path());
    let first = plan_of(1, vec![info("a", "127.0.0.1:1")]);
    engine.prepare(first.clone()).await.unwrap();
    engine.start(1).unwrap();
    let second = next(&first, &[], 2, &[]);
    engine.extend(second.clone()).await.unwrap();
    assert_eq!(instances(&engine), 2, "they are not there yet");
    engine.abort(1, 2).await;
    engine.abort(1, 2).await;
    assert_eq!(engine.extend(second.clone()).await.unwrap_err().code, FaultCode::Stale);
    assert!(engine.start_new(1, 2).is_err() && engine.switch(1, 2).is_err());
    let before = taken(&engine, 1);
    wait("rows flow as before", || taken(&engine, 1) > before + 100).await;
    // The same instances in a later plan, which takes the place of one whose end nobody has told.
    let third = RunPlan { epoch: 3, ..second.clone() };
    engine.extend(third).await.unwrap();
    let fourth = RunPlan { epoch: 4, ..second };
    carry(&engine, &fourth).await;
    wait("all three take rows", || (1..4).all(|sink| taken(&engine, sink) > 100)).await;
    assert!(engine.extend(RunPlan { epoch: 3, ..fourth }).await.is_err(), "it is too late");
    let report = engine.stop(1, "test", true).await.unwrap();
    assert_eq!(report.edges[0].emitted, report.edges[0].accounted());
    assert_nothing_is_left(&engine);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_ends_and_what_it_took_stays_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, mut events) = engine(folder.path());
    let mut plan = plan_of(1, vec![info("a", "127.0.0.1:1")]);
    engine.prepare(plan.clone()).await.unwrap();
    engine.start(1).unwrap();
    let (mut rows, mut retired) = (0, Vec::new());
    for round in 0..5u32 {
        let last = plan.instances.iter().map(|one| one.id).max().unwrap();
        wait("the last sink takes rows", || taken(&engine, last) > 50).await;
        plan = next(&plan, &retired, 1, &[last]);
        carry(&engine, &plan).await;
        let ended = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap();
        let Event::InstanceEnded { instance, last: counters, files, .. } = ended else { panic!("{ended:?}") };
        assert_eq!((instance, files.len(), files[0].rows), (last, 1, counters.rows_in), "round {round}");
        rows += counters.rows_in;
        retired.push(last);
    }
    // The source, the sink that is there, and the one that has just ended.
    assert_eq!(instances(&engine), 3);
    let last = plan.coming[0];
    wait("the last sink takes rows", || taken(&engine, last) > 50).await;
    let report = engine.stop(1, "test", true).await.unwrap();
    let edge = &report.edges[0];
    assert_eq!(edge.emitted, edge.accounted());
    let open = report.instances.iter().find(|one| one.instance == last).unwrap();
    assert_eq!(edge.taken, rows + open.rows_in);
    assert_eq!(edge.targets.values().sum::<u64>(), edge.accounted(), "a row went to each of them once");
}
