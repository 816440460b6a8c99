//! What taskgate reads in the `params` of a request. It must mean the same to every reader.

use std::borrow::Cow;

use super::{
    Message, RpcError, Version,
    message::{MAX_ID, is_id},
    object::{Members, Needle, may_have, quote},
};

/// The `_meta` key by which each request of the modern generation names its revision.
pub const MODERN: &str = "io.modelcontextprotocol/protocolVersion";
/// What a modern request says of its client in `_meta`.
const CLIENT: [&str; 2] = ["io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities"];

/// The members of `params` and of its `_meta`, each of them there once.
#[derive(Debug)]
pub struct Params<'a> {
    /// The members of `params`.
    pub members: Members<'a>,
    /// The members of `_meta`, if it is an object.
    pub meta: Option<Members<'a>>,
    /// The raw progress token, a string or an integer of bounded length.
    pub progress_token: Option<&'a str>,
}

impl<'a> Params<'a> {
    /// Reads the raw `params` of a request.
    ///
    /// # Errors
    /// -32602 where a member is there twice, or the progress token is malformed or too long; -32600 for a request of
    /// the modern generation.
    pub fn parse(raw: &'a str) -> Result<Self, RpcError> {
        let params = Self::parse_any(raw)?;
        if params.meta.as_ref().is_some_and(is_modern_meta) {
            return Err(RpcError::invalid_request(
                "Invalid request: this session has a revision; start with initialize",
            ));
        }
        Ok(params)
    }

    /// Reads the raw `params` of a request of either generation.
    ///
    /// # Errors
    /// -32602 where a member is there twice, or the progress token is malformed or too long.
    pub fn parse_any(raw: &'a str) -> Result<Self, RpcError> {
        let (members, meta) = unambiguous(raw).map_err(RpcError::bad_params)?;
        let progress_token = meta.as_ref().and_then(|meta| meta.get("progressToken"));
        progress_token.map_or(Ok(()), check_progress_token).map_err(RpcError::bad_params)?;
        Ok(Self { members, meta, progress_token })
    }
}

/// Reads the members of raw `params` or of a raw `result`, and those of its `_meta`.
///
/// # Errors
/// A sentence that says what is wrong, if a member is there twice.
pub fn unambiguous(raw: &str) -> Result<(Members<'_>, Option<Members<'_>>), String> {
    let members = Members::parse(raw)?;
    let meta = members.nested("_meta")?;
    Ok((members, meta))
}

/// Returns the raw progress token that a request gives.
///
/// # Errors
/// As [`Params::parse_any`].
pub fn given_token(request: &Message) -> Result<Option<Box<str>>, RpcError> {
    let params = request.params().map(Params::parse_any).transpose()?;
    Ok(params.and_then(|params| params.progress_token).map(Into::into))
}

/// Returns the raw id of the request that a `notifications/cancelled` names.
#[must_use]
pub fn requested(cancelled: &Message) -> Option<&str> {
    Members::parse(cancelled.params()?).ok()?.get("requestId")
}

/// Returns a raw id in the form that every writing of it has: its text may have escapes. One too long to be that of a
/// request stays as it is.
#[must_use]
pub fn unescaped(id: &str) -> Cow<'_, str> {
    // Each byte may be written with six.
    let may_be = id.len() <= 6 * MAX_ID && id.contains('\\');
    let text = may_be.then(|| serde_json::from_str::<String>(id).ok()).flatten();
    text.map_or(Cow::Borrowed(id), |text| quote(&text).into())
}

/// Returns the raw progress token of a progress notification.
#[must_use]
pub fn progress_token(notification: &Message) -> Option<&str> {
    Members::parse(notification.params()?).ok()?.get("progressToken")
}

/// Returns whether raw `params` may hold what taskgate reads of a request that passes: an escape could hide a key. Most
/// have nothing of it, and are not parsed.
#[must_use]
pub fn may_matter(params: &str) -> bool {
    static KEYS: [Needle; 2] = [Needle::new("progressToken"), Needle::new("protocolVersion")];
    may_have(params, KEYS.each_ref())
}

/// Returns whether a `_meta` is of the modern generation. It names a revision without sessions, or something that is no
/// name of a revision, or it names none and has another member that only modern requests have.
#[must_use]
pub fn is_modern_meta(meta: &Members<'_>) -> bool {
    match meta.get(MODERN) {
        Some(_) => meta.text(MODERN).is_none_or(|version| Version::parse(&version).is_none()),
        None => CLIENT.iter().any(|member| meta.get(member).is_some()),
    }
}

/// Checks a raw progress token.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn check_progress_token(token: &str) -> Result<(), String> {
    if !is_id(token) {
        return Err("the progress token must be a string or an integer".to_owned());
    }
    // It is kept in the same places as the id.
    if token.len() > MAX_ID {
        return Err(format!("the progress token is longer than {MAX_ID} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(params: &str) -> (i32, String) {
        let error = Params::parse(params).expect_err(params);
        (error.code, error.message)
    }

    #[test]
    fn a_member_twice_in_params_or_its_meta_is_refused_however_it_is_written() {
        for (params, why) in [
            (r#"{"_meta":{},"_meta":{}}"#, r#"duplicate member "_meta""#),
            (r#"{"_meta":{},"\u005fmeta":{"progressToken":7}}"#, r#"duplicate member "_meta""#),
            (r#"{"_meta":{"progressToken":1,"progressToken":7}}"#, r#"duplicate member "progressToken" in "_meta""#),
            (
                r#"{"_meta":{"progressToken":1,"progress\u0054oken":7}}"#,
                r#"duplicate member "progressToken" in "_meta""#,
            ),
            (r#"{"_meta":{"progressToken":1,"a":2,"a":3}}"#, r#"duplicate member "a" in "_meta""#),
        ] {
            assert_eq!(error(params), (-32602, format!("Invalid params: {why}")), "{params}");
            assert!(may_matter(params) || !params.contains("progress"), "{params}");
        }
        let long = format!(r#"{{"{0}":1,"{0}":2}}"#, "x".repeat(1 << 20));
        assert!(error(&long).1.len() < 200);
    }

    #[test]
    fn a_progress_token_is_a_string_or_an_integer() {
        for token in ["7", "-7", r#""t""#, r#""""#, "123456789012345678901234567890"] {
            let params = format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#);
            assert_eq!(Params::parse(&params).expect("valid").progress_token, Some(token));
        }
        for token in ["1.5", "1.0", "1e2", "-0.0", "null", "true", "{}", "[7]"] {
            let (code, message) = error(&format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#));
            assert_eq!(code, -32602, "{token}");
            assert!(message.contains("must be a string or an integer"), "{token}: {message}");
        }
        // A list has no members.
        assert_eq!(Params::parse(r#"{"_meta":[{"progressToken":7}]}"#).expect("valid").progress_token, None);
    }

    #[test]
    fn an_id_is_unescaped_however_it_is_written_unless_it_is_too_long_to_be_one() {
        let text = |length: usize| (format!("\"{}\"", "a".repeat(length)), format!("\"{}\"", r"\u0061".repeat(length)));
        let (plain, escaped) = text(MAX_ID - 2);
        assert_eq!(unescaped(&escaped), unescaped(&plain));
        let (_, long) = text(MAX_ID + 1);
        assert_eq!(unescaped(&long), long);
    }

    #[test]
    fn a_revision_of_the_modern_generation_is_refused_when_it_is_escaped() {
        let plain = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let escaped = plain.replace("protocol", r"\u0070rotocol");
        assert!(may_matter(&escaped));
        assert_eq!(error(&escaped).0, -32600);
    }
}
