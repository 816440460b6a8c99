//! What bounds everything that waits: the queue in front of a reader, the bytes that all queues may hold together, and
//! a count for each owner.

mod byte_room;
mod capacity;
mod outbox;
mod tally;

pub use byte_room::{ByteRoom, TakenBytes};
pub use capacity::{Capacity, Reserved, shrink};
pub use outbox::{Attached, Item, Outbox, Pushed};
pub use tally::Tally;
