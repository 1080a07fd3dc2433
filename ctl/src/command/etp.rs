//! `tuplane etp`: what a running job does in a second, what its stages carry, and where one more instance pays.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tuplane_core::plan::{Dag, EdgeId, VertexId};
use tuplane_core::scale::rates::{Figure, InstanceRates, VertexRates};
use tuplane_core::scale::{KeyShares, observed};
use tuplane_wire::etp::{JobFlow, MorePlan};

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::limits::{self, Wording};
use crate::more;
use crate::output::table::{Align, Table, percent, rate};
use crate::output::time::span;
use crate::output::{Format, Output, number, safe};

/// Between two looks under `--watch`.
const EVERY: Duration = Duration::from_secs(1);

/// Options of `etp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rates are means over the last 10 s, or since the job was rescaled or an option was set. What is not known is shown as `-`, \
with the reason below. CAP/INST is what one instance does with work all the time: rows by busy time. ETP is the \
share of the sinks' rows that came through the stage without meeting a congested one. +1 is what the sinks would take \
more in a second with one more instance on the agent that it would go to; below the table stands what 1, 2 and 4 more bring \
where they pay most, as `scale out --instances` would place them.")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// Looks again each second until the job ends; off a terminal one JSON document a line
    #[arg(short, long)]
    watch: bool,
    /// ETP in its three readings: by paths, by sinks that are reached, by flow
    #[arg(long)]
    readings: bool,
    /// Congested is what more than RATIO times as much reaches as it processes, as published (1.2), and not what
    /// more would reach than it can take [default: as the job's `settings` say]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    congestion: Option<f64>,
}

/// The document.
#[derive(Debug, Serialize)]
struct View {
    job: String,
    run: u64,
    epoch: u64,
    /// That rates are means over.
    over_s: Value,
    full: bool,
    engine: String,
    congestion: String,
    throughput_per_s: Value,
    modelled_per_s: Value,
    /// Who says what more instances would bring.
    more_by: String,
    more: Vec<MoreView>,
    /// The same in a sentence.
    #[serde(skip)]
    more_words: Option<String>,
    /// What the automatic mode thinks, if that is on.
    auto: Option<String>,
    limit: Option<String>,
    limiting: Option<String>,
    assumed: Vec<String>,
    vertices: Vec<VertexView>,
    edges: Vec<EdgeView>,
    per_instance: Vec<InstanceView>,
    why: Why,
}

/// Why fields are null, by their names.
type Why = BTreeMap<&'static str, String>;

#[derive(Debug, Serialize)]
struct VertexView {
    vertex: String,
    stages: Vec<String>,
    instances: u32,
    input_per_s: Value,
    processed_per_s: Value,
    emitted_per_s: Value,
    /// Of a source.
    offered_per_s: Value,
    demand_per_s: Value,
    capacity_per_s: Value,
    capacity_alone_per_s: Value,
    /// Instances for which their capacity is known.
    measured: u32,
    busy: Value,
    busiest: Value,
    blocked: Value,
    queue_in: u64,
    waiting: u64,
    selectivity: Value,
    skew: Value,
    key_skew: Value,
    keys: Option<KeysView>,
    congested: Option<bool>,
    etp: ReadingsView,
    gain_per_s: Value,
    why: Why,
}

/// So many more instances.
#[derive(Debug, Serialize)]
struct MoreView {
    instances: u32,
    gain_per_s: Value,
    vertices: Vec<MoreOfView>,
    why: String,
}

/// So many of them are of one vertex.
#[derive(Debug, Serialize)]
struct MoreOfView {
    vertex: String,
    instances: u32,
}

