//! What belongs to single sessions of a shared child, which tells of it later: elicitations at a URL, and
//! subscriptions.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::value::RawValue;

use crate::wire::{
    Message, Method,
    message::Outcome,
    object::{Members, unquote},
    uri::is_part_of,
};

/// How many elicitations at a URL are remembered for one session; beyond that the oldest are forgotten.
const MAX_ELICITATIONS: usize = 64;
/// The longest `elicitationId` that is remembered, in bytes.
const MAX_ID: usize = 1024;
/// How many bytes the URIs of one session's subscriptions may have, each with its [`OVERHEAD`].
pub(super) const MAX_SUBSCRIBED: usize = 64 * 1024;
const OVERHEAD: usize = 192;
/// How many calls that ask for one subscription are remembered; beyond that the answers to the oldest tell nothing.
const MAX_ASKING: usize = 8;
/// `URL_ELICITATION_REQUIRED`
const URL_ELICITATION_REQUIRED: &str = "-32042";

/// What belongs to each session, by the sessions' numbers.
#[derive(Debug, Default)]
pub(super) struct Belongings(BTreeMap<u64, SessionBelongings>);

/// What belongs to one session.
#[derive(Debug, Default)]
struct SessionBelongings {
    elicitations: VecDeque<Box<str>>,
    /// The URIs that it subscribes to.
    subscriptions: HashMap<Box<str>, Subscription>,
}

/// A subscription that a session has, or asks for.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// Whether the child has agreed.
    made: bool,
    /// The newest calls that ask for it and have no answer.
    asking: VecDeque<u64>,
}

impl Belongings {
    /// Notes that the child has sent a session's client to a URL.
    pub(super) fn elicited(&mut self, session: u64, id: &str) {
        let own = self.0.entry(session).or_default();
        if id.len() > MAX_ID || own.elicitations.iter().any(|known| **known == *id) {
            return;
        }
        if own.elicitations.len() == MAX_ELICITATIONS {
            own.elicitations.pop_front();
        }
        own.elicitations.push_back(id.into());
    }

    /// Returns the sessions whose clients were sent to the URL of an elicitation that is now complete.
    pub(super) fn completed(&mut self, id: &str) -> Vec<u64> {
        let mut sessions = Vec::new();
        for (session, own) in &mut self.0 {
            if let Some(at) = own.elicitations.iter().position(|known| **known == *id) {
                own.elicitations.remove(at);
                sessions.push(*session);
            }
        }
        sessions
    }

    /// Notes that a session's call `ours` asks for a subscription. Returns `false` if the session has too many.
    pub(super) fn subscribe(&mut self, session: u64, ours: u64, uri: &str) -> bool {
        let subscriptions = &mut self.0.entry(session).or_default().subscriptions;
        if !subscriptions.contains_key(uri) {
            let bytes: usize = subscriptions.keys().map(|uri| uri.len() + OVERHEAD).sum();
            if bytes + uri.len() + OVERHEAD > MAX_SUBSCRIBED {
                return false;
            }
        }
        let asking = &mut subscriptions.entry(uri.into()).or_default().asking;
        if asking.len() == MAX_ASKING {
            // The child may never answer it, such as a cancelled one.
            asking.pop_front();
        }
        asking.push_back(ours);
        true
    }

    /// Takes note of the answer to a session's call, which may confirm a subscription or name elicitations.
    pub(super) fn answered(&mut self, session: u64, ours: u64, response: &Message) {
        match response.outcome() {
            Some((Outcome::Result, _)) => {
                let subscriptions = self.0.get_mut(&session).map(|own| own.subscriptions.values_mut());
                for subscription in subscriptions.into_iter().flatten() {
                    subscription.made |= subscription.is_answered(ours);
                }
            }
            Some((Outcome::Error, error)) => {
                self.refused(session, ours);
                for id in required(error) {
                    self.elicited(session, &id);
                }
            }
            None => {}
        }
    }

    /// Notes that a session's call `ours` has not got what it asked for. A subscription is forgotten if no other call
    /// has made it or asks for it.
    pub(super) fn refused(&mut self, session: u64, ours: u64) {
        if let Some(own) = self.0.get_mut(&session) {
            own.subscriptions.retain(|_, subscription| {
                !subscription.is_answered(ours) || subscription.made || !subscription.asking.is_empty()
            });
        }
    }

