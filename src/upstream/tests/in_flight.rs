//! Tests: how many requests may be in flight, what is remembered of them, and when the task that carries one is gone.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;

use crate::{
    flow::{Capacity, Item},
    upstream::{Exchange, Exchanges, Failure, MAX_IN_FLIGHT, Purpose, exchanges::MAX_ASKED},
    wire::Message,
};

/// Lets a task carry an exchange that never ends by itself. The task shares the returned value until it is gone.
fn carried_for_ever(exchange: &mut Exchange) -> Arc<()> {
    let connection = Arc::new(());
    let carried = Arc::clone(&connection);
    exchange.carry(Some(Box::pin(async move {
        std::future::pending::<()>().await;
        drop(carried);
    })));
    exchange.detach();
    connection
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_exchange_is_gone_once_nothing_carries_it() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    for _ in 0..100 {
        let mut exchange = exchanges.begin(None, Purpose::Background).expect("room");
        let connection = carried_for_ever(&mut exchange);
        exchanges.cancel(exchange.number);
        exchange.gone().await;
        assert_eq!(Arc::strong_count(&connection), 1);
    }
}

#[tokio::test]
async fn a_silence_is_told_at_the_second_tick_and_only_where_a_client_waits() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    for (purpose, hears, told) in [
        (Purpose::Foreground, false, true),
        (Purpose::Background, false, false),
        (Purpose::Background, true, true),
        (Purpose::Listening, false, false),
    ] {
        let mut exchange = exchanges.begin(None, purpose).expect("room");
        exchange.hear_silence(hears);
        exchanges.tell_silence();
        assert!(exchange.next().now_or_never().is_none(), "{purpose:?}");
        exchanges.tell_silence();
        let said = exchange.next().now_or_never().flatten();
        assert_eq!(matches!(said, Some(Item::Silence)), told, "{purpose:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_carries_an_exchange_ends_soon_after_the_exchange() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    let mut exchange = exchanges.begin(None, Purpose::Background).expect("room");
    // As a POST over HTTP+SSE that the server never answers, while the response comes on the stream.
    let connection = carried_for_ever(&mut exchange);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(Arc::strong_count(&connection), 2, "it is in flight");
    exchanges.end(exchange.number, Err(Failure::Abandoned));
    tokio::time::timeout(Duration::from_secs(10), exchange.gone()).await.expect("it is given up");
    assert_eq!(Arc::strong_count(&connection), 1);
}

#[test]
fn tasks_do_not_count_among_the_requests_in_flight() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    let begin = |purpose| exchanges.begin(None, purpose);
    for purpose in [Purpose::Background, Purpose::Foreground] {
        for _ in 0..MAX_IN_FLIGHT {
            begin(purpose).expect("room");
        }
    }
    assert!(begin(Purpose::Foreground).is_err());
    assert!(begin(Purpose::Background).is_ok());
    exchanges.cancel(1);
    assert!(begin(Purpose::Foreground).is_err(), "the end of a task makes no room for a request");
    exchanges.cancel(2 * MAX_IN_FLIGHT as u64);
    assert!(begin(Purpose::Foreground).is_ok());
}

#[tokio::test]
async fn an_exchange_whose_work_panics_ends_and_is_not_carried_again() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    let mut exchange = exchanges.begin(None, Purpose::Foreground).expect("room");
    exchange.carry(Some(Box::pin(async { panic!("a mistake") })));
    let panicked = AssertUnwindSafe(exchange.next()).catch_unwind().await;
    assert!(panicked.is_err());
    assert!(matches!(exchange.next().await, Some(Item::End(Err(Failure::OwnFault)))));
    assert!(!exchanges.is_open(exchange.number) && !exchange.is_over());
    // So does one whose work goes on in a task of its own.
    let mut exchange = exchanges.begin(None, Purpose::Foreground).expect("room");
    exchange.carry(Some(Box::pin(async { panic!("a mistake") })));
    exchange.detach();
    assert!(matches!(exchange.next().await, Some(Item::End(Err(Failure::OwnFault)))));
}

#[test]
fn the_newest_requests_of_the_upstream_are_remembered() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    let exchange = exchanges.begin(None, Purpose::Background).expect("room");
    for id in 0..=MAX_ASKED {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
        assert!(exchanges.push(exchange.number, Message::parse(text.into()).expect("valid")).is_none());
    }
    let asked = |id: usize| exchanges.asked(&id.to_string());
    assert_eq!((asked(0), asked(MAX_ASKED - 1), asked(MAX_ASKED)), (None, Some(1), Some(1)));
}

#[test]
fn a_client_finds_its_request_by_its_id_with_other_escapes() {
    let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
    let exchange = exchanges.begin(Some(r#""caf\u00e9""#), Purpose::Foreground).expect("room");
    assert_eq!(exchanges.of_client("\"café\""), Some(exchange.number));
    assert_eq!(exchanges.of_client("\"cafe\""), None);
}
