//! One struct for each thing that happens.

mod children;
mod clients;
mod disk;
mod issuer;
mod modern;
mod restart;
mod tasks;
mod upstreams;

pub use children::{NotAMessage, UnattributedNotification, UnattributedQuestion, WaitsForChild};
pub use clients::{
    CancellationIgnored, ConnectionEnded, ConnectionOpened, ConnectionsCut, RequestRefused, RequestStateRefused,
    SessionEnded, SessionEvicted, SessionOpened, TlsHandshakeFailed, UnknownAnswer,
};
pub use disk::{BatchWritten, StoreDamaged, StoreTidied};
pub use issuer::{IssuerFailed, KeysChanged};
pub use modern::{
    CallBegun, CallNotAsked, CallOver, CallParked, CallUnparked, PooledSessionEnded, PooledSessionOpened,
    SubscriptionEnded, SubscriptionOpened,
};
pub use restart::{ChangesLost, Drained, Draining, SessionRestored, TaskRestored};
pub use tasks::{
    ExcessivePolling, LookupFailed, QuestionAsked, QuestionForgotten, QuestionKept, QuestionRefused, ResultKept,
    ResultRemoved, ResultRetrieved, StoreUnavailable, TaskCancelled, TaskCreated, TaskEnded, TaskKept, TaskLeftQueue,
    TaskRefused, TaskRemoved,
};
pub use upstreams::{
    Cause, ChildEnded, ChildStarted, ExchangeFailed, LimitsVoid, MessageUnreadable, MessagesDropped, NoSessionsThere,
    PatternsUnmatched, PatternsVoid, StatusHidden, UnknownProgress, UnknownResponse,
};

pub use super::metrics::Ended;
