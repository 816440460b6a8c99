use http::{HeaderValue, header};

use super::*;
use crate::{
    config::{Auth, ProtectedResource, Rates},
    flow::Item,
    identity::{Evidence, Identified},
    session::{self, TaskAdmission},
    task::{
        Clock,
        store::{MaxKept, MemoryStore},
        unlimited,
    },
};

/// Returns a lifecycle without sessions.
fn lifecycle() -> Arc<Lifecycle> {
    let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
    let store = Arc::new(MemoryStore::new(max, clock, Arc::default()));
    let engine = Engine::start(store, clock, unlimited(), Arc::default());
    let (accounts, outbox) = (Accounts::new(Rates::default()), Capacity::new(1024, 1024));
    let terms = SessionTerms { accounts, outbox, disk: None, max_streams: 1 };
    let sessions = Arc::new(Sessions::new(100, 100, Arc::default()));
    Lifecycle::new(sessions, terms, engine, Arc::default())
}

/// Has a session wait for the store: a task is being added to it while the returned value lives.
async fn waits_for_store(session: &Session) -> TaskAdmission {
    session.admit_task().await.expect("it is open")
}

/// Waits until a session has ended.
async fn ended(session: &Session) {
    let end = tokio::time::timeout(Duration::from_secs(10), session.outbox().next()).await;
    assert!(matches!(end, Ok(Some(Item::End(())))), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_that_waits_for_the_store_does_not_keep_others_from_ending() {
    const IDLE: Duration = Duration::from_millis(5);
    let lifecycle = lifecycle();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let session = session::alone();
        lifecycle.sessions.restore(Arc::clone(&session));
        waiting.push((waits_for_store(&session).await, session));
    }
    tokio::time::advance(IDLE).await;
    let store_answers = async {
        for (admission, session) in waiting {
            assert!(!session.has_ended());
            drop(admission);
            ended(&session).await;
        }
    };
    tokio::join!(biased; lifecycle.end_idle(IDLE), store_answers);
}

#[tokio::test]
async fn a_session_of_a_refused_token_that_waits_for_the_store_holds_up_no_heartbeat_and_ends_at_last() {
    let lifecycle = lifecycle();
    let resource = ProtectedResource { origin: None, authorization_servers: Vec::new(), scopes: Vec::new() };
    let identity = Identity::start(Auth::Bearer(resource), &[0; 32], &Arc::default()).expect("nothing is missing");
    let (upstream, authorization) = (UpstreamId::from("/mcp"), HeaderValue::from_static("Bearer ann"));
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, authorization.clone())]);
    let peer = std::net::Ipv4Addr::LOCALHOST.into();
    let evidence = Evidence { upstream: &upstream, peer, certificate: None, headers: &headers };
    let Identified::Known(Some(ann)) = identity.identify(&evidence) else { panic!("a principal") };
    let session = session::of(Owner::principal(upstream.clone(), ann.name));
    lifecycle.sessions.restore(Arc::clone(&session));
    let admission = waits_for_store(&session).await;
    identity.refused_tokens(&upstream).expect("the server judges them").add(&authorization);
    // It returns while the session waits.
    lifecycle.tick(&identity);
    assert!(lifecycle.sessions.all().is_empty(), "no request finds it");
    assert!(!session.has_ended());
    drop(admission);
    ended(&session).await;
}
