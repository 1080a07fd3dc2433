//! A private sshd for one test, hosts that it plays, and what a test asks of them.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::real::world::{World, alive, csv_rows, skip, text, wait, workspace};

/// What sshd lets in, beside what each test adds.
const CONFIG: &str = "\
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
PidFile none
";

/// Words with known counts, in lines of several.
const INPUT: &str = "the quick brown fox\njumps over the lazy dog\nThe END\n";

/// An sshd; it ends with this.
pub(crate) struct Sshd {
    child: Child,
}

impl Sshd {
    /// Starts one in `folder`, in a network namespace where one is named.
    pub(crate) fn start(
        folder: &Path,
        name: &str,
        addresses: &[&str],
        port: u16,
        more: &str,
        space: Option<&str>,
    ) -> Self {
        // Debian's sshd wants it, and makes it only as a service.
        std::fs::create_dir_all("/run/sshd").unwrap();
        let config = folder.join(format!("sshd-{name}"));
        let listen =
            addresses.iter().map(|address| format!("ListenAddress {address}\n")).collect::<Vec<_>>().concat();
        let (host, keys) =
            (folder.join("host").display().to_string(), folder.join("id.pub").display().to_string());
        std::fs::write(
            &config,
            format!("Port {port}\n{listen}HostKey {host}\nAuthorizedKeysFile {keys}\n{more}{CONFIG}"),
        )
        .unwrap();
        Self::run(folder, name, space)
    }

    /// Starts one by the configuration of an earlier one.
    fn run(folder: &Path, name: &str, space: Option<&str>) -> Self {
        let config = folder.join(format!("sshd-{name}"));
        let mut command = match space {
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space, "/usr/sbin/sshd"]);
                command
            }
            None => Command::new("/usr/sbin/sshd"),
        };
        let log = std::fs::File::create(folder.join(format!("sshd-{name}.log"))).unwrap();
        let child =
            command.args(["-D", "-e", "-f"]).arg(&config).stdin(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a key pair.
pub(crate) fn keygen(path: &Path, passphrase: &str) {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", passphrase, "-f"])
        .arg(path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// Runs here, or says what is missing.
pub(crate) fn available(test: &str, more: &[&str]) -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    if !is_root {
        skip(test, "root");
        return false;
    }
    for program in ["/usr/sbin/sshd", "ssh-keygen", "ssh"].iter().chain(more) {
        if Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            skip(test, program);
            return false;
        }
    }
    true
}

/// A port that nobody listens on, at these addresses.
fn free_port(addresses: &[&str]) -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind((addresses[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        if addresses[1..].iter().all(|address| TcpListener::bind((*address, port)).is_ok()) {
            return port;
        }
    }
    panic!("no port is free at {addresses:?}");
}

/// Loopback addresses as hosts behind one sshd. Fields go in their order: the cluster before its sshd.
pub(crate) struct Road {
    pub(crate) world: World,
    pub(crate) port: u16,
    addresses: Vec<String>,
    sshd: Option<Sshd>,
}

impl Road {
    pub(crate) fn new(test: &str, addresses: &[&str]) -> Option<Self> {
        Self::with(test, addresses, |_| String::new())
    }

    /// With more lines in sshd's configuration, made from the folder of the test.
    pub(crate) fn with(test: &str, addresses: &[&str], more: impl Fn(&World) -> String) -> Option<Self> {
        if !available(test, &[]) {
            return None;
        }
        let world = World::new();
        keygen(&world.path("host"), "");
        keygen(&world.path("id"), "");
        let port = free_port(addresses);
        let sshd = Some(Sshd::start(&world.path(""), "0", addresses, port, &more(&world), None));
        let road = Self {
            world,
            port,
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            sshd,
        };
        road.wait_for_sshd();
        seed(&road.remote());
        Some(road)
    }

    fn wait_for_sshd(&self) {
        let address = (self.addresses[0].as_str(), self.port);
        wait("sshd listens", Duration::from_secs(10), || TcpStream::connect(address).is_ok());
    }

    /// Nobody can log in any more; connections that stand go on.
    pub(crate) fn end_sshd(&mut self) {
        self.sshd = None;
    }

    /// One can log in again.
    pub(crate) fn start_sshd(&mut self) {
        self.sshd = Some(Sshd::run(&self.world.path(""), "0", None));
        self.wait_for_sshd();
    }

    /// `--remote-dir` of the test.
    pub(crate) fn remote(&self) -> PathBuf {
        self.world.path("remote")
    }

    /// One line a host, with these keys.
    pub(crate) fn hosts_file(&self, keys: &[&str]) -> String {
        let lines = self.addresses.iter().zip(keys);
        let lines =
            lines.map(|(a, keys)| format!("root@{a}:{} {keys}\n", self.port)).collect::<Vec<_>>().concat();
        self.world.file("hosts", lines)
    }

    /// What lets ssh in here, and nothing of the user's own.
    pub(crate) fn ssh(&self) -> Vec<String> {
        ssh_options(&self.world, &self.world.path("id"), &self.remote())
    }

    /// The command with the options of the road.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.args(self.ssh());
        command
    }

    /// `up` of the cluster t.
    pub(crate) fn up(&self, more: &[&str], hosts: &str) -> Output {
        let mut args = vec!["up", "--cluster", "t", "--hosts", hosts];
        args.extend(more);
        self.command(&args).output().unwrap()
    }

    /// Counts the words of a small file over these hosts.
    pub(crate) fn word_count(&self, hosts: &str) -> Vec<(String, String)> {
        word_count(&self.world, &["--hosts", hosts], &self.ssh())
    }

    /// All agents' logs that are left.
    pub(crate) fn logs(&self) -> Vec<String> {
        let runs = std::fs::read_dir(self.remote().join("run")).into_iter().flatten().flatten();
        let agents = runs.flat_map(|run| std::fs::read_dir(run.path()).unwrap().flatten());
        let logs = agents.filter_map(|agent| std::fs::read_to_string(agent.path().join("log")).ok());
        logs.collect()
    }

    /// Nothing is left on the hosts but the agent's binary: no process, no file.
    pub(crate) fn assert_clean(&self) {
        assert_clean(&self.remote());
    }
}

/// See [`Road::assert_clean`].
pub(crate) fn assert_clean(remote: &Path) {
    let left: Vec<String> = std::fs::read_dir(remote)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("agent-"))
        .collect();
    assert!(left.is_empty(), "left in {}: {left:?}", remote.display());
    wait("no agent of this test runs", Duration::from_secs(10), || running(remote).is_empty());
}

