//! What bounds everything that waits: the queue in front of a reader, and how many bytes all queues may hold.

mod capacity;
mod outbox;

pub use capacity::{Capacity, Reserved, shrink};
pub use outbox::{Attached, Item, Outbox, Pushed};
