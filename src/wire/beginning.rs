//! The beginning of a message whose rest was not read.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::message::echoed_number;

/// The number in the top-level `id` of a response, if it stands in the beginning of it.
#[must_use]
pub fn response_number(beginning: &[u8]) -> Option<u64> {
    let found = Cell::default();
    // A number at the cut may have gone on.
    let whole = beginning.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let beginning = &beginning[..whole];
    // That the text is cut off is an error, and no reason to forget what stands before.
    let _ = serde_json::Deserializer::from_slice(beginning).deserialize_map(FindId(&found));
    found.get()
}

/// Keeps the `id` as soon as it was read; a `method`, which no response has, lets it go again.
struct FindId<'a>(&'a Cell<Option<u64>>);

impl<'de> Visitor<'de> for FindId<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut request = false;
        while let Some(key) = map.next_key::<String>()? {
            request |= key == "method";
            if key == "id" {
                self.0.set(echoed_number(map.next_value::<&RawValue>()?.get()));
            }
            if request {
                self.0.set(None);
            }
            if key != "id" {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::response_number;

    #[test]
    fn the_id_is_found_where_it_stands_before_the_cut() {
        for (beginning, number) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"xxx"#, Some(7)),
            (r#"{ "id" : "7" , "result" : [1, "#, Some(7)),
            (r#"{"jsonrpc":"2.0","result":{"id":7,"text":"xxx"#, None),
            (r#"{"jsonrpc":"2.0","result":{"text":"\"id\":7"},"id":8}"#, Some(8)),
            (r#"{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{"#, None),
            (r#"{"method":"roots/list","id":7,"params":{"#, None),
            (r#"{"id":"#, None),
            (r#"{"result":{},"id":1"#, None),
            (r#"{"result":{},"id":12,"#, Some(12)),
            (r#"[{"id":7"#, None),
            ("", None),
        ] {
            assert_eq!(response_number(beginning.as_bytes()), number, "{beginning}");
        }
    }
}
