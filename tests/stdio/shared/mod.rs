//! One child for all sessions: what they share, and what they do not.

use serde_json::{Value, json};

mod calls;
mod life;
mod native;
mod questions;
mod telling;
mod tokens;

use crate::kit::{Children, Client, Gate, Process, Script};

const SHARED: &str = "[[upstream]]\nshared = true";

/// Answers and asks when it is told to, by the number of the call.
const SERVER: Script = Script {
    setup: "",
    tools: r#"*'"name":"keep '*) name=${line#*'"name":"keep '}; name=${name%%\"*}; eval "kept_$name=\$id" ;;
    *'"name":"give '*)
        name=${line#*'"name":"give '}; name=${name%%\"*}; eval "kept=\$kept_$name"
        text "$kept" "for $name"; text "$id" given ;;
    *'"name":"advance '*)
        name=${line#*'"name":"advance '}; name=${name%%\"*}; eval "kept=\$kept_$name"
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' "$kept"
        text "$id" advanced ;;
    *'"name":"ask"'*)
        asked=$id
        echo '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}' ;;
    *'"name":"withdraw"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q-1"}}'
        text "$id" withdrawn ;;
    *'"id":"q-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;
    *'"name":"ping back"'*) asked=$id; echo '{"jsonrpc":"2.0","id":"p-1","method":"ping"}' ;;
    *'"id":"p-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;
    *'"name":"change"'*) echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; text "$id" changed ;;
    *'"name":"log"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hear"}}'
        text "$id" logged ;;"#,
    after: "note 'end of stdin'",
};

async fn shared(script: Script) -> (Children, Gate) {
    let children = Children::new(script);
    let gate = children.gate(SHARED).await;
    (children, gate)
}

async fn with_elicitation(gate: &Gate) -> Client {
    Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await
}

/// Starts a call, and returns once the child has it.
async fn call(client: &Client, child: &Process, tool: &str) -> tokio::task::JoinHandle<Value> {
    let (client, name) = (client.clone(), tool.to_owned());
    let calling = tokio::spawn(async move { client.ask("tools/call", json!({ "name": name })).await });
    child.line(&format!("{tool:?}")).await;
    calling
}
