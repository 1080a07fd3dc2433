//! Who holds a port of this machine, as far as /proc tells.

use std::fs;
use std::path::Path;

/// `pid 123 (command)` of the process that listens on a TCP port, where it can be read.
pub(super) fn of_port(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| listening_inode(&table, port))?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        holds(&process.path(), &wanted).then(|| format!("pid {pid}{}", command(&process.path())))
    })
}

/// The inode of the socket that listens on `port`, from the text of /proc/net/tcp.
fn listening_inode(table: &str, port: u16) -> Option<u64> {
    /// `TCP_LISTEN` of the kernel.
    const LISTEN: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        let held = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
        (held == port && state == LISTEN).then(|| inode.parse().ok())?
    })
}

fn holds(process: &Path, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == socket))
}

fn command(process: &Path) -> String {
    match fs::read_to_string(process.join("comm")) {
        Ok(name) => format!(" ({})", name.trim_end()),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_process_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let owner = of_port(port).unwrap();
        assert!(owner.starts_with(&format!("pid {} (", std::process::id())), "{owner}");
    }

    #[test]
    fn reads_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:0BB8 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 11 1 0\n\
             \x20  1: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0\n";
        assert_eq!(listening_inode(table, 3000), Some(12));
        assert_eq!(listening_inode(table, 3001), None);
    }
}
