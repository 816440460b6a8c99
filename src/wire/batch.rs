//! Several messages in one JSON array, as revision 2025-03-26 allows them.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::Malformed;

/// The most messages of one batch: each takes more memory than its text.
pub const MAX_BATCH: usize = 10_000;

/// The items of a batch, counted while they are read.
struct Batch<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Batch<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;

        impl<'de> Visitor<'de> for Items {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a batch of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut batch: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = batch.next_element()? {
                    if items.len() == MAX_BATCH {
                        return Err(A::Error::custom(format_args!("a batch has more than {MAX_BATCH} messages")));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }

        deserializer.deserialize_seq(Items).map(Self)
    }
}

/// Splits a batch into the bytes of its messages. They are copies: a slice would keep the whole batch.
///
/// # Errors
/// [`Malformed`] if `bytes` are not a JSON array, or one of more than [`MAX_BATCH`] items.
pub(super) fn items(bytes: &Bytes) -> Result<impl Iterator<Item = Bytes>, Malformed> {
    let items: Batch<'_> = serde_json::from_slice(bytes).map_err(|error| {
        let reason = error.to_string();
        if error.is_data() { Malformed::Invalid { reason, id: None } } else { Malformed::NotJson(reason) }
    })?;
    Ok(items.0.into_iter().map(|raw| Bytes::copy_from_slice(raw.get().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_batch_keeps_only_its_own_bytes_and_a_batch_is_bounded() {
        let item = r#"{"jsonrpc":"2.0","method":"a"}"#;
        let batch = |count: usize| Bytes::from(format!("[{}]", vec![item; count].join(",")));
        let whole = batch(MAX_BATCH);
        let all: Vec<Bytes> = items(&whole).expect("valid").collect();
        assert_eq!(all.len(), MAX_BATCH);
        assert!(all.iter().all(Bytes::is_unique));
        let refused = items(&batch(MAX_BATCH + 1)).map(Iterator::count).expect_err("too many").to_string();
        assert!(refused.contains("more than 10000 messages"), "{refused}");
    }
}
