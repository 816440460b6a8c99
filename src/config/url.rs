//! The URLs of servers: what may be one, which is taskgate's own, and how it is shown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use http::Uri;

use super::Server;

/// Checks a URL of scheme http or https; messages show the `example`.
pub(super) fn url(text: &str, example: &str) -> Result<Uri, String> {
    let shown = text_without_secrets(text);
    let wrong = |problem| Err(format!("expected a URL such as {example:?}, but {shown:?} {problem}"));
    let Ok(url) = text.parse::<Uri>() else { return wrong("is not a URL") };
    let Some(authority) = url.authority().filter(|_| matches!(url.scheme_str(), Some("http" | "https"))) else {
        return wrong("does not start with \"http://\" or \"https://\"");
    };
    if authority.host().is_empty() {
        return wrong("has no host");
    }
    if authority.as_str().contains('@') {
        return wrong("has a user name, which would not be sent");
    }
    if authority.port().is_none() && authority.as_str() != authority.host() {
        return wrong("has no valid port");
    }
    // `Uri` drops a fragment without a word.
    if text.contains('#') {
        return wrong("has a fragment");
    }
    // `Uri` would send them as they are.
    if !text.is_ascii() {
        return wrong("has characters that have to be percent-encoded");
    }
    Ok(url)
}

/// Returns a URL without what may be secret in it: credentials and the query.
#[must_use]
pub fn without_secrets(url: &Uri) -> String {
    let scheme = url.scheme_str().map_or_else(String::new, |scheme| format!("{scheme}://"));
    let host = url.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}{host}{}", url.path())
}

/// Returns a text that should be a URL without what may be secret in it, and "…" in its place.
#[must_use]
pub fn text_without_secrets(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (&text[..scheme.len() + 3], rest));
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.find(['?', '#']).map_or_else(|| path.to_owned(), |at| format!("{}…", &path[..=at]));
    let (user, host) = authority.rsplit_once('@').map_or(("", authority), |(_, host)| ("…@", host));
    // A password with one of these characters in it is cut in two.
    if user.is_empty() && rest.rsplit_once('@').is_some_and(|(before, _)| before.contains(':')) {
        return format!("{scheme}…");
    }
    format!("{scheme}{user}{host}{path}")
}

/// Refuses taskgate's own URL: it would call itself until it has no descriptors left.
pub(super) fn not_own(url: &Uri, here: &Server) -> Result<(), String> {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let (listen, host) = (here.listen.ip().to_canonical(), url.host().unwrap_or_default().to_ascii_lowercase());
    if port != here.listen.port() {
        return Ok(());
    }
    let is_here = match host.trim_matches(['[', ']']).parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) => ip == listen || ip.is_unspecified() || (listen.is_unspecified() && is_of_this_machine(ip)),
        Err(_) if host == "localhost" => listen.is_loopback() || listen.is_unspecified(),
        Err(_) => here.allowed_hosts.iter().any(|allowed| *allowed == host || *allowed == format!("{host}:{port}")),
    };
    if !is_here {
        return Ok(());
    }
    let url = without_secrets(url);
    Err(format!("{url} is where taskgate itself listens ({}), so that it would call itself without end", here.listen))
}

/// Returns whether an address is one of this machine: the system gives a socket no other, unless `ip_nonlocal_bind` has
/// it give any. Then only loopback is known to be.
fn is_of_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || (!ip.is_multicast() && can_bind(ip) && !NOWHERE.into_iter().any(can_bind))
}

/// Addresses for documentation, which no machine has (RFC 5737, RFC 3849).
const NOWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

fn can_bind(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_credentials_and_query() {
        for (url, expected) in [
            ("https://ann:secret@host:8443/a/b?key=secret", "https://host:8443/a/b"),
            ("http://[::1]:80", "http://[::1]:80/"),
            ("/messages?session_id=secret", "/messages"),
        ] {
            assert_eq!(without_secrets(&url.parse().expect("a URL")), expected);
        }
    }

    #[test]
    fn a_mistake_about_a_url_does_not_repeat_its_secrets() {
        for (text, shown) in [
            ("http://ann:secret@h/mcp", "http://…@h/mcp"),
            ("http://ann:sec@ret@h", "http://…@h"),
            ("ann:secret@h/mcp", "…@h/mcp"),
            ("http://h:x/mcp?key=secret", "http://h:x/mcp?…"),
            ("http://h/mcp#secret", "http://h/mcp#…"),
            ("http://a b/?mail=secret@b&key=secret", "http://a b/?…"),
            ("http://ann:sec/ret@h", "http://…"),
            ("http://ann:sec?ret@h", "http://…"),
            ("http://ann:sec#ret@h", "http://…"),
            ("http:///ann:secret@h", "http://…"),
            ("https//ann:secret@h/mcp", "…"),
            ("/ann:secret@h/x", "…"),
            ("http://h/@scope/ä", "http://h/@scope/ä"),
            ("here", "here"),
        ] {
            assert_eq!(text_without_secrets(text), shown);
            let mistake = url(text, "http://a").expect_err(text);
            assert!(mistake.contains(&format!("{shown:?}")), "{mistake}");
        }
    }

    #[test]
    fn an_address_of_an_interface_and_a_mapped_one_are_taskgates_own() {
        let refused = |listen: &str, url: &str| {
            let here = Server { listen: listen.parse().expect("an address"), ..Server::default() };
            not_own(&url.parse().expect("a URL"), &here).is_err()
        };
        for (listen, url, own) in [
            ("127.0.0.1:80", "http://[::ffff:127.0.0.1]/mcp", true),
            ("[::ffff:127.0.0.1]:80", "http://127.0.0.1/mcp", true),
            ("0.0.0.0:80", "http://[::ffff:127.0.0.1]/mcp", true),
            ("[::]:80", "http://127.0.0.2/mcp", true),
            ("127.0.0.1:80", "http://127.0.0.2/mcp", false),
            // For documentation: no machine has it.
            ("0.0.0.0:80", "http://192.0.2.1/mcp", false),
        ] {
            assert_eq!(refused(listen, url), own, "{url} at {listen}");
        }
        // Sends nothing: it has the system choose the interface, if there is one.
        let routed = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        });
        if let Ok(address) = routed
            && !can_bind(NOWHERE[0])
        {
            assert!(refused("0.0.0.0:80", &format!("http://{}/mcp", address.ip())));
        }
    }
}
