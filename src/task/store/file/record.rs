//! The written form of a task, which later versions read too: the number of the form, and the fields in their order.
//!
//! Files of the formats 1 and 2 have it as JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    disk::Damaged,
    identity::Owner,
    task::{Ending, State, Task, TaskId},
};

/// The number of the form. No JSON begins with that byte.
const FORM: u8 = 2;

/// A task as it stands in the file. The order of its fields is a part of the form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record<'a> {
    id: TaskId,
    owner: Cow<'a, Owner>,
    tool: Cow<'a, str>,
    state: WrittenState,
    status_message: Option<Cow<'a, str>>,
    created_at: u64,
    last_updated_at: u64,
    ttl: u64,
    keep: u64,
    shortens: bool,
    poll_interval: u64,
    expires: u64,
    version: u32,
    result: Option<Cow<'a, ResultPlace>>,
}

/// About the length of a record.
const USUAL: usize = 160;

/// Where the result of a task stands, and what it has to be. The order of the fields is a part of the form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultPlace {
    /// The number of the result in the file.
    pub number: u64,
    /// Its length.
    pub bytes: usize,
    /// How many pieces it has; 0 where it stands in the row of the task.
    pub chunks: u16,
    /// The SHA-256 of all pieces, in hexadecimal digits.
    #[serde(default)]
    pub digest: String,
}

impl ResultPlace {
    /// Returns the number under which its pieces stand, if it has any.
    pub(super) fn pieces(&self) -> Option<u64> {
        (self.chunks > 0).then_some(self.number)
    }
}

/// The order is a part of the form.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenState {
    Working,
    InputRequired,
    Result,
    ErrorResult,
    Error,
    Cancelled,
}

impl From<State> for WrittenState {
    fn from(state: State) -> Self {
        match state {
            State::Working => Self::Working,
            State::InputRequired => Self::InputRequired,
            State::Ended(Ending::Result) => Self::Result,
            State::Ended(Ending::ErrorResult) => Self::ErrorResult,
            State::Ended(Ending::Error) => Self::Error,
            State::Ended(Ending::Cancelled) => Self::Cancelled,
        }
    }
}

impl From<WrittenState> for State {
    fn from(state: WrittenState) -> Self {
        match state {
            WrittenState::Working => Self::Working,
            WrittenState::InputRequired => Self::InputRequired,
            WrittenState::Result => Self::Ended(Ending::Result),
            WrittenState::ErrorResult => Self::Ended(Ending::ErrorResult),
            WrittenState::Error => Self::Ended(Ending::Error),
            WrittenState::Cancelled => Self::Ended(Ending::Cancelled),
        }
    }
}

impl<'a> Record<'a> {
    /// Returns what stands in the file of a task and of the place of its result.
    pub(super) fn of(task: &'a Task, result: Option<&'a ResultPlace>) -> Self {
        Self {
            id: task.id,
            owner: Cow::Borrowed(&task.owner),
            tool: Cow::Borrowed(&task.tool),
            state: task.state.into(),
            status_message: task.status_message.as_deref().map(Cow::Borrowed),
            created_at: task.created_at,
            last_updated_at: task.last_updated_at,
            ttl: task.ttl,
            keep: task.keep,
            shortens: task.shortens,
            poll_interval: task.poll_interval,
            expires: task.expires,
            version: task.version,
            result: result.map(Cow::Borrowed),
        }
    }
}

/// Returns the written form of a task and of the place of its result.
///
/// # Errors
/// None that is known: strings, numbers and what is made of them can always be written.
pub(super) fn write(task: &Task, result: Option<&ResultPlace>) -> postcard::Result<Vec<u8>> {
    let mut written = Vec::with_capacity(USUAL);
    written.push(FORM);
    postcard::to_extend(&Record::of(task, result), written)
}

