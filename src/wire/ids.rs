//! The ids of sessions, tasks and questions: random UUIDs, accepted in one written form only.

use uuid::Uuid;

/// Reads an id in the form that taskgate gives out: 36 characters, lower case.
#[must_use]
pub fn parse(text: &str) -> Option<Uuid> {
    let given_out = text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if given_out { Uuid::try_parse(text).ok() } else { None }
}

/// Reads the id of a task. One of another form is as unknown as any: it becomes the nil id, which no task has.
#[must_use]
pub fn parse_task(text: &str) -> Uuid {
    parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_accepted_only_in_the_form_that_taskgate_gives_out() {
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(parse("01234567-89ab-cdef-0123-456789abcdef"), Some(id));
        for other in [
            "",
            "0123456789abcdef0123456789abcdef",
            "01234567-89AB-CDEF-0123-456789ABCDEF",
            "{01234567-89ab-cdef-0123-456789abcdef}",
            "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdef ",
            "0123456789ab-cdef-0123-4567-89abcdef",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }
}
