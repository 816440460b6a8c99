//! A call that takes long becomes a task.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::{
    Polled,
    adoptable::{Adoptable, Form},
    run::{Over, Run},
    tasks,
};
use crate::{
    dialect::tools::RETRY,
    limit::Rated,
    task::{Adoption, AskedTtl, CallSession, NewTask, NotCreated},
    wire::{Message, response::result_response},
};

impl Run {
    /// Makes a task of the call. `None` where there is no room for one: the call goes on as it is.
    pub(super) async fn adopt(&mut self) -> Option<Over> {
        let Adoptable { name, tool, form } = self.adoptable.take()?;
        let permit = match form {
            Form::Task(permit) => permit,
            Form::Job => return self.become_job(name, tool).await,
        };
        // Where it would be one too many, the call goes on as it is.
        self.request.caller.account.count(Rated::Creation).ok()?;
        let announced = self.request.caller.upstream.status_notifications;
        let (wanted_name, settings) = (Arc::clone(&name), Arc::clone(&tool));
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let session = CallSession::Pooled(self.lease.hold());
        let (since, progress, text) = (self.since, self.progress, self.text.clone());
        let headers = self.request.headers_for(self.lease.pooled.generation);
        let adoption = Adoption { permit, since, progress, text, headers, request: self.request_to_repeat() };
        match self.modern.engine.adopt(&self.request.caller, session, wanted, adoption).await {
            Ok(adopted) => {
                let result = tasks::created(&adopted.task, &adopted.outlook);
                let document = result_response(&self.request.id, &result);
                self.to.respond(StatusCode::OK, document.into());
                Some(Over::Adopted(Box::new(adopted)))
            }
            Err(NotCreated::Unavailable) => {
                // It may become one when the store answers again.
                let permit = self.modern.engine.permit_now(&self.request.caller, &wanted_name, &settings)?;
                self.adoptable = Some(Adoptable { name: wanted_name, tool: settings, form: Form::Task(permit) });
                self.adopt_at = Instant::now() + RETRY;
                None
            }
            Err(NotCreated::Turns(..) | NotCreated::Kept(_) | NotCreated::Stopping) => None,
        }
    }

    /// Returns the request as it was sent, while the server may still refuse it.
    pub(super) fn request_to_repeat(&self) -> Option<Message> {
        if self.sent_again || self.call.exchange.streams() {
            return None;
        }
        let generation = self.lease.pooled.generation;
        self.request.sent(generation, self.request.whose(generation)).ok().map(|sent| sent.message)
    }
}
