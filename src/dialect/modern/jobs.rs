//! Clients that do not declare the tasks extension: heartbeats, calls that become jobs, and the tools for jobs.

use std::sync::{Arc, LazyLock};

use http::StatusCode;

use super::{
    Answer, ClientRequest, Modern, Refused, SERVER_INFO,
    adoptable::{Adoptable, Became, Becoming, Form},
    input::{input_request, input_responses},
    pieces::{PieceWriter, pieces},
    run::Run,
    translate,
};
use crate::{
    config::Tool,
    dialect::tools::{AdoptedJob, JobAdoption, JobPlace, Told, Wait},
    task::{CallSession, Trying},
    upstream::{Failure, Generation, JobTool, JobToolNames, KnownTools, Lease, Lessee, ServerFacts, may_be_job_tool},
    wire::{Method, Parts, RpcError, response::result_response},
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

    /// Begins to make a job of the call.
    pub(super) fn become_job(&mut self, name: Arc<str>, tool: Arc<Tool>, counted: bool) {
        // A try that its answer overtakes is counted.
        let next = Adoptable { name: Arc::clone(&name), tool: Arc::clone(&tool), form: Form::Job, counted: true };
        let (tools, caller) = (Arc::clone(&self.modern.tools), Arc::clone(&self.request.caller));
        let (session, call_session) = (Arc::clone(self.session()), CallSession::Pooled(self.lease.hold()));
        let (since, progress) = (self.since, self.progress);
        let text = self.text.clone().filter(|text| !text.is_empty());
        let headers = self.request.headers_for(self.lease.pooled.generation);
        let request = self.request_to_repeat();
        let trying = Trying::new(async move {
            let job = JobAdoption {
                caller: &caller,
                session: &session,
                name,
                tool,
                since,
                progress,
                text,
                call_session,
                headers,
                request,
                admission: None,
                counted,
            };
            let AdoptedJob { adopted, text } = tools.adopt(job).await?;
            Ok(Became { adopted, words: Some(text) })
        });
        self.becoming = Some(Becoming { trying, next });
    }

    /// Tells the client that the call is a job, to which it is left.
    pub(super) fn tell_job(&mut self, text: String) {
        self.call.leave_to_task();
        let document = match told(&Told { text, is_error: false }, &self.request, Some(&self.lease)) {
            Ok(document) => document,
            Err(failure) => RpcError::from(&failure).to_response(Some(self.request.id())).into(),
        };
        self.to.respond(StatusCode::OK, document);
    }
}

impl Modern {
    /// Answers a call of a tool for jobs. Gives the request back where it calls another tool.
    pub(super) async fn job_tool(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
    ) -> Result<Result<Answer, Box<ClientRequest>>, Refused> {
        self.begin(&mut request)?;
        let caller = &request.caller;
        let lessee = Lessee { owner: &caller.owner, client: caller.client, headers: &request.headers };
        if let Some(tools) = caller.upstream.tools_apart(lessee)
            && let Some((tool, names)) = self.called_apart(&request, &tools).await
        {
            let answer = self.answer_job_tool(request, None, Some(tools), (tool, names)).await;
            return answer.map(Ok);
        }
        let lease = match self.lease(&request, false).await {
            Ok(lease) => lease,
            Err(refused) => return self.job_without_server(request, refused).await.map(Ok),
        };
        let session = lease.guard.get();
        let called = match request.subject.as_deref() {
            Some(name) => self.tools.named(session, name, &request.headers).await,
            None => None,
        };
        let Some((tool, names)) = called else { return Ok(Err(request)) };
        let tools = Arc::clone(session.tools());
        self.answer_job_tool(request, Some(lease), Some(tools), (tool, names)).await.map(Ok)
    }

    /// Returns the tool for jobs that a request calls, as far as that is known without a session: one would be opened
    /// for this question alone.
    async fn called_apart(&self, request: &ClientRequest, tools: &KnownTools) -> Option<(JobTool, JobToolNames)> {
        let name = request.subject.as_deref()?;
        if tools.are_listed() {
            return tools.called(name);
        }
        let names = JobToolNames::with(name)?;
        // No server knows the id of a job.
        let is_ours = self.tools.names_job(&request.caller.owner, &request.message).await;
        is_ours.then(|| names.find(name).map(|tool| (tool, names))).flatten()
    }

