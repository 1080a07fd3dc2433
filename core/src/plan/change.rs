//! A plan that is changed while its job runs: instances are added and end, and all others stay as they are.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::dag::{Dag, Edge, EdgeId, Parallelism, Role, Routing, VertexId};
use super::placement::Instance;
use crate::fault::{shortened, suggestion};
use crate::job::{Job, Op};
pub use joins::TableCopy;
pub use keyed::{KeyMap, keeps_nothing};
pub use sources::{Giver, SourceMove, reads_on};

use companions::Wanted;

mod companions;
mod joins;
mod keyed;
mod pairs;
mod sources;

/// More instances of one vertex than this are a slip, not a plan.
pub const MOST_INSTANCES: usize = 65_536;

/// Bytes that a queue of an instance holds at least, of what its agent's queues may hold.
pub const LEAST_QUEUE: u64 = 64 << 10;

/// The plan that is to be changed.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// Its graph.
    pub dag: &'a Dag,
    /// The job.
    pub job: &'a Job,
    /// All instances that it ever had.
    pub instances: &'a [Instance],
    /// Those that an earlier change has ended.
    pub retired: &'a BTreeSet<u32>,
    /// Names of its agents, by index, and of those that join it.
    pub agents: &'a [String],
    /// Who holds each key partition of the vertices whose partitions an earlier change has moved.
    pub maps: &'a BTreeMap<VertexId, Vec<u32>>,
}

/// The plan after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct After {
    /// Its graph: vertices that were touched have a number of instances in all, and edges may be distributed.
    pub dag: Dag,
    /// What is new; ids and numbers go on from those that there were.
    pub new: Vec<Instance>,
    /// Ids of those that end.
    pub going: Vec<u32>,
    /// Edges that are not as they were.
    pub edges: Vec<EdgeChange>,
    /// Key partitions that move.
    pub maps: Vec<KeyMap>,
    /// Sources of which instances end.
    pub sources: Vec<SourceMove>,
    /// Remarks for people.
    pub notes: Vec<String>,
}

/// An edge that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeChange {
    /// Which.
    pub edge: EdgeId,
    /// What changes, in words.
    pub change: String,
    /// Why, in words.
    pub why: String,
}

