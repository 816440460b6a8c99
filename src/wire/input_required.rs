//! Results that ask ("Multi Round-Trip Requests"): what a server wants to know before it goes on, and the retry that
//! tells it.

use bytes::Bytes;

use super::{
    Edits, Message, Method, RpcError, excerpt,
    object::{Members, quote},
    params::unambiguous,
};

/// The kind of a result.
#[derive(Debug)]
pub enum ResultType<'a> {
    /// The call is over.
    Complete,
    /// The server wants to know something first.
    InputRequired(InputRequired<'a>),
    /// Another one, by its name.
    Other(String),
}

/// What a server asks before it goes on.
#[derive(Debug)]
pub struct InputRequired<'a> {
    /// Its questions.
    pub requests: Vec<InputRequest<'a>>,
    /// The raw state that the retry gives back.
    pub state: Option<&'a str>,
}

/// One question.
#[derive(Debug)]
pub struct InputRequest<'a> {
    /// Its key.
    pub key: String,
    method: String,
    params: Option<&'a str>,
}

impl<'a> ResultType<'a> {
    /// Reads a raw result.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn of(result: &'a str) -> Result<Self, String> {
        let members = Members::parse(result)?;
        match members.get("resultType") {
            None => return Ok(Self::Complete),
            Some(_) => match members.text("resultType").as_deref() {
                Some("complete") => return Ok(Self::Complete),
                Some("input_required") => {}
                other => return Ok(Self::Other(other.unwrap_or_default().to_owned())),
            },
        }
        let asked = match members.get("inputRequests") {
            None => None,
            Some(raw) => Some(Members::parse(raw).map_err(|why| format!("{why} in \"inputRequests\""))?),
        };
        let requests = asked.iter().flat_map(Members::iter).map(|(key, raw)| InputRequest::read(key, raw));
        let requests = requests.collect::<Result<Vec<_>, _>>()?;
        let state = members.get("requestState");
        if state.is_some_and(|state| !state.starts_with('"')) {
            return Err("its requestState is no string".to_owned());
        }
        if requests.is_empty() && state.is_none() {
            return Err("it asks for input, and has neither inputRequests nor a requestState".to_owned());
        }
        Ok(Self::InputRequired(InputRequired { requests, state }))
    }
}

impl<'a> InputRequest<'a> {
    fn read(key: &str, raw: &'a str) -> Result<Self, String> {
        let request = Members::parse(raw).map_err(|why| format!("{why} in an input request"))?;
        let (method, params) = (request.text("method").unwrap_or_default().into_owned(), request.get("params"));
        check_question(&method, params).map_err(|error| error.message)?;
        Ok(Self { key: key.to_owned(), method, params })
    }

    /// Returns the question as a request with that raw id.
    ///
    /// # Errors
    /// A sentence that says why it is no request.
    pub fn to_request(&self, id: &str) -> Result<Message, String> {
        let params = self.params.map_or(String::new(), |params| format!(r#","params":{params}"#));
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{}{params}}}"#, quote(&self.method));
        Message::parse(text.into()).map_err(|malformed| malformed.to_string())
    }
}

/// Checks that a request of a server is one that clients can be asked (section "Server Requirements" 2).
///
/// # Errors
/// -32601 for any other method, and -32602 where `params` lack what the method needs.
pub fn check_question(method: &str, params: Option<&str>) -> Result<(), RpcError> {
    match Method::of(method) {
        Method::ListRoots => Ok(()),
        known @ (Method::Elicit | Method::CreateMessage) => {
            check_needed(known, params).map_err(|why| RpcError::bad_params(format!("{method} {why}")))
        }
        _ => Err(RpcError::method_not_found(format!(
            "Method not found: no client can be asked with {:?}",
            excerpt(method)
        ))),
    }
}

