//! `tuplane scale auto`.

use std::time::Duration;

use serde_json::{Value, json};
use tuplane_core::plan::MOST_INSTANCES;
use tuplane_wire::message::{ClusterReply, ClusterRequest};
use tuplane_wire::scaling::{AutoAsk, AutoNote, AutoOptions, AutoView, JobAuto};

use crate::args::{Global, whole};
use crate::cluster::{Cluster, unexpected};
use crate::failure::Outcome;
use crate::output::table::{Align, Table, percent};
use crate::output::time::{parse_span, rfc3339, span};
use crate::output::{Output, safe};

/// Options of `scale auto`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A vertex that needs more than 90 % of what its instances take gets as many as work --target of the time; one that for two \
cooldowns never needed 45 % gives some back. Sources stay as they are, and no agent is started or released. What it did is \
in `tuplane scale history` too.")]
pub(crate) struct Args {
    /// Name or run id
    job: String,
    /// Turns it on or off; without it is shown how it stands
    #[arg(value_enum)]
    turn: Option<Turn>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Turn {
    On,
    Off,
}

/// How it decides.
#[derive(Debug, Clone, Default, clap::Args)]
struct Options {
    /// At least so long from one change of the job to its next one [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    cooldown: Option<Duration>,
    /// It looks at means over so long, all of it since the last change [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    window: Option<Duration>,
    /// The share of the time that instances are to work, 0.5 to 0.85 [default: 0.7]
    #[arg(long, value_name = "SHARE")]
    target: Option<f64>,
    /// The most instances of a vertex [default: the slots of all agents that take instances]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, MOST_INSTANCES as u64))]
    most: Option<u32>,
}

impl Options {
    fn is_given(&self) -> bool {
        self.cooldown.is_some() || self.window.is_some() || self.target.is_some() || self.most.is_some()
    }

    /// With the defaults for the rest.
    fn whole(&self) -> AutoOptions {
        let other = AutoOptions::default();
        AutoOptions {
            cooldown: self.cooldown.unwrap_or(other.cooldown),
            window: self.window.unwrap_or(other.window),
            target: self.target.unwrap_or(other.target),
            most: self.most,
            ..other
        }
    }
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let ask = match args.turn {
        Some(Turn::On) => AutoAsk::On(args.options.whole()),
        _ if args.options.is_given() => {
            let message = "--cooldown, --window, --target and --most belong to `scale auto JOB on`";
            return Err(crate::failure::Failure::Usage(message.into()));
        }
        Some(Turn::Off) => AutoAsk::Off,
        None => AutoAsk::Show,
    };
    let cluster = Cluster::find(global, output)?;
    let known = ask_for(&cluster, args.job, ask).await?;
    if output.is_text() {
        return output.text(&text(&known, output.room()));
    }
    let auto = known.auto.as_ref().map(document);
    output.document("scale-auto", &json!({"job": known.job, "run": known.run, "auto": auto}))
}

/// Turns the automatic mode of a run on, with the defaults.
pub(in crate::command) async fn turn_on(cluster: &Cluster, run: u64) -> Outcome {
    ask_for(cluster, run.to_string(), AutoAsk::On(AutoOptions::default())).await.map(|_| ())
}

async fn ask_for(cluster: &Cluster, job: String, ask: AutoAsk) -> Outcome<JobAuto> {
    match cluster.ask(ClusterRequest::Auto { job, ask }).await? {
        ClusterReply::Auto(known) => Ok(*known),
        other => Err(unexpected(&other)),
    }
}

fn text(known: &JobAuto, room: Option<usize>) -> String {
    let head = format!("job {} (run {}): automatic mode ", safe::line(&known.job), known.run);
    let Some(auto) = &known.auto else { return format!("{head}off\n") };
    let mut out = head + &state(auto);
    if !auto.notes.is_empty() {
        let mut table = Table::new(&[
            ("AT", Align::Left),
            ("WHAT", Align::Left),
            ("PLAN", Align::Right),
            ("WHY", Align::Left),
        ]);
        for AutoNote { at_ms, what, why, plan } in &auto.notes {
            let plan = plan.map_or_else(|| "-".to_owned(), |plan| plan.to_string());
            table.row([rfc3339(*at_ms), what.name().to_owned(), plan, safe::line(why)]);
        }
        out.push_str(&table.render_in(room));
    }
    out
}

/// Whether it is on, how it decides, what it thinks.
pub(super) fn state(auto: &AutoView) -> String {
    let AutoOptions { cooldown, window, most, target, .. } = auto.options;
    if !auto.on {
        return format!("off since {}\n", rfc3339(auto.since_ms));
    }
    let ms = |time: Duration| span(time.as_millis() as u64);
    let most = most.map_or_else(|| "as many as there are slots".to_owned(), |most| most.to_string());
    format!(
        "on since {}: cooldown {}, window {}, target {}, most instances of a vertex: {most}\nnow: {}\n",
        rfc3339(auto.since_ms),
        ms(cooldown),
        ms(window),
        percent(Some(target)),
        safe::line(auto.thought.as_deref().unwrap_or("nothing was seen yet"))
    )
}

/// As a document has it.
pub(super) fn document(auto: &AutoView) -> Value {
    let options = &auto.options;
    json!({
        "on": auto.on,
        "since": rfc3339(auto.since_ms),
        "cooldown_ms": options.cooldown.as_millis() as u64,
        "window_ms": options.window.as_millis() as u64,
        "target": options.target,
        "most": options.most,
        "thought": auto.thought,
        "notes": auto.notes.iter().map(|note| json!({
            "at": rfc3339(note.at_ms), "what": note.what, "plan": note.plan, "reason": note.why,
        })).collect::<Vec<_>>(),
    })
}
