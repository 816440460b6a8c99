//! Tasks that are created while their session ends.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::FutureExt;
use http::HeaderMap;
use proptest::{collection::vec, prelude::*};

use super::{Kind, Setup, file_cases, over_each_store, scheduler::Scheduler};
use crate::{
    config::Tool,
    session::{self, Session},
    task::{AskedTtl, CallSession, NewTask, ToolCall, tiny::Tiny},
    wire::Message,
};

/// Creates a task. Returns whether it was acknowledged.
async fn create(setup: &Setup, session: &Arc<Session>) -> bool {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","task":{}}}"#;
    let request = Message::parse(request.into()).expect("a request");
    let tool = Arc::new(Tool::default());
    let upstream_session = CallSession::Own(session.upstream_session.hold());
    let Some(admission) = session.admit_task().await else { return false };
    let wanted = NewTask {
        name: "tool".into(),
        tool,
        ttl: AskedTtl::Default,
        announced: false,
        writer: &Tiny,
        admission: Some(admission),
    };
    let call = ToolCall { message: request, headers: HeaderMap::new(), modern: false };
    setup.engine.create(&session.caller, upstream_session, call, wanted, None).await.is_ok()
}

over_each_store! {
    in_every_interleaving_a_task_ends_with_its_session_and_one_that_was_acknowledged_keeps_it(
        by_client in any::<bool>(), order in vec(any::<u8>(), 0..60)
    );
}

fn in_every_interleaving_a_task_ends_with_its_session_and_one_that_was_acknowledged_keeps_it(
    kind: Kind,
    by_client: bool,
    order: Vec<u8>,
) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let (setup, session) = (Setup::new(kind), session::alone());
    let (acknowledged, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut scheduler = Scheduler::new(order);
    for _ in 0..2 {
        let (setup, session, acknowledged) = (Arc::clone(&setup), Arc::clone(&session), Arc::clone(&acknowledged));
        scheduler.add(async move {
            if create(&setup, &session).await {
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let (ending, leaving, has_ended) = (Arc::clone(&setup), Arc::clone(&session), Arc::clone(&ended));
    scheduler.add(async move {
        if by_client || ending.engine.release(&leaving, || true).await {
            ending.engine.end_session(&leaving).await;
            has_ended.fetch_add(1, Ordering::Relaxed);
        }
    });
    prop_assert_eq!(scheduler.run(&setup.store), 0, "waits for ever");
    let (acknowledged, kept) = (acknowledged.load(Ordering::Relaxed), setup.store.of(&session.caller.owner).len());
    if ended.load(Ordering::Relaxed) == 0 {
        prop_assert!(acknowledged > 0, "it could have ended");
        prop_assert_eq!(kept, acknowledged);
    } else {
        prop_assert_eq!(kept, 0, "a task outlives its session");
        prop_assert!(by_client || acknowledged == 0, "a task was lost with a session that was not needed");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_while_its_session_is_about_to_end_leaves_no_call_behind() {
    let (setup, session) = (Setup::new(Kind::Memory), session::alone());
    let mut ending = Box::pin(session.refuse_tasks(std::future::pending()));
    assert!((&mut ending).now_or_never().is_none(), "the session decides whether it ends");
    let mut creating = Box::pin(create(&setup, &session));
    assert!((&mut creating).now_or_never().is_none(), "the task waits for that");
    drop(creating);
    assert_eq!(setup.engine.close(), [], "calls run");
}
