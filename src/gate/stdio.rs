//! A client on stdin and stdout (revision 2025-11-25, "stdio"): a message is a line.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};

use super::{Gate, channel::Incoming};
use crate::{
    upstream::stdio::lines::{self, Line},
    wire::{
        Message, RpcError,
        depth::{MAX_DEPTH, nests_too_deep},
    },
};

impl Gate {
    /// Serves the client behind `input` and `output`, until it closes `input` or `stop` resolves; then ends its session.
    pub async fn stdio(
        self: &Arc<Self>,
        upstream: usize,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) {
        let (ends, serving) = self.channel(upstream, None);
        let reading = tokio::spawn(read(input, self.max_body, ends.input));
        let gate = Arc::clone(self);
        let serving = async move {
            let mut serving = std::pin::pin!(serving);
            tokio::select! {
                () = &mut serving => {}
                () = stop => {
                    gate.end_all().await;
                    serving.await;
                }
            }
            gate.end_all().await;
            gate.upstreams_ended().await;
        };
        tokio::join!(serving, write(output, ends.output));
        reading.abort();
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
pub(super) fn parse(document: Bytes) -> Result<Message, RpcError> {
    if nests_too_deep(&document) {
        return Err(RpcError::invalid_request(format!(
            "Invalid request: the JSON nests deeper than {MAX_DEPTH} levels"
        )));
    }
    Message::parse(document).map_err(RpcError::from)
}

/// Writes each message as a line, as long as somebody reads.
async fn write(mut output: impl AsyncWrite + Unpin, mut outgoing: mpsc::Receiver<Bytes>) {
    while let Some(document) = outgoing.recv().await {
        let line = lines::one_line(document);
        if lines::write(&mut output, &line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}
