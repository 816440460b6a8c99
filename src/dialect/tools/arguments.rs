//! The arguments of the tools for jobs. Models write them, so whatever is clear enough is taken.

use std::{collections::HashSet, time::Duration};

use crate::{
    task::TaskId,
    wire::{Message, ids, object::Members},
};

/// How many jobs one call may wait for.
pub(super) const MAX_IDS: usize = 16;
/// How many seconds a call waits that does not say how long, and at most: less than hosts wait for a call.
pub(super) const WAIT: u64 = 25;
pub(super) const MAX_WAIT: u64 = 50;

/// What a call that waits asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitArguments {
    /// The ids of the jobs, as they were given.
    pub(super) ids: Vec<String>,
    /// How long to wait.
    pub(super) at_most: Duration,
}

/// Reads what a call that waits asks for.
///
/// # Errors
/// A sentence that says what is wrong, for the model.
pub(super) fn wait(request: &Message) -> Result<WaitArguments, String> {
    let needs = r#"give the ids of one job or several, such as {"job_ids":["<id>"]}"#;
    let raw = arguments(request)?;
    let arguments = Members::parse(&raw).map_err(|_| needs)?;
    let mut seen = HashSet::new();
    let ids: Vec<_> = ids(&arguments).ok_or(needs)?.into_iter().filter(|id| seen.insert(id.clone())).collect();
    if ids.len() > MAX_IDS {
        return Err(format!("limit reached: wait for at most {MAX_IDS} jobs at once"));
    }
    let seconds = match arguments.get("seconds").filter(|raw| *raw != "null") {
        None => WAIT,
        Some(raw) => seconds(raw).ok_or_else(|| format!("seconds must be a number from 0 to {MAX_WAIT}"))?,
    };
    Ok(WaitArguments { ids, at_most: Duration::from_secs(seconds) })
}

/// Reads the id of the job that a call is about.
///
/// # Errors
/// A sentence that says what is wrong, for the model.
pub(super) fn job_id(request: &Message) -> Result<String, String> {
    let raw = arguments(request)?;
    let ids = Members::parse(&raw).ok().and_then(|arguments| ids(&arguments));
    match ids.as_deref() {
        Some([id]) => Ok(id.clone()),
        _ => Err(r#"give the id of one job, such as {"job_id":"<id>"}"#.to_owned()),
    }
}

/// Returns the ids that a call names and that may be those of jobs; none where its arguments are wrong.
pub(super) fn ids_of(request: &Message) -> Vec<TaskId> {
    let Ok(raw) = arguments(request) else { return Vec::new() };
    let Ok(arguments) = Members::parse(&raw) else { return Vec::new() };
    ids(&arguments).into_iter().flatten().take(MAX_IDS).filter_map(|id| ids::parse(&id)).collect()
}

fn arguments(request: &Message) -> Result<String, String> {
    let params = request.params().map(Members::parse).transpose()?;
    Ok(params.and_then(|params| params.get("arguments")).unwrap_or("{}").to_owned())
}

/// Reads `job_ids` or `job_id`, one id or several; also a list that was written as a text. `None` where there is none.
fn ids(arguments: &Members<'_>) -> Option<Vec<String>> {
    let raw = arguments.get("job_ids").or_else(|| arguments.get("job_id"))?;
    let list = |raw: &str| serde_json::from_str::<Vec<String>>(raw).ok();
    let one = || serde_json::from_str::<String>(raw).ok().map(|text| list(&text).unwrap_or_else(|| vec![text]));
    list(raw).or_else(one).filter(|ids| !ids.is_empty() && ids.iter().all(|id| !id.is_empty()))
}

/// Reads a number of seconds, and lowers one that is too great.
fn seconds(raw: &str) -> Option<u64> {
    let seconds = raw.trim_matches('"').parse::<f64>().ok().filter(|seconds| *seconds >= 0.0)?;
    // A great one is more than a `Duration` has.
    Duration::try_from_secs_f64(seconds.min(60.0)).ok().map(|wait| wait.as_secs().min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{arguments}}}}}"#);
        Message::parse(text.into()).expect("a call")
    }

    #[test]
    fn what_a_model_writes_is_taken_where_it_is_clear() {
        for (arguments, ids, seconds) in [
            (r#"{"job_ids":["a"]}"#, vec!["a"], 25),
            (r#"{"job_ids":["a","b"],"seconds":50}"#, vec!["a", "b"], 50),
            (r#"{"job_id":"a","seconds":"10"}"#, vec!["a"], 10),
            (r#"{"job_ids":"a","seconds":3600}"#, vec!["a"], 50),
            (r#"{"job_ids":["a","b","a"],"seconds":1.5}"#, vec!["a", "b"], 1),
            (r#"{"job_ids":"[\"a\", \"b\"]"}"#, vec!["a", "b"], 25),
            (r#"{"job_ids":["a"],"seconds":null}"#, vec!["a"], 25),
        ] {
            let read = wait(&call(arguments)).expect(arguments);
            assert_eq!((read.ids, read.at_most.as_secs()), (ids.iter().map(ToString::to_string).collect(), seconds));
        }
        assert_eq!(job_id(&call(r#"{"job_id":"a"}"#)).as_deref(), Ok("a"));
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        let no_ids = ["{}", "7", "[]", "null", r#"{"job_ids":[]}"#, r#"{"job_ids":[1]}"#, r#"{"job_id":""}"#];
        for arguments in no_ids {
            let told = wait(&call(arguments)).expect_err(arguments);
            assert_eq!(told, r#"give the ids of one job or several, such as {"job_ids":["<id>"]}"#);
            let told = job_id(&call(arguments)).expect_err(arguments);
            assert_eq!(told, r#"give the id of one job, such as {"job_id":"<id>"}"#);
        }
        for seconds in [r#""soon""#, "-1", "true", r#""NaN""#, "[]"] {
            let arguments = format!(r#"{{"job_ids":["a"],"seconds":{seconds}}}"#);
            assert!(wait(&call(&arguments)).expect_err(seconds).contains("from 0 to 50"));
        }
        assert!(job_id(&call(r#"{"job_ids":["a","b"]}"#)).is_err());
        let many: Vec<_> = (0..17).map(|id| id.to_string()).collect();
        assert!(wait(&call(&serde_json::json!({ "job_ids": many }).to_string())).expect_err("many").contains("16"));
    }
}
