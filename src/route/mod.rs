//! Decides what to do with one message of a client; pure functions.

pub mod fit;
mod tools_list;

use std::sync::Arc;

pub use tools_list::set_task_support;

use crate::{
    config::{Policy, Support, Tool},
    session::Tasks,
    wire::{
        Kind, Message, Method, Params, RpcError, excerpt,
        legacy::{RequestedTtl, requested_ttl},
    },
};

/// What to do with a message.
#[derive(Debug)]
pub enum Route {
    /// Pass it to the upstream, and the answers back.
    Pass,
    /// Pass it to the upstream, and set each tool's task support in the answer.
    ToolsList,
    /// Run it as a task.
    RunAsTask {
        /// The tool's name.
        name: Arc<str>,
        /// Its policy.
        tool: Arc<Tool>,
        /// What the client asks for as ttl.
        ttl: RequestedTtl,
    },
    /// `tasks/get`
    TasksGet,
    /// `tasks/result`
    TasksResult,
    /// `tasks/list`
    TasksList,
    /// `tasks/cancel`
    TasksCancel,
    /// Cancel the request that the notification names.
    Cancelled,
    /// Refuse it with this error.
    Refuse(RpcError),
}

/// Decides what to do with a message in an open session.
#[must_use]
pub fn route(message: &Message, tasks: Tasks, policy: &Policy) -> Route {
    if let Err(error) = fit::check(message) {
        return Route::Refuse(error);
    }
    match (message.kind(), message.method(), tasks) {
        (Kind::Notification, Method::Cancelled, _) => Route::Cancelled,
        (Kind::Request, Method::Initialize, _) => Route::Refuse(RpcError::invalid_request(
            // The transport is not known here.
            "Invalid request: the session is initialized already; initialize a new one without Mcp-Session-Id, \
             on stdio and HTTP+SSE over a new connection",
        )),
        // In a session with both kinds of tasks the gate finds out whose task it is.
        (Kind::Request, method, Tasks::Served | Tasks::Both) => match method {
            Method::ToolsCall => tool_call(message, policy),
            Method::ToolsList => Route::ToolsList,
            Method::TasksGet => Route::TasksGet,
            Method::TasksResult => Route::TasksResult,
            Method::TasksList => Route::TasksList,
            Method::TasksCancel => Route::TasksCancel,
            _ => Route::Pass,
        },
        _ => Route::Pass,
    }
}

