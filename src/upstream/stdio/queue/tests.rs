use super::*;
use crate::upstream::stdio::share::{MAX_MESSAGES, TASKGATE};

const ANN: SenderId = 1;
const BOB: SenderId = 2;

fn queue() -> Arc<StdinQueue> {
    StdinQueue::new(Arc::default())
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn of_size(size: usize) -> Bytes {
    vec![b'x'; size].into()
}

/// Writes the next message, and returns it.
async fn write(queue: &StdinQueue) -> String {
    let message = queue.next().await.expect("something waits");
    queue.written();
    String::from_utf8(message.into()).expect("text")
}

fn bytes_that_wait(queue: &StdinQueue) -> String {
    let metrics = queue.observer.open_metrics();
    metrics.lines().find_map(|line| line.strip_prefix("taskgate_child_stdin_bytes ")).expect("metric").to_owned()
}

#[tokio::test]
async fn senders_take_turns_and_each_keeps_its_order() {
    let queue = queue();
    for n in 0..3 {
        queue.tell(ANN, MessageClass::Notice, text(&format!("ann {n}"))).expect("room");
    }
    queue.tell(BOB, MessageClass::Notice, text("bob 0")).expect("room");
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(write(&queue).await);
    }
    assert_eq!(order, ["ann 0", "bob 0", "ann 1", "ann 2"]);
    assert_eq!(bytes_that_wait(&queue), "0");
    assert!(queue.state.lock().backlogs.is_empty());
}

#[tokio::test]
async fn a_sender_that_fills_its_share_is_refused_alone_but_the_call_of_a_task_always_finds_a_place() {
    let queue = queue();
    let calls: Vec<_> = (0..MAX_MESSAGES as u64)
        .map(|number| queue.call(ANN, MessageClass::Call(number), text("ping")).expect("room"))
        .collect();
    assert_eq!(queue.call(ANN, MessageClass::Call(999), text("ping")).err(), Some(NotTaken::Messages));
    assert_eq!(queue.tell(ANN, MessageClass::Notice, text("note")), Err(NotTaken::Messages));
    let _task = queue.call(ANN, MessageClass::Task(1000), text("task")).expect("a place");
    queue.tell(BOB, MessageClass::Notice, text("bob")).expect("room");
    drop(calls);
    assert_eq!([write(&queue).await, write(&queue).await], ["task", "bob"], "withdrawn calls are not written");
}

#[tokio::test]
async fn requests_about_subscriptions_keep_one_order_are_not_withdrawn_and_have_the_room_of_their_session() {
    let queue = queue();
    let ask = |sender, uri: &str| queue.call(sender, MessageClass::Subscription, text(uri));
    drop(ask(ANN, "ann").expect("room"));
    queue.tell(ANN, MessageClass::Notice, text("note")).expect("room");
    for nth in 2..MAX_MESSAGES {
        drop(ask(ANN, &format!("ann {nth}")).expect("room"));
    }
    assert_eq!(ask(ANN, "too many").err(), Some(NotTaken::Messages));
    let of_bob = ask(BOB, "bob").expect("room of his own");
    assert!(queue.forget(ANN).is_empty(), "her session has ended; her note has gone");
    drop(ask(ANN + 2, "another").expect("room of its own"));
    let mut order = Vec::new();
    while !queue.state.lock().turns.is_empty() {
        order.push(write(&queue).await);
    }
    assert_eq!((order.len(), &*order[0], order.last().map(|last| &**last)), (MAX_MESSAGES + 1, "ann", Some("another")));
    assert!(of_bob.written().await);
    assert!(queue.state.lock().backlogs.is_empty() && bytes_that_wait(&queue) == "0");
}

#[tokio::test]
async fn senders_that_wait_share_the_bytes_and_a_larger_message_is_taken_alone() {
    let queue = queue();
    queue.tell(ANN, MessageClass::Notice, of_size(MAX_BYTES + 1)).expect("nothing waits");
    assert_eq!(queue.tell(ANN, MessageClass::Notice, text("more")), Err(NotTaken::Bytes(MAX_BYTES)));
    queue.tell(BOB, MessageClass::Notice, of_size(MAX_BYTES / 4)).expect("a share of its own");
    let third = queue.tell(BOB, MessageClass::Notice, of_size(MAX_BYTES / 4));
    assert_eq!(third, Err(NotTaken::Bytes(MAX_BYTES / 2)));
    queue.next().await.expect("ann's");
    assert_eq!(
        queue.tell(ANN, MessageClass::Notice, text("more")),
        Err(NotTaken::Bytes(MAX_BYTES / 2)),
        "it is being written"
    );
    queue.written();
    queue.tell(ANN, MessageClass::Notice, text("more")).expect("nothing of hers waits");
}