/// Checks that the raw `params` of a question have what its method needs.
fn check_needed(method: Method, params: Option<&str>) -> Result<(), String> {
    let params = Members::parse(params.ok_or("needs params, an object")?)?;
    let lacks = |key: &str, begins: char| params.get(key).is_none_or(|value| !value.starts_with(begins));
    let needs = |what: &str| Err(format!("needs {what}"));
    match (method, params.text("mode").as_deref()) {
        (Method::CreateMessage, _) if lacks("messages", '[') => needs("params.messages, a list"),
        (Method::CreateMessage, _) if params.get("maxTokens").is_none_or(|count| count.parse::<f64>().is_err()) => {
            needs("params.maxTokens, a number")
        }
        (Method::CreateMessage, _) => Ok(()),
        _ if lacks("message", '"') => needs("params.message, a string"),
        (_, Some("url")) if lacks("url", '"') => needs("params.url, a string"),
        (_, Some("url")) => Ok(()),
        (_, mode) if mode != Some("form") && params.get("mode").is_some() => needs("a params.mode that is form or url"),
        _ if lacks("requestedSchema", '{') => needs("params.requestedSchema, an object"),
        _ => Ok(()),
    }
}

/// Checks that the raw answer of a client has what a result of that method has.
///
/// # Errors
/// A sentence that says what is missing or of the wrong type.
pub fn check_answer(method: Method, raw: &str) -> Result<(), String> {
    let answer = Members::parse(raw)?;
    let begins = |key: &str, with: &[char]| answer.get(key).is_some_and(|value| value.starts_with(with));
    let needs = |what: &str| Err(format!("it must have {what}"));
    match method {
        Method::Elicit => match answer.text("action").as_deref() {
            Some("accept" | "decline" | "cancel") => Ok(()),
            _ => needs("an action: accept, decline or cancel"),
        },
        Method::ListRoots if !begins("roots", &['[']) => needs("roots, a list"),
        Method::CreateMessage if !begins("role", &['"']) => needs("a role, a string"),
        Method::CreateMessage if !begins("model", &['"']) => needs("a model, a string"),
        Method::CreateMessage if !begins("content", &['{', '[']) => needs("content, an object or a list"),
        _ => Ok(()),
    }
}

