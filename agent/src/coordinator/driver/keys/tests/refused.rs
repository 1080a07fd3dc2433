//! Requests to scale that a coordinator refuses: while another plan is under way, and where its log cannot be written.

use tokio::sync::{mpsc, oneshot};
use tuplane_core::cluster::Command;
use tuplane_core::scale::AutoOptions;
use tuplane_wire::message::FaultCode;
use tuplane_wire::scaling::AutoAsk;

use super::*;
use crate::coordinator::driver::{Driver, Note, Turn};
use crate::coordinator::log::Log;

#[tokio::test]
async fn while_a_plan_is_under_way_the_numbers_that_hold_are_no_answer() {
    let (folder, asked) = (tempfile::tempdir().unwrap(), Asked::default());
    // The plan does not come to its end: the agent does not say how large partitions are.
    let coordinator = start(folder.path(), &asked, 0);
    scale(&coordinator, JOB).await;
    let set = async |instances, dry_run| {
        let ask = ScaleAsk::Set { vertex: "x".to_owned(), instances, place: ScalePlace::Anywhere };
        let request =
            ClusterRequest::Scale { job: "1".to_owned(), ask, if_epoch: None, if_plan: None, dry_run };
        coordinator.request(request).await.map(|_| ()).map_err(|fault| fault.message)
    };
    for dry_run in [true, false] {
        for instances in [2, 3] {
            let said = set(instances, dry_run).await;
            let refused = said.as_ref().is_err_and(|why| why.contains("is being rescaled: plan 2"));
            // With another number than the one that holds now, what it would do may be looked at.
            assert!(refused || (dry_run && said.is_ok()), "{instances} {dry_run}: {said:?}");
        }
    }
    let holds = set(2, true).await.is_err() || set(3, true).await.is_err();
    assert!(holds, "one of both is what there is");
}

/// Asks as a command does, which says who asks.
async fn ask(driver: &mut Driver, request: ClusterRequest) -> Result<ClusterReply, WireFault> {
    let (reply, said) = oneshot::channel();
    let mut turn = Turn::default();
    let request = if request.is_change() {
        ClusterRequest::By { who: "ann@h1".to_owned(), request: Box::new(request) }
    } else {
        request
    };
    driver.handle(&mut turn, Note::Asked { request: Box::new(request), reply });
    driver.finish(turn).await.unwrap();
    said.await.unwrap()
}

#[test]
fn a_request_to_scale_that_cannot_be_logged_is_refused_and_the_coordinator_goes_on() {
    let (folder, asked) = (tempfile::tempdir().unwrap(), Asked::default());
    let first = Runtime::new().unwrap();
    first.block_on(async {
        let coordinator = start(folder.path(), &asked, 0);
        running(&coordinator, JOB).await;
    });
    first.shutdown_timeout(Duration::from_secs(10));
    Runtime::new().unwrap().block_on(async {
        let (log, state) = Log::open(folder.path()).unwrap();
        let (notes, _inbox) = mpsc::unbounded_channel();
        let mut driver = Driver::new(config(folder.path()), agent(&asked, 0), notes, log, state);
        let full = |driver: &mut Driver| driver.log.as_mut().unwrap().is_full = true;
        let mut first = Turn::default();
        driver.apply(&mut first, Command::CoordinatorStarted);
        driver.finish(first).await.unwrap();
        ask(&mut driver, ClusterRequest::Register(info())).await.unwrap();
        let drain = || ClusterRequest::Drain { agent: "a".to_owned(), undo: false, dry_run: false };
        let auto = || ClusterRequest::Auto { job: "1".to_owned(), ask: AutoAsk::On(AutoOptions::default()) };
        let before = driver.state.clone();
        for request in [third(None, false), drain(), auto()] {
            full(&mut driver);
            let fault = ask(&mut driver, request).await.unwrap_err();
            assert_eq!((fault.code, fault.retryable), (FaultCode::Refused, true), "{fault}");
            assert!(fault.message.contains("No space left"), "{fault}");
            assert_eq!(driver.state, before);
        }
        // There is room again.
        for request in [third(None, false), drain(), auto()] {
            ask(&mut driver, request).await.unwrap();
        }
        assert!(driver.state.is_drained("a") && driver.state != before);
        // What has happened cannot be refused.
        full(&mut driver);
        let (reply, said) = oneshot::channel();
        let mut happened = Turn::default();
        driver.apply(&mut happened, Command::AgentDrained { name: "a".to_owned(), drained: false });
        happened.answer(reply, Ok(ClusterReply::Done));
        assert!(driver.finish(happened).await.unwrap_err().contains("No space left"));
        let fault = said.await.unwrap().unwrap_err();
        assert_eq!(fault.code, FaultCode::Agent);
        assert!(fault.message.contains("the coordinator ends"), "{fault}");
    });
}
