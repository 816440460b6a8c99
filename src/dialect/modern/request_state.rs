//! `requestState` ("Multi Round-Trip Requests"): names a parked call, and cannot be made, changed or moved by a client.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    digest::{Context, SHA256},
    error::Unspecified,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use http::HeaderMap;
use uuid::Uuid;

use super::meaning::{self, part};
use crate::{
    identity::{Owner, OwnerKind, digest_of, lasting_senders},
    wire::{Message, object::Members},
};

/// The longest state that is looked at, in bytes of text; taskgate's are shorter.
const MAX_STATE: usize = 256;

/// Seals and opens states, under a key that outlives the process.
pub(super) struct Seals {
    /// Prepared at each use, which is rare: a start would wait for it.
    key: [u8; 32],
    /// Names this process: a parked call ends with the process that has parked it.
    process: Uuid,
}

/// What a state is good for: one owner, one upstream, one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound([u8; 32]);

/// What stands in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The parked call.
    pub(super) call: Uuid,
    /// Until when it may be shown, in milliseconds of the clock of tasks.
    pub(super) expires: u64,
}

/// A state that taskgate has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// It is of this process.
    Here(Opened),
    /// It is of an earlier process, with which its call has ended.
    Earlier {
        /// [`Opened::expires`]
        expires: u64,
    },
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").finish_non_exhaustive()
    }
}

impl Seals {
    /// Returns seals under a key.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: *key, process: Uuid::new_v4() }
    }

    fn key(&self) -> Result<RandomizedNonceKey, Unspecified> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.key)
    }

    /// Returns the state for a parked call.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(super) fn seal(&self, state: Opened, bound: Bound) -> Result<String, Unspecified> {
        let (process, call) = (self.process.as_bytes().as_slice(), state.call.as_bytes().as_slice());
        let mut sealed = [process, call, &state.expires.to_be_bytes()].concat();
        let nonce = self.key()?.seal_in_place_append_tag(Aad::from(bound.0), &mut sealed)?;
        Ok(BASE64.encode([nonce.as_ref().as_slice(), &sealed].concat()))
    }

    /// Returns what stands in a state; `None` for one that was not sealed here for the same owner, upstream and
    /// request.
    pub(super) fn open(&self, state: &str, bound: Bound) -> Option<Shown> {
        if state.len() > MAX_STATE {
            return None;
        }
        let bytes = BASE64.decode(state).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let opened = self.key().ok()?.open_in_place(nonce, Aad::from(bound.0), &mut sealed).ok()?;
        let (process, opened) = opened.split_first_chunk::<16>()?;
        let (call, expires) = opened.split_first_chunk::<16>()?;
        let expires = u64::from_be_bytes(expires.try_into().ok()?);
        if Uuid::from_bytes(*process) != self.process {
            return Some(Shown::Earlier { expires });
        }
        Some(Shown::Here(Opened { call: Uuid::from_bytes(*call), expires }))
    }
}

impl Bound {
    /// Returns what a state for `request` of `owner` is bound to: all of its params but those that differ on a retry.
    /// Where no name is known, the headers by which a server may know the client stand for one, if they last until then.
    pub(super) fn of(owner: &Owner, headers: &HeaderMap, request: &Message) -> Self {
        let mut context = Context::new(&SHA256);
        let owner = owner.kind();
        part(&mut context, format!("{owner:?}").as_bytes());
        if let OwnerKind::Anyone { .. } = owner {
            part(&mut context, &digest_of(lasting_senders(headers)).unwrap_or_default());
        }
        part(&mut context, request.method_name().as_bytes());
        if let Some(params) = request.params().and_then(|params| Members::parse(params).ok()) {
            let mut members: Vec<_> = params.iter().filter(|(key, _)| !PER_REQUEST.contains(key)).collect();
            members.sort_unstable();
            for (key, value) in members {
                part(&mut context, key.as_bytes());
                meaning::add(&mut context, value);
            }
        }
        let mut bound = [0; 32];
        bound.copy_from_slice(context.finish().as_ref());
        Self(bound)
    }
}

/// The members of `params` that differ between a request and its retry.
const PER_REQUEST: [&str; 3] = ["_meta", "inputResponses", "requestState"];

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn request(method: &str, params: &str) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        Message::parse(text.into()).expect("a request")
    }

    fn owner(name: &str, upstream: &str) -> Owner {
        Owner::principal(upstream.into(), name.into())
    }

    const CALL: &str = r#"{"name":"tool","arguments":{"a": 1},"_meta":{"x":1}}"#;

    #[test]
    fn a_state_is_good_for_the_retry_of_its_request_alone() {
        let (seals, ann) = (Seals::new(&[1; 32]), owner("ann", "/mcp"));
        let state = Opened { call: Uuid::from_u128(7), expires: 9 };
        let sealed =
            seals.seal(state, Bound::of(&ann, &HeaderMap::new(), &request("tools/call", CALL))).expect("sealed");
        let opened = |owner: &Owner, method: &str, params: &str| {
            seals.open(&sealed, Bound::of(owner, &HeaderMap::new(), &request(method, params)))
        };
        let retry = r#"{"requestState":"s","inputResponses":{},"arguments":{"a":1},"name":"tool"}"#;
        assert_eq!(opened(&ann, "tools/call", retry), Some(Shown::Here(state)));
        assert_eq!(opened(&owner("bob", "/mcp"), "tools/call", retry), None);
        assert_eq!(opened(&owner("ann", "/two"), "tools/call", retry), None);
        assert_eq!(opened(&ann, "prompts/get", retry), None);
        assert_eq!(opened(&ann, "tools/call", &retry.replace("tool\"", "tools\"")), None);
        assert_eq!(opened(&ann, "tools/call", &retry.replace(":1", ":2")), None);
        assert_eq!(opened(&ann, "tools/call", &retry.replace("{\"requestState", "{\"more\":1,\"requestState")), None);
        let anyone = Owner::anyone("/mcp".into());
        let bound = |name, text| {
            let headers = [(HeaderName::from_static(name), HeaderValue::from_static(text))].into_iter().collect();
            Bound::of(&anyone, &headers, &request("tools/call", CALL))
        };
        assert_ne!(bound("x-forwarded-user", "one"), bound("x-forwarded-user", "two"), "it stands for a name");
        assert_eq!(bound("cookie", "one"), bound("cookie", "two"), "it may have been renewed");
        let after_a_restart = Seals::new(&[1; 32]);
        let bound = Bound::of(&ann, &HeaderMap::new(), &request("tools/call", CALL));
        assert_eq!(after_a_restart.open(&sealed, bound), Some(Shown::Earlier { expires: 9 }));
        assert_eq!(Seals::new(&[2; 32]).open(&sealed, bound), None);
    }

    #[test]
    fn a_state_that_was_changed_anywhere_is_none() {
        let (seals, ann) = (Seals::new(&[1; 32]), owner("ann", "/mcp"));
        let bound = Bound::of(&ann, &HeaderMap::new(), &request("tools/call", CALL));
        let sealed = seals.seal(Opened { call: Uuid::nil(), expires: 1 }, bound).expect("sealed");
        let bytes = BASE64.decode(&sealed).expect("base64");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(seals.open(&BASE64.encode(changed), bound), None, "byte {at}, bit {bit}");
            }
        }
        for state in ["", "x", &sealed[1..], &format!("{sealed}A"), &sealed.repeat(9)] {
            assert_eq!(seals.open(state, bound), None, "{state}");
        }
    }
}
