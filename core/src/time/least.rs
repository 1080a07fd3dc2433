//! The watermark of several: the least of those that still have rows.

/// Where one of several stands: a channel, or a sending instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// The greatest watermark that it has told.
    pub watermark: Option<i64>,
    /// It has had no rows for some time and holds nothing back until its next watermark.
    pub idle: bool,
}

impl Standing {
    /// A watermark has come, which also says that it is not idle (any more).
    pub fn tell(&mut self, watermark: i64) {
        self.watermark = self.watermark.max(Some(watermark));
        self.idle = false;
    }

    /// What counts of several: of those that are in step one standing for all.
    ///
    /// Each of such is told of the same watermarks and idleness, if later than others. One that is idle while others
    /// are not has not been told yet that it is awake, and what it gives then must not be late: so they are idle
    /// only together, and their watermark is the least.
    pub fn counted(in_step: bool, all: impl Iterator<Item = Self> + Clone) -> impl Iterator<Item = Self> {
        let both =
            |a: Self, b: Self| Self { watermark: a.watermark.min(b.watermark), idle: a.idle && b.idle };
        let together = if in_step { all.clone().reduce(both) } else { None };
        together.into_iter().chain((!in_step).then_some(all).into_iter().flatten())
    }
}

/// What is to be told of all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// No row with an earlier event time follows. Also said, though it has not risen, of those that were idle
    /// and are not any more: `i64::MIN` where nothing is known.
    Watermark(i64),
    /// All of them are idle.
    Idle,
}

/// What has been told of several together. Watermarks only rise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Least {
    told: Option<i64>,
    idle: bool,
}

impl Least {
    /// The last watermark that was told.
    pub fn watermark(&self) -> Option<i64> {
        self.told
    }

    /// All of them were idle when they were last asked.
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Who listens takes them to be awake from now on.
    pub fn wake(&mut self) {
        self.idle = false;
    }

    /// The next thing to tell, if there is one; `open` are those that have not ended. To be asked again until
    /// there is none.
    ///
    /// Idle ones are left out. When all are idle none of them holds the others back, so the greatest watermark
    /// is told first.
    pub fn next(&mut self, open: impl Iterator<Item = Standing>) -> Option<Moved> {
        let (mut any, mut least, mut greatest) = (false, None, None);
        for one in open {
            any = true;
            greatest = greatest.max(one.watermark);
            if !one.idle {
                // None, of one that has told nothing, is less than all watermarks.
                least = Some(least.map_or(one.watermark, |least: Option<i64>| least.min(one.watermark)));
            }
        }
        match least {
            None if !any => None,
            None => self.rise(greatest).or_else(|| {
                let was = std::mem::replace(&mut self.idle, true);
                (!was).then_some(Moved::Idle)
            }),
            Some(least) if self.idle => {
                self.idle = false;
                let told = self.told.max(least).unwrap_or(i64::MIN);
                self.told = Some(told);
                Some(Moved::Watermark(told))
            }
            Some(least) => self.rise(least),
        }
    }

