use futures_util::FutureExt;

use super::*;

const CAPACITY: usize = 1024 * 1024;

fn outbox() -> Outbox<&'static str> {
    Outbox::new(&Capacity::new(CAPACITY, 100 * CAPACITY))
}

fn message(method: &str, id: &str, size: usize) -> Message {
    let text = format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{"x":"{}"}}}}"#, "x".repeat(size));
    Message::parse(text.into()).expect("valid")
}

fn drain(outbox: &Outbox<&'static str>) -> Vec<Method> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut methods = Vec::new();
    while let Poll::Ready(Some(Item::Message(message))) = outbox.poll_next(&mut cx) {
        methods.push(message.method());
    }
    methods
}

#[test]
fn progress_is_dropped_first_oldest_first_then_log_messages() {
    let outbox = outbox();
    let third = CAPACITY / 3;
    assert_eq!(outbox.push(message("notifications/message", "", third)), Pushed::Kept);
    assert_eq!(outbox.push(message("notifications/progress", "", third)), Pushed::Kept);
    assert_eq!(outbox.push(message("notifications/tasks/status", "", third)), Pushed::Dropped(1));
    assert_eq!(outbox.push(message("elicitation/create", "\"id\":1,", third)), Pushed::Dropped(1));
    assert_eq!(drain(&outbox), [Method::TaskStatus, Method::Elicit]);
}

#[test]
fn a_server_request_is_never_dropped() {
    let outbox = outbox();
    let request = || message("roots/list", "\"id\":1,", CAPACITY / 2 + 1);
    assert_eq!(outbox.push(request()), Pushed::Kept);
    assert_eq!(outbox.push(request()), Pushed::Full);
    assert_eq!(outbox.push(message("notifications/progress", "", CAPACITY / 2)), Pushed::Dropped(1));
    assert_eq!(drain(&outbox).len(), 1);
}

#[test]
fn a_retracted_message_is_not_delivered_and_its_room_is_free() {
    let outbox = outbox();
    for _ in 0..4 {
        assert_eq!(outbox.push(message("roots/list", "\"id\":7,", CAPACITY / 2)), Pushed::Kept);
        assert_eq!(outbox.retract(|message| message.id() == Some("7")), 1);
    }
    assert_eq!(drain(&outbox), []);
}

#[test]
fn when_all_outboxes_together_are_full_every_one_is_but_one_that_is_read_still_passes_each_message() {
    let capacity = Capacity::new(CAPACITY, CAPACITY);
    let (stalled, read) = (Outbox::<&str>::new(&capacity), Outbox::<&str>::new(&capacity));
    let request = || message("roots/list", "\"id\":1,", CAPACITY / 2);
    assert_eq!(stalled.push(request()), Pushed::Kept);
    assert_eq!(stalled.push(message("notifications/progress", "", CAPACITY / 4)), Pushed::Kept);
    assert_eq!(read.push(request()), Pushed::Kept);
    // Progress is dropped here as well as where the outbox itself is full.
    assert_eq!(stalled.push(message("roots/list", "\"id\":2,", CAPACITY / 8)), Pushed::Dropped(1));
    assert!(!read.has_room_for(&request()));
    assert_eq!(read.push(request()), Pushed::Full);
    for _ in 0..3 {
        assert_eq!(drain(&read).len(), 1);
        assert_eq!(read.push(request()), Pushed::Kept);
    }
    assert_eq!(read.retract(|_| true), 1);
    drop(stalled);
    assert_eq!(capacity.waiting(), 0);
}

#[tokio::test]
async fn a_pause_comes_after_what_waits_and_before_what_comes_later() {
    let outbox = outbox();
    outbox.push(message("x", "", 1));
    outbox.pause(Duration::from_millis(7));
    assert!(matches!(outbox.next().await, Some(Item::Message(_))));
    assert!(matches!(outbox.next().await, Some(Item::Pause(pause)) if pause.as_millis() == 7));
    outbox.end("end");
    assert!(matches!(outbox.next().await, Some(Item::End("end"))));
}

#[tokio::test]
async fn the_end_comes_after_what_waits_and_only_once() {
    let outbox = outbox();
    outbox.push(message("x", "", 1));
    outbox.end("first");
    outbox.end("second");
    assert_eq!(outbox.push(message("x", "", 1)), Pushed::Dropped(1));
    assert!(matches!(outbox.next().await, Some(Item::Message(_))));
    assert!(matches!(outbox.next().await, Some(Item::End("first"))));
    assert!(outbox.next().await.is_none());
}

#[test]
fn who_waits_until_nothing_waits_is_told_however_the_last_message_went() {
    type Way = fn(&Outbox<&'static str>);
    let ways: [(&str, Way); 3] = [
        ("taken", |outbox| drop(outbox.take())),
        ("retracted", |outbox| assert_eq!(outbox.retract(|_| true), 1)),
        // Neither has room beside the other, and the second one alone is more than what stays of a full outbox.
        ("dropped", |outbox| {
            let pushed = outbox.push(message("notifications/progress", "", CAPACITY));
            assert_eq!(pushed, Pushed::Dropped(2));
        }),
    ];
    for (how, empty) in ways {
        let outbox = outbox();
        outbox.push(message("notifications/progress", "", 1));
        let mut emptied = Box::pin(outbox.emptied());
        assert!((&mut emptied).now_or_never().is_none(), "{how}");
        empty(&outbox);
        assert!(emptied.now_or_never().is_some(), "{how}");
    }
}
