//! The principal that a client's certificate names.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use x509_parser::{extensions::GeneralName, parse_x509_certificate};

use super::{Denied, Pass, Principal};

/// What a verified certificate says about its client.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The subject alternative name with its kind in front, or why it names no principal.
    name: Result<Arc<str>, Denied>,
    /// The end of its validity.
    ends: SystemTime,
}

impl Certificate {
    /// Reads a certificate in DER whose signature has been verified; `None` if it cannot be read.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        let ends = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
        let names = certificate.subject_alternative_name().ok()?;
        let names = names.map_or(&[][..], |extension| &extension.value.general_names);
        // Of several names the kind decides first, then the order.
        let kinds: [(&str, NameOf); 3] = [("uri", uri), ("dns", dns), ("email", email)];
        let found = kinds.iter().find_map(|(kind, name_of)| Some((*kind, names.iter().find_map(name_of)?)));
        let name = match found {
            None => Err(Denied::NoName),
            // Not the next one: it may be shared by clients whose own names the authority has failed to write.
            Some((_, "")) => Err(Denied::EmptyName),
            Some((_, name)) if name.chars().any(char::is_control) => Err(Denied::NameNotText),
            // With its kind, so that the email address in one certificate is never the URI in another.
            Some((kind, name)) => Ok(format!("{kind}:{name}").into()),
        };
        Some(Self { name, ends: SystemTime::UNIX_EPOCH + Duration::from_secs(ends) })
    }
}

/// Returns the text of a general name, if it is of one kind.
type NameOf = for<'a> fn(&GeneralName<'a>) -> Option<&'a str>;

fn uri<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    if let GeneralName::URI(uri) = name { Some(uri) } else { None }
}

fn dns<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    if let GeneralName::DNSName(dns) = name { Some(dns) } else { None }
}

fn email<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    if let GeneralName::RFC822Name(email) = name { Some(email) } else { None }
}

/// Returns the principal that a certificate names. A renewed certificate with the same name is the same principal.
pub(super) fn principal(certificate: Option<&Certificate>) -> Result<Principal, Denied> {
    let certificate = certificate.ok_or(Denied::NoName)?;
    let pass = Pass::Until(certificate.ends);
    if !pass.is_live() {
        return Err(Denied::ExpiredCertificate);
    }
    let name = certificate.name.clone()?;
    Ok(Principal { name, pass })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};

    use super::*;

    fn read(names: &[SanType], ends: i32) -> Certificate {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.to_vec();
        params.not_after = date_time_ymd(ends, 1, 1);
        let key = KeyPair::generate().expect("a key");
        Certificate::read(params.self_signed(&key).expect("a certificate").der()).expect("it can be read")
    }

    fn name(names: &[SanType]) -> Result<String, Denied> {
        principal(Some(&read(names, 4000))).map(|principal| principal.name.to_string())
    }

    #[test]
    fn the_first_uri_is_the_principal_else_the_first_dns_name_else_the_first_email_address() {
        let text = |text: &str| text.try_into().expect("ASCII");
        let [uri, other] = ["spiffe://a/ann", "spiffe://a/other"].map(|name| SanType::URI(text(name)));
        let dns = SanType::DnsName(text("ann.example"));
        let email = SanType::Rfc822Name(text("ann@example"));
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        assert_eq!(
            name(&[address.clone(), email.clone(), dns.clone(), uri, other]).as_deref(),
            Ok("uri:spiffe://a/ann")
        );
        assert_eq!(name(&[email.clone(), dns]).as_deref(), Ok("dns:ann.example"));
        assert_eq!(name(&[address.clone(), email]).as_deref(), Ok("email:ann@example"));
        assert_eq!(name(&[address]), Err(Denied::NoName));
        assert_eq!(name(&[]), Err(Denied::NoName));
    }

    #[test]
    fn a_first_name_that_is_empty_is_refused_as_such_and_no_other_takes_its_place() {
        let text = |text: &str| text.try_into().expect("ASCII");
        let dns = SanType::DnsName(text("ann.example"));
        let empty = [SanType::URI(text("")), SanType::DnsName(text("")), SanType::Rfc822Name(text(""))];
        for first in &empty {
            let others = [first.clone(), SanType::Rfc822Name(text("ann@example"))];
            assert_eq!(name(&others), Err(Denied::EmptyName), "{first:?}");
        }
        let [uri, ..] = empty;
        assert_eq!(name(&[uri, dns]), Err(Denied::EmptyName));
        assert!(Denied::EmptyName.to_string().contains("is empty"));
    }

    #[test]
    fn a_name_with_control_characters_is_refused_and_no_other_takes_its_place() {
        let text = |text: &str| text.try_into().expect("ASCII");
        let other = SanType::DnsName(text("ann.example"));
        for name_of in ["ann\nbob", "ann\u{7f}", "\t"] {
            assert_eq!(name(&[SanType::URI(text(name_of)), other.clone()]), Err(Denied::NameNotText), "{name_of:?}");
        }
    }

    #[test]
    fn a_name_of_one_kind_is_never_that_of_another_kind() {
        let text = |text: &str| text.try_into().expect("ASCII");
        let [uri, dns, email] =
            [SanType::URI(text("ann")), SanType::DnsName(text("ann")), SanType::Rfc822Name(text("ann"))]
                .map(|san| name(&[san]).expect("a name"));
        assert!(uri != dns && dns != email && email != uri, "{uri} {dns} {email}");
    }

    #[test]
    fn a_missing_certificate_and_one_that_has_ended_name_no_principal() {
        assert_eq!(principal(None).map(|principal| principal.name), Err(Denied::NoName));
        let names = [SanType::DnsName("ann.example".try_into().expect("ASCII"))];
        let ended = principal(Some(&read(&names, 2020)));
        assert_eq!(ended.map(|principal| principal.name), Err(Denied::ExpiredCertificate));
        assert!(Certificate::read(b"nonsense").is_none());
    }
}
