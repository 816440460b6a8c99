//! While the process starts it does not know yet which sessions and tasks there are, so clients are told to try again.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::{listener::accept, tls::Tls, unavailable::tell};
use crate::wire::RpcError;

/// How many connections are told at once. Further ones are just closed.
const AT_ONCE: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Answers 503 on every connection until `starting` is done. Hosts drop a server after one 404.
pub async fn while_starting<T>(tcp: &TcpListener, tls: Option<&Arc<Tls>>, starting: impl Future<Output = T>) -> T {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut starting = pin!(starting);
    loop {
        let (stream, _) = tokio::select! {
            biased;
            started = &mut starting => return started,
            accepted = accept(tcp, || false) => accepted,
        };
        let Ok(turn) = Arc::clone(&turns).try_acquire_owned() else { continue };
        let tls = tls.cloned();
        tokio::spawn(async move {
            refuse(stream, tls).await;
            drop(turn);
        });
    }
}

async fn refuse(stream: TcpStream, tls: Option<Arc<Tls>>) {
    let body = RpcError::internal("taskgate is starting; try again in a moment").to_response(None);
    match tls {
        None => tell(stream, &body).await,
        Some(tls) => {
            // A client that speaks HTTP/2 alone finds the connection closed.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept_http1(stream)).await {
                tell(stream, &body).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName};
    use tempfile::TempDir;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::oneshot,
    };
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::config;

    /// Returns TLS as it is configured, and a client that trusts it and prefers HTTP/2.
    fn tls(folder: &TempDir) -> (Arc<Tls>, TlsConnector) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let (cert, key) = (file("cert.pem", certificate.pem()), file("key.pem", key.serialize_pem()));
        let tls = Tls::new(config::Tls { cert, key, client_ca: None }).expect("TLS");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).expect("a root");
        let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let client = client.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        let mut client = client.with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        (Arc::new(tls), TlsConnector::from(Arc::new(client)))
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let client = TcpStream::connect(tcp.local_addr().expect("an address")).await.expect("a connection");
        (client, tcp.accept().await.expect("a connection").0)
    }

    #[tokio::test]
    async fn a_client_that_prefers_http2_is_told_in_http1() {
        let folder = TempDir::new().expect("a folder");
        let (tls, connector) = tls(&folder);
        let (client, server) = pair().await;
        let asking = async {
            let name = ServerName::try_from("localhost").expect("a name");
            let mut connection = connector.connect(name, client).await.expect("a handshake");
            assert_eq!(connection.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
            connection.write_all(b"POST /mcp HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("taskgate is starting"), "{answer}");
        };
        tokio::join!(refuse(server, Some(tls)), asking);
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_never_ends_is_given_up() {
        let folder = TempDir::new().expect("a folder");
        let (_client, server) = pair().await;
        let refused = refuse(server, Some(tls(&folder).0));
        assert!(timeout(2 * HANDSHAKE, refused).await.is_ok());
    }

    #[tokio::test]
    async fn clients_are_told_to_try_again_until_the_start_is_over() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("an address");
        let (done, started) = oneshot::channel::<()>();
        let asking = async {
            for _ in 0..3 {
                let mut connection = TcpStream::connect(address).await.expect("a connection");
                connection.write_all(b"POST /mcp HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
                let mut answer = String::new();
                connection.read_to_string(&mut answer).await.expect("an answer");
                assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
                assert!(answer.contains("taskgate is starting"), "{answer}");
            }
            drop(done);
        };
        let (started, ()) = tokio::join!(while_starting(&tcp, None, started), asking);
        assert!(started.is_err(), "its result is handed on");
    }
}
