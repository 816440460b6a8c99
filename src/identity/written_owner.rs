//! The form of an owner in files: stable, and strict where it is read.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use super::{Owner, OwnerKind};

/// The order of the variants and of their fields is a part of the form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Written<'a> {
    Session(Uuid),
    Anyone {
        #[serde(borrow)]
        upstream: std::borrow::Cow<'a, str>,
    },
    Principal {
        #[serde(borrow)]
        upstream: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        name: std::borrow::Cow<'a, str>,
    },
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self.kind() {
            OwnerKind::Session(id) => Written::Session(*id),
            OwnerKind::Anyone { upstream } => Written::Anyone { upstream: upstream.as_str().into() },
            OwnerKind::Principal { upstream, name } => {
                Written::Principal { upstream: upstream.as_str().into(), name: (&**name).into() }
            }
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Owner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Session(id) => Self::session(id),
            Written::Anyone { upstream } => Self::anyone((&*upstream).into()),
            Written::Principal { upstream, name } => Self::principal((&*upstream).into(), (&*name).into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_form_of_an_owner_stays_as_it_is() {
        let upstream = || "/mcp".into();
        for (owner, written, bytes) in [
            (
                Owner::session(Uuid::nil()),
                r#"{"session":"00000000-0000-0000-0000-000000000000"}"#,
                b"\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".as_slice(),
            ),
            (Owner::anyone(upstream()), r#"{"anyone":{"upstream":"/mcp"}}"#, b"\x01\x04/mcp"),
            (
                Owner::principal(upstream(), "ann \"a\"".into()),
                r#"{"principal":{"upstream":"/mcp","name":"ann \"a\""}}"#,
                b"\x02\x04/mcp\x07ann \"a\"",
            ),
        ] {
            assert_eq!(postcard::to_allocvec(&owner).expect("written"), bytes);
            assert_eq!(postcard::from_bytes::<Owner>(bytes).expect("read"), owner);
            assert_eq!(serde_json::to_string(&owner).expect("written"), written);
            assert_eq!(serde_json::from_str::<Owner>(written).expect("read"), owner);
        }
        for wrong in [r#"{"anyone":{}}"#, r#"{"anyone":{"upstream":"/mcp","name":"x"}}"#, r#"{"other":1}"#, "null"] {
            assert!(serde_json::from_str::<Owner>(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn an_owner_is_read_as_it_was_written(upstream in ".{0,20}", name in ".{0,20}") {
            let owner = Owner::principal(upstream.as_str().into(), name.into());
            let written = serde_json::to_vec(&owner).expect("written");
            prop_assert_eq!(serde_json::from_slice::<Owner>(&written).expect("read"), owner);
        }
    }
}
