//! The tasks dialect of revision 2025-11-25: reads and writes its wire shapes, and decides nothing.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use bytes::Bytes;

use super::{
    Edits, Message, Method, excerpt,
    object::{Members, quote},
    params::unambiguous,
};

/// The `_meta` key that ties a message to a task (section "Related Task Metadata").
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The `_meta` key of the text that a host may give its model at once (section "Creating Tasks").
pub const IMMEDIATE_RESPONSE: &str = "io.modelcontextprotocol/model-immediate-response";

/// The raw value of `capabilities.tasks` that a receiver of task-augmented tool calls declares.
pub const SERVER_CAPABILITY: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

/// Returns whether a server's `capabilities` declare `tasks.requests.tools.call`.
#[must_use]
pub fn declares_tool_tasks(capabilities: &Members<'_>) -> bool {
    capabilities
        .object("tasks")
        .and_then(|tasks| tasks.object("requests"))
        .and_then(|requests| requests.object("tools"))
        .is_some_and(|tools| tools.get("call").is_some())
}

/// The status of a task (section "Task Status").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// `working`
    Working,
    /// `input_required`
    InputRequired,
    /// `completed`
    Completed,
    /// `failed`
    Failed,
    /// `cancelled`
    Cancelled,
}

impl Status {
    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A `Task` as taskgate writes it.
#[derive(Debug)]
pub struct TaskView<'a> {
    /// `taskId`
    pub id: uuid::Uuid,
    /// `status`
    pub status: Status,
    /// `statusMessage`
    pub status_message: Option<Cow<'a, str>>,
    /// `createdAt`, milliseconds since the Unix epoch
    pub created_at: u64,
    /// `lastUpdatedAt`, milliseconds since the Unix epoch
    pub last_updated_at: u64,
    /// `ttl`, milliseconds from creation
    pub ttl: u64,
    /// `pollInterval`, milliseconds
    pub poll_interval: u64,
}

