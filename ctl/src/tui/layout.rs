//! Where the graph's boxes stand and how its edges run, from left to right.

use ascii_dag::graph::Direction;
use ascii_dag::{EdgePath, Graph, LayoutConfig, NodeContent};

/// A box: left column, top line, width, height.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
    /// Its column of boxes, from 0.
    pub(crate) level: usize,
}

/// A laid-out graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Laid {
    /// Columns in all.
    pub(crate) width: i32,
    /// Lines in all.
    pub(crate) height: i32,
    /// By vertex.
    pub(crate) boxes: Vec<Spot>,
    /// By edge: the corners of its way, from beside its source to beside its target; each leg is straight.
    pub(crate) routes: Vec<Vec<(i32, i32)>>,
}

/// What lays a graph out.
pub(crate) trait Layout {
    /// Boxes of these sizes (columns, lines), joined by edges of (from, to), at least `gap` columns
    /// between two columns of boxes.
    fn lay(&self, sizes: &[(usize, usize)], edges: &[(usize, usize)], gap: usize) -> Laid;
}

/// Layers by longest path, few crossings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layered;

struct Box(usize, usize);

impl NodeContent<'static> for Box {
    fn label(&self) -> &'static str {
        ""
    }

    fn size(&self) -> (usize, usize) {
        (self.0, self.1)
    }
}

impl Layout for Layered {
    fn lay(&self, sizes: &[(usize, usize)], edges: &[(usize, usize)], gap: usize) -> Laid {
        let mut graph = Graph::new();
        for (id, (width, height)) in sizes.iter().enumerate() {
            graph.add_node(id, Box(*width, *height));
        }
        for (from, to) in edges {
            graph.add_edge(*from, *to, None);
        }
        let mut config = LayoutConfig::standard();
        // The graph's own direction is not looked at where a configuration is given.
        config.direction = Direction::LeftRight;
        config.node_spacing = 1;
        config.level_spacing = gap;
        let drawn = graph.compute_layout_with_config(&config);
        let mut boxes = vec![Spot::default(); sizes.len()];
        for node in drawn.nodes() {
            if let Some(spot) = boxes.get_mut(node.id) {
                *spot = Spot {
                    x: node.x as i32,
                    y: node.y as i32,
                    width: node.width as i32,
                    height: node.height as i32,
                    level: node.level,
                };
            }
        }
        let mut routes = vec![Vec::new(); edges.len()];
        for edge in drawn.edges() {
            let (Some(from), Some(to)) = (boxes.get(edge.from_id), boxes.get(edge.to_id)) else { continue };
            let bends = match &edge.path {
                EdgePath::Corner { bend_at } => vec![(*bend_at as i32, i32::MAX)],
                EdgePath::MultiSegment { waypoints, start_offset } => {
                    let mut bend = from.x + from.width + *start_offset as i32;
                    let mut bends = Vec::new();
                    for (x, y) in waypoints {
                        bends.push((bend, *y as i32));
                        bend = *x as i32 + 1;
                    }
                    bends.push((bend, i32::MAX));
                    bends
                }
                _ => Vec::new(),
            };
            if let Some(route) = routes.get_mut(edge.edge_index) {
                *route = way(
                    (from.x + from.width, door(edges, edge.edge_index, *from, true)),
                    (to.x - 1, door(edges, edge.edge_index, *to, false)),
                    &bends,
                );
            }
        }
        // As wide as its boxes: a column beside them would cost a roomier setting.
        let width = boxes.iter().map(|spot| spot.x + spot.width).max().unwrap_or(0);
        Laid { width, height: drawn.height() as i32, boxes, routes }
    }
}

/// The line at which an edge leaves or enters a box: several edges share the lines inside the box's
/// frame in turn.
fn door(edges: &[(usize, usize)], edge: usize, spot: Spot, leaves: bool) -> i32 {
    let end = |(from, to): &(usize, usize)| if leaves { *from } else { *to };
    let own = edges.get(edge).map(end);
    let before = edges.iter().take(edge).filter(|other| Some(end(other)) == own).count() as i32;
    spot.y + 1 + before % (spot.height - 2).max(1)
}

/// The corners of a way that turns at columns towards lines; the last turn is towards the end.
fn way(start: (i32, i32), end: (i32, i32), bends: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut corners = vec![start];
    let mut line = start.1;
    let straight = [(start.0, i32::MAX)];
    let bends = if bends.is_empty() && start.1 != end.1 { &straight[..] } else { bends };
    for (column, to) in bends {
        let column = (*column).clamp(start.0.min(end.0), end.0.max(start.0));
        let to = if *to == i32::MAX { end.1 } else { *to };
        corners.push((column, line));
        corners.push((column, to));
        line = to;
    }
    corners.push(end);
    corners.dedup();
    corners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_stand_from_left_to_right_and_never_overlap() {
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4), (4, 5), (4, 6), (4, 6)];
        let sizes: Vec<(usize, usize)> = (0..7).map(|i| (14 + i, 4)).collect();
        let laid = Layered.lay(&sizes, &edges, 8);
        for (from, to) in edges {
            assert!(laid.boxes[from].x + laid.boxes[from].width <= laid.boxes[to].x - 8);
        }
        for (i, a) in laid.boxes.iter().enumerate() {
            for b in &laid.boxes[i + 1..] {
                let apart = a.x + a.width <= b.x
                    || b.x + b.width <= a.x
                    || a.y + a.height <= b.y
                    || b.y + b.height <= a.y;
                assert!(apart, "{a:?} {b:?}");
            }
            assert!(a.x + a.width <= laid.width && a.y + a.height <= laid.height);
        }
    }

    #[test]
    fn routes_are_straight_legs_between_their_boxes() {
        let edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (0, 4), (0, 4)];
        let laid = Layered.lay(&[(12, 4); 5], &edges, 8);
        for ((from, to), route) in edges.iter().zip(&laid.routes) {
            let (from, to) = (laid.boxes[*from], laid.boxes[*to]);
            let (first, last) = (route[0], route[route.len() - 1]);
            assert_eq!((first.0, last.0), (from.x + from.width, to.x - 1));
            assert!((from.y..from.y + from.height).contains(&first.1));
            assert!((to.y..to.y + to.height).contains(&last.1));
            for leg in route.windows(2) {
                assert!(leg[0].0 == leg[1].0 || leg[0].1 == leg[1].1, "{route:?}");
            }
        }
    }

    #[test]
    fn a_lone_vertex_and_none_at_all() {
        assert_eq!(Layered.lay(&[(10, 4)], &[], 8).boxes[0].width, 10);
        assert_eq!(Layered.lay(&[], &[], 8).boxes, []);
    }
}
