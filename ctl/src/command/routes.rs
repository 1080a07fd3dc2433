//! `tuplane routes`: how the edges of a job choose their targets, and why.

use serde::Serialize;
use serde_json::Value;
use tuplane_core::plan::{Dag, EdgeId};
use tuplane_wire::message::JobRoutes;
use tuplane_wire::routing::{Decided, EdgeRouting, InForce, TargetRouting, Trend};

use crate::args::Global;
use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};
use crate::output::table::{Align, Table, count};
use crate::output::{Output, number, safe};

/// Options of `routes`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A row's price at a target is V*U + Q_in - beta*Q_out: what its way costs, what waits there, and what waits at the \
sender; rows go while it is below 0. Shown is the price for the sending instance with the longest queue on each \
agent.")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// With the decisions that were kept (`tuplane route .. --record N`); JSON only
    #[arg(long)]
    decisions: bool,
}

/// The document.
#[derive(Debug, Serialize)]
struct View {
    job: String,
    run: u64,
    edges: Vec<EdgeView>,
    /// Agents that did not answer.
    silent: Vec<SilentView>,
}

#[derive(Debug, Serialize)]
struct SilentView {
    agent: String,
    cause: String,
}

#[derive(Debug, Serialize)]
struct EdgeView {
    edge: String,
    policy: String,
    /// As they were given.
    options: Value,
    /// Null for policies that go by turn or lot alone, as the slot is.
    setting: Option<String>,
    slot_ms: Option<Value>,
    cost_per_s: Value,
    /// Of all sending agents.
    queued_out: u64,
    deferred: u64,
    forced: u64,
    senders: Vec<SenderView>,
}

