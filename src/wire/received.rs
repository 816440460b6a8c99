//! What a server has sent: messages, and what the rest was probably meant as.

use bytes::Bytes;

use super::{
    Kind, Malformed, Message,
    batch::items,
    beginning::{Meant, meant},
};

/// One part of what a server sent at once.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Something else.
    Broken(Broken),
}

impl Received {
    /// Returns the message, if it is a request.
    #[must_use]
    pub fn request(&self) -> Option<&Message> {
        match self {
            Self::Message(message) if message.kind() == Kind::Request => Some(message),
            _ => None,
        }
    }
}

/// Something that is not a message.
#[derive(Debug)]
pub struct Broken {
    /// What is wrong with it, in a few words.
    pub why: String,
    /// What it may have been meant as.
    pub meant: Meant,
}

/// Returns what is wrong with the last part that is not a message, if there is one.
#[must_use]
pub fn last_mistake(all: &[Received]) -> Option<String> {
    all.iter().rev().find_map(|received| match received {
        Received::Broken(broken) => Some(broken.why.clone()),
        Received::Message(_) => None,
    })
}

/// Splits what a server sent into its parts: revision 2025-03-26 allows a batch.
#[must_use]
pub fn receive(bytes: &Bytes) -> Vec<Received> {
    let judge = |bytes: &Bytes, judged: Result<_, _>| {
        judged.map_or_else(|malformed| broken(bytes, malformed), Received::Message)
    };
    match Message::of_server(bytes.clone()) {
        Err(Malformed::Batch) => match items(bytes) {
            Ok(items) => items.map(|item| judge(&item, Message::of_server(item.clone()))).collect(),
            Err(malformed) => vec![broken(bytes, malformed)],
        },
        one => vec![judge(bytes, one)],
    }
}

fn broken(bytes: &[u8], malformed: Malformed) -> Received {
    Received::Broken(Broken { why: malformed.of_server(), meant: meant(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(text: &'static [u8]) -> Vec<Received> {
        receive(&Bytes::from_static(text))
    }

    fn meant_by(text: &'static [u8]) -> (Meant, String) {
        match received(text).pop() {
            Some(Received::Broken(Broken { why, meant })) => (meant, why),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_batch_is_split_and_one_bad_message_in_it_does_not_affect_the_others() {
        let text =
            br#"[{"jsonrpc":"2.0","method":"a"}, {"jsonrpc":"2.0","id":4}, {"jsonrpc":"2.0","id":1,"result":{}}]"#;
        let all = received(text);
        let [Received::Message(first), Received::Broken(second), Received::Message(third)] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((first.kind(), third.kind()), (Kind::Notification, Kind::Response));
        assert_eq!(&third.bytes()[..], br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(second.meant, Meant::Response(Some(4)));
    }

    #[test]
    fn a_malformed_response_is_recognised_by_its_id() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}"#[..],
            br#"{"jsonrpc":"2.0","id":7}"#,
            br#"{"jsonrpc":"2.0","id":"7","error":null}"#,
            br#"{"id":7,"result":{}}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xff\"}}",
            b"{\"jsonrpc\":\"2.0\",\"result\":{\"a\":\"\xff\"},\"id\":7}",
            br#"{"jsonrpc":"2.0","id":7,"result":{"cut"#,
        ] {
            let (meant, why) = meant_by(text);
            assert_eq!(meant, Meant::Response(Some(7)), "{why}");
            assert!(!why.is_empty() && why.len() < 200, "{why}");
        }
    }

    #[test]
    fn a_request_named_like_a_notification_is_no_message_and_can_be_answered() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":"r1","method":"notifications/cancelled","params":{"requestId":7}}"#[..],
            br#"{"jsonrpc":"2.0","id":"r1","method":"\u006eotifications\/progress","params":{"progressToken":7}}"#,
            br#"{"jsonrpc":"2.0","method":"notifications/vendor","id":"r1"}"#,
        ] {
            let (meant, why) = meant_by(text);
            assert_eq!(meant, Meant::Request(r#""r1""#.into()), "{why}");
            assert!(why.contains("that of a notification"), "{why}");
        }
    }

    #[test]
    fn a_log_line_that_looks_like_a_message_is_not_taken_for_one() {
        for text in
            [&br#"{"level":"info","id":7,"msg":"started"}"#[..], br#"{"id":7,"method":"GET"}"#, b"Listening", b"7"]
        {
            assert_eq!(meant_by(text).0, Meant::Unknown, "{}", String::from_utf8_lossy(text));
        }
        let (meant, _) = meant_by(br#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}"#);
        assert_eq!(meant, Meant::Request(r#""q""#.into()));
    }
}
