//! The steps of a scripted answer.

/// The response to the call that a script answers.
pub(crate) const DONE: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"done"}]}}"#;
/// Progress of that call.
pub(crate) const PROGRESS: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":$N}}"#;

/// One step of an answer. In texts `$ID` stands for the id of the call that is answered, `$TOKEN` for its progress
/// token, both as raw JSON, and `$N` for the count of repetitions.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes a text as it is.
    Raw(String),
    /// Writes bytes that are not text.
    Bytes(Vec<u8>),
    /// Writes a whole answer: a status line with headers, and a body with its true length.
    Whole(&'static str, String),
    /// Writes a text in chunks of so many bytes.
    Pieces(usize, String),
    /// Writes a text so many times, each as a chunk.
    Times(usize, String),
    /// Waits for [`BadUpstream::signal`].
    Wait(&'static str),
    /// Waits until the other side has closed the connection.
    Gone,
    /// Lets time pass.
    Idle(std::time::Duration),
    /// Counts as an end under this name; see [`BadUpstream::ended`].
    Note(&'static str),
    /// Ends the connection cleanly.
    Close,
    /// Breaks the connection.
    Reset,
}

/// Returns the head of a chunked stream of events.
pub(crate) fn stream() -> Step {
    Step::Raw("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".into())
}

/// Returns a chunk of a body.
pub(crate) fn chunk(text: &str) -> Step {
    Step::Pieces(usize::MAX, text.to_owned())
}

/// Returns a JSON document as an event.
pub(crate) fn event(document: &str) -> Step {
    chunk(&format!("data: {document}\n\n"))
}

/// Returns a JSON document as an event of the stream of `tool`, with an id.
pub(crate) fn numbered(tool: &str, number: u32, document: &str) -> Step {
    chunk(&format!("id: {tool}/$ID/{number}\ndata: {document}\n\n"))
}

/// Returns the end of a chunked body.
pub(crate) fn end() -> Step {
    Step::Raw("0\r\n\r\n".into())
}

/// Returns a JSON document as the whole answer.
pub(crate) fn json_answer(document: &str) -> Step {
    Step::Whole("200 OK\r\ncontent-type: application/json", document.to_owned())
}
