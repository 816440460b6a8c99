//! How often events of one kind are logged. A stranger can cause most of them, as often as it likes.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use parking_lot::Mutex;
use taskgate::observe::log_lines_lost;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

/// Targets of lines that are not held back: what the operator does, what the audit log says, sums.
const EXEMPT: [&str; 2] = ["taskgate", "taskgate::audit"];
/// The target of what children write to stderr.
const CHILDREN: &str = "taskgate::upstream::stderr";
/// How many kinds are told apart. There are fewer, unless upstreams are many.
const MAX_KINDS: usize = 4096;
/// The longest words of a kind in a sum, in characters.
const MAX_WORDS: usize = 200;

/// Holds back events that come too often.
pub(super) struct Limit(pub(super) Arc<Limits>);

/// What was logged of each kind of event.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<HashMap<Kind, Bucket>>);

/// One place in the code, and one upstream where the event names one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    place: Identifier,
    upstream: String,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// How many lines may be written now.
    left: f64,
    since: Instant,
    /// How many were not, since the last sum.
    held_back: u64,
    words: String,
}

/// So many lines at once, and so many a second.
#[derive(Clone, Copy, Debug)]
struct Rate(f64, f64);

const EVENTS: Rate = Rate(30.0, 1.0);
/// A stack trace is to be whole.
const LINES_OF_CHILDREN: Rate = Rate(1000.0, 100.0);

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Who wants to see more than that wants to see all of it.
        if *metadata.level() > Level::INFO || EXEMPT.contains(&metadata.target()) {
            return true;
        }
        let mut words = Words::default();
        event.record(&mut words);
        let rate = if metadata.target() == CHILDREN { LINES_OF_CHILDREN } else { EVENTS };
        let kind = Kind { place: metadata.callsite(), upstream: words.upstream };
        let let_through = self.0.take(kind, rate, Instant::now(), || match metadata.target() {
            CHILDREN => "lines of stderr".to_owned(),
            _ => words.message,
        });
        if !let_through {
            log_lines_lost("rate", 1);
        }
        let_through
    }
}

impl Limits {
    fn take(&self, mut kind: Kind, rate: Rate, now: Instant, words: impl FnOnce() -> String) -> bool {
        let mut kinds = self.0.lock();
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            kind.upstream.clear();
        }
        let new = || Bucket { rate, left: rate.0, since: now, held_back: 0, words: String::new() };
        let bucket = kinds.entry(kind).or_insert_with(new);
        let Rate(most, a_second) = bucket.rate;
        bucket.left = (bucket.left + now.duration_since(bucket.since).as_secs_f64() * a_second).min(most);
        bucket.since = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return true;
        }
        if bucket.held_back == 0 {
            bucket.words = words();
        }
        bucket.held_back += 1;
        false
    }

    /// Logs how many lines of each kind were held back since the last time.
    pub(super) fn sum_up(&self) {
        for (upstream, words, held_back) in self.sums() {
            let upstream = Some(upstream).filter(|upstream| !upstream.is_empty());
            tracing::warn!(target: "taskgate", held_back, upstream, like = words, "events that came too often were not logged");
        }
    }

    fn sums(&self) -> Vec<(String, String, u64)> {
        let mut kinds = self.0.lock();
        let some = kinds.iter_mut().filter(|(_, bucket)| bucket.held_back > 0);
        some.map(|(kind, bucket)| {
            (kind.upstream.clone(), std::mem::take(&mut bucket.words), std::mem::take(&mut bucket.held_back))
        })
        .collect()
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Words {
    message: String,
    upstream: String,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "upstream" {
            value.clone_into(&mut self.upstream);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}").chars().take(MAX_WORDS).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::{Metadata, callsite::Callsite, subscriber::Interest};

    use super::*;

    /// Stands for a place in the code.
    struct Place;

    impl Callsite for Place {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("it is only compared")
        }
    }

    fn kind(upstream: &str) -> Kind {
        Kind { place: Identifier(&Place), upstream: upstream.to_owned() }
    }

    #[test]
    fn after_a_burst_lines_come_at_the_rate_and_a_sum_says_how_many_did_not() {
        let (limits, start) = (Limits::default(), Instant::now());
        let count = |upstream: &str, now, times: usize| {
            (0..times).filter(|_| limits.take(kind(upstream), EVENTS, now, || "words".to_owned())).count()
        };
        assert_eq!(count("/a", start, 1000), 30);
        assert_eq!(count("/b", start, 10), 10, "another upstream has lines of its own");
        assert_eq!(count("/a", start + Duration::from_secs(5), 1000), 5);
        assert_eq!(limits.sums(), [("/a".to_owned(), "words".to_owned(), 1965)]);
        assert_eq!(limits.sums(), []);
        assert_eq!(count("/a", start + Duration::from_hours(1), 1000), 30);
    }
}
