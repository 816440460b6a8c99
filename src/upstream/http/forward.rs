//! What every request to one server gets besides what its client sends.

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::RwLock;

use crate::config::{Forward, Secret, header_value};

/// The headers that are the same for all clients.
#[derive(Debug)]
pub(super) struct Added {
    /// Whether a 401 is about the client, as it was its own `Authorization` that the server saw.
    pub(super) clients_own: bool,
    headers: Vec<(HeaderName, RwLock<Value>)>,
}

#[derive(Debug)]
struct Value {
    /// Where it comes from.
    secret: Secret,
    sent: HeaderValue,
    /// Why the file of the secret could not be used the last time, if it could not.
    wrong: Option<String>,
}

impl Added {
    pub(super) fn new(forward: Forward) -> Self {
        let value = |(name, secret): (HeaderName, Secret)| {
            let sent = header_value(&secret)?;
            Some((name, RwLock::new(Value { secret, sent, wrong: None })))
        };
        let headers = forward.headers.into_iter().filter_map(value).collect();
        Self { clients_own: forward.authorization, headers }
    }

    /// Puts the headers into a request, in the place of any others of their names.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name, value.read().sent.clone());
        }
    }

    pub(super) fn reads_files(&self) -> bool {
        self.headers.iter().any(|(_, value)| value.read().secret.file().is_some())
    }

    /// Reads the values for the server behind the path `upstream` again that stand in files. One that cannot be used leaves the old one; waits for the file system.
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
                    *value = Value { secret, sent, wrong: None };
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
