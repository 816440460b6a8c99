//! A client on stdin and stdout (revision 2025-11-25, "stdio"): a message is a line.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{Incoming, Lasts};
use crate::{
    gate::Gate,
    upstream::{
        Upstream,
        stdio::lines::{self, Line},
    },
    wire::{
        Message, RpcError,
        depth::{MAX_DEPTH, nests_too_deep},
    },
};

/// How long each message may still take to be read once the client has closed its end, or the process stops.
const LAST_LINES: Duration = Duration::from_secs(3);

impl Gate {
    /// Serves the client behind `input` and `output`, until it closes `input` or `stop` resolves; then ends its session.
    /// Returns whether the client got the session that it wanted.
    pub async fn stdio(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> bool {
        let lasts = if upstream.server.is_process() { Lasts::Server } else { Lasts::Client };
        let (ends, serving) = self.channel(upstream, None, lasts);
        let ending = CancellationToken::new();
        let (max, at_the_end) = (self.bodies.max, ending.clone().drop_guard());
        let reading = tokio::spawn(async move {
            read(input, max, ends.input).await;
            drop(at_the_end);
        });
        let (gate, writing) = (Arc::clone(self), write(output, ends.output, ending.clone()));
        let serving = async move {
            let mut serving = std::pin::pin!(serving);
            let served = tokio::select! {
                served = &mut serving => {
                    ending.cancel();
                    served
                }
                () = stop => {
                    ending.cancel();
                    gate.end_all().await;
                    serving.await
                }
            };
            gate.end_all().await;
            gate.upstreams_ended().await;
            served
        };
        let (served, ()) = tokio::join!(serving, writing);
        reading.abort();
        served
    }
}

/// Reads messages of at most `max` bytes until the end of `input`.
async fn read(input: impl AsyncRead + Unpin, max: usize, incoming: mpsc::Sender<Incoming>) {
    let mut input = BufReader::new(input);
    loop {
        let message = match lines::read(&mut input, max).await {
            Line::Whole(line) if line.trim_ascii().is_empty() => continue,
            Line::Whole(line) => parse(line),
            Line::TooLong(_) => {
                Err(RpcError::invalid_request(format!("the line is longer than server.max_body = {max} bytes")))
            }
            Line::End => return,
        };
        if incoming.send(Incoming { message, headers: HeaderMap::new() }).await.is_err() {
            return;
        }
    }
}

/// Reads one message of a client.
fn parse(document: Bytes) -> Result<Message, RpcError> {
    if nests_too_deep(&document) {
        return Err(RpcError::invalid_request(format!(
            "Invalid request: the JSON nests deeper than {MAX_DEPTH} levels"
        )));
    }
    Message::of_client(document).map_err(RpcError::from)
}

/// Writes each message as a line, as long as somebody reads. From `ending` on nobody may do so any more, which must not
/// keep the process.
async fn write(mut output: impl AsyncWrite + Unpin, mut outgoing: mpsc::Receiver<Bytes>, ending: CancellationToken) {
    while let Some(document) = outgoing.recv().await {
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
