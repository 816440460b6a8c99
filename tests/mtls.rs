//! TLS from clients, and clients that their certificates identify.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::{path::PathBuf, sync::Arc, time::Duration};

use kit::{Authority, Binary, Client, Gate, Upstream, authority, soon, within};
use rcgen::{CertificateParams, Issuer, KeyPair, SanType};
use rustls::{ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, crypto::aws_lc_rs, version};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A certificate and its key, in PEM and as rustls has them.
struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Identity {
    fn new(names: Vec<SanType>, issuer: &Issuer<'_, KeyPair>) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        Self { certificate: params.signed_by(&key, issuer).unwrap(), key }
    }

    fn of_client(uri: &str, issuer: &Issuer<'_, KeyPair>) -> Self {
        Self::new(vec![SanType::URI(uri.try_into().unwrap())], issuer)
    }
}

/// The files of `[server.tls]`, and the authority behind them.
struct Files {
    folder: TempDir,
    authority: Authority,
    clients: Authority,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: authority("servers"),
            clients: authority("clients"),
        };
        files.renew();
        std::fs::write(files.path("ca.pem"), files.clients.pem()).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a new certificate; returns what clients will see of it.
    fn renew(&self) -> Vec<u8> {
        let server = Identity::new(vec![SanType::IpAddress([127, 0, 0, 1].into())], &self.authority);
        std::fs::write(self.path("key.pem"), server.key.serialize_pem()).unwrap();
        std::fs::write(self.path("cert.pem"), server.certificate.pem()).unwrap();
        server.certificate.der().to_vec()
    }

    fn toml(&self, client_ca: bool) -> String {
        let line = |key: &str, name: &str| format!("{key} = '{}'\n", self.path(name).display());
        let client_ca = if client_ca { line("client_ca", "ca.pem") } else { String::new() };
        format!("[server.tls]\n{}{}{client_ca}", line("cert", "cert.pem"), line("key", "key.pem"))
    }

    /// Returns what a client trusts, and who it is.
    fn client(
        &self,
        identity: Option<&Identity>,
        alpn: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
        let mut config = match identity {
            Some(Identity { certificate, key }) => {
                let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

fn authority_of(url: &str) -> &str {
    url.trim_start_matches("https://").split('/').next().unwrap()
}

/// Returns a connection whose server has accepted the client.
async fn shake_hands(url: &str, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(authority_of(url)).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect("127.0.0.1".try_into().unwrap(), stream).await?;
    // A server that wants a certificate says so after the client's part of the handshake.
    stream.write_all(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        stream.read_u8().await?;
    }
    Ok(stream)
}

/// Returns what a client sees of a handshake: the server's certificate, and which HTTP was agreed.
async fn handshake(url: &str, config: ClientConfig) -> std::io::Result<(Vec<u8>, Option<Vec<u8>>)> {
    let stream = shake_hands(url, config).await?;
    let session = stream.get_ref().1;
    Ok((session.peer_certificates().unwrap()[0].to_vec(), session.alpn_protocol().map(<[u8]>::to_vec)))
}

/// Starts a port that speaks plain text and passes each connection to the endpoint over TLS.
async fn tunnel(url: &str, config: ClientConfig) -> String {
    let (to, connector) = (authority_of(url).to_owned(), TlsConnector::from(Arc::new(config)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut plain, _) = listener.accept().await.unwrap();
            let (to, connector) = (to.clone(), connector.clone());
            tokio::spawn(async move {
                let stream = TcpStream::connect(to).await?;
                let mut stream = connector.connect("127.0.0.1".try_into().unwrap(), stream).await?;
                copy_bidirectional(&mut plain, &mut stream).await
            });
        }
    });
    own
}

#[tokio::test]
async fn clients_reach_the_endpoint_over_either_version_of_tls_and_of_http() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let gate = Gate::with(&upstream, &files.toml(false)).await;
    assert!(gate.url.starts_with("https://127.0.0.1:"), "{}", gate.url);
    for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
        let http1 = Client::connect(&tunnel(&gate.url, files.client(None, &["http/1.1"], versions)).await).await;
        assert_eq!(http1.ask("ping", json!({})).await, json!({}));
        let http2 = Client::http2(&tunnel(&gate.url, files.client(None, &["h2"], versions)).await);
        let http2 = http2.initialize("2025-11-25", json!({})).await;
        let id = http2.create_id("slow").await;
        upstream.held("slow").await.result("{}");
        http2.until(&id, "completed").await;
        let (_, agreed) = handshake(&gate.url, files.client(None, &["h2", "http/1.1"], versions)).await.unwrap();
        assert_eq!(agreed.as_deref(), Some(&b"h2"[..]));
        let (_, agreed) = handshake(&gate.url, files.client(None, &[], versions)).await.unwrap();
        assert_eq!(agreed, None);
    }
}

