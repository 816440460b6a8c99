//! What bytes that are not a message were probably meant as: a message that was cut off, or one with a mistake.

use std::fmt;

use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::message::{MAX_ID, echoed_number, is_id};

/// What bytes that are not a message were probably meant as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// A response to the request of that number, or to one that it does not name.
    Response(Option<u64>),
    /// A request, with its raw id.
    Request(Box<str>),
    /// A notification, or a request whose id is not known.
    Unanswerable,
    /// No message, or none that can be told.
    Unknown,
}

/// Returns what a JSON object may have been meant as, by the members that stand before its end or before the first
/// mistake.
#[must_use]
pub fn meant(beginning: &[u8]) -> Meant {
    // A number at the cut may be incomplete.
    let whole = beginning.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let mut seen = Seen::default();
    // The error at the end does not matter: what stands before it has been seen.
    let _ = serde_json::Deserializer::from_slice(&beginning[..whole]).deserialize_map(&mut seen);
    let Seen { jsonrpc, method, outcome, id } = seen;
    let (named, is_answer) = (id.and_then(number), outcome == Some(Given::Value));
    match (method, id) {
        // A message that is a request and a response: a call may wait for it.
        (true, _) if jsonrpc && is_answer && named.is_some() => Meant::Response(named),
        // Log lines on a server's stdout can have an id and a method too.
        (true, Some(id)) if jsonrpc && is_id(id) && id.len() <= MAX_ID => Meant::Request(id.into()),
        (true, _) if jsonrpc => Meant::Unanswerable,
        (false, None | Some("null")) if outcome.is_some() => Meant::Response(None),
        (false, Some(_)) if named.is_some() && (jsonrpc || outcome.is_some()) => Meant::Response(named),
        _ => Meant::Unknown,
    }
}

/// Returns the raw id of a request that is no message, by what stands before the first mistake.
#[must_use]
pub fn id_of_request(beginning: &[u8]) -> Option<Box<str>> {
    if let Meant::Request(id) = meant(beginning) { Some(id) } else { None }
}

/// Returns the number of a call behind an id, also where the server has read it as a fraction: `7.0` or `7e0`.
fn number(id: &str) -> Option<u64> {
    echoed_number(id).or_else(|| id.parse::<f64>().ok()?.to_string().parse().ok())
}

/// The members that were seen, and the last id among them.
#[derive(Default)]
struct Seen<'a> {
    jsonrpc: bool,
    method: bool,
    /// `result` or `error`
    outcome: Option<Given>,
    id: Option<&'a str>,
}

/// What a member says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Given {
    /// Nothing: some servers write the members that they do not use.
    Null,
    Value,
}

impl<'de> Visitor<'de> for &mut Seen<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "jsonrpc" => self.jsonrpc = true,
                "method" => self.method = true,
                _ => {}
            }
            if key == "id" {
                self.id = Some(map.next_value::<&RawValue>()?.get());
                continue;
            }
            let value = map.next_value::<Option<IgnoredAny>>();
            if matches!(&*key, "result" | "error") {
                let given = if matches!(value, Ok(None)) { Given::Null } else { Given::Value };
                self.outcome = self.outcome.max(Some(given));
            }
            value?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Meant, meant};

    #[test]
    fn the_id_is_found_where_it_stands_before_the_cut() {
        for (beginning, number) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"xxx"#, Some(Some(7))),
            (r#"{ "id" : "7" , "result" : [1, "#, Some(Some(7))),
            (r#"{"jsonrpc":"2.0","result":{"id":7,"text":"xxx"#, Some(None)),
            (r#"{"jsonrpc":"2.0","result":{"text":"\"id\":7"},"id":8}"#, Some(Some(8))),
            (r#"{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{"#, None),
            (r#"{"method":"roots/list","id":7,"params":{"#, None),
            (r#"{"id":"#, None),
            (r#"{"result":{},"id":1"#, Some(None)),
            (r#"{"result":{},"id":12,"#, Some(Some(12))),
            (r#"{"result":{},"id":"unknown","#, None),
            (r#"{"jsonrpc":"2.0","result":{},"id":7.0}"#, Some(Some(7))),
            (r#"{"jsonrpc":"2.0","result":{},"id":70e-1}"#, Some(Some(7))),
            (r#"{"jsonrpc":"2.0","result":{},"id":7.5}"#, None),
            (r#"{"jsonrpc":"2.0","result":{},"id":1e999}"#, None),
            (r#"{"id":7,"text":"xxx"#, None),
            (r#"[{"id":7"#, None),
            ("", None),
        ] {
            let response = match meant(beginning.as_bytes()) {
                Meant::Response(number) => Some(number),
                Meant::Request(_) | Meant::Unanswerable | Meant::Unknown => None,
            };
            assert_eq!(response, number, "{beginning}");
        }
    }

    #[test]
    fn a_request_whose_end_is_missing_can_be_answered() {
        let request = |text: &str| meant(text.as_bytes());
        assert_eq!(
            request(r#"{"jsonrpc":"2.0","id":"q","method":"x","params":{"a":"#),
            Meant::Request(r#""q""#.into())
        );
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x","params":{{"#, "q".repeat(2000));
        assert_eq!(request(&long), Meant::Unanswerable);
    }

    #[test]
    fn a_request_with_a_result_or_an_error_is_a_response_where_its_id_is_a_number() {
        for members in [r#""result":{}"#, r#""error":7"#, r#""result":{"cut"#] {
            let both =
                |id: &str| meant(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping",{members}}}"#).as_bytes());
            assert_eq!(both("7"), Meant::Response(Some(7)), "{members}");
            assert_eq!(both(r#""q""#), Meant::Request(r#""q""#.into()), "{members}");
        }
        let null = br#"{"jsonrpc":"2.0","id":7,"method":"ping","result":null,"error":null}"#;
        assert_eq!(meant(null), Meant::Request("7".into()));
    }

    #[test]
    fn a_notification_whose_end_is_missing_is_no_response() {
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"xxx"#;
        assert_eq!(meant(notification), Meant::Unanswerable);
    }
}
