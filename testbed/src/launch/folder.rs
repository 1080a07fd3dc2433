//! A cluster's folder below the user's runtime folder: who runs, where, and with which key.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tuplane_wire::launch::KeyPem;

use super::ssh::{FAN_OUT, RemoteAgent, RemotePlan, SshOptions, Target};
use super::{LaunchError, ProcessId};

/// The schema of `cluster.json`.
pub const SCHEMA: &str = "tuplane/cluster/1";

/// A folder without a readable `cluster.json` is somebody's who is just starting, for so long; nothing is
/// said of it then.
const STARTING: Duration = Duration::from_secs(30);

/// `cluster.json`: all that a command needs to reach a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The cluster's name.
    pub name: String,
    /// `host:port` of the coordinator; empty while agents are being started.
    pub coordinator: String,
    /// The cluster's key; absent where it was started with `--insecure`.
    pub key: Option<KeyPem>,
    /// Its agents, the coordinator first.
    pub agents: Vec<AgentEntry>,
    /// The command that started it; agents end with it unless `detached`.
    pub launcher: ProcessId,
    /// Agents outlive the launcher.
    pub detached: bool,
    /// How its hosts are reached; absent where all agents are processes of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub road: Option<RoadEntry>,
}

/// How the hosts of a cluster are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoadEntry {
    /// What ssh is told.
    pub ssh: SshOptions,
    /// Agents cannot be dialled from here: connections go through ssh as well.
    pub through_ssh: bool,
    /// Logins under way at once.
    #[serde(default = "fan_out")]
    pub fan_out: usize,
    /// What agents that are added later have in common with the first ones, and its spare hosts; no agents. Absent in
    /// clusters of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Box<RemotePlan>>,
}

/// What clusters of older builds did not record.
fn fan_out() -> usize {
    FAN_OUT
}

/// The host of an agent that was started over ssh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Where ssh goes.
    pub target: Target,
    /// The agent's folder there, with its log and its pid file.
    pub folder: String,
    /// Socket of the launcher's own connection, of use while that lasts.
    pub socket: PathBuf,
}

/// One agent of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEntry {
    /// Its name.
    pub name: String,
    /// `host:port`.
    pub address: String,
    /// Its process, on its host: see [`AgentEntry::here`].
    #[serde(flatten)]
    pub process: ProcessId,
    /// Its host; absent where it is a process of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostEntry>,
}

impl AgentEntry {
    /// Its process, if it is one of this machine: another machine's pid says nothing here.
    pub fn here(&self) -> Option<ProcessId> {
        self.host.is_none().then_some(self.process)
    }

    /// It is a process of this machine, and runs.
    pub fn is_alive_here(&self) -> bool {
        self.here().is_some_and(ProcessId::is_alive)
    }
}

impl ClusterFile {
    /// Reads a cluster file wherever it lies.
    pub fn read(path: &Path) -> Result<Self, LaunchError> {
        let text = fs::read_to_string(path).map_err(|cause| LaunchError::file("read", path, cause))?;
        let file: Self = serde_json::from_str(&text).map_err(|cause| {
            LaunchError::Refused(format!("{} is not a cluster file: {cause}", path.display()))
        })?;
        if file.schema != SCHEMA {
            return Err(LaunchError::Refused(format!(
                "{} has schema {}, this build reads {SCHEMA}",
                path.display(),
                file.schema
            )));
        }
        Ok(file)
    }

    /// No process of it is left: neither an agent nor, while it starts, the launcher. Agents on other
    /// hosts cannot be looked at from here: detached ones are there until `down`, others end with
    /// their launcher.
    pub fn is_stale(&self) -> bool {
        if self.launcher_starts() {
            return false;
        }
        if self.road.is_some() {
            return self.coordinator.is_empty() || !(self.detached || self.launcher.is_alive());
        }
        self.agents.iter().all(|agent| !agent.is_alive_here())
    }

