//! The requests of a shared child that wait for a session's answer.

use std::collections::HashMap;

use crate::wire::{RpcError, message::MAX_ID, object};

/// How many may wait at once.
const MAX_QUESTIONS: usize = 1024;

/// The child's requests that wait, by their ids as [`key`] has them.
#[derive(Debug, Default)]
pub(super) struct Questions(HashMap<String, PendingQuestion>);

/// A request of the child that waits for an answer.
#[derive(Debug)]
struct PendingQuestion {
    /// The session that it went to.
    seat: u64,
    /// Its progress token, as [`key`] has it.
    token: Option<String>,
}

impl Questions {
    /// Notes a request of the child to a session.
    ///
    /// # Errors
    /// Too many wait, or its id is too long to be kept.
    pub(super) fn ask(&mut self, id: &str, token: Option<&str>, seat: u64) -> Result<(), RpcError> {
        if id.len() > MAX_ID {
            let why = format!("Invalid request: the id is longer than {MAX_ID} bytes");
            return Err(RpcError::invalid_request(why));
        }
        if self.0.len() >= MAX_QUESTIONS {
            let why = format!("limit reached: {MAX_QUESTIONS} requests of the server wait for an answer");
            return Err(RpcError::internal(why));
        }
        // Progress is not passed for a token that is too long to be kept.
        let token = token.filter(|token| token.len() <= MAX_ID).map(key);
        self.0.insert(key(id), PendingQuestion { seat, token });
        Ok(())
    }

    /// Returns whether a request that waits for a session's answer has that raw progress token.
    pub(super) fn expects_progress(&self, seat: u64, token: &str) -> bool {
        let token = key(token);
        self.0.values().any(|asked| asked.seat == seat && asked.token.as_ref() == Some(&token))
    }

    /// Takes a session's answer. Returns whether it is the first one to a request that this session got.
    pub(super) fn answer(&mut self, seat: u64, id: &str) -> bool {
        let key = key(id);
        self.0.get(&key).is_some_and(|asked| asked.seat == seat) && self.0.remove(&key).is_some()
    }

    /// Forgets a request that the child withdraws. Returns the session that got it.
    pub(super) fn withdraw(&mut self, id: &str) -> Option<u64> {
        self.0.remove(&key(id)).map(|asked| asked.seat)
    }

    /// Forgets the requests to a session that has gone. Returns their raw ids.
    pub(super) fn forget(&mut self, seat: u64) -> Vec<String> {
        self.0.extract_if(|_, asked| asked.seat == seat).map(|(id, _)| id).collect()
    }
}

/// Returns an id in one form, however its text is escaped.
fn key(id: &str) -> String {
    object::unquote(id).map_or_else(|| id.to_owned(), |text| object::quote(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 1;

    #[test]
    fn a_progress_token_that_is_too_long_is_not_remembered() {
        let mut questions = Questions::default();
        let token = |length: usize| format!("\"{}\"", "t".repeat(length - 2));
        questions.ask("1", Some(&token(MAX_ID)), ANN).unwrap();
        questions.ask("2", Some(&token(MAX_ID + 1)), ANN).unwrap();
        assert!(
            questions.expects_progress(ANN, &token(MAX_ID)) && !questions.expects_progress(ANN, &token(MAX_ID + 1))
        );
    }

    #[test]
    fn questions_are_bounded() {
        let mut questions = Questions::default();
        let error = |asked: Result<(), RpcError>| asked.expect_err("too much").message;
        let long = format!("\"{}\"", "q".repeat(MAX_ID));
        assert!(error(questions.ask(&long, None, ANN)).contains("longer than 1024 bytes"));
        assert!((0..MAX_QUESTIONS).all(|id| questions.ask(&id.to_string(), None, ANN).is_ok()));
        assert!(error(questions.ask("one more", None, ANN)).contains("limit reached: 1024 requests"));
    }
}
