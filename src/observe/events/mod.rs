//! One struct for each thing that happens.

mod clients;
mod issuer;
mod tasks;
mod upstreams;

pub use clients::{
    CancellationIgnored, ConnectionEnded, ConnectionOpened, ConnectionsCut, RequestRefused, SessionEnded,
    SessionOpened, UnknownAnswer,
};
pub use issuer::{IssuerFailed, KeysChanged};
pub use tasks::{
    Drained, Draining, ExcessivePolling, LookupFailed, QuestionAsked, QuestionForgotten, QuestionKept, QuestionRefused,
    ResultKept, ResultRemoved, ResultRetrieved, TaskCancelled, TaskCreated, TaskEnded, TaskLeftQueue, TaskRefused,
    TaskRemoved,
};
pub use upstreams::{ChildEnded, ChildStarted, ExchangeFailed, MessagesDropped, UnknownProgress, UnknownResponse};

pub use super::metrics::Ended;
