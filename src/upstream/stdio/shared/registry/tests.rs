use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::{
    flow::{Capacity, Outbox},
    identity::Owner,
    upstream::{Exchange, Exchanges, UpstreamResponse},
    wire::{ClientCapabilities, response::result_response},
};

fn inbound() -> Inbound {
    let capacity = Capacity::new(1 << 20, 1 << 20);
    let listener = Arc::new(Outbox::new(&capacity));
    let exchanges = Exchanges::new(capacity, Arc::default());
    let (client, native) = (ClientCapabilities::default(), Arc::default());
    Inbound {
        upstream: "/mcp".into(),
        pooled: false,
        owner: None,
        exchanges,
        listener,
        client,
        native,
        tools: Arc::default(),
        listening: tokio_util::sync::CancellationToken::new(),
        observer: Arc::default(),
    }
}

/// Begins a call of a session, which is in flight while the exchange is kept.
fn call(registry: &mut Registry, seat: u64, purpose: Purpose) -> (u64, Exchange) {
    let exchange = registry.seats[&seat].inbound.exchanges.begin(None, purpose).unwrap();
    (registry.call(seat, exchange.number).unwrap(), exchange)
}

fn answer(registry: &mut Registry, ours: u64) {
    let (inbound, number) = registry.end(ours).unwrap();
    let response = Message::parse(result_response(&number.to_string(), "{}")).unwrap();
    inbound.exchanges.end(number, Ok(UpstreamResponse::Whole(response)));
}

fn asked(registry: &Registry) -> Option<u64> {
    registry.session_to_ask().ok().map(|(seat, _)| seat)
}

#[test]
fn without_a_session_no_client_is_asked() {
    assert_eq!(asked(&Registry::new()), None);
}

#[test]
fn a_session_with_a_plain_call_is_asked_before_one_with_a_task_and_that_before_a_listener() {
    use Purpose::{Background, Foreground};
    let mut registry = Registry::new();
    let (ann, bob) = (registry.join(inbound()).unwrap(), registry.join(inbound()).unwrap());
    let listening = registry.seats[&ann].inbound.listener.attach();
    assert_eq!(asked(&registry), Some(ann), "no session calls, and she listens");
    let (of_bob, _task) = call(&mut registry, bob, Background);
    assert_eq!(asked(&registry), Some(bob), "his is the only call");
    let (_, _task) = call(&mut registry, bob, Background);
    assert_eq!(asked(&registry), Some(bob), "both calls are his");
    let (_, _task) = call(&mut registry, ann, Background);
    assert_eq!(asked(&registry), Some(ann), "both run tasks, and she listens");
    let (_, _plain) = call(&mut registry, bob, Foreground);
    assert_eq!(asked(&registry), Some(bob), "his is the only plain call");
    let (_, _plain) = call(&mut registry, ann, Foreground);
    assert_eq!(asked(&registry), Some(ann), "hers is newer");
    drop(listening);
    assert_eq!(asked(&registry), Some(ann), "whether she listens or not");
    assert!(registry.end(of_bob).is_some() && registry.end(of_bob).is_none());
}

#[test]
fn while_calls_of_others_run_no_client_without_a_session_is_asked_what_may_be_theirs() {
    let mut registry = Registry::new();
    let modern = || Inbound { pooled: true, ..inbound() };
    let (ann, bob) = (registry.join(modern()).unwrap(), registry.join(modern()).unwrap());
    let legacy = registry.join(inbound()).unwrap();
    let (of_ann, _hers) = call(&mut registry, ann, Purpose::Foreground);
    assert_eq!(asked(&registry), Some(ann));
    let (of_bob, _his) = call(&mut registry, bob, Purpose::Foreground);
    assert_eq!(asked(&registry), None, "it may be hers or his");
    answer(&mut registry, of_ann);
    assert_eq!(asked(&registry), Some(bob));
    let (_, _of_legacy) = call(&mut registry, legacy, Purpose::Background);
    assert_eq!(asked(&registry), None, "nor with a session");
    answer(&mut registry, of_bob);
    assert_eq!(asked(&registry), Some(legacy));
}

