//! rmcp 3.9 as a client of revision 2026-07-28: it finds the generation by `server/discover`, answers questions by
//! further rounds, and polls tasks.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities, ClientConfig,
        CreateTaskResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode, GetTaskParams,
        Implementation, InputRequest, ProtocolVersion, TaskPayload, TaskStatus, UpdateTaskParams,
    },
    service::{RequestContext, RoleClient, RunningService, ServiceError},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};
use taskgate_client_tests::{Asked, Gate, PATIENCE, Wrapped, filled_in};
use tokio::{process::Command, time::timeout};

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client that fills in every form.
struct Answering {
    config: ClientConfig,
    asked: Arc<Asked>,
}

impl ClientHandler for Answering {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let request = serde_json::to_value(request).expect("a question");
        self.asked.note(request["message"].as_str().expect("a text"));
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(filled_in(&request["requestedSchema"])))
    }
}

type Client = RunningService<RoleClient, Answering>;

fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

fn auto() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None }
}

fn client(capabilities: Value) -> (Answering, Arc<Asked>) {
    let capabilities: ClientCapabilities = serde_json::from_value(capabilities).expect("capabilities");
    let config = ClientConfig::new(capabilities, Implementation::new("taskgate-test", "1.0.0"));
    let asked = Arc::new(Asked::default());
    (Answering { config, asked: Arc::clone(&asked) }, asked)
}

async fn over_http(gate: &Gate, mode: ClientLifecycleMode, capabilities: Value) -> (Client, Arc<Asked>) {
    let (client, asked) = client(capabilities);
    let transport = StreamableHttpClientTransport::from_uri(gate.url.as_str());
    let client = timeout(PATIENCE, client.serve_with_lifecycle(transport, mode)).await;
    (client.expect("in time").expect("connected"), asked)
}

async fn over_stdio(wrapped: &Wrapped, mode: ClientLifecycleMode, capabilities: Value) -> (Client, Arc<Asked>) {
    let (client, asked) = client(capabilities);
    let mut command = Command::new(&wrapped.command[0]);
    command.args(&wrapped.command[1..]);
    let transport = TokioChildProcess::new(command).expect("taskgate stdio");
    let client = timeout(PATIENCE, client.serve_with_lifecycle(transport, mode)).await;
    (client.expect("in time").expect("connected"), asked)
}

/// Declares the tasks extension, and forms.
fn with_tasks() -> Value {
    json!({ "elicitation": { "form": {} }, "extensions": { TASKS: {} } })
}

fn params(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().expect("an object").clone())
}

async fn call(client: &Client, name: &'static str, arguments: Value) -> Result<CallToolResponse, ServiceError> {
    timeout(PATIENCE, client.call_tool_once(params(name, arguments))).await.expect("answered in time")
}

async fn task(client: &Client, name: &'static str, arguments: Value) -> CreateTaskResult {
    match call(client, name, arguments).await.expect("an answer") {
        CallToolResponse::Task(created) => created,
        other => panic!("{name} did not become a task: {other:?}"),
    }
}

/// Polls a task to its end, as it asks to be polled, and answers what it asks.
async fn ended(client: &Client, created: &CreateTaskResult, asked: &Asked) -> TaskPayload {
    let pause = Duration::from_millis(created.task.poll_interval_ms.expect("an interval"));
    let polled = async {
        loop {
            let got = client.get_task(GetTaskParams::new(&created.task.task_id)).await.expect("the task").task;
            match got.payload {
                TaskPayload::Working => {}
                TaskPayload::InputRequired { input_requests } => {
                    let answers = input_requests.into_iter().map(|(key, request)| (key, answer(request, asked)));
                    let update = UpdateTaskParams::new(&created.task.task_id, answers.collect::<BTreeMap<_, _>>());
                    client.update_task(update).await.expect("acknowledged");
                }
                payload => return payload,
            }
            tokio::time::sleep(pause).await;
        }
    };
    timeout(PATIENCE, polled).await.expect("it ends in time")
}

fn answer(request: InputRequest, asked: &Asked) -> Value {
    let InputRequest::Elicitation(request) = request else { panic!("not declared: {request:?}") };
    let params = serde_json::to_value(request.params).expect("a question");
    asked.note(params["message"].as_str().expect("a text"));
    json!({ "action": "accept", "content": filled_in(&params["requestedSchema"]) })
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().expect("a text").text
}

fn completed(payload: TaskPayload) -> CallToolResult {
    let TaskPayload::Completed { result } = payload else { panic!("not completed: {payload:?}") };
    serde_json::from_value(Value::Object(result)).expect("a result of a tool")
}

#[tokio::test]
async fn discover_and_auto_find_the_newer_generation_and_its_tasks() {
    let gate = Gate::start();
    for mode in [discover(), auto()] {
        let (client, _) = over_http(&gate, mode, with_tasks()).await;
        let server = client.peer_info().expect("what the server said");
        assert_eq!(server.protocol_version, ProtocolVersion::V_2026_07_28);
        assert!(server.capabilities.supports_tasks());
        let tools = client.list_all_tools().await.expect("tools");
        assert!(tools.iter().any(|tool| tool.name == "slow_compute"));
        let CallToolResponse::Complete(result) =
            call(&client, "greet", json!({ "name": "Ada" })).await.expect("an answer")
        else {
            panic!("a fast call is answered at once")
        };
        assert_eq!(text(&result), "Hello, Ada!");
        client.cancel().await.expect("an end");
    }
}

