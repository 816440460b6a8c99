//! Limits how often events of one kind are logged. A client can cause most of them as often as it likes.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use parking_lot::Mutex;
use taskgate::observe::log_lines_lost;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, layer::Context};

/// The targets that are not limited: what the operator does, the audit log, sums.
const EXEMPT: [&str; 2] = ["taskgate", "taskgate::audit"];
/// The target of lines that children write to stderr.
const CHILDREN: &str = "taskgate::upstream::stderr";
/// How many kinds are told apart. There are fewer, unless there are many upstreams.
const MAX_KINDS: usize = 4096;
/// How many bytes of a child's line count as one line: a server that writes long lines fills the log no faster.
const LINE: usize = 1024;
/// The longest message that a sum quotes, in characters.
const MAX_MESSAGE: usize = 200;

/// The layer that holds back events that come too often.
pub(super) struct RateLayer(pub(super) Arc<EventRates>);

/// What was logged of each kind of event.
#[derive(Debug, Default)]
pub(super) struct EventRates(Mutex<HashMap<EventKind, Bucket>>);

/// One place in the code, and one upstream where the event names one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct EventKind {
    callsite: Identifier,
    upstream: String,
}

#[derive(Debug)]
struct Bucket {
    rate: EventRate,
    /// How many events may be logged now.
    left: f64,
    since: Instant,
    /// How many were held back since the last sum.
    held_back: u64,
    /// The message of the first of those.
    message: String,
}

/// How many events are logged at once, and how many a second after those.
#[derive(Clone, Copy, Debug)]
struct EventRate {
    burst: f64,
    a_second: f64,
}

const EVENTS: EventRate = EventRate { burst: 30.0, a_second: 1.0 };
/// Enough for a whole stack trace.
const LINES_OF_CHILDREN: EventRate = EventRate { burst: 1000.0, a_second: 100.0 };

/// The events of one kind that were held back since the last sum.
#[derive(Debug, PartialEq, Eq)]
struct Sum {
    upstream: String,
    /// The message of the first event.
    message: String,
    held_back: u64,
}

impl<S: Subscriber> Layer<S> for RateLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // An operator who wants to see more than INFO wants to see all of it.
        if *metadata.level() > Level::INFO || EXEMPT.contains(&metadata.target()) {
            return true;
        }
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let (rate, cost) = match metadata.target() {
            CHILDREN => (LINES_OF_CHILDREN, fields.bytes.div_ceil(LINE)),
            _ => (EVENTS, 1),
        };
        let kind = EventKind { callsite: metadata.callsite(), upstream: fields.upstream };
        let let_through = self.0.take(kind, rate, cost, Instant::now(), || match metadata.target() {
            CHILDREN => "lines of stderr".to_owned(),
            _ => fields.message,
        });
        if !let_through {
            log_lines_lost("rate", 1);
        }
        let_through
    }
}

impl EventRates {
    /// Counts an event as `cost` of them, and returns whether to log it.
    fn take(
        &self,
        mut kind: EventKind,
        rate: EventRate,
        cost: usize,
        now: Instant,
        message: impl FnOnce() -> String,
    ) -> bool {
        let mut kinds = self.0.lock();
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            kind.upstream.clear();
        }
        let new = || Bucket { rate, left: rate.burst, since: now, held_back: 0, message: String::new() };
        let bucket = kinds.entry(kind).or_insert_with(new);
        let EventRate { burst, a_second } = bucket.rate;
        bucket.left = (bucket.left + now.duration_since(bucket.since).as_secs_f64() * a_second).min(burst);
        bucket.since = now;
        // At most 96 KiB: a line of 16 KiB, six times as long when escaped. So it never exceeds the burst.
        let cost = u32::try_from(cost).map_or(f64::MAX, f64::from).max(1.0);
        if bucket.left >= cost {
            bucket.left -= cost;
            return true;
        }
        if bucket.held_back == 0 {
            bucket.message = message();
        }
        bucket.held_back += 1;
        false
    }

    /// Logs how many events of each kind were held back since the last time.
    pub(super) fn sum_up(&self) {
        for Sum { upstream, message, held_back } in self.sums() {
            let upstream = Some(upstream).filter(|upstream| !upstream.is_empty());
            tracing::warn!(target: "taskgate", held_back, upstream, like = message, "events that came too often were not logged");
        }
    }

    /// Returns the sums since the last time, and starts new ones.
    fn sums(&self) -> Vec<Sum> {
        let mut kinds = self.0.lock();
        let held_back = kinds.iter_mut().filter(|(_, bucket)| bucket.held_back > 0);
        let sum = |(kind, bucket): (&EventKind, &mut Bucket)| Sum {
            upstream: kind.upstream.clone(),
            message: std::mem::take(&mut bucket.message),
            held_back: std::mem::take(&mut bucket.held_back),
        };
        held_back.map(sum).collect()
    }
}

