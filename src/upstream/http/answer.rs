//! An answer that streams: read to its end, and resumed where it breaks, also by a later process (section "Resumability
//! and Redelivery").

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    AnswerBody, LAST_EVENT_ID,
    body::{MAX_UNASKED, is_stream, media_type, next_chunk},
    link::{HttpSession, NO_RESPONSE, StreamedAnswer},
    reopen::{after_silence, backed_off, pause, resumption},
    silence::Silence,
};
use crate::{
    upstream::{Failure, Resumption},
    wire::sse::Decoder,
};

/// How many attempts in a row to resume a broken answer may bring no new event.
const RESUME_ATTEMPTS: u32 = 10;
/// Why an answer is resumed that an earlier process has begun to read.
const PROCESS_ENDED: &str = "the process of taskgate that had begun to read it ended";
/// Why an answer is resumed that has been resumed, and is silent since.
const SILENT: &str = "nothing came on the resumed stream";

/// How the stream of an answer ended.
enum StreamEnd {
    /// The server closed it.
    Closed,
    /// It broke, for this reason.
    Broken(String),
    /// The server kept it open and sent nothing for too long.
    Silent,
}

/// What the server answered to the request for the rest of an answer.
enum Reopened {
    Stream(AnswerBody),
    /// No connection could be made, or the request is refused now and may be taken later.
    Away,
    /// The server takes the request and does not answer.
    Silent,
}

impl HttpSession {
    /// Goes on with the answer to a request that an earlier process has sent.
    pub(super) async fn resume(self: &Arc<Self>, resumption: Resumption) -> Result<(), Failure> {
        let Resumption { number, event, headers, max_answer } = resumption;
        let answer = StreamedAnswer { number, limit: max_answer, headers: &headers };
        self.read(answer, None, Decoder::behind(max_answer, event)).await
    }

    /// Reads an answer that streams. Resumes a stream that breaks, or that the upstream closes to be polled, if it gave
    /// event ids. Never sends the request itself again.
    pub(super) async fn answer(self: &Arc<Self>, answer: StreamedAnswer<'_>, body: AnswerBody) -> Result<(), Failure> {
        let decoder = Decoder::new(answer.limit);
        self.read(answer, Some(body), decoder).await
    }

    async fn read(
        self: &Arc<Self>,
        answer: StreamedAnswer<'_>,
        mut body: Option<AnswerBody>,
        mut decoder: Decoder,
    ) -> Result<(), Failure> {
        let StreamedAnswer { number, limit, headers } = answer;
        let (mut fruitless, mut seen) = (0, None);
        let (mut resumed, mut silence) = (false, Silence::default());
        loop {
            let anew = body.is_none();
            let read = match body.take() {
                Some(body) if resumed => self.read_resumed(body, &answer, &mut silence, &mut decoder).await,
                Some(body) => {
                    let read = self.events(body, limit, Some(number), headers, &mut decoder).await;
                    read.map(|()| StreamEnd::Closed)
                }
                None => Ok(StreamEnd::Broken(PROCESS_ENDED.to_owned())),
            };
            resumed = true;
            if decoder.last_id() != seen.as_ref() {
                seen = decoder.last_id().cloned();
                fruitless = 0;
            }
            if !self.inbound.exchanges.is_open(number) {
                return Ok(());
            }
            let end = match read {
                Ok(end) => end,
                Err(Failure::Incomplete(why)) => StreamEnd::Broken(why),
                Err(failure) => return Err(failure),
            };
            let (why, mut wait) = match &end {
                StreamEnd::Closed => (NO_RESPONSE, pause(&decoder)),
                StreamEnd::Broken(why) => (&**why, if anew { Duration::ZERO } else { pause(&decoder) }),
                StreamEnd::Silent => (SILENT, after_silence(&decoder)),
            };
            let modern = self.modern.load(Ordering::Relaxed);
            let Some(resumption) = resumption(&decoder).filter(|_| !modern) else {
                return Err(Failure::Incomplete(why.to_owned()));
            };
            match end {
                // A server that wants to be polled expects the same of the client.
                StreamEnd::Closed => self.inbound.exchanges.pause(number, pause(&decoder)),
                // It did stay open.
                StreamEnd::Silent => fruitless = 0,
                StreamEnd::Broken(_) => {}
            }
            decoder.restart();
            while body.is_none() {
                fruitless += 1;
                if fruitless > RESUME_ATTEMPTS {
                    let why = format!("{why}; {RESUME_ATTEMPTS} attempts to resume it have brought no new event");
                    return Err(Failure::Incomplete(why));
                }
                sleep(wait).await;
                let reopening = self.reopen(&resumption, headers, why);
                match timeout(silence.limit(), reopening).await.unwrap_or(Ok(Reopened::Silent))? {
                    Reopened::Stream(stream) => {
                        self.inbound.exchanges.note_stream(number);
                        body = Some(stream);
                    }
                    Reopened::Away => wait = backed_off(&decoder, fruitless),
                    Reopened::Silent => {
                        silence.lasted();
                        (fruitless, wait) = (0, after_silence(&decoder));
                    }
                }
            }
        }
    }

