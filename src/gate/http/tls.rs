//! TLS towards clients, with files that may change.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{config, identity::Certificate};

/// What every connection begins with where `[server.tls]` is configured.
#[derive(Debug)]
pub struct Tls {
    files: config::Tls,
    current: RwLock<Arc<ServerConfig>>,
    /// The contents of the files that were tried last.
    tried: Mutex<u64>,
}

impl Tls {
    /// Reads the files; waits for the file system.
    ///
    /// # Errors
    /// Says which file cannot be used, and why.
    pub fn new(files: config::Tls) -> Result<Self, String> {
        let tried = Mutex::new(contents(&files));
        let current = RwLock::new(Arc::new(files.load()?));
        Ok(Self { files, current, tried })
    }

    /// Reads the files again if they have changed. Where they cannot be used the connections to come begin as those
    /// before; waits for the file system.
    pub fn refresh(&self) {
        let found = contents(&self.files);
        if std::mem::replace(&mut *self.tried.lock(), found) == found {
            return;
        }
        match self.files.load() {
            Ok(config) => {
                *self.current.write() = Arc::new(config);
                tracing::info!("the certificate of the server was read again");
            }
            Err(why) => tracing::warn!(why, "the changed certificate of the server cannot be used; the old one stays"),
        }
    }

    /// Shakes hands on a connection.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsConnection> {
        let config = Arc::clone(&self.current.read());
        let stream = TlsAcceptor::from(config).accept(stream).await?;
        let (_, session) = stream.get_ref();
        let http1 = session.alpn_protocol() != Some(b"h2");
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.and_then(|certificate| Certificate::read(certificate)).map(Arc::new);
        Ok(TlsConnection { stream, http1, certificate })
    }

    /// Shakes hands on a connection on which HTTP/1.1 is spoken, whatever the client prefers.
    pub(super) async fn accept_http1(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ServerConfig::clone(&self.current.read());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config)).accept(stream).await
    }
}

/// A connection after its handshake.
pub(super) struct TlsConnection {
    pub(super) stream: TlsStream<TcpStream>,
    /// Which version of HTTP was agreed.
    pub(super) http1: bool,
    /// What the client's certificate says, if it had one.
    pub(super) certificate: Option<Arc<Certificate>>,
}

fn contents(files: &config::Tls) -> u64 {
    let mut hasher = DefaultHasher::new();
    files.contents().for_each(|contents| contents.ok().hash(&mut hasher));
    hasher.finish()
}
