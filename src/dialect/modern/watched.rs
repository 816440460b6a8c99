//! The tasks that a subscription tells of.

use std::{collections::HashSet, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{ClientRequest, Modern, Refused, pieces::PieceWriter, tasks::damaged};
use crate::{
    task::{Missing, State, TaskId, Watch},
    wire::Parts,
};

/// After what time news of a task are looked for again where the store did not answer.
const RETRY: Duration = Duration::from_secs(1);

/// A task that a client hears of.
#[derive(Debug)]
pub(super) struct Watched {
    watch: Watch,
    pub(super) task: TaskId,
    /// Whether its state is told at once: it has ended, or waits for input, which the client may not know.
    is_news: bool,
    /// Whether it had not ended when it was looked at.
    runs: bool,
    /// When its state is told, where that was tried before.
    again_at: Option<Instant>,
}

/// What a client is told of a task.
#[derive(Debug)]
pub(super) struct News {
    notification: Parts,
    /// Whether the task has ended, so that there is no more to tell.
    is_end: bool,
}

impl Modern {
    /// Returns those of the tasks that the client may hear of. Where taskgate alone has tasks, all others are look-ups
    /// that fail, which are held back once.
    pub(super) async fn watched(
        &self,
        request: &ClientRequest,
        ids: Vec<TaskId>,
        alone: bool,
    ) -> Result<Vec<Watched>, Refused> {
        let owner = &request.caller.owner;
        let (mut watched, mut unknown) = (Vec::new(), Vec::new());
        for id in ids.into_iter().collect::<HashSet<_>>() {
            // Watched before it is looked at: a change from here on is told.
            let full = |full| Refused::limit("waiters", &format!("{full}; poll with tasks/get instead"));
            let watch = self.engine.watch(owner, id).map_err(full)?;
            match self.engine.look(owner, id).await {
                Ok(task) => {
                    let (is_news, runs) = (task.state != State::Working, !task.state.is_terminal());
                    watched.push(Watched { watch, task: id, is_news, runs, again_at: None });
                }
                Err(Missing::NotFound(id)) => unknown.push(id),
                Err(why) => return Err(self.no_task(request, &why).await),
            }
        }
        for id in unknown.into_iter().filter(|_| alone) {
            if self.count_lookup(request, id).await? {
                break;
            }
        }
        Ok(watched)
    }

    /// Refuses a new subscription that would end at once, as the process stops: its client might open one after the other.
    pub(super) fn may_begin(&self, watched: &[Watched]) -> Result<(), Refused> {
        let runs = watched.iter().any(|watched| watched.runs);
        let ends = if runs { &self.drained } else { &self.stopping };
        if ends.is_cancelled() { Err(Refused::stopping()) } else { Ok(()) }
    }

    /// Waits until a subscription ends because the process stops; where tasks of it `run`, which the process waits for,
    /// until it no longer does.
    pub(super) async fn ends(&self, run: bool) {
        let ends = if run { &self.drained } else { &self.stopping };
        ends.cancelled().await;
    }

    /// Returns what tells of a task as it is now, with the raw member `meta`.
    pub(super) async fn news(&self, request: &ClientRequest, task: TaskId, meta: &str) -> Result<News, Missing> {
        let front = format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{{meta},"#);
        let told = self.engine.tell(&request.caller.owner, task).await?;
        let notification = match self.detailed(request, told.clone(), &[&front]).await {
            // A client that waits for the end would wait for ever.
            Err(Missing::Damaged) => damaged(&told, &front),
            notification => notification?,
        };
        Ok(News { notification, is_end: told.task.state.is_terminal() })
    }
}

/// Waits until there is something to tell of a task.
pub(super) async fn next(mut watched: Watched) -> Watched {
    if let Some(again_at) = watched.again_at.take() {
        sleep_until(again_at).await;
    } else if !std::mem::take(&mut watched.is_news) {
        watched.watch.changed().await;
    }
    watched
}

/// Tells the news of a task. Returns the task if there may be more.
pub(super) async fn tell(to: &PieceWriter, news: Result<News, Missing>, watched: Watched) -> Option<Watched> {
    match news {
        // It was woken as the process ends, where the task goes on in the next one.
        Ok(News { is_end: false, .. }) if watched.watch.is_stopped() => Some(watched),
        Ok(News { notification, is_end }) => {
            to.tell(notification.into_bytes()).await;
            (!is_end).then_some(watched)
        }
        Err(Missing::Unavailable) => Some(Watched { again_at: Some(Instant::now() + RETRY), ..watched }),
        Err(Missing::NotFound(_) | Missing::Damaged) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use http::StatusCode;

    use super::{super::pieces::pieces, *};
    use crate::{
        flow::Capacity,
        task::{
            Clock, Engine,
            store::{MaxKept, MemoryStore},
            unlimited,
        },
    };

    #[tokio::test(start_paused = true)]
    async fn news_are_looked_for_again_where_the_store_did_not_answer_and_a_task_that_is_gone_has_none() {
        let clock = Clock::start();
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), clock, Arc::default());
        let engine = Engine::start(Arc::new(store), clock, unlimited(), Arc::default());
        let (owner, task) = (crate::identity::Owner::anyone("/mcp".into()), TaskId::new_v4());
        let watched = || {
            let watch = engine.watch(&owner, task).expect("room");
            Watched { watch, task, is_news: false, runs: true, again_at: None }
        };
        let (to, from) = pieces(&Capacity::new(4096, 4096), &Arc::default());
        let told = tell(&to, Err(Missing::Unavailable), watched()).await.expect("there may be more");
        let again = next(told).await;
        assert!(next(again).now_or_never().is_none(), "told as nothing has changed");
        for gone in [Missing::NotFound(task), Missing::Damaged] {
            assert!(tell(&to, Err(gone), watched()).await.is_none());
        }
        to.respond(StatusCode::OK, Parts::default());
        assert!(from.answer().await.is_ok());
    }
}
