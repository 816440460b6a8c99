//! The ids that clients send back: of sessions, tasks and questions (`wire/ids.rs`), and of events (`wire/sse.rs`).
//! Each has one written form, the one that was given out.

use taskgate::wire::{ids, sse::EventId};
use uuid::Uuid;

/// Reads the input as either kind of id, and makes one of each from it.
pub fn check(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        assert_eq!(ids::parse(text).map(|id| id.to_string()), Some(text.to_owned()).filter(|text| is_uuid(text)));
        assert_eq!(EventId::parse(text).is_some(), is_event_id(text), "{text:?}");
        if let Some(id) = EventId::parse(text) {
            assert_eq!(id.to_string(), text);
        }
    }
    let number = |from: usize| {
        let mut bytes = [0; 8];
        input.iter().skip(from).take(8).enumerate().for_each(|(at, byte)| bytes[at] = *byte);
        u64::from_le_bytes(bytes)
    };
    let id = Uuid::from_u64_pair(number(0), number(8));
    assert_eq!(ids::parse(&id.to_string()), Some(id));
    let session = u32::try_from(number(16) >> 32).expect("32 bits");
    let id = EventId { session, stream: number(0), event: number(8) };
    assert_eq!(EventId::parse(&id.to_string()), Some(id));
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(|group| is_hex(group))
}

fn is_event_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [session, numbers @ ..] = &parts[..] else { return false };
    let number = |text: &&str| {
        let canonical = *text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
        canonical && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok()
    };
    session.len() == 8 && is_hex(session) && numbers.len() == 2 && numbers.iter().all(number)
}
