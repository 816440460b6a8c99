//! `subscriptions/listen`: what changes, as far as the client wants to hear of it ("Subscriptions").

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use http::StatusCode;
use tokio::sync::broadcast::error::RecvError;

use super::{
    Answer, ClientRequest, Modern, Refused, SERVER_INFO, SUBSCRIPTION_ID,
    pieces::{PieceWriter, pieces},
    subscriptions::Open,
    watched::{Watched, next, tell},
};
use crate::{
    session::Caller,
    task::TaskId,
    upstream::{Generation, Lease, ServerFacts},
    wire::{
        Edits, Message, Method, RpcError, headers_cost, ids,
        object::{Members, quote},
        response::{cancelled, result_response},
        uri::is_part_of,
    },
};

/// How many resources and tasks one subscription may name.
const MAX_NAMED: usize = 256;
/// The members of a filter that taskgate knows.
const KNOWN: [&str; 5] =
    ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds"];
/// How long a subscription waits at most for the GET stream on which its server tells changes.
const SUBSCRIPTION_WAITS: Duration = Duration::from_secs(2);

/// What a client wants to hear of.
#[derive(Debug, Default)]
pub(super) struct Filter {
    tools: bool,
    prompts: bool,
    resources: bool,
    uris: Vec<String>,
    pub(super) tasks: Vec<TaskId>,
    /// How many tasks it names by ids that taskgate does not give.
    pub(super) others: usize,
    /// How many of its members are those of other extensions.
    more: usize,
}

/// One subscription.
struct Subscription {
    modern: Arc<Modern>,
    request: Box<ClientRequest>,
    lease: Lease,
    filter: Filter,
    /// The resources that the client has named, each once.
    uris: Vec<String>,
    to: PieceWriter,
    _open: Open,
}

impl Modern {
    /// Opens a stream of notifications.
    pub(super) async fn listen(self: &Arc<Self>, mut request: Box<ClientRequest>) -> Result<Answer, Refused> {
        let (filter, names_tasks) = Filter::read(&request.message)?;
        if names_tasks && !request.meta.tasks {
            return Err(Refused::tasks_extension("notifications about tasks need the tasks extension"));
        }
        let open = self.open_subscription(&mut request, &filter)?;
        let watched = self.watched(&request, filter.tasks.clone(), true).await?;
        self.may_begin(&watched)?;
        if filter.is_of_tasks_alone(Some(Generation::Legacy)) {
            return self.listen_to_tasks(request, open, watched).await;
        }
        let lease = self.lease(&request, false).await?;
        let (to, from) = pieces(&self.capacity, &self.observer);
        tokio::spawn(Arc::clone(self).tell_of_changes(request, to, open, lease, filter, watched));
        from.answer().await
    }

    /// Tells what a server with sessions tells, and of tasks.
    pub(super) async fn tell_of_changes(
        self: Arc<Self>,
        request: Box<ClientRequest>,
        to: PieceWriter,
        open: Open,
        lease: Lease,
        mut filter: Filter,
        watched: Vec<Watched>,
    ) {
        filter.tasks = watched.iter().map(|watched| watched.task).collect();
        if request.caller.upstream.server.has_get_stream() {
            // What changes from the acknowledgement on is told.
            lease.guard.get().listening(SUBSCRIPTION_WAITS).await;
        }
        filter.limit(&lease.pooled.facts.capabilities);
        let uris: BTreeSet<String> = std::mem::take(&mut filter.uris).into_iter().collect();
        let uris = uris.into_iter().collect();
        Subscription { modern: self, request, lease, filter, uris, to, _open: open }.run(watched).await;
    }

    /// Counts a subscription, and what is kept of it while it is open. It is no request in flight any more.
    pub(super) fn open_subscription(&self, request: &mut ClientRequest, filter: &Filter) -> Result<Open, Refused> {
        let Caller { owner, account, .. } = &*request.caller;
        let subscribed = self.subscriptions.begin(owner).map_err(|why| Refused::limit("subscriptions", &why))?;
        request.in_flight = None;
        // The session with the server keeps the URIs as well.
        let uris: usize = filter.uris.iter().map(|uri| 4 * uri.len()).sum();
        let bytes = request.message.bytes().len() + headers_cost(&request.headers) + uris;
        let kept = self.in_flight.keep(account, bytes).map_err(|why| Refused::limit("sessionless_requests", &why))?;
        Ok(Open { _subscribed: subscribed, _kept: kept })
    }
}

