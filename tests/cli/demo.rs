//! `taskgate demo`

use std::time::Duration;

use crate::kit::{Binary, within};

#[tokio::test]
async fn the_demo_follows_one_task_from_call_to_result() {
    // The variables of a real taskgate do not disturb the demo.
    let env = [("TASKGATE_UPSTREAM", "http://127.0.0.1:9/mcp"), ("TASKGATE_LISTEN", "127.0.0.1:1")];
    let demo = Binary::run(&["demo"], &env).await;
    assert_eq!((demo.code, demo.stderr), (Some(0), String::new()));
    let mut rest = &*demo.stdout;
    // In this order.
    for part in
        ["initialize", "tools/list", "tools/call", "working", "drawing charts", "completed", "A report in 5 chapters"]
    {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("no {part:?} in {rest:?} of {}", demo.stdout));
        rest = after;
    }
}

#[tokio::test]
async fn the_demo_exits_0_even_if_its_output_is_closed() {
    let (_, closed) = std::io::pipe().unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_taskgate"));
    let mut demo = command.arg("demo").stdout(closed).kill_on_drop(true).spawn().unwrap();
    let status = within(Duration::from_secs(30), demo.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}
