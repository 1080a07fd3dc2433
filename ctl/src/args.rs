//! The command line's shape.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, Parser, Subcommand};
use tuplane_core::job::LEAST_MEMORY;
use tuplane_testbed::hosts::is_name;
use tuplane_testbed::launch::ssh::{CONNECT, FAN_OUT, HostKeys, SshOptions};

use crate::command::{
    agents, cancel, check, clean, down, etp, fetch, hosts, jobs, op, peek, plan, route, routes, run, scale,
    set, status, submit, tui, up, what_if,
};
use crate::failure::{Failure, Outcome};
use crate::output::time::parse_span;
use crate::output::{Color, Format};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the operation failed; 2 usage, a broken file or a refused request; 3 no cluster, or not
reachable; 4 waiting ran out; 5 stale request; 6 not found; 7 needs --yes; 8 versions differ; 70 a defect;
130 interrupted.";

/// Runs stream-processing jobs on a cluster of agents, and shows and steers what they do.
#[derive(Debug, Parser)]
#[command(name = "tuplane", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// How results are written
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// The cluster: its name, or the coordinator's HOST:PORT
    #[arg(long, global = true, env = "TUPLANE_CLUSTER", value_name = "NAME|HOST:PORT")]
    pub(crate) cluster: Option<String>,
    /// Whether `--cluster` was given by hand or by the environment.
    #[arg(skip)]
    pub(crate) cluster_from: Option<ValueSource>,
    /// The cluster's cluster.json, for a cluster given as HOST:PORT
    #[arg(long, global = true, env = "TUPLANE_KEY_FILE", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// How long one call to an agent may take
    #[arg(long, global = true, default_value = "5s", value_parser = parse_span, value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Does not ask before it ends something
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Says results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Says more on standard error
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts agents on this machine, or on named hosts over ssh
    Up(up::Args),
    /// Ends a cluster's jobs and agents
    Down(down::Args),
    /// Ends what earlier commands left on hosts, by recorded pid and start time
    Clean(clean::Args),
    /// Looks at the hosts of a hosts file
    Hosts(hosts::Args),
    /// Lists the agents; starts more of them, drains and releases them
    Agents(agents::Args),
    /// Checks a job file: structure, functions and types
    Check(check::Args),
    /// Shows the planned graph of a job file, or of planner cases
    Plan(plan::Args),
    /// Runs a job on agents of its own: up, submit, wait, result, down
    Run(run::Args),
    /// Submits a job to a running cluster
    Submit(submit::Args),
    /// Lists the jobs
    Jobs(jobs::Args),
    /// Shows a job: its stages, its edges with their ledger, its files
    Status(status::Args),
    /// Ends a job
    Cancel(cancel::Args),
    /// Changes a live option of a stage
    Set(set::Args),
    /// Changes the policy of an edge
    Route(route::Args),
    /// Shows how the edges of a job choose their targets: prices, shares, costs
    Routes(routes::Args),
    /// Shows what a job does in a second, what each stage carries, and where one more instance pays
    Etp(etp::Args),
    /// Changes how many instances a job has, and where, while it runs
    Scale(scale::Args),
    /// Lists what was asked of the cluster while jobs ran, and waits for it
    Op(op::Args),
    /// Brings the files of a job's sinks from all agents
    Fetch(fetch::Args),
    /// Follows a sample of the rows that leave a stage
    Peek(peek::Args),
    /// Shows the job at work, on the whole terminal; `tuplane` alone does the same
    Tui(tui::Args),
    /// Decides for recorded figures, without a cluster
    WhatIf(what_if::Args),
    /// Shows the version
    Version,
}

/// `--set`, where a job file is read.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Overrides {
    /// Changes an option of the job file (`job.OPTION=VALUE` for the job's own)
    ///
    /// A value is text as it stands; numbers, true, false, lists and tables are read as TOML where the file
    /// has no text. Text in TOML's quotes is what TOML reads (`s.delimiter="\t"` is a tab), and a list of
    /// such texts is a list (`m.in=["a", "b"]`). Paths given so count from the present folder, those in the file from the file's. Setting the
    /// path of a source whose rows are made up makes it read that file instead.
    #[arg(long = "set", value_name = "STAGE.OPTION=VALUE", value_parser = parse_set)]
    pub(crate) sets: Vec<(String, String)>,
}

