//! The sessions on a shared child, their calls, and the child's own requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::sync::{oneshot, watch};

use super::{belongings::Belongings, callers::Callers, given_up::GivenUp, questions::Questions};
use crate::{
    upstream::{Failure, Inbound, Purpose},
    wire::Message,
};

/// From this many calls of a session on, calls that ended without a response are removed.
const SWEEP_FROM: usize = 64;
/// How many of taskgate's own requests that end subscriptions are known by their numbers until the child answers.
const MAX_UNSUBSCRIBING: usize = 1 << 16;

/// The sessions on one child, their calls, and the child's own requests.
#[derive(Debug)]
pub(super) struct Registry {
    /// The next number that stands for a request towards the child.
    next: u64,
    /// The sessions' requests in flight, by their numbers towards the child.
    calls: HashMap<u64, SharedCall>,
    /// The sessions, oldest first.
    seats: BTreeMap<u64, Seat>,
    /// The child's own requests that wait for an answer.
    pub(super) questions: Questions,
    /// What belongs to single sessions, of which the child tells later.
    pub(super) belongings: Belongings,
    /// taskgate's own requests that end subscriptions, until the child answers.
    unsubscribing: BTreeSet<u64>,
    /// taskgate's own `initialize`, while it is in flight.
    greeting: Option<(u64, oneshot::Sender<Result<Message, Failure>>)>,
    /// The calls that were removed here and that the child has not answered.
    given_up: GivenUp,
    /// Whose calls the child has got.
    callers: Callers,
    /// Whether the child is about to end, so that no session may join.
    closed: bool,
    /// How many sessions there are.
    count: watch::Sender<usize>,
    /// How many sessions there have been.
    joined: usize,
}

/// A call of a session that is in flight on the child.
#[derive(Debug)]
struct SharedCall {
    /// The session that made it.
    seat: u64,
    /// The number under which the session knows it.
    number: u64,
    /// Whether the session has cancelled it.
    cancelled: bool,
    /// Whether the child may ask in the course of it, as far as is known.
    asks: bool,
}

/// A session on the child.
#[derive(Debug)]
struct Seat {
    inbound: Inbound,
    /// The child's numbers of its calls, by the session's own.
    calls: HashMap<u64, u64>,
    /// The number of calls at which ended ones are removed.
    sweep_at: usize,
}

/// What a session that has gone leaves behind.
#[derive(Debug, Default)]
pub(super) struct LeftBehind {
    /// Its calls, to be cancelled.
    pub(super) calls: Vec<u64>,
    /// The raw ids of the child's requests to it, to be answered with an error.
    pub(super) questions: Vec<String>,
    /// The URIs of its subscriptions that no other session has, to be ended by requests with these numbers.
    pub(super) subscriptions: Vec<(u64, Box<str>)>,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            next: 1,
            calls: HashMap::new(),
            seats: BTreeMap::new(),
            questions: Questions::default(),
            belongings: Belongings::default(),
            unsubscribing: BTreeSet::new(),
            greeting: None,
            given_up: GivenUp::default(),
            callers: Callers::default(),
            closed: false,
            count: watch::Sender::new(0),
            joined: 0,
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Lets a session in; `None` if the child is about to end.
    pub(super) fn join(&mut self, inbound: Inbound) -> Option<u64> {
        if self.closed {
            return None;
        }
        let seat = self.number();
        self.seats.insert(seat, Seat { inbound, calls: HashMap::new(), sweep_at: SWEEP_FROM });
        self.count.send_replace(self.seats.len());
        self.joined += 1;
        Some(seat)
    }

    /// Lets a session go. Returns what it leaves behind.
    pub(super) fn leave(&mut self, seat: u64) -> LeftBehind {
        let Some(Seat { inbound, calls, .. }) = self.seats.remove(&seat) else { return LeftBehind::default() };
        let mut left = LeftBehind::default();
        for uri in self.belongings.forget(seat) {
            let ours = self.number();
            self.unsubscribing.insert(ours);
            if self.unsubscribing.len() > MAX_UNSUBSCRIBING {
                self.unsubscribing.pop_first();
            }
            left.subscriptions.push((ours, uri));
        }
        for (number, ours) in calls {
            let call = self.calls.remove(&ours);
            if call.as_ref().is_some_and(|call| call.asks && inbound.exchanges.may_have_asked(number)) {
                self.given_up.add(ours, inbound.pooled);
            }
            if call.is_some_and(|call| !call.cancelled) && inbound.exchanges.is_open(number) {
                left.calls.push(ours);
            }
        }
        left.questions = self.questions.forget(seat);
        self.count.send_replace(self.seats.len());
        left
    }

    /// Returns the number of sessions, and its changes.
    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Lets no more sessions in if there are none now. Returns whether it is closed.
    pub(super) fn close_if_empty(&mut self) -> bool {
        self.closed |= self.seats.is_empty();
        self.closed
    }