impl TaskView<'_> {
    /// Appends the `Task` object.
    pub fn write(&self, out: &mut String) {
        let created = timestamp(self.created_at);
        let updated = timestamp(self.last_updated_at);
        let Self { id, ttl, poll_interval, .. } = self;
        let status = self.status.as_str();
        // Writing to a String cannot fail.
        let _ = write!(out, r#"{{"taskId":"{id}","status":"{status}","#);
        if let Some(message) = &self.status_message {
            let _ = write!(out, r#""statusMessage":{},"#, quote(message));
        }
        let _ = write!(
            out,
            r#""createdAt":"{created}","lastUpdatedAt":"{updated}","ttl":{ttl},"pollInterval":{poll_interval}}}"#
        );
    }

    /// Writes the `result` of `tasks/get` and `tasks/cancel`.
    #[must_use]
    pub fn to_raw(&self) -> String {
        let mut out = String::with_capacity(256);
        self.write(&mut out);
        out
    }

    /// Writes the `notifications/tasks/status`, which has no related-task `_meta` (section "Associating Task-Related
    /// Messages").
    #[must_use]
    pub fn to_notification(&self) -> String {
        let mut out = String::with_capacity(320);
        out.push_str(r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":"#);
        self.write(&mut out);
        out.push('}');
        out
    }

    /// Writes the `CreateTaskResult`.
    #[must_use]
    pub fn to_create_result(&self, immediate_response: Option<&str>) -> String {
        let mut out = String::with_capacity(288);
        out.push_str("{\"task\":");
        self.write(&mut out);
        if let Some(text) = immediate_response {
            let _ = write!(out, r#","_meta":{{"{IMMEDIATE_RESPONSE}":{}}}"#, quote(text));
        }
        out.push('}');
        out
    }
}

/// Ties `object`, the `params` or the `result` that `edits` changes, to a task (section "Associating Task-Related
/// Messages").
pub fn relate(edits: &mut Edits<'_>, object: &Members<'_>, id: uuid::Uuid) {
    let related = format!(r#"{{"taskId":"{id}"}}"#);
    match object.object("_meta") {
        Some(meta) => edits.set(&meta, RELATED_TASK, &related),
        None => edits.set(object, "_meta", &format!(r#"{{"{RELATED_TASK}":{related}}}"#)),
    }
}

/// Ties a server's request or notification to a task. Returns `None` where a member is there twice: two readers could
/// see two different tasks.
#[must_use]
pub fn related(message: &Message, id: uuid::Uuid) -> Option<Message> {
    let mut edits = Edits::of(message.bytes());
    if let Some(params) = message.params() {
        relate(&mut edits, &unambiguous(params).ok()?.0, id);
    } else {
        let params = format!(r#"{{"_meta":{{"{RELATED_TASK}":{{"taskId":"{id}"}}}}}}"#);
        edits.set(&Members::parse(message.text()).ok()?, "params", &params);
    }
    Message::parse(edits.apply().into_bytes()).ok()
}

/// Removes from a server's request or notification what ties it to a task of the server. Returns `None` where a member
/// is there twice, because one reader could still see the task.
#[must_use]
pub fn untied(message: &Message) -> Option<Message> {
    let mut edits = Edits::of(message.bytes());
    let meta = message.params().map(unambiguous).transpose().ok()?.and_then(|(_, meta)| meta);
    if let Some(meta) = meta {
        edits.remove(&meta, RELATED_TASK);
    }
    Message::parse(edits.apply().into_bytes()).ok()
}

/// Returns whether a request or a notification of a server is tied to a task.
#[must_use]
pub fn is_related(message: &Message) -> bool {
    message.params().and_then(meta).is_some_and(|meta| meta.get(RELATED_TASK).is_some())
}

fn meta(params: &str) -> Option<Members<'_>> {
    Members::parse(params).ok()?.object("_meta")
}

/// Returns whether a `Task` as a server writes it has ended.
#[must_use]
pub fn has_ended(task: &Members<'_>) -> bool {
    let ends = [Status::Completed, Status::Failed, Status::Cancelled].map(Status::as_str);
    task.text("status").is_some_and(|status| ends.contains(&&*status))
}

/// Returns a client's answer in the form for an upstream that knows nothing of tasks: under the id `id`, and without
/// what ties it to a task.
#[must_use]
pub fn unrelated(answer: &Message, id: &str) -> Bytes {
    let mut edits = Edits::of(answer.bytes());
    if let Some(span) = answer.id_span() {
        edits.replace(span, id.to_owned());
    }
    let result = answer.outcome().and_then(|(_, raw)| Members::parse(raw).ok());
    if let Some(meta) = result.and_then(|result| result.object("_meta")) {
        edits.remove(&meta, RELATED_TASK);
    }
    edits.apply().into_bytes()
}

/// Returns what a person may be told of a server's request that waits for an answer.
#[must_use]
pub fn question_text(request: &Message) -> String {
    let params = request.params().and_then(|params| Members::parse(params).ok());
    match (request.method(), params.and_then(|params| params.text("message").map(Into::<String>::into))) {
        (Method::Elicit, Some(message)) => format!("Input required: {message}"),
        (Method::CreateMessage, _) => "Input required: the server asks the client's model for a message".to_owned(),
        (Method::ListRoots, _) => "Input required: the server asks for the client's roots".to_owned(),
        _ => "Input required".to_owned(),
    }
}

/// Returns the progress of a notification, if it is a number.
#[must_use]
pub fn progress(params: &str) -> Option<f64> {
    serde_json::from_str(Members::parse(params).ok()?.get("progress")?).ok()
}

/// Returns a text such as "3 of 10: indexing" from the params of a progress notification.
#[must_use]
pub fn progress_text(params: &str) -> Option<String> {
    let params = Members::parse(params).ok()?;
    // Some servers write every number as a fraction. A person reads 3.0 as 3.
    let number = |name| serde_json::from_str::<f64>(params.get(name)?).ok();
    let mut text = number("progress")?.to_string();
    if let Some(total) = number("total") {
        let _ = write!(text, " of {total}");
    }
    if let Some(message) = params.text("message") {
        let _ = write!(text, ": {message}");
    }
    Some(text)
}

/// Returns the `message` of a raw JSON-RPC error.
#[must_use]
pub fn error_message(error: &str) -> Option<String> {
    Members::parse(error).ok()?.text("message").map(Into::into)
}

/// Returns the `code` of a raw JSON-RPC error, if it is an integer.
#[must_use]
pub fn error_code(error: &str) -> Option<i64> {
    Members::parse(error).ok()?.get("code")?.parse().ok()
}

/// Returns a time in milliseconds since the Unix epoch as RFC 3339 writes it, in UTC.
#[must_use]
pub fn timestamp(millis: u64) -> humantime::Rfc3339Timestamp {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + Duration::from_millis(millis))
}

/// The ttl that a client asks for in `params.task`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedTtl {
    /// None, so the receiver's default holds.
    Default,
    /// A duration from creation.
    For(Duration),
    /// `null`, which some clients send for "unlimited".
    Unlimited,
}

/// Reads the raw value of `params.task` (section "Task Parameters").
///
/// # Errors
/// A sentence that says what is wrong.
pub fn requested_ttl(task: &str) -> Result<RequestedTtl, String> {
    let members = Members::parse(task).map_err(|error| format!("params.task must be an object: {error}"))?;
    let Some(ttl) = members.get("ttl") else { return Ok(RequestedTtl::Default) };
    if ttl == "null" {
        return Ok(RequestedTtl::Unlimited);
    }
    let millis: f64 = serde_json::from_str(ttl)
        .ok()
        .filter(|millis: &f64| *millis >= 0.0)
        .ok_or_else(|| format!("params.task.ttl must be a number of milliseconds, 0 or more, not {}", excerpt(ttl)))?;
    // A ttl that is too long for a duration is reduced to the maximum anyway.
    Ok(RequestedTtl::For(Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::MAX)))
}

/// Returns the first text in the content of a tool result, for `statusMessage`.
#[must_use]
pub fn first_text(result: &str) -> Option<String> {
    let content = Members::parse(result).ok()?.get("content")?;
    let items: Vec<&serde_json::value::RawValue> = serde_json::from_str(content).ok()?;
    items.into_iter().find_map(|item| Members::parse(item.get()).ok()?.text("text").map(Into::into))
}

/// Returns whether a tool result has `isError: true`.
///
/// # Errors
/// A sentence that says what is wrong, if the result or its `_meta` has a member twice: what one reader takes for a
/// success could be a failure to the next one.
pub fn is_error(result: &str) -> Result<bool, String> {
    let (members, _) = unambiguous(result)?;
    Ok(members.get("isError") == Some("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_written_as_the_schema_has_it() {
        let view = TaskView {
            id: uuid::Uuid::nil(),
            status: Status::Failed,
            status_message: Some("say \"no\"".into()),
            created_at: 1_764_065_400_123,
            last_updated_at: 1_764_065_401_000,
            ttl: 60_000,
            poll_interval: 2000,
        };
        assert_eq!(
            view.to_raw(),
            concat!(
                r#"{"taskId":"00000000-0000-0000-0000-000000000000","status":"failed","#,
                r#""statusMessage":"say \"no\"","createdAt":"2025-11-25T10:10:00.123Z","#,
                r#""lastUpdatedAt":"2025-11-25T10:10:01.000Z","ttl":60000,"pollInterval":2000}"#
            )
        );
    }

    #[test]
    fn a_ttl_is_a_number_of_milliseconds_or_left_to_the_receiver() {
        assert_eq!(requested_ttl("{}"), Ok(RequestedTtl::Default));
        assert_eq!(requested_ttl(r#"{"ttl":1500}"#), Ok(RequestedTtl::For(Duration::from_millis(1500))));
        assert_eq!(requested_ttl(r#"{"ttl":1e300}"#), Ok(RequestedTtl::For(Duration::MAX)));
        assert_eq!(requested_ttl(r#"{"ttl":null}"#), Ok(RequestedTtl::Unlimited));
        for bad in [r#"{"ttl":"5"}"#, r#"{"ttl":-1}"#, r#"{"ttl":1,"ttl":2}"#, "[]", "null", "true"] {
            assert!(requested_ttl(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_message_is_tied_to_a_task_with_and_without_meta_of_its_own() {
        let relate = |params: &str| -> Option<String> {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"x"{params}}}"#);
            let message = Message::parse(text.into()).expect("valid");
            related(&message, uuid::Uuid::nil())?.params().map(str::to_owned)
        };
        let key = r#""io.modelcontextprotocol/related-task":{"taskId":"00000000-0000-0000-0000-000000000000"}"#;
        assert_eq!(relate("").as_deref(), Some(&*format!(r#"{{"_meta":{{{key}}}}}"#)));
        let message = Message::parse(" {\"jsonrpc\":\"2.0\",\"method\":\"x\"}".into()).expect("valid");
        let tied = related(&message, uuid::Uuid::nil()).expect("can be tied");
        assert_eq!(tied.params(), Some(format!(r#"{{"_meta":{{{key}}}}}"#).as_str()));
        assert_eq!(relate(r#","params":{"a":1}"#), Some(format!(r#"{{"_meta":{{{key}}},"a":1}}"#)));
        assert_eq!(relate(r#","params":{"_meta":{"b":2}}"#), Some(format!(r#"{{"_meta":{{{key},"b":2}}}}"#)));
        for twice in [r#"{"_meta":{},"_meta":{"b":2}}"#, r#"{"_meta":{"b":1,"b":2}}"#, r#"{"a":1,"\u0061":2}"#] {
            assert_eq!(relate(&format!(",\"params\":{twice}")), None, "{twice}");
        }
    }

    #[test]
    fn a_message_is_untied_from_a_task_or_not_passed_on() {
        let untie = |params: &str| -> Option<String> {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"x","params":{params}}}"#);
            untied(&Message::parse(text.into()).expect("valid"))?.params().map(str::to_owned)
        };
        let tie = r#""io.modelcontextprotocol\/related-task":{"taskId":"x"}"#;
        assert_eq!(untie(&format!(r#"{{"_meta":{{{tie},"b":2}}}}"#)).as_deref(), Some(r#"{"_meta":{"b":2}}"#));
        assert_eq!(untie(r#"{"a":1}"#).as_deref(), Some(r#"{"a":1}"#));
        for twice in [format!(r#"{{"_meta":{{}},"_meta":{{{tie}}}}}"#), format!(r#"{{"_meta":{{{tie},{tie}}}}}"#)] {
            assert_eq!(untie(&twice), None, "{twice}");
        }
    }

    #[test]
    fn progress_reads_as_a_sentence() {
        let text = |params| progress_text(params).expect("progress");
        assert_eq!(text(r#"{"progress":3,"total":10,"message":"indexing"}"#), "3 of 10: indexing");
        assert_eq!(text(r#"{"progress":3.0,"total":10.0}"#), "3 of 10");
        assert_eq!(text(r#"{"progress":0.5}"#), "0.5");
    }

    #[test]
    fn native_task_support_is_recognised_by_the_whole_path() {
        let declares = |raw| declares_tool_tasks(&Members::parse(raw).expect("an object"));
        assert!(declares(r#"{"tasks":{"requests":{"tools":{"call":{}}}}}"#));
        assert!(!declares(r#"{"tasks":{"list":{},"requests":{"sampling":{}}}}"#));
        assert!(!declares(r#"{"tools":{}}"#));
    }

    #[test]
    fn the_first_text_explains_an_error_result() {
        let result = r#"{"content":[{"type":"image"},{"type":"text","text":"no disk"}],"isError":true}"#;
        assert_eq!(first_text(result).as_deref(), Some("no disk"));
        assert_eq!(is_error(result), Ok(true));
        assert_eq!(is_error(r#"{"isError":false}"#), Ok(false));
        for twice in [r#"{"isError":false,"isError":true}"#, r#"{"_meta":{},"_meta":{}}"#, r#"{"_meta":{"a":1,"a":2}}"#]
        {
            assert!(is_error(twice).is_err_and(|why| why.contains("duplicate member")), "{twice}");
        }
    }
}