    /// Spare hosts on which it has no agent, in the order of the hosts file.
    pub fn spares(&self) -> Vec<RemoteAgent> {
        let plan = self.road.as_ref().and_then(|road| road.plan.as_ref());
        let free = |spare: &&RemoteAgent| !self.agents.iter().any(|agent| agent.name == spare.name);
        plan.map_or(&[][..], |plan| &plan.spares).iter().filter(free).cloned().collect()
    }

    /// The name of its run folders on other hosts, from the moment on that the file is written.
    pub fn run(&self) -> Option<String> {
        self.road.as_ref().map(|_| run_name(&self.name, self.launcher))
    }

    fn launcher_starts(&self) -> bool {
        self.coordinator.is_empty() && self.launcher.is_alive()
    }
}

/// The name of a cluster's run folders on other hosts: no other start of a cluster has the same.
pub(super) fn run_name(cluster: &str, launcher: ProcessId) -> String {
    format!("{cluster}-{}-{}", launcher.pid, launcher.started)
}

/// The launcher that a run folder's name tells of, a process of the machine that started the cluster.
pub fn launcher_of(run: &str) -> Option<ProcessId> {
    let mut words = run.rsplit('-');
    let (started, pid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().map(|_| ProcessId { pid, started })
}

/// The folder of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFolder {
    path: PathBuf,
}

impl ClusterFolder {
    /// The folder of a name below a root; it need not exist.
    pub fn at(root: &Path, name: &str) -> Self {
        Self { path: root.join(name) }
    }

    /// Makes the folder of a new cluster. A stale one of the same name gives way; a live one is
    /// refused.
    pub fn create(root: &Path, name: &str) -> Result<(Self, Vec<String>), LaunchError> {
        check_name(name)?;
        make_private(root)?;
        let notices = find_clusters(root)?.notices;
        let folder = Self::at(root, name);
        match fs::DirBuilder::new().mode(0o700).create(&folder.path) {
            Ok(()) => {}
            Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(LaunchError::Refused(format!(
                    "a cluster named {name} runs already; end it with `tuplane down --cluster {name}`, or choose \
                     another name with --cluster"
                )));
            }
            Err(cause) => return Err(LaunchError::file("make", &folder.path, cause)),
        }
        for inner in [folder.logs(), folder.state(), folder.agents()] {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&inner)
                .map_err(|cause| LaunchError::file("make", &inner, cause))?;
        }
        Ok((folder, notices))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster file in it.
    pub fn file(&self) -> PathBuf {
        self.path.join("cluster.json")
    }

    /// Logs of its agents.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The log of one agent.
    pub fn log(&self, agent: &str) -> PathBuf {
        self.logs().join(format!("{agent}.log"))
    }

    /// The coordinator's log of commands.
    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Sockets of connections to hosts.
    pub fn sockets(&self) -> PathBuf {
        self.path.join("ssh")
    }

    /// The agents' working folders, one each.
    pub fn agents(&self) -> PathBuf {
        self.path.join("agents")
    }

    /// Writes the cluster file: aside, then renamed, so that a reader sees a whole one.
    pub fn write(&self, file: &ClusterFile) -> Result<(), LaunchError> {
        let aside = self.path.join("cluster.json.new");
        let text = serde_json::to_vec_pretty(file)
            .map_err(|cause| LaunchError::file("write", &aside, std::io::Error::other(cause)))?;
        let write = || {
            let mut out =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            out.write_all(&text)?;
            out.write_all(b"\n")?;
            fs::rename(&aside, self.file())
        };
        write().map_err(|cause| LaunchError::file("write", self.file(), cause))
    }

    /// Removes the folder with all in it.
    pub fn remove(&self) -> Result<(), LaunchError> {
        match fs::remove_dir_all(&self.path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(LaunchError::file("remove", &self.path, cause))
            }
            _ => Ok(()),
        }
    }
}

/// The clusters found below a runtime folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that run, by name.
    pub live: Vec<(ClusterFolder, ClusterFile)>,
    /// A sentence for each stale folder that was removed and each that could not be read.
    pub notices: Vec<String>,
}

