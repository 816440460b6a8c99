//! Cursors of `tasks/list`: a place in the list of one owner, sealed with a key that lives as long as the tasks.

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};

use crate::identity::{Owner, OwnerKind};

/// How many bytes of HMAC-SHA256 seal a cursor.
const SEAL: usize = 16;

/// Makes cursors, and reads them again.
pub(super) struct Cursors {
    /// Prepared at each use, which is rare: a start would wait for it.
    key: [u8; 32],
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursors").finish_non_exhaustive()
    }
}

impl Cursors {
    /// Returns cursors under a key.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: *key }
    }

    /// Returns the cursor that stands for what comes after `place` in the list of `owner`.
    pub(super) fn seal(&self, owner: &Owner, place: u64) -> String {
        let place = place.to_be_bytes();
        let tag = self.tag(owner, place);
        BASE64.encode([place.as_slice(), &tag.as_ref()[..SEAL]].concat())
    }

    /// Returns the place that a cursor stands for; `None` if this owner has not got it under this key.
    pub(super) fn open(&self, owner: &Owner, cursor: &str) -> Option<u64> {
        let bytes: [u8; 8 + SEAL] = BASE64.decode(cursor).ok()?.try_into().ok()?;
        let (place, seal) = bytes.split_first_chunk()?;
        let tag = self.tag(owner, *place);
        verify_slices_are_equal(&tag.as_ref()[..SEAL], seal).ok()?;
        Some(u64::from_be_bytes(*place))
    }

    /// Returns the tag of a place in the list of `owner`. The owner goes in last, as its name may have any length: so
    /// no two pairs of a place and an owner give the same bytes.
    fn tag(&self, owner: &Owner, place: [u8; 8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.key));
        context.update(&place);
        match owner.kind() {
            OwnerKind::Session(id) => {
                context.update(b"session");
                context.update(id.as_bytes());
            }
            // Nothing lists the tasks of these.
            OwnerKind::Anyone { upstream } => {
                context.update(b"anyone");
                context.update(upstream.as_str().as_bytes());
            }
            OwnerKind::Principal { upstream, name } => {
                context.update(b"principal");
                let path = upstream.as_str().as_bytes();
                context.update(&path.len().to_be_bytes());
                context.update(path);
                context.update(name.as_bytes());
            }
        }
        context.sign()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_owner_its_key_and_as_it_is_only() {
        let cursors = Cursors::new(&[1; 32]);
        let ann = Owner::principal("/mcp".into(), "ann".into());
        let cursor = cursors.seal(&ann, 7);
        assert_eq!(cursors.open(&ann, &cursor), Some(7));
        assert_eq!(Cursors::new(&[1; 32]).open(&ann, &cursor), Some(7), "after a restart");
        assert_eq!(Cursors::new(&[2; 32]).open(&ann, &cursor), None, "another key");
        for other in [
            Owner::principal("/other".into(), "ann".into()),
            Owner::principal("/mcp".into(), "anna".into()),
            Owner::session(Uuid::nil()),
        ] {
            assert_eq!(cursors.open(&other, &cursor), None);
        }
        let bytes = BASE64.decode(&cursor).expect("base64");
        assert_eq!(bytes.len(), 8 + SEAL);
        for bit in 0..8 * bytes.len() {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cursors.open(&ann, &BASE64.encode(forged)), None, "bit {bit}");
        }
        assert_eq!(cursors.open(&ann, &cursor[..cursor.len() - 4]), None, "a part of the seal");
    }
}