    /// Lets no more sessions in, and gives up the handshake. Returns the sessions that are there.
    pub(super) fn close(&mut self, failure: &Failure) -> Vec<Inbound> {
        self.closed = true;
        if let Some((_, answer)) = self.greeting.take() {
            let _ = answer.send(Err(failure.clone()));
        }
        self.sessions()
    }

    /// Returns the sessions that have subscribed to a resource.
    pub(super) fn subscribers(&self, uri: &str) -> Vec<Inbound> {
        self.those(&self.belongings.subscribers(uri))
    }

    /// Returns the sessions whose elicitation is complete.
    pub(super) fn elicitation_completed(&mut self, id: &str) -> Vec<Inbound> {
        let seats = self.belongings.completed(id);
        self.those(&seats)
    }

    fn those(&self, seats: &[u64]) -> Vec<Inbound> {
        seats.iter().filter_map(|seat| self.seats.get(seat)).map(|seat| seat.inbound.clone()).collect()
    }

    /// Takes the answer to a request of [`LeftBehind::subscriptions`], if it is one.
    pub(super) fn has_unsubscribed(&mut self, ours: u64) -> bool {
        self.unsubscribing.remove(&ours)
    }

    /// Takes note of what a response changes for later.
    pub(super) fn answered(&mut self, ours: u64, response: &Message) {
        if let Some(seat) = self.calls.get(&ours).map(|call| call.seat).filter(|seat| self.seats.contains_key(seat)) {
            self.belongings.answered(seat, ours, response);
        }
    }

    /// Returns every session.
    pub(super) fn sessions(&self) -> Vec<Inbound> {
        self.seats.values().map(|seat| seat.inbound.clone()).collect()
    }

    /// Registers taskgate's own `initialize`. Returns its number, and where its answer will come.
    pub(super) fn greet(&mut self) -> (u64, oneshot::Receiver<Result<Message, Failure>>) {
        let (answer, answered) = oneshot::channel();
        let number = self.number();
        self.greeting = Some((number, answer));
        (number, answered)
    }

    /// Takes the end of taskgate's own `initialize`. Gives back any other end.
    pub(super) fn greeted(
        &mut self,
        number: Option<u64>,
        ending: Result<Message, Failure>,
    ) -> Option<Result<Message, Failure>> {
        // During the handshake an error without an id can only be about `initialize`.
        match self.greeting.take_if(|(ours, _)| number.is_none_or(|number| number == *ours)) {
            Some((_, answer)) => {
                let _ = answer.send(ending);
                None
            }
            None => Some(ending),
        }
    }

    /// Registers a session's call. Returns the child's number for it; `None` if the session has gone.
    pub(super) fn call(&mut self, seat: u64, number: u64) -> Option<u64> {
        let ours = self.number();
        let caller = self.seats.get_mut(&seat)?;
        if caller.calls.len() >= caller.sweep_at {
            // Calls that were cancelled never get a response.
            for (_, ours) in caller.calls.extract_if(|number, _| !caller.inbound.exchanges.is_open(*number)) {
                if self.calls.remove(&ours).is_some_and(|call| call.asks) {
                    self.given_up.add(ours, caller.inbound.pooled);
                }
            }
            caller.sweep_at = SWEEP_FROM.max(2 * caller.calls.len());
        }
        caller.calls.insert(number, ours);
        let asks = caller.inbound.exchanges.may_have_asked(number);
        if asks {
            self.callers.add(&caller.inbound);
        }
        self.calls.insert(ours, SharedCall { seat, number, cancelled: false, asks });
        Some(ours)
    }

    /// Returns the child's number for a session's call.
    pub(super) fn number_of(&self, seat: u64, number: u64) -> Option<u64> {
        self.seats.get(&seat)?.calls.get(&number).copied()
    }

    /// Returns the call that progress is about.
    pub(super) fn caller(&self, ours: u64) -> Option<(Inbound, u64)> {
        let call = self.calls.get(&ours)?;
        Some((self.seats.get(&call.seat)?.inbound.clone(), call.number))
    }

    /// Removes and returns the call that a response ends.
    pub(super) fn end(&mut self, ours: u64) -> Option<(Inbound, u64)> {
        self.given_up.remove(ours);
        let SharedCall { seat, number, .. } = self.calls.remove(&ours)?;
        let caller = self.seats.get_mut(&seat)?;
        caller.calls.remove(&number);
        Some((caller.inbound.clone(), number))
    }

    /// Removes and returns the call that a response without an id probably ends. It may be about something else, so a
    /// call that may still ask counts as given up.
    pub(super) fn end_by_guess(&mut self, ours: u64) -> Option<(Inbound, u64)> {
        let asks = self.calls.get(&ours).is_some_and(|call| call.asks);
        let ended = self.end(ours)?;
        if asks {
            self.given_up.add(ours, ended.0.pooled);
        }
        Some(ended)
    }

