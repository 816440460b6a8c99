//! Many callers at once, over a server that notes which session did what, is killed and comes back, and forgets its
//! sessions.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, eventually, within},
    witness::{Form, Witness},
};

/// How long a crowd may take on a machine with other work.
const CROWD: std::time::Duration = std::time::Duration::from_mins(1);

async fn gate(witness: &Witness, more: &str) -> Gate {
    let toml = format!(
        "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n{more}\n[[upstream]]\nurl = {:?}\n\
         forward_authorization = true\n",
        witness.url()
    );
    Gate::configured(&toml).await
}

/// One caller: of an owner, with a credential, with or without the tasks extension, and able to be asked or not.
#[derive(Clone)]
struct Caller {
    client: Modern,
    arguments: Value,
}

impl Caller {
    /// Returns one of a crowd in which all combinations occur.
    fn nth(nth: usize, connections: &[Client]) -> Self {
        let owner = format!("owner-{}", nth % 10);
        let credential = format!("Bearer {owner}-{}", nth / 10 % 2);
        let (able, tasks) = ((nth / 20).is_multiple_of(2), (nth / 40).is_multiple_of(2));
        let http = connections[nth % connections.len()].with("x-user", &owner).with("authorization", &credential);
        let mut capabilities = json!({});
        if able {
            capabilities["elicitation"] = json!({});
        }
        if tasks {
            capabilities["extensions"] = json!({ TASKS: {} });
        }
        let arguments =
            json!({ "owner": owner, "credential": credential, "able": able, "call": format!("call-{nth}") });
        Self { client: Modern { http, capabilities }, arguments }
    }

    fn name(&self) -> &str {
        self.arguments["call"].as_str().unwrap()
    }

    /// Calls a tool, answers what it asks, in whatever way, and returns the text of its result.
    async fn call(&self, tool: &str) -> String {
        let params = json!({ "name": tool, "arguments": self.arguments });
        let mut result = self.client.result("tools/call", params.clone()).await;
        while result["resultType"] == "input_required" {
            let mut retry = params.clone();
            retry["requestState"] = result["requestState"].clone();
            retry["inputResponses"] = self.answers(&result);
            result = self.client.result("tools/call", retry).await;
        }
        if result["resultType"] == "task" {
            result = self.task(result["taskId"].as_str().unwrap()).await;
        }
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
    }

    async fn task(&self, id: &str) -> Value {
        within(CROWD, async {
            loop {
                let task = self.client.get(id).await;
                match task["status"].as_str().unwrap() {
                    "completed" => return task["result"].clone(),
                    "input_required" => {
                        let params = json!({ "taskId": id, "inputResponses": self.answers(&task) });
                        self.client.result("tasks/update", params).await;
                    }
                    "working" => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                    _ => panic!("{task}"),
                }
            }
        })
        .await
    }

    /// Returns the answers to questions, which have to be those of its own call.
    fn answers(&self, asked: &Value) -> Value {
        let requests = asked["inputRequests"].as_object().unwrap();
        let answer = |(key, request): (&String, &Value)| {
            assert_eq!(request["params"]["message"], self.name(), "the question of another call");
            (key.clone(), json!({ "action": "accept", "content": { "who": self.name() } }))
        };
        requests.iter().map(answer).collect::<serde_json::Map<_, _>>().into()
    }
}

/// How many of a crowd call at once. A machine with other work serves no more of them in the time that a request has.
const AT_ONCE: usize = 200;

/// Has callers call at once, each a tool that it can, and checks that each gets its own answer.
async fn all_call(callers: &[Caller]) {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let calls = callers.iter().cloned().enumerate().map(|(nth, caller)| {
        let turns = Arc::clone(&turns);
        tokio::spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            let able = caller.arguments["able"] == true;
            let tool = if able { ["echo", "ask", "progress"][nth % 3] } else { ["echo", "work"][nth % 2] };
            assert_eq!(caller.call(tool).await, caller.name());
        })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        within(CROWD, call).await.unwrap();
    }
}

fn crowd(size: usize, gate: &Gate) -> Vec<Caller> {
    let connections: Vec<_> = (0..20).map(|_| Client::http2(&gate.url)).collect();
    (0..size).map(|nth| Caller::nth(nth, &connections)).collect()
}

/// Returns how many kinds of callers there are that share sessions.
fn keys(callers: &[Caller]) -> usize {
    let key = |caller: &Caller| format!("{} {}", caller.arguments["credential"], caller.arguments["able"]);
    callers.iter().map(key).collect::<HashSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_a_thousand_callers_no_call_question_or_answer_crosses_owners_credentials_or_capabilities() {
    let witness = Witness::start(Form::Sse).await;
    let gate = gate(&witness, "[tasks]\ntask_after = \"0s\"\npoll_interval = \"100ms\"\n").await;
    let callers = crowd(1000, &gate);
    all_call(&callers).await;
    assert_eq!(witness.crossings(), [""; 0]);
    assert_eq!(witness.opened(), keys(&callers), "one session for each owner, credential and set of capabilities");
    assert!(callers.iter().all(|caller| witness.runs(caller.name()) == 1), "each ran once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_sessions_costs_each_kind_of_caller_one_initialize_and_no_call_runs_twice() {
    let witness = Witness::start(Form::Sse).await;
    let gate = gate(&witness, "[tasks]\ntask_after = \"0s\"\npoll_interval = \"100ms\"\n").await;
    let callers = crowd(400, &gate);
    for (wave, some) in callers.chunks(100).enumerate() {
        all_call(some).await;
        assert_eq!(witness.opened(), (wave + 1) * keys(some), "wave {wave}");
        witness.forget();
    }
    assert_eq!(witness.crossings(), [""; 0]);
    assert!(callers.iter().all(|caller| witness.runs(caller.name()) == 1), "each ran once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_fails_the_calls_that_ran_and_serves_all_others_when_it_is_back() {
    let witness = Witness::start(Form::Sse).await;
    let gate = gate(&witness, "[tasks]\nmax_running = 100\n").await;
    let callers = crowd(240, &gate);
    let (held, others) = callers.split_at(80);
    let running = held.iter().cloned().map(|caller| {
        tokio::spawn(async move {
            let params = json!({ "name": "hold", "arguments": caller.arguments });
            let answer = caller.client.answer("tools/call", params).await.json();
            match answer["result"]["taskId"].as_str() {
                Some(task) => caller.client.until(task, "failed").await["error"]["code"].clone(),
                None => answer["error"]["code"].clone(),
            }
        })
    });
    let running: Vec<_> = running.collect();
    eventually(async || held.iter().all(|caller| witness.runs(caller.name()) == 1).then_some(())).await;
    witness.restart().await;
    for call in running {
        assert_eq!(within(CROWD, call).await.unwrap(), -32603);
    }
    all_call(others).await;
    assert_eq!(witness.crossings(), [""; 0]);
    assert!(callers.iter().all(|caller| witness.runs(caller.name()) == 1), "none was sent a second time");
}
