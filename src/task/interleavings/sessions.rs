//! Tasks that come about while their session ends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use http::HeaderMap;
use proptest::{collection::vec, prelude::*};

use super::{House, scheduler::Scheduler};
use crate::{
    config::Tool,
    session::{self, Session},
    task::{AskedTtl, Request, Wanted, tiny::Tiny},
    wire::Message,
};

/// Whether a task was acknowledged.
async fn create(house: &House, session: &Arc<Session>) -> bool {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","task":{}}}"#;
    let request = Message::parse(request.into()).expect("a request");
    let tool = Arc::new(Tool::default());
    let upstream_session = session.upstream_session.hold();
    let Some(admission) = session.let_task_in().await else { return false };
    let wanted =
        Wanted { name: "tool".into(), tool, ttl: AskedTtl::Default, announced: false, writer: &Tiny, admission };
    let call = Request { message: request, headers: HeaderMap::new() };
    house.engine.create(&session.caller, upstream_session, call, wanted).await.is_ok()
}

proptest! {
    #[test]
    fn in_every_interleaving_a_task_ends_with_its_session_and_one_that_was_acknowledged_keeps_it(
        by_client: bool, order in vec(any::<u8>(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _entered = runtime.enter();
        let (house, session) = (House::new(), session::alone());
        let (acknowledged, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut scheduler = Scheduler::new(order);
        for _ in 0..2 {
            let (house, session, acknowledged) = (Arc::clone(&house), Arc::clone(&session), Arc::clone(&acknowledged));
            scheduler.add(async move {
                if create(&house, &session).await {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (ending, leaving, has_ended) = (Arc::clone(&house), Arc::clone(&session), Arc::clone(&ended));
        scheduler.add(async move {
            if by_client || ending.engine.release(&leaving, || true).await {
                ending.engine.end_session(&leaving).await;
                has_ended.fetch_add(1, Ordering::Relaxed);
            }
        });
        prop_assert_eq!(scheduler.run(), 0, "waits for ever");
        let (acknowledged, kept) = (acknowledged.load(Ordering::Relaxed), house.store.of(&session.caller.owner).len());
        if ended.load(Ordering::Relaxed) == 0 {
            prop_assert!(acknowledged > 0, "it could have ended");
            prop_assert_eq!(kept, acknowledged);
        } else {
            prop_assert_eq!(kept, 0, "a task outlives its session");
            prop_assert!(by_client || acknowledged == 0, "a task was lost with a session that was not needed");
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_session_is_about_to_end_leaves_no_call_behind() {
    let (house, session) = (House::new(), session::alone());
    let mut ending = Box::pin(session.refuse_tasks(std::future::pending()));
    assert!((&mut ending).now_or_never().is_none(), "it is being decided");
    let mut creating = Box::pin(create(&house, &session));
    assert!((&mut creating).now_or_never().is_none(), "it waits for that");
    drop(creating);
    assert_eq!(house.engine.close(), [], "calls run");
}
