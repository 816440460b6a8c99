//! Requests to a server that is modern itself: they go up as they came, and come back so. taskgate adds tasks.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::{
    Answer, ClientRequest, Modern, Refused, TASKS, hosts, may_be_asked_about,
    onward::Whose,
    param_headers,
    run::{Over, Run},
    translate,
};
use crate::{
    config::{Native, Support},
    dialect::tools::with_instructions,
    upstream::{ExchangeEnd, Failure, Generation, with_id},
    wire::{
        Edits, Message, Method, Parts, ids,
        legacy::error_code,
        message::Outcome,
        modern::shared_versions,
        object::{Members, Needle, may_have},
        response::edited_response,
    },
};

impl Modern {
    /// Returns the generation of the server, which is asked where it is not known. What was opened for that serves the
    /// request.
    pub(super) async fn generation(&self, request: &mut ClientRequest) -> Result<Generation, Refused> {
        if let Some(known) = request.caller.upstream.pool.generation() {
            return Ok(known);
        }
        self.begin(request)?;
        let asks = may_be_asked_about(request.method);
        let lease = self.lease(request, asks).await?;
        let generation = lease.pooled.generation;
        request.opened = Some(Arc::new(lease));
        Ok(generation)
    }

    /// Returns whether a task method is for the server: it names a task that is not one of taskgate's.
    ///
    /// # Errors
    /// [`Refused`] where its client names unknown ids too often while it is not known what the server is.
    pub(super) async fn is_of_server(&self, request: &mut ClientRequest) -> Result<bool, Refused> {
        let upstream = Arc::clone(&request.caller.upstream);
        let known = upstream.pool.generation();
        if upstream.native == Native::Replace || known.is_some_and(|known| request.whose(known) == Whose::Ours) {
            return Ok(false);
        }
        let id = request.subject.as_deref().and_then(ids::parse);
        let is_ours = match id {
            Some(id) => self.engine.may_have(&request.caller.owner, id).await,
            None => false,
        };
        let generation = match known {
            Some(known) => known,
            None if is_ours => return Ok(false),
            None => {
                // Any id would cost a handshake.
                self.count_lookup(request, id.unwrap_or_default()).await?;
                request.looked_up = true;
                self.begin(request)?;
                // taskgate's tasks are there while the server is not.
                self.generation(request).await.unwrap_or(Generation::Legacy)
            }
        };
        Ok(match request.whose(generation) {
            Whose::Ours => false,
            Whose::Theirs => true,
            Whose::Both => !is_ours,
        })
    }

    /// Passes a request to a modern server. A call may become a task of taskgate.
    pub(super) async fn pass_up(
        self: &Arc<Self>,
        request: Box<ClientRequest>,
        generation: Generation,
    ) -> Result<Answer, Refused> {
        let whose = request.whose(generation);
        match request.method {
            Method::ToolsCall if whose == Whose::Ours || request.gets_jobs(generation) => {
                self.start_tool(request, generation).await
            }
            Method::ToolsCall if whose == Whose::Both && is_required(&request) => {
                self.start_tool(request, generation).await
            }
            Method::Listen => self.listen_through(request, whose).await,
            _ => self.pass(request).await,
        }
    }
}

/// Returns whether a call is always a task.
fn is_required(call: &ClientRequest) -> bool {
    let name = call.subject.as_deref();
    name.is_some_and(|name| call.caller.upstream.policy.tool(name).support == Support::Required)
}

impl Run {
    /// Ends as a modern server has answered.
    pub(super) async fn end_as_answered(&mut self, ending: ExchangeEnd) -> Over {
        let ending = match ending {
            Ok(answer) => answer.whole().await,
            Err(failure) => Err(failure),
        };
        let status = self.call.exchange.status();
        if !self.sent_again && looks_legacy(&ending, status) {
            let replaced = Box::pin(self.replaced()).await;
            if let Some(over) = replaced {
                return over;
            }
        }
        match ending {
            Ok(response) => {
                let status = status.unwrap_or_else(|| match status_of(&response) {
                    StatusCode::NOT_FOUND if self.may_lack_tool() => StatusCode::OK,
                    status => status,
                });
                match self.passed(&response) {
                    Ok(document) => {
                        self.to.respond(status, document);
                        Over::Done
                    }
                    Err(why) => self.fail(&Failure::BadAnswer(why)),
                }
            }
            Err(Failure::Cancelled) => Over::Done,
            Err(failure) => self.fail(&failure),
        }
    }

    /// Returns the answer as the client gets it.
    fn passed(&self, response: &Message) -> Result<Parts, String> {
        let (request, id) = (&self.request, self.request.id());
        let completed = typed(response, request, self.lease.pooled.generation)?;
        let response = completed.as_ref().unwrap_or(response);
        match request.method {
            Method::Discover => self.discovered(response),
            Method::ToolsList => {
                // A process gets no headers that it could compare.
                let compares = !request.is_mirrored || !request.caller.upstream.server.is_process();
                let without = if compares { None } else { param_headers::without(response, id)? };
                let document = without.unwrap_or_else(|| with_id(response, id));
                Ok(hosts::with_tools(document, request, &self.lease, self.asked_at))
            }
            _ => Ok(with_id(response, id)),
        }
    }

