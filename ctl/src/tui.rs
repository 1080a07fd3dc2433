//! The terminal UI: events into a pure `update`, views that only draw, effects that alone talk to agents.

pub(crate) mod app;
mod command;
pub(crate) mod effect;
pub(crate) mod event;
pub(crate) mod glyph;
mod key;
mod layout;
pub(crate) mod model;
pub(crate) mod record;
mod term;
mod text;
pub(crate) mod theme;
mod update;
mod view;

#[cfg(test)]
mod tests;
