//! Refuses what no client may send, in a session or without one.

use crate::wire::{
    Kind, Message, Method, RpcError,
    message::Outcome,
    params::{may_matter, unambiguous},
};

/// Refuses a message whose method is that of a request and whose members are those of a notification, or the other way
/// round. Refuses one that has a member twice where taskgate reads it, but for requests, which are read as they are
/// sent on.
///
/// # Errors
/// -32600, or -32602 where it is about the params.
pub fn check(message: &Message) -> Result<(), RpcError> {
    match message.kind() {
        Kind::Request if message.method().is_notification() => Err(RpcError::invalid_request(
            "Invalid request: the method is that of a notification; send it without an id",
        )),
        Kind::Notification if message.method().is_request() => {
            // The upstream could run it, and its answer would reach no client.
            Err(RpcError::invalid_request("Invalid request: the method is that of a request; send it with an id"))
        }
        Kind::Notification => {
            let read = |params: &&str| message.method() == Method::Cancelled || may_matter(params);
            message.params().filter(read).map_or(Ok(()), notification)
        }
        Kind::Response => match message.outcome() {
            // A result that is no object is between the client and its server.
            Some((Outcome::Result, result)) if result.starts_with('{') => unambiguous(result)
                .map(drop)
                .map_err(|why| RpcError::invalid_request(format!("Invalid request: {why} in \"result\""))),
            _ => Ok(()),
        },
        Kind::Request => Ok(()),
    }
}

fn notification(params: &str) -> Result<(), RpcError> {
    let (_, meta) = unambiguous(params).map_err(RpcError::bad_params)?;
    if meta.is_some_and(|meta| meta.get("progressToken").is_some()) {
        // It would reach the upstream unchanged, where it may be the token of another request.
        return Err(RpcError::bad_params("only a request has a progress token in _meta"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(members: &str) -> Option<i32> {
        let text = format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
        check(&Message::parse(text.into()).expect("valid")).err().map(|error| error.code)
    }

    #[test]
    fn a_method_that_taskgate_knows_needs_an_id_or_must_have_none() {
        for method in ["cancelled", "progress", "initialized", "message", "tasks/status", "anything"] {
            assert_eq!(code(&format!(r#""id":1,"method":"notifications/{method}""#)), Some(-32600), "{method}");
            assert_eq!(code(&format!(r#""method":"notifications/{method}""#)), None, "{method}");
        }
        for method in ["tools/call", "tools/list", "tasks/get", "tasks/cancel", "initialize", "ping"] {
            assert_eq!(code(&format!(r#""method":"{method}""#)), Some(-32600), "{method}");
            assert_eq!(code(&format!(r#""id":1,"method":"{method}""#)), None, "{method}");
        }
        // A method that taskgate does not know is between the client and its server.
        assert_eq!((code(r#""method":"vendor/x""#), code(r#""id":1,"method":"vendor/x""#)), (None, None));
    }

    #[test]
    fn a_notification_with_a_member_twice_where_it_is_read_is_refused() {
        for (method, params, refused) in [
            ("notifications/cancelled", r#"{"requestId":1,"requestId":2}"#, true),
            ("notifications/cancelled", r#"{"requestId":1,"_meta":{"a":1,"a":2}}"#, true),
            ("notifications/progress", r#"{"progressToken":1,"progressToken":2,"progress":1}"#, true),
            ("notifications/progress", r#"{"progressToken":1,"progress":1}"#, false),
            ("notifications/x", r#"{"_meta":{"progressToken":1}}"#, true),
            ("vendor/x", r#"{"_meta":{"progress\u0054oken":1}}"#, true),
            ("notifications/x", r#"{"a":1,"a":2}"#, false),
        ] {
            let found = code(&format!(r#""method":"{method}","params":{params}"#));
            assert_eq!(found, refused.then_some(-32602), "{method} {params}");
        }
    }

    #[test]
    fn an_answer_with_a_member_twice_is_refused() {
        assert_eq!(code(r#""id":1,"result":{"action":"accept","action":"decline"}"#), Some(-32600));
        assert_eq!(code(r#""id":1,"result":{"_meta":{"a":1,"a":2}}"#), Some(-32600));
        assert_eq!(code(r#""id":1,"result":{"action":"accept","content":{"a":1,"a":2}}"#), None);
        assert_eq!((code(r#""id":1,"result":7.50"#), code(r#""id":1,"error":null"#)), (None, None));
    }
}
