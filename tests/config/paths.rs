//! Relative paths, and the forms of an address.

use std::{fs, path::Path};

use rcgen::{CertificateParams, KeyPair};
use taskgate::config::{AuditTo, Auth, KeySource, Overrides, Target, listen_address, load, parse};

#[test]
fn relative_paths_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::default().self_signed(&key).unwrap();
    for (name, text) in [
        ("cert.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
        ("keys.json", "{}".to_owned()),
        ("token", "hush".to_owned()),
        (
            "config.toml",
            "[server.tls]\ncert = 'cert.pem'\nkey = './key.pem'\nclient_ca = 'cert.pem'\n\
             [auth]\nmode = 'jwt'\nissuer = 'https://a'\naudience = ['b']\njwks = 'keys.json'\n\
             [audit]\nto = 'file'\nfile = 'audit.jsonl'\n\
             [[upstream]]\npath = '/a'\nurl = 'http://a'\nheaders = { X-Token = { file = 'token' } }\n\
             [[upstream]]\npath = '/b'\ncommand = ['bin/server', 'data']\n\
             [[upstream]]\npath = '/c'\ncommand = ['bin/server']\ncwd = 'work'\n\
             [[upstream]]\npath = '/d'\ncommand = ['server']\n"
                .to_owned(),
        ),
    ] {
        fs::write(place(name), text).unwrap();
    }
    fs::create_dir(place("work")).unwrap();
    let config = load(&place("config.toml"), Overrides::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let tls = config.server.tls.unwrap();
    assert_eq!((tls.cert, tls.key, tls.client_ca), (place("cert.pem"), place("key.pem"), Some(place("cert.pem"))));
    let Auth::Jwt(jwt) = config.auth else { panic!("another mode") };
    assert_eq!(jwt.keys, KeySource::File(place("keys.json")));
    assert_eq!(config.audit.to, AuditTo::File(place("audit.jsonl")));
    let (_, token) = &config.upstreams[0].forward.headers[0];
    assert_eq!((token.expose(), token.file()), ("hush", Some(&*place("token"))));
    let started = |at: usize| match &config.upstreams[at].target {
        Target::Command { program, .. } => (program.as_str(), config.upstreams[at].process.cwd.as_deref()),
        Target::Url(url) => panic!("{url}"),
    };
    // With a `cwd` the program is looked up from there, as by any shell.
    assert_eq!(started(1), (place("bin/server").to_str().unwrap(), None));
    assert_eq!(started(2), ("bin/server", Some(&*place("work"))));
    assert_eq!(started(3), ("server", None));
}

#[test]
fn relative_paths_of_a_text_without_a_file_stay_as_they_are() {
    let config = parse("text", "[[upstream]]\ncommand = ['./server']\ncwd = 'tests'\n", Overrides::default()).unwrap();
    assert_eq!(config.upstreams[0].process.cwd.as_deref(), Some(Path::new("tests")));
    let config = parse("text", "[[upstream]]\ncommand = ['./server']\n", Overrides::default()).unwrap();
    assert_eq!(config.upstreams[0].target, Target::Command { program: "./server".to_owned(), args: Vec::new() });
}

#[test]
fn an_address_may_be_a_port_alone_or_a_port_of_localhost() {
    for (text, address) in [
        ("8808", "127.0.0.1:8808"),
        ("0", "127.0.0.1:0"),
        ("localhost:8808", "127.0.0.1:8808"),
        ("0.0.0.0:80", "0.0.0.0:80"),
        ("[::]:80", "[::]:80"),
    ] {
        assert_eq!(listen_address(text).unwrap().to_string(), address);
    }
    for (text, said) in [
        (":8808", "\"0.0.0.0:8808\" for every interface"),
        ("*:8808", "\"0.0.0.0:8808\" for every interface"),
        ("http://127.0.0.1:8808", "not a URL"),
        ("mcp.example.com:80", "IP address"),
        ("127.0.0.1", "no port"),
        ("::1", "no port"),
        ("localhost", "no port"),
        ("65536", "such as \"127.0.0.1:8808\""),
        ("+8808", "such as \"127.0.0.1:8808\""),
        ("localhost:", "such as \"127.0.0.1:8808\""),
        ("", "such as \"127.0.0.1:8808\""),
    ] {
        let why = listen_address(text).unwrap_err();
        assert!(why.contains(said), "{text:?}: {why}");
    }
}

#[test]
fn the_url_of_taskgate_itself_is_a_mistake_only_where_taskgate_listens() {
    let text = "[server]\nadmin = '127.0.0.1:8808'\n[[upstream]]\nurl = 'http://127.0.0.1:8808/mcp'\n";
    assert_eq!(parse("text", text, Overrides::default()).unwrap_err().iter().count(), 2);
    parse("text", text, Overrides { stdio: true, ..Overrides::default() }).unwrap();
    // The override counts, and not what it replaces.
    let elsewhere = |port: u16| Some(([127, 0, 0, 1], port).into());
    parse("text", text, Overrides { listen: elsewhere(8809), ..Overrides::default() }).unwrap();
    let moved = "[server]\nlisten = '127.0.0.1:1'\n[[upstream]]\nurl = 'http://127.0.0.1:2/mcp'\n";
    parse("text", moved, Overrides { listen: elsewhere(2), ..Overrides::default() }).unwrap_err();
    let target = super::server_url();
    let behind = Overrides { target: Some(target), listen: elsewhere(9), ..Overrides::default() };
    assert!(parse("command line", "", behind).unwrap_err().to_string().contains("call itself"));
}
