//! Over which time rows per second are means, in the UI and in `tuplane status` alike.

use std::collections::VecDeque;
use std::time::Duration;

/// Agents report every 250 ms, and sources work in bursts: over less a rate is noise.
pub(crate) const ROWS: Duration = Duration::from_secs(5);

/// Takes away from the front what no mean needs any more. The last reading from before the window's
/// `begin` stays, so that the window is never shorter.
pub(crate) fn trim<T, A: PartialOrd>(readings: &mut VecDeque<T>, begin: A, time: impl Fn(&T) -> A) {
    while readings.get(1).is_some_and(|second| time(second) <= begin) {
        readings.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_never_shorter_than_asked_for() {
        let mut readings = VecDeque::from([1, 3, 4, 9]);
        for (begin, left) in [(0, 1), (3, 3), (8, 4), (9, 9), (20, 9)] {
            trim(&mut readings, begin, |reading| *reading);
            assert_eq!(readings.front(), Some(&left), "{begin}");
        }
    }
}
