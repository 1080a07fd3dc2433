//! Golden screens: every screen at three sizes with three graphs, as text and as styles.

use super::world::{Seat, World, styled, text};
use crate::tui::glyph::Glyphs;
use crate::tui::theme::Theme;

/// Keys that lead to each screen from the start.
const SCREENS: [(&str, &str); 7] = [
    ("graph", ""),
    ("graph, an edge selected", "<tab>"),
    ("edges", "2"),
    ("targets of the first edge", "2<enter>"),
    ("instances", "5"),
    ("agents", "6"),
    ("jobs", "0"),
];

/// What stands over a screen, and the keys that lead to it.
const OVERLAYS: [(&str, &str); 11] = [
    ("help", "?"),
    ("help, filtered", "?sort"),
    ("help, what the marks of the graph mean", "?of"),
    ("help, what the columns say", "5?share of"),
    ("choosing a policy", "<tab>P"),
    ("before the policy changes", "<tab>Pj<enter>"),
    ("before the job is cancelled", "C"),
    ("the filter line", "5/busy>0.9"),
    ("the command line", ":po"),
    ("an instance in full", "5<enter>"),
    ("held still", "<space>"),
];

pub(super) fn check(name: &str, shown: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("snapshots");
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, shown));
}

#[test]
fn every_screen_at_every_size() {
    for vertices in [3, 7, 30] {
        for (width, height) in [(40, 12), (80, 24), (120, 40)] {
            let mut shown = String::new();
            for (name, keys) in SCREENS {
                let mut seat = Seat::at(width, height, &World::new(vertices, 2));
                seat.keys(keys);
                shown.push_str(&format!("== {name}\n{}\n", styled(&seat.buffer())));
            }
            check(&format!("{vertices}-vertices-{width}x{height}"), &shown);
        }
    }
}

#[test]
fn what_stands_over_a_screen() {
    let mut shown = String::new();
    for (name, keys) in OVERLAYS {
        let mut seat = Seat::at(80, 24, &World::new(3, 2));
        seat.keys(keys);
        shown.push_str(&format!("== {name}\n{}\n", styled(&seat.buffer())));
    }
    check("overlays-80x24", &shown);
    let mut shown = String::new();
    for (name, keys) in OVERLAYS {
        let mut seat = Seat::at(40, 12, &World::new(3, 2));
        seat.keys(keys);
        shown.push_str(&format!("== {name}\n{}\n", text(&seat.buffer())));
    }
    check("overlays-40x12", &shown);
}

#[test]
fn without_colours_and_in_ascii() {
    let mut shown = String::new();
    for (name, keys) in SCREENS {
        let mut seat = Seat::at(80, 24, &World::new(7, 1));
        seat.model.options.glyphs = Glyphs::of(false);
        seat.model.options.theme = Theme::Mono;
        seat.keys(keys);
        let screen = styled(&seat.buffer());
        assert!(screen.is_ascii(), "{screen}");
        assert!(screen.contains("reversed"), "the selection can be seen: {screen}");
        shown.push_str(&format!("== {name}\n{screen}\n"));
    }
    check("mono-ascii-80x24", &shown);
}