/// `--placement`, where a job is placed.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlacementArgs {
    /// How instances of stages with `instances` get their agents: `round_robin`, `t_heron` or `link_load`, as
    /// --set job.placement=NAME does [default: the file's]
    #[arg(long, value_name = "NAME")]
    placement: Option<String>,
}

impl PlacementArgs {
    /// Overrides with this one among them: it is checked with the file.
    pub(crate) fn with(&self, overrides: &Overrides) -> Overrides {
        let mut all = overrides.clone();
        all.sets.extend(self.placement.iter().map(|name| ("job.placement".to_owned(), name.clone())));
        all
    }
}

/// What decides how local agents are started.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LocalArgs {
    /// Instances per vertex on each agent [default: processors over agents]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1024))]
    pub(crate) slots: Option<u32>,
    /// Most rows in `work` at once on each agent [default: no limit]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 4096))]
    pub(crate) cores: Option<u32>,
    /// Zones, dealt to the agents in turn
    #[arg(long, value_name = "A,B,..", value_delimiter = ',', value_parser = zone)]
    pub(crate) zones: Vec<String>,
    /// A file of `zone zone cost` lines, costs being whole numbers
    #[arg(long, value_name = "FILE")]
    pub(crate) costs: Option<PathBuf>,
    /// Bytes of queued rows on each agent, such as 64MiB [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
    /// The agent's binary [default: beside this one, else on PATH]
    #[arg(long, value_name = "PATH")]
    pub(crate) agent: Option<PathBuf>,
    /// No encryption; agents listen on this machine only
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// How hosts are reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hosts")]
pub(crate) struct SshArgs {
    /// What is done about hosts' keys: only known ones; new ones noted and changed ones refused; nothing
    #[arg(long, value_enum, default_value_t, value_name = "POLICY")]
    pub(crate) host_keys: HostKeys,
    /// A file of known hosts in place of yours
    #[arg(long, value_name = "FILE")]
    pub(crate) known_hosts: Option<PathBuf>,
    /// A configuration of ssh in place of yours
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// An option for ssh, as its -o takes them; may be repeated
    #[arg(long = "ssh-option", value_name = "KEY=VALUE", value_parser = parse_ssh_option)]
    pub(crate) ssh_options: Vec<String>,
    /// Goes through these hosts, unless a line says otherwise
    #[arg(long, value_name = "[USER@]HOST[:PORT],..")]
    pub(crate) jump: Option<String>,
    /// How long connecting to a host may take
    #[arg(long, value_name = "TIME", default_value = CONNECT, value_parser = parse_span)]
    pub(crate) connect_timeout: Duration,
    /// Logins under way at once; through one jump host at most 4
    #[arg(long, value_name = "N", default_value_t = FAN_OUT, value_parser = whole::<usize>(1, 1024))]
    pub(crate) fan_out: usize,
    /// Folder on the hosts for the agent's binary and what runs, below the home folder unless absolute
    #[arg(long, value_name = "FOLDER", default_value = tuplane_testbed::launch::ssh::REMOTE_DIR)]
    pub(crate) remote_dir: String,
}

impl SshArgs {
    /// As the launcher takes them. Paths are made absolute: other commands need them later.
    pub(crate) fn options(&self) -> Outcome<SshOptions> {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if let Some(file) = &self.ssh_config
            && let Err(cause) = std::fs::File::open(file)
        {
            return Err(Failure::Usage(format!("--ssh-config {} cannot be read: {cause}", file.display())));
        }
        Ok(SshOptions {
            host_keys: self.host_keys,
            known_hosts: self.known_hosts.as_ref().map(absolute),
            config: self.ssh_config.as_ref().map(absolute),
            options: self.ssh_options.clone(),
            connect_s: self.connect_timeout.as_secs().max(1),
        })
    }
}

fn parse_ssh_option(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() && !text.contains('\n') => Ok(text.to_owned()),
        _ => Err("write KEY=VALUE, such as IdentityFile=~/.ssh/lab".into()),
    }
}

/// `--wait 5s` means what `--wait=5s` does. The option's value may be left out, so the parser itself would
/// take the next word for the job file.
pub(crate) fn join_wait(args: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut args = args.peekable();
    std::iter::from_fn(move || {
        let arg = args.next()?;
        let is_span = |next: &OsString| next.to_str().is_some_and(|next| parse_span(next).is_ok());
        match args.next_if(|next| arg == "--wait" && is_span(next)) {
            Some(span) => Some([arg, span].join(OsStr::new("="))),
            None => Some(arg),
        }
    })
}

