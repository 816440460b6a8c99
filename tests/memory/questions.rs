//! Questions of tasks that were cut from large batches and are open.

use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION};
use crate::kit::{Client, Upstream};

const OUTBOX: usize = 32 * MIB;
/// How much of that may be taken by the questions of one task.
const OF_TASK: usize = OUTBOX / 4;
const SIZE: usize = 120 * KIB;
/// What a task that runs may take, also while its answer arrives (`docs/security.md`).
const RUNNING: usize = 464 * KIB;

#[tokio::test]
async fn open_questions_take_no_more_than_max_outbox_total_whatever_they_were_cut_from() {
    let upstream = Upstream::sse().await;
    let house = House::before(&upstream.url(), &format!("max_outbox_total = {OUTBOX}"), "").await;
    let unknown = format!(r#"{{"jsonrpc":"2.0","id":987654321,"result":{{"x":"{}"}}}}"#, "x".repeat(512 * KIB));
    let mut arriving = 0;
    let (mut clients, mut tasks) = (Vec::new(), Vec::new());
    for owner in 0..2 {
        let client = Client::connect_as(&house.url, "2025-11-25", json!({ "elicitation": {} })).await;
        for task in 0..2 {
            client.create_id("slow").await;
            let slow = upstream.held("slow").await.sse();
            // One more than there is room for, even if each only counts once.
            let last = OF_TASK / SIZE;
            for n in 0..=last {
                let id = format!("{owner}.{task}.{n}");
                let params = json!({ "message": "y".repeat(SIZE), "requestedSchema": {} });
                let question = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
                let batch = format!("[{unknown},{question}]");
                arriving = 5 * batch.len();
                slow.event(&batch).await;
            }
            let last = format!("{owner}.{task}.{last}");
            let refused = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == last).await.json();
            assert!(refused["error"]["message"].to_string().contains("limit reached"), "{refused}");
            tasks.push(slow);
        }
        clients.push(client);
    }
    let (open, questions) = (house.metric("question_bytes").await, house.metric("questions_total").await);
    assert!(open > OUTBOX * 3 / 4, "{open}");
    // They are kept while they are asked, until they are answered.
    for client in &clients {
        let mut stream = client.get_stream().await;
        for _ in 0..questions / clients.len() {
            assert_eq!(stream.message().await["method"], "elicitation/create");
        }
    }
    let others = tasks.len() * RUNNING + clients.len() * (SESSION + 3 * CONNECTION);
    house.holds("open questions", OUTBOX * 5 / 4 + arriving + others + ITSELF);
}
