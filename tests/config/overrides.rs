//! What the command line says, which overrides the file.

use taskgate::config::{Auth, Config, Native, Overrides, Target, Transport, parse};

use super::{ONE, server_url, with_target};

#[test]
fn flags_win_over_the_file() {
    let text = format!("[server]\nlisten = \"1.1.1.1:1\"\nadmin = \"1.1.1.1:2\"\nallowed_hosts = [\"a\"]\n{ONE}");
    let overrides = Overrides {
        listen: Some("127.0.0.1:3".parse().unwrap()),
        admin: Some("127.0.0.1:4".parse().unwrap()),
        allowed_hosts: Some(vec!["b".to_owned()]),
        allowed_origins: Some(vec!["https://b".to_owned()]),
        ..Overrides::default()
    };
    let server = parse("config.toml", &text, overrides).unwrap().server;
    assert_eq!((server.listen.port(), server.admin.unwrap().port()), (3, 4));
    assert_eq!((server.allowed_hosts, server.allowed_origins), (vec!["b".to_owned()], vec!["https://b".to_owned()]));
    let kept = parse("config.toml", &text, Overrides::default()).unwrap().server;
    assert_eq!((kept.listen.port(), kept.admin.unwrap().port(), &*kept.allowed_hosts), (1, 2, &["a".to_owned()][..]));
}

#[test]
fn a_server_on_the_command_line_replaces_the_only_target_and_keeps_its_policy() {
    let tools = "native = \"replace\"\npath = \"/x\"\n[upstream.tools.a]\nmax_running = 7\n";
    for block in [format!("{ONE}{tools}"), format!("[[upstream]]\n{tools}")] {
        let config = parse("config.toml", &block, with_target()).unwrap();
        let upstream = &config.upstreams[0];
        assert_eq!((&upstream.target, &*upstream.path, upstream.native), (&server_url(), "/x", Native::Replace));
        assert_eq!(upstream.policy.tool("a").max_running, 7);
    }
}

#[test]
fn a_url_on_the_command_line_keeps_the_transport_of_the_only_block() {
    for (word, transport) in
        [("auto", Transport::Auto), ("streamable-http", Transport::StreamableHttp), ("sse", Transport::Sse)]
    {
        let text = format!("[[upstream]]\ntransport = {word:?}\n");
        let upstream = &parse("config.toml", &text, with_target()).unwrap().upstreams[0];
        assert_eq!((&upstream.target, upstream.transport), (&server_url(), transport));
    }
}

#[test]
fn a_command_on_the_command_line_is_started_as_the_only_block_says() {
    let command = Target::Command { program: "server".to_owned(), args: Vec::new() };
    for block in [format!("{ONE}shared = true\n"), "[[upstream]]\nshared = true\n".to_owned()] {
        let overrides = Overrides { target: Some(command.clone()), ..Overrides::default() };
        let upstream = parse("config.toml", &block, overrides).unwrap().upstreams.swap_remove(0);
        assert_eq!((upstream.target, upstream.process.shared), (command.clone(), true));
    }
    let url = parse("config.toml", "[[upstream]]\nshared = true\n", with_target()).unwrap_err().to_string();
    assert_eq!(url, "config.toml:2:10: upstream[0].shared: set for a server with a url; only a command has processes");
}

#[test]
fn no_process_is_asked_to_judge_tokens_wherever_its_command_comes_from() {
    let command = Target::Command { program: "server".to_owned(), args: Vec::new() };
    let read = |block: &str, target: Option<&Target>, stdio| {
        let text = format!("[auth]\nmode = \"bearer\"\n{block}");
        parse("config.toml", &text, Overrides { target: target.cloned(), stdio, ..Overrides::default() })
    };
    let process = "[[upstream]]\ncommand = [\"server\"]\n";
    for block in ["", ONE, "[[upstream]]\n", process] {
        let said = read(block, Some(&command), false).unwrap_err().to_string();
        assert!(said.starts_with("the command behind --: auth.mode \"bearer\"") && said.lines().count() == 1, "{said}");
    }
    assert!(read(process, None, false).unwrap_err().to_string().starts_with("config.toml:4:11: upstream[0].command: "));
    read(process, Some(&server_url()), false).unwrap();
    // There the client is the one that has started taskgate.
    read(process, None, true).unwrap();
}

#[test]
fn one_client_on_stdin_needs_neither_users_nor_the_files_of_tls() {
    let tls = "[server.tls]\ncert = \"/no/such/cert.pem\"\nkey = \"/no/such/key.pem\"\n";
    let auth = "[auth]\nmode = \"introspect\"\nclient_secret = { file = \"/no/such/secret\" }\n";
    let read = |stdio| parse("config.toml", &format!("{tls}{auth}{ONE}"), Overrides { stdio, ..Overrides::default() });
    let config = read(true).unwrap();
    assert_eq!((config.server.tls, config.auth), (None, Auth::None));
    assert!(read(false).is_err());
}

#[test]
fn a_server_on_the_command_line_is_enough_and_takes_the_defaults_of_the_file() {
    let config = parse("config.toml", "tasks = { max_running = 7, native = \"replace\" }", with_target()).unwrap();
    let upstream = &config.upstreams[0];
    assert_eq!((&upstream.target, &*upstream.path, upstream.native), (&server_url(), "/mcp", Native::Replace));
    assert_eq!(upstream.policy.tool("a").max_running, 7);
    assert_eq!(parse("config.toml", "", with_target()).unwrap(), Config::for_upstream(server_url()));
}

#[test]
fn a_server_on_the_command_line_with_several_blocks_is_a_mistake() {
    let text = "[[upstream]]\npath = \"/a\"\nurl = \"http://a\"\n[[upstream]]\npath = \"/b\"\nurl = \"http://b\"\n";
    let command = Target::Command { program: "server".to_owned(), args: Vec::new() };
    let commanded = Overrides { target: Some(command), ..Overrides::default() };
    for (overrides, given, undo) in [
        (with_target(), "--upstream (TASKGATE_UPSTREAM)", "leave it out, or unset the variable"),
        (commanded, "the command behind --", "leave it out"),
    ] {
        let mistakes = parse("config.toml", text, overrides).unwrap_err();
        let expected = format!(
            "config.toml:4:1: upstream[1]: {given} replaces the server of the only [[upstream]], but the file has several; \
             {undo}, or leave one block"
        );
        assert_eq!(mistakes.to_string(), expected);
    }
}
