//! Requests to scale that a coordinator refuses: while another plan is under way, and where its log cannot be written.

use tokio::sync::{mpsc, oneshot};
use tuplane_core::cluster::Command;
use tuplane_wire::message::FaultCode;

use super::*;
use crate::coordinator::driver::{Driver, Turn};
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

#[tokio::test]
async fn a_request_to_scale_that_cannot_be_logged_is_refused_and_the_coordinator_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (log, state) = Log::open(folder.path()).unwrap();
    let (notes, _inbox) = mpsc::unbounded_channel();
    let asked = Asked::default();
    let mut driver = Driver::new(config(folder.path()), agent(&asked, 0), notes, log, state);
    let full = |driver: &mut Driver| driver.log.as_mut().unwrap().is_full = true;
    let mut first = Turn::default();
    driver.apply(&mut first, Command::CoordinatorStarted);
    driver.finish(first).await.unwrap();
    let before = driver.state.clone();
    let turn = |driver: &mut Driver, refusable| {
        let (reply, said) = oneshot::channel();
        let mut turn = Turn { refusable, ..Turn::default() };
        driver.apply(&mut turn, Command::AgentDrained { name: "b".to_owned(), drained: true });
        turn.answer(reply, Ok(ClusterReply::Done));
        (turn, said)
    };
    full(&mut driver);
    let (refused, said) = turn(&mut driver, 1);
    driver.finish(refused).await.unwrap();
    let fault = said.await.unwrap().unwrap_err();
    assert_eq!((fault.code, fault.retryable), (FaultCode::Refused, true), "{fault}");
    assert_eq!(driver.state, before);
    // There is room again.
    let (taken, said) = turn(&mut driver, 1);
    driver.finish(taken).await.unwrap();
    assert!(said.await.unwrap().is_ok());
    // What has happened cannot be refused.
    full(&mut driver);
    let (happened, said) = turn(&mut driver, 0);
    assert!(driver.finish(happened).await.unwrap_err().contains("No space left"));
    let fault = said.await.unwrap().unwrap_err();
    assert_eq!(fault.code, FaultCode::Agent);
    assert!(fault.message.contains("the coordinator ends"), "{fault}");
}
