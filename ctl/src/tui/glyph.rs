//! One table of marks and lines, for terminals that show UTF-8 and for those that do not.

/// What is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glyphs {
    /// UTF-8 marks.
    pub(crate) utf8: bool,
    /// Corners of a box: top left, top right, bottom left, bottom right.
    pub(crate) corners: [&'static str; 4],
    /// Box sides: horizontal, vertical.
    pub(crate) sides: [&'static str; 2],
    /// Edges by weight (light, heavy, double): horizontal, then vertical.
    pub(crate) across: [&'static str; 3],
    pub(crate) down: [&'static str; 3],
    /// Where an edge bends: from left to down, left to up, up to right, down to right.
    pub(crate) bends: [&'static str; 4],
    /// Where edges cross or join.
    pub(crate) cross: &'static str,
    /// An edge's end.
    pub(crate) arrow: &'static str,
    /// An edge that a rebalance changed.
    pub(crate) rebalance: &'static str,
    /// The same before a name.
    pub(crate) rebalanced: &'static str,
    /// What stands where text was cut.
    pub(crate) cut: &'static str,
    /// Bars: busy, blocked, idle.
    pub(crate) bars: [&'static str; 3],
    /// Levels of a line over time, from nothing to the most.
    pub(crate) levels: [&'static str; 8],
    /// Sorted up, sorted down.
    pub(crate) sorted: [&'static str; 2],
    /// The selected row, where reverse video is not enough.
    pub(crate) selected: &'static str,
    /// Plus or minus.
    pub(crate) plus_minus: &'static str,
    /// From before to after.
    pub(crate) becomes: &'static str,
}

static UTF8: Glyphs = Glyphs {
    utf8: true,
    corners: ["┌", "┐", "└", "┘"],
    sides: ["─", "│"],
    across: ["─", "━", "═"],
    down: ["│", "┃", "║"],
    bends: ["┐", "┘", "└", "┌"],
    cross: "┼",
    arrow: "▶",
    rebalance: "⇄",
    rebalanced: "⇄ ",
    cut: "…",
    bars: ["█", "▒", "·"],
    levels: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    sorted: ["▲", "▼"],
    selected: "›",
    plus_minus: "±",
    becomes: "→",
};

static ASCII: Glyphs = Glyphs {
    utf8: false,
    corners: ["+", "+", "+", "+"],
    sides: ["-", "|"],
    across: ["-", "=", "#"],
    down: ["|", "|", "|"],
    bends: ["+", "+", "+", "+"],
    cross: "+",
    arrow: ">",
    rebalance: "%",
    rebalanced: "% ",
    cut: "~",
    bars: ["#", "%", "."],
    levels: ["_", ".", ":", "-", "=", "+", "*", "#"],
    sorted: ["^", "v"],
    selected: ">",
    plus_minus: "+-",
    becomes: "->",
};

impl Glyphs {
    /// The table for a terminal.
    pub(crate) fn of(utf8: bool) -> &'static Self {
        if utf8 { &UTF8 } else { &ASCII }
    }
}

/// The locale shows UTF-8: the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set says so.
pub(crate) fn locale_is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name).filter(|v| !v.is_empty()));
    set.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn marks_of_both_tables_are_as_wide_as_what_they_replace() {
        for glyphs in [&UTF8, &ASCII] {
            let drawn =
                [glyphs.corners.as_slice(), &glyphs.sides, &glyphs.across, &glyphs.down, &glyphs.bends];
            let others = [glyphs.cross, glyphs.arrow, glyphs.rebalance, glyphs.cut, glyphs.selected];
            for mark in drawn
                .concat()
                .into_iter()
                .chain(others)
                .chain(glyphs.bars)
                .chain(glyphs.levels)
                .chain(glyphs.sorted)
            {
                assert_eq!(mark.width(), 1, "{mark}");
                assert!(glyphs.utf8 || mark.is_ascii(), "{mark}");
            }
        }
    }

    #[test]
    fn the_locale_decides_by_the_first_variable_that_is_set() {
        let of = |all: &'static str, lang: &'static str| {
            move |name: &str| match name {
                "LC_ALL" => Some(all.to_owned()),
                "LANG" => Some(lang.to_owned()),
                _ => None,
            }
        };
        assert!(locale_is_utf8(of("", "de_DE.UTF-8")));
        assert!(!locale_is_utf8(of("C", "de_DE.UTF-8")));
        assert!(!locale_is_utf8(|_| None));
    }
}
