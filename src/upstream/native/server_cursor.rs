//! Cursors that lead from taskgate's list of tasks into the server's pages. Each works only in the session that got it.

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac, rand::SystemRandom};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};

use super::NativeTasks;
use crate::{upstream::Failure, wire::object::quote};

/// The beginning of these cursors; a cursor of taskgate's own pages has no dot.
const PREFIX: &str = "server.";
/// The longest cursor of a server that is carried, in bytes of JSON.
const MAX_CURSOR: usize = 4096;
const SEAL: usize = 16;

impl NativeTasks {
    /// Returns a raw cursor for the client, which stands for a raw cursor of the server or for its first page.
    ///
    /// # Errors
    /// [`Failure::Limit`] if it is too long.
    pub fn seal(&self, cursor: &str) -> Result<String, Failure> {
        if cursor.len() > MAX_CURSOR {
            let why = format!("limit reached: the server's cursor has more than {MAX_CURSOR} bytes");
            return Err(Failure::Limit(why));
        }
        let mut sealed = self.seal_of(cursor)?.to_vec();
        sealed.extend_from_slice(cursor.as_bytes());
        Ok(quote(&format!("{PREFIX}{}", BASE64.encode(sealed))))
    }

    /// Returns the server's raw cursor behind a client's cursor, empty for the first page. `None` if the cursor is one
    /// of taskgate's own pages, `Some(None)` if this session was not given it.
    #[must_use]
    pub fn unseal(&self, cursor: &str) -> Option<Option<String>> {
        let sealed = BASE64.decode(cursor.strip_prefix(PREFIX)?);
        Some(sealed.ok().and_then(|sealed| {
            let (seal, cursor) = sealed.split_at_checked(SEAL)?;
            let cursor = std::str::from_utf8(cursor).ok()?;
            verify_slices_are_equal(seal, &self.seal_of(cursor).ok()?).ok()?;
            Some(cursor.to_owned())
        }))
    }

    fn seal_of(&self, cursor: &str) -> Result<[u8; SEAL], Failure> {
        let key = if let Some(key) = self.cursor_key.get() {
            key
        } else {
            let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
            let key = key.map_err(|_| Failure::Limit("the system gives no random bytes".to_owned()))?;
            self.cursor_key.get_or_init(|| Box::new(key))
        };
        let mut seal = [0; SEAL];
        seal.copy_from_slice(&hmac::sign(key, cursor.as_bytes()).as_ref()[..SEAL]);
        Ok(seal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::object::unquote;

    #[test]
    fn a_cursor_works_only_in_its_session_and_unchanged() {
        let (ann, bob) = (NativeTasks::default(), NativeTasks::default());
        for theirs in ["", r#""page 2""#, r#""""#] {
            let raw = ann.seal(theirs).expect("short");
            let cursor = unquote(&raw).expect("text");
            assert_eq!(ann.unseal(&cursor), Some(Some(theirs.to_owned())));
            assert_eq!(bob.unseal(&cursor), Some(None));
            assert_eq!(ann.unseal(&format!("{cursor}AA")), Some(None));
        }
        assert_eq!(ann.unseal("AAAA"), None, "one of taskgate's own");
        assert_eq!(ann.unseal("server."), Some(None));
        assert!(ann.seal(&"x".repeat(MAX_CURSOR + 1)).is_err());
    }
}
