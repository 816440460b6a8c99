//! The closed-loop load generator: each connection sends its next request when it has the answer to the last one.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use hyper::header::HeaderValue;
use tokio::task::JoinSet;

use crate::{
    Result,
    client::{Client, unshared},
    process::Server,
};

/// The params of a call that has a small result at once.
const TEXT: &str = r#"{"name":"text","arguments":{"bytes":64}}"#;
pub const TEXT_TOOL: HeaderValue = HeaderValue::from_static("text");
/// The params of a call that takes a while, so that every thread goes to sleep meanwhile.
const WAIT: &str = r#"{"name":"wait","arguments":{"millis":20}}"#;
const WAIT_TOOL: HeaderValue = HeaderValue::from_static("wait");
/// What clients of the modern revision declare that have no use for tasks, and those that have.
const NO_TASKS: &str = "{}";
const TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

#[derive(Clone)]
pub enum Work {
    /// A plain call whose result has about this many bytes.
    Call(usize),
    /// A call as a task.
    Create,
    /// A call as a task that takes a while. A client of the modern revision gets a task where that is too long.
    CreateSlow,
    /// A call as a task, or a plain one, that takes a while. It is timed from the upstream's answer to its arrival
    /// here.
    Deliver { task: bool },
    /// `tasks/get` of one of these finished tasks, whose ids are headers of each request of the modern revision.
    Get(Arc<[HeaderValue]>),
}

impl Work {
    /// Returns whether each answer stands for one tool call upstream.
    pub fn calls_upstream(&self) -> bool {
        !matches!(self, Self::Get(_))
    }

    /// Returns the same with headers of its own.
    fn unshared(&self) -> Self {
        match self {
            Self::Get(tasks) => Self::Get(tasks.iter().map(unshared).collect()),
            _ => self.clone(),
        }
    }
}

pub struct Load {
    clients: Vec<Client>,
    work: Work,
}

