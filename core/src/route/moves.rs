//! Partition maps that change: who holds each key partition when instances come and go, and what moves together.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::groups::groups;

/// Partitions that go from one instance to another together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Dense id of the instance that holds them.
    pub from: u32,
    /// Dense id of the instance that is to hold them.
    pub to: u32,
    /// Which.
    pub partitions: Vec<u16>,
}

/// The map (an instance for each partition) over these instances and no others, each named once: their shares differ by
/// one partition at most, and no map with such shares moves fewer partitions away from where `map` has them. Without
/// instances nobody holds anything, and the map is empty.
pub fn remap(map: &[u32], owners: &[u32]) -> Vec<u32> {
    if owners.is_empty() {
        return Vec::new();
    }
    let mut have: HashMap<u32, usize> = owners.iter().map(|owner| (*owner, 0)).collect();
    for owner in map {
        if let Some(count) = have.get_mut(owner) {
            *count += 1;
        }
    }
    let (base, more) = (map.len() / owners.len(), map.len() % owners.len());
    // Who has most keeps one more: whoever else did would give one away and another would have to take it.
    let mut by_share: Vec<u32> = owners.to_vec();
    by_share.sort_by_key(|owner| std::cmp::Reverse(have[owner]));
    let mut room: HashMap<u32, usize> =
        (0..).zip(&by_share).map(|(rank, owner)| (*owner, base + usize::from(rank < more))).collect();
    let kept: Vec<Option<u32>> = map
        .iter()
        .map(|owner| {
            let left = room.get_mut(owner).filter(|left| **left > 0)?;
            *left -= 1;
            Some(*owner)
        })
        .collect();
    // Neighbours go to different instances, in turn.
    let mut turn = 0;
    let mut next = || {
        for _ in owners {
            let owner = owners[turn % owners.len()];
            turn += 1;
            if let Some(left) = room.get_mut(&owner).filter(|left| **left > 0) {
                *left -= 1;
                return owner;
            }
        }
        owners[0]
    };
    kept.into_iter().map(|owner| owner.unwrap_or_else(&mut next)).collect()
}

/// Partitions whose instance is another, by the instances: the former first. Both maps are of the same partitions.
pub fn moved(before: &[u32], after: &[u32]) -> BTreeMap<(u32, u32), Vec<u16>> {
    let mut pairs: BTreeMap<(u32, u32), Vec<u16>> = BTreeMap::new();
    for (partition, (from, to)) in (0..).zip(before.iter().zip(after)) {
        if from != to {
            pairs.entry((*from, *to)).or_default().push(partition);
        }
    }
    pairs
}

/// What moves from one map to another, in groups of at most `most` bytes of state as `size` has them (a partition that
/// is larger is a group by itself). A group has one instance that it leaves, and one that it goes to.
pub fn moves(before: &[u32], after: &[u32], size: &dyn Fn(u16) -> u64, most: u64) -> Vec<Group> {
    let pairs = moved(before, after).into_iter();
    pairs
        .flat_map(|((from, to), partitions)| {
            let sizes: Vec<(u16, u64)> =
                partitions.into_iter().map(|partition| (partition, size(partition))).collect();
            groups(&sizes, most).into_iter().map(move |partitions| Group { from, to, partitions })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(map: &[u32], owners: &[u32]) -> Vec<usize> {
        owners.iter().map(|owner| map.iter().filter(|held| *held == owner).count()).collect()
    }

    /// The fewest moves over all ways to say who has one more than the others, each looked at.
    fn fewest(map: &[u32], owners: &[u32]) -> usize {
        let have = shares(map, owners);
        let (base, more) = (map.len() / owners.len(), map.len() % owners.len());
        (0u32..1 << owners.len())
            .filter(|chosen| chosen.count_ones() as usize == more)
            .map(|chosen| {
                let quota = |index: usize| base + usize::from((chosen >> index) & 1 == 1);
                let stays: usize = have.iter().enumerate().map(|(index, have)| quota(index).min(*have)).sum();
                map.len() - stays
            })
            .min()
            .unwrap()
    }

    #[test]
    fn of_six_partitions_a_third_instance_takes_two() {
        let map = [1, 2, 1, 2, 1, 2];
        let after = remap(&map, &[1, 2, 7]);
        assert_eq!(after, [1, 2, 1, 2, 7, 7]);
        assert_eq!(moved(&map, &after), BTreeMap::from([((1, 7), vec![4]), ((2, 7), vec![5])]));
        // It goes again, and what it had is dealt in turn.
        assert_eq!(remap(&after, &[1, 2]), [1, 2, 1, 2, 1, 2]);
        assert_eq!(remap(&map, &[]), [0u32; 0]);
    }

    #[test]
    fn groups_have_one_way_and_a_bound() {
        let after = [9, 9, 9, 8, 1];
        let made = moves(&[1, 1, 2, 1, 1], &after, &|partition| u64::from(partition) + 3, 7);
        let group = |from, to, partitions: &[u16]| Group { from, to, partitions: partitions.to_vec() };
        assert_eq!(made, [group(1, 8, &[3]), group(1, 9, &[0, 1]), group(2, 9, &[2])]);
    }

    proptest! {
        #[test]
        fn shares_are_even_and_no_fewer_partitions_could_move(
            map in prop::collection::vec(0u32..6, 1..60),
            owners in prop::sample::subsequence((0u32..9).collect::<Vec<_>>(), 1..9),
        ) {
            let after = remap(&map, &owners);
            prop_assert_eq!(after.len(), map.len());
            let shares = shares(&after, &owners);
            prop_assert_eq!(shares.iter().sum::<usize>(), map.len(), "all are held by those that were named");
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
            let count: usize = moved(&map, &after).values().map(Vec::len).sum();
            prop_assert_eq!(count, fewest(&map, &owners));
            prop_assert_eq!(remap(&after, &owners), after, "what is even stays as it is");
        }

        #[test]
        fn each_partition_that_moves_is_in_one_group(
            before in prop::collection::vec(0u32..4, 1..40),
            seed in prop::collection::vec(0u32..6, 40),
            most in 1u64..40,
        ) {
            let after = &seed[..before.len()];
            let size = |partition: u16| u64::from(partition * 7 % 13);
            let mut map = before.clone();
            for group in moves(&before, after, &size, most) {
                prop_assert!(!group.partitions.is_empty() && group.from != group.to);
                let bytes: u64 = group.partitions.iter().map(|partition| size(*partition)).sum();
                prop_assert!(bytes <= most || group.partitions.len() == 1);
                for partition in group.partitions {
                    prop_assert_eq!(map[usize::from(partition)], group.from, "it moves once");
                    map[usize::from(partition)] = group.to;
                }
            }
            prop_assert_eq!(&map[..], after);
        }
    }
}