/// The fields of an event that are needed here.
#[derive(Debug, Default)]
struct EventFields {
    message: String,
    /// How many bytes the message takes in the log, at most.
    bytes: usize,
    upstream: String,
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "upstream" {
            value.clone_into(&mut self.upstream);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let message = format!("{value:?}");
            self.bytes = message.chars().map(written).sum();
            self.message = message.chars().take(MAX_MESSAGE).collect();
        }
    }
}

/// Returns how many bytes a character takes in a line of the log, at most.
fn written(char: char) -> usize {
    match char {
        '"' | '\\' => 2,
        // "\u{1b}"
        _ if char.is_control() => 6,
        _ => char.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tracing::{Metadata, callsite::Callsite, subscriber::Interest};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A callsite that is only compared.
    struct TestCallsite;

    impl Callsite for TestCallsite {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("it is only compared")
        }
    }

    fn kind(upstream: &str) -> EventKind {
        EventKind { callsite: Identifier(&TestCallsite), upstream: upstream.to_owned() }
    }

    #[test]
    fn after_a_burst_events_come_at_the_rate_and_a_sum_says_how_many_did_not() {
        let (rates, start) = (EventRates::default(), Instant::now());
        let count = |upstream: &str, now, times: usize| {
            (0..times).filter(|_| rates.take(kind(upstream), EVENTS, 1, now, || "words".to_owned())).count()
        };
        assert_eq!(count("/a", start, 1000), 30);
        assert_eq!(count("/b", start, 10), 10, "another upstream has lines of its own");
        assert_eq!(count("/a", start + Duration::from_secs(5), 1000), 5);
        let sum = Sum { upstream: "/a".to_owned(), message: "words".to_owned(), held_back: 1965 };
        assert_eq!(rates.sums(), [sum]);
        assert_eq!(rates.sums(), []);
        assert_eq!(count("/a", start + Duration::from_hours(1), 1000), 30);
    }

    /// Counts what is let through.
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_kibibyte_of_a_line_of_a_child_counts_as_a_line_as_it_is_written() {
        for (line, at_once) in [("short".to_owned(), 1000), ("x".repeat(16 << 10), 62), ("\u{1b}".repeat(1 << 10), 166)]
        {
            let count = Arc::<AtomicUsize>::default();
            let subscriber =
                tracing_subscriber::registry().with(RateLayer(Arc::default())).with(Count(Arc::clone(&count)));
            let start = Instant::now();
            tracing::subscriber::with_default(subscriber, || {
                for _ in 0..2000 {
                    tracing::info!(target: CHILDREN, upstream = "/a", "{line}");
                }
            });
            // Those that came meanwhile, at 100 a second.
            let more = usize::try_from(start.elapsed().as_millis() / 10).expect("a short time") + 1;
            let count = count.load(Ordering::Relaxed);
            assert!((at_once..=at_once + more).contains(&count), "{count} of {} bytes", line.len());
        }
    }
}
