//! Times as people say them.

use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Returns a duration as a person says it, such as "25 seconds", "2.5 minutes" or "36 hours".
#[must_use]
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.saturating_add(Duration::from_millis(500)).as_secs();
    match seconds {
        0..2 => "1 second".to_owned(),
        2..10 => format!("{seconds} seconds"),
        10..90 => format!("{} seconds", nearest(seconds, 5)),
        90..5_400 => counted(seconds, MINUTE, 5, "minutes"),
        5_400..172_800 => counted(seconds, HOUR, 1, "hours"),
        _ => counted(seconds, DAY, 1, "days"),
    }
}

/// Counts a time in `unit`s: in halves below five of them, in ones below ten, then in multiples of `coarse`.
fn counted(seconds: u64, unit: u64, coarse: u64, name: &str) -> String {
    let halves = nearest(seconds, unit / 2) / (unit / 2);
    let whole = nearest(seconds, unit) / unit;
    match halves {
        ..10 if halves % 2 == 1 => format!("{}.5 {name}", halves / 2),
        ..20 => format!("{} {name}", if halves < 10 { halves / 2 } else { whole }),
        _ => format!("{} {name}", nearest(whole, coarse)),
    }
}

/// Returns the multiple of `step` that is nearest.
fn nearest(number: u64, step: u64) -> u64 {
    number.saturating_add(step / 2) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_one_unit_and_no_finer_than_a_person_would() {
        for (seconds, words) in [
            (0.0, "1 second"),
            (1.49, "1 second"),
            (2.4, "2 seconds"),
            (9.4, "9 seconds"),
            (12.0, "10 seconds"),
            (58.0, "60 seconds"),
            (89.4, "90 seconds"),
            (90.0, "1.5 minutes"),
            (118.0, "2 minutes"),
            (150.0, "2.5 minutes"),
            (240.0, "4 minutes"),
            (285.0, "5 minutes"),
            (340.0, "6 minutes"),
            (740.0, "10 minutes"),
            (3600.0, "60 minutes"),
            (5400.0, "1.5 hours"),
            (7200.0, "2 hours"),
            (36.2 * 3600.0, "36 hours"),
            (48.0 * 3600.0, "2 days"),
            (365.0 * 86_400.0, "365 days"),
        ] {
            assert_eq!(in_words(Duration::from_secs_f64(seconds)), words, "{seconds}");
        }
        assert!(in_words(Duration::MAX).ends_with(" days"));
    }

    proptest::proptest! {
        #[test]
        fn a_longer_time_is_never_told_as_a_shorter_one_and_what_is_told_is_within_a_quarter(
            millis in 2_000_u64..1_000_000_000, more in 0_u64..1_000_000_000,
        ) {
            let told = |millis| {
                let words = in_words(Duration::from_millis(millis));
                let (number, unit) = words.split_once(' ').expect("two words");
                let unit = match unit { "seconds" => 1.0, "minutes" => 60.0, "hours" => 3600.0, _ => 86_400.0 };
                number.parse::<f64>().expect("a number") * unit
            };
            assert!(told(millis) <= told(millis + more));
            let exact = Duration::from_millis(millis).as_secs_f64();
            assert!((told(millis) / exact - 1.0).abs() <= 0.25, "{} for {exact}", told(millis));
        }
    }
}