#[tokio::test]
async fn a_plain_text_request_to_a_tls_port_gets_no_answer() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let gate = Gate::with(&upstream, &files.toml(false)).await;
    let mut plain = TcpStream::connect(authority_of(&gate.url)).await.unwrap();
    plain.write_all(b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = soon(plain.read_to_end(&mut answer)).await;
    // At most a TLS alert.
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_tls_handshake_is_closed_after_head_timeout_and_gives_way_to_others() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let toml = format!("[server]\nmax_connections = 1\nhead_timeout = \"5s\"\n{}", files.toml(false));
    let gate = Gate::with(&upstream, &toml).await;
    let opened = Instant::now();
    let mut silent = TcpStream::connect(authority_of(&gate.url)).await.unwrap();
    assert_eq!(
        within(Duration::from_mins(1), silent.read_u8()).await.unwrap_err().kind(),
        std::io::ErrorKind::UnexpectedEof
    );
    assert_eq!(opened.elapsed().as_secs(), 5);
    let mut silent = TcpStream::connect(authority_of(&gate.url)).await.unwrap();
    let opened = Instant::now();
    handshake(&gate.url, files.client(None, &[], BOTH)).await.unwrap();
    assert!(silent.read_u8().await.is_err());
    assert!(opened.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_new_certificate_is_read_without_a_restart_and_a_broken_one_leaves_the_old() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let config = files.path("config.toml");
    std::fs::write(&config, format!("{}[[upstream]]\nurl = \"{}\"\n", files.toml(false), upstream.url())).unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()];
    let checked = Binary::run(&["check", "--config", config.to_str().unwrap()], &[]).await;
    assert!(checked.stdout.contains("  https://127.0.0.1:8808/mcp -> "), "{checked:?}");
    let taskgate = Binary::start(&args, &[]);
    let url = taskgate.url().await;
    let seen = async || handshake(&url, files.client(None, &["http/1.1"], BOTH)).await.unwrap().0;
    let old = Client::connect(&tunnel(&url, files.client(None, &["http/1.1"], BOTH)).await).await;
    let second = files.renew();
    taskgate.logged_after("the certificate of the server was read again").await;
    assert_eq!(seen().await, second);
    // Open connections go on.
    assert_eq!(old.ask("ping", json!({})).await, json!({}));
    // A key that belongs to no certificate, as in the middle of a change.
    std::fs::write(files.path("key.pem"), KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let said = taskgate.logged_after("the changed certificate of the server cannot be used; the old one stays").await;
    assert!(said.contains("cert and key cannot be used together"), "{said}");
    assert_eq!(seen().await, second);
}

#[tokio::test]
async fn a_failed_handshake_is_counted_and_logged_with_its_peer_and_cause() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let config = files.path("config.toml");
    std::fs::write(&config, format!("{}[[upstream]]\nurl = \"{}\"\n", files.toml(true), upstream.url())).unwrap();
    let address = "127.0.0.1:0";
    let args = ["serve", "--listen", address, "--admin", address, "--config", config.to_str().unwrap()];
    let taskgate = Binary::start(&args, &[("TASKGATE_LOG", "debug")]);
    let (url, admin) = (taskgate.url().await, taskgate.admin().await);
    handshake(&url, files.client(None, &[], BOTH)).await.unwrap_err();
    let said = taskgate.logged_after("a TLS handshake failed").await;
    assert!(said.contains("peer=127.0.0.1") && said.contains("error=peer sent no certificates"), "{said}");
    let metrics = Client::new(&format!("{admin}/metrics")).send(http::Method::GET, "").await;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("\ntaskgate_tls_handshakes_failed_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn the_owner_is_the_name_in_the_certificate_and_a_renewed_certificate_keeps_the_tasks() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let gate = Gate::with(&upstream, &format!("{}[auth]\nmode = \"mtls\"\n", files.toml(true))).await;
    let connect = async |identity: &Identity| {
        let url = tunnel(&gate.url, files.client(Some(identity), &["http/1.1"], BOTH)).await;
        Client::connect(&url).await
    };
    let ann = connect(&Identity::of_client("spiffe://example/ann", &files.clients)).await;
    let bob = connect(&Identity::of_client("spiffe://example/bob", &files.clients)).await;
    let id = ann.create_id("slow").await;
    upstream.held("slow").await.result("{}");
    ann.until(&id, "completed").await;
    let renewed = connect(&Identity::of_client("spiffe://example/ann", &files.clients)).await;
    assert_eq!(renewed.list().await, [id.as_str()]);
    assert_eq!(
        renewed.collect(&id).await["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"],
        id.as_str()
    );
    assert_eq!(bob.list().await, [""; 0]);
    assert_eq!(bob.error("tasks/get", json!({ "taskId": id })).await.0, -32602);
    // A session belongs to the owner that opened it.
    assert_eq!(bob.with("mcp-session-id", ann.session()).post(PING).await.status, 404);
}

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