/// The format of documents that a command line asks for which cannot be read otherwise.
pub(crate) fn wants_documents(args: &[OsString]) -> Option<Format> {
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    words.iter().enumerate().find_map(|(at, word)| {
        let format = match *word {
            "-o" | "--output" => words.get(at + 1).copied()?,
            word => word.strip_prefix("--output=").or_else(|| word.strip_prefix("-o"))?,
        };
        match format.trim_start_matches('=') {
            "json" => Some(Format::Json),
            "jsonl" => Some(Format::Jsonl),
            _ => None,
        }
    })
}

fn parse_set(text: &str) -> Result<(String, String), String> {
    let (target, value) = text.split_once('=').ok_or("write STAGE.OPTION=VALUE")?;
    if target.split('.').filter(|part| !part.is_empty()).count() < 2 {
        return Err(format!("`{target}` does not name an option; write STAGE.OPTION=VALUE"));
    }
    Ok((target.to_owned(), value.to_owned()))
}

/// A zone's name, a word as it is in a hosts file and in a cost table.
pub(crate) fn zone(text: &str) -> Result<String, String> {
    if !is_name(text) {
        return Err(format!("`{text}` cannot name a zone: letters, digits, `.`, `-` and `_`"));
    }
    Ok(text.to_owned())
}

/// A whole number from `least` to `most`, in our own words where it is none.
pub(crate) fn whole<N: TryFrom<u64> + Clone + Send + Sync + 'static>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| (least..=most).contains(number));
        let range = || match most {
            u64::MAX => format!("write a whole number, at least {least}"),
            _ => format!("write a whole number from {least} to {most}"),
        };
        number.and_then(|number| N::try_from(number).ok()).ok_or_else(range)
    }
}

pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size = text.parse().ok().or_else(|| tuplane_core::job::units::size(text));
    match size {
        Some(bytes) if bytes >= LEAST_MEMORY => Ok(bytes),
        Some(_) => Err("at least 1MiB".into()),
        None => Err(format!("`{text}` is no size; write 64MiB, 1GB or a number of bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_number_that_is_none_is_said_in_our_words() {
        let hosts = whole::<u32>(1, 256);
        assert_eq!((hosts("1"), hosts("256")), (Ok(1), Ok(256)));
        for bad in ["three", "0", "257", "-1", "1.5", "", "99999999999999999999"] {
            assert_eq!(hosts(bad).unwrap_err(), "write a whole number from 1 to 256", "{bad}");
        }
        assert_eq!(whole::<u64>(1, u64::MAX)("0").unwrap_err(), "write a whole number, at least 1");
    }

    #[test]
    fn a_wait_may_stand_apart_from_its_time() {
        let joined = |words: &[&str]| -> Vec<String> {
            let args = join_wait(words.iter().map(OsString::from));
            args.map(|arg| arg.into_string().unwrap()).collect()
        };
        assert_eq!(joined(&["submit", "--wait", "1s", "j.toml"]), ["submit", "--wait=1s", "j.toml"]);
        assert_eq!(joined(&["submit", "--wait", "j.toml"]), ["submit", "--wait", "j.toml"]);
        assert_eq!(joined(&["submit", "j.toml", "--wait"]), ["submit", "j.toml", "--wait"]);
        assert_eq!(joined(&["--name", "5s"]), ["--name", "5s"]);
    }

    #[test]
    fn a_broken_command_line_still_says_what_it_wants() {
        let wants = |words: &[&str]| wants_documents(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for words in [&["x", "-o", "json"][..], &["-ojson", "x"], &["--output=json"], &["--output", "json"]] {
            assert_eq!(wants(words), Some(Format::Json), "{words:?}");
        }
        assert_eq!(wants(&["x", "-o", "jsonl"]), Some(Format::Jsonl));
        assert_eq!((wants(&["x", "-o"]), wants(&["-o", "text", "json"])), (None, None));
    }

    #[test]
    fn overrides_name_a_stage_and_an_option() {
        assert_eq!(parse_set("a.path=x=y"), Ok(("a.path".into(), "x=y".into())));
        for bad in ["a.path", "path=x", ".path=x", "a.=x"] {
            assert!(parse_set(bad).is_err(), "{bad}");
        }
    }
}
