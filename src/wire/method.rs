//! The methods that taskgate handles; every other one is [`Method::Other`] and passes.

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
    /// `notifications/tools/list_changed`, of a server
    ToolsListChanged,
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
    /// Any other `notifications/…`
    OtherNotification,
    /// `elicitation/create`, of a server
    Elicit,
    /// `sampling/createMessage`, of a server
    CreateMessage,
    /// `roots/list`, of a server
    ListRoots,
    /// `notifications/elicitation/complete`, of a server
    ElicitationComplete,
    /// `resources/subscribe`
    Subscribe,
    /// `resources/unsubscribe`
    Unsubscribe,
    /// `notifications/resources/updated`, of a server
    ResourceUpdated,
    /// `notifications/prompts/list_changed` and `notifications/resources/list_changed`, of a server
    OtherListChanged,
    /// `ping`
    Ping,
    /// `server/discover`, which only the modern revisions have
    Discover,
    /// `subscriptions/listen`, which only the modern revisions have
    Listen,
    /// `tasks/update`, of the tasks extension
    TasksUpdate,
    /// `prompts/get`
    PromptsGet,
    /// `resources/read`
    ResourcesRead,
    /// `prompts/list`, `resources/list` and `resources/templates/list`
    OtherList,
    /// `completion/complete`
    Complete,
    /// `logging/setLevel`
    SetLevel,
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
            "notifications/tools/list_changed" => Self::ToolsListChanged,
            "tasks/get" => Self::TasksGet,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            "tasks/cancel" => Self::TasksCancel,
            "notifications/cancelled" => Self::Cancelled,
            "notifications/progress" => Self::Progress,
            "notifications/message" => Self::LogMessage,
            "notifications/tasks/status" => Self::TaskStatus,
            "elicitation/create" => Self::Elicit,
            "sampling/createMessage" => Self::CreateMessage,
            "roots/list" => Self::ListRoots,
            "notifications/elicitation/complete" => Self::ElicitationComplete,
            "resources/subscribe" => Self::Subscribe,
            "resources/unsubscribe" => Self::Unsubscribe,
            "notifications/resources/updated" => Self::ResourceUpdated,
            "notifications/prompts/list_changed" | "notifications/resources/list_changed" => Self::OtherListChanged,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            "tasks/update" => Self::TasksUpdate,
            "prompts/get" => Self::PromptsGet,
            "resources/read" => Self::ResourcesRead,
            "prompts/list" | "resources/list" | "resources/templates/list" => Self::OtherList,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLevel,
            name if name.starts_with("notifications/") => Self::OtherNotification,
            _ => Self::Other,
        }
    }

    /// Returns whether this names a request, which has an id.
    #[must_use]
    pub fn is_request(self) -> bool {
        self != Self::Other && !self.is_notification()
    }

    /// Returns whether this names a notification, which has no id.
    #[must_use]
    pub fn is_notification(self) -> bool {
        use Method::{
            Cancelled, ElicitationComplete, Initialized, LogMessage, OtherNotification, Progress, TaskStatus,
        };
        match self {
            Initialized | Cancelled | Progress | LogMessage | TaskStatus | ElicitationComplete | OtherNotification => {
                true
            }
            method => method.is_change(),
        }
    }

    /// Returns whether this is one of the requests about tasks that revision 2025-11-25 has.
    #[must_use]
    pub fn is_of_tasks(self) -> bool {
        matches!(self, Self::TasksGet | Self::TasksResult | Self::TasksList | Self::TasksCancel)
    }

    /// Returns whether this asks a client, or its user, for something.
    #[must_use]
    pub fn asks_client(self) -> bool {
        matches!(self, Self::Elicit | Self::CreateMessage | Self::ListRoots)
    }

    /// Returns whether this announces a change in what a server offers, which concerns the whole session.
    #[must_use]
    pub fn is_change(self) -> bool {
        matches!(self, Self::ToolsListChanged | Self::OtherListChanged | Self::ResourceUpdated)
    }
}
