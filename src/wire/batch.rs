//! Several messages in one JSON array, as revision 2025-03-26 allows them.

use std::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Malformed, Message, message::refuse};

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

impl Message {
    /// Reads what an upstream sent, where revision 2025-03-26 allows a batch: the messages in their order.
    ///
    /// # Errors
    /// As for [`Message::parse`], for the first message that is malformed, and for a batch of more than [`MAX_BATCH`].
    pub fn parse_all(bytes: &Bytes) -> Result<Vec<Self>, Malformed> {
        match Self::parse(bytes.clone()) {
            Err(Malformed::Batch) => {
                let items: Batch<'_> = serde_json::from_slice(bytes).map_err(|error| {
                    let too_many = || Malformed::Invalid { reason: error.to_string(), id: None };
                    if error.is_data() { too_many() } else { refuse(bytes, &error) }
                })?;
                // Copies: each of them would keep the whole batch.
                items.0.into_iter().map(|raw| Self::parse(Bytes::copy_from_slice(raw.get().as_bytes()))).collect()
            }
            one => one.map(|message| vec![message]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Kind;

    #[test]
    fn an_upstream_batch_is_taken_apart() {
        let text = r#"[{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":1,"result":{}}]"#;
        let all = Message::parse_all(&Bytes::from_static(text.as_bytes())).expect("valid");
        assert_eq!(all.iter().map(Message::kind).collect::<Vec<_>>(), [Kind::Notification, Kind::Response]);
        assert_eq!(&all[1].bytes()[..], br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    }

    #[test]
    fn a_message_of_a_batch_keeps_no_more_than_its_own_size_and_there_are_only_so_many() {
        let item = r#"{"jsonrpc":"2.0","method":"a"}"#;
        let batch = |count: usize| Bytes::from(format!("[{}]", vec![item; count].join(",")));
        let all = Message::parse_all(&batch(MAX_BATCH)).expect("valid");
        assert_eq!(all.len(), MAX_BATCH);
        assert!(all.iter().all(|message| message.bytes().is_unique()));
        let refused = Message::parse_all(&batch(MAX_BATCH + 1)).expect_err("too many").to_string();
        assert!(refused.contains("more than 10000 messages"), "{refused}");
    }
}
