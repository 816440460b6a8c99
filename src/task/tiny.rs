//! A dialect of twenty lines, which shows that the engine knows no other.

use std::{future::poll_fn, sync::Arc, time::Duration};

use http::HeaderMap;
use uuid::Uuid;

use super::{
    AskedTtl, CallSession, Clock, CreatedTask, End, Ending, Engine, Limits, MaxWaiters, Missing, NewTask, NotCreated,
    Outlook, PendingResponse, State, Task, TaskId, TaskWriter, ToolCall, WaitLimit, WaitingRequest, Watch,
    state::tests::result,
    status_message,
    store::{MaxKept, MemoryStore, PageOrder},
};
use crate::{
    config::Tool,
    flow::Capacity,
    limit::Totals,
    observe::events::Ended,
    session::{self, Caller, Session, StreamItem},
    wire::{Message, Parts},
};

/// Writes everything as one word and an id.
#[derive(Debug)]
pub(super) struct Tiny;

fn word(word: &str, id: Uuid) -> Option<Message> {
    Message::parse(format!(r#"{{"jsonrpc":"2.0","method":"{word} {id}"}}"#).into()).ok()
}

impl TaskWriter for Tiny {
    fn name(&self) -> &'static str {
        "tiny"
    }

    fn status(&self, task: &Task, _: &Outlook) -> Option<Message> {
        word(if task.state.is_terminal() { "ended" } else { "runs" }, task.id)
    }

    fn tied(&self, task: TaskId, _: &Message) -> Option<Message> {
        word("says", task)
    }

    fn question(&self, _: TaskId, id: Uuid, _: &Message) -> Option<Message> {
        word("asks", id)
    }

    fn withdrawal(&self, _: TaskId, id: Uuid) -> Option<Message> {
        word("withdraws", id)
    }

    fn question_of(&self, message: &Message) -> Option<Uuid> {
        message.text().split("asks ").nth(1)?.get(..36)?.parse().ok()
    }
}

/// Returns a request of two lines.
pub(super) fn request() -> Message {
    Message::parse("{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"tools/call\"}".into()).expect("a request")
}

/// A request that waits for a task, to say how it ended.
struct TinyRequest {
    engine: Arc<Engine>,
    session: Arc<Session>,
    task: TaskId,
}

impl WaitingRequest for TinyRequest {
    fn task(&self) -> TaskId {
        self.task
    }

    fn response(&self, watch: Result<Watch, WaitLimit>) -> PendingResponse {
        let (engine, session, id) = (Arc::clone(&self.engine), Arc::clone(&self.session), self.task);
        Box::pin(async move {
            let mut watch = watch.expect("room");
            loop {
                match engine.retrieve(&session.caller.owner, id, &session.caller.who).await {
                    Ok(Some(end)) => return Parts::from(bytes::Bytes::from(Ended::from(end.ending()).as_str())),
                    Ok(None) => watch.changed().await,
                    Err(missing) => panic!("{missing:?}"),
                }
            }
        })
    }
}

/// Returns limits that nothing reaches.
pub(crate) fn unlimited() -> Limits {
    let many = usize::MAX;
    let turns = Totals {
        running_per_owner: many,
        running: many,
        queued_per_owner: many,
        queued: many,
        queued_bytes_per_owner: many,
        queued_bytes: many,
    };
    let waiters = MaxWaiters { task: many, owner: many, all: many };
    Limits { waiters, turns, capacity: Capacity::new(4096, 4096) }
}

/// Creates a task of `session`, and starts its call, which is never answered.
pub(super) async fn create(engine: &Arc<Engine>, session: &Arc<Session>) -> Result<Task, NotCreated> {
    create_with(engine, session, &session.caller, &Tiny).await.map(|created| created.task)
}

async fn create_with(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    caller: &Arc<Caller>,
    writer: &'static dyn TaskWriter,
) -> Result<CreatedTask, NotCreated> {
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"run","params":{"name":"tool"}}"#;
    let request = Message::parse(request.into()).expect("a request");
    let tool = Arc::new(Tool::default());
    let admission = session.admit_task().await.expect("it is open");
    let wanted = NewTask {
        name: "tool".into(),
        tool,
        ttl: AskedTtl::Default,
        announced: true,
        writer,
        admission: Some(admission),
    };
    let call = ToolCall { message: request, headers: HeaderMap::new(), modern: false };
    engine.create(caller, CallSession::Own(session.upstream_session.hold()), call, wanted, None).await
}

