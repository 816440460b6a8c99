//! The keys in the file: data keys, wrapped by the key of the operator, and what taskgate signs and seals with for
//! clients.
//!
//! Blobs are sealed under a data key. A new key of the operator wraps the data keys anew, and new blobs get a new data
//! key. The new key also opens what was sealed before. The replaced key opens no copy that is made later.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    error::Unspecified,
    hmac, rand,
};
use rusqlite::{Connection, OptionalExtension as _};

use super::{
    Place, Seals, Unavailable, is_damage,
    seal::{Damaged, DataKey},
};

/// Length of the name of an operator's key, in bytes.
const NAME: usize = 16;

/// Why there are no [`Seals`] to open and seal blobs with.
#[derive(Debug)]
pub(super) enum NoSeals {
    /// The file is sealed, and there is no key.
    NoKey,
    /// The file is sealed by another key.
    WrongKey,
    /// There is a key, and the file is not sealed.
    NotSealed,
    /// A data key is not what was written.
    Damaged,
    /// The system gives no random bytes.
    NoRandom,
    /// The file does not answer.
    Sql(rusqlite::Error),
}

/// A key of the operator, for this file.
struct Wrapping {
    /// Which key wraps a data key, without telling the key.
    name: [u8; NAME],
    key: [u8; 32],
}

/// A wrapped data key as it stands in the file.
struct Wrapped {
    generation: u32,
    by: Vec<u8>,
    key: Vec<u8>,
}

impl Wrapping {
    fn new(secret: &str, salt: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let derive = |purpose: &str| {
            let mut derived = [0; 32];
            derived.copy_from_slice(hmac::sign(&secret, &[purpose.as_bytes(), salt].concat()).as_ref());
            derived
        };
        let mut name = [0; NAME];
        name.copy_from_slice(&derive("taskgate: name of the key")[..NAME]);
        Self { name, key: derive("taskgate: key of data keys") }
    }

    fn wrap(&self, key: &DataKey) -> Result<Vec<u8>, Unspecified> {
        let mut wrapped = key.key.to_vec();
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &self.key)?;
        let nonce = cipher.seal_in_place_append_tag(Aad::from(key.generation.to_be_bytes()), &mut wrapped)?;
        Ok([nonce.as_ref().as_slice(), &wrapped].concat())
    }

    fn unwrap(&self, wrapped: &Wrapped) -> Option<DataKey> {
        let (nonce, sealed) = wrapped.key.split_first_chunk::<NONCE_LEN>()?;
        let (nonce, mut sealed) = (Nonce::assume_unique_for_key(*nonce), sealed.to_vec());
        let cipher = RandomizedNonceKey::new(&AES_256_GCM, &self.key).ok()?;
        let generation = wrapped.generation;
        let key = cipher.open_in_place(nonce, Aad::from(generation.to_be_bytes()), &mut sealed).ok()?;
        Some(DataKey { generation, key: (&*key).try_into().ok()? })
    }
}

