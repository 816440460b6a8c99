//! Outgoing HTTP, whoever it is for: TLS, and small documents.

mod fetch;
mod tls;

pub use fetch::Fetcher;
pub use tls::tls_config;

/// An error with its causes, which hyper's own `Display` leaves out.
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
