//! `subscriptions/listen` to tasks of taskgate alone: the server has no part in it, and need not be there.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    Answer, ClientRequest, Modern, Refused, SUBSCRIPTION_ID,
    listen::{Filter, acknowledgement, may_expire, tear_down},
    onward::Whose,
    pieces::{PieceWriter, pieces},
    subscriptions::Open,
    watched::{Watched, next, tell},
};
use crate::{config::Native, upstream::ServerFacts};

impl Modern {
    /// Returns whether a request is a subscription to tasks of taskgate alone.
    pub(super) async fn listens_to_own_tasks(&self, request: &ClientRequest) -> bool {
        // What is malformed is refused where the filter is used.
        let Ok((filter, _)) = Filter::read(&request.message) else { return false };
        let upstream = &request.caller.upstream;
        let known = upstream.pool.generation();
        if !filter.is_of_tasks_alone(known) {
            return false;
        }
        if upstream.native == Native::Replace || known.is_some_and(|known| request.whose(known) == Whose::Ours) {
            return true;
        }
        for id in &filter.tasks {
            if !self.engine.may_have(&request.caller.owner, *id).await {
                return false;
            }
        }
        filter.others == 0
    }

    /// Opens a stream of notifications about tasks, and about nothing else.
    pub(super) async fn listen_to_tasks(
        self: &Arc<Self>,
        request: Box<ClientRequest>,
        open: Open,
        watched: Vec<Watched>,
    ) -> Result<Answer, Refused> {
        let (to, from) = pieces(&self.capacity, &self.observer);
        tokio::spawn(Arc::clone(self).tell_of_tasks(request, to, open, watched));
        from.answer().await
    }

    /// Tells of tasks until the client leaves, or the process stops and waits for none of them.
    pub(super) async fn tell_of_tasks(
        self: Arc<Self>,
        mut request: Box<ClientRequest>,
        to: PieceWriter,
        _open: Open,
        watched: Vec<Watched>,
    ) {
        request.opened = None;
        let filter = Filter::of_tasks(watched.iter().map(|watched| watched.task).collect());
        let meta = format!(r#""_meta":{{"{SUBSCRIPTION_ID}":{}}}"#, request.id());
        to.tell(acknowledgement(&meta, &filter.to_raw())).await;
        may_expire(&request, &to, &ServerFacts::own());
        let mut watched: FuturesUnordered<_> = watched.into_iter().map(next).collect();
        loop {
            let run = !watched.is_empty();
            tokio::select! {
                // What is known of tasks is told before the end.
                biased;
                () = to.left() => return,
                Some(news) = watched.next() => {
                    let task = self.news(&request, news.task, &meta).await;
                    watched.extend(tell(&to, task, news).await.map(next));
                }
                () = self.ends(run) => return tear_down(&request, &to, &ServerFacts::own()),
            }
        }
    }
}
