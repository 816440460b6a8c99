//! The slow server of the demo: an MCP server on stdin and stdout that knows nothing of tasks.

use std::{
    io::{BufRead, Write},
    process::ExitCode,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

const CHAPTERS: [&str; 5] = ["reading the sources", "collecting figures", "drawing charts", "writing", "proof-reading"];
const TIME_PER_CHAPTER: Duration = Duration::from_millis(1200);

/// Serves until stdin ends.
pub(crate) fn run() -> ExitCode {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(id) = message.get("id").cloned() else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "slow-server", "version": "1.0.0" },
            }),
            Some("tools/list") => json!({ "tools": [{
                "name": "write_report",
                "description": "Writes a report. Takes a while.",
                "inputSchema": { "type": "object" },
            }] }),
            Some("tools/call") => {
                thread::spawn(move || write_report(&id, &message["params"]["_meta"]["progressToken"]));
                continue;
            }
            Some("ping") => json!({}),
            _ => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
                continue;
            }
        };
        send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
    ExitCode::SUCCESS
}

fn write_report(id: &Value, token: &Value) {
    for (done, chapter) in CHAPTERS.iter().enumerate() {
        let params = json!({ "progressToken": token, "progress": done, "total": CHAPTERS.len(), "message": chapter });
        send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
        thread::sleep(TIME_PER_CHAPTER);
    }
    let text = format!("A report in {} chapters, worth the wait.", CHAPTERS.len());
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
}

fn send(message: &Value) {
    // When the reader of stdout is gone, stdin ends as well.
    let _ = writeln!(std::io::stdout().lock(), "{message}");
}
