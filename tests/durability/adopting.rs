//! Calls that are to become tasks or jobs while the disk takes nothing: they do when it works again, and count as one creation
//! each.

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

/// taskgate on a watched disk.
struct House {
    upstream: Upstream,
    shim: Shim,
    _folder: TempDir,
    _running: Binary,
    url: String,
}

impl House {
    async fn open() -> Self {
        let (upstream, shim, folder) = (Upstream::sse().await, Shim::new(), TempDir::new().unwrap());
        let (config, store) = (folder.path().join("config.toml"), shim.store());
        let text = format!(
            "tasks.task_after = \"80ms\"\ntasks.job_after = \"80ms\"\nrate.creations = \"1/h\"\n[[upstream]]\nurl = \"{}\"\n",
            upstream.url()
        );
        std::fs::write(&config, text).unwrap();
        let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
        let variables = shim.variables(false);
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let args = ["serve", "--config", config, "--listen", "127.0.0.1:0", "--store", store];
        let running = Binary::start(&args, &variables);
        let url = running.url().await;
        Self { upstream, shim, _folder: folder, _running: running, url }
    }

    /// Has the disk fail while a call is to become something else. Returns the call's answer, and the server's end of it.
    async fn answered_after_a_fault(&self, call: impl Future<Output = Value> + Send + 'static) -> (Value, Sse) {
        self.shim.fail_all(CHANGES, Fault::Broken);
        let calling = tokio::spawn(call);
        let slow = self.upstream.held("slow").await.sse();
        eventually(async || (self.shim.failed() > 0).then_some(())).await;
        self.shim.heal();
        (soon(calling).await.unwrap(), slow)
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
