//! The callers whose requests came last to each thread. Looking a caller up, and counting the uses of what all threads
//! know of it, takes longer than to recognise it.

use std::{cell::RefCell, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{identity::OwnerKind, session::Caller, upstream::Upstream, wire::ClientCapabilities};

/// How many are known to each thread.
const MOST: usize = 8;
/// How long one is known. An account that is in use has to be looked up now and then: those that are not are forgotten
/// ([`crate::limit::Accounts`]).
const KNOWN: Duration = Duration::from_secs(1);

thread_local! {
    static LAST: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

struct Known {
    caller: Arc<Caller>,
    since: Instant,
}

/// Returns the caller of a request that comes `now`, as `look_up` says where it is not known.
pub(super) fn recall(
    upstream: &Arc<Upstream>,
    principal: Option<&str>,
    client: ClientCapabilities,
    now: Instant,
    look_up: impl FnOnce() -> Caller,
) -> Arc<Caller> {
    LAST.with_borrow_mut(|last| {
        let is_it = |caller: &Caller| {
            let names = match caller.owner.kind() {
                OwnerKind::Principal { name, .. } => Some(&**name),
                OwnerKind::Anyone { .. } | OwnerKind::Session(_) => None,
            };
            Arc::ptr_eq(&caller.upstream, upstream) && caller.client == client && names == principal
        };
        let at = last.iter().position(|known| is_it(&known.caller));
        if let Some(known) = at.and_then(|at| last.get(at)).filter(|known| now < known.since + KNOWN) {
            return Arc::clone(&known.caller);
        }
        let caller = Arc::new(look_up());
        let known = Known { caller: Arc::clone(&caller), since: now };
        match at {
            Some(at) => last[at] = known,
            None if last.len() < MOST => last.push(known),
            None => {
                let oldest = last.iter_mut().min_by_key(|known| known.since);
                *oldest.unwrap_or_else(|| unreachable!("it is full")) = known;
            }
        }
        caller
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{config::Rates, identity::Owner, limit::Accounts, observe::Observer};

    #[test]
    fn a_caller_is_looked_up_once_a_second_and_no_other_ones_requests_get_it() {
        let (accounts, now) = (Accounts::new(Rates::default()), Instant::now());
        let (here, there) = (Upstream::unused("/here"), Upstream::unused("/there"));
        let (mute, asked) = (ClientCapabilities::default(), ClientCapabilities { roots: true, ..Default::default() });
        let look_ups = Cell::new(0);
        let recall = |upstream: &Arc<Upstream>, name: Option<&str>, client, now| {
            let caller = recall(upstream, name, client, now, || {
                look_ups.set(look_ups.get() + 1);
                let id = upstream.id.clone();
                let owner =
                    name.map_or_else(|| Owner::anyone(id.clone()), |name| Owner::principal(id.clone(), name.into()));
                let account = accounts.of(&owner);
                let who = Observer::default().who(name, uuid::Uuid::nil(), &id);
                Caller { owner, who, account, upstream: Arc::clone(upstream), client, session: None }
            });
            assert!(Arc::ptr_eq(&caller.upstream, upstream) && caller.client == client);
            let owner = Owner::anyone(upstream.id.clone());
            let owner = name.map_or(owner, |name| Owner::principal(upstream.id.clone(), name.into()));
            assert_eq!(caller.owner, owner);
            look_ups.get()
        };
        let others = [
            (&here, None, mute),
            (&there, None, mute),
            (&here, None, asked),
            (&here, Some("ann"), mute),
            (&here, Some("bob"), mute),
        ];
        for (nth, (upstream, name, client)) in (1..).zip(others) {
            assert_eq!(recall(upstream, name, client, now), nth, "not known yet");
        }
        for (upstream, name, client) in others {
            assert_eq!(recall(upstream, name, client, now + KNOWN / 2), 5, "known");
        }
        for nth in 0..MOST {
            recall(&there, Some(&nth.to_string()), mute, now + KNOWN / 2);
        }
        assert_eq!(recall(&here, None, mute, now + KNOWN / 2), 6 + MOST, "it has made room");
        assert_eq!(recall(&here, None, mute, now + KNOWN * 2), 7 + MOST, "known for too long");
        assert_eq!(LAST.with_borrow(Vec::len), MOST);
    }
}
