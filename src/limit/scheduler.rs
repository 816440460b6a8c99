//! Decides which calls run, which wait, and which is next; without I/O. A slot that becomes free goes round between the
//! owners, then between the tools of the owner, and there to the call that has waited longest.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use slab::Slab;

use super::limited::{Bound, Limited};
use crate::{config::UpstreamId, identity::Owner, wire::excerpt};

/// Returns whether waiting calls of an owner may have turns, if there is room for them.
pub(super) type MayStart<'a> = &'a dyn Fn(&Owner) -> bool;

/// Names a tool of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolId {
    /// The upstream.
    pub upstream: UpstreamId,
    /// The tool's name there.
    pub name: Arc<str>,
}

impl ToolId {
    /// Names the tool that a client calls by `name`. The client chooses that, and its length; long names with the same
    /// beginning share their turns.
    #[must_use]
    pub fn of(upstream: &UpstreamId, name: &str) -> Self {
        Self { upstream: upstream.clone(), name: excerpt(name).into() }
    }
}

/// How many calls of one tool may run, and how many of each owner may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolLimits {
    /// Most that run.
    pub running: usize,
    /// Most that wait of one owner; 0 refuses instead of queueing.
    pub queued: usize,
}

/// The limits that hold across tools. All but the last two count calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Most calls of one owner that run.
    pub running_per_owner: usize,
    /// Most calls that run.
    pub running: usize,
    /// Most calls of one owner that wait.
    pub queued_per_owner: usize,
    /// Most calls that wait.
    pub queued: usize,
    /// Most bytes of the requests of one owner's waiting calls.
    pub queued_bytes_per_owner: usize,
    /// Most bytes of the requests of all waiting calls.
    pub queued_bytes: usize,
}

/// Every call that runs or waits. A tool and an owner are remembered only while one of their calls is here: a client
/// chooses the name of the tool, and perhaps that of the owner.
#[derive(Debug)]
pub(super) struct Scheduler<C> {
    max: Totals,
    running: usize,
    queued: usize,
    /// Bytes of the requests of waiting calls.
    bytes: usize,
    tools: Slab<ToolCalls>,
    tool_ids: HashMap<ToolId, usize>,
    owners: Slab<OwnerCalls<C>>,
    owner_ids: HashMap<Owner, usize>,
    /// The owners with waiting calls, by place: the next one first.
    ring: BTreeMap<u64, usize>,
    /// The newest place. Places grow, and are never used again.
    last_place: u64,
}

/// The owner and the tool of a call, as keys of the slabs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallKeys {
    owner: usize,
    tool: usize,
}

/// The calls of one tool.
#[derive(Debug)]
struct ToolCalls {
    id: ToolId,
    max_running: usize,
    running: usize,
    /// The owners with calls that wait for it, by place: the next one first.
    ring: BTreeMap<u64, usize>,
}

/// The calls of one owner.
#[derive(Debug)]
struct OwnerCalls<C> {
    owner: Owner,
    running: usize,
    queued: usize,
    /// Bytes of the requests of its waiting calls.
    bytes: usize,
    /// Its place in the ring of all owners, while calls of it wait.
    place: u64,
    /// Its waiting calls, by tool.
    queues: HashMap<usize, ToolQueue<C>>,
    /// The tools that calls of it wait for, by place: the next one first.
    ring: BTreeMap<u64, usize>,
}

/// The waiting calls of one owner and one tool.
#[derive(Debug)]
struct ToolQueue<C> {
    /// Its place in the rings of the tool and of the owner.
    place: u64,
    calls: BTreeMap<u64, WaitingCall<C>>,
}

#[derive(Debug)]
struct WaitingCall<C> {
    /// What the call's turn returns.
    on_turn: C,
    /// The size of its request.
    bytes: usize,
}

impl<C> Scheduler<C> {
    pub(super) fn new(max: Totals) -> Self {
        Self {
            max,
            running: 0,
            queued: 0,
            bytes: 0,
            tools: Slab::new(),
            tool_ids: HashMap::new(),
            owners: Slab::new(),
            owner_ids: HashMap::new(),
            ring: BTreeMap::new(),
            last_place: 0,
        }
    }

    /// Lets a call run, or wait at the place that is returned. A waiting call keeps its request of so many `bytes`, and
    /// what `on_turn` makes, which its turn returns.
    ///
    /// # Errors
    /// [`Limited`]
    pub(super) fn enter(
        &mut self,
        owner: &Owner,
        tool: ToolId,
        limits: ToolLimits,
        bytes: usize,
        on_turn: impl FnOnce() -> C,
    ) -> Result<(CallKeys, Option<u64>), Limited> {
        let keys = self.keys(owner, tool, limits.running);
        let Some(running) = self.run_bound(keys) else {
            self.begin(keys);
            return Ok((keys, None));
        };
        if let Some(queued) = self.queue_bound(keys, limits.queued, bytes) {
            self.forget(keys);
            return Err(Limited { running, queued });
        }
        Ok((keys, Some(self.wait(keys, WaitingCall { on_turn: on_turn(), bytes }))))
    }