#[tokio::test]
async fn initialize_finds_the_older_generation_on_the_same_endpoint() {
    let gate = Gate::start();
    let (client, _) = over_http(&gate, ClientLifecycleMode::Initialize, json!({})).await;
    assert_eq!(client.peer_info().expect("known").protocol_version, ProtocolVersion::V_2025_11_25);
    let result = client.call_tool(params("greet", json!({ "name": "Ada" }))).await.expect("a result");
    assert_eq!(text(&result), "Hello, Ada!");
}

#[tokio::test]
async fn a_slow_call_becomes_a_task_that_is_polled_to_its_result() {
    let gate = Gate::start();
    for mode in [discover(), auto()] {
        let (client, asked) = over_http(&gate, mode, with_tasks()).await;
        let created = task(&client, "slow_compute", json!({ "seconds": 2, "label": "rmcp" })).await;
        assert_eq!(created.task.status, TaskStatus::Working);
        assert!(created.task.ttl_ms.is_some_and(|ttl| ttl > 0));
        let result = completed(ended(&client, &created, &asked).await);
        assert_eq!(text(&result), "computed rmcp for 2 s");
    }
}

#[tokio::test]
async fn without_the_extension_a_slow_call_is_answered_plainly_and_a_required_task_is_refused() {
    let gate = Gate::start();
    let (client, _) = over_http(&gate, discover(), json!({})).await;
    let result = client.call_tool(params("slow_compute", json!({ "seconds": 2, "label": "plain" }))).await;
    assert_eq!(text(&result.expect("a result")), "computed plain for 2 s");
    let Err(ServiceError::McpError(refused)) = call(&client, "failing_job", json!({})).await else {
        panic!("not refused")
    };
    assert_eq!(refused.code, ErrorCode(-32021));
    assert_eq!(refused.data, Some(json!({ "requiredCapabilities": { "extensions": { TASKS: {} } } })));
}

#[tokio::test]
async fn questions_before_a_task_are_answered_by_further_rounds() {
    let gate = Gate::start();
    let (client, asked) = over_http(&gate, discover(), json!({ "elicitation": { "form": {} } })).await;
    for (tool, said) in [
        ("test_input_required_result_elicitation", "Hello, Ada!"),
        ("test_input_required_result_multi_round", "Ada likes Ada"),
    ] {
        let result = timeout(PATIENCE, client.call_tool(params(tool, json!({})))).await.expect("in time");
        assert_eq!(text(&result.expect("a result")), said);
    }
    let questions = ["Step 1: What is your name?", "Step 2: What is your favorite color?", "What is your name?"];
    assert_eq!(asked.sorted(), questions);
}

#[tokio::test]
async fn questions_of_a_task_are_asked_once_each_and_answered_by_updates() {
    let gate = Gate::start();
    let (client, asked) = over_http(&gate, discover(), with_tasks()).await;
    let one = task(&client, "confirm_delete", json!({ "filename": "a.txt" })).await;
    let two = task(&client, "multi_input", json!({})).await;
    assert_eq!(text(&completed(ended(&client, &one, &asked).await)), "deleted a.txt");
    assert_eq!(text(&completed(ended(&client, &two, &asked).await)), "Ada, true");
    assert_eq!(asked.sorted(), ["Delete a.txt?", "Go on?", "Who is there?"]);
}

#[tokio::test]
async fn a_tool_that_fails_completes_its_task_and_an_error_of_the_protocol_fails_it() {
    let gate = Gate::start();
    let (client, asked) = over_http(&gate, discover(), with_tasks()).await;
    let failing = task(&client, "failing_job", json!({})).await;
    let result = completed(ended(&client, &failing, &asked).await);
    assert_eq!((result.is_error, text(&result)), (Some(true), "the job has failed"));
    let erring = task(&client, "protocol_error_job", json!({})).await;
    let TaskPayload::Failed { error } = ended(&client, &erring, &asked).await else { panic!("not failed") };
    assert_eq!(error["code"], 4050);
}

#[tokio::test]
async fn a_task_is_cancelled_and_so_is_its_call() {
    let gate = Gate::start();
    let (client, asked) = over_http(&gate, discover(), with_tasks()).await;
    let created = task(&client, "slow_compute", json!({ "seconds": 60, "label": "given up" })).await;
    client.cancel_task(CancelTaskParams::new(&created.task.task_id)).await.expect("acknowledged");
    assert!(matches!(ended(&client, &created, &asked).await, TaskPayload::Cancelled));
    call(&client, "wait_until", json!({ "label": "given up", "what": "aborted" })).await.expect("the call was told");
}

#[tokio::test]
async fn over_stdio_tasks_and_questions_are_the_same() {
    for mode in [discover(), auto()] {
        let wrapped = Wrapped::prepare();
        let (client, asked) = over_stdio(&wrapped, mode, with_tasks()).await;
        assert_eq!(client.peer_info().expect("known").protocol_version, ProtocolVersion::V_2026_07_28);
        let slow = task(&client, "slow_compute", json!({ "seconds": 2, "label": "stdio" })).await;
        let asking = task(&client, "confirm_delete", json!({ "filename": "a.txt" })).await;
        assert_eq!(text(&completed(ended(&client, &asking, &asked).await)), "deleted a.txt");
        assert_eq!(text(&completed(ended(&client, &slow, &asked).await)), "computed stdio for 2 s");
        assert_eq!(asked.sorted(), ["Delete a.txt?"]);
        client.cancel().await.expect("an end");
    }
}
