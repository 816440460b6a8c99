//! `tools/call`, and the requests that only pass.

use std::{sync::Arc, time::Duration};

use super::{
    Answer, ClientRequest, Modern, Polled, Refused,
    adoptable::{Adoptable, Form},
    input::check_pages,
    jobs,
    onward::{Sent, Whose},
    tasks,
};
use crate::{
    config::Support,
    limit::Rated,
    task::{AskedTtl, CallSession, NewTask, ToolCall},
    upstream::Generation,
    wire::{RpcError, excerpt, object::Members},
};

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
        check_pages(&request.message)?;
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
        request: Box<ClientRequest>,
        generation: Generation,
    ) -> Result<Answer, Refused> {
        let name = request.subject.clone();
        let name = name.ok_or_else(|| RpcError::bad_params("params.name must be a string"))?;
        if !request.has_state && !generation.is_modern() {
            check_pages(&request.message)?;
        }
        let tool = request.caller.upstream.policy.tool(&name);
        match (tool.support, request.meta.tasks) {
            (Support::Required, false) => {
                let why = format!("the tool {:?} can only be called as a task", excerpt(&name));
                return Err(Refused::tasks_extension(&why));
            }
            (Support::Optional, false) if request.gets_jobs(generation) && tool.becomes_job_after().is_some() => {
                return self.run(request, true, Some(Adoptable { name, tool, form: Form::Job, counted: false })).await;
            }
            (Support::Forbidden, _) | (Support::Optional, false) => return self.run(request, true, None).await,
            (Support::Required | Support::Optional, true) => {}
        }
        let at_once = tool.support == Support::Required || tool.task_after == Duration::ZERO;
        let permit = if at_once { None } else { self.engine.permit_now(&request.caller, &name, &tool) };
        match permit {
            Some(permit) => {
                let form = Form::Task(Arc::new(permit));
                self.run(request, true, Some(Adoptable { name, tool, form, counted: false })).await
            }
            // Where no turn is free, the call waits for one as a task.
            None => Box::pin(self.create(request, generation, name, tool)).await,
        }
    }

    /// Creates a task at once.
    pub(super) async fn create(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        generation: Generation,
        name: Arc<str>,
        tool: Arc<crate::config::Tool>,
    ) -> Result<Answer, Refused> {
        let counted = request.caller.account.count(Rated::Creation);
        counted.map_err(|often| Refused::too_often(&often))?;
        // The queue counts it from its creation on.
        self.begin(&mut request)?;
        // What is known of the server may be forgotten meanwhile: the form is that of the session.
        let (session, generation) = if request.caller.upstream.shares(request.caller.client) {
            let lease = self.lease(&request, true).await?;
            (CallSession::Pooled(lease.hold()), lease.pooled.generation)
        } else {
            (CallSession::Later, generation)
        };
        let Sent { message, headers } = request.sent(generation, Whose::Ours)?;
        let announced = request.caller.upstream.status_notifications;
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let call = ToolCall { message, headers, modern: generation.is_modern() };
        let created = self.engine.create(&request.caller, session, call, wanted).await;
        let created = created.map_err(|why| RpcError::internal(why.to_string()))?;
        // Where the runner has ended, the task was cancelled meanwhile.
        let _ = created.start.send(());
        Ok(request.result(&tasks::created(&created.task, &created.outlook)))
    }
}

/// Returns `params.requestState`, if there is one.
fn request_state(request: &ClientRequest) -> Result<Option<String>, RpcError> {
    let params = request.message.params().filter(|_| request.has_state).map(Members::parse).transpose();
    let Some(params) = params.map_err(RpcError::bad_params)? else { return Ok(None) };
    match params.get("requestState") {
        None => Ok(None),
        Some(_) => match params.text("requestState") {
            Some(state) => Ok(Some(state.into_owned())),
            None => Err(RpcError::bad_params("params.requestState must be a string")),
        },
    }
}