impl Filter {
    /// Returns a filter for tasks alone.
    pub(super) fn of_tasks(tasks: Vec<TaskId>) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// Reads the filter, and whether it names tasks.
    pub(super) fn read(request: &Message) -> Result<(Self, bool), RpcError> {
        let params = request.params().map(Members::parse).transpose().map_err(RpcError::bad_params)?;
        let wanted = params.as_ref().map(|params| params.nested("notifications")).transpose();
        let wanted = wanted.map_err(RpcError::bad_params)?.flatten();
        let wanted = wanted.ok_or_else(|| RpcError::bad_params("params.notifications must be an object"))?;
        let flag = |key: &str| match wanted.get(key) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(RpcError::bad_params(format!("params.notifications.{key} must be true or false"))),
        };
        let list = |key: &str| match wanted.get(key) {
            None => Ok(None),
            Some(raw) => match serde_json::from_str::<Vec<String>>(raw) {
                Ok(list) if list.len() <= MAX_NAMED => Ok(Some(list)),
                Ok(_) => Err(RpcError::internal(format!("limit reached: {key} names more than {MAX_NAMED}"))),
                Err(_) => Err(RpcError::bad_params(format!("params.notifications.{key} must be a list of strings"))),
            },
        };
        let named = list("taskIds")?;
        let names_tasks = named.is_some();
        let named = named.unwrap_or_default();
        let tasks: Vec<_> = named.iter().filter_map(|id| ids::parse(id)).collect();
        let filter = Self {
            tools: flag("toolsListChanged")?,
            prompts: flag("promptsListChanged")?,
            resources: flag("resourcesListChanged")?,
            uris: list("resourceSubscriptions")?.unwrap_or_default(),
            others: named.len() - tasks.len(),
            more: wanted.iter().filter(|(key, raw)| !KNOWN.contains(key) && *raw != "false").count(),
            tasks,
        };
        Ok((filter, names_tasks))
    }

    /// Returns whether it wants to hear of tasks, and of nothing else that a server of that generation may tell.
    pub(super) fn is_of_tasks_alone(&self, generation: Option<Generation>) -> bool {
        let of_server = self.tools || self.prompts || self.resources || !self.uris.is_empty();
        // A server of the older generation has no extensions.
        let of_extension = self.more > 0 && generation != Some(Generation::Legacy);
        !of_server && !of_extension && (self.others > 0 || !self.tasks.is_empty())
    }

    /// Leaves out what the server does not tell.
    fn limit(&mut self, capabilities: &str) {
        let declared = Members::parse(capabilities).ok();
        let tells = |kind: &str, what: &str| {
            let kind = declared.as_ref().and_then(|declared| declared.object(kind));
            kind.is_some_and(|kind| kind.get(what) == Some("true"))
        };
        self.tools &= tells("tools", "listChanged");
        self.prompts &= tells("prompts", "listChanged");
        self.resources &= tells("resources", "listChanged");
        if !tells("resources", "subscribe") {
            self.uris.clear();
        }
    }

    /// The raw filter as it is acknowledged.
    pub(super) fn to_raw(&self) -> String {
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        let mut members: Vec<String> =
            flags.into_iter().filter(|(_, wanted)| *wanted).map(|(key, _)| format!("\"{key}\":true")).collect();
        if !self.uris.is_empty() {
            members.push(format!(r#""resourceSubscriptions":{}"#, serde_json::json!(self.uris)));
        }
        if !self.tasks.is_empty() {
            members.push(format!(r#""taskIds":{}"#, serde_json::json!(self.tasks)));
        }
        format!("{{{}}}", members.join(","))
    }

    /// Returns a notification of every change that is wanted.
    fn all_changes(&self) -> Vec<Message> {
        let lists = [("tools", self.tools), ("prompts", self.prompts), ("resources", self.resources)];
        let lists = lists
            .into_iter()
            .filter(|(_, wanted)| *wanted)
            .map(|(list, _)| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#));
        let updates = self.uris.iter().map(|uri| {
            let params = format!(r#"{{"uri":{}}}"#, quote(uri));
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{params}}}"#)
        });
        lists.chain(updates).filter_map(|change| Message::parse(change.into()).ok()).collect()
    }

    /// Returns whether it has a member of that key, so that it can be acknowledged.
    pub(super) fn names(&self, key: &str) -> bool {
        match key {
            "toolsListChanged" => self.tools,
            "promptsListChanged" => self.prompts,
            "resourcesListChanged" => self.resources,
            "resourceSubscriptions" => !self.uris.is_empty(),
            _ => self.more > 0,
        }
    }

    /// Returns whether it wants to hear what a server tells that knows other extensions, too.
    pub(super) fn wants_of_modern(&self, told: &Message) -> bool {
        let is_of_extension = matches!(told.method(), Method::OtherNotification | Method::Other);
        self.wants(told) || is_of_extension && self.more > 0
    }

    fn wants(&self, change: &Message) -> bool {
        match change.method() {
            Method::ToolsListChanged => self.tools,
            Method::OtherListChanged if change.method_name().contains("prompts") => self.prompts,
            Method::OtherListChanged => self.resources,
            Method::ResourceUpdated => {
                let params = change.params().and_then(|params| Members::parse(params).ok());
                let uri = params.and_then(|params| params.text("uri").map(std::borrow::Cow::into_owned));
                uri.is_some_and(|uri| self.uris.iter().any(|whole| is_part_of(&uri, whole)))
            }
            _ => false,
        }
    }
}

impl Subscription {
    async fn run(mut self, tasks: Vec<Watched>) {
        let mut changes = self.lease.pooled.changes();
        self.resources(true);
        self.filter.uris = tokio::select! {
            uris = self.lease.pooled.subscribed(&self.uris) => uris,
            () = self.to.left() => Vec::new(),
            () = self.modern.ends(!tasks.is_empty()) => Vec::new(),
            () = self.lease.guard.get().lost() => Vec::new(),
        };
        let meta = format!(r#""_meta":{{"{SUBSCRIPTION_ID}":{}}}"#, self.request.id());
        self.to.tell(acknowledgement(&meta, &self.filter.to_raw())).await;
        may_expire(&self.request, &self.to, &self.lease.pooled.facts);
        let mut watched: FuturesUnordered<_> = tasks.into_iter().map(next).collect();
        loop {
            let run = !watched.is_empty();
            tokio::select! {
                // What is known of tasks is told before the end.
                biased;
                () = self.to.left() => break,
                Some(news) = watched.next() => {
                    let task = self.modern.news(&self.request, news.task, &meta).await;
                    watched.extend(tell(&self.to, task, news).await.map(next));
                }
                () = self.modern.ends(run) => {
                    self.tear_down();
                    break;
                }
                () = self.lease.guard.get().lost() => {
                    self.tear_down();
                    break;
                }
                change = changes.recv() => match change {
                    Ok(change) if self.filter.wants(&change) => {
                        let Some(tagged) = tagged(&change, self.request.id()) else { continue };
                        self.to.tell(tagged).await;
                    }
                    Ok(_) => {}
                    // Some were missed. Which ones does not matter: a client that is told asks.
                    Err(RecvError::Lagged(_)) => {
                        changes = changes.resubscribe();
                        for change in self.filter.all_changes() {
                            let Some(tagged) = tagged(&change, self.request.id()) else { continue };
                            self.to.tell(tagged).await;
                        }
                    }
                    Err(RecvError::Closed) => {
                        self.tear_down();
                        break;
                    }
                },
            }
        }
        self.resources(false);
    }

    fn tear_down(&self) {
        tear_down(&self.request, &self.to, &self.lease.pooled.facts);
    }

    /// Has the server tell of the resources, or stop it.
    fn resources(&self, begins: bool) {
        self.lease.pooled.subscribe(self.uris.iter(), begins, &self.request.headers);
    }
}

/// Returns what acknowledges a subscription with that raw filter; `meta` is its raw member `_meta`.
pub(super) fn acknowledgement(meta: &str, filter: &str) -> Bytes {
    let method = "notifications/subscriptions/acknowledged";
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{meta},"notifications":{filter}}}}}"#).into()
}