#[tokio::test]
async fn all_calls_that_a_session_leaves_behind_are_cancelled() {
    let queue = queue();
    for number in 0..4 * MAX_MESSAGES {
        queue.tell(TASKGATE, MessageClass::Cancellation, text(&number.to_string())).expect("a place");
    }
    queue.tell(TASKGATE, MessageClass::Answer, text("answer")).expect("room");
    for number in 0..4 * MAX_MESSAGES {
        assert_eq!(write(&queue).await, number.to_string());
    }
}

#[tokio::test]
async fn large_messages_of_many_senders_do_not_add_up_and_small_ones_are_still_taken() {
    let queue = queue();
    let taken =
        (1..=100).filter(|sender| queue.tell(*sender, MessageClass::Notice, of_size(MAX_BYTES)).is_ok()).count();
    assert!(queue.state.lock().bytes() < 3 * MAX_BYTES, "{taken} were taken");
    queue.tell(101, MessageClass::Notice, text("small")).expect("a share of its own");
    let _task = queue.call(102, MessageClass::Task(1), of_size(MAX_BYTES)).expect("it was acknowledged");
    while queue.state.lock().bytes() > 0 {
        write(&queue).await;
    }
    queue.tell(100, MessageClass::Notice, of_size(MAX_BYTES)).expect("nothing waits any more");
}

#[tokio::test]
async fn a_call_that_is_withdrawn_while_it_is_being_written_does_no_harm() {
    let queue = queue();
    let call = queue.call(ANN, MessageClass::Call(1), text("call")).expect("room");
    queue.next().await.expect("the call");
    drop(call);
    queue.written();
    assert_eq!(bytes_that_wait(&queue), "0");
    assert!(queue.state.lock().backlogs.is_empty());
}

#[tokio::test]
async fn a_sender_that_has_gone_leaves_only_its_answers() {
    let queue = queue();
    let _call = queue.call(ANN, MessageClass::Call(7), text("call")).expect("room");
    let _task = queue.call(ANN, MessageClass::Task(8), text("task")).expect("room");
    queue.tell(ANN, MessageClass::Answer, text("answer")).expect("room");
    queue.tell(ANN, MessageClass::Notice, text("note")).expect("room");
    assert_eq!(queue.forget(ANN), [7, 8]);
    assert_eq!(write(&queue).await, "answer");
    queue.close();
    assert!(queue.next().await.is_none());
}

#[tokio::test]
async fn the_answers_of_senders_that_come_and_go_do_not_add_up() {
    let queue = queue();
    for sender in 1..100 {
        queue.tell(sender, MessageClass::Answer, of_size(MAX_BYTES / 4)).expect("the first of its sender");
        queue.forget(sender);
    }
    let waiting = queue.state.lock().bytes();
    assert!(waiting <= MAX_BYTES, "{waiting}");
}

#[tokio::test]
async fn requests_about_subscriptions_of_senders_that_come_and_go_do_not_add_up() {
    let queue = queue();
    let ask = |sender, size| queue.call(sender, MessageClass::Subscription, of_size(size));
    for sender in 1..100 {
        if let Ok(asked) = ask(sender, MAX_BYTES / 4) {
            drop(asked);
        }
        queue.forget(sender);
    }
    assert!(queue.state.lock().bytes() <= 2 * MAX_BYTES);
    assert_eq!(ask(100, 1).err(), Some(NotTaken::Line));
    queue.tell(100, MessageClass::Notice, of_size(MAX_BYTES / 2)).expect("its share is not smaller");
    while !queue.state.lock().turns.is_empty() {
        write(&queue).await;
    }
    drop(ask(100, 1).expect("nothing is left"));
}

#[tokio::test]
async fn what_waits_is_written_after_closing_and_dropped_when_the_child_reads_no_more() {
    let queue = queue();
    let (first, second) =
        (queue.call(ANN, MessageClass::Call(1), text("1")), queue.call(ANN, MessageClass::Call(2), text("2")));
    queue.close();
    assert_eq!(queue.tell(ANN, MessageClass::Notice, text("late")), Err(NotTaken::Closed));
    assert_eq!(write(&queue).await, "1");
    assert!(first.expect("room").written().await);
    queue.next().await.expect("the second");
    queue.clear();
    assert!(!second.expect("room").written().await);
    assert!(queue.next().await.is_none());
    assert_eq!(bytes_that_wait(&queue), "0");
}
