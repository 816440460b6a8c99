//! What waits for a child that does not read its stdin.

use bytes::Bytes;
use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION, pieces::Poster};
use crate::kit::{Children, Client, Script, soon, text_of};

/// What may wait, in bytes: all of it of one session, half of it of a second one, and so on.
const TOTAL: usize = 16 * MIB;
/// Stops reading until the test says so, or is over. Then it only reads.
const STALLING: Script = Script {
    setup: "",
    tools: r#"*'"name":"doze"'*) text "$id" zzz; while [ -d "$dir" ] && [ ! -e "$dir/awake" ]; do sleep 0.05; done
        rm -f "$dir/awake"; exec cat >/dev/null ;;"#,
    after: "",
};

/// Lets each of so many sessions send as much as may wait of it, again and again.
async fn fill(what: &str, sessions: usize, documented: usize) {
    // A buffer that doubles is twice as large as such a message.
    const SIZE: usize = 512 * KIB + 2 * KIB;
    let children = Children::new(STALLING);
    let upstream = format!("command = {:?}\nshared = {}", children.command(), sessions > 1);
    let house = House::in_front_of(&upstream, "", "").await;
    let text = "x".repeat(SIZE - 100);
    let long = json!({ "jsonrpc": "2.0", "method": "notifications/long", "params": { "text": text } }).to_string();
    let (poster, long) = (Poster::new(false), Bytes::from(long));
    // In the later rounds buffers get memory that others had before, and all of them is the process's.
    for _ in 0..3 {
        let mut clients = Vec::new();
        for _ in 0..sessions {
            clients.push(Client::connect(&house.url).await);
        }
        assert_eq!(text_of(&clients[0], "doze").await, "zzz");
        let mut most = 0;
        for (nth, client) in clients.iter().enumerate() {
            let fit = TOTAL / (nth + 1) / SIZE;
            for _ in 0..fit {
                let pieces = poster.begin(client);
                pieces.send(&long, 16 * KIB).await;
                assert_eq!(soon(pieces.end()).await.unwrap(), "");
            }
            most += fit * long.len();
            let (_, why) = client.error("tools/call", json!({ "name": "pid", "arguments": { "text": text } })).await;
            assert!(why.contains("bytes of this session would wait"), "{why}");
        }
        let waiting = house.metric("child_stdin_bytes").await;
        assert!(waiting >= most - 2 * SIZE, "{waiting} of {most}");
        children.touch("awake");
        house.shows("child_stdin_bytes", 0).await;
        for client in clients {
            client.delete().await;
        }
        house.shows("children", 0).await;
    }
    house.holds(what, documented + SIZE + sessions * (SESSION + 2 * CONNECTION) + ITSELF);
}

#[tokio::test]
async fn what_waits_for_a_child_that_does_not_read_is_bounded_for_one_session_and_for_many() {
    fill("messages of one session", 1, TOTAL).await;
    // 16 MiB × (1 + ln 6)
    fill("messages of many sessions", 6, TOTAL * 279 / 100).await;
}