    /// Reads a stream on which an answer was resumed, until it ends or has been silent for too long. What counts is
    /// messages, new event ids, and parts of an event that is on its way. Comments and other keep-alives do not: the
    /// server sends them whether or not it will ever send the answer there.
    async fn read_resumed(
        self: &Arc<Self>,
        mut body: AnswerBody,
        answer: &StreamedAnswer<'_>,
        silence: &mut Silence,
        decoder: &mut Decoder,
    ) -> Result<StreamEnd, Failure> {
        let StreamedAnswer { number, limit, headers } = *answer;
        let mut until = Instant::now() + silence.limit();
        loop {
            let Ok(chunk) = timeout_at(until, next_chunk(&mut body)).await else {
                // The server has to know it before it is asked again.
                body.close();
                silence.lasted();
                tracing::debug!(upstream = self.server.id.as_str(), number, "a resumed answer is silent");
                return Ok(StreamEnd::Silent);
            };
            let Some(chunk) = chunk? else { return Ok(StreamEnd::Closed) };
            let seen = decoder.last_id().cloned();
            let messages = Box::pin(self.take_chunk(chunk, limit, Some(number), headers, decoder)).await?;
            if messages > 0 || decoder.last_id() != seen.as_ref() || decoder.has_part_of_event() {
                silence.broken();
                until = Instant::now() + silence.limit();
            }
        }
    }

    /// Asks for the rest of an answer, which has ended or is silent for this reason.
    async fn reopen(&self, resumption: &HeaderValue, headers: &HeaderMap, why: &str) -> Result<Reopened, Failure> {
        let mut headers = headers.clone();
        headers.insert(LAST_EVENT_ID, resumption.clone());
        let Ok(response) = self.get(headers).await else { return Ok(Reopened::Away) };
        let status = response.status();
        if !status.is_success() {
            if is_for_now(status) || (why == SILENT && status.is_server_error()) {
                return Ok(Reopened::Away);
            }
            return Err(match self.refusal(response, MAX_UNASKED).await {
                Failure::SessionLost => Failure::SessionLost,
                _ => Failure::Incomplete(format!("{why}; resuming it was refused with HTTP {status}")),
            });
        }
        let content_type = media_type(response.headers());
        if !is_stream(content_type) {
            let refused = format!("resuming it gave HTTP {status} with the content type {content_type:?}");
            return Err(Failure::Incomplete(format!("{why}; {refused}")));
        }
        Ok(Reopened::Stream(response.into_body()))
    }
}

/// Returns whether a server may take later what it refuses so. A server answers 409 that has not noticed the end of the
/// earlier stream, and a gateway one of the last three for a server that is away.
fn is_for_now(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::CONFLICT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}