/// What a round measured.
pub struct Measured {
    pub answers: u64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Load {
    /// Makes connections that each have a session of their own, as those of clients have.
    pub async fn sessions(server: &Server, connections: usize, work: Work) -> Result<Self> {
        let clients = try_join_all((0..connections).map(|_| Client::open(server))).await?;
        Ok(Self { clients, work })
    }

    /// Makes connections of clients of the modern revision, which have no sessions.
    pub async fn modern(server: &Server, connections: usize, work: Work) -> Result<Self> {
        let capabilities = if matches!(work, Work::Call(_)) { NO_TASKS } else { TASKS };
        let clients = try_join_all((0..connections).map(|_| Client::modern(server, capabilities))).await?;
        Ok(Self { clients, work })
    }

    /// Makes connections that share one session.
    pub async fn one_session(server: &Server, connections: usize, work: Work) -> Result<Self> {
        let first = Client::open(server).await?;
        let mut clients = try_join_all((1..connections).map(|_| first.join(server.address, 0))).await?;
        clients.push(first);
        Ok(Self { clients, work })
    }

    /// Makes connections to the fixed server, which knows no sessions.
    pub async fn bare(address: SocketAddr, connections: usize, work: Work) -> Result<Self> {
        let clients = try_join_all((0..connections).map(|_| Client::connect(address))).await?;
        Ok(Self { clients, work })
    }

    pub fn set_work(&mut self, work: Work) {
        self.work = work;
    }

    pub fn work(&self) -> &Work {
        &self.work
    }

    pub async fn run(&mut self, duration: Duration) -> Result<Measured> {
        let end = Instant::now() + duration;
        let mut lanes = JoinSet::new();
        for (mut client, lane) in self.clients.drain(..).zip(0..) {
            // Other clients put no ids of tasks into headers.
            let work = if client.is_modern() { self.work.unshared() } else { self.work.clone() };
            lanes.spawn(async move { drive(&mut client, lane, &work, end).await.map(|times| (client, times)) });
        }
        let mut times = Vec::new();
        for lane in lanes.join_all().await {
            let (client, part) = lane?;
            self.clients.push(client);
            times.extend(part);
        }
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        Ok(Measured { answers: times.len() as u64, p50: at(50), p99: at(99) })
    }

    /// Creates tasks, spread over the connections, and returns their ids.
    pub async fn create(&mut self, tasks: usize) -> Result<Vec<HeaderValue>> {
        let connections = self.clients.len();
        let ids = try_join_all(self.clients.iter_mut().enumerate().map(async |(number, client)| {
            // Rounds up for the last ones, so that the parts sum up to the whole.
            let part = (tasks + number) / connections;
            let mut ids = Vec::with_capacity(part);
            for _ in 0..part {
                ids.push(create(client, TEXT).await?.try_into()?);
            }
            Result::Ok(ids)
        }));
        Ok(ids.await?.concat())
    }

    /// Waits until a task has finished, and returns an answer to `tasks/get` for it.
    pub async fn finished(&mut self, task: &HeaderValue) -> Result<String> {
        let client = self.clients.first_mut().ok_or("a load without connections")?;
        loop {
            let answer = String::from_utf8(get(client, task, "taskId").await?.into())?;
            if answer.contains("\"completed\"") {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Sends requests until the time is over; returns how long each took.
async fn drive(client: &mut Client, lane: u64, work: &Work, end: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut now = Instant::now();
    // At least one, so that every round has an answer.
    loop {
        let mut delivery = None;
        match work {
            Work::Call(bytes) => call(client, *bytes).await?,
            Work::Create => drop(create(client, TEXT).await?),
            // Where the machine stalls, the answer may come before the task.
            Work::CreateSlow if client.is_modern() => {
                drop(client.request("tools/call", &WAIT_TOOL, WAIT, "\"resultType\"").await?);
            }
            Work::CreateSlow => drop(create(client, WAIT).await?),
            Work::Deliver { task: false } => delivery = Some(client.timed("tools/call", WAIT, || ()).await?),
            Work::Deliver { task: true } => {
                let task = create(client, WAIT).await?;
                delivery = Some(result(client, &task, || ()).await?);
            }
            Work::Get(tasks) => {
                drop(get(client, &tasks[pick(lane, client.sent(), tasks.len())], "\"completed\"").await?);
            }
        }
        let answered = Instant::now();
        times.push(delivery.unwrap_or(answered - now));
        now = answered;
        if now >= end {
            return Ok(times);
        }
    }
}

/// Spreads the requests over the tasks without any order that a cache could follow, and the same way in every run.
fn pick(lane: u64, turn: u64, tasks: usize) -> usize {
    let mixed = (lane << 32 | turn).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % tasks
}

async fn call(client: &mut Client, bytes: usize) -> Result<()> {
    let params = format!(r#"{{"name":"text","arguments":{{"bytes":{bytes}}}}}"#);
    let expected = if client.is_modern() { r#""resultType":"complete""# } else { "\"content\"" };
    let answer = client.request("tools/call", &TEXT_TOOL, &params, expected).await?;
    if answer.len() < bytes { Err(format!("{} bytes instead of {bytes}", answer.len()).into()) } else { Ok(()) }
}

/// Calls a tool as a task and returns the task's id. `params` are those of a plain call.
pub async fn create(client: &mut Client, params: &str) -> Result<String> {
    let name = if params == TEXT { TEXT_TOOL } else { WAIT_TOOL };
    let answer = if client.is_modern() {
        client.request("tools/call", &name, params, "\"taskId\"").await?
    } else {
        let params = params.strip_suffix('}').map(|params| format!(r#"{params},"task":{{}}}}"#)).unwrap_or_default();
        client.request("tools/call", &name, &params, "\"taskId\"").await?
    };
    // In the result, or in its member `task`.
    let id = str::from_utf8(&answer)?.split_once(r#""taskId":""#).and_then(|(_, rest)| rest.split_once('"'));
    Ok(id.ok_or("a task without an id")?.0.to_owned())
}

/// Waits for a task's result, and returns how long it took from the upstream to here.
pub async fn result(client: &mut Client, task: &str, waits: impl FnOnce()) -> Result<Duration> {
    client.timed("tasks/result", &format!(r#"{{"taskId":"{task}"}}"#), waits).await
}

/// Asks for a task, and returns the answer, which has `expected` in it.
pub async fn get(client: &mut Client, task: &HeaderValue, expected: &str) -> Result<Bytes> {
    client.request("tasks/get", task, &format!(r#"{{"taskId":"{}"}}"#, task.to_str()?), expected).await
}
