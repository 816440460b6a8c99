//! Questions and answers as they are written: `inputRequests` and `inputResponses` ("Multi Round-Trip Requests").

use std::collections::HashMap;

use super::ClientRequest;
use crate::wire::{
    Message, Method, RpcError,
    input_required::check_answer,
    object::{Members, Needle, object, quote},
};

/// The beginning of the keys of questions that stand for a server's error -32042 and send the user to a page.
pub(super) const PAGE: &str = "page-";

/// Which members of a retry the `params` of a request have.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryMembers {
    /// `requestState`
    pub(super) state: bool,
    /// `inputResponses`
    pub(super) responses: bool,
}

impl RetryMembers {
    /// Returns which of them are among these members.
    pub(super) fn of(params: &Members<'_>) -> Self {
        let has = |key| params.get(key).is_some();
        Self { state: has("requestState"), responses: has("inputResponses") }
    }
}

/// Returns a member of `inputRequests`.
pub(super) fn input_request(key: &str, request: &Message) -> String {
    static ELICITATION_ID: Needle = Needle::new("elicitationId");
    let method = quote(&request.method_name());
    let params = match request.params() {
        None => String::new(),
        // The revision has no such member ("Changelog"). What cannot be parsed was refused before.
        Some(params) if request.method() == Method::Elicit && ELICITATION_ID.is_in(params) => {
            let members = Members::parse(params).ok();
            let kept = members.iter().flat_map(|members| members.iter().filter(|(key, _)| *key != "elicitationId"));
            format!(r#","params":{}"#, object(kept))
        }
        Some(params) => format!(r#","params":{params}"#),
    };
    format!(r#"{}:{{"method":{method}{params}}}"#, quote(key))
}

/// Checks the answers of a request that is sent again after its server has sent the user to pages.
///
/// # Errors
/// An answer is no result of its method, or the user did not go to a page: the server would only refuse the call again.
pub(super) fn check_pages(request: &ClientRequest) -> Result<(), RpcError> {
    if !request.retry.responses {
        return Ok(());
    }
    let answers = input_responses(&request.message)?;
    let pages = || answers.iter().filter(|(key, _)| key.starts_with(PAGE));
    check_answers(&answers, pages().map(|(key, _)| (&**key, Method::Elicit)))?;
    let accepts = |answer: &str| Members::parse(answer).is_ok_and(|it| it.text("action").as_deref() == Some("accept"));
    if pages().all(|(_, answer)| accepts(answer)) {
        return Ok(());
    }
    Err(RpcError::internal(
        "the call was not sent again: the user did not go to the page that the server needs visited",
    ))
}

/// Returns the raw answers in `params.inputResponses`, by their keys. What answers no open question may be of any type.
pub(super) fn input_responses(request: &Message) -> Result<HashMap<String, String>, RpcError> {
    let params = request.params().map(Members::parse).transpose().map_err(RpcError::bad_params)?;
    let Some(params) = params else { return Ok(HashMap::new()) };
    let responses = match params.get("inputResponses") {
        None => return Ok(HashMap::new()),
        Some(raw) => {
            Members::parse(raw).map_err(|why| RpcError::bad_params(format!("params.inputResponses: {why}")))?
        }
    };
    Ok(responses.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Checks those of the answers that open questions get, each with its key and its method (section "Error Handling").
///
/// # Errors
/// -32602 for the first that is no result of its method.
pub(super) fn check_answers<'q>(
    answers: &HashMap<String, String>,
    open: impl Iterator<Item = (&'q str, Method)>,
) -> Result<(), RpcError> {
    for (key, method) in open {
        if let Some(Err(why)) = answers.get(key).map(|answer| check_answer(method, answer)) {
            return Err(RpcError::bad_params(format!("params.inputResponses[{key:?}]: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_at_a_url_has_no_id_that_the_revision_does_not_know() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","elicitationId":"7","url":"u"}}"#;
        let request = Message::parse(text.into()).expect("valid");
        let expected = r#""k":{"method":"elicitation/create","params":{"mode":"url","url":"u"}}"#;
        assert_eq!(input_request("k", &request), expected);
    }
}