impl From<rusqlite::Error> for NoSeals {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Unspecified> for NoSeals {
    fn from(_: Unspecified) -> Self {
        Self::NoRandom
    }
}

/// Gives a new file its first data key, if `key` is to seal it.
pub(super) fn begin(connection: &Connection, key: Option<&str>, salt: &[u8]) -> Result<(), NoSeals> {
    key.map_or(Ok(()), |key| add(connection, &Wrapping::new(key, salt), 0).map(drop))
}

/// Returns what opens and seals blobs. Where one of `old` wraps the data keys, `key` wraps them from now on, and new
/// blobs get a new data key. Changes nothing where the keys are wrong.
pub(super) fn unlock(
    connection: &Connection,
    key: Option<&str>,
    old: &[String],
    salt: &[u8],
) -> Result<Seals, NoSeals> {
    let rows = wrapped_keys(connection)?;
    let (Some(last), Some(key)) = (rows.last(), key) else {
        return match (rows.is_empty(), key) {
            (true, None) => Ok(Seals::new(Vec::new())),
            (true, Some(_)) => Err(NoSeals::NotSealed),
            (false, _) => Err(NoSeals::NoKey),
        };
    };
    let current = Wrapping::new(key, salt);
    let unwrap_all =
        |by: &Wrapping| rows.iter().map(|row| by.unwrap(row).ok_or(NoSeals::Damaged)).collect::<Result<Vec<_>, _>>();
    if last.by == current.name {
        return unwrap_all(&current).map(Seals::new);
    }
    let old = old.iter().map(|old| Wrapping::new(old, salt)).find(|old| last.by == old.name);
    let mut keys = unwrap_all(&old.ok_or(NoSeals::WrongKey)?)?;
    let transaction = connection.unchecked_transaction()?;
    for key in &keys {
        let update = "UPDATE data_keys SET wrapped_by = ?2, wrapped = ?3 WHERE generation = ?1";
        transaction.execute(update, (key.generation, current.name, current.wrap(key)?))?;
    }
    keys.push(add(&transaction, &current, last.generation + 1)?);
    let seals = Seals::new(keys);
    reseal(&transaction, &seals)?;
    transaction.commit()?;
    Ok(seals)
}

/// Returns what opens blobs, if any of `keys` wraps the data keys or there are none, and calls `damaged` for those that
/// nothing unwraps. Where there is no key, and the file does not say whether it needs one, it is taken for one that is
/// not sealed.
pub(super) fn unlock_to_read(
    connection: &Connection,
    keys: &[String],
    mut damaged: impl FnMut(String),
) -> Result<Seals, NoSeals> {
    let rows = match wrapped_keys(connection) {
        Err(error) if keys.is_empty() && is_damage(&error) => {
            damaged(format!("its data keys cannot be read: {error}; it is read as a file that is not sealed"));
            Vec::new()
        }
        rows => rows?,
    };
    let Some(last) = rows.last() else { return Ok(Seals::new(Vec::new())) };
    let salt: Vec<u8> = connection.query_row("SELECT salt FROM state", (), |row| row.get(0))?;
    let by = keys.iter().map(|key| Wrapping::new(key, &salt)).find(|key| last.by == key.name);
    let by = by.ok_or(if keys.is_empty() { NoSeals::NoKey } else { NoSeals::WrongKey })?;
    let mut unwrapped = Vec::new();
    for row in &rows {
        match by.unwrap(row) {
            Some(key) => unwrapped.push(key),
            None => damaged(format!(
                "data key {} is not what was written, nor can be read what it has sealed",
                row.generation
            )),
        }
    }
    if unwrapped.is_empty() { Err(NoSeals::Damaged) } else { Ok(Seals::new(unwrapped)) }
}

/// Returns the data keys as they stand in the file, the newest last.
fn wrapped_keys(connection: &Connection) -> rusqlite::Result<Vec<Wrapped>> {
    let select = "SELECT generation, wrapped_by, wrapped FROM data_keys ORDER BY generation";
    let mut all = connection.prepare(select)?;
    let rows = all.query_map((), |row| Ok(Wrapped { generation: row.get(0)?, by: row.get(1)?, key: row.get(2)? }))?;
    rows.collect()
}

/// Adds a new data key.
fn add(connection: &Connection, by: &Wrapping, generation: u32) -> Result<DataKey, NoSeals> {
    let mut key = [0; 32];
    rand::fill(&mut key)?;
    let key = DataKey { generation, key };
    let insert = "INSERT INTO data_keys (generation, wrapped_by, wrapped) VALUES (?1, ?2, ?3)";
    connection.execute(insert, (generation, by.name, by.wrap(&key)?))?;
    Ok(key)
}

/// Seals under the newest data key what does not go by itself. Tasks do when their ttls are over.
fn reseal(connection: &Connection, seals: &Seals) -> Result<(), NoSeals> {
    for (table, id) in [("keys", "name"), ("sessions", "id")] {
        let mut all = connection.prepare(&format!("SELECT CAST({id} AS BLOB), value FROM {table}"))?;
        let mut update = connection.prepare(&format!("UPDATE {table} SET value = ?2 WHERE CAST({id} AS BLOB) = ?1"))?;
        let rows = all.query_map((), |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        for (row, value) in rows.collect::<Result<Vec<_>, _>>()? {
            let place = Place { table, row: &row, column: "value" };
            let value = seals.open(place, &value).map_err(rusqlite::Error::from)?;
            update.execute((&row, seals.seal(place, &value)?))?;
        }
    }
    Ok(())
}

impl super::Disk {
    /// Returns the key of this name, which is made when it is asked for first and stays the same from then on. It waits
    /// for as long as that takes: the first write of a start brings the log into the file.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn key(&self, name: &'static str) -> Result<[u8; 32], Unavailable> {
        let seals = std::sync::Arc::clone(self.seals());
        let mut answered = self.begin_write(move |connection| {
            let place = Place { table: "keys", row: name.as_bytes(), column: "value" };
            let select = "SELECT value FROM keys WHERE name = ?1";
            let found: Option<Vec<u8>> = connection.query_row(select, [name], |row| row.get(0)).optional()?;
            if let Some(found) = found {
                return Ok(seals.open(place, &found)?.try_into().map_err(|_| Damaged)?);
            }
            let mut key = [0; 32];
            let no_random = |_| rusqlite::Error::ToSqlConversionFailure("the system gives no random bytes".into());
            rand::fill(&mut key).map_err(no_random)?;
            let insert = "INSERT INTO keys (name, value) VALUES (?1, ?2)";
            connection.execute(insert, (name, seals.seal(place, &key)?))?;
            Ok(key)
        })?;
        super::answer_at_last(&mut answered).await?
    }
}
