//! What a start reads.

use std::{collections::HashSet, sync::Arc};

use super::{
    change::Ways,
    kept::{Kept, Stage},
    rows,
};
use crate::{
    disk::{Damaged, Disk, Unavailable},
    observe::events,
    task::store::index::Entry,
};

/// Reads every task, and has what belongs to none removed.
pub(super) async fn load(disk: &Disk, ways: &Ways) -> Result<(), Unavailable> {
    let reading = ways.clone();
    let orphans = disk.read_all(move |connection| {
        let Ways { tasks, seals, .. } = &reading;
        let mut used = HashSet::new();
        let mut is_whole = true;
        let mut index = tasks.index.lock();
        rows::all(connection, seals, |place, task, result| {
            let (bytes, expires, id, owner) =
                (result.as_ref().map_or(0, |result| result.bytes), task.expires, task.id, task.owner.clone());
            if let Some(result) = &result {
                tasks.skip_results(result.number);
                used.extend(result.pieces());
            }
            // Notes are not read here.
            let may_have_note = !task.state.is_terminal();
            let kept = Kept { stage: Stage::Kept, result, may_have_note, ..Kept::admitted(Arc::new(task)) };
            is_whole &= index.restore(id, Entry { owner, place, bytes, expires, kept });
            tasks.deadlines.add(expires, id);
            tasks.observer.emit(events::TaskKept);
            tasks.observer.emit(events::ResultKept { bytes });
        })?;
        index.skip_to(rows::next_place(connection)?);
        let numbers = rows::result_numbers(connection)?;
        for number in &numbers {
            tasks.skip_results(*number);
        }
        let there: HashSet<u64> = numbers.iter().copied().collect();
        // An empty result has one empty piece.
        if !is_whole || !used.is_subset(&there) {
            return Err(Damaged.into());
        }
        Ok(numbers.into_iter().filter(|number| !used.contains(number)).collect::<Vec<_>>())
    });
    for number in orphans.await? {
        ways.remove_pieces(None, number);
    }
    Ok(())
}
