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
    /// Makes a task or a job of the call. `None` where there is no room for one now: the call goes on as it is.
    pub(super) async fn adopt(&mut self) -> Option<Over> {
        let Adoptable { name, tool, form, counted } = self.adoptable.take()?;
        let held = match form {
            Form::Task(held) => held,
            Form::Job => return self.become_job(name, tool, counted).await,
        };
        let later =
            |counted| Adoptable { name: Arc::clone(&name), tool: Arc::clone(&tool), form: Form::Task(None), counted };
        let caller = Arc::clone(&self.request.caller);
        let Some(permit) = held.or_else(|| self.modern.engine.permit_now(&caller, &name, &tool)) else {
            self.adopt_later(later(counted));
            return None;
        };
        if !counted {
            // Where it would be one too many, the call goes on as it is.
            caller.account.count(Rated::Creation).ok()?;
        }
        let later = later(true);
        let announced = caller.upstream.status_notifications;
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let session = CallSession::Pooled(self.lease.hold());
        let (since, progress, text) = (self.since, self.progress, self.text.clone());
        let headers = self.request.headers_for(self.lease.pooled.generation);
        let adoption = Adoption { permit, since, progress, text, headers, request: self.request_to_repeat() };
        match self.modern.engine.adopt(&caller, session, wanted, adoption).await {
            Ok(adopted) => {
                let result = tasks::created(&adopted.task, &adopted.outlook);
                let document = result_response(&self.request.id, &result);
                self.to.respond(StatusCode::OK, document.into());
                Some(Over::Adopted(Box::new(adopted)))
            }
            Err(NotCreated::Unavailable) => {
                self.adopt_later(later);
                None
            }
            Err(NotCreated::Turns(..) | NotCreated::Kept(_) | NotCreated::Stopping) => None,
        }
    }

    /// Has the call become something else later, as the store does not answer, or no turn is free.
    pub(super) fn adopt_later(&mut self, adoptable: Adoptable) {
        self.adoptable = Some(adoptable);
        self.adopt_at = Instant::now() + RETRY;
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
