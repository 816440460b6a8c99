//! What a server wanted to ask a client that has not declared it, and how a call that fails for it is refused.

use serde_json::{Value, json};

use super::Refused;
use crate::wire::{Asks, ClientCapabilities, excerpt};

/// What a client lacks, each once.
#[derive(Debug, Default)]
pub(super) struct Lacks(Vec<Asks>);

impl Lacks {
    pub(super) fn add(&mut self, asks: Asks) {
        if !self.0.contains(&asks) {
            self.0.push(asks);
        }
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Forgets what a client has declared meanwhile: each request says anew what it can be asked.
    pub(super) fn forget_declared(&mut self, client: ClientCapabilities) {
        self.0.retain(|asks| !client.can_be_asked(*asks));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns -32021, which names all of it, and repeats the `words` with which the call failed.
    pub(super) fn refusal(&self, words: Option<&str>) -> Refused {
        let (mut names, mut required) = (Vec::new(), json!({}));
        for asks in &self.0 {
            let (capability, part) = match asks {
                Asks::Roots => ("roots", None),
                Asks::Form => ("elicitation", Some("form")),
                Asks::Url => ("elicitation", Some("url")),
                Asks::SamplingWithTools => ("sampling", Some("tools")),
                Asks::Sampling | Asks::Anything => ("sampling", None),
            };
            names.push(part.map_or_else(|| capability.to_owned(), |part| format!("{capability}.{part}")));
            let declared: &mut Value = &mut required[capability];
            if declared.is_null() {
                *declared = json!({});
            }
            if let Some(part) = part {
                declared[part] = json!({});
            }
        }
        let said = words.map(|words| format!("; it failed with {:?}", excerpt(words))).unwrap_or_default();
        Refused::capability(&format!("the call needs {}{said}", names.join(" and ")), &required.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_lacking_is_named_once_and_in_full() {
        let mut lacks = Lacks::default();
        for asks in [Asks::Form, Asks::Url, Asks::Form, Asks::Sampling, Asks::SamplingWithTools, Asks::Roots] {
            lacks.add(asks);
        }
        lacks.forget_declared(ClientCapabilities { roots: true, ..ClientCapabilities::default() });
        let error: Value = serde_json::from_slice(&lacks.refusal(None).to_response("1")).expect("JSON");
        let required = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": { "tools": {} } });
        assert_eq!(error["error"]["data"]["requiredCapabilities"], required);
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(
            message.ends_with("needs elicitation.form and elicitation.url and sampling and sampling.tools"),
            "{message}"
        );
    }
}
