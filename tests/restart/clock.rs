//! The clock of the system jumps by a day, while taskgate runs and while it is away: no task is lost, and none stays
//! for ever.

use std::{fs, path::Path, process::Command};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    House,
    kit::{Client, Upstream, eventually},
};

const DAY: i64 = 86_400;

/// A clock of the system that the test sets.
struct SystemClock(TempDir);

impl SystemClock {
    fn new() -> Self {
        let clock = Self(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kit/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o", &clock.path("clock.so")]).arg(source).arg("-ldl");
        assert!(compiler.status().unwrap().success());
        clock.jump(0);
        clock
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Sets it so many seconds ahead of the real one.
    fn jump(&self, ahead: i64) {
        fs::write(self.path("next"), ahead.to_string()).unwrap();
        fs::rename(self.path("next"), self.path("ahead")).unwrap();
    }
}

/// Waits until a task has expired.
async fn expires(client: &Client, id: &str) {
    let params = json!({ "taskId": id });
    eventually(|| async {
        let answer = client.request("tasks/get", params.clone()).await;
        (answer["error"]["code"] == json!(-32602)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_clock_that_jumps_by_a_day_neither_loses_a_task_nor_keeps_it() {
    let upstream = Upstream::json().await;
    let config =
        format!("[tasks]\npoll_interval = \"10ms\"\nttl = \"1h\"\n[[upstream]]\nurl = \"{}\"\n", upstream.url());
    for day in [DAY, -DAY] {
        let clock = SystemClock::new();
        let env = [("LD_PRELOAD", clock.path("clock.so")), ("CLOCK_AHEAD", clock.path("ahead"))];
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut house = House::configured(&config, &env).await;
        let client = Client::connect(&house.url).await;
        let kept = client.create_id("echo").await;
        let task = client.until(&kept, "completed").await;
        for (ahead, is_away) in [(day, false), (-day, true), (day, true)] {
            let short = client.create("echo", json!({ "ttl": 1500 })).await["taskId"].as_str().unwrap().to_owned();
            client.until(&short, "completed").await;
            clock.jump(ahead);
            if is_away {
                house.restart().await;
            }
            assert_eq!(client.get(&kept).await, task, "{ahead} s, away: {is_away}");
            let new = client.create_id("echo").await;
            let created = client.until(&new, "completed").await["createdAt"].as_str().unwrap().to_owned();
            assert_ne!(created[..10], task["createdAt"].as_str().unwrap()[..10], "the clock has not jumped");
            expires(&client, &short).await;
            assert_eq!(client.get(&kept).await, task, "{ahead} s, away: {is_away}");
        }
    }
}
