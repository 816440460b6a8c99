//! Small messages that were cut from large buffers, and are kept.

use http::Method;

use super::{CONNECTION, House, ITSELF, MIB, SESSION};
use crate::kit::{
    Bad, Client, Stalled, TINY,
    bad::{Step, event, stream},
};

const OUTBOX: usize = 4 * MIB;
/// How many of them there are.
const CUTS: usize = 25;
/// A message that is dropped first where there is no room.
const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"PADDING"}}"#;
const SMALL: &str = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#;

/// What a reader who does not read makes taskgate keep of these events.
async fn kept(what: &str, events: Vec<Step>, largest: usize) {
    let bad = Bad::start().await;
    let house = House::before(&bad.url(), &format!("max_outbox_total = {OUTBOX}"), "").await;
    bad.on_listen([vec![stream()], events, vec![Step::Note("all"), Step::Gone]].concat());
    let client = Client::connect(&house.url).await;
    let _stalled = Stalled::open(&client, Method::GET, "", TINY).await;
    bad.ended("all", 1).await;
    client.ask("ping", serde_json::json!({})).await;
    // One that is arriving: the line, in a buffer that grows, what it says, and the messages in that.
    let arriving = 5 * largest;
    house.holds(what, OUTBOX * 5 / 4 + arriving + SESSION + 2 * CONNECTION + ITSELF);
}

#[tokio::test]
async fn small_events_do_not_keep_the_large_buffer_that_they_were_cut_from() {
    let large = LOG.replace("PADDING", &"x".repeat(4 * MIB));
    let pair = format!("data: {large}\n\ndata: {SMALL}\n\n");
    kept("events", vec![Step::Times(CUTS, pair)], 4 * MIB).await;
}

#[tokio::test]
async fn small_messages_do_not_keep_the_large_batch_that_they_were_cut_from() {
    let large = LOG.replace("PADDING", &"x".repeat(4 * MIB));
    kept("batches", vec![event(&format!("[{large},{SMALL}]")); CUTS], 4 * MIB).await;
}

#[tokio::test]
async fn what_was_sent_last_on_all_streams_is_bounded_and_many_small_events_are_counted_with_what_they_take() {
    const READERS: usize = 40;
    const EVENTS: usize = 1000;
    let bad = Bad::start().await;
    let house = House::before(&bad.url(), &format!("max_outbox_total = {OUTBOX}"), "").await;
    let tiny = format!("data: {SMALL}\n\n").repeat(100);
    bad.on_listen(vec![stream(), Step::Times(EVENTS / 100, tiny), Step::Note("all"), Step::Gone]);
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let client = Client::connect(&house.url).await;
        readers.push((client.get_stream().await, client));
    }
    for (stream, _) in &mut readers {
        for _ in 0..EVENTS {
            stream.message().await;
        }
    }
    house.holds("streams", OUTBOX * 5 / 4 + READERS * (SESSION + CONNECTION) + ITSELF);
}