impl Before<'_> {
    /// Instances that run: none that a change has ended.
    fn standing(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(|instance| !self.retired.contains(&instance.id))
    }

    /// Adds an instance of each vertex on each agent (by index) of `add`, and ends those of `remove`. `ended` says
    /// which have come to their end by themselves.
    ///
    /// # Errors
    /// A sentence that says why the change is refused. Nothing is changed then.
    pub fn change(
        &self,
        add: &[(VertexId, u16)],
        remove: &[u32],
        ended: &dyn Fn(u32) -> bool,
    ) -> Result<After, String> {
        let Wanted { add, remove, companions, collectors, mut notes } = self.with_companions(add, remove);
        let add = &add[..];
        let going: BTreeSet<u32> = remove.iter().copied().collect();
        let known: BTreeMap<u32, VertexId> = self.standing().map(|one| (one.id, one.vertex)).collect();
        let mut touched = BTreeSet::new();
        for id in &remove {
            let found = known.get(id).ok_or_else(|| format!("the job has no instance with the id {id}"))?;
            touched.insert(*found);
        }
        touched.extend(add.iter().map(|(vertex, _)| *vertex));
        touched.retain(|vertex| !collectors.contains(vertex));
        for vertex in &touched {
            self.may_change(*vertex, add, &going, ended, &mut notes)?;
            let planned = self.dag.vertex(*vertex);
            let is_free = matches!(planned.role, Role::Whole | Role::Merge { .. });
            if !is_free && !companions.contains(vertex) && !self.keeps_by_key(planned) {
                return Err(kept(&planned.label(), planned.role));
            }
        }
        let new = self.number(add);
        let after: Vec<Instance> =
            self.standing().filter(|one| !going.contains(&one.id)).chain(&new).copied().collect();
        let mut dag = self.dag.clone();
        let mut edges = Vec::new();
        for (index, edge) in self.dag.edges.iter().enumerate() {
            let id = EdgeId(index as u32);
            if touched.contains(&edge.from) || touched.contains(&edge.to) {
                let by_itself = companions.contains(&edge.to);
                edges.extend(self.edge(id, edge, &touched, by_itself, &after, &mut dag)?);
            }
        }
        let mut maps = Vec::new();
        for vertex in &touched {
            let count = after.iter().filter(|one| one.vertex == *vertex).count();
            dag.vertices[vertex.0 as usize].parallelism = Parallelism::Total(count as u32);
            if self.takes_by_key(*vertex) {
                maps.extend(self.key_map(*vertex, &after)?);
            }
        }
        notes.extend(maps.iter().flat_map(|map| self.moved_notes(map)));
        let sources = self.source_moves(&going, &after);
        notes.extend(sources.iter().map(|moved| self.source_note(moved)));
        Ok(After { dag, new, going: remove, edges, maps, sources, notes })
    }

    fn number(&self, add: &[(VertexId, u16)]) -> Vec<Instance> {
        let mut next: BTreeMap<VertexId, u32> = BTreeMap::new();
        for instance in self.instances {
            let number = next.entry(instance.vertex).or_default();
            *number = (*number).max(instance.number + 1);
        }
        let first = self.instances.iter().map(|one| one.id + 1).max().unwrap_or(0);
        (first..)
            .zip(add)
            .map(|(id, (vertex, agent))| {
                let number = next.entry(*vertex).or_default();
                *number += 1;
                Instance { id, vertex: *vertex, number: *number - 1, agent: *agent }
            })
            .collect()
    }

    /// What a vertex itself says about a change of its instances.
    fn may_change(
        &self,
        vertex: VertexId,
        add: &[(VertexId, u16)],
        remove: &BTreeSet<u32>,
        ended: &dyn Fn(u32) -> bool,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let Some(planned) = self.dag.vertices.get(vertex.0 as usize) else {
            return Err(format!("the plan has no vertex {}", vertex.0));
        };
        let name = planned.label();
        let own: Vec<&Instance> = self.standing().filter(|one| one.vertex == vertex).collect();
        let (gone, come) = (
            own.iter().filter(|one| remove.contains(&one.id)).count(),
            add.iter().filter(|(of, _)| *of == vertex).count(),
        );
        let done = own.iter().filter(|one| ended(one.id)).count();
        if done > 0 {
            return Err(format!(
                "`{name}` comes to its end: {done} of its {} instances have no more input",
                own.len()
            ));
        }
        self.has_tables(vertex, ended)?;
        match own.len() + come - gone {
            0 => return Err(format!("`{name}` has {} instances, and needs one at least", own.len())),
            count if count > MOST_INSTANCES => {
                return Err(format!("`{name}` would get {count} instances, more than {MOST_INSTANCES}"));
            }
            _ => {}
        }
        for id in &planned.stages {
            let Some(stage) = self.job.stages.iter().find(|stage| stage.id == *id) else { continue };
            if let Op::Source(source) = &stage.op {
                let come: Vec<u16> =
                    add.iter().filter(|(of, _)| *of == vertex).map(|(_, agent)| *agent).collect();
                self.source_may_change(&name, source, &own, &come, remove)?;
            }
            stage_may_change(&name, &stage.op, gone, notes)?;
            if matches!(stage.op, Op::Sink(_)) && own.len() == 1 && come > gone {
                notes.push(format!(
                    "`{name}` had all rows in the order in which they came: from now on each of its instances has its \
                     own, and there is no order among them"
                ));
            }
        }
        Ok(())
    }

    /// What an edge of a touched vertex becomes. To companions rows go within each agent as they did (`by_itself`).
    fn edge(
        &self,
        id: EdgeId,
        edge: &Edge,
        touched: &BTreeSet<VertexId>,
        by_itself: bool,
        after: &[Instance],
        dag: &mut Dag,
    ) -> Result<Option<EdgeChange>, String> {
        let (name, label) = (self.dag.edge_name(id), |vertex| self.dag.vertex(vertex).label());
        let enters = touched.contains(&edge.to);
        if enters && self.dag.hands_table(edge) {
            // It has done so, and nothing more goes by it.
            return Ok(None);
        }
        let ends = if enters { edge.to } else { edge.from };
        if edge.routing == Routing::Isolated {
            self.pairs(id, edge, after)?;
        }
        if edge.ordered {
            return Err(format!(
                "{name} merges its senders in order: their number stays as it is; submit the job with another number"
            ));
        }
        let keyed = enters && self.takes_by_key(edge.to);
        if keyed && edge.routing != Routing::AllToOne {
            self.key_input(id, edge)?;
        } else if enters && !matches!(edge.routing, Routing::Unicast | Routing::Isolated) && !by_itself {
            let to = label(edge.to);
            return Err(if edge.routing == Routing::AllToOne {
                format!("all rows of {name} go to one instance: more of `{to}` would get none")
            } else {
                format!("every instance of `{to}` has had all rows of {name}: a new one would lack them")
            });
        }
        if !enters && edge.spills && self.takes_by_key(edge.from) {
            return Err(format!(
                "rows of {name} may wait on disk, where it is not known which of them came out of keys that move: the \
                 instances of `{}` stay as they are",
                label(edge.from)
            ));
        }
        if enters && edge.priority != 0 && !by_itself {
            return Err(format!("{name} is read before other inputs are: its targets stay as they are"));
        }
        if !edge.distributed && edge.routing == Routing::Unicast {
            let changed = &mut dag.edges[id.0 as usize];
            changed.distributed = true;
            let why = format!("`{}` is scaled: its number of instances is one for all agents", label(ends));
            changed.why.clone_from(&why);
            let change = "local becomes distributed: its rows go to the instances of all agents".to_owned();
            return Ok(Some(EdgeChange { edge: id, change, why }));
        }
        if !edge.distributed {
            let to: BTreeSet<u16> =
                after.iter().filter(|one| one.vertex == edge.to).map(|one| one.agent).collect();
            let mut senders = after.iter().filter(|one| one.vertex == edge.from);
            if let Some(without) = senders.find(|one| !to.contains(&one.agent)) {
                let agent = self.agents.get(usize::from(without.agent)).map_or("?", String::as_str);
                return Err(format!(
                    "{name} stays on one agent ({}), and agent {agent} has no instance of `{}`",
                    edge.why,
                    label(edge.to)
                ));
            }
        }
        let count =
            |all: &mut dyn Iterator<Item = &Instance>| all.filter(|one| one.vertex == edge.to).count();
        let (was, is) = (count(&mut self.standing()), count(&mut after.iter()));
        let senders =
            |all: &mut dyn Iterator<Item = &Instance>| all.filter(|one| one.vertex == edge.from).count();
        let (from_was, from_is) = (senders(&mut self.standing()), senders(&mut after.iter()));
        let (change, why) = if enters {
            (became(was, is, "target"), format!("`{}` has other instances", label(edge.to)))
        } else {
            (became(from_was, from_is, "sender"), format!("`{}` has other instances", label(edge.from)))
        };
        Ok(Some(EdgeChange { edge: id, change, why }))
    }
}

