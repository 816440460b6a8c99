//! rmcp 1.8 as a client of revision 2025-11-25: it asks for tasks, and its user polls them by requests.

use std::{sync::Arc, time::Duration};

use rmcp_legacy::{
    ClientHandler, ErrorData, ServiceExt,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelTaskParams, ClientInfo, ClientRequest,
        CreateElicitationRequestParams, CreateElicitationResult, ElicitationAction, GetTaskInfoParams,
        GetTaskResultParams, Request, ServerResult, Task, TaskStatus,
    },
    service::{RequestContext, RoleClient, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use taskgate_client_tests::{Asked, Gate, PATIENCE, filled_in};
use tokio::time::timeout;

/// A client that fills in every form.
struct Answering {
    info: ClientInfo,
    asked: Arc<Asked>,
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientInfo {
        self.info.clone()
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateElicitationResult, ErrorData> {
        let request = serde_json::to_value(request).expect("a question");
        self.asked.note(request["message"].as_str().expect("a text"));
        let content = filled_in(&request["requestedSchema"]);
        Ok(CreateElicitationResult::new(ElicitationAction::Accept).with_content(content))
    }
}

type Client = RunningService<RoleClient, Answering>;

async fn connect(gate: &Gate) -> (Client, Arc<Asked>) {
    let info = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "taskgate-test", "version": "1.0.0" },
    });
    let (info, asked) = (serde_json::from_value(info).expect("what it says of itself"), Arc::new(Asked::default()));
    let client = Answering { info, asked: Arc::clone(&asked) };
    let transport = StreamableHttpClientTransport::from_uri(gate.url.as_str());
    let client = timeout(PATIENCE, client.serve(transport)).await.expect("in time").expect("connected");
    (client, asked)
}

async fn send(client: &Client, request: ClientRequest) -> ServerResult {
    timeout(PATIENCE, client.send_request(request)).await.expect("in time").expect("a result")
}

async fn task(client: &Client, name: &'static str, arguments: Value) -> Task {
    let params = CallToolRequestParams::new(name).with_arguments(arguments.as_object().expect("an object").clone());
    let request = CallToolRequest::new(params.with_task(serde_json::Map::new()));
    match send(client, ClientRequest::CallToolRequest(request)).await {
        ServerResult::CreateTaskResult(created) => created.task,
        other => panic!("{name} did not become a task: {other:?}"),
    }
}

async fn get(client: &Client, id: &str) -> Task {
    let params = serde_json::from_value::<GetTaskInfoParams>(json!({ "taskId": id })).expect("params");
    match send(client, ClientRequest::GetTaskInfoRequest(Request::new(params))).await {
        ServerResult::GetTaskResult(got) => got.task,
        other => panic!("no task: {other:?}"),
    }
}

/// Waits for the end by `tasks/result`.
async fn result(client: &Client, id: &str) -> CallToolResult {
    let params = serde_json::from_value::<GetTaskResultParams>(json!({ "taskId": id })).expect("params");
    match send(client, ClientRequest::GetTaskResultRequest(Request::new(params))).await {
        ServerResult::CallToolResult(result) => result,
        other => panic!("no result of a tool: {other:?}"),
    }
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().expect("a text").text
}

#[tokio::test]
async fn a_call_that_asks_for_a_task_is_polled_and_gives_its_result() {
    let gate = Gate::start();
    let (client, _) = connect(&gate).await;
    let server = client.peer_info().expect("what the server said");
    assert!(server.capabilities.tasks.is_some());
    let created = task(&client, "slow_compute", json!({ "seconds": 1, "label": "rmcp 1" })).await;
    assert_eq!(created.status, TaskStatus::Working);
    let pause = Duration::from_millis(created.poll_interval.expect("an interval"));
    let polled = async {
        while get(&client, &created.task_id).await.status == TaskStatus::Working {
            tokio::time::sleep(pause).await;
        }
    };
    timeout(PATIENCE, polled).await.expect("it ends in time");
    assert_eq!(get(&client, &created.task_id).await.status, TaskStatus::Completed);
    assert_eq!(text(&result(&client, &created.task_id).await), "computed rmcp 1 for 1 s");
}

#[tokio::test]
async fn questions_of_a_task_are_asked_once_while_its_result_is_waited_for() {
    let gate = Gate::start();
    let (client, asked) = connect(&gate).await;
    let created = task(&client, "confirm_delete", json!({ "filename": "a.txt" })).await;
    assert_eq!(text(&result(&client, &created.task_id).await), "deleted a.txt");
    assert_eq!(asked.sorted(), ["Delete a.txt?"]);
}

#[tokio::test]
async fn a_task_is_cancelled() {
    let gate = Gate::start();
    let (client, _) = connect(&gate).await;
    let created = task(&client, "slow_compute", json!({ "seconds": 60, "label": "given up" })).await;
    let params = serde_json::from_value::<CancelTaskParams>(json!({ "taskId": created.task_id })).expect("params");
    send(&client, ClientRequest::CancelTaskRequest(Request::new(params))).await;
    assert_eq!(get(&client, &created.task_id).await.status, TaskStatus::Cancelled);
}
