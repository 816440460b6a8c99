//! Calls that ran when the process was killed and whose answers cannot be resumed fail, and say what is not known.

use serde_json::json;

use crate::{
    House,
    kit::{Client, Upstream},
};

#[tokio::test]
async fn a_call_that_ran_fails_and_says_that_its_effect_is_unknown_and_that_it_was_not_sent_again() {
    for upstream in [Upstream::json().await, Upstream::sse().await] {
        let mut house = House::before(&upstream.url(), "").await;
        let client = Client::connect(&house.url).await;
        let id = client.create_id("slow").await;
        // Its answer is a stream without event ids where it is one at all.
        let held = upstream.held("slow").await;
        house.restart().await;
        let task = client.until(&id, "failed").await;
        let error = client.collect(&id).await["error"].clone();
        for told in [task["statusMessage"].as_str().unwrap(), error["message"].as_str().unwrap()] {
            for part in ["process of taskgate ended while the call ran", "may or may not", "not sent again"] {
                assert!(told.contains(part), "{part} in {told}");
            }
        }
        assert_eq!((upstream.count("slow"), error["code"].clone()), (1, json!(-32603)));
        drop(held);
        // It has ended for good.
        house.restart().await;
        assert_eq!(client.get(&id).await, task);
    }
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_process_was_away_applies() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[tasks]\npoll_interval = \"10ms\"\nttl = \"1s\"\n").await;
    let client = Client::connect(&house.url).await;
    let id = client.create("echo", json!({ "ttl": 1 })).await["taskId"].as_str().unwrap().to_owned();
    client.until(&id, "completed").await;
    house.end(rustix::process::Signal::KILL).await;
    // What is waited for is the clock itself.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    house.start_again().await;
    assert_eq!(client.error("tasks/get", json!({ "taskId": id })).await.0, -32602);
}
