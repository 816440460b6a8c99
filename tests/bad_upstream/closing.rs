//! Connections that the server keeps for a while, and then closes without notice.

use std::time::Duration;

use crate::{
    House,
    kit::bad::{DONE, Step, json_answer},
};

/// A call that was in flight when the server closed the connection may be lost: taskgate cannot know whether it was
/// run, and so does not send it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_closes_kept_connections_at_any_moment_runs_no_call_twice() {
    let house = House::new().await;
    for n in 0..200u64 {
        let tool = format!("tool {n}");
        house
            .bad
            .on_call(&tool, vec![json_answer(DONE), Step::Idle(Duration::from_micros(37 * (n % 20))), Step::Close]);
        if let Err(why) = house.call(&tool).await {
            assert!(why.contains("ended its answer before the response"), "{why}");
            assert!(house.bad.runs(&tool) <= 1);
        } else {
            assert_eq!(house.bad.runs(&tool), 1);
        }
    }
    // It may meet the last connection while the server closes it, like any call above.
    let _ = house.call("the last to be unlucky").await;
    house.still_works().await;
}
