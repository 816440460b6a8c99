//! 429: what a client does more often than `[rate]` allows is refused, and so are further guesses of one that guesses
//! the ids of tasks. Clients of revision 2026-07-28 are refused in the same way in `dialect/modern/error.rs`.

use std::sync::Arc;

use http::StatusCode;

use crate::{
    dialect::not_found,
    gate::{delivery::Whole, refuse::Refusal},
    limit::{FailedLookup, Rated, TooOften},
    observe::{Observer, events},
    route::Route,
    session::Session,
    task::TaskId,
};

/// Counts a request that is limited in its rate.
///
/// # Errors
/// Refuses with 429 where the rate is used up.
pub(super) fn count(session: &Session, route: &Route) -> Result<(), Refusal> {
    let rated = match route {
        Route::RunAsTask { .. } => Rated::Creation,
        Route::TasksGet | Route::TasksResult | Route::TasksList | Route::TasksCancel => Rated::TaskMethod,
        Route::Pass | Route::ToolsList | Route::Cancelled | Route::Refuse(_) => return Ok(()),
    };
    session.caller.account.count(rated).map_err(|limit| too_often(session, &limit))
}

/// Answers a request for a task that does not exist for the client. A client that guesses ids waits for the answer, and
/// then gets none.
///
/// # Errors
/// Refuses with 429 after too many of them.
pub(super) async fn task_not_found(
    observer: &Observer,
    session: &Session,
    id: &str,
    task: Option<TaskId>,
) -> Result<Whole, Refusal> {
    let lookup = session.caller.account.failed_lookup();
    observer.emit(events::LookupFailed { who: &session.caller.who, task, repeated: lookup.repeated() });
    match lookup {
        FailedLookup::Answered => {}
        FailedLookup::Slowed(by, _permit) => tokio::time::sleep(by).await,
        FailedLookup::Refused(limit) => return Err(too_often(session, &limit)),
    }
    Ok(Whole::error(id, &not_found()))
}

/// Refuses with 429, and tells the whole seconds to wait.
fn too_often(session: &Session, too_often: &TooOften) -> Refusal {
    let (seconds, message) = (too_often.seconds(), too_often.to_string());
    let refusal = Refusal::retry_after(seconds, StatusCode::TOO_MANY_REQUESTS, too_often.key, message);
    refusal.by(Arc::clone(&session.caller.who))
}
