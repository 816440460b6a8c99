//! `tools/call`, and the requests that only pass.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::{
    Answer, ClientRequest, Modern, Polled, Refused,
    adoptable::{Adoptable, Form},
    input::check_pages,
    jobs,
    leases::Opened,
    onward::{Sent, Whose},
    tasks,
};
use crate::{
    config::{Support, Tool},
    limit::{Permit, Rated},
    task::{AskedTtl, CallSession, NewTask, ToolCall},
    upstream::Generation,
    wire::{RpcError, excerpt, object::Members},
};

/// How long a call that can be a task waits for a session, though it is to be a task sooner: a server that refuses one
/// may ask its client to log in.
const OPENS_WITHIN: Duration = Duration::from_secs(1);

impl Modern {
    /// Passes a request that is never asked about.
    pub(super) async fn pass(self: &Arc<Self>, request: Box<ClientRequest>) -> Result<Answer, Refused> {
        self.run(request, false, None).await
    }

    /// Passes a request to a legacy server, which may ask in the course of it.
    pub(super) async fn pass_or_resume(self: &Arc<Self>, request: Box<ClientRequest>) -> Result<Answer, Refused> {
        if let Some(state) = request_state(&request)? {
            return Box::pin(self.resume(request, &state)).await;
        }
        check_pages(&request)?;
        self.run(request, true, None).await
    }

    /// Calls a tool: plainly, or as a task, at once or when it has run for a while.
    pub(super) async fn call_tool(self: &Arc<Self>, request: Box<ClientRequest>) -> Result<Answer, Refused> {
        if let Some(state) = request_state(&request)? {
            return Box::pin(self.resume(request, &state)).await;
        }
        self.start_tool(request, Generation::Legacy).await
    }

    /// Calls a tool with a request that goes to the server, or one of the tools for jobs.
    pub(super) async fn start_tool(
        self: &Arc<Self>,
        request: Box<ClientRequest>,
        generation: Generation,
    ) -> Result<Answer, Refused> {
        if request.gets_jobs(generation) && jobs::may_be_called(&request) {
            match Box::pin(self.job_tool(request)).await? {
                Ok(answer) => return Ok(answer),
                Err(other) => return self.call_server_tool(other, generation).await,
            }
        }
        self.call_server_tool(request, generation).await
    }

    async fn call_server_tool(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        generation: Generation,
    ) -> Result<Answer, Refused> {
        let name = request.subject.clone();
        let name = name.ok_or_else(|| RpcError::bad_params("params.name must be a string"))?;
        if !request.retry.state && !generation.is_modern() {
            check_pages(&request)?;
        }
        let tool = request.caller.upstream.policy.tool(&name);
        match (tool.support, request.meta.tasks) {
            (Support::Required, false) => {
                let why = format!("the tool {:?} can only be called as a task", excerpt(&name));
                return Err(Refused::tasks_extension(&why));
            }
            (Support::Optional, false) if request.gets_jobs(generation) && tool.becomes_job_after().is_some() => {
                let tool = Arc::clone(tool);
                return self.run(request, true, Some(Adoptable { name, tool, form: Form::Job, counted: false })).await;
            }
            (Support::Forbidden, _) | (Support::Optional, false) => return self.run(request, true, None).await,
            (Support::Required | Support::Optional, true) => {}
        }
        let tool = Arc::clone(tool);
        let at_once = tool.support == Support::Required || tool.task_after == Duration::ZERO;
        let turn = self.engine.permit_now(&request.caller, &name, &tool);
        self.begin(&mut request)?;
        let turn = match turn {
            Some(turn) if !at_once => turn,
            // Where no turn is free, the call waits for one as a task.
            turn => return Box::pin(self.create_at_once(&request, generation, (name, tool), turn)).await,
        };
        let mut counted = false;
        let lease = match self.lease_until(&request, request.came + tool.task_after.max(OPENS_WITHIN)).await? {
            Opened::Open(lease) => lease,
            Opened::Pending(pending) => {
                counted = request.caller.account.count(Rated::Creation).is_ok();
                let (session, named) = (CallSession::Pending(pending.clone()), (Arc::clone(&name), Arc::clone(&tool)));
                if counted
                    && let Ok(task) =
                        Box::pin(self.create(&request, session, generation, named, Some(turn.clone()))).await
                {
                    return Ok(task);
                }
                // A limit lets it become no task now, and it goes on as it is.
                self.opened(&request, &pending).await?
            }
        };
        request.opened = Some(Arc::new(lease));
        self.run(request, true, Some(Adoptable { name, tool, form: Form::Task(turn), counted })).await
    }

    /// Creates a task for a call that waits for its turn, or whose tool is always called as a task.
    async fn create_at_once(
        self: &Arc<Self>,
        request: &ClientRequest,
        generation: Generation,
        tool: (Arc<str>, Arc<Tool>),
        turn: Option<Permit>,
    ) -> Result<Answer, Refused> {
        let counted = request.caller.account.count(Rated::Creation);
        counted.map_err(|often| Refused::too_often(&often))?;
        let upstream = &request.caller.upstream;
        // A call that waits for its turn keeps no process from the others.
        let opens = turn.is_some() || !upstream.server.is_process();
        let (session, generation) = if opens && upstream.shares(request.caller.client) {
            match self.lease_until(request, request.came + OPENS_WITHIN).await? {
                // What is known of the server may be forgotten meanwhile: the form is that of the session.
                Opened::Open(lease) => (CallSession::Pooled(lease.hold()), lease.pooled.generation),
                Opened::Pending(pending) => (CallSession::Pending(pending), generation),
            }
        } else {
            (CallSession::Later, generation)
        };
        Ok(self.create(request, session, generation, tool, turn).await?)
    }

    /// Creates a task, with a turn if its call has one.
    async fn create(
        self: &Arc<Self>,
        request: &ClientRequest,
        session: CallSession,
        generation: Generation,
        (name, tool): (Arc<str>, Arc<Tool>),
        turn: Option<Permit>,
    ) -> Result<Answer, RpcError> {
        let Sent { message, headers } = request.sent(generation, Whose::Ours)?;
        let announced = request.caller.upstream.status_notifications;
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let call = ToolCall { message, headers, modern: generation.is_modern() };
        let created = self.engine.create(&request.caller, session, call, wanted, turn).await;
        let created = created.map_err(|why| RpcError::internal(why.to_string()))?;
        // Where the runner has ended, the task was cancelled meanwhile.
        let _ = created.start.send(());
        Ok(tasks::created(request.id(), &created.task, &created.outlook).into())
    }
}

/// Returns `params.requestState`, if there is one. What is no text is none that is good.
fn request_state(request: &ClientRequest) -> Result<Option<String>, RpcError> {
    if !request.retry.state {
        return Ok(None);
    }
    let params = request.message.params().map(Members::parse).transpose().map_err(RpcError::bad_params)?;
    Ok(params.map(|params| params.text("requestState").map_or_else(String::new, Cow::into_owned)))
}
