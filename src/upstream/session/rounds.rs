//! Calls that a modern server answers with questions ("Multi Round-Trip Requests"): each question becomes a request of
//! the server, and the answers go up with the retry, as the same call going on.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ::http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Call, ServerQuestion, UpstreamSession};
use crate::{
    upstream::{Failure, Outgoing, Purpose},
    wire::{
        Asks, ClientCapabilities, Message, Method,
        input_required::{InputRequired, ResultType, retry},
        legacy::question_text,
        message::Outcome,
        object::quote,
    },
};

/// How many questions a server may ask at once.
const MAX_QUESTIONS: usize = 64;
/// How long a call waits that its server has put off without a question.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the answers to open questions go, by the raw id of the question.
#[derive(Debug, Default)]
pub(super) struct Rounds(Mutex<HashMap<Box<str>, mpsc::Sender<Answer>>>);

/// The answer to a question, and the headers that came with it.
type Answer = (Message, HeaderMap);

/// How a call goes on whose exchange has ended.
#[derive(Debug)]
pub enum Next {
    /// It has ended with this response.
    Ended(Message),
    /// The server has asked.
    Asks(Round),
}

/// What a server wants to know before a call goes on.
#[derive(Debug)]
pub struct Round {
    rounds: Arc<Rounds>,
    /// The questions that are open: their keys by their raw ids.
    keys: HashMap<Box<str>, Key>,
    /// The questions as requests of the server.
    pub questions: Vec<(Message, ServerQuestion)>,
    /// The answers that there are, by their keys.
    answers: Vec<(String, String)>,
    /// The raw state of the server.
    state: Option<String>,
    /// The headers of the newest of them.
    headers: Option<HeaderMap>,
    answered: mpsc::Receiver<Answer>,
}

/// A question that is open.
#[derive(Debug)]
struct Key {
    key: String,
    method: Method,
}

impl Rounds {
    /// Takes in the answer to a question. One that is not open any more is dropped.
    pub(super) fn answer(&self, response: &Message, headers: HeaderMap) {
        let to = self.0.lock().remove(response.id_to_answer());
        if let Some(to) = to {
            // There is room for an answer to each question.
            let _ = to.try_send((response.clone().compact(), headers));
        }
    }
}

impl UpstreamSession {
    /// Reads how a call goes on that has got `response`. A legacy server asks in the course of a call, and ends it with
    /// a response.
    ///
    /// # Errors
    /// [`Failure`] where the call cannot go on.
    pub fn next(&self, call: &Call, response: Message, client: ClientCapabilities) -> Result<Next, Failure> {
        let Some(rounds) = &self.rounds else { return Ok(Next::Ended(response)) };
        let Some((Outcome::Result, raw)) = response.outcome() else { return Ok(Next::Ended(response)) };
        match ResultType::of(raw).map_err(Failure::BadAnswer)? {
            ResultType::Other(kind) if ["", "task"].contains(&&*kind) => {
                Err(Failure::BadAnswer(format!("a task's call has a result of type {kind:?}")))
            }
            // Extensions have types of their own.
            ResultType::Complete | ResultType::Other(_) => Ok(Next::Ended(response)),
            ResultType::InputRequired(asked) => {
                Round::open(rounds, call.exchange.number, &asked, client).map(Next::Asks)
            }
        }
    }

    /// Sends the retry of a call whose questions are answered. It takes the place of the exchange that has ended. With
    /// `may_renew` the call takes over the credential of the newest answer, as its own may have expired.
    ///
    /// # Errors
    /// [`Failure`] where too many requests are in flight, or the request cannot be written.
    pub fn retry(&self, call: &mut Call, round: &Round, may_renew: bool, max_answer: usize) -> Result<(), Failure> {
        let (sent, headers) = call.sent.as_ref().ok_or(Failure::Abandoned)?;
        let request = Message::parse(sent.clone()).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
        let newest = round.headers.as_ref().filter(|_| may_renew);
        let headers = newest.map_or_else(|| headers.clone(), |newest| renewed(headers, newest));
        let begun = self.inbound.exchanges.begin(None, Purpose::Background);
        let mut exchange = begun.map_err(|too_many| Failure::Limit(too_many.to_string()))?;
        let number = exchange.number;
        let message = retry(&request, number, &round.answers, round.state.as_deref()).map_err(|why| {
            // Nothing else would end it.
            self.inbound.exchanges.cancel(number);
            Failure::BadAnswer(why)
        })?;
        call.sent = Some((message.clone(), headers.clone()));
        exchange.carry(self.link.request(Outgoing { number, message, headers, max_answer, relay: false }));
        call.exchange = exchange;
        Ok(())
    }
}

impl Round {
    fn open(
        rounds: &Arc<Rounds>,
        number: u64,
        asked: &InputRequired<'_>,
        client: ClientCapabilities,
    ) -> Result<Self, Failure> {
        if asked.requests.len() > MAX_QUESTIONS {
            return Err(Failure::BadAnswer(format!("it asks more than {MAX_QUESTIONS} questions at once")));
        }
        let (to, answered) = mpsc::channel(asked.requests.len().max(1));
        let (mut keys, mut questions) = (HashMap::<Box<str>, Key>::new(), Vec::new());
        for (index, request) in asked.requests.iter().enumerate() {
            let id = quote(&format!("taskgate:{number}:{index}"));
            let question = request.to_request(&id).map_err(Failure::BadAnswer)?;
            let needs = Asks::of(&question).map_err(|error| Failure::BadAnswer(error.message))?;
            if !client.can_be_asked(needs) {
                let why = format!("it asks with {:?} what the client has not declared", question.method_name());
                return Err(Failure::BadAnswer(why));
            }
            keys.insert(id.into(), Key { key: request.key.clone(), method: question.method() });
            let text = question_text(&question);
            questions.push((question, ServerQuestion { needs, text }));
        }
        let mut open = rounds.0.lock();
        open.extend(keys.keys().map(|id| (id.clone(), to.clone())));
        drop(open);
        let state = asked.state.map(str::to_owned);
        Ok(Self { rounds: Arc::clone(rounds), keys, questions, answers: Vec::new(), state, headers: None, answered })
    }

