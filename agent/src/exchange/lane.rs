//! The number of an edge between agents: an ordered edge has one for each sending instance.
//!
//! Rows of several senders must not mix on an ordered edge, so each sending instance there has a channel of its
//! own to the target (engine.md section 5). To a session such a lane is an edge like any other, with credit,
//! marks and counters of its own; only its number says which edge it belongs to.

/// Edges of a plan have numbers below this.
const EDGES: u32 = 1 << 16;

/// The number of a lane of an edge; `None` for an edge whose senders share their agent's channels.
/// Gives `None` if there are more edges or senders than have numbers.
pub(crate) fn number(edge: u32, lane: Option<u32>) -> Option<u32> {
    match lane {
        None => Some(edge),
        Some(lane) if edge < EDGES && lane < EDGES - 1 => Some(edge | (lane + 1) << 16),
        Some(_) => None,
    }
}

/// The edge that a number belongs to.
pub(crate) fn edge_of(number: u32) -> u32 {
    number % EDGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_told_apart_and_know_their_edge() {
        assert_eq!(number(7, None), Some(7));
        let lanes: Vec<u32> = (0..3).filter_map(|lane| number(7, Some(lane))).collect();
        assert!(lanes[0] != 7 && lanes[0] != lanes[1] && lanes[1] != lanes[2]);
        assert!(lanes.iter().all(|lane| edge_of(*lane) == 7));
        assert_eq!(edge_of(7), 7);
        assert_eq!((number(EDGES, Some(0)), number(0, Some(EDGES - 1))), (None, None));
    }
}