/// How many there were and are, or that as many are others.
fn became(was: usize, is: usize, what: &str) -> String {
    let counted = if was == 1 { format!("1 {what}") } else { format!("{was} {what}s") };
    match was.cmp(&is) {
        Ordering::Equal if was == 1 => format!("{counted}, which is another one"),
        Ordering::Equal => format!("{counted}, and not the same ones"),
        _ if was == 1 => format!("{counted} becomes {is}"),
        _ => format!("{counted} become {is}"),
    }
}

/// What a stage says about a change of its vertex' instances, of which so many end.
fn stage_may_change(name: &str, op: &Op, gone: usize, notes: &mut Vec<String>) -> Result<(), String> {
    match op {
        Op::Map { .. }
        | Op::Filter { .. }
        | Op::FlatMap { .. }
        | Op::Merge
        | Op::UsingService(_)
        | Op::Work(_)
        | Op::Rebalance(_)
        | Op::Peek { .. }
        // What it reads is looked at beside this.
        | Op::Source(_)
        // Its tables are complete, which was looked at before.
        | Op::HashJoin { .. }
        // Their partitions are moved: what comes in by key is looked at edge by edge.
        | Op::GroupBy { .. }
        | Op::Window(_)
        | Op::Aggregate { .. }
        | Op::CoAggregate { .. }
        | Op::Stateful { .. }
        | Op::RollingAggregate { .. }
        | Op::Distinct { .. } => Ok(()),
        Op::Sink(_) => {
            if gone > 0 {
                notes.push(format!(
                    "what instances of `{name}` have written stays on their agents until the job ends"
                ));
            }
            Ok(())
        }
        Op::CustomTransform { .. } => {
            notes.push(format!(
                "`{name}` is an operator of your own: a new instance of it begins without state, and one that \
                 ends is told so"
            ));
            Ok(())
        }
        Op::Sort { .. } => Err(format!(
            "`{name}` sorts: it holds all its rows until the end, and they cannot be moved; scale what is in front of it or \
             behind it, or submit the job with another `parallelism` of `{name}`"
        )),
        Op::AddTimestamps { .. } => Err(kept(name, Role::Timestamps)),
    }
}

fn kept(name: &str, role: Role) -> String {
    let why = match role {
        Role::Timestamps => "gives the rows of one source instance their times, and stays with it",
        Role::Collector { .. } => {
            "makes the table of a join on each agent that has an instance of it, and goes with those"
        }
        Role::Prepare | Role::Combine => {
            "keeps partial results, and those cannot be moved while a job runs yet"
        }
        Role::Whole | Role::Merge { .. } => "cannot be scaled",
    };
    format!("`{name}` {why}")
}

