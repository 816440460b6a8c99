//! `config`: whatever the text is, reading it ends in a configuration or in a report that points into the text.

use taskgate::config::{Overrides, parse, target_from_url};

/// Reads a configuration file, with and without a server on the command line.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let target = target_from_url("http://127.0.0.1:9/mcp").expect("a URL");
    for overrides in [Overrides::default(), Overrides { target: Some(target), ..Overrides::default() }] {
        let of_command_line = overrides.target.is_some();
        match parse("config.toml", &text, overrides) {
            Ok(config) => {
                assert!(!config.upstreams.is_empty());
                for (_, tool) in config.upstreams.iter().flat_map(|upstream| upstream.policy.tools()) {
                    assert!(tool.ttl <= tool.max_ttl && tool.max_running > 0 && tool.max_result > 0);
                }
            }
            Err(report) => {
                let lines: Vec<_> = text.split('\n').collect();
                let places: Vec<_> = report.iter().map(|mistake| (mistake.line, mistake.column)).collect();
                assert!(!places.is_empty() && places.is_sorted(), "{report}");
                // A mistake of the command line has no place in the text.
                for (line, column) in places.into_iter().filter(|place| !of_command_line || *place != (0, 0)) {
                    assert!((1..=lines.len()).contains(&line), "{report}");
                    assert!((1..=lines[line - 1].chars().count() + 1).contains(&column), "{report}");
                }
            }
        }
    }
}
