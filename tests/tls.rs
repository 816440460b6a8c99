//! An upstream over TLS: the system's root certificates decide whether it is trusted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::{net::SocketAddr, sync::Arc};

use kit::{Authority, Binary, Client, Upstream, authority};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustls::{ServerConfig, crypto::aws_lc_rs};
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

fn certificate_for(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

/// An MCP server with a port that speaks TLS.
struct TlsUpstream {
    mcp: Upstream,
    port: u16,
}

impl TlsUpstream {
    async fn start(certificate: &CertificateParams, signed_by: &Authority) -> Self {
        let key = KeyPair::generate().unwrap();
        let chain = vec![certificate.signed_by(&key, signed_by).unwrap().der().clone()];
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key.into())
            .unwrap();
        let mcp = Upstream::json().await;
        let plain = mcp.url().parse::<http::Uri>().unwrap().authority().unwrap().as_str().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(terminate(listener, TlsAcceptor::from(Arc::new(config)), plain));
        Self { mcp, port }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/mcp", self.port)
    }
}

/// Takes TLS off each connection and hands it to the plain server.
async fn terminate(listener: TcpListener, tls: TlsAcceptor, plain: SocketAddr) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let tls = tls.clone();
        tokio::spawn(async move {
            // A client that does not trust the certificate disconnects.
            let Ok(mut encrypted) = tls.accept(stream).await else { return };
            let mut server = TcpStream::connect(plain).await.unwrap();
            // How the connection ends is the business of its two sides.
            let _ = copy_bidirectional(&mut encrypted, &mut server).await;
        });
    }
}

/// Starts taskgate on a system whose only root certificate is `root`.
struct Taskgate {
    binary: Binary,
    _root: NamedTempFile,
}

impl Taskgate {
    fn start(upstream: &str, root: &str) -> Self {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), root).unwrap();
        let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", upstream];
        // An inherited directory would add the roots of this machine.
        let env = [("SSL_CERT_FILE", file.path().to_str().unwrap()), ("SSL_CERT_DIR", "")];
        Self { binary: Binary::start(&args, &env), _root: file }
    }
}

/// Returns the error for a `certificate` that is signed by `issuer` and not trusted through `root`.
async fn refusal(certificate: &CertificateParams, issuer: &Authority, root: &Authority) -> String {
    let upstream = TlsUpstream::start(certificate, issuer).await;
    let url = upstream.url("127.0.0.1");
    let taskgate = Taskgate::start(&url, &root.pem());
    let client = Client::new(&taskgate.binary.url().await);
    let (status, code, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603), "{message}");
    assert!(message.contains(&url), "{message}");
    assert!(upstream.mcp.seen().is_empty(), "nothing is sent to a server that is not trusted");
    message
}

#[tokio::test]
async fn an_https_upstream_is_trusted_through_the_roots_of_the_system() {
    let authority = authority("ours");
    let upstream = TlsUpstream::start(&certificate_for(&["127.0.0.1", "localhost"]), &authority).await;
    for host in ["127.0.0.1", "localhost"] {
        let taskgate = Taskgate::start(&upstream.url(host), &authority.pem());
        let client = Client::connect(&taskgate.binary.url().await).await;
        let result = client.ask("tools/call", json!({ "name": "echo", "arguments": { "over": host } })).await;
        assert_eq!(result["content"][0]["text"], json!({ "over": host }).to_string());
    }
}

#[tokio::test]
async fn a_task_works_over_tls() {
    let authority = authority("ours");
    let upstream = TlsUpstream::start(&certificate_for(&["127.0.0.1"]), &authority).await;
    let taskgate = Taskgate::start(&upstream.url("127.0.0.1"), &authority.pem());
    let client = Client::connect(&taskgate.binary.url().await).await;
    let id = client.create_id("slow").await;
    upstream.mcp.held("slow").await.result(r#"{"content":[{"type":"text","text":"done"}]}"#);
    client.until(&id, "completed").await;
    assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_an_error_that_says_so() {
    let message = refusal(&certificate_for(&["127.0.0.1"]), &authority("theirs"), &authority("ours")).await;
    assert!(message.contains("invalid peer certificate: UnknownIssuer"), "{message}");
    assert!(message.contains("; add a private authority to those of the system, or name a file"), "{message}");
}

#[tokio::test]
async fn a_server_that_shows_the_certificate_of_an_authority_is_told_to_have_one_of_its_own() {
    let (mut certificate, ours) = (certificate_for(&["127.0.0.1"]), authority("ours"));
    certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let message = refusal(&certificate, &ours, &ours).await;
    assert!(message.contains("give it one of its own, and add the authority to those of the system"), "{message}");
}

#[tokio::test]
async fn a_server_without_tls_behind_an_https_url_is_an_error_that_says_so_and_suggests_to_check_the_port() {
    let upstream = Upstream::json().await;
    let taskgate = Taskgate::start(&upstream.url().replace("http://", "https://"), &authority("ours").pem());
    let client = Client::new(&taskgate.binary.url().await);
    let (_, _, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert!(message.contains("; the server does not speak TLS on that port; check the port"), "{message}");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_an_error_that_says_so() {
    let authority = authority("ours");
    let message = refusal(&certificate_for(&["mcp.example"]), &authority, &authority).await;
    assert!(message.contains("invalid peer certificate: certificate not valid for name"), "{message}");
}

#[tokio::test]
async fn an_expired_certificate_is_an_error_that_says_so() {
    let authority = authority("ours");
    let mut certificate = certificate_for(&["127.0.0.1"]);
    certificate.not_after = date_time_ymd(2020, 1, 1);
    let message = refusal(&certificate, &authority, &authority).await;
    assert!(message.contains("invalid peer certificate: certificate expired"), "{message}");
}

#[tokio::test]
async fn a_system_without_root_certificates_is_an_error_at_the_start() {
    let ended = Taskgate::start("https://127.0.0.1:1/mcp", "").binary.end().await;
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("the system's root certificates cannot be read"), "{ended:?}");
}
