//! An answer that streams: read to its end, and resumed where it breaks, also by a later process (section "Resumability and
//! Redelivery").

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use http::{HeaderMap, HeaderValue};

use super::{
    AnswerBody, LAST_EVENT_ID,
    body::{is_stream, media_type},
    link::{HttpSession, NO_RESPONSE, StreamedAnswer},
    reopen::{pause, resumption},
};
use crate::{
    upstream::{Failure, Resumption},
    wire::sse::Decoder,
};

/// How often in a row a broken answer is resumed without a new event.
const RESUME_ATTEMPTS: u32 = 10;
/// Why an answer is resumed that an earlier process has begun to read.
const PROCESS_ENDED: &str = "the process of taskgate that had begun to read it ended";

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
        loop {
            let anew = body.is_none();
            let read = match body.take() {
                Some(body) => self.events(body, limit, Some(number), headers, &mut decoder).await,
                None => Err(Failure::Incomplete(PROCESS_ENDED.to_owned())),
            };
            if decoder.last_id() != seen.as_ref() {
                seen = decoder.last_id().cloned();
                fruitless = 0;
            }
            if !self.inbound.exchanges.is_open(number) {
                return Ok(());
            }
            let whole = read.is_ok();
            let why = match read {
                Ok(()) => NO_RESPONSE.to_owned(),
                Err(Failure::Incomplete(why)) => why,
                Err(failure) => return Err(failure),
            };
            let modern = self.modern.load(Ordering::Relaxed);
            let Some(resumption) = resumption(&decoder).filter(|_| !modern) else {
                return Err(Failure::Incomplete(why));
            };
            if whole {
                // A server that wants to be polled expects the same of the client.
                self.inbound.exchanges.pause(number, pause(&decoder));
            }
            decoder.restart();
            let mut wait = if anew { Duration::ZERO } else { pause(&decoder) };
            while body.is_none() {
                fruitless += 1;
                if fruitless > RESUME_ATTEMPTS {
                    let why = format!("{why}; it was resumed {RESUME_ATTEMPTS} times without a new event");
                    return Err(Failure::Incomplete(why));
                }
                tokio::time::sleep(std::mem::replace(&mut wait, pause(&decoder))).await;
                body = self.reopen(&resumption, headers, &why).await?;
            }
        }
    }

    /// Asks for the rest of an answer; `None` where the server cannot be reached.
    async fn reopen(
        &self,
        resumption: &HeaderValue,
        headers: &HeaderMap,
        why: &str,
    ) -> Result<Option<AnswerBody>, Failure> {
        let mut headers = headers.clone();
        headers.insert(LAST_EVENT_ID, resumption.clone());
        let Ok(response) = self.get(headers).await else { return Ok(None) };
        let status = response.status();
        if !status.is_success() {
            return Err(match self.refusal(response).await {
                Failure::SessionLost => Failure::SessionLost,
                _ => Failure::Incomplete(format!("{why}; resuming it was refused with HTTP {status}")),
            });
        }
        let content_type = media_type(response.headers());
        if !is_stream(content_type) {
            let refused = format!("resuming it gave HTTP {status} with the content type {content_type:?}");
            return Err(Failure::Incomplete(format!("{why}; {refused}")));
        }
        Ok(Some(response.into_body()))
    }
}