#[derive(Debug, Serialize)]
struct SenderView {
    agent: String,
    v: Option<WeightView>,
    beta: Option<WeightView>,
    gamma: Option<u64>,
    queued_out: u64,
    longest_out: u64,
    backlog: Value,
    backlogs: Vec<Value>,
    trend: &'static str,
    slots: u64,
    deferred: u64,
    forced: u64,
    /// Slots that its instances look ahead; what follows is 0 without.
    window: u32,
    /// Rows that left in a slot before that of their arrival.
    early: u64,
    /// Of the rows that wait those that have not arrived.
    to_come: u64,
    warnings: Vec<String>,
    targets: Vec<TargetView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decisions: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct WeightView {
    rule: String,
    value: Value,
}

#[derive(Debug, Serialize)]
struct TargetView {
    instance: String,
    id: u32,
    agent: String,
    local: bool,
    rows: u64,
    share: Value,
    rows_per_s: Value,
    cost: Value,
    cost_per_s: Value,
    queued: u64,
    age_ms: Option<u64>,
    open: bool,
    masked: bool,
    price: Option<PriceView>,
}

#[derive(Debug, Serialize)]
struct PriceView {
    price: Value,
    /// `V * U`.
    way: Value,
    /// `Q_in`.
    target: Value,
    /// `beta * Q_out`.
    sender: Value,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    if args.decisions && output.is_text() {
        let how = "--decisions is for JSON: give -o json or -o jsonl with it";
        return Err(Failure::Usage(how.to_owned()));
    }
    let cluster = Cluster::find(global, output)?;
    let routes = cluster.routes(args.job, args.decisions).await?;
    for (agent, cause) in &routes.silent {
        output.notice(&safe::line(&format!("agent {agent} did not answer: {cause}")));
    }
    let view = view(routes)?;
    if output.is_text() { output.text(&text(&view, output.room())) } else { output.document("routes", &view) }
}

fn view(routes: JobRoutes) -> Outcome<View> {
    let dag: Dag =
        serde_json::from_str(&routes.dag).map_err(|e| Failure::Internal(format!("the plan: {e}")))?;
    let name_of =
        |index: u16| routes.agents.get(usize::from(index)).map_or("?", |agent| agent.id.name.as_str());
    let instance_of = |id: u32| match routes.instances.iter().find(|one| one.id == id) {
        Some(one) => format!("{}#{}", dag.vertex(one.vertex).label(), one.number),
        None => format!("#{id}"),
    };
    let mut edges: Vec<EdgeView> = Vec::new();
    for (agent, routing) in routes.edges {
        let name = dag.edge_name(EdgeId(routing.edge));
        let sender = sender(agent, &routing, &name_of, &instance_of);
        let index = edges.iter().position(|edge| edge.edge == name).unwrap_or_else(|| {
            edges.push(EdgeView {
                edge: name,
                options: serde_json::from_str(&routing.options).unwrap_or(Value::Null),
                slot_ms: (routing.slot_us > 0).then(|| number(routing.slot_us as f64 / 1e3)),
                policy: routing.policy.clone(),
                setting: Some(routing.setting.clone()).filter(|setting| !setting.is_empty()),
                cost_per_s: number(0.0),
                queued_out: 0,
                deferred: 0,
                forced: 0,
                senders: Vec::new(),
            });
            edges.len() - 1
        });
        let edge = &mut edges[index];
        let cost: f64 = routing.targets.iter().map(|target| target.cost_per_second).sum();
        edge.cost_per_s = number(edge.cost_per_s.as_f64().unwrap_or(0.0) + cost);
        edge.queued_out += routing.queued_out;
        edge.deferred += routing.deferred;
        edge.forced += routing.forced;
        edge.senders.push(sender);
    }
    let silent = routes.silent.into_iter().map(|(agent, cause)| SilentView { agent, cause }).collect();
    Ok(View { job: routes.job, run: routes.run, edges, silent })
}

fn sender<'a>(
    agent: u16,
    routing: &EdgeRouting,
    name_of: &impl Fn(u16) -> &'a str,
    instance_of: &impl Fn(u32) -> String,
) -> SenderView {
    let weight = |weight: &InForce| WeightView { rule: weight.rule.clone(), value: number(weight.value) };
    let target = |target: &TargetRouting| TargetView {
        instance: instance_of(target.instance),
        id: target.instance,
        agent: name_of(target.agent).to_owned(),
        local: target.agent == agent,
        rows: target.rows,
        share: number(target.share),
        rows_per_s: number(target.rows_per_second),
        cost: number(target.cost),
        cost_per_s: number(target.cost_per_second),
        queued: target.queued,
        age_ms: target.age_ms,
        open: target.open,
        masked: target.masked,
        price: target.price.map(|price| {
            let [price, way, target, sender] = price.map(number);
            PriceView { price, way, target, sender }
        }),
    };
    SenderView {
        agent: name_of(agent).to_owned(),
        v: routing.v.as_ref().map(weight),
        beta: routing.beta.as_ref().map(weight),
        gamma: routing.gamma,
        queued_out: routing.queued_out,
        longest_out: routing.longest_out,
        backlog: number(routing.backlog),
        backlogs: routing.backlogs.iter().copied().map(number).collect(),
        trend: match routing.trend {
            Trend::Unknown => "unknown",
            Trend::Stable => "stable",
            Trend::Growing => "growing",
        },
        slots: routing.slots,
        deferred: routing.deferred,
        forced: routing.forced,
        window: routing.window,
        early: routing.early,
        to_come: routing.to_come,
        warnings: routing.warnings.clone(),
        targets: routing.targets.iter().map(target).collect(),
        decisions: routing.decisions.iter().map(decision).collect(),
    }
}

/// A decision with null for a gamma that is any number.
fn decision(decided: &Decided) -> Value {
    let mut value = serde_json::to_value(decided).unwrap_or_default();
    if decided.gamma == u64::MAX {
        value["gamma"] = Value::Null;
    }
    value
}

