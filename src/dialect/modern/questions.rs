//! What a server asks in the course of a call that is no task: the call is parked, and goes on with the client's retry
//! ("Multi Round-Trip Requests").

use std::{collections::HashMap, time::Duration};

use http::StatusCode;
use tokio::{sync::oneshot, time::Instant};

use super::{
    SERVER_INFO,
    adoptable::Form,
    hosts::heartbeat_of,
    input::input_request,
    parked::{Place, Retry},
    request_state::Opened,
    run::{Over, Run},
};
use crate::{
    flow::Item,
    limit::KeptBytes,
    observe::events,
    upstream::{ExchangeEnd, Failure, ServerEvent, UpstreamResponse},
    wire::{Asks, Message, Method, response::result_response},
};

impl Run {
    /// Sends the user to the pages that the server's error names. A retry is a call of its own.
    pub(super) fn send_to(&mut self, requests: &str) -> Over {
        if !self.request.caller.client.elicitation_url {
            self.lacks.add(Asks::Url);
            return self.lack(None);
        }
        let server_info = &self.lease.pooled.facts.server_info;
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{requests},"_meta":{{"{SERVER_INFO}":{server_info}}}}}"#
        );
        let document = result_response(self.request.id(), &result);
        self.respond(document.into())
    }

    /// Refuses the request for what its client lacks, with what the server said when the call failed.
    pub(super) fn lack(&mut self, words: Option<&str>) -> Over {
        self.to.refuse(self.lacks.refusal(words), self.request.id());
        Over::Done
    }

    /// Asks the client, and waits for the retry that answers.
    pub(super) async fn park(&mut self) -> Option<Over> {
        let Some(mut place) = self.modern.parking.place(&self.request.caller.owner) else {
            self.modern.observer.emit(events::CallNotAsked { reason: "parked_calls" });
            self.give_up("limit reached: too many calls wait for answers of their client").await;
            return None;
        };
        loop {
            let asked = self.questions.iter().map(|it| (it.key.clone(), it.request.method())).collect();
            let retried = place.park(self.request.in_flight.take(), asked);
            if let Err(over) = self.ask(&place) {
                return Some(over);
            }
            let retry = match self.wait(retried).await {
                Ok(retry) => retry,
                Err(over) => return Some(over),
            };
            (self.request, self.to) = (retry.request, retry.to);
            self.call.progress_token = retry.progress_token;
            // Each request says anew what its client can be asked, and whether it may be answered with a task.
            let (client, declares_tasks) = (self.request.caller.client, self.request.meta.tasks);
            self.lacks.forget_declared(client);
            self.adoptable.take_if(|adoptable| matches!(adoptable.form, Form::Task(_)) != declares_tasks);
            if let Some(adoptable) = &self.adoptable {
                self.adopt_at = Instant::now() + adoptable.after();
            }
            self.heartbeat = heartbeat_of(&self.request, &self.call);
            if let Some(level) = self.request.meta.log_level {
                Box::pin(self.lease.log_from(level, &self.request.headers)).await;
            }
            self.answer(retry.answers).await;
            if self.questions.is_empty() {
                return None;
            }
        }
    }

    /// Answers the request with the open questions.
    fn ask(&mut self, place: &Place) -> Result<(), Over> {
        let expires = self.modern.engine.now() + u64::try_from(self.input_timeout().as_millis()).unwrap_or(u64::MAX);
        let bound = self.request.bound();
        let Ok(state) = self.modern.seals.seal(Opened { call: place.call(), expires }, bound) else {
            return Err(self.fail(&Failure::Abandoned));
        };
        let requests: Vec<_> = self.questions.iter().map(|it| input_request(&it.key, &it.request)).collect();
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":"{state}","_meta":{{"{}":{}}}}}"#,
            requests.join(","),
            SERVER_INFO,
            self.lease.pooled.facts.server_info
        );
        let document = result_response(self.request.id(), &result);
        // Asked before the response is there: the client takes that at once, and counts as gone from then on.
        if self.to.has_left() {
            return Err(Over::Left);
        }
        self.to.respond(StatusCode::OK, document.into());
        Ok(())
    }

    /// Returns how long its client may take to answer.
    fn input_timeout(&self) -> Duration {
        // For what is no tool, what holds for all tools, which a pattern `*` may set.
        let tool = self.request.subject.as_deref().filter(|_| self.request.method == Method::ToolsCall).unwrap_or("*");
        self.request.caller.upstream.policy.tool(tool).input_timeout
    }

    /// Waits for the retry, while the server may go on by itself.
    async fn wait(&mut self, mut retried: oneshot::Receiver<Retry>) -> Result<Retry, Over> {
        let input_timeout = self.input_timeout();
        let until = Instant::now() + input_timeout;
        let mut ended = None;
        loop {
            // A call that has ended takes no longer.
            let timeout = self.timeout.filter(|(_, at)| ended.is_none() && *at < until);
            tokio::select! {
                biased;
                retry = &mut retried => {
                    let Ok(retry) = retry else { return Err(Over::Left) };
                    if let Some((ending, _kept)) = ended {
                        (self.request, self.to) = (retry.request, retry.to);
                        return Err(self.end(ending).await);
                    }
                    return Ok(retry);
                }
                item = self.call.exchange.next(), if ended.is_none() => match item {
                    Some(Item::End(ending)) => ended = Some(self.keep(ending)),
                    Some(Item::Message(message)) => self.take_parked(message).await,
                    Some(Item::Silence | Item::Pause(_)) => {}
                    None => ended = Some((Err(Failure::Abandoned), None)),
                },
                () = tokio::time::sleep_until(timeout.map_or(until, |(_, at)| at)) => {
                    let (name, limit) =
                        timeout.map_or(("input_timeout", input_timeout), |(limit, _)| ("timeout", limit));
                    let limit = humantime::format_duration(limit);
                    self.give_up(&format!("The client did not answer within {name} = {limit}")).await;
                    return Err(Over::Left);
                }
            }
        }
    }

    /// Keeps an answer that has come while its client is being asked, if there is room.
    fn keep(&self, ending: ExchangeEnd) -> (ExchangeEnd, Option<KeptBytes>) {
        let Ok(UpstreamResponse::Whole(answer)) = &ending else { return (ending, None) };
        match self.modern.in_flight.keep(&self.request.caller.account, answer.bytes().len()) {
            Ok(kept) => (ending, Some(kept)),
            Err(why) => (Err(Failure::Limit(format!("limit reached: {why}"))), None),
        }
    }

    /// Takes in what the server says while no request of the client is open.
    async fn take_parked(&mut self, message: Message) {
        let event = self.session().event(&self.call, &message);
        match event {
            ServerEvent::Asks(_)
            | ServerEvent::Withdraws(_)
            | ServerEvent::AnsweredHere(_)
            | ServerEvent::Changes
            | ServerEvent::Nothing => self.take(message).await,
            ServerEvent::Progress { progress, text, .. } if progress > self.progress => {
                (self.progress, self.text) = (progress, Some(text));
            }
            ServerEvent::Progress { .. } | ServerEvent::Says => {}
        }
    }

    /// Passes on the answers that there are. What is not answered stays open.
    async fn answer(&mut self, mut answers: HashMap<String, String>) {
        for question in std::mem::take(&mut self.questions) {
            match answers.remove(&question.key) {
                Some(result) => {
                    self.reply(result_response(question.request.id_to_answer(), &result)).await;
                }
                // Each request says anew what its client can be asked.
                None => match Asks::of(&question.request) {
                    Ok(needs) if !self.request.caller.client.can_be_asked(needs) => {
                        self.lacks.add(needs);
                        self.refuse(&question.request, "the client has not declared that it can be asked this").await;
                    }
                    _ => self.questions.push(question),
                },
            }
        }
    }

    /// Answers every open question with an error.
    pub(super) async fn give_up(&mut self, why: &str) {
        for question in std::mem::take(&mut self.questions) {
            self.refuse(&question.request, why).await;
        }
    }
}
