//! Which key partitions move together: a group at a time, so that only its rows wait.

/// Most bytes of state of a group that has several partitions.
pub const MOST_STATE: u64 = 16 << 20;

/// Most bytes of state of a key partition that goes to another agent, when its plan is prepared. Twice as much may come:
/// it grows until it moves, and rows go with it.
pub const MOST_SENT: u64 = 512 << 20;

/// Partitions with the size of their state (bytes), in groups of at most `most` bytes, in the order they have; a
/// partition that is larger by itself is a group by itself. Every partition is in one group, and none is empty.
pub fn groups(sizes: &[(u16, u64)], most: u64) -> Vec<Vec<u16>> {
    let mut groups: Vec<Vec<u16>> = Vec::new();
    let mut held = 0_u64;
    for (partition, bytes) in sizes {
        match groups.last_mut() {
            Some(last) if held.saturating_add(*bytes) <= most => last.push(*partition),
            _ => {
                groups.push(vec![*partition]);
                held = 0;
            }
        }
        held = held.saturating_add(*bytes);
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn groups_are_bounded_whole_and_as_few_as_this_order_allows(
            bytes in prop::collection::vec(0u64..30, 0..40),
            most in 1u64..50,
        ) {
            let sizes: Vec<(u16, u64)> = (0..).zip(bytes.iter().copied()).collect();
            let made = groups(&sizes, most);
            let all: Vec<u16> = made.iter().flatten().copied().collect();
            prop_assert_eq!(all, (0..bytes.len() as u16).collect::<Vec<_>>());
            let size = |group: &Vec<u16>| group.iter().map(|partition| bytes[usize::from(*partition)]).sum::<u64>();
            for group in &made {
                prop_assert!(size(group) <= most || group.len() == 1);
            }
            for pair in made.windows(2) {
                prop_assert!(size(&pair[0]) + bytes[usize::from(pair[1][0])] > most);
            }
        }
    }
}
