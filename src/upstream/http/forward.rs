//! The headers that every request to one server gets besides those of its client.

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;

use crate::config::{Forward, Secret, header_value};

/// The configured headers, the same for all clients.
#[derive(Debug)]
pub(super) struct AddedHeaders {
    /// Whether the server sees the client's own `Authorization`, so that a 401 is about the client.
    pub(super) clients_own: bool,
    headers: Vec<(HeaderName, RwLock<AddedValue>)>,
}

#[derive(Debug)]
struct AddedValue {
    /// Where the value comes from.
    secret: Secret,
    sent: HeaderValue,
    /// Why the secret's file could not be used last time, if it could not.
    wrong: Option<String>,
}

impl AddedHeaders {
    pub(super) fn new(forward: Forward) -> Self {
        let value = |(name, secret): (HeaderName, Secret)| {
            let sent = header_value(&secret)?;
            Some((name, RwLock::new(AddedValue { secret, sent, wrong: None })))
        };
        let headers = forward.headers.into_iter().filter_map(value).collect();
        Self { clients_own: forward.authorization, headers }
    }

    /// Puts the headers into a request, in place of others of the same names.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name, value.read().sent.clone());
        }
    }

    pub(super) fn reads_files(&self) -> bool {
        self.headers.iter().any(|(_, value)| value.read().secret.file().is_some())
    }

    /// Reads the values that come from files again, for the server behind the path `upstream`. Keeps the old value
    /// where the new one cannot be used. Blocks for the file system.
    pub(super) fn refresh(&self, upstream: &str) {
        for (name, value) in &self.headers {
            let Some(read) = value.read().secret.reread() else { continue };
            let usable = read.and_then(|secret| {
                let sent = header_value(&secret).ok_or("its value has characters that a header cannot have")?;
                Ok((secret, sent))
            });
            let mut value = value.write();
            match usable {
                Ok((secret, sent)) if secret != value.secret => {
                    tracing::info!(upstream, %name, "the value of a header for a server was read again");
                    *value = AddedValue { secret, sent, wrong: None };
                }
                Ok(_) => value.wrong = None,
                Err(why) if value.wrong.as_ref() != Some(&why) => {
                    tracing::warn!(upstream, %name, why, "the old value of a header for a server is sent on");
                    value.wrong = Some(why);
                }
                Err(_) => {}
            }
        }
    }
}
