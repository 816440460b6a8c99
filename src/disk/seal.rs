//! Blobs at rest: each shows whether it was changed or moved, and can be read by the holder of the key only, if there
//! is one.
//!
//! A blob begins with its kind. Without a key a digest of its place and its bytes follows. With a key the number of the
//! data key follows, a nonce, and what AES-256-GCM makes of the bytes with the place as associated data. Each place has
//! a key of its own, derived from the data key, so that the number of random nonces under one key stays small.

use std::fmt;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    constant_time::verify_slices_are_equal,
    digest::{Context, SHA256},
    hmac,
};

/// The kind of a blob that is not sealed.
const PLAIN: u8 = 0;
/// The kind of a sealed blob.
const SEALED: u8 = 1;
/// The bytes of the digest in a blob that is not sealed.
const CHECK: usize = 16;

/// Where a blob stands. A blob is good at its place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The table.
    pub table: &'a str,
    /// The key of the row.
    pub row: &'a [u8],
    /// The column.
    pub column: &'a str,
}

/// A blob is not what was written at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value is not what was written at its place: the file is damaged")
    }
}

impl std::error::Error for Damaged {}

impl From<Damaged> for rusqlite::Error {
    fn from(damaged: Damaged) -> Self {
        Self::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(damaged))
    }
}

/// The keys that seal blobs, the newest last; none where the file is not sealed.
#[derive(Clone)]
pub struct Seals(Vec<DataKey>);

/// A key that blobs are sealed under.
#[derive(Clone)]
pub(super) struct DataKey {
    /// Its number in the file.
    pub generation: u32,
    pub key: [u8; 32],
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals").field("keys", &self.0.len()).finish()
    }
}

impl Place<'_> {
    /// Returns the bytes that stand for it, one way to read them.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24 + self.table.len() + self.row.len() + self.column.len());
        for part in [self.table.as_bytes(), self.row, self.column.as_bytes()] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

impl Seals {
    pub(super) fn new(keys: Vec<DataKey>) -> Self {
        Self(keys)
    }

    /// Returns whether blobs are sealed.
    #[must_use]
    pub fn seals(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the blob to write at `place`.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn seal(&self, place: Place<'_>, bytes: &[u8]) -> rusqlite::Result<Vec<u8>> {
        let place = place.bytes();
        let Some(newest) = self.0.last() else {
            return Ok([[PLAIN].as_slice(), &check(&place, bytes), bytes].concat());
        };
        let no_random = |_| rusqlite::Error::ToSqlConversionFailure("the system gives no random bytes".into());
        let mut blob = bytes.to_vec();
        let nonce = newest.of(&place).and_then(|key| key.seal_in_place_append_tag(Aad::from(&place), &mut blob));
        let nonce = nonce.map_err(no_random)?;
        Ok([[SEALED].as_slice(), &newest.generation.to_be_bytes(), nonce.as_ref(), &blob].concat())
    }

    /// Returns the bytes of the blob that stands at `place`.
    ///
    /// # Errors
    /// [`Damaged`]
    pub fn open(&self, place: Place<'_>, blob: &[u8]) -> Result<Vec<u8>, Damaged> {
        let place = place.bytes();
        let (kind, blob) = blob.split_first().ok_or(Damaged)?;
        if self.0.is_empty() {
            let (written, bytes) = blob.split_first_chunk::<CHECK>().filter(|_| *kind == PLAIN).ok_or(Damaged)?;
            verify_slices_are_equal(&check(&place, bytes), written).map_err(|_| Damaged)?;
            return Ok(bytes.to_vec());
        }
        let (generation, blob) = blob.split_first_chunk().filter(|_| *kind == SEALED).ok_or(Damaged)?;
        let (nonce, sealed) = blob.split_first_chunk::<NONCE_LEN>().ok_or(Damaged)?;
        let generation = u32::from_be_bytes(*generation);
        let key = self.0.iter().find(|key| key.generation == generation).ok_or(Damaged)?;
        let (key, nonce) = (key.of(&place).map_err(|_| Damaged)?, Nonce::assume_unique_for_key(*nonce));
        let mut sealed = sealed.to_vec();
        let length = key.open_in_place(nonce, Aad::from(&place), &mut sealed).map_err(|_| Damaged)?.len();
        sealed.truncate(length);
        Ok(sealed)
    }
}

impl Seals {
    /// Returns what stands in the table for an `id` that opens something to anyone who knows it: in a sealed file a
    /// code of it, and otherwise the id.
    #[must_use]
    pub(super) fn row(&self, table: &str, id: &[u8]) -> Vec<u8> {
        // The first data key stays when the operator's key is replaced, so that the rows do too.
        let Some(first) = self.0.first() else { return id.to_vec() };
        let rows = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &first.key), format!("rows of {table}").as_bytes());
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, rows.as_ref()), id).as_ref().to_vec()
    }
}

