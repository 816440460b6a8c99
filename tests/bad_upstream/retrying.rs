//! The pause before a resumption, in the test's own time.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    House,
    kit::bad::{DONE, Step, chunk, end, event, stream},
};

/// Returns how long a call takes whose stream ends once, after it has asked for this pause.
async fn pause(retry: &str) -> Duration {
    let house = House::new().await;
    let prime = chunk(&format!("id: pause/$ID/1\n{retry}\ndata: \n\n"));
    house.bad.on_call("pause", vec![stream(), prime, end()]);
    house.bad.on_resume("pause", vec![vec![stream(), event(DONE), end()]]);
    let before = Instant::now();
    assert_eq!(house.call("pause").await.as_deref(), Ok("done"), "{retry}");
    let waited = before.elapsed();
    assert_eq!(house.task("pause").await.as_deref(), Ok("done"), "{retry}");
    assert_eq!((house.bad.runs("pause"), house.bad.resumed("pause").len()), (2, 2));
    house.still_works().await;
    waited
}

#[tokio::test(start_paused = true)]
async fn the_pause_is_what_the_server_asked_for() {
    let waited = pause("retry: 2500").await;
    assert!((2_500..2_700).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_retry_field_the_pause_is_a_second() {
    for retry in ["", "retry: soon", "retry: -1", "retry: 99999999999999999999999", "retry: 1.5"] {
        let waited = pause(retry).await;
        assert!((1_000..1_200).contains(&waited.as_millis()), "{retry}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pause_is_at_least_a_tenth_of_a_second() {
    for retry in ["retry: 0", "retry: 1", "retry: 99"] {
        let waited = pause(retry).await;
        assert!((100..300).contains(&waited.as_millis()), "{retry}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_is_respected_too() {
    let waited = pause("retry: 50000").await;
    assert!((50_000..50_200).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_does_not_hold_up_other_calls_of_the_session() {
    let house = House::new().await;
    house.bad.on_call("slow", vec![stream(), chunk("id: slow/$ID/1\nretry: 30000\ndata: \n\n"), Step::Close]);
    house.bad.on_resume("slow", vec![vec![stream(), event(DONE), end()]]);
    let before = Instant::now();
    let both = async {
        tokio::join!(house.call("slow"), async {
            house.bad.wait_for(|seen| seen.tool() == "slow").await;
            let outcome = house.call("quick").await;
            (outcome, before.elapsed())
        })
    };
    let (slow, (quick, waited)) = both.await;
    assert_eq!((slow.as_deref(), quick.as_deref()), (Ok("done"), Ok("done")));
    assert!(waited < Duration::from_secs(30) && before.elapsed() >= Duration::from_secs(30), "{waited:?}");
    house.still_works().await;
}
