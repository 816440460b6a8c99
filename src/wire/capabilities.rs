//! What a client has declared that it can be asked (revision 2025-11-25, "Capability Negotiation").

use super::{Message, Method, RpcError, object::Members};

/// The capabilities of a client that a server's requests depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is declared on its own")]
pub struct ClientCapabilities {
    /// `roots`
    pub roots: bool,
    /// `sampling`
    pub sampling: bool,
    /// `elicitation.form`, or an empty `elicitation`, which means the same
    pub elicitation_form: bool,
    /// `elicitation.url`
    pub elicitation_url: bool,
}

impl ClientCapabilities {
    /// Reads them from the `params` of `initialize`.
    ///
    /// # Errors
    /// A sentence saying what is wrong, if one is there twice.
    pub fn of(params: &Members<'_>) -> Result<Self, String> {
        let Some(declared) = params.nested("capabilities")? else { return Ok(Self::default()) };
        let elicitation = declared.nested("elicitation")?;
        let mode = |name| elicitation.as_ref().is_some_and(|modes| modes.get(name).is_some());
        Ok(Self {
            roots: declared.get("roots").is_some(),
            sampling: declared.get("sampling").is_some(),
            elicitation_form: elicitation.is_some() && (mode("form") || !mode("url")),
            elicitation_url: mode("url"),
        })
    }

    /// What a client with these capabilities answers a server's request that it does not support; `None` if it does, or if
    /// the request needs no capability.
    #[must_use]
    pub fn refusal(self, request: &Message) -> Option<RpcError> {
        let lacks = |name: &str| Some(RpcError::method_not_found(format!("Client does not support {name}")));
        match request.method() {
            Method::ListRoots if !self.roots => lacks("roots"),
            Method::CreateMessage if !self.sampling => lacks("sampling"),
            Method::Elicit if !self.elicitation_form && !self.elicitation_url => lacks("elicitation"),
            Method::Elicit => {
                let params = request.params().and_then(|params| Members::parse(params).ok());
                let url = params.and_then(|params| params.text("mode")).is_some_and(|mode| mode == "url");
                let (mode, supported) =
                    if url { ("url", self.elicitation_url) } else { ("form", self.elicitation_form) };
                // Section "Error Handling" of "Elicitation".
                let error = || RpcError::invalid_params(format!("Client does not support {mode}-mode elicitation"));
                (!supported).then(error)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaring(capabilities: &str) -> ClientCapabilities {
        let params = format!(r#"{{"capabilities":{capabilities}}}"#);
        ClientCapabilities::of(&Members::parse(&params).expect("an object")).expect("no member twice")
    }

    fn code(capabilities: &str, method: &str, params: &str) -> Option<i64> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = Message::parse(text.into()).expect("valid");
        declaring(capabilities).refusal(&request).map(|error| error.code.into())
    }

    #[test]
    fn a_client_that_declared_nothing_supports_no_request_but_those_that_need_no_capability() {
        for method in ["roots/list", "sampling/createMessage", "elicitation/create"] {
            assert_eq!(code("{}", method, "{}"), Some(-32601), "{method}");
        }
        assert_eq!(code("{}", "ping", "{}"), None);
    }

    #[test]
    fn a_client_supports_what_it_declared() {
        let all = r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#;
        for method in ["roots/list", "sampling/createMessage", "elicitation/create"] {
            assert_eq!(code(all, method, "{}"), None, "{method}");
        }
        assert_eq!(code(all, "elicitation/create", r#"{"mode":"url"}"#), None);
    }

    #[test]
    fn an_empty_elicitation_capability_means_form_mode_only() {
        let (empty, url) = (r#"{"elicitation":{}}"#, r#"{"elicitation":{"url":{}}}"#);
        assert_eq!(code(empty, "elicitation/create", r#"{"mode":"form"}"#), None);
        assert_eq!(code(empty, "elicitation/create", r#"{"mode":"url"}"#), Some(-32602));
        assert_eq!(code(url, "elicitation/create", r#"{"mode":"url"}"#), None);
        assert_eq!(code(url, "elicitation/create", "{}"), Some(-32602));
    }

    #[test]
    fn what_is_declared_twice_is_not_guessed_at() {
        for twice in [r#"{"roots":{},"roots":null}"#, r#"{"elicitation":{"url":{},"\u0075rl":{}}}"#] {
            let params = format!(r#"{{"capabilities":{twice}}}"#);
            let declared = ClientCapabilities::of(&Members::parse(&params).expect("an object"));
            assert!(declared.is_err_and(|why| why.contains("duplicate member")), "{twice}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_client_is_asked_what_it_declared_and_nothing_else(declared in [proptest::bool::ANY; 5]) {
            let [roots, sampling, elicitation, form, url] = declared;
            let member = |is: bool, text: &str| is.then(|| text.to_owned());
            let modes = [member(form, r#""form":{}"#), member(url, r#""url":{}"#)].into_iter().flatten();
            let modes = format!(r#""elicitation":{{{}}}"#, modes.collect::<Vec<_>>().join(","));
            let all = [member(roots, r#""roots":{}"#), member(sampling, r#""sampling":{}"#), member(elicitation, &modes)];
            let all = format!("{{{}}}", all.into_iter().flatten().collect::<Vec<_>>().join(","));
            let asked = |method, params| code(&all, method, params).is_none();
            assert_eq!(asked("roots/list", "{}"), roots);
            assert_eq!(asked("sampling/createMessage", "{}"), sampling);
            assert_eq!(asked("elicitation/create", r#"{"mode":"form"}"#), elicitation && (form || !url));
            assert_eq!(asked("elicitation/create", r#"{"mode":"url"}"#), elicitation && url);
            assert!(asked("ping", "{}"));
        }
    }
}
