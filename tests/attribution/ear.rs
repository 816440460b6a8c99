//! What a caller hears, and whether it is for this caller.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    Form,
    book::{Book, answer_to, tags},
    kit::{Answer, Stream, events},
};

/// Where a message says to which task it belongs.
pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A caller as far as it hears. Its name is the number of its owner and its kind: `L` has a session, `A` is a client of
/// revision 2026-07-28 that can be asked, `U` is one that cannot.
pub(crate) struct Ear {
    pub(crate) book: Arc<Book>,
    pub(crate) form: Form,
    pub(crate) name: String,
}

/// Whose calls a message may be about.
#[derive(Debug)]
enum Whose<'a> {
    /// This call.
    Call(&'a str),
    /// The caller's.
    Caller,
    /// Its owner's.
    Owner,
    /// Its owner's, and those of every client with a session.
    Sessions,
}

impl Ear {
    /// Notes a fault if a message has the tag of another call than it may have. It came on the stream of `call`, or as an
    /// answer about it, or on a stream of the caller.
    pub(crate) fn hear(&self, message: &Value, call: Option<&str>) {
        let (text, whose) = (message.to_string(), self.whose(message, call));
        let is_expected = |tag: &str| match whose {
            Whose::Call(call) => tag == call,
            Whose::Caller => tag.starts_with(&format!("tag-{}-", self.name)),
            Whose::Owner => self.is_owners(tag),
            Whose::Sessions => self.is_owners(tag) || tag[5..].starts_with('L'),
        };
        if !tags(&text).all(is_expected) {
            self.book.fault(format!("{} expected {whose:?} and heard {text}", self.name));
        }
    }

    fn is_owners(&self, tag: &str) -> bool {
        tag["tag-".len()..].starts_with(&self.name[..1])
    }

    fn whose<'a>(&self, message: &Value, call: Option<&'a str>) -> Whose<'a> {
        let method = message["method"].as_str().unwrap_or_default();
        let has_number = method == "notifications/progress" || message["result"]["content"].is_array();
        let has_session = self.name.ends_with('L');
        let says_nothing =
            is_question(method) || ["notifications/message", "notifications/cancelled"].contains(&method);
        // All but a stream of its own leaves open which call of a session a message is about. The server errors without
        // an id, too.
        let is_exact = matches!(self.form, Form::Stream | Form::Resumable | Form::Modern)
            || self.name.ends_with('A')
            || has_number;
        // What a task asks and tells reaches its owner in any session, and its status tells what it asks.
        let is_of_task = method == "notifications/tasks/status"
            || !message["params"]["_meta"][RELATED].is_null()
            || message["result"]["statusMessage"].is_string();
        match call {
            Some(call) if is_exact => Whose::Call(call),
            // One process for all sessions does not even say for which of them, unless one of the two has none.
            _ if self.form.is_shared() && has_session && (says_nothing || is_of_task) => Whose::Sessions,
            None if is_of_task => Whose::Owner,
            _ => Whose::Caller,
        }
    }

    /// Returns the answer to a question: the tag in it, if that is one of its owner.
    pub(crate) fn answer(&self, method: &str, question: &Value) -> Value {
        let text = question.to_string();
        answer_to(method, tags(&text).find(|tag| self.is_owners(tag)))
    }
}

/// Returns whether a message with this method is a question.
pub(crate) fn is_question(method: &str) -> bool {
    ["elicitation/create", "sampling/createMessage"].contains(&method)
}

/// Returns whether a task has ended.
pub(crate) fn has_ended(task: &Value) -> bool {
    ["completed", "failed", "cancelled"].map(Value::from).contains(&task["status"])
}

/// Returns the message in an answer; null if there is none.
pub(crate) fn message_in(answer: &Answer) -> Value {
    let event = answer.is_stream().then(|| events(answer.text()).pop().map_or(String::new(), |event| event.data));
    serde_json::from_str(event.as_deref().unwrap_or(answer.text())).unwrap_or_default()
}

/// An answer that is read message by message, a stream or not.
pub(crate) struct Reading {
    stream: Option<Stream>,
    is_stream: bool,
    /// The HTTP status, once it has come.
    pub(crate) status: u16,
}

impl Reading {
    pub(crate) fn of(stream: Stream) -> Self {
        Self { stream: Some(stream), is_stream: false, status: 0 }
    }

    /// Returns the next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        if self.status == 0 {
            let (status, headers) = self.stream.as_mut()?.head().await;
            self.status = status.as_u16();
            self.is_stream = headers.get("content-type").is_some_and(|of| of == "text/event-stream");
        }
        if self.is_stream {
            return Some(self.stream.as_mut()?.next().await?.json());
        }
        self.stream.take()?.rest().await.1
    }
}
