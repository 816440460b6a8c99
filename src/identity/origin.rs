//! Defence against DNS rebinding (revision 2025-11-25, "Transports", security warning): a browser may reach
//! taskgate under any name that resolves to its address, so names that are not configured are refused.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Uri, header, uri::Authority};

/// The Host and Origin headers that are accepted.
#[derive(Debug)]
pub struct Hosts {
    listen: SocketAddr,
    /// Whether taskgate itself serves TLS. If not, a proxy in front may, so that the scheme of a request is unknown.
    tls: bool,
    allowed: Vec<String>,
    origins: Vec<String>,
}

/// The header because of which a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub enum RefusedHeader {
    /// A foreign `Host`, or `:authority`.
    Host(String),
    /// A foreign `Origin`.
    Origin(String),
    /// No `Host`, or several: a server that reads another one than taskgate would serve another host (RFC 9112, section
    /// 3.2).
    NotOneHost,
    /// Several `Origin` headers, of which only one could be checked.
    SeveralOrigins,
}

impl Hosts {
    /// Accepts local names, the listen address and what the operator allows; `tls` says that taskgate serves TLS.
    #[must_use]
    pub fn new(listen: SocketAddr, tls: bool, allowed_hosts: Vec<String>, allowed_origins: Vec<String>) -> Self {
        Self { listen, tls, allowed: allowed_hosts, origins: allowed_origins }
    }

    /// Checks a request.
    ///
    /// # Errors
    /// [`RefusedHeader`], to be answered with 403, or with 400 where the number of headers is wrong.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), RefusedHeader> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = hosts.next().map(|host| host.to_str().unwrap_or("?"));
        let meant = uri.authority().map(Authority::as_str);
        let Some(host) = meant.or(named).filter(|_| hosts.next().is_none()) else {
            return Err(RefusedHeader::NotOneHost);
        };
        // The one that does not count here may count for another server on the way.
        if let Some(foreign) = [Some(host), named].into_iter().flatten().find(|host| !self.is_own(host)) {
            return Err(RefusedHeader::Host(foreign.to_owned()));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        if origins.next().is_some() {
            return Err(RefusedHeader::SeveralOrigins);
        }
        let origin = origin.to_str().unwrap_or("?");
        if self.is_same_origin(origin, host) || self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
        {
            return Ok(());
        }
        Err(RefusedHeader::Origin(origin.to_owned()))
    }

    /// Returns whether a page of `origin` comes from the host and port that it asks. Another port of the same host is
    /// another server, and often another program on the same machine.
    fn is_same_origin(&self, origin: &str, host: &str) -> bool {
        let (page, usual) = match origin.split_once("://") {
            Some(("https", page)) => (page, "443"),
            Some(("http", page)) if !self.tls => (page, "80"),
            _ => return false,
        };
        let (page, host) = (split(page), split(host));
        let port = page.1.unwrap_or(usual);
        // A host without a port has the usual one of its scheme, which is that of the page or unknown.
        page.0.eq_ignore_ascii_case(host.0) && port == host.1.unwrap_or(usual)
    }

    fn is_own(&self, host: &str) -> bool {
        let name = name_of(host);
        let allowed = |entry: &String| entry.eq_ignore_ascii_case(host) || entry.eq_ignore_ascii_case(name);
        let literal = name.trim_matches(['[', ']']).parse::<IpAddr>();
        // An address cannot be rebound: a client that names it means it.
        let own =
            literal.is_ok_and(|ip| ip.is_loopback() || self.listen.ip().is_unspecified() || ip == self.listen.ip());
        own || name.eq_ignore_ascii_case("localhost") || self.allowed.iter().any(allowed)
    }
}

/// Returns a host without its port.
fn name_of(host: &str) -> &str {
    split(host).0
}