impl MoreView {
    fn of(plan: &MorePlan, label: impl Fn(VertexId) -> String) -> Self {
        let of = |(vertex, instances): &(u32, u32)| MoreOfView {
            vertex: label(VertexId(*vertex)),
            instances: *instances,
        };
        Self {
            instances: plan.instances,
            gain_per_s: plan.gain.as_ref().map_or(Value::Null, |gain| number(*gain)),
            vertices: plan.vertices.iter().map(of).collect(),
            why: plan.gain.as_ref().err().unwrap_or(&plan.why).clone(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ReadingsView {
    path: Value,
    sink_set: Value,
    flow_share: Value,
}

/// Shares of a vertex's rows by key.
#[derive(Debug, Serialize)]
struct KeysView {
    partitions: u16,
    busiest: u16,
    busiest_share: Value,
    heavy: Vec<HeavyKey>,
}

#[derive(Debug, Serialize)]
struct HeavyKey {
    key: String,
    share: Value,
}

impl KeysView {
    fn of(shares: &KeyShares) -> Self {
        let heavy =
            shares.keys.iter().map(|(key, share)| HeavyKey { key: key.clone(), share: number(*share) });
        Self {
            partitions: shares.partitions,
            busiest: shares.partition,
            busiest_share: number(shares.share),
            heavy: heavy.collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct EdgeView {
    edge: String,
    rate_per_s: Value,
    selectivity: Value,
    why: Why,
}

#[derive(Debug, Serialize)]
struct InstanceView {
    instance: String,
    id: u32,
    agent: String,
    over_s: Value,
    input_per_s: Value,
    processed_per_s: Value,
    emitted_per_s: Value,
    capacity_per_s: Value,
    capacity_alone_per_s: Value,
    busy: Value,
    blocked: Value,
    idle: Value,
    why: Why,
}

/// Takes figures apart: a number into its field, a reason beside it.
#[derive(Default)]
struct Apart(Why);

impl Apart {
    fn of(&mut self, field: &'static str, figure: &Figure) -> Value {
        match figure {
            Ok(value) => number(*value),
            Err(why) => {
                self.0.insert(field, why.clone());
                Value::Null
            }
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let cluster = Cluster::find(global, output)?;
    if args.watch {
        let interrupt = Interrupt::listen()?;
        return interrupt.or(watch(&args, &cluster, output)).await;
    }
    let flow = cluster.etp(args.job.clone(), args.congestion).await?;
    show(&view(flow)?, &args, output)
}

async fn watch(args: &Args, cluster: &Cluster, output: &mut Output) -> Outcome {
    let repaints = output.repaints();
    if output.is_text() && !repaints {
        output.format = Format::Jsonl;
    }
    let mut seen = false;
    loop {
        let flow = match cluster.etp(args.job.clone(), args.congestion).await {
            Ok(flow) => flow,
            // It has ended meanwhile.
            Err(failure)
                if seen && cluster.status(Some(args.job.clone())).await?.summary.phase.is_final() =>
            {
                output.notice(&safe::line(&failure.to_string()));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        seen = true;
        let view = view(flow)?;
        if repaints {
            output.text(&format!("\x1b[H\x1b[2J{}", text(&view, args.readings, output.room())))?;
        } else {
            show(&view, args, output)?;
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn show(view: &View, args: &Args, output: &mut Output) -> Outcome {
    if output.is_text() {
        output.text(&text(view, args.readings, output.room()))
    } else {
        output.document("etp", view)
    }
}

/// A bound of Stela's test of congestion.
pub(super) fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    ratio.ok_or_else(|| "write a number above 0, such as 1.2".to_owned())
}

fn view(flow: JobFlow) -> Outcome<View> {
    let dag: Dag =
        serde_json::from_str(&flow.dag).map_err(|e| Failure::Internal(format!("the plan: {e}")))?;
    let label = |vertex: VertexId| observed::name(&dag, vertex.0 as usize);
    let wording = Wording { label: &label, share: &|share| percent(Some(share)), time: &span };
    let limit = flow.etp.limit.as_ref();
    let mut apart = Apart::default();
    let vertices = flow.rates.vertices.iter().zip(&flow.etp.vertices).enumerate();
    let vertices = vertices.map(|(index, (rates, etp))| {
        let mut apart = Apart::default();
        let readings = ReadingsView {
            path: apart.of("etp.path", &etp.path),
            sink_set: apart.of("etp.sink_set", &etp.sink_set),
            flow_share: apart.of("etp.flow_share", &etp.flow_share),
        };
        let demand = apart.of("demand_per_s", &etp.demand);
        let gain = apart.of("gain_per_s", &etp.gain);
        if let Err(why) = &etp.congested {
            apart.0.insert("congested", why.clone());
        }
        let congested = etp.congested.as_ref().ok().copied();
        vertex(&dag, index, rates, congested, demand, readings, gain, apart)
    });
    let vertices = vertices.collect();
    let edges = flow.rates.edges.iter().zip(0u32..).map(|(rates, index)| {
        let mut apart = Apart::default();
        EdgeView {
            edge: dag.edge_name(EdgeId(index)),
            rate_per_s: apart.of("rate_per_s", &rates.rate),
            selectivity: apart.of("selectivity", &rates.selectivity),
            why: apart.0,
        }
    });
    let edges = edges.collect();
    let per_instance = flow.rates.instances.iter().zip(&flow.instances).map(|(rates, one)| {
        let agent = flow.agents.get(usize::from(one.agent)).map_or("?", String::as_str);
        instance(format!("{}#{}", label(one.vertex), one.number), agent, rates)
    });
    let per_instance = per_instance.collect();
    if let Some(why) = &flow.more.why {
        apart.0.insert("more", why.clone());
    }
    let rows = |rows: f64| format!("{} rows/s", rate(Some(rows)));
    let wording_of_more = more::Wording { label: &label, rate: &rows, short: false };
    Ok(View {
        over_s: apart.of("over_s", &flow.rates.seconds),
        throughput_per_s: apart.of("throughput_per_s", &flow.etp.throughput),
        modelled_per_s: apart.of("modelled_per_s", &flow.etp.modelled),
        limit: limit.map(|limit| limits::words(limit, &wording)),
        limiting: limit.and_then(limits::vertex).map(label),
        more_words: more::words(&flow.more, &wording_of_more),
        more: flow.more.plans.iter().map(|plan| MoreView::of(plan, label)).collect(),
        more_by: flow.more.planner,
        auto: flow.auto,
        job: flow.job,
        run: flow.run,
        epoch: flow.epoch,
        full: flow.rates.full,
        engine: flow.engine,
        congestion: flow.congestion,
        assumed: flow.etp.assumed,
        vertices,
        edges,
        per_instance,
        why: apart.0,
    })
}

#[expect(clippy::too_many_arguments, reason = "the parts of one line")]
fn vertex(
    dag: &Dag,
    index: usize,
    rates: &VertexRates,
    congested: Option<bool>,
    demand_per_s: Value,
    etp: ReadingsView,
    gain_per_s: Value,
    mut apart: Apart,
) -> VertexView {
    let offered = rates.offered.as_ref();
    VertexView {
        vertex: observed::name(dag, index),
        stages: dag.vertices[index].stages.clone(),
        instances: rates.instances,
        input_per_s: apart.of("input_per_s", &rates.input),
        processed_per_s: apart.of("processed_per_s", &rates.processed),
        emitted_per_s: apart.of("emitted_per_s", &rates.emitted),
        offered_per_s: offered.map_or(Value::Null, |offered| apart.of("offered_per_s", offered)),
        demand_per_s,
        capacity_per_s: apart.of("capacity_per_s", &rates.capacity),
        capacity_alone_per_s: apart.of("capacity_alone_per_s", &rates.capacity_alone),
        measured: rates.measured,
        busy: apart.of("busy", &rates.busy),
        busiest: apart.of("busiest", &rates.busiest),
        blocked: apart.of("blocked", &rates.blocked),
        queue_in: rates.queue_in,
        waiting: rates.waiting,
        selectivity: apart.of("selectivity", &rates.selectivity),
        skew: apart.of("skew", &rates.skew),
        key_skew: apart.of("key_skew", &rates.key_skew),
        keys: rates.keys.as_ref().ok().map(KeysView::of),
        congested,
        etp,
        gain_per_s,
        why: apart.0,
    }
}

fn instance(name: String, agent: &str, rates: &InstanceRates) -> InstanceView {
    let mut apart = Apart::default();
    InstanceView {
        instance: name,
        id: rates.instance,
        agent: agent.to_owned(),
        over_s: apart.of("over_s", &rates.seconds),
        input_per_s: apart.of("input_per_s", &rates.input),
        processed_per_s: apart.of("processed_per_s", &rates.processed),
        emitted_per_s: apart.of("emitted_per_s", &rates.emitted),
        capacity_per_s: apart.of("capacity_per_s", &rates.capacity),
        capacity_alone_per_s: apart.of("capacity_alone_per_s", &rates.capacity_alone),
        busy: apart.of("busy", &rates.busy),
        blocked: apart.of("blocked", &rates.blocked),
        idle: apart.of("idle", &rates.idle),
        why: apart.0,
    }
}

fn text(view: &View, readings: bool, room: Option<usize>) -> String {
    let per_second = |value: &Value| rate(value.as_f64());
    let window = match (view.over_s.as_f64(), view.full) {
        (Some(seconds), true) => format!("means over {seconds:.0} s"),
        (Some(seconds), false) => format!("means over {seconds:.0} s so far"),
        (None, _) => view.why.get("over_s").cloned().unwrap_or_default(),
    };
    let mut text = format!(
        "{}: {} rows/s at its sinks ({} by the model of a {} engine), {window}\n",
        view.job,
        per_second(&view.throughput_per_s),
        per_second(&view.modelled_per_s),
        view.engine
    );
    if let Some(limit) = &view.limit {
        text.push_str(&safe::line(limit));
        text.push('\n');
    }
    if let Some(thought) = &view.auto {
        text.push_str(&format!("automatic mode: {}\n", safe::line(thought)));
    }
    let (left, right) = (Align::Left, Align::Right);
    let mut columns = vec![
        ("VERTEX", left),
        ("INSTANCES", right),
        ("IN/S", right),
        ("DONE/S", right),
        ("OUT/S", right),
        ("CAP/INST", right),
        ("BUSY", right),
        ("CONGESTED", left),
    ];
    let shown: &[&'static str] = if readings { &["PATH", "SINKS", "FLOW"] } else { &["ETP"] };
    columns.extend(shown.iter().map(|name| (*name, right)));
    columns.push(("+1", right));
    let mut table = Table::new(&columns).spare(&["OUT/S", "INSTANCES", "DONE/S"]);
    for vertex in &view.vertices {
        let mark = if view.limiting.as_deref() == Some(vertex.vertex.as_str()) { "*" } else { "" };
        let mut cells = vec![
            format!("{mark}{}", vertex.vertex),
            vertex.instances.to_string(),
            per_second(&vertex.input_per_s),
            per_second(&vertex.processed_per_s),
            per_second(&vertex.emitted_per_s),
            per_second(&vertex.capacity_per_s),
            percent(vertex.busy.as_f64()),
            match vertex.congested {
                Some(true) => "yes",
                Some(false) => "",
                None => "-",
            }
            .to_owned(),
        ];
        let all = [&vertex.etp.path, &vertex.etp.sink_set, &vertex.etp.flow_share];
        cells.extend(all[if readings { 0 } else { 2 }..].iter().map(|value| percent(value.as_f64())));
        cells.push(match vertex.gain_per_s.as_f64() {
            Some(gain) if gain >= 0.5 => format!("+{}", rate(Some(gain))),
            Some(_) => "0".to_owned(),
            None => "-".to_owned(),
        });
        table.row(cells);
    }
    text.push_str(&table.render_in(room));
    if let Some(more) = &view.more_words {
        text.push_str(&safe::line(more));
        text.push('\n');
    }
    for line in reasons(view).into_iter().chain(view.assumed.clone()) {
        text.push_str(&safe::line(&line));
        text.push('\n');
    }
    text
}

/// Vertices with the columns that a reason is about.
type About<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// Why cells of the table are empty: each reason once, with those that it is about.
fn reasons(view: &View) -> Vec<String> {
    const SHOWN: [(&str, &str); 8] = [
        ("input_per_s", "IN/S"),
        ("processed_per_s", "DONE/S"),
        ("emitted_per_s", "OUT/S"),
        ("capacity_per_s", "CAP/INST"),
        ("busy", "BUSY"),
        ("congested", "CONGESTED"),
        ("etp.flow_share", "ETP"),
        ("gain_per_s", "+1"),
    ];
    // By reason: vertices with the columns that it is about.
    let mut found: Vec<(&String, About<'_>)> = Vec::new();
    for vertex in &view.vertices {
        for (field, column) in SHOWN {
            let Some(why) = vertex.why.get(field) else { continue };
            let index = found.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
                found.push((why, Vec::new()));
                found.len() - 1
            });
            let about = &mut found[index].1;
            match about.last_mut().filter(|(known, _)| *known == vertex.vertex) {
                Some((_, columns)) => columns.push(column),
                None => about.push((&vertex.vertex, vec![column])),
            }
        }
    }
    let line = |(why, about): (&String, About<'_>)| {
        let whole = about.len() == view.vertices.len() && about.iter().all(|(_, columns)| columns.len() > 5);
        if about.len() > 1 && whole {
            return format!("nothing of it is known yet: {why}");
        }
        let about: Vec<String> =
            about.iter().map(|(vertex, columns)| format!("{vertex} {}", columns.join(", "))).collect();
        format!("{}: {why}", about.join("; "))
    };
    found.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_ratio_is_a_number_above_0() {
        assert_eq!(ratio("1.2"), Ok(1.2));
        for bad in ["0", "-1", "nan", "inf", "x"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_figure_is_a_number_or_null_with_its_reason() {
        let mut apart = Apart::default();
        assert_eq!(apart.of("a", &Ok(1.5)), number(1.5));
        assert_eq!(apart.of("b", &Err("idle".to_owned())), Value::Null);
        assert_eq!(apart.0, BTreeMap::from([("b", "idle".to_owned())]));
    }
}