fn text(view: &View, room: Option<usize>) -> String {
    if view.edges.is_empty() {
        return format!("{}: no edge chooses its targets\n", safe::line(&view.job));
    }
    let mut all = Vec::new();
    for edge in &view.edges {
        let mut text = safe::line(&format!("{} by {}", edge.edge, edge.policy));
        if let (Some(setting), Some(slot)) = (&edge.setting, &edge.slot_ms) {
            text.push_str(&safe::line(&format!(", setting {setting}, slot {} ms", short(slot))));
        }
        if edge.senders.iter().any(|sender| sender.v.is_some()) {
            let of =
                |pick: fn(&SenderView) -> Option<&WeightView>| in_force(edge.senders.iter().filter_map(pick));
            text.push_str(&format!(", V {}, beta {}", of(|s| s.v.as_ref()), of(|s| s.beta.as_ref())));
        }
        text.push_str(&format!(
            "; cost {}/s, {} waiting, {} forced, {} deferred\n",
            short(&edge.cost_per_s),
            count(edge.queued_out),
            count(edge.forced),
            count(edge.deferred)
        ));
        let right = Align::Right;
        let mut table = Table::new(&[
            ("FROM", Align::Left),
            ("TO", Align::Left),
            ("ON", Align::Left),
            ("PRICE", right),
            ("V*U", right),
            ("Q_IN", right),
            ("BETA*Q_OUT", right),
            ("SHARE", right),
            ("ROWS/S", right),
            ("COST/S", right),
            ("ROWS", right),
            ("STATE", Align::Left),
        ])
        .spare(&["ROWS", "COST/S", "BETA*Q_OUT"]);
        for sender in &edge.senders {
            for target in &sender.targets {
                let term = |pick: &dyn Fn(&PriceView) -> &Value| {
                    target.price.as_ref().map_or_else(|| "-".to_owned(), |price| short(pick(price)))
                };
                table.row([
                    sender.agent.clone(),
                    target.instance.clone(),
                    if target.local { "itself".to_owned() } else { target.agent.clone() },
                    term(&|price| &price.price),
                    term(&|price| &price.way),
                    // As the price has it, so that the terms add up.
                    target.price.as_ref().map_or_else(|| count(target.queued), |price| short(&price.target)),
                    term(&|price| &price.sender),
                    target
                        .share
                        .as_f64()
                        .map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0)),
                    short(&target.rows_per_s),
                    short(&target.cost_per_s),
                    count(target.rows),
                    match (target.masked, target.open) {
                        (true, _) => "not heard of",
                        (false, false) => "full",
                        (false, true) => "",
                    }
                    .to_owned(),
                ]);
            }
        }
        text.push_str(&table.render_in(room));
        for sender in &edge.senders {
            if sender.v.is_some() {
                let backlog = short(&sender.backlog);
                text.push_str(&safe::line(&format!(
                    "{}: weighted backlog {backlog}, {}",
                    sender.agent, sender.trend
                )));
                text.push('\n');
            }
            if sender.window > 0 {
                let (window, early) = (sender.window, count(sender.early));
                text.push_str(&safe::line(&format!(
                    "{}: looks {window} slots ahead, {early} rows left early, {} of those waiting are to come",
                    sender.agent,
                    count(sender.to_come)
                )));
                text.push('\n');
            }
            for warning in &sender.warnings {
                text.push_str(&safe::line(&format!("{}: {warning}", sender.agent)));
                text.push('\n');
            }
        }
        all.push(text);
    }
    all.join("\n")
}

/// A rule with its value, the least and the most where agents have different ones; a number alone.
fn in_force<'a>(weights: impl Iterator<Item = &'a WeightView>) -> String {
    let weights: Vec<&WeightView> = weights.collect();
    let values = || weights.iter().filter_map(|weight| weight.value.as_f64());
    let [least, most] = [values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max)]
        .map(|v| short(&number(v)));
    let value = if least == most { most } else { format!("{least}..{most}") };
    match weights.first() {
        Some(weight) if weight.rule.parse::<f64>().is_err() => format!("{value} ({})", weight.rule),
        _ => value,
    }
}

/// Three digits behind the point at most.
fn short(value: &Value) -> String {
    let Some(value) = value.as_f64() else { return "-".to_owned() };
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_rules_are_named() {
        let short = |value: f64| short(&number(value));
        assert_eq!([1.0, 0.12345, -12.5, 0.0].map(short), ["1", "0.123", "-12.5", "0"]);
        assert_eq!(short(f64::NAN), "-");
        let weight = |rule: &str, value: f64| WeightView { rule: rule.to_owned(), value: number(value) };
        let shown = |weights: &[WeightView]| in_force(weights.iter());
        assert_eq!(shown(&[weight("2.5", 2.5), weight("2.5", 2.5)]), "2.5");
        let several = [weight("latency=50ms", 97.28), weight("latency=50ms", 60.0)];
        assert_eq!(shown(&several), "60..97.28 (latency=50ms)");
    }
}
