//! The `_meta` of a request ("`_meta`", section "Per-request protocol fields").

use std::sync::Arc;

use super::{CLIENT_CAPABILITIES, LOG_LEVEL, PREFIX, PROTOCOL_VERSION, Refused, TASKS};
use crate::wire::{
    ClientCapabilities, LogLevel, Message,
    object::{Members, object},
    params::check_progress_token,
};

/// What a request says of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestMeta {
    /// What the client can be asked.
    pub(super) client: ClientCapabilities,
    /// Whether the request declares the tasks extension.
    pub(super) tasks: bool,
    /// The least severe log messages that the client wants with the answer; `None` where it wants none.
    pub(super) log_level: Option<LogLevel>,
    /// What is left of it for a legacy server, raw; `None` where nothing is.
    pub(super) for_legacy: Option<Arc<str>>,
}

impl RequestMeta {
    /// Returns the members of `params`. All that is checked is read from them, and from those of their `_meta`.
    ///
    /// # Errors
    /// -32602 where they are missing, or have a member twice.
    pub(super) fn params(request: &Message) -> Result<Members<'_>, Refused> {
        let params = request.params().ok_or_else(|| missing(PROTOCOL_VERSION, "a string"))?;
        Members::parse(params).map_err(Refused::malformed)
    }

    /// Returns the members of `_meta`.
    ///
    /// # Errors
    /// -32602 where it is missing, or has a member twice.
    pub(super) fn members<'a>(params: &Members<'a>) -> Result<Members<'a>, Refused> {
        let meta = params.nested("_meta").map_err(Refused::malformed)?;
        meta.ok_or_else(|| missing(PROTOCOL_VERSION, "a string"))
    }

    /// Reads `_meta`. `supported` are the revisions of the server, where they are known.
    ///
    /// # Errors
    /// -32602 where a required key is missing, or a key is of the wrong type, -32022 for a revision that is not spoken.
    pub(super) fn read(meta: &Members<'_>, supported: Option<&[String]>) -> Result<Self, Refused> {
        let version = meta.text(PROTOCOL_VERSION).ok_or_else(|| missing(PROTOCOL_VERSION, "a string"))?;
        if version != super::VERSION {
            return Err(Refused::version(&version, supported));
        }
        let capabilities = meta.nested(CLIENT_CAPABILITIES).map_err(Refused::malformed)?;
        let capabilities = capabilities.ok_or_else(|| missing(CLIENT_CAPABILITIES, "an object"))?;
        let client = ClientCapabilities::declared(&capabilities).map_err(Refused::malformed)?;
        let extensions = capabilities.nested("extensions").map_err(Refused::malformed)?;
        let declared = extensions.as_ref().map(|extensions| extensions.nested(TASKS)).transpose();
        let tasks = declared.map_err(Refused::malformed)?.flatten().is_some();
        let log_level = match meta.get(LOG_LEVEL) {
            None => None,
            Some(_) => Some(log_level(meta)?),
        };
        // Here, because a call may be acknowledged as a task before it is sent.
        meta.get("progressToken").map_or(Ok(()), check_progress_token).map_err(Refused::malformed)?;
        let mut kept = meta.iter().filter(|(key, _)| !key.starts_with(PREFIX)).peekable();
        let for_legacy = kept.peek().is_some().then(|| object(kept).into());
        Ok(Self { client, tasks, log_level, for_legacy })
    }
}

fn log_level(meta: &Members<'_>) -> Result<LogLevel, Refused> {
    let level = meta.text(LOG_LEVEL).and_then(|name| LogLevel::parse(&name));
    level.ok_or_else(|| {
        let levels = "debug, info, notice, warning, error, critical, alert or emergency";
        Refused::malformed(format!("params._meta[{LOG_LEVEL:?}] must be one of {levels}"))
    })
}

fn missing(key: &str, kind: &str) -> Refused {
    Refused::malformed(format!(
        "params._meta[{key:?}] must be {kind}; each request of revision {} has it",
        super::VERSION
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(meta: &str) -> Result<RequestMeta, String> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{meta}}}}}"#);
        let request = Message::parse(text.into()).expect("a request");
        RequestMeta::params(&request)
            .and_then(|params| RequestMeta::read(&RequestMeta::members(&params)?, None))
            .map_err(|refused| String::from_utf8(refused.to_response("1").to_vec()).expect("text"))
    }

    fn with(version: &str, capabilities: &str, rest: &str) -> String {
        format!(r#"{{"{PROTOCOL_VERSION}":{version},"{CLIENT_CAPABILITIES}":{capabilities}{rest}}}"#)
    }

    #[test]
    fn each_request_names_its_revision_and_what_its_client_can_be_asked() {
        let extension = format!(r#"{{"elicitation":{{}},"extensions":{{"{TASKS}":{{}}}}}}"#);
        let meta = read(&with("\"2026-07-28\"", &extension, "")).expect("valid");
        assert!(meta.tasks && meta.client.elicitation_form && !meta.client.sampling);
        assert_eq!(meta.log_level, None);
        let level = format!(",\"{LOG_LEVEL}\":\"warning\"");
        assert_eq!(read(&with("\"2026-07-28\"", "{}", &level)).expect("valid").log_level, Some(LogLevel::Warning));
    }

    #[test]
    fn a_capability_that_is_no_object_is_not_declared() {
        let nothing = format!(
            r#"{{"roots":null,"sampling":false,"elicitation":{{"form":null,"url":{{}}}},"extensions":{{"{TASKS}":null}}}}"#
        );
        let meta = read(&with("\"2026-07-28\"", &nothing, "")).expect("valid");
        let url = ClientCapabilities { elicitation_url: true, ..ClientCapabilities::default() };
        assert_eq!((meta.tasks, meta.client), (false, url));
    }

    #[test]
    fn a_key_that_is_missing_or_of_another_type_is_named_with_32602() {
        for (meta, key) in [
            ("{}".to_owned(), PROTOCOL_VERSION),
            (with("1", "{}", ""), PROTOCOL_VERSION),
            (format!(r#"{{"{PROTOCOL_VERSION}":"2026-07-28"}}"#), CLIENT_CAPABILITIES),
            (with("\"2026-07-28\"", "[]", ""), CLIENT_CAPABILITIES),
            (with("\"2026-07-28\"", "{}", &format!(",\"{LOG_LEVEL}\":\"loud\"")), LOG_LEVEL),
            (with("\"2026-07-28\"", "{}", ",\"progressToken\":1.5"), "progress token"),
        ] {
            let error = read(&meta).expect_err("malformed");
            assert!(error.contains("-32602") && error.contains(key), "{meta}: {error}");
        }
    }

    #[test]
    fn a_revision_that_is_not_spoken_is_refused_with_those_that_are() {
        let error = read(&with("\"1900-01-01\"", "{}", "")).expect_err("not spoken");
        assert!(error.contains("-32022") && error.contains("2026-07-28") && error.contains("2025-11-25"), "{error}");
    }
}
