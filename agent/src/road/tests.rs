//! Which address an agent takes, and how its files on a host are written.

use super::*;

fn interface(name: &str, address: &str, prefix: u8, up: bool) -> Interface {
    Interface { name: name.into(), address: address.parse().unwrap(), prefix, up }
}

fn road(data: Option<&str>) -> Road {
    Road { host: "h".into(), data: data.map(str::to_owned), ..Road::default() }
}

/// A node of a testbed: control and experiment network, a container's bridge, a cable that is not plugged in.
fn node() -> Vec<Interface> {
    vec![
        interface("lo", "127.0.0.1", 8, true),
        interface("lo", "::1", 128, true),
        interface("eno1", "128.110.219.4", 21, true),
        interface("eno1", "fe80::1", 64, true),
        interface("eno2", "10.10.1.2", 24, true),
        interface("eno3", "10.10.2.2", 24, false),
        interface("docker0", "172.17.0.1", 16, true),
        interface("virbr0", "192.168.122.1", 24, true),
    ]
}

fn chosen(data: &str, own: &[Interface]) -> Result<String, String> {
    data_address(&road(Some(data)), own).map(|data| data.address.to_string())
}

#[test]
fn an_address_a_network_or_an_interface_names_the_data_address() {
    for data in ["10.10.1.2", "10.10.1.0/24", "10.0.0.0/8", "eno2"] {
        assert_eq!(chosen(data, &node()).as_deref(), Ok("10.10.1.2"), "{data}");
    }
}

#[test]
fn of_several_candidates_none_is_guessed_and_all_are_named() {
    let refused = data_address(&road(None), &node()).unwrap_err();
    assert!(refused.contains("128.110.219.4 (eno1), 10.10.1.2 (eno2)"), "{refused}");
    for hidden in ["172.17", "192.168.122", "fe80", "127.0", "10.10.2.2"] {
        assert!(!refused.contains(hidden), "{hidden} in {refused}");
    }
    let one: Vec<Interface> = node().into_iter().filter(|i| i.name != "eno1").collect();
    assert_eq!(data_address(&road(None), &one).unwrap().address.to_string(), "10.10.1.2");
}

#[test]
fn what_is_not_there_or_down_or_not_alone_is_refused_with_what_there_is() {
    for data in ["10.10.9.9", "10.10.9.0/24", "10.10.2.0/24", "eno3", "0.0.0.0/0"] {
        let refused = chosen(data, &node()).unwrap_err();
        assert!(refused.contains(data.split('/').next().unwrap()), "{refused}");
        assert!(refused.contains("10.10.1.2"), "{refused}");
    }
}

#[test]
fn a_loopback_address_is_for_clusters_of_one_machine() {
    let mut own = road(Some("127.0.0.2"));
    let refused = data_address(&own, &node()).unwrap_err();
    assert!(refused.contains("loopback") && !refused.contains("host h"), "{refused}");
    own.loopback = true;
    assert_eq!(data_address(&own, &node()).unwrap().address.to_string(), "127.0.0.2");
}

#[test]
fn a_name_is_what_the_launcher_says_it_is_and_must_be_ours() {
    let mut named = road(Some("node-link"));
    named.resolved = vec!["10.10.1.2".into()];
    assert_eq!(data_address(&named, &node()).unwrap().interface, "eno2");
    named.resolved = vec!["10.10.1.9".into()];
    let refused = data_address(&named, &node()).unwrap_err();
    assert!(refused.contains("node-link stands for 10.10.1.9"), "{refused}");
    // Several of ours: none is guessed. One of IPv4 is meant before one of IPv6.
    named.resolved = vec!["10.10.1.2".into(), "128.110.219.4".into()];
    let refused = data_address(&named, &node()).unwrap_err();
    assert!(refused.contains("several addresses that node-link stands for"), "{refused}");
    assert!(refused.contains("10.10.1.2, 128.110.219.4; say data="), "{refused}");
    let mut six = node();
    six.push(interface("eno2", "fd00::2", 64, true));
    named.resolved = vec!["fd00::2".into(), "10.10.1.2".into()];
    assert_eq!(data_address(&named, &six).unwrap().address.to_string(), "10.10.1.2");
    // As many systems map their own name.
    named.resolved = vec!["127.0.1.1".into()];
    let refused = data_address(&named, &node()).unwrap_err();
    assert!(refused.contains("127.0.1.1") && refused.contains("loopback"), "{refused}");
}

#[test]
fn the_port_stays_when_the_host_is_chosen() {
    assert_eq!(listen_on("10.0.0.1".parse().unwrap(), "0.0.0.0:7101"), "10.0.0.1:7101");
    assert_eq!(listen_on("fd00::1".parse().unwrap(), "[::]:0"), "[fd00::1]:0");
}

#[test]
fn networks_are_compared_by_their_bits() {
    let same = |a: &str, b: &str, p| same_network(a.parse().unwrap(), b.parse().unwrap(), p);
    assert!(same("10.1.2.3", "10.1.9.9", 16) && !same("10.1.2.3", "10.1.9.9", 24));
    assert!(same("fd00::1", "fd00::ffff", 64) && !same("fd00::1", "fd01::1", 16));
    assert!(same("1.2.3.4", "9.9.9.9", 0) && !same("1.2.3.4", "fd00::1", 0));
    assert_eq!(parse_network("10.0.0.0/33"), None);
}

#[test]
fn this_machine_has_a_loopback_interface() {
    assert!(interfaces().iter().any(|i| i.address.is_loopback()));
}
