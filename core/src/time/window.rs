//! Where windows lie: pure arithmetic of nanoseconds since 1970.

use std::time::Duration;

use crate::job::{Window, WindowKind};

/// More panes than this in one window are refused: each result reads them all. So are early results that read more
/// of them at once, each in all the windows that it is in.
const MOST_PANES: i64 = 10_000;

/// What is wrong with a slide that is longer than its window.
pub(crate) const LONG_SLIDE: &str = "`slide` is longer than `size`, so rows between would be lost";

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
                let panes = Panes::sliding(size, slide)?;
                if window.early.is_some_and(|early| !early.is_zero()) {
                    panes.can_be_early()?;
                }
                Ok(Self::Panes(panes))
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
            return Err(LONG_SLIDE.to_owned());
        }
        let pane = gcd(size.unsigned_abs(), slide.unsigned_abs()) as i64;
        if size / pane > MOST_PANES {
            return Err(format!(
                "a window would be made of {} panes, the greatest length that divides `size` and `slide`, and {MOST_PANES} are the most: choose a `slide` that divides `size`, or a longer one",
                size / pane
            ));
        }
        Ok(Self { size, slide, pane })
    }

    /// The windows that one row is in are each made of all their panes, each time.
    fn can_be_early(self) -> Result<(), String> {
        let merged = (self.size / self.slide).saturating_mul(self.count());
        if merged <= MOST_PANES {
            return Ok(());
        }
        Err(format!(
            "with `early_ms` {merged} panes would be merged each time, those of {} windows that one row is in; at \
             most {MOST_PANES} are taken: leave `early_ms` out, or make `slide` longer",
            self.size / self.slide
        ))
    }

    /// The length of a window.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Panes of a window.
    pub fn count(&self) -> i64 {
        self.size / self.pane
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
        let whole = self.pane - pane.rem_euclid(self.pane);
        pane.saturating_add(whole)
    }

    /// The end of the last window that a time is in.
    pub fn last_end(&self, time: i64) -> i64 {
        // One sum: of two, the first could be cut off at the end of time, and the second would go on from there.
        time.saturating_add(self.size - time.rem_euclid(self.slide))
    }

    /// The end of the first window that ends after a time.
    pub fn first_end_after(&self, time: i64) -> i64 {
        let since = time.rem_euclid(self.slide) - self.size.rem_euclid(self.slide);
        time.saturating_add(self.slide - since.rem_euclid(self.slide))
    }
}

/// The greatest number that divides both; of 0 and another it is the other.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
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
        let early = |size, slide| {
            let early = Some(Duration::from_secs(1));
            WindowSpec::new(&Window { early, ..window(WindowKind::Sliding, Some(size), Some(slide)) })
        };
        let many = early(3_600, 10).unwrap_err();
        assert!(
            many.starts_with("with `early_ms` 129600 panes would be merged each time, those of 360 windows")
        );
        assert!(early(3_600, 60).is_ok() && early(3_600, 36).is_ok());
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
            prop_assert_eq!(panes.pane_end(pane) - pane, panes.pane);
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

        /// What lies beyond the ends of time is cut off there, and nothing before is moved by that.
        #[test]
        fn at_the_ends_of_time_bounds_are_cut_off(
            time in prop_oneof![i64::MIN..i64::MIN + 200, i64::MAX - 200..=i64::MAX],
            size in prop_oneof![1i64..60, i64::MAX - 60..=i64::MAX],
            parts in 1i64..9,
        ) {
            let slide = size / parts.min(size);
            let Ok(panes) = Panes::sliding(size, slide) else { return Ok(()) };
            let cut = |exact: i128| exact.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            let wide = |time: i64| i128::from(time);
            let down = |length: i64| wide(time) - wide(time).rem_euclid(wide(length));
            prop_assert_eq!(panes.pane_of(time), cut(down(panes.pane)));
            let pane = panes.pane_of(time);
            prop_assert_eq!(panes.pane_end(pane), cut(down(panes.pane) + wide(panes.pane)));
            prop_assert_eq!(panes.last_end(time), cut(down(slide) + wide(size)));
            prop_assert_eq!(panes.last_end(pane), panes.last_end(time));
            let before = (wide(time) - wide(size)).rem_euclid(wide(slide));
            prop_assert_eq!(panes.first_end_after(time), cut(wide(time) - before + wide(slide)));
        }
    }
}
