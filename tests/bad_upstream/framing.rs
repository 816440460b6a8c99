//! Every form that the HTML standard allows for a stream of events, and every line that it tells readers to ignore.

use crate::{
    House,
    kit::bad::{DONE, PROGRESS, Step, chunk, end, event, stream},
};

/// A stream of several events with each kind of line that there is; `\n` stands for the line end.
const EVERYTHING: &str = "\u{feff}: a comment before everything\n\nevent: message\nid: 7\nretry: 10\ndata: \n\n\
    :\n:\n\nevent: unknown\ndata: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"content\":[]}}\n\nid: 8\n\nretry\nevent\n\n\
    data\n\ndata:\n\nunknown: field\nunknown\n\ndata: not JSON\n\nevent: message\ndata:{\"jsonrpc\":\"2.0\",\n\
    data: \"method\":\"notifications/x\"\ndata:}\n\ndata:PROGRESS\nid: 9\nevent: message\n\ndata: DONE\n\n";

fn everything(line_end: &str) -> String {
    EVERYTHING.replace("PROGRESS", PROGRESS).replace("DONE", DONE).replace('\n', line_end)
}

/// Returns the stream with a different end for each line.
fn mixed() -> String {
    let text = everything("\n");
    let lines = text.split_inclusive('\n').zip(["\n", "\r\n", "\r"].into_iter().cycle());
    // A CR before a LF would make one line end of both: there the LF of an empty line becomes a CR.
    let mut out = String::new();
    for (line, line_end) in lines {
        let line = line.trim_end_matches('\n');
        let joins = line.is_empty() && out.ends_with('\r') && line_end.starts_with('\n');
        out.push_str(line);
        out.push_str(if joins { "\r" } else { line_end });
    }
    out
}

#[tokio::test]
async fn every_line_end_and_every_cut_give_the_same_events() {
    let house = House::new().await;
    let forms = [("LF", everything("\n")), ("CR", everything("\r")), ("CRLF", everything("\r\n")), ("mixed", mixed())];
    for (form, text) in forms {
        for size in [1, 2, 3, 7, 100, usize::MAX] {
            house.bad.on_call(form, vec![stream(), Step::Pieces(size, text.clone()), end()]);
            house.succeeds(form).await;
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_stream_may_also_end_with_its_connection() {
    let house = House::new().await;
    for version in ["1.1", "1.0"] {
        let head = format!("HTTP/{version} 200 OK\r\nContent-Type: TEXT/event-stream;charset=utf-8\r\n\r\n");
        house.bad.on_call(version, vec![Step::Raw(head + &everything("\n")), Step::Close]);
        house.succeeds(version).await;
    }
    house.still_works().await;
}

#[tokio::test]
async fn data_that_is_no_message_is_skipped() {
    let house = House::new().await;
    let nonsense =
        ["", "{", "[]", "7", "null", "\"text\"", "{}", "{\"jsonrpc\":\"1.0\",\"id\":4711,\"result\":{}}", "\0"];
    let steps = nonsense.map(event);
    house.bad.on_call("nonsense", [&[stream()], &steps[..], &[event(DONE), end()]].concat());
    house.succeeds("nonsense").await;
    house.bad.on_call("alone", [&[stream()], &steps[..], &[end()]].concat());
    house.fails("alone", &["no response to the request"]).await;
    house.still_works().await;
}

#[tokio::test]
async fn invalid_utf_8_is_skipped() {
    let house = House::new().await;
    let latin = || Step::Bytes(b"b\r\ndata: {\"\xe9\"}\r\n".to_vec());
    house.bad.on_call("latin", vec![stream(), latin(), chunk("\n\n"), event(DONE), end()]);
    house.succeeds("latin").await;
    house.still_works().await;
}
