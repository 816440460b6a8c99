//! A task-augmented `tools/call` (section "Creating Tasks"): creates its task and acknowledges it.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::oneshot;

use super::{Legacy, question::LegacyWriter, reply::view};
use crate::{
    config::{Sessions, Tool},
    observe::events,
    session::Session,
    task::{self, AskedTtl, CallSession},
    wire::{Message, Parts, RpcError, excerpt, legacy::RequestedTtl, response::result_response},
};

/// The task that a client asks for.
#[derive(Debug)]
pub struct RequestedTask {
    /// The tool's name.
    pub name: Arc<str>,
    /// Its policy.
    pub tool: Arc<Tool>,
    /// What the client asks for as ttl.
    pub ttl: RequestedTtl,
    /// Whether the client is told of changes of the task's state.
    pub announced: bool,
}

/// The acknowledgement of a task.
#[derive(Debug)]
pub struct Acknowledgement {
    /// The response with the `CreateTaskResult`.
    pub response: Parts,
    /// Starts the call when it is dropped: the response is on its way, or cannot be sent.
    pub start: oneshot::Sender<()>,
}

impl Legacy {
    /// Creates the task for a `tools/call`.
    ///
    /// # Errors
    /// The limit that is reached, or that the session has ended, the process stops, or the store is unavailable.
    pub async fn create(
        &self,
        session: &Arc<Session>,
        request: Message,
        headers: HeaderMap,
        requested: RequestedTask,
    ) -> Result<Acknowledgement, RpcError> {
        let RequestedTask { name, tool, ttl, announced } = requested;
        let ttl = match ttl {
            RequestedTtl::Default => AskedTtl::Default,
            RequestedTtl::For(ttl) => AskedTtl::For(ttl),
            RequestedTtl::Unlimited => AskedTtl::Unlimited,
        };
        let id: Box<str> = request.id_to_answer().into();
        let settings = Arc::clone(&tool);
        // From here on the session is in use, and its end waits for the task and finds it.
        let upstream_session = session.upstream_session.hold();
        let Some(admission) = session.admit_task().await else {
            let (who, tool) = (&session.caller.who, excerpt(&name));
            self.engine.observer().emit(events::TaskRefused { who, tool: &tool, reason: "session" });
            return Err(RpcError::invalid_request("the session has ended; initialize a new one"));
        };
        // Without its session an anonymous client's task could not be reached after a restart.
        if session.owns_tasks()
            && let Err(why) = session.save_first(self.engine.now()).await
        {
            self.engine.observer().emit(events::StoreUnavailable { why: &why.0 });
            return Err(RpcError::internal(task::UNAVAILABLE));
        }
        let new_task = task::NewTask { name, tool, ttl, announced, writer: &LegacyWriter, admission: Some(admission) };
        let call = task::ToolCall { message: request, headers, modern: false };
        let call_session = match session.caller.upstream.sessions {
            Sessions::Owner => CallSession::Own(upstream_session),
            Sessions::Request => CallSession::Apart(upstream_session),
        };
        let created = self.engine.create(&session.caller, call_session, call, new_task, None).await;
        let created = created.map_err(|why| RpcError::internal(why.to_string()))?;
        let text = settings.immediate_response.as_deref();
        let immediate = text.map(|text| created.outlook.immediate_response(text));
        let result = view(&created.task, &created.outlook).to_create_result(immediate.as_deref());
        Ok(Acknowledgement { response: result_response(&id, &result).into(), start: created.start })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::{
        observe::Observer,
        session,
        task::{
            Clock, Engine,
            store::{MaxKept, MemoryStore},
            unlimited,
        },
    };

    fn legacy(observer: &Arc<Observer>) -> Legacy {
        let clock = Clock::start();
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), clock, Arc::clone(observer));
        Legacy::new(Engine::start(Arc::new(store), clock, unlimited(), Arc::clone(observer)), &[0; 32])
    }

    async fn create(legacy: &Legacy, session: &Arc<Session>) -> Result<Acknowledgement, RpcError> {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","task":{}}}"#;
        let request = Message::parse(request.into()).expect("a request");
        let requested =
            RequestedTask { name: "tool".into(), tool: Arc::default(), ttl: RequestedTtl::Default, announced: false };
        legacy.create(session, request, HeaderMap::new(), requested).await
    }

    #[tokio::test]
    async fn a_task_whose_session_has_ended_is_refused_and_counted() {
        let (observer, session) = (Arc::default(), session::alone());
        session.refuse_tasks(std::future::ready(true)).await;
        let refused = create(&legacy(&observer), &session).await.expect_err("it has ended");
        assert!(refused.message.contains("the session has ended"), "{}", refused.message);
        let metrics = observer.open_metrics();
        assert!(metrics.contains("taskgate_tasks_refused_total{reason=\"session\"} 1"), "{metrics}");
    }

    #[tokio::test]
    async fn a_session_is_in_use_while_a_task_waits_to_be_admitted_and_a_client_that_leaves_leaves_no_call() {
        let (legacy, session) = (legacy(&Arc::default()), session::alone());
        let mut ending = Box::pin(session.refuse_tasks(std::future::pending()));
        assert!((&mut ending).now_or_never().is_none(), "the session decides whether it ends");
        let mut creating = Box::pin(create(&legacy, &session));
        assert!((&mut creating).now_or_never().is_none(), "the task waits for that");
        assert_eq!(session.upstream_session.unused_since(), None);
        drop(creating);
        assert!(session.upstream_session.unused_since().is_some());
        assert_eq!(legacy.engine.close(), [], "calls run");
    }
}
