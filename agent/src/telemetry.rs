//! Facts about this machine and process, read from the system once a second.

use std::fs;
use std::time::{Duration, Instant};

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
use tuplane_wire::message::HostFacts;

/// Reading the system more often costs more than the figures are worth.
const REFRESH: Duration = Duration::from_secs(1);

/// The unit of times under /proc; the kernel fixed it for all machines we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads facts, and remembers them until they are old.
#[derive(Debug)]
pub struct HostProbe {
    /// Absent where the system does not say how it does: those facts stay 0.
    system: Option<System>,
    last: HostFacts,
    read: Option<Instant>,
}

impl Default for HostProbe {
    fn default() -> Self {
        Self::new()
    }
}

impl HostProbe {
    /// A probe that has read nothing yet.
    pub fn new() -> Self {
        let os = [System::name(), System::os_version(), System::kernel_version()];
        let last = HostFacts {
            processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            os: os.into_iter().flatten().collect::<Vec<_>>().join(" "),
            ..HostFacts::default()
        };
        let refresh = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing().with_usage())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(refresh).ok();
        Self { system, last, read: None }
    }

    /// The facts; read anew if the last ones are a second old. Queue bytes are the caller's to fill in.
    pub fn facts(&mut self, now: Instant) -> &HostFacts {
        if self.read.is_none_or(|read| now.saturating_duration_since(read) >= REFRESH) {
            self.read = Some(now);
            if let Some(system) = &mut self.system {
                system.refresh_cpu_usage();
                system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
                self.last.cpu = (system.global_cpu_usage() / 100.0).clamp(0.0, 1.0);
                self.last.memory_total = system.total_memory();
                self.last.memory_used = system.used_memory();
            }
            self.last.rss_anon = rss_anon().unwrap_or(0);
            self.last.cpu_seconds = cpu_ticks().unwrap_or(0) as f64 / TICKS_PER_SECOND;
        }
        &self.last
    }
}

/// The machine's name.
pub fn host_name() -> String {
    System::host_name().unwrap_or_else(|_| "unknown".to_owned())
}

/// When this process was started, in clock ticks since boot: with the pid its name for ever.
pub fn process_start() -> Option<u64> {
    stat_field(22)?.parse().ok()
}

fn rss_anon() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// User and system time.
fn cpu_ticks() -> Option<u64> {
    let [user, system] = [stat_field(14)?, stat_field(15)?].map(|ticks| ticks.parse::<u64>());
    Some(user.ok()? + system.ok()?)
}

/// A field of the process's stat file by its number in proc(5), beyond the command's name.
fn stat_field(number: usize) -> Option<String> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name is in parentheses and may hold anything, parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_about_this_process_and_read_once_a_second() {
        let mut probe = HostProbe::new();
        let now = Instant::now();
        let first = probe.facts(now).clone();
        assert!(first.processors > 0 && first.memory_total > first.memory_used);
        assert!(first.rss_anon > 100_000, "{}", first.rss_anon);
        let begun = Instant::now();
        let mut waste = 0u64;
        while begun.elapsed() < Duration::from_millis(120) {
            waste = std::hint::black_box(waste.wrapping_mul(31).wrapping_add(1));
        }
        assert_eq!(*probe.facts(now + Duration::from_millis(900)), first);
        let later = probe.facts(now + Duration::from_secs(1));
        assert!(later.cpu_seconds > first.cpu_seconds, "{} {}", later.cpu_seconds, first.cpu_seconds);
        assert!(process_start().unwrap() > 0);
    }
}
