//! Small messages that were cut from large buffers and are kept.

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION};
use crate::kit::{
    BadUpstream, Client,
    bad::{Step, stream},
};

/// How many small messages are cut.
const CUTS: usize = 40;
/// A line of a large message.
const LINE: usize = 600 * KIB;
const SMALL: &str = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#;

/// Returns a message in lines that is the first to be dropped where there is no room, so that the buffer of the whole
/// has grown.
fn large() -> Vec<String> {
    let head = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":["#;
    let lines = vec![format!("\"{}\",", "x".repeat(LINE)); 5];
    [vec![head.to_owned()], lines, vec!["0]}}".to_owned()]].concat()
}

/// Checks what these events make taskgate keep for a client that does not listen.
async fn kept(what: &str, event: String) {
    const OUTBOX: usize = 8 * MIB;
    let bad = BadUpstream::start().await;
    let house = House::before(&bad.url(), &format!("max_outbox_total = {OUTBOX}"), "").await;
    bad.on_listen(vec![stream(), Step::Times(CUTS, event), Step::Note("all"), Step::Gone]);
    let client = Client::connect(&house.url).await;
    bad.ended("all", 1).await;
    let mut stream = client.get_stream().await;
    for _ in 0..CUTS {
        assert_eq!(stream.message().await["method"], "notifications/x");
    }
    // An event that is arriving: its lines, in a buffer that grows, and the messages in it.
    let arriving = 5 * 5 * LINE;
    house.holds(what, OUTBOX * 5 / 4 + arriving + SESSION + 2 * CONNECTION + ITSELF);
}

#[tokio::test]
async fn small_events_do_not_keep_the_large_buffer_that_they_were_cut_from() {
    kept("events", format!("data: {}\n\ndata: {SMALL}\n\n", large().join("\ndata: "))).await;
}

#[tokio::test]
async fn small_messages_do_not_keep_the_large_batch_that_they_were_cut_from() {
    kept("batches", format!("data: [{},{SMALL}]\n\n", large().concat())).await;
}

#[tokio::test]
async fn the_events_kept_for_resumption_are_bounded_in_total_and_small_ones_count_with_their_overhead() {
    const OUTBOX: usize = 2 * MIB;
    const READERS: usize = 60;
    const EVENTS: usize = 450;
    let bad = BadUpstream::start().await;
    let house = House::before(&bad.url(), &format!("max_outbox_total = {OUTBOX}"), "").await;
    let padded = SMALL.replace("{}", &format!("{{\"x\":\"{}\"}}", "y".repeat(400)));
    let burst = format!("data: {padded}\n\n").repeat(EVENTS / 9);
    bad.on_listen(vec![stream(), Step::Times(9, burst), Step::Note("all"), Step::Gone]);
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let client = Client::connect(&house.url).await;
        let mut stream = client.get_stream().await;
        for _ in 0..EVENTS {
            stream.message().await;
        }
        readers.push((stream, client));
    }
    // A reader has two connections, and the server has one for each.
    house.holds("streams", OUTBOX * 5 / 4 + READERS * 2 * SESSION + ITSELF);
}
