//! Agent-to-agent data: channels with credit, output queues, and sessions that survive a broken
//! connection.

pub(crate) mod body;
pub(crate) mod costs;
pub(crate) mod credit;
pub(crate) mod edge;
pub(crate) mod inbound;
pub(crate) mod inbox;
pub(crate) mod lane;
pub(crate) mod load;
pub(crate) mod manager;
pub(crate) mod mark;
pub(crate) mod moving;
pub(crate) mod outbound;
pub(crate) mod outlet;
pub(crate) mod outqueue;
pub(crate) mod overflow;
pub(crate) mod priced;
pub(crate) mod quota;
pub(crate) mod session;

#[cfg(all(test, feature = "shuttle"))]
mod shuttle;

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests;

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod torn;
