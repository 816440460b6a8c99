//! `subscriptions/listen` to a server that is modern itself: it goes up, and what the server tells comes back under the
//! client's id. taskgate tells of its own tasks in between.

use std::{borrow::Cow, collections::HashSet, pin::pin, sync::Arc};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;

use super::{
    Answer, ClientRequest, Modern, Refused, SUBSCRIPTION_ID,
    for_legacy::ForLegacy,
    listen::{Filter, acknowledgement, may_expire, tagged, tear_down, tell_torn_down},
    onward::{Sent, Whose, call_options},
    passing::{looks_legacy, status_of},
    pieces::{PieceWriter, pieces},
    run::SILENCE,
    subscriptions::Open,
    translate::is_unknown_method,
    watched::{Watched, next, tell},
};
use crate::{
    flow::Item,
    task::TaskId,
    upstream::{Call, CallOptions, ExchangeEnd, Failure, Lease, Purpose, with_id},
    wire::{
        Edits, Message, Method, Parts, RpcError, ids,
        message::Outcome,
        modern::subscription,
        object::{Members, object, quote},
        params::unambiguous,
    },
};

/// One subscription.
struct Subscription {
    modern: Arc<Modern>,
    request: Box<ClientRequest>,
    lease: Lease,
    /// The request at the server.
    call: Call,
    /// The tasks of taskgate that the client hears of.
    tasks: Vec<TaskId>,
    /// Those of the server.
    theirs: HashSet<String>,
    /// What else it hears of.
    filter: Filter,
    /// Who else tells of tasks.
    whose: Whose,
    to: PieceWriter,
    _open: Open,
}

/// What the server told last.
enum Told {
    Message(Message),
    End(ExchangeEnd),
}

impl Modern {
    /// Opens a stream of notifications of a server, and of tasks.
    pub(super) async fn listen_through(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        whose: Whose,
    ) -> Result<Answer, Refused> {
        let (mut filter, names_tasks) = Filter::read(&request.message)?;
        if names_tasks && !request.meta.tasks {
            return Err(Refused::tasks_extension("notifications about tasks need the tasks extension"));
        }
        let open = self.open_subscription(&mut request, &filter)?;
        let watched = match whose {
            Whose::Theirs => Vec::new(),
            Whose::Ours | Whose::Both => {
                self.watched(&request, std::mem::take(&mut filter.tasks), whose == Whose::Ours).await?
            }
        };
        self.may_begin(&watched)?;
        let tasks: Vec<_> = watched.iter().map(|watched| watched.task).collect();
        let Some((message, theirs)) = without_tasks(&request.message, whose, &tasks)? else {
            return self.listen_to_tasks(request, open, watched).await;
        };
        let lease = self.lease(&request, false).await?;
        let generation = lease.pooled.generation;
        (request.message, request.for_legacy) = (message, ForLegacy::Same);
        let Sent { message, headers } = request.sent(generation, whose)?;
        let options = CallOptions { purpose: Purpose::Listening, ..call_options(generation, false) };
        let call = lease.guard.get().call(&message, headers, options)?;
        let (to, from) = pieces(&self.capacity, &self.observer);
        let modern = Arc::clone(self);
        let subscription = Subscription { modern, request, lease, call, tasks, theirs, filter, whose, to, _open: open };
        tokio::spawn(subscription.run(watched));
        from.answer().await
    }
}

