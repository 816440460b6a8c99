//! A call that takes long becomes a task.

use http::StatusCode;

use super::{
    Piece, Polled,
    adoptable::{Adoptable, Form},
    run::{Over, Run},
    tasks,
};
use crate::{
    limit::Rated,
    task::{Adoption, AskedTtl, NewTask},
    wire::response::result_response,
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
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let upstream_session = self.session().hold();
        let (progress, text) = (self.progress, self.text.take());
        let adoption = Adoption { permit, since: self.since, progress, text, headers: self.request.headers.clone() };
        match self.modern.engine.adopt(&self.request.caller, upstream_session, wanted, adoption).await {
            Ok(adopted) => {
                let result = tasks::created(&adopted.task, &adopted.outlook);
                let document = result_response(&self.request.id, &result);
                let _ = self.to.send(Piece::Response(StatusCode::OK, document.into())).await;
                Some(Over::Adopted(Box::new(adopted)))
            }
            Err(_) => None,
        }
    }
}
