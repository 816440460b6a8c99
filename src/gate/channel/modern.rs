//! Requests of clients of revision 2026-07-28 on a channel.

use std::sync::Arc;

use http::HeaderMap;

use super::{Channel, EndsWith};
use crate::{
    dialect::modern::{Answer, Came, Sender},
    wire::{Kind, Message, Method},
};

impl Channel {
    /// Returns whether clients of revision 2026-07-28 are served: the transport of revision 2024-11-05 has none.
    pub(super) fn serves_modern(&self) -> bool {
        self.upstream.modern && self.ends_with != EndsWith::Session
    }

    /// Answers a request of a client without a session. Its `notifications/cancelled` cancels it.
    pub(super) fn take_modern(&mut self, id: Box<str>, message: Message) {
        match (message.kind(), message.method()) {
            (Kind::Notification, Method::Cancelled) => return self.in_flight.cancel(&message),
            // The revision has no other, and no responses.
            (Kind::Notification | Kind::Response, _) => return,
            (Kind::Request, _) => {}
        }
        let Some(cancelled) = self.begin(&id) else { return };
        let (front, output, upstream) = (self.front.clone(), self.output.clone(), Arc::clone(&self.upstream));
        let (in_flight, last) = (self.in_flight.clone(), Arc::clone(&self.last_caller));
        self.answers.push(Box::pin(async move {
            let answering = async {
                let accounts = front.lifecycle.accounts();
                let sender = Sender { upstream: &upstream, principal: None, accounts, last: &last };
                match front.modern.answer(sender, message, Came::Channel, Some(HeaderMap::new())).await {
                    Ok(Answer::Whole(_, document)) => drop(output.answer(&id, document.into_bytes()).await),
                    Ok(Answer::Stream(pieces)) => output.pump(Box::new(pieces), Some(&id)).await,
                    Err(refused) => drop(output.send(refused.to_response(&id)).await),
                }
            };
            tokio::select! {
                () = answering => {}
                () = cancelled.cancelled() => {}
            }
            in_flight.end(&id);
        }));
    }
}
