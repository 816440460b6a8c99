//! Finds out which tools the server runs as tasks itself, by asking it where no `tools/list` of the client has told.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use ::http::HeaderMap;

use super::{ExchangeGuard, UpstreamSession, discover::own_headers};
use crate::{
    flow::Item,
    upstream::{Failure, ListPage, ListRequest, MAX_MESSAGE, MAX_WAITING, Outgoing, Purpose, ToolNames},
    wire::{
        Message, excerpt, legacy,
        message::Outcome,
        modern::own_params,
        tools::{listed, next_cursor},
    },
};

/// How long a call may wait for the server's list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call of a tool of taskgate's own may wait for the server's list.
const LEARN_TIMEOUT: Duration = Duration::from_secs(2);
/// How many pages of the list are read.
const MAX_PAGES: usize = 100;

impl UpstreamSession {
    /// Returns whether the server lists the tool as one that it runs as a task itself.
    ///
    /// # Errors
    /// [`Failure`] where that is not known and the server does not tell.
    pub async fn has_native_tasks_for(&self, tool: &str, headers: &HeaderMap) -> Result<bool, Failure> {
        let tools = &self.inbound.native.tools;
        if let Some(known) = tools.has(tool) {
            return Ok(known);
        }
        let _waits = tools.waiting.try_acquire().map_err(|_| {
            let why = "calls of the session wait for the server's list of tools already; try again";
            Failure::Limit(format!("limit reached: {MAX_WAITING} {why}"))
        })?;
        let asking = async {
            let _alone = tools.asking.lock().await;
            match tools.has(tool) {
                Some(known) => Ok(known),
                None => self.list_tools(tool, headers).await,
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, asking).await.unwrap_or(Err(Failure::TimedOut(LIST_TIMEOUT)))
    }

    /// Reads the whole list, and returns whether it has `wanted` as a task. Tools may change meanwhile: the answer was
    /// true at some moment after the call had come.
    async fn list_tools(&self, wanted: &str, headers: &HeaderMap) -> Result<bool, Failure> {
        let tools = &self.inbound.native.tools;
        let asked_at = tools.changes();
        let (mut names, mut cursor, mut native) = (ToolNames::default(), None, false);
        for page in 1.. {
            let answer = self.tools_page(cursor.as_deref(), headers.clone()).await?;
            let result = match answer.outcome() {
                Some((Outcome::Result, result)) => result,
                Some((Outcome::Error, error)) => return Err(untold(&legacy::error_message(error).unwrap_or_default())),
                None => return Err(untold("it is no response")),
            };
            let listed = listed(result).map_err(|why| untold(&why))?;
            native |= listed.iter().any(|tool| tool.native && tool.name == wanted);
            names.add_native(&listed);
            cursor = next_cursor(result).map(str::to_owned);
            if cursor.is_none() {
                break;
            }
            if page == MAX_PAGES {
                let why = format!("limit reached: the server's list of tools has more than {MAX_PAGES} pages");
                return if native { Ok(true) } else { Err(Failure::Limit(why)) };
            }
        }
        tools.learn_all(asked_at, names);
        Ok(native)
    }

    /// Learns the server's tools where no list of the client has told them.
    ///
    /// # Errors
    /// [`Failure`] where the server does not tell.
    pub async fn learn_tools(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let asking = async {
            let (mut cursor, asked_at) = (None, self.inbound.tools.changes());
            for page in 0..MAX_PAGES {
                let answer = self.tools_page(cursor.as_deref(), headers.clone()).await?;
                let Some((Outcome::Result, result)) = answer.outcome() else {
                    return Err(Failure::BadAnswer("its tools/list is no result".to_owned()));
                };
                let listed = listed(result).map_err(Failure::BadAnswer)?;
                cursor = next_cursor(result).map(str::to_owned);
                // Of a list without an end this much counts as all of it.
                let last = cursor.is_none() || page + 1 == MAX_PAGES;
                self.inbound
                    .tools
                    .learn(&listed, ListPage { request: ListRequest { first: page == 0, asked_at }, last });
                if last {
                    break;
                }
            }
            Ok(())
        };
        tokio::time::timeout(LEARN_TIMEOUT, asking).await.unwrap_or(Err(Failure::TimedOut(LEARN_TIMEOUT)))
    }

    /// Begins to learn which tools the server has, unless that is known: before a call, as some servers answer nothing
    /// while one runs. The answer is not waited for.
    pub fn begin_to_learn_tools(self: &Arc<Self>, headers: &HeaderMap) {
        if !self.inbound.tools.ask() {
            return;
        }
        let (session, headers) = (Arc::clone(self), headers.clone());
        let mut learning = Box::pin(async move {
            // What is not known is taken not to be there.
            let _ = session.learn_tools(&headers).await;
            session.inbound.tools.asked();
        });
        // The request leaves now.
        if learning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(learning);
        }
    }

    async fn tools_page(&self, cursor: Option<&str>, headers: HeaderMap) -> Result<Message, Failure> {
        let exchanges = &self.inbound.exchanges;
        // No client waits for this request, so nothing that the server asks or tells is taken to belong to it.
        let begun = exchanges.begin_apart(None, Purpose::Foreground);
        let mut exchange = begun.map_err(|too_many| Failure::Limit(too_many.to_string()))?;
        let number = exchange.number;
        // A list whose caller has stopped waiting is given up.
        let _guard = ExchangeGuard { exchanges: Arc::clone(exchanges), number };
        let (params, headers) = if self.is_modern() {
            (format!(r#","params":{}"#, own_params(cursor)), own_headers(&headers, "tools/list"))
        } else {
            (cursor.map_or_else(String::new, |cursor| format!(r#","params":{{"cursor":{cursor}}}"#)), headers)
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/list"{params}}}"#).into();
        let outgoing = Outgoing { number, message, headers: headers.clone(), max_answer: MAX_MESSAGE, relay: false };
        exchange.carry(self.link.request(outgoing));
        loop {
            match exchange.next().await {
                // It belongs to no other request in flight.
                Some(Item::Message(message)) => {
                    if let Some(reply) = self.inbound.queue(message) {
                        self.link.send(reply, headers.clone()).await?;
                    }
                }
                Some(Item::Silence | Item::Pause(_)) => {}
                Some(Item::End(ending)) => return ending?.whole().await,
                None => return Err(Failure::Abandoned),
            }
        }
    }
}

fn untold(why: &str) -> Failure {
    Failure::BadAnswer(format!("its tools/list does not tell which tools are tasks of its own: {}", excerpt(why)))
}