    /// Waits until every question is answered. A question that was not is told the server as cancelled by the user.
    ///
    /// # Errors
    /// [`Failure`] where the server cannot be told.
    pub async fn answered(&mut self) -> Result<(), Failure> {
        if self.keys.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        while !self.keys.is_empty() {
            let (response, headers) = self.answered.recv().await.ok_or(Failure::Abandoned)?;
            let Some(Key { key, method }) = self.keys.remove(response.id_to_answer()) else { continue };
            match (response.outcome(), method) {
                (Some((Outcome::Result, raw)), _) => {
                    self.answers.push((key, raw.to_owned()));
                    // An error may be taskgate's own, in the place of a client that does not answer.
                    self.headers = Some(headers);
                }
                // A retry cannot carry an error.
                (_, Method::Elicit) => self.answers.push((key, r#"{"action":"cancel"}"#.to_owned())),
                (outcome, _) => {
                    let why = outcome.and_then(|(_, raw)| crate::wire::legacy::error_message(raw)).unwrap_or_default();
                    return Err(Failure::Unanswered(why));
                }
            }
        }
        Ok(())
    }
}

/// Returns the headers of a retry: those that mirror the call's params stay, and all others are as the client sent them
/// last.
fn renewed(of_call: &HeaderMap, newest: &HeaderMap) -> HeaderMap {
    let mirrors = |name: &HeaderName| name.as_str().starts_with("mcp-");
    let mut renewed = HeaderMap::new();
    for (from, whether) in [(of_call, true), (newest, false)] {
        for (name, value) in from.iter().filter(|(name, _)| mirrors(name) == whether) {
            renewed.append(name, value.clone());
        }
    }
    renewed
}

impl Drop for Round {
    fn drop(&mut self) {
        let mut open = self.rounds.0.lock();
        for id in self.keys.keys() {
            open.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::{upstream::MAX_MESSAGE, wire::RpcError};

    #[test]
    fn questions_over_the_limit_are_refused_and_those_of_a_round_that_is_over_are_forgotten() {
        let rounds = Arc::<Rounds>::default();
        let client = ClientCapabilities { roots: true, ..ClientCapabilities::default() };
        let open = |count| {
            let requests = (0..count).map(|n| format!(r#""q{n}":{{"method":"roots/list"}}"#)).collect::<Vec<_>>();
            let raw = format!(r#"{{"resultType":"input_required","inputRequests":{{{}}}}}"#, requests.join(","));
            let Ok(ResultType::InputRequired(asked)) = ResultType::of(&raw) else { panic!("it asks") };
            Round::open(&rounds, 7, &asked, client)
        };
        assert!(open(MAX_QUESTIONS + 1).is_err());
        let round = open(MAX_QUESTIONS).expect("as many as may be");
        assert_eq!(rounds.0.lock().len(), MAX_QUESTIONS);
        drop(round);
        assert!(rounds.0.lock().is_empty());
    }

    #[test]
    fn a_retry_that_cannot_be_written_leaves_no_request_in_flight() {
        let session = UpstreamSession::nowhere("/mcp");
        let exchange = session.inbound.exchanges.begin(None, Purpose::Background).expect("room");
        session.inbound.exchanges.cancel(exchange.number);
        let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#;
        let sent = Some((twice.into(), HeaderMap::new()));
        let mut call = Call { exchange, progress_token: None, sent, begun: Instant::now() };
        let asked = InputRequired { requests: Vec::new(), state: None };
        let round = Round::open(&Arc::default(), 1, &asked, ClientCapabilities::default()).expect("no question");
        assert!(session.retry(&mut call, &round, false, MAX_MESSAGE).is_err());
        assert!(session.unused_since().is_some());
    }

    #[tokio::test]
    async fn a_question_that_was_refused_is_cancelled_where_that_is_an_answer_and_fails_the_call_elsewhere() {
        for (question, tells) in [
            (r#""elicitation/create","params":{"message":"m","requestedSchema":{}}"#, true),
            (r#""roots/list""#, false),
        ] {
            let rounds = Arc::<Rounds>::default();
            let client = ClientCapabilities { roots: true, elicitation_form: true, ..ClientCapabilities::default() };
            let raw = format!(r#"{{"resultType":"input_required","inputRequests":{{"q":{{"method":{question}}}}}}}"#);
            let Ok(ResultType::InputRequired(asked)) = ResultType::of(&raw) else { panic!("it asks") };
            let mut round = Round::open(&rounds, 7, &asked, client).expect("a question");
            let refusal = RpcError::internal("no answer").to_response(round.questions[0].0.id());
            rounds.answer(&Message::parse(refusal).expect("a response"), HeaderMap::new());
            assert_eq!(round.answered().await.is_ok(), tells);
            assert_eq!(round.answers.len(), usize::from(tells));
        }
    }
}