    /// Ends a session's subscription. Returns it, to be put back if the child cannot be told.
    pub(super) fn unsubscribe(&mut self, session: u64, uri: &str) -> Option<(Box<str>, Subscription)> {
        self.0.get_mut(&session)?.subscriptions.remove_entry(uri)
    }

    /// Puts back a subscription that did not end.
    pub(super) fn put_back(&mut self, session: u64, (uri, subscription): (Box<str>, Subscription)) {
        self.0.entry(session).or_default().subscriptions.insert(uri, subscription);
    }

    /// Returns the sessions that have subscribed to a resource, or to one that it is a part of.
    pub(super) fn subscribers(&self, uri: &str) -> Vec<u64> {
        let hears = |own: &SessionBelongings| {
            own.subscriptions.iter().any(|(of, subscription)| subscription.made && is_part_of(uri, of))
        };
        self.0.iter().filter(|(_, own)| hears(own)).map(|(session, _)| *session).collect()
    }

    /// Returns whether any session has subscribed to that very resource, or asks for it.
    pub(super) fn has_subscriber(&self, uri: &str) -> bool {
        self.0.values().any(|own| own.subscriptions.contains_key(uri))
    }

    /// Forgets a session that has gone. Returns the URIs that no other session subscribes to.
    pub(super) fn forget(&mut self, session: u64) -> Vec<Box<str>> {
        let own = self.0.remove(&session).unwrap_or_default();
        own.subscriptions.into_keys().filter(|uri| !self.has_subscriber(uri)).collect()
    }
}

impl Subscription {
    /// Takes note that a call has its answer. Returns whether the call asked for this subscription.
    fn is_answered(&mut self, ours: u64) -> bool {
        let at = self.asking.iter().position(|asking| *asking == ours);
        at.is_some_and(|at| self.asking.remove(at).is_some())
    }
}

/// Returns the `elicitationId` of a request that sends its client to a URL.
pub(super) fn elicitation(request: &Message) -> Option<String> {
    let params = Members::parse(request.params().filter(|_| request.method() == Method::Elicit)?).ok()?;
    params.text("mode").filter(|mode| mode == "url")?;
    params.text("elicitationId").map(Into::into)
}

/// Returns a member of `params` that is a string, such as the `uri` of a subscription.
pub(super) fn named(message: &Message, key: &str) -> Option<String> {
    Members::parse(message.params()?).ok()?.text(key).map(Into::into)
}

