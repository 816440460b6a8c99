//! The `[server.tls]` section, and the TLS configuration that its files make.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::reader::{Entry, Section};
use super::values::text;

/// What stands in the file of a private key that has a passphrase.
const ENCRYPTED: &[u8] = b"ENCRYPTED";
const WITH_PASSPHRASE: &str =
    "the key has a passphrase, for which taskgate cannot ask; write it without one (openssl pkey -in … -out …)";

/// The `[server.tls]` section: the files for TLS towards clients, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// taskgate's certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities of clients. With them every client needs a certificate.
    pub client_ca: Option<PathBuf>,
}

impl Tls {
    /// Makes a configuration for TLS 1.2 and later, with HTTP/2 and HTTP/1.1 to choose from; waits for the file system.
    ///
    /// # Errors
    /// Says which file cannot be used, and why.
    pub fn load(&self) -> Result<ServerConfig, String> {
        let named = |path: &Path, why| format!("{}: {why}", path.display());
        let chain = chain(&self.cert).map_err(|why| named(&self.cert, why))?;
        let key = key(&self.key).map_err(|why| named(&self.key, why))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authorities(path).map_err(|why| named(path, why))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| named(path, error.to_string()))?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| self.do_not_fit(&error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        if self.client_ca.is_some() {
            // A session that is resumed would let in a certificate that has ended since: only a full handshake looks.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(config)
    }

    fn do_not_fit(&self, error: &rustls::Error) -> String {
        let (cert, key) = (self.cert.display(), self.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                format!(
                    "cert and key cannot be used together: the key in {key} is not that of the certificate in {cert}"
                )
            }
            error => format!("cert and key cannot be used together: {error} ({cert}, {key})"),
        }
    }

    /// Returns what stands in the files, or why one cannot be read; waits for the file system.
    pub fn contents(&self) -> impl Iterator<Item = Result<Vec<u8>, String>> {
        [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten().map(|path| read_file(path))
    }
}

/// Reads the section. Also returns whether every client needs a certificate, even where `client_ca` cannot be used.
pub(super) fn read(mut section: Section<'_>) -> (Option<Tls>, bool) {
    let (cert, key_entry) = (section.entry("cert"), section.entry("key"));
    for (entry, name) in [(&cert, "cert"), (&key_entry, "key")] {
        if entry.is_none() {
            section.missing(name, format!("missing; TLS needs the {name} as a file in PEM"));
        }
    }
    let client_ca = section.entry("client_ca").map(|entry| usable(&entry, authorities));
    let cert = cert.and_then(|entry| usable(&entry, chain));
    let key_file = key_entry.as_ref().and_then(|entry| usable(entry, key));
    section.finish();
    let certificates = client_ca.is_some();
    let client_ca = client_ca.map_or(Some(None), |path| path.map(Some));
    let (Some(cert), Some(key), Some(client_ca)) = (cert, key_file, client_ca) else { return (None, certificates) };
    let tls = Tls { cert, key, client_ca };
    if let (Err(why), Some(entry)) = (tls.load(), key_entry) {
        entry.fail(why);
    }
    (Some(tls), certificates)
}

/// Returns the path of a file that `read` can read.
fn usable<T>(entry: &Entry<'_>, read: impl FnOnce(&Path) -> Result<T, String>) -> Option<PathBuf> {
    entry.convert(|value| {
        let path = entry.path(&text(value)?);
        match read(&path) {
            Ok(_) => Ok(path),
            Err(why) => Err(format!("the file \"{}\" cannot be used: {why}", path.display())),
        }
    })
}

/// Reads what is a file. Opening a pipe would wait for its other end.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let is_file = fs::metadata(path).map_err(|error| error.to_string())?.is_file();
    if is_file { fs::read(path).map_err(|error| error.to_string()) } else { Err("it is not a file".to_owned()) }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read_file(path)?;
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("no certificates in PEM: {error}"))?;
    if chain.is_empty() { Err("no certificate in it".to_owned()) } else { Ok(chain) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = read_file(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        // As the label of PKCS #8 and the header of the older form have it.
        if pem.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
            WITH_PASSPHRASE.to_owned()
        } else {
            format!("no private key in PEM: {error}")
        }
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|error| format!("a certificate of no authority: {error}"))?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let tls = Tls { cert: pipe.clone(), key: pipe.clone(), client_ca: Some(pipe.clone()) };
        assert_eq!(tls.load().map(drop), Err(format!("{}: it is not a file", pipe.display())));
        assert!(tls.contents().all(|contents| contents == Err("it is not a file".to_owned())));
        assert!(key(&pipe).is_err() && authorities(&pipe).is_err());
    }

    #[test]
    fn a_key_with_a_passphrase_is_called_that_in_either_form() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let told = |label: &str, head: &str| {
            let pem = format!("-----BEGIN {label}-----\n{head}AAAA\n-----END {label}-----\n");
            fs::write(file.path(), pem).expect("room");
            key(file.path()).map(drop)
        };
        let older = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n";
        for told in [told("ENCRYPTED PRIVATE KEY", ""), told("RSA PRIVATE KEY", older)] {
            assert_eq!(told, Err(WITH_PASSPHRASE.to_owned()));
        }
        assert!(told("CERTIFICATE", "").is_err_and(|why| why.starts_with("no private key in PEM: ")));
    }
}