#[tokio::test]
async fn a_client_needs_a_certificate_of_the_authority_to_connect_and_a_name_in_it_to_be_served() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let (stranger, nameless) = (authority("clients"), Identity::new(Vec::new(), &files.clients));
    for mode in ["mtls", "none"] {
        let gate = Gate::with(&upstream, &format!("{}[auth]\nmode = \"{mode}\"\n", files.toml(true))).await;
        for identity in [None, Some(&Identity::of_client("spiffe://example/ann", &stranger))] {
            for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
                assert!(handshake(&gate.url, files.client(identity, &["http/1.1"], versions)).await.is_err());
            }
        }
        let url = tunnel(&gate.url, files.client(Some(&nameless), &["http/1.1"], BOTH)).await;
        let answer = Client::new(&url).ask_to_initialize("2025-11-25", json!({})).await;
        if mode == "none" {
            // The certificate admits the client, and says nothing about owners.
            assert_eq!(answer.status, 200);
        } else {
            let (status, code, message) = answer.refusal();
            assert_eq!((status, code), (401, -32600), "{message}");
            assert!(message.contains("subject alternative name"), "{message}");
            assert_eq!(answer.header("www-authenticate"), "", "no token would help");
        }
    }
}

#[tokio::test]
async fn where_clients_need_a_certificate_every_connection_shows_it_as_no_tls_session_is_resumed() {
    let (files, upstream) = (Files::new(), Upstream::json().await);
    let ann = Identity::of_client("spiffe://example/ann", &files.clients);
    for (client_ca, second) in [(false, HandshakeKind::Resumed), (true, HandshakeKind::Full)] {
        let gate = Gate::with(&upstream, &files.toml(client_ca)).await;
        for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
            // Its clones share what there is to resume.
            let config = files.client(Some(&ann), &["http/1.1"], versions);
            let kind = async || shake_hands(&gate.url, config.clone()).await.unwrap().get_ref().1.handshake_kind();
            assert_eq!((kind().await, kind().await), (Some(HandshakeKind::Full), Some(second)), "{versions:?}");
        }
    }
}

#[tokio::test]
async fn invalid_tls_files_are_reported_with_their_place() {
    let files = Files::new();
    let other = files.path("other.pem");
    std::fs::write(&other, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let good = files.toml(true);
    let report = |tls: &str| {
        let text = format!("{tls}[[upstream]]\nurl = \"http://127.0.0.1:9/mcp\"\n");
        let parsed = taskgate::config::parse("config.toml", &text, taskgate::config::Overrides::default());
        parsed.map(|config| config.server.tls.is_some()).map_err(|mistakes| mistakes.to_string())
    };
    assert_eq!(report(&good), Ok(true));
    let name = |file: &str| files.path(file).display().to_string();
    for (from, to, place, said) in [
        ("cert.pem", "key.pem", "2:8: server.tls.cert", "no certificate"),
        ("key.pem", "cert.pem", "3:7: server.tls.key", "no private key"),
        ("key.pem", "other.pem", "3:7: server.tls.key", "other.pem is not that of the certificate in "),
        ("ca.pem", "key.pem", "4:13: server.tls.client_ca", "no certificate"),
        ("ca.pem", "none.pem", "4:13: server.tls.client_ca", "No such file"),
    ] {
        let wrong = report(&good.replace(&name(from), &name(to))).unwrap_err();
        assert!(wrong.contains(place) && wrong.contains(said), "{wrong}");
        assert!(!wrong.contains('\n'), "{wrong}");
    }
    let alone = report(&format!("{}[auth]\nmode = \"mtls\"\n", files.toml(false))).unwrap_err();
    assert!(alone.contains("auth.mode: \"mtls\" needs server.tls with a client_ca"), "{alone}");
}
