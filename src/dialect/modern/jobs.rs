//! Clients that do not declare the tasks extension: heartbeats, calls that become jobs, and the tools for jobs.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::{
    Answer, ClientRequest, Modern, Refused, SERVER_INFO,
    adoptable::{Adoptable, Form},
    input::{input_request, input_responses},
    pieces::{PieceWriter, pieces},
    reply,
    run::{Over, Run},
    translate,
};
use crate::{
    config::Tool,
    dialect::tools::{JobAdoption, JobPlace, NotAdopted, RETRY, Told, Wait},
    task::CallSession,
    upstream::{Failure, Lease, may_be_job_tool},
    wire::{Parts, RpcError, ids, object::quote, params::unambiguous, response::result_response},
};

/// Returns whether a call may be one of a tool for jobs.
pub(super) fn may_be_called(request: &ClientRequest) -> bool {
    request.subject.as_deref().is_some_and(may_be_job_tool)
}

impl Run {
    /// Sends the heartbeat that is due.
    pub(super) fn beat(&mut self) {
        let (caller, name) = (&self.request.caller, self.request.subject.as_deref().unwrap_or_default());
        let progress = self.text.as_deref().filter(|text| !text.is_empty());
        let text = self.modern.tools.in_words(caller, self.session(), name, self.since.elapsed(), progress);
        if let Some(heartbeat) = &mut self.heartbeat {
            self.to.say(heartbeat.beat(&text));
        }
    }

    /// Makes a job of the call. `None` where it cannot be one now: the call goes on as it is.
    pub(super) async fn become_job(&mut self, name: Arc<str>, tool: Arc<Tool>) -> Option<Over> {
        let job = JobAdoption {
            caller: &self.request.caller,
            session: self.lease.guard.get(),
            name: Arc::clone(&name),
            tool: Arc::clone(&tool),
            since: self.since,
            progress: self.progress,
            text: self.text.clone().filter(|text| !text.is_empty()),
            call_session: CallSession::Pooled(self.lease.hold()),
            headers: self.request.headers_for(self.lease.pooled.generation),
            request: self.request_to_repeat(),
            admission: None,
        };
        match self.modern.tools.adopt(job).await {
            Ok(job) => {
                self.call.leave_to_task();
                let document = match told(&Told { text: job.text, is_error: false }, &self.request, &self.lease) {
                    Ok(document) => document,
                    Err(failure) => RpcError::from(&failure).to_response(Some(&self.request.id)).into(),
                };
                self.to.respond(StatusCode::OK, document);
                Some(Over::Adopted(Box::new(job.adopted)))
            }
            Err(NotAdopted::NoTurn) => {
                self.adoptable = Some(Adoptable { name, tool, form: Form::Job });
                self.adopt_at = Instant::now() + RETRY;
                None
            }
            Err(NotAdopted::Refused) => None,
        }
    }
}

impl Modern {
    /// Answers a call of a tool for jobs. Gives the request back where it calls another tool.
    pub(super) async fn job_tool(
        self: &Arc<Self>,
        request: ClientRequest,
    ) -> Result<Result<Answer, ClientRequest>, Refused> {
        let in_flight = self.begin(&request)?;
        let lease = self.lease(&request, false).await?;
        let session = lease.guard.get();
        if !session.tools().are_listed() {
            // A server that does not tell now is taken to have no such tool.
            let _ = session.learn_tools(&request.headers).await;
        }
        let called = session.tools().job_tools();
        let called = called.and_then(|names| Some((names.find(request.subject.as_deref()?)?, names)));
        let Some((tool, names)) = called else { return Ok(Err(request)) };
        let place = JobPlace { caller: Arc::clone(&request.caller), session: Arc::clone(session), names };
        let answers = input_responses(&request.message)?;
        let wait = match self.tools.ask(&place, &request.message, tool).await {
            Ok(wait) => wait,
            Err(words) => return Ok(Ok(whole(told(&words, &request, &lease), &request))),
        };
        for (key, result) in answers {
            let Some(question) = ids::parse(&key) else { continue };
            let owner = &request.caller.owner;
            for job in wait.jobs() {
                let (result, headers) = (result.clone(), request.headers.clone());
                self.engine.answer_in_task(owner, job, question, move |theirs| reply(theirs, &result), headers).await;
            }
        }
        let (to, from) = pieces(&self.capacity, &self.observer);
        tokio::spawn(async move {
            let _in_flight = in_flight;
            tokio::select! {
                // Its client has left. The jobs go on.
                () = to.left() => {}
                document = waited(wait, &request, &lease, &to) => to.respond(StatusCode::OK, document),
            }
        });
        let answer = from.answer().await;
        Ok(Ok(answer.ok_or_else(|| RpcError::internal("the request was given up"))?))
    }
}

/// Waits for jobs, and tells progress meanwhile. Returns the response.
async fn waited(mut wait: Wait, request: &ClientRequest, lease: &Lease, to: &PieceWriter) -> Parts {
    let token = request.message.params().and_then(|params| unambiguous(params).ok()).and_then(|(_, meta)| meta);
    let token = token.and_then(|meta| meta.get("progressToken"));
    let mut progress = 0;
    while !wait.is_over().await {
        let open = wait.questions();
        if !open.is_empty() {
            // The retry waits on.
            let requests: Vec<_> = open.iter().map(|it| input_request(&it.id.to_string(), &it.request)).collect();
            let result = format!(
                r#"{{"resultType":"input_required","inputRequests":{{{}}},"_meta":{{"{SERVER_INFO}":{}}}}}"#,
                requests.join(","),
                lease.pooled.facts.server_info
            );
            return result_response(&request.id, &result).into();
        }
        if let Some(token) = token
            && let Some(text) = wait.progress()
        {
            progress += 1;
            let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{}}}"#, quote(&text));
            let told = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
            to.tell(told.into()).await;
        }
        wait.pause().await;
    }
    match translate::kept_result(&wait.answer().await, request, &lease.pooled.facts) {
        Ok(document) => document,
        Err(why) => RpcError::from(&Failure::BadAnswer(why)).to_response(Some(&request.id)).into(),
    }
}

/// Returns the response that tells a model something.
fn told(told: &Told, request: &ClientRequest, lease: &Lease) -> Result<Parts, Failure> {
    translate::kept_result(&told.to_raw().into(), request, &lease.pooled.facts).map_err(Failure::BadAnswer)
}

fn whole(document: Result<Parts, Failure>, request: &ClientRequest) -> Answer {
    match document {
        Ok(document) => document.into(),
        Err(failure) => Parts::from(RpcError::from(&failure).to_response(Some(&request.id))).into(),
    }
}
