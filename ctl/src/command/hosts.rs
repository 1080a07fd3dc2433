//! `tuplane hosts`: what is there to be said of a hosts file and its hosts.

use clap::Subcommand;
use serde_json::{Value, json};
use tuplane_testbed::launch::runtime_root;
use tuplane_testbed::launch::ssh::{self, HostReport, RemotePlan};

use crate::args::{LocalArgs, SshArgs};
use crate::command::up;
use crate::failure::{Failure, Outcome};
use crate::output::table::{Align, Table, bytes, counted};
use crate::output::{Output, safe};

/// Options of `hosts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Logs in to each host and says what it is, and what would fail there
    Check(Check),
}

/// Options of `hosts check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The agent's binary (about 100 MB) is copied to hosts that do not have it, as `up` does, into the folder of --remote-dir \
(.cache/tuplane), and run for a moment: it says which address it would announce and whether its port is free. No agent is \
left running. The binary stays for the next start; `tuplane clean --hosts FILE --binaries` removes it.

CORES is the number of the host's processors, not the `cores` of the hosts file.")]
struct Check {
    /// The hosts: a file, standard input (`-`), or a list `h1,h2`
    #[arg(value_name = "FILE|-|H1,H2")]
    hosts: String,
    #[command(flatten)]
    options: LocalArgs,
    #[command(flatten)]
    ssh: SshArgs,
}

pub(super) async fn run(args: Args, output: &mut Output) -> Outcome {
    let Command::Check(args) = args.command;
    let plan = up::remote_plan("check", &args.hosts, &args.options, &args.ssh, false, output)?;
    let reports = ssh::check(&plan, &runtime_root()).await?;
    show(&plan, &reports, output)?;
    let failed: Vec<_> = reports.iter().filter_map(|report| report.fault.as_ref()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!("{} of {} cannot be used", failed.len(), counted(reports.len() as u64, "agent"));
    if failed.iter().all(|fault| fault.cause.is_connection()) {
        return Err(Failure::Unreachable(message));
    }
    Err(Failure::Failed { kind: "agent", message })
}

fn show(plan: &RemotePlan, reports: &[HostReport], output: &mut Output) -> Outcome {
    if !output.is_text() {
        let hosts: Vec<Value> = reports.iter().map(document).collect();
        let body = json!({"host_keys": plan.ssh.host_keys.to_string(), "hosts": hosts});
        return output.document("hosts-check", &body);
    }
    let mut table = Table::new(&[
        ("AGENT", Align::Left),
        ("SSH", Align::Left),
        ("DATA", Align::Left),
        ("CORES", Align::Right),
        ("MEMORY", Align::Right),
        ("KERNEL", Align::Left),
        ("CLOCK", Align::Right),
        ("BINARY", Align::Left),
    ]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for report in reports {
        let clock = report
            .clock_offset_ns
            .map(|(offset, error)| format!("{:+.1}ms ±{:.1}", offset as f64 / 1e6, error as f64 / 1e6));
        let binary = report.version.as_ref().zip(report.binary.as_ref()).map(|(version, hash)| {
            let copied = if report.copied { " copied" } else { "" };
            format!("{version} {}{copied}", hash.get(..8).unwrap_or(hash))
        });
        table.row([
            report.agent.clone(),
            report.ssh.clone(),
            or_none(report.data.as_deref().map(data)),
            or_none(report.processors.map(|n| n.to_string())),
            or_none(report.memory.map(bytes)),
            or_none(report.kernel.clone()),
            or_none(clock),
            or_none(binary),
        ]);
    }
    let mut text = table.render();
    for fault in reports.iter().filter_map(|report| report.fault.as_ref()) {
        text.push_str(&format!("{}\n", safe::line(&fault.to_string())));
    }
    text.push_str(&format!("host keys: {}\n", plan.ssh.host_keys));
    output.text(&text)
}

/// Where an agent would listen. Port 0 is none yet.
fn data(address: &str) -> String {
    match address.strip_suffix(":0") {
        Some(host) => format!("{host} (any port)"),
        None => address.to_owned(),
    }
}

fn document(report: &HostReport) -> Value {
    json!({
        "agent": report.agent,
        "host": report.host,
        "ssh": report.ssh,
        "data": report.data,
        "candidates": report.candidates,
        "machine": report.machine,
        "kernel": report.kernel,
        "processors": report.processors,
        "memory": report.memory,
        "clock_offset_ns": report.clock_offset_ns.map(|(offset, _)| offset),
        "clock_error_ns": report.clock_offset_ns.map(|(_, error)| error),
        "binary": report.binary,
        "version": report.version,
        "copied": report.copied,
        "fault": report.fault.as_ref().map(|fault| json!({"message": fault.message, "remedy": fault.remedy})),
    })
}
