//! The terminal UI: events into a pure `update`, views that only draw, effects that alone talk to agents.

mod command;
mod effect;
mod event;
mod glyph;
mod key;
mod layout;
mod model;
mod record;
mod text;
mod theme;
mod update;
mod view;