/// All clusters below `root`. Stale folders (no process left) are removed on the way; those whose file cannot
/// be read, or that are open to others, are left alone and named.
pub fn find_clusters(root: &Path) -> Result<Found, LaunchError> {
    let mut found = Found::default();
    if !root.exists() {
        return Ok(found);
    }
    check_private(root)?;
    let entries = fs::read_dir(root).map_err(|cause| LaunchError::file("read", root, cause))?;
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        // No cluster's name begins so; sockets of commands lie in such folders.
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    for name in names {
        let folder = ClusterFolder::at(root, &name);
        if let Err(open) = check_private(folder.path()) {
            found.notices.push(format!("{open}; cluster {name} was passed over"));
            continue;
        }
        let mut on_hosts = "";
        let stale = match ClusterFile::read(&folder.file()) {
            Ok(file) if file.is_stale() => {
                if file.road.is_some() {
                    on_hosts = "; `tuplane clean --hosts FILE` removes its folders on the hosts";
                }
                true
            }
            Ok(file) => {
                found.live.push((folder.clone(), file));
                false
            }
            // Left by a start that was broken off before it wrote the file.
            Err(LaunchError::File { cause, .. })
                if cause.kind() == std::io::ErrorKind::NotFound && agents_in(&folder).is_empty() =>
            {
                is_older_than(folder.path(), STARTING)
            }
            Err(why) => {
                // Somebody who is just starting has not written it yet.
                if is_older_than(folder.path(), STARTING) {
                    found.notices.push(unreadable(&folder, &why));
                }
                false
            }
        };
        if stale {
            folder.remove()?;
            found.notices.push(format!(
                "removed what was left of cluster {name}: none of its processes is there{on_hosts}"
            ));
        }
    }
    Ok(found)
}

/// What to do about a folder whose cluster nobody can name: its agents may live, so it is never removed.
fn unreadable(folder: &ClusterFolder, why: &LaunchError) -> String {
    let pids = agents_in(folder);
    let (path, pids_listed) = (folder.path().display(), pids.join(", "));
    match pids.len() {
        0 => format!("{why}; left alone: no agent writes to {path}, remove it if nobody needs it"),
        1 => format!(
            "{why}; left alone: agent pid {pids_listed} writes to {path}, end it, then remove the folder"
        ),
        _ => format!(
            "{why}; left alone: agents pids {pids_listed} write to {path}, end them, then remove the folder"
        ),
    }
}

/// The pids of a cluster's agents, told by their standard error, which is a log in its folder.
fn agents_in(folder: &ClusterFolder) -> Vec<String> {
    let Ok(logs) = folder.logs().canonicalize() else { return Vec::new() };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|pid| fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|log| log.starts_with(&logs)))
        .collect();
    pids.sort_unstable();
    pids.iter().map(u32::to_string).collect()
}

fn is_older_than(path: &Path, age: Duration) -> bool {
    fs::metadata(path)
        .and_then(|meta| meta.modified())
        .is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// `$XDG_RUNTIME_DIR/tuplane`, else `tuplane-UID` in the system's folder for temporary files.
pub fn runtime_root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute()) {
        Some(dir) => PathBuf::from(dir).join("tuplane"),
        None => std::env::temp_dir().join(format!("tuplane-{}", rustix::process::getuid().as_raw())),
    }
}

/// A cluster's name is a folder's name, and never looks like `host:port`.
pub fn check_name(name: &str) -> Result<(), LaunchError> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let good = name.len() <= 64
        && name.chars().all(inner)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if good {
        return Ok(());
    }
    Err(LaunchError::Refused(format!(
        "`{}` cannot name a cluster: use letters, digits, `_`, `-` and `.`, at most 64, a letter or digit first",
        name.escape_debug()
    )))
}

fn make_private(root: &Path) -> Result<(), LaunchError> {
    match fs::DirBuilder::new().mode(0o700).recursive(true).create(root) {
        Ok(()) => check_private(root),
        Err(cause) => Err(LaunchError::file("make", root, cause)),
    }
}

