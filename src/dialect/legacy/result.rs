//! `tasks/result` (section "Retrieving Task Results"): what the call would have returned, once it has.

use std::sync::Arc;

use super::{
    Legacy, Reply,
    question::LegacyWriter,
    reply::{NoResult, error_of, task_id},
};
use crate::{
    identity::Owner,
    observe::Who,
    session::Session,
    task::{End, Engine, PendingResponse, TaskId, WaitLimit, WaitingRequest, Watch},
    wire::{
        Edits, Message, Parts, RpcError,
        legacy::relate,
        message::Outcome,
        object::Members,
        response::{edited_response, error_response},
    },
};

/// What a client is told when the process ends before its task.
const STOPPING: &str =
    "taskgate is stopping before the task has ended: ask again with tasks/result when taskgate is back";

/// A `tasks/result` that waits for its task to end.
#[derive(Clone)]
struct WaitingResult {
    engine: Arc<Engine>,
    owner: Owner,
    who: Arc<Who>,
    task: TaskId,
    /// The raw id of the request. The request itself would keep the buffer that it was read into.
    raw_id: Box<str>,
}

impl Legacy {
    /// Answers with the outcome, or with a stream that waits for it.
    ///
    /// # Errors
    /// [`NoResult`]; the limit on waiting requests.
    pub async fn result(&self, session: &Session, request: Message) -> Result<Reply, NoResult> {
        let task = task_id(&request)?;
        let raw_id: Box<str> = request.id_to_answer().into();
        if let Some(end) = self.engine.retrieve(&session.caller.owner, task, &session.caller.who).await? {
            return Ok(Reply::Ready(outcome(task, &end, &raw_id)));
        }
        let (engine, owner, who) =
            (Arc::clone(&self.engine), session.caller.owner.clone(), Arc::clone(&session.caller.who));
        let waiting = WaitingResult { engine, owner, who, task, raw_id };
        let stream = self.engine.result_stream(session, Box::new(waiting), &LegacyWriter);
        Ok(Reply::Wait(stream.map_err(|limit| limit_reached(&limit))?))
    }
}

impl WaitingRequest for WaitingResult {
    fn task(&self) -> TaskId {
        self.task
    }

    fn response(&self, watch: Result<Watch, WaitLimit>) -> PendingResponse {
        match watch {
            Ok(watch) => Box::pin(self.clone().answer(watch)),
            Err(limit) => Box::pin(std::future::ready(error(&self.raw_id, &limit_reached(&limit)))),
        }
    }
}

impl WaitingResult {
    async fn answer(self, mut watch: Watch) -> Parts {
        loop {
            // Asked before the task is looked up: a task that ends with the process has ended by the time of the look.
            let stops = watch.is_stopped();
            // Looked up after the watch has begun, so that no change is missed.
            match self.engine.retrieve(&self.owner, self.task, &self.who).await {
                Ok(Some(end)) => return outcome(self.task, &end, &self.raw_id),
                // The next process goes on with it.
                Ok(None) if stops => return error(&self.raw_id, &RpcError::internal(STOPPING)),
                Ok(None) => watch.changed().await,
                Err(missing) => return error(&self.raw_id, &error_of(&missing)),
            }
        }
    }
}

/// Returns the response that the call would have had, tied to the task, under the raw id `id`.
fn outcome(task: TaskId, end: &End, id: &str) -> Parts {
    match end {
        End::Result { raw, .. } => {
            let mut edits = Edits::of(raw);
            if let Some(result) = std::str::from_utf8(raw).ok().and_then(|raw| Members::parse(raw).ok()) {
                relate(&mut edits, &result, task);
            }
            edited_response(id, Outcome::Result, edits)
        }
        End::Error { raw } => edited_response(id, Outcome::Error, Edits::of(raw)),
        End::Cancelled => error(id, &RpcError::internal("The task was cancelled and has no result")),
    }
}

fn limit_reached(limit: &WaitLimit) -> RpcError {
    RpcError::internal(format!("limit reached: {limit}; poll with tasks/get instead"))
}

fn error(id: &str, error: &RpcError) -> Parts {
    error_response(id, &error.to_raw()).into()
}
