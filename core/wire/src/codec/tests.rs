//! Golden bytes of the messages, and payloads that cannot be read.

use tuplane_core::place::RowPlace;

use super::*;
use crate::message::{
    AgentId, AgentInfo, AgentReply, AgentRequest, ClusterReply, ClusterRequest, EdgeLedger, Event, FaultCode,
    Flow, InstanceReport, JobPhase, JobSummary, Report, RunReport, SinkFile, Split, WireFault,
};
use crate::service::Hello;

#[expect(clippy::format_collect, reason = "a few bytes in a test")]
fn hex<T: Serialize>(value: &T) -> String {
    encode(value).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes stand for the format: a change that breaks one of these breaks mixed clusters.
#[track_caller]
fn golden<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, bytes: &str) {
    assert_eq!(hex(value), bytes, "{value:?}");
    assert_eq!(decode::<T>(&encode(value).unwrap()).unwrap(), *value);
}

fn id() -> AgentId {
    AgentId { name: "b".to_owned(), incarnation: 7 }
}

fn info() -> AgentInfo {
    AgentInfo {
        id: id(),
        address: "h:1".to_owned(),
        slots: 2,
        cores: 0,
        zone: "z".to_owned(),
        pid: 300,
        version: "0".to_owned(),
        host: "h".to_owned(),
        registry: 1,
    }
}

fn split() -> Split {
    Split { number: 3, path: "f".to_owned(), start: 0, end: u64::MAX, seen: None, done: None }
}

#[test]
fn hello_never_changes() {
    golden(&Hello::ours("0.1.0", 5), "fd00454e414c505554010105302e312e300405");
}

#[test]
fn cluster_requests() {
    golden(&ClusterRequest::Register(info()), "0001620703683a310200017afb2c010130016801");
    let report = Report { agent: Some(id()), sequence: 9, ..Report::default() };
    golden(
        &ClusterRequest::Report(Box::new(report)),
        "010101620709000000000000000000000000000000000000000000000000",
    );
    let event = Event::PeerGone { peer: id(), cause: "x".to_owned() };
    golden(&ClusterRequest::Events { agent: id(), events: vec![event] }, "0201620701020162070178");
    let next = ClusterRequest::NextSplit { agent: id(), run: 1, stage: "s".to_owned(), instance: 2, have: 3 };
    golden(&next, "030162070101730203");
    let submit = ClusterRequest::Submit { job: "{}".to_owned(), force: true };
    golden(&submit, "04027b7d01");
    golden(&ClusterRequest::Shutdown, "0b");
    golden(&ClusterRequest::Check { job: "j".to_owned() }, "0c016a");
}

#[test]
fn cluster_replies() {
    golden(&ClusterReply::Reported { now_ns: 1, runs: vec![2, 3] }, "0101020203");
    golden(&ClusterReply::Done, "02");
    golden(&ClusterReply::Split(Some(split())), "030103016600fdffffffffffffffff0000");
    golden(&ClusterReply::Submitted { run: 4, name: "n".to_owned() }, "0404016e");
    let summary = JobSummary {
        run: 1,
        name: "n".to_owned(),
        phase: JobPhase::Failed,
        attempt: 1,
        submitted_ms: 2,
        ended_ms: None,
        fault: Some(WireFault::new(FaultCode::Agent, "m")),
        instances: 3,
        agents: vec!["a".to_owned()],
        pending: vec![],
    };
    golden(&ClusterReply::Jobs(vec![summary]), "050101016e050102000103016d00000301016100");
}

