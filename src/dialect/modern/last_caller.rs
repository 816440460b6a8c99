//! The caller of a connection's last request. Looking a caller up, and counting the uses of what all threads know of it,
//! takes longer than recognising it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{identity::OwnerKind, session::Caller, upstream::Upstream, wire::ClientCapabilities};

/// How long a caller is recognised. An account that is in use has to be looked up now and then, since those that are not
/// are forgotten ([`crate::limit::Accounts`]).
const RECOGNISED: Duration = Duration::from_secs(1);

/// Who has sent the last request on a connection, whose next one most likely comes from the same.
#[derive(Debug, Default)]
pub struct LastCaller(Mutex<Option<(Arc<Caller>, Instant)>>);

impl LastCaller {
    /// Returns the caller of a request that comes `now`, as `look_up` says where it is another one than the last.
    pub(super) fn recognise(
        &self,
        upstream: &Arc<Upstream>,
        principal: Option<&str>,
        client: ClientCapabilities,
        now: Instant,
        look_up: impl FnOnce() -> Caller,
    ) -> Arc<Caller> {
        let mut last = self.0.lock();
        if let Some((caller, since)) = &*last {
            let name = match caller.owner.kind() {
                OwnerKind::Principal { name, .. } => Some(&**name),
                OwnerKind::Anyone { .. } | OwnerKind::Session(_) => None,
            };
            let is_same = Arc::ptr_eq(&caller.upstream, upstream) && caller.client == client && name == principal;
            if is_same && now < *since + RECOGNISED {
                return Arc::clone(caller);
            }
        }
        let caller = Arc::new(look_up());
        *last = Some((Arc::clone(&caller), now));
        caller
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{config::Rates, identity::Owner, limit::Accounts, observe::Observer};

    #[test]
    fn a_caller_is_looked_up_once_a_second_and_is_never_taken_for_another() {
        let (accounts, last, now) = (Accounts::new(Rates::default()), LastCaller::default(), Instant::now());
        let (here, there) = (Upstream::unused("/here"), Upstream::unused("/there"));
        let mute = ClientCapabilities::default();
        let asked = ClientCapabilities { roots: true, ..mute };
        let look_ups = Cell::new(0);
        let recognise = |upstream: &Arc<Upstream>, name: Option<&str>, client, now| {
            let id = &upstream.id;
            let owner = match name {
                Some(name) => Owner::principal(id.clone(), name.into()),
                None => Owner::anyone(id.clone()),
            };
            let caller = last.recognise(upstream, name, client, now, || {
                look_ups.set(look_ups.get() + 1);
                let (account, owner) = (accounts.of(&owner), owner.clone());
                let who = Observer::default().who(name, uuid::Uuid::nil(), id);
                Caller { owner, who, account, upstream: Arc::clone(upstream), client, session: None }
            });
            assert!(Arc::ptr_eq(&caller.upstream, upstream));
            assert_eq!((&caller.owner, caller.client), (&owner, client));
            look_ups.get()
        };
        let others = [
            (&here, None, mute),
            (&there, None, mute),
            (&here, None, mute),
            (&here, None, asked),
            (&here, Some("ann"), asked),
            (&here, Some("bob"), asked),
        ];
        for (nth, (upstream, name, client)) in (1..).zip(others) {
            assert_eq!(recognise(upstream, name, client, now), nth, "another one");
            assert_eq!(recognise(upstream, name, client, now + RECOGNISED / 2), nth, "the same");
        }
        assert_eq!(recognise(&here, Some("bob"), asked, now + RECOGNISED), 7, "not looked up for too long");
    }
}
