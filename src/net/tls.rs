//! TLS towards other servers.

use std::{error::Error, io, sync::Arc};

use hyper_rustls::ConfigBuilderExt;
use rustls::{CertificateError, ClientConfig, InvalidMessage, crypto::aws_lc_rs};

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

/// Returns what an operator can do about an error of TLS; `None` for any other error.
pub(super) fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    // Errors of I/O, here one in another, do not name what they hold as their source.
    if let Some(outer) = error.downcast_ref::<io::Error>() {
        return remedy(outer.get_ref()?);
    }
    match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("add a private authority to those of the system, or name a file with all authorities in SSL_CERT_FILE")
        }
        // An error of webpki, which has no variant of rustls.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            Some(
                "the server shows the certificate of an authority; give it one of its own, and add the authority to those \
                 of the system, or name a file with all authorities in SSL_CERT_FILE",
            )
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("the server does not speak TLS on that port; check the port, or use http:// if that is meant")
        }
        _ => None,
    }
}