    /// Marks a session's call as cancelled. Returns the child's number for it.
    pub(super) fn cancel(&mut self, seat: u64, number: u64) -> Option<u64> {
        let ours = self.number_of(seat, number)?;
        let asks = self.seats.get(&seat)?.inbound.exchanges.may_have_asked(number);
        let call = self.calls.get_mut(&ours)?;
        (call.cancelled, call.asks) = (true, call.asks && asks);
        Some(ours)
    }

    /// Forgets calls of a session that has gone: the child has never got them.
    pub(super) fn were_not_sent(&mut self, ours: &[u64]) {
        for ours in ours {
            self.given_up.remove(*ours);
        }
    }

    /// Returns the sessions that a notification may concern if it does not say whose it is: the only one with calls in
    /// flight, or all if none has any. Sessions that must not hear of a call that was given up, or of calls of another
    /// owner, are not among them. `None` if several have calls in flight: it may concern just one of them.
    pub(super) fn concerned(&self) -> Option<Vec<Inbound>> {
        let runs = |seat: &&Seat| seat.calls.keys().any(|number| seat.inbound.exchanges.may_tell(*number));
        let mut callers = self.seats.values().filter(runs);
        let mut concerned = match (callers.next(), callers.next()) {
            (None, _) => self.sessions(),
            (Some(seat), None) => vec![seat.inbound.clone()],
            (Some(_), Some(_)) => return None,
        };
        let hears = [false, true].map(|pooled| !self.may_be_of_given_up(pooled));
        concerned.retain(|inbound| hears[usize::from(inbound.pooled)] && !self.callers.keep_from(inbound));
        Some(concerned)
    }

    /// Returns the session that gets a request of the child, which does not say whose call has caused it.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn session_to_ask(&self) -> Result<(u64, Inbound), &'static str> {
        let newest = |seat: &Seat| {
            let number = seat.inbound.exchanges.newest(Some(Purpose::Foreground))?;
            seat.calls.get(&number).copied()
        };
        let runs = |seat: &Seat| seat.calls.keys().any(|number| seat.inbound.exchanges.is_in_flight(*number));
        let mut callers = self.seats.values().filter(|seat| runs(seat));
        if callers.clone().count() > 1 && callers.any(|seat| seat.inbound.pooled) {
            return Err("calls of several clients run, and nothing says in the course of which of them this is asked");
        }
        // The session with the newest plain call comes first. Without a plain call, sessions with running tasks come
        // before the others, then those whose client reads the GET stream, then the newest. So the session of the only
        // call in flight always comes first.
        let rank = |(id, seat): &(&u64, &Seat)| (newest(seat), runs(seat), seat.inbound.listener.has_reader(), **id);
        let first = self.seats.iter().max_by_key(rank).map(|(seat, asked)| (*seat, asked.inbound.clone()));
        let (seat, inbound) = first.ok_or("no client is there to be asked")?;
        if self.may_be_of_given_up(inbound.pooled) {
            return Err("a call was given up, and nothing says whether this is asked in the course of it");
        }
        Ok((seat, inbound))
    }

    /// Returns whether what the child asks or tells must not reach a client, which is `pooled` if it has no session: it
    /// may belong to a call that was given up, and this client, or that of the call, has no session.
    fn may_be_of_given_up(&self, pooled: bool) -> bool {
        let counts = |call: &SharedCall| {
            self.seats.get(&call.seat).is_some_and(|Seat { inbound, .. }| {
                let (calls, number) = (&inbound.exchanges, call.number);
                call.asks && (pooled || inbound.pooled) && calls.may_have_asked(number) && !calls.is_in_flight(number)
            })
        };
        self.given_up.concern(pooled) || self.calls.values().any(counts)
    }

    /// Returns the session that got a request that the child withdraws.
    pub(super) fn withdraw(&mut self, id: &str) -> Option<Inbound> {
        let seat = self.questions.withdraw(id)?;
        Some(self.seats.get(&seat)?.inbound.clone())
    }

    /// Returns the only call in flight of the only session that the child has ever had. That is the call which an error
    /// without an id ends; where there were several sessions, it may be about what another one has sent. Calls that
    /// ended without a response or were cancelled do not count.
    pub(super) fn only(&self) -> Option<u64> {
        let may_be_answered = |call: &SharedCall| {
            let seat = self.seats.get(&call.seat);
            seat.is_some_and(|seat| seat.inbound.exchanges.may_be_answered(call.number))
        };
        let mut open = self.calls.iter().filter(|(_, call)| may_be_answered(call)).map(|(ours, _)| *ours);
        open.next().filter(|_| open.next().is_none() && self.joined == 1)
    }
}

#[cfg(test)]
mod tests;
