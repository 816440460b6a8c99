//! A client on stdin and stdout (revision 2025-11-25, "stdio"): a message is a line.

use std::{future::Future, slice, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{ChannelFront, ClientMessage, EndsWith, Outgoing};
use crate::{
    gate::lifecycle::upstreams_ended,
    identity::Owner,
    upstream::{
        Upstream,
        stdio::lines::{self, Line},
    },
    wire::{
        Message, RpcError,
        beginning::id_of_request,
        depth::{MAX_DEPTH, nests_too_deep},
    },
};

/// How long each message may still take to be read once the client has closed its end, or the process stops.
const LAST_LINES: Duration = Duration::from_secs(3);

impl ChannelFront {
    /// Serves the client behind `input` and `output`, with messages of at most `max_body` bytes, until it closes
    /// `input` or `stop` resolves; then ends its session and `upstream`. Returns whether the client got the session
    /// that it wanted.
    pub async fn stdio(
        &self,
        upstream: Arc<Upstream>,
        max_body: usize,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> bool {
        let ends_with = if upstream.server.is_process() { EndsWith::Server } else { EndsWith::Client };
        let (client, serving) = self.open(Arc::clone(&upstream), None, ends_with);
        let ending = CancellationToken::new();
        let at_the_end = ending.clone().drop_guard();
        let reading = tokio::spawn(async move {
            read(input, max_body, client.input).await;
            drop(at_the_end);
        });
        let writing = write(output, client.output, ending.clone());
        let serving = async {
            let mut serving = std::pin::pin!(serving);
            let served = tokio::select! {
                served = &mut serving => {
                    ending.cancel();
                    served
                }
                () = stop => {
                    ending.cancel();
                    self.modern.stop();
                    self.lifecycle.end_all().await;
                    serving.await
                }
            };
            self.lifecycle.end_all().await;
            // The tasks of requests without a session are this client's too.
            self.lifecycle.end_tasks_with_process(&Owner::anyone(upstream.id.clone())).await;
            upstreams_ended(slice::from_ref(&upstream)).await;
            served
        };
        let (served, ()) = tokio::join!(serving, writing);
        reading.abort();
        served
    }
}

/// Reads messages of at most `max` bytes until the end of `input`.
async fn read(input: impl AsyncRead + Unpin, max: usize, incoming: mpsc::Sender<ClientMessage>) {
    let mut input = BufReader::new(input);
    loop {
        let message = match lines::read(&mut input, max).await {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => parse(line),
            Line::TooLong(beginning) => {
                let why = RpcError::invalid_request(format!("the line is longer than server.max_body = {max} bytes"));
                Err(why.to_response(id_of_request(&beginning).as_deref()))
            }
            Line::End => return,
        };
        if incoming.send(ClientMessage { message, headers: HeaderMap::new(), room: None }).await.is_err() {
            return;
        }
    }
}

/// Reads one message of a client, or returns what answers one that is malformed.
fn parse(document: Bytes) -> Result<Message, Bytes> {
    if nests_too_deep(&document) {
        let why = RpcError::invalid_request(format!("Invalid request: the JSON nests deeper than {MAX_DEPTH} levels"));
        return Err(why.to_response(id_of_request(&document).as_deref()));
    }
    Message::of_client(document).map_err(|malformed| {
        let id = malformed.id().map(str::to_owned);
        RpcError::from(malformed).to_response(id.as_deref())
    })
}

/// Writes each message as a line, while the client reads. From `ending` on the client may have stopped reading, which
/// must not keep the process.
async fn write(mut output: impl AsyncWrite + Unpin, mut outgoing: mpsc::Receiver<Outgoing>, ending: CancellationToken) {
    while let Some(Outgoing { document, .. }) = outgoing.recv().await {
        let line = lines::one_line(document);
        let writing = async { lines::write(&mut output, &line).await.is_ok() && output.flush().await.is_ok() };
        let unread = async {
            ending.cancelled().await;
            tokio::time::sleep(LAST_LINES).await;
        };
        tokio::select! {
            written = writing => if !written { return },
            () = unread => return,
        }
    }
}