    /// Returns what the server says of itself, with the extension where taskgate serves tasks, and without revisions
    /// that taskgate does not speak.
    fn discovered(&self, response: &Message) -> Result<Parts, String> {
        let document = with_id(response, self.request.id());
        let Some((Outcome::Result, raw)) = response.outcome() else { return Ok(document) };
        let source = Bytes::copy_from_slice(raw.as_bytes());
        let raw = std::str::from_utf8(&source).map_err(|error| error.to_string())?;
        let result = Members::parse(raw)?;
        let capabilities = result.nested("capabilities")?;
        let extensions = capabilities.as_ref().map(|declared| declared.nested("extensions")).transpose()?.flatten();
        let mut edits = Edits::of(&source);
        let shared = shared_versions(&result);
        let theirs = result.get("supportedVersions").and_then(|raw| serde_json::from_str::<Vec<String>>(raw).ok());
        if theirs.is_some_and(|theirs| theirs != shared) {
            edits.set(&result, "supportedVersions", &serde_json::json!(shared).to_string());
        }
        let has_tools = capabilities.as_ref().is_some_and(|declared| declared.get("tools").is_some());
        let generation = self.lease.pooled.generation;
        if has_tools && self.request.gets_jobs(generation) {
            edits.set(&result, "instructions", &with_instructions(result.get("instructions")));
        }
        if has_tools && self.request.hosts_get_jobs(generation) {
            // A cache that clients share would give one the instructions of another.
            edits.set(&result, "cacheScope", r#""private""#);
        }
        match (&capabilities, &extensions) {
            _ if self.request.whose(generation) != Whose::Ours => {}
            (_, Some(extensions)) => edits.set(extensions, TASKS, "{}"),
            (Some(capabilities), None) => edits.set(capabilities, "extensions", &format!(r#"{{"{TASKS}":{{}}}}"#)),
            (None, None) => edits.set(&result, "capabilities", &format!(r#"{{"extensions":{{"{TASKS}":{{}}}}}}"#)),
        }
        Ok(edited_response(self.request.id(), Outcome::Result, edits))
    }
}

/// Returns the response with `resultType` `complete` where its result has no type; `None` where it passes unchanged.
///
/// # Errors
/// A sentence saying why the client must not get a result of that type.
fn typed(response: &Message, request: &ClientRequest, generation: Generation) -> Result<Option<Message>, String> {
    static TYPE: Needle = Needle::new("resultType");
    let Some((Outcome::Result, raw)) = response.outcome() else { return Ok(None) };
    let result = if may_have(raw, [&TYPE]) { Some(Members::parse(raw)?) } else { None };
    let Some(result) = result.filter(|result| result.get("resultType").is_some()) else {
        // A client has to read it so ("Result").
        let mut edits = Edits::of(response.bytes());
        edits.add(raw, translate::COMPLETE);
        return Message::parse(edits.apply().into_bytes()).map(Some).map_err(|why| why.to_string());
    };
    let may_ask = may_be_asked_about(request.method);
    let is_call = request.method == Method::ToolsCall;
    let may_be_task = is_call && request.meta.tasks && request.whose(generation) != Whose::Ours;
    match result.text("resultType").as_deref() {
        Some("input_required") if !may_ask => {
            Err("it asks for input, and only tools/call, prompts/get and resources/read may".to_owned())
        }
        Some("task") if !is_call => Err("it is a task, and only tools/call may be answered with one".to_owned()),
        Some("task") if !may_be_task => {
            Err("it is a task, and the server was not told that its client knows tasks".to_owned())
        }
        Some(_) => Ok(None),
        None => Err("its resultType is no text".to_owned()),
    }
}

/// Returns whether a server has answered as a server that knows only sessions does. It has refused the request without
/// running it.
pub(super) fn looks_legacy(ending: &Result<Message, Failure>, status: Option<StatusCode>) -> bool {
    const REFUSALS: [StatusCode; 3] = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
    match ending {
        Ok(response) => {
            let Some((Outcome::Error, raw)) = response.outcome() else { return false };
            let code = error_code(raw);
            let of_handler = matches!(code, Some(-32603..=-32601 | -32021..=-32020));
            code == Some(-32022) || (!of_handler && status.is_some_and(|status| REFUSALS.contains(&status)))
        }
        Err(Failure::Http(error)) => REFUSALS.contains(&error.status),
        Err(_) => false,
    }
}

/// Returns the HTTP status of a response that came without one ("Streamable HTTP", sections "Protocol Version Header"
/// and "Server Validation").
pub(super) fn status_of(response: &Message) -> StatusCode {
    match response.outcome() {
        Some((Outcome::Error, raw)) => match error_code(raw) {
            Some(-32601) => StatusCode::NOT_FOUND,
            Some(-32022..=-32020) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
        _ => StatusCode::OK,
    }
}
