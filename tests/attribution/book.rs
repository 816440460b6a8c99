//! The notes of a run: the questions, and each message that reached a caller to whom it does not belong.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// The notes of a run.
#[derive(Default)]
pub(crate) struct Book {
    notes: Mutex<Notes>,
    changed: Notify,
}

#[derive(Default)]
struct Notes {
    faults: Vec<String>,
    questions: HashMap<String, Question>,
    counts: BTreeMap<&'static str, usize>,
    /// The tags of the calls that have begun.
    begun: HashSet<String>,
    /// Whether a question may be answered again.
    may_repeat: bool,
    running: usize,
}

/// A question of the server.
struct Question {
    tag: String,
    session: String,
    /// Where its answer goes, until it has come.
    reply: Option<oneshot::Sender<()>>,
}

/// A call that the server works on, until it is dropped.
pub(crate) struct Running(Arc<Book>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.notes.lock().running -= 1;
        self.0.changed.notify_waiters();
    }
}

/// Returns the tags in a text.
pub(crate) fn tags(text: &str) -> impl Iterator<Item = &str> {
    let begun = text.match_indices("tag-").map(|(at, _)| {
        let end = text[at..].find(|char: char| !char.is_ascii_alphanumeric() && char != '-');
        end.map_or(&text[at..], |end| &text[at..at + end])
    });
    begun.filter(|word| is_tag(word))
}

/// Returns whether a word is a tag. In a `requestState` one may begin like a tag by chance.
fn is_tag(word: &str) -> bool {
    word.rsplit_once('-').is_some_and(|(caller, number)| {
        caller.len() == "tag-0L".len() && number.len() == 16 && number.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Returns the answer to a question about `tag`, or a refusal.
pub(crate) fn answer_to(method: &str, tag: Option<&str>) -> Value {
    match (method, tag) {
        ("sampling/createMessage", tag) => {
            let text = tag.unwrap_or("I do not know");
            json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": text } })
        }
        (_, Some(tag)) => json!({ "action": "accept", "content": { "who": tag } }),
        (_, None) => json!({ "action": "decline" }),
    }
}

impl Book {
    pub(crate) fn fault(&self, fault: String) {
        self.notes.lock().faults.push(fault);
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.notes.lock().faults.clone()
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.notes.lock().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.notes.lock().counts.clone()
    }

    /// Lets questions be answered again: after a kill, an answer may be resumed before a question that was answered.
    pub(crate) fn may_repeat(&self) {
        self.notes.lock().may_repeat = true;
    }

    /// Notes that a call begins, which it may once.
    pub(crate) fn begins(&self, tag: &str) {
        let mut notes = self.notes.lock();
        if !notes.begun.insert(tag.to_owned()) {
            notes.faults.push(format!("the call of {tag} ran twice"));
        }
    }

    /// Notes a call that the server works on.
    pub(crate) fn runs(self: &Arc<Self>) -> Running {
        self.notes.lock().running += 1;
        Running(Arc::clone(self))
    }

    /// Resolves when the server works on nothing.
    pub(crate) async fn rests(&self) {
        loop {
            let changed = self.changed.notified();
            if self.notes.lock().running == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Notes a question of the server about `tag`. Returns its id, and what resolves with its answer.
    pub(crate) fn ask(&self, session: &str, tag: &str) -> (String, oneshot::Receiver<()>) {
        let (reply, answered) = oneshot::channel();
        let mut notes = self.notes.lock();
        *notes.counts.entry("asked").or_default() += 1;
        let id = format!("question {} of {tag}", notes.questions.len());
        let question = Question { tag: tag.to_owned(), session: session.to_owned(), reply: Some(reply) };
        notes.questions.insert(id.clone(), question);
        (id, answered)
    }

    /// Takes what came to the server as an answer: it has to be that of a question in that session, the first one, and
    /// about the same call. A server that has forgotten the session refuses it, and goes on waiting.
    pub(crate) fn answered(&self, session: &str, answer: &Value, is_taken: bool) {
        let mut notes = self.notes.lock();
        let may_repeat = notes.may_repeat;
        let id = answer["id"].as_str().unwrap_or_default();
        let fault = match notes.questions.get_mut(id) {
            None => Some("no question has that id"),
            Some(question) if question.session != session => Some("another session was asked"),
            Some(question) => {
                let text = answer["result"].to_string();
                let fault = match question.reply.take() {
                    _ if tags(&text).any(|tag| tag != question.tag) => Some("it is about another call"),
                    None if may_repeat => None,
                    None => Some("it was answered before"),
                    Some(reply) if is_taken => {
                        let _ = reply.send(());
                        None
                    }
                    Some(reply) => {
                        question.reply = Some(reply);
                        None
                    }
                };
                let what = if tags(&text).next().is_some() { "answered" } else { "refused" };
                *notes.counts.entry(what).or_default() += 1;
                fault
            }
        };
        notes.faults.extend(fault.map(|fault| format!("the server got {answer} in {session}, but {fault}")));
    }
}
