//! The claims of a token, which its issuer signs or tells (RFC 7519, section 4.1; RFC 7662, section 2.2).

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::Deserialize;

use super::{Denied, Pass, Principal};
use crate::config::TokenRules;

/// The longest subject, in bytes: far beyond those that issuers name. Sessions and tasks keep the names.
const MAX_SUBJECT: usize = 1024;

/// What a token claims. A claim that is there twice is an error, because two readers could each take another one.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    sub: Option<String>,
    aud: Option<OneOrSeveral>,
    pub(super) exp: Option<f64>,
    nbf: Option<f64>,
    /// The scopes, as RFC 8693 has them.
    scope: Option<String>,
    /// The scopes, as other issuers have them.
    scp: Option<OneOrSeveral>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

impl Claims {
    /// Returns the principal, if the token claims everything that it must.
    pub(super) fn principal(&self, rules: &TokenRules, leeway: Duration) -> Result<Principal, Denied> {
        if self.iss.as_ref().is_some_and(|issuer| *issuer != rules.issuer) {
            return Err(Denied::BadToken("the token is from another issuer"));
        }
        let is_ours = |audience: &str| rules.audience.iter().any(|ours| ours == audience);
        let for_us = match &self.aud {
            Some(OneOrSeveral::One(audience)) => is_ours(audience),
            Some(OneOrSeveral::Several(audiences)) => audiences.iter().any(|audience| is_ours(audience)),
            None => false,
        };
        if !for_us && !rules.audience.is_empty() {
            return Err(Denied::BadToken("the token is for another audience"));
        }
        let pass = self.pass(leeway)?;
        let fits = |sub: &&String| !sub.is_empty() && sub.len() <= MAX_SUBJECT && !sub.chars().any(char::is_control);
        let Some(subject) = self.sub.as_ref().filter(fits) else {
            return Err(Denied::BadToken("the token names no subject"));
        };
        if !rules.required_scopes.iter().all(|scope| self.has_scope(scope)) {
            return Err(Denied::Scope);
        }
        // An issuer has no space in it, so that no two pairs make the same name.
        Ok(Principal { name: Arc::from(format!("{} {subject}", rules.issuer)), pass })
    }

    fn pass(&self, leeway: Duration) -> Result<Pass, Denied> {
        let now = SystemTime::now();
        let with_leeway = |seconds: f64| {
            let since = Duration::try_from_secs_f64(seconds).ok()?;
            SystemTime::UNIX_EPOCH.checked_add(since)?.checked_add(leeway)
        };
        let malformed = Denied::BadToken("the token has a malformed time");
        if let Some(begin) = self.nbf {
            let begin = with_leeway(begin).ok_or_else(|| malformed.clone())?;
            // `begin` has the leeway added, so `now` gets it twice.
            if now.checked_add(leeway).and_then(|now| now.checked_add(leeway)).is_none_or(|now| begin > now) {
                return Err(Denied::BadToken("the token is not valid yet"));
            }
        }
        let Some(end) = self.exp else { return Ok(Pass::Lasting) };
        let end = with_leeway(end).ok_or(malformed)?;
        if end <= now { Err(Denied::BadToken("the token has expired")) } else { Ok(Pass::Until(end)) }
    }

    fn has_scope(&self, scope: &str) -> bool {
        let among = |list: &str| list.split(' ').any(|item| item == scope);
        self.scope.as_deref().is_some_and(among)
            || match &self.scp {
                Some(OneOrSeveral::One(list)) => among(list),
                Some(OneOrSeveral::Several(scopes)) => scopes.iter().any(|item| item == scope),
                None => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules() -> TokenRules {
        TokenRules {
            issuer: "https://i".to_owned(),
            audience: vec!["a".to_owned(), "b".to_owned()],
            required_scopes: vec!["read".to_owned(), "write".to_owned()],
        }
    }

    fn now() -> f64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64()
    }

    fn claims() -> Value {
        json!({ "iss": "https://i", "sub": "s", "aud": "b", "exp": now() + 60.0, "scope": "write read" })
    }

    fn principal_with(changes: &Value) -> Result<String, Denied> {
        let mut all = claims();
        for (name, value) in changes.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let claims: Claims = serde_json::from_value(all).expect("claims");
        claims.principal(&rules(), Duration::from_secs(5)).map(|principal| principal.name.to_string())
    }

    #[test]
    fn the_principal_is_issuer_and_subject() {
        assert_eq!(principal_with(&json!({})).as_deref(), Ok("https://i s"));
        assert_eq!(principal_with(&json!({ "sub": "t u" })).as_deref(), Ok("https://i t u"));
        for sub in [json!(""), json!(null), json!("a\nb"), json!("a".repeat(MAX_SUBJECT + 1))] {
            assert_eq!(principal_with(&json!({ "sub": sub })), Err(Denied::BadToken("the token names no subject")));
        }
    }

    #[test]
    fn one_of_the_audiences_must_be_ours_exactly() {
        for aud in [json!("a"), json!(["x", "b"])] {
            assert!(principal_with(&json!({ "aud": aud })).is_ok());
        }
        for aud in [json!("c"), json!("a b"), json!([]), json!(["A", "ab"]), json!(null)] {
            assert_eq!(
                principal_with(&json!({ "aud": aud })),
                Err(Denied::BadToken("the token is for another audience")),
                "{aud}"
            );
        }
        assert!(principal_with(&json!({ "iss": "https://i/" })).is_err());
    }

    #[test]
    fn times_count_with_the_leeway() {
        assert!(principal_with(&json!({ "exp": now() - 4.0, "nbf": now() + 4.0 })).is_ok());
        assert_eq!(principal_with(&json!({ "exp": now() - 6.0 })), Err(Denied::BadToken("the token has expired")));
        assert_eq!(principal_with(&json!({ "nbf": now() + 6.0 })), Err(Denied::BadToken("the token is not valid yet")));
        for time in [-1.0, 1e300] {
            assert!(principal_with(&json!({ "exp": time })).is_err());
            assert!(principal_with(&json!({ "nbf": time })).is_err());
        }
    }

    #[test]
    fn every_scope_is_needed_in_each_form_of_scopes() {
        for scopes in [json!({ "scope": "read x write" }), json!({ "scope": null, "scp": "write read" })] {
            assert!(principal_with(&scopes).is_ok(), "{scopes}");
        }
        assert!(principal_with(&json!({ "scope": "read", "scp": ["write"] })).is_ok());
        for scopes in [json!({ "scope": "read" }), json!({ "scope": "readwrite" }), json!({ "scope": null })] {
            assert_eq!(principal_with(&scopes), Err(Denied::Scope), "{scopes}");
        }
    }

    #[test]
    fn a_claim_that_is_there_twice_is_an_error() {
        assert!(serde_json::from_str::<Claims>(r#"{"sub":"a","sub":"b"}"#).is_err());
        assert!(serde_json::from_str::<Claims>(r#"{"exp":"1"}"#).is_err());
    }
}
