//! Sessions whose server has tasks of its own: which requests are about those, and what the answers tell of them.

use std::sync::Arc;

use http::HeaderMap;

use super::hosts::HostPage;
use crate::{
    config::Policy,
    dialect::legacy::{Legacy, NoResult, Reply},
    route::{Route, set_task_support},
    session::{Session, Tasks},
    upstream::{Failure, NativeTasks, ToolNames, with_id},
    wire::{
        Edits, Message, Method, Parts as Document, RpcError,
        message::Outcome,
        object::Members,
        tools::{Listed, has_no_list, listed, next_cursor},
    },
};

/// What happens to the answer to a request that passes, besides that it gets the client's id.
pub(super) enum Edit {
    /// Nothing.
    Id,
    /// Each tool gets its task support, and a host without tasks the tools for jobs.
    Tools(ToolsPage),
    /// It is a page of the server's tasks. taskgate's own come before it, in the response that lists them.
    Tasks(Option<Message>),
    /// It may say that a task of the server has ended: the answer to that method, for the task with that id.
    Task(Method, Box<str>),
}

/// What happens to a page of tools.
pub(super) struct ToolsPage {
    /// Whether each tool gets its task support.
    support: bool,
    /// Where the server has tasks too.
    pub(super) both: Option<Page>,
    /// Where the client is helped.
    host: Option<HostPage>,
}

/// The page of the tools that is asked for, in a session with both kinds of tasks.
#[derive(Clone, Copy)]
pub(super) struct Page {
    /// What was known of the tools then.
    asked_at: u64,
    first: bool,
}

/// A page of the list of tasks.
pub(super) enum Tasklist {
    /// Of taskgate's tasks alone.
    Own(Reply),
    /// To be asked for with that request.
    Joint(Box<Message>, Edit),
}

impl Edit {
    pub(super) fn of(session: &Session, message: &Message) -> Self {
        let member = |name: &str| {
            let params = message.params().and_then(|params| Members::parse(params).ok())?;
            params.text(name).map(|text| Box::from(&*text))
        };
        match (session.tasks, message.method()) {
            (tasks, Method::ToolsList) => {
                let first = member("cursor").is_none();
                let both = || Page { asked_at: session.native().tools.changes(), first };
                let both = (tasks == Tasks::Both).then(both);
                let page = ToolsPage { support: tasks.are_ours(), both, host: HostPage::of(session, first) };
                if page.support || page.host.is_some() { Self::Tools(page) } else { Self::Id }
            }
            (Tasks::Native | Tasks::Both, method @ (Method::TasksGet | Method::TasksResult | Method::TasksCancel)) => {
                member("taskId").map_or(Self::Id, |task| Self::Task(method, task))
            }
            _ => Self::Id,
        }
    }

    /// Returns whether the answer can be relayed while it arrives.
    pub(super) fn relays(&self) -> bool {
        matches!(self, Self::Id | Self::Task(Method::TasksResult, _))
    }

    /// Takes note of what a large answer tells that is not read.
    pub(super) fn relayed(&self, native: &NativeTasks) {
        if let Self::Task(_, task) = self {
            native.ended(task);
        }
    }

    /// Returns the response for the client.
    ///
    /// # Errors
    /// [`Failure`] where the answer is a list of tools that two readers could read differently.
    pub(super) fn finish(
        &self,
        response: &Message,
        id: &str,
        policy: &Policy,
        native: &NativeTasks,
    ) -> Result<Document, Failure> {
        match (self, response.outcome()) {
            (Self::Tools(page), Some((Outcome::Result, result))) => {
                let tools = match listed(result) {
                    Ok(tools) => tools,
                    // Some servers that have no tools say so by `null`, and clients take it.
                    Err(_) if has_no_list(result) => return Ok(with_id(response, id)),
                    Err(why) => return Err(Failure::BadAnswer(why)),
                };
                if let Some(page) = page.both {
                    page.tells(&tools, next_cursor(result).is_none(), native);
                }
                let mut edits = Edits::of(response.bytes());
                if page.support {
                    set_task_support(&mut edits, &tools, policy, page.both.is_some());
                }
                if let Some(span) = response.id_span() {
                    edits.replace(span, id.to_owned());
                }
                let listed = edits.apply();
                return Ok(match &page.host {
                    Some(host) => host.finish(listed, policy),
                    None => listed,
                });
            }
            (Self::Tasks(own), outcome) => {
                let page = match outcome {
                    Some((Outcome::Result, result)) => tasks_page(response, result, own.as_ref(), id, native),
                    _ => Err(None),
                };
                return Ok(page.unwrap_or_else(|failure| {
                    let failure = || failure.map(|failure| RpcError::from(&failure).to_response(Some(id)).into());
                    self.instead(native, true).or_else(failure).unwrap_or_else(|| with_id(response, id))
                }));
            }
            (Self::Task(Method::TasksResult, task), Some((Outcome::Result, _))) => native.ended(task),
            (Self::Task(Method::TasksGet | Method::TasksCancel, _), Some((Outcome::Result, task))) => native.told(task),
            _ => {}
        }
        Ok(with_id(response, id))
    }

