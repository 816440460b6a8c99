//! What the `result` or the `error` of a response must be (JSON-RPC 2.0, section 5; MCP, "Responses").

use super::object::Members;

/// Refuses a raw `result` that is not an object.
///
/// # Errors
/// A sentence that says what is wrong.
pub(super) fn check_result(raw: &str) -> Result<(), String> {
    if raw.starts_with('{') { Ok(()) } else { Err("\"result\" must be an object".to_owned()) }
}

/// Refuses a raw `error` without a code and a message.
///
/// # Errors
/// A sentence that says what is wrong.
pub(super) fn check_error(raw: &str) -> Result<(), String> {
    if !raw.starts_with('{') {
        return Err("\"error\" must be an object".to_owned());
    }
    let error = Members::parse(raw).map_err(|why| format!("{why} in \"error\""))?;
    let code = error.get("code").and_then(|code| serde_json::from_str::<f64>(code).ok());
    // 1.0 is an integer too.
    if code.is_none_or(|code| code.fract() != 0.0) {
        return Err("the \"code\" of an \"error\" must be an integer".to_owned());
    }
    if error.get("message").is_none_or(|message| !message.starts_with('"')) {
        return Err("the \"message\" of an \"error\" must be a string".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::wire::{Malformed, Message, message::Outcome};

    fn parse(text: &str) -> Result<Message, Malformed> {
        Message::of_server(text.to_owned().into())
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err("malformed").to_string()
    }

    #[test]
    fn a_response_has_an_object_as_its_result_or_a_code_and_a_message() {
        for (members, why) in [
            (r#""result":[]"#, "\"result\" must be an object"),
            (r#""result":null"#, "\"result\" must be an object"),
            (r#""result":null,"error":null"#, "\"result\" must be an object"),
            (r#""result":{},"error":{"code":1,"message":"m"}"#, "not both"),
            (r#""error":null"#, "\"error\" must be an object"),
            (r#""error":[1]"#, "\"error\" must be an object"),
            (r#""error":{}"#, "\"code\""),
            (r#""error":{"code":"1","message":"m"}"#, "\"code\""),
            (r#""error":{"code":1.5,"message":"m"}"#, "\"code\""),
            (r#""error":{"code":1}"#, "\"message\""),
            (r#""error":{"code":1,"message":null}"#, "\"message\""),
            (r#""error":{"code":1,"message":"a","message":"b"}"#, "duplicate member \"message\""),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{members}}}"#);
            assert!(reason(&text).contains(why), "{text}: {}", reason(&text));
        }
    }

    #[test]
    fn the_other_member_of_a_response_may_be_null_as_in_json_rpc_1() {
        let error = r#"{"code":-1,"message":"\ud800"}"#;
        for (members, outcome) in [
            (r#""error":null,"result":{"a":1}"#.to_owned(), (Outcome::Result, r#"{"a":1}"#)),
            (format!(r#""result":null,"error":{error}"#), (Outcome::Error, error)),
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,{members}}}"#);
            let message = parse(&text).expect("valid");
            assert_eq!((message.outcome(), message.text()), (Some(outcome), &*text));
        }
    }
}