/// Returns the retry of `request`, under the id and progress token `number`, with raw `answers` by their keys and the
/// raw `state` of the server.
///
/// # Errors
/// A sentence that says what is there twice in its params.
pub fn retry(
    request: &Message,
    number: u64,
    answers: &[(String, String)],
    state: Option<&str>,
) -> Result<Bytes, String> {
    let (params, meta) = unambiguous(request.params().ok_or("it has no params")?)?;
    let mut edits = Edits::of(request.bytes());
    if let Some(id) = request.id_span() {
        edits.replace(id, number.to_string());
    }
    if let Some(token) = meta.as_ref().and_then(|meta| meta.get("progressToken")) {
        edits.replace_raw(token, number.to_string());
    }
    let members: Vec<_> = answers.iter().map(|(key, answer)| format!("{}:{answer}", quote(key))).collect();
    if members.is_empty() {
        edits.remove(&params, "inputResponses");
    } else {
        edits.set(&params, "inputResponses", &format!("{{{}}}", members.join(",")));
    }
    match state {
        Some(state) => edits.set(&params, "requestState", state),
        None => edits.remove(&params, "requestState"),
    }
    Ok(edits.apply().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str = r#"{"resultType":"input_required","requestState":"s\"1","inputRequests":{
        "b":{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{}}},"a":{"method":"roots/list"}}}"#;

    #[test]
    fn questions_keep_their_order_and_the_state_its_bytes() {
        let Ok(ResultType::InputRequired(asked)) = ResultType::of(ASKS) else { panic!("it asks") };
        assert_eq!(asked.requests.iter().map(|request| &*request.key).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(asked.state, Some(r#""s\"1""#));
        let request = asked.requests[0].to_request("\"q\"").expect("a request");
        let text = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{}}}"#;
        assert_eq!(request.text(), text);
    }

    #[test]
    fn a_result_that_cannot_be_gone_on_with_is_refused() {
        for raw in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"input_required","requestState":7}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"a":{"method":"roots/list"}}}"#,
            r#"{"resultType":"input_required","inputRequests":[]}"#,
        ] {
            assert!(ResultType::of(raw).is_err(), "{raw}");
        }
        for raw in [
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}}}"#,
        ] {
            assert!(ResultType::of(raw).is_err_and(|why| why.contains("needs params")), "{raw}");
        }
        assert!(matches!(ResultType::of("{}"), Ok(ResultType::Complete)));
        assert!(matches!(ResultType::of(r#"{"resultType":"task"}"#), Ok(ResultType::Other(_))));
    }

    #[test]
    fn a_question_has_what_its_method_needs() {
        let (elicit, sample) = ("elicitation/create", "sampling/createMessage");
        for (method, params) in [
            ("roots/list", None),
            (elicit, Some(r#"{"message":"m","requestedSchema":{}}"#)),
            (elicit, Some(r#"{"mode":"form","message":"m","requestedSchema":{}}"#)),
            (elicit, Some(r#"{"mode":"url","message":"m","url":"https://host"}"#)),
            (sample, Some(r#"{"messages":[],"maxTokens":1e3}"#)),
        ] {
            assert!(check_question(method, params).is_ok(), "{params:?}");
        }
        for (method, params, lacks) in [
            (elicit, None, "params"),
            (elicit, Some("[]"), "object"),
            (elicit, Some("{}"), "params.message"),
            (elicit, Some(r#"{"message":"m"}"#), "params.requestedSchema"),
            (elicit, Some(r#"{"message":"m","mode":"weird","requestedSchema":{}}"#), "params.mode"),
            (elicit, Some(r#"{"message":"m","mode":7,"requestedSchema":{}}"#), "params.mode"),
            (elicit, Some(r#"{"message":"m","mode":"url"}"#), "params.url"),
            (sample, Some(r#"{"maxTokens":1}"#), "params.messages"),
            (sample, Some(r#"{"messages":[],"maxTokens":"1"}"#), "params.maxTokens"),
        ] {
            let refused = check_question(method, params).expect_err("it lacks something");
            assert!(refused.code == -32602 && refused.message.contains(lacks), "{}", refused.message);
        }
    }

    #[test]
    fn an_answer_has_what_a_result_of_its_method_has() {
        let sampled = r#"{"role":"assistant","model":"m","content":{"type":"text","text":"t"}}"#;
        for (method, raw) in [
            (Method::Elicit, r#"{"action":"decline"}"#),
            (Method::ListRoots, r#"{"roots":[]}"#),
            (Method::CreateMessage, sampled),
            (Method::CreateMessage, r#"{"role":"user","model":"m","content":[]}"#),
        ] {
            assert_eq!(check_answer(method, raw), Ok(()), "{raw}");
        }
        for (method, raw, missing) in [
            (Method::Elicit, "5", ""),
            (Method::Elicit, "{}", "an action"),
            (Method::Elicit, r#"{"action":"yes!"}"#, "an action"),
            (Method::ListRoots, r#"{"roots":{}}"#, "roots"),
            (Method::CreateMessage, r#"{"role":"user","content":[]}"#, "a model"),
            (Method::CreateMessage, r#"{"role":"user","model":"m","content":"t"}"#, "content"),
            (Method::CreateMessage, r#"{"role":7,"model":"m","content":[]}"#, "a role"),
        ] {
            assert!(check_answer(method, raw).is_err_and(|why| why.contains(missing)), "{raw}");
        }
    }

    #[test]
    fn a_retry_is_the_request_with_the_answers_and_the_state_of_the_round_before() {
        let request = r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","requestState":"old","_meta":{"progressToken":4}}}"#;
        let request = Message::parse(request.into()).expect("a request");
        let text = |answers: &[(String, String)], state| {
            String::from_utf8(retry(&request, 9, answers, state).expect("a retry").to_vec()).expect("text")
        };
        let answers = [("a".to_owned(), r#"{"x":1}"#.to_owned())];
        assert_eq!(
            text(&answers, Some("\"new\"")),
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"inputResponses":{"a":{"x":1}},"name":"t","requestState":"new","_meta":{"progressToken":9}}}"#
        );
        assert_eq!(
            text(&[], None),
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":9}}}"#
        );
    }
}