/// The folder holds keys: it must be ours, a real folder, and closed to others.
fn check_private(folder: &Path) -> Result<(), LaunchError> {
    let meta = fs::symlink_metadata(folder).map_err(|cause| LaunchError::file("read", folder, cause))?;
    let refuse = |why: String| Err(LaunchError::Refused(format!("{} {why}", folder.display())));
    if !meta.is_dir() {
        return refuse("is not a folder; move it away".into());
    }
    let own = rustix::process::getuid().as_raw();
    if meta.uid() != own {
        return refuse(format!(
            "belongs to user {}, not to you (user {own}); set XDG_RUNTIME_DIR to a folder of your own",
            meta.uid()
        ));
    }
    if meta.mode() & 0o077 != 0 {
        return refuse(format!(
            "is open to others (mode {:o}) and holds keys; close it with `chmod 700 {}`",
            meta.mode() & 0o777,
            folder.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(agents: Vec<AgentEntry>) -> ClusterFile {
        ClusterFile {
            schema: SCHEMA.into(),
            name: "t".into(),
            coordinator: "127.0.0.1:1".into(),
            key: None,
            agents,
            launcher: ProcessId::current().unwrap(),
            detached: true,
            road: None,
        }
    }

    fn root() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("tuplane");
        (dir, root)
    }

    #[test]
    fn a_cluster_is_written_found_and_its_name_is_taken() {
        let (_dir, root) = root();
        let (folder, notices) = ClusterFolder::create(&root, "t").unwrap();
        assert!(notices.is_empty());
        let live = AgentEntry {
            name: "a".into(),
            address: "127.0.0.1:1".into(),
            process: ProcessId::current().unwrap(),
            host: None,
        };
        folder.write(&file(vec![live])).unwrap();
        assert_eq!(fs::metadata(folder.file()).unwrap().mode() & 0o777, 0o600);
        let found = find_clusters(&root).unwrap();
        assert_eq!(found.live.len(), 1);
        assert_eq!(found.live[0].1, ClusterFile::read(&folder.file()).unwrap());
        let taken = ClusterFolder::create(&root, "t").unwrap_err();
        assert!(taken.to_string().contains("runs already"), "{taken}");
    }

    #[test]
    fn a_stale_folder_is_removed_with_a_notice_and_its_name_is_free() {
        let (_dir, root) = root();
        let (folder, _) = ClusterFolder::create(&root, "t").unwrap();
        let gone = AgentEntry {
            name: "a".into(),
            address: "127.0.0.1:1".into(),
            process: ProcessId { pid: std::process::id(), started: 1 },
            host: None,
        };
        folder.write(&file(vec![gone])).unwrap();
        let found = find_clusters(&root).unwrap();
        assert!(found.live.is_empty() && found.notices[0].contains("cluster t"));
        assert!(!folder.path().exists());
        ClusterFolder::create(&root, "t").unwrap();
    }

    #[test]
    fn a_pid_of_another_host_is_never_looked_up_here() {
        let (_dir, root) = root();
        let (folder, _) = ClusterFolder::create(&root, "t").unwrap();
        let target = Target { host: "h".into(), port: None, jump: None };
        let host = HostEntry { target, folder: "/run/a".into(), socket: "s".into() };
        // A process of this machine has the same pid: that must count for nothing.
        let mut remote = file(vec![AgentEntry {
            name: "a".into(),
            address: "10.0.0.1:1".into(),
            process: ProcessId::current().unwrap(),
            host: Some(host),
        }]);
        remote.road =
            Some(RoadEntry { ssh: SshOptions::default(), through_ssh: false, fan_out: FAN_OUT, plan: None });
        assert_eq!((remote.agents[0].here(), remote.agents[0].is_alive_here()), (None, false));
        remote.launcher.started += 1;
        folder.write(&remote).unwrap();
        assert_eq!(find_clusters(&root).unwrap().live.len(), 1, "detached agents are there until `down`");
        remote.detached = false;
        folder.write(&remote).unwrap();
        assert!(find_clusters(&root).unwrap().live.is_empty(), "the others have ended with their launcher");
    }

    #[test]
    fn a_folder_whose_file_cannot_be_read_is_left_alone_with_what_to_do() {
        let (_dir, root) = root();
        let (folder, _) = ClusterFolder::create(&root, "t").unwrap();
        let log = fs::File::create(folder.log("a")).unwrap();
        let mut agent = std::process::Command::new("sleep").arg("60").stderr(log).spawn().unwrap();
        let old = std::time::SystemTime::now() - 2 * STARTING;
        let age = || fs::File::open(folder.path()).unwrap().set_modified(old).unwrap();
        // Gone, cut short, of a schema to come: the agent lives in each case.
        for text in [None, Some("{"), Some(r#"{"schema": "tuplane/cluster/9"}"#)] {
            if let Some(text) = text {
                fs::write(folder.file(), text).unwrap();
            }
            age();
            let found = find_clusters(&root).unwrap();
            assert!(found.live.is_empty() && folder.path().exists());
            let [notice] = &found.notices[..] else { panic!("{:?}", found.notices) };
            let pid = format!("pid {} ", agent.id());
            assert!(notice.contains(&pid) && notice.contains(folder.path().to_str().unwrap()), "{notice}");
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        let notice = &find_clusters(&root).unwrap().notices[0];
        assert!(folder.path().exists() && notice.contains("remove it"), "{notice}");
        // Nobody is there and there is no file: what a broken start leaves.
        fs::remove_file(folder.file()).unwrap();
        age();
        assert_eq!(find_clusters(&root).unwrap().notices.len(), 1);
        assert!(!folder.path().exists());
    }

    #[test]
    fn a_folder_that_is_open_to_others_does_not_hide_the_rest() {
        let (_dir, root) = root();
        for name in ["open", "shut"] {
            let (folder, _) = ClusterFolder::create(&root, name).unwrap();
            let live = AgentEntry {
                name: "a".into(),
                address: "127.0.0.1:1".into(),
                process: ProcessId::current().unwrap(),
                host: None,
            };
            folder.write(&file(vec![live])).unwrap();
        }
        fs::set_permissions(root.join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        let found = find_clusters(&root).unwrap();
        assert_eq!(found.live.len(), 1);
        let [notice] = &found.notices[..] else { panic!("{:?}", found.notices) };
        assert!(notice.contains("chmod 700") && notice.contains("cluster open was passed over"), "{notice}");
    }

    #[test]
    fn an_open_runtime_folder_is_refused() {
        let (_dir, root) = root();
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = find_clusters(&root).unwrap_err().to_string();
        assert!(refused.contains("755") && refused.contains("chmod 700"), "{refused}");
    }

    #[test]
    fn a_run_folders_name_tells_its_launcher_whatever_the_cluster_is_called() {
        for cluster in ["t", "a-7-b", "x.y-1"] {
            let mut starting = file(Vec::new());
            starting.name = cluster.into();
            assert_eq!(starting.run(), None, "agents of this machine have no run folder");
            starting.road = Some(RoadEntry {
                ssh: SshOptions::default(),
                through_ssh: false,
                fan_out: FAN_OUT,
                plan: None,
            });
            // It is known before the first agent is.
            assert_eq!(launcher_of(&starting.run().unwrap()), Some(starting.launcher));
        }
        for name in ["", "t", "t-1", "1-2", "t-x-1", "t-1-"] {
            assert_eq!(launcher_of(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_are_paths_or_addresses_are_refused() {
        let (_dir, root) = root();
        for name in ["", "a/b", "..", "host:1", "a b", "\u{1b}[2J", &"x".repeat(65)] {
            let refused = ClusterFolder::create(&root, name).unwrap_err().to_string();
            assert!(refused.contains("cannot name a cluster") && !refused.contains('\u{1b}'), "{refused}");
        }
    }
}
