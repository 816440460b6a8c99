//! The floor of a store on disk: a proxy that appends each task and each result to a file, and syncs once for all that
//! wait.

use std::{
    fs::File,
    io::{self, Write},
    sync::{Arc, mpsc},
    thread,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{CONTENT_TYPE, HOST, HeaderValue},
    http::request::Parts,
};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::{Result, floor};

/// Most records that wait for the disk; far more than there are connections.
const QUEUE: usize = 1024;

/// What tells a call as a task from everything else.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    params: Params,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params {
    task: Option<Task>,
}

#[derive(Deserialize)]
struct Task {}

struct Record {
    bytes: Bytes,
    synced: oneshot::Sender<()>,
}

struct Journal {
    http: Client<HttpConnector, Full<Bytes>>,
    upstream: HeaderValue,
    records: mpsc::SyncSender<Record>,
}

pub async fn keep(upstream: &str, path: &str) -> Result<()> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let http = Client::builder(TokioExecutor::new()).build(connector);
    let (records, received) = mpsc::sync_channel(QUEUE);
    let file = File::create(path)?;
    thread::spawn(move || append(file, &received));
    let journal = Arc::new(Journal { http, upstream: HeaderValue::from_str(upstream)?, records });
    floor::serve(move |request: Request<Incoming>| {
        let journal = Arc::clone(&journal);
        async move {
            Ok(journal.answer(request).await.unwrap_or_else(|error| {
                let mut response = Response::new(Full::from(error.to_string()));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }))
        }
    })
    .await
}

/// Writes all that waits, syncs once, and tells those who wait.
fn append(mut file: File, records: &mpsc::Receiver<Record>) -> io::Result<()> {
    while let Ok(first) = records.recv() {
        let group: Vec<_> = std::iter::once(first).chain(records.try_iter()).collect();
        let bytes: Vec<_> = group.iter().flat_map(|record| record.bytes.iter().copied()).collect();
        file.write_all(&bytes)?;
        file.sync_data()?;
        for record in group {
            // A client that left waits no longer.
            let _ = record.synced.send(());
        }
    }
    Ok(())
}

impl Journal {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = Uri::try_from([b"http://", self.upstream.as_bytes(), path.as_bytes()].concat())?;
        head.headers.insert(HOST, self.upstream.clone());
        let message: Message = serde_json::from_slice(&body)?;
        let (Some(id), Some(_)) = (message.id, message.params.task) else {
            return self.forward(head, body).await;
        };
        self.append(body.clone()).await?;
        let task = Uuid::new_v4();
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"task":{{"taskId":"{task}","status":"working"}}}}}}"#);
        tokio::spawn(async move {
            let response = self.forward(head, body).await?;
            self.append(response.into_body().collect().await?.to_bytes()).await
        });
        let mut response = Response::new(Full::from(answer));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    async fn forward(&self, head: Parts, body: Bytes) -> Result<Response<Full<Bytes>>> {
        let (head, body) = self.http.request(Request::from_parts(head, Full::new(body))).await?.into_parts();
        Ok(Response::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    }

    async fn append(&self, bytes: Bytes) -> Result<()> {
        let (synced, done) = oneshot::channel();
        self.records.send(Record { bytes, synced })?;
        Ok(done.await?)
    }
}
