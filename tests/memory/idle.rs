//! Memory that is no longer needed goes back to the system, also while nothing happens.

use std::time::Duration;

use serde_json::json;

use super::{GIVEN_BACK, House, MIB};
use crate::kit::{Client, Upstream, within};

#[tokio::test]
async fn the_memory_of_removed_results_is_given_back_while_taskgate_is_idle() {
    const RESULTS: usize = 20;
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), "", "").await;
    let client = Client::connect(&house.url).await;
    let warm = house.taskgate.memory();
    let result = json!({ "content": [{ "type": "text", "text": "x".repeat(2 * MIB) }] }).to_string();
    for _ in 0..RESULTS {
        let id = client.create_id("slow").await;
        upstream.held("slow").await.result(&result);
        client.until(&id, "completed").await;
    }
    let full = house.taskgate.memory();
    assert!(full > warm + RESULTS * 2 * MIB, "{full}");
    client.delete().await;
    within(GIVEN_BACK, async {
        while house.taskgate.memory() > warm * 13 / 10 + 2 * MIB {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}
