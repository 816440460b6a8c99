//! A task-augmented `tools/call` (section "Creating Tasks"): the acknowledgement of its task.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::oneshot;

use super::{
    Legacy,
    question::LegacyWriter,
    reply::{error_of, view},
};
use crate::{
    config::Tool,
    session::Session,
    task::{self, AskedTtl, NotCreated},
    wire::{Message, Parts, RpcError, legacy::RequestedTtl, message::result_response},
};

/// What is to run as a task.
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

impl Legacy {
    /// Creates the task for a `tools/call`. Returns the response with the `CreateTaskResult`, and what is dropped when it is
    /// on its way, or cannot be sent: then the call starts.
    ///
    /// # Errors
    /// The limit that is reached, or that the process stops.
    pub async fn create(
        &self,
        session: &Arc<Session>,
        request: Message,
        headers: HeaderMap,
        wanted: RequestedTask,
    ) -> Result<(Parts, oneshot::Sender<()>), RpcError> {
        let RequestedTask { name, tool, ttl, announced } = wanted;
        let ttl = match ttl {
            RequestedTtl::Default => AskedTtl::Default,
            RequestedTtl::For(ttl) => AskedTtl::For(ttl),
            RequestedTtl::Unlimited => AskedTtl::Unlimited,
        };
        let id: Box<str> = request.id_to_answer().into();
        let immediate_response = Arc::clone(&tool);
        // From here on the session is in use, and its end waits for the task and finds it.
        let upstream_session = session.upstream_session.hold();
        let ended = || RpcError::invalid_request("the session has ended; initialize a new one");
        let admission = session.admit_task().await.ok_or_else(ended)?;
        let wanted = task::NewTask { name, tool, ttl, announced, writer: &LegacyWriter, admission };
        let call = task::ToolCall { message: request, headers };
        let created = self.engine.create(&session.caller, upstream_session, call, wanted).await;
        let created = created.map_err(|why| refusal(&why))?;
        let result = view(&created.task).to_create_result(immediate_response.immediate_response.as_deref());
        Ok((result_response(&id, &result).into(), created.start))
    }
}

fn refusal(why: &NotCreated) -> RpcError {
    match why {
        NotCreated::Unavailable => error_of(&task::Missing::Unavailable),
        NotCreated::Stopping | NotCreated::Turns(..) | NotCreated::Kept(_) => RpcError::internal(why.to_string()),
    }
}
