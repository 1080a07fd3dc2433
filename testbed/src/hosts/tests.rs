//! Hosts files, good and bad, and that no text makes the reader fall over.

use proptest::prelude::*;

use super::*;

fn hosts(text: &str) -> Vec<Host> {
    parse(text).unwrap_or_else(|faults| panic!("{faults:?}")).into_iter().map(|host| host.value).collect()
}

fn faults(text: &str) -> Vec<String> {
    parse(text).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn every_key_is_read() {
    let text = "root@node1.x.org:2222 name=n1 data=10.10.1.0/24 port=7101 slots=4 cores=2 zone=r1 spare=true \
                jump=me@gate:22,inner";
    let host = &hosts(text)[0];
    assert_eq!(
        *host,
        Host {
            user: Some("root".into()),
            host: "node1.x.org".into(),
            ssh_port: Some(2222),
            name: Some("n1".into()),
            data: Some("10.10.1.0/24".into()),
            port: 7101,
            slots: Some(4),
            cores: Some(2),
            zone: Some("r1".into()),
            spare: true,
            jump: Some("me@gate:22,inner".into()),
        }
    );
    assert_eq!(host.destination(), "root@node1.x.org");
}

#[test]
fn files_of_other_tools_are_valid_as_they_are() {
    let spark = "\u{feff}# Workers, one a line.\r\nnode1\r\n\r\nnode2# the second\r\n  localhost  \r\n";
    assert_eq!(
        hosts(spark).iter().map(|h| h.host.as_str()).collect::<Vec<_>>(),
        ["node1", "node2", "localhost"]
    );
    let mpi = "n1 slots=4\nn2 slots=2";
    assert_eq!(hosts(mpi).iter().map(|h| h.slots).collect::<Vec<_>>(), [Some(4), Some(2)]);
    let ansible = "[workers]\nwww[01:03].x\n\n[control] # one\nhead\n";
    assert_eq!(hosts(ansible).len(), 4);
    assert_eq!(hosts("u@amd010.utah.cloudlab.us").len(), 1);
}

#[test]
fn addresses_of_six_and_ranges_stand_in_brackets() {
    let found = hosts("[::1]\nme@[fd00::2]:2222\nfd00::3\nn[1-2]:22 name=x[1-2] data=10.0.0.[1-2]");
    let shown: Vec<(String, Option<u16>)> = found.iter().map(|h| (h.host.clone(), h.ssh_port)).collect();
    assert_eq!(shown[..3], [("::1".into(), None), ("fd00::2".into(), Some(2222)), ("fd00::3".into(), None)]);
    assert_eq!(found[4].name.as_deref(), Some("x2"));
    assert_eq!((found[3].data.as_deref(), found[3].ssh_port), (Some("10.0.0.1"), Some(22)));
}

#[test]
fn a_comment_begins_outside_a_value_only() {
    assert_eq!(hosts("n1 # name=x")[0].name, None);
    assert_eq!(hosts("n1#name=x")[0].name, None);
    let fault = &faults("n1 name=a#b")[0];
    assert!(fault.contains("`a#b` cannot name an agent"), "{fault}");
}

#[test]
fn all_faults_are_found_in_one_pass_with_line_and_column() {
    let text = "n1 slot=4\nn2 slots=-1 port=99999\n\n-oProxyCommand=x\nn3 name=\nn4 junk\nn[3-1]\n[a:vars]\nansible_user=u\n[b]\nn5 slots=2 slots=3\n";
    let found = faults(text);
    let starts = [
        "1:4: unknown key `slot`",
        "2:10: `-1`",
        "2:18: `99999`",
        "4:1: ",
        "5:4: `name=` has no value",
        "6:4: `junk`",
        "7:1: ",
        "8:1: ",
        "11:12: `slots` stands twice",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found} does not start with {start}");
    }
    assert!(found[0].contains("did you mean `slots`?"), "{}", found[0]);
}

#[test]
fn a_host_that_stands_twice_needs_another_name_or_other_slots() {
    let refused = &faults("n1\nn2\nN1\n")[0];
    assert!(refused.contains("lines 1 and 3"), "{refused}");
    assert_eq!(hosts("n1 name=a\nn1 name=b\nn1 slots=2\nn1:2222").len(), 4);
    assert!(
        faults("n1 name=a port=7000\nn1 name=b port=7000")[0].contains("port 7000 of host n1 is given twice")
    );
    assert!(faults("n1 name=a\nn2 name=a")[0].contains("two agents are named a"));
}

#[test]
fn an_empty_file_is_a_fault_without_a_place() {
    assert_eq!(parse("# nothing\n").unwrap_err()[0].at, At::default());
}

#[test]
fn a_list_is_read_as_lines() {
    let found = parse_list("h1,me@h[2-3]:22,h4 slots=2").unwrap();
    assert_eq!(
        found.iter().map(|h| h.value.to_string()).collect::<Vec<_>>(),
        ["h1", "me@h2:22", "me@h3:22", "h4 slots=2"]
    );
    assert_eq!(parse_list("h1,h=2").unwrap_err()[0].at.column, 1);
    assert_eq!(parse_list("h1,h=2").unwrap_err()[0].at.line, 2, "the entry's number");
    assert_eq!(parse_list("h1,h=2").unwrap_err()[0].at.offset, 3);
}

#[test]
fn agents_are_named_by_their_host_where_that_is_clear() {
    let all = parse("node0.a.org\nnode1.a.org\nnode1.b.org\n10.0.0.1\nx name=a\nx name=b").unwrap();
    assert_eq!(names(&all), ["node0", "c", "d", "e", "a", "b"]);
}

