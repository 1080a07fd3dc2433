//! Who holds a port of this machine, as far as /proc tells.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// `pid 123 (command)` of the process that listens on a TCP address, or on its port at all addresses,
/// where it can be read.
pub(super) fn of_port(address: SocketAddr) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .find_map(|table| listening_inode(&table, address))?;
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse::<u32>().ok()?;
        holds(&process.path(), &wanted).then(|| format!("pid {pid}{}", command(&process.path())))
    })
}

/// The kernel's way to write an address: words of 32 bits as this machine has them.
fn kernel_hex(address: IpAddr) -> String {
    let words = |octets: &[u8]| -> String {
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
        octets.chunks(4).map(|bytes| format!("{:08X}", word(bytes))).collect::<Vec<_>>().concat()
    };
    match address {
        IpAddr::V4(v4) => words(&v4.octets()),
        IpAddr::V6(v6) => words(&v6.octets()),
    }
}

/// The inode of the socket that listens on an address, from the text of /proc/net/tcp.
fn listening_inode(table: &str, address: SocketAddr) -> Option<u64> {
    /// `TCP_LISTEN` of the kernel.
    const LISTEN: &str = "0A";
    let own = kernel_hex(address.ip());
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        let (host, held) = local.rsplit_once(':')?;
        let same = host == own || host.bytes().all(|digit| digit == b'0');
        let held = u16::from_str_radix(held, 16).ok()?;
        (same && held == address.port() && state == LISTEN).then(|| inode.parse().ok())?
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
        let owner = of_port(listener.local_addr().unwrap()).unwrap();
        assert!(owner.starts_with(&format!("pid {} (", std::process::id())), "{owner}");
    }

    #[test]
    fn reads_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:0BB8 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 11 1 0\n\
             \x20  1: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12 1 0\n";
        let at = |address: &str| listening_inode(table, address.parse().unwrap());
        assert_eq!(at("127.0.0.1:3000"), Some(12));
        assert_eq!(at("127.0.0.1:3001"), None);
        assert_eq!(at("127.0.0.2:3000"), None, "another address may use the same port");
    }
}
