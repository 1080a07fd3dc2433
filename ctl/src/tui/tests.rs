//! The UI without a terminal and without a cluster: telemetry and keys in, pictures and effects out.

mod docs;
mod keys;
mod old;
mod routes;
mod scaling;
mod screens;
mod seat;
mod second;
mod sizes;
mod values;
mod world;

/// `crossterm` is in the workspace manifest at the version that ratatui uses: the types are the same.
#[test]
fn there_is_one_crossterm() {
    let ours: crossterm::event::KeyCode = ratatui::crossterm::event::KeyCode::Enter;
    assert_eq!(ours, crossterm::event::KeyCode::Enter);
}
