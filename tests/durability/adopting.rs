//! Calls that are to become tasks or jobs while the disk takes nothing: they do when it works again, and count as one
//! creation each. Where it hangs they go on meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    kit::{
        Binary, Client, Sse, Upstream, eventually,
        shim::{CHANGES, Fault, Shim},
        soon,
    },
    modern_client::Modern,
};

/// How long a sync takes on a disk that hangs.
const HANGS: Duration = Duration::from_secs(6);

/// A call that becomes something else twice would use up more.
const ONE_CREATION: &str = "rate.creations = \"1/h\"\n";

/// taskgate on a watched disk.
pub(crate) struct House {
    pub(crate) upstream: Upstream,
    pub(crate) shim: Shim,
    _folder: TempDir,
    running: Binary,
    pub(crate) url: String,
}

impl House {
    async fn open() -> Self {
        Self::with(ONE_CREATION).await
    }

    pub(crate) async fn with(more: &str) -> Self {
        let (upstream, shim, folder) = (Upstream::sse().await, Shim::new(), TempDir::new().unwrap());
        let (config, store) = (folder.path().join("config.toml"), shim.store());
        let text = format!(
            "tasks.heartbeat = \"40ms\"\ntasks.task_after = \"80ms\"\ntasks.job_after = \"80ms\"\n{more}[[upstream]]\nurl = \"{}\"\n",
            upstream.url()
        );
        std::fs::write(&config, text).unwrap();
        let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
        let variables = shim.variables(false);
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let args = ["serve", "--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", store];
        let running = Binary::start(&args, &variables);
        let url = running.url().await;
        Self { upstream, shim, _folder: folder, running, url }
    }

    /// Has the disk fail while a call is to become something else. Returns the call's answer, and the server's end of
    /// it.
    async fn answered_after_a_fault(&self, call: impl Future<Output = Value> + Send + 'static) -> (Value, Sse) {
        self.shim.fail_all(CHANGES, Fault::Broken);
        let calling = tokio::spawn(call);
        let slow = self.upstream.held("slow").await.sse();
        eventually(async || (self.shim.failed() > 0).then_some(())).await;
        self.shim.heal();
        (soon(calling).await.unwrap(), slow)
    }

    /// Waits until the task of a try that came to nothing has ended. The list has it a moment before it counts as
    /// running.
    async fn has_ended(&self, host: &Client, id: &str) {
        eventually(async || (host.get(id).await["status"] == "cancelled").then_some(())).await;
        self.no_task_runs().await;
    }

    /// Waits until no task runs.
    async fn no_task_runs(&self) {
        self.tasks_run(0).await;
    }

    /// Waits until so many tasks run.
    async fn tasks_run(&self, count: usize) {
        let admin = self.running.admin().await;
        let admin = admin.split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
        eventually(async || {
            let metrics = Client::new(&format!("{admin}/metrics")).send(http::Method::GET, "").await;
            metrics.text().contains(&format!("taskgate_tasks_live {count}\n")).then_some(())
        })
        .await;
    }

    /// Makes the disk hang. Returns how many calls it had until then.
    fn hang(&self) -> u64 {
        self.shim.delay(u64::try_from(HANGS.as_millis()).unwrap(), 0);
        self.shim.calls()
    }

    /// Waits until something is on its way to the disk after `calls`.
    async fn writes_after(&self, calls: u64) {
        eventually(async || (self.shim.calls() > calls).then_some(())).await;
    }
}

#[tokio::test]
async fn a_call_of_a_host_without_tasks_becomes_a_job_when_the_disk_works_again() {
    let house = House::open().await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let call = async move { host.stream("tools/call", json!({ "name": "slow", "arguments": {} })).last().await };
    let (answer, _slow) = house.answered_after_a_fault(call).await;
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("job_ids"), "{answer}");
}

#[tokio::test]
async fn a_call_of_a_client_with_tasks_becomes_one_when_the_disk_works_again() {
    let house = House::open().await;
    let client = Modern::with_tasks(&house.url);
    let caller = client.clone();
    let (created, _slow) = house.answered_after_a_fault(async move { caller.call("slow").await }).await;
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!(client.get(created["taskId"].as_str().unwrap()).await["status"], "working");
}