#[test]
fn agent_messages() {
    golden(&AgentRequest::Connect { run: 5 }, "0105");
    golden(&AgentRequest::Stop { run: 5, reason: "r".to_owned(), discard: true }, "0305017201");
    golden(&AgentRequest::Seal { run: 5, empty: vec!["s".to_owned()], parts: vec![] }, "040501017300");
    golden(&AgentRequest::PeerLost(id()), "08016207");
    golden(&AgentRequest::Ping, "0a");
    golden(&AgentRequest::Shutdown, "0b");
    let place = RowPlace::from_number(7);
    golden(&AgentRequest::Locate { run: 5, place }, "0c0507");
    golden(&AgentReply::Done, "00");
    let mut edge = EdgeLedger { edge: 1, emitted: 2, taken: 3, ..EdgeLedger::default() };
    edge.dropped.insert("r".to_owned(), 4);
    edge.flows.insert((5, 6), Flow { rows: 7, bytes: 8, wire_bytes: 9 });
    let instance = InstanceReport { instance: 2, rows_in: 3, ..InstanceReport::default() };
    let last = RunReport { run: 5, instances: vec![instance], edges: vec![edge], ..RunReport::default() };
    golden(
        &AgentReply::Stopped(Box::new(last)),
        "0105010203000000000000000000000000000000000000000101020000000301017204010506070809000000000000",
    );
    let file =
        SinkFile { agent: "a".to_owned(), stage: "s".to_owned(), path: "p".to_owned(), rows: 1, bytes: 2 };
    golden(&AgentReply::Sealed(vec![file]), "02010161017301700102");
    golden(&AgentReply::Bytes(vec![1, 2, 3]), "0303010203");
    golden(&AgentReply::Clock(9), "0409");
    golden(&AgentReply::Located("f".to_owned()), "050166");
}

#[test]
fn events() {
    let last = Box::new(InstanceReport { instance: 2, rows_in: 3, ended: true, ..InstanceReport::default() });
    let event = Event::InstanceEnded { run: 1, instance: 2, last, edges: vec![], files: vec![] };
    golden(&event, "0001020203000000000000000000010000000000000000000000");
    let fault = WireFault::new(FaultCode::Row, "m");
    golden(&Event::InstanceFailed { run: 1, instance: 2, fault: fault.clone() }, "01010201016d0000");
    let fault = fault.at(Some(RowPlace::from_number(7)));
    golden(&Event::InstanceFailed { run: 1, instance: 2, fault }, "01010201016d000107");
}

#[test]
fn replies_are_results() {
    let fault: Result<AgentReply, WireFault> = Err(WireFault::new(FaultCode::Internal, "m"));
    golden(&fault, "0108016d0000");
    // A fault reads the same whatever the reply would have been.
    let same: Result<ClusterReply, WireFault> = decode(&encode(&fault).unwrap()).unwrap();
    assert_eq!(same.err(), fault.err());
}

#[test]
fn payloads_carry_their_version() {
    let payload = Payload::encode(ControlVersion::V1, &AgentRequest::Ping).unwrap();
    assert_eq!(payload.as_bytes(), [0, 1, 10]);
    assert_eq!(payload.decode::<AgentRequest>().unwrap(), AgentRequest::Ping);
    let newer = Payload::from_bytes(vec![0, 9, 10]);
    let error = newer.decode::<AgentRequest>().unwrap_err();
    assert!(matches!(error, CodecError::Version { found: 9 }), "{error}");
    assert!(Payload::from_bytes(vec![1]).decode::<AgentRequest>().is_err());
    let sent: Payload = decode(&encode(&payload).unwrap()).unwrap();
    assert_eq!(sent, payload);
}

#[test]
fn what_is_left_over_or_lacking_is_an_error() {
    assert!(decode::<AgentReply>(&[0, 0]).unwrap_err().to_string().contains("1 bytes are left over"));
    assert!(decode::<AgentReply>(&[4]).is_err());
    assert!(decode::<AgentReply>(&[200]).is_err());
    // A length beyond the limit asks for no memory.
    let claims: Vec<u8> = [3, 253].into_iter().chain(u64::MAX.to_le_bytes()).collect();
    assert!(decode::<AgentReply>(&claims).is_err());
}