impl Subscription {
    async fn run(mut self, watched: Vec<Watched>) {
        let mut watched: FuturesUnordered<_> = watched.into_iter().map(next).collect();
        let modern = Arc::clone(&self.modern);
        let (mut acknowledged, mut silence) = (false, pin!(sleep(SILENCE)));
        let goes_on = loop {
            let run = !watched.is_empty();
            tokio::select! {
                // What is known of tasks is told before the end.
                biased;
                () = self.to.left() => break false,
                // The acknowledgement comes first.
                Some(news) = watched.next(), if acknowledged => {
                    let task = self.modern.news(&self.request, news.task, &self.meta()).await;
                    watched.extend(tell(&self.to, task, news).await.map(next));
                }
                () = modern.ends(run) => break true,
                () = &mut silence, if !acknowledged && !silence.is_elapsed() => self.to.begin(),
                told = told(&mut self.call) => match told {
                    Told::Message(message) => self.tell(message, &mut acknowledged).await,
                    // The process stops, and has closed the link as well.
                    Told::End(Err(_)) if modern.drained.is_cancelled() => break true,
                    Told::End(ending) => {
                        let ending = match ending {
                            Ok(answer) => answer.whole().await,
                            Err(failure) => Err(failure),
                        };
                        let status = self.call.exchange.status();
                        if !acknowledged && looks_legacy(&ending, status) {
                            let other = tokio::select! {
                                () = self.to.left() => return,
                                other = modern.lease_of_other(&mut self.request, &self.lease, false) => other,
                            };
                            if let Some(lease) = other {
                                drop(watched);
                                return self.go_on_in_session(lease).await;
                            }
                        }
                        let has_ended_it = ending.as_ref().is_ok_and(|it| matches!(it.outcome(), Some((Outcome::Result, _))));
                        if has_ended_it && !acknowledged {
                            self.acknowledge("{}").await;
                            acknowledged = true;
                        }
                        if acknowledged {
                            tell_torn_down(self.request.id(), &self.to, "the subscription has ended at the server");
                        }
                        if acknowledged || !ending.as_ref().is_ok_and(is_unknown_method) {
                            return self.end_as_answered(ending);
                        }
                        drop(watched);
                        return self.go_on_with_tasks(ending).await;
                    }
                },
            }
        };
        if goes_on {
            if !acknowledged {
                self.acknowledge("{}").await;
            }
            tear_down(&self.request, &self.to, &self.lease.pooled.facts);
        }
        let (session, headers) = (Arc::clone(self.lease.guard.get()), self.request.headers.clone());
        let why = if goes_on { "taskgate has ended the subscription" } else { "the client has left" };
        session.cancel_call(&mut self.call, why, headers).await;
    }