fn word() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_.-]{0,8}"
}

fn host() -> impl Strategy<Value = Host> {
    let host = prop_oneof![word(), Just("fd00::1".to_owned()), Just("10.0.0.1".to_owned())];
    let target = (proptest::option::of(word()), host, proptest::option::of(1..u16::MAX));
    let texts = (
        proptest::option::of(word()),
        proptest::option::of(prop_oneof![
            word(),
            Just("10.1.0.0/16".to_owned()),
            Just("fd00::/8".to_owned())
        ]),
        proptest::option::of(word()),
        proptest::option::of(prop_oneof![word(), Just("me@[::1]:22,g:2".to_owned())]),
    );
    let numbers =
        (0..=u16::MAX, proptest::option::of(1u32..=1024), proptest::option::of(1u32..=4096), any::<bool>());
    (target, texts, numbers).prop_map(
        |((user, host, ssh_port), (name, data, zone, jump), (port, slots, cores, spare))| Host {
            user,
            host,
            ssh_port,
            name,
            data,
            port,
            slots,
            cores,
            zone,
            spare,
            jump,
        },
    )
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s)[ -~\\n\\r\\t#=@:\\[\\]é\u{feff},0-9-]{0,80}") {
        let _ = parse(&text);
        let _ = parse_list(&text);
    }

    #[test]
    fn every_fault_lies_in_the_text(text in "[a-c\\[\\]0-3:,=@# \\n-]{0,60}") {
        for fault in parse(&text).err().unwrap_or_default() {
            let (start, end) = (fault.at.offset as usize, (fault.at.offset + fault.at.len) as usize);
            prop_assert!(text.get(start..end).is_some(), "{:?} in {:?}", fault, text);
            prop_assert!(fault.at.line as usize <= text.lines().count().max(1));
        }
    }

    #[test]
    fn a_printed_file_reads_as_the_same_hosts(all in proptest::collection::vec(host(), 1..6)) {
        let text = all.iter().map(|host| format!("{host}\n")).collect::<Vec<_>>().concat();
        // Hosts that stand twice are another test's.
        if let Ok(read) = parse(&text) {
            let read: Vec<Host> = read.into_iter().map(|host| host.value).collect();
            prop_assert_eq!(&read, &all);
            let again = read.iter().map(|host| format!("{host}\n")).collect::<Vec<_>>().concat();
            prop_assert_eq!(again, text);
        } else {
            let only = parse(&format!("{}\n", all[0])).map_err(|f| TestCaseError::fail(format!("{f:?}")))?;
            prop_assert_eq!(&only[0].value, &all[0]);
        }
    }

    #[test]
    fn every_host_has_a_name_of_its_own(all in proptest::collection::vec(host(), 1..8)) {
        let text = all.iter().map(|host| format!("{host}\n")).collect::<Vec<_>>().concat();
        if let Ok(read) = parse(&text) {
            let names = names(&read);
            let own: BTreeSet<&String> = names.iter().collect();
            prop_assert_eq!(own.len(), read.len());
        }
    }
}

#[test]
fn faults_of_a_list_speak_of_entries() {
    let said = |text: &str| -> Vec<String> {
        let faults = parse_list(text).unwrap_err();
        faults
            .iter()
            .map(|fault| format!("{} ({})", fault.message, fault.help.as_deref().unwrap_or("-")))
            .collect()
    };
    let twice = &said("h1,h2,h1")[0];
    assert!(twice.starts_with("host h1 stands twice, in entries 1 and 3"), "{twice}");
    let named = &said("h1 name=a,h2 name=a")[0];
    assert!(named.starts_with("two agents are named a, in entries 1 and 2"), "{named}");
    for text in ["h1 h2", "h1,h2 slot=4", ",", "h1 port=5,h1 port=5 name=b"] {
        let all = said(text).join("\n");
        assert!(!all.contains("line"), "{text}: {all}");
    }
    assert!(said(",")[0].starts_with("no host is named"));
    // Each entry begins where the list, split at its commas, has it.
    let text = "h[1,2],h3 slot=1";
    let at = parse_list(text).unwrap_err()[0].at;
    assert_eq!((at.line, at.column), (2, 4));
    let lines = entries(text).join("\n");
    assert_eq!(&lines[at.offset as usize..][..at.len as usize], "slot");
}

#[test]
fn a_port_as_ssh_takes_it_is_one_fault_with_the_way_to_write_it() {
    for (text, shown, help) in [
        ("me@n1 -p 2222 slots=2", "1:7: `-p 2222`", "me@n1:2222"),
        ("n1 -p2222", "1:4: `-p2222`", "n1:2222"),
        ("-p 22 n1", "1:1: `-p 22`", "n1:22"),
        ("n1 -p", "1:4: `-p`", "n1:22"),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(shown) && found[0].contains(help), "{found:?}");
    }
    assert_eq!(faults("n1 -p -i").len(), 1);
    assert_eq!(hosts("n-p")[0].host, "n-p");
}

#[test]
fn the_documentation_has_a_row_for_each_key_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hosts.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| key | value")).skip(2);
    let rows = rows.take_while(|line| line.starts_with("| `"));
    let documented: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(documented.iter().collect::<BTreeSet<_>>(), KEYS.iter().collect::<BTreeSet<_>>());
    assert_eq!(documented.len(), KEYS.len(), "{documented:?}");
}
