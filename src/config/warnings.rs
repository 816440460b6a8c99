//! What may be wrong with a configuration that has no mistakes.

use std::{env, ffi::OsString, fs, path::Path};

use rustix::fs::{Access, access};
use serde_json::Value;

use super::{AuditTo, Auth, Config, KeySource, Store, Target, Upstream};

impl Config {
    /// Returns a warning where taskgate listens beyond this machine and lets everyone in.
    #[must_use]
    pub fn exposed(&self) -> Option<String> {
        let listen = self.server.listen;
        let asks = self.auth != Auth::None || self.server.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if listen.ip().to_canonical().is_loopback() || asks {
            return None;
        }
        Some(format!(
            "taskgate listens beyond this machine (server.listen = {listen}) and knows no users: every client that reaches \
             that address can call every tool; set auth.mode, or listen on 127.0.0.1 (--listen, server.listen), or let the \
             network keep other clients out"
        ))
    }

    /// Returns what on this machine does not fit: files and folders that are missing or cannot be written. On the
    /// machine that the configuration is for they may be right.
    #[must_use]
    pub fn unfit_here(&self) -> Vec<String> {
        let audit = match &self.audit.to {
            AuditTo::File(path) => cannot_be_written(path).map(|why| format!("audit.file: {}: {why}", path.display())),
            AuditTo::Off | AuditTo::Log => None,
        };
        let store = match &self.store {
            Store::File(store) if store.path.exists() && !store.path.is_file() => {
                Some(format!("store.path: {}: it is not a file", store.path.display()))
            }
            Store::File(store) => {
                // The start makes folders that are missing.
                let there = store.path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
                let fits = (there == store.path || there.is_dir()) && access(there, Access::WRITE_OK).is_ok();
                (!fits).then(|| {
                    let (path, there) = (store.path.display(), there.display());
                    format!("store.path: {path}: nothing can be written to {there}")
                })
            }
            Store::Memory => None,
        };
        let keys = match &self.auth {
            Auth::Jwt(jwt) => lacks_keys(&jwt.keys),
            _ => None,
        };
        audit.into_iter().chain(store).chain(keys).chain(self.missing_commands()).collect()
    }

    /// Returns a warning for each server whose command is not there. It may come later.
    #[must_use]
    pub fn missing_commands(&self) -> Vec<String> {
        self.upstreams.iter().filter_map(lacks_command).collect()
    }
}

/// Returns why no token can be verified with a file of keys, as far as that is known without reading each key.
fn lacks_keys(source: &KeySource) -> Option<String> {
    let KeySource::File(path) = source else { return None };
    let why = match fs::read(path).map(|text| serde_json::from_slice::<Value>(&text)) {
        Err(error) => error.to_string(),
        Ok(Err(error)) => format!("it is not JSON: {error}"),
        Ok(Ok(set)) => match set.get("keys").and_then(Value::as_array) {
            Some(keys) if !keys.is_empty() => return None,
            _ => "it has no keys, which stand in an array \"keys\" (RFC 7517)".to_owned(),
        },
    };
    Some(format!("auth.jwks: {}: {why}; no token can be verified with it", path.display()))
}

/// Returns that the command of a server is not there, if it is not.
fn lacks_command(upstream: &Upstream) -> Option<String> {
    let Target::Command { program, .. } = &upstream.target else { return None };
    let is_there = if program.contains('/') {
        upstream.process.cwd.as_deref().unwrap_or(Path::new("")).join(program).exists()
    } else {
        let its_own = upstream.process.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.into());
        let path: OsString = its_own.or_else(|| env::var_os("PATH")).unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(program).exists())
    };
    (!is_there).then(|| format!("{}: its command {program} does not exist, or is not on PATH", upstream.path))
}

