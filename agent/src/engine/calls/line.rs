//! What an instance has asked, in the order of its rows, with the marks between them.

use std::collections::VecDeque;
use std::sync::Arc;

use tuplane_expr::arrow::array::RecordBatch;

use crate::engine::rows::{Kept, own_bytes};
use crate::exchange::mark::Mark;

/// Rows of a request.
pub(super) struct Held {
    pub(super) rows: RecordBatch,
    /// Their charges stay until they are done.
    pub(super) _kept: Vec<Arc<Kept>>,
}

enum Place {
    Row(Held, Option<RecordBatch>),
    Mark(Mark),
}

/// What may leave.
pub(super) enum Leaving {
    Mark(Mark),
    /// Rows of requests, and their answers.
    Rows(Vec<(Held, RecordBatch)>),
}

/// The line. Its places have rising numbers; one that has left, from wherever, takes up no place.
#[derive(Default)]
pub(super) struct Line {
    places: VecDeque<(u64, Place)>,
    next: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Puts a request at the end; gives its number.
    pub(super) fn ask(&mut self, held: Held) -> u64 {
        self.push(Place::Row(held, None))
    }

    /// Puts a mark at the end. Of watermarks with nothing between them the greatest says what all did, and that a
    /// sender was idle before it says nothing: a source that goes on while one answer is late adds nothing.
    pub(super) fn mark(&mut self, mut mark: Mark) {
        while let Some((_, Place::Mark(last))) = self.places.back() {
            mark = match (*last, mark) {
                (Mark::Watermark(last), Mark::Watermark(time)) => Mark::Watermark(last.max(time)),
                (Mark::Idle, Mark::Watermark(_) | Mark::Idle) => mark,
                _ => break,
            };
            self.places.pop_back();
        }
        self.push(Place::Mark(mark));
    }

    fn push(&mut self, place: Place) -> u64 {
        let number = self.next;
        self.next += 1;
        self.places.push_back((number, place));
        number
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.places.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    /// The rows of a request that has no answer yet.
    pub(super) fn asked(&self, number: u64) -> Option<&RecordBatch> {
        match self.places.get(self.position(number)?) {
            Some((_, Place::Row(held, None))) => Some(&held.rows),
            _ => None,
        }
    }

    /// A request has its answer.
    pub(super) fn answer(&mut self, number: u64, answer: RecordBatch) {
        if let Some(at) = self.position(number)
            && let Place::Row(_, there) = &mut self.places[at].1
        {
            *there = Some(answer);
        }
    }

    /// A request whose rows do not go on.
    pub(super) fn drop_asked(&mut self, number: u64) {
        if let Some(at) = self.position(number) {
            self.places.remove(at);
        }
    }

    /// There are answers that could leave, in order or as they came.
    pub(super) fn has_results(&self, ordered: bool) -> bool {
        let rows = self.places.iter().map_while(|(_, place)| match place {
            Place::Row(_, answer) => Some(answer.is_some()),
            Place::Mark(_) => None,
        });
        rows.take(if ordered { 1 } else { usize::MAX }).any(|answered| answered)
    }

    /// What may leave next: a mark, or requests with about `most` bytes of rows and answers, at least one. No row
    /// passes a mark, from neither side.
    pub(super) fn leave(&mut self, ordered: bool, most: u64) -> Option<Leaving> {
        if let Some((_, Place::Mark(mark))) = self.places.front() {
            let mark = *mark;
            self.places.pop_front();
            return Some(Leaving::Mark(mark));
        }
        let (mut ready, mut bytes, mut at) = (Vec::new(), 0, 0);
        while let Some((_, Place::Row(held, answer))) = self.places.get(at) {
            match answer {
                None if ordered => break,
                None => at += 1,
                Some(answer) => {
                    bytes += own_bytes(&held.rows) + own_bytes(answer);
                    if bytes > most && !ready.is_empty() {
                        break;
                    }
                    if let Some((_, Place::Row(held, Some(answer)))) = self.places.remove(at) {
                        ready.push((held, answer));
                    }
                }
            }
        }
        (!ready.is_empty()).then_some(Leaving::Rows(ready))
    }
}

#[cfg(test)]
mod tests {
    use tuplane_expr::arrow::array::{ArrayRef, StringArray};

    use super::*;

    fn batch(text: &str) -> RecordBatch {
        let column: ArrayRef = Arc::new(StringArray::from(vec![text]));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    fn ask(line: &mut Line) -> u64 {
        line.ask(Held { rows: batch("row"), _kept: Vec::new() })
    }

    fn left(line: &mut Line, ordered: bool, most: u64) -> Vec<String> {
        std::iter::from_fn(|| line.leave(ordered, most))
            .map(|leaving| match leaving {
                Leaving::Mark(mark) => format!("{mark:?}"),
                Leaving::Rows(rows) => rows.len().to_string(),
            })
            .collect()
    }

    #[test]
    fn a_slow_front_keeps_neither_what_has_left_nor_marks_of_one_meaning() {
        for ordered in [false, true] {
            let mut line = Line::default();
            let slow = ask(&mut line);
            for _ in 0..1000 {
                let number = ask(&mut line);
                if ordered {
                    line.drop_asked(number);
                } else {
                    line.answer(number, batch("answer"));
                    assert!(line.has_results(ordered));
                    assert_eq!(left(&mut line, ordered, 1 << 20), ["1"]);
                }
            }
            assert_eq!(line.places.len(), 1);
            for time in 0..1000 {
                line.mark(Mark::Watermark(time));
                line.mark(Mark::Idle);
                line.mark(Mark::Idle);
            }
            assert_eq!(line.places.len(), 3);
            line.mark(Mark::Barrier(1));
            line.mark(Mark::Watermark(i64::MIN));
            let behind = ask(&mut line);
            line.answer(behind, batch("answer"));
            assert!(!line.has_results(ordered) && left(&mut line, ordered, 1 << 20).is_empty());
            line.answer(slow, batch("answer"));
            let wanted =
                ["1", "Watermark(999)", "Idle", "Barrier(1)", "Watermark(-9223372036854775808)", "1"];
            assert_eq!(left(&mut line, ordered, 1 << 20), wanted);
            assert!(line.is_empty());
        }
    }

    #[test]
    fn answers_leave_in_pieces_of_bounded_bytes() {
        for ordered in [false, true] {
            let mut line = Line::default();
            let long = "x".repeat(1000);
            for _ in 0..10 {
                let number = ask(&mut line);
                line.answer(number, batch(&long));
            }
            assert_eq!(left(&mut line, ordered, 3500), ["3", "3", "3", "1"]);
            let number = ask(&mut line);
            line.answer(number, batch(&long));
            assert_eq!(left(&mut line, ordered, 1), ["1"]);
        }
    }
}