    fn meta(&self) -> String {
        format!(r#""_meta":{{"{SUBSCRIPTION_ID}":{}}}"#, self.request.id())
    }

    /// Acknowledges a filter of the server's, with the tasks of taskgate.
    async fn acknowledge(&mut self, filter: &str) {
        let tasks: Vec<_> = self.tasks.iter().map(|id| quote(&id.to_string())).collect();
        // It has to be acknowledged, whatever the server says.
        let none = Members::parse("{}");
        let Ok(members) = Members::parse(filter).or(none) else { return };
        let theirs = members.get("taskIds").filter(|_| self.whose != Whose::Ours);
        let theirs = theirs.and_then(|list| list.strip_prefix('[')?.strip_suffix(']'));
        let theirs = theirs.filter(|list| !list.trim().is_empty()).map(str::to_owned);
        let named: Vec<_> = theirs.into_iter().chain(tasks).collect();
        let mut parts: Vec<_> = members.iter().filter(|(key, _)| *key != "taskIds" && self.filter.names(key)).collect();
        let list = format!("[{}]", named.join(","));
        if !named.is_empty() {
            parts.push(("taskIds", &list));
        }
        self.to.tell(acknowledgement(&self.meta(), &object(parts.into_iter()))).await;
        may_expire(&self.request, &self.to, &self.lease.pooled.facts);
    }

    /// Passes on what the server tells.
    async fn tell(&mut self, message: Message, acknowledged: &mut bool) {
        if message.method_name() == "notifications/subscriptions/acknowledged" {
            if std::mem::replace(acknowledged, true) {
                return;
            }
            let params = message.params().and_then(|params| Members::parse(params).ok());
            return self
                .acknowledge(params.as_ref().and_then(|params| params.get("notifications")).unwrap_or("{}"))
                .await;
        }
        if !*acknowledged || subscription(&message).is_none() || message.method() == Method::Cancelled {
            // Nothing comes before the acknowledgement. On a channel that calls share it may belong to one of them. What
            // ends the subscription, the link has taken.
            return;
        }
        let is_wanted = match &*message.method_name() {
            "notifications/tasks" => self.is_of_server(&message),
            // "MUST NOT send notification types the client has not explicitly requested", whatever the server does.
            _ => self.filter.wants_of_modern(&message),
        };
        if !is_wanted {
            return;
        }
        if let Some(tagged) = tagged(&message, self.request.id()) {
            self.to.tell(tagged).await;
        }
    }

    /// Returns whether the server may tell of the task in a notification.
    fn is_of_server(&self, status: &Message) -> bool {
        let params = status.params().and_then(|params| Members::parse(params).ok());
        let id = params.and_then(|params| params.text("taskId").map(Cow::into_owned));
        id.is_some_and(|id| self.theirs.contains(&id))
    }

    /// Goes on with the server that has taken the place of this one, and knows sessions only.
    async fn go_on_in_session(self, lease: Lease) {
        let Self { modern, request, mut tasks, mut filter, to, _open: open, lease: old, call, .. } = self;
        drop((old, call));
        // Where the server alone told of tasks, they are with the rest of the filter.
        tasks.append(&mut filter.tasks);
        match modern.watched(&request, tasks, false).await {
            Ok(watched) => Box::pin(modern.tell_of_changes(request, to, open, lease, filter, watched)).await,
            Err(refused) => to.refuse(refused, request.id()),
        }
    }

    /// Goes on without the server, which knows no subscriptions, and tells of the tasks of taskgate. Without
    /// any, ends with the server's answer.
    async fn go_on_with_tasks(self, ending: Result<Message, Failure>) {
        if self.tasks.is_empty() {
            return self.end_as_answered(ending);
        }
        let Self { modern, request, tasks, to, _open: open, lease, call, .. } = self;
        drop((lease, call));
        match modern.watched(&request, tasks, false).await {
            Ok(watched) => modern.tell_of_tasks(request, to, open, watched).await,
            Err(refused) => to.refuse(refused, request.id()),
        }
    }

    /// Ends with the server's answer.
    fn end_as_answered(&self, ending: Result<Message, Failure>) {
        match ending {
            Ok(response) => {
                let status = self.call.exchange.status().unwrap_or_else(|| status_of(&response));
                let document = self.named(&response).unwrap_or_else(|| with_id(&response, self.request.id()));
                self.to.respond(status, document);
            }
            Err(Failure::Cancelled) => {}
            Err(failure) => self.to.refuse(self.modern.failed(&self.request, &failure), self.request.id()),
        }
    }

    /// Returns the result with the id of the client's subscription.
    fn named(&self, response: &Message) -> Option<Parts> {
        let Some((Outcome::Result, raw)) = response.outcome() else { return None };
        let (result, meta) = unambiguous(raw).ok()?;
        let mut edits = Edits::of(response.bytes());
        edits.replace(response.id_span()?, self.request.id());
        match &meta {
            Some(meta) => edits.set(meta, SUBSCRIPTION_ID, self.request.id()),
            None => edits.set(&result, "_meta", &format!(r#"{{"{SUBSCRIPTION_ID}":{}}}"#, self.request.id())),
        }
        Some(Parts::from(edits.apply().into_bytes()))
    }
}

/// Waits for what the server tells next.
async fn told(call: &mut Call) -> Told {
    loop {
        match call.exchange.next().await {
            Some(Item::Message(message)) => return Told::Message(message),
            Some(Item::Silence | Item::Pause(_)) => {}
            Some(Item::End(ending)) => return Told::End(ending),
            None => return Told::End(Err(Failure::Abandoned)),
        }
    }
}

/// Returns the request without the tasks that taskgate tells of, and those that are left; `None` where nothing else is
/// wanted.
fn without_tasks(
    request: &Message,
    whose: Whose,
    ours: &[TaskId],
) -> Result<Option<(Message, HashSet<String>)>, RpcError> {
    let params = request.params().map(Members::parse).transpose().map_err(RpcError::bad_params)?;
    let wanted = params
        .as_ref()
        .map(|params| params.nested("notifications"))
        .transpose()
        .map_err(RpcError::bad_params)?
        .flatten();
    let Some((wanted, raw)) = wanted.as_ref().and_then(|wanted| Some((wanted, wanted.get("taskIds")?))) else {
        return Ok(Some((request.clone(), HashSet::new())));
    };
    let named: Vec<String> = serde_json::from_str(raw).map_err(RpcError::bad_params)?;
    let ours: HashSet<_> = ours.iter().collect();
    let theirs: Vec<_> = match whose {
        Whose::Ours => Vec::new(),
        Whose::Theirs | Whose::Both => {
            named.into_iter().filter(|id| ids::parse(id).is_none_or(|id| !ours.contains(&id))).collect()
        }
    };
    let mut edits = Edits::of(request.bytes());
    if theirs.is_empty() {
        if wanted.iter().count() == 1 {
            return Ok(None);
        }
        edits.remove(wanted, "taskIds");
    } else {
        edits.set(wanted, "taskIds", &serde_json::json!(theirs).to_string());
    }
    let message = Message::parse(edits.apply().into_bytes()).map_err(RpcError::bad_params)?;
    Ok(Some((message, theirs.into_iter().collect())))
}
