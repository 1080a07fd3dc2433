//! Where windows lie: pure arithmetic of nanoseconds since 1970.

use std::time::Duration;

use crate::job::{Window, WindowKind};

/// More panes than this in one window are refused: each result reads them all.
const MOST_PANES: i64 = 10_000;

/// A window that says everything it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSpec {
    /// Tumbling and sliding windows.
    Panes(Panes),
    /// A session ends so many nanoseconds after its last row.
    Session {
        /// The pause that ends it.
        gap: i64,
    },
}

impl WindowSpec {
    /// The window that a stage describes.
    ///
    /// # Errors
    /// A sentence about what is missing or too much.
    pub fn new(window: &Window) -> Result<Self, String> {
        let ns = |name: &str, duration: Option<Duration>| {
            let kind = window.kind.name();
            let duration = duration.ok_or_else(|| format!("a {kind} window has no `{name}`"))?;
            match i64::try_from(duration.as_nanos()) {
                Ok(ns) if ns > 0 => Ok(ns),
                _ => Err(format!("`{name}` of a {kind} window must be more than nothing")),
            }
        };
        match window.kind {
            WindowKind::Tumbling => ns("size", window.size).map(|size| Self::Panes(Panes::tumbling(size))),
            WindowKind::Session => ns("gap", window.size).map(|gap| Self::Session { gap }),
            WindowKind::Sliding => {
                let (size, slide) = (ns("size", window.size)?, ns("slide", window.slide)?);
                Panes::sliding(size, slide).map(Self::Panes)
            }
        }
    }
}

/// Windows `[k * slide, k * slide + size)`, cut into panes of which each window has a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Panes {
    size: i64,
    slide: i64,
    pane: i64,
}

impl Panes {
    fn tumbling(size: i64) -> Self {
        Self { size, slide: size, pane: size }
    }

    fn sliding(size: i64, slide: i64) -> Result<Self, String> {
        if slide > size {
            return Err("`slide` is longer than `size`, so rows between would be lost".to_owned());
        }
        let pane = gcd(size, slide);
        if size / pane > MOST_PANES {
            return Err(format!(
                "a window would be made of {} panes, the greatest length that divides `size` and `slide`, and {MOST_PANES} are the most: choose a `slide` that divides `size`, or a longer one",
                size / pane
            ));
        }
        Ok(Self { size, slide, pane })
    }

    /// The length of a window.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Each pane is a window.
    pub fn are_windows(&self) -> bool {
        self.pane == self.size
    }

    /// The beginning of the pane that a time is in.
    pub fn pane_of(&self, time: i64) -> i64 {
        time.saturating_sub(time.rem_euclid(self.pane))
    }

    /// The end of the pane that begins here.
    pub fn pane_end(&self, pane: i64) -> i64 {
        pane.saturating_add(self.pane)
    }

    /// The end of the last window that a time is in.
    pub fn last_end(&self, time: i64) -> i64 {
        time.saturating_sub(time.rem_euclid(self.slide)).saturating_add(self.size)
    }

    /// The end of the first window that ends after a time.
    pub fn first_end_after(&self, time: i64) -> i64 {
        let past = time.saturating_sub(self.size).rem_euclid(self.slide);
        time.saturating_sub(past).saturating_add(self.slide)
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(kind: WindowKind, size: Option<u64>, slide: Option<u64>) -> Window {
        Window {
            kind,
            size: size.map(Duration::from_nanos),
            slide: slide.map(Duration::from_nanos),
            early: None,
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let said = |kind, size, slide| WindowSpec::new(&window(kind, size, slide)).unwrap_err();
        assert_eq!(said(WindowKind::Tumbling, None, None), "a tumbling window has no `size`");
        assert_eq!(said(WindowKind::Sliding, Some(10), None), "a sliding window has no `slide`");
        assert_eq!(said(WindowKind::Session, None, None), "a session window has no `gap`");
        assert!(said(WindowKind::Sliding, Some(10), Some(11)).contains("longer"));
        assert!(said(WindowKind::Sliding, Some(86_400_000_001), Some(1_000_000)).contains("panes"));
        let session = WindowSpec::new(&window(WindowKind::Session, Some(7), None));
        assert_eq!(session, Ok(WindowSpec::Session { gap: 7 }));
    }

    #[test]
    fn windows_are_aligned_to_the_epoch() {
        let Ok(WindowSpec::Panes(tumbling)) = WindowSpec::new(&window(WindowKind::Tumbling, Some(10), None))
        else {
            panic!("no panes")
        };
        assert!(tumbling.are_windows());
        assert_eq!([-11, -10, -1, 0, 9, 10].map(|t| tumbling.pane_of(t)), [-20, -10, -10, 0, 0, 10]);
        assert_eq!((tumbling.last_end(9), tumbling.last_end(10), tumbling.last_end(-1)), (10, 20, 0));
        assert_eq!((tumbling.first_end_after(9), tumbling.first_end_after(10)), (10, 20));
    }

    proptest! {
        #[test]
        fn panes_make_up_exactly_the_windows_that_hold_a_time(
            time in -500i64..500,
            size in 1i64..60,
            slide in 1i64..60,
        ) {
            prop_assume!(slide <= size);
            let panes = Panes::sliding(size, slide).unwrap();
            let pane = panes.pane_of(time);
            prop_assert!(pane <= time && time < panes.pane_end(pane));
            // All windows by their definition, and by the steps of the code.
            let starts = (-700..700).filter(|k| k * slide <= time && time < k * slide + size);
            let defined: Vec<i64> = starts.map(|k| k * slide + size).collect();
            let mut found = vec![panes.first_end_after(pane)];
            while found[found.len() - 1] < panes.last_end(pane) {
                found.push(panes.first_end_after(found[found.len() - 1]));
            }
            prop_assert_eq!(&found, &defined);
            prop_assert_eq!(panes.last_end(time), *defined.last().unwrap());
            // A window holds a pane whole.
            for end in defined {
                prop_assert!(end - size <= pane && panes.pane_end(pane) <= end);
            }
        }
    }
}