    /// Lets a call run or wait, as [`Scheduler::enter`] does, that has waited before, in an earlier process, however
    /// many may wait now.
    pub(super) fn enter_again(
        &mut self,
        owner: &Owner,
        tool: ToolId,
        limits: ToolLimits,
        bytes: usize,
        on_turn: impl FnOnce() -> C,
    ) -> (CallKeys, Option<u64>) {
        let keys = self.keys(owner, tool, limits.running);
        if self.run_bound(keys).is_none() {
            self.begin(keys);
            return (keys, None);
        }
        (keys, Some(self.wait(keys, WaitingCall { on_turn: on_turn(), bytes })))
    }

    /// Begins a call that has run before, in an earlier process, whatever the limits are now.
    pub(super) fn enter_running(&mut self, owner: &Owner, tool: ToolId, limits: ToolLimits) -> CallKeys {
        let keys = self.keys(owner, tool, limits.running);
        self.begin(keys);
        keys
    }

    /// Ends a call that ran, and begins those that run in its place: one for the slot of its tool and one for that of
    /// its owner, or a single one where the process was full. No other call can run now, since no waiting call could
    /// run before. For an owner that may start again there is [`Scheduler::next`].
    pub(super) fn leave(&mut self, keys: CallKeys, may_start: MayStart<'_>) -> [Option<(CallKeys, C)>; 2] {
        let full = self.running >= self.max.running;
        self.running -= 1;
        self.tools[keys.tool].running -= 1;
        self.owners[keys.owner].running -= 1;
        let next = if full {
            [self.next(may_start), None]
        } else {
            [self.next_after(keys, may_start), self.next_after(keys, may_start)]
        };
        self.forget(keys);
        next
    }

    /// Begins the next call that can run, of any owner, if there is room.
    pub(super) fn next(&mut self, may_start: MayStart<'_>) -> Option<(CallKeys, C)> {
        let next = self.next_of_all(may_start)?;
        self.take_turn(next)
    }

    /// Removes a call that waits no longer. Has no effect if the call has had its turn.
    pub(super) fn give_up(&mut self, keys: CallKeys, place: u64) {
        let queue = self.owners.get_mut(keys.owner).and_then(|owner| owner.queues.get_mut(&keys.tool));
        // Keys are used again, places are not.
        if let Some(call) = queue.and_then(|queue| queue.calls.remove(&place)) {
            self.left_queue(keys, call.bytes, false);
            self.forget(keys);
        }
    }

    /// Returns the keys of an owner and a tool, which are remembered from now on.
    fn keys(&mut self, owner: &Owner, tool: ToolId, max_running: usize) -> CallKeys {
        let (tools, owners) = (&mut self.tools, &mut self.owners);
        let tool = *self.tool_ids.entry(tool).or_insert_with_key(|id| {
            tools.insert(ToolCalls { id: id.clone(), max_running, running: 0, ring: BTreeMap::new() })
        });
        let owner = *self.owner_ids.entry(owner.clone()).or_insert_with_key(|owner| {
            let (queues, ring) = (HashMap::new(), BTreeMap::new());
            owners.insert(OwnerCalls { owner: owner.clone(), running: 0, queued: 0, bytes: 0, place: 0, queues, ring })
        });
        CallKeys { owner, tool }
    }

    /// Returns the limit that keeps a call from running, if one does.
    fn run_bound(&self, keys: CallKeys) -> Option<Bound> {
        let (tool, max) = (&self.tools[keys.tool], &self.max);
        if tool.running >= tool.max_running {
            Some(Bound::Tool(tool.max_running))
        } else if self.owners[keys.owner].running >= max.running_per_owner {
            Some(Bound::Owner(max.running_per_owner))
        } else {
            (self.running >= max.running).then_some(Bound::All(max.running))
        }
    }

    /// Returns the limit that keeps a call from waiting, if one does.
    fn queue_bound(&self, keys: CallKeys, max_queued: usize, bytes: usize) -> Option<Bound> {
        let (owner, max) = (&self.owners[keys.owner], &self.max);
        if owner.queues.get(&keys.tool).map_or(0, |queue| queue.calls.len()) >= max_queued {
            Some(Bound::Tool(max_queued))
        } else if owner.queued >= max.queued_per_owner {
            Some(Bound::Owner(max.queued_per_owner))
        } else if self.queued >= max.queued {
            Some(Bound::All(max.queued))
        } else if owner.bytes + bytes > max.queued_bytes_per_owner {
            Some(Bound::BytesOfOwner(max.queued_bytes_per_owner))
        } else {
            (self.bytes + bytes > max.queued_bytes).then_some(Bound::Bytes(max.queued_bytes))
        }
    }

    /// Counts a call that begins to run.
    fn begin(&mut self, keys: CallKeys) {
        self.running += 1;
        self.tools[keys.tool].running += 1;
        self.owners[keys.owner].running += 1;
    }

