//! Removing all that an owner has, in parts: each is one batch, and other uses of the store come in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::oneshot::{self, Receiver};

use super::{
    change::Ways,
    kept::{KeptTasks, Stage},
    rows,
};
use crate::{
    disk::{self, Operation, is_damage, rusqlite::Connection},
    identity::Owner,
    task::{
        TaskId,
        store::{PageOrder, Unavailable, deadlines::AT_ONCE},
    },
};

/// The answer about one part.
type Answered = Result<Part, disk::Unavailable>;

/// Some tasks that were removed.
pub(super) struct Part {
    removed: Vec<TaskId>,
    /// Tells of the next part, if there is one, or why it cannot be removed now.
    next: Option<Result<Receiver<Answered>, disk::Unavailable>>,
}

/// Returns what was removed, after the last part.
pub(super) async fn removed(mut answered: Receiver<Answered>) -> Result<Vec<TaskId>, Unavailable> {
    let mut all = Vec::new();
    loop {
        let part = disk::answer(&mut answered).await??;
        all.extend(part.removed);
        match part.next {
            Some(next) => answered = next?,
            None => return Ok(all),
        }
    }
}

/// Begins to remove what `owner` has. It goes on to the end though its caller leaves.
pub(super) fn begin(ways: Ways, owner: Owner) -> Result<Receiver<Answered>, disk::Unavailable> {
    let (answer, answered) = oneshot::channel();
    let disk = ways.disk.clone();
    let (tasks, its_owner) = (Arc::clone(&ways.tasks), owner.clone());
    let has_met_damage = Arc::new(AtomicBool::new(false));
    let meets_damage = Arc::clone(&has_met_damage);
    let run = move |connection: &Connection| {
        let written = first_of(&tasks, &its_owner);
        for (place, _) in &written {
            let removed = rows::remove(connection, *place);
            removed.inspect_err(|error| meets_damage.store(is_damage(error), Ordering::Relaxed))?;
        }
        Ok(written.into_iter().map(|(_, id)| id).collect::<Vec<_>>())
    };
    let done = move |written: Result<Vec<TaskId>, disk::Unavailable>| {
        // Then each goes for itself, so that those with damage keep no other one.
        let are_rows_left = written.is_err() && has_met_damage.load(Ordering::Relaxed);
        let written = if are_rows_left {
            Ok(first_of(&ways.tasks, &owner).into_iter().map(|(_, id)| id).collect())
        } else {
            written
        };
        let part = written.map(|ids: Vec<TaskId>| {
            // By what was chosen: another removal may have taken them out first.
            let is_last = ids.len() < AT_ONCE;
            let mut removed = Vec::new();
            for (id, entry) in ways.tasks.remove(|| ids) {
                let result = entry.kept.result.as_ref();
                if are_rows_left {
                    ways.remove_task(id, entry.place, result);
                } else {
                    ways.remove_result(id, result);
                }
                removed.push(id);
            }
            let next = (!is_last).then(|| begin(ways, owner));
            Part { removed, next }
        });
        // The caller may have left.
        let _ = answer.send(part);
    };
    disk.submit(Operation::new(run, done))?;
    Ok(answered)
}

/// Returns the first tasks of `owner` that are in the file, with their places.
fn first_of(tasks: &KeptTasks, owner: &Owner) -> Vec<(u64, TaskId)> {
    let index = tasks.index.lock();
    let is_written = |id| index.owned(owner, id).is_some_and(|entry| entry.kept.stage >= Stage::Written);
    index.of(owner, PageOrder::ALL).filter(|(_, id)| is_written(*id)).take(AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::mpsc};

    use super::*;
    use crate::task::{
        Clock,
        state::tests::{owner, task},
        store::{
            MaxKept, Store as _,
            file::testing::{folder, opened},
        },
    };

    #[tokio::test]
    async fn many_tasks_are_removed_in_parts_to_the_end_though_the_caller_leaves() {
        let folder = folder();
        let room = MaxKept::of_tasks(usize::MAX, usize::MAX);
        let store = opened(&folder, room, None, Some(Clock::starting_at(1000))).await;
        let owner = owner();
        for is_waited_for in [true, false] {
            let tasks: Vec<_> = (0..=2 * AT_ONCE).map(|_| task(&owner)).collect();
            let added = tasks.chunks(AT_ONCE).map(|part| part.iter().map(|task| store.insert(task.clone(), None)));
            for part in added {
                futures_util::future::try_join_all(part).await.expect("available");
            }
            let count =
                |rows: &Connection| rows.query_row("SELECT count(*) FROM tasks", (), |row| row.get::<_, u32>(0));
            // Nothing is written until all of this waits.
            let ((go, wait), (tell, left)) = (mpsc::channel(), oneshot::channel());
            let waits = Operation::new(move |_| Ok(wait.recv()), drop);
            store.disk.submit(waits).expect("room");
            let removing = store.remove_all(&owner);
            store.disk.submit(Operation::new(count, |count| drop(tell.send(count)))).expect("room");
            go.send(()).expect("it waits");
            assert_eq!(left.await, Ok(Ok(u32::try_from(AT_ONCE).expect("small") + 1)), "others come in between");
            if is_waited_for {
                let removed: BTreeSet<_> = removing.await.expect("available").into_iter().collect();
                assert_eq!(removed, tasks.iter().map(|task| task.id).collect());
            } else {
                drop(removing);
                while store.has_any(&owner).await == Ok(true) {
                    tokio::task::yield_now().await;
                }
            }
            assert_eq!(store.disk.read(count).await, Ok(0));
        }
    }
}
