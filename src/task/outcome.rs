//! Turns what a call gave into the end of its task.

use std::sync::Arc;

use super::{Change, End};
use crate::upstream::{CallEnd, error_code, own_error};

/// Returns the change that ends the task of a call, and for the log why the task failed, unless what the call gave says so.
pub(super) fn of(end: CallEnd) -> (Change, Option<String>) {
    match end {
        CallEnd::Result { raw, error } => {
            let is_error = error.is_some();
            (Change::End(End::Result { raw, is_error }, error.map(Arc::from)), None)
        }
        CallEnd::Error { raw, text } => (Change::End(End::Error { raw }, Some(text.into())), None),
        CallEnd::Nothing { why, cause } => (failed(&why), Some(cause)),
    }
}

/// Returns the code of the error that a task has ended with.
pub(super) fn code(end: &End) -> Option<i64> {
    match end {
        End::Error { raw } => error_code(raw),
        End::Result { .. } | End::Cancelled => None,
    }
}

/// Returns the change that fails a task whose server gave no answer.
pub(super) fn failed(why: &str) -> Change {
    Change::End(End::Error { raw: own_error(why) }, Some(why.into()))
}
