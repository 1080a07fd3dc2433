//! Which edges of a job have queues that grow, and which block all the same.

use super::dag::{Dag, EdgeId, Note, VertexId};
use super::step::has_own_time;
use crate::fault::Spanned;
use crate::job::{Job, Op, Overflow};

/// By edge: its queues have no bound but the memory of the job on an agent. With `overflow = "grow"` that is so of all but
/// those behind a source that nothing paces, which thus gives what the stages behind it take, and those whose rows wait
/// on disk for a join's other side.
pub fn grows(dag: &Dag, job: &Job) -> Vec<bool> {
    let edge = |id: u32| {
        let edge = dag.edge(EdgeId(id));
        job.options.overflow == Overflow::Grow && !edge.spills && unpaced(dag, job, edge.from).is_none()
    };
    (0..dag.edges.len() as u32).map(edge).collect()
}

/// The source without a rate whose rows leave a vertex as they came: itself, or what gives them their times.
fn unpaced<'a>(dag: &Dag, job: &'a Job, vertex: VertexId) -> Option<&'a str> {
    let stages = dag.vertex(vertex).stages.iter();
    let source = stages.filter_map(|id| job.stages.iter().find(|stage| stage.id == *id)).find_map(|stage| {
        let Op::Source(source) = &stage.op else { return None };
        (!source.is_paced()).then_some(stage.id.as_str())
    });
    source.filter(|_| dag.inputs(vertex).next().is_none()).or_else(|| {
        let mut inputs = dag.inputs(vertex).filter(|_| has_own_time(dag, job, vertex));
        inputs.find_map(|(_, edge)| unpaced(dag, job, edge.from))
    })
}

/// Says in the plan that queues grow, and which do not.
pub(super) fn note(dag: &mut Dag, job: &Job) {
    if job.options.overflow != Overflow::Grow {
        return;
    }
    let grows = grows(dag, job);
    let mut text =
        "queues grow (`overflow = \"grow\"`, a queueing engine): the job ends as failed when its rows fill \
                    90 % of the memory that it may hold on an agent"
            .to_owned();
    let blocks = (0u32..).zip(grows).filter(|(_, grows)| !grows).map(|(id, _)| EdgeId(id));
    for id in blocks {
        let why = match unpaced(dag, job, dag.edge(id).from) {
            Some(source) => format!("`{source}` has no rate, and gives what is taken"),
            None => "its rows wait on disk".to_owned(),
        };
        text.push_str(&format!("; {} blocks: {why}", dag.edge_name(id)));
    }
    dag.notes.push(Note { text: Spanned::nowhere(text), no_effect: false, warns: false });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FileFormat;
    use crate::plan::plan;

    fn planned(text: &str) -> (Job, Dag) {
        let job = Job::parse(text, FileFormat::Toml).unwrap();
        let dag = plan(&job).unwrap();
        (job, dag)
    }

    /// The edges that grow, by name.
    fn growing(text: &str) -> Vec<String> {
        let (job, dag) = planned(text);
        let all = (0u32..).zip(grows(&dag, &job)).filter(|(_, grows)| *grows);
        all.map(|(id, _)| dag.edge_name(EdgeId(id))).collect()
    }

    fn chain(overflow: &str, source: &str) -> String {
        format!(
            "overflow = \"{overflow}\"\n[[stage]]\nid = \"in\"\nop = \"source\"\nconnector = \"ids\"\nn = 9\n{source}\n\
             [[stage]]\nid = \"slow\"\nop = \"work\"\nin = \"in\"\nms = 5\n\
             [[stage]]\nid = \"slower\"\nop = \"work\"\nin = \"slow\"\nms = 9\n\
             [[stage]]\nid = \"out\"\nop = \"sink\"\nin = \"slower\"\nconnector = \"count\"\n"
        )
    }

    #[test]
    fn all_queues_grow_but_those_behind_a_source_that_nothing_paces() {
        assert_eq!(growing(&chain("block", "")), [""; 0]);
        let behind = growing(&chain("grow", ""));
        assert_eq!(behind.len(), 2, "{behind:?}");
        assert!(behind.iter().all(|edge| !edge.starts_with("in")), "{behind:?}");
        assert_eq!(growing(&chain("grow", "rate = 5")).len(), 3);
    }

    #[test]
    fn what_gives_rows_their_times_takes_them_from_the_source_as_fast_as_it_gives_them() {
        let timed = "[[stage]]\nid = \"times\"\nop = \"add_timestamps\"\nin = \"in\"\ntime = \"id\"\n";
        let text = chain("grow", "")
            .replace("[[stage]]\nid = \"slow\"", &format!("{timed}[[stage]]\nid = \"slow\""));
        let text = text.replace("op = \"work\"\nin = \"in\"", "op = \"work\"\nin = \"times\"");
        let growing = growing(&text);
        assert_eq!(growing.len(), 2, "{growing:?}");
    }

    #[test]
    fn the_plan_says_that_queues_grow_and_which_do_not() {
        let notes =
            |text: &str| planned(text).1.notes.into_iter().map(|note| note.text.value).collect::<Vec<_>>();
        assert_eq!(notes(&chain("block", "")), [""; 0]);
        let [note] = &notes(&chain("grow", ""))[..] else { panic!("one note") };
        assert!(note.starts_with("queues grow (`overflow = \"grow\"`, a queueing engine): "), "{note}");
        assert!(note.ends_with(" blocks: `in` has no rate, and gives what is taken"), "{note}");
        let [note] = &notes(&chain("grow", "rate = 5"))[..] else { panic!("one note") };
        assert!(!note.contains("blocks"), "{note}");
    }
}
