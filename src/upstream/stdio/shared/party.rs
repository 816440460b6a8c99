//! A shared child and the sessions on it: what the child says, and to which of them it is said.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    belongings::{elicitation, named},
    table::Table,
};
use crate::{
    observe::{Observer, events},
    upstream::{
        Answer, Failure, Inbound,
        stdio::{
            child::{Child, Ears},
            share::{TASKGATE, What},
        },
    },
    wire::{
        Edits, Kind, Message, Method, RpcError,
        message::echoed_number,
        object::Members,
        params::{progress_token, unambiguous},
        response::{error_response, result_response},
    },
};

/// The sessions on one child.
#[derive(Debug)]
pub(super) struct Party {
    pub(super) table: Mutex<Table>,
    pub(super) observer: Arc<Observer>,
}

impl Party {
    /// Waits until no session has been here for `linger`, and lets none in any more.
    pub(super) async fn deserted(&self, linger: Duration) {
        let mut count = self.table.lock().count();
        loop {
            // An error is impossible: the sender is in the table.
            let _ = count.wait_for(|count| *count == 0).await;
            let somebody = tokio::time::timeout(linger, count.wait_for(|count| *count > 0)).await.is_ok();
            if !somebody && self.table.lock().close_if_empty() {
                return;
            }
        }
    }

    fn response(&self, response: Message) {
        let number = match response.id() {
            None | Some("null") => None,
            Some(id) => match echoed_number(id) {
                Some(number) => Some(number),
                None => return self.observer.emit(events::UnknownResponse),
            },
        };
        let mut table = self.table.lock();
        let Some(ending) = table.greeted(number, Ok(response)) else { return };
        if let (Some(number), Ok(response)) = (number, &ending) {
            table.answered(number, response);
        }
        let ended = table.end(number);
        drop(table);
        match ended {
            Some((inbound, number)) => inbound.exchanges.end(number, ending.map(Answer::Whole)),
            None => self.observer.emit(events::UnknownResponse),
        }
    }

    /// A request of the child, which does not say whose call has caused it.
    fn request(&self, request: &Message, child: &Child) {
        let id = request.id_to_answer();
        let refuse = |error: &RpcError| tell(child, error_response(id, &error.to_raw()));
        if request.method() == Method::Ping {
            // It asks whether its client is there, and that is taskgate.
            return tell(child, result_response(id, "{}"));
        }
        let mut table = self.table.lock();
        let Some((seat, inbound)) = table.asked() else {
            drop(table);
            return refuse(&RpcError::internal("no client is there that could be asked"));
        };
        if let Some(error) = inbound.client.refusal(request) {
            drop(table);
            return refuse(&error);
        }
        let meta = request.params().and_then(|params| unambiguous(params).ok()).and_then(|(_, meta)| meta);
        let token = meta.as_ref().and_then(|meta| meta.get("progressToken"));
        if let Err(error) = table.questions.ask(id, token, seat) {
            drop(table);
            return refuse(&error);
        }
        if let Some(id) = elicitation(request) {
            table.belongings.elicited(seat, &id);
        }
        drop(table);
        if let Some(reply) = inbound.deliver_unaddressed(request.clone()) {
            self.table.lock().withdraw(id);
            tell(child, reply);
        }
    }

    /// No notification is answered.
    fn notification(&self, message: Message) {
        let deliver = |inbound: &Inbound, message| drop(inbound.deliver_unaddressed(message));
        match message.method() {
            Method::Progress => self.progress(&message),
            Method::TaskStatus => self.observer.emit(events::StatusHidden),
            Method::Cancelled => {
                let params = message.params().and_then(|params| Members::parse(params).ok());
                let id = params.and_then(|params| params.get("requestId"));
                let asked = id.and_then(|id| self.table.lock().withdraw(id));
                if let Some(inbound) = asked {
                    deliver(&inbound, message);
                }
            }
            Method::ToolsListChanged | Method::OtherListChanged => {
                let everybody = self.table.lock().everybody();
                for inbound in everybody {
                    let _ = inbound.listen(message.clone());
                }
            }
            Method::ResourceUpdated => {
                let subscribers = named(&message, "uri").map(|uri| self.table.lock().subscribers(&uri));
                for inbound in subscribers.into_iter().flatten() {
                    let _ = inbound.listen(message.clone());
                }
            }
            method => {
                let concerned = if method == Method::ElicitationComplete {
                    named(&message, "elicitationId").map(|id| self.table.lock().elicited(&id))
                } else {
                    self.table.lock().concerned()
                };
                match concerned.filter(|concerned| !concerned.is_empty()) {
                    Some(concerned) => concerned.iter().for_each(|inbound| deliver(inbound, message.clone())),
                    None => self.observer.emit(events::UnattributedNotification),
                }
            }
        }
    }

    fn progress(&self, message: &Message) {
        let token = progress_token(message);
        let caller = token.and_then(echoed_number).and_then(|ours| self.table.lock().caller(ours));
        let (Some(token), Some((inbound, number))) = (token, caller) else {
            return self.observer.emit(events::UnknownProgress);
        };
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(token, number.to_string());
        if let Ok(message) = Message::parse(edits.apply().into_bytes()) {
            let _ = inbound.deliver(message, None);
        }
    }
}

/// Answers the child. One that cannot be told has ended, or does not read.
fn tell(child: &Child, answer: Bytes) {
    let _ = child.tell(TASKGATE, What::Answer, answer);
}

impl Ears for Party {
    fn hear(&self, message: Message, child: &Child) {
        match message.kind() {
            Kind::Response => self.response(message),
            Kind::Request => self.request(&message, child),
            Kind::Notification => self.notification(message),
        }
    }

    fn miss(&self, number: Option<u64>, failure: Failure) {
        let mut table = self.table.lock();
        let Some(Err(failure)) = table.greeted(number, Err(failure)) else { return };
        if number.is_some() {
            let ended = table.end(number);
            drop(table);
            if let Some((inbound, number)) = ended {
                inbound.exchanges.end(number, Err(failure));
            }
            return;
        }
        let everybody = table.everybody();
        drop(table);
        for inbound in everybody {
            inbound.exchanges.abandon_all(&failure);
        }
    }

    fn end(&self, failure: &Failure) {
        let everybody = self.table.lock().close(failure);
        for inbound in everybody {
            inbound.exchanges.abandon_all(failure);
        }
    }
}
