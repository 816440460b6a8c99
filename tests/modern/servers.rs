//! Every kind of legacy server behind modern clients: what works in front of one works in front of all.

use serde_json::{Value, json};

use crate::{
    client::{Modern, TASKS},
    kit::{Children, Gate, Script, eventually, soon, text_in},
    witness::{Form, Witness},
};

/// A stdio server with the tools of [`Witness`].
const SCRIPT: Script = Script {
    setup: r#"
ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object","properties":{}}}}\n' "$1"; }
"#,
    tools: r#"
    *'"method":"initialize"'*)
        reply "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"name":"echo"'*) call=${line#*'"call":"'}; text "$id" "${call%%\"*}" ;;
    *'"name":"progress"'*)
        call=${line#*'"call":"'}; token=${line#*'"progressToken":'}
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' "${token%%[,\}]*}"
        text "$id" "${call%%\"*}" ;;
    *'"name":"ask"'*) asked=$id; call=${line#*'"call":"'}; ask "${call%%\"*}" ;;
    *'"name":"late"'*) asked=$id; call=${line#*'"call":"'}; 
        while [ -d "$dir" ] && [ ! -e "$dir/go" ]; do sleep 0.02; done
        ask "${call%%\"*}" ;;
    *'"who":"'*) who=${line#*'"who":"'}; text "$asked" "${who%%\"*}" ;;
    *'"name":"change"'*) printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; text "$id" change ;;
"#,
    after: "",
};

/// A server of one kind.
enum Server {
    Http(Witness),
    Child(Children),
}

impl Server {
    /// Lets the calls of `late` ask.
    fn go_on(&self) {
        match self {
            // Its timers fire in their order.
            Self::Http(_) => {}
            Self::Child(children) => children.touch("go"),
        }
    }

    /// Returns whether a call has reached the server.
    fn runs(&self, call: &str) -> bool {
        match self {
            Self::Http(witness) => witness.runs(call) > 0,
            Self::Child(children) => {
                let has = |line: &String| line.contains(&format!("\"call\":\"{call}\""));
                children.started().iter().any(|child| child.lines().iter().any(has))
            }
        }
    }

    /// Returns whether the server was told that this call is cancelled.
    fn was_cancelled(&self, call: &str) -> bool {
        match self {
            Self::Http(witness) => witness.was_cancelled(call),
            Self::Child(children) => children.started().iter().any(|child| {
                let lines = child.lines();
                let of_call = lines.iter().position(|line| line.contains(&format!("\"call\":\"{call}\"")));
                of_call.is_some_and(|at| lines[at..].iter().any(|line| line.contains("notifications/cancelled")))
            }),
        }
    }
}

/// Calls of these tools alone become tasks, however busy the machine is.
const SETTINGS: &str = "[tasks]\ntask_after = \"1h\"\n[[upstream]]\ntools.late.task_after = \"100ms\"\n\
                        tools.hold.task_after = \"100ms\"\n";

async fn over_http(form: Form) -> (Server, Gate) {
    let witness = Witness::start(form).await;
    let gate = Gate::to(&witness.url(), SETTINGS).await;
    (Server::Http(witness), gate)
}

async fn a_command(upstream: &str) -> (Server, Gate) {
    let children = Children::new(SCRIPT);
    let gate = children.gate(&format!("{SETTINGS}{upstream}")).await;
    (Server::Child(children), gate)
}

fn params(tool: &str, call: &str) -> Value {
    json!({ "name": tool, "arguments": { "call": call } })
}

fn answer(asked: &Value) -> Value {
    let requests = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let (key, request) = requests.iter().next().unwrap();
    json!({ key: { "action": "accept", "content": { "who": request["params"]["message"] } } })
}

/// Does all that a modern client can do.
async fn does_everything((server, gate): (Server, Gate)) {
    let able = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
    let plain = Modern::plain(&gate.url);

    let result = plain.result("tools/call", params("echo", "plain")).await;
    assert_eq!((&result["resultType"], text_in(&result).as_str()), (&json!("complete"), "plain"));

    let mut with_token = params("progress", "progress");
    with_token["_meta"] = json!({ "progressToken": "mine" });
    let mut stream = plain.stream("tools/call", with_token);
    let progress = stream.message().await;
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    assert_eq!(text_in(&stream.message().await["result"]), "progress");

    let asked = able.result("tools/call", params("ask", "before")).await;
    let mut retry = params("ask", "before");
    (retry["requestState"], retry["inputResponses"]) = (asked["requestState"].clone(), answer(&asked));
    assert_eq!(text_in(&able.result("tools/call", retry).await), "before");

    let task = able.result("tools/call", params("late", "after")).await;
    assert_eq!(task["resultType"], "task", "{task}");
    server.go_on();
    let id = task["taskId"].as_str().unwrap();
    let waiting = able.until(id, "input_required").await;
    able.result("tasks/update", json!({ "taskId": id, "inputResponses": answer(&waiting) })).await;
    assert_eq!(text_in(&able.until(id, "completed").await["result"]), "after");

    let task = able.result("tools/call", params("hold", "cancelled as a task")).await;
    let id = task["taskId"].as_str().unwrap();
    able.result("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(able.get(id).await["status"], "cancelled");
    eventually(async || server.was_cancelled("cancelled as a task").then_some(())).await;

    let mut listening = plain.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    assert_eq!(listening.message().await["params"]["notifications"], json!({ "toolsListChanged": true }));
    plain.result("tools/call", params("change", "change")).await;
    assert_eq!(listening.message().await["method"], "notifications/tools/list_changed");

    let calling = tokio::spawn({
        let plain = plain.clone();
        async move { plain.result("tools/call", params("hold", "cancelled by leaving")).await }
    });
    eventually(async || server.runs("cancelled by leaving").then_some(())).await;
    calling.abort();
    eventually(async || server.was_cancelled("cancelled by leaving").then_some(())).await;
    if let Server::Http(witness) = &server {
        assert_eq!(witness.crossings(), [""; 0]);
    }
    drop(listening);
    soon(gate.stop()).await;
}

#[tokio::test]
async fn everything_works_behind_a_server_that_answers_with_json_and_asks_on_its_get_stream() {
    does_everything(over_http(Form::Json).await).await;
}

#[tokio::test]
async fn everything_works_behind_a_server_that_answers_with_streams() {
    does_everything(over_http(Form::Sse).await).await;
}

#[tokio::test]
async fn everything_works_behind_a_server_without_sessions() {
    does_everything(over_http(Form::Sessionless).await).await;
}

#[tokio::test]
async fn everything_works_behind_a_server_of_the_2024_11_05_transport() {
    does_everything(over_http(Form::Old).await).await;
}

#[tokio::test]
async fn everything_works_behind_a_command() {
    does_everything(a_command("").await).await;
}

#[tokio::test]
async fn everything_works_behind_a_shared_command() {
    does_everything(a_command("shared = true\n").await).await;
}
