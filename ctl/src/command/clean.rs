//! `tuplane clean`: ends what earlier commands left on hosts.

use serde_json::{Value, json};
use tuplane_testbed::launch::ssh::{self, Cleaned, HostFault, Target};
use tuplane_testbed::launch::{Ended, find_clusters, runtime_root};

use crate::args::{Global, SshArgs};
use crate::failure::{Failure, Outcome};
use crate::hostsfile;
use crate::output::table::counted;
use crate::output::{Output, safe};

/// Options of `clean`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is ended is found by the pid and start time that each agent recorded in its folder, never by a name. Clusters that \
run from this machine are left alone: `tuplane down` ends them.")]
pub(crate) struct Args {
    /// The hosts: a file, standard input (`-`), or a list `h1,h2`
    #[arg(long, value_name = "FILE|-|H1,H2")]
    hosts: String,
    #[command(flatten)]
    ssh: SshArgs,
}

pub(super) async fn run(args: Args, global: &Global, output: &mut Output) -> Outcome {
    let hosts = hostsfile::read(&args.hosts, output)?;
    let jump = args.ssh.jump.as_deref();
    let targets: Vec<Target> = hosts.iter().map(|host| Target::of(&host.value, jump)).collect();
    let root = runtime_root();
    let known = find_clusters(&root)?;
    let keep: Vec<String> = known.live.iter().flat_map(|(_, file)| file.runs()).collect();
    super::confirm(global, &format!("end what is left on {}", counted(targets.len() as u64, "host")))?;
    let (cleaned, faults) =
        ssh::clean(&targets, &args.ssh.options(), &args.ssh.remote_dir, &keep, &root).await?;
    show(&cleaned, &faults, output)?;
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

fn show(cleaned: &[Cleaned], faults: &[HostFault], output: &mut Output) -> Outcome {
    if !output.is_text() {
        let agents: Vec<Value> = cleaned
            .iter()
            .map(|one| {
                let how = one.how.map_or("left alone", super::down::word);
                json!({"host": one.host, "folder": one.folder, "pid": one.pid, "ended": how})
            })
            .collect();
        let failed: Vec<Value> = faults
            .iter()
            .map(|fault| json!({"host": fault.host, "message": fault.message, "remedy": fault.remedy}))
            .collect();
        return output.document("clean", &json!({"agents": agents, "failed": failed}));
    }
    let mut text = String::new();
    for one in cleaned {
        let (host, folder) = (safe::line(&one.host), safe::line(&one.folder));
        text.push_str(&match one.how {
            None => {
                format!("{host}: {folder} is a running cluster's of this machine; `tuplane down` ends it\n")
            }
            Some(Ended::Gone) => format!("{host}: removed {folder}; its agent was gone\n"),
            Some(how) => {
                format!("{host}: ended pid {} ({}) and removed {folder}\n", one.pid, super::down::word(how))
            }
        });
    }
    if text.is_empty() && faults.is_empty() {
        text.push_str("nothing was left\n");
    }
    output.text(&text)
}