    /// Puts a call at the end of its queue, and returns its place.
    fn wait(&mut self, keys: CallKeys, call: WaitingCall<C>) -> u64 {
        self.last_place += 1;
        let place = self.last_place;
        let (tool, owner) = (&mut self.tools[keys.tool], &mut self.owners[keys.owner]);
        if owner.queued == 0 {
            owner.place = place;
            self.ring.insert(place, keys.owner);
        }
        let queue = owner.queues.entry(keys.tool).or_insert_with(|| {
            tool.ring.insert(place, keys.owner);
            owner.ring.insert(place, keys.tool);
            ToolQueue { place, calls: BTreeMap::new() }
        });
        owner.bytes += call.bytes;
        self.bytes += call.bytes;
        queue.calls.insert(place, call);
        owner.queued += 1;
        self.queued += 1;
        place
    }

    /// Begins the next call for the slot of a tool or for that of an owner. The tool's order comes first, or its owner
    /// would keep the slot; where it is that owner's turn, the owner's order decides which tool it is.
    fn next_after(&mut self, keys: CallKeys, may_start: MayStart<'_>) -> Option<(CallKeys, C)> {
        let of_tool = self.next_of_tool(keys.tool, may_start).filter(|next| next.owner != keys.owner);
        let next = of_tool.or_else(|| self.next_of_owner(keys.owner, may_start))?;
        self.take_turn(next)
    }

    /// Returns the first owner with room that waits for a tool, if the tool has room.
    fn next_of_tool(&self, key: usize, may_start: MayStart<'_>) -> Option<CallKeys> {
        let tool = self.tools.get(key).filter(|tool| tool.running < tool.max_running)?;
        let has_room = |owner: &usize| self.has_room(&self.owners[*owner], may_start);
        tool.ring.values().copied().find(has_room).map(|owner| CallKeys { owner, tool: key })
    }

    /// Returns the first tool with room that an owner waits for, if the owner has room.
    fn next_of_owner(&self, key: usize, may_start: MayStart<'_>) -> Option<CallKeys> {
        let owner = self.owners.get(key).filter(|owner| self.has_room(owner, may_start))?;
        let has_room = |tool: &usize| self.tools[*tool].running < self.tools[*tool].max_running;
        owner.ring.values().copied().find(has_room).map(|tool| CallKeys { owner: key, tool })
    }

    /// Returns the first owner with room, and its first tool with room, if the process has room.
    fn next_of_all(&self, may_start: MayStart<'_>) -> Option<CallKeys> {
        if self.running >= self.max.running {
            return None;
        }
        self.ring.values().find_map(|owner| self.next_of_owner(*owner, may_start))
    }

    /// Returns whether an owner has a waiting call, and room for it to run.
    fn has_room(&self, owner: &OwnerCalls<C>, may_start: MayStart<'_>) -> bool {
        owner.running < self.max.running_per_owner && owner.queued > 0 && may_start(&owner.owner)
    }

    /// Begins the call of one owner and one tool that has waited longest.
    fn take_turn(&mut self, keys: CallKeys) -> Option<(CallKeys, C)> {
        let (_, call) = self.owners[keys.owner].queues.get_mut(&keys.tool)?.calls.pop_first()?;
        self.left_queue(keys, call.bytes, true);
        self.begin(keys);
        Some((keys, call.on_turn))
    }

    /// Counts that a call with so many bytes has left its queue. After a `turn` the queue and its owner go behind all
    /// others.
    fn left_queue(&mut self, keys: CallKeys, bytes: usize, turn: bool) {
        self.last_place += u64::from(turn);
        let (tool, owner) = (&mut self.tools[keys.tool], &mut self.owners[keys.owner]);
        (self.queued, self.bytes) = (self.queued - 1, self.bytes - bytes);
        (owner.queued, owner.bytes) = (owner.queued - 1, owner.bytes - bytes);
        let Some(queue) = owner.queues.get_mut(&keys.tool) else { return };
        let (place, empty) = (queue.place, queue.calls.is_empty());
        if turn || empty {
            tool.ring.remove(&place);
            owner.ring.remove(&place);
        }
        if empty {
            owner.queues.remove(&keys.tool);
        } else if turn {
            queue.place = self.last_place;
            tool.ring.insert(self.last_place, keys.owner);
            owner.ring.insert(self.last_place, keys.tool);
        }
        if turn || owner.queued == 0 {
            self.ring.remove(&owner.place);
        }
        if turn && owner.queued > 0 {
            owner.place = self.last_place;
            self.ring.insert(self.last_place, keys.owner);
        }
    }

    /// Forgets the tool and the owner of a call, if no calls of them run or wait.
    fn forget(&mut self, keys: CallKeys) {
        if self.tools.get(keys.tool).is_some_and(|tool| tool.running == 0 && tool.ring.is_empty()) {
            self.tool_ids.remove(&self.tools.remove(keys.tool).id);
        }
        if self.owners.get(keys.owner).is_some_and(|owner| owner.running == 0 && owner.queued == 0) {
            self.owner_ids.remove(&self.owners.remove(keys.owner).owner);
        }
    }

    /// Returns whether nothing is remembered.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let rings = self.ring.is_empty() && self.tool_ids.is_empty() && self.owner_ids.is_empty();
        rings
            && self.tools.is_empty()
            && self.owners.is_empty()
            && self.running == 0
            && self.queued == 0
            && self.bytes == 0
    }
}
