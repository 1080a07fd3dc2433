//! Tuples that came from outside, and how many of their descendants are under way.

/// Whether a tuple is known to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in use.
    Free,
    /// Sent on a forecast; its slot has not come.
    Foreseen,
    /// It arrives, or has arrived.
    Actual,
    /// Sent on a forecast that was wrong.
    Phantom,
}

/// A tuple that came from outside, or was forecast to.
#[derive(Debug, Clone, Copy)]
struct Root {
    state: State,
    /// The slot of its arrival.
    slot: i64,
    /// The spout that it is of, and its number among those of its slot there.
    spout: u32,
    number: u32,
    /// Copies of it and descendants that are not completed.
    open: u32,
    /// The slot of the last completion, once none is open.
    done: i64,
}

/// Handle of a root.
pub(super) type RootId = u32;

/// A tuple that arrived and all of whose descendants are completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The slot of its arrival.
    pub slot: i64,
    /// The spout instance, counted over all spout instances of the simulation.
    pub spout: u32,
    /// Its number among those of its slot and spout.
    pub number: u32,
    /// Slots from its arrival to the last completion among its descendants; 0 if that was before its arrival.
    pub response: u32,
}

/// All roots that are under way.
#[derive(Debug, Default)]
pub(super) struct Roots {
    all: Vec<Root>,
    free: Vec<RootId>,
    /// Answers since they were last taken.
    answers: Vec<Answer>,
}

impl Roots {
    /// A tuple of a slot, of which so many copies are to be sent. It is known to arrive, or foreseen only.
    pub(super) fn add(&mut self, slot: i64, spout: u32, number: u32, copies: u32, known: bool) -> RootId {
        let state = if known { State::Actual } else { State::Foreseen };
        let root = Root { state, slot, spout, number, open: copies, done: slot };
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = root;
            return id;
        }
        self.all.push(root);
        (self.all.len() - 1) as RootId
    }

    /// A copy or descendant was completed in a slot and emitted so many.
    pub(super) fn complete(&mut self, id: RootId, slot: i64, emitted: u32) {
        let root = &mut self.all[id as usize];
        root.open = root.open - 1 + emitted;
        root.done = slot;
        self.settle(id);
    }

    /// A foreseen tuple arrives.
    pub(super) fn confirm(&mut self, id: RootId) {
        self.all[id as usize].state = State::Actual;
        self.settle(id);
    }

    /// A foreseen tuple does not arrive; so many copies of it were not sent, and will not be.
    pub(super) fn refute(&mut self, id: RootId, unsent: u32) {
        let root = &mut self.all[id as usize];
        root.state = State::Phantom;
        root.open -= unsent;
        self.settle(id);
    }

    fn settle(&mut self, id: RootId) {
        let root = &mut self.all[id as usize];
        if root.open > 0 || root.state == State::Foreseen {
            return;
        }
        if root.state == State::Actual {
            let response = (root.done - root.slot).max(0) as u32;
            self.answers.push(Answer { slot: root.slot, spout: root.spout, number: root.number, response });
        }
        root.state = State::Free;
        self.free.push(id);
    }

    /// Takes the answers since this was last asked.
    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, Answer> {
        self.answers.drain(..)
    }

    /// Tuples that have arrived and are not answered, counted one by one.
    pub(super) fn unanswered(&self) -> u64 {
        self.all.iter().filter(|root| root.state == State::Actual).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_is_answered_by_its_last_descendant() {
        let mut roots = Roots::default();
        let id = roots.add(3, 1, 0, 2, true);
        roots.complete(id, 4, 1);
        roots.complete(id, 5, 0);
        assert_eq!((roots.drain().count(), roots.unanswered()), (0, 1));
        roots.complete(id, 9, 0);
        let answers: Vec<Answer> = roots.drain().collect();
        assert_eq!(answers, [Answer { slot: 3, spout: 1, number: 0, response: 6 }]);
        assert_eq!(roots.unanswered(), 0);
        assert_eq!(roots.add(9, 0, 0, 1, true), id);
    }

    #[test]
    fn what_was_sent_ahead_is_answered_at_its_arrival_or_not_at_all() {
        let mut roots = Roots::default();
        let (early, late, phantom) =
            (roots.add(10, 0, 0, 1, false), roots.add(10, 0, 1, 1, false), roots.add(10, 0, 2, 2, false));
        roots.complete(early, 8, 0);
        assert_eq!(roots.drain().count(), 0);
        roots.confirm(early);
        roots.confirm(late);
        roots.complete(phantom, 8, 0);
        roots.refute(phantom, 1);
        roots.complete(late, 12, 0);
        let responses: Vec<u32> = roots.drain().map(|answer| answer.response).collect();
        assert_eq!(responses, [0, 2]);
        assert_eq!(roots.unanswered(), 0);
    }
}