/// Decides what to do with a `tools/call` (section "Tool-Level Negotiation").
fn tool_call(message: &Message, policy: &Policy) -> Route {
    let params = match message.params().map(Params::parse) {
        Some(Ok(params)) => params.members,
        // taskgate and the upstream could read different tools out of it.
        Some(Err(error)) => return Route::Refuse(error),
        None => return Route::Pass,
    };
    let Some(name) = params.text("name") else {
        return match params.get("task") {
            Some(_) => Route::Refuse(RpcError::bad_params("params.name must be a string")),
            // The upstream has an error of its own for a call without a tool.
            None => Route::Pass,
        };
    };
    let tool = policy.tool(&name);
    match (tool.support, params.get("task")) {
        (Support::Forbidden, Some(_)) => Route::Refuse(RpcError::method_not_found(format!(
            "The tool {:?} cannot be called as a task; call it without params.task",
            excerpt(&name)
        ))),
        (Support::Required, None) => Route::Refuse(RpcError::method_not_found(format!(
            "The tool {:?} can only be called as a task; add params.task, for example {{\"ttl\": 60000}}",
            excerpt(&name)
        ))),
        (_, Some(task)) => match requested_ttl(task) {
            Ok(ttl) => Route::RunAsTask { name: name.as_ref().into(), tool: Arc::clone(tool), ttl },
            Err(error) => Route::Refuse(RpcError::bad_params(error)),
        },
        (_, None) => Route::Pass,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let text = r#"
            [[upstream]]
            url = "http://127.0.0.1/mcp"
            [upstream.tools.never]
            support = "forbidden"
            [upstream.tools.always]
            support = "required"
        "#;
        let mut config = crate::config::parse("test.toml", text, crate::config::Overrides::default()).expect("valid");
        config.upstreams.remove(0).policy
    }

    fn decide(method: &str, params: &str, tasks: Tasks) -> String {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let message = Message::parse(text.into()).expect("valid");
        match route(&message, tasks, &policy()) {
            Route::Refuse(error) => format!("{} {}", error.code, error.message),
            Route::RunAsTask { name, ttl, .. } => format!("task {name} {ttl:?}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn task_methods_are_served_only_where_taskgate_serves_tasks() {
        for (method, served) in [
            ("tasks/get", "TasksGet"),
            ("tasks/result", "TasksResult"),
            ("tasks/list", "TasksList"),
            ("tasks/cancel", "TasksCancel"),
        ] {
            assert_eq!(decide(method, "{}", Tasks::Served), served);
            assert_eq!(decide(method, "{}", Tasks::Both), served);
            assert_eq!(decide(method, "{}", Tasks::Native), "Pass");
            assert_eq!(decide(method, "{}", Tasks::Off), "Pass");
        }
    }

    #[test]
    fn a_task_member_passes_where_no_tasks_are_served() {
        let params = r#"{"name":"never","task":{"ttl":"x"}}"#;
        assert_eq!(decide("tools/call", params, Tasks::Off), "Pass");
        assert_eq!(decide("tools/call", params, Tasks::Native), "Pass");
    }

    #[test]
    fn the_policy_decides_how_a_tool_may_be_called() {
        for (params, decision) in [
            (r#"{"name":"any"}"#, "Pass"),
            (r#"{"name":"any","task":{}}"#, "task any Default"),
            (r#"{"name":"any","task":{"ttl":5}}"#, "task any For(5ms)"),
            (r#"{"name":"never"}"#, "Pass"),
            (r#"{"name":"always","task":{}}"#, "task always Default"),
        ] {
            assert_eq!(decide("tools/call", params, Tasks::Served), decision, "{params}");
        }
        for (params, start) in [
            (r#"{"name":"never","task":{}}"#, "-32601 The tool \"never\" cannot be called as a task"),
            (r#"{"name":"always"}"#, "-32601 The tool \"always\" can only be called as a task"),
            (r#"{"name":"any","task":{"ttl":"5"}}"#, "-32602 Invalid params: params.task.ttl must be a number"),
            (r#"{"name":"any","task":7}"#, "-32602 Invalid params: params.task must be an object"),
            (r#"{"name":"any","name":"always"}"#, "-32602 Invalid params: duplicate member \"name\""),
            (r#"{"name":"any","task":{},"_meta":{},"_meta":{}}"#, "-32602 Invalid params: duplicate member \"_meta\""),
            (
                r#"{"name":"any","task":{},"_meta":{"progressToken":{}}}"#,
                "-32602 Invalid params: the progress token must",
            ),
            (r#"{"task":{}}"#, "-32602 Invalid params: params.name must be a string"),
        ] {
            let decision = decide("tools/call", params, Tasks::Served);
            assert!(decision.starts_with(start), "{params}: {decision}");
        }
    }

    #[test]
    fn a_second_initialize_is_told_what_helps_on_each_transport() {
        let refused = decide("initialize", "{}", Tasks::Served);
        for told in ["without Mcp-Session-Id", "on stdio and HTTP+SSE over a new connection"] {
            assert!(refused.starts_with("-32600 Invalid request: ") && refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn everything_else_passes() {
        for method in ["ping", "resources/read", "tasks/unknown", "tools/unknown"] {
            assert_eq!(decide(method, "{}", Tasks::Served), "Pass");
        }
        assert_eq!(decide("tools/list", "{}", Tasks::Served), "ToolsList");
        assert_eq!(decide("tools/list", "{}", Tasks::Native), "Pass");
    }
}
