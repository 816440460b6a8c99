//! An authority that signs certificates.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority, and its own certificate.
pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// Returns an authority of that name.
pub(crate) fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
