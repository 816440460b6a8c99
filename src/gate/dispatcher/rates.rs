//! What is done at a limited rate, and the answers to ids of tasks that are not found.

use std::sync::Arc;

use crate::{
    dialect::legacy::not_found,
    gate::{delivery::Whole, refuse::Refusal},
    limit::{Lookup, Rated, TooOften},
    observe::{Observer, events},
    route::Route,
    session::Session,
    task::TaskId,
};

/// Counts a request that is limited in its rate.
///
/// # Errors
/// 429, if the rate is used up.
pub(super) fn count(session: &Session, route: &Route) -> Result<(), Refusal> {
    let rated = match route {
        Route::RunAsTask { .. } => Rated::Creation,
        Route::Get | Route::Result | Route::List | Route::Cancel => Rated::TaskMethod,
        Route::Pass | Route::ToolsList | Route::Cancelled | Route::Refuse(_) => return Ok(()),
    };
    session.account.count(rated).map_err(|limit| too_often(session, &limit))
}

/// The answer to a request for a task that does not exist for the asker. Whoever guesses ids waits for it, and then
/// gets none.
///
/// # Errors
/// 429, if there were too many of them.
pub(super) async fn task_not_found(
    observer: &Observer,
    session: &Session,
    id: &str,
    task: Option<TaskId>,
) -> Result<Whole, Refusal> {
    let lookup = session.account.failed_lookup();
    let repeated = match &lookup {
        Lookup::Answered => None,
        Lookup::Slowed(..) => Some("slowed"),
        Lookup::Refused(_) => Some("refused"),
    };
    observer.emit(events::LookupFailed { who: &session.who, task, repeated });
    match lookup {
        Lookup::Answered => {}
        Lookup::Slowed(by, _permit) => tokio::time::sleep(by).await,
        Lookup::Refused(limit) => return Err(too_often(session, &limit)),
    }
    Ok(Whole::error(id, &not_found()))
}

fn too_often(session: &Session, too_often: &TooOften) -> Refusal {
    Refusal::too_often(too_often).by(Arc::clone(&session.who))
}
