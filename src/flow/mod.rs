//! What bounds everything that waits: the queue before a reader, how many bytes all queues may hold, and
//! what each owner has.

mod byte_room;
mod capacity;
mod outbox;
mod tally;

pub use byte_room::{ByteRoom, TakenBytes};
pub use capacity::{Capacity, Reserved, shrink};
pub use outbox::{Attached, Item, Outbox, Pushed};
pub use tally::Tally;
