//! Questions and answers as they are written: `inputRequests` and `inputResponses` ("Multi Round-Trip Requests").

use std::collections::HashMap;

use crate::wire::{
    Message, Method, RpcError,
    input_required::check_answer,
    object::{Members, quote},
};

/// Returns a member of `inputRequests`.
pub(super) fn input_request(key: &str, request: &Message) -> String {
    let method = quote(&request.method_name());
    let params = request.params().map_or(String::new(), |params| format!(r#","params":{params}"#));
    format!(r#"{}:{{"method":{method}{params}}}"#, quote(key))
}

/// Returns the raw answers in `params.inputResponses`, by their keys. What answers no open question may be of any type.
pub(super) fn input_responses(request: &Message) -> Result<HashMap<String, String>, RpcError> {
    let invalid = |why: &str| RpcError::invalid_params(format!("Invalid params: {why}"));
    let params = request.params().map(Members::parse).transpose().map_err(|why| invalid(&why))?;
    let Some(params) = params else { return Ok(HashMap::new()) };
    let responses = match params.get("inputResponses") {
        None => return Ok(HashMap::new()),
        Some(raw) => Members::parse(raw).map_err(|why| invalid(&format!("params.inputResponses: {why}")))?,
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
            return Err(RpcError::invalid_params(format!("Invalid params: params.inputResponses[{key:?}]: {why}")));
        }
    }
    Ok(())
}