#[tokio::test(start_paused = true)]
async fn it_creates_polls_lists_waits_for_and_cancels_tasks_and_its_streams_tell_how_they_end() {
    let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
    let store = MemoryStore::new(max, clock, Arc::default());
    let (engine, session) = (Engine::start(Arc::new(store), clock, unlimited(), Arc::default()), session::alone());
    let create = async || create(&engine, &session).await.expect("room");
    let (first, second) = (create().await, create().await);
    let polled = engine.poll(&session.caller.owner, first.id, &session.caller.who).await.expect("kept");
    assert_eq!((polled.task.id, polled.task.state), (first.id, State::Working));
    let page = engine.page(&session.caller.owner, PageOrder::ALL, 10).await.expect("available");
    assert_eq!(page.iter().map(|(_, task)| task.id).collect::<Vec<_>>(), [first.id, second.id]);
    assert_eq!(engine.retrieve(&session.caller.owner, first.id, &session.caller.who).await, Ok(None));
    let stranger = session::alone();
    let foreign = engine.retrieve(&stranger.caller.owner, first.id, &stranger.caller.who).await;
    assert_eq!(foreign, Err(Missing::NotFound(first.id)));

    let mut listening = engine.get_stream(&session, &Tiny);
    listening.attached(false);
    let request = TinyRequest { engine: Arc::clone(&engine), session: Arc::clone(&session), task: first.id };
    let mut waiting = engine.result_stream(&session, Box::new(request), &Tiny).expect("room");
    waiting.attached(false);
    engine.finish(&session.caller.owner, first.id, result("{}"), None).await;
    let cancelled = engine.cancel(&session.caller.owner, &session.caller.who, second.id).await.expect("runs");
    assert_eq!(cancelled.state, State::Ended(Ending::Cancelled));

    let told = async |source: &mut Box<dyn session::Source>| match poll_fn(|cx| source.poll_next(cx)).await {
        Some(StreamItem::Document(document)) => String::from_utf8(document.to_vec()).expect("text"),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut waiting).await, "completed");
    for id in [first.id, second.id] {
        assert!(told(&mut listening).await.contains(&format!("ended {id}")));
    }
    let end =
        engine.retrieve(&session.caller.owner, first.id, &session.caller.who).await.expect("kept").expect("ended");
    assert_eq!(end, End::Result { raw: "{}".into(), is_error: false });
    // A call that fails without an answer ends with an error that the engine writes.
    let third = create().await;
    engine.finish(&session.caller.owner, third.id, status_message::failed("why"), Some("why")).await;
    let end =
        engine.retrieve(&session.caller.owner, third.id, &session.caller.who).await.expect("kept").expect("ended");
    assert_eq!(end.ending(), Ending::Error);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_told_of_a_task_without_asking_has_not_polled_it() {
    let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
    let store = MemoryStore::new(max, clock, Arc::default());
    let (engine, session) = (Engine::start(Arc::new(store), clock, unlimited(), Arc::default()), session::alone());
    let task = create(&engine, &session).await.expect("room");
    for _ in 0..200 {
        engine.tell(&session.caller.owner, task.id).await.expect("kept");
    }
    let polls = (0..100).map(|_| engine.calls.poll(task.id).expect("it runs").is_excessive);
    assert_eq!(polls.filter(|is_excessive| *is_excessive).count(), 1, "the hundredth of those who asked");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_session_that_leaves_before_it_knows_of_its_task_cancels_the_call() {
    let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
    let store = MemoryStore::new(max, clock, Arc::default());
    let (engine, session) = (Engine::start(Arc::new(store), clock, unlimited(), Arc::default()), session::alone());
    let Caller { owner, who, account, upstream, client, .. } = &*session.caller;
    let (owner, who, account) = (owner.clone(), Arc::clone(who), Arc::clone(account));
    let (upstream, client, no_session) = (Arc::clone(upstream), *client, None);
    let caller = Arc::new(Caller { owner, who, account, upstream, client, session: no_session });
    let is_called = |task| session.upstream_session.say(word("notifications/message", task).expect("a message"));
    for leaves in [true, false] {
        let CreatedTask { task, start, .. } = create_with(&engine, &session, &caller, &Tiny).await.expect("room");
        let mut watch = engine.watch(&caller.owner, task.id).expect("room");
        if leaves {
            drop(start);
            watch.changed().await;
            let task = engine.look(&caller.owner, task.id).await.expect("kept");
            assert!(task.was_given_up(), "{task:?}");
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(!is_called(task.id), "the server is not called");
        } else {
            start.send(()).expect("it is waited for");
            while !is_called(task.id) {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Panics when it is to tie a message to a task.
#[derive(Debug)]
struct Mistaken;

impl TaskWriter for Mistaken {
    fn name(&self) -> &'static str {
        "mistaken"
    }

    fn status(&self, task: &Task, outlook: &Outlook) -> Option<Message> {
        Tiny.status(task, outlook)
    }

    fn tied(&self, _: TaskId, _: &Message) -> Option<Message> {
        panic!("a mistake")
    }

    fn question(&self, task: TaskId, id: Uuid, request: &Message) -> Option<Message> {
        Tiny.question(task, id, request)
    }

    fn withdrawal(&self, task: TaskId, id: Uuid) -> Option<Message> {
        Tiny.withdrawal(task, id)
    }

    fn question_of(&self, message: &Message) -> Option<Uuid> {
        Tiny.question_of(message)
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_call_makes_taskgate_panic_fails_and_says_whose_mistake_it_was() {
    let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
    let store = MemoryStore::new(max, clock, Arc::default());
    let (engine, session) = (Engine::start(Arc::new(store), clock, unlimited(), Arc::default()), session::alone());
    let task = create_with(&engine, &session, &session.caller, &Mistaken).await.expect("room").task;
    let (owner, who) = (&session.caller.owner, &session.caller.who);
    let mut watch = engine.watch(owner, task.id).expect("room");
    while !session.upstream_session.say(word("notifications/message", task.id).expect("a message")) {
        tokio::task::yield_now().await;
    }
    let end = loop {
        match engine.retrieve(owner, task.id, who).await.expect("kept") {
            Some(end) => break end,
            None => watch.changed().await,
        }
    };
    let End::Error { raw } = end else { panic!("{end:?}") };
    assert!(String::from_utf8_lossy(&raw).contains("taskgate made a mistake"), "{raw:?}");
    // Its call is given up too.
    while session.upstream_session.say(word("notifications/message", task.id).expect("a message")) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
