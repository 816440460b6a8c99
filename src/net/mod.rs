//! What all outgoing HTTP shares: how it connects, what TLS trusts, small documents, and how URLs and errors are shown.

mod connector;
mod fetch;
mod tls;

pub use connector::{Connector, Stream};
pub use fetch::Fetcher;
use http::Uri;

/// Returns a URL without what may be secret in it: credentials and the query.
#[must_use]
pub fn without_secrets(url: &Uri) -> String {
    let scheme = url.scheme_str().map_or_else(String::new, |scheme| format!("{scheme}://"));
    let host = url.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}{host}{}", url.path())
}

/// Returns the text of an error with those of its causes, which hyper's own `Display` leaves out.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_credentials_and_query() {
        for (url, expected) in [
            ("https://ann:secret@host:8443/a/b?key=secret", "https://host:8443/a/b"),
            ("http://[::1]:80", "http://[::1]:80/"),
            ("/messages?session_id=secret", "/messages"),
        ] {
            assert_eq!(without_secrets(&url.parse().expect("a URL")), expected);
        }
    }
}