impl Dag {
    /// The vertex that a person names: by label or derived name, else by a stage (or peek) that runs in it.
    ///
    /// # Errors
    /// A sentence that names those there are.
    pub fn find_vertex(&self, name: &str) -> Result<VertexId, String> {
        let position = |test: &dyn Fn(&super::dag::Vertex) -> bool| self.vertices.iter().position(test);
        let found = position(&|vertex| vertex.label() == name || vertex.name == name).or_else(|| {
            position(&|vertex| {
                matches!(vertex.role, Role::Whole | Role::Combine)
                    && vertex.stages.iter().chain(&vertex.peeks).any(|id| id == name)
            })
        });
        found.map(|index| VertexId(index as u32)).ok_or_else(|| {
            let names: Vec<String> = self.vertices.iter().map(super::dag::Vertex::label).collect();
            let hint = suggestion(name, names.iter().map(String::as_str))
                .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
            let name = shortened(name, 100);
            format!("the job has no vertex `{name}`{hint} (it has {})", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FileFormat;
    use crate::plan::placement::targets_of;
    use crate::plan::{AgentSlot, place, plan};

    struct World {
        job: Job,
        dag: Dag,
        instances: Vec<Instance>,
        retired: BTreeSet<u32>,
        agents: Vec<String>,
        maps: BTreeMap<VertexId, Vec<u32>>,
    }

    fn world(text: &str, agents: u16) -> World {
        let job = Job::parse(text, FileFormat::Toml).unwrap();
        let dag = plan(&job).unwrap();
        let slots: Vec<_> =
            (0..agents).map(|index| AgentSlot { index, name: format!("a{index}"), slots: 1 }).collect();
        let instances = place(&dag, &job, &slots).unwrap();
        let agents = (0..=agents).map(|index| format!("a{index}")).collect();
        World { job, dag, instances, retired: BTreeSet::new(), agents, maps: BTreeMap::new() }
    }

    impl World {
        fn before(&self) -> Before<'_> {
            let Self { job, dag, instances, retired, agents, maps } = self;
            Before { dag, job, instances, retired, agents, maps }
        }

        fn id(&self, name: &str) -> VertexId {
            self.dag.find_vertex(name).unwrap()
        }

        fn of(&self, name: &str) -> Vec<u32> {
            let id = self.id(name);
            self.instances.iter().filter(|one| one.vertex == id).map(|one| one.id).collect()
        }

        fn refused(&self, add: &[(&str, u16)], remove: &[u32]) -> String {
            let add: Vec<_> = add.iter().map(|(name, agent)| (self.id(name), *agent)).collect();
            self.before().change(&add, remove, &|_| false).unwrap_err()
        }
    }

    const LINE: &str = "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n\
         [[stage]]\nid='w'\nop='work'\nin='s'\nms=1\n[[stage]]\nid='k'\nop='sink'\nin='w'\nconnector='count'\n";

    #[test]
    fn ids_and_numbers_go_on_and_local_edges_become_distributed() {
        let mut world = world(LINE, 2);
        let (w, of_w) = (world.id("w"), world.of("w"));
        assert_eq!(of_w.len(), 2);
        assert!(world.dag.edges.iter().all(|edge| !edge.distributed), "{:?}", world.dag.edges);
        let after = world.before().change(&[(w, 2), (w, 0)], &of_w[..1], &|_| false).unwrap();
        let next = world.instances.len() as u32;
        let made: Vec<_> = after.new.iter().map(|one| (one.id, one.number, one.agent)).collect();
        assert_eq!(made, [(next, 2, 2), (next + 1, 3, 0)]);
        assert!(after.dag.edges.iter().all(|edge| edge.distributed));
        assert_eq!(after.dag.vertex(w).parallelism, Parallelism::Total(3));
        assert_eq!(after.edges.len(), 2);
        assert!(after.edges[0].change.starts_with("local becomes distributed"), "{:?}", after.edges);
        // Once more, of what is there then.
        world.retired.insert(of_w[0]);
        world.instances.extend(after.new);
        world.dag = after.dag;
        let after = world.before().change(&[(w, 1)], &[next], &|_| false).unwrap();
        assert_eq!((after.new[0].id, after.new[0].number), (next + 2, 4));
        assert_eq!(after.edges[0].change, "3 targets, and not the same ones");
        assert!(world.refused(&[], &of_w[..1]).contains("no instance with the id"), "it is retired");
    }

    #[test]
    fn the_last_instance_stays_and_what_ends_is_left_alone() {
        let world = world(LINE, 1);
        let of_w = world.of("w");
        assert_eq!(world.refused(&[], &of_w), "`w` has 1 instances, and needs one at least");
        let ended = world.before().change(&[(world.id("w"), 0)], &[], &|id| id == of_w[0]).unwrap_err();
        assert!(ended.contains("1 of its 1 instances have no more input"), "{ended}");
    }

    /// Counts by key, in two vertices; `more` is the job's.
    fn counts(more: &str, agents: u16) -> World {
        let stages = "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n[[stage]]\nid='g'\nop='group_by'\nin='s'\n\
             key='id'\n\
             [[stage]]\nid='c'\nop='aggregate'\nin='g'\ncompute=['count(*) as n']\n\
             [[stage]]\nid='k'\nop='sink'\nin='c'\nconnector='count'\n";
        world(&format!("[job]\n{more}\n{stages}"), agents)
    }

    #[test]
    fn keys_move_as_few_as_may_and_the_next_change_goes_on_from_there() {
        let mut world = counts("partitions = 12", 2);
        let (c, of_c) = (world.id("c"), world.of("c"));
        assert_eq!(of_c.len(), 2);
        let after = world.before().change(&[(c, 2)], &[], &|_| false).unwrap();
        let [map] = &after.maps[..] else { panic!("{:?}", after.maps) };
        assert_eq!((map.vertex, map.moves(), map.before.len()), (c, 4, 12));
        let new = after.new[0].id;
        assert_eq!(map.owners(), BTreeSet::from([of_c[0], of_c[1], new]));
        assert!(
            after.notes.iter().any(|note| note == "4 of the 12 key partitions of `c` move"),
            "{:?}",
            after.notes
        );
        assert_eq!(map.after.iter().filter(|owner| **owner == new).count(), 4);
        // Computed from the instances the map would be another one.
        world.instances.extend(after.new.clone());
        world.maps.insert(c, map.after.clone());
        world.dag = after.dag.clone();
        let back = world.before().change(&[], &[of_c[0]], &|_| false).unwrap();
        assert_eq!(back.maps[0].before, map.after);
        assert_eq!(back.maps[0].moves(), 4);
        assert!(!back.maps[0].after.contains(&of_c[0]));
        let stateless = world.before().change(&[(world.id("k"), 0)], &[], &|_| false).unwrap();
        assert_eq!(stateless.maps, []);
    }

    /// A stage without state to which rows come by key.
    fn by_key(stage: &str, more: &str, agents: u16) -> World {
        world(
            &format!(
                "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n[[stage]]\nid='r'\nop='rebalance'\nin='s'\n\
                 key='id'\n{stage}\n[[stage]]\nid='k'\nop='sink'\nin='x'\nconnector='file'\nformat='csv'\npath='p'\n{more}"
            ),
            agents,
        )
    }

    #[test]
    fn fixed_pairs_begin_and_end_together_on_an_agent() {
        let text = "[job]\npreserve_order = true\n[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n\
             [[stage]]\nid='r'\nop='rebalance'\nin='s'\nkey='id'\n\
             [[stage]]\nid='x'\nop='map'\nin='r'\nselect=['id']\n[[stage]]\nid='w'\nop='work'\nin='x'\nms=1\n\
             [[stage]]\nid='k'\nop='sink'\nin='w'\nconnector='count'\n";
        let mut world = world(text, 2);
        let (x, w) = (world.id("x"), world.id("w"));
        assert_eq!(world.dag.inputs(w).next().unwrap().1.routing, Routing::Isolated);
        let (of_x, of_w) = (world.of("x"), world.of("w"));
        // One end alone, or where the other has its pairs already.
        for (add, remove) in
            [(vec![("x", 2)], vec![]), (vec![], vec![of_w[0]]), (vec![("x", 0), ("w", 0)], vec![])]
        {
            let why = world.refused(&add, &remove);
            assert!(why.contains("x..w joins fixed pairs"), "{why}");
        }
        let after = world.before().change(&[(x, 2), (w, 2)], &[of_x[0], of_w[0]], &|_| false).unwrap();
        assert_eq!((after.new.len(), after.maps.len()), (2, 1));
        let all: Vec<Instance> = world.instances.iter().chain(&after.new).copied().collect();
        let edge = after.dag.inputs(w).next().unwrap().0;
        assert_eq!(targets_of(&after.dag, edge, &all, &after.new[0]), [after.new[1].id]);
        world.retired.extend(after.going);
        world.instances.extend(after.new);
        (world.dag, world.maps) =
            (after.dag, after.maps.into_iter().map(|map| (map.vertex, map.after)).collect());
        let back = world.refused(&[("x", 0), ("w", 0)], &[]);
        assert!(back.contains("agent a0") && back.contains("if it has had none"), "{back}");
    }

    #[test]
    fn keys_move_to_where_nothing_is_kept_of_them_too() {
        let to_map = by_key("[[stage]]\nid='x'\nop='map'\nin='r'\nselect=['id']", "", 2);
        let x = to_map.id("x");
        let after = to_map.before().change(&[(x, 1)], &[], &|_| false).unwrap();
        assert_eq!((after.maps.len(), after.maps[0].vertex, after.maps[0].moves()), (1, x, 90));
        assert!(!after.notes.iter().any(|note| note.contains("files")), "{:?}", after.notes);
        let sinks = "[[stage]]\nid='x'\nop='map'\nin='s'\nselect=['id']";
        let to_sink = by_key(sinks, "type='distributed_partitioned'\nkey='id'", 2);
        let (k, of_k) = (to_sink.id("k"), to_sink.of("k"));
        let after = to_sink.before().change(&[], &of_k[..1], &|_| false).unwrap();
        assert_eq!((after.maps[0].vertex, after.maps[0].moves()), (k, 136));
        assert!(
            after.notes.iter().any(|note| note.contains("in files of two instances")),
            "{:?}",
            after.notes
        );
        // By key within each agent alone, and an operator that may keep what nobody knows.
        let local = by_key(sinks, "type='partitioned'\nkey='id'", 2);
        assert!(local.refused(&[("k", 0)], &[]).contains("with a rebalance in front of"));
        let own = by_key("[[stage]]\nid='x'\nop='custom_transform'\nin='r'\ncall='mine'", "", 2);
        assert!(own.refused(&[("x", 0)], &[]).contains("cannot be handed over"));
        let mixed = by_key("[[stage]]\nid='x'\nop='merge'\nin=['r', 's']", "", 2);
        let why = mixed.refused(&[("x", 0)], &[]);
        assert!(why.contains("takes rows by key, and rows come to it on s:1..x:1 otherwise"), "{why}");
    }

    #[test]
    fn joins_are_changed_once_their_tables_are_there_and_take_what_made_them_along() {
        let text = "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n\
             [[stage]]\nid='t'\nop='source'\nconnector='ids'\nn=9\n\
             [[stage]]\nid='u'\nop='source'\nconnector='ids'\nn=9\n\
             [[stage]]\nid='j'\nop='hash_join'\nin=['s', 't', 'u']\non=['s.id = t.id', 's.id = u.id']\n\
             [[stage]]\nid='k'\nop='sink'\nin='j'\nconnector='count'\n";
        let mut world = world(text, 2);
        let (j, of_j) = (world.id("j"), world.of("j"));
        let [first, second] = ["j/collector1", "j/collector2"].map(|name| world.of(name));
        let why = world.before().change(&[(j, 2)], &[], &|id| first.contains(&id)).unwrap_err();
        assert!(why.contains("`j/collector2` still reads its table on 2 of 2 agents"), "{why}");
        let over = |id| first.contains(&id) || second.contains(&id);
        assert!(
            world
                .before()
                .change(&[(world.id("j/collector1"), 0)], &[], &|_| false)
                .unwrap_err()
                .contains("makes the table")
        );
        // On an agent that has one nothing is copied.
        let here = world.before().change(&[(j, 1)], &[], &over).unwrap();
        assert_eq!((here.new.len(), here.going.len(), here.maps.len()), (1, 0, 0));
        assert!(!here.notes.iter().any(|note| note.contains("copied")), "{:?}", here.notes);
        // A third agent gets two, and the first loses its only one.
        let after = world.before().change(&[(j, 2), (j, 2)], &of_j[..1], &over).unwrap();
        assert_eq!(after.going, [of_j[0], first[0], second[0]]);
        assert!(
            after.notes.iter().any(|note| note.starts_with("what `j` joins with is copied to a2")),
            "{:?}",
            after.notes
        );
        assert_eq!(after.edges.len(), 2, "none of those that hand over tables: {:?}", after.edges);
        let all: Vec<Instance> = world.instances.iter().chain(&after.new).copied().collect();
        let new: BTreeSet<u32> = after.new.iter().map(|one| one.id).collect();
        let copies = after.dag.table_copies(&all, &|id| new.contains(&id));
        assert_eq!(copies, [TableCopy { vertex: j, from: 0, to: 2, target: after.new[0].id }]);
        assert_eq!(after.dag.collectors(j).count(), 2);
        // A run that begins copies nothing.
        assert_eq!(world.dag.table_copies(&world.instances, &|_| true), []);
        world.retired.extend(after.going.clone());
        world.instances.extend(after.new);
        world.dag = after.dag;
        // Where a copy has come no collector stands, and the next change needs none.
        let next = world.before().change(&[(j, 0)], &[], &over).unwrap();
        assert_eq!((next.new.len(), next.going.len()), (1, 0));
    }

    #[test]
    fn first_halves_of_aggregations_come_and_go_with_who_sends_to_them() {
        let stages = "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n[[stage]]\nid='w'\nop='work'\nin='s'\nms=1\n\
             [[stage]]\nid='g'\nop='group_by'\nin='w'\nkey='id'\n[[stage]]\nid='c'\nop='aggregate'\nin='g'\n\
             compute=['count(*) as n']\n[[stage]]\nid='k'\nop='sink'\nin='c'\nconnector='count'\n";
        let mut world = world(stages, 2);
        let (w, half) = (world.id("w"), world.id("c/prepare"));
        let (of_w, of_half) = (world.of("w"), world.of("c/prepare"));
        assert_eq!((of_w.len(), of_half.len()), (2, 2));
        // A third agent gets a sender: the half comes with it; another sender there brings none.
        let after = world.before().change(&[(w, 2), (w, 2)], &[], &|_| false).unwrap();
        let made: Vec<_> = after.new.iter().map(|one| (one.vertex, one.agent)).collect();
        assert_eq!(made, [(w, 2), (w, 2), (half, 2)]);
        assert!(
            after.notes.iter().any(|note| note.starts_with("`c/prepare` begins where")),
            "{:?}",
            after.notes
        );
        let senders: Vec<u32> = after.new.iter().filter(|one| one.vertex == w).map(|one| one.id).collect();
        let third = after.new.iter().find(|one| one.vertex == half).unwrap().id;
        for sender in after.new.iter().filter(|one| one.vertex == w) {
            let edge = world.dag.inputs(half).next().unwrap().0;
            let all: Vec<Instance> = world.instances.iter().chain(&after.new).copied().collect();
            assert_eq!(targets_of(&after.dag, edge, &all, sender), [third]);
        }
        world.instances.extend(after.new);
        world.dag = after.dag;
        // One of its two senders ends, and it stays; then the other, and it ends too, whether it was asked for or not.
        let one = world.before().change(&[], &senders[..1], &|_| false).unwrap();
        assert_eq!(one.going, senders[..1]);
        for asked in [vec![], vec![third]] {
            let remove: Vec<u32> = senders.iter().copied().chain(asked.clone()).collect();
            // What is left moves to the first agent, which has its half.
            let add: Vec<_> = asked.iter().map(|_| (half, 0)).chain([(w, 0)]).collect();
            let both = world.before().change(&add, &remove, &|_| false).unwrap();
            assert_eq!(both.going, [senders[0], senders[1], third]);
            assert_eq!(both.new.iter().map(|one| (one.vertex, one.agent)).collect::<Vec<_>>(), [(w, 0)]);
        }
        // By itself it stays as it is.
        assert!(world.refused(&[], &[third]).contains("partial results"));
        assert!(world.refused(&[("c/prepare", 0)], &[]).contains("partial results"));
    }

    #[test]
    fn more_instances_than_partitions_are_refused_with_the_numbers() {
        let world = counts("partitions = 3", 3);
        let why = world.refused(&[("c", 0)], &[]);
        assert!(why.contains("would get 4 instances") && why.contains("in 3 partitions"), "{why}");
    }

    #[test]
    fn what_cannot_be_moved_is_refused_with_the_reason() {
        let keyed = counts("", 2);
        assert!(keyed.refused(&[("c/prepare", 0)], &[]).contains("partial results"));
        let source = keyed.refused(&[("s", 0)], &[]);
        assert!(source.contains("dealt to its 2 instances by number from the start"), "{source}");
        assert!(keyed.dag.find_vertex("nothing").unwrap_err().contains("it has s, "));
        let total = world(
            "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\n[[stage]]\nid='c'\nop='aggregate'\nin='s'\n\
             compute=['count(*) as n']\n[[stage]]\nid='k'\nop='sink'\nin='c'\nconnector='count'\n",
            2,
        );
        assert!(
            total.refused(&[("c", 0)], &[]).contains("go to one instance"),
            "{}",
            total.refused(&[("c", 0)], &[])
        );
        let ahead = world(
            "[[stage]]\nid='s'\nop='source'\nconnector='ids'\nn=9\nrate=5\nwindow=3\n\
             [[stage]]\nid='r'\nop='rebalance'\nin='s'\npolicy='potus'\n[[stage]]\nid='w'\nop='work'\nin='r'\nms=1\n\
             [[stage]]\nid='g'\nop='group_by'\nin='w'\nkey='id'\n\
             [[stage]]\nid='c'\nop='aggregate'\nin='g'\ncompute=['count(*) as n']\n\
             [[stage]]\nid='k'\nop='sink'\nin='c'\nconnector='count'\n",
            2,
        );
        let early = ahead.refused(&[("c", 0)], &[]);
        assert!(early.contains("gives its rows before they arrive"), "{early}");
        let ordered = world(&format!("[job]\npreserve_order = true\n{LINE}"), 2);
        let isolated = ordered.refused(&[("w", 0)], &[]);
        assert!(
            isolated.contains("s..w joins fixed pairs") && isolated.contains("scale apply"),
            "{isolated}"
        );
    }

    #[test]
    fn after_a_change_every_sender_has_a_target() {
        let world = world(LINE, 3);
        let (w, of_w) = (world.id("w"), world.of("w"));
        let after = world.before().change(&[], &of_w[1..], &|_| false).unwrap();
        let left: Vec<_> =
            world.instances.iter().filter(|one| !of_w[1..].contains(&one.id)).copied().collect();
        for (edge, planned) in after.dag.edges.iter().enumerate() {
            let senders = left.iter().filter(|one| one.vertex == planned.from);
            for sender in senders {
                assert!(!targets_of(&after.dag, EdgeId(edge as u32), &left, sender).is_empty());
            }
        }
        assert_eq!(after.dag.vertex(w).parallelism, Parallelism::Total(1));
    }

    #[test]
    fn what_sources_have_not_read_goes_to_others() {
        let world = world(LINE, 2);
        let (s, of_s) = (world.id("s"), world.of("s"));
        let fewer = world.before().change(&[], &of_s[..1], &|_| false).unwrap();
        let [moved] = &fewer.sources[..] else { panic!("{:?}", fewer.sources) };
        assert_eq!((moved.vertex, moved.stage.as_str()), (s, "s"));
        assert_eq!(moved.givers, [Giver { instance: of_s[0], takers: vec![of_s[1]] }]);
        let elsewhere = world.before().change(&[(s, 2)], &of_s[..1], &|_| false).unwrap();
        let takers: Vec<u32> = elsewhere.sources[0].takers().into_iter().collect();
        assert_eq!(takers, [of_s[1], elsewhere.new[0].id]);
        assert!(world.before().change(&[(world.id("w"), 0)], &[], &|_| false).unwrap().sources.is_empty());
        let more = world.refused(&[("s", 2), ("s", 1)], &of_s[..1]);
        assert!(more.contains("can be moved and be fewer, but not more"), "{more}");
        assert!(world.refused(&[], &of_s).contains("needs one at least"));
    }

    #[test]
    fn a_source_stays_where_nobody_else_can_read_it() {
        let line = |source: &str| {
            format!(
                "[[stage]]\nid='s'\nop='source'\n{source}\n[[stage]]\nid='w'\nop='work'\nin='s'\nms=1\n\
                 [[stage]]\nid='k'\nop='sink'\nin='w'\nconnector='count'\n"
            )
        };
        let own = world(&line("connector='file'\npath='x.log'\nfiles='each'\nparallelism=2"), 2);
        let of_s = own.of("s");
        assert_eq!(of_s.len(), 4);
        let on = |world: &World, agent: u16| -> Vec<u32> {
            let id = world.id("s");
            world
                .instances
                .iter()
                .filter(|one| one.vertex == id && one.agent == agent)
                .map(|one| one.id)
                .collect()
        };
        let fewer = own.before().change(&[], &on(&own, 1)[..1], &|_| false).unwrap();
        assert_eq!(fewer.sources[0].givers[0].takers, on(&own, 1)[1..], "of the same agent");
        let last = own.refused(&[], &on(&own, 1));
        assert!(last.contains("2 of its 4 instances read those of a1") && last.contains("x.log"), "{last}");
        let away = own.refused(&[("s", 2)], &on(&own, 1)[..1]);
        assert!(away.contains("each agent's own files") && away.contains("to a2"), "{away}");
        let pinned = world(&line("connector='ids'\nn=9\non=['a0', 'a1']"), 3);
        let to = pinned.refused(&[("s", 2)], &on(&pinned, 1));
        assert!(to.contains("on 2 of its agents alone") && to.contains("a2 is none of them"), "{to}");
        assert!(pinned.before().change(&[(pinned.id("s"), 0)], &on(&pinned, 1), &|_| false).is_ok());
        assert!(!reads_on(&pinned.job, &pinned.dag, pinned.id("s"), "a2"));
        assert!(reads_on(&pinned.job, &pinned.dag, pinned.id("w"), "a2"));
        let mine = world(&line("connector='mine'"), 2);
        let why = mine.refused(&[], &mine.of("s")[..1]);
        assert!(why.contains("source of your own (`mine`)"), "{why}");
    }
}
