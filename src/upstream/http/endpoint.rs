//! Finds out where the messages of an HTTP+SSE session go (revision 2024-11-05, "HTTP with SSE").

use http::{Uri, uri::PathAndQuery};

use crate::{net::without_secrets, wire::excerpt};

/// Resolves `reference`, the data of an `endpoint` event, against the stream's own URI `base`.
///
/// # Errors
/// A sentence that says what is wrong with it. Another origin is wrong, because the messages carry credentials.
pub(super) fn resolve(base: &Uri, reference: &str) -> Result<Uri, String> {
    let wrong = |why: &str| format!("its endpoint event names {:?}, {why}", excerpt(reference));
    let reference = reference.trim().split('#').next().unwrap_or_default();
    let scheme = base.scheme_str().unwrap_or("http");
    let absolute = match reference.split_once(':') {
        _ if reference.starts_with("//") => Some(format!("{scheme}:{reference}")),
        Some((name, _)) if is_scheme(name) => Some(reference.to_owned()),
        _ => None,
    };
    let path = match absolute {
        Some(absolute) => {
            let absolute: Uri = absolute.parse().map_err(|_| wrong("which is no URI"))?;
            if origin(&absolute) != origin(base) {
                let own = without_secrets(base);
                return Err(wrong(&format!("which is not on the host of {own}, where credentials may go")));
            }
            absolute.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()
        }
        None => from_here(base, reference),
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|_| wrong("which is no URI"))?);
    Uri::from_parts(parts).map_err(|_| wrong("which is no URI"))
}

fn is_scheme(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.'))
}

/// Returns scheme, host and port in one form.
fn origin(uri: &Uri) -> Option<(String, String, u16)> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let port = uri.port_u16().or(match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    })?;
    Some((scheme, uri.host()?.to_ascii_lowercase(), port))
}

/// Returns path and query of a reference without scheme and authority (RFC 3986, section 5.2).
fn from_here(base: &Uri, reference: &str) -> String {
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, None),
    };
    let path = match path {
        "" => base.path().to_owned(),
        path if path.starts_with('/') => without_dots(path),
        path => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            without_dots(&format!("{folder}/{path}"))
        }
    };
    query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"))
}

/// Resolves the `.` and `..` segments of a path.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // At the end of a path they name a folder.
                if segments.peek().is_none() {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: &str, reference: &str) -> Result<String, String> {
        resolve(&base.parse().expect("a URI"), reference).map(|uri| uri.to_string())
    }

    #[test]
    fn a_reference_is_taken_from_the_url_of_the_stream() {
        for (reference, expected) in [
            ("/messages/?session_id=a%20b", "http://host:3000/messages/?session_id=a%20b"),
            ("http://host:3000/m?x=1", "http://host:3000/m?x=1"),
            ("HTTP://HOST:3000", "http://host:3000/"),
            ("//host:3000/m", "http://host:3000/m"),
            ("message", "http://host:3000/a/b/message"),
            ("./message?u=http://elsewhere/", "http://host:3000/a/b/message?u=http://elsewhere/"),
            ("../message", "http://host:3000/a/message"),
            ("../../../..", "http://host:3000/"),
            ("/a/./b/../c/.", "http://host:3000/a/c/"),
            ("?session=1", "http://host:3000/a/b/sse?session=1"),
            (" /m#part ", "http://host:3000/m"),
        ] {
            assert_eq!(at("http://host:3000/a/b/sse?k=v", reference).as_deref(), Ok(expected), "{reference}");
        }
    }

    #[test]
    fn a_default_port_is_the_same_written_or_not() {
        assert_eq!(at("http://host/sse", "http://host:80/m").as_deref(), Ok("http://host/m"));
        assert_eq!(at("https://host:443/sse", "https://host/m").as_deref(), Ok("https://host:443/m"));
    }

    #[test]
    fn another_origin_is_refused() {
        for reference in [
            "http://other:3000/m",
            "http://host:3001/m",
            "http://host/m",
            "https://host:3000/m",
            "//other/m",
            "http://host:3000.other/m",
            "http://host:3000@other/m",
            "file:///m",
            "data:,m",
            "message:send",
        ] {
            let refused = at("http://host:3000/sse", reference).expect_err(reference);
            assert!(refused.contains(reference), "{refused}");
        }
        // Some readers would take this for a host; here it stays a path.
        assert_eq!(at("http://host:3000/sse", "/\\other/m").as_deref(), Ok("http://host:3000/\\other/m"));
    }
}
