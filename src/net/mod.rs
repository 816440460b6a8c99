//! What all outgoing HTTP shares: how it connects, what TLS trusts, small documents, and how URLs and errors are shown.

mod connector;
mod fetch;
mod tls;

pub use connector::{Connector, Stream};
pub use fetch::Fetcher;

pub use crate::config::without_secrets;

/// Returns the text of an error with those of its causes, which hyper's own `Display` leaves out, and what helps where
/// that is known.
#[must_use]
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let (mut cause, mut remedy) = (error.source(), tls::remedy(error));
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        remedy = remedy.or_else(|| tls::remedy(next));
        cause = next.source();
    }
    text.extend(remedy.into_iter().flat_map(|remedy| ["; ", remedy]));
    text
}