/// Ends a subscription on taskgate's side: with a notification ("Cancellation"), and a response after it
/// ("Subscriptions", section "Graceful Closure").
pub(super) fn tear_down(request: &ClientRequest, to: &PieceWriter, facts: &ServerFacts) {
    tell_torn_down(request.id(), to, "taskgate has ended the subscription");
    to.respond(StatusCode::OK, closure(request.id(), facts).into());
}

/// Sets what ends the subscription when its client's token or certificate expires.
pub(super) fn may_expire(request: &ClientRequest, to: &PieceWriter, facts: &ServerFacts) {
    let id = request.id();
    let cancelled = torn_down(id, "the token or the certificate of the subscription is not valid any more");
    to.set_last_words(cancelled.into_iter().chain([closure(id, facts)]).collect());
}

/// Tells a client that its subscription is torn down ("Cancellation").
pub(super) fn tell_torn_down(id: &str, to: &PieceWriter, why: &str) {
    if let Some(torn_down) = torn_down(id, why) {
        to.say(torn_down);
    }
}

fn torn_down(id: &str, why: &str) -> Option<Bytes> {
    // What taskgate has written can be read.
    Message::parse(cancelled(id, why)).ok().and_then(|torn_down| tagged(&torn_down, id))
}

fn closure(id: &str, facts: &ServerFacts) -> Bytes {
    let meta = format!(r#"{{"{SUBSCRIPTION_ID}":{id},"{SERVER_INFO}":{}}}"#, facts.server_info);
    result_response(id, &format!(r#"{{"resultType":"complete","_meta":{meta}}}"#))
}

/// Returns a change with the id of the subscription.
pub(super) fn tagged(change: &Message, id: &str) -> Option<Bytes> {
    let mut edits = Edits::of(change.bytes());
    let tag = format!(r#"{{"{SUBSCRIPTION_ID}":{id}}}"#);
    if let Some(raw) = change.params() {
        let params = Members::parse(raw).ok()?;
        match params.object("_meta") {
            Some(meta) => edits.set(&meta, SUBSCRIPTION_ID, id),
            None => edits.set(&params, "_meta", &tag),
        }
    } else {
        let members = Members::parse(change.text()).ok()?;
        edits.set(&members, "params", &format!(r#"{{"_meta":{tag}}}"#));
    }
    Some(edits.apply().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_changes_are_those_that_are_wanted_and_no_others() {
        let uris = vec!["file:///a".to_owned(), "file:///\"b\"".to_owned()];
        let filter = Filter { tools: true, resources: true, uris, ..Filter::default() };
        let changes = filter.all_changes();
        assert_eq!(changes.len(), 4);
        assert!(changes.iter().all(|change| filter.wants(change) && !Filter::default().wants(change)));
    }
}
