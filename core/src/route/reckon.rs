//! Dead reckoning: how long a target's queue is by now (potus.md F8).

/// What is left of a queue that was `queued` rows long `age_us` microseconds ago, when since then `sent` rows went
/// there that it had not received, and it works off `capacity` rows a second. Never below 0, rounded to the next row:
/// a row is there until it is done.
pub fn reckon(queued: u64, sent: u64, capacity: f64, age_us: u64) -> u64 {
    let done = (capacity.max(0.0) * age_us as f64 / 1e6).floor();
    queued.saturating_add(sent).saturating_sub(done as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_there_is_added_and_what_was_done_taken_off() {
        assert_eq!(reckon(10, 5, 0.0, 1_000_000), 15);
        assert_eq!(reckon(10, 5, 4_000.0, 2_000), 7);
        assert_eq!(reckon(10, 5, 4_000.0, 60_000_000), 0);
        assert_eq!(reckon(10, 0, f64::NAN, 5), 10);
        assert_eq!(reckon(1, 0, 500.0, 1_900), 1);
    }
}
