//! Who runs, who waits, and who is next; pure. A slot that gets free goes round between the owners, for an owner between
//! its tools, and for a tool of an owner to the call that has waited longest.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use slab::Slab;

use super::{Bound, Limited, Totals};
use crate::{config::UpstreamId, identity::Owner};

/// Tells whether the calls of an owner that wait may have turns, whatever else has room.
pub(super) type MayStart<'a> = &'a dyn Fn(&Owner) -> bool;

/// Names a tool of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolId {
    /// The upstream.
    pub upstream: UpstreamId,
    /// The tool's name there.
    pub name: Arc<str>,
}

/// Every call that runs or waits. A tool and an owner are remembered only while one of their calls is here: a tool's
/// name is the client's word, and so may the owner's be.
#[derive(Debug)]
pub(super) struct Line<C> {
    max: Totals,
    running: usize,
    queued: usize,
    /// Bytes of the requests that wait.
    bytes: usize,
    tools: Slab<Tool>,
    tool_ids: HashMap<ToolId, usize>,
    owners: Slab<Party<C>>,
    owner_ids: HashMap<Owner, usize>,
    /// The owners that wait, those first that are next.
    ring: BTreeMap<u64, usize>,
    /// The last place that was given; later ones are behind it, whatever the ring.
    last: u64,
}

/// Whose call it is, and of which tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    owner: usize,
    tool: usize,
}