#[tokio::test]
async fn a_call_keeps_its_turn_while_the_disk_does_not_take_its_task() {
    let house = House::with(&format!("{ONE_CREATION}tasks.max_running = 1\n")).await;
    house.shim.fail_all(CHANGES, Fault::Broken);
    let client = Modern::with_tasks(&house.url);
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.call("slow").await });
    let slow = house.upstream.held("slow").await.sse();
    // By the second failure the first try has come to nothing.
    let first = eventually(async || Some(house.shim.failed()).filter(|failed| *failed > 0)).await;
    eventually(async || (house.shim.failed() > first).then_some(())).await;
    let (_, code, _) = client.refusal("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    assert_eq!((code, house.upstream.count("slow")), (-32603, 1), "its turn is not free");
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn heartbeats_go_on_and_the_answer_comes_while_the_disk_hangs_with_the_job_that_a_call_is_to_become() {
    let house = House::open().await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let (calls, begun) = (house.hang(), Instant::now());
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "tok" } });
    let mut calling = host.stream("tools/call", params);
    let slow = house.upstream.held("slow").await.sse();
    house.writes_after(calls).await;
    for _ in 0..10 {
        assert_eq!(calling.message().await["method"], "notifications/progress");
    }
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let answer = calling.last().await;
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
    house.shim.delay(0, 0);
    // The task that still comes of the try ends, and no model takes it for a call that is to be made again.
    let id = eventually(async || host.list().await.pop()).await;
    house.has_ended(&host, &id).await;
    let told = async |name: &str, arguments: Value| {
        let told = host.response("tools/call", json!({ "name": name, "arguments": arguments })).await;
        told["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let listed = told("list_jobs", json!({})).await;
    assert!(listed.starts_with("No job of yours runs"), "{listed}");
    for (name, arguments) in [("wait_for_job", json!({ "job_ids": [id] })), ("cancel_job", json!({ "job_id": id }))] {
        let told = told(name, arguments).await;
        assert!(told.contains("was answered in its own response. Do not call slow again for this"), "{told}");
    }
}

#[tokio::test]
async fn a_job_whose_call_has_no_connection_to_be_told_on_ends_and_the_call_becomes_another_when_it_has_one() {
    let house = House::open().await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calls = house.hang();
    let mut calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let _slow = house.upstream.held("slow").await.sse();
    let primer = calling.next_of_any_kind().await.unwrap();
    house.writes_after(calls).await;
    drop(calling);
    house.shim.delay(0, 0);
    let first = eventually(async || host.list().await.pop()).await;
    house.has_ended(&host, &first).await;
    let resumed = host.with("last-event-id", primer.id.as_deref().unwrap()).get_stream().await;
    let answer = resumed.last().await;
    let words = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(words.contains("is still running, as job") && !words.contains(&first), "{words}");
    house.tasks_run(1).await;
}

#[tokio::test]
async fn what_a_server_tells_while_the_disk_hangs_with_the_job_of_its_call_is_told_of_the_job() {
    let house = House::open().await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calls = house.hang();
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "tok" } });
    let calling = host.stream("tools/call", params);
    let slow = house.upstream.held("slow").await.sse();
    house.writes_after(calls).await;
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].clone();
    let progress = json!({ "progressToken": token, "progress": 3, "total": 7, "message": "some files" });
    slow.notify("notifications/progress", progress).await;
    house.shim.delay(0, 0);
    let answer = calling.last().await;
    let words = answer["result"]["content"][0]["text"].as_str().unwrap();
    let id = words.split_once("[\"").and_then(|(_, ids)| ids.split('"').next()).unwrap();
    eventually(async || {
        let arguments = json!({ "job_ids": [id], "seconds": 0 });
        let told = host.response("tools/call", json!({ "name": "wait_for_job", "arguments": arguments })).await;
        let told = told["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        told.contains("(so far: 3 of 7: some files)").then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_answer_of_a_modern_call_comes_while_the_disk_hangs_with_the_task_or_job_that_it_is_to_become() {
    for client in [Modern::with_tasks, Modern::plain] {
        let house = House::open().await;
        let client = client(&house.url);
        let (calls, begun) = (house.hang(), Instant::now());
        let calling = tokio::spawn(async move { client.call("slow").await });
        let slow = house.upstream.held("slow").await.sse();
        house.writes_after(calls).await;
        slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
        let answer = soon(calling).await.unwrap();
        assert_eq!(answer["content"][0]["text"], "done", "{answer}");
        assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
        house.shim.delay(0, 0);
        house.no_task_runs().await;
    }
}

#[tokio::test]
async fn a_session_can_be_ended_whose_call_lost_its_connection_while_the_disk_hung_with_its_job() {
    let house = House::open().await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calls = house.hang();
    let mut calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let _slow = house.upstream.held("slow").await.sse();
    calling.next_of_any_kind().await.unwrap();
    house.writes_after(calls).await;
    drop(calling);
    house.shim.delay(0, 0);
    assert_eq!(soon(host.delete()).await.status, 200);
    house.no_task_runs().await;
}