#[test]
fn after_a_call_that_was_given_up_none_is_asked_what_may_be_of_that_call_if_one_of_the_two_has_no_session() {
    let hows = ["is about to be cancelled", "is cancelled", "is swept", "fails", "leaves"];
    for (how, of_ann, of_bob) in
        hows.into_iter().flat_map(|how| [(how, true, true), (how, true, false), (how, false, true)])
    {
        let mut registry = Registry::new();
        let [ann, bob] = [of_ann, of_bob].map(|pooled| registry.join(Inbound { pooled, ..inbound() }).unwrap());
        let (ours, of_ann) = call(&mut registry, ann, Purpose::Foreground);
        let (_, _of_bob) = call(&mut registry, bob, Purpose::Foreground);
        let exchanges = Arc::clone(&registry.seats[&ann].inbound.exchanges);
        match how {
            "leaves" => drop(registry.leave(ann)),
            "fails" => exchanges.end(of_ann.number, Err(Failure::ClientTooSlow)),
            _ => assert_eq!(exchanges.cancelling(of_ann.number), Some(false)),
        }
        if matches!(how, "is cancelled" | "is swept") {
            assert_eq!(registry.cancel(ann, of_ann.number), Some(ours));
        }
        if how == "is swept" {
            exchanges.cancel(of_ann.number);
            let others: Vec<_> = (0..SWEEP_FROM).map(|_| call(&mut registry, ann, Purpose::Foreground)).collect();
            assert!(!registry.calls.contains_key(&ours));
            for (ours, _) in &others {
                answer(&mut registry, *ours);
            }
        }
        assert_eq!(asked(&registry), None, "{how}: it may be hers");
        registry.end(ours);
        assert_eq!(asked(&registry), Some(bob), "the child has answered");
    }
}

#[test]
fn no_question_may_be_of_a_call_that_the_child_never_got_or_in_the_course_of_which_it_asks_nothing() {
    let mut registry = Registry::new();
    let modern = || Inbound { pooled: true, ..inbound() };
    let (ann, bob) = (registry.join(modern()).unwrap(), registry.join(modern()).unwrap());
    let (_, _of_bob) = call(&mut registry, bob, Purpose::Foreground);
    for purpose in [Purpose::Foreground, Purpose::Listening] {
        let of_ann = registry.seats[&ann].inbound.exchanges.begin_apart(None, purpose).unwrap();
        registry.call(ann, of_ann.number).unwrap();
        registry.cancel(ann, of_ann.number);
        assert_eq!(asked(&registry), Some(bob));
        registry.seats[&ann].inbound.exchanges.cancel(of_ann.number);
    }
    let (ours, _of_ann) = call(&mut registry, ann, Purpose::Foreground);
    registry.leave(ann);
    registry.were_not_sent(&[ours]);
    assert_eq!(asked(&registry), Some(bob));
    // taskgate's own requests are given up without a word to the child.
    let own = registry.seats[&bob].inbound.exchanges.begin_apart(None, Purpose::Foreground).unwrap();
    registry.call(bob, own.number).unwrap();
    registry.seats[&bob].inbound.exchanges.cancel(own.number);
    assert_eq!(asked(&registry), Some(bob));
}

#[test]
fn an_error_without_an_id_leaves_a_call_that_may_still_ask() {
    let mut registry = Registry::new();
    let modern = || Inbound { pooled: true, ..inbound() };
    let ann = registry.join(modern()).unwrap();
    let (ours, _of_ann) = call(&mut registry, ann, Purpose::Foreground);
    assert_eq!(registry.only(), Some(ours));
    assert!(registry.end_by_guess(ours).is_some());
    let bob = registry.join(modern()).unwrap();
    let (_, _of_bob) = call(&mut registry, bob, Purpose::Foreground);
    assert_eq!(asked(&registry), None, "it may be hers");
    registry.end(ours);
    assert_eq!(asked(&registry), Some(bob));
}

#[test]
fn nobody_hears_what_may_be_of_a_call_that_was_given_up_if_one_of_the_two_has_no_session() {
    let mut registry = Registry::new();
    let owned = |pooled| Inbound { pooled, owner: Some(Owner::session(Uuid::nil())), ..inbound() };
    let [ann, bob, legacy] = [true, true, false].map(|pooled| registry.join(owned(pooled)).unwrap());
    let heard = |registry: &Registry| registry.concerned().map(|concerned| concerned.len());
    assert_eq!(heard(&registry), Some(3));
    let (of_legacy, theirs) = call(&mut registry, legacy, Purpose::Foreground);
    registry.seats[&legacy].inbound.exchanges.cancelling(theirs.number);
    registry.cancel(legacy, theirs.number);
    let (of_bob, _his) = call(&mut registry, bob, Purpose::Foreground);
    registry.seats[&legacy].inbound.exchanges.cancel(theirs.number);
    assert_eq!(heard(&registry), Some(0), "it may be of a client with a session");
    answer(&mut registry, of_bob);
    assert_eq!(heard(&registry), Some(1), "it, and others like it, may hear that");
    registry.end(of_legacy);
    let (of_ann, _hers) = call(&mut registry, ann, Purpose::Foreground);
    registry.leave(ann);
    assert_eq!(heard(&registry), Some(0));
    registry.end(of_ann);
    assert_eq!(heard(&registry), Some(2));
}

