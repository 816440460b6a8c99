//! TLS towards other servers.

use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use rustls::{ClientConfig, crypto::aws_lc_rs};

/// Returns a configuration that trusts the system's roots.
///
/// # Errors
/// A sentence, if TLS cannot be set up or there are no roots.
pub(super) fn tls_config() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .with_native_roots()
        .map_err(|error| format!("the system's root certificates cannot be read: {error}"))?;
    Ok(builder.with_no_client_auth())
}
