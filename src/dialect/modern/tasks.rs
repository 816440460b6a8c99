//! `tasks/get`, `tasks/update`, `tasks/cancel`, and a task as the extension writes it.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use futures_util::future::join_all;
use http::StatusCode;
use uuid::Uuid;

use super::{
    Answer, ClientRequest, Modern, Refused,
    input::{check_answers, input_request, input_responses},
    translate,
};
use crate::{
    dialect::{DAMAGED, not_found},
    limit::FailedLookup,
    observe::events,
    task::{End, Ending, Missing, NotCancelled, Outlook, PolledTask, State, Task, TaskId, UNAVAILABLE},
    wire::{
        Edits, Parts, RpcError, ids,
        legacy::timestamp,
        modern::OWN_META,
        object::{Members, quote},
        response::result_response,
    },
};

/// About how many bytes a task takes without its outcome.
const TASK: usize = 320;

impl Modern {
    /// `tasks/get`: the task as it is now, with its outcome or its open questions.
    pub(super) async fn get(self: &Arc<Self>, request: &ClientRequest) -> Result<Answer, Refused> {
        let id = task_id(request)?;
        let polled = self.engine.poll(&request.caller.owner, id, &request.caller.who).await;
        let front =
            [r#"{"jsonrpc":"2.0","id":"#, request.id(), r#","result":{"resultType":"complete","#, OWN_META, ","];
        let detailed = match polled {
            Ok(polled) => self.detailed(request, polled, &front).await,
            Err(why) => Err(why),
        };
        match detailed {
            Ok(task) => Ok(Answer::Whole(StatusCode::OK, task)),
            Err(why) => Err(self.no_task(request, &why).await),
        }
    }

    /// Returns the members of a task as `tasks/get` tells it, after `front`, whose two open objects it closes.
    pub(super) async fn detailed(
        &self,
        request: &ClientRequest,
        PolledTask { task, outlook }: PolledTask,
        front: &[&str],
    ) -> Result<Parts, Missing> {
        let (owner, who, id) = (&request.caller.owner, &request.caller.who, task.id);
        let end = match task.state {
            State::Ended(ending) if ending != Ending::Cancelled => Some(self.engine.collect(owner, &task, who).await?),
            _ => None,
        };
        let mut told = Parts::beginning(front, TASK + end.as_ref().map_or(0, End::bytes));
        match (task.state, &end) {
            // `isError` is no failure of the protocol.
            (_, Some(End::Result { raw, .. })) => {
                write_task(&mut told, &task, &outlook, "completed");
                told.push(r#","result":"#);
                // What the call would have returned has a type too.
                translate::append_completed(&mut told, raw);
            }
            (_, Some(End::Error { raw })) => {
                write_task(&mut told, &task, &outlook, "failed");
                told.push(r#","error":"#);
                let mut edits = Edits::of(raw);
                if let Ok(error) = std::str::from_utf8(raw) {
                    // What a server that knows sessions only means otherwise was replaced as it came.
                    translate::recode(&mut edits, error, true);
                }
                edits.append_to(&mut told);
            }
            // It has gone since it was looked for.
            (_, Some(End::Cancelled)) => return Err(Missing::NotFound(id)),
            (State::Ended(_), None) => write_task(&mut told, &task, &outlook, "cancelled"),
            (State::Working | State::InputRequired, None) => {
                let questions = self.engine.questions(owner, id);
                let status = if questions.is_empty() { "working" } else { "input_required" };
                write_task(&mut told, &task, &outlook, status);
                if !questions.is_empty() {
                    let requests = questions.iter().map(|(key, request)| input_request(&key.to_string(), request));
                    told.push_all(&[r#","inputRequests":{"#, &requests.collect::<Vec<_>>().join(","), "}"]);
                }
            }
        }
        told.push("}}");
        Ok(told)
    }

    /// Returns the error for a task that does not exist for its client.
    pub(super) async fn no_task(&self, request: &ClientRequest, why: &Missing) -> Refused {
        let id = match why {
            Missing::NotFound(id) => id,
            Missing::Damaged => return RpcError::internal(DAMAGED).into(),
            Missing::Unavailable => return RpcError::internal(UNAVAILABLE).into(),
        };
        match self.count_lookup(request, *id).await {
            Ok(_) => not_found().into(),
            Err(refused) => refused,
        }
    }

    /// Counts a request once that names a task which taskgate does not have. A client that guesses ids waits, and is
    /// then refused. Returns whether it has waited.
    ///
    /// # Errors
    /// [`Refused`]
    pub(super) async fn count_lookup(&self, request: &ClientRequest, id: TaskId) -> Result<bool, Refused> {
        if request.looked_up {
            return Ok(false);
        }
        let lookup = request.caller.account.failed_lookup();
        self.observer.emit(events::LookupFailed {
            who: &request.caller.who,
            task: Some(id),
            repeated: lookup.repeated(),
        });
        match lookup {
            FailedLookup::Answered => Ok(false),
            FailedLookup::Slowed(by, _permit) => {
                tokio::time::sleep(by).await;
                Ok(true)
            }
            FailedLookup::Refused(limit) => Err(Refused::too_often(&limit)),
        }
    }

    /// `tasks/update`: takes the answers to questions that are open, and ignores all others.
    pub(super) async fn update(self: &Arc<Self>, request: &ClientRequest) -> Result<Answer, Refused> {
        let id = task_id(request)?;
        let (owner, who) = (&request.caller.owner, &request.caller.who);
        let params = request.message.params().and_then(|params| Members::parse(params).ok());
        if params.is_none_or(|params| params.get("inputResponses").is_none()) {
            return Err(RpcError::bad_params("params.inputResponses must be an object").into());
        }
        let mut answers = input_responses(&request.message)?;
        if let Err(why) = self.engine.poll(owner, id, who).await {
            return Err(self.no_task(request, &why).await);
        }
        self.answer_open(request, id, &mut answers).await?;
        Ok(request.result(&complete()))
    }

    /// Passes on the answers to those questions of a task that are open: they are few, and a client may send any number
    /// of answers.
    ///
    /// # Errors
    /// -32602 where one of them is no result of its question's method. Then none is passed on.
    pub(super) async fn answer_open(
        &self,
        request: &ClientRequest,
        task: TaskId,
        answers: &mut HashMap<String, String>,
    ) -> Result<(), RpcError> {
        let owner = &request.caller.owner;
        let open = self.engine.questions(owner, task).into_iter();
        let open: Vec<_> = open.map(|(id, question)| (id, id.to_string(), question.method())).collect();
        check_answers(answers, open.iter().map(|(_, key, method)| (&**key, *method)))?;
        // Side by side, in their order: each may wait for a slow server.
        let passing = open.into_iter().filter_map(|(question, key, _)| {
            let result = answers.remove(&key)?;
            let response = move |theirs: &str| result_response(theirs, &result);
            Some(self.engine.answer_in_task(owner, task, question, response, request.headers.clone()))
        });
        join_all(passing).await;
        Ok(())
    }

    /// `tasks/cancel`: acknowledged whether the task has ended before or not.
    pub(super) async fn cancel(self: &Arc<Self>, request: &ClientRequest) -> Result<Answer, Refused> {
        let id = task_id(request)?;
        match self.engine.cancel(&request.caller.owner, &request.caller.who, id).await {
            Ok(_) | Err(NotCancelled::HasEnded(_)) => Ok(request.result(&complete())),
            Err(NotCancelled::Missing(why)) => Err(self.no_task(request, &why).await),
        }
    }
}

/// Returns the response that says that a call has become a task (`CreateTaskResult`), to the request with that raw id.
pub(super) fn created(request: &str, task: &Task, outlook: &Outlook) -> Parts {
    let front = [r#"{"jsonrpc":"2.0","id":"#, request, r#","result":{"resultType":"task","#, OWN_META, ","];
    let mut response = Parts::beginning(&front, TASK);
    write_task(&mut response, task, outlook, "working");
    response.push("}}");
    response
}

/// Returns the news of a task whose end cannot be read, after `front`, whose two open objects it closes.
pub(super) fn damaged(PolledTask { task, outlook }: &PolledTask, front: &str) -> Parts {
    let mut news = Parts::beginning(&[front], TASK);
    write_task(&mut news, task, outlook, "failed");
    news.push_all(&[r#","error":"#, &RpcError::internal(DAMAGED).to_raw(), "}}"]);
    news
}

/// Returns the raw result that acknowledges, and says nothing else.
fn complete() -> String {
    format!(r#"{{"resultType":"complete",{OWN_META}}}"#)
}

/// Writes the members of a task. Ids and numbers are written without `format!`, which takes longer.
fn write_task(out: &mut Parts, task: &Task, outlook: &Outlook, status: &str) {
    let id = task.id.as_hyphenated();
    out.push_all(&[r#""taskId":""#, id.encode_lower(&mut Uuid::encode_buffer()), r#"","status":""#, status, "\","]);
    if let Some(message) = outlook.status_message(task) {
        out.push_all(&[r#""statusMessage":"#, &quote(&message), ","]);
    }
    let (created, updated) = (timestamp(task.created_at), timestamp(task.last_updated_at));
    // Writing to a document cannot fail.
    let _ = write!(out, r#""createdAt":"{created}","lastUpdatedAt":"{updated}""#);
    let [mut ttl, mut poll_interval] = [itoa::Buffer::new(); 2];
    let (ttl, poll_interval) = (ttl.format(task.ttl), poll_interval.format(outlook.poll_interval));
    out.push_all(&[r#","ttlMs":"#, ttl, r#","pollIntervalMs":"#, poll_interval]);
}

fn task_id(request: &ClientRequest) -> Result<TaskId, RpcError> {
    let id = request.subject.as_deref();
    let id = id.ok_or_else(|| RpcError::bad_params("params.taskId must be a string"))?;
    Ok(ids::parse_task(id))
}