#[test]
fn nobody_hears_what_may_be_of_an_answered_call_of_another_owner_if_one_of_the_two_has_no_session() {
    let owner = |name: &str| Some(Owner::principal("/mcp".into(), name.into()));
    for (of_ann, of_bob) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut registry = Registry::new();
        let ann = registry.join(Inbound { pooled: of_ann, owner: owner("ann"), ..inbound() }).unwrap();
        let heard = |registry: &Registry| registry.concerned().map(|concerned| concerned.len());
        let (hers, _exchange) = call(&mut registry, ann, Purpose::Foreground);
        assert_eq!(heard(&registry), Some(1), "it is hers");
        answer(&mut registry, hers);
        let bob = registry.join(Inbound { pooled: of_bob, owner: owner("bob"), ..inbound() }).unwrap();
        let (_, _his) = call(&mut registry, bob, Purpose::Foreground);
        let both_have_sessions = !of_ann && !of_bob;
        assert_eq!(heard(&registry), Some(usize::from(both_have_sessions)), "it may still be hers");
        registry.leave(ann);
        assert_eq!(heard(&registry), Some(usize::from(both_have_sessions)), "also when she has left");
        let mut alone = Registry::new();
        for _ in 0..2 {
            let bob = alone.join(Inbound { pooled: of_bob, owner: owner("bob"), ..inbound() }).unwrap();
            let (his, _exchange) = call(&mut alone, bob, Purpose::Foreground);
            assert_eq!(heard(&alone), Some(1), "it is his in any case");
            answer(&mut alone, his);
        }
    }
}

#[test]
fn a_client_with_a_session_is_asked_after_the_call_of_another_with_a_session_was_given_up() {
    let mut registry = Registry::new();
    let (ann, bob) = (registry.join(inbound()).unwrap(), registry.join(inbound()).unwrap());
    let (_, of_ann) = call(&mut registry, ann, Purpose::Foreground);
    registry.seats[&ann].inbound.exchanges.cancelling(of_ann.number);
    registry.cancel(ann, of_ann.number);
    let (_, _of_bob) = call(&mut registry, bob, Purpose::Foreground);
    assert_eq!(asked(&registry), Some(bob));
}

#[test]
fn a_call_that_ended_without_a_response_does_not_count_and_is_forgotten() {
    let mut registry = Registry::new();
    let (ann, bob) = (registry.join(inbound()).unwrap(), registry.join(inbound()).unwrap());
    for _ in 0..10 * SWEEP_FROM {
        let (_, exchange) = call(&mut registry, ann, Purpose::Background);
        registry.seats[&ann].inbound.exchanges.cancel(exchange.number);
    }
    assert!(registry.calls.len() <= SWEEP_FROM + 1 && registry.seats[&ann].calls.len() == registry.calls.len());
    let _listening = registry.seats[&ann].inbound.listener.attach();
    let (_, _exchange) = call(&mut registry, bob, Purpose::Background);
    assert_eq!(asked(&registry), Some(bob));
}

#[test]
fn an_error_without_an_id_may_be_about_what_a_session_has_sent_that_has_left() {
    let mut registry = Registry::new();
    let ann = registry.join(inbound()).unwrap();
    let (of_ann, exchange) = call(&mut registry, ann, Purpose::Foreground);
    assert_eq!(registry.only(), Some(of_ann));
    let bob = registry.join(inbound()).unwrap();
    assert_eq!(registry.only(), None, "of two sessions it may be about either");
    drop(exchange);
    registry.leave(ann);
    let (_, _exchange) = call(&mut registry, bob, Purpose::Foreground);
    assert_eq!(registry.only(), None, "it may be about what she has sent");
}

#[test]
fn a_question_is_answered_once_and_only_by_the_session_that_got_it() {
    let mut registry = Registry::new();
    let (ann, bob) = (registry.join(inbound()).unwrap(), registry.join(inbound()).unwrap());
    let questions = &mut registry.questions;
    assert!(questions.ask(r#""q""#, None, bob).is_ok() && questions.ask("7", Some(r#""t""#), bob).is_ok());
    assert!(questions.expects_progress(bob, r#""\u0074""#), "a token may be escaped differently");
    assert!(!questions.expects_progress(ann, r#""t""#) && !questions.expects_progress(bob, "7"));
    assert!(!questions.answer(ann, r#""q""#));
    assert!(questions.answer(bob, r#""\u0071""#), "an id may be escaped differently");
    assert!(!questions.answer(bob, r#""q""#));
    assert!(!questions.answer(bob, r#""7""#), "a number is no text");
    assert_eq!(registry.leave(bob).questions, ["7"]);
    assert!(!registry.questions.expects_progress(bob, r#""t""#), "the request is no longer open");
    assert!(registry.withdraw("7").is_none());
}

#[test]
fn a_session_that_leaves_names_the_calls_to_cancel() {
    let mut registry = Registry::new();
    let ann = registry.join(inbound()).unwrap();
    let (open, _exchange) = call(&mut registry, ann, Purpose::Background);
    let (_, cancelled) = call(&mut registry, ann, Purpose::Background);
    registry.cancel(ann, cancelled.number).unwrap();
    assert_eq!(registry.leave(ann).calls, [open]);
    assert!(registry.calls.is_empty());
    assert!(registry.leave(ann).calls.is_empty());
}