/// Returns the ids in an error that says that elicitations at URLs must be completed first.
fn required(error: &str) -> Vec<String> {
    let Ok(error) = Members::parse(error) else { return Vec::new() };
    let data = error.object("data").filter(|_| error.get("code") == Some(URL_ELICITATION_REQUIRED));
    let elicitations = data.as_ref().and_then(|data| data.get("elicitations"));
    let elicitations = elicitations.and_then(|list| serde_json::from_str::<Vec<&RawValue>>(list).ok());
    let id = |elicitation: &RawValue| {
        let elicitation = Members::parse(elicitation.get()).ok()?;
        elicitation.get("elicitationId").and_then(unquote).map(Into::into)
    };
    elicitations.into_iter().flatten().take(MAX_ELICITATIONS).filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 1;
    const BOB: u64 = 2;

    fn message(text: &str) -> Message {
        Message::parse(text.to_owned().into()).expect("valid")
    }

    fn accepted() -> Message {
        message(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
    }

    #[test]
    fn an_update_goes_to_sessions_that_subscribed_to_the_resource_or_to_one_that_it_is_a_part_of() {
        let mut belongings = Belongings::default();
        assert!(belongings.subscribe(ANN, 7, "file:///a") && belongings.subscribe(BOB, 8, "file:///b/"));
        assert!(belongings.subscribers("file:///a").is_empty(), "the server has not agreed");
        belongings.answered(ANN, 7, &accepted());
        belongings.answered(BOB, 8, &accepted());
        for (uri, who) in
            [("file:///a", &[ANN][..]), ("file:///a/x", &[ANN]), ("file:///ab", &[]), ("file:///b/c", &[BOB])]
        {
            assert_eq!(belongings.subscribers(uri), who, "{uri}");
        }
    }

    #[test]
    fn a_subscription_that_the_server_refuses_is_forgotten() {
        let mut belongings = Belongings::default();
        assert!(belongings.subscribe(ANN, 7, "file:///a"));
        belongings.answered(ANN, 7, &message(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32002,"message":"no"}}"#));
        assert!(belongings.subscribers("file:///a").is_empty());
        assert!(!belongings.has_subscriber("file:///a"));
    }

    #[test]
    fn a_subscription_that_is_asked_for_again_is_made_by_the_answer_to_any_of_the_calls() {
        let mut belongings = Belongings::default();
        for (call, uri) in [(7, "first"), (8, "first"), (9, "second"), (10, "second")] {
            assert!(belongings.subscribe(ANN, call, uri));
        }
        belongings.answered(ANN, 7, &accepted());
        belongings.refused(ANN, 8);
        assert_eq!(belongings.subscribers("first"), [ANN], "it was made before");
        belongings.refused(ANN, 9);
        assert!(belongings.subscribers("second").is_empty() && belongings.has_subscriber("second"));
        belongings.answered(ANN, 10, &accepted());
        assert_eq!(belongings.subscribers("second"), [ANN]);
    }

    #[test]
    fn calls_that_ask_for_one_subscription_and_get_no_answer_are_forgotten() {
        let mut belongings = Belongings::default();
        assert!((0..1000).all(|call| belongings.subscribe(ANN, call, "u")));
        assert_eq!(belongings.0[&ANN].subscriptions["u"].asking.len(), MAX_ASKING);
        belongings.answered(ANN, 999, &accepted());
        assert_eq!(belongings.subscribers("u"), [ANN]);
    }

    #[test]
    fn a_subscription_ends_for_the_server_with_the_last_session_that_has_it() {
        let mut belongings = Belongings::default();
        assert!(belongings.subscribe(ANN, 7, "u") && belongings.subscribe(BOB, 8, "u"));
        let ended = belongings.unsubscribe(ANN, "u").expect("hers");
        assert!(belongings.has_subscriber("u") && belongings.unsubscribe(ANN, "u").is_none());
        belongings.put_back(ANN, ended);
        assert!(belongings.subscribe(ANN, 9, "of ann"));
        assert_eq!(belongings.forget(ANN), ["of ann".into()]);
        assert_eq!(belongings.forget(BOB), ["u".into()]);
    }

    #[test]
    fn subscriptions_of_a_session_are_bounded_in_bytes() {
        let mut belongings = Belongings::default();
        let mut subscribe = |length: usize| belongings.subscribe(ANN, 7, &"u".repeat(length));
        assert!(!subscribe(MAX_SUBSCRIBED));
        let kept = (1..1000).take_while(|length| subscribe(*length)).count();
        assert!(kept < 1000 && !subscribe(2000) && subscribe(1), "{kept}");
    }

    #[test]
    fn a_complete_elicitation_is_told_once_to_the_session_that_was_asked() {
        let mut belongings = Belongings::default();
        belongings.elicited(ANN, "one");
        let error = r#"{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","elicitationId":"two"}]}}"#;
        belongings.answered(BOB, 7, &message(&format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#)));
        assert_eq!((belongings.completed("two"), belongings.completed("two")), (vec![BOB], vec![]));
        assert_eq!((belongings.completed("one"), belongings.completed("three")), (vec![ANN], vec![]));
    }

    #[test]
    fn the_newest_elicitations_of_a_session_are_remembered() {
        let mut belongings = Belongings::default();
        belongings.elicited(BOB, "bob's");
        for id in 0..=MAX_ELICITATIONS {
            belongings.elicited(ANN, &id.to_string());
        }
        belongings.elicited(ANN, &"x".repeat(MAX_ID + 1));
        assert!(belongings.completed("0").is_empty());
        assert_eq!((belongings.completed("1"), belongings.completed("bob's")), (vec![ANN], vec![BOB]));
    }
}