/// Splits a host into its name and its port; an empty port counts as none (RFC 3986, section 3.2.3).
fn split(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // Anything but digits belongs to the name, and makes it a foreign one.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, Some(port).filter(|port| !port.is_empty()))
        }
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::{prelude::*, sample::select};

    use super::*;

    fn check(listen: &str, host: &str, origin: Option<&str>) -> Result<(), RefusedHeader> {
        check_over(false, listen, host, origin)
    }

    fn check_over(tls: bool, listen: &str, host: &str, origin: Option<&str>) -> Result<(), RefusedHeader> {
        let hosts = Hosts::new(
            listen.parse().expect("an address"),
            tls,
            vec!["gate.example".into()],
            vec!["https://app.example".into()],
        );
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).expect("a header"));
        }
        hosts.check(&Uri::from_static("/mcp"), &headers)
    }

    #[test]
    fn local_names_the_listen_address_and_allowed_hosts_are_own() {
        for host in ["localhost:8808", "127.0.0.1", "[::1]:8808", "gate.example", "GATE.example:80", "192.0.2.1:8808"] {
            assert_eq!(check("192.0.2.1:8808", host, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "192.0.2.2",
            "localhost.evil.example",
            "",
            "evil.example:8808",
            "[::2]:1",
            "localhost:1@evil.example",
            "localhost:1, evil",
        ] {
            assert_eq!(check("192.0.2.1:8808", host, None), Err(RefusedHeader::Host(host.into())), "{host}");
        }
        assert_eq!(check("0.0.0.0:8808", "192.0.2.7:8808", None), Ok(()));
        assert!(check("0.0.0.0:8808", "evil.example", None).is_err());
    }

    #[test]
    fn there_is_one_host_header_and_a_host_in_the_uri_is_own_too() {
        let hosts = Hosts::new("127.0.0.1:8808".parse().expect("an address"), false, Vec::new(), Vec::new());
        let check = |uri, names: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append(header::HOST, HeaderValue::from_static(name));
            }
            hosts.check(&Uri::from_static(uri), &headers)
        };
        assert_eq!(check("/mcp", &[]), Err(RefusedHeader::NotOneHost));
        assert_eq!(check("/mcp", &["localhost", "localhost"]), Err(RefusedHeader::NotOneHost));
        let evil = Err(RefusedHeader::Host("evil.example".into()));
        assert_eq!(check("http://localhost/mcp", &["evil.example"]), evil);
        assert_eq!(check("http://evil.example/mcp", &["localhost"]), evil);
        // As HTTP/2 has it.
        assert_eq!(check("http://localhost/mcp", &[]), Ok(()));
    }

    #[test]
    fn an_origin_has_the_host_and_the_port_that_were_asked_or_is_an_allowed_one() {
        let listen = "127.0.0.1:8808";
        for (host, origin) in [
            ("localhost:8808", "http://localhost:8808"),
            ("LOCALHOST:8808", "http://localhost:8808"),
            ("[::1]:8808", "http://[::1]:8808"),
            ("localhost:8808", "https://app.example"),
            // The usual ports are left out by either side.
            ("localhost", "http://localhost"),
            ("localhost:", "http://localhost"),
            ("localhost:80", "http://localhost"),
            ("localhost", "http://localhost:80"),
            ("[::1]:80", "http://[::1]"),
            // A proxy in front may serve TLS, and says nothing about it.
            ("gate.example", "https://gate.example"),
            ("gate.example:443", "https://gate.example"),
            ("gate.example:8443", "https://gate.example:8443"),
        ] {
            assert_eq!(check(listen, host, Some(origin)), Ok(()), "{origin} asks {host}");
        }
        for (host, origin) in [
            ("localhost:8808", "http://localhost:6666"),
            ("localhost:8808", "http://localhost"),
            ("localhost", "http://localhost:8808"),
            ("localhost:443", "http://localhost"),
            ("localhost:80", "https://localhost"),
            ("localhost:8808", "http://127.0.0.1:8808"),
            ("[::1]:8808", "http://[::1]:1"),
            ("[::1]:8808", "http://[::1]"),
            ("localhost:8808", "http://evil.example"),
            ("localhost:8808", "null"),
            ("localhost:8808", "https://app.example.evil"),
            ("localhost:8808", "ftp://localhost:8808"),
            ("localhost:8808", "http://localhost:8808/"),
            ("localhost:8808", "http://me@localhost:8808"),
        ] {
            let refused = Err(RefusedHeader::Origin(origin.into()));
            assert_eq!(check(listen, host, Some(origin)), refused, "{origin} asks {host}");
        }
    }

    #[test]
    fn where_taskgate_serves_tls_a_page_in_plain_text_is_foreign() {
        let listen = "127.0.0.1:8808";
        for origin in ["https://localhost:8808", "https://app.example"] {
            assert_eq!(check_over(true, listen, "localhost:8808", Some(origin)), Ok(()), "{origin}");
        }
        let plain = "http://localhost:8808";
        assert_eq!(check_over(true, listen, "localhost:8808", Some(plain)), Err(RefusedHeader::Origin(plain.into())));
    }

    #[test]
    fn several_origins_are_refused() {
        let hosts = Hosts::new("127.0.0.1:8808".parse().expect("an address"), false, Vec::new(), Vec::new());
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        for origin in ["http://localhost", "http://evil.example"] {
            headers.append(header::ORIGIN, HeaderValue::from_static(origin));
        }
        assert_eq!(hosts.check(&Uri::from_static("/mcp"), &headers), Err(RefusedHeader::SeveralOrigins));
    }

    /// A name, own or foreign, in any case, with and without a port.
    fn host() -> impl Strategy<Value = (String, bool)> {
        let own =
            ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "192.0.2.1", "gate.example"].map(|name| (name, true));
        let foreign =
            ["evil.example", "localhost.evil.example", "gate.example.evil", "xgate.example", "192.0.2.2", "[::2]"];
        let foreign =
            foreign.into_iter().chain(["localhost@evil.example", "127.0.0.1.evil", "0.0.0.0", "2130706433", ""]);
        let name = select(own.into_iter().chain(foreign.map(|name| (name, false))).collect::<Vec<_>>());
        (name, proptest::bool::ANY, proptest::option::of(0_u16..)).prop_map(|((name, own), loud, port)| {
            let name = if loud { name.to_uppercase() } else { name.to_owned() };
            (port.map_or(name.clone(), |port| format!("{name}:{port}")), own)
        })
    }

    proptest! {
        #[test]
        fn no_case_and_no_port_makes_a_foreign_host_own((host, own) in host()) {
            prop_assert_eq!(check("192.0.2.1:8808", &host, None).is_ok(), own, "{}", host);
        }

        #[test]
        fn a_page_of_a_foreign_host_may_call_no_host((page, _) in host(), (host, own) in host()) {
            let port = |host| split(host).1.unwrap_or("80").to_owned();
            let same = name_of(&page).eq_ignore_ascii_case(name_of(&host)) && port(&page) == port(&host);
            let answer = check("192.0.2.1:8808", &host, Some(&format!("http://{page}")));
            prop_assert_eq!(answer.is_ok(), own && same, "{} for {}", host, page);
        }

        #[test]
        fn of_all_texts_only_own_names_are_own(host in "[ -~]{0,20}") {
            if check("192.0.2.1:8808", &host, None).is_ok() {
                let name = name_of(&host).to_ascii_lowercase();
                let ip = name.trim_matches(['[', ']']).parse::<IpAddr>();
                let address = ip.is_ok_and(|ip| ip.is_loopback() || ip.to_string() == "192.0.2.1");
                prop_assert!(address || ["localhost", "gate.example"].contains(&name.as_str()), "{}", host);
            }
        }
    }
}
