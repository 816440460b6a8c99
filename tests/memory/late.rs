//! Messages that are on their way to a server though their clients have been answered.

use bytes::Bytes;
use serde_json::json;

use super::{CONNECTION, FULL, HALF, House, ITSELF, KIB, MIB, SESSION, pieces::Poster};
use crate::kit::{Client, Held, Upstream, soon};

const TOTAL: usize = 64 * MIB;

/// Takes all the room with messages with so many bytes that come in pieces, and returns them as the server has them.
async fn fill(upstream: &Upstream, sessions: &[Client], bytes: usize) -> Vec<Held> {
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "x": "y".repeat(bytes) } });
    let message = Bytes::from(message.to_string());
    let poster = Poster::new(false);
    let (mut answers, mut held) = (Vec::new(), Vec::new());
    // Each is larger than the room of its session, and may have all of it.
    for client in &sessions[..TOTAL / (message.len() + 4 * KIB)] {
        let pieces = poster.begin(client);
        pieces.send(&message, 64 * KIB).await;
        answers.push(pieces.end());
        held.push(upstream.held("notifications/x").await);
    }
    for answer in answers {
        assert_eq!(soon(answer).await.unwrap(), "");
    }
    upstream.forget();
    held
}

#[tokio::test]
async fn late_messages_of_many_sessions_take_what_they_count_whatever_the_buffers_that_they_came_in() {
    let upstream = Upstream::json().await;
    upstream.hold("notifications/x");
    // Little may be arriving at a time.
    let house = House::before(&upstream.url(), &format!("max_body_total = {}", 4 * MIB), "").await;
    let mut sessions = Vec::new();
    for _ in 0..TOTAL / HALF {
        sessions.push(Client::connect(&house.url).await);
    }
    // The buffer of each has 4 MiB. One that is filled leaves memory to one of which a half is not used.
    for held in fill(&upstream, &sessions, FULL).await {
        held.status(202, &[], "");
    }
    let held = fill(&upstream, &sessions, HALF).await;
    // A session has two connections, of which one has carried short messages only.
    house.settles("late messages", TOTAL + sessions.len() * (SESSION + CONNECTION + 10 * KIB) + ITSELF).await;
    assert!(held.iter().all(Held::is_open));
}