    /// Returns the answer where the server gave none: taskgate's own tasks are listed whatever the server does. With
    /// `more` the next page asks the server again.
    pub(super) fn instead(&self, native: &NativeTasks, more: bool) -> Option<Document> {
        let Self::Tasks(Some(own)) = self else { return None };
        let (_, raw) = own.outcome()?;
        let result = Members::parse(raw).ok()?;
        if result.get("tasks") == Some("[]") {
            return None;
        }
        let mut edits = Edits::of(own.bytes());
        if more {
            edits.set(&result, "nextCursor", &native.seal("").ok()?);
        }
        Some(edits.apply())
    }
}

impl Page {
    fn tells(self, tools: &[Listed<'_>], last: bool, native: &NativeTasks) {
        if self.first && last {
            let mut names = ToolNames::default();
            names.add_native(tools);
            native.tools.learn_all(self.asked_at, names);
        } else {
            native.tools.learn(self.asked_at, tools);
        }
    }
}

/// Returns a page of the server's tasks behind those of taskgate, with a cursor of taskgate's.
fn tasks_page(
    response: &Message,
    result: &str,
    own: Option<&Message>,
    id: &str,
    native: &NativeTasks,
) -> Result<Document, Option<Failure>> {
    let bad = |why: &str| Some(Failure::BadAnswer(format!("its list of tasks is malformed: {why}")));
    let members = Members::parse(result).map_err(|why| bad(&why))?;
    let tasks = members.get("tasks").filter(|tasks| tasks.starts_with('[')).ok_or_else(|| bad("it has no tasks"))?;
    let mut edits = Edits::of(response.bytes());
    if let Some(span) = response.id_span() {
        edits.replace(span, id.to_owned());
    }
    let own = own.and_then(Message::outcome).and_then(|(_, own)| Members::parse(own).ok()?.get("tasks"));
    let own = own.and_then(|own| own.strip_prefix('[')?.strip_suffix(']')).unwrap_or_default();
    if !own.is_empty() {
        let comma = if tasks[1..].trim_ascii_start().starts_with(']') { "" } else { "," };
        edits.replace_raw(&tasks[..1], format!("[{own}{comma}"));
    }
    if let Some(cursor) = next_cursor(result) {
        edits.replace_raw(cursor, native.seal(cursor).map_err(Some)?);
    }
    Ok(edits.apply())
}

/// Returns what to ask the server where a request is about its own tasks: a call of a tool that it lists with them, and
/// the task methods with ids and cursors that are not of taskgate. None of these count against rates, or as failed
/// look-ups.
///
/// # Errors
/// [`Failure`] where the server does not tell which tools those are.
pub(super) async fn of_server(
    legacy: &Legacy,
    session: &Arc<Session>,
    message: &Message,
    headers: &HeaderMap,
    route: &Route,
) -> Result<Option<(Message, Edit)>, Failure> {
    let native = match route {
        // A lost session has no server to ask.
        _ if session.is_lost() => false,
        Route::RunAsTask { name, .. } => session.upstream_session.has_native_tasks_for(name, headers).await?,
        Route::TasksGet | Route::TasksResult | Route::TasksCancel => {
            !legacy.concerns(&session.caller.owner, message).await
        }
        Route::TasksList => {
            let cursor = cursor(message).and_then(|cursor| session.native().unseal(&cursor).flatten());
            return Ok(cursor.map(|cursor| (with_cursor(message, &cursor), Edit::Tasks(None))));
        }
        _ => false,
    };
    Ok(native.then(|| (message.clone(), Edit::of(session, message))))
}

/// Answers `tasks/list` in a session with both: a page of taskgate's tasks, the last of which goes on with the server's
/// first page.
pub(super) async fn tasklist(legacy: &Legacy, session: &Arc<Session>, message: &Message) -> Result<Tasklist, NoResult> {
    let native = session.native();
    if cursor(message).is_some_and(|cursor| native.unseal(&cursor).is_some()) {
        return Err(RpcError::invalid_params("Invalid cursor: it is not of this session; begin without one").into());
    }
    let reply = legacy.list(&session.caller.owner, message).await?;
    let own = match reply {
        Reply::Ready(document) if native.lists() && !session.is_lost() => document.into_bytes(),
        reply => return Ok(Tasklist::Own(reply)),
    };
    let listed = Message::parse(own.clone()).ok().filter(|own| {
        let result = own.outcome().map(|(_, result)| result);
        result.is_some_and(|result| next_cursor(result).is_none())
    });
    Ok(match listed {
        Some(own) => Tasklist::Joint(Box::new(with_cursor(message, "")), Edit::Tasks(Some(own))),
        None => Tasklist::Own(Reply::Ready(own.into())),
    })
}

fn cursor(message: &Message) -> Option<String> {
    Members::parse(message.params()?).ok()?.text("cursor").map(Into::into)
}

/// Returns a `tasks/list` for the server's page behind a raw cursor of its own, or for its first one.
fn with_cursor(message: &Message, cursor: &str) -> Message {
    let mut edits = Edits::of(message.bytes());
    if let Some(params) = message.params().and_then(|params| Members::parse(params).ok()) {
        if cursor.is_empty() {
            edits.remove(&params, "cursor");
        } else {
            edits.set(&params, "cursor", cursor);
        }
    }
    Message::parse(edits.apply().into_bytes()).unwrap_or_else(|_| message.clone())
}
