//! A call that takes long becomes a task.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::{
    Polled,
    adoptable::{Adoptable, Became, Becoming, Form},
    run::{Over, Run},
    tasks,
};
use crate::{
    dialect::tools::{NotAdopted, RETRY},
    limit::Rated,
    task::{Adoption, AskedTtl, CallSession, NewTask, Trying},
    wire::Message,
};

impl Run {
    /// Begins to make a task or a job of the call. Where there is no room for one now, the call goes on as it is.
    pub(super) fn adopt(&mut self) {
        let Some(Adoptable { name, tool, form, counted }) = self.adoptable.take() else { return };
        let permit = match form {
            Form::Task(permit) => permit,
            Form::Job => return self.become_job(name, tool, counted),
        };
        let caller = Arc::clone(&self.request.caller);
        if !counted && caller.account.count(Rated::Creation).is_err() {
            return self.adopt_later(Adoptable { name, tool, form: Form::Task(permit), counted });
        }
        let form = Form::Task(permit.clone());
        let next = Adoptable { name: Arc::clone(&name), tool: Arc::clone(&tool), form, counted: true };
        let announced = caller.upstream.status_notifications;
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let session = CallSession::Pooled(self.lease.hold());
        let (since, progress, text) = (self.since, self.progress, self.text.clone());
        let headers = self.request.headers_for(self.lease.pooled.generation);
        let adoption = Adoption { permit, since, progress, text, headers, request: self.request_to_repeat() };
        let engine = Arc::clone(&self.modern.engine);
        let trying = Trying::new(async move {
            let adopted = engine.adopt(&caller, session, wanted, adoption).await?;
            Ok(Became { adopted, words: None })
        });
        self.becoming = Some(Becoming { trying, next });
    }

    /// Takes in what has become of a try. `None` where the call goes on as it is.
    pub(super) fn tried(&mut self, tried: Result<Became, NotAdopted>) -> Option<Over> {
        let Becoming { next, .. } = self.becoming.take()?;
        match tried {
            Ok(Became { adopted, words: None }) => {
                let response = tasks::created(self.request.id(), &adopted.task, &adopted.outlook);
                self.to.respond(StatusCode::OK, response);
                Some(Over::Adopted(Box::new(adopted)))
            }
            Ok(Became { adopted, words: Some(words) }) => {
                self.tell_job(words);
                Some(Over::Adopted(Box::new(adopted)))
            }
            Err(NotAdopted::NotNow { counted }) => {
                self.adopt_later(Adoptable { counted, ..next });
                None
            }
            Err(NotAdopted::Refused) => None,
        }
    }

    /// Ends a try, because the call asks or is over. It may become something else later.
    pub(super) fn stop_trying(&mut self) {
        if let Some(Becoming { next, .. }) = self.becoming.take() {
            self.adopt_later(next);
        }
    }

    /// Schedules another try, because the store does not answer, the owner creates too many tasks, or no turn is free for
    /// a job.
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
        self.request.message_for(generation, self.request.whose(generation)).ok()
    }
}