impl DataKey {
    /// Returns the key for one place.
    fn of(&self, place: &[u8]) -> Result<RandomizedNonceKey, aws_lc_rs::error::Unspecified> {
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), place);
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref())
    }
}

/// Returns the digest of a place and its bytes.
fn check(place: &[u8], bytes: &[u8]) -> [u8; CHECK] {
    let mut context = Context::new(&SHA256);
    context.update(place);
    context.update(bytes);
    let mut check = [0; CHECK];
    check.copy_from_slice(&context.finish().as_ref()[..CHECK]);
    check
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(count: u8) -> Seals {
        let key = |number: u8| DataKey { generation: number.into(), key: [number; 32] };
        Seals::new((0..count).map(key).collect())
    }

    const PLACE: Place<'_> = Place { table: "tasks", row: &[7], column: "record" };

    proptest! {
        #[test]
        fn a_blob_is_read_as_it_was_written_and_at_its_place_only(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..300, bit in 0u32..8, sealed: bool,
        ) {
            let seals = keys(u8::from(sealed) * 2);
            let blob = seals.seal(PLACE, &bytes).expect("random bytes");
            prop_assert_eq!(seals.open(PLACE, &blob), Ok(bytes.clone()));
            prop_assert!(!sealed || bytes.len() < 8 || !blob.windows(bytes.len()).any(|window| window == bytes));
            for other in [Place { row: &[8], ..PLACE }, Place { column: "call", ..PLACE }, Place { table: "calls", ..PLACE }] {
                prop_assert_eq!(seals.open(other, &blob), Err(Damaged));
            }
            let mut flipped = blob.clone();
            flipped[at % blob.len()] ^= 1 << bit;
            prop_assert_eq!(seals.open(PLACE, &flipped), Err(Damaged));
            prop_assert_eq!(seals.open(PLACE, &blob[..at % blob.len()]), Err(Damaged));
            prop_assert_eq!(keys(u8::from(!sealed)).open(PLACE, &blob), Err(Damaged));
        }

        #[test]
        fn any_bytes_are_opened_or_refused(blob in proptest::collection::vec(any::<u8>(), 0..100), sealed: bool) {
            prop_assert_eq!(keys(u8::from(sealed)).open(PLACE, &blob), Err(Damaged));
        }
    }

    #[test]
    fn a_row_tells_nothing_of_its_id_where_the_file_is_sealed_and_stays_when_keys_are_added() {
        let (id, row) = (b"an id", keys(1).row("sessions", b"an id"));
        assert_eq!(keys(0).row("sessions", id), id);
        assert_eq!((row.len(), keys(3).row("sessions", id)), (32, row.clone()));
        assert!(row != keys(1).row("sessions", b"another id") && row != keys(1).row("tasks", id));
    }

    #[test]
    fn what_was_sealed_under_an_older_data_key_is_read_under_the_newer_one() {
        let blob = keys(1).seal(PLACE, b"text").expect("random bytes");
        assert_eq!(keys(3).open(PLACE, &blob).as_deref(), Ok(b"text".as_slice()));
        let newer = keys(3).seal(PLACE, b"text").expect("random bytes");
        assert_eq!(keys(1).open(PLACE, &newer), Err(Damaged));
    }
}
