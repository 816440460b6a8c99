//! The methods that taskgate has business with; every other one is [`Method::Other`] and passes.

/// A JSON-RPC method as far as routing needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `initialize`
    Initialize,
    /// `notifications/initialized`
    Initialized,
    /// `tools/list`
    ToolsList,
    /// `tools/call`
    ToolsCall,
    /// `tasks/get`
    TasksGet,
    /// `tasks/result`
    TasksResult,
    /// `tasks/list`
    TasksList,
    /// `tasks/cancel`
    TasksCancel,
    /// `notifications/cancelled`
    Cancelled,
    /// `notifications/progress`
    Progress,
    /// `notifications/message`, a log message
    LogMessage,
    /// `notifications/tasks/status`
    TaskStatus,
    /// `notifications/tools/list_changed` and the like: what a server offers has changed, for the whole session
    Changed,
    /// `elicitation/create`, of a server
    Elicit,
    /// `sampling/createMessage`, of a server
    CreateMessage,
    /// `roots/list`, of a server
    ListRoots,
    /// `ping`
    Ping,
    /// `server/discover`, which only the modern revisions have
    Discover,
    /// Any other method.
    Other,
}

impl Method {
    /// Recognises a method by its exact name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "initialize" => Self::Initialize,
            "notifications/initialized" => Self::Initialized,
            "tools/list" => Self::ToolsList,
            "tools/call" => Self::ToolsCall,
            "tasks/get" => Self::TasksGet,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            "tasks/cancel" => Self::TasksCancel,
            "notifications/cancelled" => Self::Cancelled,
            "notifications/progress" => Self::Progress,
            "notifications/message" => Self::LogMessage,
            "notifications/tasks/status" => Self::TaskStatus,
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => Self::Changed,
            "elicitation/create" => Self::Elicit,
            "sampling/createMessage" => Self::CreateMessage,
            "roots/list" => Self::ListRoots,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            _ => Self::Other,
        }
    }
}