    /// Answers a call about a job while there is no session with the server: the job is there all the same. Refuses any
    /// other request as it was `refused`.
    pub(super) async fn job_without_server(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        refused: Refused,
    ) -> Result<Answer, Refused> {
        let name = request.subject.as_deref().filter(|_| request.method == Method::ToolsCall);
        let called = name.and_then(|name| JobToolNames::with(name).and_then(|names| Some((names.find(name)?, names))));
        let called = called.filter(|_| request.gets_jobs(Generation::Legacy));
        let Some((tool, names)) = called else { return Err(refused) };
        // Where it names none, it may be a call of the server's own tool.
        if !self.tools.names_job(&request.caller.owner, &request.message).await {
            return Err(refused);
        }
        self.begin(&mut request)?;
        self.answer_job_tool(request, None, None, (tool, names)).await
    }

    async fn answer_job_tool(
        self: &Arc<Self>,
        request: Box<ClientRequest>,
        lease: Option<Lease>,
        tools: Option<Arc<KnownTools>>,
        (tool, names): (JobTool, JobToolNames),
    ) -> Result<Answer, Refused> {
        let place = JobPlace { caller: Arc::clone(&request.caller), tools, names };
        let mut answers = input_responses(&request.message)?;
        let wait = match self.tools.ask(&place, &request.message, tool).await {
            Ok(wait) => wait,
            Err(words) => return Ok(whole(told(&words, &request, lease.as_ref()), &request)),
        };
        for job in wait.jobs() {
            self.answer_open(&request, job, &mut answers).await?;
        }
        let (to, from) = pieces(&self.capacity, &self.observer);
        tokio::spawn(async move {
            tokio::select! {
                // Its client has left. The jobs go on.
                () = to.left() => {}
                document = waited(wait, &request, lease.as_ref(), &to) => to.respond(StatusCode::OK, document),
            }
        });
        from.answer().await
    }
}

/// Waits for jobs, and tells progress meanwhile. Returns the response.
async fn waited(mut wait: Wait, request: &ClientRequest, lease: Option<&Lease>, to: &PieceWriter) -> Parts {
    loop {
        let is_over = wait.is_over().await;
        // What is open is asked, however short the wait.
        let open = wait.questions();
        if !open.is_empty() {
            // The retry waits on.
            let requests: Vec<_> = open.iter().map(|it| input_request(&it.id.to_string(), &it.request)).collect();
            let result = format!(
                r#"{{"resultType":"input_required","inputRequests":{{{}}},"_meta":{{"{SERVER_INFO}":{}}}}}"#,
                requests.join(","),
                facts(lease).server_info
            );
            return result_response(request.id(), &result).into();
        }
        if is_over {
            break;
        }
        if let Some(progress) = wait.progress() {
            to.tell(progress).await;
        }
        wait.pause().await;
    }
    match translate::kept_result(&wait.answer().await, request, facts(lease)) {
        Ok(document) => document,
        Err(why) => RpcError::from(&Failure::BadAnswer(why)).to_response(Some(request.id())).into(),
    }
}

/// Returns what the server said of itself. While there is no session with it, taskgate speaks for itself.
fn facts(lease: Option<&Lease>) -> &ServerFacts {
    static OWN: LazyLock<ServerFacts> = LazyLock::new(ServerFacts::own);
    lease.map_or_else(|| &*OWN, |lease| &lease.pooled.facts)
}

/// Returns the response that tells a model something.
fn told(told: &Told, request: &ClientRequest, lease: Option<&Lease>) -> Result<Parts, Failure> {
    translate::kept_result(&told.to_raw().into(), request, facts(lease)).map_err(Failure::BadAnswer)
}

fn whole(document: Result<Parts, Failure>, request: &ClientRequest) -> Answer {
    match document {
        Ok(document) => document.into(),
        Err(failure) => Parts::from(RpcError::from(&failure).to_response(Some(request.id()))).into(),
    }
}
