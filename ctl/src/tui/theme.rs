//! Colours by meaning. No background is ever set, and everything that a colour says stands there as a
//! letter or a word too.

use ratatui::style::{Color, Modifier, Style};

/// What a text means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// Headers of columns, keys.
    Head,
    /// Explanations, lines, what the filter leaves out.
    Faint,
    /// Old values.
    Stale,
    /// Idle.
    Idle,
    /// Busy.
    Busy,
    /// Blocked on its output.
    Blocked,
    /// What limits the job.
    Limit,
    /// What a rebalance changed.
    Rebalance,
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
}

/// A set of colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Theme {
    /// For dark backgrounds.
    #[default]
    Dark,
    /// For light backgrounds.
    Light,
    /// Without colours: bold, underlined, reversed.
    Mono,
}

impl Theme {
    /// How a text of this meaning looks.
    pub(crate) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let modified = match tone {
            Tone::Head | Tone::Limit | Tone::Bad => style.add_modifier(Modifier::BOLD),
            Tone::Stale => style.add_modifier(Modifier::DIM),
            Tone::Rebalance if self == Self::Mono => style.add_modifier(Modifier::UNDERLINED),
            _ => style,
        };
        match self.color(tone) {
            Some(color) => modified.fg(color),
            None => modified,
        }
    }

    /// The selected row or vertex: reverse, which every terminal has.
    #[expect(clippy::unused_self, reason = "a theme may come to do it otherwise")]
    pub(crate) fn selected(self, style: Style) -> Style {
        style.add_modifier(Modifier::REVERSED)
    }

    fn color(self, tone: Tone) -> Option<Color> {
        let light = match self {
            Self::Mono => return None,
            Self::Dark => false,
            Self::Light => true,
        };
        let by = |dark, on_light| Some(if light { on_light } else { dark });
        match tone {
            Tone::Plain | Tone::Head => None,
            Tone::Faint | Tone::Stale => Some(Color::DarkGray),
            Tone::Idle => by(Color::LightBlue, Color::Blue),
            Tone::Busy | Tone::Limit | Tone::Bad => by(Color::LightRed, Color::Red),
            Tone::Blocked => by(Color::LightMagenta, Color::Magenta),
            Tone::Rebalance => by(Color::LightCyan, Color::Cyan),
            Tone::Good => by(Color::LightGreen, Color::Green),
        }
    }
}

/// Colours may be used: `NO_COLOR`, where it is set and not empty, forbids them.
pub(crate) fn chosen(wanted: Option<Theme>, no_color: Option<&str>) -> Theme {
    match no_color {
        Some(value) if !value.is_empty() => Theme::Mono,
        _ => wanted.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_the_selection_is_still_reversed() {
        assert_eq!(chosen(Some(Theme::Light), Some("1")), Theme::Mono);
        assert_eq!(chosen(Some(Theme::Light), Some("")), Theme::Light);
        let style = Theme::Mono.selected(Theme::Mono.style(Tone::Busy));
        assert_eq!((style.fg, style.bg), (None, None));
        assert!(style.add_modifier.contains(Modifier::REVERSED));
    }

    #[test]
    fn no_theme_sets_a_background() {
        let tones = [Tone::Plain, Tone::Stale, Tone::Busy, Tone::Limit, Tone::Good];
        for theme in [Theme::Dark, Theme::Light, Theme::Mono] {
            assert!(tones.iter().all(|tone| theme.style(*tone).bg.is_none()));
        }
    }
}
