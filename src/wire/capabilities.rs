//! Which requests of a server a client has declared to support (revision 2025-11-25, "Capability Negotiation").

use serde::{Deserialize, Serialize};

use super::{Message, Method, RpcError, object::Members};

/// The capabilities of a client that a server's requests depend on. The order of the fields is a part of what the store
/// has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is declared on its own")]
pub struct ClientCapabilities {
    /// `roots`
    pub roots: bool,
    /// `sampling`
    pub sampling: bool,
    /// `sampling.tools`
    pub sampling_tools: bool,
    /// `elicitation.form`, or an empty `elicitation`, which means the same
    pub elicitation_form: bool,
    /// `elicitation.url`
    pub elicitation_url: bool,
}

/// The capability that a client must have declared to be asked something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// No capability is needed.
    Anything,
    /// `roots`
    Roots,
    /// `sampling`
    Sampling,
    /// `sampling.tools`
    SamplingWithTools,
    /// `elicitation.form`
    Form,
    /// `elicitation.url`
    Url,
}

impl Asks {
    /// Returns which capability a server's request needs.
    ///
    /// # Errors
    /// Its params cannot be read, so a client might read something else in them.
    pub fn of(request: &Message) -> Result<Self, RpcError> {
        let params = || request.params().map(Members::parse).transpose().map_err(RpcError::bad_params);
        Ok(match request.method() {
            Method::ListRoots => Self::Roots,
            Method::CreateMessage => {
                let tools = |params: Members<'_>| params.get("tools").or(params.get("toolChoice")).is_some();
                if params()?.is_some_and(tools) { Self::SamplingWithTools } else { Self::Sampling }
            }
            Method::Elicit => {
                let url = |params: Members<'_>| params.text("mode").is_some_and(|mode| mode == "url");
                if params()?.is_some_and(url) { Self::Url } else { Self::Form }
            }
            _ => Self::Anything,
        })
    }
}

impl ClientCapabilities {
    /// Reads them from the `params` of `initialize`.
    ///
    /// # Errors
    /// A sentence that says what is wrong, if a capability is there twice.
    pub fn of(params: &Members<'_>) -> Result<Self, String> {
        params.nested("capabilities")?.map_or_else(|| Ok(Self::default()), |declared| Self::declared(&declared))
    }

    /// Reads them from the object of a client's capabilities.
    ///
    /// # Errors
    /// A sentence saying what is wrong, if one is there twice, or has a member twice.
    pub fn declared(declared: &Members<'_>) -> Result<Self, String> {
        let (elicitation, sampling) = (declared.nested("elicitation")?, declared.nested("sampling")?);
        // A capability is an object: `null` declares none.
        let has = |of: &Option<Members<'_>>, name| match of {
            Some(of) => of.nested(name).map(|declared| declared.is_some()),
            None => Ok(false),
        };
        let (form, url) = (has(&elicitation, "form")?, has(&elicitation, "url")?);
        Ok(Self {
            roots: declared.nested("roots")?.is_some(),
            sampling_tools: has(&sampling, "tools")?,
            sampling: sampling.is_some(),
            elicitation_form: elicitation.is_some() && (form || !url),
            elicitation_url: url,
        })
    }

    /// Returns whether a client with these capabilities can be asked anything at all.
    #[must_use]
    pub const fn any(self) -> bool {
        self.roots || self.sampling || self.elicitation_form || self.elicitation_url
    }

    /// Returns the raw object in which taskgate declares them to a server for its clients.
    #[must_use]
    pub fn to_raw(self) -> String {
        let mut declared = Vec::new();
        if self.roots {
            declared.push(r#""roots":{}"#.to_owned());
        }
        if self.sampling {
            let tools = if self.sampling_tools { r#""tools":{}"# } else { "" };
            declared.push(format!(r#""sampling":{{{tools}}}"#));
        }
        let modes = [(self.elicitation_form, r#""form":{}"#), (self.elicitation_url, r#""url":{}"#)];
        let modes: Vec<_> = modes.into_iter().filter_map(|(declares, mode)| declares.then_some(mode)).collect();
        if !modes.is_empty() {
            declared.push(format!(r#""elicitation":{{{}}}"#, modes.join(",")));
        }
        format!("{{{}}}", declared.join(","))
    }

    /// Returns whether a client with these capabilities can be asked that.
    #[must_use]
    pub const fn can_be_asked(self, asks: Asks) -> bool {
        match asks {
            Asks::Anything => true,
            Asks::Roots => self.roots,
            Asks::Sampling => self.sampling,
            Asks::SamplingWithTools => self.sampling && self.sampling_tools,
            Asks::Form => self.elicitation_form,
            Asks::Url => self.elicitation_url,
        }
    }

    /// Returns how a client with these capabilities refuses a server's request; `None` if it supports the request, or
    /// if the request needs no capability.
    #[must_use]
    pub fn refusal(self, request: &Message) -> Option<RpcError> {
        let asks = match Asks::of(request) {
            Ok(asks) if self.can_be_asked(asks) => return None,
            Ok(asks) => asks,
            Err(error) => return Some(error),
        };
        let lacks = |name: &str| RpcError::method_not_found(format!("Client does not support {name}"));
        // Section "Error Handling" of "Elicitation".
        let mode = |mode: &str| RpcError::invalid_params(format!("Client does not support {mode}-mode elicitation"));
        let elicits = self.elicitation_form || self.elicitation_url;
        Some(match asks {
            Asks::Anything => return None,
            Asks::Roots => lacks("roots"),
            Asks::SamplingWithTools if self.sampling => RpcError::invalid_params(
                "Client does not support tools in sampling: it has not declared sampling.tools",
            ),
            Asks::Sampling | Asks::SamplingWithTools => lacks("sampling"),
            Asks::Form | Asks::Url if !elicits => lacks("elicitation"),
            Asks::Form => mode("form"),
            Asks::Url => mode("url"),
        })
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
    fn a_client_that_declared_nothing_supports_only_requests_that_need_no_capability() {
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
    fn a_capability_that_is_declared_twice_is_refused() {
        for twice in [r#"{"roots":{},"roots":null}"#, r#"{"elicitation":{"url":{},"\u0075rl":{}}}"#] {
            let params = format!(r#"{{"capabilities":{twice}}}"#);
            let declared = ClientCapabilities::of(&Members::parse(&params).expect("an object"));
            assert!(declared.is_err_and(|why| why.contains("duplicate member")), "{twice}");
        }
    }

    #[test]
    fn a_client_is_asked_to_sample_with_tools_only_where_it_declared_that() {
        let (plain, tools) = (r#"{"sampling":{}}"#, r#"{"sampling":{"tools":{}}}"#);
        for params in [r#"{"tools":[]}"#, r#"{"toolChoice":{"mode":"auto"}}"#] {
            assert_eq!(code("{}", "sampling/createMessage", params), Some(-32601));
            assert_eq!(code(plain, "sampling/createMessage", params), Some(-32602));
            assert_eq!(code(tools, "sampling/createMessage", params), None);
        }
        assert_eq!(code(plain, "sampling/createMessage", "{}"), None);
    }

    #[test]
    fn a_request_that_two_readers_could_read_differently_is_refused() {
        let form = r#"{"elicitation":{"form":{}}}"#;
        assert_eq!(code(form, "elicitation/create", r#"{"mode":"form","mode":"url"}"#), Some(-32602));
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
