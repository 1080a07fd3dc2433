//! Key partitions that each instance holds.

use std::collections::{BTreeMap, BTreeSet};

use tuplane_core::job::Job;
use tuplane_core::plan::{Before, Dag, VertexId};
use tuplane_wire::message::JobStatus;

/// How many each holds, of instances that get their rows by key and run.
pub(super) fn held(dag: &Dag, status: &JobStatus) -> BTreeMap<u32, u32> {
    // A job that this build cannot read has other views too that say so.
    let Ok(job) = serde_json::from_str::<Job>(&status.job) else { return BTreeMap::new() };
    let (instances, maps) = (&status.instances, &status.scale.maps);
    let retired: BTreeSet<u32> = status.scale.retired.iter().copied().collect();
    let plan = Before { dag, job: &job, instances, retired: &retired, agents: &[], maps };
    let mut held = BTreeMap::new();
    for vertex in (0..dag.vertices.len() as u32).map(VertexId) {
        let Some(owners) = plan.owners(vertex) else { continue };
        let standing = instances.iter().filter(|one| one.vertex == vertex && !retired.contains(&one.id));
        held.extend(standing.map(|one| (one.id, 0)));
        for owner in owners {
            *held.entry(owner).or_default() += 1;
        }
    }
    held
}
