//! A client that speaks to `taskgate stdio` in lines.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::soon;

/// A running `taskgate stdio`; killed if the test ends before it.
pub(crate) struct Wrapped {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    next_id: u64,
}

impl Wrapped {
    /// Starts it with these arguments.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TASKGATE_")) {
            command.env_remove(name);
        }
        command.arg("stdio").args(args).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout).lines(), next_id: 1 }
    }

    /// Starts it, and initialises the session.
    pub(crate) async fn connect(args: &[&str]) -> Self {
        let mut wrapped = Self::start(args);
        let answer = wrapped.initialize().await;
        assert!(answer["result"]["capabilities"]["tasks"].is_object(), "{answer}");
        wrapped
    }

    /// Initialises the session; returns the answer.
    pub(crate) async fn initialize(&mut self) -> Value {
        let answer = self.initialize_alone().await;
        self.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        answer
    }

    /// Sends `initialize`, and nothing after it; returns the answer.
    pub(crate) async fn initialize_alone(&mut self) -> Value {
        let info = json!({ "name": "test-client", "version": "1.0" });
        let capabilities = json!({ "elicitation": {} });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
        self.request("initialize", params).await
    }

    /// Writes a line.
    pub(crate) async fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        soon(stdin.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    /// Sends a request without waiting for the answer; returns its id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
        id
    }

    /// Returns the next message: every line is one.
    pub(crate) async fn message(&mut self) -> Value {
        let line = soon(self.stdout.next_line()).await.unwrap().expect("stdout is open");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Returns the next message that fits, and skips others.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.message().await;
            if fits(&message) {
                return message;
            }
        }
    }

    /// Sends a request, and returns the response to it.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// Closes its stdin.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; returns the exit code, and what it wrote to stderr.
    pub(crate) async fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        let status = super::within(std::time::Duration::from_secs(30), async {
            stderr.read_to_string(&mut log).await.unwrap();
            self.child.wait().await.unwrap()
        });
        (status.await.code(), log)
    }
}
