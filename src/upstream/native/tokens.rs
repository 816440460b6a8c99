//! The progress tokens of calls that became tasks of the server, whose progress goes on after the call was answered
//! (section "Task Progress Notifications").

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::wire::{
    Message, legacy,
    message::{MAX_ID, Outcome},
    object::Members,
};

/// How many tokens one session keeps, and how many bytes with the tasks' ids; the oldest are evicted.
const MAX_TOKENS: usize = 256;
const MAX_BYTES: usize = 64 * 1024;

/// Progress tokens by the number that stands for them towards the server.
#[derive(Debug, Default)]
pub(super) struct ProgressTokens {
    kept: BTreeMap<u64, ProgressToken>,
    bytes: usize,
}

#[derive(Debug)]
struct ProgressToken {
    /// As the client gave it, raw.
    raw: Box<str>,
    /// The task's id, once the call has been answered with one.
    task: Option<Box<str>>,
    /// When the task's ttl is over, if it has one.
    expires: Option<Instant>,
}

impl ProgressToken {
    fn len(&self) -> usize {
        self.raw.len() + self.task.as_ref().map_or(0, |task| task.len())
    }

    fn has_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl ProgressTokens {
    pub(super) fn expect(&mut self, number: u64, raw: &str, in_flight: impl Fn(u64) -> bool, now: Instant) {
        let over = |number: &u64, token: &mut ProgressToken| match token.task {
            Some(_) => token.has_expired(now),
            // Its call was given up.
            None => !in_flight(*number),
        };
        for (_, token) in self.kept.extract_if(.., over) {
            self.bytes -= token.len();
        }
        self.insert(number, ProgressToken { raw: raw.into(), task: None, expires: None });
    }

    pub(super) fn answered(&mut self, number: u64, response: &Message, now: Instant) {
        let Some(token) = self.remove(number) else { return };
        let Some((Outcome::Result, result)) = response.outcome() else { return };
        let Some(task) = Members::parse(result).ok().and_then(|result| result.object("task")) else { return };
        let Some(id) = task.text("taskId").filter(|id| id.len() <= MAX_ID) else { return };
        if legacy::has_ended(&task) {
            return;
        }
        let millis: Option<f64> = task.get("ttl").and_then(|ttl| serde_json::from_str(ttl).ok());
        let ttl = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok());
        let expires = ttl.and_then(|ttl| now.checked_add(ttl));
        self.insert(number, ProgressToken { task: Some(id.as_ref().into()), expires, ..token });
    }

    /// Returns the raw token behind a number, if the token's task has not ended.
    pub(super) fn get(&self, number: u64, now: Instant) -> Option<Box<str>> {
        let token = self.kept.get(&number).filter(|token| token.task.is_some() && !token.has_expired(now))?;
        Some(token.raw.clone())
    }

    /// Forgets the token of a task.
    pub(super) fn release(&mut self, task: &str) {
        let of_task = |token: &ProgressToken| token.task.as_deref() == Some(task);
        if let Some(number) = self.kept.iter().find(|(_, token)| of_task(token)).map(|(number, _)| *number) {
            self.remove(number);
        }
    }

    fn insert(&mut self, number: u64, token: ProgressToken) {
        self.bytes += token.len();
        self.kept.insert(number, token);
        while self.kept.len() > MAX_TOKENS || self.bytes > MAX_BYTES {
            let Some((_, oldest)) = self.kept.pop_first() else { break };
            self.bytes -= oldest.len();
        }
    }

    fn remove(&mut self, number: u64) -> Option<ProgressToken> {
        let token = self.kept.remove(&number)?;
        self.bytes -= token.len();
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(task: &str) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"task":{task}}}}}"#);
        Message::parse(text.into()).expect("valid")
    }

    fn working(id: &str) -> Message {
        created(&format!(r#"{{"taskId":"{id}","status":"working","ttl":1000}}"#))
    }

    #[test]
    fn a_token_is_kept_from_the_creation_of_its_task_to_its_end_or_its_ttl() {
        let (mut tokens, now) = (ProgressTokens::default(), Instant::now());
        for (number, id) in [(1, "one"), (2, "two")] {
            tokens.expect(number, "\"t\"", |_| true, now);
            assert_eq!(tokens.get(number, now), None, "the call is in flight");
            tokens.answered(number, &working(id), now);
            assert_eq!(tokens.get(number, now).as_deref(), Some("\"t\""));
        }
        tokens.release("one");
        assert_eq!(tokens.get(1, now), None);
        assert_eq!(tokens.get(2, now + Duration::from_secs(1)), None);
        tokens.expect(3, "3", |_| true, now + Duration::from_secs(1));
        assert_eq!((tokens.kept.len(), tokens.bytes), (1, 1), "what has expired is gone");
    }

    #[test]
    fn an_answer_without_a_running_task_keeps_no_token() {
        for task in [r#"{"taskId":"a","status":"completed"}"#, r#"{"status":"working"}"#, "7"] {
            let mut tokens = ProgressTokens::default();
            tokens.expect(1, "1", |_| true, Instant::now());
            tokens.answered(1, &created(task), Instant::now());
            assert_eq!((tokens.kept.len(), tokens.bytes), (0, 0), "{task}");
        }
    }

    #[test]
    fn tokens_are_bounded_in_number_and_bytes_and_the_oldest_are_evicted() {
        let (mut tokens, now) = (ProgressTokens::default(), Instant::now());
        let keep = |tokens: &mut ProgressTokens, number: u64, raw: &str| {
            tokens.expect(number, raw, |_| true, now);
            tokens.answered(number, &working(&number.to_string()), now);
        };
        for number in 0..=MAX_TOKENS as u64 {
            keep(&mut tokens, number, "7");
        }
        assert_eq!((tokens.kept.len(), tokens.get(0, now)), (MAX_TOKENS, None));
        for number in 1000..1100 {
            keep(&mut tokens, number, &"x".repeat(MAX_ID));
        }
        assert!(tokens.bytes <= MAX_BYTES && tokens.get(1099, now).is_some(), "{}", tokens.bytes);
        tokens.expect(5000, "1", |_| true, now);
        tokens.expect(5001, "1", |number| number == 5001, now);
        assert!(!tokens.kept.contains_key(&5000), "its call was given up");
    }
}
