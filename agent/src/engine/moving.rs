//! Key partitions that move between instances of a run: what an agent does in each step.

use std::sync::Arc;

use tuplane_wire::message::{FaultCode, WireFault};
use tuplane_wire::scaling::KeyGroup;

use super::Engine;

fn not_yet<T>() -> Result<T, WireFault> {
    Err(WireFault::new(FaultCode::Internal, "key partitions cannot be moved yet"))
}

#[expect(clippy::unused_async, reason = "stands in for what is being built")]
impl Engine {
    pub async fn key_sizes(
        self: &Arc<Self>,
        _run: u64,
        _epoch: u64,
        _instance: u32,
        _partitions: Vec<u16>,
    ) -> Result<Vec<u64>, WireFault> {
        not_yet()
    }

    pub async fn group_begin(self: &Arc<Self>, _group: &KeyGroup) -> Result<(), WireFault> {
        not_yet()
    }

    pub async fn group_turn(self: &Arc<Self>, _group: &KeyGroup) -> Result<(), WireFault> {
        not_yet()
    }

    pub async fn group_ship(self: &Arc<Self>, _group: &KeyGroup) -> Result<(), WireFault> {
        not_yet()
    }

    pub async fn group_await(self: &Arc<Self>, _group: &KeyGroup) -> Result<(), WireFault> {
        not_yet()
    }

    pub async fn group_end(self: &Arc<Self>, _group: &KeyGroup) -> Result<(), WireFault> {
        not_yet()
    }

    pub async fn release(self: &Arc<Self>, _run: u64, _epoch: u64) -> Result<(), WireFault> {
        not_yet()
    }
}
