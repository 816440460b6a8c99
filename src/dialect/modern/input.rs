//! Questions and answers as they are written: `inputRequests` and `inputResponses` ("Multi Round-Trip Requests").

use std::collections::HashMap;

use crate::wire::{
    Message, RpcError,
    object::{Members, quote},
};

/// Returns a member of `inputRequests`.
pub(super) fn input_request(key: &str, request: &Message) -> String {
    let method = quote(&request.method_name());
    let params = request.params().map_or(String::new(), |params| format!(r#","params":{params}"#));
    format!(r#"{}:{{"method":{method}{params}}}"#, quote(key))
}

/// The raw answers in `params.inputResponses`, by their keys.
pub(super) fn input_responses(request: &Message) -> Result<HashMap<String, String>, RpcError> {
    let invalid = |why: &str| RpcError::invalid_params(format!("Invalid params: {why}"));
    let params = request.params().map(Members::parse).transpose().map_err(|why| invalid(&why))?;
    let Some(params) = params else { return Ok(HashMap::new()) };
    let responses = match params.get("inputResponses") {
        None => return Ok(HashMap::new()),
        Some(raw) => Members::parse(raw).map_err(|why| invalid(&format!("params.inputResponses: {why}")))?,
    };
    let mut answers = HashMap::new();
    for (key, value) in responses.iter() {
        if !value.starts_with('{') {
            return Err(invalid("each of params.inputResponses must be an object"));
        }
        answers.insert(key.to_owned(), value.to_owned());
    }
    Ok(answers)
}
