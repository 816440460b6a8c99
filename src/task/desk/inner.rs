//! What the desk does under its lock.

use uuid::Uuid;

use super::{Inner, ListenerId, Place, Question, Running};
use crate::{
    identity::Owner,
    task::TaskId,
    upstream::Pushed,
    wire::{Kind, Message, legacy::related, object::quote},
};

impl Inner {
    pub(super) fn peers(&mut self, place: &Place) -> &mut Vec<ListenerId> {
        match place {
            Place::Session(owner, _) => self.gets.entry(owner.clone()).or_default(),
            Place::Task(task, _) => self.waiters.entry(*task).or_default(),
        }
    }

    /// The open questions that a stream may get.
    pub(super) fn questions_for(&self, id: ListenerId) -> Vec<Uuid> {
        match self.listeners.get(&id).map(|listener| &listener.place) {
            None => Vec::new(),
            Some(Place::Task(task, _)) => {
                self.running.get(task).map_or_else(Vec::new, |running| running.questions.clone())
            }
            Some(Place::Session(owner, _)) => {
                let asking = self.asking.get(owner).into_iter().flatten();
                asking.filter_map(|task| self.running.get(task)).flat_map(|running| running.questions.clone()).collect()
            }
        }
    }

    /// The stream that gets a task's messages now.
    pub(super) fn best(&self, task: TaskId, running: &Running) -> Option<ListenerId> {
        let attached = |id: &ListenerId| self.listeners[id].attached;
        let waiter = || self.waiters.get(&task)?.iter().rev().copied().find(attached);
        self.get_stream(running, attached).or_else(waiter)
    }

    /// A GET stream of the task's owner, rather that of the task's own session than another one.
    pub(super) fn get_stream(&self, running: &Running, fit: impl Fn(&ListenerId) -> bool) -> Option<ListenerId> {
        let own = |id: &ListenerId| matches!(&self.listeners[id].place, Place::Session(_, session) if *session == running.session);
        let fitting = || self.gets.get(&running.owner).into_iter().flatten().rev().copied().filter(&fit);
        fitting().find(own).or_else(|| fitting().next())
    }

    pub(super) fn ask(&mut self, id: Uuid) {
        let Some(question) = self.questions.get(&id) else { return };
        let Some(running) = self.running.get(&question.task) else { return };
        let Some(best) = self.best(question.task, running) else { return };
        let on = Some(best).filter(|on| self.listeners[on].outbox.push(question.ours.clone()) != Pushed::Full);
        if let Some(question) = self.questions.get_mut(&id) {
            question.on = on;
            question.asked_in.extend(on.map(|on| self.listeners[&on].place.session()));
        }
    }

    /// Takes a question back that has not left yet.
    pub(super) fn take_back(&mut self, id: Uuid, listener: ListenerId) -> bool {
        let Some(question) = self.questions.get_mut(&id).filter(|question| question.on == Some(listener)) else {
            return false;
        };
        let ours = question.ours.id();
        let waits = |message: &Message| message.kind() == Kind::Request && message.id() == ours;
        let taken = self.listeners.get(&listener).is_some_and(|listener| listener.outbox.retract(waits) > 0);
        if taken {
            question.on = None;
            question.asked_in.pop();
        }
        taken
    }

    pub(super) fn remove(&mut self, id: Uuid) -> Option<Question> {
        let question = self.questions.remove(&id)?;
        if let Some(running) = self.running.get_mut(&question.task) {
            running.questions.retain(|open| *open != id);
            if running.questions.is_empty() {
                let owner = running.owner.clone();
                self.asks_no_more(&owner, question.task);
            }
        }
        Some(question)
    }

    pub(super) fn asks_no_more(&mut self, owner: &Owner, task: TaskId) {
        let Some(asking) = self.asking.get_mut(owner) else { return };
        asking.remove(&task);
        if asking.is_empty() {
            self.asking.remove(owner);
        }
    }

    /// Takes out a question, and withdraws it from the client that has it.
    pub(super) fn close(&mut self, id: Uuid) -> Option<Question> {
        let on = self.questions.get(&id)?.on;
        let left = on.filter(|on| !self.take_back(id, *on));
        let question = self.remove(id)?;
        if let Some(listener) = left.and_then(|on| self.listeners.get(&on)) {
            let id = question.ours.id().unwrap_or("null");
            let reason = quote("the request was withdrawn, or the task has ended");
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{reason}}}}}"#
            );
            let cancelled = Message::parse(text.into()).ok();
            if let Some(cancelled) = cancelled.and_then(|cancelled| related(&cancelled, question.task)) {
                listener.outbox.push(cancelled);
            }
        }
        Some(question)
    }
}