/// Returns why lines cannot be appended to a file, as far as that is known without making it.
fn cannot_be_written(file: &Path) -> Option<&'static str> {
    if file.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Some("its name ends in a slash");
    }
    if file.is_dir() {
        return Some("it is a folder");
    }
    if file.exists() {
        return access(file, Access::WRITE_OK).is_err().then_some("it cannot be written");
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Some("its folder does not exist");
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err().then_some("its folder cannot be written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, parse};

    fn config(text: &str) -> Config {
        parse("config.toml", text, Overrides::default()).expect("no mistakes")
    }

    #[test]
    fn an_address_beyond_this_machine_without_users_is_a_warning_that_names_the_keys() {
        let exposed = |listen: &str, auth: &str| {
            let text =
                format!("[server]\nlisten = \"{listen}\"\n{auth}\n[[upstream]]\nurl = \"http://127.0.0.1:9/mcp\"\n");
            config(&text).exposed()
        };
        for listen in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            let said = exposed(listen, "").expect(listen);
            assert!(said.contains(listen) && said.contains("auth.mode"), "{said}");
            let header = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"10.0.0.2\"]";
            assert_eq!(exposed(listen, header), None);
        }
        for listen in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
            assert_eq!(exposed(listen, ""), None, "{listen}");
        }
    }

    #[test]
    fn what_is_missing_on_this_machine_is_named_and_nothing_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let unfit = |audit: &Path, program: &str| {
            let audit = format!("[audit]\nto = \"file\"\nfile = {audit:?}\n");
            config(&format!("{audit}[[upstream]]\ncommand = [{program:?}]\n")).unfit_here()
        };
        let stored = |path: &str| {
            let store = format!("[store]\nkind = \"file\"\npath = {path:?}\n");
            config(&format!("{store}[[upstream]]\nurl = \"http://127.0.0.1:9/mcp\"\n")).unfit_here()
        };
        let (missing, fine) = (folder.path().join("none/audit.jsonl"), folder.path().join("audit.jsonl"));
        let said = unfit(&missing, "/no/such/server");
        assert!(said[0].contains("audit.file") && said[0].contains("its folder does not exist"), "{said:?}");
        assert!(said[1].contains("/mcp: its command /no/such/server does not exist"), "{said:?}");
        assert!(unfit(&folder.path().join("audit.jsonl/"), "sh")[0].contains("its name ends in a slash"));
        assert!(unfit(&fine, "no-such-server")[0].contains("or is not on PATH"));
        assert_eq!(unfit(&fine, "sh"), Vec::<String>::new());
        assert_eq!(unfit(&fine, "/bin/sh"), Vec::<String>::new());
        assert!(!fine.exists());
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for other in [folder.path(), &pipe, Path::new("/dev/null")] {
            let said = stored(&other.to_string_lossy());
            assert_eq!(said, [format!("store.path: {}: it is not a file", other.display())]);
        }
        // Not even root writes there.
        assert!(stored("/proc/version/tasks.db")[0].contains("store.path: /proc/version/tasks.db"));
        assert_eq!(stored(&folder.path().join("new/tasks.db").to_string_lossy()), Vec::<String>::new());
    }

    #[test]
    fn a_file_of_keys_without_a_key_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let said = |keys: &str| {
            fs::write(file.path(), keys).expect("room");
            let auth = "[auth]\nmode = \"jwt\"\nissuer = \"https://a.example\"\naudience = [\"a\"]\n";
            let upstream = "[[upstream]]\nurl = \"http://127.0.0.1:9/mcp\"\n";
            config(&format!("{auth}jwks = {:?}\n{upstream}", file.path())).unfit_here()
        };
        for (keys, why) in [("text", "is not JSON"), ("{\"keys\":[]}", "has no keys"), ("[{}]", "has no keys")] {
            let said = said(keys);
            assert!(said.len() == 1 && said[0].starts_with("auth.jwks: ") && said[0].contains(why), "{said:?}");
        }
        assert_eq!(said("{\"keys\":[{\"kty\":\"OKP\"}]}"), Vec::<String>::new());
    }
}