    fn rise(&mut self, to: Option<i64>) -> Option<Moved> {
        let to = to.filter(|to| self.told.is_none_or(|told| told < *to))?;
        self.told = Some(to);
        Some(Moved::Watermark(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(least: &mut Least, open: &[Standing]) -> Vec<Moved> {
        std::iter::from_fn(|| least.next(open.iter().copied())).collect()
    }

    fn at(watermark: i64) -> Standing {
        Standing { watermark: Some(watermark), idle: false }
    }

    fn idle(watermark: Option<i64>) -> Standing {
        Standing { watermark, idle: true }
    }

    #[test]
    fn one_without_a_watermark_holds_back_and_an_idle_one_does_not() {
        let mut least = Least::default();
        assert_eq!(all(&mut least, &[at(5), Standing::default()]), []);
        assert_eq!(all(&mut least, &[at(5), idle(None)]), [Moved::Watermark(5)]);
        assert_eq!(all(&mut least, &[at(9), at(3)]), [], "it never falls");
        assert_eq!(all(&mut least, &[at(9), at(7)]), [Moved::Watermark(7)]);
        assert_eq!(all(&mut least, &[]), []);
    }

    #[test]
    fn when_all_are_idle_that_is_told_once_and_so_is_that_one_wakes() {
        let mut least = Least::default();
        assert_eq!(all(&mut least, &[idle(None), idle(None)]), [Moved::Idle]);
        assert_eq!(all(&mut least, &[Standing::default(), idle(None)]), [Moved::Watermark(i64::MIN)]);
        assert_eq!(all(&mut least, &[at(4), at(9)]), [Moved::Watermark(4)]);
        assert_eq!(all(&mut least, &[idle(Some(4)), idle(Some(9))]), [Moved::Watermark(9), Moved::Idle]);
        assert_eq!(all(&mut least, &[at(4), idle(Some(9))]), [Moved::Watermark(9)], "awake, and not back");
        assert_eq!(all(&mut least, &[at(8), idle(Some(9))]), []);
    }

    #[test]
    fn those_in_step_are_idle_together_and_stand_where_the_last_one_does() {
        let counted =
            |in_step, all: &[Standing]| Standing::counted(in_step, all.iter().copied()).collect::<Vec<_>>();
        assert_eq!(counted(true, &[]), []);
        assert_eq!(counted(true, &[at(9), idle(Some(4))]), [at(4)]);
        assert_eq!(counted(true, &[idle(Some(9)), idle(Some(4))]), [idle(Some(4))]);
        assert_eq!(counted(true, &[at(9), idle(None)]), [Standing::default()]);
        assert_eq!(counted(false, &[at(9), idle(None)]), [at(9), idle(None)]);
    }

    #[derive(Debug, Clone)]
    enum Event {
        Watermark(usize, i64),
        Idle(usize),
        End(usize),
    }

    proptest! {
        /// A watermark is never above that of any that is awake and has told one, unless it had been told
        /// before that one woke; and those that only pass on what they are told come to the same.
        #[test]
        fn told_watermarks_rise_and_hold(
            events in prop::collection::vec(
                prop_oneof![
                    4 => (0usize..3, 0i64..50).prop_map(|(who, time)| Event::Watermark(who, time)),
                    1 => (0usize..3).prop_map(Event::Idle),
                    1 => (0usize..3).prop_map(Event::End),
                ],
                0..60,
            )
        ) {
            let mut open: Vec<Option<Standing>> = vec![Some(Standing::default()); 3];
            let (mut least, mut next, mut relayed) = (Least::default(), Least::default(), Standing::default());
            let mut last = None;
            for event in events {
                match event {
                    Event::Watermark(who, time) => {
                        if let Some(one) = &mut open[who] {
                            one.tell(time);
                        }
                    }
                    Event::Idle(who) => {
                        if let Some(one) = &mut open[who] {
                            one.idle = true;
                        }
                    }
                    Event::End(who) => open[who] = None,
                }
                let before = last;
                let told = std::iter::from_fn(|| least.next(open.iter().flatten().copied())).collect::<Vec<_>>();
                for moved in told {
                    match moved {
                        Moved::Watermark(time) => {
                            prop_assert!(last.is_none_or(|last| last <= time));
                            last = Some(time);
                            let awake = open.iter().flatten().filter(|one| !one.idle);
                            for one in awake {
                                prop_assert!(Some(time) <= one.watermark.max(before).max(Some(i64::MIN)));
                            }
                            relayed.tell(time);
                        }
                        Moved::Idle => {
                            prop_assert!(open.iter().flatten().all(|one| one.idle));
                            relayed.idle = true;
                        }
                    }
                }
                while next.next(std::iter::once(relayed)).is_some() {}
                prop_assert_eq!(next.watermark(), least.watermark());
            }
        }
    }
}