/// Processes whose binary or working folder lies in a folder.
pub(crate) fn running(folder: &Path) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    let inside = |pid: &u32| {
        ["cwd", "exe"].iter().any(|link| {
            std::fs::read_link(format!("/proc/{pid}/{link}")).is_ok_and(|to| to.starts_with(folder))
        })
    };
    pids.filter(|pid| alive(*pid)).filter(inside).collect()
}

/// What lets ssh in with a key, and nothing of the user's own.
pub(crate) fn ssh_options(world: &World, key: &Path, remote: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for option in
        [format!("IdentityFile={}", key.display()), "IdentitiesOnly=yes".into(), "IdentityAgent=none".into()]
    {
        all.extend(["--ssh-option".to_owned(), option]);
    }
    for (option, path) in [("--known-hosts", world.path("known")), ("--remote-dir", remote.to_owned())] {
        all.extend([option.to_owned(), path.display().to_string()]);
    }
    all.extend(["--ssh-config".to_owned(), "/dev/null".to_owned()]);
    all
}

/// Options of [`ssh_options`] with another value for one of them.
pub(crate) fn with_option(mut options: Vec<String>, name: &str, value: &str) -> Vec<String> {
    let place = options.iter().position(|option| option == name).unwrap();
    value.clone_into(&mut options[place + 1]);
    options
}

/// Counts the words of a small file with `run` and these options.
pub(crate) fn word_count(world: &World, args: &[&str], more: &[String]) -> Vec<(String, String)> {
    let input = world.file("in.txt", INPUT);
    let out = world.path("out");
    let job = workspace().join("testbed/jobs/wordcount.toml");
    let (lines, sink) = (format!("lines.path={input}"), format!("out.path={}", out.display()));
    let mut command = world.command(&["run", job.to_str().unwrap(), "--set", &lines, "--set", &sink]);
    let output = command.args(args).args(more).args(["-o", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["phase"], "finished", "{document}");
    crate::real::world::assert_exact_ledger(&document);
    csv_rows(&out).1.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

/// What [`word_count`] must give.
pub(crate) fn expected() -> Vec<(String, String)> {
    let words = ["brown", "dog", "end", "fox", "jumps", "lazy", "over", "quick", "the"];
    let count = |word: &str| if word == "the" { "3" } else { "1" };
    words.iter().map(|word| ((*word).to_owned(), count(word).to_owned())).collect()
}

/// The agent's binary beside the command's.
pub(crate) fn agent() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_tuplane")).with_file_name("tuplane-agent")
}

/// The name that the agent's binary has on a host.
pub(crate) fn agent_name() -> String {
    let mut bytes = Vec::new();
    std::fs::File::open(agent()).expect("tuplane-agent is built").read_to_end(&mut bytes).unwrap();
    format!("agent-{}", tuplane_core::fingerprint::fingerprint(&bytes))
}

/// Puts the binary where a host looks for it, so that not every test copies it.
pub(crate) fn seed(remote: &Path) {
    std::fs::create_dir_all(remote).unwrap();
    std::fs::set_permissions(remote, std::fs::Permissions::from_mode(0o700)).unwrap();
    let to = remote.join(agent_name());
    if std::fs::hard_link(agent(), &to).is_err() {
        std::fs::copy(agent(), &to).unwrap();
    }
}

/// Whether the folder is there that is used without `--remote-dir`.
pub(crate) fn default_dirs() -> bool {
    std::env::var_os("HOME").is_some_and(|home| Path::new(&home).join(".cache/tuplane").exists())
}