#[derive(Debug)]
struct Tool {
    id: ToolId,
    max_running: usize,
    running: usize,
    /// The owners that wait for it, those first that are next.
    ring: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Party<C> {
    owner: Owner,
    running: usize,
    queued: usize,
    /// Bytes of its requests that wait.
    bytes: usize,
    /// Its place in the ring of all owners, while it waits.
    place: u64,
    lanes: HashMap<usize, Lane<C>>,
    /// The tools that it waits for, those first that are next.
    ring: BTreeMap<u64, usize>,
}

/// The calls of one tool that wait for one owner.
#[derive(Debug)]
struct Lane<C> {
    /// Its place in the ring of the tool and in that of the owner.
    place: u64,
    calls: BTreeMap<u64, Call<C>>,
}

#[derive(Debug)]
struct Call<C> {
    /// What stands for it.
    waiting: C,
    /// Bytes of its request.
    bytes: usize,
}

impl<C> Line<C> {
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
            last: 0,
        }
    }

    /// Lets a call run, or wait at the place that is returned; `waiting` is what stands for it there, beside the `bytes`
    /// of its request.
    ///
    /// # Errors
    /// [`Limited`]
    pub(super) fn enter(
        &mut self,
        owner: &Owner,
        tool: ToolId,
        (max_running, max_queued): (usize, usize),
        bytes: usize,
        waiting: impl FnOnce() -> C,
    ) -> Result<(Ids, Option<u64>), Limited> {
        let ids = self.ids(owner, tool, max_running);
        let Some(running) = self.run_bound(ids) else {
            self.begin(ids);
            return Ok((ids, None));
        };
        if let Some(queued) = self.queue_bound(ids, max_queued, bytes) {
            self.forget(ids);
            return Err(Limited { running, queued });
        }
        Ok((ids, Some(self.wait(ids, Call { waiting: waiting(), bytes }))))
    }

    /// Ends a call that ran, and begins those that run in its place: one for the slot of its tool and one for that of its
    /// owner, or a single one where the process was full. Before it nothing could run that waits, so nothing else can now;
    /// an owner that may start again has [`Line::next`] besides.
    pub(super) fn leave(&mut self, ids: Ids, may_start: MayStart<'_>) -> [Option<(Ids, C)>; 2] {
        let full = self.running >= self.max.running;
        self.running -= 1;
        self.tools[ids.tool].running -= 1;
        self.owners[ids.owner].running -= 1;
        let next = if full {
            [self.next(may_start), None]
        } else {
            [self.next_after(ids, may_start), self.next_after(ids, may_start)]
        };
        self.forget(ids);
        next
    }

    /// Begins the next call that can run, of any owner, if there is room.
    pub(super) fn next(&mut self, may_start: MayStart<'_>) -> Option<(Ids, C)> {
        let next = self.next_of_all(may_start)?;
        self.turn(next)
    }

    /// Takes a call out that does not want to wait any more. Without effect if it has had its turn.
    pub(super) fn give_up(&mut self, ids: Ids, place: u64) {
        let lane = self.owners.get_mut(ids.owner).and_then(|party| party.lanes.get_mut(&ids.tool));
        // Ids are used again, places are not.
        if let Some(call) = lane.and_then(|lane| lane.calls.remove(&place)) {
            self.left_queue(ids, call.bytes, false);
            self.forget(ids);
        }
    }

    fn ids(&mut self, owner: &Owner, tool: ToolId, max_running: usize) -> Ids {
        let (tools, owners) = (&mut self.tools, &mut self.owners);
        let tool = *self.tool_ids.entry(tool).or_insert_with_key(|id| {
            tools.insert(Tool { id: id.clone(), max_running, running: 0, ring: BTreeMap::new() })
        });
        let owner = *self.owner_ids.entry(owner.clone()).or_insert_with_key(|owner| {
            let (lanes, ring) = (HashMap::new(), BTreeMap::new());
            owners.insert(Party { owner: owner.clone(), running: 0, queued: 0, bytes: 0, place: 0, lanes, ring })
        });
        Ids { owner, tool }
    }

    /// What keeps a call from running, if anything does.
    fn run_bound(&self, ids: Ids) -> Option<Bound> {
        let (tool, max) = (&self.tools[ids.tool], &self.max);
        if tool.running >= tool.max_running {
            Some(Bound::Tool(tool.max_running))
        } else if self.owners[ids.owner].running >= max.running_per_owner {
            Some(Bound::Owner(max.running_per_owner))
        } else {
            (self.running >= max.running).then_some(Bound::All(max.running))
        }
    }

    /// What keeps a call from waiting, if anything does.
    fn queue_bound(&self, ids: Ids, max_queued: usize, bytes: usize) -> Option<Bound> {
        let (party, max) = (&self.owners[ids.owner], &self.max);
        if party.lanes.get(&ids.tool).map_or(0, |lane| lane.calls.len()) >= max_queued {
            Some(Bound::Tool(max_queued))
        } else if party.queued >= max.queued_per_owner {
            Some(Bound::Owner(max.queued_per_owner))
        } else if self.queued >= max.queued {
            Some(Bound::All(max.queued))
        } else if party.bytes + bytes > max.queued_bytes_per_owner {
            Some(Bound::BytesOfOwner(max.queued_bytes_per_owner))
        } else {
            (self.bytes + bytes > max.queued_bytes).then_some(Bound::Bytes(max.queued_bytes))
        }
    }

    fn begin(&mut self, ids: Ids) {
        self.running += 1;
        self.tools[ids.tool].running += 1;
        self.owners[ids.owner].running += 1;
    }

    fn wait(&mut self, ids: Ids, call: Call<C>) -> u64 {
        self.last += 1;
        let place = self.last;
        let (tool, party) = (&mut self.tools[ids.tool], &mut self.owners[ids.owner]);
        if party.queued == 0 {
            party.place = place;
            self.ring.insert(place, ids.owner);
        }
        let lane = party.lanes.entry(ids.tool).or_insert_with(|| {
            tool.ring.insert(place, ids.owner);
            party.ring.insert(place, ids.tool);
            Lane { place, calls: BTreeMap::new() }
        });
        party.bytes += call.bytes;
        self.bytes += call.bytes;
        lane.calls.insert(place, call);
        party.queued += 1;
        self.queued += 1;
        place
    }

    /// The next call for the slot of a tool or for that of an owner. The tool's order comes first, or its owner would keep
    /// the slot; where it is that owner's turn, the owner's order decides which tool it is.
    fn next_after(&mut self, ids: Ids, may_start: MayStart<'_>) -> Option<(Ids, C)> {
        let of_tool = self.next_of_tool(ids.tool, may_start).filter(|next| next.owner != ids.owner);
        let next = of_tool.or_else(|| self.next_of_owner(ids.owner, may_start))?;
        self.turn(next)
    }

    /// The first owner with room that waits for a tool, if the tool has room.
    fn next_of_tool(&self, id: usize, may_start: MayStart<'_>) -> Option<Ids> {
        let tool = self.tools.get(id).filter(|tool| tool.running < tool.max_running)?;
        let has_room = |owner: &usize| self.has_room(&self.owners[*owner], may_start);
        tool.ring.values().copied().find(has_room).map(|owner| Ids { owner, tool: id })
    }

    /// The first tool with room that an owner waits for, if the owner has room.
    fn next_of_owner(&self, id: usize, may_start: MayStart<'_>) -> Option<Ids> {
        let party = self.owners.get(id).filter(|party| self.has_room(party, may_start))?;
        let has_room = |tool: &usize| self.tools[*tool].running < self.tools[*tool].max_running;
        party.ring.values().copied().find(has_room).map(|tool| Ids { owner: id, tool })
    }

    fn next_of_all(&self, may_start: MayStart<'_>) -> Option<Ids> {
        if self.running >= self.max.running {
            return None;
        }
        self.ring.values().find_map(|owner| self.next_of_owner(*owner, may_start))
    }

    /// Whether a call of an owner that waits may run, as far as its owner goes.
    fn has_room(&self, party: &Party<C>, may_start: MayStart<'_>) -> bool {
        party.running < self.max.running_per_owner && party.queued > 0 && may_start(&party.owner)
    }

    /// Begins the call of a lane that has waited longest.
    fn turn(&mut self, ids: Ids) -> Option<(Ids, C)> {
        let (_, call) = self.owners[ids.owner].lanes.get_mut(&ids.tool)?.calls.pop_first()?;
        self.left_queue(ids, call.bytes, true);
        self.begin(ids);
        Some((ids, call.waiting))
    }

    /// A call with so many bytes has left its lane. After a `turn` the lane and its owner go behind all others.
    fn left_queue(&mut self, ids: Ids, bytes: usize, turn: bool) {
        self.last += u64::from(turn);
        let (tool, party) = (&mut self.tools[ids.tool], &mut self.owners[ids.owner]);
        (self.queued, self.bytes) = (self.queued - 1, self.bytes - bytes);
        (party.queued, party.bytes) = (party.queued - 1, party.bytes - bytes);
        let Some(lane) = party.lanes.get_mut(&ids.tool) else { return };
        let (before, over) = (lane.place, lane.calls.is_empty());
        if turn || over {
            tool.ring.remove(&before);
            party.ring.remove(&before);
        }
        if over {
            party.lanes.remove(&ids.tool);
        } else if turn {
            lane.place = self.last;
            tool.ring.insert(self.last, ids.owner);
            party.ring.insert(self.last, ids.tool);
        }
        if turn || party.queued == 0 {
            self.ring.remove(&party.place);
        }
        if turn && party.queued > 0 {
            party.place = self.last;
            self.ring.insert(self.last, ids.owner);
        }
    }

    /// Forgets the tool and the owner of a call where nothing of theirs runs or waits.
    fn forget(&mut self, ids: Ids) {
        if self.tools.get(ids.tool).is_some_and(|tool| tool.running == 0 && tool.ring.is_empty()) {
            self.tool_ids.remove(&self.tools.remove(ids.tool).id);
        }
        if self.owners.get(ids.owner).is_some_and(|party| party.running == 0 && party.queued == 0) {
            self.owner_ids.remove(&self.owners.remove(ids.owner).owner);
        }
    }

    /// Whether nothing is remembered.
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
