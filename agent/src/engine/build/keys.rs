//! What counts the rows of an instance by key.

use tuplane_core::plan::placement::Instance as Placed;
use tuplane_expr::edge_key;
use tuplane_wire::message::WireFault;

use super::{Builder, refused};
use crate::engine::keys::KeyTap;

impl Builder<'_> {
    /// For an instance whose rows come by key; the keys are those by which they were sent.
    pub(super) fn key_tap(&self, placed: &Placed) -> Result<Option<KeyTap>, WireFault> {
        let inputs = self.dag.inputs(placed.vertex);
        let keys = inputs.map(|(edge, _)| edge_key(&self.job, &self.types, &self.dag, edge));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(|fault| refused(&[fault]))?;
        Ok(KeyTap::new(keys, self.job.options.partitions(), placed.id))
    }
}
