//! `tuplane clean`: ends what earlier commands left on hosts.

use serde_json::{Value, json};
use tuplane_testbed::launch::ssh::{self, CleanOptions, CleanOutcome, Cleaned, HostFault, Target};
use tuplane_testbed::launch::{Ended, runtime_root};

use crate::args::{Global, SshArgs};
use crate::failure::{Failure, Outcome};
use crate::hostsfile;
use crate::output::table::counted;
use crate::output::{Output, safe};

/// Options of `clean`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is ended is found by the pid and start time that each agent recorded in its folder, never by a name. Clusters that \
run from this machine are left alone: `tuplane down` ends them. So are those that are just being started from it, which end \
with the command that starts them. Nothing is asked where nothing is left.

The agent's binary, which `up`, `run` and `hosts check` copy to each host (about 100 MB, in the folder of --remote-dir), \
stays there for the next start unless --binaries is given.")]
pub(crate) struct Args {
    /// The hosts: a file, standard input (`-`), or a list `h1,h2`
    #[arg(long, value_name = "FILE|-|H1,H2")]
    hosts: String,
    /// Also removes the agents' binaries that were copied there (agent-HASH), where no agent is left
    #[arg(long)]
    binaries: bool,
    /// Says what would be ended and removed, and does neither
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    ssh: SshArgs,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let hosts = hostsfile::read(&args.hosts, output)?;
    let jump = args.ssh.jump.as_deref();
    let targets: Vec<Target> = hosts.iter().map(|host| Target::of(&host.value, jump)).collect();
    let root = runtime_root();
    let ssh = args.ssh.options()?;
    let clean = async |look: bool| {
        let options = CleanOptions {
            dir: &args.ssh.remote_dir,
            binaries: args.binaries,
            look,
            fan_out: args.ssh.fan_out,
        };
        ssh::clean(&targets, &ssh, options, &root).await
    };
    // Without `--yes` it is looked first: nobody need be asked where there is nothing to end.
    let looked = if args.dry_run || !global.yes { Some(clean(true).await?) } else { None };
    let (cleaned, faults) = match looked {
        Some(looked) if args.dry_run || !looked.0.iter().any(|one| one.how.is_left()) => looked,
        Some((found, _)) => {
            super::confirm(global, &question(&found))?;
            clean(false).await?
        }
        None => clean(false).await?,
    };
    show(&cleaned, &faults, args.dry_run, output)?;
    if faults.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let message = lines.join("\n");
    if faults.iter().all(|fault| fault.cause.is_connection()) {
        return Err(Failure::Unreachable(message));
    }
    Err(Failure::Failed { kind: "agent", message })
}

/// What would be done, as a question has it.
fn question(found: &[Cleaned]) -> String {
    let count = |how: CleanOutcome| found.iter().filter(|one| one.how == how).count() as u64;
    let mut parts = Vec::new();
    match count(CleanOutcome::WouldEnd) {
        0 => {}
        agents => parts.push(format!("end {}", counted(agents, "agent"))),
    }
    match count(CleanOutcome::WouldRemove) {
        0 => {}
        folders => parts.push(format!("remove {} of agents that are gone", counted(folders, "folder"))),
    }
    match count(CleanOutcome::BinaryWouldGo) {
        0 => {}
        copies => parts.push(format!("remove {} of the agent's binary", counted(copies, "file"))),
    }
    let mut hosts: Vec<&str> =
        found.iter().filter(|one| one.how.is_left()).map(|one| one.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    format!("{} on {}", parts.join(", "), counted(hosts.len() as u64, "host"))
}

fn show(cleaned: &[Cleaned], faults: &[HostFault], dry_run: bool, output: &mut Output) -> Outcome {
    if !output.is_text() {
        let (binaries, agents): (Vec<&Cleaned>, Vec<&Cleaned>) =
            cleaned.iter().partition(|one| one.how.is_binary());
        let agents: Vec<Value> = agents
            .iter()
            .map(|one| json!({"host": one.host, "folder": one.path, "pid": one.pid, "ended": word(one.how)}))
            .collect();
        let binaries: Vec<Value> = binaries
            .iter()
            .map(|one| json!({"host": one.host, "path": one.path, "done": word(one.how)}))
            .collect();
        let failed: Vec<Value> = faults
            .iter()
            .map(|fault| json!({"host": fault.host, "message": fault.message, "remedy": fault.remedy}))
            .collect();
        let body = json!({"dry_run": dry_run, "agents": agents, "binaries": binaries, "failed": failed});
        return output.document("clean", &body);
    }
    let mut text: String = cleaned.iter().map(line).collect();
    if text.is_empty() && faults.is_empty() {
        text.push_str("nothing was left\n");
    }
    output.text(&text)
}

fn line(one: &Cleaned) -> String {
    let (host, path, pid) = (safe::line(&one.host), safe::line(&one.path), one.pid);
    match one.how {
        CleanOutcome::LeftAlone => {
            format!("{host}: {path} is a running cluster's of this machine; `tuplane down` ends it\n")
        }
        CleanOutcome::Held(launcher) => {
            format!(
                "{host}: {path} is left alone: pid {launcher} of this machine starts or holds that cluster\n"
            )
        }
        CleanOutcome::New => format!("{host}: {path} is left alone: it was made just now\n"),
        CleanOutcome::Ended(Ended::Gone) => format!("{host}: removed {path}; its agent was gone\n"),
        CleanOutcome::Ended(Ended::Stays) => {
            format!("{host}: pid {pid} does not end, not even by SIGKILL; {path} stays\n")
        }
        CleanOutcome::Ended(_) => format!("{host}: ended pid {pid} ({}) and removed {path}\n", word(one.how)),
        CleanOutcome::WouldEnd => format!("{host}: would end pid {pid} and remove {path}\n"),
        CleanOutcome::WouldRemove => format!("{host}: would remove {path}; its agent is gone\n"),
        CleanOutcome::BinaryRemoved => format!("{host}: removed {path}\n"),
        CleanOutcome::BinaryWouldGo => format!("{host}: would remove {path}\n"),
        CleanOutcome::BinaryKept => format!("{host}: {path} stays, for agents are left there\n"),
    }
}

/// What became of it, as documents have it.
fn word(how: CleanOutcome) -> &'static str {
    match how {
        CleanOutcome::Ended(how) => super::down::word(how),
        CleanOutcome::LeftAlone | CleanOutcome::Held(_) | CleanOutcome::New => "left alone",
        CleanOutcome::WouldEnd => "would be ended",
        CleanOutcome::WouldRemove => "already gone",
        CleanOutcome::BinaryRemoved => "removed",
        CleanOutcome::BinaryWouldGo => "would be removed",
        CleanOutcome::BinaryKept => "kept",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_would_be_ended_and_where() {
        let one = |host: &str, how| Cleaned { host: host.into(), path: "/x".into(), pid: 1, how };
        let found = [
            one("h1", CleanOutcome::WouldEnd),
            one("h1", CleanOutcome::WouldEnd),
            one("h2", CleanOutcome::WouldRemove),
            one("h3", CleanOutcome::LeftAlone),
            one("h2", CleanOutcome::BinaryWouldGo),
        ];
        assert_eq!(
            question(&found),
            "end 2 agents, remove 1 folder of agents that are gone, remove 1 file of the agent's binary on 2 hosts"
        );
    }
}