/// Reads the written form of a task and of the place of its result.
pub(super) fn read(bytes: &[u8]) -> Result<(Task, Option<ResultPlace>), Damaged> {
    let record: Record = match bytes.split_first() {
        Some((&FORM, fields)) => match postcard::take_from_bytes(fields) {
            Ok((record, [])) => record,
            _ => return Err(Damaged),
        },
        _ => serde_json::from_slice(bytes).map_err(|_| Damaged)?,
    };
    let task = Task {
        id: record.id,
        owner: record.owner.into_owned(),
        tool: record.tool.into(),
        state: record.state.into(),
        status_message: record.status_message.map(Into::into),
        created_at: record.created_at,
        last_updated_at: record.last_updated_at,
        ttl: record.ttl,
        keep: record.keep,
        shortens: record.shortens,
        poll_interval: record.poll_interval,
        expires: record.expires,
        version: record.version,
    };
    let has_result = !matches!(task.state, State::Working | State::InputRequired | State::Ended(Ending::Cancelled));
    if has_result == record.result.is_some() { Ok((task, record.result.map(Cow::into_owned))) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_form_of_a_task_stays_as_it_is() {
        let task = Task {
            id: TaskId::nil(),
            state: State::Ended(Ending::Result),
            ..crate::task::state::tests::task(&crate::task::state::tests::owner())
        };
        let result = ResultPlace { number: 3, bytes: 2, chunks: 1, digest: "ab".to_owned() };
        let json = concat!(
            r#"{"id":"00000000-0000-0000-0000-000000000000","owner":{"principal":{"upstream":"/mcp","name":"ann"}},"#,
            r#""tool":"tool","state":"result","created_at":1000,"last_updated_at":1000,"ttl":60000,"keep":60000,"#,
            r#""shortens":false,"poll_interval":1000,"expires":61000,"version":0,"#,
            r#""result":{"number":3,"bytes":2,"chunks":1,"digest":"ab"}}"#,
        );
        let written = [
            b"\x02\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".as_slice(),
            b"\x02\x04/mcp\x03ann\x04tool\x02\0",
            b"\xe8\x07\xe8\x07\xe0\xd4\x03\xe0\xd4\x03\0\xe8\x07\xc8\xdc\x03\0",
            b"\x01\x03\x02\x01\x02ab",
        ]
        .concat();
        assert_eq!(write(&task, Some(&result)).as_ref(), Ok(&written));
        for form in [written.as_slice(), json.as_bytes()] {
            let (read_task, read_result) = read(form).expect("read");
            assert!(read_task.is(&task) && read_result.as_ref() == Some(&result) && read_task.owner == task.owner);
            for cut in 0..form.len() {
                assert!(read(&form[..cut]).is_err(), "{cut} bytes");
            }
            assert!(read(&[form, b"1"].concat()).is_err());
        }
        for (what, instead) in
            [("\"result\",", "\"working\","), ("\"ttl\"", "\"tll\""), ("60000", "-1"), ("{\"id", "[\"id")]
        {
            assert!(read(json.replace(what, instead).as_bytes()).is_err(), "{instead}");
        }
    }

    #[test]
    fn the_numbers_of_the_states_stay_as_they_are() {
        let ends = [Ending::Result, Ending::ErrorResult, Ending::Error, Ending::Cancelled].map(State::Ended);
        for (state, number) in [State::Working, State::InputRequired].into_iter().chain(ends).zip(0..) {
            assert_eq!(postcard::to_allocvec(&WrittenState::from(state)), Ok(vec![number]), "{state:?}");
        }
    }

    proptest! {
        #[test]
        fn a_task_is_read_as_it_was_written(
            tool in ".{0,40}", message in proptest::option::of(".{0,40}"), state in 0usize..6, times: [u64; 6], version: u32,
            shortens: bool,
        ) {
            let states = [
                State::Working, State::InputRequired, State::Ended(Ending::Result), State::Ended(Ending::ErrorResult),
                State::Ended(Ending::Error), State::Ended(Ending::Cancelled),
            ];
            let [created_at, last_updated_at, ttl, keep, poll_interval, expires] = times;
            let task = Task {
                id: uuid::Uuid::new_v4(),
                owner: Owner::session(uuid::Uuid::new_v4()),
                tool: tool.into(),
                state: states[state],
                status_message: message.map(Arc::from),
                created_at, last_updated_at, ttl, keep, shortens, poll_interval, expires, version,
            };
            let result = (2..5).contains(&state).then(|| ResultPlace { number: ttl, bytes: 5, chunks: 1, digest: String::new() });
            let (read_task, read_result) = read(&write(&task, result.as_ref()).expect("written")).expect("read");
            prop_assert_eq!(format!("{task:?}"), format!("{read_task:?}"));
            prop_assert_eq!(result, read_result);
        }

        #[test]
        fn bytes_at_random_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(read(&bytes).is_err());
        }
    }
}
